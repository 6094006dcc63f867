/* gemv_integer.cu - one NVFP4 vector, NVFP4 weights: exact integer dot products of a block's 16 elements.
 *
 * When: on every chip, where head_codes and ring do not take the product (gemv_quads_plan.c). Bound like quads.
 *
 * Lane i of slice s owns elements 1024 s + 32 i .. + 31 of every row: 16 bytes of weights, two scales. A warp has Rows
 * rows of its part of k in registers at once, and its part of the vector. Tiles and halves of tiles are those of
 * gemv_quads.cuh. If a matrix fills the GPU once only and its weights are not early, the vector is loaded before the
 * weights. If it fills the GPU several times, the other order is faster. */
#include "gemv_addresses.cuh"
#include "gemv_dot.cuh"
#include "gemv_finish.cuh"
#include "gemv_quads.h"

/* Where a lane's pieces of a tile's first row lie. */
template <int Slices> struct slices_of_rows { const unsigned char *weights[Slices], *scales[Slices]; };

/* A warp's rows of a tile, as loaded. */
template <int Rows, int Slices, gemv_cut Cut> struct integer_rows {
  words weights[Rows][Slices];
  uint32_t scales[Rows][Slices];

  static DEVICE slices_of_rows<Slices> from_tile(const gemv_parameters &p, const warp_position &position, uint32_t tile,
                                                 uint32_t element) {
    const uint32_t row = first_row_of(p, tile, p.groups * Rows) + position.group * Rows;
    slices_of_rows<Slices> from;
    unrolled_for (int s = 0; s < Slices;
                  s++) { /* after the end vectors are zero; a NaN of the row makes the result NaN anyway */
      const uint32_t at = element + INTEGER_SLICE * s, in_row = Cut == GEMV_EXACT || at < p.k ? at : 0;
      from.weights[s] = weights_from(p, row, in_row / 32);
      from.scales[s] = weight_scales_from(p, row, in_row / 16);
    }
    return from;
  }
  DEVICE void load(const gemv_parameters &p, const slices_of_rows<Slices> &from, int first, int end) {
    unrolled_for (int s = 0; s < Slices; s++)
      unrolled_for (int r = first; r < end; r++)
        scales[r][s] = load_scale_pair(offset(from.scales[s], r, p.weight_scale_strides.row));
    unrolled_for (int s = 0; s < Slices; s++)
      unrolled_for (int r = first; r < end; r++) weights[r][s] = load_weights(offset(from.weights[s], r, p.weight_row));
  }
  /* Made of all that was loaded. */
  DEVICE uint32_t all_of(int from, int to) const {
    uint32_t all = 0;
    unrolled_for (int r = from; r < to; r++)
      unrolled_for (int s = 0; s < Slices; s++) {
        all ^= scales[r][s];
        unrolled_for (int i = 0; i < 4; i++) all ^= weights[r][s].word[i];
      }
    return all;
  }
};

/* Shared memory, of floats: sums [2][parts][rows] of a tile, two, so that one barrier a tile is enough; with chunks
 * held [tiles of a block][rows]. */
template <int Rows> struct integer_thread {
  static constexpr uint32_t number = sizeof(float);
  const warp_position position;
  const uint32_t lane, rows, sums_bytes, sums, held;

  DEVICE integer_thread(const gemv_parameters &p, const void *shared)
      : position(position_of_warp(p)), lane(threadIdx.x % 32), rows(p.groups * Rows),
        sums_bytes(p.parts * rows * number), sums(shared_address(shared)), held(sums + 2 * sums_bytes) {}
};

