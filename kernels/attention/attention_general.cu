/* attention_general.cu - attention with any combination of pages, window, soft cap and e4m3, for every chip. Copies and
 * products do not overlap.
 *
 * It has the block of the plain kernels (attention_warp.cuh) and a simple loop. A tile of K and V is read row by row
 * through the page table, becomes 16-bit numbers (e4m3 exactly), and stays in shared memory during the work on it.
 * There is one tile at a time, and a running maximum. Infinities and NaNs of V are always taken out of the tile, and
 * added to the rows that see them. */
#include <cuda_fp8.h>

#include "../common/launch.cuh"
#include "attention_items.cuh"
#include "attention_portable.h"
#include "attention_warp.cuh"

/* ---- Rows of any type into shared memory ------------------------------------------------------------------------- */

/* Two e4m3 codes, exactly. */
template <typename T> DEVICE uint32_t widen_codes(uint16_t codes) {
  const float2 pair = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
  return pack_two<T>(pair.x, pair.y);
}
template <> DEVICE uint32_t widen_codes<__half>(uint16_t codes) {
  const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
  return pair.x | (uint32_t)pair.y << 16;
}

/* Eight numbers of a row, of a type or e4m3. Chunks of aligned rows are aligned to their own size. */
template <typename T> DEVICE uint4 chunk_read(const unsigned char *row, uint32_t chunk, bool e4m3, bool aligned) {
  if (!e4m3) {
    row += chunk * 16;
    return aligned ? *reinterpret_cast<const uint4 *>(row) : gather(row, true);
  }
  row += chunk * 8;
  uint2 codes;
  if (aligned) {
    codes = *reinterpret_cast<const uint2 *>(row);
  } else {
    codes.x = row[0] | row[1] << 8 | row[2] << 16 | (uint32_t)row[3] << 24;
    codes.y = row[4] | row[5] << 8 | row[6] << 16 | (uint32_t)row[7] << 24;
  }
  return make_uint4(widen_codes<T>((uint16_t)codes.x), widen_codes<T>((uint16_t)(codes.x >> 16)),
                    widen_codes<T>((uint16_t)codes.y), widen_codes<T>((uint16_t)(codes.y >> 16)));
}

template <typename Size>
DEVICE void any_query_load(const attention_general_parameters &any, const attention_parameters &own, const work &w,
                           unsigned char *shared) {
  const uint32_t thread = thread_index(), chunk = thread % Size::chunks;
  const int bytes = any.q_e4m3 ? 1 : 2;
  rolled_for (uint32_t r = thread / Size::chunks; r < Size::rows; r += Size::threads / Size::chunks) {
    const uint32_t row = w.row_begin + r;
    const place at = place_of(own, row < own.rows ? row : 0);
    const int64_t offset = w.batch * own.q_stride.batch + (w.kv_head * own.group + at.head) * own.q_stride.head +
                           at.position * own.q_stride.position;
    const unsigned char *from = static_cast<const unsigned char *>(own.q) + offset * bytes;
    const uint4 zeros = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4 *>(shared + chunk_offset<Size>(r, chunk)) =
        row < own.rows ? chunk_read<typename Size::type>(from, chunk, any.q_e4m3, own.aligned) : zeros;
  }
}

/* ---- KV rows ----------------------------------------------------------------------------------------------------- */

/* Where a KV row is in the pool, counted in rows of pages, or without pages in the item; -1 if nowhere. */
DEVICE int pool_row(const attention_general_parameters &any, const work &w, int row) {
  if (row >= w.kv_end) return -1;
  if (!any.kv_pages) return row;
  const int page = any.kv_pages[w.batch * any.pages_stride + (row >> any.page_shift)];
  if (page < 0 || page >= any.pool_pages) return -1;
  return page << any.page_shift | (row & ((1 << any.page_shift) - 1));
}

/* K or V of a KV head. */
struct any_rows {
  const unsigned char *first;
  int64_t page_bytes, position_bytes;
  int page_shift;

  DEVICE any_rows(const attention_general_parameters &any, const work &w, const void *data,
                  const attention_stride &stride) {
    const int bytes = any.kv_e4m3 ? 1 : 2;
    const int64_t item = any.kv_pages ? 0 : w.batch * stride.batch;
    first = static_cast<const unsigned char *>(data) + (item + w.kv_head * stride.head) * bytes;
    page_bytes = stride.batch * bytes;
    position_bytes = stride.position * bytes;
    page_shift = any.page_shift;
  }

  DEVICE const unsigned char *at(int row) const {
    return first + (row >> page_shift) * page_bytes + (row & ((1 << page_shift) - 1)) * position_bytes;
  }
};

