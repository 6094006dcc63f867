/* test_chat.c - the chat sample, run as a person runs it: what it says of wrong usage, what it answers, a conversation
 * that it remembers, a context that is full, and what each Ctrl-C ends. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../command/shell.h"
#include "gguf_writer.h"
#include "model.h"

TestSuite(chat, .fini = shell_remove_folder, .timeout = 300);

/* "chat WORDS" with this on its standard input. */
static struct ran run_chat(const char *words, const char *input) {
  char line[4096];
  const char *path = shell_write("input", input);
  snprintf(line, sizeof line, "%s/samples/chat %s < %s", shell_root(), words, path);
  return shell_run(line);
}

/* The same on the host, with the model; skips where it is not there. */
static struct ran run_model(const char *words, const char *input) {
  char all[1024];
  struct gguf file = require_model();
  gguf_close(&file);
  snprintf(all, sizeof all, "--backend host %s", words);
  return run_chat(all, input);
}

Test(chat, wrong_usage_exits_2_and_says_what_is_allowed) {
  static const char *const lines[][2] = {
      {"--tokens x", "--tokens is an integer from 1 to 2147483647, not 'x'"},
      {"--tokens", "'--tokens' is unknown or lacks its value"},
      {"--temperature -1", "--temperature is a number from 0 to 100, not '-1'"},
      {"--top-p 1.5", "--top-p is a number from 0 to 1, not '1.5'"},
      {"--weights q4", "--weights is bf16, e4m3 or nvfp4, not 'q4'"},
      {"--embedding e4m3", "--embedding is bf16 or nvfp4, not 'e4m3'"},
      {"--backend gpu", "--backend is auto, host or cuda, not 'gpu'"},
      {"--sede 1", "there is no option --sede"},
      {"--model /nonexistent.gguf", "/nonexistent.gguf: No such file or directory"},
      {"--model /dev/null", "/dev/null: is not a regular file with something in it"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct ran ran = run_chat(lines[i][0], "");
    REQUIRE_CODE(ran, 2);
    cr_assert_str_empty(ran.out);
    cr_assert_not_null(strstr(ran.error, lines[i][1]), "%s: %s", lines[i][0], ran.error);
  }
  struct ran ran = run_chat("--help", "");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(strncmp(ran.out, "usage: chat", 11), 0);
}

/* A file of the small model and of what a test has written before, asked for a few tokens. */
static struct ran run_small_model(struct gguf_writer *writer) {
  char words[512];
  gguf_write_small_vocabulary(writer);
  gguf_write_small_model(writer);
  struct gguf_buffer bytes = gguf_write_end(writer);
  const char *path = shell_write("small.gguf", "");
  FILE *file = fopen(path, "wb");
  cr_assert(file && fwrite(bytes.bytes, 1, bytes.count, file) == bytes.count && fclose(file) == 0);
  free(bytes.bytes);
  snprintf(words, sizeof words, "--backend host --context %d --tokens 3 --prompt hello --model %s", SMALL_CONTEXT,
           path);
  return run_chat(words, "");
}

static void require_refusal(struct ran ran, const char *sentence) {
  REQUIRE_CODE(ran, 2);
  cr_assert_str_empty(ran.out);
  cr_assert_not_null(strstr(ran.error, sentence), "'%s' does not say '%s'", ran.error, sentence);
}

/* Each of these would be computed as the small model is, which is another one's. */
Test(chat, refuses_a_file_that_asks_for_what_it_does_not_compute) {
  static const struct {
    const char *key, *text; /* NULL: the number */
    uint32_t number;
    const char *sentence;
  } keys[] = {
      {"llama.rope.scaling.type", "yarn", 0, "scaling.type is yarn, not none: positions are not scaled"},
      {"llama.rope.scaling.factor", NULL, 8, "scaling.factor is 8, not 1: positions are not scaled"},
      {"llama.rope.scaling.attn_factor", NULL, 2, "scaling.attn_factor is 2, not 1: positions are not scaled"},
      {"llama.rope.scale_linear", NULL, 2, "rope.scale_linear is 2, not 1: positions are not scaled"},
      {"llama.rope.dimension_count", NULL, 16, "dimension_count is 16, not 32: a head is turned as a whole"},
      {"llama.attention.key_length", NULL, 64, "key_length is 64, not 32: a head has its share"},
      {"llama.attention.value_length", NULL, 64, "value_length is 64, not 32: a head has its share"},
      {"llama.expert_count", NULL, 8, "llama.expert_count is 8, not 0: a layer has one feed forward"},
  };
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    struct gguf_writer writer = {0};
    if (keys[i].text)
      gguf_write_string(&writer, keys[i].key, keys[i].text);
    else
      gguf_write_u32(&writer, keys[i].key, keys[i].number);
    require_refusal(run_small_model(&writer), keys[i].sentence);
  }
  static const char *const tensors[] = {"blk.0.attn_q.bias", "blk.0.ffn_gate_exps.weight", "rope_freqs.weight"};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    static const float values[64];
    struct gguf_writer writer = {0};
    gguf_write_tensor(&writer, tensors[i], GGUF_TYPE_F32, 1, (int64_t[]){64}, values, sizeof values);
    char sentence[128];
    snprintf(sentence, sizeof sentence, "it has a tensor %s, which would be left out", tensors[i]);
    require_refusal(run_small_model(&writer), sentence);
  }
}

