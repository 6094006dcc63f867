/* qr_panels_cases.h - the tests that both families of QR by panels share, H with tau and thin Q with R: each
 * promise becomes a test by PANELS_TESTS. */
#pragma once

#include "qr_factorisation.h"

/* The rows that the kernels hold, and columns enough for several panels, the last one partly filled. */
enum { PANELS_KERNELS = 8, PANELS_F32_KERNELS = 4, BOTH = 2 * PANELS_KERNELS };

static const int16_t rows_filled[PANELS_KERNELS][2] = {{256, 100}, {512, 70}, {1024, 40}, {2048, 20},
                                                       {160, 100}, {256, 70}, {512, 40},  {1024, 20}};

/* The type of a kernel. */
rondo_dtype panels_type(int kernel);

#define ON_CUDA(suite, name, function)                                                                                 \
  Test(suite, name##_cuda) {                                                                                           \
    require_backend(RONDO_BACKEND_CUDA);                                                                               \
    function;                                                                                                          \
  }

/* More columns than rows, one row, a column more than a tile, rows that end within a vector, a layer, or after one. */
static const int16_t panels_small[][2] = {{17, 165}, {20, 170}, {129, 33}, {64, 161}, {130, 36}, {161, 33}};

static const int16_t panels_middle[][2] = {{129, 129}, {159, 150}, {100, 200}, {192, 50}, {255, 65}};

static const int16_t panels_large[][2] = {{320, 66}, {384, 34}, {511, 40}, {513, 40}, {1000, 33}};

static const int16_t panels_longest[][2] = {{1023, 36}, {1025, 20}, {2047, 17}};

#define SHAPES(shapes) shapes, sizeof(shapes) / sizeof *(shapes)

/* Every kind of matrix in the kernels from `first` to before `last`; the two forms take turns. */
void panels_every_kind(int first, int last, enum form even, enum form odd);

/* Square matrices of the sizes that are common, two of each. */
void panels_square(enum form form);

/* Columns that are tiny, huge, zero or subnormal. */
void panels_extreme_columns(rondo_backend backend, enum form form);

/* A matrix has the same bits in every replay and at every place in the batch. */
void panels_same_bits(rondo_backend backend, enum form form);

/* Infinities and NaN stay in their own matrix; the two forms take turns. */
void panels_poisoned(rondo_backend backend, enum form even, enum form odd);

#define PANELS_TEST(suite, name, on_host, on_cuda)                                                                     \
  Test(suite, name##_host) { on_host; }                                                                                \
  ON_CUDA(suite, name, on_cuda)

/* The same promises of either family. `in_every_layout`: run_in_every_layout or run_thin_in_every_layout; all kinds of
 * matrix in one and another of its forms. */

#define PANELS_TESTS(suite, in_every_layout, one, other)                                                               \
  ON_CUDA(suite, f32_of_every_kind_meets_lapack_ratios, panels_every_kind(0, PANELS_F32_KERNELS, one, other))          \
  ON_CUDA(suite, f64_of_every_kind_meets_lapack_ratios,                                                                \
          panels_every_kind(PANELS_F32_KERNELS, PANELS_KERNELS, one, other))                                           \
  PANELS_TEST(suite, small_f32_meets_lapack_ratios_in_every_layout,                                                    \
              in_every_layout(RONDO_BACKEND_HOST, RONDO_F32, SHAPES(panels_small)),                                    \
              in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(panels_small)))                                    \
  PANELS_TEST(suite, small_f64_meets_lapack_ratios_in_every_layout,                                                    \
              in_every_layout(RONDO_BACKEND_HOST, RONDO_F64, SHAPES(panels_small)),                                    \
              in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(panels_small)))                                    \
  ON_CUDA(suite, f32_of_100_to_255_rows_meets_lapack_ratios_in_every_layout,                                           \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(panels_middle)))                                       \
  ON_CUDA(suite, f64_of_100_to_255_rows_meets_lapack_ratios_in_every_layout,                                           \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(panels_middle)))                                       \
  ON_CUDA(suite, f32_of_320_to_1000_rows_meets_lapack_ratios_in_every_layout,                                          \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(panels_large)))                                        \
  ON_CUDA(suite, f64_of_320_to_1000_rows_meets_lapack_ratios_in_every_layout,                                          \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(panels_large)))                                        \
  ON_CUDA(suite, f32_of_1023_to_2047_rows_meets_lapack_ratios_in_every_layout,                                         \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(panels_longest)))                                      \
  ON_CUDA(suite, f64_of_1023_to_2047_rows_meets_lapack_ratios_in_every_layout,                                         \
          in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(panels_longest)))                                      \
  ON_CUDA(suite, square_matrices_meet_lapack_ratios, panels_square(one))                                               \
  PANELS_TEST(suite, tiny_huge_and_zero_columns_meet_lapack_ratios, panels_extreme_columns(RONDO_BACKEND_HOST, one),   \
              panels_extreme_columns(RONDO_BACKEND_CUDA, one))                                                         \
  PANELS_TEST(suite, a_matrix_has_the_same_bits_in_every_replay_and_batch_position,                                    \
              panels_same_bits(RONDO_BACKEND_HOST, one), panels_same_bits(RONDO_BACKEND_CUDA, one))                    \
  PANELS_TEST(suite, infinities_and_nan_stay_in_their_own_matrix, panels_poisoned(RONDO_BACKEND_HOST, one, other),     \
              panels_poisoned(RONDO_BACKEND_CUDA, one, other))
