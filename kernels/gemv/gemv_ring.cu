/* gemv_ring.cu - products with NVFP4 matrices of several waves: weights travel through a ring in shared memory.
 *
 * When: see gemv_ring_plan.c. Rows have no gaps and hold multiples of 16 bytes of scales, by row; blocks_product alone
 * takes an RMS norm; only the last slices of the last part may be missing in k; a block has more warps than vectors.
 * Bound by memory, if enough warps multiply: the time of a tile from its barrier to its last product is latency. So 14
 * to 16 warps, or two blocks of eight a multiprocessor, are faster than more stages. Stages have 30 to 60 KB: a copy
 * costs its warp some 50 ns, and a tile costs the warps some hundred cycles.
 *
 * A block owns block_rows consecutive rows of one matrix, and takes them tile by tile. One thread asks for whole tiles
 * with bulk copies (PTX ISA, cp.async.bulk) into the stages of a ring; `parts` x `groups` warps multiply the tiles that
 * have arrived. Bytes in flight cost no registers and do not wait for arithmetic. Kernels that load straight to
 * registers lose time by both in matrices of several waves. */
#include "gemv_bulk.cuh"
#include "gemv_dot.cuh"
#include "gemv_finish.cuh"
#include "gemv_ring.h"
#include "gemv_vectors.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

enum : uint32_t { NUMBER = sizeof(float) };

/* ---- The ring --------------------------------------------------------------------------------------------------- */

/* A stage, and the parity of its phase. */
struct ring_position {
  uint32_t stage, parity;
};
DEVICE void advance(const gemv_ring_parameters &p, ring_position &at) {
  if (++at.stage < p.stages) return;
  at.stage = 0;
  at.parity ^= 1;
}
DEVICE uint32_t full_barrier(uint32_t ring, uint32_t stage) { return ring + 16 * stage; }
DEVICE uint32_t empty_barrier(uint32_t ring, uint32_t stage) { return ring + 16 * stage + 8; }

/* The warp that copies: a tile is one copy of weights and one of scales, since a copy costs the warp that asks for it
 * some 50 ns. All its lanes count along, so that what copies are told is the same in all of them. */
struct producer {
  const unsigned char *weights, *scales; /* of the next tile */
  uint32_t tile_rows, rows_left;
  uint64_t policy;

  DEVICE producer(const gemv_ring_parameters &p, uint32_t first_row, uint32_t rows)
      : weights(weights_from(p, first_row, 0)), scales(weight_scales_from(p, first_row, 0)),
        tile_rows(p.groups * p.group_rows), rows_left(rows), policy(read_once_policy()) {}

  DEVICE void copy_tile(const gemv_ring_parameters &p, uint32_t ring, uint32_t stage) {
    const uint32_t rows = min(tile_rows, rows_left), full = full_barrier(ring, stage);
    const uint32_t weight_bytes = rows * p.weight_row, scale_bytes = rows * p.weight_scale_strides.row;
    const uint32_t to = ring + p.first_stage + stage * p.stage_bytes;
    if (elected()) {
      bulk_copy(to, weights, weight_bytes, full, policy);
      bulk_copy(to + tile_rows * p.weight_row, scales, scale_bytes, full, policy);
      /* Last: until it arrives the phase cannot end, whatever has come, and the copies are under way earlier. */
      barrier_expect(full, weight_bytes + scale_bytes);
    }
    weights += weight_bytes;
    scales += scale_bytes;
    rows_left -= rows;
  }
  DEVICE void fill(const gemv_ring_parameters &p, uint32_t ring, uint32_t first, uint32_t end) {
    for (uint32_t stage = first; stage < end && rows_left; stage++) copy_tile(p, ring, stage);
  }
  DEVICE void refill(const gemv_ring_parameters &p, uint32_t ring) {
    for (ring_position at = {0, 0}; rows_left; advance(p, at)) {
      barrier_wait(empty_barrier(ring, at.stage), at.parity);
      copy_tile(p, ring, at.stage);
    }
  }
};

