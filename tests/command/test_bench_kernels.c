/* test_bench_kernels.c - the parts of `rondo bench kernels` that need no GPU: the cases, the words that pick them,
 * what each must reach, results read back, the picture, and the reference that checks every timed kernel. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../command/bench/kernel_case.h"
#include "../../command/bench/reference.h"
#include "shell.h"

TestSuite(bench_kernels, .fini = shell_remove_folder, .timeout = 120);

#define LINE(weights, vectors, out, m, k, count, us)                                                                   \
  "{\"weights\": \"" weights "\", \"vectors\": \"" vectors "\", \"out\": \"" out "\", \"m\": " #m ", \"k\": " #k       \
  ", \"batch\": 1, \"count\": " #count ", \"us\": " #us ", \"read_us\": 3.7, \"bound_us\": 2.1, \"warm\": false, "     \
  "\"programmatic\": false, \"kernel\": \"k\"}"

/* ---- The table --------------------------------------------------------------------------------------------------- */

static struct kernel_case cases[KERNEL_CASES_MOST];

Test(bench_kernels, one_vector_comes_before_several_of_the_same_product) {
  size_t count = kernel_cases(cases);
  cr_assert_gt(count, 0);
  for (size_t i = 0; i < count; i++) {
    struct kernel_case single = cases[i];
    single.count = 1;
    size_t first = 0;
    while (first < count && !kernel_case_equal(&cases[first], &single)) first++;
    cr_assert_leq(first, i);
  }
}

Test(bench_kernels, something_is_asked_of_every_product_with_several_vectors) {
  size_t count = kernel_cases(cases);
  for (size_t i = 0; i < count; i++)
    if (cases[i].count > 1) cr_assert_geq(kernel_case_must(&cases[i]).single, 1.3);
}

Test(bench_kernels, products_with_many_vectors_stand_beside_a_rival) {
  size_t count = kernel_gemm_cases(cases);
  cr_assert_gt(count, 0);
  for (size_t i = 0; i < count; i++) {
    cr_assert_gt(cases[i].count, KERNEL_MOST_VECTORS);
    const bool has_rival = cases[i].weights == RONDO_BF16 && cases[i].count >= 64;
    cr_assert_eq(kernel_case_must(&cases[i]).rival, !has_rival ? 0 : cases[i].count < 1024 ? 0.97 : 1);
  }
  cr_assert_eq(kernel_case_flops(&(struct kernel_case){RONDO_BF16, RONDO_BF16, RONDO_BF16, 10, 32, 3, 64}),
               2.0 * 3 * 64 * 10 * 32);
}

Test(bench_kernels, a_case_that_is_not_in_the_table_has_nothing_to_reach) {
  struct kernel_must must = kernel_case_must(&(struct kernel_case){RONDO_NVFP4, RONDO_NVFP4, RONDO_F16, 7, 64, 1, 1});
  cr_assert(must.us == 0 && must.read == 0 && must.rival == 0 && must.single == 0);
}

Test(bench_kernels, bytes_are_those_of_all_operands_and_their_scales) {
  struct kernel_case nvfp4 = {RONDO_NVFP4, RONDO_NVFP4, RONDO_F16, 10, 32, 3, 2};
  cr_assert_eq(kernel_case_bytes(&nvfp4), UINT64_C(3) * (10 * 32 / 2 + 10 * 2 + 2 * 32 / 2 + 2 * 2 + 2 * 10 * 2));
  struct kernel_case e4m3 = {RONDO_E4M3, RONDO_BF16, RONDO_BF16, 10, 32, 1, 1};
  cr_assert_eq(kernel_case_bytes(&e4m3), 10 * 32 + 32 * 2 + 10 * 2);
}

