/* test_chat.c - the chat sample, run as a person runs it: what it says of wrong usage, what it answers, a conversation
 * that it remembers, and a context that is full. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
}

/* Cutting an answer and a prompt of several chunks change nothing of what was said before. */
Test(chat, ends_an_answer_after_so_many_tokens) {
  skip_under_sanitizers();
  struct ran ran = run_model("--tokens 5 --prompt 'What is the capital of Japan?'", "");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "The capital of Japan is\n");
}

/* Ctrl-C, which may come before the model is there. */
Test(chat, ends_its_answer_when_it_is_interrupted) {
  skip_under_sanitizers();
  char line[1024];
  struct gguf file = require_model();
  gguf_close(&file);
  snprintf(line, sizeof line,
           "timeout --preserve-status -s INT 1 %s/samples/chat --backend host --tokens 2000 --prompt 'Count to 1000.'",
           shell_root());
  struct ran ran = shell_run(line);
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.error, "prompt "), "%s", ran.error);
  cr_assert_gt(strlen(ran.out), 1);
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