/* ---- One NVFP4 vector: integers --------------------------------------------------------------------------------- */

/* Lane i of slice s has elements 1024 s + 32 i .. + 31 of a row. */
template <rondo_dtype V, int Rows, int Slices> struct integer_product {
  static_assert(V == RONDO_NVFP4, "");
  static constexpr int rows = Rows;
  tables t;
  integers<Slices> vector;
  /* This lane's first element in a row, and that of the last slice. Beyond the end vectors are zero, and a NaN of the
   * row makes it NaN anyway. */
  uint32_t element, last;

  DEVICE void take_vectors(const gemv_ring_parameters &p, uint32_t part, uint32_t) {
    element = part * (Slices * 1024) + threadIdx.x % 32 * 32;
    last = element + 1024 * (Slices - 1) < p.k ? element + 1024 * (Slices - 1) : 0;
    t = load_tables();
    raw_integers<Slices> raw;
    load_integers(p, element, raw);
    convert_integers(raw, vector);
  }

  template <typename Release>
  DEVICE void multiply(const gemv_ring_parameters &p, uint32_t weights_at, uint32_t scales_at, uint32_t sums,
                       const Release &release) {
    const uint32_t lane = threadIdx.x % 32;
    words weights[Rows][Slices];
    uint32_t scales[Rows][Slices], loaded = 0;
    unrolled_for (int r = 0; r < Rows; r++)
      unrolled_for (int s = 0; s < Slices; s++) {
        const uint32_t from = s == Slices - 1 ? last : element + 1024 * s;
        weights[r][s] = load_shared_words(weights_at + r * p.weight_row + from / 2);
        scales[r][s] = load_half_word(scales_at + r * p.weight_scale_strides.row + from / 16);
        loaded ^= weights[r][s].word[0] ^ scales[r][s];
      }
    release(loaded);
    float row_sums[Rows];
    unrolled_for (int r = 0; r < Rows; r++) row_sums[r] = dot_of_row(weights[r], scales[r], vector, t);
    const float sum = sums_over_lanes<Rows>(row_sums);
    if (lane % (32 / Rows) == 0) store_number(sums + lane / (32 / Rows) * NUMBER, sum);
  }
};

/* ---- Tensor cores ----------------------------------------------------------------------------------------------- */

/* Where the lanes of a row have their slices: 32 elements each, in twos beside each other where Together is 2, so that
 * four scales come with one load. Rows of stages lie at multiples of 128 bytes more often than not, and with one quad a
 * row eight rows' scales are then in the same banks. */
template <int Quads, int Slices, int Together> struct lane_slices {
  static constexpr int lanes = 4 * Quads;
  uint32_t element, last; /* as above; of the last Together slices */

  static __device__ constexpr int offset_of(int s) {
    return s / Together * (lanes * 32 * Together) + s % Together * 32;
  }

  DEVICE void set(const gemv_ring_parameters &p, uint32_t part) {
    element = part * (Slices * lanes * 32) + threadIdx.x % lanes * (32 * Together);
    last = element + offset_of(Slices - Together);
    if (last >= p.k) last = 0;
  }
  /* The element that slice s begins with, if not beyond the end. */
  DEVICE uint32_t first_of(int s) const {
    return (s >= Slices - Together ? last : element + offset_of(s - s % Together)) + s % Together * 32;
  }
};

