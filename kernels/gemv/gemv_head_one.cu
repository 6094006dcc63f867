/* gemv_head_one.cu - one vector and an NVFP4 matrix of many short rows: a multiprocessor's whole share at once.
 *
 * When: NVFP4, k up to 960, 128 to 512 rows a multiprocessor, no RMS norm (gemv_head_plan.c). Rows have no gaps, and k
 * is a multiple of 32. Bound by memory, and by the tail from the last byte's arrival to the last store: a group of
 * eight rows takes some 300 instructions of a warp.
 *
 * A block has a multiprocessor for itself, and block_rows rows of one matrix, all of which fit into shared memory. So
 * nothing is filled twice, and memory is never idle. A warp copies the groups of eight rows that it multiplies, and
 * waits for its own copies only. A barrier hands over the converted vector; after it no warp waits for another. Lanes
 * copy 16 bytes each. Bulk copies begin later, which costs more than the lanes' instructions in a kernel of five
 * microseconds. The scales of eight rows are a multiple of 16 bytes; plain loads bring the rest of the last rows'
 * scales.
 *
 * Four lanes have a row. Each has `Groups` neighbouring scale groups of 16 elements, and holds that piece of the vector
 * in registers. If four pieces are more than the row, a lane begins earlier, so that it reads nothing after the row.
 * Its vector is zero where another lane has the same elements (a NaN of the row makes the result NaN in any case). Rows
 * in shared memory are as far apart as if they were whole. `Groups` is odd, so 8 x Groups x lane puts no two lanes of
 * half a warp into one bank. */
#include "gemv_copies.cuh"
#include "gemv_dot.cuh"
#include "gemv_finish.cuh"
#include "gemv_head.h"
#include "gemv_vectors.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

enum : uint32_t { ROWS = GEMV_ONE_ROWS, WARPS = GEMV_ONE_WARPS };

/* Of the copies a turn's go out before the predecessors end, the others after the vector: the first level of the cache
 * answers in the order it was asked, and what of the vector came last would leave all arithmetic to the end. */
enum : uint32_t { EARLY_TURNS = 1 };

/* ---- Shared memory ---------------------------------------------------------------------------------------------- */

/* The vector, converted, in GEMV_ONE_VECTOR_BYTES; the block's rows, `pitch` apart; their scales, without gaps, and
 * GEMV_ONE_PADDING bytes. gemv_head_plan.c says how much. */
template <int Groups> struct shared_layout {
  static constexpr uint32_t pitch = GEMV_ONE_PITCH(Groups), weights = GEMV_ONE_VECTOR_BYTES;
  uint32_t shared, scales;

  DEVICE shared_layout(const gemv_head_parameters &p, const void *memory)
      : shared(shared_address(memory)), scales(shared + weights + p.block_rows * pitch) {}
  DEVICE uint32_t weights_of(uint32_t row) const { return shared + weights + row * pitch; }
  DEVICE uint32_t scales_of(const gemv_head_parameters &p, uint32_t row) const {
    return scales + row * (p.k / GEMV_BLOCK);
  }
};

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

DEVICE void wait_for_turn(uint32_t turn) {
  static_assert(GEMV_ONE_TURNS == 4, "");
  if (turn == 0) cp_async_wait<3>();
  if (turn == 1) cp_async_wait<2>();
  if (turn == 2) cp_async_wait<1>();
  if (turn == 3) cp_async_wait<0>();
  __syncwarp();
}

/* A warp's groups of eight rows, one a turn. Rows of weights are p.parts loads of 16 bytes, which lie in memory without
 * gaps, and lane after lane takes one. */
