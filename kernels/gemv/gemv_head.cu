/* gemv_head.cu - 1 to 16 vectors and a matrix of many short rows in NVFP4 or e4m3: a warp has whole rows.
 *
 * When: k from 384 to 1024, at least 256 rows a multiprocessor, no RMS norm (gemv_head_plan.c). Rows have whole loads:
 * k is a multiple of 16 in e4m3 and of 32 in NVFP4, whose scales have no gaps. Bound by memory, and by the tail from
 * the last byte's arrival to the last store: sixteen rows by 64 elements of NVFP4 and eight vectors take some 80
 * instructions.
 *
 * A block has a multiprocessor for itself, and block_rows rows of one matrix. Its warps take groups of sixteen rows in
 * turn, as operand A of mma.m16n8k16. Operand B's columns are eight vectors or, with two operands, sixteen. k is not
 * split, so no sums meet. A barrier hands over the converted vectors; after it a warp waits for its own copies only.
 *
 * Lanes copy 16 bytes each into the warp's slot, in the order of memory. Pieces of 32 or 96 bytes of each row would let
 * the warp begin earlier, but arrive later by more than that. In most cases a multiprocessor's share fits into its
 * slots. Otherwise a warp fills its slot again after it has multiplied the slot's rows. The scales of sixteen rows are
 * a multiple of 16 bytes; plain loads bring the rest of the last rows' scales.
 *
 * Quads take 64 elements of a row at a time, 16 a lane: a scale group of NVFP4, which becomes operand A as in
 * gemv_operands.cuh. Vectors lie in shared memory as f16, in the order of the decoded weights, with zeros after the end
 * of k. Rows there are an odd multiple of 64 elements apart, and vectors an odd multiple of 16 bytes, so that lanes
 * that load at the same time use different banks. */
#include "../common/numbers.cuh"
#include "gemv_copies.cuh"
#include "gemv_finish.cuh"
#include "gemv_head.h"
#include "gemv_vectors.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

enum : uint32_t { NUMBER = sizeof(float), ROWS = GEMV_HEAD_ROWS };

/* ---- Shared memory ---------------------------------------------------------------------------------------------- */

/* What sums of each vector are multiplied with, GEMV_HEAD_FACTOR_BYTES; the vectors; each warp's slot, p.slot_bytes,
 * from p.first_slot on: rows, then NVFP4's scales without gaps. */
template <rondo_dtype W> struct shared_layout {
  static constexpr uint32_t lane_bytes = W == RONDO_NVFP4 ? 8 : 16; /* of 16 elements */
  uint32_t factors, vectors, vector_pitch, row_pitch, slot, scales;

  DEVICE shared_layout(const gemv_head_parameters &p, const void *memory) {
    factors = shared_address(memory);
    vectors = factors + GEMV_HEAD_FACTOR_BYTES;
    vector_pitch = GEMV_HEAD_VECTOR_PITCH(p.k), row_pitch = GEMV_HEAD_PITCH(p.k, lane_bytes);
    slot = factors + p.first_slot + threadIdx.x / 32 * p.slot_bytes;
    scales = slot + ROWS * row_pitch;
  }
};

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

/* A warp's groups, one after the other. Rows are p.parts loads of 16 bytes, and lane after lane takes one. */
template <rondo_dtype W> struct row_copies {
  const unsigned char *weights, *scales; /* of this lane, in the group */
  uint64_t policy;
  uint32_t row, rows, step; /* of the block: the group's first, all, and from one group to the next */

  DEVICE row_copies(const gemv_head_parameters &p, uint32_t first_row, uint32_t of_block)
      : row(threadIdx.x / 32 * ROWS), rows(of_block), step(blockDim.x / 32 * ROWS) {
    const uint32_t lane = threadIdx.x % 32;
    weights = weights_from(p, first_row + row, lane);
    scales = offset(p.weight_scales + blockIdx.y * p.weight_scale_batch, first_row + row, p.k / GEMV_BLOCK) + lane * 16;
    policy = read_once_policy();
  }
  DEVICE bool has_group() const { return row < rows; }
  DEVICE uint32_t loads(const gemv_head_parameters &p) const {
    return has_group() ? min(ROWS, rows - row) * p.parts : 0;
  }
  DEVICE void go_on(const gemv_head_parameters &p) {
    row += step;
    weights += (uint64_t)step * p.weight_row;
    scales += step * (p.k / GEMV_BLOCK);
  }
  DEVICE void ask_for_scales(const gemv_head_parameters &p, uint32_t to) const {
    if (W != RONDO_NVFP4 || !has_group()) return;
    const uint32_t lane = threadIdx.x % 32, bytes = min(ROWS, rows - row) * (p.k / GEMV_BLOCK);
    unrolled_for (uint32_t i = 0; i < GEMV_HEAD_MOST_K / 512; i++)
      if (lane * 16 + i * 512 + 16 <= bytes) copy_16(to + lane * 16 + i * 512, scales + i * 512, policy);
    if (bytes % 16) /* of the matrix's last rows */
      rolled_for (uint32_t i = (bytes & ~15u) + 2 * lane; i < bytes; i += 64)
        copy_scale_pair(to + i, scales - lane * 16 + i);
  }
  /* Loads first .. end - 1 of the group; `first` is 0 or `end`. */
  DEVICE void ask(const gemv_head_parameters &p, const shared_layout<W> &layout, uint32_t first, uint32_t end) const {
    const uint32_t lane = threadIdx.x % 32, gap = layout.row_pitch - p.parts * 16;
    const unsigned char *from = weights + first * 16;
    const uint32_t to = layout.slot + lane * 16;
    if (gap == 0) {
      rolled_for (uint32_t i = first; i < end; i += 128, from += 2048)
        unrolled_for (uint32_t j = 0; j < 128; j += 32)
          if (i + j + lane < end) copy_16(to + i * 16 + j * 16, from + j * 16, policy);
    } else {
      rolled_for (uint32_t i = first; i + lane < end; i += 32, from += 512)
        copy_16(to + i * 16 + ((i + lane) * p.part_reciprocal >> 16) * gap, from, policy);
    }
  }
};

