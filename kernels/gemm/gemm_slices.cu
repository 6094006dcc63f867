/* gemm_slices.cu - products of W in NVFP4 with up to 32 vectors on sm_90a, by sixteen warps and mma.sync: with four
 * warps on a scheduler the latencies of one are hidden by the others.
 *
 * One warp copies X and the codes of W, 256 of k to a stage; a second one the scales of W. Both begin W before the
 * predecessors end. A warp that multiplies has 32 rows of W and, of each stage, 64 of k or more; warps of the same rows
 * have different ones. At the end of a tile all sums meet in shared memory, in a fixed order. Where a product has few
 * rows, a cluster's blocks have parts of k, and send each other their sums.
 *
 * A sum takes its numbers in any order, if both operands have the same. So a lane takes sixteen neighbours in k, a
 * block of codes with one scale, for four products: of each eight codes a word, and four words of the vectors. */
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

#include "gemm_slices.h"

#include "../common/cluster.cuh"
#include "../common/launch.cuh"
#include "../common/send.cuh"
#include "../common/shared_words.cuh"
#include "gemm_codes.cuh"
#include "gemm_copies.cuh"
#include "gemm_rows.cuh"
#include "gemm_tile_finish.cuh"

namespace {

constexpr uint32_t WARPS = GEMM_SLICES_WARPS, THREADS = 32 * WARPS, ROWS = GEMM_SLICES_ROWS;
constexpr uint32_t CHUNKS = GEMM_SLICES_CHUNKS, ROW_BYTES = GEMM_CODE_BYTES, SCALE_BYTES = GEMM_SLICES_DEPTH / 16;
constexpr uint32_t SUM_BYTES = GEMM_SLICES_SUM_BYTES;
enum { SUMS_THERE = 1, SUMS_READ, STAGES_READ }; /* barriers */
constexpr uint32_t MEETING = THREADS + 32;       /* threads of the first two */

/* Addresses in shared memory, and the block's part of the work. */
template <uint32_t Parts> struct slices_block {
  uint32_t stages, sums, factors, full, empty, met, meeting;
  uint32_t part, first, apart; /* of k; and the block's first tile, and the distance to its next */
  uint32_t begin, steps;       /* of its part of k */

  DEVICE slices_block(const gemm_slices_parameters &p, const void *shared) {
    stages = shared_address(shared);
    sums = stages + p.sums_at, factors = stages + p.factors_at;
    full = factors + ROWS * 4, empty = full + 8 * GEMM_SLICES_MOST_STAGES;
    met = empty + 8 * GEMM_SLICES_MOST_STAGES, meeting = met + 16;
    part = Parts > 1 ? blockIdx.x % Parts : 0, first = blockIdx.x / Parts, apart = gridDim.x / Parts;
    begin = Parts > 1 ? p.steps * part / Parts : 0;
    steps = (Parts > 1 ? p.steps * (part + 1) / Parts : p.steps) - begin;
  }
};

/* The place of a reader or writer among the stages. */
struct slices_stage {
  uint32_t stage, parity;
  DEVICE void advance(const gemm_slices_parameters &p, uint32_t by) {
    stage += by;
    if (stage >= p.stages) stage -= p.stages, parity ^= 1;
  }
};

struct slices_tile {
  uint32_t matrix, column; /* the first row of W */
  DEVICE slices_tile(const gemm_slices_parameters &p, uint32_t tile) {
    matrix = divide(tile, p.of_matrix), column = (tile - matrix * p.of_matrix.by) * p.groups * ROWS;
  }
};

/* The warps of a group, which have its slices of k. */
struct slices_group {
  uint32_t first, count;
  DEVICE slices_group(const gemm_slices_parameters &p, uint32_t group) {
    count = (group < p.doubled ? 2 : 1) << p.slices_shift;
    first = (group + min(group, p.doubled)) << p.slices_shift;
  }
};

/* The place of a vector's sum among a warp's. Eights of columns are exchanged by the vector's number, so that stores of
 * eight columns of four vectors meet different banks. */
DEVICE uint32_t sum_at(uint32_t vector, uint32_t column) {
  return vector * ROWS * 4 + ((column ^ vector / 2 % 4 * 8) * 4);
}

/* ---- Copies ------------------------------------------------------------------------------------------------------ */

/* Four panels of X. */
DEVICE void panels_copy(uint32_t to, const void *map, uint32_t matrix, uint32_t panel, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %3, "
               "%4}], [%5];" ::"r"(to),
               "l"(map), "r"(0), "r"(matrix), "r"(panel), "r"(barrier)
               : "memory");
}

