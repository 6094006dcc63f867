/* attention_decode_tile.cuh - the work of a warp of attention_decode.cu on its KV rows: scores, weights and sums of
 * tiles, and the join of several parts. attention_decode_copies.cuh copies the tiles. */
#pragma once

#include <float.h>
#include <math.h>

#include "../common/device_code.cuh"
#include "../common/element.cuh"
#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "../common/shared_words.cuh"
#include "attention_decode.h"

/* What a kernel is made for: a line of the list in attention_decode.h. */
template <rondo_dtype Dtype, decode_kind Kind, int Dimension, int Operands, int Warps, int Stages, int Cluster>
struct tiling {
  using type = element<Dtype>; /* of the products */
  static constexpr bool general = Kind == DECODE_GENERAL || Kind == DECODE_E4M3, e4m3 = Kind == DECODE_E4M3;
  static constexpr bool appends = Kind != DECODE_E4M3; /* if there are new rows */
  static constexpr int dimension = Dimension, operands = Operands, warps = Warps, stages = Stages, cluster = Cluster;
  static constexpr int number_bytes = e4m3 ? 1 : 2;          /* of K and V */
  static constexpr int row_bytes = Dimension * number_bytes; /* of K and V */
  static constexpr int query_bytes = Dimension * 2;          /* of a row of Q */
  static constexpr int chunks = row_bytes / 16;              /* of 16 bytes in a row */
  static constexpr int tile_bytes = DECODE_TILE * row_bytes; /* of K, and of V after it in a stage */
  static constexpr int stage_bytes = 2 * tile_bytes, ring_bytes = Stages * stage_bytes;
  /* A block that is alone asks for a tile during the products of another one; the tile goes to the stage that was read
   * before. In clusters, warps wait for the memory. So a warp asks as soon as it has read a stage, for the same stage.
   */
  static constexpr bool asks_early = Cluster == 1 && Stages > 2;
  static constexpr bool crowds = asks_early && Stages > DECODE_CROWDED_STAGES && !general; /* if it is told to */
  static constexpr int ahead = asks_early ? Stages - 1 : Stages; /* tiles asked for before one is waited for */
  static constexpr int rows_at_once = 32 / chunks;               /* that a copy of the warp brings */
  static constexpr bool has_parts = Cluster < DECODE_PARTS;      /* a block has several parts, one after the other */
  static constexpr bool is_pair = Cluster == DECODE_PAIR;
  static constexpr int own = Dimension / Cluster;            /* columns of O that a block finishes, if it has a part */
  static constexpr int slots = has_parts ? 1 : DECODE_PARTS; /* that meet there, of each warp */
  static constexpr int part_count = DECODE_PARTS / Cluster;  /* of a block */
  static constexpr int kept_bytes = Warps * DECODE_KEPT_BYTES(Dimension); /* of a part's results in registers */
  static constexpr bool has_registers = Dimension * Operands < 512;       /* for more than must be in them */
  /* Of O on its way out of a warp's registers: floats of a row in shared memory, where eight lanes of a column and
   * four rows do not meet in a bank. */
  static constexpr int pitch = Dimension + 4;
  static_assert(Cluster == 1 || Cluster == DECODE_PARTS || (is_pair && Operands == 1 && Kind == DECODE_PLAIN),
                "all parts of a split, one, or half of them");
  static_assert(8 * Operands * pitch * (int)sizeof(float) <= ring_bytes, "O leaves by way of the ring");

  /* Chunk c of row r lies where c ^ permuted(r) would: eight rows of a column are in all banks. */
  static DEVICE uint32_t permuted(uint32_t row) { return chunks < 8 ? row / 2 % 4 : row % 8; }
};

/* ---- Instructions ----------------------------------------------------------------------------------------------- */

