/* attention_e4m3.cu - softmax(scale Q K^T) V of many query rows, all in e4m3, for sm_90a: attention_wgmma.cu with
 * products of one-byte numbers, which are twice as fast, and weights in e4m3 too (attention_e4m3_softmax.cuh).
 *
 * Two warps transpose V on its way (attention_e4m3_copies.cuh). A row of ones behind V^T lets products sum the weights
 * beside O, as they were rounded and with the same losses, so that both cancel where O is divided by the sum; sums of
 * exact weights take longer, and the error is no smaller.
 *
 * Of each term products keep 14 bits, counted from the first of the sum so far. A sum of 4096 positive terms comes out
 * some 4 % too small, one of 16384 a quarter. So every 512 KV rows O goes to totals in bf16, all but what these have no
 * bits for, and begins anew: for a mean of numbers near 1 the error stays at 0.6 %, which is what rounding the weights
 * costs. A remainder is at most 2^-8 of its total: of 2^19 KV rows, as much as four times 512 rows add.
 *
 * One block a multiprocessor: 384 threads with 56 registers to copy and 224 to compute; 190 KB of shared memory. Bound
 * by latencies of exponentials beside products; each of the two keeps its units busy for 57 % of the time. */
#include <math.h>

#include "../common/launch.cuh"
#include "../common/wgmma_e4m3.cuh"
#include "attention_e4m3_copies.cuh"
#include "attention_e4m3_softmax.cuh"
#include "attention_wgmma_queries.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900

/* The slots of K or of V as those see them who multiply with what is in them. */
template <int Slots, int Bytes> struct ring_begin {
  uint32_t full, empty;
  uint64_t first;     /* the first slot's descriptor */
  bool leads;         /* the thread is the one of its warp that arrives */
  uint32_t taken = 0; /* slot and parity are bits of it */

  __device__ __forceinline__ uint32_t slot() const { return taken & (Slots - 1); }
  __device__ __forceinline__ void wait() const { barrier_wait(full + 8 * slot(), taken / Slots & 1); }
  __device__ __forceinline__ uint64_t descriptor() const { return operand_further(first, slot() * Bytes); }
  __device__ __forceinline__ void release() {
    if (leads) barrier_arrive(empty + 8 * slot());
    taken++;
  }
};

