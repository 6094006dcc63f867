/* gemv_head_16.cu - 1 to 16 vectors and a matrix of many short rows in 16 bits: a warp has whole rows, by bulk copies.
 *
 * When: f16 or bf16, k from 256 to 2048, at least k / 128 tiles of 16 rows a block, no epilogue (gemv_head_plan.c).
 * Bound by memory.
 *
 * A tile is sixteen rows of a matrix without gaps, so one copy brings it. A multiprocessor has one block. Blocks take
 * tiles gridDim.x apart, and their warps take turns. A warp has a slot of its own: it multiplies the tile there and
 * asks for its next tile, while the other slots, nearly all of shared memory, are in flight. k is not split, so no sums
 * meet. A barrier hands over the vectors; after it no warp waits for another.
 *
 * Half of the slots are asked for before the vectors (early, if the weights are settled), and half after the vectors
 * have come. If the vectors were asked for after all slots, they would come last, and all arithmetic with them (H200,
 * 49152 x 576 in bf16 with sixteen vectors: 16.7 us, after another product 16.5; so 16.0 and 14.4).
 *
 * Tiles are operand A of mma.m16n8k16, as in gemv_operands.cuh. Operand B's columns are vectors, which lie in shared
 * memory as they are multiplied. Quads take 64 bytes of a row at a time, 16 a lane, for two products. If rows lie a
 * multiple of 128 bytes apart, lanes of odd rows load the second of two such pieces first, so that eight lanes use
 * different banks. Vectors lie an odd multiple of 64 bytes apart. Results get a factor, with RMS norm's. */
#include "../common/numbers.cuh"
#include "gemv_bulk.cuh"
#include "gemv_finish.cuh"
#include "gemv_head.h"
#include "gemv_vectors.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

enum : uint32_t { NUMBER = sizeof(float), ROWS = GEMV_HEAD_ROWS };

/* ---- Shared memory ---------------------------------------------------------------------------------------------- */

/* A barrier of each slot, what sums of each vector are multiplied with, the vectors; from p.first_slot on the slots.
 */
struct shared_layout {
  uint32_t barriers, factors, vectors, vector_pitch, slots;

  DEVICE shared_layout(const gemv_head_parameters &p, const void *memory) {
    barriers = shared_address(memory);
    factors = barriers + GEMV_HEAD_16_WARPS * 8;
    vectors = barriers + GEMV_HEAD_16_FIXED_BYTES;
    vector_pitch = GEMV_HEAD_16_VECTOR_PITCH(p.k);
    slots = barriers + p.first_slot;
  }
};

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

/* By all lanes of a warp, which agree. */
DEVICE void ask_for_tile(const gemv_head_parameters &p, const shared_layout &layout, uint32_t slot, uint32_t tile) {
  if (tile >= p.tiles) return;
  const unsigned char *const from = weights_from(p, first_row_of(p, tile, ROWS), 0);
  const uint32_t barrier = layout.barriers + slot * 8, to = layout.slots + slot * p.slot_bytes;
  const uint64_t policy = read_once_policy();
  if (elected()) {
    bulk_copy(to, from, p.slot_bytes, barrier, policy);
    barrier_expect(barrier, p.slot_bytes);
  }
}

/* ---- Vectors ---------------------------------------------------------------------------------------------------- */

