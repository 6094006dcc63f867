/* test_qr_block_shapes.h - the shapes that tests of QR by block columns share. */
#ifndef RONDO_TEST_QR_BLOCK_SHAPES_H
#define RONDO_TEST_QR_BLOCK_SHAPES_H

#include "test_qr_factorisation.h"

/* The rows that the kernels hold, and columns enough for several block columns, the last one partly filled. */
enum { KERNELS = 8, F32_KERNELS = 4, BOTH = 2 * KERNELS };
static const int16_t rows_filled[KERNELS][2] = {{256, 100}, {512, 70}, {1024, 40}, {2048, 20},
                                                {160, 100}, {256, 70}, {512, 40},  {1024, 20}};
static inline rondo_dtype type_of(int kernel) { return kernel < F32_KERNELS ? RONDO_F32 : RONDO_F64; }

#define ON_CUDA(suite, name, function)                                                                                 \
  Test(suite, name##_cuda) {                                                                                           \
    require_backend(RONDO_BACKEND_CUDA);                                                                               \
    function;                                                                                                          \
  }

/* More columns than rows, one row, a column more than a tile, rows that end within a vector, a layer, or behind one. */
static const int16_t small[][2] = {{17, 165}, {20, 170}, {129, 33}, {64, 161}, {130, 36}, {161, 33}};
static const int16_t middle[][2] = {{129, 129}, {159, 150}, {100, 200}, {192, 50}, {255, 65}};
static const int16_t large[][2] = {{320, 66}, {384, 34}, {511, 40}, {513, 40}, {1000, 33}};
static const int16_t longest[][2] = {{1023, 36}, {1025, 20}, {2047, 17}};
#define SHAPES(shapes) shapes, sizeof(shapes) / sizeof *(shapes)

/* Every kind of matrix in each kernel, the two forms in turn. */
static inline void every_kind_in(int first, int last, enum form even, enum form odd) {
  struct factorisation all[KERNELS];
  for (int i = first; i < last; i++)
    all[i - first] = (struct factorisation){.dtype = type_of(i),
                                            .form = i % 2 ? odd : even,
                                            .m = rows_filled[i][0],
                                            .n = rows_filled[i][1],
                                            .batch = QR_KINDS,
                                            .kinds = every_kind,
                                            .kind_count = QR_KINDS};
  run(RONDO_BACKEND_CUDA, all, (size_t)(last - first));
}

/* What people factor: square, two of each. */
static inline void square(enum form form) {
  static const int16_t sizes[] = {160, 256, 320};
  enum { COUNT = 2 * sizeof sizes / sizeof *sizes };
  struct factorisation all[COUNT];
  for (int i = 0; i < COUNT; i++)
    all[i] = (struct factorisation){.dtype = i % 2 ? RONDO_F64 : RONDO_F32,
                                    .form = form,
                                    .m = sizes[i / 2],
                                    .n = sizes[i / 2],
                                    .batch = 2,
                                    .kinds = hard_kinds,
                                    .kind_count = 2};
  run(RONDO_BACKEND_CUDA, all, COUNT);
}

static inline void extreme_columns(rondo_backend backend, enum form form) {
  static const int16_t shapes[][2] = {{18, 165}, {129, 40}, {250, 70}, {300, 34}};
  enum { COUNT = 2 * sizeof shapes / sizeof shapes[0] };
  struct factorisation all[COUNT];
  for (int i = 0; i < COUNT; i++)
    all[i] = (struct factorisation){.dtype = i % 2 ? RONDO_F64 : RONDO_F32,
                                    .layout = i % 3 ? RONDO_COLUMN_MAJOR : RONDO_ROW_MAJOR,
                                    .form = form,
                                    .m = shapes[i / 2][0],
                                    .n = shapes[i / 2][1],
                                    .batch = EXTREME_KINDS,
                                    .kinds = extreme_kinds,
                                    .kind_count = EXTREME_KINDS};
  run(backend, all, COUNT);
}

