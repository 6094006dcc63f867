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

#include "../common/element.cuh"
#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "attention.h"

/* What a kernel is made for: a line of the list in attention.h. */
template <rondo_dtype Dtype, int Dimension, int Tile, int Stages> struct tiling {
  using type = element<Dtype>;
  static constexpr int dimension = Dimension, tile = Tile, stages = Stages;
  static constexpr int chunks = Dimension / 8; /* of 16 bytes in a row */
  static constexpr int row_bytes = Dimension * 2;
  static constexpr int tile_bytes = tile * row_bytes;
  static constexpr int query_bytes = ATTENTION_ROWS * row_bytes;
  /* O alone takes 128 registers at 256: there Q is read from shared memory again for each tile. */
  static constexpr bool query_in_registers = Dimension <= 128;
  static_assert(query_bytes + 2 * stages * tile_bytes == ATTENTION_SHARED_BYTES(Dimension, Tile, Stages),
                "what a launch asks for");
};

/* Of a warp's 16 rows, in the words of ptx.cuh. */
template <typename Size> using score_fragments = float[Size::tile / 8][4];
template <typename Size> using output_fragments = float[Size::dimension / 8][4];

/* Where a chunk of a row lies in shared memory. Rows of 64 bytes share a line of 128 in twos. */
template <typename Size> __device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  uint32_t turn = Size::dimension >= 64 ? row & 7 : (row >> 1) & 3;
  return row * Size::row_bytes + ((chunk ^ turn) << 4);
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
  int warp_row, lane;   /* of the thread: its warp's first row in the block */
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
  w.warp_row = (int)threadIdx.x / 32 * 16;
  w.lane = (int)threadIdx.x % 32;
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

template <typename Size>
__device__ __forceinline__ void query_load(const attention_parameters &p, const work &w, unsigned char *shared) {
  constexpr int rows_at_once = ATTENTION_THREADS / Size::chunks;
  const uint32_t chunk = threadIdx.x % Size::chunks, first = threadIdx.x / Size::chunks;
  const uint16_t *q = static_cast<const uint16_t *>(p.q) + (int64_t)w.batch * p.q_stride.batch +
                      (int64_t)w.kv_head * p.group * p.q_stride.head + chunk * 8;
#pragma unroll 1
  for (uint32_t r = first; r < ATTENTION_ROWS; r += rows_at_once) {
    uint32_t row = w.row_begin + r;
    bool present = row < p.rows;
    uint32_t position = present ? row / p.group : 0, head = present ? row % p.group : 0;
    chunk_load(shared + chunk_offset<Size>(r, chunk), q + position * p.q_stride.position + head * p.q_stride.head,
               present, p.aligned);
  }
}

/* A tile of K or of V. KV rows from w.kv_end on are zeros. `from` is the thread's chunk of the KV head's first row. */
template <typename Size>
__device__ __forceinline__ void tile_load(const work &w, const uint16_t *from, int64_t stride, int begin, bool aligned,
                                          unsigned char *shared) {
  constexpr int rows_at_once = ATTENTION_THREADS / Size::chunks;
  const uint32_t chunk = threadIdx.x % Size::chunks, first = threadIdx.x / Size::chunks;
#pragma unroll
  for (int pass = 0; pass < Size::tile / rows_at_once; pass++) {
    int r = first + pass * rows_at_once, row = begin + r;
    chunk_load(shared + chunk_offset<Size>(r, chunk), from + min(row, w.kv_end - 1) * stride, row < w.kv_end, aligned);
  }
}

/* ---- A tile's way through a warp --------------------------------------------------------------------------------- */

