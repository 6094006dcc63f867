/* layout_probe.cu - an own kernel of samples/accumulator_layout.c: one warp computes C = A B^T for 16 x 16 matrices and
 * writes each lane's accumulators. It includes nothing of the library.
 *
 * ldmatrix (PTX ISA) loads the fragments: A as a whole, B as two halves of eight columns. Two mma.m16n8k16 compute the
 * 16 columns of C. */
#include <cuda_fp16.h>
#include <stdint.h>

constexpr int SIZE = 16, PITCH = 24; /* 48 bytes: the eight rows of an ldmatrix are in different banks */

/* Loads four 8 x 8 matrices of 16-bit numbers. Lane i passes the address of row i % 8 of matrix i / 8. */
__device__ void load_fragment(uint32_t (&fragment)[4], const uint16_t *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"((uint32_t)__cvta_generic_to_shared(row))
               : "memory");
}

__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(32) layout_probe(const uint16_t *a, const uint16_t *b, float *registers) {
  __shared__ __align__(16) uint16_t a_tile[SIZE * PITCH], b_tile[SIZE * PITCH];
  const int lane = threadIdx.x;
  for (int i = lane; i < SIZE * SIZE; i += 32) {
    a_tile[i / SIZE * PITCH + i % SIZE] = a[i];
    b_tile[i / SIZE * PITCH + i % SIZE] = b[i];
  }
  __syncwarp();
  uint32_t a_fragment[4], b_fragment[4];
  load_fragment(a_fragment, a_tile + lane % 16 * PITCH + lane / 16 * 8);
  load_fragment(b_fragment, b_tile + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8);
  float left[4] = {}, right[4] = {};
  multiply(left, a_fragment, b_fragment[0], b_fragment[1]);
  multiply(right, a_fragment, b_fragment[2], b_fragment[3]);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    registers[lane * 8 + i] = left[i];
    registers[lane * 8 + 4 + i] = right[i];
  }
}
