/* gemm_wgmma.cuh - products of many rows on sm_90a: out = X W^T. It runs where X and W have tensor maps. Large products
 * are bound by the tensor cores, small ones by what a multiprocessor takes in: 54 bytes a cycle.
 *
 * Blocks are persistent. Two threads copy: one W, one X, 64 of k at a time, into stages of shared memory. W's copies
 * begin before the predecessors end. One or two warpgroups multiply. Two warpgroups share a tile, or take turns at
 * tiles: the results of one leave while the other multiplies. A cluster shares tiles, of which each block copies a part
 * to all; or its blocks have parts of k, whose sums meet in shared memory.
 *
 * A stage is freed only if it will be filled again. So nothing arrives at a barrier of a block that may have ended, and
 * the cluster does not meet at the end.
 *
 * A row's sum has the same order wherever it stands: k in steps of 16; with parts, the first half and then the second.
 */
#pragma once

#include "../common/cluster_kernel.cuh"
#include "../common/wgmma.cuh"
#include "gemm_results.cuh"

namespace {

enum {
  GEMM_COPYING_REGISTERS = 40,
  GEMM_TURN_BARRIER = GEMM_FIRST_BARRIER + 2,
};

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* The place of a warpgroup among the stages: `fill` counts them from the block's first. */
struct gemm_reader {
  uint32_t fill, stage, parity;
};

/* Frees a stage for the blocks that copy to it, if one will. */
template <typename D>
DEVICE void free_stage(const gemm_block<D> &at, uint32_t fills, uint32_t thread, uint32_t there, uint32_t fill,
                       uint32_t stage) {
  if (fill + D::STAGES >= fills) return;
  if constexpr (D::SHARERS == 1) {
    if (thread == 0) barrier_arrive(at.empty + 8 * stage);
  } else {
    if (thread < D::SHARERS) barrier_arrive_there(there + 8 * stage);
  }
}

/* d := the sum over this block's part of k. */
template <typename T, typename D>
DEVICE void multiply(const gemm_block<D> &at, const gemm_warpgroup<D> &me, uint32_t there, gemm_reader &reader,
                     float (&d)[D::PRODUCTS][D::COLUMNS / 2]) {
  const uint32_t fills = at.tiles * at.steps;
  uint32_t before = 0;
  for (uint32_t step = 0; step < at.steps; step++) {
    barrier_wait(at.full + 8 * reader.stage, reader.parity);
    const uint32_t stage = at.stages + reader.stage * D::STAGE_BYTES;
    const uint64_t p = operand_descriptor(stage + me.share() * D::PRODUCTS * GEMM_P_PANEL_BYTES, 16);
    const uint64_t q = operand_descriptor(stage + D::P_BYTES, 16);
    unrolled_for (int i = 0; i < D::PRODUCTS; i++) pin(d[i]);
    wgmma_fence();
    unrolled_for (int k = 0; k < GEMM_DEPTH / 16; k++)
      unrolled_for (int i = 0; i < D::PRODUCTS; i++)
        warpgroup_product<T, D::COLUMNS>::shared(d[i], operand_further(p, 32 * k + i * GEMM_P_PANEL_BYTES),
                                                 operand_further(q, 32 * k), step != 0 || k);
    wgmma_commit();
    unrolled_for (int i = 0; i < D::PRODUCTS; i++) pin(d[i]);
    if (step) {
      wgmma_wait<1>();
      free_stage(at, fills, me.thread, there, reader.fill - 1, before);
    }
    before = reader.stage;
    reader.fill++;
    if (++reader.stage == D::STAGES) reader.stage = 0, reader.parity ^= 1;
  }
}

/* A warpgroup's tiles, one after the other. */
template <typename D> DEVICE void multiply_tiles(const gemm_wgmma_parameters &p, const gemm_block<D> &at) {
  gemm_warpgroup<D> me(p, at);
  const uint32_t fills = at.tiles * at.steps;
  uint32_t there = 0; /* a thread frees a stage for one of the blocks that share a tile with this one */
  if (D::SHARERS > 1 && me.thread < D::SHARERS) {
    const uint32_t other = me.thread - D::ALONG_Q + (me.thread - D::ALONG_Q >= at.cp);
    there = address_in(
        me.thread < D::ALONG_Q ? at.rank_of(at.cp, me.thread, at.part) : at.rank_of(other, at.cq, at.part), at.empty);
  }
  for (uint32_t turn = D::TURNS ? me.index : 0; turn < at.tiles; turn += D::TURNS ? 2 : 1) {
    float d[D::PRODUCTS][D::COLUMNS / 2];
    const gemm_place place = gemm_place_of(p, at, turn);
    me.fetch_residual(place);
    gemm_reader reader = {turn * at.steps};
    reader.stage = reader.fill % D::STAGES, reader.parity = reader.fill / D::STAGES & 1;
    /* Only after the other warpgroup's last look at a barrier may this one look at a later stage: both would otherwise
     * mistake the parity of one round for another's. */
    if (D::TURNS && turn) warps_meet(GEMM_TURN_BARRIER + me.index, 256);
    if (p.is_bf16)
      multiply<__nv_bfloat16>(at, me, there, reader, d);
    else
      multiply<__half>(at, me, there, reader, d);
    if (D::TURNS && turn + 1 < at.tiles) warps_arrive(GEMM_TURN_BARRIER + (me.index ^ 1), 256);
    wgmma_wait<0>();
    unrolled_for (int i = 0; i < D::PRODUCTS; i++) pin(d[i]);
    free_stage(at, fills, me.thread, there, reader.fill - 1, reader.stage ? reader.stage - 1 : D::STAGES - 1);
    me.store(d, place, turn + 1 == at.tiles && (at.steps >= D::STAGES || at.tiles == 1));
  }
  me.end();
}

template <int Count> DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count)); }
template <int Count> DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count)); }

