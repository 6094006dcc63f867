/* gemv_stream.cuh - 2 to 16 vectors with large NVFP4 matrices: each warp streams its weights through a ring of its own.
 *
 * The product is that of gemv_quads.cuh with one quad a row and operand B in registers, but the weights come by way of
 * shared memory: a warp asks with cp.async for the pieces that it will multiply, `Stages` - 1 tiles ahead. What is in
 * flight costs no registers and does not wait for arithmetic; and since a warp reads nothing but what it asked for
 * itself, there is no producer and no barrier between the two, only the count of its own copies and __syncwarp.
 *
 * A piece are 16 rows of the warp's part of k, and lies in shared memory row by row. A lane has 32 x Slices elements of
 * a row that follow each other, so that its scales come with one load and nothing is turned; where it reads, chunks of
 * 16 bytes are exchanged within groups of `Slices`, so that eight lanes find theirs in different banks. The order of k
 * is free, as long as operand B has the same.
 *
 * The parts' sums of a tile meet while the next tile is multiplied: whoever has its sums arrives at a barrier, goes on,
 * and waits only where the sums of the next tile are there. So no warp waits for another unless that is a whole tile
 * late. Warps take turns in adding the parts' sums, two vectors each.
 *
 * Where k is longer than the warps of a block hold of the vectors, or more than a factor is done to results, blocks of
 * a cluster have parts of their own, and each takes its tiles several times if need be, one chunk of k after the other:
 * the ring goes on while vectors are converted. Sums of all tiles are then kept in shared memory, and those of the
 * cluster's blocks meet once, at the end.
 *
 * Bound by issue slots: of some 400 instructions a piece of 16 x 256 with sixteen vectors, 290 decode and multiply.
 * All orders of sums are fixed. */
#ifndef RONDO_GEMV_STREAM_CUH
#define RONDO_GEMV_STREAM_CUH

#include "gemv_clusters.cuh"
#include "gemv_copies.cuh"
#include "gemv_stream.h"
#include "gemv_vectors.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* ---- Shared memory ---------------------------------------------------------------------------------------------- */

/* The scales of Slices slices, in pairs: of slice s in the low half of pairs[s]. */
template <int Slices> __device__ __forceinline__ void load_scales_of_lane(uint32_t address, uint32_t (&pairs)[Slices]) {
  static_assert(Slices == 2 || Slices == 4, "");
  if constexpr (Slices == 2) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(pairs[0]) : "r"(address));
  } else {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(pairs[0]), "=r"(pairs[2]) : "r"(address));
    pairs[3] = pairs[2] >> 16;
  }
  pairs[1] = pairs[0] >> 16;
}

