/* ptx.cuh - functions that wrap one instruction each (PTX ISA, sections on mma, ldmatrix, cp.async, shfl, ld and prmt).
 *
 * The fragments of mma.m16n8k16, with lane = 4 group + quad:
 *
 *   A, 16 x 16: four registers of two 16-bit numbers; rows group and group + 8, columns from 2 quad and 2 quad + 8
 *   B, 16 x 8:  two such registers
 *   C, 16 x 8:  four floats; c[0..1] are row group, c[2..3] row group + 8, columns 2 quad and 2 quad + 1
 *
 * The four lanes with the same group therefore hold whole rows of C. Functions and comments call them a quad too. */
#pragma once

#include "device_code.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* threadIdx.x. It is volatile, so each caller reads it again, and ptxas keeps no address that depends on it in
 * registers in between. */
DEVICE uint32_t thread_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

DEVICE uint64_t nanoseconds() {
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

DEVICE uint32_t shared_address(const void *pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }

/* c += a b. */
template <typename T> DEVICE void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

#define MMA_16X8X16(T, type)                                                                                           \
  template <> DEVICE void mma_16x8x16<T>(float(&c)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) {              \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "   \
        "{%0, %1, %2, %3};"                                                                                            \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                               \
  }
MMA_16X8X16(__half, "f16")
MMA_16X8X16(__nv_bfloat16, "bf16")

DEVICE float2 load_shared_two(uint32_t address) {
  float2 two;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(two.x), "=f"(two.y) : "r"(address) : "memory");
  return two;
}
DEVICE float4 load_shared_four(uint32_t from) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(from)
               : "memory");
  return value;
}

/* Each nibble of the selector's low half picks one of eight bytes. With the nibble's top bit set, the result is eight
 * copies of that byte's sign bit (PTX ISA, prmt). __byte_perm does not promise the copies. */
DEVICE uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

/* Loads four 8 x 8 matrices of 16-bit numbers. Lane i passes the address of row i % 8 of matrix i / 8, which has 16
 * bytes. */
DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

DEVICE void ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/* Stores four such matrices to shared memory; the addresses are passed in the same way (sm_90). */
DEVICE void stmatrix_x4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
#endif
}

DEVICE void stmatrix_x4_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
#endif
}

/* Copies the first `bytes` (0 to 16) bytes from global to shared memory and fills the rest of 16 bytes with zeros. */
DEVICE void cp_async_16(uint32_t shared, const void *global, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}

DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most `Pending` of this thread's newest groups are in flight. */
template <int Pending> DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/* Reductions over the four lanes of a quad or all of a warp, in a fixed order. All get the same bits. fmaxf ignores
 * NaN. */
DEVICE float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

DEVICE float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

DEVICE float warp_sum(float value) {
  unrolled_for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

/* 2^x with an error of 2 units in the last place, and 0 for results below 2^-126. 1/x with an error of 1 unit. */
DEVICE float exp2_approximate(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
DEVICE float reciprocal(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}

DEVICE float reciprocal_root(float x) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

/* tanh(x) / x for |x| < 0.25 by its series, from the square of x. The formula 1 - 2 / (e^2x + 1) loses all bits of a
 * small x. */
DEVICE float tanh_ratio(float square) {
  return fmaf(fmaf(fmaf(fmaf(62.0f / 2835, square, -17.0f / 315), square, 2.0f / 15), square, -1.0f / 3), square, 1.0f);
}

/* Two floats rounded to nearest even, `low` in the low half. */
template <typename T> DEVICE uint32_t pack_two(float low, float high);

template <> DEVICE uint32_t pack_two<__half>(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<uint32_t *>(&pair);
}

template <> DEVICE uint32_t pack_two<__nv_bfloat16>(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<uint32_t *>(&pair);
}