/* ---- Vectors ---------------------------------------------------------------------------------------------------- */

/* A warp converts one. In 16 bits a lane has pieces of 8 elements, 32 pieces apart; in NVFP4 one piece of 32. */
template <rondo_dtype W> struct vector_words {
  static constexpr int pieces = GEMV_HEAD_MOST_K / 32 / 8;
  words loaded[pieces]; /* of NVFP4 the first alone */
  uint32_t scales;      /* of NVFP4 */

  DEVICE void fetch(const gemv_head_parameters &p, uint32_t vector) {
    const uint32_t lane = threadIdx.x % 32, end = is_nvfp4(p) ? p.k / 32 : p.k / 8;
    scales = 0;
    if (is_nvfp4(p) && lane < end) scales = load_vector_scales(vector_scales_from(p, vector, 2 * lane));
    unrolled_for (int i = 0; i < pieces; i++) {
      loaded[i] = words();
      if (lane + 32 * i < end) loaded[i] = load_vector(vector_from(p, vector, lane + 32 * i));
    }
  }
  /* To `at`; returns the factor of the sums. */
  DEVICE float convert(const gemv_head_parameters &p, uint32_t at) const {
    const float correction = W == RONDO_NVFP4 ? 1 / nvfp4_factor : 1.0f;
    if (is_nvfp4(p)) {
      store_nvfp4(p, at);
    } else if (p.vector_dtype == RONDO_BF16) {
      uint32_t largest = 0;
      unrolled_for (int i = 0; i < pieces; i++) largest = larger_magnitudes(largest, loaded[i].word);
      const power_of_two power = power_for(__reduce_max_sync(0xffffffffu, max(largest & 0xffffu, largest >> 16)));
      store_pieces(p, at,
                   [&](const uint32_t(&word)[4], uint32_t *pairs) { f16_of_bf16<W>(word, power.factor, pairs); });
      return correction * power.inverse;
    } else {
      store_pieces(p, at, [&](const uint32_t(&word)[4], uint32_t *pairs) { order_eight<W, false>(word, pairs); });
    }
    return correction;
  }

private:
  static DEVICE bool is_nvfp4(const gemv_head_parameters &p) {
    return W == RONDO_NVFP4 && p.vector_dtype == RONDO_NVFP4;
  }
  static DEVICE uint32_t whole_steps(uint32_t k) { return (k + 63) & ~63u; }

  DEVICE void store_nvfp4(const gemv_head_parameters &p, uint32_t at) const {
    const uint32_t lane = threadIdx.x % 32;
    raw_vector<RONDO_NVFP4, RONDO_NVFP4, 1> raw;
    uint32_t out[1][16];
    raw.loaded[0][0] = loaded[0], raw.scales[0] = scales;
    convert_nvfp4(raw, out);
    if (lane < whole_steps(p.k) / 32)
      unrolled_for (int i = 0; i < 4; i++) store_shared_words(at + lane * 64 + i * 16, &out[0][4 * i]);
  }
  template <typename Convert>
  DEVICE void store_pieces(const gemv_head_parameters &p, uint32_t at, const Convert &convert_eight) const {
    unrolled_for (int i = 0; i < pieces; i++) {
      const uint32_t piece = threadIdx.x % 32 + 32 * i;
      uint32_t pairs[4];
      convert_eight(loaded[i].word, pairs);
      if (piece < whole_steps(p.k) / 8) store_shared_words(at + piece * 16, pairs);
    }
  }
};

