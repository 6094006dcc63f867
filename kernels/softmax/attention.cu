/* attention.cu - softmax(scale Q K^T) V without ever storing the scores: FlashAttention-2 (Dao 2023, arXiv 2307.08691)
 * on mma.m16n8k16, for every chip from sm_80 on. See attention.h for what a row is.
 *
 * A block of 4 warps has 64 rows of one KV head, a warp 16 of them, and walks over its split's KV rows in tiles of 64
 * (32 where the head dimension is 256), which cp.async brings into 2 or 3 stages of shared memory. The scores of a
 * warp's rows stay in its registers: a row is in the four lanes of a quad, so that its maximum takes two shuffles, and
 * the C fragments of Q K^T are the A fragments of P V. Shared rows are of head dimension * 2 bytes; their 16-byte
 * chunks are permuted so that eight rows of a chunk lie in eight different banks' worth (ldmatrix without conflicts).
 *
 * Masks: a KV row that no row of the block sees is read as zeros, whatever memory holds there. A score that a row does
 * not see becomes -infinity. A NaN or infinity in V reaches all rows that have its tile in common with a row that sees
 * it: 0 * NaN is NaN, here as in any matrix product.
 *
 * Bound by the tensor cores and the exponentials in prefill, by the memory in decode. */
#include <math.h>

#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "attention.h"

template <int Dimension> struct tiling {
  static constexpr int tile = Dimension == 256 ? 32 : 64; /* KV rows; as in attention_select.c */
  static constexpr int stages = Dimension <= 64 ? 3 : 2;
  static constexpr int chunks = Dimension / 8; /* of 16 bytes in a row */
  static constexpr int row_bytes = Dimension * 2;
  static constexpr int tile_bytes = tile * row_bytes;
  static constexpr int query_bytes = ATTENTION_ROWS * row_bytes;
  /* O alone takes 128 registers at 256: there Q is read from shared memory again for each tile. */
  static constexpr bool query_in_registers = Dimension <= 128;
};

/* Where a chunk of a row lies in shared memory. Rows of 64 bytes share a line of 128 in twos. */
template <int Dimension> __device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  uint32_t turn = Dimension >= 64 ? row & 7 : (row >> 1) & 3;
  return row * tiling<Dimension>::row_bytes + ((chunk ^ turn) << 4);
}

/* The chunk 2 step + c of the row whose chunk c lies at `address`, c being 0 or 1. Shared rows and tiles begin at
 * multiples of 128 bytes, or of 64 where there are four chunks: turning flips bits of the address. */
__device__ __forceinline__ uint32_t chunk_address(uint32_t address, uint32_t step) {
  return (address ^ (2 * step % 8 * 16)) + 2 * step / 8 * 8 * 16;
}

/* What a block and a thread of it work on. */
struct work {
  uint32_t batch, kv_head, split;
  int row_begin;        /* of the block */
  int length;           /* KV rows there are */
  int kv_begin, kv_end; /* KV rows of the split that some row of the block sees */
};

/* The number of KV rows that a row sees. Rows behind the last are as the last. */
__device__ __forceinline__ int limit_of(const attention_parameters &p, int row, int length) {
  if (!p.causal) return length;
  int last = (int)p.rows - 1;
  int position = (int)((uint32_t)(row < last ? row : last) / p.group);
  return max(position + length - p.query_length + 1, 0);
}

