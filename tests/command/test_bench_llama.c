/* test_bench_llama.c - `rondo bench llama` on the host: what it shows beside the time of a token, and memory that is
 * not there. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "shell.h"

TestSuite(bench_llama, .fini = shell_remove_folder, .timeout = 240);

/* Of the smaller model, in bf16 and NVFP4. */
static const char short_llama[] =
    "bench llama --backend host --model smollm2 --sequences 1 --context 128 --capacity 128 --samples 2";

/* Swap too; UINT64_MAX where the system does not tell. */
static uint64_t available_kib(void) {
  unsigned long long free_kib = UINT64_MAX, swap_kib = 0;
  char line[128];
  FILE *file = fopen("/proc/meminfo", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "MemAvailable: %llu", &free_kib) == 1) continue;
    if (sscanf(line, "SwapFree: %llu", &swap_kib) == 1) break;
  }
  if (file) fclose(file);
  return free_kib == UINT64_MAX ? free_kib : free_kib + swap_kib;
}

/* Of Llama 3.2 1B caches of 16 sequences of 131072 tokens: 71 GB, of which no byte is touched. */
Test(bench_llama, takes_no_memory_that_is_not_there) {
  if (available_kib() > UINT64_C(64) << 20) cr_skip_test("this machine has 64 GiB to spare, or does not tell");
  struct ran ran = shell_rondo("", "bench llama --backend host --model llama --capacity 131072 --sequences 16");
  REQUIRE_CODE(ran, 1);
  cr_assert_not_null(strstr(ran.error, " bytes are needed, but the "), "%s", ran.error);
}

Test(bench_llama, shows_rivals_beside_ours_of_the_same_token_in_bf16) {
  static const struct {
    const char *kind, *model, *weights;
    int sequences, context;
    double us;
    const char *kernel;
  } lines[] = {{"llama", "smollm2", "bf16", 1, 128, 2214.5, "PyTorch, A"},
               {"llama", "smollm2", "bf16", 1, 128, 1021, "torch.compile, A"},
               /* Each of another token, or none: */
               {"gemv", "smollm2", "bf16", 1, 128, 3, "kind"},
               {"llama", "llama", "bf16", 1, 128, 3, "model"},
               {"llama", "smollm2", "nvfp4", 1, 128, 3, "weights"},
               {"llama", "smollm2", "bf16", 4, 128, 3, "sequences"},
               {"llama", "smollm2", "bf16", 1, 512, 3, "context"},
               {"llama", "smollm2", "bf16", 1, 128, 0, "time"}};
  char text[2048] = "[{\"device\": \"x\"}";
  size_t length = strlen(text);
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    length += (size_t)snprintf(text + length, sizeof text - length,
                               ", {\"kind\": \"%s\", \"model\": \"%s\", \"weights\": \"%s\", \"sequences\": %d, "
                               "\"context\": %d, \"us\": %g, \"kernel\": \"%s\"}",
                               lines[i].kind, lines[i].model, lines[i].weights, lines[i].sequences, lines[i].context,
                               lines[i].us, lines[i].kernel);
  snprintf(text + length, sizeof text - length, "]");
  struct ran ran = shell_rondo("", "%s --rivals %s", short_llama, shell_write("rivals.json", text));
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "  over "), 2, "%s", ran.out);
  const char *plain = strstr(ran.out, "\n  over PyTorch, A "), *nvfp4 = strstr(ran.out, "\nsmollm2 nvfp4");
  cr_assert(plain && nvfp4 && plain < nvfp4, "beside bf16: %s", ran.out);
  cr_assert_not_null(strstr(plain, " /  2214.50 us = "), "%s", ran.out);
  cr_assert_not_null(strstr(plain, "\n  over torch.compile, A "), "%s", ran.out);
}

/* The row `label` comes after `samples`, with two times and their ratio. */
static void require_ratio(const char *output, const char *label, const char *samples) {
  const char *row = strstr(output, label), *before = strstr(output, samples);
  double a = 0, b = 0, ratio = 0;
  cr_assert(row && before && before < row, "%s", output);
  cr_assert_eq(sscanf(row + strlen(label), "%lf / %lf us = %lfx", &a, &b, &ratio), 3);
  cr_assert(a > 0 && b > 0, "%s", row);
  cr_assert_float_eq(ratio, a / b, 0.001);
}

Test(bench_llama, shows_the_times_of_ranks_beside_those_of_one) {
  struct ran ran = shell_rondo("", "%s --weights bf16 --ranks 3", short_llama);
  REQUIRE_CODE(ran, 0);
  require_ratio(ran.out, "\n  over one rank ", "context 128, 3 ranks ");
  cr_assert_eq(shell_occurrences(ran.out, "context 128 "), 1, "one rank alone: %s", ran.out);
  ran = shell_rondo("", "%s --ranks 2", short_llama); /* of 9 heads */
  REQUIRE_CODE(ran, 1);
  cr_assert_not_null(strstr(ran.error, "query_heads is 9, expected a multiple of ranks, 2"), "%s", ran.error);
  ran = shell_rondo("", "%s --ranks 3 --profile", short_llama);
  REQUIRE_CODE(ran, 1);
  cr_assert_not_null(strstr(ran.error, "--profile goes with one rank"), "%s", ran.error);
}

Test(bench_llama, shows_tokens_of_repeats_beside_those_replayed_one_by_one) {
  struct ran ran = shell_rondo("", "%s --weights bf16", short_llama);
  REQUIRE_CODE(ran, 0);
  require_ratio(ran.out, "\n  in repeats, over one by one ", "context 128 ");
  cr_assert_eq(shell_occurrences(ran.out, "left out"), 0, "%s", ran.out);
}

Test(bench_llama, a_prompt_is_not_repeated) {
  struct ran ran = shell_rondo("", "%s --weights bf16 --prompt 16", short_llama);
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.out, "prompt of 16 tokens"), "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "repeats"), 0, "%s", ran.out);
}

Test(bench_llama, drafts_go_with_tokens_of_one_sequence) {
  static const char *const others[] = {"--sequences 4", "--prompt 16"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    struct ran ran = shell_rondo("", "bench llama --backend host --draft 3 %s", others[i]);
    REQUIRE_CODE(ran, 1);
    cr_assert_not_null(strstr(ran.error, "--draft goes with one sequence and without --prompt"), "%s", ran.error);
  }
}