Test(bench_kernels, words_pick_the_cases_that_have_all_of_them_whole) {
  const char *label = "nvfp4:bf16 4096x7168 batch=8 count=16";
  static const char *const in[] = {"nvfp4", "bf16",         "nvfp4:bf16",      "4096x7168", "count=16",
                                   "",      "8, count=16 ", "bf16,4096x7168,", "batch=8",   NULL};
  static const char *const not_in[] = {"count=1", "96x7168", "4096x716", "nvfp4 count=1", "fp4", "4096x7168 e4m3"};
  for (size_t i = 0; i < sizeof in / sizeof *in; i++)
    cr_assert(kernel_label_wanted(label, in[i]), "'%s'", in[i] ? in[i] : "NULL");
  for (size_t i = 0; i < sizeof not_in / sizeof *not_in; i++)
    cr_assert_not(kernel_label_wanted(label, not_in[i]), "'%s'", not_in[i]);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

Test(bench_kernels, results_that_reach_what_they_must_exit_0) {
  const char *path = shell_write("good.json", "[" LINE("nvfp4", "nvfp4", "f16", 4096, 4096, 1, 4.6) ",\n" LINE(
                                                  "nvfp4", "nvfp4", "f16", 4096, 4096, 2, 5.9) "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s", path);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "reached"), 2, "%s", ran.out);
}

Test(bench_kernels, a_result_that_is_slower_than_it_must_be_exits_3) {
  static const char *const slow[] = {
      "[" LINE("nvfp4", "nvfp4", "f16", 4096, 4096, 1, 4.7) "]",
      /* of one vector */
      "[" LINE("bf16", "bf16", "bf16", 4096, 4096, 1, 10) "," LINE("bf16", "bf16", "bf16", 4096, 4096, 8, 14.1) "]",
      /* of eight, though sixteen is within twice one */
      "[" LINE("bf16", "bf16", "bf16", 4096, 4096, 8, 4) "," LINE("bf16", "bf16", "bf16", 4096, 4096, 16, 8.1) "]",
      /* of the rate of reading */
      "[" LINE("nvfp4", "bf16", "bf16", 128256, 4096, 1, 4.2) "]",
  };
  for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
    struct ran ran = shell_rondo("", "bench kernels --from %s", shell_write("slow.json", slow[i]));
    REQUIRE_CODE(ran, 3);
    cr_assert_eq(shell_occurrences(ran.out, "MISSED"), 1, "%s", ran.out);
  }
}

Test(bench_kernels, rivals_set_what_must_be_reached_for_the_same_types) {
  char rivals[256];
  snprintf(rivals, sizeof rivals, "%s",
           shell_write("rivals.json",
                       "[{\"device\": \"x\"}, " LINE("bf16", "bf16", "bf16", 4096, 4096, 1,
                                                     14.1) "," LINE("bf16", "bf16", "bf16", 4096, 4096, 1, 14.0) "]"));
  const char *ours =
      "[" LINE("bf16", "bf16", "bf16", 4096, 4096, 1, 10.1) "," LINE("e4m3", "bf16", "bf16", 4096, 4096, 1, 90) "]";
  struct ran ran = shell_rondo("", "bench kernels --from %s --rivals %s", shell_write("ours.json", ours), rivals);
  REQUIRE_CODE(ran, 3);
  cr_assert_eq(shell_occurrences(ran.out, "rival's bf16 14.00"), 2, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "at most 10.00"), 1, "%s", ran.out);
}

Test(bench_kernels, portable_kernels_of_many_vectors_have_their_own_figure_to_reach) {
  char rivals[256];
  snprintf(rivals, sizeof rivals, "%s",
           shell_write("rivals.json", "[" LINE("bf16", "bf16", "bf16", 2048, 2048, 1024, 9) "]"));
  const char *ours = shell_write(
      "ours.json", "[" LINE("bf16", "bf16", "bf16", 2048, 2048, 1024,
                            9.5) ", {\"weights\": \"bf16\", "
                                 "\"vectors\": \"bf16\", \"out\": \"bf16\", \"m\": 2048, \"k\": 2048, \"batch\": 1, "
                                 "\"count\": 1024, \"us\": 9.5, \"kernel\": \"rondo_gemm_portable_128\"}]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --rivals %s", ours, rivals);
  REQUIRE_CODE(ran, 3);
  cr_assert_eq(shell_occurrences(ran.out, "at most 9.00: 1.056 MISSED"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "at most 10.00: 0.950 reached"), 1, "%s", ran.out);
}

