/* gemv_stream_pieces.cuh - what a block of gemv_stream.cu has in shared memory: pieces of weights in each warp's ring,
 * which the warp asks for itself, and the sums of tiles. */
#pragma once

#include "gemv_clusters.cuh"
#include "gemv_copies.cuh"
#include "gemv_stream.h"
#include "gemv_vectors.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* ---- Shared memory ---------------------------------------------------------------------------------------------- */

/* The scales of Slices slices, in pairs: of slice s in the low half of pairs[s]. */
template <int Slices> DEVICE void load_scales_of_lane(uint32_t address, uint32_t (&pairs)[Slices]) {
  static_assert(Slices == 2 || Slices == 4, "");
  if constexpr (Slices == 2) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(pairs[0]) : "r"(address));
  } else {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(pairs[0]), "=r"(pairs[2]) : "r"(address));
    pairs[3] = pairs[2] >> 16;
  }
  pairs[1] = pairs[0] >> 16;
}

/* A thread that has waited at the barrier can read all that the warp's lanes wrote before. */
DEVICE void arrive_together(uint32_t barrier) {
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
  static DEVICE uint32_t exchanged(uint32_t chunk) { return chunk ^ (chunk >> 3 & (Slices - 1)); }
};

/* The addresses from which this lane copies, if a tile begins with row 0. After the end of k it copies the row's first
 * elements once more: vectors are zero there, and a NaN of the row makes the result NaN anyway. */
