/* layout_probe.cu - C = A B^T for 16 x 16 matrices by one warp, with every lane's accumulators written as they are:
 * what samples/accumulator_layout.c reads the layout from. A user's kernel, given to rondo_add_kernel: no part of the
 * library.
 *
 * As in gemm_softmax.cu, the fragments come through ldmatrix and two mma.m16n8k16 make 16 columns. */
#include "../kernels/common/ptx.cuh"

constexpr int SIZE = 16, PITCH = 24; /* 48 bytes: the eight rows of an ldmatrix fall in different banks */

extern "C" __global__ void __launch_bounds__(32) layout_probe(const uint16_t *a, const uint16_t *b, float *registers) {
  __shared__ __align__(16) uint16_t a_tile[SIZE * PITCH], b_tile[SIZE * PITCH];
  const int lane = threadIdx.x;
  for (int i = lane; i < SIZE * SIZE; i += 32) {
    a_tile[i / SIZE * PITCH + i % SIZE] = a[i];
    b_tile[i / SIZE * PITCH + i % SIZE] = b[i];
  }
  __syncwarp();
  uint32_t a_fragment[4], b_fragment[4];
  ldmatrix_x4(a_fragment, shared_address(a_tile + lane % 16 * PITCH + lane / 16 * 8));
  ldmatrix_x4(b_fragment, shared_address(b_tile + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8));
  float left[4] = {}, right[4] = {};
  mma_16x8x16<__half>(left, a_fragment, b_fragment[0], b_fragment[1]);
  mma_16x8x16<__half>(right, a_fragment, b_fragment[2], b_fragment[3]);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    registers[lane * 8 + i] = left[i];
    registers[lane * 8 + 4 + i] = right[i];
  }
}
