/* exchange_words.cuh - words between ranks: stores into another rank's state, and waits for its words in the own one
 * (exchanges.h has the protocol). */
#pragma once

#include "../../runtime/fault.h"
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "exchanges.h"

/* An access before the wait for predecessors, whose order the words of a state say themselves (build/check-waits). */
#define FLAGGED " // flagged"

/* A word with all bits set is another NaN on its way. */
DEVICE uint32_t word_as_sent(uint32_t word) { return word == 0xffffffffu ? 0x7fff7fffu : word; }

DEVICE uint4 as_sent(const uint4 &vector) {
  return make_uint4(word_as_sent(vector.x), word_as_sent(vector.y), word_as_sent(vector.z), word_as_sent(vector.w));
}

/* Volatile accesses go to the memory of the device that has it, past the L1 cache, and are not torn within a word. */
DEVICE void push(unsigned char *to, const uint4 &vector) {
  const uint4 words = as_sent(vector);
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(~words.x), "r"(~words.y),
               "r"(~words.z), "r"(~words.w)
               : "memory");
}

DEVICE uint4 look(const unsigned char *from) {
  uint4 words;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}

DEVICE bool has_come(const uint4 &words) { return words.x && words.y && words.z && words.w; }

/* A rank did not come: says which, and ends. */
DEVICE void give_up(uint64_t *fault, uint64_t fault_number, uint32_t rank) {
  asm volatile("st.volatile.global.u64 [%0], %1;" FLAGGED ::"l"(fault),
               "l"(fault_number << FAULT_RANK_BITS | (rank + 1))
               : "memory");
  __threadfence_system();
  __trap();
}

/* Takes a vector that `rank` sends, and clears its place. `words` is what a first look found there. */
DEVICE uint4 pull(const exchange_parameters &p, uint32_t rank, unsigned char *from, uint4 words) {
  enum { LOOKS = 512 /* between two looks at the clock */ };
  rolled_for (uint64_t begin = 0; !has_come(words);) {
    rolled_for (int i = 0; i < LOOKS && !has_come(words); i++) words = look(from);
    if (!begin) begin = nanoseconds();
    if (nanoseconds() - begin > p.timeout_ns) give_up(p.fault, p.fault_number, rank);
  }
  *(uint4 *)from = make_uint4(0, 0, 0, 0);
  return make_uint4(~words.x, ~words.y, ~words.z, ~words.w);
}

DEVICE uint4 pull(const exchange_parameters &p, uint32_t rank, unsigned char *from) {
  return pull(p, rank, from, look(from));
}

template <int N> DEVICE void numbers_of_vector(uint32_t dtype, const uint4 &vector, float (&numbers)[N]) {
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
  if constexpr (N == 4)
    unrolled_for (int i = 0; i < 4; i++) numbers[i] = __uint_as_float(words[i]);
  else
    numbers_of(dtype, words, numbers);
}

template <int N> DEVICE uint4 vector_of_numbers(uint32_t dtype, const float (&numbers)[N]) {
  if constexpr (N == 4)
    return make_uint4(__float_as_uint(numbers[0]), __float_as_uint(numbers[1]), __float_as_uint(numbers[2]),
                      __float_as_uint(numbers[3]));
  else
    return make_uint4(word_of(dtype, numbers[0], numbers[1]), word_of(dtype, numbers[2], numbers[3]),
                      word_of(dtype, numbers[4], numbers[5]), word_of(dtype, numbers[6], numbers[7]));
}

/* How many exchanges there were with rank r, as this block's counter has it. */
DEVICE uint32_t count_of(const exchange_parameters &p, uint32_t r) { return ((const uint32_t *)p.here[r])[blockIdx.x]; }

/* The slot of a row that an exchange uses after `count` others. */
DEVICE unsigned char *slot_of(const exchange_parameters &p, unsigned char *row, uint32_t count) {
  return row + EXCHANGE_HEAD_BYTES + (count & 1 ? p.slot_bytes : 0);
}

/* Rank r after this one, in turns: not all ranks send to the same one at the same time. */
DEVICE uint32_t other_rank(const exchange_parameters &p, uint32_t r) {
  return p.rank + r < p.ranks ? p.rank + r : p.rank + r - p.ranks;
}

/* One more exchange with rank r, after all threads of the block have read its counter. There are as many counters as
 * blocks may be, so that the next exchange may have more blocks or fewer. */
DEVICE void count_exchange(const exchange_parameters &p, uint32_t r, uint32_t count) {
  for (uint32_t block = blockIdx.x + threadIdx.x * gridDim.x; block < EXCHANGE_BLOCKS_MOST;
       block += blockDim.x * gridDim.x)
    ((uint32_t *)p.here[r])[block] = count + 1;
}

/* Where each rank has a device of its own, successors start when a block has sent, and fetch weights meanwhile.
 * Elsewhere they start when it has all it waits for: those of one rank could take the multiprocessors that another rank
 * on the same device needs to come here at all. */
DEVICE void let_successors_start_early(const exchange_parameters &p) {
  if (p.early) let_successors_start();
}

/* A kernel reads its parameters by lines of 64 bytes, and waits for each. Here that is before the predecessors end.
 * ptxas cannot know that the branch does nothing. */
DEVICE void read_parameters_and_wait(const exchange_parameters &p) {
  uint32_t all = 0;
  unrolled_for (uint32_t line = 0; 64 * line < sizeof p; line++) all ^= ((const uint32_t *)&p)[16 * line];
  if (all == 0xffffffffu) asm volatile("nanosleep.u32 0;");
  only_wait_for_predecessors();
}

#define DEFINE_EXCHANGE_KERNEL(chips, parameters, name, threads, ...)                                                  \
  DEFINE_KERNEL_FROM(read_parameters_and_wait(p), __launch_bounds__(threads, 1), parameters, name, __VA_ARGS__)