/* The lower and the upper two of four e4m3 numbers. */
DEVICE void halves_of(uint32_t four, uint32_t &low, uint32_t &high) {
  asm("{\n.reg .b16 a, b;\nmov.b32 {a, b}, %2;\ncvt.rn.f16x2.e4m3x2 %0, a;\ncvt.rn.f16x2.e4m3x2 %1, b;\n}"
      : "=r"(low), "=r"(high)
      : "r"(four));
}
DEVICE uint32_t transposed(uint32_t a) {
  uint32_t d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
  return d;
}
DEVICE void copy_16(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/* Before the wait for the predecessors, which do not write it. */
DEVICE void copy_16_early(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" EARLY ::"r"(to), "l"(from) : "memory");
}
/* Keeps a value in a register. Otherwise the compiler computes it from the thread's number again for every tile. */
DEVICE void keep(uint32_t &value) { asm volatile("" : "+r"(value)); }
DEVICE void keep(int &value) { asm volatile("" : "+r"(value)); }
DEVICE void keep(const unsigned char *&value) { asm volatile("" : "+l"(value)); }

/* ---- What a warp works on --------------------------------------------------------------------------------------- */

/* Shared memory:
 *   barrier   128 bytes
 *   rings     [warps][stages] of K [16][row], V [16][row]; at the end O, [warps][rows][pitch] floats
 *   received  [slots][warps][rows][own] floats, in clusters of eight: O of all warps, the block's columns;
 *             in pairs [part_count] results of a part as the lanes have them: the first block's, and those to keep
 *   stats     [slots][warps][rows] of two floats: maximum and sum
 *   queries   [warps][rows][row]; with new rows, for each warp [rows + 2 query length][row] of queries, K and V, and
 *             [query length][dimension / 2] of two floats: cosines and sines
 * The chunks of 16 bytes of a row are permuted: in queries, chunk c of row r lies in the place of chunk c ^ r % 8. */
template <typename Size> struct work {
  uint32_t rank, kv_head, batch, split;
  uint32_t lane, warp, g, t; /* lane = 4 g + t */
  uint32_t barrier, ring, received, stats, queries;
  bool crowded;

  DEVICE work(const attention_decode_parameters &p, uint32_t shared) {
    rank = blockIdx.x % Size::cluster, kv_head = blockIdx.x / Size::cluster;
    batch = blockIdx.y, split = blockIdx.z;
    lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    if (Size::has_registers) keep(g);
    barrier = shared;
    crowded = Size::crowds && p.crowded;
    ring = shared + 128 + warp * ring_bytes();
    received = shared + 128 + Size::warps * ring_bytes();
    stats = received + (Size::is_pair     ? Size::part_count * Size::kept_bytes
                        : Size::has_parts ? 0
                                          : Size::warps * p.rows * Size::dimension * sizeof(float));
    queries = stats + Size::slots * Size::warps * p.rows * sizeof(float2) + warp * p.rows * Size::query_bytes;
    if (Size::appends && p.new_k) queries += DECODE_NEW_BYTES(Size::dimension, warp, p.query_length);
  }

  DEVICE uint32_t ring_bytes() const {
    return Size::crowds && crowded ? DECODE_CROWDED_STAGES * Size::stage_bytes : Size::ring_bytes;
  }
  /* Of tiles asked for before one is waited for. */
  DEVICE uint32_t ahead_bytes() const {
    return Size::crowds && crowded ? (DECODE_CROWDED_STAGES - 1) * Size::stage_bytes : Size::ahead * Size::stage_bytes;
  }
  DEVICE void wait_for_tile() const {
    if (Size::crowds && crowded)
      cp_async_wait<DECODE_CROWDED_STAGES - 2>();
    else
      cp_async_wait<Size::ahead - 1>();
    __syncwarp();
  }

  /* The first KV row of the warp's first tile in a part. */
  DEVICE uint32_t first_of(uint32_t part) const {
    return ((split * DECODE_PARTS + part) * Size::warps + warp) * DECODE_TILE;
  }
  /* To its next tile. */
  DEVICE uint32_t step() const { return gridDim.z * DECODE_RUN(Size::warps); }

  /* Its parts: one, half of them, or all. */
  DEVICE uint32_t first_part() const { return Size::cluster > 1 ? rank * Size::part_count : 0; }
  DEVICE uint32_t last_part() const { return first_part() + Size::part_count - 1; }

  /* In pairs: the lane's share of `number` of four of the results of a part, in place `place`. */
  DEVICE uint32_t kept_at(uint32_t place, uint32_t number) const {
    return received + place * Size::kept_bytes + (number * Size::warps * 32 + threadIdx.x) * 16;
  }
};

/* A query row's place: position and head of its group. */
struct query_place {
  uint32_t position, head;
};
DEVICE query_place place_of(const attention_decode_parameters &p, uint32_t row) {
  const uint32_t position = row * p.group_reciprocal >> 16;
  return {position, row - position * p.group};
}

DEVICE uint64_t offset_of(const attention_decode_stride &stride, uint32_t batch, uint32_t head) {
  return (uint64_t)batch * stride.batch + (uint64_t)head * stride.head;
}

/* ---- A tile's way through a warp --------------------------------------------------------------------------------- */

/* B fragments of Q^T. Columns after the last row repeat it. */
template <typename Size> using query_fragments = uint32_t[Size::operands][Size::dimension / 16][2];

/* Of the query rows 8 n + 2 t + i, as columns of the fragments: */
template <typename Size> using of_rows = float[Size::operands][2];

template <typename Size> using score_fragments = float[Size::operands][4]; /* KV rows g and g + 8 of the tile */
template <typename Size> using output_fragments = float[Size::operands][Size::dimension / 16][4];

/* Calls f(n, i) for the lane's numbers i of each operand n: 2 rows, or 4 scores. */
template <typename Size, int Count, typename Function> DEVICE void for_rows(Function f) {
  unrolled_for (int n = 0; n < Size::operands; n++)
    unrolled_for (int i = 0; i < Count; i++) f(n, i);
}

/* The maximum of a row that has seen nothing. Only a score of -infinity is smaller, and its weight is 0. */
constexpr float lowest = -FLT_MAX;

/* A warp's results of some KV rows. */
template <typename Size> struct partial {
  output_fragments<Size> o;
  of_rows<Size> most; /* what exponents, to base 2, are taken against; no score is larger by more than 8 */
  of_rows<Size> sum;  /* of weights; of this lane's KV rows until sum_up */

  DEVICE void clear() {
    unrolled_for (int n = 0; n < Size::operands; n++) {
      unrolled_for (int i = 0; i < 2; i++) most[n][i] = lowest, sum[n][i] = 0.0f;
      unrolled_for (int j = 0; j < Size::dimension / 16; j++)
        unrolled_for (int i = 0; i < 4; i++) o[n][j][i] = 0.0f;
    }
  }

  DEVICE void sum_up() {
    for_rows<Size, 2>([&](int n, int i) {
      unrolled_for (int distance = 4; distance < 32; distance *= 2)
        sum[n][i] += __shfl_xor_sync(0xffffffffu, sum[n][i], distance);
    });
  }
};

/* Two partial results become one; that of the first KV rows comes first. The bits are the same in every block. */
struct join_factors {
  float most, first, second;

  DEVICE join_factors(float first_most, float second_most) {
    most = fmaxf(first_most, second_most);
    first = exp2_approximate(first_most - most);
    second = exp2_approximate(second_most - most);
  }
  DEVICE float of(float a, float b) const { return __fmaf_rn(b, second, __fmul_rn(a, first)); }
};

template <typename Size> DEVICE void join(partial<Size> &all, const partial<Size> &next) {
  for_rows<Size, 2>([&](int n, int i) {
    const join_factors join(all.most[n][i], next.most[n][i]);
    all.most[n][i] = join.most;
    all.sum[n][i] = join.of(all.sum[n][i], next.sum[n][i]);
    unrolled_for (int j = 0; j < Size::dimension / 16; j++) {
      all.o[n][j][i] = join.of(all.o[n][j][i], next.o[n][j][i]);
      all.o[n][j][i + 2] = join.of(all.o[n][j][i + 2], next.o[n][j][i + 2]);
    }
  });
}

/* How many KV rows are seen. */
template <typename Size> struct limits {
  int by_first;                    /* by the first position; one more by each that follows, if there is a mask: */
  int all;                         /* as many as there are */
  int position[Size::operands][2]; /* of the lane's columns */
  int positions;                   /* that see different KV rows */
  int window;                      /* KV rows that each position sees at most */

  DEVICE limits(const attention_decode_parameters &p, const work<Size> &w, int end, uint32_t length) {
    all = (int)length;
    by_first = p.causal ? end - ((int)p.query_length - 1) : all;
    positions = p.causal ? (int)p.query_length : 1;
    window = Size::general ? p.window : 0;
    for_rows<Size, 2>([&](int n, int i) {
      const uint32_t row_index = min(8 * n + 2 * w.t + i, p.rows - 1);
      position[n][i] = p.causal ? (int)place_of(p, row_index).position : 0;
      if (Size::has_registers) keep(position[n][i]);
    });
  }

  DEVICE int by(int position) const { return min(by_first + position, all); }

  /* Do all rows see all of this tile? */
  DEVICE bool whole(int begin) const {
    return begin + DECODE_TILE <= by(0) && (!Size::general || begin >= by(positions - 1) - window);
  }
};

/* A fragments of K, 32 columns in two steps; `key` is the lane's address in the tile. */
template <typename Size> DEVICE void load_keys_e4m3(uint32_t key, int two, uint32_t (&a)[2][4]) {
  uint32_t r[4]; /* rows g and g + 8 of the first 16 columns, and of the others: columns 4 t to 4 t + 3 of them */
  ldmatrix_x4(r, (key ^ (2 * two % 8 * 16)) + 2 * two / 8 * 128);
  unrolled_for (int i = 0; i < 4; i++) halves_of(r[i], a[i / 2][i % 2], a[i / 2][i % 2 + 2]);
}

/* s + odd = K Q^T; `key` is the lane's address in the tile. Two sums, since each product waits for the one before. */
template <typename Size>
DEVICE void score(const query_fragments<Size> &q, uint32_t key, score_fragments<Size> &s, score_fragments<Size> &odd) {
  uint32_t a[2][4];
  unrolled_for (int step = 0; step < Size::dimension / 16; step++) {
    if constexpr (!Size::e4m3)
      ldmatrix_x4(a[step % 2], (key ^ (2 * step % 8 * 16)) + 2 * step / 8 * 128);
    else if (step % 2 == 0)
      load_keys_e4m3<Size>(key, step / 2, a);
    unrolled_for (int n = 0; n < Size::operands; n++)
      mma_16x8x16<typename Size::type>(Size::has_registers && step % 2 ? odd[n] : s[n], a[step % 2], q[n][step][0],
                                       q[n][step][1]);
  }
}

/* cap * tanh(s / cap) = cap - 2 cap / (e^(2 s / cap) + 1); s and cap are exponents to base 2. */
DEVICE float capped(const attention_decode_parameters &p, float s) {
  const float x = s * p.cap_inverse;
  const float from_exponential =
      fmaf(-2.0f * p.cap_log2, reciprocal(exp2_approximate(x * 2.88539008f) + 1.0f), p.cap_log2);
  return fabsf(x) < 0.25f ? s * tanh_ratio(x * x) : from_exponential;
}

/* Scores to exponents to base 2, those that a row does not see to -infinity. */
template <typename Size>
DEVICE void mask(const attention_decode_parameters &p, const limits<Size> &limits, int begin, bool whole, uint32_t g,
                 const of_rows<Size> &scale, score_fragments<Size> &s) {
  unrolled_for (int n = 0; n < Size::operands; n++)
    unrolled_for (int i = 0; i < 4; i++) s[n][i] = __fmul_rn(s[n][i], Size::e4m3 ? scale[n][i % 2] : p.scale_log2);
  if (Size::general && p.cap_inverse != 0.0f)
    unrolled_for (int n = 0; n < Size::operands; n++)
      unrolled_for (int i = 0; i < 4; i++) s[n][i] = capped(p, s[n][i]);
  if (whole) return;
  unrolled_for (int n = 0; n < Size::operands; n++)
    unrolled_for (int i = 0; i < 4; i++) {
      const int kv_row = begin + (int)g + i / 2 * 8, end = limits.by(limits.position[n][i % 2]);
      if (kv_row >= end || (Size::general && kv_row < end - limits.window)) s[n][i] = -INFINITY;
    }
}

/* Moves the references of all rows of the warp if the scores of one row exceed its reference by 8. */
template <typename Size> DEVICE void move_reference(const score_fragments<Size> &s, partial<Size> &all) {
  bool rises = false;
  for_rows<Size, 2>([&](int n, int i) { rises |= fmaxf(s[n][i], s[n][i + 2]) > all.most[n][i] + 8.0f; });
  if (!__any_sync(0xffffffffu, rises)) return;
  for_rows<Size, 2>([&](int n, int i) {
    float most = fmaxf(s[n][i], s[n][i + 2]);
    unrolled_for (int distance = 4; distance < 32; distance *= 2)
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
    most = fmaxf(most, all.most[n][i]);
    const float keep = exp2_approximate(all.most[n][i] - most);
    all.most[n][i] = most;
    all.sum[n][i] *= keep;
    unrolled_for (int j = 0; j < Size::dimension / 16; j++) all.o[n][j][i] *= keep, all.o[n][j][i + 2] *= keep;
  });
}

/* Scores to weights, rounded to V's type, as B fragments of P^T. */
template <typename Size>
DEVICE void weigh(const score_fragments<Size> &s, partial<Size> &all, uint32_t (&weights)[Size::operands][2]) {
  unrolled_for (int n = 0; n < Size::operands; n++) {
    float weight[4];
    unrolled_for (int i = 0; i < 4; i++) weight[i] = exp2_approximate(s[n][i] - all.most[n][i % 2]);
    unrolled_for (int i = 0; i < 2; i++) {
      all.sum[n][i] += weight[i] + weight[i + 2];
      weights[n][i] = transposed(pack_two<typename Size::type>(weight[2 * i], weight[2 * i + 1]));
    }
  }
}

/* Columns of V from chunk 2 j on, as A fragments of V^T; `value` is the lane's address in the tile. Two chunks have 16
 * columns, in e4m3 32. In e4m3, row g of a fragment is column 2 g of its 16, and row g + 8 the next one. */
template <typename Size> using value_fragments = uint32_t[2 / Size::number_bytes][4];

template <typename Size> DEVICE void load_values(uint32_t value, int j, value_fragments<Size> &a) {
  const uint32_t from = (value ^ (2 * j % 8 * 16)) + 2 * j / 8 * 128;
  if constexpr (Size::e4m3) {
    uint32_t r[4]; /* of KV rows 2 t and 2 t + 1, columns 2 g and 2 g + 1 each */
    ldmatrix_x4_transposed(r, from);
    unrolled_for (int i = 0; i < 4; i++)
      halves_of(__byte_perm(r[i], 0, 0x3120), a[i % 2][i / 2 * 2], a[i % 2][i / 2 * 2 + 1]);
  } else {
    ldmatrix_x4_transposed(a[0], from);
  }
}

/* Of the two KV rows in a register of a fragment, those of the first `count`. */
DEVICE uint32_t first_of_two(int count) { return (count > 0 ? 0xffffu : 0) | (count > 1 ? 0xffff0000u : 0); }

/* o += V^T P^T. */
template <typename Size>
DEVICE void accumulate(uint32_t value, const uint32_t (&weights)[Size::operands][2], output_fragments<Size> &o) {
  constexpr int at_once = 2 / Size::number_bytes;
  unrolled_for (int j = 0; j < Size::dimension / 16 / at_once; j++) {
    value_fragments<Size> a;
    load_values<Size>(value, j, a);
    unrolled_for (int n = 0; n < Size::operands; n++)
      unrolled_for (int i = 0; i < at_once; i++)
        mma_16x8x16<typename Size::type>(o[n][j * at_once + i], a[i], weights[n][0], weights[n][1]);
  }
}

/* The same for a tile that some row does not see whole: one product for each position, with zeros for KV rows that it
 * does not see, whatever memory holds there. */
template <typename Size>
DEVICE void accumulate_seen(const limits<Size> &limits, int begin, uint32_t t, uint32_t value,
                            const uint32_t (&weights)[Size::operands][2], output_fragments<Size> &o) {
  constexpr int at_once = 2 / Size::number_bytes;
  unrolled_for (int j = 0; j < Size::dimension / 16 / at_once; j++) {
    value_fragments<Size> a;
    load_values<Size>(value, j, a);
    rolled_for (int position = 0; position < limits.positions; position++) {
      const int count = limits.by(position) - begin - 2 * (int)t; /* the lane has KV rows 2 t + 0, 1, 8, 9 */
      uint32_t low = first_of_two(count), high = first_of_two(count - 8);
      if (Size::general) {
        low &= ~first_of_two(count - limits.window);
        high &= ~first_of_two(count - limits.window - 8);
      }
      unrolled_for (int part = 0; part < at_once; part++) {
        const uint32_t seen[4] = {a[part][0] & low, a[part][1] & low, a[part][2] & high, a[part][3] & high};
        unrolled_for (int n = 0; n < Size::operands; n++) {
          float more[4] = {};
          mma_16x8x16<typename Size::type>(more, seen, weights[n][0], weights[n][1]);
          unrolled_for (int i = 0; i < 4; i++)
            if (limits.position[n][i % 2] == position) o[n][j * at_once + part][i] += more[i];
        }
      }
    }
  }
}

/* The addresses in the first stage that the lane passes to ldmatrix. The second eight rows are the second matrix of K,
 * and the third matrix of V. */
struct lane_addresses {
  uint32_t key, value;
};

template <typename Size> DEVICE lane_addresses addresses_of(const work<Size> &w) {
  const uint32_t permuted = Size::permuted(w.lane % 8);
  lane_addresses at = {w.ring + w.lane % 16 * Size::row_bytes + ((w.lane / 16 ^ permuted) << 4),
                       w.ring + Size::tile_bytes + (w.lane % 8 + w.lane / 16 * 8) * Size::row_bytes +
                           ((w.lane / 8 % 2 ^ permuted) << 4)};
  if (Size::has_registers) keep(at.key), keep(at.value);
  return at;
}

/* The rest of a tile, from the two sums of its scores on. */
template <typename Size>
DEVICE void attend_tile(const attention_decode_parameters &p, const work<Size> &w, const limits<Size> &limits,
                        const of_rows<Size> &scale, uint32_t value, int first, score_fragments<Size> &s,
                        const score_fragments<Size> &odd, partial<Size> &now) {
  const bool whole = limits.whole(first);
  uint32_t weights[Size::operands][2];
  for_rows<Size, 4>([&](int n, int i) { s[n][i] += odd[n][i]; });
  mask<Size>(p, limits, first, whole, w.g, scale, s);
  move_reference<Size>(s, now);
  weigh<Size>(s, now, weights);
  if (whole)
    accumulate<Size>(value, weights, now.o);
  else
    accumulate_seen<Size>(limits, first, w.t, value, weights, now.o);
}
