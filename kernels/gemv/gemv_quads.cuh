/* gemv_quads.cuh - 1 to 16 vectors on tensor cores, weights and vectors both straight to registers.
 *
 * mma.m16n8k16 multiplies A (16 x 16) with B (16 x 8); quad q of a warp holds rows q and q + 8 of A and column q of B.
 * `Quads` quads share a row of weights and lie along k, so that 4 x Quads lanes read 64 x Quads bytes in a row; "row q"
 * of A is quad q's piece of its row, and "column q" of B the same piece (q % Quads) of vector q / Quads. A product
 * counts where both pieces are the same: 8 quads a row serve one vector (the diagonal), 2 four, and 1 eight or, with
 * two operands B, sixteen. The work is always the same, and nothing is shuffled: the order of k inside a piece is free
 * as long as weights and vectors share it.
 *
 * A tile are `Rows` rows of each of the block's groups. Blocks take tiles gridDim.x apart: all at once, or as many
 * blocks as fit, and then what was multiplied is asked for again at once. Where the matrix fills the GPU once only
 * (`Half`), half of a tile is asked for before the vectors are converted and half behind: asked for at once, everything
 * arrives at once, and nothing is left to hide the arithmetic. */
#ifndef RONDO_GEMV_QUADS_CUH
#define RONDO_GEMV_QUADS_CUH

#include "gemv_clusters.cuh"
#include "gemv_finish.cuh"
#include "gemv_quads.h"
#include "gemv_vectors.cuh"

/* Whether the tensor cores are given bf16. */
template <rondo_dtype W, rondo_dtype V, int Rows>
constexpr bool takes_bf16 = W == RONDO_BF16 || (W == RONDO_NVFP4 && V == RONDO_BF16 && Rows == 2);

/* ---- Scales ----------------------------------------------------------------------------------------------------- */

/* Scale pairs of Slices slices of a row: one load of 2 x Slices bytes a lane, then a transpose among the row's lanes.
 * out[s] has this lane's pair of slice s in its low half. */
template <int Slices, int Lanes>
__device__ __forceinline__ void turn_scales(const uint32_t *in, uint32_t (&out)[Slices]) {
  const uint32_t lane = threadIdx.x % 32, l = lane % Lanes;
  if constexpr (Slices == 4) {
    static_assert(Lanes == 4, "a 4 x 4 transpose of pairs over the quad");
    uint32_t taken = __shfl_xor_sync(0xffffffffu, l & 2 ? in[0] : in[1], 2);
    uint32_t a = l & 2 ? taken : in[0], b = l & 2 ? in[1] : taken;
    uint32_t kept = permute(a, b, l & 1 ? 0x7632 : 0x5410);
    taken = __shfl_xor_sync(0xffffffffu, permute(a, b, l & 1 ? 0x5410 : 0x7632), 1);
    uint32_t even = l & 1 ? taken : kept, odd = l & 1 ? kept : taken;
    out[0] = even, out[1] = odd, out[2] = even >> 16, out[3] = odd >> 16;
  } else if constexpr (Slices == 2) {
    const uint32_t from = (lane & ~(Lanes - 1u)) + l / 2;
    uint32_t first = __shfl_sync(0xffffffffu, in[0], from);
    uint32_t second = __shfl_sync(0xffffffffu, in[0], from + Lanes / 2);
    uint32_t both = permute(first, second, l & 1 ? 0x7632 : 0x5410);
    out[0] = both, out[1] = both >> 16;
  } else {
    out[0] = in[0];
  }
}

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

/* Where a lane's pieces of a tile's first row lie: of all slices, or of the first where they follow each other. */
template <int Count> struct pieces_of_row {
  const unsigned char *weights[Count], *scales;
  bool is_there[Count];
};

/* Shared memory, of floats:
 *   sums     [2][parts][vectors][pitch]   of a tile; two, so that one barrier a tile is enough
 *   squares  [parts][vectors]             with RMS norm
 *   held     [tiles of a block][count][tile rows]  with several chunks of k: the sums of those before
 * (gemv_quads_plan.c says how much). */
template <rondo_dtype W, rondo_dtype V, int Quads, int Columns, int Rows, int Slices, bool Half, gemv_cut Cut,
          int Cluster>
