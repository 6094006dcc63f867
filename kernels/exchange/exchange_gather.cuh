/* exchange_gather.cuh - the sum over ranks within a kernel that goes on with it (exchange_gather.h). */
#pragma once

#include "exchange_gather.h"
#include "exchange_words.cuh"

DEVICE uint32_t *gather_counters(const exchange_gather &e) {
  return (uint32_t *)(e.here + (uint64_t)e.rank * e.row_bytes);
}

DEVICE uint2 look_at_two(const unsigned char *from) {
  uint2 words;
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "l"(from) : "memory");
  return words;
}

/* Two numbers that `rank` sends. */
DEVICE float2 two_of_rank(const exchange_gather &e, uint32_t rank, const unsigned char *from) {
  enum { LOOKS = 512 /* between two looks at the clock */ };
  uint2 words = look_at_two(from);
  rolled_for (uint64_t begin = 0; !(words.x && words.y);) {
    rolled_for (int i = 0; i < LOOKS && !(words.x && words.y); i++) words = look_at_two(from);
    if (!begin) begin = nanoseconds();
    if (nanoseconds() - begin > e.timeout_ns) give_up(e.fault, e.fault_number, rank);
  }
  return make_float2(__uint_as_float(~words.x), __uint_as_float(~words.y));
}

/* The sum over all ranks, in their order, of numbers 2 pair and 2 pair + 1 of a vector of `pairs` pairs; `own` is this
 * rank's. After the wait for the predecessors. One thread of the grid `sends` for each pair. It clears the whole slot
 * of the sum before, whose vector may have been longer. */
DEVICE float2 sum_over_ranks(const exchange_gather &e, bool sends, uint32_t pairs, uint32_t pair, float2 own) {
  const uint32_t turn = gather_counters(e)[blockIdx.x] % EXCHANGE_GATHER_SLOTS;
  const uint32_t slot = EXCHANGE_GATHER_HEAD + turn * EXCHANGE_GATHER_SLOT, at = slot + pair * 8;
  const uint32_t before =
      turn ? slot - EXCHANGE_GATHER_SLOT : slot + (EXCHANGE_GATHER_SLOTS - 1) * EXCHANGE_GATHER_SLOT;
  rolled_for (uint32_t r = 0; sends && r < e.ranks; r++) {
    if (r == e.rank) continue;
    asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(e.there[r] + at),
                 "r"(~word_as_sent(__float_as_uint(own.x))), "r"(~word_as_sent(__float_as_uint(own.y)))
                 : "memory");
    rolled_for (uint32_t i = pair; i < EXCHANGE_GATHER_NUMBERS / 2; i += pairs)
      *(uint2 *)(e.here + (uint64_t)r * e.row_bytes + before + i * 8) = make_uint2(0, 0);
  }
  float2 sum = {};
  rolled_for (uint32_t r = 0; r < e.ranks; r++) {
    const float2 one = r == e.rank ? own : two_of_rank(e, r, e.here + (uint64_t)r * e.row_bytes + at);
    sum.x = r ? sum.x + one.x : one.x, sum.y = r ? sum.y + one.y : one.y;
  }
  return sum;
}

/* One more sum. By all threads, after a barrier of the block behind sum_over_ranks. There are as many counters as
 * blocks may be, so that the next kernel may have more or fewer. */
DEVICE void count_sum_over_ranks(const exchange_gather &e) {
  if (threadIdx.x) return;
  uint32_t *counters = gather_counters(e);
  const uint32_t count = counters[blockIdx.x] + 1;
  rolled_for (uint32_t block = blockIdx.x; block < EXCHANGE_GATHER_BLOCKS; block += gridDim.x) counters[block] = count;
}
