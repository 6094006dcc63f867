/* attention_decode_tile.cuh - what a warp of attention_decode.cu does with its KV rows: brings tiles of them into its
 * ring, scores, weighs and accumulates them, and joins what it has of several parts. */
#ifndef RONDO_ATTENTION_DECODE_TILE_CUH
#define RONDO_ATTENTION_DECODE_TILE_CUH

#include <math.h>

#include "../common/element.cuh"
#include "../common/ptx.cuh"
#include "attention_decode.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* What a kernel is made for: a line of the list in attention_decode.h. */
template <rondo_dtype Dtype, int Dimension, int Operands, int Stages, int Cluster> struct tiling {
  using type = element<Dtype>;
  static constexpr int dimension = Dimension, operands = Operands, stages = Stages, cluster = Cluster;
  static constexpr int chunks = Dimension / 8; /* of 16 bytes in a row */
  static constexpr int row_bytes = Dimension * 2;
  static constexpr int tile_bytes = DECODE_TILE * row_bytes; /* of K, and of V behind it in a stage */
  static constexpr int ring_bytes = Stages * 2 * tile_bytes;
  static constexpr int rows_at_once = 32 / chunks;             /* that a copy of the warp brings */
  static constexpr int own = Dimension / Cluster;              /* columns of O that a block finishes */
  static constexpr int slots = Cluster > 1 ? DECODE_PARTS : 1; /* that meet there, of each warp */
  /* Of O on its way out of a warp's registers: floats of a row in shared memory, where eight lanes of a column and
   * four rows do not meet in a bank. */
  static constexpr int pitch = Dimension + 4;
  static_assert(Cluster == 1 || Cluster == DECODE_PARTS, "all parts of a split, or one");
  static_assert(8 * Operands * pitch * (int)sizeof(float) <= ring_bytes, "O leaves by way of the ring");
};

/* ---- Instructions ----------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t transposed(uint32_t a) {
  uint32_t d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
  return d;
}
__device__ __forceinline__ void copy_16(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
__device__ __forceinline__ void store_shared_two(uint32_t to, float2 value) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(value.x), "f"(value.y) : "memory");
}
__device__ __forceinline__ float2 load_shared_two(uint32_t from) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ float4 load_shared_four(uint32_t from) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(from)
               : "memory");
  return value;
}

/* ---- What a warp works on --------------------------------------------------------------------------------------- */

/* Shared memory:
 *   barrier   128 bytes
 *   rings     [warps][stages] of K [16][row], V [16][row]; at the end O, [warps][rows][pitch] floats
 *   received  [slots][warps][rows][own] floats, in clusters: O of all warps, the block's columns
 *   stats     [slots][warps][rows] of two floats: maximum and sum
 *   queries   [warps][rows][row]
 * Rows of 16-bit numbers have their chunks of 16 bytes permuted: chunk c of row r lies where c ^ r % 8 would. */
template <typename Size> struct work {
  uint32_t rank, kv_head, batch, split;
  uint32_t lane, warp, g, t; /* lane = 4 g + t */
  uint32_t barrier, ring, received, stats, queries;

  __device__ __forceinline__ work(const attention_decode_parameters &p, uint32_t shared) {
    rank = blockIdx.x % Size::cluster, kv_head = blockIdx.x / Size::cluster;
    batch = blockIdx.y, split = blockIdx.z;
    lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    barrier = shared;
    ring = shared + 128 + warp * Size::ring_bytes;
    received = shared + 128 + DECODE_WARPS * Size::ring_bytes;
    stats = received + (Size::cluster > 1 ? DECODE_WARPS * p.rows * Size::dimension * sizeof(float) : 0);
    queries = stats + Size::slots * DECODE_WARPS * p.rows * sizeof(float2) + warp * p.rows * Size::row_bytes;
  }

  /* The first KV row of the warp's first tile in a part. */
  __device__ __forceinline__ uint32_t first_of(uint32_t part) const {
    return ((split * DECODE_PARTS + part) * DECODE_WARPS + warp) * DECODE_TILE;
  }
  __device__ __forceinline__ uint32_t step() const { return gridDim.z * DECODE_RUN; } /* to its next tile */
};

/* A query row's place: position and head of its group. */
struct query_place {
  uint32_t position, head;
};
__device__ __forceinline__ query_place place_of(const attention_decode_parameters &p, uint32_t row) {
  const uint32_t position = row * p.group_reciprocal >> 16;
  return {position, row - position * p.group};
}

__device__ __forceinline__ uint64_t offset_of(const attention_decode_stride &stride, uint32_t batch, uint32_t head) {
  return (uint64_t)batch * stride.batch + (uint64_t)head * stride.head;
}