__device__ __forceinline__ void gemv_quads(const gemv_parameters &p) {
  constexpr int per_load = elements_per_load<W>, lanes = 4 * Quads, slice = lanes * per_load;
  constexpr int rows_of_load = 8 / Quads, pairs = Rows / (2 * rows_of_load), vectors = rows_of_load * Columns;
  static_assert(pairs >= 1 && pairs * 2 * rows_of_load == Rows && (Columns == 1 || Quads == 1), "");
  static_assert(Quads == 1 || Quads == 2 || Quads == 8, "");
  /* NVFP4 beside bf16 vectors meets in f16; in bf16 where a warp has few rows, so that converting the vector would be
   * most of its work. Two chains of products where there are no others to hide their latency. */
  constexpr bool in_bf16 = takes_bf16<W, V, Rows>;
  constexpr int chains = pairs == 1 && Columns == 1 && Cut != GEMV_CHUNKED && (Quads == 8 || W != RONDO_NVFP4) ? 2 : 1;
  constexpr bool has_infinity = W == RONDO_F16 || W == RONDO_BF16;
  constexpr bool scaled = W == RONDO_NVFP4, has_correction = V == RONDO_BF16 && !in_bf16;
  constexpr int items = pairs * Slices, first_items = Half ? items / 2 : items; /* an item: a pair of rows, one slice */
  /* Sixteen raw vectors at once do not fit into the registers. */
  constexpr bool one_by_one = Columns == 2 && scaled && has_correction;
  /* A part is whole, and within k; or, without infinities, whole or beyond the end. Then one address is enough. */
  constexpr bool parts_fit = Cut == GEMV_EXACT && Cluster == 1;
  constexpr int piece_count = parts_fit || (Cut == GEMV_EXACT && !has_infinity) ? 1 : Slices;
  /* Whether there are registers to know where results go before the sums are there. */
  constexpr bool knows_ahead = Half || Cut == GEMV_MASKED || Cut == GEMV_SINGLE;
  constexpr bool has_one_tile = Half || Cut == GEMV_SINGLE;
  /* Sums may be whole in a warp, and are finished there. */
  constexpr bool may_be_whole = Quads == 8 && pairs == 1 && knows_ahead && W != RONDO_E4M3;
  /* What is added to results is asked for beside the vectors: kernels of few instructions lose what it costs. */
  constexpr bool asks_ahead = Quads == 8 && Cut == GEMV_EXACT && Cluster == 1;
  constexpr uint32_t number = sizeof(float);
  extern __shared__ float shared[];
  const warp_place place = place_of_warp(p);
  const uint32_t rank = blockIdx.x % Cluster, first_tile = blockIdx.x / Cluster, tile_step = gridDim.x / Cluster;
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, row_in_load = lane / lanes;
  const uint32_t rows = p.groups * Rows, pitch = rows + GEMV_PITCH_PADDING;
  const uint32_t sums_bytes = p.parts * vectors * pitch * number;
  const uint32_t sums = shared_address(shared), squares = sums + 2 * sums_bytes;
  const uint32_t held = squares + p.parts * vectors * number;

  words weights[pairs][2][Slices];
  uint32_t scales[scaled ? pairs : 1][2][Slices == 4 ? 2 : 1];
  auto from_tile = [&](uint32_t tile, uint32_t part_element) {
    const uint32_t row = first_row_of(p, tile, rows) + place.group * Rows + row_in_load;
    const uint32_t element = part_element + lane % lanes * per_load;
    /* A whole part is there to be read instead of one beyond the end, or else the first load. */
    const uint32_t instead = Cut == GEMV_EXACT ? lane % lanes * per_load : 0;
    pieces_of_row<piece_count> from;
#pragma unroll
    for (int s = 0; s < piece_count; s++) {
      const uint32_t at = element + slice * s;
      /* Beyond the end vectors are zero. A NaN of the row makes it NaN anyway, but zero times infinity must not. */
      const bool in_row = parts_fit || at < p.k;
      from.is_there[s] = in_row || !has_infinity;
      from.weights[s] = weights_from(p, row, (in_row ? at : instead) / per_load);
    }
    if constexpr (scaled) {
      const uint32_t block = part_element / 16 + lane % lanes * (2 * Slices);
      from.scales = weight_scales_from(p, row, parts_fit || block < p.k / 16 ? block : 0);
    }
    return from;
  };
  auto load_scales = [&](const pieces_of_row<piece_count> &from) {
    if constexpr (scaled) {
#pragma unroll
      for (int i = 0; i < pairs; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const unsigned char *at = offset(from.scales, (2 * i + h) * rows_of_load, p.weight_scale_strides.row);
          scales[i][h][0] = Slices == 1 ? load_scale_pair(at) : load_four_scales(at);
          if constexpr (Slices == 4) scales[i][h][1] = load_four_scales(at + p.weight_scale_strides.four);
        }
    }
  };
  auto load_items = [&](const pieces_of_row<piece_count> &from, int first, int end) {
#pragma unroll
    for (int i = first; i < end; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int s = i % Slices, pair = i / Slices, piece = s % piece_count;
        const unsigned char *at = offset(from.weights[piece], (2 * pair + h) * rows_of_load, p.weight_row);
        if (from.is_there[piece])
          weights[pair][h][s] = load_weights(at + (s - piece) * 16 * lanes);
        else
          weights[pair][h][s] = words();
      }
  };
  auto all_of = [&](int from, int to) {
    uint32_t all = 0;
#pragma unroll
    for (int i = from; i < to; i++)
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++) all ^= weights[i / Slices][h][i % Slices].word[j];
    return all;
  };

  auto load_tile = [&](uint32_t tile, uint32_t part_element) {
    const pieces_of_row<piece_count> from = from_tile(tile, part_element);
    load_scales(from);
    load_items(from, 0, items);
  };

  const uint32_t chunks = Cut == GEMV_CHUNKED ? p.chunks : 1;
  if (Cut == GEMV_CHUNKED) wait_and_may_start_one(p);
  uint32_t turn = 0;
