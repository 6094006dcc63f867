/* prompt_lookup.cuh - accepts drafted tokens, and drafts the next ones from the sequence's own tokens. One block.
 *
 * Bound by latency: the choices, then the accepted tokens in the history, then the search, whose loads are independent.
 * A thread compares the tokens before each of its positions with the last ones. The longest match wins, of several the
 * latest: the largest of the keys (length, position), whatever the order of the comparisons. */
#pragma once

#include "../common/launch.cuh"
#include "recent.h"

DEVICE bool is_stop(const lookup_parameters &p, int32_t token) {
  bool found = false;
  for (uint32_t i = 0; i < p.stop_count; i++) found |= p.stops[i] == token;
  return found;
}

/* Row i is refused if the choice before is not its draft, or ends the sequence. The first of these rows is the number
 * of accepted tokens. Row 0 is never refused. */
DEVICE uint32_t accepted_count(const lookup_parameters &p, int64_t base, int64_t limit) {
  __shared__ uint32_t count;
  const uint32_t row = threadIdx.x;
  if (row == 0) count = p.rows;
  __syncthreads();
  if (row && row < p.rows) {
    const int32_t before = p.chosen[row - 1];
    if (before != p.tokens[row] || base + row + 1 > limit || is_stop(p, before)) atomicMin(&count, row);
  }
  __syncthreads();
  return count;
}

/* The key of the best match before `end`: its length in the high half, its last position in the low one; 0: none. */
DEVICE uint64_t best_match(const int32_t *history, int64_t end) {
  __shared__ uint64_t warps[LOOKUP_THREADS / 32];
  uint64_t best = 0;
#pragma unroll 4
  for (int64_t at = threadIdx.x; at < end; at += LOOKUP_THREADS) {
    uint32_t length = 0;
    while (length < LOOKUP_LONGEST && length <= at && history[at - length] == history[end - length]) length++;
    if (length >= LOOKUP_SHORTEST) best = max(best, (uint64_t)length << 32 | (uint32_t)at);
  }
  unrolled_for (int step = 16; step; step /= 2) best = max(best, __shfl_xor_sync(0xffffffffu, best, step));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
  __syncthreads();
  best = warps[threadIdx.x % (LOOKUP_THREADS / 32)];
  unrolled_for (int step = 16; step; step /= 2) best = max(best, __shfl_xor_sync(0xffffffffu, best, step));
  return best;
}

DEVICE void look_up(const lookup_parameters &p) {
  const int64_t base = (int64_t)*p.position + (p.last ? *p.last : 0), most = p.limit ? *p.limit : 0;
  const int64_t limit = most ? most : INT64_MAX;
  const uint32_t i = threadIdx.x, count = accepted_count(p, base, limit);
  const int64_t end = base + count, capacity = p.capacity;
  const int32_t newest = p.chosen[count - 1];
  const bool is_inside = end >= 0 && end < capacity;
  if (i < p.rows) p.accepted[i] = i < count ? p.chosen[i] : -1;
  if (i < count && base + 1 + i >= 0 && base + 1 + i < capacity) p.history[base + 1 + i] = p.chosen[i];
  __syncthreads(); /* also: all threads have read position and tokens */
  const uint64_t best = is_inside ? best_match(p.history, end) : 0;
  const int64_t at = (int64_t)(uint32_t)best;
  if (i < p.drafts) p.tokens[1 + i] = best ? p.history[at + 1 + i % (end - at)] : newest;
  if (i) return;
  p.tokens[0] = newest;
  *p.position = (int32_t)end;
  *p.matched = end >= limit || is_stop(p, newest) ? -1 : (int32_t)(best >> 32);
}
