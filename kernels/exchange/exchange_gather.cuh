/* exchange_gather.cuh - the sum over ranks within the kernels before and after it (exchange_gather.h). */
#pragma once

#include "exchange_gather.h"
#include "exchange_words.cuh"

/* After begin_sum: what a kernel before the one before wrote. */
template <typename T> DEVICE T load_after_flag(const T *from) {
  uint32_t word;
  asm volatile("ld.volatile.global.b32 %0, [%1];" FLAGGED : "=r"(word) : "l"(from) : "memory");
  return reinterpret_cast<const T &>(word);
}

DEVICE uint32_t *gather_counters(const exchange_gather &e) {
  return (uint32_t *)(e.here + (uint64_t)e.rank * e.row_bytes);
}

DEVICE uint32_t sum_given(const exchange_gather &e, uint32_t taken) { return e.parts ? taken + 1 : taken; }

/* Of a pair, in the slot of a sum: part EXCHANGE_GATHER_PARTS is x. */
DEVICE uint32_t pair_place(uint32_t sum, uint32_t part, uint32_t pair) {
  return EXCHANGE_GATHER_HEAD + sum % EXCHANGE_GATHER_SLOTS * EXCHANGE_GATHER_SLOT + part * EXCHANGE_GATHER_VECTOR +
         pair * 8;
}

DEVICE float number_as_sent(float number) { return number == 0.0f ? -0.0f : number; }

DEVICE void send_pair(unsigned char *to, float2 two) {
  asm volatile("{.reg .b64 both; mov.b64 both, {%1, %2}; st.volatile.global.b64 [%0], both;}" FLAGGED ::"l"(to),
               "f"(number_as_sent(two.x)), "f"(number_as_sent(two.y))
               : "memory");
}

DEVICE float2 look_at_pair(const unsigned char *from) {
  float2 two;
  asm volatile("{.reg .b64 both; ld.volatile.global.b64 both, [%2]; mov.b64 {%0, %1}, both;}" FLAGGED
               : "=f"(two.x), "=f"(two.y)
               : "l"(from)
               : "memory");
  return two;
}
DEVICE bool is_there(float2 two) { return __float_as_uint(two.x); }
/* If the pair is not there. */
DEVICE void look_again(float2 &two, const unsigned char *from) {
  asm volatile("{.reg .pred missing; .reg .b64 both; setp.eq.b32 missing, %0, 0; mov.b64 both, {%0, %1};\n"
               "@missing ld.volatile.global.b64 both, [%2];" FLAGGED "\nmov.b64 {%0, %1}, both;}"
               : "+f"(two.x), "+f"(two.y)
               : "l"(from)
               : "memory");
}

/* A pair of a rank's part, to all ranks, itself last. */
DEVICE void give_pair(const exchange_gather &e, uint32_t sum, uint32_t part, uint32_t pair, float2 two) {
  const uint32_t at = pair_place(sum, part, pair);
  rolled_for (uint32_t i = 1, r = e.rank; i <= e.ranks; i++) {
    r = r + 1 < e.ranks ? r + 1 : 0;
    send_pair(e.there[r] + at, two);
  }
}

/* Of x, to the next kernel of this rank. */
DEVICE void give_x(const exchange_gather &e, uint32_t sum, uint32_t pair, float2 two) {
  send_pair(e.there[e.rank] + pair_place(sum, EXCHANGE_GATHER_PARTS, pair), two);
}

/* The number of the sum that the kernel takes, or if it takes none, gives. */
DEVICE uint32_t begin_sum(const exchange_gather &e) {
  uint32_t count;
  asm volatile("ld.volatile.global.u32 %0, [%1];" FLAGGED
               : "=r"(count)
               : "l"(gather_counters(e) + blockIdx.x)
               : "memory");
  if (!e.parts) only_wait_for_predecessors();
  return count + e.before;
}

/* By a warp, before it reads what earlier kernels wrote: it waits for a pair of its own rank's last part. By then all
 * kernels but the one before have ended. There is no limit: that one ends, or says itself who did not come. */
DEVICE void wait_for_own(const exchange_gather &e, uint32_t sum) {
  if (!e.parts) return;
  const uint32_t pair = (blockIdx.x * 8 + threadIdx.x / 32) % (EXCHANGE_GATHER_NUMBERS / 2);
  if (threadIdx.x % 32 == 0)
    while (!is_there(look_at_pair(e.there[e.rank] + pair_place(sum, e.parts - 1, pair)))) continue;
  __syncwarp();
}