#pragma unroll 1
  for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    const uint32_t part_element = ((chunk * Cluster + rank) * p.parts + place.part) * (Slices * slice);
    const uint32_t element = part_element + lane % lanes * per_load;
    const bool early = Cut != GEMV_CHUNKED && p.early & GEMV_READS_EARLY;
    pieces_of_row<piece_count> first = from_tile(first_tile, part_element);
    if constexpr (Cluster == 1) { /* others have not the registers */
#pragma unroll
      for (int s = 0; s < piece_count; s++) first.weights[s] = computed_now(first.weights[s]);
      if constexpr (scaled) first.scales = computed_now(first.scales);
    }
    if (early) {
      load_scales(first);
      load_items(first, 0, first_items);
      const uint32_t touched = Quads == 8 ? touch_norm<W, V, Slices, slice>(p, element) : 0;
      keep_early(p.always_zero, all_of(0, first_items) ^ touched);
    }
    if (Cut != GEMV_CHUNKED) wait_and_may_start_one(p);
    raw_vector<W, V, Slices> raw[Columns];
#pragma unroll
    for (int a = 0; a < (one_by_one ? 1 : Columns); a++)
      load_raw<W, V, Slices, slice>(p, row_in_load + 8 * a, element, raw[a]);
    [[maybe_unused]] float residual = 0;
    if constexpr (asks_ahead)
      if (p.finishing) residual = first_residual(p, tile_of(p, first_tile, rows), threadIdx.x / 32);
    if (!early) {
      KEEP_ORDER(p, 2);
      load_scales(first);
      load_items(first, 0, first_items);
    }
    if constexpr (Half) KEEP_LOADED(p, 3, all_of(0, first_items))

    uint32_t b[Columns][Slices][per_load / 2];
    float corrections[Columns][2];
    [[maybe_unused]] float whole_factor = p.scale;
