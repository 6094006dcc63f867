/* gemv_stream.cu - 1 to 16 vectors with large NVFP4 matrices: each warp streams its weights through a ring of its own.
 *
 * When: see gemv_stream_plan.c. Bound by issue slots: a piece of 16 x 256 weights with sixteen vectors takes some 400
 * instructions, of which 290 decode and multiply.
 *
 * The product is that of gemv_quads.cuh with one quad a row and operand B in registers. The weights come through
 * shared memory: a warp asks with cp.async for its next pieces, `Stages` - 1 tiles ahead. Bytes in flight cost no
 * registers and do not wait for arithmetic. A warp reads only what it asked for itself. So there is no producer and no
 * barrier with one: a warp waits for its own copies, and then for __syncwarp.
 *
 * A piece is 16 rows of the warp's part of k, and lies in shared memory row by row. A lane has 32 x Slices elements of
 * a row, one after the other, so one load brings its scales. Chunks of 16 bytes are exchanged within groups of
 * `Slices`, so that eight lanes find theirs in different banks. The order of k is free, as long as operand B has the
 * same.
 *
 * The parts' sums of a tile meet while the next tile is multiplied. A warp that has its sums arrives at a barrier, goes
 * on, and waits only when it has the sums of the next tile. So a warp waits for another only if that is a whole tile
 * late. Warps take turns in adding the parts' sums, two vectors each.
 *
 * Sixteen bits a number become operand B by as many instructions as half of a piece takes. Of two groups, two warps
 * have the same part of k. So each converts an operand, for both. Of up to four vectors each lane converts half as
 * much.
 *
 * Clusters split k where it is too long for the vectors of one block, or where one block cannot finish results: in
 * NVFP4, or beside NVFP4 vectors, whose kernels an epilogue would slow down. A block then takes its tiles once for each
 * chunk of k, and the ring goes on while vectors are converted. Shared memory keeps the sums of all tiles; those of the
 * cluster's blocks meet once, at the end. All sums have a fixed order. */
#include "gemv_stream_vectors.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* ---- Products --------------------------------------------------------------------------------------------------- */

/* A piece in a stage of the warp's ring; this lane's first chunk is at `chunk`. */
template <typename S>
DEVICE void multiply_piece(const stream_thread<S> &at, uint32_t stage, uint32_t chunk, const stream_vectors<S> &x,
                           float (&c)[S::Columns][4]) {
  uint32_t scales[2][S::Slices];
  unrolled_for (int h = 0; h < 2; h++)
    load_scales_of_lane<S::Slices>(stage + at.lane * (2 * S::Slices) + (S::Piece::weight_bytes + h * (64 * S::Slices)),
                                   scales[h]);
  unrolled_for (int s = 0; s < S::Slices; s++) {
    words loaded[2];
    uint32_t scale[2];
    unrolled_for (int h = 0; h < 2; h++) {
      loaded[h] = load_shared_words((chunk ^ s * 16) + h * (512 * S::Slices));
      scale[h] = bits_of(block_scales(scales[h][s]));
    }
    unrolled_for (int w = 0; w < 4; w++) {
      uint32_t a[2][4];
      unrolled_for (int h = 0; h < 2; h++) decode_eight<S::W, false>(loaded[h], w, scale[h], a[h]);
      unrolled_for (int n = 0; n < S::Columns; n++) {
        multiply_accumulate<false>(c[n], a[0], a[1], &x.b[n][s][4 * w]);
        multiply_accumulate<false>(c[n], a[0] + 2, a[1] + 2, &x.b[n][s][4 * w + 2]);
      }
    }
  }
}

