/* attention_wgmma_loop.cuh - the main loop of a computing warpgroup, and the kernel around it, for numbers of 16 bits
 * (attention_wgmma.cu) and for e4m3 (attention_wgmma_e4m3.cu).
 *
 * `Policy` says what the two do differently. It is a warpgroup_products with these functions:
 *   clear                      zeros in O and its totals
 *   weigh_first_tile, round    the first KV tile of a query tile: scores to weights, weights to operand A
 *   end_accumulate_and_round   the same with the end of the query tile before in between
 *   attend_rest                all other KV tiles of a query tile
 *   sums_end                   what O lacks after its last product
 *   weigh_again                a KV tile in a later pass
 *   put_back                   infinities and NaNs of V
 *   sum_of, fits, store_row    a row's sum, whether it is in range, results
 *   copy                       the warps that copy */
#pragma once

#include "../common/launch.cuh"
#include "../common/settled.cuh"
#include "attention_wgmma_products.cuh"

template <typename Policy> struct attention_loop : Policy {
  using Size = typename Policy::tiling;
  using Policy::p, Policy::at, Policy::rows, Policy::s, Policy::o, Policy::weights, Policy::query, Policy::values;
  using Policy::Policy;

  /* Stores the warpgroup's rows of a tile; in the first two passes, tells if they have to be computed again. */
  DEVICE void finish(const query_tile &tile, const softmax_rows &done, uint32_t pass, uint32_t number) {
    const float sum[2] = {this->sum_of(done, 0), this->sum_of(done, 1)};
    const bool special[2] = {this->template store_row<0>(tile, done.reference[0], sum[0]),
                             this->template store_row<1>(tile, done.reference[1], sum[1])};
    bool failed = false;
    unroll<2>([&](int half) {
      const bool fits = this->fits(done.reference[half], sum[half]) || !this->sees_some(tile, half);
      failed |= pass ? special[half] && !isnan(sum[half]) : special[half] || !fits;
    });
    if (pass < PASSES - 1 && __any_sync(0xffffffffu, failed) && threadIdx.x % 32 == 0) fail(at, pass, number);
  }

  /* The first pass, up to the last sums of the last query tile, which `tile` becomes; false if the block has no tile.
   */
  DEVICE bool attend(query_tile &tile) {
    uint32_t number = 0;
    if (this->warpgroup == Size::warpgroups - 1) this->pass_turn();
    if (!query.wait(tile)) return false;
    int j = last_kv_tile_of<Size>(p, tile, this->rank);
    this->score_alone();
    this->weigh_first_tile(tile, j);
    this->round();
    while (true) {
      this->clear();
      this->attend_rest(tile, j - Size::parts);
      query.release();
      /* The first score of the next query tile beside the last sums of this one. */
      const query_tile done = tile;
      if (!query.wait(tile)) {
        tile = done;
        break;
      }
      j = last_kv_tile_of<Size>(p, tile, this->rank);
      this->score_beside_accumulate();
      softmax_rows done_rows = rows;
      this->weigh_first_tile(tile, j);
      this->end_accumulate_and_round();
      this->sums_end();
      this->merge(done, done_rows);
      this->finish(done, done_rows, 0, number);
      number = Size::causal && !Size::is_e4m3 ? uniform(number + 1) : number + 1; /* no register is left for it */
    }
    tile.number = number;
    return true;
  }

  /* A query tile of the other passes, one step after the other: load, score, mask, update, accumulate. In the first
   * pass only the last step of the last query tile is left. */
  DEVICE void attend_one(query_tile &tile, uint32_t pass, uint32_t parity) {
    int j = 0;
    if (pass) {
      if (pass == PASSES - 1) barrier_arrive(at.columns_free);
      rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
      this->clear();
      j = last_kv_tile_of<Size>(p, tile, this->rank);
    }
    rolled_for (; j >= 0; j -= Size::parts) {
      if (pass) {
        this->score_alone();
        this->mask_tile(tile, j);
        scale_first(s, p.scale_log2);
        this->weigh_again();
      }
      values.wait();
      this->begin_accumulate();
      this->end_accumulate();
      if (pass) this->tile_is_summed(j);
    }
    this->sums_end();
    if (pass) query.release();
    if (pass == PASSES - 1) this->put_back(parity);
    this->merge(tile, rows);
    this->finish(tile, rows, pass, tile.number);
  }

  /* All passes. Those after the first run if the one before has failed somewhere. */
  DEVICE void attend_all() {
    query_tile tile;
    bool has_last = attend(tile);
    rolled_for (uint32_t pass = 0; pass < PASSES && (pass == 0 || again(at, pass - 1)); pass++) {
      uint32_t parity = 0;
#pragma unroll 1
      while (pass ? query.wait(tile) : has_last) {
        attend_one(tile, pass, parity);
        parity ^= 1;
        has_last = false;
      }
    }
  }
};

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* All that needs no predecessor. The warpgroup that copies finds its first tile meanwhile. */
template <typename Size> DEVICE void prepare(const attention_wgmma_parameters &p, const shared_layout<Size> &at) {
  constexpr uint32_t ZEROING = 160; /* threads from here on */
  if (threadIdx.x == 128) {
    tensor_prefetch(&p.q);
    tensor_prefetch(&p.k);
    tensor_prefetch(&p.v);
    for (uint32_t i = 0; i < Size::kv_slots; i++) {
      const uint32_t warps = 4 * Size::warpgroups * (Size::cluster / Size::parts);
      barrier_init(at.key_full + 8 * i, 1);
      barrier_init(at.value_full + 8 * i, Size::value_warps);
      barrier_init(at.key_empty + 8 * i, warps);
      barrier_init(at.value_empty + 8 * i, warps);
    }
    for (uint32_t i = 0; i < Size::query_slots * Size::warpgroups; i++) {
      barrier_init(at.query_full + 8 * i, 1);
      barrier_init(at.query_empty + 8 * i, 4);
    }
    for (uint32_t i = 0; i < Size::landings; i++) barrier_init(at.value_landed + 8 * i, 1);
    if constexpr (Size::parts > 1)
      for (uint32_t i = 0; i < 2 * Size::warpgroups; i++) barrier_init(at.exchanged + 8 * i, 1);
    barrier_init(at.pass_ended, 4 * (1 + Size::warpgroups));
    barrier_init(at.columns_free, 128 * Size::warpgroups);
    barrier_init(at.columns_full, 32 * Size::value_warps);
    barriers_are_initialised();
  }
  for (uint32_t i = threadIdx.x - ZEROING; i < 2 * PASS_BYTES / 4; i += blockDim.x - ZEROING)
    store_word(at.failed + 4 * i, 0);
  at.fill();
  if (Size::cluster > 1) {
    if (threadIdx.x >= ZEROING) cluster_fence();
    only_arrive_at_cluster();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
}

template <typename Policy> DEVICE void attend_wgmma(const attention_wgmma_parameters &p) {
  using Size = typename Policy::tiling;
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const shared_layout<Size> at(shared_address(wgmma_shared));
  const uint32_t warpgroup = uniform(threadIdx.x / 128), rank = Size::cluster > 1 ? cluster_rank() : 0;
  int position = 0;
  if (p.position) position = (int)load_settled(p.position);
  tile_walk<Size> walk = {p, rank};
  if (warpgroup == 0) walk.begin();
  prepare(p, at);
  keep_early(p.always_zero, (uint32_t)position);
  if (warpgroup == 0) {
    walk.position = position;
    Policy::copy(p, at, rank, walk);
  } else {
    only_wait_for_predecessors();
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Size::computing_registers));
    attention_loop<Policy> rows(p, at, warpgroup - 1, rank);
    rows.attend_all();
  }
  /* Others of the cluster may still copy into this block's memory, or arrive at its barriers. Parts have sent each
   * other all that they wait for. */
  if (Size::shares_copies) meet_cluster();
}
