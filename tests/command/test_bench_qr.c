/* test_bench_qr.c - the parts of `rondo bench kernels qr` that need no GPU: the cases, what each must reach, results
 * read back, the picture, and the LAPACK ratios that check every timed kernel. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../command/bench/qr_case.h"
#include "../../command/bench/reference.h"
#include "../support.h"
#include "shell.h"

TestSuite(bench_qr, .fini = shell_remove_folder, .timeout = 120);

#define LINE_OF(outputs, dtype, m, n, batch, state, us, kernel)                                                        \
  "{\"kind\": \"qr\", \"dtype\": \"" dtype "\", \"m\": " #m ", \"n\": " #n ", \"batch\": " #batch                      \
  ", \"outputs\": \"" outputs "\", \"state\": \"" state "\", \"us\": " #us                                             \
  ", \"bound_us\": 1, \"programmatic\": true, \"kernel\": \"" kernel "\"}"
#define LINE(...) LINE_OF("h+tau", __VA_ARGS__)

/* ---- The table --------------------------------------------------------------------------------------------------- */

static struct qr_case cases[QR_CASES_MOST];

Test(bench_qr, the_table_has_every_case_once_and_sizes_for_the_picture) {
  size_t count = qr_cases(cases), plotted = 0, asked = 0;
  cr_assert_leq(count, QR_CASES_MOST);
  for (size_t i = 0; i < count; i++) {
    plotted += qr_case_is_plotted(&cases[i]);
    asked += qr_case_must_us(&cases[i]) > 0;
    for (size_t j = 0; j < i; j++) cr_assert(!qr_case_equal(&cases[i], &cases[j]), "cases %zu and %zu", i, j);
  }
  cr_assert_eq(plotted, 90, "%zu", plotted);
  cr_assert_eq(asked, 25, "%zu", asked);
  struct qr_case unknown = {RONDO_F32, 8, 8, 7, QR_H_AND_TAU, 0};
  cr_assert_eq(qr_case_must_us(&unknown), 0);
}

Test(bench_qr, labels_differ) {
  static char labels[QR_CASES_MOST][QR_LABEL_BYTES];
  size_t count = qr_cases(cases);
  for (size_t i = 0; i < count; i++) {
    qr_case_label(&cases[i], labels[i]);
    for (size_t j = 0; j < i; j++) cr_assert_str_neq(labels[i], labels[j]);
  }
}