/* This lane's vectors 2 t and 2 t + 1, rows g and g + 8, to the warp's slot. */
template <typename S>
DEVICE void store_sums(const stream_thread<S> &at, uint32_t to, stream_vectors<S> &x, float (&c)[S::Columns][4]) {
  unrolled_for (int n = 0; n < S::Columns; n++) {
    if constexpr (S::keeps_corrections) {
      const float2 both = load_shared_two(at.kept_of(8 * n + 2 * at.t));
      x.corrections[0] = both.x, x.corrections[1] = both.y;
    }
    if constexpr (S::has_correction)
      unrolled_for (int i = 0; i < 4; i++) c[n][i] *= x.corrections[i % 2];
    store_four_numbers(to ^ n * 64, make_float4(c[n][0], c[n][1], c[n][2], c[n][3]));
  }
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

/* The sums of the tile before, which meet while a tile is multiplied. A warp adds up a pair of vectors in a group's
 * rows, and then the pair `warps` pairs further. Warps without a pair wait too: no warp arrives for a tile before it
 * has seen the sums of the one before, so each sees every phase of the barrier, and two buffers of sums suffice. */
template <typename S> struct stream_results {
  using Sums = typename S::Sums;
  const uint32_t pairs, turns, others;
  uint32_t turn, parity;

  static DEVICE uint32_t others_of(const stream_thread<S> &at) {
    return at.sums + at.lane / 16 * Sums::slot_bytes + Sums::offset_of(at.lane % 8) + (at.lane & 8);
  }
  DEVICE stream_results(const gemv_stream_parameters &p, const stream_thread<S> &at)
      : pairs((p.count + 1) / 2), turns(S::has_few_registers ? p.groups * pairs : known_ahead(p.groups * pairs)),
        others(others_of(at)), turn(at.warp), parity(0) {}
  /* The parts' sums of two vectors, from each lane's half of the parts, in this lane's row: the lower half of the warp
   * gets the first vector's whole sum, the upper half the second's. */
  static DEVICE float sum_of_pair(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t from) {
    float first = 0, second = 0;
    unrolled_for (int i = 0; i < 4; i++) {
      const float2 part = load_shared_two(from + 2 * i * Sums::slot_bytes);
      first += part.x, second += part.y;
    }
    if (p.groups == 1)
      unrolled_for (int i = 4; i < 8; i++) {
        const float2 part = load_shared_two(from + 2 * i * Sums::slot_bytes);
        first += part.x, second += part.y;
      }
    return (at.lane / 16 ? second : first) + __shfl_xor_sync(0xffffffffu, at.lane / 16 ? first : second, 16);
  }
  /* Of a vector's sums. A late one comes from its squares, which have met: each lane of half a warp takes a part's. */
  static DEVICE float factor_of(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t vector) {
    if (!S::late_factors || !(p.norm_epsilon > 0)) return load_number(at.factors + vector * STREAM_NUMBER);
    const uint32_t part = at.lane % 16;
    float squares = part < p.parts ? load_number(at.squares + (part * 16 + vector) * STREAM_NUMBER) : 0.0f;
    unrolled_for (int distance = 1; distance < 16; distance *= 2)
      squares += __shfl_xor_sync(0xffffffffu, squares, distance);
    return quick_rms_factor(p, squares) * p.scale * S::same_correction;
  }
  /* `row` is the tile's first row; in a cluster the sums go to held_tile. */
  DEVICE void finish(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t row, uint32_t held_tile) {
    barrier_wait(at.meeting, parity ^ 1);
    const uint32_t first = S::has_few_registers ? others_of(at) : others;
    rolled_for (; turn < turns; turn += at.warps) {
      const uint32_t group = turn >= pairs, pair = turn - (group ? pairs : 0);
      const uint32_t from = (first ^ pair * 16) + (parity ^ 1) * Sums::buffer_bytes + group * (8 * Sums::slot_bytes);
      const float sum = sum_of_pair(p, at, from);
      const uint32_t vector = 2 * pair + at.lane / 16, row_in_tile = group * S::Piece::rows + at.lane % 16;
      if constexpr (S::Cluster > 1) {
        const uint32_t to = held_tile + (vector * at.rows + row_in_tile) * STREAM_NUMBER;
        if (vector < p.count) store_number(to, load_number(to) + sum);
      } else {
        const uint32_t own_row = min(row, at.last_row) + row_in_tile;
        const float factor = factor_of(p, at, vector);
        const bool is_mine = vector < p.count && own_row >= row;
        if (S::has_epilogue && p.finishing)
          finish_row_of_lane(p, vector, own_row, is_mine, sum * factor);
        else if (is_mine)
          store_number(p.out_dtype, p.out, blockIdx.y * p.out_batch + vector * p.out_row + own_row, sum * factor);
      }
    }
    turn -= turns;
  }
};

/* What the loop over tiles needs of this lane's addresses: not before there are registers, and not in each tile. */
template <typename S> struct tile_addresses {
  const uint32_t to, scales_to, row_step, held_step, chunk, sums;

  DEVICE tile_addresses(const gemv_stream_parameters &p, const stream_thread<S> &at)
      : to(known_ahead(stream_asker<S>::to(at))), scales_to(stream_asker<S>::scales_to(at)),
        row_step(known_ahead(at.tile_step * at.rows)),
        held_step(S::Cluster > 1 ? known_ahead(p.count * at.rows * STREAM_NUMBER) : 0),
        chunk(known_ahead(S::Piece::exchanged(at.lane * S::Slices) * 16)),
        sums(computed_here(at.sums +
                           (p.groups == 2 ? at.position.group * 8 + at.position.part : at.position.part) *
                               S::Sums::slot_bytes +
                           (S::Sums::offset_of(at.g) ^ at.t * 16))) {}
};

/* Successors may start after the wait only. Where there is room for two blocks, those of two successors would otherwise
 * share one multiprocessor while another has none (H200, 4 x 7168 x 2048, four vectors: 17.2 us after another product,
 * and so 11.9). */
DEVICE void wait_and_let_start() {
  only_wait_for_predecessors();
  let_successors_start();
}

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

/* Two groups that share vectors load one each. */
template <typename S>
DEVICE void load_vectors(const gemv_stream_parameters &p, const stream_thread<S> &at, bool shares, uint32_t element,
                         stream_vectors<S> &x, typename stream_vectors<S>::raw (&raw)[S::Columns]) {
  if (shares)
    x.load(p, at, (int)at.position.group, element, raw[0]);
  else
    x.load_first(p, at, element, raw);
}

template <typename S>
DEVICE void convert_vectors(const gemv_stream_parameters &p, const stream_thread<S> &at, bool shares, uint32_t element,
                            uint32_t chunk, uint32_t free_stage, typename stream_vectors<S>::raw (&raw)[S::Columns],
                            stream_vectors<S> &x) {
  if constexpr (S::keeps_norm)
    if (p.norm_epsilon > 0) {
      cp_async_wait<S::Stages - 2>();
      __syncwarp();
    }
  if constexpr (S::shares_vectors)
    if (shares) x.convert_own(p, at, element, free_stage, raw[0]);
  if (!shares) x.convert(p, at, element, chunk, free_stage, raw);
}

/* The factors of the sums, from the squares of all parts; and of shared vectors what the other group has converted. */
template <typename S>
DEVICE void meet_factors(const gemv_stream_parameters &p, const stream_thread<S> &at, bool shares,
                         stream_vectors<S> &x) {
  if constexpr (S::has_norm && S::Cluster == 1 && !S::late_factors)
    if (shares || p.norm_epsilon > 0) {
      __syncthreads();
      set_factors(p, at);
      if constexpr (S::shares_vectors)
        if (shares) x.take_both(p, at);
      __syncthreads();
    }
}

/* Asks for what comes to the stage before, too. */
template <typename S>
DEVICE void multiply_stage(const gemv_stream_parameters &p, const stream_thread<S> &at, stream_asker<S> &asker,
                           const tile_addresses<S> &own, uint32_t stage, uint32_t stage_before,
                           const stream_vectors<S> &x, float (&c)[S::Columns][4]) {
  cp_async_wait<S::Stages - 2>();
  __syncwarp();
  /* All lanes have read the stage before: their sums of it were stored before the __syncwarp above. */
  asker.ask(p, at, stage_before + own.to, stage_before + own.scales_to, own.row_step);
  multiply_piece(at, stage, stage + own.chunk, x, c);
}

template <typename S> DEVICE void gemv_stream(const gemv_stream_parameters &p) {
  using Piece = typename S::Piece;
  extern __shared__ __align__(1024) unsigned char stream_memory[];
  const stream_thread<S> at(p, stream_memory);
  stream_asker<S> asker(p, at);
  if (p.early) {
    ask_for_norm(p, at);
    asker.fill(p, at, 0, p.early_stages);
  }
  set_shared_memory(p, at);
  __syncthreads();
  wait_and_let_start();

  stream_results<S> results(p, at);
  uint32_t stage = at.ring, stage_before = at.ring + (S::Stages - 1) * Piece::bytes;
  constexpr uint32_t none = 0xffffffffu;
  uint32_t row = none, held_before = 0; /* of the tile before: its first row, and where its sums are held */
  const uint32_t chunks = S::Cluster > 1 ? p.chunks : 1;
  const bool shares = S::shares_vectors && p.groups == 2;
  rolled_for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    const uint32_t element = at.part_element + chunk * at.chunk_elements + at.t * (32 * S::Slices);
    stream_vectors<S> x;
    typename stream_vectors<S>::raw raw[S::Columns];
    load_vectors(p, at, shares, element, x, raw);
    if (chunk == 0) {
      KEEP_ORDER(p, 2);
      if (!p.early) ask_for_norm(p, at);
      asker.fill(p, at, p.early ? p.early_stages : 0, S::Stages - 1);
    }
    convert_vectors(p, at, shares, element, chunk, stage_before, raw, x);
    meet_factors(p, at, shares, x);
    const tile_addresses<S> own(p, at);
    uint32_t held_tile = at.held;
    /* The last round only finishes the tile before it: a copy of those instructions would come late, and only once. */
    rolled_for (uint32_t next_row = at.first_tile * at.rows;; next_row += own.row_step) {
      const bool is_tile = next_row < p.m;
      if (S::Cluster > 1 && !is_tile) break;
      float c[S::Columns][4] = {};
      if (is_tile) multiply_stage(p, at, asker, own, stage, stage_before, x, c);
      if (row != none) results.finish(p, at, row, held_before);
      if (!is_tile) break;
      store_sums(at, own.sums + results.parity * S::Sums::buffer_bytes, x, c);
      arrive_together(at.meeting);
      results.parity ^= 1;
      stage_before = stage;
      stage += Piece::bytes;
      if (stage == at.ring + S::Stages * Piece::bytes) stage = at.ring;
      row = next_row;
      if constexpr (S::Cluster > 1) {
        held_before = held_tile;
        held_tile += own.held_step;
      }
    }
  }
  if constexpr (S::Cluster > 1) {
    results.finish(p, at, row, held_before);
    finish_cluster<S::Cluster>(p, {at.first_tile, at.tile_step, at.rank}, at.rows, at.held, at.squares, 16,
                               S::same_correction);
  }
}

#define STREAM_CLUSTER_1
#define STREAM_CLUSTER_2 __cluster_dims__(2, 1, 1)
#define DEFINE(chips, parameters, name, threads, V, columns, slices, stages, cluster)                                  \
  extern "C" __global__ void STREAM_CLUSTER_##cluster __launch_bounds__(threads, 1)                                    \
      name(const __grid_constant__ parameters p) {                                                                     \
    gemv_stream<stream_shape<V, columns, slices, stages, cluster>>(p);                                                 \
    publish(p.done);                                                                                                   \
  }
GEMV_STREAM_KERNELS(DEFINE)

#endif
