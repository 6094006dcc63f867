/* test_bench_softmax.c - the parts of `rondo bench kernels attention` and `softmax` that need no GPU: the cases, what
 * each must reach, results read back, the picture, and the softmax that checks every timed kernel. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../command/bench/reference.h"
#include "../../command/bench/softmax_case.h"
#include "../support.h"
#include "shell.h"

TestSuite(bench_softmax, .fini = shell_remove_folder, .timeout = 120);

#define LINE(kind, batch, heads, kv_heads, queries, keys, dimension, state, us, kernel)                                \
  "{\"kind\": \"" kind "\", \"batch\": " #batch ", \"heads\": " #heads ", \"kv_heads\": " #kv_heads                    \
  ", \"queries\": " #queries ", \"keys\": " #keys ", \"dimension\": " #dimension                                       \
  ", \"causal\": false, \"state\": \"" state "\", \"us\": " #us ", \"kernel\": \"" kernel "\"}"
#define PREFILL(length, batch, state, us, kernel) LINE("prefill", batch, 16, 16, length, length, 128, state, us, kernel)

/* ---- The table --------------------------------------------------------------------------------------------------- */

static struct softmax_case cases[SOFTMAX_CASES_MOST];

Test(bench_softmax, something_is_asked_of_every_plain_case_in_bf16) {
  size_t count = softmax_cases(cases);
  cr_assert_gt(count, 40);
  for (size_t i = 0; i < count; i++) {
    struct softmax_must must = softmax_case_must(&cases[i]);
    if (cases[i].window || cases[i].page_rows || cases[i].e4m3 || cases[i].f16 || cases[i].soft_cap) continue;
    cr_assert(must.us > 0 || must.rival > 0 || must.plain > 0, "case %zu", i);
  }
  struct softmax_case unknown = cases[0];
  unknown.deviation = 8;
  cr_assert_eq(softmax_case_must(&unknown).rival, 0);
  unknown.deviation = 0;
  unknown.keys = 7;
  struct softmax_must must = softmax_case_must(&unknown);
  cr_assert(must.us == 0 && must.rival == 0 && must.plain == 0);
}

Test(bench_softmax, the_case_that_another_is_measured_by_comes_before_it) {
  size_t count = softmax_cases(cases);
  for (size_t i = 0; i < count; i++) {
    if (softmax_case_must(&cases[i]).plain <= 0) continue;
    struct softmax_case plain = softmax_case_plain(&cases[i]);
    size_t first = 0;
    while (first < i && !softmax_case_equal(&cases[first], &plain)) first++;
    cr_assert_lt(first, i);
  }
}

Test(bench_softmax, every_label_is_that_of_one_case) {
  static char labels[SOFTMAX_CASES_MOST][SOFTMAX_LABEL_BYTES];
  size_t count = softmax_cases(cases);
  for (size_t i = 0; i < count; i++) {
    softmax_case_label(&cases[i], labels[i]);
    for (size_t j = 0; j < i; j++) cr_assert_str_neq(labels[i], labels[j]);
  }
}

