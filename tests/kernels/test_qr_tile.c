/* test_qr_tile.c - H and tau of matrices that register tiles factor (qr_tile_plan.c), against LAPACK's ratios: each
 * tile full and partly filled, every layout and kind of matrix. Batch and neighbours change no bit. */
#include <criterion/criterion.h>

#include "test_qr_tile_shapes.h"

/* Full and partly filled tiles that make H and tau alone, shapes between the tiles, and the first that go by panels. */
static const int16_t squares[][2] = {{40, 40},   {48, 48},   {72, 72},   {80, 80},   {104, 104}, {104, 112},
                                     {112, 112}, {160, 160}, {36, 33},   {44, 41},   {69, 71},   {75, 78},
                                     {100, 99},  {107, 104}, {132, 129}, {145, 150}, {159, 40},  {12, 140}};
enum { SQUARES = sizeof squares / sizeof squares[0] };

/* ---- Ratios ----------------------------------------------------------------------------------------------------- */

/* Full tiles: out of place and in place. */
static void full(rondo_backend backend, rondo_dtype dtype, const int16_t (*shapes)[2], size_t count) {
  if (dtype == RONDO_F64) skip_under_sanitizers();
  struct factorisation all[BOTH_TYPES];
  for (size_t i = 0; i < 2 * count; i++)
    all[i] = (struct factorisation){.dtype = dtype,
                                    .form = i < count ? FORM_H : FORM_PANEL,
                                    .m = shapes[i % count][0],
                                    .n = shapes[i % count][1],
                                    .batch = QR_KINDS + 1, /* no multiple of the matrices of a warp */
                                    .kinds = every_kind,
                                    .kind_count = QR_KINDS};
  factorisations_run(backend, all, 2 * count);
}
static void full_f32(rondo_backend backend) { full(backend, RONDO_F32, tiles, TILES); }
static void full_f64(rondo_backend backend) { full(backend, RONDO_F64, tiles, TILES); }
BOTH_BACKENDS(qr_tile, full_tiles_of_f32_meet_lapack_ratios, full_f32)
BOTH_BACKENDS(qr_tile, full_tiles_of_f64_meet_lapack_ratios, full_f64)

static void small(rondo_backend backend, rondo_dtype dtype) { run_in_every_layout(backend, dtype, partly, PARTLY / 2); }
static void large(rondo_backend backend, rondo_dtype dtype) {
  run_in_every_layout(backend, dtype, partly + PARTLY / 2, PARTLY - PARTLY / 2);
}
static void small_f32(rondo_backend backend) { small(backend, RONDO_F32); }
static void large_f32(rondo_backend backend) { large(backend, RONDO_F32); }
static void full_layouts_f32(rondo_backend backend) { run_in_every_layout(backend, RONDO_F32, tiles, TILES); }
static void small_f64(rondo_backend backend) { small(backend, RONDO_F64); }
static void large_f64(rondo_backend backend) { large(backend, RONDO_F64); }
static void full_layouts_f64(rondo_backend backend) { run_in_every_layout(backend, RONDO_F64, tiles, TILES); }
BOTH_BACKENDS(qr_tile, small_f32_between_tiles_meets_lapack_ratios_in_every_layout, small_f32)
BOTH_BACKENDS(qr_tile, large_f32_between_tiles_meets_lapack_ratios_in_every_layout, large_f32)
BOTH_BACKENDS(qr_tile, full_tiles_of_f32_meet_lapack_ratios_in_every_layout, full_layouts_f32)
BOTH_BACKENDS(qr_tile, small_f64_between_tiles_meets_lapack_ratios_in_every_layout, small_f64)
BOTH_BACKENDS(qr_tile, large_f64_between_tiles_meets_lapack_ratios_in_every_layout, large_f64)
BOTH_BACKENDS(qr_tile, full_tiles_of_f64_meet_lapack_ratios_in_every_layout, full_layouts_f64)

static void squares_f32(rondo_backend backend) { run_in_every_layout(backend, RONDO_F32, squares, SQUARES); }
static void squares_f64(rondo_backend backend) { run_in_every_layout(backend, RONDO_F64, squares, SQUARES); }
BOTH_BACKENDS(qr_tile, squares_of_f32_meet_lapack_ratios_in_every_layout, squares_f32)
BOTH_BACKENDS(qr_tile, squares_of_f64_meet_lapack_ratios_in_every_layout, squares_f64)