/* One vector with eight quads a row, or up to four with two: the quads of gemv_quads.cuh. */
template <rondo_dtype V, int Quads, int Slices> struct quads_product {
  static_assert(Quads == 2 || Quads == 8, "");
  static constexpr int rows = 16 / Quads, lanes = 4 * Quads;
  uint32_t b[Slices][16];
  float corrections[2]; /* of the result's columns 2 t and 2 t + 1 */
  lane_slices<Quads, Slices, 1> slices;

  DEVICE void take_vectors(const gemv_ring_parameters &p, uint32_t part, uint32_t) {
    const uint32_t lane = threadIdx.x % 32;
    slices.set(p, part);
    raw_vector<RONDO_NVFP4, V, Slices> raw;
    const vector_address<V> from(p, min(lane / lanes, p.count - 1), slices.element); /* columns without one repeat it */
    unrolled_for (int s = 0; s < Slices; s++)
      load_slice(p, from, slices.offset_of(s), slices.element + slices.offset_of(s) < p.k, s, raw);
    const float own = convert_vector<RONDO_NVFP4, V, Slices>(p, raw, b);
    unrolled_for (int i = 0; i < 2; i++)
      corrections[i] = V != RONDO_NVFP4 ? __shfl_sync(0xffffffffu, own, 8 * (lane % 4) + 4 * i) : own;
  }

  template <typename Release>
  DEVICE void multiply(const gemv_ring_parameters &p, uint32_t weights_at, uint32_t scales_at, uint32_t sums,
                       const Release &release) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float c[2][4] = {}; /* two, since each product waits for the one before it */
    uint32_t scales[2];
    unrolled_for (int s = 0; s < Slices; s++) {
      words weights[2];
      unrolled_for (int h = 0; h < 2; h++) {
        const uint32_t row = lane / lanes + h * (rows / 2), at = slices.first_of(s);
        weights[h] = load_shared_words(weights_at + row * p.weight_row + at / 2);
        scales[h] = load_shared_pair(scales_at + row * p.weight_scale_strides.row + at / 16);
      }
      if (s == Slices - 1) /* the sums have used the slices before */
        release(weights[0].word[0] ^ weights[1].word[0] ^ scales[0] ^ scales[1] ^ __float_as_uint(c[0][0]));
      uint32_t scale[2];
      unrolled_for (int h = 0; h < 2; h++) scale[h] = bits_of(block_scales(scales[h]));
      unrolled_for (int w = 0; w < 4; w++) {
        uint32_t a[2][4];
        unrolled_for (int h = 0; h < 2; h++) decode_eight<RONDO_NVFP4, false>(weights[h], w, scale[h], a[h]);
        multiply_accumulate<false>(c[0], a[0], a[1], &b[s][4 * w]);
        multiply_accumulate<false>(c[1], a[0] + 2, a[1] + 2, &b[s][4 * w + 2]);
      }
    }
    float result[2][2]; /* [row][vector] */
    unrolled_for (int i = 0; i < 4; i++) result[i / 2][i % 2] = (c[0][i] + c[1][i]) * corrections[i % 2];
    /* Quads that share a row, each with the column of its own piece. From the first exchange on even quads have the
     * first row, odd ones the second. */
    const float first = g % 2 ? result[0][1] : result[0][0], second = g % 2 ? result[1][1] : result[1][0];
    float sum = (g % 2 ? second : first) + __shfl_xor_sync(0xffffffffu, g % 2 ? first : second, 4);
    if constexpr (Quads == 8)
      unrolled_for (int distance = 9; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    const uint32_t vector = Quads == 2 ? t : 0;
    const bool keeps = Quads == 2 || lane == 0 || lane == 4;
    if (keeps && vector < p.count)
      store_number(sums + (vector * p.window_pitch + g / Quads + g % 2 * (rows / 2)) * NUMBER, sum);
  }
};

/* One vector, a quad a row. Operand B's columns are not needed for vectors, so they keep the blocks of 16 apart, and
 * the scale is multiplied to a block's sum instead of to 16 weights: column 2 t has lane t's piece of an even slice of
 * the vector, column 2 t + 1 that of the odd one beside it, and zeros elsewhere. Of a slice's product, each lane's
 * result in the slice's column is then the sum of its own block; the other column is of no use. */
