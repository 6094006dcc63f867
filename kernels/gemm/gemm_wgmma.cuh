/* gemm_wgmma.cuh - products of many rows on sm_90a: out = X W^T. It runs where X and W have tensor maps. Large products
 * are bound by the tensor cores, small ones by what a multiprocessor takes in: 54 bytes a cycle.
 *
 * Blocks are persistent. Two threads copy: one W, one X, into stages of shared memory. A stage is 64 of k, in e4m3 128,
 * with W in NVFP4 64 to 256. W's copies begin before the predecessors end. One or two warpgroups multiply. Two
 * warpgroups share a tile, or take turns at tiles: the results of one leave while the other multiplies. A cluster
 * shares tiles, of which each block copies a part to all; or its blocks have parts of k, whose sums meet in shared
 * memory.
 *
 * W in NVFP4 comes to slots of its own, and is decoded to registers (gemm_wgmma_slots.cuh).
 *
 * A residual that has the boxes of out comes through the stages too, after the last k of its tile.
 *
 * Where blocks share stages, one is freed only if it will be filled again. So nothing arrives at a barrier of a block
 * that may have ended, and the cluster does not meet at the end.
 *
 * A row's sum has the same order wherever it stands: k in steps of 16; with parts, one part after the other.
 */
#pragma once

#include "../common/launch.cuh"
#include "../common/wgmma_e4m3.cuh"
#include "gemm_rows.cuh"
#include "gemm_stream.cuh"
#include "gemm_wgmma_slots.cuh"

namespace {

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* The place of a warpgroup among the stages: `left` are the block's from this one on. */
template <typename D> struct gemm_reader {
  uint32_t left, stage, parity;

  DEVICE void next() {
    left--;
    if (++stage == D::STAGES) stage = 0, parity ^= 1;
  }
  DEVICE uint32_t before(uint32_t count = 1) const {
    return stage >= count ? stage - count : stage + D::STAGES - count;
  }
};

/* d := the sum over this block's part of k. */
template <typename T, typename D>
DEVICE void multiply(const gemm_block<D> &at, const gemm_warpgroup<D> &me, gemm_reader<D> &reader,
                     float (&d)[D::PRODUCTS][D::COLUMNS / 2]) {
  rolled_for (uint32_t step = 0; step < at.steps; step++) {
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
      me.free_stage(reader.left + 1, reader.before());
    }
    reader.next();
  }
}

/* One stage of k in e4m3, from zero. */
template <typename D>
DEVICE void begin_e4m3(const gemm_block<D> &at, const gemm_warpgroup<D> &me, gemm_reader<D> &reader,
                       float (&part)[D::COLUMNS / 2]) {
  barrier_wait(at.full + 8 * reader.stage, reader.parity);
  const uint32_t stage = at.stages + reader.stage * D::STAGE_BYTES;
  const uint64_t p = operand_descriptor(stage + me.share() * GEMM_P_PANEL_BYTES, 16);
  const uint64_t q = operand_descriptor(stage + D::P_BYTES, 16);
  pin(part);
  wgmma_fence();
  unrolled_for (int k = 0; k < GEMM_E4M3_DEPTH / 32; k++)
    e4m3_product<D::COLUMNS>::shared(part, operand_further(p, 32 * k), operand_further(q, 32 * k), k);
  wgmma_commit();
  pin(part);
  reader.next();
}

/* The same sum of products in e4m3. The tensor cores keep 14 bits of such a sum, so that of each stage is added in
 * fp32, while the next one is multiplied. */