template <typename Size>
__device__ __forceinline__ void copy_queries(const attention_decode_parameters &p, const work<Size> &w) {
  const uint32_t first = w.lane / Size::chunks, chunk = w.lane % Size::chunks;
  const uint16_t *from =
      static_cast<const uint16_t *>(p.q) + offset_of(p.q_stride, w.batch, w.kv_head * p.group) + chunk * 8;
#pragma unroll
  for (int i = 0; i < 8 * Size::operands / Size::rows_at_once; i++) {
    const uint32_t row = first + i * Size::rows_at_once;
    const query_place at = place_of(p, row);
    if (row < p.rows)
      copy_16(w.queries + row * Size::row_bytes + ((chunk ^ row % 8) << 4),
              from + offset_of({0, p.q_stride.head, p.q_stride.position}, 0, at.head) +
                  (uint64_t)at.position * p.q_stride.position);
  }
}

/* B fragments of Q^T; columns behind the last row repeat it. */
template <typename Size> using query_fragments = uint32_t[Size::operands][Size::dimension / 16][2];

template <typename Size>
__device__ __forceinline__ void load_queries(const attention_decode_parameters &p, const work<Size> &w,
                                             query_fragments<Size> &q) {
#pragma unroll
  for (int n = 0; n < Size::operands; n++) {
    const uint32_t row = min(8 * n + w.lane % 8, p.rows - 1), from = w.queries + row * Size::row_bytes;
#pragma unroll
    for (int two = 0; two < Size::dimension / 32; two++) {
      uint32_t b[4];
      ldmatrix_x4(b, from + (((4 * two + w.lane / 8) ^ row % 8) << 4));
      q[n][2 * two][0] = b[0], q[n][2 * two][1] = b[1];
      q[n][2 * two + 1][0] = b[2], q[n][2 * two + 1][1] = b[3];
    }
  }
}

/* ---- Tiles on their way ------------------------------------------------------------------------------------------ */

/* The asking side of a warp's ring. */
template <typename Size> struct source {
  const unsigned char *k, *v; /* the lane's chunk of the KV head's first row */
  uint32_t k_row, v_row;      /* bytes */
  uint32_t row, to;           /* the lane's first row of a tile, and its place in the first stage */
  uint32_t next, part;        /* the next tile's first KV row */

  __device__ __forceinline__ source(const attention_decode_parameters &p, const work<Size> &w) {
    const uint32_t chunk = w.lane % Size::chunks;
    row = w.lane / Size::chunks;
    k = (const unsigned char *)p.k + offset_of(p.k_stride, w.batch, w.kv_head) * 2 + chunk * 16;
    v = (const unsigned char *)p.v + offset_of(p.v_stride, w.batch, w.kv_head) * 2 + chunk * 16;
    k_row = p.k_stride.position * 2, v_row = p.v_stride.position * 2;
    to = w.ring + row * Size::row_bytes + ((chunk ^ row) << 4);
    part = Size::cluster > 1 ? w.rank : 0;
    next = w.first_of(part);
  }

  /* Half of a tile. Behind the last KV row comes that one again. */
  __device__ __forceinline__ void copy(const unsigned char *from, uint32_t row_bytes, uint32_t end,
                                       uint32_t stage) const {
#pragma unroll
    for (int i = 0; i < DECODE_TILE; i += Size::rows_at_once)
      copy_16((to ^ (i % 8 << 4)) + i * Size::row_bytes + stage,
              from + (uint64_t)min(next + row + i, end - 1) * row_bytes);
  }

  /* Asks for the next of the tiles that begin before `end`, if there is one; a group of copies either way. */
  __device__ __forceinline__ void ask(const work<Size> &w, uint32_t end, uint32_t stage) {
    /* Where the next part has no tile for this warp, the ones behind it have none either. */
    if (Size::cluster == 1 && next >= end && part < DECODE_PARTS - 1) next = w.first_of(++part);
    if (next < end) {
      copy(k, k_row, end, stage);
      copy(v, v_row, end, stage + Size::tile_bytes);
      next += w.step();
    }
    cp_async_commit();
  }
};

/* ---- A tile's way through a warp --------------------------------------------------------------------------------- */

/* Of the query rows 8 n + 2 t + i, as columns of the fragments: */
template <typename Size> using of_rows = float[Size::operands][2];
template <typename Size> using score_fragments = float[Size::operands][4]; /* KV rows g and g + 8 of the tile */
template <typename Size> using output_fragments = float[Size::operands][Size::dimension / 16][4];

/* While a row has seen nothing: any score is larger, and what is -infinity beside it gives a weight of 0. */
constexpr float lowest = -1e38f;