Test(bench_softmax, work_is_what_a_loop_counts) {
  /* 3 queries see 3, 4 and 5 of 5 keys; half a pair less for each, which is how causal work is quoted */
  struct softmax_case shape = {SOFTMAX_PREFILL, 2, 6, 3, 3, 5, .dimension = 64, .causal = true};
  cr_assert_eq(softmax_case_flops(&shape), 2 * 2 * (3 * 5 - 4.5) * 64 * 12);
  cr_assert_eq(softmax_case_bytes(&shape), UINT64_C(128) * (2 * 6 * 3 * 2 + 2 * 3 * 5 * 2));
  /* of three columns at most the queries see 2.5, 3 and 3; of one each, 1; of two queries of three see 1 and 2 */
  shape.window = 3;
  cr_assert_eq(softmax_case_flops(&shape), 2 * 2 * (2.5 + 3 + 3) * 64 * 12);
  shape.window = 1;
  cr_assert_eq(softmax_case_flops(&shape), 2 * 2 * 3.0 * 64 * 12);
  shape.window = 0;
  shape.e4m3 = SOFTMAX_E4M3_KV;
  cr_assert_eq(softmax_case_bytes(&shape), UINT64_C(64) * (2 * 6 * 3 * 4 + 2 * 3 * 5 * 2));
  shape.e4m3 = SOFTMAX_E4M3_ALL;
  cr_assert_eq(softmax_case_bytes(&shape), UINT64_C(64) * (2 * 6 * 3 * 3 + 2 * 3 * 5 * 2));
  shape.e4m3 = SOFTMAX_E4M3_NONE;
  shape.causal = false;
  cr_assert_eq(softmax_case_flops(&shape), 2 * 2 * 15.0 * 64 * 12);
  struct softmax_case gemm = {SOFTMAX_GEMM, 1, 1, 1, 7, 5, .dimension = 16};
  cr_assert_eq(softmax_case_flops(&gemm), 2.0 * 7 * 5 * 16);
  cr_assert_eq(softmax_case_bytes(&gemm), UINT64_C(2) * (7 * 16 + 5 * 16 + 7 * 5));
  gemm.kind = SOFTMAX_ROWMAX;
  cr_assert_eq(softmax_case_bytes(&gemm), UINT64_C(2) * (7 * 16 + 5 * 16) + UINT64_C(4) * 7);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

Test(bench_softmax, a_time_that_is_asked_for_is_reached_or_missed) {
  struct ran ran =
      shell_rondo("", "bench kernels --from %s",
                  shell_write("ours.json", "[" LINE("decode", 1, 32, 8, 1, 8192, 128, "cold", 12.5, "a") ",\n" LINE(
                                               "gemm_softmax", 1, 1, 1, 4096, 4096, 64, "cold", 16.1, "b") "]"));
  REQUIRE_CODE(ran, 3);
  cr_assert_eq(shell_occurrences(ran.out, "reached"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "MISSED"), 1, "%s", ran.out);
}

Test(bench_softmax, the_best_rival_in_the_same_state_sets_what_must_be_reached) {
  const char *rivals =
      shell_write("rivals.json",
                  "[{\"device\": \"x\"}," PREFILL(4096, 4, "pause", 790, "cuDNN") "," PREFILL(
                      4096, 4, "pause", 760, "FlashAttention-3") "," PREFILL(4096, 4, "sustained", 850, "cuDNN") "]");
  const char *ours =
      shell_write("ours.json", "[" PREFILL(4096, 4, "pause", 761, "a") "," PREFILL(4096, 4, "sustained", 840, "a") "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --rivals %s", ours, rivals);
  REQUIRE_CODE(ran, 3);
  cr_assert_eq(shell_occurrences(ran.out, "at most 760.00: 1.001 MISSED"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "at most 850.00: 0.988 reached"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "cuDNN 790.00 = 1.04x"), 1, "%s", ran.out);
  ran = shell_rondo("", "bench kernels --from %s", ours);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "at most"), 0, "%s", ran.out);
}

Test(bench_softmax, a_case_with_fewer_heads_is_measured_by_the_rate_of_the_plain_one) {
  const char *ours =
      shell_write("ours.json", "[" PREFILL(4096, 4, "pause", 970, "a") "," LINE(
                                   "prefill", 4, 16, 4, 4096, 4096, 128, "pause", 1000,
                                   "a") "," LINE("prefill", 4, 16, 16, 2048, 4096, 128, "pause", 501, "a") "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s", ours);
  REQUIRE_CODE(ran, 3);
  cr_assert_eq(shell_occurrences(ran.out, "at most 1000.00: 1.000 reached"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "at most 500.00: 1.002 MISSED"), 1, "%s", ran.out);
}

Test(bench_softmax, portable_kernels_are_measured_by_what_is_as_portable) {
  const char *rivals = shell_write("rivals.json", "[" PREFILL(2048, 8, "pause", 500, "FlashAttention-3") "," PREFILL(
                                                      2048, 8, "pause", 900, "FlashAttention-2") "]");
  char ours[512];
  snprintf(ours, sizeof ours, "[%.*s, \"portable\": true}]", (int)(sizeof PREFILL(2048, 8, "pause", 899, "a") - 2),
           PREFILL(2048, 8, "pause", 899, "a"));
  struct ran ran = shell_rondo("", "bench kernels --from %s --rivals %s", shell_write("ours.json", ours), rivals);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "at most 900.00: 0.999 reached"), 1, "%s", ran.out);
}

