/* gemv_quads.cuh - 1 to 16 vectors on tensor cores, weights and vectors both straight to registers.
 *
 * When: where no other design is faster, on every chip (gemv_quads_plan.c). In one wave, bound by the launch, the first
 * bytes and the last barrier; with NVFP4 weights also by decoding.
 *
 * mma.m16n8k16 multiplies A (16 x 16) with B (16 x 8). Quad q of a warp holds rows q and q + 8 of A, and column q of B.
 * `Quads` quads share a row of weights and lie along k, so 4 x Quads lanes read 64 x Quads consecutive bytes. "Row q"
 * of A is quad q's piece of its row. "Column q" of B is the same piece (q % Quads) of vector q / Quads. A product
 * counts where both pieces are the same: 8 quads a row serve one vector (the diagonal), 2 serve four, and 1 serves
 * eight or, with two operands B, sixteen. The work is always the same, and nothing is shuffled: the order of k inside a
 * piece is free as long as weights and vectors share it.
 *
 * A tile has `Rows` rows of each of the block's groups. Blocks take tiles gridDim.x apart. There is a block for each
 * tile, or as many blocks as fit; these load their next tile as soon as they have multiplied one. If the matrix fills
 * the GPU once only (`Half`), half of a tile is loaded before the vectors are converted, and half after. If all of it
 * were loaded at once, it would arrive at once, and nothing would hide the arithmetic. */
#pragma once

#include "../common/launch.cuh"
#include "gemv_clusters.cuh"
#include "gemv_finish.cuh"
#include "gemv_quads.h"
#include "gemv_rows.cuh"
#include "gemv_vectors.cuh"

/* ---- A kernel's constants --------------------------------------------------------------------------------------- */

template <rondo_dtype WeightType, rondo_dtype VectorType, int QuadsOfRow, int ColumnsOfB, int RowsOfWarp,
          int SlicesOfPart, bool InHalves, gemv_cut CutOfK, int ClusterBlocks, bool MayHaveRanks = false>
struct quads_shape {
  static constexpr rondo_dtype W = WeightType, V = VectorType;
  static constexpr int Quads = QuadsOfRow, Columns = ColumnsOfB, Rows = RowsOfWarp, Slices = SlicesOfPart;
  static constexpr bool Half = InHalves;
  static constexpr gemv_cut Cut = CutOfK;
  static constexpr int Cluster = ClusterBlocks;
  static constexpr bool may_have_ranks = MayHaveRanks; /* the parameters are gemv_rows_parameters */

  static constexpr int per_load = elements_per_load<W>, lanes = 4 * Quads, slice = lanes * per_load;
  static constexpr int rows_of_load = 8 / Quads, pairs = Rows / (2 * rows_of_load), vectors = rows_of_load * Columns;
  static_assert(pairs >= 1 && pairs * 2 * rows_of_load == Rows && (Columns == 1 || Quads == 1), "");
  static_assert(Quads == 1 || Quads == 2 || Quads == 8, "");
  /* The tensor cores multiply bf16 if vectors and weights are bf16. Beside weights of 4 or 8 bits, bf16 vectors become
   * f16, except in warps with two rows, where that would be most of the work. Those have a kernel for each type. */
  static constexpr bool has_two_types = W == GEMV_16_BITS;
  static constexpr bool converts = V == RONDO_NVFP4 || (V == GEMV_16_BITS && !has_two_types);
  /* Two chains of products where there are no others to hide their latency. */
  static constexpr int chains =
      pairs == 1 && Columns == 1 && Cut != GEMV_CHUNKED && (Quads == 8 || W != RONDO_NVFP4) ? 2 : 1;
  static constexpr bool has_infinity = W == GEMV_16_BITS || W == RONDO_F16 || W == RONDO_BF16;
  static constexpr bool scaled = W == RONDO_NVFP4;
  static constexpr bool has_correction = converts && V == GEMV_16_BITS;
  /* An item: a pair of rows, one slice. */
  static constexpr int items = pairs * Slices, first_items = Half ? items / 2 : items;
  /* Sixteen raw vectors at once do not fit into the registers. */
  static constexpr bool one_by_one = Columns == 2 && scaled && has_correction;
  /* A part is whole, and within k; or, without infinities, whole or beyond the end. Then one address is enough. */
  static constexpr bool parts_fit = Cut == GEMV_EXACT && Cluster == 1;
  static constexpr int piece_count = parts_fit || (Cut == GEMV_EXACT && !has_infinity) ? 1 : Slices;
  /* Whether there are registers to know where results go before the sums are there. */
  static constexpr bool knows_ahead = Half || Cut == GEMV_MASKED || Cut == GEMV_SINGLE;
  static constexpr bool has_one_tile = Half || Cut == GEMV_SINGLE;
  static_assert(Cut != GEMV_SINGLE || Quads == 2, "keep_sums");
  /* Sums may be whole in a warp, and are finished there. */
  static constexpr bool may_be_whole = Quads == 8 && pairs == 1 && knows_ahead && W != RONDO_E4M3;
  /* What is added to results is asked for beside the vectors: kernels of few instructions lose what it costs. */
  static constexpr bool asks_ahead = Quads == 8 && Cut == GEMV_EXACT && Cluster == 1;
  static constexpr uint32_t number = sizeof(float);
};

