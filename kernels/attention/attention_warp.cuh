/* attention_warp.cuh - the work of a warp on its rows and one tile of K and V in shared memory: scores, masks,
 * references, weights, sums, infinities and NaNs of V, results. attention_loop.cuh and attention_general.cu bring the
 * tiles, each in its own way. */
#pragma once

#include <math.h>

#include "attention_tile.cuh"

/* The work of a block. It is in shared memory, since registers are scarce. */
struct work {
  uint32_t batch, kv_head, split;
  int row_begin;         /* of the block */
  int length;            /* KV rows there are; or the end of new rows, which may be beyond the capacity. limit_of takes
                          * query_length from it, so items with fewer query rows have as many more */
  int last_row;          /* no later row of the KV head sees more KV rows */
  int kv_begin, kv_end;  /* KV rows of the split that some row of the block sees */
  int kv_all;            /* KV rows before this one are seen by every row of the block */
  const uint16_t *k, *v; /* the KV head's first rows */
};

/* The number of KV rows that a row sees. Rows after the last see as many as the last. */
DEVICE int limit_of(const attention_parameters &p, const work &w, int row) {
  if (!p.causal) return w.length;
  int position = (int)((uint32_t)(row < w.last_row ? row : w.last_row) / p.group);
  return max(position + w.length - p.query_length + 1, 0);
}

template <typename Size> DEVICE work work_of(const attention_parameters &p) {
  work w;
  /* Under the causal mask the last rows see most KV rows. They go first in a section: the heads whose K and V fit in
   * L2. */
  const uint32_t heads = p.batch * p.kv_heads * p.splits, section = blockIdx.x / (p.section_heads * p.row_tiles);
  const uint32_t first_head = section * p.section_heads, within = blockIdx.x - first_head * p.row_tiles;
  const uint32_t section_heads = min(p.section_heads, heads - first_head);
  w.row_begin = (int)(p.row_tiles - 1 - within / section_heads) * Size::rows;
  uint32_t index = first_head + within % section_heads;
  w.split = index % p.splits;
  index /= p.splits;
  w.kv_head = index % p.kv_heads;
  w.batch = index / p.kv_heads;
  w.length = p.kv_lengths ? min(max(p.kv_lengths[w.batch], 0), p.most_length) : p.capacity;
  w.last_row = (p.query_length - max(w.length - p.capacity, 0)) * (int)p.group - 1;
  w.kv_begin = (int)w.split * p.split_rows;
  w.kv_end = min(w.kv_begin + p.split_rows, limit_of(p, w, w.row_begin + Size::rows - 1));
  w.kv_all = limit_of(p, w, w.row_begin);
  w.k = static_cast<const uint16_t *>(p.k) + w.batch * p.k_stride.batch + w.kv_head * p.k_stride.head;
  w.v = static_cast<const uint16_t *>(p.v) + w.batch * p.v_stride.batch + w.kv_head * p.v_stride.head;
  return w;
}

/* Of a row: its position and its head in the group. */
struct place {
  uint32_t position, head;
};

DEVICE place place_of(const attention_parameters &p, uint32_t row) {
  if (p.group == 1) return {row, 0};
  return {row / p.group, row % p.group};
}

template <typename Size> DEVICE void query_load(const attention_parameters &p, const work &w, unsigned char *shared) {
  constexpr int rows_at_once = Size::threads / Size::chunks;
  const uint32_t thread = thread_index(), chunk = thread % Size::chunks, first = thread / Size::chunks;
  const uint16_t *q = static_cast<const uint16_t *>(p.q) + (int64_t)w.batch * p.q_stride.batch +
                      (int64_t)w.kv_head * p.group * p.q_stride.head + chunk * 8;
  rolled_for (uint32_t r = first; r < Size::rows; r += rows_at_once) {
    const uint32_t row = w.row_begin + r;
    const bool present = row < p.rows;
    const place at = place_of(p, present ? row : 0);
    const uint16_t *from = q + at.position * p.q_stride.position + at.head * p.q_stride.head;
    unsigned char *to = shared + chunk_offset<Size>(r, chunk);
    if (p.aligned)
      cp_async_16(shared_address(to), from, present ? 16 : 0);
    else
      *reinterpret_cast<uint4 *>(to) = gather(from, present);
  }
}