#pragma unroll
    for (int a = 0; a < Columns; a++) {
      if (one_by_one && a) load_raw<W, V, Slices, slice>(p, row_in_load + 8 * a, element, raw[a]);
      if constexpr (V != RONDO_NVFP4)
        if (p.norm_epsilon > 0) {
          float sum = normalise<W, V, Slices, slice, (Quads == 8)>(p, element, raw[a]);
#pragma unroll
          for (int distance = 1; distance < lanes; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
          const uint32_t mine = squares + (place.part * vectors + row_in_load + 8 * a) * number;
          if (may_be_whole && has_whole_sums(p))
            whole_factor *= quick_rms_factor(p, sum);
          else if (lane % lanes == 0 && place.group == 0)
            store_shared(mine, chunk ? load_shared(mine) + sum : sum);
        }
      const float own = convert_vector<W, V, Slices, in_bf16>(raw[a], b[a]);
#pragma unroll
      for (int i = 0; i < 2; i++) /* of the result's columns 2 t and 2 t + 1 */
        corrections[a][i] = has_correction ? __shfl_sync(0xffffffffu, own, 8 * t + 4 * i) : own;
    }
    if constexpr (Half) {
      KEEP_ORDER(p, 4);
      load_items(first, first_items, items);
      KEEP_LOADED(p, 5, all_of(first_items, items))
    }

    [[maybe_unused]] row_of_lane ahead;
    [[maybe_unused]] whole_row whole;
    if constexpr (knows_ahead) {
      const tile_rows tile = tile_of(p, first_tile, rows);
      if (may_be_whole && has_whole_sums(p))
        whole = whole_row_of<Rows>(p, tile, place.group * Rows);
      else if (Quads == 8)
        ahead = row_of_this_lane(p, tile);
      else
        ahead = row_of_group<Rows>(p, tile, place);
    }
#pragma unroll 1
    for (uint32_t tile = first_tile;;) {
      [[maybe_unused]] float row_sums[Rows];
      const uint32_t met = sums + turn * sums_bytes;
      uint32_t mine = met + (place.part * vectors * pitch + place.group * Rows) * number;
      if constexpr (Cut == GEMV_SINGLE) { /* all of it before the products, in whose wake it would come last */
        mine += Quads == 1 ? (2 * t * pitch + g) * number : (t * pitch + g / Quads) * number;
        mine = computed_here(mine);
      }
#pragma unroll
      for (int pair = 0; pair < pairs; pair++) {
        float c[chains][Columns][4] = {};
        uint32_t turned[2][Slices];
        if constexpr (scaled)
#pragma unroll
          for (int h = 0; h < 2; h++) turn_scales<Slices, lanes>(scales[pair][h], turned[h]);
#pragma unroll
        for (int s = 0; s < Slices; s++) {
          if constexpr (Half)
            if (pair * Slices + s == first_items) KEEP_ORDER(p, 6);
          uint32_t scale[2] = {};
          if constexpr (scaled)
#pragma unroll
            for (int h = 0; h < 2; h++)
              scale[h] = in_bf16 ? block_scales_bf16(turned[h][s]) : bits_of(block_scales(turned[h][s]));
#pragma unroll
          for (int w = 0; w < per_load / 8; w++) {
            uint32_t a[2][4];
#pragma unroll
            for (int h = 0; h < 2; h++) decode_eight<W, in_bf16>(weights[pair][h][s], w, scale[h], a[h]);
#pragma unroll
            for (int n = 0; n < Columns; n++) {
              multiply_accumulate<in_bf16>(c[0][n], a[0], a[1], &b[n][s][4 * w]);
              multiply_accumulate<in_bf16>(c[chains - 1][n], a[0] + 2, a[1] + 2, &b[n][s][4 * w + 2]);
            }
          }
        }
        /* Row and vectors of what this lane keeps. */
        [[maybe_unused]] const uint32_t row = 2 * pair * rows_of_load + (Cut == GEMV_SINGLE ? 0 : g / Quads);
        [[maybe_unused]] const uint32_t column = Cut == GEMV_SINGLE ? 0 : t;
#pragma unroll
        for (int n = 0; n < Columns; n++)
#pragma unroll
          for (int h = 0; h < 2; h++) {
            float first = c[0][n][2 * h], second = c[0][n][2 * h + 1];
            if constexpr (chains == 2) first += c[1][n][2 * h], second += c[1][n][2 * h + 1];
            first *= corrections[n][0], second *= corrections[n][1];
            if constexpr (Quads == 1) {
              const uint32_t at = mine + ((8 * n + 2 * column) * pitch + row + 8 * h) * number;
              store_shared(at, first);
              store_shared(at + pitch * number, second);
            } else if constexpr (Quads == 2) {
              float sum = g % 2 ? second : first;
              sum += __shfl_xor_sync(0xffffffffu, sum, 4);
              if (g % 2 == 0) store_shared(mine + (column * pitch + row + h * rows_of_load) * number, sum);
            } else { /* the diagonal */
              row_sums[2 * pair + h] = t == g / 2 ? (g % 2 ? second : first) : 0.0f;
            }
          }
      }
      const tile_rows done = tile_of(p, tile, rows);
      const uint32_t next = tile + tile_step;
      const bool more = !has_one_tile && next < p.tiles;
      if constexpr (Quads == 8) {
        const float sum = sums_over_lanes<Rows>(row_sums);
        if (may_be_whole && has_whole_sums(p)) {
          if (more) load_tile(next, part_element);
          if (tile != first_tile) whole = whole_row_of<Rows>(p, done, place.group * Rows);
          finish_whole_row<Rows>(p, whole, sum * whole_factor);
          if (!more) break;
          tile = next;
          continue;
        }
        if (lane % (32 / Rows) == 0) store_shared(mine + lane / (32 / Rows) * number, sum);
      }
      const auto sum_of = [&](uint32_t vector, uint32_t row) {
        return sum_of_parts(met + (vector * pitch + row) * number, vectors * pitch * number, p.parts);
      };
      const auto factor_of = [&](uint32_t vector) {
        const float sum = sum_of_parts(squares + vector * number, vectors * number, p.parts);
        return Quads == 8 ? quick_rms_factor(p, sum) : rms_factor(p, sum);
      };
      if constexpr (Cluster > 1) {
        if (more) load_tile(next, part_element);
        __syncthreads();
        hold_rows(p, done, held + tile / tile_step * p.count * rows * number, sum_of);
      } else if constexpr (Cut != GEMV_CHUNKED) {
        if (more && !p.finishing) load_tile(next, part_element);
        __syncthreads();
        if (!p.finishing) {
          if (knows_ahead && ahead.is_all && (has_one_tile || tile == first_tile))
            finish_row<W == RONDO_E4M3, V != RONDO_NVFP4>(p, done, ahead, sum_of, factor_of);
          else if (Quads < 8)
            finish_group<Rows, W == RONDO_E4M3, V != RONDO_NVFP4>(p, done, place, sum_of, factor_of);
          else
            finish_rows<W == RONDO_E4M3, V != RONDO_NVFP4>(p, done, threadIdx.x, sum_of, factor_of);
        }
        /* The registers are needed for that: a block has one tile then. Asked for again, so that what few products need
         * does not lie between what all do. */
        if (computed_here(p.finishing)) {
          if constexpr (asks_ahead)
            finish_rows_fully(p, done, residual, sum_of, factor_of);
          else
            finish_rows_fully(p, done, sum_of, factor_of);
          break;
        }
      } else {
        __syncthreads();
        finish_chunk(p, done, chunk, held + tile / tile_step * p.count * rows * number, sum_of, factor_of);
        if (more) load_tile(next, part_element);
      }
      turn ^= 1;
      if (!more) break;
      tile = next;
    }
  }
  if constexpr (Cluster > 1)
    finish_cluster<Cluster>(p, {first_tile, tile_step, rank}, rows, held, squares, vectors, 1.0f);
}

/* Blocks of a multiprocessor. With three ptxas spills on sm_100a, where decoding takes other registers. */
#if __CUDA_ARCH__ >= 1000
#define BLOCKS(blocks) ((blocks) == 3 ? 2 : (blocks))
#else
#define BLOCKS(blocks) (blocks)
#endif

#define DEFINE_QUADS_KERNEL(chips, parameters, name, threads, blocks, W, V, quads, columns, rows, slices, half, cut)   \
  DEFINE_TILES_KERNEL(chips, parameters, name, threads, BLOCKS(blocks),                                                \
                      gemv_quads<W, V, quads, columns, rows, slices, half, cut, 1>)
#define DEFINE_CLUSTER_KERNEL(chips, parameters, name, threads, blocks, W, V, quads, columns, rows, slices, cluster)   \
  extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, BLOCKS(blocks))                \
      name(const __grid_constant__ parameters p) {                                                                     \
    may_start_all(p);                                                                                                  \
    gemv_quads<W, V, quads, columns, rows, slices, false, GEMV_EXACT, cluster>(p);                                     \
    publish(p.done);                                                                                                   \
  }

#endif