Test(bench_kernels, results_written_and_read_again_are_the_same) {
  char again[4096];
  const char *path = shell_write("first.json", "[" LINE("nvfp4", "bf16", "bf16", 576, 1536, 1, 2.75) "," LINE(
                                                   "nvfp4", "bf16", "bf16", 576, 1536, 16, 3.25) "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --json -", path);
  REQUIRE_CODE(ran, 0);
  cr_assert_null(json_fault(ran.out), "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "\"weights\": \"nvfp4\""), 2, "%s", ran.out);
  snprintf(again, sizeof again, "%s", ran.out);
  ran = shell_rondo("", "bench kernels --from %s --json -", shell_write("second.json", ran.out));
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(strncmp(ran.out, again, sizeof again - 1), 0, "%s", ran.out);
}

Test(bench_kernels, only_shows_the_cases_that_are_wanted) {
  const char *path = shell_write("two.json", "[" LINE("nvfp4", "nvfp4", "f16", 4096, 4096, 1,
                                                      4.6) "," LINE("nvfp4", "bf16", "bf16", 4096, 4096, 1, 6.3) "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --only nvfp4:bf16", path);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "4096x4096"), 1, "%s", ran.out);
}

/* Words are looked at before there is a device. */
Test(bench_kernels, words_that_no_case_has_are_wrong_usage_and_those_that_there_are_are_told) {
  static const struct {
    const char *words, *group, *there;
  } wrong[] = {
      {"gemv --only nvfp5", "of gemv ", "nvfp4:nvfp4 "},
      {"chain --only count=1,8192x8192", "of chain ", "nvfp4:nvfp4 4096x4096 count=1 nvfp4:bf16"},
      {"ladder --only bf16", "of ladder ", "nvfp4:nvfp4 7168x16384 count=1 4096x7168 batch=8 7168x2048 batch=4"},
      {"attention --only 'prefill hd=96'", "of attention ", "prefill full 512x512 hd=128"},
      {"attention-steps --only hd=256", "of attention-steps ", "prefill full 4096x4096 hd=128"},
      {"softmax --only prefill", "of softmax ", "gemm_rowmax"},
      {"--only nothing", "no case has ", "gemm_rowmax"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct ran ran = shell_rondo("", "bench kernels %s", wrong[i].words);
    REQUIRE_CODE(ran, 2);
    cr_assert_not_null(strstr(ran.error, "has all the words '"), "%s", ran.error);
    cr_assert_not_null(strstr(ran.error, wrong[i].group), "%s", ran.error);
    cr_assert_not_null(strstr(ran.error, wrong[i].there), "%s", ran.error);
  }
  const char *path = shell_write("one.json", "[" LINE("nvfp4", "nvfp4", "f16", 4096, 4096, 1, 4.6) "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --only nvfp5", path);
  REQUIRE_CODE(ran, 1);
  cr_assert_not_null(strstr(ran.error, "one.json has no case with all the words 'nvfp5'"), "%s", ran.error);
}

Test(bench_kernels, an_option_that_a_group_does_not_know_is_refused) {
  static const char *const wrong[][2] = {
      {"gemv --portable", "gemv has no --portable"},
      {"gemv --deviation 8", "gemv has no --deviation"},
      {"chain --edges programmatic", "chain has no --edges"},
      {"ladder --warm", "ladder has no --warm"},
      {"ladder --alike", "ladder has no --alike"},
      {"attention --alike", "attention has no --alike"},
      {"attention-steps --warm", "attention-steps has no --warm"},
      {"attention-steps --portable", "attention-steps has no --portable"},
      {"attention-steps --edges programmatic", "attention-steps has no --edges"},
      {"rowmax-tile --only bf16", "rowmax-tile has no --only"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct ran ran = shell_rondo("", "bench kernels %s", wrong[i][0]);
    REQUIRE_CODE(ran, 2);
    cr_assert_not_null(strstr(ran.error, wrong[i][1]), "%s", ran.error);
  }
}

Test(bench_kernels, a_file_that_no_bench_wrote_is_refused) {
  static const char *const texts[] = {"",
                                      "{}",
                                      "[",
                                      "[{]",
                                      "[{\"m\": }]",
                                      "[{\"m\": 1,}]",
                                      "[{\"m\": [1]}]",
                                      "[{\"m\": 1}",
                                      "[{\"m\": 1}] 2",
                                      "[{\"m\": 0x}]",
                                      "[{\"m\" 1}]",
                                      "[{\"m\": \"a\\q\"}]",
                                      "[{} {}]"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct ran ran = shell_rondo("", "bench kernels --from %s", shell_write("bad.json", texts[i]));
    REQUIRE_CODE(ran, 1);
    cr_assert_not_null(strstr(ran.error, "is not an array of objects"), "%s: %s", texts[i], ran.error);
  }
}

Test(bench_kernels, a_product_whose_tensors_cannot_be_is_left_out) {
  static const char *const lines[] = {LINE("bf16", "bf16", "bf16", 2147483647, 2147483647, 2147483647, 1),
                                      LINE("bf16", "bf16", "bf16", 65536, 32769, 1, 1),
                                      LINE("bf16", "bf16", "bf16", 1, 32769, 65536, 1)};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    char text[512];
    snprintf(text, sizeof text, "[%s]", lines[i]);
    struct ran ran = shell_rondo("", "bench kernels --from %s", shell_write("huge.json", text));
    REQUIRE_CODE(ran, 0);
    cr_assert_eq(shell_occurrences(ran.out, " us "), 0, "%s", ran.out);
  }
}

Test(bench_kernels, a_driver_that_cannot_time_is_told) {
  char environment[512];
  snprintf(environment, sizeof environment, "LD_LIBRARY_PATH=%s/fake", shell_root());
  struct ran ran = shell_rondo(environment, "bench kernels");
  REQUIRE_CODE(ran, 1);
  cr_assert_not_null(strstr(ran.error, "libcuda.so.1 has no cuEventElapsedTime"), "%s", ran.error);
}

/* ---- The picture ------------------------------------------------------------------------------------------------- */

Test(bench_kernels, the_picture_has_a_line_a_pair_of_types_and_a_dot_a_product) {
  char plot[256];
  snprintf(plot, sizeof plot, "%s/plot.svg", shell_folder());
  const char *path = shell_write(
      "plot.json",
      "[{\"device\": \"A <GPU> & \\\"more\\\"\"}," LINE("nvfp4", "nvfp4", "f16", 4096, 4096, 1, 4.6) "," LINE(
          "nvfp4", "nvfp4", "f16", 576, 576, 1, 2) "," LINE("nvfp4", "nvfp4", "f16", 576, 576, 2,
                                                            2) "," LINE("bf16", "bf16", "bf16", 4096, 4096, 1, 9) "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --plot %s", path, plot);
  REQUIRE_CODE(ran, 0);
  const char *svg = shell_read(plot);
  cr_assert_eq(strncmp(svg, "<svg ", 5), 0);
  cr_assert_not_null(strstr(svg, "</svg>"));
  cr_assert_eq(shell_occurrences(svg, "<title>"), 3, "%s", svg);
  cr_assert_eq(shell_occurrences(svg, "fill=\"none\""), 3, "two pairs of types, and reading: %s", svg);
  cr_assert_not_null(strstr(svg, "nvfp4:nvfp4 576x576 count=1: 2.00 us"), "%s", svg);
  cr_assert_not_null(strstr(svg, "A &#60;GPU&#62; &#38; &#34;more&#34;"), "%s", svg);
  cr_assert_null(strstr(svg, "nan"), "%s", svg);
}

Test(bench_kernels, the_picture_of_many_vectors_has_a_panel_a_matrix_and_a_line_a_pair_of_types) {
  char plot[256];
  snprintf(plot, sizeof plot, "%s/many.svg", shell_folder());
  const char *ours = shell_write(
      "ours.json",
      "[" LINE("bf16", "bf16", "bf16", 2048, 1024, 64, 2) "," LINE("bf16", "bf16", "bf16", 2048, 1024, 128, 2) "," LINE(
          "nvfp4", "bf16", "bf16", 2048, 1024, 64, 4) "," LINE("bf16", "bf16", "bf16", 576, 576, 64, 1) "]");
  const char *rivals = shell_write("rivals.json", "[" LINE("bf16", "bf16", "bf16", 2048, 1024, 64, 1) "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --rivals %s --plot %s", ours, rivals, plot);
  REQUIRE_CODE(ran, 0);
  const char *svg = shell_read(plot);
  cr_assert_eq(shell_occurrences(svg, ": TFLOP/s over vectors"), 2, "%s", svg);
  cr_assert_eq(shell_occurrences(svg, "fill=\"none\""), 4, "%s", svg);
  cr_assert_eq(shell_occurrences(svg, "<title>"), 5, "%s", svg);
  cr_assert_not_null(strstr(svg, "<title>Rondo, bf16 x bf16, 64: 134 TFLOP/s"), "%s", svg);
  cr_assert_not_null(strstr(svg, "<title>cuBLAS, bf16 x bf16, 64: 268 TFLOP/s"), "%s", svg);
  cr_assert_null(strstr(svg, "nan"), "%s", svg);
}

Test(bench_kernels, a_picture_that_cannot_be_written_exits_1) {
  const char *path = shell_write("none.json", "[]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --plot /nonexistent/a.svg", path);
  REQUIRE_CODE(ran, 1);
  cr_assert_not_null(strstr(ran.error, "'/nonexistent/a.svg' cannot be written"), "%s", ran.error);
}

Test(bench_kernels, a_picture_of_nothing_is_a_frame) {
  char plot[256];
  snprintf(plot, sizeof plot, "%s/empty.svg", shell_folder());
  struct ran ran = shell_rondo("", "bench kernels --from %s --plot %s", shell_write("none.json", "[]"), plot);
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(shell_read(plot), "</svg>"));
  cr_assert_null(strstr(shell_read(plot), "nan"));
}