/* ---- A tile's way through a warp --------------------------------------------------------------------------------- */

/* Addresses for ldmatrix, which reads two chunks of 16 rows as four matrices. Of Q and V the second matrix is below the
 * first. Of K, which is transposed, it is beside the first. */
template <typename Size, bool BesideFirst> struct matrices {
  uint32_t first; /* the address that the lane gives for the first */

  static DEVICE uint32_t offset(int row, int step) {
    const uint32_t lane = lane_index();
    return BesideFirst ? chunk_offset<Size>(row + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2)
                       : chunk_offset<Size>(row + lane % 16, 2 * step + lane / 16);
  }

  DEVICE explicit matrices(const unsigned char *rows)
      : first(shared_address(rows) + (Size::steps::flips ? offset(0, 0) : 0)) {}

  /* For the rows from `row` on and the chunks 2 step and 2 step + 1. */
  DEVICE uint32_t at(int row, int step) const {
    if constexpr (!Size::steps::flips) return first + offset(row, step);
    return chunk_address(first, step) + row * Size::row_bytes;
  }
};
template <typename Size> using row_matrices = matrices<Size, false>;
template <typename Size> using key_matrices = matrices<Size, Size::steps::ordered>;

/* The warp's rows of Q as A fragments, in registers where there is room for them. */
template <typename Size> struct query_fragments {
  row_matrices<Size> rows;
  uint32_t held[Size::held ? Size::held : 1][Size::parts][4];

  DEVICE explicit query_fragments(const unsigned char *shared) : rows(shared) {
    unroll<Size::held>([&](int step) { read(step, held[step]); });
  }

  DEVICE void read(int step, uint32_t (&a)[Size::parts][4]) const {
    unroll<Size::parts>([&](int m) { ldmatrix_x4(a[m], rows.at(16 * m, step)); });
  }

  DEVICE void get(int step, uint32_t (&a)[Size::parts][4]) const {
    if (step < Size::held) {
      unroll<Size::parts, 4>([&](int m, int i) { a[m][i] = held[step][m][i]; });
    } else {
      read(step, a);
    }
  }
};

/* s = Q K^T. */
template <typename Size>
DEVICE void score(const query_fragments<Size> &q, const unsigned char *tile, score_fragments<Size> &s) {
  constexpr int second = Size::steps::ordered ? 1 : 2; /* of the registers of a fragment */
  unroll<Size::parts, Size::tile / 8, 4>([&](int m, int j, int i) { s[m][j][i] = 0.0f; });
  const key_matrices<Size> keys(tile);
  unroll<Size::dimension / 16>([&](int step) {
    uint32_t a[Size::parts][4];
    q.get(step, a);
    unroll<Size::tile / 16>([&](int j) {
      uint32_t b[4];
      ldmatrix_x4(b, keys.at(16 * j, step));
      unroll<Size::parts>([&](int m) {
        mma_16x8x16<typename Size::type>(s[m][2 * j], a[m], b[0], b[second]);
        mma_16x8x16<typename Size::type>(s[m][2 * j + 1], a[m], b[3 - second], b[3]);
      });
    });
  });
}

/* How many KV rows some row of the warp sees; 0 where it has no rows. */
template <typename Size> DEVICE int warp_limit(const attention_parameters &p, const work &w) {
  const int begin = w.row_begin + warp_row<Size>();
  return begin < (int)p.rows ? limit_of(p, w, begin + Size::warp_rows - 1) : 0;
}

/* Of the thread's row group or, as the second half, group + 8 of 16 rows. */
template <typename Size> DEVICE int limit_of(const attention_parameters &p, const work &w, int part, int half) {
  return limit_of(p, w, w.row_begin + warp_row<Size>() + 16 * part + 8 * half + lane_index() / 4);
}