/* Extreme columns where a tile is partly filled. */
static void extreme_columns(rondo_backend backend) {
  skip_under_sanitizers();
  enum { SHAPES = PARTLY + SQUARES, BOTH = 2 * SHAPES };
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++) {
    const int16_t *shape = i % SHAPES < PARTLY ? partly[i % SHAPES] : squares[i % SHAPES - PARTLY];
    all[i] = (struct factorisation){.dtype = i < SHAPES ? RONDO_F32 : RONDO_F64,
                                    .m = shape[0],
                                    .n = shape[1],
                                    .batch = EXTREME_KINDS,
                                    .kinds = extreme_kinds,
                                    .kind_count = EXTREME_KINDS};
  }
  factorisations_run(backend, all, BOTH);
}
BOTH_BACKENDS(qr_tile, tiny_huge_and_zero_columns_meet_lapack_ratios, extreme_columns)

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

/* On the host nothing takes turns. Tiles whose blocks walk over matrices, in batches of more than two for each block: a
 * multiprocessor (H200: 132) has 1, 2 or 4 blocks. */
static const struct {
  rondo_dtype dtype;
  int16_t m, n, batch;
} in_turns[] = {{RONDO_F32, 128, 128, 601}, {RONDO_F32, 512, 32, 601},  {RONDO_F32, 1024, 32, 301},
                {RONDO_F64, 128, 128, 301}, {RONDO_F64, 256, 16, 1201}, {RONDO_F64, 512, 32, 301},
                {RONDO_F64, 1024, 32, 301}};
enum { IN_TURNS = sizeof in_turns / sizeof in_turns[0] };

static void same_bits_of(rondo_backend backend, const int16_t (*shapes)[2], int count) {
  struct factorisation all[BITS_MOST];
  cr_assert_leq(2 * count, BITS_MOST);
  for (int i = 0; i < 2 * count; i++)
    all[i] = (struct factorisation){
        .dtype = i < count ? RONDO_F32 : RONDO_F64, .m = shapes[i % count][0], .n = shapes[i % count][1], .batch = 67};
  expect_same_bits(backend, all, 2 * (size_t)count);
}
static void same_bits(rondo_backend backend) {
  skip_under_sanitizers();
  same_bits_of(backend, tiles, TILES);
  same_bits_of(backend, squares, 12);
}
BOTH_BACKENDS(qr_tile, a_matrix_has_the_same_bits_in_every_replay_and_batch_position, same_bits)

/* One at a time: the batches are large. */
Test(qr_tile, a_matrix_has_the_same_bits_whichever_turn_of_a_block_it_is_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  for (int i = 0; i < 2 * IN_TURNS; i++) { /* row-major H leaves through the stage, where the next matrix comes to */
    struct factorisation f = {.dtype = in_turns[i / 2].dtype,
                              .layout = i % 2 ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR,
                              .m = in_turns[i / 2].m,
                              .n = in_turns[i / 2].n,
                              .batch = in_turns[i / 2].batch};
    expect_same_bits(RONDO_BACKEND_CUDA, &f, 1);
  }
}

Test(qr_tile, padded_matrices_have_the_same_bits_whichever_turn_of_a_block_they_are_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  static const int16_t shapes[][2] = {{100, 90}, {300, 20}, {600, 9}, {600, 20}, {1024, 20}, {200, 7}};
  enum { SHAPES = sizeof shapes / sizeof shapes[0] };
  for (int i = 0; i < 2 * SHAPES; i++) {
    struct factorisation f = {.dtype = i < SHAPES ? RONDO_F32 : RONDO_F64,
                              .m = shapes[i % SHAPES][0],
                              .n = shapes[i % SHAPES][1],
                              .batch = i == 2 * SHAPES - 1 ? 1201 : 701, /* 4 blocks a multiprocessor, or fewer */
                              .padding = 4,
                              .aligned = i % 2 == 0};
    expect_same_bits(RONDO_BACKEND_CUDA, &f, 1);
  }
}

