/* quantize.cu - rows to NVFP4: per block of 16 an e4m3 scale and 16 e2m1 codes.
 *
 * A thread has eight elements and a neighbour the other eight of the block, so that a warp reads whole sectors and
 * writes its codes as words. Bound by memory. */
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/rectangle.cuh"
#include "gemv.h"
#include "quantize.cuh"

static_assert(QUANTIZE_ELEMENTS == 8 && GEMV_BLOCK == 2 * QUANTIZE_ELEMENTS, "what follows is written for");

/* Where a thread's part begins in x (elements), codes and scales (bytes). */
struct offsets {
  int64_t x, codes, scale;
};

DEVICE offsets offsets_of(const quantize_parameters &p, uint32_t part) {
  uint32_t row = part / p.row_parts, column = part - row * p.row_parts;
  offsets at = {(int64_t)column * QUANTIZE_ELEMENTS, (int64_t)column * (QUANTIZE_ELEMENTS / 2), column / 2};
  row_indices(row, p.extent, [&](int i, uint32_t index) {
    at.x += index * p.x_stride[i];
    at.codes += index * p.code_stride[i];
    at.scale += index * p.scale_stride[i];
  });
  return at;
}

DEVICE void load_part(const quantize_parameters &p, int64_t element, float (&values)[8]) {
  if (p.dtype == RONDO_F32) {
    const float *x = (const float *)p.x + element;
    if (p.aligned) {
      float4 low = __ldg((const float4 *)x), high = __ldg((const float4 *)x + 1);
      values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
      values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
    } else {
      unrolled_for (int i = 0; i < 8; i++) values[i] = __ldg(x + i);
    }
    return;
  }
  const uint16_t *x = (const uint16_t *)p.x + element;
  uint32_t words[4];
  if (p.aligned) {
    const uint4 loaded = __ldg((const uint4 *)x);
    words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
  } else {
    unrolled_for (int i = 0; i < 4; i++) words[i] = __ldg(x + 2 * i) | (uint32_t)__ldg(x + 2 * i + 1) << 16;
  }
  unrolled_for (int i = 0; i < 4; i++) {
    const float2 pair = numbers_of(p.dtype, words[i]);
    values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
  }
}

DEVICE void quantize(const quantize_parameters &p) {
  const uint32_t index = blockIdx.x * QUANTIZE_THREADS + threadIdx.x;
  /* Threads past the end repeat the last pair of parts: they are needed for the exchange. */
  const uint32_t part = index < p.parts ? index : p.parts - 2 + index % 2;
  const offsets at = offsets_of(p, part);
  float values[8];
  load_part(p, at.x, values);

  uint32_t largest = 0;
  unrolled_for (int i = 0; i < 8; i++) largest = max(largest, magnitude_bits(values[i]));
  largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  const uint32_t scale = scale_of_block(largest, p.six_global_scale);
  const float divisor = divisor_of_block(scale, p.global_scale);
  uint32_t codes = 0;
  if (divisor > 0) {
    unrolled_for (int i = 0; i < 8; i++) codes |= e2m1_of(__fdiv_rn(values[i], divisor)) << (4 * i);
  }
  if (index >= p.parts) return;
  if (p.aligned) {
    *(uint32_t *)(p.codes + at.codes) = codes;
  } else {
    unrolled_for (int i = 0; i < 4; i++) p.codes[at.codes + i] = (unsigned char)(codes >> (8 * i));
  }
  if (part % 2 == 0) p.scales[at.scale] = (unsigned char)scale;
}

QUANTIZE_KERNELS(DEFINE_KERNEL)