/* Scores of KV rows that a row does not see become a number that the scale turns into -infinity. */
template <typename Size>
DEVICE void mask(const attention_parameters &p, const work &w, int begin, score_fragments<Size> &s) {
  float scale_log2 = p.scale_log2;
  /* Keeps ptxas from holding `hidden` from tile to tile: with 128 columns of O, sm_100a has no register for it. */
  if constexpr (Size::dimension == 128) asm volatile("" : "+f"(scale_log2));
  const float hidden = scale_log2 < 0.0f ? INFINITY : -INFINITY;
  unroll<Size::parts, 2>([&](int m, int half) {
    const int seen = limit_of<Size>(p, w, m, half) - begin - lane_index() % 4 * 2;
    unroll<Size::tile / 8, 2>([&](int j, int i) {
      if (8 * j + i >= seen) s[m][j][2 * half + i] = hidden;
    });
  });
}

/* The thread's rows: group and group + 8 of 16, in the words of ptx.cuh. */
template <typename Size> struct softmax_state {
  float reference[Size::parts][2]; /* exponents to base 2; -infinity while the row has seen nothing */
  float sum[Size::parts][2];       /* of this lane's columns */

  DEVICE void clear() {
    unroll<Size::parts, 2>([&](int m, int half) { reference[m][half] = -INFINITY, sum[m][half] = 0.0f; });
  }
};

/* From here on a reference is rounded by 1 or more: against it the greatest weight of a row could vanish, or overflow,
 * since weigh() rounds no product. */
constexpr float immense_reference = 0x1p24f;