/* The batch chooses no kernel. */
static void same_bits_of_many(rondo_backend backend) {
  skip_under_sanitizers();
  static const int16_t shapes[][2] = {{128, 16}, {100, 9}, {256, 16}, {130, 5}};
  struct factorisation all[4];
  for (int i = 0; i < 4; i++)
    all[i] = (struct factorisation){.dtype = RONDO_F32, .m = shapes[i][0], .n = shapes[i][1], .batch = 4099};
  expect_same_bits(backend, all, 4);
}
BOTH_BACKENDS(qr_tile, a_matrix_has_the_same_bits_in_a_batch_of_thousands_and_alone, same_bits_of_many)

/* Some tiles have several matrices in a warp. */
static void poisoned_of(rondo_backend backend, const int16_t (*shapes)[2], int count) {
  for (int part = 0; part < 2; part++) {
    struct factorisation all[BITS_MOST];
    cr_assert_leq(2 * count, BITS_MOST);
    for (int i = 0; i < 2 * count; i++) {
      const int16_t *shape = shapes[i % count];
      all[i] = (struct factorisation){
          .dtype = i < count ? RONDO_F32 : RONDO_F64, .m = shape[0] - part, .n = part ? shape[1] / 2 + 1 : shape[1]};
    }
    expect_poison_stays(backend, all, 2 * (size_t)count);
  }
}
static void poisoned(rondo_backend backend) {
  poisoned_of(backend, tiles, TILES);
  poisoned_of(backend, squares, 12);
}
BOTH_BACKENDS(qr_tile, infinities_and_nan_stay_in_their_own_matrix, poisoned)

/* What one turn of a block leaves in shared memory and registers must not meet the next. */
Test(qr_tile, infinities_and_nan_stay_in_their_own_turn_of_a_block_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  for (int part = 0; part < 2; part++)
    for (int i = 0; i < IN_TURNS; i++) {
      struct factorisation f = {.dtype = in_turns[i].dtype,
                                .m = in_turns[i].m - 4 * part,
                                .n = part ? in_turns[i].n * 5 / 8 : in_turns[i].n,
                                .batch = in_turns[i].batch};
      expect_poison_stays(RONDO_BACKEND_CUDA, &f, 1);
    }
}

/* ---- What rondo.h says of remainders ---------------------------------------------------------------------------- */

/* A subcolumn far below its column is taken as zero: alpha is kept, and tau = 0. One that counts is not. */
static void remainders(rondo_backend backend) {
  enum { ROWS = 3, ITEMS = 2 };
  struct trial trial;
  trial_describe(&trial, backend);
  rondo_tensor a, h, tau;
  REQUIRE_OK(rondo_input(trial.graph, "a", RONDO_F32, 3, (int64_t[]){ITEMS, 1, ROWS}, &a));
  REQUIRE_OK(rondo_output(trial.graph, "h", RONDO_F32, 3, (int64_t[]){ITEMS, 1, ROWS}, &h));
  REQUIRE_OK(rondo_output(trial.graph, "tau", RONDO_F32, 2, (int64_t[]){ITEMS, 1}, &tau));
  REQUIRE_OK(rondo_add_qr(trial.graph, &(rondo_qr_desc){.a = a, .h = h, .tau = tau}));
  trial_instantiate(&trial);
  const float data[ITEMS][ROWS] = {{1, 0x1p-60f, -0x1p-70f}, {1, 0x1p-33f, 0}};
  trial_set(&trial, a, data);
  trial_replay(&trial);
  const float(*got)[ROWS] = trial_output(&trial, h), *factors = trial_output(&trial, tau);
  cr_expect(factors[0] == 0 && got[0][0] == 1 && got[0][1] == 0, "tau is %g, beta %g", (double)factors[0],
            (double)got[0][0]);
  cr_expect(factors[1] == 2 && got[1][0] == -1 && got[1][1] == 0x1p-34f, "tau is %g, beta %g", (double)factors[1],
            (double)got[1][0]);
  trial_end(&trial);
}
Test(qr_tile, a_subcolumn_far_below_its_column_is_taken_as_zero_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  remainders(RONDO_BACKEND_CUDA);
}