/* Part i of all ranks' parts: where the pair is that lies `own` bytes behind the beginning of a row. */
DEVICE uint32_t part_place(const exchange_gather &e, uint32_t i, uint32_t own) {
  const uint32_t rank = i / e.parts;
  return rank * e.row_bytes + own + (i - rank * e.parts) * EXCHANGE_GATHER_VECTOR;
}

/* By a warp, whose lanes take pairs side by side, each `own` bytes behind the beginning of a row in part 0: waits until
 * a pair of each part of all ranks but `few` is there, one of those that the warp takes. A lane looks at every 32nd
 * part. So a look is short, where one at all that the warp takes lasts half a microsecond. The clock runs when this
 * rank's own parts are there: until then the kernel before says who did not come. */
DEVICE void wait_for_parts(const exchange_gather &e, uint32_t own, uint32_t few) {
  enum { LOOKS = 512 /* between two looks at the clock */ };
  const uint32_t lane = threadIdx.x % 32, parts = e.parts * e.ranks, near = own - lane * 8 + lane % 4 * 64;
  const uint32_t first = part_place(e, min(lane, parts - 1), near);
  uint64_t begin = 0;
  rolled_for (uint32_t looks = 1;; looks++) {
    uint32_t missing = is_there(look_at_pair(e.here + first)) ? parts : min(lane, parts - 1);
    rolled_for (uint32_t i = lane + 32; i < parts && missing == parts; i += 32)
      if (!is_there(look_at_pair(e.here + part_place(e, i, near)))) missing = i;
    if (__popc(__ballot_sync(0xffffffffu, missing < parts && lane < parts)) <= few) return;
    if (looks % LOOKS || __any_sync(0xffffffffu, missing / e.parts == e.rank)) continue;
    if (!begin) begin = nanoseconds();
    if (nanoseconds() - begin > e.timeout_ns && missing < parts) give_up(e.fault, e.fault_number, missing / e.parts);
  }
}

/* Some pair is not there, though wait_for_parts found others: a rank ended in the midst of its stores. */
DEVICE void name_missing(const exchange_gather &e, uint32_t own) {
  rolled_for (uint32_t i = 0; i < e.parts * e.ranks; i++)
    if (i / e.parts != e.rank && !is_there(look_at_pair(e.here + part_place(e, i, own))))
      give_up(e.fault, e.fault_number, i / e.parts);
}

/* Between two looks: have they been going on for longer than the limit? `looks` counts from 0 in its low eight bits;
 * the others keep the time of the first 256th look, in units of 2^20 ns: registers are few. */
DEVICE bool last_too_long(uint32_t &looks, uint64_t limit_ns) {
  if ((looks & 255) < 255) return false;
  const uint32_t now = (uint32_t)(nanoseconds() >> 20), first = looks >> 8;
  looks = ((first ? first : now) << 8) - 1; /* the next is 0 again */
  return first && ((now - first) & 0xffffff) > (uint32_t)(limit_ns >> 20);
}

/* A pair of x and the sum over all ranks, in their order, each rank's parts in theirs; Exact: there are AtOnce. The
 * looks at AtOnce parts of Ranks ranks, 1 or 2, are in flight together. The first looks come too early: they bring the
 * instructions. Later ones begin when a third of the parts is there. On chips 9.0 those at exact parts are at what is
 * missing: so the last part is there one look after it came. */