template <typename Piece> struct stream_source {
  const unsigned char *weights, *scales;

  DEVICE void set_part(const gemv_stream_parameters &p, uint32_t group_row, uint32_t part_element) {
    const uint32_t lane = threadIdx.x % 32, element = part_element + lane % Piece::chunks_of_row * 32;
    const uint32_t of_scales = part_element + lane % 2 * (Piece::elements / 2);
    weights = weights_from(p, group_row + lane / Piece::chunks_of_row, element < p.k ? element / 32 : 0);
    scales =
        offset(p.weight_scales + blockIdx.y * p.weight_scale_batch, group_row + lane / 2, p.weight_scale_strides.row) +
        (of_scales < p.k ? of_scales / 16 : 0);
    weights = computed_now(weights), scales = computed_now(scales);
  }

  /* The piece of a tile that begins with `row`, to this lane's part of a stage. */
  DEVICE void copy_piece(const gemv_stream_parameters &p, uint32_t to, uint32_t scales_to, uint32_t row) const {
    const unsigned char *from = offset(weights, row, p.weight_row);
    const unsigned char *scales_from = offset(scales, row, p.weight_scale_strides.row);
    unrolled_for (uint32_t i = 0; i < Piece::copies; i++)
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
  static DEVICE uint32_t offset_of(uint32_t g) {
    return Columns == 2 ? g * 128 + ((g & 1) << 2 | g >> 1) * 16 : g * 64 + (g >> 1) * 16;
  }
};

/* ---- A kernel's constants --------------------------------------------------------------------------------------- */

/* On sm_100a, where decoding takes other registers, these kernels have none to spare. */
#if __CUDA_ARCH__ >= 1000
constexpr bool has_registers = false;
#else
constexpr bool has_registers = true;
#endif
/* Before the loop over tiles, and not in each. */
DEVICE uint32_t known_ahead(uint32_t value) { return has_registers ? computed_here(value) : value; }

template <rondo_dtype VectorType, int ColumnsOfB, int SlicesOfPart, int StagesOfRing, int ClusterBlocks>
struct stream_shape {
  static constexpr rondo_dtype W = RONDO_NVFP4, V = VectorType;
  static constexpr int Columns = ColumnsOfB, Slices = SlicesOfPart, Stages = StagesOfRing, Cluster = ClusterBlocks;
  using Piece = stream_piece<Slices>;
  using Sums = stream_sums<Columns>;
  static constexpr bool has_correction = V != RONDO_NVFP4;
  static constexpr float same_correction = has_correction ? 1 : 1 / nvfp4_factor; /* of all parts */
  /* In clusters there are no registers for raw vectors of both operands. */
  static constexpr bool one_by_one = Columns == 2 && has_correction && Cluster > 1;
  /* What a tile's sums become waits in fewer registers there, too. */
  static constexpr bool has_few_registers = one_by_one;
  static constexpr bool keeps_corrections = has_correction && (Columns == 2 || !has_registers);
  static constexpr bool has_norm = V != RONDO_NVFP4, has_epilogue = V != RONDO_NVFP4;
  /* A warp's part of the norm comes to shared memory beside its first piece. With two operands that is slower. */
  static constexpr bool keeps_norm = has_norm && Cluster == 1 && Columns == 1;
  static constexpr uint32_t norm_bytes = keeps_norm ? 256 * Slices : 0;
  /* Up to so many vectors have eight lanes each, more have four. */
  static constexpr uint32_t Few = Columns == 1 && has_correction && Cluster == 1 && has_registers ? 4 : 0;
  /* With RMS norm a warp that finishes a tile computes its own vectors' factors. With two operands that is slower. */
  static constexpr bool late_factors = has_norm && Cluster == 1 && Columns == 1;
  /* Two warps with the same part of k, in a block's two groups, convert an operand each. */
  static constexpr bool shares_vectors = Columns == 2 && has_correction && Cluster == 1;
};

/* ---- A thread --------------------------------------------------------------------------------------------------- */

/* Shared memory, and as gemv_stream_plan.c has it:
 *   sums     [2][16][slot_bytes]          of this tile and the one before
 *   meeting  16 bytes
 *   factors  [16]                         floats: a vector's factor of its sums
 *   squares  [parts][16]                  floats, with RMS norm
 *   kept     [warps][16]                  floats: the factors of a warp's own sums, before these meet others
 *   held     [tiles of a block][count][tile rows]  floats, with clusters
 *   rings    [warps][Stages][piece]       from p.first_stage on
 *   norm     [warps][norm_bytes] */
enum : uint32_t {
  STREAM_NUMBER = sizeof(float),
  STREAM_FACTORS = 16,
  STREAM_SQUARES = STREAM_FACTORS + 16 * STREAM_NUMBER,
  STREAM_KEPT = STREAM_SQUARES + GEMV_MOST_PARTS * 16 * STREAM_NUMBER,
  STREAM_HELD = STREAM_KEPT + 16 * 16 * STREAM_NUMBER,
};
static_assert(STREAM_HELD == GEMV_STREAM_FIXED_BYTES, "what gemv_stream_plan.c counts with");

template <typename S> struct stream_thread {
  const uint32_t memory;
  const warp_position position;
  const uint32_t rank, first_tile, tile_step, lane, warp, warps, g, t;
  const uint32_t rows, last_row, group_row, chunk_elements, part_element;
  const uint32_t sums, meeting, factors, squares, kept, held, ring, norm;

  DEVICE stream_thread(const gemv_stream_parameters &p, const void *shared)
      : memory(computed_here(shared_address(shared))), position(position_of_warp(p)), rank(blockIdx.x % S::Cluster),
        first_tile(blockIdx.x / S::Cluster), tile_step(gridDim.x / S::Cluster), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32), warps(blockDim.x / 32), g(lane / 4), t(lane % 4), rows(p.groups * S::Piece::rows),
        last_row(p.m - rows), group_row(position.group * S::Piece::rows),
        chunk_elements(S::Cluster * p.parts * S::Piece::elements),
        part_element((rank * p.parts + position.part) * S::Piece::elements), sums(memory),
        meeting(sums + 2 * S::Sums::buffer_bytes), factors(meeting + STREAM_FACTORS), squares(meeting + STREAM_SQUARES),
        kept(meeting + STREAM_KEPT), held(meeting + STREAM_HELD),
        ring(memory + p.first_stage + warp * (S::Stages * S::Piece::bytes)),
        norm(memory + p.first_stage + warps * (S::Stages * S::Piece::bytes) + warp * S::norm_bytes) {}
  /* A vector of operand `a`'s column g, in this warp. */
  DEVICE uint32_t kept_of(int vector) const { return kept + (warp * 16 + vector) * STREAM_NUMBER; }
  /* The squares of the warp's part. */
  DEVICE uint32_t squares_of(uint32_t vector) const { return squares + (position.part * 16 + vector) * STREAM_NUMBER; }
};