/* One chunk of k: the tiles of a block, of which the first is loaded. */
template <int Rows, int Slices, bool Half, gemv_cut Cut>
DEVICE void multiply_chunk(const gemv_parameters &p, const integer_thread<Rows> &at, uint32_t chunk, uint32_t element,
                           const integers<Slices> &vector, const tables &t, integer_rows<Rows, Slices, Cut> &loaded,
                           uint32_t &turn) {
  /* Whether there are registers to know where results go before the sums are. */
  constexpr bool knows_ahead = Half || Cut == GEMV_MASKED;
  constexpr uint32_t number = integer_thread<Rows>::number;
  [[maybe_unused]] row_of_lane ahead;
  if constexpr (knows_ahead) ahead = row_of_this_lane(p, tile_of(p, blockIdx.x, at.rows));
  rolled_for (uint32_t tile = blockIdx.x;;) {
    float of_rows[Rows];
    unrolled_for (int r = 0; r < Rows; r++) {
      if constexpr (Half) /* the first half is multiplied before the second is waited for */
        if (r == Rows / 2) KEEP_LOADED(p, 6, __float_as_uint(of_rows[0]) ^ __float_as_uint(of_rows[r - 1]))
      of_rows[r] = dot_of_row(loaded.weights[r], loaded.scales[r], vector, t);
    }
    const float sum = sums_over_lanes<Rows>(of_rows);
    const uint32_t met = at.sums + turn * at.sums_bytes;
    if (at.lane % (32 / Rows) == 0)
      store_number(met + (at.position.part * at.rows + at.position.group * Rows + at.lane / (32 / Rows)) * number, sum);
    const tile_rows done = tile_of(p, tile, at.rows);
    const auto sum_of = [&](uint32_t, uint32_t row) {
      return sum_of_parts(met + row * number, at.rows * number, p.parts);
    };
    const auto factor_of = [](uint32_t) { return 1.0f; };
    const uint32_t next = tile + gridDim.x;
    const bool more = !Half && next < p.tiles;
    if constexpr (Cut != GEMV_CHUNKED) {
      if (more && !p.finishing) loaded.load(p, loaded.from_tile(p, at.position, next, element), 0, Rows);
      __syncthreads();
      if (p.finishing) { /* the registers are needed for that: a block has one tile then */
        finish_rows_fully(p, done, sum_of, factor_of);
        break;
      }
      if (knows_ahead && ahead.is_all && (Half || tile == blockIdx.x))
        finish_row<false, false>(p, done, ahead, sum_of, factor_of);
      else
        finish_rows<false, false>(p, done, threadIdx.x, sum_of, factor_of);
    } else {
      __syncthreads();
      finish_chunk(p, done, chunk, at.held + tile / gridDim.x * at.rows * number, sum_of, factor_of);
      if (more) loaded.load(p, loaded.from_tile(p, at.position, next, element), 0, Rows);
    }
    turn ^= 1;
    if (!more) break;
    tile = next;
  }
}

template <int Rows, int Slices, bool Half, gemv_cut Cut> DEVICE void gemv_integer(const gemv_parameters &p) {
  using row_set = integer_rows<Rows, Slices, Cut>;
  constexpr int first_rows = Half ? Rows / 2 : Rows;
  extern __shared__ float shared[];
  const integer_thread<Rows> at(p, shared);
  row_set loaded;
  const tables t = load_tables();
  const uint32_t chunks = Cut == GEMV_CHUNKED ? p.chunks : 1;
  if (Cut == GEMV_CHUNKED) wait_and_may_start_one(p);
  uint32_t turn = 0;
  rolled_for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    const uint32_t element = (chunk * p.parts + at.position.part) * (Slices * INTEGER_SLICE) + at.lane * 32;
    const bool early = Cut != GEMV_CHUNKED && p.early & GEMV_READS_EARLY;
    slices_of_rows<Slices> first = row_set::from_tile(p, at.position, blockIdx.x, element);
    if constexpr (Half) /* used in three places, and computed once */
      unrolled_for (int s = 0; s < Slices; s++) {
        first.weights[s] = computed_now(first.weights[s]);
        first.scales[s] = computed_now(first.scales[s]);
      }
    if (early) {
      loaded.load(p, first, 0, first_rows);
      keep_early(p.always_zero, loaded.all_of(0, first_rows));
    }
    if (Cut != GEMV_CHUNKED) wait_and_may_start_one(p);
    if (!Half && !early) loaded.load(p, first, 0, Rows);
    raw_integers<Slices> raw;
    load_integers(p, element, raw);
    if (Half && !early) {
      KEEP_ORDER(p, 2);
      loaded.load(p, first, 0, first_rows);
    }
    if constexpr (Half) KEEP_LOADED(p, 3, loaded.all_of(0, first_rows))
    integers<Slices> vector;
    convert_integers(raw, vector);
    if constexpr (Half) {
      KEEP_ORDER(p, 4);
      loaded.load(p, first, first_rows, Rows);
      KEEP_LOADED(p, 5, loaded.all_of(first_rows, Rows))
    }
    multiply_chunk<Rows, Slices, Half, Cut>(p, at, chunk, element, vector, t, loaded, turn);
  }
}

#define DEFINE(chips, parameters, name, threads, blocks, rows, slices, half, cut)                                      \
  DEFINE_TILES_KERNEL(chips, parameters, name, threads, blocks, gemv_integer<rows, slices, half, cut>)
GEMV_INTEGER_KERNELS(DEFINE)