Test(bench_qr, work_is_what_lapack_counts) {
  struct qr_case square = {RONDO_F32, 6, 6, 5, QR_H_AND_TAU, 0}, tall = {RONDO_F64, 100, 10, 2, QR_H_AND_TAU, 0},
                 wide = {RONDO_F64, 10, 100, 2, QR_H_AND_TAU, 0}, thin = {RONDO_F64, 100, 10, 2, QR_Q_AND_R, 0},
                 triangle = {RONDO_F64, 100, 10, 2, QR_R_ALONE, 0}, solved = {RONDO_F64, 100, 10, 2, QR_X, 0},
                 applied = {RONDO_F64, 100, 10, 2, QR_APPLIED, 7}, inverse = {RONDO_F32, 6, 6, 5, QR_INVERSE, 0};
  cr_assert_float_eq(qr_case_flops(&square), 5 * 4.0 / 3 * 216, 1e-9);
  cr_assert_float_eq(qr_case_flops(&tall), 2 * (2.0 * 100 * 100 - 2.0 / 3 * 1000), 1e-9);
  cr_assert_float_eq(qr_case_flops(&wide), qr_case_flops(&tall), 1e-9);
  cr_assert_eq(qr_case_bytes(&square), UINT64_C(4) * 5 * (36 + 36 + 6));
  cr_assert_eq(qr_case_bytes(&wide), UINT64_C(8) * 2 * (1000 + 1000 + 10));
  cr_assert_float_eq(qr_case_flops(&thin), 2 * qr_case_flops(&tall), 1e-9);
  cr_assert_float_eq(qr_case_flops(&triangle), qr_case_flops(&tall), 1e-9);
  cr_assert_float_eq(qr_case_flops(&solved), qr_case_flops(&tall) + 2 * (4000.0 - 100), 1e-9);
  cr_assert_eq(qr_case_bytes(&thin), UINT64_C(8) * 2 * (1000 + 1000 + 100));
  cr_assert_eq(qr_case_bytes(&triangle), UINT64_C(8) * 2 * (1000 + 100));
  cr_assert_eq(qr_case_bytes(&solved), UINT64_C(8) * 2 * (1000 + 110));
  cr_assert_float_eq(qr_case_flops(&applied), 2 * (4.0 * 100 * 7 * 10 - 2 * 7 * 100), 1e-9);
  cr_assert_eq(qr_case_bytes(&applied), UINT64_C(8) * 2 * (1000 + 10 + 2 * 700));
  cr_assert_float_eq(qr_case_flops(&inverse), 5 * 72, 1e-9);
  cr_assert_eq(qr_case_bytes(&inverse), UINT64_C(4) * 5 * (15 + 36));
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

Test(bench_qr, a_time_that_is_asked_for_is_reached_or_missed_and_only_cold) {
  struct ran ran = shell_rondo(
      "", "bench kernels --from %s",
      shell_write("ours.json", "[" LINE("f32", 8, 8, 1000, "cold", 2.3, "a") "," LINE(
                                   "f64", 8, 8, 1000, "cold", 3, "b") "," LINE("f64", 8, 8, 1000, "warm", 9, "b") "]"));
  REQUIRE_CODE(ran, 3);
  cr_assert_eq(shell_occurrences(ran.out, "at most 2.30: 1.000 reached"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "at most 2.90: 1.034 MISSED"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "at most"), 2, "%s", ran.out);
}

Test(bench_qr, thin_q_may_take_1_9_times_h_and_tau_in_the_same_state) {
  const char *lines = shell_write(
      "ours.json", "[" LINE("f32", 20, 20, 1000, "cold", 10, "a") "," LINE_OF(
                       "q+r", "f32", 20, 20, 1000, "cold", 19,
                       "b") "," LINE_OF("r", "f32", 20, 20, 1000, "cold", 90,
                                        "c") "," LINE("f32", 20, 20, 1000, "warm", 8,
                                                      "a") "," LINE_OF("q+r", "f32", 20, 20, 1000, "warm", 15.6,
                                                                       "b") "," LINE_OF("q+r", "f64", 20, 20, 1000,
                                                                                        "warm", 99, "b") "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s", lines);
  REQUIRE_CODE(ran, 3);
  cr_assert_eq(shell_occurrences(ran.out, "at most 19.00: 1.000 reached"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "at most 15.20: 1.026 MISSED"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "at most"), 2, "%s", ran.out);
}

Test(bench_qr, the_fastest_rival_in_the_same_state_stands_beside_ours) {
  const char *ours = shell_write("ours.json", "[" LINE("f32", 12, 12, 1000, "cold", 5, "a") "]");
  const char *rivals = shell_write(
      "rivals.json",
      "[" LINE("f32", 12, 12, 1000, "cold", 60, "x") "," LINE("f32", 12, 12, 1000, "cold", 50, "y") "," LINE(
          "f32", 12, 12, 1000, "warm", 1, "z") "," LINE("f64", 12, 12, 1000, "cold", 1, "z") "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --rivals %s", ours, rivals);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "bound 1.00: 0.200 of it, y 50.00 = 10.00x"), 1, "%s", ran.out);
}

Test(bench_qr, results_written_and_read_again_are_the_same) {
  char again[4096];
  const char *path = shell_write("first.json", "[" LINE("f32", 128, 16, 1000, "warm", 8.5, "a") "," LINE_OF(
                                                   "r", "f64", 20, 20, 1000, "cold", 7.25, "b") "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --json -", path);
  REQUIRE_CODE(ran, 0);
  cr_assert_null(json_fault(ran.out), "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "\"kind\": \"qr\""), 2, "%s", ran.out);
  snprintf(again, sizeof again, "%s", ran.out);
  ran = shell_rondo("", "bench kernels --from %s --json -", shell_write("second.json", ran.out));
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(strncmp(ran.out, again, sizeof again - 1), 0, "%s", ran.out);
}

Test(bench_qr, lines_that_are_no_case_are_left_out) {
  static const char *const lines[] = {
      LINE("f16", 8, 8, 1000, "cold", 1, "a"),          LINE("f32", 0, 8, 1000, "cold", 1, "a"),
      LINE("f32", 8, 8, 1000, "cold", 0, "a"),          LINE("f32", 8, -8, 1000, "cold", 1, "a"),
      LINE("f32", 65536, 65536, 1000, "cold", 1, "a"),  "{\"kind\": \"qr\", \"us\": 1}",
      LINE_OF("q'c", "f32", 8, 8, 1000, "cold", 1, "a")};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    char text[512];
    snprintf(text, sizeof text, "[%s]", lines[i]);
    struct ran ran = shell_rondo("", "bench kernels --from %s", shell_write("odd.json", text));
    REQUIRE_CODE(ran, 0);
    cr_assert_eq(shell_occurrences(ran.out, " us "), 0, "%s", ran.out);
  }
}