/* What a warp knows of some KV rows. */
template <typename Size> struct partial {
  output_fragments<Size> o;
  of_rows<Size> most; /* what exponents, to base 2, are taken against; no score is larger by more than 8 */
  of_rows<Size> sum;  /* of weights; of this lane's KV rows until sum_up */

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < Size::operands; n++) {
#pragma unroll
      for (int i = 0; i < 2; i++) most[n][i] = lowest, sum[n][i] = 0.0f;
#pragma unroll
      for (int j = 0; j < Size::dimension / 16; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[n][j][i] = 0.0f;
    }
  }

  __device__ __forceinline__ void sum_up() {
#pragma unroll
    for (int n = 0; n < Size::operands; n++)
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2)
          sum[n][i] += __shfl_xor_sync(0xffffffffu, sum[n][i], distance);
  }
};

/* Two partial results, the first KV rows' first, become one: in whatever block this happens, its bits are the same. */
struct join_factors {
  float most, first, second;

  __device__ __forceinline__ join_factors(float first_most, float second_most) {
    most = fmaxf(first_most, second_most);
    first = exp2_of(first_most - most);
    second = exp2_of(second_most - most);
  }
  __device__ __forceinline__ float of(float a, float b) const { return __fmaf_rn(b, second, __fmul_rn(a, first)); }
};

template <typename Size> __device__ __forceinline__ void join(partial<Size> &all, const partial<Size> &next) {
#pragma unroll
  for (int n = 0; n < Size::operands; n++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const join_factors join(all.most[n][i], next.most[n][i]);
      all.most[n][i] = join.most;
      all.sum[n][i] = join.of(all.sum[n][i], next.sum[n][i]);
#pragma unroll
      for (int j = 0; j < Size::dimension / 16; j++) {
        all.o[n][j][i] = join.of(all.o[n][j][i], next.o[n][j][i]);
        all.o[n][j][i + 2] = join.of(all.o[n][j][i + 2], next.o[n][j][i + 2]);
      }
    }
}

/* How many KV rows are seen. */
template <typename Size> struct limits {
  int by_first;               /* by the first position; one more by each that follows, if there is a mask */
  int row[Size::operands][2]; /* by the lane's columns */
  int position[Size::operands][2];
  int positions; /* that see different KV rows */

  __device__ __forceinline__ limits(const attention_decode_parameters &p, const work<Size> &w, uint32_t length) {
    by_first = (int)length - (p.causal ? (int)p.query_length - 1 : 0);
    positions = p.causal ? (int)p.query_length : 1;
#pragma unroll
    for (int n = 0; n < Size::operands; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const uint32_t row_index = min(8 * n + 2 * w.t + i, p.rows - 1);
        position[n][i] = p.causal ? (int)place_of(p, row_index).position : 0;
        row[n][i] = by_first + position[n][i];
      }
  }
};

/* s = K Q^T; `key` is the lane's address in the tile. Two sums, since each product waits for the one before it. */
template <typename Size>
__device__ __forceinline__ void score(const query_fragments<Size> &q, uint32_t key, score_fragments<Size> &s) {
  score_fragments<Size> odd = {};
#pragma unroll
  for (int step = 0; step < Size::dimension / 16; step++) {
    uint32_t a[4];
    ldmatrix_x4(a, (key ^ (2 * step % 8 * 16)) + 2 * step / 8 * 128);
#pragma unroll
    for (int n = 0; n < Size::operands; n++)
      mma_16x8x16<typename Size::type>(step % 2 ? odd[n] : s[n], a, q[n][step][0], q[n][step][1]);
  }
#pragma unroll
  for (int n = 0; n < Size::operands; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) s[n][i] += odd[n][i];
}

/* Scores to exponents to base 2, those that a row does not see to -infinity. */
template <typename Size>
__device__ __forceinline__ void mask(const limits<Size> &limits, int begin, bool whole, uint32_t g, float scale_log2,
                                     score_fragments<Size> &s) {
#pragma unroll
  for (int n = 0; n < Size::operands; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      s[n][i] *= scale_log2;
      if (!whole && begin + (int)g + i / 2 * 8 >= limits.row[n][i % 2]) s[n][i] = -INFINITY;
    }
}

/* Moves what exponents are taken against, where scores grew beyond it: for all rows of the warp, if for one. */
template <typename Size>
__device__ __forceinline__ void move_reference(const score_fragments<Size> &s, partial<Size> &all) {
  bool rises = false;
#pragma unroll
  for (int n = 0; n < Size::operands; n++)
#pragma unroll
    for (int i = 0; i < 2; i++) rises |= fmaxf(s[n][i], s[n][i + 2]) > all.most[n][i] + 8.0f;
  if (!__any_sync(0xffffffffu, rises)) return;
#pragma unroll
  for (int n = 0; n < Size::operands; n++)
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float most = fmaxf(s[n][i], s[n][i + 2]);
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
      most = fmaxf(most, all.most[n][i]);
      const float keep = exp2_of(all.most[n][i] - most);
      all.most[n][i] = most;
      all.sum[n][i] *= keep;
#pragma unroll
      for (int j = 0; j < Size::dimension / 16; j++) all.o[n][j][i] *= keep, all.o[n][j][i + 2] *= keep;
    }
}

