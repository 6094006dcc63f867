/* embed.cu - copies rows of a table, in the order of ids that the kernel reads. A thread copies eight elements of a
 * row.
 *
 * Bound by memory. The one row of a decode step is bound by two dependent loads: the id, then the row. */
#include <cuda_fp8.h>

#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "embed.h"

static_assert(EMBED_ELEMENTS == 8 && EMBED_SCALE_GROUP == 16, "the code below assumes these sizes");

/* The magnitude of code i is n_i / 2 with n = 0 1 2 3 4 6 8 12; the constant holds one n_i in each nibble. The product
 * with an e4m3 scale factor is exact. */
DEVICE float e2m1_value(uint32_t code) {
  const float magnitude = 0.5f * (float)(0xc8643210u >> (4 * (code & 7u)) & 15u);
  return code & 8u ? -magnitude : magnitude;
}

DEVICE void load_codes(const embed_parameters &p, uint32_t row, uint32_t column, float (&values)[8]) {
  const uint8_t *codes = (const uint8_t *)p.table + (row * p.table_stride + column) / 2;
  uint32_t word = 0;
  if (p.table_is_aligned) {
    word = *(const uint32_t *)codes;
  } else {
    unrolled_for (int i = 0; i < 4; i++) word |= (uint32_t)codes[i] << (8 * i);
  }
  /* After the codes are asked for: behind the branch they would wait for the scale. */
  const uint8_t scale_code = p.table_scales[row * p.scale_stride + column / EMBED_SCALE_GROUP];
  const float scale = __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)scale_code, __NV_E4M3)));
  unrolled_for (int i = 0; i < 8; i++) values[i] = e2m1_value(word >> (4 * i)) * scale;
}

DEVICE void embed(const embed_parameters &p) {
  const uint32_t part = blockIdx.x * EMBED_THREADS + threadIdx.x;
  if (part < p.parts) {
    const uint32_t item = part / p.row_parts, column = (part - item * p.row_parts) * EMBED_ELEMENTS;
    const uint32_t count = min(p.width - column, (uint32_t)EMBED_ELEMENTS), row = (uint32_t)p.ids[item];
    float values[8];
    if (row >= p.rows) { /* a negative id too: it is converted to uint32_t. The result is NaN. */
      unrolled_for (int i = 0; i < 8; i++) values[i] = __uint_as_float(0x7fffffffu);
    } else if (p.table_dtype == RONDO_NVFP4) {
      load_codes(p, row, column, values);
    } else {
      load_numbers(p.table_dtype, p.table_is_aligned, p.table, row * p.table_stride + column, count, values);
    }
    unrolled_for (int i = 0; i < 8; i++) values[i] *= p.scale;
    store_numbers(p.out_dtype, p.out_is_aligned, p.out, item * p.out_stride + column, count, values);
  }
}

EMBED_KERNELS(DEFINE_SHORT_KERNEL)