/* Tiles of K and V on their way through the stages of shared memory. */
template <typename Size> struct pipeline {
  const attention_parameters &p;
  const work &w;
  const uint16_t *k, *v;        /* this thread's chunk of the KV head's first row */
  unsigned char *keys, *values; /* the stages */
  int tiles;

  __device__ __forceinline__ pipeline(const attention_parameters &p, const work &w, unsigned char *shared)
      : p(p), w(w), keys(shared + Size::query_bytes), values(keys + Size::stages * Size::tile_bytes) {
    tiles = w.kv_begin < w.kv_end ? (w.kv_end - w.kv_begin + Size::tile - 1) / Size::tile : 0;
    const uint32_t chunk = threadIdx.x % Size::chunks;
    k = static_cast<const uint16_t *>(p.k) + w.batch * p.k_stride.batch + w.kv_head * p.k_stride.head + chunk * 8;
    v = static_cast<const uint16_t *>(p.v) + w.batch * p.v_stride.batch + w.kv_head * p.v_stride.head + chunk * 8;
  }

  /* Begins to load tile t, if there is one; a group of copies either way, so that waiting can count them. */
  __device__ __forceinline__ void load(int t) {
    if (t < tiles) {
      int stage = t % Size::stages, begin = w.kv_begin + t * Size::tile;
      tile_load<Size>(w, k, p.k_stride.position, begin, p.aligned, keys + stage * Size::tile_bytes);
      tile_load<Size>(w, v, p.v_stride.position, begin, p.aligned, values + stage * Size::tile_bytes);
    }
    cp_async_commit();
  }

  /* Tile t is there, and everyone is done with the stage that the next load overwrites. */
  __device__ __forceinline__ void wait_and_load_next(int t) {
    cp_async_wait<Size::stages - 2>();
    __syncthreads();
    load(t + Size::stages - 1);
  }
};

/* Where the rows begin whose addresses the lane gives to ldmatrix. Of K, the second eight rows are the third matrix. */
struct lane_addresses {
  uint32_t query, key, value;
};

template <typename Size>
__device__ __forceinline__ lane_addresses addresses_of(const work &w, const pipeline<Size> &kv,
                                                       const unsigned char *shared) {
  return {shared_address(shared) + chunk_offset<Size>(w.warp_row + w.lane % 16, w.lane / 16),
          shared_address(kv.keys) + chunk_offset<Size>(w.lane % 8 + w.lane / 16 * 8, w.lane / 8 % 2),
          shared_address(kv.values) + chunk_offset<Size>(w.lane % 16, w.lane / 16)};
}

/* The warp's 16 rows of Q as A fragments, in registers where there is room for them. */
template <typename Size> struct query_fragments {
  uint32_t address, held[Size::query_in_registers ? Size::dimension / 16 : 1][4];

  __device__ __forceinline__ explicit query_fragments(uint32_t address) : address(address) {
    if constexpr (Size::query_in_registers) {
#pragma unroll
      for (int step = 0; step < Size::dimension / 16; step++) ldmatrix_x4(held[step], chunk_address(address, step));
    }
  }

  __device__ __forceinline__ void get(int step, uint32_t (&a)[4]) const {
    if constexpr (Size::query_in_registers) {
#pragma unroll
      for (int i = 0; i < 4; i++) a[i] = held[step][i];
    } else {
      ldmatrix_x4(a, chunk_address(address, step));
    }
  }
};

/* s += Q K^T; `key` is the lane's address in the tile. */
template <typename Size>
__device__ __forceinline__ void score(const query_fragments<Size> &q, uint32_t key, score_fragments<Size> &s) {
#pragma unroll
  for (int step = 0; step < Size::dimension / 16; step++) {
    uint32_t a[4];
    q.get(step, a);
#pragma unroll
    for (int j = 0; j < Size::tile / 16; j++) {
      uint32_t b[4];
      ldmatrix_x4(b, chunk_address(key, step) + 16 * j * Size::row_bytes);
      mma_16x8x16<typename Size::type>(s[2 * j], a, b[0], b[1]);
      mma_16x8x16<typename Size::type>(s[2 * j + 1], a, b[2], b[3]);
    }
  }
}

/* How many KV rows are seen. */
struct limits {
  int row[2]; /* by the thread's rows, group and group + 8 of the warp's 16 */
  int all;    /* by each row of the warp */
  int any;    /* by some row of the warp; 0 where it has no rows */
};

__device__ __forceinline__ limits limits_of(const attention_parameters &p, const work &w) {
  const int first = w.row_begin + w.warp_row, row = first + w.lane / 4;
  return {{limit_of(p, row, w.length), limit_of(p, row + 8, w.length)},
          limit_of(p, first, w.length),
          first < (int)p.rows ? limit_of(p, first + 15, w.length) : 0};
}

