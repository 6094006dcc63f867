/* test_qr_narrow.c - QR of matrices in f16 and bf16, which is computed in f32, against LAPACK's ratios. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../oracles/qr_factorisation.h"

static const rondo_dtype narrow[] = {RONDO_F16, RONDO_BF16};
/* Each tile of f32 (qr_tile.h), full and not, by vectors and not. */
static const int16_t shapes[][2] = {{8, 8},    {16, 16},  {12, 9},   {32, 32},   {28, 20},  {31, 7},   {64, 64},
                                    {50, 45},  {96, 96},  {93, 70},  {128, 128}, {100, 97}, {128, 16}, {64, 5},
                                    {256, 16}, {255, 16}, {128, 32}, {256, 32},  {512, 32}, {511, 20}, {1024, 32},
                                    {1000, 3}, {1, 1},    {5, 128},  {3, 40}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], NARROW_LAYOUTS = 4 };

/* Ratios against the matrix as f16 or bf16 has it: column-major and row-major, dense and padded. */
static void every_shape(rondo_backend backend) {
  static const enum qr_kind kinds[] = {QR_RANDOM, QR_RANK_DEFICIENT, QR_COLUMN_SCALES, QR_LARGEST};
  enum { KINDS = sizeof kinds / sizeof kinds[0] }; /* the last is beyond f16 */
  for (int layout = 0; layout < NARROW_LAYOUTS; layout++) {
    struct factorisation all[SHAPES];
    for (int i = 0; i < SHAPES; i++)
      all[i] = (struct factorisation){.dtype = RONDO_F32,
                                      .narrow = narrow[(i + layout / 2) % 2],
                                      .layout = layout % 2 ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR,
                                      .m = shapes[i][0],
                                      .n = shapes[i][1],
                                      .batch = KINDS,
                                      .padding = layout < 2 ? 0 : 8,
                                      .aligned = layout == 2,
                                      .dense_h = layout == 3,
                                      .kinds = kinds,
                                      .kind_count = narrow[(i + layout / 2) % 2] == RONDO_F16 ? KINDS - 1 : KINDS};
    factorisations_run(backend, all, SHAPES);
  }
}
BOTH_BACKENDS(qr_narrow, f16_and_bf16_meet_the_ratios_of_f32, every_shape)

/* Blocks that walk over matrices fetch the next one by another way than f32. */
static void turns(rondo_backend backend) {
  struct factorisation all[4];
  static const int16_t walked[][2] = {{128, 128}, {512, 32}};
  for (int i = 0; i < 4; i++)
    all[i] = (struct factorisation){.dtype = RONDO_F32,
                                    .narrow = narrow[i % 2],
                                    .m = walked[i / 2][0],
                                    .n = walked[i / 2][1],
                                    .batch = backend == RONDO_BACKEND_CUDA ? 701 : 5};
  expect_same_bits(backend, all, 4);
}
BOTH_BACKENDS(qr_narrow, a_matrix_has_the_same_bits_in_every_replay_and_batch_position, turns)