/* One thread's copies of X and of W's codes. */
template <uint32_t Parts> DEVICE void copy_stages(const gemm_slices_parameters &p, const slices_block<Parts> &at) {
  const uint32_t bytes = p.codes_at + p.groups * ROWS * ROW_BYTES,
                 early = p.weights_early ? min(p.stages, at.steps) : 0;
  const auto copy_codes = [&](uint32_t stage, const slices_tile &tile, uint32_t step) {
    barrier_expect(at.full + 8 * stage, bytes);
    box_copy(at.stages + stage * p.stage_bytes + p.codes_at, &p.w, (int)(at.begin + step) * (int)ROW_BYTES,
             (int)tile.column, (int)tile.matrix, at.full + 8 * stage);
  };
  slices_tile tile(p, at.first);
  rolled_for (uint32_t i = 0; i < early; i++) copy_codes(i, tile, i);
  only_wait_for_predecessors();
  slices_stage to = {0, 1};
  uint32_t count = 0;
  rolled_for (uint32_t i = at.first; i < p.tiles; i += at.apart) {
    tile = slices_tile(p, i);
    rolled_for (uint32_t step = 0; step < at.steps; step++, count++, to.advance(p, 1)) {
      if (count >= early) {
        barrier_wait(at.empty + 8 * to.stage, to.parity);
        copy_codes(to.stage, tile, step);
      }
      panels_copy(at.stages + to.stage * p.stage_bytes, &p.x, tile.matrix, (at.begin + step) * CHUNKS,
                  at.full + 8 * to.stage);
    }
  }
}

/* A lane's scales of a stage: of its row in each group. Past the last row of W its scales are taken, since those
 * results are not stored; past the end of k any, since codes and X are zeros there. */
DEVICE void copy_scales_of_stage(const gemm_slices_parameters &p, const slices_tile &tile, uint32_t step, uint32_t to) {
  const uint32_t lane = threadIdx.x % 32, fours = min(p.k / 64 - step * CHUNKS, CHUNKS);
  rolled_for (uint32_t i = 0; i < p.groups; i++, to += ROWS * SCALE_BYTES) {
    const uint32_t row = min(tile.column + i * ROWS + lane, p.columns - 1);
    const unsigned char *from = p.scales + tile.matrix * p.scale_batch + scales_of_row(p.scale_strides, row) +
                                step * CHUNKS * p.scale_strides.four;
    if (p.scale_copies == GEMM_SCALES_IN_SIXTEEN)
      cp_async_four_words(to + lane * SCALE_BYTES, from, 4 * fours);
    else
      rolled_for (uint32_t j = 0; j < CHUNKS; j++)
        cp_async_word(to + lane * SCALE_BYTES + 4 * j, from + min(j, fours - 1) * p.scale_strides.four);
  }
}

template <uint32_t Parts> DEVICE void copy_scales(const gemm_slices_parameters &p, const slices_block<Parts> &at) {
  slices_stage to = {0, 1};
  if (!p.weights_early) only_wait_for_predecessors();
  rolled_for (uint32_t i = at.first; i < p.tiles; i += at.apart) {
    const slices_tile tile(p, i);
    rolled_for (uint32_t step = 0; step < at.steps; step++, to.advance(p, 1)) {
      barrier_wait(at.empty + 8 * to.stage, to.parity);
      copy_scales_of_stage(p, tile, at.begin + step, at.stages + to.stage * p.stage_bytes + p.scales_at);
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at.full + 8 * to.stage) : "memory");
    }
  }
  cp_async_wait<0>();
  only_wait_for_predecessors();
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* So that the compiler keeps a number of this lane in a register, and does not find it again in each turn of a loop. */
DEVICE void keep(uint32_t &number) { asm volatile("" : "+r"(number)); }

struct slices_warp {
  static constexpr int TILES = ROWS / 16, EIGHTS = ROWS / 8; /* of the warp's rows of W; of vectors */
  using sums = float[TILES][EIGHTS][4];

  const gemm_slices_parameters &p;
  const uint32_t full, empty;
  uint32_t chunk, chunks;                   /* its first of a stage, and from one to the next */
  uint32_t skip, apart;                     /* stages of the block before its next one, and from one to the next */
  uint32_t vectors_at, codes_at, scales_at; /* the lane's, in the first stage */
  uint32_t is_first;                        /* lane */
  slices_stage from;