__device__ __forceinline__ work work_of(const attention_parameters &p) {
  work w;
  uint32_t index = blockIdx.x;
  /* Under the causal mask the last rows see most: they go first. */
  w.row_begin = (int)(p.row_tiles - 1 - index % p.row_tiles) * ATTENTION_ROWS;
  index /= p.row_tiles;
  w.split = index % p.splits;
  index /= p.splits;
  w.kv_head = index % p.kv_heads;
  w.batch = index / p.kv_heads;
  w.length = p.kv_lengths ? min(max(p.kv_lengths[w.batch], 0), p.capacity) : p.capacity;
  w.kv_begin = (int)w.split * p.split_rows;
  w.kv_end = min(w.kv_begin + p.split_rows, limit_of(p, w.row_begin + ATTENTION_ROWS - 1, w.length));
  return w;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Eight numbers at any even address. */
__device__ __forceinline__ uint4 gather(const void *global, bool present) {
  const uint16_t *from = static_cast<const uint16_t *>(global);
  uint32_t pair[4] = {0, 0, 0, 0};
  if (present) {
#pragma unroll
    for (int i = 0; i < 4; i++) pair[i] = from[2 * i] | (uint32_t)from[2 * i + 1] << 16;
  }
  return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

__device__ __forceinline__ void scatter(void *global, uint4 value) {
  uint16_t *to = static_cast<uint16_t *>(global);
  const uint32_t pair[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    to[2 * i] = (uint16_t)pair[i];
    to[2 * i + 1] = (uint16_t)(pair[i] >> 16);
  }
}

/* A chunk into shared memory: zeros if it is not present. Its address must be one that could be read. */
__device__ __forceinline__ void chunk_load(unsigned char *shared, const void *global, bool present, bool aligned) {
  if (aligned)
    cp_async_16(shared_address(shared), global, present ? 16 : 0);
  else
    *reinterpret_cast<uint4 *>(shared) = gather(global, present);
}

template <int Dimension>
__device__ __forceinline__ void query_load(const attention_parameters &p, const work &w, unsigned char *shared) {
  constexpr int rows_at_once = ATTENTION_THREADS / tiling<Dimension>::chunks;
  const uint32_t chunk = threadIdx.x % tiling<Dimension>::chunks, first = threadIdx.x / tiling<Dimension>::chunks;
  const uint16_t *q = static_cast<const uint16_t *>(p.q) + (int64_t)w.batch * p.q_stride.batch +
                      (int64_t)w.kv_head * p.group * p.q_stride.head + chunk * 8;
#pragma unroll 1
  for (uint32_t r = first; r < ATTENTION_ROWS; r += rows_at_once) {
    uint32_t row = w.row_begin + r;
    bool present = row < p.rows;
    uint32_t position = present ? row / p.group : 0, head = present ? row % p.group : 0;
    chunk_load(shared + chunk_offset<Dimension>(r, chunk), q + position * p.q_stride.position + head * p.q_stride.head,
               present, p.aligned);
  }
}

/* A tile of K or of V. KV rows from w.kv_end on are zeros. `from` is the thread's chunk of the KV head's first row. */
template <int Dimension>
__device__ __forceinline__ void tile_load(const work &w, const uint16_t *from, int64_t stride, int begin, bool aligned,
                                          unsigned char *shared) {
  constexpr int rows_at_once = ATTENTION_THREADS / tiling<Dimension>::chunks;
  const uint32_t chunk = threadIdx.x % tiling<Dimension>::chunks, first = threadIdx.x / tiling<Dimension>::chunks;
#pragma unroll
  for (int pass = 0; pass < tiling<Dimension>::tile / rows_at_once; pass++) {
    int r = first + pass * rows_at_once, row = begin + r;
    chunk_load(shared + chunk_offset<Dimension>(r, chunk), from + min(row, w.kv_end - 1) * stride, row < w.kv_end,
               aligned);
  }
}

/* ---- Two rows of a thread ---------------------------------------------------------------------------------------- */

/* The rows group and group + 8 of the warp's 16, in the words of ptx.cuh. */
struct softmax_state {
  float max[2]; /* exponents to base 2 */
  float sum[2]; /* of this lane's columns */
};

/* Scores to weights, against the larger of the old maximum and theirs; o and the sum are brought to the new one. */
template <int Tile, int Dimension>
__device__ __forceinline__ void softmax_step(softmax_state &state, float (&s)[Tile / 8][4],
                                             float (&o)[Dimension / 8][4]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float highest = -INFINITY;
#pragma unroll
    for (int j = 0; j < Tile / 8; j++) highest = fmaxf(highest, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    highest = fmaxf(state.max[half], quad_max(highest));
    /* While a row has seen nothing, exponents are taken against 0: they give 0, and a NaN stays one. */
    float against = highest == -INFINITY ? 0.0f : highest;
    float keep = exp2f(state.max[half] - against), sum = 0.0f;
    state.max[half] = highest;
#pragma unroll
    for (int j = 0; j < Tile / 8; j++) {
      s[j][2 * half] = exp2f(s[j][2 * half] - against);
      s[j][2 * half + 1] = exp2f(s[j][2 * half + 1] - against);
      sum += s[j][2 * half] + s[j][2 * half + 1];
    }
    state.sum[half] = state.sum[half] * keep + sum;
#pragma unroll
    for (int j = 0; j < Dimension / 8; j++) {
      o[j][2 * half] *= keep;
      o[j][2 * half + 1] *= keep;
    }
  }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* The log-sum-exp of a row, to base e or, for a split, to base 2. */
__device__ __forceinline__ void lse_store(const attention_parameters &p, const work &w, uint32_t row, float lse_log2) {
  if (p.splits > 1) {
    uint64_t heads = (uint64_t)p.batch * p.kv_heads;
    p.partial_lse[(w.split * heads + w.batch * p.kv_heads + w.kv_head) * p.rows + row] = lse_log2;
  } else if (p.lse) {
    uint32_t position = row / p.group, head = w.kv_head * p.group + row % p.group;
    p.lse[w.batch * p.lse_batch_stride + head * p.lse_head_stride + position] = lse_log2 * 0.693147181f;
  }
}

/* A split's o, in fp32. */
template <int Dimension>
__device__ __forceinline__ void partial_store(const attention_parameters &p, const work &w,
                                              const float (&o)[Dimension / 8][4]) {
  const uint32_t lane = threadIdx.x % 32, row = w.row_begin + threadIdx.x / 32 * 16 + lane / 4;
  uint64_t heads = (uint64_t)p.batch * p.kv_heads;
  uint64_t first = (w.split * heads + w.batch * p.kv_heads + w.kv_head) * p.rows + row;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (row + 8 * half >= p.rows) continue;
    float *to = p.partial_o + (first + 8 * half) * Dimension + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < Dimension / 8; j++)
      *reinterpret_cast<float2 *>(to + 8 * j) = make_float2(o[j][2 * half], o[j][2 * half + 1]);
  }
}

/* o as T, by way of the warp's own rows of the query tile, which it no longer needs: so whole chunks are stored. */
template <typename T, int Dimension>
__device__ __forceinline__ void output_store(const attention_parameters &p, const work &w,
                                             const float (&o)[Dimension / 8][4], unsigned char *shared) {
  constexpr int chunks = tiling<Dimension>::chunks;
  const uint32_t lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < chunks; j++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t offset = chunk_offset<Dimension>(warp_row + lane / 4 + 8 * half, j) + lane % 4 * 4;
      *reinterpret_cast<uint32_t *>(shared + offset) = pack_two<T>(o[j][2 * half], o[j][2 * half + 1]);
    }
  }
  __syncwarp();
  uint16_t *to = static_cast<uint16_t *>(p.o) + (int64_t)w.batch * p.o_stride.batch +
                 (int64_t)w.kv_head * p.group * p.o_stride.head;