Test(bench_qr, without_a_device_to_time_it_says_so) {
  char environment[512];
  snprintf(environment, sizeof environment, "LD_LIBRARY_PATH=%s/fake", shell_root());
  struct ran ran = shell_rondo(environment, "bench kernels qr");
  REQUIRE_CODE(ran, 1);
  cr_assert_not_null(strstr(ran.error, "libcuda.so.1 has no cuEventElapsedTime"), "%s", ran.error);
}

/* ---- The picture ------------------------------------------------------------------------------------------------- */

Test(bench_qr, the_picture_has_a_line_a_contender_and_a_dot_a_size_in_both_panels) {
  char plot[256];
  snprintf(plot, sizeof plot, "%s/plot.svg", shell_folder());
  const char *ours =
      shell_write("ours.json", "[{\"device\": \"A <GPU>\"}," LINE("f32", 8, 8, 1000, "cold", 2, "a") "," LINE(
                                   "f32", 16, 16, 1000, "cold", 3,
                                   "b") "," LINE("f64", 16, 16, 1000, "cold", 5,
                                                 "c") "," LINE("f32", 16, 16, 10000, "cold", 9,
                                                               "b") "," LINE("f32", 16, 16, 1000, "warm", 1, "b") "]");
  const char *rivals = shell_write("rivals.json", "[" LINE("f32", 16, 16, 1000, "cold", 60, "<other>") "]");
  struct ran ran = shell_rondo("", "bench kernels --from %s --rivals %s --plot %s", ours, rivals, plot);
  REQUIRE_CODE(ran, 0);
  const char *svg = shell_read(plot);
  cr_assert_eq(strncmp(svg, "<svg ", 5), 0);
  cr_assert_not_null(strstr(svg, "</svg>"));
  cr_assert_eq(shell_occurrences(svg, "fill=\"none\""), 8, "%s", svg);
  cr_assert_eq(shell_occurrences(svg, "stroke-dasharray"), 2, "%s", svg);
  cr_assert_eq(shell_occurrences(svg, "<title>"), 8, "%s", svg);
  cr_assert_not_null(strstr(svg, "A &#60;GPU&#62;"), "%s", svg);
  cr_assert_null(strstr(svg, "<other>"), "%s", svg);
  cr_assert_null(strstr(svg, "nan"), "%s", svg);
  ran = shell_rondo("", "bench kernels --from %s --plot /nonexistent/a.svg", ours);
  REQUIRE_CODE(ran, 1);
}

/* ---- The reference ----------------------------------------------------------------------------------------------- */

/* 3 and 4 become -5 and half of 4 / 8: LAPACK's dlarfg. */
Test(bench_qr, the_reference_takes_lapacks_factors_and_no_others) {
  const double a[] = {3, 4, 1, 2}, tau[] = {1.6, 0}, r[] = {-5, 0.5, -2.2, 0.4};
  cr_expect_lt(reference_qr_ratio(RONDO_F64, 2, 2, a, r, tau), 5);
  for (int wrong = 0; wrong < 4; wrong++) {
    double h[4];
    memcpy(h, r, sizeof h);
    h[wrong] += 1e-5;
    cr_expect_gt(reference_qr_ratio(RONDO_F64, 2, 2, a, h, tau), 30, "%d", wrong);
    h[wrong] = (double)NAN;
    cr_expect(!(reference_qr_ratio(RONDO_F64, 2, 2, a, h, tau) < 30), "%d", wrong);
  }
  cr_expect_gt(reference_qr_ratio(RONDO_F64, 2, 2, a, r, (const double[]){1.60001, 0}), 30);
  /* the identity is orthogonal, and R is A */
  cr_expect_eq(reference_qr_ratio(RONDO_F32, 2, 2, (const double[]){1, 0, 3, 4}, (const double[]){1, 0, 3, 4},
                                  (const double[]){0, 0}),
               0);
}

/* The same factors: Q is [-0.6 -0.8; -0.8 0.6], R = [-5 -2.2; 0 0.4]. */
Test(bench_qr, the_reference_takes_thin_q_and_r_and_no_others) {
  const double a[] = {3, 4, 1, 2}, good_q[] = {-0.6, -0.8, -0.8, 0.6}, good_r[] = {-5, 0, -2.2, 0.4};
  cr_expect_lt(reference_thin_ratio(RONDO_F64, 2, 2, a, good_q, good_r), 5);
  cr_expect_lt(reference_thin_ratio(RONDO_F64, 2, 2, a, NULL, good_r), 5);
  for (int wrong = 0; wrong < 8; wrong++)
    for (int is_nan = 0; is_nan < 2; is_nan++) {
      double both[] = {-0.6, -0.8, -0.8, 0.6, -5, 0, -2.2, 0.4};
      both[wrong] = is_nan ? (double)NAN : both[wrong] + 1e-5;
      cr_expect(!(reference_thin_ratio(RONDO_F64, 2, 2, a, both, both + 4) < 30), "%d", wrong);
      if (wrong >= 4) cr_expect(!(reference_thin_ratio(RONDO_F64, 2, 2, a, NULL, both + 4) < 30), "%d", wrong);
    }
}