/* 1 / x within 2 ulp. reciprocal() returns 0 for a large x, and a division in C++ takes more registers. */
DEVICE float inverse_of(float x) {
  float y;
  asm("div.full.f32 %0, 0f3F800000, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* For rows with an immense reference: rounds the scores as the reference was rounded, and subtracts it. */
template <typename Size>
DEVICE void lower(score_fragments<Size> &s, float scale_log2, const softmax_state<Size> &state) {
  const float inverse = inverse_of(scale_log2);
  unroll<Size::parts, 2>([&](int m, int half) {
    const float reference = state.reference[m][half];
    if (fabsf(reference) < immense_reference || reference == -INFINITY) return;
    unroll<Size::tile / 8, 2>([&](int j, int i) {
      s[m][j][2 * half + i] = (__fmul_rn(s[m][j][2 * half + i], scale_log2) - reference) * inverse;
    });
  });
}

/* The reference becomes the maximum of itself and the scores. o and the sum are rescaled to it. */
template <typename Size>
DEVICE void refer(score_fragments<Size> &s, float scale_log2, softmax_state<Size> &state, output_fragments<Size> &o) {
  bool immense = false;
  unroll<Size::parts, 2>([&](int m, int half) {
    float most = -INFINITY, least = INFINITY; /* the scale may be negative */
    unroll<Size::tile / 8>([&](int j) {
      most = fmaxf(most, fmaxf(s[m][j][2 * half], s[m][j][2 * half + 1]));
      /* Of every tile only one of them would be sought, by kernels for either sign. */
      if (Size::steps::one_reference) least = fminf(least, fminf(s[m][j][2 * half], s[m][j][2 * half + 1]));
    });
    float highest = scale_log2 * (scale_log2 < 0.0f ? least : most);
    highest = fmaxf(state.reference[m][half], quad_max(highest));
    const float keep = exp2_approximate(state.reference[m][half] - (highest == -INFINITY ? 0.0f : highest));
    state.reference[m][half] = highest;
    state.sum[m][half] *= keep;
    immense |= fabsf(highest) >= immense_reference && highest != -INFINITY;
    unroll<Size::dimension / 8>([&](int j) {
      o[m][j][2 * half] *= keep;
      o[m][j][2 * half + 1] *= keep;
    });
  });
  if (__any_sync(0xffffffffu, immense)) lower<Size>(s, scale_log2, state);
}

/* Scores to weights. Returns true if the weights of every row of the warp fit in the sums and in f16. Only then, or if
 * `final`, they are added to the sums. While a row has seen nothing, the reference is 0: weights become 0, and a NaN
 * stays one. The reference is also 0 after refer() has lowered the scores. It lowers them for each tile, since the
 * weights of such rows never count as fitting. */
template <typename Size>
DEVICE bool weigh(float scale_log2, bool final, softmax_state<Size> &state, score_fragments<Size> &s) {
  float sum[Size::parts][2];
  bool within = true;
  unroll<Size::parts, 2>([&](int m, int half) {
    const float reference = state.reference[m][half], against = fabsf(reference) < immense_reference ? reference : 0.0f;
    sum[m][half] = 0.0f;
    unroll<Size::tile / 8>([&](int j) {
      const float low = exp2_approximate(fmaf(s[m][j][2 * half], scale_log2, -against));
      const float high = exp2_approximate(fmaf(s[m][j][2 * half + 1], scale_log2, -against));
      s[m][j][2 * half] = low;
      s[m][j][2 * half + 1] = high;
      sum[m][half] += low + high;
    });
    within = within && sum[m][half] <= 0x1p14f && fabsf(reference) < immense_reference;
  });
  if (!final && !__all_sync(0xffffffffu, within)) return false;
  unroll<Size::parts, 2>([&](int m, int half) { state.sum[m][half] += sum[m][half]; });
  return true;
}

/* o += P V, the weights P rounded to V's type. */
template <typename Size>
DEVICE void accumulate(const score_fragments<Size> &s, const unsigned char *tile, output_fragments<Size> &o) {
  using type = typename Size::type;
  const row_matrices<Size> v(tile);
  unroll<Size::tile / 16>([&](int step) {
    uint32_t a[Size::parts][4];
    unroll<Size::parts, 4>([&](int m, int i) {
      a[m][i] = pack_two<type>(s[m][2 * step + i / 2][i % 2 * 2], s[m][2 * step + i / 2][i % 2 * 2 + 1]);
    });
    unroll<Size::dimension / 16>([&](int j) {
      uint32_t b[4];
      ldmatrix_x4_transposed(b, v.at(16 * step, j));
      unroll<Size::parts>([&](int m) {
        mma_16x8x16<type>(o[m][2 * j], a[m], b[0], b[1]);
        mma_16x8x16<type>(o[m][2 * j + 1], a[m], b[2], b[3]);
      });
    });
  });
}

/* Adds infinities and NaNs in rows [begin, end) of V to the rows that see them: their weights are not 0. */
template <typename Size>
DEVICE void spread(const attention_parameters &p, const work &w, int begin, int end, output_fragments<Size> &o) {
  const uint16_t *v = w.v + lane_index() % 4 * 2;
  rolled_for (int row = begin; row < end; row++) {
    bool seen[Size::parts][2];
    unroll<Size::parts, 2>([&](int m, int half) { seen[m][half] = row < limit_of<Size>(p, w, m, half); });
    unroll<Size::dimension / 8, 2>([&](int j, int i) {
      float value = widen<typename Size::type>(v[row * p.v_stride.position + 8 * j + i]);
      if (isfinite(value)) value = 0.0f;
      unroll<Size::parts, 2>([&](int m, int half) { o[m][j][2 * half + i] += seen[m][half] ? value : 0.0f; });
    });
  }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* The log-sum-exp of a row, to base e or, for a split, to base 2. */
DEVICE void lse_store(const attention_parameters &p, const work &w, uint32_t row, float lse_log2) {
  if (p.splits > 1) {
    uint64_t heads = (uint64_t)p.batch * p.kv_heads;
    p.partial_lse[(w.split * heads + w.batch * p.kv_heads + w.kv_head) * p.rows + row] = lse_log2;
  } else if (p.lse) {
    const place at = place_of(p, row);
    const uint32_t head = w.kv_head * p.group + at.head;
    p.lse[w.batch * p.lse_batch_stride + head * p.lse_head_stride + at.position] = lse_log2 * 0.693147181f;
  }
}

/* A split's o, in fp32. `row` is the thread's first of 16. */
template <typename Size>
DEVICE void partial_store(const attention_parameters &p, const work &w, uint32_t row,
                          const float (&o)[Size::dimension / 8][4]) {
  uint64_t heads = (uint64_t)p.batch * p.kv_heads;
  uint64_t first = (w.split * heads + w.batch * p.kv_heads + w.kv_head) * p.rows + row;
  unroll<2>([&](int half) {
    if (row + 8 * half >= p.rows) return;
    float *to = p.partial_o + (first + 8 * half) * Size::dimension + lane_index() % 4 * 2;
    unroll<Size::dimension / 8>(
        [&](int j) { *reinterpret_cast<float2 *>(to + 8 * j) = make_float2(o[j][2 * half], o[j][2 * half + 1]); });
  });
}

/* Stores o as T. It goes through the warp's own rows of the query tile, which are no longer needed, so that whole
 * chunks are stored. */
template <typename Size>
DEVICE void output_store(const attention_parameters &p, const work &w, const output_fragments<Size> &o,
                         unsigned char *shared) {
  constexpr int chunks = Size::chunks;
  __syncwarp();
  unroll<Size::parts, 2>([&](int m, int half) {
    const uint32_t row = warp_row<Size>() + 16 * m + 8 * half + lane_index() / 4;
    unroll<chunks>([&](int j) {
      *reinterpret_cast<uint32_t *>(shared + chunk_offset<Size>(row, j) + lane_index() % 4 * 4) =
          pack_two<typename Size::type>(o[m][j][2 * half], o[m][j][2 * half + 1]);
    });
  });
  __syncwarp();
  uint16_t *to = static_cast<uint16_t *>(p.o) + (int64_t)w.batch * p.o_stride.batch +
                 (int64_t)w.kv_head * p.group * p.o_stride.head;
  rolled_for (uint32_t i = lane_index(); i < Size::warp_rows * chunks; i += 32) {
    const uint32_t r = warp_row<Size>() + i / chunks, chunk = i % chunks, row = w.row_begin + r;
    if (row >= p.rows) break;
    const uint4 value = *reinterpret_cast<const uint4 *>(shared + chunk_offset<Size>(r, chunk));
    const place place = place_of(p, row);
    uint16_t *at = to + place.position * p.o_stride.position + place.head * p.o_stride.head + chunk * 8;
    if (p.aligned)
      *reinterpret_cast<uint4 *>(at) = value;
    else
      scatter(at, value);
  }
}

template <typename Size>
DEVICE void finish(const attention_parameters &p, const work &w, const softmax_state<Size> &state,
                   output_fragments<Size> &o, unsigned char *shared) {
  unroll<Size::parts>([&](int m) {
    const uint32_t row = w.row_begin + warp_row<Size>() + 16 * m + lane_index() / 4;
    unroll<2>([&](int half) {
      const float sum = quad_sum(state.sum[m][half]);
      /* A row that sees a KV row has a weight of 1, or a NaN, or only scores of -infinity. */
      const bool nothing = sum == 0.0f;
      const float inverse = 1.0f / sum;
      unroll<Size::dimension / 8>([&](int j) {
        o[m][j][2 * half] = nothing ? 0.0f : o[m][j][2 * half] * inverse;
        o[m][j][2 * half + 1] = nothing ? 0.0f : o[m][j][2 * half + 1] * inverse;
      });
      if (lane_index() % 4 == 0 && row + 8 * half < p.rows)
        lse_store(p, w, row + 8 * half, nothing ? -INFINITY : state.reference[m][half] + log2f(sum));
    });
    if (p.splits > 1 && w.kv_begin < w.kv_end) /* otherwise the merge does not read it */
      partial_store<Size>(p, w, row, o[m]);
  });
  if (p.splits == 1) output_store<Size>(p, w, o, shared);
}
