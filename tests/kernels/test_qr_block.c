/* test_qr_block.c - H and tau of matrices wider or longer than the register tiles, which are factored by block columns
 * (qr_block_plan.c): rows that fill a kernel and rows that do not, in every layout, with every kind of matrix; and that
 * batch and neighbours change no bit.
 *
 * A host has no such kernels: there the small matrices suffice, what takes long to check runs on the GPU only. */
#include "test_qr_factorisation.h"

/* The rows that the kernels hold, and columns enough for several block columns, the last one partly filled. */
enum { KERNELS = 8, F32_KERNELS = 4, BOTH = 2 * KERNELS };
static const int16_t rows_filled[KERNELS][2] = {{256, 100}, {512, 70}, {1024, 40}, {2048, 20},
                                                {160, 100}, {256, 70}, {512, 40},  {1024, 20}};
static rondo_dtype type_of(int kernel) { return kernel < F32_KERNELS ? RONDO_F32 : RONDO_F64; }

#define ON_CUDA(name, function)                                                                                        \
  Test(qr_block, name##_cuda) {                                                                                        \
    require_backend(RONDO_BACKEND_CUDA);                                                                               \
    function;                                                                                                          \
  }

/* ---- Ratios ----------------------------------------------------------------------------------------------------- */

/* Every kind of matrix in each kernel. */
static void every_kind_in(int first, int last) {
  struct factorisation all[KERNELS];
  for (int i = first; i < last; i++)
    all[i - first] = (struct factorisation){.dtype = type_of(i),
                                            .form = i % 2 ? FORM_PANEL : FORM_H,
                                            .m = rows_filled[i][0],
                                            .n = rows_filled[i][1],
                                            .batch = QR_KINDS,
                                            .kinds = every_kind,
                                            .kind_count = QR_KINDS};
  run(RONDO_BACKEND_CUDA, all, (size_t)(last - first));
}
ON_CUDA(f32_of_every_kind_meets_lapack_ratios, every_kind_in(0, F32_KERNELS))
ON_CUDA(f64_of_every_kind_meets_lapack_ratios, every_kind_in(F32_KERNELS, KERNELS))

/* More columns than rows, one row, a column more than a tile, rows that end within a vector, a layer, or behind one. */
static const int16_t small[][2] = {{17, 165}, {20, 170}, {129, 33}, {64, 161}, {130, 36}, {161, 33}};
static const int16_t middle[][2] = {{129, 129}, {159, 150}, {100, 200}, {192, 50}, {255, 65}};
static const int16_t large[][2] = {{320, 66}, {384, 34}, {511, 40}, {513, 40}, {1000, 33}};
static const int16_t longest[][2] = {{1023, 36}, {1025, 20}, {2047, 17}};
#define SHAPES(shapes) shapes, sizeof(shapes) / sizeof *(shapes)

static void small_f32(rondo_backend backend) { run_in_every_layout(backend, RONDO_F32, SHAPES(small)); }
static void small_f64(rondo_backend backend) { run_in_every_layout(backend, RONDO_F64, SHAPES(small)); }
BOTH_BACKENDS(qr_block, small_f32_meets_lapack_ratios_in_every_layout, small_f32)
BOTH_BACKENDS(qr_block, small_f64_meets_lapack_ratios_in_every_layout, small_f64)
ON_CUDA(f32_of_100_to_255_rows_meets_lapack_ratios_in_every_layout,
        run_in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(middle)))
ON_CUDA(f64_of_100_to_255_rows_meets_lapack_ratios_in_every_layout,
        run_in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(middle)))
ON_CUDA(f32_of_320_to_1000_rows_meets_lapack_ratios_in_every_layout,
        run_in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(large)))
ON_CUDA(f64_of_320_to_1000_rows_meets_lapack_ratios_in_every_layout,
        run_in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(large)))
ON_CUDA(f32_of_1023_to_2047_rows_meets_lapack_ratios_in_every_layout,
        run_in_every_layout(RONDO_BACKEND_CUDA, RONDO_F32, SHAPES(longest)))
ON_CUDA(f64_of_1023_to_2047_rows_meets_lapack_ratios_in_every_layout,
        run_in_every_layout(RONDO_BACKEND_CUDA, RONDO_F64, SHAPES(longest)))

/* What people factor: square, two of each. */
static void square(void) {
  static const int16_t sizes[] = {256, 320};
  enum { COUNT = 2 * sizeof sizes / sizeof *sizes };
  struct factorisation all[COUNT];
  for (int i = 0; i < COUNT; i++)
    all[i] = (struct factorisation){.dtype = i % 2 ? RONDO_F64 : RONDO_F32,
                                    .m = sizes[i / 2],
                                    .n = sizes[i / 2],
                                    .batch = 2,
                                    .kinds = hard_kinds,
                                    .kind_count = 2};
  run(RONDO_BACKEND_CUDA, all, COUNT);
}
ON_CUDA(square_matrices_meet_lapack_ratios, square())

static void extreme_columns(rondo_backend backend) {
  static const int16_t shapes[][2] = {{18, 165}, {129, 40}, {250, 70}, {300, 34}};
  enum { COUNT = 2 * sizeof shapes / sizeof shapes[0] };
  struct factorisation all[COUNT];
  for (int i = 0; i < COUNT; i++)
    all[i] = (struct factorisation){.dtype = i % 2 ? RONDO_F64 : RONDO_F32,
                                    .layout = i % 3 ? RONDO_COLUMN_MAJOR : RONDO_ROW_MAJOR,
                                    .m = shapes[i / 2][0],
                                    .n = shapes[i / 2][1],
                                    .batch = EXTREME_KINDS,
                                    .kinds = extreme_kinds,
                                    .kind_count = EXTREME_KINDS};
  run(backend, all, COUNT);
}
BOTH_BACKENDS(qr_block, tiny_huge_and_zero_columns_meet_lapack_ratios, extreme_columns)

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

static void same_bits(rondo_backend backend) {
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++) {
    const bool filled = i < KERNELS;
    all[i] = (struct factorisation){.dtype = type_of(i % KERNELS),
                                    .layout = filled ? RONDO_COLUMN_MAJOR : RONDO_ROW_MAJOR,
                                    .m = rows_filled[i % KERNELS][0] - (filled ? 0 : 7),
                                    .n = 36,
                                    .batch = 5};
  }
  expect_same_bits(backend, all, BOTH);
}
BOTH_BACKENDS(qr_block, a_matrix_has_the_same_bits_in_every_replay_and_batch_position, same_bits)

/* Alone and among more than run at once. */
static void same_bits_among_many(void) {
  struct factorisation all[] = {{.dtype = RONDO_F32, .m = 170, .n = 40, .batch = 1201},
                                {.dtype = RONDO_F64, .m = 258, .n = 34, .batch = 301}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_same_bits(RONDO_BACKEND_CUDA, &all[i], 1);
}
ON_CUDA(a_matrix_has_the_same_bits_among_thousands_and_alone, same_bits_among_many())

static void poisoned(rondo_backend backend) {
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++)
    all[i] = (struct factorisation){
        .dtype = type_of(i % KERNELS), .m = rows_filled[i % KERNELS][0] - i / KERNELS, .n = i < KERNELS ? 34 : 65};
  expect_poison_stays(backend, all, BOTH);
}
BOTH_BACKENDS(qr_block, infinities_and_nan_stay_in_their_own_matrix, poisoned)