/* Everything that is not copied begins so. */
template <typename S> DEVICE void set_shared_memory(const gemv_stream_parameters &p, const stream_thread<S> &at) {
  if (threadIdx.x == 0) barrier_init(at.meeting, at.warps);
  if (threadIdx.x < 16) store_number(at.factors + threadIdx.x * STREAM_NUMBER, p.scale * S::same_correction);
  if (at.warps < 16)
    for (uint32_t to = at.sums + threadIdx.x * 16; to < at.meeting; to += blockDim.x * 16)
      store_four_numbers(to, make_float4(0, 0, 0, 0));
  if (S::Cluster > 1)
    for (uint32_t to = at.held + threadIdx.x * 16; to < at.memory + p.first_stage; to += blockDim.x * 16)
      store_four_numbers(to, make_float4(0, 0, 0, 0));
}

/* ---- The norm --------------------------------------------------------------------------------------------------- */

/* Sixteen bytes number i of the four lanes' 4 x Slices each lie at i ^ lane: the lanes meet in no bank. They come
 * before the first piece does, or with it. */
template <typename S> DEVICE bool asks_for_norm(const gemv_stream_parameters &p) {
  return S::keeps_norm && p.norm && (!p.early || p.early & GEMV_NORM_EARLY);
}
template <typename S> DEVICE void ask_for_norm(const gemv_stream_parameters &p, const stream_thread<S> &at) {
  if (!asks_for_norm<S>(p)) return;
  unrolled_for (uint32_t i = at.lane; i < 16 * S::Slices; i += 32) {
    const uint32_t element = at.part_element + 8 * i;
    copy_16(at.norm + (i ^ i / (4 * S::Slices)) * 16,
            (const unsigned char *)p.norm + (uint64_t)(element < p.k ? element : 0) * 2);
  }
}
template <typename S> DEVICE words norm_of_part(const stream_thread<S> &at, uint32_t i) {
  return load_shared_words(at.norm + (i ^ i / (4 * S::Slices)) * 16);
}

/* ---- The ring --------------------------------------------------------------------------------------------------- */

/* The asking side of a warp's ring: the next piece's tile and chunk of k. */
template <typename S> struct stream_asker {
  using Piece = typename S::Piece;
  stream_source<Piece> source;
  uint32_t row, chunk;

  DEVICE stream_asker(const gemv_stream_parameters &p, const stream_thread<S> &at)
      : row(at.first_tile * at.rows), chunk(0) {
    source.set_part(p, at.group_row, at.part_element);
  }
  /* Addresses of this lane in a stage, from the stage's first byte. */
  static DEVICE uint32_t to(const stream_thread<S> &at) { return Piece::exchanged(at.lane) * 16; }
  static DEVICE uint32_t scales_to(const stream_thread<S> &at) {
    return Piece::weight_bytes + at.lane * Piece::scale_copy_bytes;
  }
  DEVICE void ask(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t own_to, uint32_t own_scales_to,
                  uint32_t row_step) {
    if (row < p.m) {
      source.copy_piece(p, own_to, own_scales_to, min(row, at.last_row));
      row += row_step;
      if constexpr (S::Cluster > 1)
        if (row >= p.m && ++chunk < p.chunks) {
          row = at.first_tile * at.rows;
          source.set_part(p, at.group_row, at.part_element + chunk * at.chunk_elements);
        }
    }
    cp_async_commit();
  }
  DEVICE void fill(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t first, uint32_t end) {
    rolled_for (uint32_t i = first; i < end; i++)
      ask(p, at, at.ring + i * Piece::bytes + to(at), at.ring + i * Piece::bytes + scales_to(at),
          at.tile_step * at.rows);
  }
};

#endif