Test(bench_softmax, warm_decoding_has_nothing_to_reach) {
  struct ran ran =
      shell_rondo("", "bench kernels --from %s",
                  shell_write("warm.json", "[" LINE("decode", 1, 32, 8, 1, 8192, 128, "warm", 99, "a") "]"));
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "at most"), 0, "%s", ran.out);
}

Test(bench_softmax, results_written_and_read_again_are_the_same) {
  char again[4096];
  const char *path = shell_write("first.json", "[" PREFILL(512, 32, "sustained", 125.5, "a") "," LINE(
                                                   "gemm_rowmax", 1, 1, 1, 4096, 4096, 64, "cold", 7.25, "b") "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --json -", path);
  REQUIRE_CODE(ran, 0);
  cr_assert_null(json_fault(ran.out), "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "\"kind\": "), 2, "%s", ran.out);
  snprintf(again, sizeof again, "%s", ran.out);
  ran = shell_rondo("", "bench kernels --from %s --json -", shell_write("second.json", ran.out));
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(strncmp(ran.out, again, sizeof again - 1), 0, "%s", ran.out);
}

Test(bench_softmax, what_is_not_plain_is_written_and_read_and_makes_other_cases) {
  const char *plain = PREFILL(4096, 4, "pause", 760, "a");
  char ours[1024];
  int length = (int)strlen(plain) - 1;
  snprintf(ours, sizeof ours,
           "[%.*s, \"window\": 1024, \"page_rows\": 64, \"e4m3\": \"kv\", \"f16\": true, \"soft_cap\": 50}, %.*s, "
           "\"e4m3\": \"odd\"}]",
           length, plain, length, plain);
  const char *rivals = shell_write("rivals.json", "[" PREFILL(4096, 4, "pause", 700, "cuDNN") "]");
  struct ran ran =
      shell_rondo("", "bench kernels --from %s --rivals %s --json -", shell_write("ours.json", ours), rivals);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "\"kind\": "), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(
                   ran.out, "\"window\": 1024, \"page_rows\": 64, \"e4m3\": \"kv\", \"f16\": true, \"soft_cap\": 50"),
               1, "%s", ran.out);
  ran = shell_rondo("", "bench kernels --from %s --rivals %s", shell_write("ours.json", ours), rivals);
  cr_assert_eq(shell_occurrences(ran.out, " batch=4 window=1024 page_rows=64 e4m3=kv f16 soft_cap=50 "), 1, "%s",
               ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "cuDNN"), 0, "%s", ran.out);
}

Test(bench_softmax, lines_of_products_and_of_attention_share_a_file) {
  const char *path = shell_write(
      "both.json", "[" PREFILL(512, 32, "pause", 125.5, "a") ", {\"weights\": \"bf16\", \"vectors\": \"bf16\", "
                                                             "\"out\": \"bf16\", \"m\": 576, \"k\": 576, \"batch\": "
                                                             "1, \"count\": 1, \"us\": 2}]");
  struct ran ran = shell_rondo("", "bench kernels --from %s", path);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, " us "), 2, "%s", ran.out);
  ran = shell_rondo("", "bench kernels --from %s --only prefill,hd=128", path);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, " us "), 1, "%s", ran.out);
}

Test(bench_softmax, results_may_come_through_a_pipe) {
  char from[512];
  snprintf(from, sizeof from, "cat %s |", shell_write("ours.json", "[" PREFILL(4096, 4, "pause", 759, "a") "]"));
  struct ran ran = shell_rondo(from, "bench kernels --from /dev/stdin");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, " us "), 1, "%s", ran.out);
}