/* Subnormal numbers and the largest ones keep their value, infinities and NaN are not lost. */
static void extreme_numbers(rondo_backend backend) {
  enum { ROWS = 4, ITEMS = 4 };
  static const uint16_t bits[2][ITEMS][ROWS] = {
      {{0x0001, 0, 0, 0}, {0x7bff, 0, 0, 0}, {0x3c00, 0x7c00, 0, 0}, {0x3c00, 0x7e00, 0, 0}},
      {{0x0001, 0, 0, 0}, {0x7f7f, 0, 0, 0}, {0x3f80, 0x7f80, 0, 0}, {0x3f80, 0x7fc0, 0, 0}}};
  static const float kept[2][2] = {{0x1p-24f, 65504}, {0x1p-133f, 0x1.fep127f}};
  for (int type = 0; type < 2; type++) {
    struct trial trial;
    rondo_tensor a, h, tau;
    trial_describe(&trial, backend);
    REQUIRE_OK(rondo_input(trial.graph, "a", narrow[type], 3, (int64_t[]){ITEMS, 1, ROWS}, &a));
    REQUIRE_OK(rondo_output(trial.graph, "h", RONDO_F32, 3, (int64_t[]){ITEMS, 1, ROWS}, &h));
    REQUIRE_OK(rondo_output(trial.graph, "tau", RONDO_F32, 2, (int64_t[]){ITEMS, 1}, &tau));
    REQUIRE_OK(rondo_add_qr(trial.graph, &(rondo_qr_desc){.a = a, .h = h, .tau = tau}));
    trial_instantiate(&trial);
    trial_set(&trial, a, bits[type]);
    trial_replay(&trial);
    const float(*got)[ROWS] = trial_output(&trial, h), *factors = trial_output(&trial, tau);
    for (int i = 0; i < 2; i++)
      cr_expect(got[i][0] == kept[type][i] && factors[i] == 0, "%a of %s", (double)got[i][0],
                rondo_dtype_name(narrow[type]));
    cr_expect(!isfinite(got[2][0]) && isnan(got[3][0]), "infinity and NaN became %g and %g", (double)got[2][0],
              (double)got[3][0]);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(qr_narrow, extreme_numbers_keep_their_value, extreme_numbers)

/* ---- Refusals --------------------------------------------------------------------------------------------------- */

static rondo_status add(rondo_graph *graph, int64_t m, int64_t n, rondo_dtype h_dtype, bool has_h) {
  rondo_qr_desc desc = {0};
  const int64_t k = qr_min(m, n);
  REQUIRE_OK(rondo_input(graph, "a", RONDO_BF16, 3, (int64_t[]){2, n, m}, &desc.a));
  if (has_h) {
    REQUIRE_OK(rondo_state(graph, "h", h_dtype, 3, (int64_t[]){2, n, m}, &desc.h));
    REQUIRE_OK(rondo_state(graph, "tau", h_dtype, 2, (int64_t[]){2, k}, &desc.tau));
  } else
    REQUIRE_OK(rondo_state(graph, "r", h_dtype, 3, (int64_t[]){2, n, k}, &desc.r));
  return rondo_add_qr(graph, &desc);
}

Test(qr_narrow, what_is_not_factored_from_f16_and_bf16_is_refused_in_a_sentence) {
  static const struct {
    int64_t m, n;
    rondo_dtype h;
    bool has_h;
    const char *word;
  } cases[] = {{129, 33, RONDO_F32, true, "1024 x 32"}, {1025, 1, RONDO_F32, true, "1024 x 32"},
               {8, 129, RONDO_F32, true, "128 x 128"},  {16, 16, RONDO_F32, false, "h and tau"},
               {16, 16, RONDO_BF16, true, "f32"},       {16, 16, RONDO_F64, true, "f32"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rondo_graph *graph;
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
    rondo_status status = add(graph, cases[i].m, cases[i].n, cases[i].h, cases[i].has_h);
    cr_expect_eq(status, RONDO_INVALID_ARGUMENT, "case %zu", i);
    cr_expect(strstr(rondo_error_text(), cases[i].word), "case %zu: %s", i, rondo_error_text());
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

Test(qr_narrow, a_panel_in_place_is_refused) {
  rondo_graph *graph;
  rondo_tensor a, tau;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "a", RONDO_F16, 3, (int64_t[]){2, 4, 8}, &a));
  REQUIRE_OK(rondo_state(graph, "tau", RONDO_F32, 2, (int64_t[]){2, 4}, &tau));
  cr_expect_eq(rondo_add_qr_panel(graph, &(rondo_qr_panel_desc){.a = a, .tau = tau}), RONDO_INVALID_ARGUMENT);
  cr_expect(strstr(rondo_error_text(), "f32 or f64"), "%s", rondo_error_text());
  REQUIRE_OK(rondo_graph_destroy(&graph));
}