  template <uint32_t Parts>
  DEVICE slices_warp(const gemm_slices_parameters &p, const slices_block<Parts> &at)
      : p(p), full(at.full), empty(at.empty) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const uint32_t half = warp >> p.slices_shift, group = half < 2 * p.doubled ? half / 2 : half - p.doubled;
    const slices_group mine(p, group);
    const uint32_t slice = warp - mine.first, row = group * ROWS + g;
    chunk = slice % CHUNKS, chunks = min(mine.count, CHUNKS);
    skip = slice / CHUNKS, apart = max(mine.count / CHUNKS, 1u);
    from = {skip, 0};
    vectors_at = at.stages + g * 128 + ((2 * t ^ g) << 4);
    codes_at = at.stages + p.codes_at + row * ROW_BYTES + ((t / 2 ^ g) << 4) + t % 2 * 8;
    scales_at = at.stages + p.scales_at + row * SCALE_BYTES + t;
    is_first = lane == 0;
    keep(vectors_at), keep(codes_at), keep(scales_at), keep(is_first);
  }

  template <typename T>
  DEVICE static void decode(uint32_t low, uint32_t high, const uint32_t (&scales)[2], uint32_t (&a)[2][4]) {
    uint32_t pairs[4];
    decode_eight<T>(low, scales[0], pairs);
    a[0][0] = pairs[0], a[0][2] = pairs[1], a[1][0] = pairs[2], a[1][2] = pairs[3];
    decode_eight<T>(high, scales[1], pairs);
    a[0][1] = pairs[0], a[0][3] = pairs[1], a[1][1] = pairs[2], a[1][3] = pairs[3];
  }

  /* 64 of k. `codes` and the others: the lane's. */
  template <typename T> DEVICE void multiply_chunk(uint32_t codes, uint32_t scales, uint32_t vectors, sums &d) const {
    uint2 words[TILES][2];
    uint32_t factors[TILES][2];
    unrolled_for (int i = 0; i < TILES; i++)
      unrolled_for (int h = 0; h < 2; h++) words[i][h] = load_two_words(codes + (16 * i + 8 * h) * ROW_BYTES);
    unrolled_for (int i = 0; i < TILES; i++) {
      const uint32_t at = scales + 16 * i * SCALE_BYTES;
      const uint32_t two = gemm_two_scales(load_byte(at) + (load_byte(at + 8 * SCALE_BYTES) << 8));
      unrolled_for (int h = 0; h < 2; h++) factors[i][h] = gemm_code<T>::scale(two, h);
    }
    unrolled_for (int word = 0; word < 2; word++) {
      uint4 b[EIGHTS];
      unrolled_for (int j = 0; j < EIGHTS; j++) b[j] = load_four_words((vectors ^ word << 4) + 1024 * j);
      unrolled_for (int i = 0; i < TILES; i++) {
        uint32_t a[2][4];
        decode<T>(word ? words[i][0].y : words[i][0].x, word ? words[i][1].y : words[i][1].x, factors[i], a);
        unrolled_for (int j = 0; j < EIGHTS; j++) mma_16x8x16<T>(d[i][j], a[0], b[j].x, b[j].y);
        unrolled_for (int j = 0; j < EIGHTS; j++) mma_16x8x16<T>(d[i][j], a[1], b[j].z, b[j].w);
      }
    }
  }

  /* A tile's sums over the warp's slice, to shared memory. */
  template <typename T> DEVICE void multiply_tile(uint32_t steps, uint32_t to) {
    const uint32_t panel = p.codes_at / CHUNKS;
    sums d = {};
    uint32_t step = skip;
    rolled_for (; step < steps; step += apart) {
      const uint32_t stage = from.stage * p.stage_bytes;
      barrier_wait(full + 8 * from.stage, from.parity);
      rolled_for (uint32_t i = chunk; i < CHUNKS; i += chunks)
        multiply_chunk<T>(stage + codes_at ^ i << 5, stage + scales_at + 4 * i, stage + vectors_at + i * panel, d);
      __syncwarp();
      if (is_first) barrier_arrive(empty + 8 * from.stage);
      from.advance(p, apart);
    }
    skip = step - steps;
    if (p.sums_at == 0) warps_meet(STAGES_READ, THREADS);
    const uint32_t thread = thread_index(), g = thread % 32 / 4, t = thread % 4;
    to += thread / 32 * SUM_BYTES + sum_at(2 * t, g);
    unroll<TILES, EIGHTS, 4>([&](int i, int j, int e) {
      store_number((to ^ (16 * i + 8 * (e / 2)) * 4) + (8 * j + e % 2) * ROWS * 4, d[i][j][e]);
    });
  }
};

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Eight sums of a vector over `count` slices or parts, which are `apart` bytes apart. Four of eight lanes load their
 * fours in the other order, so that all banks are read. */