/* The same keys where they ask for nothing. */
Test(chat, takes_a_file_that_says_what_it_computes) {
  static const float one = 1;
  struct gguf_writer writer = {0};
  gguf_write_string(&writer, "llama.rope.scaling.type", "none");
  gguf_write_value(&writer, "llama.rope.scaling.factor", GGUF_F32, &one, sizeof one);
  gguf_write_u32(&writer, "llama.rope.dimension_count", 32);
  gguf_write_u32(&writer, "llama.attention.key_length", 32);
  gguf_write_u32(&writer, "llama.attention.value_length", 32);
  gguf_write_u32(&writer, "llama.expert_count", 0);
  struct ran ran = run_small_model(&writer);
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.error, "answer     2 tokens after the first"), "%s", ran.error);
}

/* What the model says is all of the standard output. (Of this answer each token is well ahead of the next best; of that
 * about France the first is not.) */
Test(chat, answers_a_prompt) {
  struct ran ran = run_model("--prompt 'What is the capital of Japan?'", "");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "The capital of Japan is Tokyo.\n");
  cr_assert_not_null(strstr(ran.error, "prompt     37 tokens"), "%s", ran.error);
  cr_assert_not_null(strstr(ran.error, "p99.9"), "%s", ran.error);
  cr_assert_not_null(strstr(ran.error, "opened     in "), "%s", ran.error);
}

/* Cutting an answer and a prompt of several chunks change nothing of what was said before. */
Test(chat, ends_an_answer_after_so_many_tokens) {
  skip_under_sanitizers();
  struct ran ran = run_model("--tokens 5 --prompt 'What is the capital of Japan?'", "");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "The capital of Japan is\n");
}

/* What is drawn depends on the seed alone. */
Test(chat, draws_the_same_answer_from_the_same_seed) {
  skip_under_sanitizers();
  static char first[SHELL_TEXT_BYTES];
  for (int run = 0; run < 3; run++) {
    char words[128];
    snprintf(words, sizeof words, "--temperature 1 --seed %d --tokens 12 --prompt 'Tell me a story.'", run / 2);
    struct ran ran = run_model(words, "");
    REQUIRE_CODE(ran, 0);
    if (run == 0) snprintf(first, sizeof first, "%s", ran.out);
    cr_assert_eq(strcmp(ran.out, first) == 0, run < 2, "%s", ran.out);
  }
}