__device__ __forceinline__ void store_shared_four(uint32_t address, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

/* What the warp's lanes wrote before can be read by whoever has waited. */
__device__ __forceinline__ void arrive_together(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* ---- Pieces ----------------------------------------------------------------------------------------------------- */

template <int Slices> struct stream_piece {
  static constexpr uint32_t rows = 16, elements = 128 * Slices; /* of a row */
  static constexpr uint32_t chunks_of_row = elements / 32, rows_of_copy = 32 / chunks_of_row;
  static constexpr uint32_t copies = rows / rows_of_copy;
  static constexpr uint32_t weight_bytes = rows * elements / 2, bytes = weight_bytes + rows * elements / 16;
  /* All lanes copy scales, two a row: with fewer lanes there would be a branch. */
  static constexpr uint32_t scale_copy_bytes = elements / 32;

  /* Chunk i of 16 bytes lies where chunk exchanged(i) would. */
  static __device__ __forceinline__ uint32_t exchanged(uint32_t chunk) { return chunk ^ (chunk >> 3 & (Slices - 1)); }
};

/* Where this lane copies from, if a tile begins with row 0. Behind the end of k it copies the row's first elements once
 * more: vectors are zero there, and a NaN of the row makes it NaN anyway. */
template <typename Piece> struct stream_source {
  const unsigned char *weights, *scales;

  __device__ __forceinline__ void set_part(const gemv_stream_parameters &p, uint32_t group_row, uint32_t part_element) {
    const uint32_t lane = threadIdx.x % 32, element = part_element + lane % Piece::chunks_of_row * 32;
    const uint32_t of_scales = part_element + lane % 2 * (Piece::elements / 2);
    weights = weights_from(p, group_row + lane / Piece::chunks_of_row, element < p.k ? element / 32 : 0);
    scales =
        offset(p.weight_scales + blockIdx.y * p.weight_scale_batch, group_row + lane / 2, p.weight_scale_strides.row) +
        (of_scales < p.k ? of_scales / 16 : 0);
    weights = computed_now(weights), scales = computed_now(scales);
  }

  /* The piece of a tile that begins with `row`, to this lane's part of a stage. */
  __device__ __forceinline__ void copy_piece(const gemv_stream_parameters &p, uint32_t to, uint32_t scales_to,
                                             uint32_t row) const {
    const unsigned char *from = offset(weights, row, p.weight_row);
    const unsigned char *scales_from = offset(scales, row, p.weight_scale_strides.row);
#pragma unroll
    for (uint32_t i = 0; i < Piece::copies; i++)
      copy_16(to + 512 * i, offset(from, i * Piece::rows_of_copy, p.weight_row));
    if constexpr (Piece::scale_copy_bytes == 16)
      copy_16(scales_to, scales_from);
    else
      copy_8(scales_to, scales_from);
  }
};

/* ---- Sums ------------------------------------------------------------------------------------------------------- */

/* A warp's sums of a tile are in a slot: of one group slot `part`, of two slots 8 x group + part; those of no warp are
 * zero. A lane of the product has four sums, of two vectors in two rows, which lie together: those of lane 4 g + t, of
 * vectors 2 x pair and 2 x pair + 1, at offset_of(g) ^ 16 x pair. Neither who stores (eight lanes: two g, four pairs)
 * nor who loads (sixteen lanes: all g, halves of their sums, one pair) meets another in a bank. */
template <int Columns> struct stream_sums {
  static constexpr uint32_t slot_bytes = GEMV_STREAM_SLOT_BYTES * Columns, buffer_bytes = 16 * slot_bytes;
  static __device__ __forceinline__ uint32_t offset_of(uint32_t g) {
    return Columns == 2 ? g * 128 + ((g & 1) << 2 | g >> 1) * 16 : g * 64 + (g >> 1) * 16;
  }
};

/* On sm_100a, where decoding takes other registers, these kernels have none to spare. */
#if __CUDA_ARCH__ >= 1000
constexpr bool has_registers = false;
#else
constexpr bool has_registers = true;
#endif
/* Before the loop over tiles, and not in each. */
__device__ __forceinline__ uint32_t known_ahead(uint32_t value) { return has_registers ? computed_here(value) : value; }

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

/* Shared memory, and as gemv_stream_plan.c has it:
 *   sums     [2][16][slot_bytes]          of this tile and the one before
 *   meeting  16 bytes
 *   factors  [16]                         floats: what sums are multiplied with, of each vector
 *   squares  [parts][16]                  floats, with RMS norm
 *   kept     [warps][16]                  floats: what a warp's own sums are multiplied with before they meet
 *   held     [tiles of a block][count][tile rows]  floats, with clusters
 *   rings    [warps][Stages][piece]       from p.first_stage on */
enum : uint32_t {
  STREAM_NUMBER = sizeof(float),
  STREAM_FACTORS = 16,
  STREAM_SQUARES = STREAM_FACTORS + 16 * STREAM_NUMBER,
  STREAM_KEPT = STREAM_SQUARES + GEMV_MOST_PARTS * 16 * STREAM_NUMBER,
  STREAM_HELD = STREAM_KEPT + 16 * 16 * STREAM_NUMBER,
};
static_assert(STREAM_HELD == GEMV_STREAM_FIXED_BYTES, "what gemv_stream_plan.c counts with");

template <rondo_dtype V, int Columns, int Slices, int Stages, int Cluster, bool InBf16>
__device__ __forceinline__ void gemv_stream(const gemv_stream_parameters &p) {
  constexpr rondo_dtype W = RONDO_NVFP4;
  using Piece = stream_piece<Slices>;
  using Sums = stream_sums<Columns>;
  constexpr bool has_correction = V != RONDO_NVFP4 && !InBf16;
  constexpr float of_weights = InBf16 ? nvfp4_factor_bf16 : nvfp4_factor;
  constexpr float same_correction = has_correction ? 1 : 1 / of_weights; /* of all parts */
  /* There are no registers for raw vectors of both operands. */
  constexpr bool one_by_one = Columns == 2 && has_correction;
  constexpr bool keeps_corrections = has_correction && (Columns == 2 || !has_registers);
  extern __shared__ __align__(1024) unsigned char stream_memory[];
  const uint32_t memory = computed_here(shared_address(stream_memory));
  const warp_position position = position_of_warp(p);
  const uint32_t rank = blockIdx.x % Cluster, first_tile = blockIdx.x / Cluster, tile_step = gridDim.x / Cluster;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const uint32_t g = lane / 4, t = lane % 4, half = lane / 16;
  const uint32_t rows = p.groups * Piece::rows, last_row = p.m - rows, group_row = position.group * Piece::rows;
  const uint32_t sums = memory, meeting = sums + 2 * Sums::buffer_bytes, factors = meeting + STREAM_FACTORS;
  const uint32_t squares = meeting + STREAM_SQUARES, kept = meeting + STREAM_KEPT, held = meeting + STREAM_HELD;

  /* The asking side: the next piece's tile and chunk of k. */
  const uint32_t chunk_elements = Cluster * p.parts * Piece::elements;
  const uint32_t part_element = (rank * p.parts + position.part) * Piece::elements;
  const uint32_t ring = memory + p.first_stage + warp * (Stages * Piece::bytes);
  const uint32_t to = Piece::exchanged(lane) * 16, scales_to = Piece::weight_bytes + lane * Piece::scale_copy_bytes;
  stream_source<Piece> source;
  source.set_part(p, group_row, part_element);
  uint32_t asked_row = first_tile * rows, asked_chunk = 0;
  const auto ask = [&](uint32_t own_to, uint32_t own_scales_to, uint32_t row_step) {
    if (asked_row < p.m) {
      source.copy_piece(p, own_to, own_scales_to, min(asked_row, last_row));
      asked_row += row_step;
      if constexpr (Cluster > 1)
        if (asked_row >= p.m && ++asked_chunk < p.chunks) {
          asked_row = first_tile * rows;
          source.set_part(p, group_row, part_element + asked_chunk * chunk_elements);
        }
    }
    cp_async_commit();
  };
  const auto fill = [&] {
#pragma unroll 1
    for (uint32_t i = 0; i < Stages - 1; i++)
      ask(ring + i * Piece::bytes + to, ring + i * Piece::bytes + scales_to, tile_step * rows);
  };
  if (p.early) fill();
  if (threadIdx.x == 0) barrier_init(meeting, warps);
  if (threadIdx.x < 16) store_shared(factors + threadIdx.x * STREAM_NUMBER, p.scale * same_correction);
  if (warps < 16)
    for (uint32_t at = sums + threadIdx.x * 16; at < meeting; at += blockDim.x * 16) store_shared_four(at, 0, 0, 0, 0);
  if (Cluster > 1)
    for (uint32_t at = held + threadIdx.x * 16; at < memory + p.first_stage; at += blockDim.x * 16)
      store_shared_four(at, 0, 0, 0, 0);
  __syncthreads();
  /* Only now may successors start. Where there is room for two blocks, those of two successors would else come to lie
   * on one multiprocessor twice and on another not at all (H200, 4 x 7168 x 2048, four vectors: 17.2 us after another
   * product, and 11.9 so). */
  only_wait_for_predecessors();
  let_successors_start();

  /* The sums of the tile before, whose first row is `row`: of a pair of vectors in a group's rows at a time, which is
   * this warp's turn every so manieth time. Warps without a turn wait too: no warp arrives for a tile that has not seen
   * the sums of the one before, so each sees every phase of the barrier, and two buffers of sums suffice. */
  const uint32_t pairs = (p.count + 1) / 2, turns = known_ahead(p.groups * pairs);
  const uint32_t others = sums + half * Sums::slot_bytes + Sums::offset_of(lane % 8) + (lane & 8);
  uint32_t turn = warp, parity = 0;
  const auto finish = [&](uint32_t row, uint32_t held_tile) {
    barrier_wait(meeting, parity ^ 1);
#pragma unroll 1
    for (; turn < turns; turn += warps) {
      const uint32_t group = turn >= pairs, pair = turn - (group ? pairs : 0);
      const uint32_t from = (others ^ pair * 16) + (parity ^ 1) * Sums::buffer_bytes + group * (8 * Sums::slot_bytes);
      float first = 0, second = 0; /* of two vectors, in half of the parts */
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float2 part = load_shared_two(from + 2 * i * Sums::slot_bytes);
        first += part.x, second += part.y;
      }
      if (p.groups == 1)
#pragma unroll
        for (int i = 4; i < 8; i++) {
          const float2 part = load_shared_two(from + 2 * i * Sums::slot_bytes);
          first += part.x, second += part.y;
        }
      const float sum = (half ? second : first) + __shfl_xor_sync(0xffffffffu, half ? first : second, 16);
      const uint32_t vector = 2 * pair + half, row_in_tile = group * Piece::rows + lane % 16;
      if constexpr (Cluster > 1) {
        const uint32_t at = held_tile + (vector * rows + row_in_tile) * STREAM_NUMBER;
        if (vector < p.count) store_shared(at, load_shared(at) + sum);
      } else {
        const uint32_t own_row = min(row, last_row) + row_in_tile;
        const float factor = load_shared(factors + vector * STREAM_NUMBER);
        if (vector < p.count && own_row >= row)
          store_number(p.out_dtype, p.out, blockIdx.y * p.out_batch + vector * p.out_row + own_row, sum * factor);
      }
    }
    turn -= turns;
  };

  uint32_t stage = ring, stage_before = ring + (Stages - 1) * Piece::bytes;
  uint32_t row = 0, held_before = 0; /* of the tile before: its first row, and where its sums are held */
  bool is_first = true;
  const uint32_t chunks = Cluster > 1 ? p.chunks : 1;
#pragma unroll 1
  for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    uint32_t b[Columns][Slices][16];
    float corrections[2]; /* of the result's columns 2 t and 2 t + 1 */
    {
      const uint32_t element = part_element + chunk * chunk_elements + t * (32 * Slices);
      raw_vector<W, V, Slices> raw[Columns];
#pragma unroll
      for (int a = 0; a < (one_by_one ? 1 : Columns); a++) load_raw<W, V, Slices, 32>(p, g + 8 * a, element, raw[a]);
      if (!p.early && chunk == 0) {
        KEEP_ORDER(p, 2);
        fill();
      }
#pragma unroll
      for (int a = 0; a < Columns; a++) {
        if (one_by_one && a) load_raw<W, V, Slices, 32>(p, g + 8 * a, element, raw[a]);
        if constexpr (V != RONDO_NVFP4)
          if (p.norm_epsilon > 0) {
            float sum = normalise<W, V, Slices, 32, false>(p, element, raw[a]);
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const uint32_t mine = squares + (position.part * 16 + g + 8 * a) * STREAM_NUMBER;
            if (t == 0 && position.group == 0) store_shared(mine, chunk ? load_shared(mine) + sum : sum);
          }
        const float own = convert_vector<W, V, Slices, InBf16>(p, raw[a], b[a]);
        if (keeps_corrections && t == 0) store_shared(kept + (warp * 16 + g + 8 * a) * STREAM_NUMBER, own);
        if constexpr (has_correction && !keeps_corrections)
#pragma unroll
          for (int i = 0; i < 2; i++) corrections[i] = __shfl_sync(0xffffffffu, own, 8 * t + 4 * i);
      }
    }
    if constexpr (V != RONDO_NVFP4 && Cluster == 1)
      if (p.norm_epsilon > 0) {
        __syncthreads();
        if (threadIdx.x < 16) {
          const uint32_t of_vector = squares + threadIdx.x * STREAM_NUMBER;
          const float factor = rms_factor(p, sum_of_parts(of_vector, 16 * STREAM_NUMBER, p.parts));
          store_shared(factors + threadIdx.x * STREAM_NUMBER, factor * p.scale * same_correction);
        }
        __syncthreads();
      }
    /* What the loop needs of this lane's addresses: not before there are registers, and not in each tile. */
    const uint32_t to_here = known_ahead(to), scales_to_here = known_ahead(scales_to);
    const uint32_t row_step = known_ahead(tile_step * rows);
    const uint32_t held_step = Cluster > 1 ? known_ahead(p.count * rows * STREAM_NUMBER) : 0;
    const uint32_t chunk_at = known_ahead(Piece::exchanged(lane * Slices) * 16);
    const uint32_t slot = p.groups == 2 ? position.group * 8 + position.part : position.part;
    const uint32_t own_sums = computed_here(sums + slot * Sums::slot_bytes + (Sums::offset_of(g) ^ t * 16));
    uint32_t held_tile = held;
#pragma unroll 1
    for (uint32_t next_row = first_tile * rows; next_row < p.m; next_row += row_step) {
      cp_async_wait<Stages - 2>();
      __syncwarp();
      /* What every lane read of the stage before is in its sums, and those it has stored: before the barrier above. */
      ask(stage_before + to_here, stage_before + scales_to_here, row_step);
      float c[Columns][4] = {};
      const uint32_t chunk_of_stage = stage + chunk_at;
      uint32_t scales[2][Slices];
#pragma unroll
      for (int h = 0; h < 2; h++)
        load_scales_of_lane<Slices>(stage + lane * (2 * Slices) + (Piece::weight_bytes + h * (64 * Slices)), scales[h]);
#pragma unroll
      for (int s = 0; s < Slices; s++) {
        words loaded[2];
        uint32_t scale[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
          loaded[h] = load_shared_words((chunk_of_stage ^ s * 16) + h * (512 * Slices));
          scale[h] = InBf16 ? block_scales_bf16(scales[h][s]) : bits_of(block_scales(scales[h][s]));
        }
#pragma unroll
        for (int w = 0; w < 4; w++) {
          uint32_t a[2][4];
#pragma unroll
          for (int h = 0; h < 2; h++) decode_eight<W, InBf16>(loaded[h], w, scale[h], a[h]);
#pragma unroll
          for (int n = 0; n < Columns; n++) {
            multiply_accumulate<InBf16>(c[n], a[0], a[1], &b[n][s][4 * w]);
            multiply_accumulate<InBf16>(c[n], a[0] + 2, a[1] + 2, &b[n][s][4 * w + 2]);
          }
        }
      }
      if (!is_first) finish(row, held_before);
      is_first = false;
      /* This lane's vectors 2 t and 2 t + 1, rows g and g + 8. */
#pragma unroll
      for (int n = 0; n < Columns; n++) {
        if constexpr (keeps_corrections) {
          const float2 both = load_shared_two(kept + (warp * 16 + 8 * n + 2 * t) * STREAM_NUMBER);
          corrections[0] = both.x, corrections[1] = both.y;
        }
        if constexpr (has_correction)
#pragma unroll
          for (int i = 0; i < 4; i++) c[n][i] *= corrections[i % 2];
        store_shared_four((own_sums ^ n * 64) + parity * Sums::buffer_bytes, c[n][0], c[n][1], c[n][2], c[n][3]);
      }
      arrive_together(meeting);
      parity ^= 1;
      stage_before = stage;
      stage += Piece::bytes;
      if (stage == ring + Stages * Piece::bytes) stage = ring;
      row = next_row;
      if constexpr (Cluster > 1) {
        held_before = held_tile;
        held_tile += held_step;
      }
    }
  }
  finish(row, held_before);

  if constexpr (Cluster > 1)
    finish_cluster<Cluster>(p, {first_tile, tile_step, rank}, rows, held, squares, 16, same_correction);
}

#define STREAM_CLUSTER_1
#define STREAM_CLUSTER_2 __cluster_dims__(2, 1, 1)
#define STREAM_CLUSTER_4 __cluster_dims__(4, 1, 1)
#define DEFINE_STREAM_KERNEL(chips, parameters, name, threads, V, columns, slices, stages, cluster, in_bf16)           \
  extern "C" __global__ void STREAM_CLUSTER_##cluster __launch_bounds__(threads, 1)                                    \
      name(const __grid_constant__ parameters p) {                                                                     \
    gemv_stream<V, columns, slices, stages, cluster, in_bf16>(p);                                                      \
    publish(p.done);                                                                                                   \
  }

#endif
#endif