/* ---- A thread ---------------------------------------------------------------------------------------------------- */

/* Shared memory, of floats:
 *   sums     [2][parts][vectors][pitch]   of a tile; two, so that one barrier a tile is enough
 *   squares  [parts][vectors]             with RMS norm
 *   held     [tiles of a block][count][tile rows]  with several chunks of k: the sums of those before
 * (gemv_quads_plan.c says how much). */
template <typename S> struct quads_thread {
  const warp_position position;
  const uint32_t rank, first_tile, tile_step;
  const uint32_t lane, g, t, row_in_load;
  const uint32_t rows, pitch, sums_bytes, sums, squares, held;

  DEVICE quads_thread(const gemv_parameters &p, const void *shared)
      : position(position_of_warp(p)), rank(blockIdx.x % S::Cluster), first_tile(blockIdx.x / S::Cluster),
        tile_step(gridDim.x / S::Cluster), lane(threadIdx.x % 32), g(lane / 4), t(lane % 4),
        row_in_load(lane / S::lanes), rows(p.groups * S::Rows), pitch(rows + GEMV_PITCH_PADDING),
        sums_bytes(p.parts * S::vectors * pitch * S::number), sums(shared_address(shared)),
        squares(sums + 2 * sums_bytes), held(squares + p.parts * S::vectors * S::number) {}
  /* The first element of the warp's part of a chunk. */
  DEVICE uint32_t part_element(const gemv_parameters &p, uint32_t chunk) const {
    return ((chunk * S::Cluster + rank) * p.parts + position.part) * (S::Slices * S::slice);
  }
  DEVICE uint32_t held_of(const gemv_parameters &p, uint32_t tile) const {
    return held + tile / tile_step * p.count * rows * S::number;
  }
  /* Where the lane leaves its sums of a tile; the sums of all lanes begin at `met`. */
  DEVICE uint32_t own_sums(uint32_t met) const {
    const uint32_t mine = met + (position.part * S::vectors * pitch + position.group * S::Rows) * S::number;
    if constexpr (S::Cut == GEMV_SINGLE) /* all of it before the products, after which it would take time */
      return computed_here(mine + (t * pitch + g / S::Quads) * S::number);
    return mine;
  }
  DEVICE float sum_of(const gemv_parameters &p, uint32_t met, uint32_t vector, uint32_t row) const {
    return sum_of_parts(met + (vector * pitch + row) * S::number, S::vectors * pitch * S::number, p.parts);
  }
  DEVICE float factor_of(const gemv_parameters &p, uint32_t vector) const {
    const float sum = sum_of_parts(squares + vector * S::number, S::vectors * S::number, p.parts);
    return S::Quads == 8 ? quick_rms_factor(p, sum) : rms_factor(p, sum);
  }
};

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* Where a lane's pieces of a tile's first row lie: of all slices, or of the first where they follow each other. */
template <int Count> struct pieces_of_row {
  const unsigned char *weights[Count], *scales;
  bool is_there[Count];
};

