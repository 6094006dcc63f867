/* test_chat_interrupts.c - what each Ctrl-C ends of the chat sample. */
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

#include "model.h"
#include "run_chat.h"

TestSuite(chat_interrupts, .fini = shell_remove_folder, .timeout = 300);

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

Test(chat_interrupts, dies_of_an_interrupt_before_the_model_is_there) {
  skip_under_sanitizers();
  struct beside chat = begin_chat("--prompt hello", "/dev/null");
  wait_until(reads_the_model, &chat);
  interrupt(&chat);
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 128 + SIGINT);
  cr_assert(strlen(ran.out) == 0 && strlen(ran.error) == 0, "%s", ran.error);
}

Test(chat_interrupts, ends_its_answer_when_it_is_interrupted) {
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
Test(chat_interrupts, forgets_a_message_that_is_interrupted) {
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
Test(chat_interrupts, ends_one_thing_with_each_interrupt) {
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