/* Scores to exponents to base 2, those that a row does not see to -infinity. */
template <typename Size>
__device__ __forceinline__ void mask(const limits &limits, int begin, int lane, float scale_log2,
                                     score_fragments<Size> &s) {
  const bool whole = begin + Size::tile <= limits.all;
#pragma unroll
  for (int j = 0; j < Size::tile / 8; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      s[j][i] *= scale_log2;
      if (!whole && begin + 8 * j + lane % 4 * 2 + i % 2 >= limits.row[i / 2]) s[j][i] = -INFINITY;
    }
  }
}

/* The rows group and group + 8 of the warp's 16, in the words of ptx.cuh. */
struct softmax_state {
  float max[2]; /* exponents to base 2 */
  float sum[2]; /* of this lane's columns */
};

/* Scores to weights, against the larger of the old maximum and theirs; o and the sum are brought to the new one. */
template <typename Size>
__device__ __forceinline__ void update(softmax_state &state, score_fragments<Size> &s, output_fragments<Size> &o) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float highest = -INFINITY;
#pragma unroll
    for (int j = 0; j < Size::tile / 8; j++) highest = fmaxf(highest, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    highest = fmaxf(state.max[half], quad_max(highest));
    /* While a row has seen nothing, exponents are taken against 0: they give 0, and a NaN stays one. */
    float against = highest == -INFINITY ? 0.0f : highest;
    float keep = exp2f(state.max[half] - against), sum = 0.0f;
    state.max[half] = highest;
#pragma unroll
    for (int j = 0; j < Size::tile / 8; j++) {
      s[j][2 * half] = exp2f(s[j][2 * half] - against);
      s[j][2 * half + 1] = exp2f(s[j][2 * half + 1] - against);
      sum += s[j][2 * half] + s[j][2 * half + 1];
    }
    state.sum[half] = state.sum[half] * keep + sum;
#pragma unroll
    for (int j = 0; j < Size::dimension / 8; j++) {
      o[j][2 * half] *= keep;
      o[j][2 * half + 1] *= keep;
    }
  }
}

/* o += P V, the weights P rounded to V's type; `value` is the lane's address in the tile. */
template <typename Size>
__device__ __forceinline__ void accumulate(const score_fragments<Size> &s, uint32_t value, output_fragments<Size> &o) {
  using type = typename Size::type;
#pragma unroll
  for (int step = 0; step < Size::tile / 16; step++) {
    const uint32_t a[4] = {
        pack_two<type>(s[2 * step][0], s[2 * step][1]), pack_two<type>(s[2 * step][2], s[2 * step][3]),
        pack_two<type>(s[2 * step + 1][0], s[2 * step + 1][1]), pack_two<type>(s[2 * step + 1][2], s[2 * step + 1][3])};
#pragma unroll
    for (int j = 0; j < Size::dimension / 16; j++) {
      uint32_t b[4];
      ldmatrix_x4_transposed(b, chunk_address(value, j) + 16 * step * Size::row_bytes);
      mma_16x8x16<type>(o[2 * j], a, b[0], b[1]);
      mma_16x8x16<type>(o[2 * j + 1], a, b[2], b[3]);
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
template <typename Size>
__device__ __forceinline__ void partial_store(const attention_parameters &p, const work &w,
                                              const output_fragments<Size> &o) {
  const uint32_t lane = threadIdx.x % 32, row = w.row_begin + threadIdx.x / 32 * 16 + lane / 4;
  uint64_t heads = (uint64_t)p.batch * p.kv_heads;
  uint64_t first = (w.split * heads + w.batch * p.kv_heads + w.kv_head) * p.rows + row;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (row + 8 * half >= p.rows) continue;
    float *to = p.partial_o + (first + 8 * half) * Size::dimension + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < Size::dimension / 8; j++)
      *reinterpret_cast<float2 *>(to + 8 * j) = make_float2(o[j][2 * half], o[j][2 * half + 1]);
  }
}

/* o as T, by way of the warp's own rows of the query tile, which it no longer needs: so whole chunks are stored. */
template <typename Size>
__device__ __forceinline__ void output_store(const attention_parameters &p, const work &w,
                                             const output_fragments<Size> &o, unsigned char *shared) {
  constexpr int chunks = Size::chunks;
  const uint32_t lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < chunks; j++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t offset = chunk_offset<Size>(warp_row + lane / 4 + 8 * half, j) + lane % 4 * 4;
      *reinterpret_cast<uint32_t *>(shared + offset) =
          pack_two<typename Size::type>(o[j][2 * half], o[j][2 * half + 1]);
    }
  }
  __syncwarp();
  uint16_t *to = static_cast<uint16_t *>(p.o) + (int64_t)w.batch * p.o_stride.batch +
                 (int64_t)w.kv_head * p.group * p.o_stride.head;