template <rondo_dtype V, int Slices> struct blocks_product {
  static constexpr int rows = 16;
  static_assert(Slices % 2 == 0, "slices in twos");
  uint32_t b[Slices / 2][16];
  float corrections[2];
  lane_slices<1, Slices, 2> slices;

  DEVICE void take_vectors(const gemv_ring_parameters &p, uint32_t part, uint32_t squares) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    slices.set(p, part);
    raw_vector<RONDO_NVFP4, V, Slices / 2> raw;
    const uint32_t element = slices.element + g % 2 * 32;
    const vector_address<V> from(p, 0, element);
    unrolled_for (int j = 0; j < Slices / 2; j++)
      load_slice(p, from, slices.offset_of(2 * j), element + slices.offset_of(2 * j) < p.k && t == g / 2, j, raw);
    if (p.norm_epsilon > 0) { /* the other lanes' zeros stay zeros, whatever the norm is */
      float sum = normalise<false, lane_slices<1, Slices, 2>::offset_of(2)>(p, t == g / 2 ? element : p.k, raw);
      unrolled_for (int distance = 1; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (lane == 0) store_number(squares + part * NUMBER, sum); /* groups store the same */
    }
    const float own = convert_vector<RONDO_NVFP4, V, Slices / 2>(p, raw, b);
    unrolled_for (int i = 0; i < 2; i++)
      corrections[i] = V != RONDO_NVFP4 ? __shfl_sync(0xffffffffu, own, 8 * t + 4 * i) : own;
  }

  template <typename Release>
  DEVICE void multiply(const gemv_ring_parameters &p, uint32_t weights_at, uint32_t scales_at, uint32_t sums,
                       const Release &release) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float sum[2][2] = {}; /* [row][column] */
    uint32_t scales[2];
    unrolled_for (int s = 0; s < Slices; s++) {
      words weights[2];
      unrolled_for (int h = 0; h < 2; h++) {
        const uint32_t row = g + 8 * h, at = slices.first_of(s);
        weights[h] = load_shared_words(weights_at + row * p.weight_row + at / 2);
        if (s % 2 == 0)
          scales[h] = load_word(scales_at + row * p.weight_scale_strides.row + at / 16);
        else
          scales[h] >>= 16;
      }
      if (s == Slices - 1)
        release(weights[0].word[0] ^ weights[1].word[0] ^ scales[0] ^ scales[1] ^ __float_as_uint(sum[0][0]) ^
                __float_as_uint(sum[0][1]) ^ __float_as_uint(sum[1][0]) ^ __float_as_uint(sum[1][1]));
      float c[2][4] = {}; /* of the two blocks */
      unrolled_for (int w = 0; w < 4; w++) {
        uint32_t a[2][4];
        unrolled_for (int h = 0; h < 2; h++) decode_e2m1(weights[h].word[w], a[h]);
        multiply_accumulate<false>(c[w / 2], a[0], a[1], &b[s / 2][4 * w]);
        multiply_accumulate<false>(c[w / 2], a[0] + 2, a[1] + 2, &b[s / 2][4 * w + 2]);
      }
      unrolled_for (int h = 0; h < 2; h++) {
        const float2 scale = __half22float2(half2_of_e4m3(scales[h]));
        sum[h][s % 2] = __fmaf_rn(c[0][2 * h + s % 2], scale.x, sum[h][s % 2]);
        sum[h][s % 2] = __fmaf_rn(c[1][2 * h + s % 2], scale.y, sum[h][s % 2]);
      }
    }
    float of_row[2];
    unrolled_for (int h = 0; h < 2; h++) of_row[h] = sum[h][0] * corrections[0] + sum[h][1] * corrections[1];
    /* The row's lanes; from the first exchange on even lanes have the first row, odd ones the second. */
    float mine = (t % 2 ? of_row[1] : of_row[0]) + __shfl_xor_sync(0xffffffffu, t % 2 ? of_row[0] : of_row[1], 1);
    mine += __shfl_xor_sync(0xffffffffu, mine, 2);
    /* Once more, since the scales that are multiplied to sums have no factor in them; not in the corrections, which
     * would be 2^128 beside the largest bf16. */
    if (t < 2) store_number(sums + (g + 8 * t) * NUMBER, mine * (1 / nvfp4_factor));
  }
};