/* ---- A block ----------------------------------------------------------------------------------------------------- */

template <typename D> DEVICE void begin(const gemm_wgmma_parameters &p, const gemm_block<D> &at) {
  if (threadIdx.x == 128 * D::WARPGROUPS) {
    for (int i = 0; i < D::STAGES; i++) {
      barrier_init(at.full + 8 * i, 1);
      barrier_init(at.empty + 8 * i, D::ARRIVALS);
    }
    for (int i = 0; i < GEMM_RESIDUAL_BARRIERS * D::WARPGROUPS; i++) barrier_init(at.residual + 8 * i, 1);
    for (int i = 0; D::PARTS > 1 && i < D::WARPGROUPS; i++) {
      barrier_init(at.met + 8 * i, 1);
      barrier_expect(at.met + 8 * i, D::TILE.rows * D::STORED * 4);
    }
    barriers_are_initialised();
  }
  if (threadIdx.x == 0) {
    tensor_prefetch(&p.p), tensor_prefetch(&p.q);
    if (p.by_map) tensor_prefetch(&p.out);
    if (p.fetched) tensor_prefetch(&p.residual);
  }
  if (D::CLUSTER > 1)
    cluster_meet();
  else
    __syncthreads();
}

template <int... Constants> DEVICE void gemm(const gemm_wgmma_parameters &p) {
  using D = gemm_design<Constants...>;
  constexpr uint32_t COPYING = 128 * D::WARPGROUPS; /* this thread copies W, the first of the next warp X */
  extern __shared__ __align__(1024) unsigned char shared[];
  const gemm_block<D> at(p, shared);
  const uint32_t fills = at.tiles * at.steps;
  begin(p, at);
  let_successors_start();
  if (threadIdx.x >= COPYING) {
    gemm_copier<D, true> weights(p, at);
    gemm_copier<D, false> vectors(p, at);
    uint32_t early = 0;
    if (threadIdx.x == COPYING && p.weights_early) {
      early = min((uint32_t)D::STAGES, fills);
      weights.template copy<true>(early);
    }
    only_wait_for_predecessors();
    fewer_registers<GEMM_COPYING_REGISTERS>();
    if (threadIdx.x == COPYING) weights.template copy<false>(fills - early);
    if (threadIdx.x == COPYING + 32) vectors.template copy<false>(fills);
    __syncwarp();
  } else {
    only_wait_for_predecessors();
    more_registers<D::WARPGROUPS == 1 ? 240 : 232>();
    multiply_tiles(p, at);
  }
}

} // namespace

#define GEMM_LIST(...) __VA_ARGS__
#define DEFINE_GEMM(chips, parameters, name, threads, tile, stages)                                                    \
  DEFINE_CLUSTER_KERNEL(, gemm_tile_cluster(gemm_tile{GEMM_LIST tile}), parameters, name, threads, 1,                  \
                        gemm<GEMM_LIST tile, stages>)