/* The line 1/2 + 5/2 t through (0, 1), (1, 2), (2, 6). */
Test(bench_qr, the_reference_takes_the_least_squares_and_nothing_near_them) {
  const double a[] = {1, 1, 1, 0, 1, 2}, b[] = {1, 2, 6};
  cr_expect_lt(reference_least_squares_ratio(RONDO_F64, 3, 2, a, b, (const double[]){0.5, 2.5}), 1);
  cr_expect_gt(reference_least_squares_ratio(RONDO_F64, 3, 2, a, b, (const double[]){0.5, 2.5000001}), 30);
  cr_expect_gt(reference_least_squares_ratio(RONDO_F32, 3, 2, a, b, (const double[]){0.501, 2.5}), 30);
  const double none[] = {0.5, (double)NAN};
  cr_expect(!(reference_least_squares_ratio(RONDO_F64, 3, 2, a, b, none) < 30));
}

/* One reflector, of (1, 1/2) with tau = 1.6: Q is [-0.6 -0.8; -0.8 0.6], its own transpose. */
Test(bench_qr, the_reference_takes_c_times_q_and_nothing_near_it) {
  const double h[] = {-5, 0.5}, tau[] = {1.6}, before[] = {1, 0, 2, -1}, good[] = {-0.6, -0.8, -0.4, -2.2};
  cr_expect_lt(reference_applied_ratio(RONDO_F64, 2, 1, 2, h, tau, before, good), 5);
  for (int wrong = 0; wrong < 4; wrong++)
    for (int is_nan = 0; is_nan < 2; is_nan++) {
      double after[4];
      memcpy(after, good, sizeof after);
      after[wrong] = is_nan ? (double)NAN : after[wrong] + 1e-5;
      cr_expect(!(reference_applied_ratio(RONDO_F64, 2, 1, 2, h, tau, before, after) < 30), "%d", wrong);
    }
}

/* Whatever stands on the diagonal and above it. */
Test(bench_qr, the_reference_takes_the_inverse_of_a_unit_lower_triangle_and_no_other) {
  const double a[] = {7, 8, 9, 2, 7, 8, 3, 4, 7}, good[] = {1, 0, 0, -2, 1, 0, 5, -4, 1};
  cr_expect_lt(reference_inverse_ratio(RONDO_F64, 3, a, good), 1);
  for (int wrong = 0; wrong < 9; wrong++)
    for (int is_nan = 0; is_nan < 2; is_nan++) {
      double x[9];
      memcpy(x, good, sizeof x);
      x[wrong] = is_nan ? (double)NAN : x[wrong] + 1e-5;
      cr_expect(!(reference_inverse_ratio(RONDO_F64, 3, a, x) < 30), "%d", wrong);
    }
}

Test(bench_qr, c_of_two_widths_are_two_cases_that_are_read_back) {
#define APPLIED(columns)                                                                                               \
  "{\"kind\": \"qr\", \"dtype\": \"f32\", \"m\": 64, \"n\": 64, \"batch\": 1000, \"outputs\": \"q'c\", "               \
  "\"columns\": " #columns ", \"state\": \"cold\", \"us\": 2.5, \"bound_us\": 1, \"kernel\": \"a\"}"
  struct ran ran = shell_rondo("", "bench kernels --from %s --rivals %s --json -",
                               shell_write("ours.json", "[" APPLIED(1) "," APPLIED(64) "]"),
                               shell_write("rivals.json", "[" APPLIED(64) "]"));
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "\"outputs\": \"q'c\""), 2, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "\"columns\": 64"), 1, "%s", ran.out);
}

Test(bench_qr, least_squares_and_h_and_tau_of_one_shape_are_two_cases) {
  const char *line = "{\"kind\": \"qr\", \"dtype\": \"f32\", \"m\": 8, \"n\": 8, \"batch\": 1000, \"outputs\": \"x\", "
                     "\"state\": \"cold\", \"us\": 2.5, \"bound_us\": 1, \"kernel\": \"a\"}";
  char text[1024];
  snprintf(text, sizeof text, "[%s,%s]", line, LINE("f32", 8, 8, 1000, "cold", 2.5, "b"));
  struct ran ran = shell_rondo("", "bench kernels --from %s --json -", shell_write("both.json", text));
  REQUIRE_CODE(ran, 3); /* 2.3 us are asked of H and tau only */
  cr_assert_eq(shell_occurrences(ran.out, "\"outputs\": \"x\""), 1, "%s", ran.out);
}