/* A tile, of which pool_rows tells the rows; those that are nowhere are zeros. Whether `Clean` found any. */
template <typename Size, bool Clean>
DEVICE bool any_tile_load(const attention_general_parameters &any, const any_rows &rows, const int *pool_rows,
                          unsigned char *tile) {
  const uint32_t thread = thread_index(), chunk = thread % Size::chunks;
  bool found = false;
#pragma unroll 4
  for (uint32_t r = thread / Size::chunks; r < Size::tile; r += Size::threads / Size::chunks) {
    const int row = pool_rows[r];
    uint4 value = make_uint4(0, 0, 0, 0);
    if (row >= 0) value = chunk_read<typename Size::type>(rows.at(row), chunk, any.kv_e4m3, any.plain.aligned);
    if constexpr (Clean) {
      uint32_t pair[4] = {value.x, value.y, value.z, value.w};
      found |= clean<typename Size::type>(pair);
      value = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
    *reinterpret_cast<uint4 *>(tile + chunk_offset<Size>(r, chunk)) = value;
  }
  return found;
}

/* ---- Scores ------------------------------------------------------------------------------------------------------ */

DEVICE float tanh_of(float x) {
  const float far = 1.0f - __fdividef(2.0f, exp2_approximate(2.88539008f * x) + 1.0f);
  return fabsf(x) < 0.25f ? x * tanh_ratio(x * x) : far;
}

template <typename Size> DEVICE void cap(float cap_scale, score_fragments<Size> &s) {
  unroll<Size::parts, Size::tile / 8, 4>([&](int m, int j, int i) { s[m][j][i] = tanh_of(cap_scale * s[m][j][i]); });
}

/* The columns that a row of the thread sees, but for missing pages: [first, limit). */
struct span {
  int first, limit;
};

template <typename Size>
DEVICE span span_of(const attention_general_parameters &any, const work &w, int part, int half) {
  const int limit = limit_of<Size>(any.plain, w, part, half);
  return {any.window ? max(limit - any.window, 0) : 0, limit};
}

/* Scores that a row does not see to what the scale makes -infinity. */
template <typename Size>
DEVICE void hide(const attention_general_parameters &any, const work &w, int begin, const int *pool_rows,
                 score_fragments<Size> &s) {
  const float hidden = any.plain.scale_log2 < 0.0f ? INFINITY : -INFINITY;
  unroll<Size::parts, 2>([&](int m, int half) {
    const span seen = span_of<Size>(any, w, m, half);
    unroll<Size::tile / 8, 2>([&](int j, int i) {
      const int column = 8 * j + lane_index() % 4 * 2 + i;
      if (begin + column < seen.first || begin + column >= seen.limit || pool_rows[column] < 0)
        s[m][j][2 * half + i] = hidden;
    });
  });
}

/* What is not finite in the tile's V rows is added to the rows that see it: their weights are not 0. To all
 * others -0 is added, which changes no number, while 0 would make 0 of -0. */
template <typename Size>
DEVICE void any_spread(const attention_general_parameters &any, const work &w, int begin, const any_rows &v,
                       const int *pool_rows, output_fragments<Size> &o) {
  using type = typename Size::type;
  rolled_for (int r = 0; r < Size::tile; r++) {
    if (pool_rows[r] < 0) continue;
    const unsigned char *row = v.at(pool_rows[r]);
    bool sees[Size::parts][2];
    unroll<Size::parts, 2>([&](int m, int half) {
      const span seen = span_of<Size>(any, w, m, half);
      sees[m][half] = begin + r >= seen.first && begin + r < seen.limit;
    });
    unroll<Size::dimension / 8, 2>([&](int j, int i) {
      const int column = 8 * j + lane_index() % 4 * 2 + i;
      uint16_t code;
      if (any.kv_e4m3)
        code = (uint16_t)widen_codes<type>(row[column]);
      else
        code = reinterpret_cast<const uint16_t *>(row)[column];
      const float value = widen<type>(code), added = isfinite(value) ? -0.0f : value;
      unroll<Size::parts, 2>([&](int m, int half) { o[m][j][2 * half + i] += sees[m][half] ? added : -0.0f; });
    });
  }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* KV rows in front of the window of the block's first row are no work, in whole tiles. */
template <typename Size> DEVICE work any_work_of(const attention_general_parameters &any) {
  work w = work_of<Size>(any.plain);
  if (any.window) w.kv_begin = max(w.kv_begin, (w.kv_all - any.window) / Size::tile * Size::tile);
  return w;
}

template <typename Size>
DEVICE void attend_work(const attention_general_parameters &any, const attention_parameters &own, const work &w,
                        int (&pool_rows)[Size::tile]) {
  extern __shared__ __align__(128) unsigned char shared[];
  const attention_parameters &p = any.plain;
  unsigned char *const keys = shared + Size::query_bytes, *const values = keys + Size::tile_bytes;
  any_query_load<Size>(any, own, w, shared);
  __syncthreads();
  const query_fragments<Size> q(shared + warp_row<Size>() * Size::row_bytes);
  const any_rows k(any, w, p.k, p.k_stride), v(any, w, p.v, p.v_stride);

  output_fragments<Size> o = {};
  softmax_state<Size> state;
  state.clear();
  rolled_for (int begin = w.kv_begin; begin < w.kv_end; begin += Size::tile) {
    __syncthreads(); /* the tile before is used up */
    if (threadIdx.x < Size::tile) pool_rows[threadIdx.x] = pool_row(any, w, begin + (int)threadIdx.x);
    __syncthreads();
    any_tile_load<Size, false>(any, k, pool_rows, keys);
    const bool found = any_tile_load<Size, true>(any, v, pool_rows, values);
    const bool unclean = __syncthreads_or(found);
    score_fragments<Size> s;
    score<Size>(q, keys, s);
    if (any.capped) cap<Size>(any.cap_scale, s);
    hide<Size>(any, w, begin, pool_rows, s);
    refer<Size>(s, p.scale_log2, state, o);
    weigh<Size>(p.scale_log2, true, state, s);
    accumulate<Size>(s, values, o);
    if (unclean) any_spread<Size>(any, w, begin, v, pool_rows, o);
  }
  unroll<Size::parts, Size::dimension / 8, 4>([&](int m, int j, int i) { o[m][j][i] *= any.v_scale; });
  finish<Size>(own, w, state, o, shared);
}

/* Packed rows: `own` gets the rows of one item, whose first row is q's and o's, and `w` its KV rows, those of w.batch.
 */
template <typename Size>
DEVICE void packed_work_of(const attention_general_parameters &any, const packed_tile &at, attention_parameters &own,
                           work &w) {
  const attention_parameters &p = any.plain;
  const int start = any.starts[at.item], query_length = any.starts[at.item + 1] - start;
  own.rows = (uint32_t)(at.end - at.begin);
  own.q = static_cast<const uint16_t *>(p.q) + start * p.q_stride.position;
  own.o = static_cast<uint16_t *>(p.o) + start * p.o_stride.position;
  if (p.lse) own.lse += start;
  own.q_stride.batch = own.o_stride.batch = own.lse_batch_stride = 0;
  w.batch = at.item;
  w.kv_head = blockIdx.x % p.kv_heads;
  w.split = 0;
  w.row_begin = at.first - at.begin;
  w.length = p.kv_lengths[at.item];
  w.last_row = (query_length - max(w.length - p.capacity, 0)) * (int)p.group - 1;
  if (p.causal) w.length += p.query_length - query_length; /* limit_of takes the query_length of all items from it */
  w.kv_end = min(p.capacity, limit_of(p, w, w.row_begin + Size::rows - 1));
  w.kv_all = limit_of(p, w, w.row_begin);
  w.kv_begin = any.window ? max(0, (w.kv_all - any.window) / Size::tile * Size::tile) : 0;
}

/* `own` says where a block's rows are. The loop reads the parameters in constant memory. */
template <typename Size> DEVICE void attend_any(const attention_general_parameters &any) {
  __shared__ work w;
  __shared__ int pool_rows[Size::tile];
  __shared__ attention_parameters own;
  packed_tile at = {};
  if (any.starts) {
    const uint32_t place = any.plain.row_tiles - 1 - blockIdx.x / any.plain.kv_heads;
    at = packed_tile_at(any.starts, any.items, any.plain.group, Size::rows, place);
    if (at.first >= at.end) return;
  }
  if (threadIdx.x == 0) {
    own = any.plain;
    if (any.starts)
      packed_work_of<Size>(any, at, own, w);
    else
      w = any_work_of<Size>(any);
  }
  __syncthreads();
  attend_work<Size>(any, own, w, pool_rows);
}

#define DEFINE(chips, parameters, name, threads, blocks, type, dimension, parts, tile, stages, stages_80, held)        \
  DEFINE_KERNEL(chips, parameters, name, threads, blocks,                                                              \
                attend_any<tiling<type, dimension, threads, parts, tile, stages, held>>)
ATTENTION_GENERAL_KERNELS(DEFINE)