/* The second answer needs the first message; behind /new the first answer comes again. */
Test(chat, keeps_the_conversation_until_it_is_told_to_forget) {
  skip_under_sanitizers();
  static const char message[] = "What is the capital of Japan?";
  char input[256];
  snprintf(input, sizeof input, "%s\nAnd of Italy?\n/new\n%s\n", message, message);
  struct ran ran = run_model("--tokens 12", input);
  REQUIRE_CODE(ran, 0);
  static const char first[] = "The capital of Japan is Tokyo.\n";
  cr_assert_eq(strncmp(ran.out, first, sizeof first - 1), 0, "%s", ran.out);
  cr_assert_not_null(strstr(ran.out, "Italy"), "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, first), 2, "%s", ran.out);
}

Test(chat, says_that_the_context_is_full) {
  skip_under_sanitizers();
  struct ran ran = run_model("--context 40 --prompt 'What is the capital of Japan?'", "");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "The capital of Japan\n"); /* 37 tokens, 3 that found room, and one that needs none */
  cr_assert_not_null(strstr(ran.error, "the context is full: 40 tokens"), "%s", ran.error);
  ran = run_model("--context 20 --prompt 'What is the capital of Japan?'", "");
  REQUIRE_CODE(ran, 2);
  cr_assert_str_empty(ran.out);
  cr_assert_not_null(strstr(ran.error, "that takes 37 tokens, the context has room for 20 more\n"), "%s", ran.error);
  ran = run_model("--context 20", "What is the capital of Japan?\n");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_empty(ran.out);
  cr_assert_not_null(strstr(ran.error, "room for 20 more; /new forgets the conversation\n"), "%s", ran.error);
}

/* ---- Ctrl-C ------------------------------------------------------------------------------------------------------ */

/* A chat beside the test. What it has printed so far is in the two files; text and busy_ns are what a test waits for.
 */
struct beside {
  pid_t process;
  char out[256], error[256];
  const char *text;
  int64_t busy_ns;
};

/* SIGINT is as in front of a terminal, whatever this test began with. The chat does not outlive it. */
static struct beside begin_chat(const char *words, const char *input_path) {
  struct beside chat = {0};
  char line[4096];
  struct gguf file = require_model();
  gguf_close(&file);
  snprintf(chat.out, sizeof chat.out, "%s", shell_write("out", ""));
  snprintf(chat.error, sizeof chat.error, "%s", shell_write("error", ""));
  snprintf(line, sizeof line, "exec %s/samples/chat --backend host %s <%s >%s 2>%s", shell_root(), words, input_path,
           chat.out, chat.error);
  chat.process = fork();
  if (chat.process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
  }
  cr_assert_gt(chat.process, 0);
  return chat;
}

static const char *proc_file(const struct beside *chat, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)chat->process, name);
  return shell_read(path);
}

static bool reads_the_model(const struct beside *chat) { return strstr(proc_file(chat, "maps"), ".gguf") != NULL; }

static bool catches_interrupts(const struct beside *chat) {
  const char *caught = strstr(proc_file(chat, "status"), "SigCgt:");
  return caught && (strtoull(caught + 7, NULL, 16) >> (SIGINT - 1) & 1);
}

/* What its threads have computed. */
static int64_t busy_ns(const struct beside *chat) {
  clockid_t clock;
  struct timespec time = {0};
  if (clock_getcpuclockid(chat->process, &clock) == 0) clock_gettime(clock, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static bool was_busy(const struct beside *chat) { return busy_ns(chat) >= chat->busy_ns; }
static bool has_said(const struct beside *chat) { return strstr(shell_read(chat->out), chat->text) != NULL; }

static bool has_ended(const struct beside *chat) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)chat->process, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == chat->process;
}

/* As long as the suite's timeout lets it. */
static void wait_until(bool (*is_so)(const struct beside *chat), const struct beside *chat) {
  while (!is_so(chat)) {
    cr_assert(is_so == has_ended || !has_ended(chat), "it has ended:\n%s", shell_read(chat->error));
    usleep(1000);
  }
}

static void interrupt(const struct beside *chat) { cr_assert_eq(kill(chat->process, SIGINT), 0); }

