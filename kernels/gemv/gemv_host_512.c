/* gemv_host_512.c - the loops of a product on the host for processors with AVX-512; the rest of it needs none. */
#include <immintrin.h>

#include "gemv.h"
#include "gemv_panel.h"

#include "../../runtime/integer.h"

/* That the system saves the registers too is part of the answer. */
bool gemv_panel_has_512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define LANES_512
#include "gemv_panel_loops.h"

void gemv_panel_512(const struct gemv_panel *panel) { multiply(panel); }

#ifdef __clang__
#pragma clang attribute pop
#endif