template <int Groups> struct row_copies {
  static constexpr int loads = (Groups + 1) / 2; /* of a lane, at most */
  const unsigned char *weights, *scales;
  uint64_t policy;
  uint32_t to[loads], scales_to, row, rows;

  DEVICE row_copies(const gemv_head_parameters &p, const shared_layout<Groups> &layout, uint32_t first_row,
                    uint32_t of_block)
      : row(threadIdx.x / 32 * ROWS), rows(of_block) {
    const uint32_t lane = threadIdx.x % 32, first = first_row + row;
    weights = weights_from(p, first, lane);
    scales = offset(p.weight_scales + blockIdx.y * p.weight_scale_batch, first, p.k / GEMV_BLOCK);
    policy = read_once_policy();
    unrolled_for (int i = 0; i < loads; i++) {
      const uint32_t load = lane + 32 * i, of_row = load * p.part_reciprocal >> 16;
      to[i] = layout.weights_of(row + of_row) + (load - of_row * p.parts) * 16;
    }
    scales_to = layout.scales_of(p, row);
  }
  /* The next turn's, if there are any. */
  DEVICE void ask(const gemv_head_parameters &p) {
    if (row < rows) {
      const uint32_t lane = threadIdx.x % 32, here = min(ROWS, rows - row);
      const uint32_t weight_loads = here * p.parts, scale_bytes = here * (p.k / GEMV_BLOCK);
      unrolled_for (int i = 0; i < loads; i++) {
        if (lane + 32 * i < weight_loads) copy_16(to[i], weights + 512 * i, policy);
        to[i] += WARPS * ROWS * shared_layout<Groups>::pitch;
      }
      if (lane * 16 + 16 <= scale_bytes) copy_16(scales_to + lane * 16, scales + lane * 16, policy);
      rolled_for (uint32_t i = (scale_bytes & ~15u) + 2 * lane; i < scale_bytes; i += 64)
        copy_scale_pair(scales_to + i, scales + i);
    }
    cp_async_commit();
    row += WARPS * ROWS;
    weights += (uint64_t)(WARPS * ROWS) * p.weight_row;
    scales += WARPS * ROWS * (p.k / GEMV_BLOCK);
    scales_to += WARPS * ROWS * (p.k / GEMV_BLOCK);
  }
};

/* ---- A lane's piece of a row ------------------------------------------------------------------------------------ */

template <int Groups> struct row_piece {
  static constexpr int pairs = (Groups + 1) / 2, scale_words = (Groups + 6) / 4;
  uint32_t row, lane; /* of eight; in the row */
  uint32_t start;     /* the first block */
  uint32_t weights_at, scales_at;
  uint32_t selectors[2]; /* of even and odd pairs of scales */

  DEVICE row_piece(const gemv_head_parameters &p, const shared_layout<Groups> &layout) {
    row = threadIdx.x % 32 / 4;
    lane = threadIdx.x % 4;
    start = min(lane * Groups, p.k / GEMV_BLOCK - Groups);
    weights_at = layout.weights_of(row) + start * 8;
    /* At any byte; the words around them are loaded. Eight rows have a multiple of four bytes. */
    const uint32_t at = layout.scales_of(p, row) + start, shift = at % 4;
    scales_at = at - shift;
    selectors[0] = shift * 0x11 + 0x10;
    selectors[1] = selectors[0] + 0x22;
  }
  /* Whether block j counts here. */
  DEVICE bool has(uint32_t j) const { return start + j >= lane * Groups; }
};

/* Its bytes, in the group of eight that begins with this row. */
template <int Groups> struct row_bytes {
  using piece = row_piece<Groups>;
  uint2 weights[Groups];
  uint32_t scales[piece::scale_words];

  DEVICE row_bytes(const gemv_head_parameters &p, const piece &of, uint32_t first_row) {
    const uint32_t weights_at = of.weights_at + first_row * shared_layout<Groups>::pitch;
    const uint32_t scales_at = of.scales_at + first_row * (p.k / GEMV_BLOCK);
    unrolled_for (int i = 0; i < piece::scale_words; i++) scales[i] = load_word(scales_at + 4 * i);
    unrolled_for (int j = 0; j < Groups; j++) weights[j] = load_two_words(weights_at + 8 * j);
  }
  /* Those of blocks 2 i and 2 i + 1, the latter anything beyond the last. */
  DEVICE __half2 scale_pair(const piece &of, int i) const {
    const int next = i / 2 + 1 < piece::scale_words ? i / 2 + 1 : i / 2;
    return half2_of_e4m3(permute(scales[i / 2], scales[next], of.selectors[i % 2]));
  }
};

/* ---- Vectors of NVFP4: integers --------------------------------------------------------------------------------- */