/* Scores to weights, rounded to V's type, as B fragments of P^T. */
template <typename Size>
__device__ __forceinline__ void weigh(const score_fragments<Size> &s, partial<Size> &all,
                                      uint32_t (&weights)[Size::operands][2]) {
#pragma unroll
  for (int n = 0; n < Size::operands; n++) {
    float weight[4];
#pragma unroll
    for (int i = 0; i < 4; i++) weight[i] = exp2_of(s[n][i] - all.most[n][i % 2]);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      all.sum[n][i] += weight[i] + weight[i + 2];
      weights[n][i] = transposed(pack_two<typename Size::type>(weight[2 * i], weight[2 * i + 1]));
    }
  }
}

/* The 16 columns of V behind chunk 2 j, as A fragments of V^T; `value` is the lane's address in the tile. */
__device__ __forceinline__ void load_values(uint32_t value, int j, uint32_t (&a)[4]) {
  ldmatrix_x4_transposed(a, (value ^ (2 * j % 8 * 16)) + 2 * j / 8 * 128);
}

/* o += V^T P^T. */
template <typename Size>
__device__ __forceinline__ void accumulate(uint32_t value, const uint32_t (&weights)[Size::operands][2],
                                           output_fragments<Size> &o) {
#pragma unroll
  for (int j = 0; j < Size::dimension / 16; j++) {
    uint32_t a[4];
    load_values(value, j, a);
#pragma unroll
    for (int n = 0; n < Size::operands; n++) mma_16x8x16<typename Size::type>(o[n][j], a, weights[n][0], weights[n][1]);
  }
}

/* The same for a tile of which some row does not see all: once for each position, with zeros for what it does not see,
 * whatever memory holds there. */
template <typename Size>
__device__ __forceinline__ void accumulate_seen(const limits<Size> &limits, int begin, uint32_t t, uint32_t value,
                                                const uint32_t (&weights)[Size::operands][2],
                                                output_fragments<Size> &o) {
#pragma unroll
  for (int j = 0; j < Size::dimension / 16; j++) {
    uint32_t a[4];
    load_values(value, j, a);
#pragma unroll 1
    for (int position = 0; position < limits.positions; position++) {
      const int count = limits.by_first + position - begin - 2 * (int)t; /* the lane has KV rows 2 t + 0, 1, 8, 9 */
      const uint32_t low = (count > 0 ? 0xffffu : 0) | (count > 1 ? 0xffff0000u : 0);
      const uint32_t high = (count > 8 ? 0xffffu : 0) | (count > 9 ? 0xffff0000u : 0);
      const uint32_t seen[4] = {a[0] & low, a[1] & low, a[2] & high, a[3] & high};
#pragma unroll
      for (int n = 0; n < Size::operands; n++) {
        float more[4] = {};
        mma_16x8x16<typename Size::type>(more, seen, weights[n][0], weights[n][1]);
#pragma unroll
        for (int i = 0; i < 4; i++)
          if (limits.position[n][i % 2] == position) o[n][j][i] += more[i];
      }
    }
  }
}

/* Where in the first stage the rows begin whose addresses the lane gives to ldmatrix: of K, the second eight rows are
 * the second matrix; of V, the third. */
struct lane_addresses {
  uint32_t key, value;
};

template <typename Size> __device__ __forceinline__ lane_addresses addresses_of(const work<Size> &w) {
  return {w.ring + w.lane % 16 * Size::row_bytes + ((w.lane / 16 ^ w.lane % 8) << 4),
          w.ring + Size::tile_bytes + (w.lane % 8 + w.lane / 16 * 8) * Size::row_bytes +
              ((w.lane / 8 % 2 ^ w.lane % 8) << 4)};
}

template <typename Size>
__device__ __forceinline__ void attend_tile(const attention_decode_parameters &p, const work<Size> &w,
                                            const limits<Size> &limits, const query_fragments<Size> &q,
                                            const lane_addresses &at, uint32_t stage, int first, partial<Size> &now) {
  const bool whole = first + DECODE_TILE <= limits.by_first;
  score_fragments<Size> s = {};
  uint32_t weights[Size::operands][2];
  score<Size>(q, at.key + stage, s);
  mask<Size>(limits, first, whole, w.g, p.scale_log2, s);
  move_reference<Size>(s, now);
  weigh<Size>(s, now, weights);
  if (whole)
    accumulate<Size>(at.value + stage, weights, now.o);
  else
    accumulate_seen<Size>(limits, first, w.t, at.value + stage, weights, now.o);
}

#endif
#endif