/* ---- The reference ----------------------------------------------------------------------------------------------- */

Test(bench_kernels, the_reference_knows_the_numbers_of_every_type) {
  double values[16];
  const uint8_t codes[] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe}, scales[] = {0x40}; /* 2 */
  static const double e2m1[] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0, -1, -2, -3, -4, -6, -8, -12};
  reference_decode(RONDO_NVFP4, codes, scales, 16, values);
  for (int i = 0; i < 16; i++) cr_assert(values[i] == e2m1[i], "code %d is %g", i, values[i]);

  const uint8_t e4m3[] = {0x00, 0x01, 0x08, 0x38, 0x7e, 0xfe, 0xb9, 0x7f};
  static const double e4m3_values[] = {0, 0x1p-9, 0x1p-6, 1, 448, -448, -1.125};
  reference_decode(RONDO_E4M3, e4m3, NULL, 8, values);
  for (int i = 0; i < 7; i++) cr_assert(values[i] == e4m3_values[i], "e4m3 %d is %g", i, values[i]);
  cr_assert(isnan(values[7]));

  const uint16_t f16[] = {0x3c00, 0x0001, 0xfbff, 0x7c00, 0x7e00}, bf16[] = {0x3f80, 0x4049, 0xff80, 0xffff};
  reference_decode(RONDO_F16, (const uint8_t *)f16, NULL, 5, values);
  cr_assert(values[0] == 1 && values[1] == 0x1p-24 && values[2] == -65504 && isinf(values[3]) && isnan(values[4]));
  reference_decode(RONDO_BF16, (const uint8_t *)bf16, NULL, 4, values);
  cr_assert(values[0] == 1 && values[1] == 3.140625 && values[2] == -INFINITY && isnan(values[3]));
}