/* ---- Products --------------------------------------------------------------------------------------------------- */

/* Of sixteen rows: lane 4 g + t gets those of rows g and g + 8 with vectors 2 t and 2 t + 1 (of each eight). The two
 * halves of eight elements have sums of their own, so that products which follow each other wait for no other. */
template <rondo_dtype W, int Columns> struct row_product {
  float sums[2][Columns][4];
  uint32_t row_at, scales_at, vectors_at, t;

  DEVICE row_product(const gemv_head_parameters &p, const shared_layout<W> &layout) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4;
    t = lane % 4;
    row_at = layout.slot + g * layout.row_pitch;
    scales_at = layout.scales + g * (p.k / GEMV_BLOCK);
    vectors_at = layout.vectors + g * layout.vector_pitch;
    unrolled_for (int i = 0; i < 2; i++)
      unrolled_for (int n = 0; n < Columns; n++)
        unrolled_for (int j = 0; j < 4; j++) sums[i][n][j] = 0;
  }
  /* 64 elements from `first` on, which counts blocks of 16. */
  DEVICE void add(const gemv_head_parameters &p, const shared_layout<W> &layout, uint32_t first) {
    const uint32_t blocks = p.k / GEMV_BLOCK;
    /* Behind the end vectors are zero, and a NaN of the row makes it NaN anyway. */
    const uint32_t block = min(first + t, blocks - 1), vector_at = vectors_at + (first + t) * 32;
    words loaded[2], x[Columns][2];
    uint32_t scale[2] = {};
    unrolled_for (int h = 0; h < 2; h++) {
      const uint32_t at = row_at + h * (8 * layout.row_pitch) + block * layout.lane_bytes;
      if constexpr (W == RONDO_NVFP4) {
        const uint2 codes = load_two_words(at);
        loaded[h].word[0] = codes.x, loaded[h].word[1] = codes.y;
        scale[h] = bits_of(block_scales(load_byte(scales_at + h * (8 * blocks) + block)));
      } else {
        loaded[h] = load_shared_words(at);
      }
    }
    unrolled_for (int n = 0; n < Columns; n++)
      unrolled_for (int w = 0; w < 2; w++)
        x[n][w] = load_shared_words(vector_at + n * (8 * layout.vector_pitch) + w * 16);
    unrolled_for (int w = 0; w < 2; w++) {
      uint32_t a[2][4];
      unrolled_for (int h = 0; h < 2; h++) decode_eight<W, false>(loaded[h], w, scale[h], a[h]);
      unrolled_for (int n = 0; n < Columns; n++) {
        multiply_accumulate<false>(sums[0][n], a[0], a[1], x[n][w].word);
        multiply_accumulate<false>(sums[1][n], a[0] + 2, a[1] + 2, x[n][w].word + 2);
      }
    }
  }
};

/* ---- Turns ------------------------------------------------------------------------------------------------------ */

/* Warps ask in turns, a third of them at a time, so that what the first ones asked for comes first and is multiplied
 * while the rest is under way: asked for at once, everything comes at once, and nothing is left to hide the arithmetic
 * (H200, 49152 x 576 in NVFP4: 9.6 us, in two turns 8.7, in three 8.3, in four 8.6). Only the first third asks before
 * the predecessors end, the others after the vectors: the first level of the cache answers in the order it was asked,
 * and what of a vector came last would leave all arithmetic to the end. */
struct turn_of_warp {
  uint32_t turn, third, warps;

  DEVICE turn_of_warp() : warps(blockDim.x / 32) { third = warps / 3, turn = min(threadIdx.x / 32 / third, 2u); }
  DEVICE void begin() const {
    if (turn == 1) warps_meet(1, 64 * third);
    if (turn == 2) warps_meet(2, 32 * (warps - third));
  }
  DEVICE void end() const {
    if (turn == 0) warps_arrive(1, 64 * third);
    if (turn == 1) warps_arrive(2, 32 * (warps - third));
  }
};

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* A lane's results of a group of sixteen rows. The first is of `vector` and `row`; the others are of the next vector,
 * of row + 8, and of eight vectors further. */
