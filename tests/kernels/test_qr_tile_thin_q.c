/* test_qr_tile_thin_q.c - thin Q and R of matrices that have register tiles for it (qr_tile.h), against LAPACK's
 * ratios: each tile full, with its smallest matrices and with some between, in every layout and form. Form, batch and
 * neighbours change no bit. */
#include <criterion/criterion.h>

#include "test_qr_tile_shapes.h"

/* ---- Ratios ----------------------------------------------------------------------------------------------------- */

static void full(rondo_backend backend, rondo_dtype dtype) {
  if (dtype == RONDO_F64) skip_under_sanitizers();
  struct factorisation all[TILES];
  for (int i = 0; i < TILES; i++)
    all[i] = (struct factorisation){.dtype = dtype,
                                    .form = FORM_QR,
                                    .m = tiles[i][0],
                                    .n = tiles[i][1],
                                    .batch = QR_KINDS + 1, /* no multiple of the matrices of a warp */
                                    .kinds = every_kind,
                                    .kind_count = QR_KINDS};
  factorisations_run(backend, all, TILES);
}
static void full_f32(rondo_backend backend) { full(backend, RONDO_F32); }
static void full_f64(rondo_backend backend) { full(backend, RONDO_F64); }
BOTH_BACKENDS(qr_tile_thin_q, full_tiles_of_f32_meet_lapack_ratios, full_f32)
BOTH_BACKENDS(qr_tile_thin_q, full_tiles_of_f64_meet_lapack_ratios, full_f64)

static void partly_f32(rondo_backend backend) { run_thin_in_every_layout(backend, RONDO_F32, partly, PARTLY); }
static void partly_f64(rondo_backend backend) { run_thin_in_every_layout(backend, RONDO_F64, partly, PARTLY); }
static void full_layouts_f32(rondo_backend backend) { run_thin_in_every_layout(backend, RONDO_F32, tiles, TILES); }
static void full_layouts_f64(rondo_backend backend) { run_thin_in_every_layout(backend, RONDO_F64, tiles, TILES); }
BOTH_BACKENDS(qr_tile_thin_q, f32_between_tiles_meets_lapack_ratios_in_every_layout, partly_f32)
BOTH_BACKENDS(qr_tile_thin_q, f64_between_tiles_meets_lapack_ratios_in_every_layout, partly_f64)
BOTH_BACKENDS(qr_tile_thin_q, full_tiles_of_f32_meet_lapack_ratios_in_every_layout, full_layouts_f32)
BOTH_BACKENDS(qr_tile_thin_q, full_tiles_of_f64_meet_lapack_ratios_in_every_layout, full_layouts_f64)

/* Beyond the tile before it by one row, by one column, or by both. */
static const int16_t smallest[][2] = {{1, 1},   {9, 1},   {1, 9},    {17, 1},  {1, 17}, {33, 1},
                                      {33, 17}, {1, 33},  {65, 17},  {65, 33}, {1, 65}, {97, 33},
                                      {1, 97},  {129, 1}, {129, 17}, {257, 1}, {513, 1}};
enum { SMALLEST = sizeof smallest / sizeof smallest[0] };

static void extreme_columns(rondo_backend backend) {
  static const enum qr_kind kinds[] = {QR_RANDOM,      QR_ONE_TINY,    QR_ONE_HUGE, QR_ONE_ZERO,    QR_ONE_DENORMAL,
                                       QR_SMALL_UNITS, QR_LARGE_UNITS, QR_ZERO,     QR_ALTERNATING, QR_NEAR_UNDERFLOW};
  enum { KINDS = sizeof kinds / sizeof kinds[0], SHAPES = SMALLEST + PARTLY, BOTH = 2 * SHAPES };
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++) {
    const int shape = i % SHAPES;
    const int16_t *sizes = shape < SMALLEST ? smallest[shape] : partly[shape - SMALLEST];
    all[i] = (struct factorisation){.dtype = i < SHAPES ? RONDO_F32 : RONDO_F64,
                                    .form = FORM_QR,
                                    .m = sizes[0],
                                    .n = sizes[1],
                                    .batch = KINDS,
                                    .kinds = kinds,
                                    .kind_count = KINDS};
  }
  factorisations_run(backend, all, BOTH);
}
BOTH_BACKENDS(qr_tile_thin_q, tiny_huge_and_zero_columns_meet_lapack_ratios, extreme_columns)

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