Test(bench_kernels, a_result_is_right_within_its_rounding_and_no_further) {
  const double a[] = {1000, 3}, b[] = {1, 0.25}; /* 1000.75; f16 has 1000.5 and 1001 there, bf16 1000 and 1004 */
  cr_assert_leq(reference_error(1001, 1, a, b, 2, RONDO_F16, 4e-6), 1);
  cr_assert_gt(reference_error(1002, 1, a, b, 2, RONDO_F16, 4e-6), 1);
  cr_assert_leq(reference_error(1000, 1, a, b, 2, RONDO_BF16, 4e-6), 1);
  cr_assert_gt(reference_error(1008, 1, a, b, 2, RONDO_BF16, 4e-6), 1);
  cr_assert_leq(reference_error(2001.5, 2, a, b, 2, RONDO_F16, 4e-6), 1);
  cr_assert_gt(reference_error((double)NAN, 1, a, b, 2, RONDO_F16, 4e-6), 1);
  cr_assert_gt(reference_error((double)INFINITY, 1, a, b, 2, RONDO_F16, 4e-6), 1);
  const double zero[] = {0};
  cr_assert_leq(reference_error(0, 1, zero, zero, 1, RONDO_BF16, 4e-6), 1);
  cr_assert_gt(reference_error(0.5, 1, zero, zero, 1, RONDO_BF16, 4e-6), 1);
}