static inline void same_bits(rondo_backend backend, enum form form) {
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++) {
    const bool filled = i < KERNELS;
    all[i] = (struct factorisation){.dtype = type_of(i % KERNELS),
                                    .layout = filled ? RONDO_COLUMN_MAJOR : RONDO_ROW_MAJOR,
                                    .form = form,
                                    .m = rows_filled[i % KERNELS][0] - (filled ? 0 : 7),
                                    .n = 36,
                                    .batch = 5};
  }
  expect_same_bits(backend, all, BOTH);
}

static inline void poisoned(rondo_backend backend, enum form even, enum form odd) {
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++)
    all[i] = (struct factorisation){.dtype = type_of(i % KERNELS),
                                    .form = i % 2 ? odd : even,
                                    .m = rows_filled[i % KERNELS][0] - i / KERNELS,
                                    .n = i < KERNELS ? 34 : 65};
  expect_poison_stays(backend, all, BOTH);
}

#define BLOCK_TEST(suite, name, on_host, on_cuda)                                                                      \
  Test(suite, name##_host) { on_host; }                                                                                \
  ON_CUDA(suite, name, on_cuda)

/* The same promises of either family. `in_every_layout`: run_in_every_layout or run_thin_in_every_layout; all kinds of
 * matrix in one and another of its forms. */
#define BLOCK_TESTS(suite, in_every_layout, one, other)                                                                \
  ON_CUDA(suite, f32_of_every_kind_meets_lapack_ratios, every_kind_in(0, F32_KERNELS, one, other))                     \
  ON_CUDA(suite, f64_of_every_kind_meets_lapack_ratios, every_kind_in(F32_KERNELS, KERNELS, one, other))               \
  BLOCK_TEST(suite, small_f32_meets_lapack_ratios_in_every_layout,                                                     \
             in_every_layout(RONDO_BACKEND_HOST, RONDO_F32, SHAPES(small)),                                            \
             in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(small)))                                            \
  BLOCK_TEST(suite, small_f64_meets_lapack_ratios_in_every_layout,                                                     \
             in_every_layout(RONDO_BACKEND_HOST, RONDO_F64, SHAPES(small)),                                            \
             in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(small)))                                            \
  ON_CUDA(suite, f32_of_100_to_255_rows_meets_lapack_ratios_in_every_layout,                                           \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(middle)))                                              \
  ON_CUDA(suite, f64_of_100_to_255_rows_meets_lapack_ratios_in_every_layout,                                           \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(middle)))                                              \
  ON_CUDA(suite, f32_of_320_to_1000_rows_meets_lapack_ratios_in_every_layout,                                          \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(large)))                                               \
  ON_CUDA(suite, f64_of_320_to_1000_rows_meets_lapack_ratios_in_every_layout,                                          \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(large)))                                               \
  ON_CUDA(suite, f32_of_1023_to_2047_rows_meets_lapack_ratios_in_every_layout,                                         \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(longest)))                                             \
  ON_CUDA(suite, f64_of_1023_to_2047_rows_meets_lapack_ratios_in_every_layout,                                         \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(longest)))                                             \
  ON_CUDA(suite, square_matrices_meet_lapack_ratios, square(one))                                                      \
  BLOCK_TEST(suite, tiny_huge_and_zero_columns_meet_lapack_ratios, extreme_columns(RONDO_BACKEND_HOST, one),           \
             extreme_columns(RONDO_BACKEND_CUDA, one))                                                                 \
  BLOCK_TEST(suite, a_matrix_has_the_same_bits_in_every_replay_and_batch_position, same_bits(RONDO_BACKEND_HOST, one), \
             same_bits(RONDO_BACKEND_CUDA, one))                                                                       \
  BLOCK_TEST(suite, infinities_and_nan_stay_in_their_own_matrix, poisoned(RONDO_BACKEND_HOST, one, other),             \
             poisoned(RONDO_BACKEND_CUDA, one, other))

#endif