template <uint32_t AtOnce, uint32_t Ranks, bool Exact>
DEVICE float2 take_pair(const exchange_gather &e, uint32_t number, uint32_t pair) {
  enum { LOOKS = 64 /* of those that keep what has come, without a limit */ };
#if __CUDA_ARCH__ == 900
  constexpr bool keeps = Exact;
#else
  constexpr bool keeps = false; /* registers do not suffice */
#endif
  const uint32_t parts = Exact ? AtOnce : e.parts; /* offsets: a state has less than 2^31 bytes */
  const uint32_t from_x = e.rank * e.row_bytes + pair_place(number, EXCHANGE_GATHER_PARTS, pair);
  float2 x, all = {};
  rolled_for (uint32_t r = 0; r < e.ranks; r += Ranks) {
    const bool has_second = Ranks == 2 && r + 1 < e.ranks;
    const uint32_t second = has_second ? e.row_bytes : 0;
    uint32_t from = r * e.row_bytes + pair_place(number, 0, pair);
    float2 sum[Ranks], before[Ranks];
    unrolled_for (uint32_t k = 0; k < Ranks; k++) before[k] = make_float2(-0.0f, -0.0f); /* changes no number */
    rolled_for (uint32_t first = 0; first < parts; first += AtOnce, from += AtOnce * EXCHANGE_GATHER_VECTOR) {
      float2 kept[Ranks][AtOnce] = {};
      rolled_for (uint32_t looks = 0;; looks++) {
        float2 part[Ranks][AtOnce];
        x = look_at_pair(e.here + from_x);
        bool have_come = is_there(x);
        unrolled_for (uint32_t k = 0; k < Ranks; k++) {
          const unsigned char *parts_of_rank = e.here + (from + k * second);
          unrolled_for (uint32_t j = 0; j < AtOnce; j++) {
            if (keeps) {
              look_again(kept[k][j], parts_of_rank + j * EXCHANGE_GATHER_VECTOR);
              part[k][j] = kept[k][j];
              continue;
            }
            if (!Exact) part[k][j] = make_float2(-0.0f, -0.0f);
            if (Exact || first + j < parts) part[k][j] = look_at_pair(parts_of_rank + j * EXCHANGE_GATHER_VECTOR);
          }
        }
        unrolled_for (uint32_t k = 0; k < Ranks; k++) {
          sum[k] = before[k];
          unrolled_for (uint32_t j = 0; j < AtOnce; j++) {
            have_come = have_come && is_there(part[k][j]);
            sum[k].x += part[k][j].x, sum[k].y += part[k][j].y;
          }
        }
        have_come = __all_sync(0xffffffffu, have_come);
        if (have_come) break;
        const uint32_t own = from_x - e.rank * e.row_bytes - EXCHANGE_GATHER_PARTS * EXCHANGE_GATHER_VECTOR;
        if (!keeps || looks % LOOKS == 0) wait_for_parts(e, own, keeps && !looks ? e.parts * e.ranks * 2 / 3 : 0);
        if (keeps ? last_too_long(looks, e.timeout_ns) : looks == e.timeout_ns >> 9) /* there two take over 512 ns */
          name_missing(e, own);
      }
      unrolled_for (uint32_t k = 0; k < Ranks; k++) before[k] = sum[k];
    }
    all.x = r ? all.x + before[0].x : before[0].x, all.y = r ? all.y + before[0].y : before[0].y;
    if (has_second) all.x += before[Ranks - 1].x, all.y += before[Ranks - 1].y;
  }
  return make_float2(x.x + all.x, x.y + all.y);
}

/* A pair of x and the sum that the kernel takes, or of x in memory if it takes none. */
template <uint32_t AtOnce, uint32_t Ranks, bool Exact>
DEVICE float2 take_sum(const exchange_gather &e, uint32_t taken, uint32_t pair, const float *x) {
  if (e.parts) return take_pair<AtOnce, Ranks, Exact>(e, taken, pair);
  only_wait_for_predecessors();
  return ((const float2 *)x)[pair];
}

/* A pair of x with the sum, to the next kernel, or if the kernel gives no sum, to `out`. By one cluster. */
DEVICE void hand_on(const exchange_gather &e, uint32_t taken, uint32_t pair, float2 two, float *out) {
  if (e.gives) return give_x(e, sum_given(e, taken), pair, two);
  only_wait_for_predecessors();
  ((float2 *)out)[pair] = two;
}

/* After the wait for predecessors, by all threads of the kernel. Clears the slot of the sum before. If this was the
 * graph's last, the counters move on: there are as many as blocks may be, so that the next kernel may have more. */
DEVICE void end_sum(const exchange_gather &e, uint32_t taken) {
  if (!e.parts) return;
  rolled_for (uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * 16; at < EXCHANGE_GATHER_SLOT;
              at += gridDim.x * blockDim.x * 16)
    rolled_for (uint32_t r = 0; r < e.ranks; r++)
      *(uint4 *)(e.here + (uint64_t)r * e.row_bytes + pair_place(taken - 1, 0, 0) + at) = make_uint4(0, 0, 0, 0);
  if (e.gives || threadIdx.x) return;
  uint32_t *counters = gather_counters(e);
  rolled_for (uint32_t block = blockIdx.x; block < EXCHANGE_GATHER_BLOCKS; block += gridDim.x)
    counters[block] = taken + 1;
}
