/* gemm_host_512.c - the loops of products of many vectors on the host for processors with AVX-512. */
#include <immintrin.h>

#include "../../runtime/integer.h"
#include "../gemv/gemv.h"
#include "../gemv/gemv_panel.h"
#include "gemm_block.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define LANES_512
#include "gemm_block_loops.h"

void gemm_block_512(const struct gemm_block *block) { multiply(block); }

#ifdef __clang__
#pragma clang attribute pop
#endif