/* A warp has one: normalised, if that is asked for, and otherwise as it is. */
template <rondo_dtype T>
DEVICE void take_vector(const gemv_head_parameters &p, const shared_layout &layout, uint32_t vector) {
  constexpr int slice = 32 * 8, slices = GEMV_HEAD_16_MOST_K / slice;
  const uint32_t lane = threadIdx.x % 32, element = lane * 8;
  const uint32_t to = layout.vectors + vector * layout.vector_pitch + lane * 16;
  raw_vector<T, T, slices> raw;
  load_raw<T, T, slices, slice>(p, vector, element, raw);
  float factor = p.scale;
  if (p.norm_epsilon > 0) {
    float squares = normalise_words<T, slice, false>(p, element, raw.loaded);
    unrolled_for (int distance = 1; distance < 32; distance *= 2)
      squares += __shfl_xor_sync(0xffffffffu, squares, distance);
    factor *= rms_factor(p, squares);
  }
  unrolled_for (int s = 0; s < slices; s++)
    if (element + s * slice < p.k) store_shared_words(to + s * slice * 2, raw.loaded[s][0].word);
  if (lane == 0) store_number(layout.factors + vector * NUMBER, factor);
}

/* ---- Products --------------------------------------------------------------------------------------------------- */

/* Of sixteen rows: lane 4 g + t gets those of rows g and g + 8 with vectors 2 t and 2 t + 1 (of each eight). Tensor
 * cores cut each product off below the last place of the largest number that it is added to (Fasi, Higham, Mikaitis and
 * Pranesh, Numerical behavior of NVIDIA tensor cores, 2021). So they add up sixteen of them only, and the sums of these
 * are added here, rounded to nearest. */
template <rondo_dtype T, int Columns> struct row_product {
  float sums[Columns][4];

  DEVICE void multiply(const gemv_head_parameters &p, const shared_layout &layout, uint32_t slot) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const bool turned = p.k / 32 % 2 == 0 && g % 2;
    uint32_t row_at = layout.slots + slot * p.slot_bytes + g * p.weight_row + t * 16;
    uint32_t vector_at = layout.vectors + g * layout.vector_pitch + t * 16;
    const uint32_t first = turned ? 64 : 0, second = 64 - first;
    unrolled_for (int n = 0; n < Columns; n++)
      unrolled_for (int j = 0; j < 4; j++) sums[n][j] = 0;
#pragma unroll 3
    for (uint32_t pair = 0; pair < p.k / 64; pair++, row_at += 128, vector_at += 128) {
      words a[2][2];
      unrolled_for (int h = 0; h < 2; h++) {
        const words loaded[2] = {load_shared_words(row_at + h * (8 * p.weight_row) + first),
                                 load_shared_words(row_at + h * (8 * p.weight_row) + second)};
        unrolled_for (int i = 0; i < 4; i++) {
          a[0][h].word[i] = turned ? loaded[1].word[i] : loaded[0].word[i];
          a[1][h].word[i] = turned ? loaded[0].word[i] : loaded[1].word[i];
        }
      }
      add(layout, vector_at, a[0]);
      add(layout, vector_at + 64, a[1]);
    }
    if (p.k % 64) {
      const words last[2] = {load_shared_words(row_at), load_shared_words(row_at + 8 * p.weight_row)};
      add(layout, vector_at, last);
    }
  }
  /* 32 elements of each row. */
  DEVICE void add(const shared_layout &layout, uint32_t vector_at, const words (&a)[2]) {
    unrolled_for (int n = 0; n < Columns; n++) {
      const words x = load_shared_words(vector_at + n * (8 * layout.vector_pitch));
      unrolled_for (int i = 0; i < 4; i += 2) {
        float sixteen[4] = {};
        multiply_accumulate<T == RONDO_BF16>(sixteen, a[0].word + i, a[1].word + i, x.word + i);
        unrolled_for (int j = 0; j < 4; j++) sums[n][j] += sixteen[j];
      }
    }
  }
  /* Made of all that was loaded. */
  DEVICE uint32_t bits() const {
    uint32_t all = 0;
    unrolled_for (int n = 0; n < Columns; n++)
      unrolled_for (int j = 0; j < 4; j++) all ^= __float_as_uint(sums[n][j]);
    return all;
  }
};

/* ---- Results ---------------------------------------------------------------------------------------------------- */

/* Where this lane's lie if a tile begins with row 0. */
struct row_results {
  unsigned char *out;
  uint32_t shift;
  int64_t vector_bytes;

