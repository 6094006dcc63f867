/* test_gemv_panel.c - the host's loops over AVX2 and over AVX-512 registers give the same bits: for every code of a
 * weight, and for any rows, columns and vectors that are multiplied together. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../../kernels/gemv/gemv_panel.h"
#include "../support.h"

enum { ROWS = 32, COLUMNS = 2112, VECTORS = 16, SUMS = ROWS * VECTORS * PANEL_LANES };
static const size_t weight_bytes = (size_t)ROWS * COLUMNS * 2, scale_bytes = (size_t)128 * COLUMNS / 16;

struct data {
  unsigned char *weights, *scales;
  float *vectors, *sums[2];
};

static struct data data_begin(struct random *random) {
  struct data d = {.weights = malloc(weight_bytes),
                   .scales = malloc(scale_bytes),
                   .vectors = aligned_alloc(PANEL_ALIGNMENT, sizeof(float) * VECTORS * COLUMNS)};
  for (size_t i = 0; i < weight_bytes; i++) d.weights[i] = (unsigned char)random_bits(random);
  for (size_t i = 0; i < scale_bytes; i++) d.scales[i] = (unsigned char)random_bits(random);
  for (int i = 0; i < VECTORS * COLUMNS; i++) d.vectors[i] = (float)random_normal(random);
  for (int i = 0; i < 2; i++) d.sums[i] = aligned_alloc(PANEL_ALIGNMENT, SUMS * sizeof(float));
  return d;
}

static void data_end(struct data *d) {
  free(d->weights);
  free(d->scales);
  free(d->vectors);
  free(d->sums[0]);
  free(d->sums[1]);
}

/* NaN may be any NaN. */
static bool same(float a, float b) { return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)); }

static void check(struct data *d, struct random *random, rondo_dtype dtype, int64_t rows, int64_t columns,
                  int64_t count) {
  struct gemv_panel panel = {.dtype = dtype,
                             .weights = d->weights,
                             .row_bytes = panel_bytes(dtype, COLUMNS),
                             .scales = d->scales,
                             .scale_row_bytes = COLUMNS / 16,
                             .scale_layout = random_between(random, 0, 1) ? RONDO_SCALES_128X4 : RONDO_SCALES_BY_ROW,
                             .rows = rows,
                             .columns = columns,
                             .count = count,
                             .vectors = d->vectors,
                             .vector_pitch = COLUMNS};
  for (int i = 0; i < SUMS; i++) d->sums[0][i] = d->sums[1][i] = (float)random_normal(random);
  panel.sums = d->sums[0];
  gemv_panel_256(&panel);
  panel.sums = d->sums[1];
  gemv_panel_512(&panel);
  int64_t places = (count + PANEL_VECTORS - 1) / PANEL_VECTORS * PANEL_VECTORS;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t v = 0; v < count; v++)
      for (int64_t lane = 0; lane < PANEL_LANES; lane++) {
        int64_t i = (r * places + v) * PANEL_LANES + lane;
        cr_assert(same(d->sums[0][i], d->sums[1][i]), "%s, %d x %d, vector %d of %d, row %d lane %d: %a and %a",
                  rondo_dtype_name(dtype), (int)rows, (int)columns, (int)v, (int)count, (int)r, (int)lane,
                  (double)d->sums[0][i], (double)d->sums[1][i]);
      }
}

Test(gemv_panel, avx2_and_avx512_give_the_same_bits) {
  static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16, RONDO_E4M3, RONDO_NVFP4};
  static const int64_t rows[] = {1, 3, 4, 7, 32}, columns[] = {16, 32, 272, 576, 1024, 1040, 2080};
  if (!gemv_panel_has_512()) cr_skip_test("the processor has no AVX-512");
  struct random random = {.state = 21};
  struct data d = data_begin(&random);
  for (int t = 0; t < 4; t++)
    for (int r = 0; r < 5; r++)
      for (int c = 0; c < 7; c++)
        for (int64_t count = 1; count <= VECTORS; count += count < 6 ? 1 : 5) {
          int64_t odd = dtypes[t] == RONDO_NVFP4 ? 0 : random_between(&random, 0, 15);
          check(&d, &random, dtypes[t], rows[r], columns[c] - odd, count);
        }
  data_end(&d);
}