/* A warp's rows of a tile, as loaded. */
template <typename S> struct quads_weights {
  using pieces = pieces_of_row<S::piece_count>;
  words weights[S::pairs][2][S::Slices];
  uint32_t scales[S::scaled ? S::pairs : 1][2][S::Slices == 4 ? 2 : 1];

  static DEVICE pieces from_tile(const gemv_parameters &p, const quads_thread<S> &at, uint32_t tile,
                                 uint32_t part_element) {
    const uint32_t row = first_row_of(p, tile, at.rows) + at.position.group * S::Rows + at.row_in_load;
    const uint32_t element = part_element + at.lane % S::lanes * S::per_load;
    /* A whole part is there to be read instead of one beyond the end, or else the first load. */
    const uint32_t instead = S::Cut == GEMV_EXACT ? at.lane % S::lanes * S::per_load : 0;
    pieces from;
    unrolled_for (int s = 0; s < S::piece_count; s++) {
      const uint32_t here = element + S::slice * s;
      /* Beyond the end vectors are zero. A NaN of the row makes it NaN anyway, but zero times infinity must not. */
      const bool in_row = S::parts_fit || here < p.k;
      from.is_there[s] = in_row || !S::has_infinity;
      from.weights[s] = weights_from(p, row, (in_row ? here : instead) / S::per_load);
    }
    if constexpr (S::scaled) {
      const uint32_t block = part_element / 16 + at.lane % S::lanes * (2 * S::Slices);
      from.scales = weight_scales_from(p, row, S::parts_fit || block < p.k / 16 ? block : 0);
    }
    return from;
  }
  DEVICE void load_scales(const gemv_parameters &p, const pieces &from) {
    if constexpr (S::scaled) {
      unrolled_for (int i = 0; i < S::pairs; i++)
        unrolled_for (int h = 0; h < 2; h++) {
          const unsigned char *at = offset(from.scales, (2 * i + h) * S::rows_of_load, p.weight_scale_strides.row);
          scales[i][h][0] = S::Slices == 1 ? load_scale_pair(at) : load_four_scales(at);
          if constexpr (S::Slices == 4) scales[i][h][1] = load_four_scales(at + p.weight_scale_strides.four);
        }
    }
  }
  DEVICE void load_items(const gemv_parameters &p, const pieces &from, int first, int end) {
    unrolled_for (int i = first; i < end; i++)
      unrolled_for (int h = 0; h < 2; h++) {
        const int s = i % S::Slices, pair = i / S::Slices, piece = s % S::piece_count;
        const unsigned char *at = offset(from.weights[piece], (2 * pair + h) * S::rows_of_load, p.weight_row);
        if (from.is_there[piece])
          weights[pair][h][s] = load_weights(at + (s - piece) * 16 * S::lanes);
        else
          weights[pair][h][s] = words();
      }
  }
  DEVICE void load_tile(const gemv_parameters &p, const quads_thread<S> &at, uint32_t tile, uint32_t part_element) {
    const pieces from = from_tile(p, at, tile, part_element);
    load_scales(p, from);
    load_items(p, from, 0, S::items);
  }
  /* Made of all that was loaded. */
  DEVICE uint32_t all_of(int from, int to) const {
    uint32_t all = 0;
    unrolled_for (int i = from; i < to; i++)
      unrolled_for (int h = 0; h < 2; h++)
        unrolled_for (int j = 0; j < 4; j++) all ^= weights[i / S::Slices][h][i % S::Slices].word[j];
    return all;
  }
};

/* ---- Vectors ----------------------------------------------------------------------------------------------------- */

/* A lane's part of the vectors, as loaded. */
template <typename S> struct raw_vectors { raw_vector<S::W, S::V, S::Slices> of[S::Columns]; };

/* A lane's part of the vectors as operand B, in bf16 or f16, and the factors of the result's columns 2 t and 2 t + 1.
 */