static void same_bits(rondo_backend backend) {
  skip_under_sanitizers();
  struct factorisation all[BOTH_TYPES];
  for (int i = 0; i < BOTH_TYPES; i++)
    all[i] = (struct factorisation){.dtype = i < TILES ? RONDO_F32 : RONDO_F64,
                                    .form = FORM_QR,
                                    .m = tiles[i % TILES][0],
                                    .n = tiles[i % TILES][1],
                                    .batch = 67};
  expect_same_bits(backend, all, BOTH_TYPES);
}
BOTH_BACKENDS(qr_tile_thin_q, a_matrix_has_the_same_bits_in_every_replay_and_batch_position, same_bits)

static void same_alone(rondo_backend backend) {
  skip_under_sanitizers();
  for (int less = 0; less < 4; less += 3) {
    expect_same_alone(backend, RONDO_F32, 0, tiles, TILES, less);
    expect_same_alone(backend, RONDO_F64, 0, tiles, TILES, less);
  }
}
BOTH_BACKENDS(qr_tile_thin_q, r_alone_and_q_alone_have_the_bits_of_both, same_alone)

/* The host's sums follow the strides. */
Test(qr_tile_thin_q, r_alone_and_q_alone_have_the_bits_of_both_in_every_layout_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  for (int layout = 1; layout < DENSE_H_LAYOUT; layout++) {
    expect_same_alone(RONDO_BACKEND_CUDA, RONDO_F32, layout, tiles, TILES, layout);
    expect_same_alone(RONDO_BACKEND_CUDA, RONDO_F64, layout, tiles, TILES, layout);
  }
}

/* Some tiles have several matrices in a warp. */
static void poisoned(rondo_backend backend) {
  for (int part = 0; part < 2; part++) {
    struct factorisation all[BOTH_TYPES];
    for (int i = 0; i < BOTH_TYPES; i++) {
      const int16_t *tile = tiles[i % TILES];
      all[i] = (struct factorisation){.dtype = i < TILES ? RONDO_F32 : RONDO_F64,
                                      .form = FORM_QR,
                                      .m = tile[0] - part,
                                      .n = part ? tile[1] / 2 + 1 : tile[1]};
    }
    expect_poison_stays(backend, all, BOTH_TYPES);
  }
}
BOTH_BACKENDS(qr_tile_thin_q, infinities_and_nan_stay_in_their_own_matrix, poisoned)

/* The largest panels, more of them than blocks run at once. What one matrix leaves in shared memory and registers must
 * not reach the next. */
Test(qr_tile_thin_q, matrices_have_the_same_bits_and_keep_their_nan_whichever_turn_of_a_block_they_are_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  static const int16_t shapes[][2] = {{1024, 32}, {1000, 20}, {600, 9}};
  for (int i = 0; i < 3; i++) {
    struct factorisation f = {.dtype = RONDO_F64,
                              .form = FORM_QR,
                              .m = shapes[i][0],
                              .n = shapes[i][1],
                              .batch = 301,
                              .padding = INT64_C(4) * (i % 2)};
    expect_same_bits(RONDO_BACKEND_CUDA, &f, 1);
    f = (struct factorisation){.dtype = RONDO_F64, .form = FORM_QR, .m = shapes[i][0], .n = shapes[i][1], .batch = 301};
    expect_poison_stays(RONDO_BACKEND_CUDA, &f, 1);
  }
}