template <typename D>
DEVICE void multiply_e4m3(const gemm_block<D> &at, const gemm_warpgroup<D> &me, gemm_reader<D> &reader,
                          float (&d)[D::COLUMNS / 2]) {
  constexpr int COUNT = D::COLUMNS / 2;
  float even[COUNT], odd[COUNT];
  const auto add = [&](float(&part)[COUNT]) {
    pin(part);
    unrolled_for (int i = 0; i < COUNT; i++) d[i] += part[i];
  };
  const auto add_beside_next = [&](float(&part)[COUNT], float(&next)[COUNT]) {
    begin_e4m3(at, me, reader, next);
    wgmma_wait<1>();
    me.free_stage(reader.left + 2, reader.before(2));
    add(part);
  };
  unrolled_for (int i = 0; i < COUNT; i++) d[i] = 0;
  begin_e4m3(at, me, reader, even);
  rolled_for (uint32_t pairs = (at.steps - 1) / 2; pairs; pairs--) {
    add_beside_next(even, odd);
    add_beside_next(odd, even);
  }
  if (at.steps % 2) {
    wgmma_wait<0>();
    add(even);
  } else {
    add_beside_next(even, odd);
    wgmma_wait<0>();
    add(odd);
  }
}

/* A warpgroup's tiles, one after the other. */
template <typename T, typename D> DEVICE void multiply_tiles(const gemm_wgmma_parameters &p, const gemm_block<D> &at) {
  constexpr bool EARLY_PLACE = !D::IS_WIDE && !D::E4M3; /* as registers allow */
  gemm_streamer<D> me(p, at);
  for (uint32_t turn = D::TURNS ? me.index : 0; turn < at.tiles; turn += D::TURNS ? 2 : 1) {
    float d[D::PRODUCTS][D::COLUMNS / 2];
    gemm_place place; /* if early, found while the block waits: for the predecessors, or for the first copies */
    if (EARLY_PLACE) place = gemm_place_of(p, at, turn), keep(place);
    only_wait_for_predecessors(); /* after the first turn it returns at once */
    me.fetch_residual(turn);
    const uint32_t before = turn * at.fills;
    gemm_reader<D> reader = {at.tiles * at.fills - before, before % D::STAGES, before / D::STAGES & 1};
    /* Only after the other warpgroup's last look at a barrier may this one look at a later stage: both would otherwise
     * mistake the parity of one round for another's. */
    if (D::TURNS && turn) warps_meet(GEMM_TURN_BARRIER + me.index, 256);
    if constexpr (D::E4M3)
      multiply_e4m3(at, me, reader, d[0]);
    else if constexpr (!std::is_same_v<T, either>)
      multiply<T>(at, me, reader, d);
    else if (p.is_bf16)
      multiply<__nv_bfloat16>(at, me, reader, d);
    else
      multiply<__half>(at, me, reader, d);
    gemm_reader<D> residual = reader;
    rolled_for (uint32_t i = at.steps; i < at.fills; i++, residual.next())
      barrier_wait(at.full + 8 * residual.stage, residual.parity);
    if (D::TURNS && turn + 1 < at.tiles) warps_arrive(GEMM_TURN_BARRIER + (me.index ^ 1), 256);
    wgmma_wait<0>();
    unrolled_for (int i = 0; i < D::PRODUCTS; i++) pin(d[i]);
    me.free_stage(reader.left + 1, reader.before());
    if (!EARLY_PLACE) place = gemm_place_of(p, at, turn);
    if (D::IS_WIDE) me.find_lane(); /* so it takes no registers during the products */
    me.begin_factors(turn);
    const bool is_last = turn + 1 == at.tiles;
    if constexpr (D::STREAMS)
      if (__builtin_expect(p.streamed, 0)) { /* its code is long: not among that of plain products */
        me.template store_stream<T>(d, place, reader.left, reader.stage, is_last);
        me.end_factors(turn);
        continue;
      }
    me.template store<T>(d, place, reader.left, reader.stage,
                         is_last && (p.boxed || at.steps >= D::STAGES || at.tiles == 1));
    me.end_factors(turn);
  }
  only_wait_for_predecessors(); /* without a turn */
  me.end();
}

/* ---- A block ----------------------------------------------------------------------------------------------------- */