/* In shared memory: bytes of twice the value, then the scales as halves. A thread converts eight codes. */
template <rondo_dtype V, int Groups> struct vector_product {
  static_assert(V == RONDO_NVFP4, "");
  using piece = row_piece<Groups>;
  tables t;
  uint32_t bytes[Groups][4];
  __half2 scales[piece::pairs]; /* a quarter: dot products are four times */
  uint32_t codes, scale;        /* of the vector, as loaded */

  DEVICE void fetch(const gemv_head_parameters &p, uint32_t thread) {
    codes = scale = 0;
    if (thread >= p.k / 8) return;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(codes) : "l"(vector_from(p, 0, 0) + thread * 4) : "memory");
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(scale) : "l"(vector_scales_from(p, 0, thread / 2)) : "memory");
  }
  DEVICE void convert(const gemv_head_parameters &p, uint32_t at, uint32_t thread) const {
    if (thread >= p.k / 8) return;
    uint32_t first, second;
    decode_vector_word(codes, first, second);
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at + thread * 8), "r"(first), "r"(second) : "memory");
    const uint32_t quarter = bits_of(__hmul2(half2_of_e4m3(scale), half2_of(0x34003400u)));
    if (thread % 2 == 0)
      asm volatile("st.shared.u16 [%0], %1;" ::"r"(at + p.k + thread), "h"((uint16_t)quarter) : "memory");
  }
  DEVICE void take(const gemv_head_parameters &p, uint32_t at, const piece &of) {
    t = load_tables();
    unrolled_for (int j = 0; j < Groups; j++) {
      words loaded = {};
      if (of.has(j)) loaded = load_shared_words(at + (of.start + j) * 16);
      unrolled_for (int i = 0; i < 4; i++) bytes[j][i] = loaded.word[i];
    }
    unrolled_for (int i = 0; i < piece::pairs; i++) {
      const uint32_t from = at + p.k + (of.start + 2 * i) * 2;
      const uint32_t low = load_shared_pair(from), high = 2 * i + 1 < Groups ? load_shared_pair(from + 2) : 0;
      scales[i] = half2_of(low | high << 16);
    }
  }
  DEVICE float multiply(const row_bytes<Groups> &of_row, const piece &of) const {
    float even = 0, odd = 0;
    unrolled_for (int i = 0; i < piece::pairs; i++) {
      /* Exact in f16: at most 8 bits, a multiple of 2^-20, at most 50176. */
      const __half2 product = __hmul2(of_row.scale_pair(of, i), scales[i]);
      const int j = 2 * i, next = j + 1 < Groups ? j + 1 : j;
      even = __fmaf_rn(dot_of_block(of_row.weights[j].x, of_row.weights[j].y, bytes[j], t), __low2float(product), even);
      if (next != j)
        odd = __fmaf_rn(dot_of_block(of_row.weights[next].x, of_row.weights[next].y, bytes[next], t),
                        __high2float(product), odd);
    }
    return even + odd;
  }
};

/* ---- Vectors of 16 bits: tensor cores --------------------------------------------------------------------------- */

/* Lane 4 g + t has row g. As operand A, its even blocks are "row g" and its odd ones "row g + 8". Operand B's columns
 * are not needed for vectors, so they keep lanes and blocks apart: column 2 t has what lane t multiplies with an even
 * block, column 2 t + 1 with an odd one, and zeros elsewhere. Then the results (g, 2 t) and (g + 8, 2 t + 1), which
 * lane 4 g + t holds, are the dot products of its own two blocks, and scales are multiplied in once a block.
 *
 * In shared memory: what results are multiplied with, in 16 bytes, and the vector as f16 in the order of decode_e2m1.
 * bf16 becomes f16 by a power of two of the largest magnitude, which each warp that converts finds for itself. */