template <rondo_dtype W, int Columns> struct group_results {
  uint32_t first_row, rows, vector, row, shift;
  unsigned char *out;
  int64_t one_vector, eight_vectors; /* bytes */
  const float *row_factors;

  DEVICE group_results(const gemv_head_parameters &p, uint32_t first_row, uint32_t rows)
      : first_row(first_row), rows(rows), vector(threadIdx.x % 4 * 2), row(threadIdx.x % 32 / 4),
        shift(p.out_dtype == RONDO_F32 ? 2 : 1) {
    const int64_t element = blockIdx.y * p.out_batch + vector * p.out_row + (first_row + row);
    out = (unsigned char *)p.out + (element << shift);
    one_vector = p.out_row << shift, eight_vectors = 8 * one_vector;
    row_factors = W == RONDO_E4M3 ? row_scales(p, blockIdx.y) : nullptr;
  }
  DEVICE float factor_of_row(uint32_t group_row) const {
    return row_factors && group_row + row < rows ? __ldg(row_factors + first_row + group_row + row) : 1.0f;
  }
  /* The two halves' sums become results, in the first half's place. */
  DEVICE void multiply_factors(const gemv_head_parameters &p, const shared_layout<W> &layout, uint32_t group_row,
                               float (&sums)[2][Columns][4]) const {
    const float row_factor[2] = {factor_of_row(group_row), factor_of_row(group_row + 8)};
    unrolled_for (int n = 0; n < Columns; n++) {
      const float2 factor = load_shared_two(layout.factors + (vector + 8 * n) * NUMBER);
      unrolled_for (int i = 0; i < 4; i++) {
        float &sum = sums[0][n][i];
        /* One after the other: the product of all factors may be 2^128, which fp32 cannot hold. */
        sum = (sum + sums[1][n][i]) * (i % 2 ? factor.y : factor.x) * p.scale;
        if (W == RONDO_E4M3) sum *= row_factor[i / 2];
      }
    }
  }
  DEVICE void store(const gemv_head_parameters &p, uint32_t group_row, const float (&sums)[Columns][4]) const {
    unsigned char *const at = out + ((uint64_t)group_row << shift);
    unrolled_for (int n = 0; n < Columns; n++)
      unrolled_for (int i = 0; i < 4; i++) {
        const uint32_t vector_here = 8 * n + i % 2, row_here = i / 2 * 8;
        if (vector + vector_here >= p.count || group_row + row + row_here >= rows) continue;
        store_number(p.out_dtype, at + n * eight_vectors + (i % 2 ? one_vector : 0), row_here, sums[n][i]);
      }
  }
};

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

template <rondo_dtype W, int Columns> DEVICE void gemv_head(const gemv_head_parameters &p) {
  extern __shared__ __align__(128) unsigned char head_memory[];
  const shared_layout<W> layout(p, head_memory);
  const uint32_t warp = threadIdx.x / 32, first_row = blockIdx.x * p.block_rows;
  const uint32_t rows = min(p.block_rows, p.m - first_row);
  row_copies<W> copies(p, first_row, rows);
  const turn_of_warp turns;
  const uint32_t loads = copies.loads(p), early_loads = p.early && turns.turn == 0 ? loads : 0;
  copies.ask(p, layout, 0, early_loads);
  wait_for_predecessors();
  vector_words<W> vector;
  const uint32_t converts = turns.warps - 1 - warp; /* by those that ask last */
  if (converts < p.count) vector.fetch(p, converts);
  turns.begin();
  copies.ask_for_scales(p, layout.scales);
  copies.ask(p, layout, early_loads, loads);
  turns.end();
  cp_async_commit();
  if (converts < p.count) {
    const float correction = vector.convert(p, layout.vectors + converts * layout.vector_pitch);
    if (threadIdx.x % 32 == 0) store_number(layout.factors + converts * NUMBER, correction);
  }
  __syncthreads();

  const group_results<W, Columns> results(p, first_row, rows);
#pragma unroll 1
  while (copies.has_group()) {
    const uint32_t row = copies.row;
    cp_async_wait<0>();
    __syncwarp();
    row_product<W, Columns> product(p, layout);
    rolled_for (uint32_t first = 0; first < p.k / GEMV_BLOCK; first += 4) product.add(p, layout, first);
    copies.go_on(p);
    if (copies.has_group()) {
      __syncwarp(); /* every lane has read what is written over */
      copies.ask_for_scales(p, layout.scales);
      copies.ask(p, layout, 0, copies.loads(p));
      cp_async_commit();
    }
    results.multiply_factors(p, layout, row, product.sums);
    results.store(p, row, product.sums[0]);
  }
}

#define DEFINE(chips, parameters, name, threads, blocks, ...)                                                          \
  DEFINE_EARLY_KERNEL(chips, parameters, name, threads, blocks, gemv_head<__VA_ARGS__>)
GEMV_HEAD_KERNELS(DEFINE)

#endif