template <typename D> DEVICE void begin(const gemm_wgmma_parameters &p, const gemm_block<D> &at) {
  if (threadIdx.x == 128 * D::WARPGROUPS) {
    for (int i = 0; i < D::STAGES; i++) barrier_init(at.full + 8 * i, 1);
    for (int i = 0; i < D::SLOTS; i++) /* warps that decode scales arrive too */
      barrier_init(at.slot_full + 8 * i, 1 + GEMM_SCALERS / 32);
    barriers_are_initialised();
  }
  if (threadIdx.x == 128 * D::WARPGROUPS + 32) {
    for (int i = 0; i < D::STAGES; i++) barrier_init(at.empty + 8 * i, D::ARRIVALS);
    for (int i = 0; i < D::SLOTS; i++) barrier_init(at.slot_empty + 8 * i, 4 * D::WARPGROUPS);
    for (int i = 0; D::PARTS > 1 && i < (D::MEETS_OFTEN ? 2 : D::WARPGROUPS); i++) {
      barrier_init(at.met + 8 * i, 1);
      barrier_expect(at.met + 8 * i, (D::PARTS - 1) * D::TILE.rows * D::STORED * 4);
    }
    barriers_are_initialised();
  }
  if (threadIdx.x == 0) {
    tensor_prefetch(&p.p), tensor_prefetch(&p.q);
    if (p.by_map) tensor_prefetch(&p.out);
    if (p.boxed) tensor_prefetch(&p.residual);
    if (D::STREAMS && p.streamed) tensor_prefetch(&p.normed);
  }
  if (D::CLUSTER > 1) {
    only_arrive_at_cluster();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
}

template <int... Constants> DEVICE void gemm(const gemm_wgmma_parameters &p) {
  using D = gemm_design<Constants...>;
  constexpr uint32_t COPYING = 128 * D::WARPGROUPS; /* this thread copies W, the first of the next warp X */
  extern __shared__ __align__(1024) unsigned char shared[];
  begin(p, gemm_block<D>(p, shared));
  if (threadIdx.x < COPYING) {
    more_registers<D::MULTIPLYING_REGISTERS>();
    const gemm_block<D> at(p, shared);
    if constexpr (D::SLOTS > 0) {
      if (p.is_bf16)
        multiply_codes<__nv_bfloat16>(p, at);
      else
        multiply_codes<__half>(p, at);
    } else if constexpr (D::ANY && !D::STREAMS)
      multiply_tiles<either>(p, at);
    else if (p.is_bf16)
      multiply_tiles<__nv_bfloat16>(p, at);
    else
      multiply_tiles<__half>(p, at);
    return;
  }
  fewer_registers<D::COPYING_REGISTERS>();
  if (threadIdx.x == COPYING) {
    std::conditional_t<(D::SLOTS > 0), gemm_code_copier<D>, gemm_copier<D, true>> weights(p, shared);
    const uint32_t early = p.weights_early ? weights.first_round() : 0;
    weights.template copy<true>(early);
    only_wait_for_predecessors();
    weights.template copy<false>(weights.all() - early);
  } else if (threadIdx.x == COPYING + 32) {
    gemm_copier<D, false> vectors(p, shared);
    if (D::SLOTS) only_wait_for_predecessors();
    vectors.template copy<false>(vectors.all());
    only_wait_for_predecessors(); /* without a copy */
  } else if (D::SLOTS && threadIdx.x >= COPYING + 64) {
    if constexpr (D::SLOTS > 0) decode_scales<D>(p, shared);
  } else {
    if (threadIdx.x >= COPYING + 128 - GEMM_ROW_THREADS) tend_rows<D>(p, shared);
    only_wait_for_predecessors();
    let_successors_start(); /* not before: their copies of W would delay those of X */
  }
  __syncwarp();
}

} // namespace

#define GEMM_LIST(...) __VA_ARGS__
#define DEFINE_GEMM(chips, parameters, name, threads, tile, stages, any)                                               \
  DEFINE_CLUSTER_KERNEL((void)0, gemm_tile_cluster(gemm_tile{GEMM_LIST tile}), parameters, name, threads, 1,           \
                        gemm<GEMM_LIST tile, stages, any>)