template <typename Size> struct computing {
  const attention_wgmma_parameters &p;
  const places<Size> &at;
  const uint32_t warpgroup;
  /* This thread's, in a query tile; the second is eight below. */
  const int first_row = (int)(warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
  ring_begin<Size::kv_slots, Size::kv_bytes> keys;
  ring_begin<Size::kv_slots, Size::value_bytes> values;
  query_ring<Size> query;

  /* As wgmma.cuh lays them out: scores, which become weights; the output, and sums of weights; the weights as operand
   * A. Totals of the output, two in bf16 to a word, those of the sums are in rows. */
  float s[Size::tile / 2], o[Size::output / 2];
  uint32_t weights[Size::tile / 8], totals[Size::dimension / 4];
  float totals_factor[2]; /* that totals are still to be multiplied by */
  softmax_rows rows;
  bool wide; /* rows of this thread: tiles are weighed with their maximum */

  __device__ __forceinline__ computing(const attention_wgmma_parameters &p, const places<Size> &at, uint32_t warpgroup)
      : p(p), at(at),
        warpgroup(warpgroup), keys{at.key_full, at.key_empty, operand_descriptor(at.key, 16), threadIdx.x % 32 == 0},
        values{at.value_full, at.value_empty, operand_descriptor(at.value, 16), threadIdx.x % 32 == 0},
        query{at.query_full + 8 * warpgroup, at.query_empty + 8 * warpgroup, at.tile + 32 * warpgroup,
              operand_descriptor(at.query + warpgroup * Size::query_bytes, 16), threadIdx.x % 32 == 0} {}

  /* Turns at the tensor cores. */
  __device__ __forceinline__ void take_turn() const { warps_meet(TURN_BARRIER + warpgroup, 256); }
  __device__ __forceinline__ void pass_turn() const {
    warps_arrive(TURN_BARRIER + (warpgroup + 1 == Size::warpgroups ? 0 : warpgroup + 1), 256);
  }

  /* S = Q K^T, begun. */
  __device__ __forceinline__ void begin_score() {
    const uint64_t q = query.descriptor(), k = keys.descriptor();
    pin(s);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Size::dimension / 32; i++)
      e4m3_product<Size::tile>::shared(s, operand_further(q, i * 32), operand_further(k, i * 32), i != 0);
    wgmma_commit();
  }

  /* O += P V, begun. */
  __device__ __forceinline__ void begin_accumulate() {
    const uint64_t v = values.descriptor();
    pin(o);
    pin(weights);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Size::tile / 32; i++)
      e4m3_product<Size::output>::registers(o, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2],
                                            weights[4 * i + 3], operand_further(v, i * 32));
    wgmma_commit();
  }
  __device__ __forceinline__ void end_accumulate() {
    wgmma_wait<0>();
    pin(o);
    pin(weights);
    values.release();
  }

  /* The score of the next KV tile beside the sums of the one before; ends with the score. */
  __device__ __forceinline__ void score_beside_accumulate() {
    keys.wait();
    pin(weights);
    take_turn();
    begin_score();
    values.wait();
    begin_accumulate();
    pass_turn();
    wgmma_wait<1>();
    pin(s);
    keys.release();
  }
  __device__ __forceinline__ void score_alone() {
    keys.wait();
    begin_score();
    wgmma_wait<0>();
    pin(s);
    keys.release();
  }

  /* Does some row of the warpgroup not see the end of KV tile j, or, under the causal mask, nothing behind it? */
  __device__ __forceinline__ bool needs_mask(const query_tile &tile, int j) const {
    return (j + 1) * Size::tile + (Size::causal ? 0 : -1) >=
           limit_of<Size>(p, tile, tile.row_begin + (int)warpgroup * 64);
  }
  __device__ __forceinline__ void mask_tile(const query_tile &tile, int j) {
    const int column = j * Size::tile + (int)threadIdx.x % 4 * 2, row = tile.row_begin + first_row;
    mask(s, limit_of<Size>(p, tile, row) - column, limit_of<Size>(p, tile, row + 8) - column);
  }

  /* Does KV tile j tell too little of the others? Under the causal mask all do that need one. */
  __device__ __forceinline__ bool is_poor(const query_tile &tile, int j) const {
    return Size::causal ? needs_mask(tile, j) : tile.length - j * Size::tile < FEW_COLUMNS;
  }

  __device__ __forceinline__ void weigh_first_tile(const query_tile &tile, int j) {
    if (needs_mask(tile, j)) mask_tile(tile, j);
    wide = weigh_first_e4m3(s, rows, p.scale_log2, FAR_E4M3);
  }
  /* Products are all of its warps' or none's. */
  __device__ __forceinline__ bool any_of_warpgroup(bool here) const {
    return warpgroup_any(WIDE_BARRIER + warpgroup, here);
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < Size::output / 2; i++) o[i] = 0.0f;
  }
  __device__ __forceinline__ void clear_totals() {
#pragma unroll
    for (int i = 0; i < Size::dimension / 4; i++) totals[i] = 0;
    totals_factor[0] = totals_factor[1] = 1.0f;
  }
  /* O and the sums go to their totals. What a total of eight bits has no place for stays in O, and goes there when it
   * has become enough: else a total would grow no more after some 256 times. */
  __device__ __forceinline__ void take_over() {
    add_totals();
#pragma unroll
    for (int i = 0; i < Size::dimension / 4; i++) {
      totals[i] = pack_two<__nv_bfloat16>(o[2 * i], o[2 * i + 1]);
      o[2 * i] -= __uint_as_float(totals[i] << 16);
      o[2 * i + 1] -= __uint_as_float(totals[i] & 0xffff0000u);
    }
    totals_factor[0] = totals_factor[1] = 1.0f;
#pragma unroll
    for (int half = 0; half < 2; half++) rows.sum[half] += o[Size::sums / 2 + 2 * half];
#pragma unroll
    for (int i = Size::sums / 2; i < Size::output / 2; i++) o[i] = 0.0f;
  }
  /* They are not multiplied before O is added to them. */
  __device__ __forceinline__ void rescale_totals(const float (&factor)[2]) {
    totals_factor[0] *= factor[0], totals_factor[1] *= factor[1];
  }
  __device__ __forceinline__ void add_totals() {
#pragma unroll
    for (int i = 0; i < Size::dimension / 4; i++) {
      o[2 * i] = fmaf(__uint_as_float(totals[i] << 16), totals_factor[i % 2], o[2 * i]);
      o[2 * i + 1] = fmaf(__uint_as_float(totals[i] & 0xffff0000u), totals_factor[i % 2], o[2 * i + 1]);
    }
  }

  /* A KV tile with the running maximum: one that some rows do not see whole, which come first, so that there are no
   * totals yet; or one of wide rows. */
  template <bool Masked> __device__ __forceinline__ void step_with_maximum(const query_tile &tile, int j) {
    float factor[2];
    uint16_t upper[Size::tile / 16];
    score_beside_accumulate();
    if constexpr (Masked) mask_tile(tile, j);
    wide = weigh_with_maximum_e4m3(s, rows, p.scale_log2, FAR_E4M3, factor);
    round_upper_halves(upper, s);
    hold_e4m3(upper, p.scale_log2, at.never);
    end_accumulate();
    round_e4m3(weights, upper, s);
    pin(weights);
    rescale(o, factor);
    if constexpr (!Masked) rescale_totals(factor);
  }

  /* Any other. The wait for the sums sits amid the exponentials. The words that are half made before it are finished
   * behind it: no product under way reads the registers that they go to. */
  __device__ __forceinline__ void step() {
    const float against[2] = {rows.reference[0], rows.reference[1]};
    uint16_t upper[Size::early];
    score_beside_accumulate();
    weigh_halves<true, 0, Size::early>(s, p.scale_log2, against);
    round_upper_halves(upper, s);
    hold_e4m3(upper, p.scale_log2, at.never);
    end_accumulate();
    weigh_halves<true, Size::early, Size::tile / 8>(s, p.scale_log2, against);
    weigh_halves<false, 0, Size::tile / 8>(s, p.scale_log2, against);
    const bool high = round_e4m3(weights, upper, s);
    if (__any_sync(0xffffffffu, high)) {
      float factor[2];
      move_reference_e4m3(s, rows, factor);
      round_e4m3(weights, s);
      rescale(o, factor);
      rescale_totals(factor);
    }
    pin(weights);
  }

  /* What the third pass has taken out of V comes back to the rows that see it. */
  __device__ __forceinline__ void put_back(uint32_t parity) {
    barrier_wait(at.columns_full, parity);
#pragma unroll
    for (int i = 0; i < Size::dimension / 2; i++) {
      const uint32_t row = first_row + (i & 2 ? 8 : 0);
      const uint32_t word = at.columns + 4 * (8 * (i / 4) + threadIdx.x % 4 * 2 + i % 2);
      if (row >= min(load_shared(word), load_shared(word + 4 * Size::dimension))) o[i] = NAN;
    }
  }

  /* One of the thread's rows, o over the sum. Whether it has a NaN. */
  template <int Half>
  __device__ __forceinline__ bool store_row(const query_tile &tile, float reference, float sum) const {
    const int row = tile.row_begin + first_row + 8 * Half;
    const bool nothing = sum == 0.0f, there = row < p.query_length;
    const uint32_t lane = threadIdx.x % 4;
    const float inverse = nothing ? 0.0f : __fdividef(p.v_scale, sum);
    uint16_t *to = static_cast<uint16_t *>(p.o) + tile.batch * p.o_stride.batch + tile.head * p.o_stride.head +
                   row * p.o_stride.position;
    float special = 0.0f; /* or NaN */
#pragma unroll
    for (int g = 0; g < Size::dimension / 8; g += 4) {
      uint32_t word[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float first = o[4 * (g + j) + 2 * Half], second = o[4 * (g + j) + 2 * Half + 1];
        special = fmaf(first, 0.0f, fmaf(second, 0.0f, special));
        word[j] = p.bf16 ? pack_two<__nv_bfloat16>(first * inverse, second * inverse)
                         : pack_two<__half>(first * inverse, second * inverse);
      }
      transpose(word);
      if (there) *reinterpret_cast<uint4 *>(to + 8 * (g + lane)) = make_uint4(word[0], word[1], word[2], word[3]);
    }
    if (there && lane == 0 && p.lse)
      p.lse[tile.batch * p.lse_batch_stride + tile.head * p.lse_head_stride + row] =
          nothing ? -INFINITY : (reference + __log2f(sum)) * 0.693147181f;
    return isnan(special);
  }

  /* Stores the warpgroup's rows of a tile; in the first two passes, tells if they have to be computed again. */
  __device__ __forceinline__ void finish(const query_tile &tile, const softmax_rows &rows, uint32_t pass,
                                         uint32_t number) {
    const float sum[2] = {rows.sum[0] + o[Size::sums / 2], rows.sum[1] + o[Size::sums / 2 + 2]};
    const bool special[2] = {store_row<0>(tile, rows.reference[0], sum[0]),
                             store_row<1>(tile, rows.reference[1], sum[1])};
    bool failed = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const bool sees = limit_of<Size>(p, tile, tile.row_begin + first_row + 8 * half) > 0;
      /* A reference of 2^24 and more is rounded by up to 1, or by more: the largest weight of its tile may have been
       * rounded to 448. */
      const bool near = fabsf(rows.reference[half]) < 0x1p24f;
      const bool fits = (sum[half] > 1.0f && sum[half] < 1e30f && near) || !sees;
      failed |= pass ? special[half] && !isnan(sum[half]) : special[half] || !fits;
    }
    if (pass < PASSES - 1 && __any_sync(0xffffffffu, failed) && threadIdx.x % 32 == 0) fail(at, pass, number);
  }

  /* The first pass. */
  __device__ __forceinline__ void attend() {
    query_tile tile;
    uint32_t number = 0;
    if (warpgroup == Size::warpgroups - 1) pass_turn();
    if (!query.wait(tile)) return;
    int j = kv_tiles_of<Size>(p, tile) - 1;
    score_alone();
    weigh_first_tile(tile, j);
    round_e4m3(weights, s);
    while (true) {
      clear();
      clear_totals();
      j--;
      /* And the tile behind: a first one of a few columns makes a reference that would have to move. */
      for (; j >= 0 && is_poor(tile, j + 1); j--) step_with_maximum<true>(tile, j);
      const bool all_wide = any_of_warpgroup(wide);
      while (true) {
        const int end = max(j - Size::together, -1);
        if (all_wide)
          for (; j > end; j--) step_with_maximum<false>(tile, j);
        else
          for (; j > end; j--) step();
        if (j < 0) break;
        take_over();
      }
      query.release();
      /* The first score of the next query tile beside the last sums of this one. */
      const query_tile done = tile;
      if (!query.wait(tile)) {
        tile = done;
        break;
      }
      j = kv_tiles_of<Size>(p, tile) - 1;
      score_beside_accumulate();
      const softmax_rows done_rows = rows;
      weigh_first_tile(tile, j);
      uint16_t upper[Size::tile / 16];
      round_upper_halves(upper, s);
      /* Without a mask, finish() beside the exponentials is better. */
      if constexpr (Size::causal) hold_e4m3(upper, p.scale_log2, at.never);
      end_accumulate();
      round_e4m3(weights, upper, s);
      add_totals();
      finish(done, done_rows, 0, number++);
    }
    values.wait();
    begin_accumulate();
    end_accumulate();
    add_totals();
    finish(tile, rows, 0, number);
  }

  /* The others, one step after the other: load, score, mask, update, accumulate. */
  __device__ __forceinline__ void attend_again(uint32_t pass) {
    query_tile tile;
    uint32_t parity = 0;
#pragma unroll 1
    while (query.wait(tile)) {
      if (pass == PASSES - 1) barrier_arrive(at.columns_free);
      rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
      clear();
      clear_totals();
#pragma unroll 1
      for (int j = kv_tiles_of<Size>(p, tile) - 1; j >= 0; j--) {
        float factor[2];
        score_alone();
        mask_tile(tile, j);
        scale_first(s, p.scale_log2);
        weigh_with_maximum_e4m3(s, rows, 1.0f, ALWAYS_FAR, factor);
        rescale(o, factor);
        rescale_totals(factor);
        round_e4m3(weights, s);
        values.wait();
        begin_accumulate();
        end_accumulate();
        if (j % Size::together == 0) take_over();
      }
      add_totals();
      query.release();
      if (pass == PASSES - 1) put_back(parity);
      parity ^= 1;
      finish(tile, rows, pass, tile.number);
    }
  }
};

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* All that needs no predecessor. */
template <typename Size>
__device__ __forceinline__ void prepare(const attention_wgmma_parameters &p, const places<Size> &at) {
  if (threadIdx.x == 0) {
    tensor_prefetch(&p.q);
    tensor_prefetch(&p.k);
    tensor_prefetch(&p.v);
    for (uint32_t i = 0; i < Size::kv_slots; i++) {
      barrier_init(at.key_full + 8 * i, 1);
      barrier_init(at.value_full + 8 * i, 2);
      barrier_init(at.key_empty + 8 * i, 4 * Size::warpgroups);
      barrier_init(at.value_empty + 8 * i, 4 * Size::warpgroups);
    }
    for (uint32_t i = 0; i < Size::query_slots * Size::warpgroups; i++) {
      barrier_init(at.query_full + 8 * i, 1);
      barrier_init(at.query_empty + 8 * i, 4);
    }
    for (uint32_t i = 0; i < 4; i++) barrier_init(at.value_landed + 8 * i, 1);
    barrier_init(at.pass_ended, 4 * (1 + Size::warpgroups));
    barrier_init(at.columns_free, 128 * Size::warpgroups);
    barrier_init(at.columns_full, 64);
    barriers_are_initialised();
  }
  for (uint32_t i = threadIdx.x; i < 2 * PASS_BYTES / 4; i += blockDim.x) store_shared(at.failed + 4 * i, 0);
  for (uint32_t i = threadIdx.x; i < Size::kv_slots * 256; i += blockDim.x) /* eight rows of V^T, all 1 */
    store_shared(at.value + i / 256 * Size::value_bytes + Size::sums * Size::tile + i % 256 * 4, 0x38383838);
  writes_reach_products();
  __syncthreads();
}

template <typename Size> __device__ __forceinline__ void attend_e4m3(const attention_wgmma_parameters &p) {
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const places<Size> at(shared_address(wgmma_shared));
  const uint32_t warpgroup = uniform(threadIdx.x / 128);
  prepare(p, at);
  wait_for_predecessors();
  if (warpgroup == 0) {
    copy_e4m3(p, at);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Size::computing_registers));
    computing<Size> rows(p, at, warpgroup - 1);
    rows.attend();
#pragma unroll 1
    for (uint32_t pass = 1; pass < PASSES && again(at, pass - 1); pass++) rows.attend_again(pass);
  }
}

#define DEFINE(chips, parameters, name, threads, dimension, causal, warpgroups, tile, kv_slots, query_slots, early)    \
  extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ parameters p) {                \
    let_successors_start();                                                                                            \
    attend_e4m3<e4m3_tiling<dimension, causal, warpgroups, tile, kv_slots, query_slots, early>>(p);                    \
    publish(p.done);                                                                                                   \
  }
ATTENTION_E4M3_KERNELS(DEFINE)

#endif