/* ---- Sums and results ------------------------------------------------------------------------------------------- */

/* The warps that multiply. */
DEVICE void meet_consumers(uint32_t consumers) { asm volatile("bar.sync 1, %0;" ::"r"(consumers * 32) : "memory"); }

/* A warp has 32 rows of a vector. */
template <typename Do>
DEVICE void share_rows(const gemv_ring_parameters &p, uint32_t rows, uint32_t warps, const Do &todo) {
  uint32_t vector = 0;
  for (uint32_t row = threadIdx.x / 32 * 32;; row += warps * 32) {
    for (; row >= rows; row -= (rows + 31) / 32 * 32)
      if (++vector == p.count) return;
    todo(vector, row);
  }
}

/* The parts' sums of a window, and those of windows before it. */
struct ring_sums {
  uint32_t squares, met, held, consumers;

  DEVICE float norm_factor(const gemv_ring_parameters &p) const {
    return p.norm_epsilon > 0 ? quick_rms_factor(p, sum_of_parts(squares, NUMBER, p.parts)) : 1.0f;
  }

  DEVICE float sum_of_window(const gemv_ring_parameters &p, uint32_t vector, uint32_t row) const {
    return sum_of_parts(met + (vector * p.window_pitch + row) * NUMBER, p.count * p.window_pitch * NUMBER, p.parts);
  }
  /* The window has rows `first` to `end`. */
  DEVICE void hold_window(const gemv_ring_parameters &p, uint32_t first, uint32_t end) const {
    meet_consumers(consumers);
    share_rows(p, end - first, consumers, [&](uint32_t vector, uint32_t row) {
      row += threadIdx.x % 32;
      if (row < end - first)
        store_number(held + (vector * p.held_pitch + first + row) * NUMBER, sum_of_window(p, vector, row));
    });
    meet_consumers(consumers);
  }
  /* All rows of the block; the last window begins with row `window`. */
  DEVICE void finish(const gemv_ring_parameters &p, uint32_t first_row, uint32_t rows, uint32_t window) const {
    const float norm = norm_factor(p), scale = norm * p.scale;
    meet_consumers(consumers);
    share_rows(p, rows, consumers, [&](uint32_t vector, uint32_t first) {
      const tile_rows done = {blockIdx.y, first_row + first, min(32u, rows - first), 0};
      const auto sum_of = [&](uint32_t n, uint32_t row) {
        row += first;
        return row < window ? load_number(held + (n * p.held_pitch + row) * NUMBER) : sum_of_window(p, n, row - window);
      };
      if (p.finishing)
        finish_columns(p, done, vector, [&](uint32_t row) { return sum_of(vector, row) * scale; });
      else /* of a block with more warps than vectors, warp `vector` takes this one and no other */
        finish_rows<false, true>(p, done, vector * 32 + threadIdx.x % 32, sum_of, [=](uint32_t) { return norm; });
    });
  }
};

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

/* By one thread. */
DEVICE void set_barriers(const gemv_ring_parameters &p, uint32_t ring, uint32_t consumers) {
  if (!elected()) return;
  for (uint32_t stage = 0; stage < p.stages; stage++) {
    barrier_init(full_barrier(ring, stage), 1);
    barrier_init(empty_barrier(ring, stage), consumers);
  }
  barriers_are_initialised();
}

/* Vectors in 16 bits would wait behind weights on their way from memory: only one stage is asked for before them.
 *
 * Shared memory: a full and an empty barrier of each stage; with RMS norm, floats squares [parts]; floats met
 * [parts][count][window_pitch], the sums of a window of window_tiles tiles; if there are several windows, held
 * [count][held_pitch], of those before the last; from first_stage on the stages, each weights [tile rows][weight_row]
 * and scales [tile rows][weight_scale_row].
 *
 * The arrival that releases a stage depends on all values loaded from it (`always_zero`), so these have come. Without
 * this the stage was filled again while the loads were under way, although the arrival releases: with weights in L2, up
 * to 54 launches of 60 had sums of the next tile's bytes (H200, 7 plans of 96). */