#pragma unroll 1
  for (uint32_t i = lane; i < 16 * chunks; i += 32) {
    uint32_t r = warp_row + i / chunks, chunk = i % chunks, row = w.row_begin + r;
    if (row >= p.rows) break;
    uint4 value = *reinterpret_cast<const uint4 *>(shared + chunk_offset<Size>(r, chunk));
    uint16_t *at = to + row / p.group * p.o_stride.position + row % p.group * p.o_stride.head + chunk * 8;
    if (p.aligned)
      *reinterpret_cast<uint4 *>(at) = value;
    else
      scatter(at, value);
  }
}

template <typename Size>
__device__ __forceinline__ void finish(const attention_parameters &p, const work &w, softmax_state &state,
                                       output_fragments<Size> &o, unsigned char *shared) {
  const uint32_t lane = threadIdx.x % 32, row = w.row_begin + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = quad_sum(state.sum[half]);
    /* A row that sees something has a weight of 1, or a NaN; or scores of -infinity only. */
    bool nothing = sum == 0.0f;
    float inverse = 1.0f / sum;
#pragma unroll
    for (int j = 0; j < Size::dimension / 8; j++) {
      o[j][2 * half] = nothing ? 0.0f : o[j][2 * half] * inverse;
      o[j][2 * half + 1] = nothing ? 0.0f : o[j][2 * half + 1] * inverse;
    }
    if (lane % 4 == 0 && row + 8 * half < p.rows)
      lse_store(p, w, row + 8 * half, nothing ? -INFINITY : state.max[half] + log2f(sum));
  }
  if (p.splits == 1)
    output_store<Size>(p, w, o, shared);
  else if (w.kv_begin < w.kv_end) /* else nobody will look */
    partial_store<Size>(p, w, o);
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

template <typename Size> __device__ __forceinline__ void attend(const attention_parameters &p) {
  extern __shared__ __align__(128) unsigned char shared[];
  const work w = work_of(p);
  pipeline<Size> kv(p, w, shared);
  query_load<Size>(p, w, shared);
  cp_async_commit();
#pragma unroll
  for (int t = 0; t < Size::stages - 1; t++) kv.load(t);

  const lane_addresses at = addresses_of<Size>(w, kv, shared);
  cp_async_wait<Size::stages - 1>();
  __syncthreads();
  const query_fragments<Size> q(at.query);
  const limits limits = limits_of(p, w);

  output_fragments<Size> o = {};
  softmax_state state = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
  for (int t = 0; t < kv.tiles; t++) {
    kv.wait_and_load_next(t);
    const int begin = w.kv_begin + t * Size::tile;
    if (begin >= limits.any) continue;
    const uint32_t stage = t % Size::stages * Size::tile_bytes;
    score_fragments<Size> s = {};
    score<Size>(q, at.key + stage, s);
    mask<Size>(limits, begin, w.lane, p.scale_log2, s);
    update<Size>(state, s, o);
    accumulate<Size>(s, at.value + stage, o);
  }
  finish<Size>(p, w, state, o, shared);
}

#define DEFINE(chips, parameters, name, threads, type, dimension, tile, stages)                                        \
  DEFINE_KERNEL(chips, parameters, name, threads, 0, attend<tiling<type, dimension, tile, stages>>)
ATTENTION_KERNELS(DEFINE)