DEVICE void add_sums(uint32_t from, uint32_t count, uint32_t apart, float (&v)[8]) {
  const uint32_t turn = threadIdx.x & 4 ? 16 : 0;
  unrolled_for (int i = 0; i < 8; i++) v[i] = 0;
#pragma unroll 2
  for (uint32_t i = 0; i < count; i++, from += apart) {
    const float4 low = load_shared_four(from + turn), high = load_shared_four(from + (turn ^ 16));
    const float eight[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    unrolled_for (int j = 0; j < 8; j++) v[j] += eight[j];
  }
  unrolled_for (int j = 0; j < 4; j++) {
    const float first = v[j];
    v[j] = turn ? v[j + 4] : first, v[j + 4] = turn ? first : v[j + 4];
  }
}
template <uint32_t Parts>
DEVICE void add_slices(const gemm_slices_parameters &p, const slices_block<Parts> &at, uint32_t row, uint32_t in_tile,
                       float (&v)[8]) {
  const slices_group of(p, in_tile / ROWS);
  add_sums(at.sums + of.first * SUM_BYTES + sum_at(row, in_tile % ROWS), of.count, SUM_BYTES, v);
}

/* A block of a cluster stores the results of some vectors. It gets their sums from the blocks of all parts. */
template <uint32_t Parts> struct slices_meeting {
  static constexpr uint32_t SHARE = gemm_slices_share(Parts);

  const gemm_slices_parameters &p;
  const slices_block<Parts> &at;

  DEVICE uint32_t row_bytes() const { return p.groups * ROWS * 4; }
  DEVICE uint32_t place(uint32_t part, uint32_t in_share, uint32_t in_tile) const {
    return at.meeting + (part * SHARE + in_share) * row_bytes() + in_tile * 4;
  }
  DEVICE uint32_t bytes() const { return Parts * min(SHARE, ROWS - at.part * SHARE) * row_bytes(); }
  DEVICE void send() const {
    const uint32_t unit = threadIdx.x / 8, row = unit % ROWS, to = row / SHARE;
    const uint32_t met = address_in_block(at.met, to);
    rolled_for (uint32_t i = unit / ROWS; 2 * i < p.groups; i += THREADS / 8 / ROWS) {
      const uint32_t in_tile = i * GEMM_GROUP + threadIdx.x % 8 * 8;
      const uint32_t there = address_in_block(place(at.part, row - to * SHARE, in_tile), to);
      float v[8];
      if (in_tile >= p.groups * ROWS) continue;
      add_slices(p, at, row, in_tile, v);
      send_four(there, make_float4(v[0], v[1], v[2], v[3]), met);
      send_four(there + 16, make_float4(v[4], v[5], v[6], v[7]), met);
    }
  }
  DEVICE void add(uint32_t row, uint32_t in_tile, float (&v)[8]) const {
    add_sums(place(0, row - at.part * SHARE, in_tile), Parts, SHARE * row_bytes(), v);
  }
};

/* The results of a tile, or of the block's share of its vectors. Eight lanes have 64 columns of a vector. */
template <uint32_t Parts>
DEVICE void finish_tile(const gemm_slices_parameters &p, const slices_block<Parts> &at, const slices_tile &tile) {
  constexpr uint32_t SHARE = gemm_slices_share(Parts), PLACES = Parts == 1 ? ROWS : 16;
  const uint32_t thread = thread_index(), unit = thread / 8, in_share = unit % PLACES, row = at.part * SHARE + in_share;
  const bool has_row = in_share < SHARE && row < p.rows;
  rolled_for (uint32_t i = unit / PLACES; 2 * i < p.groups; i += THREADS / 8 / PLACES) {
    const uint32_t in_tile = i * GEMM_GROUP + thread % 8 * 8, column = tile.column + in_tile;
    const uint32_t count = column < p.columns && in_tile < p.groups * ROWS ? min(8u, p.columns - column) : 0;
    float v[8], bias[8], sum = 0;
    if (has_row && count) {
      bias_load(p.finish, tile.matrix, column, count, bias);
      if constexpr (Parts > 1)
        slices_meeting<Parts>{p, at}.add(row, in_tile, v);
      else
        add_slices(p, at, row, in_tile, v);
      const float factor = p.norms.vector_squares ? load_number(at.factors + 4 * row) : p.finish.scale;
      unrolled_for (int j = 0; j < 8; j++) v[j] *= GEMM_CODE_FACTOR;
      sum = sums_finish(p, tile.matrix, row, column, count, v, factor, bias);
    }
    if (!p.norms.squares) continue;
    sum = eight_sum(sum);
    if (thread % 8 || !has_row || !count) continue;
    p.norms.squares[tile.matrix * p.norms.squares_batch + column / GEMM_GROUP * p.norms.squares_group + row] = sum;
  }
}

/* Loads one of each line of numbers that a tile's sums will meet, so that the line is near then: a row of the residual
 * a lane. */
DEVICE void touch_tile(const gemm_slices_parameters &p, const slices_tile &tile) {
  constexpr uint32_t LINE_BYTES = 128;
  const gemm_finish &f = p.finish;
  const uint32_t lane = threadIdx.x % 32, share = f.silu_mul ? 2 : 1, size = f.residual_dtype == RONDO_F32 ? 4 : 2;
  const uint32_t numbers = min(p.groups * ROWS, p.columns - tile.column);
  if (f.residual && lane < p.rows) {
    const int64_t begin = tile.matrix * f.residual_batch + lane * f.residual_row + tile.column / share;
    rolled_for (uint32_t i = 0; i < numbers / share * size; i += LINE_BYTES)
      keep_early(p.steps == 0, ((const unsigned char *)f.residual)[begin * size + i]);
  }
  if (p.norms.norm && lane * LINE_BYTES < numbers * 2)
    keep_early(p.steps == 0, ((const unsigned char *)p.norms.norm)[tile.column * 2 + lane * LINE_BYTES]);
}

/* A warp that tends rows: the factors of vectors, while a tile is multiplied. */
template <uint32_t Parts> DEVICE void tend(const gemm_slices_parameters &p, const slices_block<Parts> &at) {
  only_wait_for_predecessors();
  rolled_for (uint32_t i = at.first; i < p.tiles; i += at.apart) {
    touch_tile(p, slices_tile(p, i));
    if (p.norms.vector_squares) store_factors(p.norms, (int)slices_tile(p, i).matrix, 0, p.rows, at.factors);
    warps_arrive(SUMS_THERE, MEETING);
    if (i + at.apart < p.tiles) warps_meet(SUMS_READ, MEETING);
  }
}

template <uint32_t Parts> DEVICE void multiply_tiles(const gemm_slices_parameters &p, const slices_block<Parts> &at) {
  slices_warp me(p, at);
  only_wait_for_predecessors();
  rolled_for (uint32_t i = at.first; i < p.tiles; i += at.apart) {
    if (p.is_bf16)
      me.multiply_tile<__nv_bfloat16>(at.steps, at.sums);
    else
      me.multiply_tile<__half>(at.steps, at.sums);
    warps_meet(SUMS_THERE, MEETING);
    if constexpr (Parts > 1) {
      slices_meeting<Parts>{p, at}.send();
      barrier_wait_cluster(at.met, 0);
    }
    finish_tile(p, at, slices_tile(p, i));
    if (i + at.apart < p.tiles) warps_meet(SUMS_READ, MEETING);
  }
}

/* ---- A block ----------------------------------------------------------------------------------------------------- */

template <uint32_t Parts> DEVICE void gemm_slices(const gemm_slices_parameters &p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const slices_block<Parts> at(p, shared);
  if (threadIdx.x == THREADS) {
    for (int i = 0; i < GEMM_SLICES_MOST_STAGES; i++) barrier_init(at.full + 8 * i, 1 + 32);
    barriers_are_initialised();
  }
  if (threadIdx.x == THREADS + 32) {
    for (int i = 0; i < GEMM_SLICES_MOST_STAGES; i++) barrier_init(at.empty + 8 * i, p.readers);
    if constexpr (Parts > 1) barrier_init(at.met, 1), barrier_expect(at.met, slices_meeting<Parts>{p, at}.bytes());
    barriers_are_initialised();
  }
  if (Parts > 1) {
    only_arrive_at_cluster();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < THREADS) {
    more_registers<112>();
    multiply_tiles(p, at);
  } else {
    fewer_registers<32>();
    const uint32_t warp = threadIdx.x / 32 - WARPS;
    if (warp == 0) {
      if (threadIdx.x % 32 == 0) copy_stages(p, at);
      only_wait_for_predecessors();
      __syncwarp();
    } else if (warp == 1) {
      copy_scales(p, at);
    } else if (warp == 2) {
      tend(p, at);
    } else {
      only_wait_for_predecessors();
      let_successors_start(); /* not before: their copies of W would delay those of X */
    }
  }
}

} // namespace

#define DEFINE(chips, parameters, name, threads, parts)                                                                \
  DEFINE_CLUSTER_KERNEL((void)0, parts, parameters, name, threads, 1, gemm_slices<parts>)
GEMM_SLICES_KERNELS(DEFINE)

#endif