template <typename Product> DEVICE void gemv_ring(const gemv_ring_parameters &p) {
  extern __shared__ __align__(128) unsigned char ring_memory[];
  const uint32_t ring = computed_here(shared_address(ring_memory)), consumers = p.parts * p.groups;
  const uint32_t first_row = blockIdx.x * p.block_rows, rows = computed_here(min(p.block_rows, p.m - first_row));
  /* From one lane, so that ptxas knows that all lanes have the same. */
  const bool produces = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) == consumers;
  producer weights(p, first_row, rows);
  if (produces) {
    set_barriers(p, ring, consumers);
    if (p.early) weights.fill(p, ring, 0, p.early_stages);
  }
  wait_for_predecessors();
  if (produces && !p.early) weights.fill(p, ring, 0, p.early_stages);
  Product product;
  const uint32_t squares = ring + 16 * p.stages;
  const warp_position position = position_of_warp(p);
  if (threadIdx.x < consumers * 32) product.take_vectors(p, position.part, squares);
  __syncthreads();
  if (produces) {
    weights.fill(p, ring, p.early_stages, p.stages);
    weights.refill(p, ring);
  }
  if (threadIdx.x >= consumers * 32) return;

  const uint32_t met = squares + GEMV_MOST_PARTS * NUMBER;
  const ring_sums all_sums = {squares, met, met + p.parts * p.count * p.window_pitch * NUMBER, consumers};
  const uint32_t rows_of_tile = p.groups * p.group_rows, group_row = position.group * p.group_rows;
  uint32_t window = 0, window_tiles = p.window_tiles; /* its first row, and how many tiles are left of it */
  uint32_t sums = met + (position.part * p.count * p.window_pitch + group_row) * NUMBER;
  ring_position at = {0, 0};
  rolled_for (uint32_t tile = 0;;) {
    /* A warp without rows of the tile waits too, and releases it. So a stage is filled again only after every warp has
     * seen it filled. The phase of a barrier is one bit: a warp that misses a phase takes the next but one for it. */
    barrier_wait(full_barrier(ring, at.stage), at.parity);
    const auto release = [&](uint32_t loaded) {
      __syncwarp();
      if (threadIdx.x % 32 == (loaded & p.always_zero)) barrier_arrive(empty_barrier(ring, at.stage));
    };
    const uint32_t end = min(p.group_rows, rows - tile - min(rows - tile, group_row));
    const uint32_t stage = ring + p.first_stage + at.stage * p.stage_bytes;
    uint32_t weights_at = stage + group_row * p.weight_row;
    uint32_t scales_at = stage + rows_of_tile * p.weight_row + group_row * p.weight_scale_strides.row;
    if (end == 0) release(0);
    rolled_for (uint32_t row = 0; row < end; row += Product::rows) {
      product.multiply(p, weights_at, scales_at, sums + row * NUMBER, [&](uint32_t loaded) {
        if (row + Product::rows >= end) release(loaded);
      });
      weights_at += Product::rows * p.weight_row;
      scales_at += Product::rows * p.weight_scale_strides.row;
    }
    tile += rows_of_tile;
    if (tile >= rows) break;
    advance(p, at);
    sums += rows_of_tile * NUMBER;
    if (--window_tiles) continue;
    all_sums.hold_window(p, window, tile);
    sums -= (tile - window) * NUMBER;
    window = tile;
    window_tiles = p.window_tiles;
  }
  all_sums.finish(p, first_row, rows, window);
}

#define DEFINE(chips, parameters, name, threads, blocks, vectors, most, rows, part, beyond, product, ...)              \
  DEFINE_EARLY_KERNEL(chips, parameters, name, threads, blocks, gemv_ring<product<vectors, __VA_ARGS__>>)
GEMV_RING_KERNELS(DEFINE)

#endif
