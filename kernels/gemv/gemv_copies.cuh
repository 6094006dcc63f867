/* gemv_copies.cuh - early asynchronous copies of weights to shared memory (PTX ISA, cp.async), and other loads and
 * stores there. A group of copies ends with cp_async_commit; cp_async_wait waits for it (common/ptx.cuh). */
#pragma once

#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "../common/tensor_copy.cuh"
#include "gemv_formats.cuh"

/* 16 bytes past L1; and 8 bytes, for which there is no way past it. */
DEVICE void copy_16(uint32_t to, const unsigned char *from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" EARLY ::"r"(to), "l"(from) : "memory");
}
DEVICE void copy_16(uint32_t to, const unsigned char *from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::256B [%0], [%1], 16, %2;" EARLY ::"r"(to), "l"(from),
               "l"(policy)
               : "memory");
}
DEVICE void copy_8(uint32_t to, const unsigned char *from) {
  asm volatile("cp.async.ca.shared.global.L2::256B [%0], [%1], 8;" EARLY ::"r"(to), "l"(from) : "memory");
}

/* Two scales of NVFP4 where copies of 16 bytes would read beyond the last row's. */
DEVICE void copy_scale_pair(uint32_t to, const unsigned char *from) { store_half_word(to, load_scale_pair(from)); }

DEVICE void store_shared_words(uint32_t to, const uint32_t *word) {
  store_four_words(to, make_uint4(word[0], word[1], word[2], word[3]));
}
