/* wgmma_e4m3.cuh - matrix products of e4m3 numbers by a warpgroup, sm_90a. wgmma.cuh describes D and the panels.
 *
 * One instruction sums over 32 numbers of one byte. Both operands are contiguous in the dimension of the sum. If A is
 * in registers, a thread has four registers of four numbers for each 32 columns:
 *
 *   a0: row group,     columns 4 quad to 4 quad + 3        a2: row group,     the same columns + 16
 *   a1: row group + 8, columns 4 quad to 4 quad + 3        a3: row group + 8, the same columns + 16 */
#pragma once

#include "device_code.cuh"
#include "wgmma.cuh"

/* shared(): d = A B, or d += A B if `add`; A and B in shared memory. registers(): d += A B; A in registers. */
template <int Columns> struct e4m3_product;

#define WGMMA_D_136     WGMMA_D_128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define WGMMA_NAMES_136 WGMMA_NAMES_128 ", %64, %65, %66, %67"

/* r0 to r4 are the numbers of the asm operands that follow those of D. */
#define WGMMA_E4M3_PRODUCT(columns, r0, r1, r2, r3, r4)                                                                \
  template <> struct e4m3_product<columns> {                                                                           \
    static DEVICE void shared(float (&d)[columns / 2], uint64_t a, uint64_t b, int add) {                              \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" r2 ", 0;\n"                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e4m3.e4m3 {" WGMMA_NAMES_##columns            \
                   "}, %" r0 ", %" r1 ", add, 1, 1;\n}"                                                                \
                   : WGMMA_D_##columns                                                                                 \
                   : "l"(a), "l"(b), "r"(add));                                                                        \
    }                                                                                                                  \
    static DEVICE void registers(float (&d)[columns / 2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,          \
                                 uint64_t b) {                                                                         \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e4m3.e4m3 {" WGMMA_NAMES_##columns            \
                   "}, {%" r0 ", %" r1 ", %" r2 ", %" r3 "}, %" r4 ", add, 1, 1;\n}"                                   \
                   : WGMMA_D_##columns                                                                                 \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                                                      \
    }                                                                                                                  \
  };

WGMMA_E4M3_PRODUCT(128, "64", "65", "66", "67", "68")
WGMMA_E4M3_PRODUCT(136, "68", "69", "70", "71", "72")