Test(bench_softmax, lines_that_are_no_case_are_left_out) {
  static const char *const lines[] = {
      LINE("prefil", 1, 1, 1, 1, 1, 64, "pause", 1, "a"), LINE("prefill", 1, 1, 1, 1, 1, 64, "paused", 1, "a"),
      LINE("prefill", 0, 1, 1, 1, 1, 64, "pause", 1, "a"), LINE("prefill", 1, 1, 1, 1, 1, 64, "pause", 0, "a"),
      LINE("prefill", 1, 1, 1, 1, -4, 64, "pause", 1, "a"), "{\"us\": 1}",
      /* more elements than a tensor may have, which 64 bits cannot count */
      LINE("prefill", 2147483647, 2147483647, 1, 2147483647, 1, 64, "pause", 1, "a"),
      LINE("prefill", 1, 1, 32768, 1, 32768, 3, "pause", 1, "a"),
      /* these are not the case without them */
      LINE("prefill", 1, 1, 1, 1, 1, 64, "pause", 1, "a\", \"window\": -1, \"as\": \"b"),
      LINE("prefill", 1, 1, 1, 1, 1, 64, "pause", 1, "a\", \"page_rows\": 0.5, \"as\": \"b")};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    char text[512];
    snprintf(text, sizeof text, "[%s]", lines[i]);
    struct ran ran = shell_rondo("", "bench kernels --from %s", shell_write("odd.json", text));
    REQUIRE_CODE(ran, 0);
    cr_assert_eq(shell_occurrences(ran.out, " us "), 0, "%s", ran.out);
  }
}

Test(bench_softmax, without_a_device_to_time_each_group_says_so) {
  char environment[512];
  snprintf(environment, sizeof environment, "LD_LIBRARY_PATH=%s/fake", shell_root());
  static const char *const groups[] = {"attention", "attention-steps", "softmax", "rowmax-tile"};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    struct ran ran = shell_rondo(environment, "bench kernels %s", groups[i]);
    REQUIRE_CODE(ran, 1);
    cr_assert_not_null(strstr(ran.error, "libcuda.so.1 has no cuEventElapsedTime"), "%s", ran.error);
  }
  struct ran ran = shell_rondo("", "bench kernels attentions");
  REQUIRE_CODE(ran, 2);
  cr_assert_not_null(strstr(ran.error, "the group is 'attentions', expected gemv, gemm, chain, ladder, attention, "
                                       "attention-steps, softmax, rowmax-tile or qr"),
                     "%s", ran.error);
}

/* ---- The picture ------------------------------------------------------------------------------------------------- */

Test(bench_softmax, the_picture_has_a_line_a_contender_and_state_and_a_dot_a_length) {
  char plot[256];
  snprintf(plot, sizeof plot, "%s/plot.svg", shell_folder());
  const char *ours = shell_write(
      "ours.json", "[{\"device\": \"A <GPU>\"}," PREFILL(4096, 4, "pause", 760, "a") "," PREFILL(
                       512, 32, "pause", 120, "a") "," PREFILL(4096, 4, "sustained", 800,
                                                               "a") "," LINE("prefill", 4, 16, 4, 4096, 4096, 128,
                                                                             "pause", 700, "a") "]");
  const char *rivals = shell_write(
      "rivals.json", "[" PREFILL(4096, 4, "pause", 790, "<other>") "," PREFILL(4096, 4, "pause", 770, "<other>") "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --rivals %s --plot %s", ours, rivals, plot);
  REQUIRE_CODE(ran, 0);
  const char *svg = shell_read(plot);
  cr_assert_eq(strncmp(svg, "<svg ", 5), 0);
  cr_assert_not_null(strstr(svg, "</svg>"));
  cr_assert_eq(shell_occurrences(svg, "fill=\"none\""), 3, "ours in two states, and a rival: %s", svg);
  cr_assert_eq(shell_occurrences(svg, "<title>"), 4, "%s", svg);
  cr_assert_not_null(strstr(svg, "A &#60;GPU&#62;"), "%s", svg);
  cr_assert_null(strstr(svg, "<other>"), "%s", svg);
  cr_assert_null(strstr(svg, "nan"), "%s", svg);
  ran = shell_rondo("", "bench kernels --from %s --plot /nonexistent/a.svg", ours);
  REQUIRE_CODE(ran, 1);
}

