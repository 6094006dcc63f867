/* exchange_rows.cuh - the sum over ranks within the kernel that computes what is added (exchange_rows.h). */
#pragma once

#include "exchange_rows.h"
#include "exchange_words.cuh"

DEVICE const uint32_t *counter_of_rows(const exchange_rows &e, uint32_t rank, uint32_t block) {
  return (const uint32_t *)(e.here + rank * e.row_bytes) + block;
}

/* The counters of numbers first .. first + 15: lane 8 v + r has that of vector v and rank r. `first` is a multiple
 * of 4. After the wait for the predecessors. */
DEVICE uint32_t count_before_rows(const exchange_rows &e, uint32_t first) {
  const uint32_t lane = threadIdx.x % 32, rank = lane % 8, vector = first / 4 + lane / 8;
  /* Reads the parameters' lines that send_row needs; ptxas cannot know that the branch does nothing. */
  if (((uintptr_t)e.there[0] ^ (uintptr_t)e.there[7]) == UINTPTR_MAX) asm volatile("nanosleep.u32 0;");
  if (rank >= e.ranks || rank == e.rank || vector >= e.vectors) return 0;
  return *counter_of_rows(e, rank, vector / blockDim.x);
}

/* Number first + lane of the vector, for up to 16 lanes, to all ranks; by all lanes of a warp. */
DEVICE void send_row(const exchange_rows &e, uint32_t count, uint32_t first, bool sends, float number) {
  const uint32_t lane = threadIdx.x % 32, odd = __ballot_sync(0xffffffffu, count & 1) >> (lane / 4 * 8 & 31);
  const uint32_t word = ~word_as_sent(__float_as_uint(number));
  const uint64_t at = EXCHANGE_HEAD_BYTES + (uint64_t)(first + lane) * sizeof(float);
  rolled_for (uint32_t r = 0; r < e.ranks; r++)
    if (sends)
      asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(e.there[r] + at + (odd >> r & 1 ? e.slot_bytes : 0)),
                   "r"(word)
                   : "memory");
}

/* Waits for a vector of each of up to `N` ranks from `first` on. The own rank's comes from blocks of this grid: it has
 * no limit. */
template <int N>
DEVICE void await_rows(const exchange_rows &e, uint32_t first, unsigned char *const (&from)[N], uint4 (&words)[N]) {
  enum { LOOKS = 512 /* between two looks at the clock */ };
  const uint32_t count = min((uint32_t)N, e.ranks - first);
  uint64_t begin = 0;
  rolled_for (uint32_t looks = 0;; looks++) {
    uint32_t missing = N;
    unrolled_for (uint32_t i = 0; i < N; i++) words[i] = look(from[i]);
    unrolled_for (uint32_t i = N; i-- > 0;)
      if (i < count && !has_come(words[i]) && (missing == N || first + i != e.rank)) missing = i;
    if (missing == N) return;
    if (looks % LOOKS != LOOKS - 1 || first + missing == e.rank) continue;
    if (!begin) begin = nanoseconds();
    if (nanoseconds() - begin > e.timeout_ns) give_up(e.fault, e.fault_number, first + missing);
  }
}

/* Vector `vector` of all ranks, added up in their order. */
template <int N> DEVICE void sum_rows_of(const exchange_rows &e, uint32_t block, uint32_t vector, float (&sums)[4]) {
  rolled_for (uint32_t first = 0; first < e.ranks; first += N) {
    unsigned char *from[N];
    uint4 words[N];
    unrolled_for (uint32_t i = 0; i < N; i++) {
      const uint32_t r = min(first + i, e.ranks - 1);
      const bool odd = r != e.rank && *counter_of_rows(e, r, block) & 1;
      from[i] = e.here + r * e.row_bytes + EXCHANGE_HEAD_BYTES + (odd ? e.slot_bytes : 0) +
                (uint64_t)vector * EXCHANGE_VECTOR_BYTES;
    }
    await_rows(e, first, from, words);
    unrolled_for (uint32_t i = 0; i < N; i++) {
      if (first + i >= e.ranks) continue;
      float numbers[4];
      *(uint4 *)from[i] = make_uint4(0, 0, 0, 0);
      numbers_of_vector<4>(RONDO_F32, make_uint4(~words[i].x, ~words[i].y, ~words[i].z, ~words[i].w), numbers);
      unrolled_for (int k = 0; k < 4; k++) sums[k] = first + i ? sums[k] + numbers[k] : numbers[k];
    }
  }
}

/* Block `block` of `blocks` that add up: each thread calls store(number of its first, sums of four). After the wait for
 * the predecessors. */
template <typename Store>
DEVICE void sum_rows(const exchange_rows &e, uint32_t block, uint32_t blocks, const Store &store) {
  const uint32_t vector = block * blockDim.x + threadIdx.x, rank = threadIdx.x;
  const bool counts = rank < e.ranks && rank != e.rank;
  const uint32_t count = counts ? *counter_of_rows(e, rank, block) + 1 : 0;
  if (vector < e.vectors) {
    float sums[4] = {};
    if (e.ranks == 2)
      sum_rows_of<2>(e, block, vector, sums);
    else
      sum_rows_of<4>(e, block, vector, sums);
    store(vector * 4, sums);
  }
  __syncthreads(); /* all have read the counters */
  rolled_for (uint32_t b = block; counts && b < EXCHANGE_BLOCKS_MOST; b += blocks)
    *(uint32_t *)counter_of_rows(e, rank, b) = count;
}
