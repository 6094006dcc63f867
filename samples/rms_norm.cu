/* rms_norm.cu - an own kernel of rms_norm.c: divides rows by their root mean square. It includes nothing of Rondo. It
 * keeps the only rule for own kernels: its results depend only on its arguments. */
#include <cuda_fp16.h>

constexpr int THREADS = 128;

/* The sum over all threads of the block, for every thread, in a fixed order: every replay gives the same bits. */
__device__ float block_sum(float value) {
  __shared__ float parts[THREADS / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < THREADS / 32; i++) sum += parts[i];
  return sum;
}

/* x and y are [rows, columns]; a block computes one row. With epsilon > 0 the zeros of the warm-up give zeros. */
extern "C" __global__ void rms_norm(const __half *x, __half *y, int columns, float epsilon) {
  x += (size_t)blockIdx.x * columns;
  y += (size_t)blockIdx.x * columns;
  float squares = 0;
  for (int i = threadIdx.x; i < columns; i += THREADS) squares += __half2float(x[i]) * __half2float(x[i]);
  float scale = rsqrtf(block_sum(squares) / columns + epsilon);
  for (int i = threadIdx.x; i < columns; i += THREADS) y[i] = __float2half(__half2float(x[i]) * scale);
}
