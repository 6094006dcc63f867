/* gemm_rows_product.cuh - wgmma with its rows in registers and its columns in shared memory, both contiguous in the
 * dimension of the sum, for W in NVFP4 (common/wgmma.cuh has the other products). */
#pragma once

#include "../common/wgmma.cuh"

namespace {

/* d += A B. */
template <typename T, int Columns> struct gemm_rows_product;

/* r0 to r4 are the numbers of the asm operands that follow those of D. */
#define GEMM_ROWS_PRODUCT(type, name, columns, r0, r1, r2, r3, r4)                                                     \
  template <> struct gemm_rows_product<type, columns> {                                                                \
    static DEVICE void add_to(float (&d)[columns / 2], const uint32_t (&a)[4], uint64_t b) {                           \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." name "." name " {" WGMMA_NAMES_##columns    \
                   "}, {%" r0 ", %" r1 ", %" r2 ", %" r3 "}, %" r4 ", add, 1, 1, 0;\n}"                                \
                   : WGMMA_D_##columns                                                                                 \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                              \
    }                                                                                                                  \
  };
#define GEMM_ROWS_PRODUCTS(columns, ...)                                                                               \
  GEMM_ROWS_PRODUCT(__half, "f16", columns, __VA_ARGS__)                                                               \
  GEMM_ROWS_PRODUCT(__nv_bfloat16, "bf16", columns, __VA_ARGS__)

GEMM_ROWS_PRODUCTS(64, "32", "33", "34", "35", "36")
GEMM_ROWS_PRODUCTS(128, "64", "65", "66", "67", "68")
GEMM_ROWS_PRODUCTS(256, "128", "129", "130", "131", "132")

} // namespace