template <typename S, bool Bf16> struct quads_vectors {
  using raw = raw_vector<S::W, S::V, S::Slices>;
  uint32_t b[S::Columns][S::Slices][S::per_load / 2];
  float corrections[S::Columns][2];
  float whole_factor; /* of sums that are whole in a warp */

  static DEVICE void load(const gemv_parameters &p, const quads_thread<S> &at, int column, uint32_t element, raw &to) {
    load_raw<S::W, S::V, S::Slices, S::slice>(p, at.row_in_load + 8 * column, element, to);
  }
  /* RMS norm; the squares go to shared memory, or into the factor. */
  DEVICE void normalise_column(const gemv_parameters &p, const quads_thread<S> &at, int column, uint32_t element,
                               uint32_t chunk, raw &of) {
    constexpr rondo_dtype type = Bf16 ? RONDO_BF16 : RONDO_F16;
    float sum;
    if constexpr (!S::converts)
      sum = normalise_words<type, S::slice, S::Quads == 8>(p, element, of.loaded);
    else
      sum = normalise<S::Quads == 8, S::slice>(p, element, of);
    unrolled_for (int distance = 1; distance < S::lanes; distance *= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    const uint32_t mine = at.squares + (at.position.part * S::vectors + at.row_in_load + 8 * column) * S::number;
    if (S::may_be_whole && has_whole_sums(p))
      whole_factor *= quick_rms_factor(p, sum);
    else if (at.lane % S::lanes == 0 && at.position.group == 0)
      store_number(mine, chunk ? load_number(mine) + sum : sum);
  }
  DEVICE void convert(const gemv_parameters &p, const quads_thread<S> &at, uint32_t element, uint32_t chunk,
                      raw (&loaded)[S::Columns]) {
    whole_factor = p.scale;
    unrolled_for (int a = 0; a < S::Columns; a++) {
      if (S::one_by_one && a) load(p, at, a, element, loaded[a]);
      if constexpr (S::V != RONDO_NVFP4)
        if (p.norm_epsilon > 0) normalise_column(p, at, a, element, chunk, loaded[a]);
      float own = Bf16 && S::scaled ? 1 / nvfp4_factor_bf16 : S::scaled ? 1 / nvfp4_factor : 1;
      if constexpr (S::converts)
        own = convert_vector<S::W, S::V, S::Slices>(p, loaded[a], b[a]);
      else
        reorder<S::W, Bf16>(loaded[a].loaded, b[a]);
      unrolled_for (int i = 0; i < 2; i++)
        corrections[a][i] = S::has_correction ? __shfl_sync(0xffffffffu, own, 8 * at.t + 4 * i) : own;
    }
  }
};

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* One slice of a pair of rows, added to c. */
template <typename S, bool Bf16>
DEVICE void multiply_slice(const words (&weights)[2][S::Slices], const uint32_t (&turned)[2][S::Slices],
                           const quads_vectors<S, Bf16> &x, int s, float (&c)[S::chains][S::Columns][4]) {
  uint32_t scale[2] = {};
  if constexpr (S::scaled)
    unrolled_for (int h = 0; h < 2; h++)
      scale[h] = Bf16 ? block_scales_bf16(turned[h][s]) : bits_of(block_scales(turned[h][s]));
  unrolled_for (int w = 0; w < S::per_load / 8; w++) {
    uint32_t a[2][4];
    unrolled_for (int h = 0; h < 2; h++) decode_eight<S::W, Bf16>(weights[h][s], w, scale[h], a[h]);
    unrolled_for (int n = 0; n < S::Columns; n++) {
      multiply_accumulate<Bf16>(c[0][n], a[0], a[1], &x.b[n][s][4 * w]);
      multiply_accumulate<Bf16>(c[S::chains - 1][n], a[0] + 2, a[1] + 2, &x.b[n][s][4 * w + 2]);
    }
  }
}

/* The sums of a pair of rows: to shared memory, from `mine` on, or with eight quads a row, the diagonal, to row_sums.
 */
template <typename S, bool Bf16>
DEVICE void keep_sums(const quads_thread<S> &at, const quads_vectors<S, Bf16> &x, int pair, uint32_t mine,
                      const float (&c)[S::chains][S::Columns][4], float (&row_sums)[S::Rows]) {
  /* Row and vectors of what this lane keeps. */
  [[maybe_unused]] const uint32_t row = 2 * pair * S::rows_of_load + (S::Cut == GEMV_SINGLE ? 0 : at.g / S::Quads);
  [[maybe_unused]] const uint32_t column = S::Cut == GEMV_SINGLE ? 0 : at.t;
  unrolled_for (int n = 0; n < S::Columns; n++)
    unrolled_for (int h = 0; h < 2; h++) {
      float first = c[0][n][2 * h], second = c[0][n][2 * h + 1];
      if constexpr (S::chains == 2) first += c[1][n][2 * h], second += c[1][n][2 * h + 1];
      first *= x.corrections[n][0], second *= x.corrections[n][1];
      if constexpr (S::Quads == 1) {
        const uint32_t to = mine + ((8 * n + 2 * column) * at.pitch + row + 8 * h) * S::number;
        store_number(to, first);
        store_number(to + at.pitch * S::number, second);
      } else if constexpr (S::Quads == 2) {
        float sum = at.g % 2 ? second : first;
        sum += __shfl_xor_sync(0xffffffffu, sum, 4);
        if (at.g % 2 == 0) store_number(mine + (column * at.pitch + row + h * S::rows_of_load) * S::number, sum);
      } else {
        row_sums[2 * pair + h] = at.t == at.g / 2 ? (at.g % 2 ? second : first) : 0.0f;
      }
    }
}

/* A tile's products: sums go to shared memory, or to row_sums, as keep_sums says. */
template <typename S, bool Bf16>
DEVICE void multiply_tile(const gemv_parameters &p, const quads_thread<S> &at, const quads_weights<S> &weights,
                          const quads_vectors<S, Bf16> &x, uint32_t mine, float (&row_sums)[S::Rows]) {
  unrolled_for (int pair = 0; pair < S::pairs; pair++) {
    float c[S::chains][S::Columns][4] = {};
    uint32_t turned[2][S::Slices];
    if constexpr (S::scaled)
      unrolled_for (int h = 0; h < 2; h++) turn_scales<S::Slices, S::lanes>(weights.scales[pair][h], turned[h]);
    unrolled_for (int s = 0; s < S::Slices; s++) {
      if constexpr (S::Half)
        if (pair * S::Slices + s == S::first_items) KEEP_ORDER(p, 6);
      multiply_slice(weights.weights[pair], turned, x, s, c);
    }
    keep_sums(at, x, pair, mine, c, row_sums);
  }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Where results go, known before the sums are. */
template <typename S> struct results_ahead {
  [[maybe_unused]] row_of_lane row;
  [[maybe_unused]] whole_row whole;

  DEVICE results_ahead(const gemv_parameters &p, const quads_thread<S> &at) {
    if (!S::knows_ahead) return;
    const tile_rows tile = tile_of(p, at.first_tile, at.rows);
    if (S::may_be_whole && has_whole_sums(p))
      whole = whole_row_of<S::Rows>(p, tile, at.position.group * S::Rows);
    else if (S::Quads == 8)
      row = row_of_this_lane(p, tile);
    else
      row = row_of_group<S::Rows>(p, tile, at.position);
  }
};

/* The results of a tile, without an epilogue. */
template <typename S, typename Sum, typename Factor>
DEVICE void finish_tile(const gemv_parameters &p, const quads_thread<S> &at, uint32_t tile, const tile_rows &done,
                        const results_ahead<S> &ahead, const Sum &sum_of, const Factor &factor_of) {
  constexpr bool may_have_scales = S::W == RONDO_E4M3, may_have_norm = S::V != RONDO_NVFP4;
  if (S::knows_ahead && ahead.row.is_all && (S::has_one_tile || tile == at.first_tile))
    finish_row<may_have_scales, may_have_norm>(p, done, ahead.row, sum_of, factor_of);
  else if (S::Quads < 8)
    finish_group<S::Rows, may_have_scales, may_have_norm>(p, done, at.position, sum_of, factor_of);
  else
    finish_rows<may_have_scales, may_have_norm>(p, done, threadIdx.x, sum_of, factor_of);
}

/* With an epilogue. */
template <typename S, typename Sum, typename Factor>
DEVICE void finish_tile_fully(const gemv_parameters &p, const tile_rows &done, float asked, const Sum &sum_of,
                              const Factor &factor_of) {
  if constexpr (S::asks_ahead)
    finish_rows_fully(p, done, asked, sum_of, factor_of);
  else
    finish_rows_fully(p, done, sum_of, factor_of);
}

/* ---- A chunk ----------------------------------------------------------------------------------------------------- */

/* One chunk of k: the tiles of a block, of which the first is loaded. OverRanks: results go to all ranks. */
template <typename S, bool Bf16, bool OverRanks>
DEVICE void multiply_chunk(const gemv_parameters &p, const quads_thread<S> &at, uint32_t chunk,
                           const typename quads_weights<S>::pieces &first, float asked, quads_weights<S> &weights,
                           raw_vectors<S> &raw, uint32_t &turn) {
  const uint32_t part_element = at.part_element(p, chunk);
  quads_vectors<S, Bf16> x;
  x.convert(p, at, part_element + at.lane % S::lanes * S::per_load, chunk, raw.of);
  if constexpr (S::Half) {
    KEEP_ORDER(p, 4);
    weights.load_items(p, first, S::first_items, S::items);
    KEEP_LOADED(p, 5, weights.all_of(S::first_items, S::items))
  }
  results_ahead<S> ahead(p, at);
  rolled_for (uint32_t tile = at.first_tile, next;; tile = next) {
    [[maybe_unused]] float row_sums[S::Rows];
    const uint32_t met = at.sums + turn * at.sums_bytes, mine = at.own_sums(met);
    multiply_tile(p, at, weights, x, mine, row_sums);
    const tile_rows done = tile_of(p, tile, at.rows);
    next = tile + (OverRanks ? blocks_of_tiles(p) : at.tile_step);
    const bool more = !S::has_one_tile && next < p.tiles;
    if constexpr (S::Quads == 8) {
      const float sum = sums_over_lanes<S::Rows>(row_sums);
      if (S::may_be_whole && has_whole_sums(p)) {
        if (more) weights.load_tile(p, at, next, part_element);
        if (tile != at.first_tile) ahead.whole = whole_row_of<S::Rows>(p, done, at.position.group * S::Rows);
        finish_whole_row<S::Rows>(p, ahead.whole, sum * x.whole_factor);
        if (!more) break;
        continue;
      }
      if (at.lane % (32 / S::Rows) == 0) store_number(mine + at.lane / (32 / S::Rows) * S::number, sum);
    }
    const auto sum_of = [&](uint32_t vector, uint32_t row) { return at.sum_of(p, met, vector, row); };
    const auto factor_of = [&](uint32_t vector) { return at.factor_of(p, vector); };
    if constexpr (S::Cluster > 1) {
      if (more) weights.load_tile(p, at, next, part_element);
      __syncthreads();
      hold_rows(p, done, at.held_of(p, tile), sum_of);
    } else if constexpr (S::Cut != GEMV_CHUNKED) {
      if (more && !p.finishing) weights.load_tile(p, at, next, part_element);
      [[maybe_unused]] float asked_next = 0;
      if constexpr (OverRanks) asked_next = more ? count_before_tile(p, next * at.rows) : 0;
      __syncthreads();
      if constexpr (OverRanks)
        send_tile(p, done, asked, sum_of, factor_of), asked = asked_next;
      else if (!p.finishing)
        finish_tile<S>(p, at, tile, done, ahead, sum_of, factor_of);
      /* The registers are needed for that: a block has one tile then. Asked for again, so that what few products need
       * does not lie between what all do. */
      if (computed_here(p.finishing)) return finish_tile_fully<S>(p, done, asked, sum_of, factor_of);
    } else {
      __syncthreads();
      finish_chunk(p, done, chunk, at.held_of(p, tile), sum_of, factor_of);
      if (more) weights.load_tile(p, at, next, part_element);
    }
    turn ^= 1;
    if (!more) break;
  }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

template <typename S> DEVICE void gemv_quads(const gemv_parameters &p) {
  extern __shared__ float shared[];
  const quads_thread<S> at(p, shared);
  quads_weights<S> weights;
  const uint32_t chunks = S::Cut == GEMV_CHUNKED ? p.chunks : 1;
  if (S::Cut == GEMV_CHUNKED) wait_and_may_start_one(p);
  uint32_t turn = 0;
  rolled_for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    const uint32_t part_element = at.part_element(p, chunk);
    const uint32_t element = part_element + at.lane % S::lanes * S::per_load;
    const bool has_tiles = !S::may_have_ranks || !adds_up(p);
    const bool early = S::Cut != GEMV_CHUNKED && p.early & GEMV_READS_EARLY && has_tiles;
    auto first = quads_weights<S>::from_tile(p, at, at.first_tile, part_element);
    if constexpr (S::Cluster == 1) { /* others have not the registers */
      unrolled_for (int s = 0; s < S::piece_count; s++) first.weights[s] = computed_now(first.weights[s]);
      if constexpr (S::scaled) first.scales = computed_now(first.scales);
    }
    if (early) {
      weights.load_scales(p, first);
      weights.load_items(p, first, 0, S::first_items);
      const uint32_t touched = S::Quads == 8 ? touch_norm<S::W, S::V, S::Slices, S::slice>(p, element) : 0;
      keep_early(p.always_zero, weights.all_of(0, S::first_items) ^ touched);
    }
    if (S::Cut != GEMV_CHUNKED) wait_and_may_start_one(p);
    if constexpr (S::may_have_ranks)
      if (!has_tiles) return add_up_rows(p);
    raw_vectors<S> raw;
    unrolled_for (int a = 0; a < (S::one_by_one ? 1 : S::Columns); a++)
      quads_vectors<S, false>::load(p, at, a, element, raw.of[a]);
    [[maybe_unused]] float asked = 0; /* what the end of the tile needs of memory */
    if constexpr (S::asks_ahead)
      if (p.finishing) asked = first_residual(p, tile_of(p, at.first_tile, at.rows), threadIdx.x / 32);
    if constexpr (S::may_have_ranks)
      if (is_over_ranks(p)) asked = count_before_tile(p, at.first_tile * at.rows);
    if (!early) {
      KEEP_ORDER(p, 2);
      weights.load_scales(p, first);
      weights.load_items(p, first, 0, S::first_items);
    }
    if constexpr (S::Half) KEEP_LOADED(p, 3, weights.all_of(0, S::first_items))
    if (S::may_have_ranks && is_over_ranks(p)) {
      if constexpr (S::may_have_ranks) {
        if (p.vector_dtype == RONDO_BF16)
          multiply_chunk<S, true, true>(p, at, chunk, first, asked, weights, raw, turn);
        else
          multiply_chunk<S, false, true>(p, at, chunk, first, asked, weights, raw, turn);
      }
    } else if constexpr (!S::has_two_types)
      multiply_chunk<S, S::V == RONDO_BF16, false>(p, at, chunk, first, asked, weights, raw, turn);
    else if (p.vector_dtype == RONDO_BF16)
      multiply_chunk<S, true, false>(p, at, chunk, first, asked, weights, raw, turn);
    else
      multiply_chunk<S, false, false>(p, at, chunk, first, asked, weights, raw, turn);
  }
  if constexpr (S::Cluster > 1)
    finish_cluster<S::Cluster>(p, {at.first_tile, at.tile_step, at.rank}, at.rows, at.held, at.squares, S::vectors,
                               1.0f);
}

/* Blocks of a multiprocessor. With three ptxas spills on sm_100a, where decoding takes other registers. */
#if __CUDA_ARCH__ >= 1000
#define BLOCKS(blocks) ((blocks) == 3 ? 2 : (blocks))
#else
#define BLOCKS(blocks) (blocks)
#endif

#define DEFINE_QUADS_KERNEL(chips, parameters, name, threads, blocks, W, V, quads, columns, rows, slices, half, cut)   \
  DEFINE_TILES_KERNEL(chips, parameters, name, threads, BLOCKS(blocks),                                                \
                      gemv_quads<quads_shape<W, V, quads, columns, rows, slices, half, cut, 1>>)
#define DEFINE_ROWS_KERNEL(chips, parameters, name, threads, blocks, W, V, quads, columns, rows, slices, half, cut)    \
  DEFINE_TILES_KERNEL(chips, parameters, name, threads, BLOCKS(blocks),                                                \
                      gemv_quads<quads_shape<W, V, quads, columns, rows, slices, half, cut, 1, true>>)
#define DEFINE_QUADS_CLUSTER(chips, parameters, name, threads, blocks, W, V, quads, columns, rows, slices, cluster)    \
  DEFINE_CLUSTER_KERNEL(may_start_all(p), cluster, parameters, name, threads, BLOCKS(blocks),                          \
                        gemv_quads<quads_shape<W, V, quads, columns, rows, slices, false, GEMV_EXACT, cluster>>)