#pragma unroll 1
  for (uint32_t i = lane; i < 16 * chunks; i += 32) {
    uint32_t r = warp_row + i / chunks, chunk = i % chunks, row = w.row_begin + r;
    if (row >= p.rows) break;
    uint4 value = *reinterpret_cast<const uint4 *>(shared + chunk_offset<Dimension>(r, chunk));
    uint16_t *at = to + row / p.group * p.o_stride.position + row % p.group * p.o_stride.head + chunk * 8;
    if (p.aligned)
      *reinterpret_cast<uint4 *>(at) = value;
    else
      scatter(at, value);
  }
}

template <typename T, int Dimension>
__device__ __forceinline__ void finish(const attention_parameters &p, const work &w, softmax_state &state,
                                       float (&o)[Dimension / 8][4], unsigned char *shared) {
  const uint32_t lane = threadIdx.x % 32, row = w.row_begin + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = quad_sum(state.sum[half]);
    /* A row that sees something has a weight of 1, or a NaN; or scores of -infinity only. */
    bool nothing = sum == 0.0f;
    float inverse = 1.0f / sum;
#pragma unroll
    for (int j = 0; j < Dimension / 8; j++) {
      o[j][2 * half] = nothing ? 0.0f : o[j][2 * half] * inverse;
      o[j][2 * half + 1] = nothing ? 0.0f : o[j][2 * half + 1] * inverse;
    }
    if (lane % 4 == 0 && row + 8 * half < p.rows)
      lse_store(p, w, row + 8 * half, nothing ? -INFINITY : state.max[half] + log2f(sum));
  }
  if (p.splits == 1)
    output_store<T, Dimension>(p, w, o, shared);
  else if (w.kv_begin < w.kv_end) /* else nobody will look */
    partial_store<Dimension>(p, w, o);
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