Test(bench_softmax, the_picture_names_six_contenders_within_its_width) {
  static const char *const names[] = {"Rondo", "FlashAttention-3", "FlashAttention-2",
                                      "cuDNN", "memory efficient", "f"};
  char plot[256], text[2048] = "[";
  snprintf(plot, sizeof plot, "%s/plot.svg", shell_folder());
  for (size_t i = 1; i < sizeof names / sizeof *names; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s" PREFILL(4096, 4, "pause", 790, "%s"),
             i > 1 ? "," : "", names[i]);
  snprintf(text + strlen(text), sizeof text - strlen(text), "]");
  const char *ours = shell_write("ours.json", "[" PREFILL(4096, 4, "pause", 700, "a") "]");
  struct ran ran =
      shell_rondo("", "bench kernels --from %s --rivals %s --plot %s", ours, shell_write("rivals.json", text), plot);
  REQUIRE_CODE(ran, 0);
  const char *svg = shell_read(plot), *size = strstr(svg, "viewBox=\"0 0 ");
  cr_assert_not_null(size);
  int width = atoi(size + strlen("viewBox=\"0 0 "));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char end[64];
    snprintf(end, sizeof end, ">%s</text>", names[i]);
    const char *at = strstr(svg, end);
    cr_assert_not_null(at, "%s", names[i]);
    while (strncmp(at, " x=\"", 4) != 0) at--;
    int x = atoi(at + 4), letter = 80;
    cr_assert_leq(x + letter * (int)strlen(names[i]), width, "%s begins at %d of %d", names[i], x, width);
  }
}

/* ---- The reference ----------------------------------------------------------------------------------------------- */

Test(bench_softmax, the_reference_is_a_softmax_of_products) {
  const double a[] = {1, 2}, b[] = {0, 0, log(2), 0, 0, log(4) / 2, -1000, -1000};
  double p[4];
  cr_assert_float_eq(reference_softmax(a, b, 4, 2, 1, 0, p), log(4), 1e-12);
  cr_assert_float_eq(p[0], 1 / 7.0, 1e-12);
  cr_assert_float_eq(p[1], 2 / 7.0, 1e-12);
  cr_assert_float_eq(p[2], 4 / 7.0, 1e-12);
  cr_assert_eq(p[3], 0);
  cr_assert_float_eq(reference_softmax(a, b, 3, 2, 2, 0, p), 2 * log(4), 1e-12);
  cr_assert_float_eq(p[1], 4 / 21.0, 1e-12);
  reference_softmax(a, b, 2, 2, 1, 0.5, p);
  cr_assert_float_eq(log(p[1] / p[0]), 0.5 * tanh(log(2) / 0.5), 1e-12);
}

/* The mean of so many numbers is small beside them, and what each weight may be off beside it. */
Test(bench_softmax, zeros_are_not_taken_for_a_mean_of_many) {
  enum { COUNT = 4096 };
  static double p[COUNT], v[COUNT];
  for (int weights_are_e4m3 = 0; weights_are_e4m3 < 2; weights_are_e4m3++) {
    struct random random = {.state = 3};
    double sum = 0, off = 0;
    for (int j = 0; j < COUNT; j++) {
      p[j] = 1.0 / COUNT;
      v[j] = (double)random_between(&random, -950, 1050) / 500;
      sum += p[j] * v[j];
      off += p[j] * v[j] * (1 + (double)random_between(&random, -1, 1) / 16);
    }
    cr_assert_gt(fabs(sum), 0.02);
    cr_expect_gt(reference_mean_error(0, p, v, COUNT, 1, weights_are_e4m3), 1);
    if (weights_are_e4m3) cr_expect_lt(reference_mean_error(off, p, v, COUNT, 1, true), 0.5);
    cr_expect_lt(reference_mean_error(sum * (1 + 1.0 / 256), p, v, COUNT, 1, weights_are_e4m3), 1);
    cr_expect_gt(reference_mean_error(NAN, p, v, COUNT, 1, weights_are_e4m3), 1);
  }
  cr_expect_leq(reference_mean_error(1.125, (double[]){1}, (double[]){1}, 1, 1, true), 1);
  cr_expect_gt(reference_mean_error(1.25, (double[]){1}, (double[]){1}, 1, 1, true), 1);
}