  DEVICE row_results(const gemv_head_parameters &p) : shift(p.out_dtype == RONDO_F32 ? 2 : 1) {
    const uint32_t lane = threadIdx.x % 32;
    const int64_t element = blockIdx.y * p.out_batch + lane % 4 * 2 * p.out_row + lane / 4;
    out = (unsigned char *)p.out + (element << shift);
    vector_bytes = p.out_row << shift;
  }
  /* The last tile may have rows of the one before, which are not stored twice. */
  template <int Columns>
  DEVICE void store(const gemv_head_parameters &p, uint32_t tile, const float (&sums)[Columns][4],
                    const float2 (&factors)[Columns]) const {
    const uint32_t lane = threadIdx.x % 32, first_row = first_row_of(p, tile, ROWS);
    unsigned char *const at = out + ((uint64_t)first_row << shift);
    unrolled_for (int n = 0; n < Columns; n++)
      unrolled_for (int i = 0; i < 4; i++) {
        const uint32_t vector = 8 * n + lane % 4 * 2 + i % 2, row = i / 2 * 8;
        if (vector >= p.count || first_row + row + lane / 4 < tile * ROWS) continue;
        store_number(p.out_dtype, at + (8 * n + i % 2) * vector_bytes, row,
                     sums[n][i] * (i % 2 ? factors[n].y : factors[n].x));
      }
  }
};

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

/* After the wait: the vectors, then the tiles of a warp. */
template <rondo_dtype T, int Columns>
DEVICE void multiply_tiles(const gemv_head_parameters &p, const shared_layout &layout, uint32_t warp, uint32_t tile) {
  const uint32_t step = p.slots * gridDim.x, barrier = layout.barriers + warp * 8;
  if (warp < p.count) take_vector<T>(p, layout, warp);
  __syncthreads();
  if (warp >= p.early_slots) ask_for_tile(p, layout, warp, tile);

  const row_results results(p);
  float2 factors[Columns];
  unrolled_for (int n = 0; n < Columns; n++)
    factors[n] = load_shared_two(layout.factors + (8 * n + threadIdx.x % 4 * 2) * NUMBER);
  uint32_t parity = 0;
  rolled_for (; tile < p.tiles; tile += step, parity ^= 1) {
    barrier_wait(barrier, parity);
    row_product<T, Columns> product;
    product.multiply(p, layout, warp);
    /* A slot is filled again after all of it was read: `always_zero` (see gemv_ring.cu). */
    ask_for_tile(p, layout, warp, tile + step + (product.bits() & p.always_zero));
    results.store(p, tile, product.sums, factors);
  }
}

template <int Columns> DEVICE void gemv_head_16(const gemv_head_parameters &p) {
  extern __shared__ __align__(128) unsigned char head_memory[];
  const shared_layout layout(p, head_memory);
  /* From one lane, so that ptxas knows that all lanes have the same. */
  const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const uint32_t tile = warp < p.slots ? blockIdx.x + warp * gridDim.x : p.tiles;
  if (elected()) {
    barrier_init(layout.barriers + warp * 8, 1);
    barriers_are_initialised();
  }
  const bool asks_first = warp < p.early_slots;
  if (p.early && asks_first) ask_for_tile(p, layout, warp, tile);
  wait_for_predecessors();
  if (!p.early && asks_first) ask_for_tile(p, layout, warp, tile);
  if (p.vector_dtype == RONDO_BF16)
    multiply_tiles<RONDO_BF16, Columns>(p, layout, warp, tile);
  else
    multiply_tiles<RONDO_F16, Columns>(p, layout, warp, tile);
}

#define DEFINE(chips, parameters, name, threads, blocks, columns)                                                      \
  DEFINE_EARLY_KERNEL(chips, parameters, name, threads, blocks, gemv_head_16<columns>)
GEMV_HEAD_16_KERNELS(DEFINE)

#endif