template <typename T, int Dimension> __device__ __forceinline__ void attend(const attention_parameters &p) {
  using size = tiling<Dimension>;
  constexpr int tile = size::tile, stages = size::stages;
  extern __shared__ __align__(128) unsigned char shared[];
  unsigned char *const keys = shared + size::query_bytes, *const values = keys + stages * size::tile_bytes;
  const work w = work_of(p);
  const int tiles = w.kv_begin < w.kv_end ? (w.kv_end - w.kv_begin + tile - 1) / tile : 0;
  const int lane = (int)threadIdx.x % 32, warp_row = (int)threadIdx.x / 32 * 16;

  /* Each thread copies one chunk of every few rows. */
  const uint32_t chunk = threadIdx.x % size::chunks;
  const uint16_t *k =
      static_cast<const uint16_t *>(p.k) + w.batch * p.k_stride.batch + w.kv_head * p.k_stride.head + chunk * 8;
  const uint16_t *v =
      static_cast<const uint16_t *>(p.v) + w.batch * p.v_stride.batch + w.kv_head * p.v_stride.head + chunk * 8;
  auto load = [&](int t) {
    int stage = t % stages, begin = w.kv_begin + t * tile;
    tile_load<Dimension>(w, k, p.k_stride.position, begin, p.aligned, keys + stage * size::tile_bytes);
    tile_load<Dimension>(w, v, p.v_stride.position, begin, p.aligned, values + stage * size::tile_bytes);
  };
  query_load<Dimension>(p, w, shared);
  cp_async_commit();
#pragma unroll
  for (int t = 0; t < stages - 1; t++) {
    if (t < tiles) load(t);
    cp_async_commit();
  }

  /* Where the rows begin whose addresses the lane gives to ldmatrix. Of K, the second eight rows are the third matrix.
   */
  const uint32_t query_lane = shared_address(shared) + chunk_offset<Dimension>(warp_row + lane % 16, lane / 16);
  const uint32_t key_lane = shared_address(keys) + chunk_offset<Dimension>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const uint32_t value_lane = shared_address(values) + chunk_offset<Dimension>(lane % 16, lane / 16);
  cp_async_wait<stages - 1>();
  __syncthreads();
  uint32_t q[size::query_in_registers ? Dimension / 16 : 1][4];
  if constexpr (size::query_in_registers) {
#pragma unroll
    for (int step = 0; step < Dimension / 16; step++) ldmatrix_x4(q[step], chunk_address(query_lane, step));
  }

  const int row = w.row_begin + warp_row + lane / 4;
  const int limit[2] = {limit_of(p, row, w.length), limit_of(p, row + 8, w.length)};
  /* Of the warp's first and last row: what all of them see, and what none sees. A warp without rows sees nothing. */
  const int whole_end = limit_of(p, w.row_begin + warp_row, w.length);
  const int warp_end = w.row_begin + warp_row < (int)p.rows ? limit_of(p, w.row_begin + warp_row + 15, w.length) : 0;

  float o[Dimension / 8][4] = {};
  softmax_state state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
  for (int t = 0; t < tiles; t++) {
    /* Tile t is there, and everyone is done with the stage that the next load overwrites. */
    cp_async_wait<stages - 2>();
    __syncthreads();
    if (t + stages - 1 < tiles) load(t + stages - 1);
    cp_async_commit();
    const int begin = w.kv_begin + t * tile;
    if (begin >= warp_end) continue;
    const uint32_t stage = t % stages * size::tile_bytes;

    float s[tile / 8][4] = {};
#pragma unroll
    for (int step = 0; step < Dimension / 16; step++) {
      uint32_t a[4];
      if constexpr (size::query_in_registers) {
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = q[step][i];
      } else {
        ldmatrix_x4(a, chunk_address(query_lane, step));
      }
#pragma unroll
      for (int j = 0; j < tile / 16; j++) {
        uint32_t b[4];
        ldmatrix_x4(b, chunk_address(key_lane + stage, step) + 16 * j * size::row_bytes);
        mma_16x8x16<T>(s[2 * j], a, b[0], b[1]);
        mma_16x8x16<T>(s[2 * j + 1], a, b[2], b[3]);
      }
    }

    const bool whole = begin + tile <= whole_end;
#pragma unroll
    for (int j = 0; j < tile / 8; j++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        s[j][i] *= p.scale_log2;
        if (!whole && begin + 8 * j + lane % 4 * 2 + i % 2 >= limit[i / 2]) s[j][i] = -INFINITY;
      }
    }
    softmax_step<tile, Dimension>(state, s, o);

#pragma unroll
    for (int step = 0; step < tile / 16; step++) {
      const uint32_t a[4] = {pack_two<T>(s[2 * step][0], s[2 * step][1]), pack_two<T>(s[2 * step][2], s[2 * step][3]),
                             pack_two<T>(s[2 * step + 1][0], s[2 * step + 1][1]),
                             pack_two<T>(s[2 * step + 1][2], s[2 * step + 1][3])};
#pragma unroll
      for (int j = 0; j < Dimension / 16; j++) {
        uint32_t b[4];
        ldmatrix_x4_transposed(b, chunk_address(value_lane + stage, j) + 16 * step * size::row_bytes);
        mma_16x8x16<T>(o[2 * j], a, b[0], b[1]);
        mma_16x8x16<T>(o[2 * j + 1], a, b[2], b[3]);
      }
    }
  }
  finish<T, Dimension>(p, w, state, o, shared);
}

#define ATTENTION_KERNEL(name, type, dimension)                                                                        \
  extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS)                                                      \
      rondo_attention_##name##_##dimension(const __grid_constant__ attention_parameters p) {                           \
    wait_for_predecessors();                                                                                           \
    attend<type, dimension>(p);                                                                                        \
    publish(p.done);                                                                                                   \
  }

ATTENTION_KERNEL(f16, __half, 32)
ATTENTION_KERNEL(f16, __half, 64)
ATTENTION_KERNEL(f16, __half, 128)
ATTENTION_KERNEL(f16, __half, 256)
ATTENTION_KERNEL(bf16, __nv_bfloat16, 32)
ATTENTION_KERNEL(bf16, __nv_bfloat16, 64)
ATTENTION_KERNEL(bf16, __nv_bfloat16, 128)
ATTENTION_KERNEL(bf16, __nv_bfloat16, 256)