/* The exit status is a shell's: 128 and the signal that it died of. */
static struct ran end_of(const struct beside *chat) {
  static char out[SHELL_TEXT_BYTES];
  int status;
  wait_until(has_ended, chat);
  cr_assert_eq(waitpid(chat->process, &status, 0), chat->process);
  snprintf(out, sizeof out, "%s", shell_read(chat->out));
  return (struct ran){WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out, shell_read(chat->error)};
}

/* Of all answers; 0 where there is no such figure. */
static int answered_tokens(struct ran ran) {
  const char *figure = strstr(ran.error, "answer     ");
  return figure ? atoi(figure + 11) : 0;
}

/* It would repeat itself until the context is full. */
static const char long_answer[] = "List a thousand animals.";
enum { MANY_TOKENS = 1900 };

Test(chat, dies_of_an_interrupt_before_the_model_is_there) {
  skip_under_sanitizers();
  struct beside chat = begin_chat("--prompt hello", "/dev/null");
  wait_until(reads_the_model, &chat);
  interrupt(&chat);
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 128 + SIGINT);
  cr_assert(strlen(ran.out) == 0 && strlen(ran.error) == 0, "%s", ran.error);
}

Test(chat, ends_its_answer_when_it_is_interrupted) {
  skip_under_sanitizers();
  char words[128];
  snprintf(words, sizeof words, "--tokens %d --prompt '%s'", MANY_TOKENS, long_answer);
  struct beside chat = begin_chat(words, "/dev/null");
  chat.text = "1. ";
  wait_until(has_said, &chat);
  interrupt(&chat);
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 0);
  cr_assert(answered_tokens(ran) > 1 && answered_tokens(ran) < MANY_TOKENS / 2, "%s", ran.error);
  cr_assert_eq(ran.out[strlen(ran.out) - 1], '\n');
}

/* The first message is interrupted on its way into the model, a thousand tokens before its end: what comes next is
 * answered as if it were the first. */
Test(chat, forgets_a_message_that_is_interrupted) {
  skip_under_sanitizers();
  static char input[8192];
  size_t at = 0;
  while (at < 4 * MANY_TOKENS - 400) at += (size_t)snprintf(input + at, sizeof input - at, "the ");
  snprintf(input + at, sizeof input - at, "\nWhat is the capital of Japan?\n");
  struct beside chat = begin_chat("", shell_write("input", input));
  wait_until(catches_interrupts, &chat);
  chat.busy_ns = busy_ns(&chat) + 100000000; /* it has read the message long since */
  wait_until(was_busy, &chat);
  interrupt(&chat);
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "The capital of Japan is Tokyo.\n");
  cr_assert_eq(shell_occurrences(ran.error, "the message is forgotten"), 1, "%s", ran.error);
  cr_assert_not_null(strstr(ran.error, "prompt     37 tokens"), "%s", ran.error);
}

/* One ends the first answer and nothing of the second; at the prompt one ends the program. It may come just before the
 * line is waited for, so there are more. */
Test(chat, ends_one_thing_with_each_interrupt) {
  skip_under_sanitizers();
  char words[64], path[256];
  snprintf(path, sizeof path, "%s/fifo", shell_folder());
  cr_assert_eq(mkfifo(path, 0600), 0);
  int input = open(path, O_RDWR | O_CLOEXEC); /* for both ends, so that it waits for nobody */
  cr_assert_gt(dprintf(input, "%s\nWhat is the capital of Japan?\n", long_answer), 0);
  snprintf(words, sizeof words, "--tokens %d", MANY_TOKENS);
  struct beside chat = begin_chat(words, path);
  chat.text = "1. ";
  wait_until(has_said, &chat);
  interrupt(&chat);
  chat.text = "The capital of Japan is Tokyo.\n";
  wait_until(has_said, &chat);
  while (!has_ended(&chat)) {
    interrupt(&chat);
    usleep(10000);
  }
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 0);
  cr_assert(answered_tokens(ran) > 8 && answered_tokens(ran) < MANY_TOKENS / 2, "%s", ran.error);
  close(input);
}
