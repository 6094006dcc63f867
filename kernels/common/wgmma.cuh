/* wgmma.cuh - matrix products of a warpgroup, sm_90a (PTX ISA, wgmma.mma_async). Each function wraps one instruction.
 *
 * D is 64 x Columns in fp32. Warp w of the warpgroup holds rows 16 w to 16 w + 15. Of these, lane 4 group + quad holds
 *
 *   d[i] = D[group + 8 (i / 2 % 2)][8 (i / 4) + 2 quad + i % 2]
 *
 * One instruction sums over 16 numbers of two bytes. A in registers has the layout of D, two numbers to a register.
 *
 * In shared memory an operand is divided into panels of 64 columns. The rows of a panel have 128 bytes and the 128-byte
 * swizzle, as bulk tensor copies write them. A panel begins at a multiple of 1024 bytes. */
#pragma once

#include "device_code.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* The descriptor of an operand at `address`. `panel_bytes` is the distance of two panels; it matters only if the
 * contiguous dimension is not the one that the product sums over. Groups of eight rows are 1024 bytes apart. */
constexpr uint64_t operand_layout = (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
DEVICE uint64_t operand_descriptor(uint32_t address, uint32_t panel_bytes) {
  return (address & 0x3ffff) >> 4 | (uint64_t)(panel_bytes >> 4) << 16 | operand_layout;
}
/* The descriptor of the same operand, `bytes` bytes further. */
DEVICE uint64_t operand_further(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until at most `Pending` of the newest groups are in flight. */
template <int Pending> DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/* Keeps every use of the registers on its side of this point. The compiler does not know that a product writes its
 * registers long after the instruction. */
template <int Count> DEVICE void pin(float (&registers)[Count]) {
  unrolled_for (int i = 0; i < Count; i++) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int Count> DEVICE void pin(uint32_t (&registers)[Count]) {
  unrolled_for (int i = 0; i < Count; i++) asm volatile("" : "+r"(registers[i])::"memory");
}

/* shared():    d = A B, or d += A B if `add`; A and B in shared memory, contiguous in the dimension of the sum.
 * registers(): d += A B; A in registers, B in shared memory, contiguous in the other dimension. */
template <typename T, int Columns> struct warpgroup_product;

#define WGMMA_EIGHT(i)                                                                                                 \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),          \
      "+f"(d[i + 7])
#define WGMMA_D_32  WGMMA_EIGHT(0), WGMMA_EIGHT(8)
#define WGMMA_D_64  WGMMA_D_32, WGMMA_EIGHT(16), WGMMA_EIGHT(24)
#define WGMMA_D_80  WGMMA_D_64, WGMMA_EIGHT(32)
#define WGMMA_D_128 WGMMA_D_80, WGMMA_EIGHT(40), WGMMA_EIGHT(48), WGMMA_EIGHT(56)
#define WGMMA_D_96  WGMMA_D_80, WGMMA_EIGHT(40)
#define WGMMA_D_192 WGMMA_D_128, WGMMA_EIGHT(64), WGMMA_EIGHT(72), WGMMA_EIGHT(80), WGMMA_EIGHT(88)
#define WGMMA_D_256                                                                                                    \
  WGMMA_D_128, WGMMA_EIGHT(64), WGMMA_EIGHT(72), WGMMA_EIGHT(80), WGMMA_EIGHT(88), WGMMA_EIGHT(96), WGMMA_EIGHT(104),  \
      WGMMA_EIGHT(112), WGMMA_EIGHT(120)

#define WGMMA_NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_64                                                                                                 \
  WGMMA_NAMES_32                                                                                                       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_80 WGMMA_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_NAMES_128                                                                                                \
  WGMMA_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55"                    \
                 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NAMES_192                                                                                                \
  WGMMA_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                   \
                  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_NAMES_256                                                                                                \
  WGMMA_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                   \
                  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                   \
                  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"       \
                  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* r0 to r4 are the numbers of the asm operands that follow those of D. */
#define WGMMA_PRODUCT(type, name, columns, r0, r1, r2, r3, r4)                                                         \
  template <> struct warpgroup_product<type, columns> {                                                                \
    static DEVICE void shared(float (&d)[columns / 2], uint64_t a, uint64_t b, int add) {                              \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" r2 ", 0;\n"                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." name "." name " {" WGMMA_NAMES_##columns    \
                   "}, %" r0 ", %" r1 ", add, 1, 1, 0, 0;\n}"                                                          \
                   : WGMMA_D_##columns                                                                                 \
                   : "l"(a), "l"(b), "r"(add));                                                                        \
    }                                                                                                                  \
    static DEVICE void registers(float (&d)[columns / 2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,          \
                                 uint64_t b) {                                                                         \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." name "." name " {" WGMMA_NAMES_##columns    \
                   "}, {%" r0 ", %" r1 ", %" r2 ", %" r3 "}, %" r4 ", add, 1, 1, 1;\n}"                                \
                   : WGMMA_D_##columns                                                                                 \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                                                      \
    }                                                                                                                  \
  };
#define WGMMA_PRODUCTS(columns, ...)                                                                                   \
  WGMMA_PRODUCT(__half, "f16", columns, __VA_ARGS__)                                                                   \
  WGMMA_PRODUCT(__nv_bfloat16, "bf16", columns, __VA_ARGS__)

WGMMA_PRODUCTS(32, "16", "17", "18", "19", "20")
WGMMA_PRODUCTS(64, "32", "33", "34", "35", "36")
WGMMA_PRODUCTS(80, "40", "41", "42", "43", "44")
WGMMA_PRODUCTS(96, "48", "49", "50", "51", "52")
WGMMA_PRODUCTS(128, "64", "65", "66", "67", "68")
WGMMA_PRODUCTS(192, "96", "97", "98", "99", "100")
WGMMA_PRODUCTS(256, "128", "129", "130", "131", "132")