template <int Groups> struct vector_product<GEMV_16_BITS, Groups> {
  using piece = row_piece<Groups>;
  static constexpr int eights = (8 * Groups + 31) / 32; /* a lane's, if its warp loads the whole vector */
  uint32_t b[piece::pairs][8];
  float correction;
  words loaded[eights]; /* in f16 the first alone */

  DEVICE void fetch(const gemv_head_parameters &p, uint32_t thread) {
    if (thread / 32 * 32 >= p.k / 8) return;
    unrolled_for (int i = 0; i < eights; i++) {
      const uint32_t at = (thread + 32 * i) % (32 * eights); /* the first is this lane's to convert */
      loaded[i] = words();
      if (at < p.k / 8 && (i == 0 || p.vector_dtype == RONDO_BF16)) loaded[i] = load_vector(vector_from(p, 0, at));
    }
  }
  DEVICE void convert(const gemv_head_parameters &p, uint32_t at, uint32_t thread) const {
    if (thread / 32 * 32 >= p.k / 8) return;
    uint32_t pairs[4];
    float inverse = 1;
    if (p.vector_dtype == RONDO_BF16) {
      uint32_t largest = 0;
      unrolled_for (int i = 0; i < eights; i++) largest = larger_magnitudes(largest, loaded[i].word);
      const power_of_two power = power_for(__reduce_max_sync(0xffffffffu, max(largest & 0xffffu, largest >> 16)));
      f16_of_bf16<RONDO_NVFP4>(loaded[0].word, power.factor, pairs);
      inverse = power.inverse;
    } else {
      order_as_e2m1(loaded[0].word, pairs);
    }
    if (thread < p.k / 8) store_shared_words(at + 16 + thread * 16, pairs);
    if (thread == 0) store_number(at, inverse);
  }
  DEVICE void take(const gemv_head_parameters &, uint32_t at, const piece &of) {
    correction = load_number(at);
    unrolled_for (int i = 0; i < piece::pairs; i++) {
      const uint32_t j = 2 * i + of.row % 2;
      words first = {}, second = {};
      if (of.row / 2 == of.lane && j < Groups && of.has(j)) {
        first = load_shared_words(at + 16 + (of.start + j) * 32);
        second = load_shared_words(at + 16 + (of.start + j) * 32 + 16);
      }
      unrolled_for (int w = 0; w < 4; w++) b[i][w] = first.word[w], b[i][4 + w] = second.word[w];
    }
  }
  DEVICE float multiply(const row_bytes<Groups> &of_row, const piece &of) const {
    float even = 0, odd = 0;
    unrolled_for (int i = 0; i < piece::pairs; i++) {
      const int j = 2 * i, next = j + 1 < Groups ? j + 1 : j;
      float c[4] = {};
      unrolled_for (int w = 0; w < 2; w++) {
        uint32_t a[2][4];
        decode_e2m1(w ? of_row.weights[j].y : of_row.weights[j].x, a[0]);
        decode_e2m1(w ? of_row.weights[next].y : of_row.weights[next].x, a[1]);
        multiply_accumulate<false>(c, a[0], a[1], &b[i][4 * w]);
        multiply_accumulate<false>(c, a[0] + 2, a[1] + 2, &b[i][4 * w + 2]);
      }
      const __half2 scale = of_row.scale_pair(of, i);
      even = __fmaf_rn(c[0], __low2float(scale), even);
      if (next != j) odd = __fmaf_rn(c[3], __high2float(scale), odd);
    }
    /* One after the other: the product of both factors may be 2^128, which fp32 cannot hold. */
    return (even + odd) * (1 / (nvfp4_factor * nvfp4_factor)) * correction;
  }
};

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

template <rondo_dtype V, int Groups> DEVICE void gemv_head_one(const gemv_head_parameters &p) {
  extern __shared__ __align__(128) unsigned char head_memory[];
  const shared_layout<Groups> layout(p, head_memory);
  const uint32_t warp = threadIdx.x / 32, first_row = blockIdx.x * p.block_rows;
  const uint32_t rows = min(p.block_rows, p.m - first_row);
  const uint32_t early_turns = p.early ? EARLY_TURNS : 0;
  row_copies<Groups> copies(p, layout, first_row, rows);
  rolled_for (uint32_t turn = 0; turn < early_turns; turn++) copies.ask(p);
  wait_for_predecessors();
  /* By the last warps, whose share is the smaller one. */
  const uint32_t converts = (WARPS - 1 - warp) * 32 + threadIdx.x % 32;
  vector_product<V, Groups> product;
  product.fetch(p, converts);
  rolled_for (uint32_t turn = early_turns; turn < GEMV_ONE_TURNS; turn++) copies.ask(p);
  product.convert(p, layout.shared, converts);
  __syncthreads();
  const row_piece<Groups> piece(p, layout);
  product.take(p, layout.shared, piece);

  /* A loop, and not copies of 300 instructions, which a first wave would have to fetch. */
  rolled_for (uint32_t turn = 0; turn < GEMV_ONE_TURNS; turn++) {
    wait_for_turn(turn);
    const uint32_t row = (turn * WARPS + warp) * ROWS;
    if (row >= rows) break;
    const float sum = quad_sum(product.multiply(row_bytes<Groups>(p, piece, row), piece));
    if (piece.lane || row + piece.row >= rows) continue;
    store_number(p.out_dtype, p.out, blockIdx.y * p.out_batch + first_row + row + piece.row, sum * p.scale);
  }
}

#define DEFINE(chips, parameters, name, threads, blocks, ...)                                                          \
  DEFINE_EARLY_KERNEL(chips, parameters, name, threads, blocks, gemv_head_one<__VA_ARGS__>)
GEMV_HEAD_ONE_KERNELS(DEFINE)

#endif
