/* attention_decode.cu - attention of up to 16 query rows of a KV head over many KV rows: decoding. Bound by the memory;
 * at short lengths by latencies: the launch, the first bytes, the exchange between blocks.
 *
 * The products are transposed, S^T = K Q^T and O^T = V^T P^T: operand A of mma.m16n8k16 has sixteen KV rows, operand B
 * eight query rows. movmatrix makes the C fragments of the weights B fragments of the second product. e4m3 becomes f16
 * in the registers, exactly.
 *
 * Each warp has a ring of tiles, a maximum, a sum and an O of its own, so no warp waits for another one before the end.
 * The reference of the exponents moves only if a score exceeds it by 8. So most tiles rescale nothing, and one vote
 * tells that.
 *
 * If there are few heads, a cluster of eight blocks has one part of a head each (attention_decode.h). Each warp sends
 * its results to the blocks that finish these columns (st.async). If there are many heads, a block takes all parts of a
 * head in turn, and joins them in the same order by the same arithmetic. Between these, a pair of blocks has a head:
 * the first one joins the first half of the parts; the second one keeps its own parts' results until the first's have
 * come.
 *
 * A score of a KV row that the query row does not see becomes -infinity. If rows of a tile see different KV rows, V is
 * multiplied once for each position, with zeros for unseen KV rows: an infinity or a NaN reaches only rows that see it.
 */
#include "../common/barrier.cuh"
#include "../common/launch.cuh"
#include "../common/send.cuh"
#include "attention_decode_append.cuh"
#include "attention_decode_copies.cuh"
#include "attention_decode_tile.cuh"

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Writes O of the warp's rows to the place of its ring, row by row. */
template <typename Size>
DEVICE void lay_out(const attention_decode_parameters &p, const work<Size> &w, const output_fragments<Size> &o) {
  cp_async_wait<0>();
  __syncwarp();
  for_rows<Size, 2>([&](int n, int i) {
    const uint32_t row = 8 * n + 2 * w.t + i;
    if (row >= p.rows) return;
    const uint32_t to = w.ring + (row * Size::pitch + w.g * (Size::e4m3 ? 2 : 1)) * sizeof(float);
    unrolled_for (int j = 0; j < Size::dimension / 16; j++) {
      if (Size::e4m3) {
        store_two_numbers(to + 16 * j * sizeof(float), {o[n][j][i], o[n][j][i + 2]});
        continue;
      }
      store_number(to + 16 * j * sizeof(float), o[n][j][i]);
      store_number(to + (16 * j + 8) * sizeof(float), o[n][j][i + 2]);
    }
  });
}

/* Sends the warp's results to the blocks of the cluster: to each block its columns, and all maxima and sums. */
template <typename Size>
DEVICE void send(const attention_decode_parameters &p, const work<Size> &w, const partial<Size> &mine) {
  const uint32_t slot = (w.rank * Size::warps + w.warp) * p.rows;
  wait_for_cluster(); /* the others are there, and so are their barriers */
  for_rows<Size, 2>([&](int n, int i) {
    const uint32_t row = 8 * n + 2 * w.t + i;
    if (row < p.rows) /* every lane knows them, so lanes 4 g + t send them to block g */
      send_two(address_in_block(w.stats + (slot + row) * sizeof(float2), w.g), {mine.most[n][i], mine.sum[n][i]},
               address_in_block(w.barrier, w.g));
  });
  __syncwarp();
  constexpr uint32_t fours = Size::dimension / 4, own_fours = Size::own / 4;
  for (uint32_t i = w.lane; i < p.rows * fours; i += 32) {
    const uint32_t row = i / fours, four = i % fours, block = four / own_fours;
    send_four(address_in_block(w.received + ((slot + row) * own_fours + four % own_fours) * sizeof(float4), block),
              load_shared_four(w.ring + (row * Size::pitch + four * 4) * sizeof(float)),
              address_in_block(w.barrier, block));
  }
}

/* Calls f(number, four) for the lane's results of a part, four floats at a time: O, and then maxima and sums. */
template <typename Size, typename Partial, typename Function> DEVICE void for_fours(Partial &results, Function f) {
  constexpr int count = Size::dimension / 16;
  unrolled_for (int j = 0; j < count; j++)
    f(j, results.o[0][j][0], results.o[0][j][1], results.o[0][j][2], results.o[0][j][3]);
  f(count, results.most[0][0], results.most[0][1], results.sum[0][0], results.sum[0][1]);
}

/* Of a pair: results of a part to shared memory; from there; and from the first block to the second's first place. */
template <typename Size> DEVICE void keep_part(const work<Size> &w, uint32_t place, const partial<Size> &results) {
  for_fours<Size>(results, [&](int number, float a, float b, float c, float d) {
    store_four_words(w.kept_at(place, number),
                     make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)));
  });
}
template <typename Size> DEVICE void take_part(const work<Size> &w, uint32_t place, partial<Size> &results) {
  for_fours<Size>(results, [&](int number, float &a, float &b, float &c, float &d) {
    const float4 four = load_shared_four(w.kept_at(place, number));
    a = four.x, b = four.y, c = four.z, d = four.w;
  });
}
template <typename Size> DEVICE void send_part(const work<Size> &w, const partial<Size> &results) {
  const uint32_t barrier = address_in_block(w.barrier, 1);
  wait_for_cluster(); /* the other block is there, and so is its barrier */
  for_fours<Size>(results, [&](int number, float a, float b, float c, float d) {
    send_four(address_in_block(w.kept_at(0, number), 1), make_float4(a, b, c, d), barrier);
  });
}

template <typename Size>
DEVICE void store_stats(const attention_decode_parameters &p, const work<Size> &w, const partial<Size> &mine) {
  for_rows<Size, 2>([&](int n, int i) {
    const uint32_t row = 8 * n + 2 * w.t + i;
    if (w.g == 0 && row < p.rows)
      store_two_numbers(w.stats + (w.warp * p.rows + row) * sizeof(float2), {mine.most[n][i], mine.sum[n][i]});
  });
}

/* Columns of a row. */
template <int Count> struct columns {
  float most, sum, o[Count];

  DEVICE void join(const columns &first, const columns &second) {
    const join_factors factors(first.most, second.most);
    const float all_sum = factors.of(first.sum, second.sum);
    unrolled_for (int i = 0; i < Count; i++) o[i] = factors.of(first.o[i], second.o[i]);
    most = factors.most, sum = all_sum;
  }

  /* Joins the columns of two lanes at this distance; both get the same. */
  DEVICE void join_lanes(uint32_t distance) {
    const bool is_second = threadIdx.x & distance;
    columns first, second;
    exchange(is_second, distance, most, first.most, second.most);
    exchange(is_second, distance, sum, first.sum, second.sum);
    unroll<Count>([&](int i) { exchange(is_second, distance, o[i], first.o[i], second.o[i]); });
    join(first, second);
  }

  static DEVICE void exchange(bool is_second, uint32_t distance, float mine, float &first, float &second) {
    const float theirs = __shfl_xor_sync(0xffffffffu, mine, distance);
    first = is_second ? theirs : mine;
    second = is_second ? mine : theirs;
  }
};

/* With splits as attention_combine.cu takes them. */
template <typename Size, int Count>
DEVICE void store(const attention_decode_parameters &p, const work<Size> &w, uint32_t row, uint32_t column,
                  const columns<Count> &all) {
  const bool nothing = all.sum == 0.0f;
  const float inverse = Size::e4m3 ? reciprocal(all.sum) * p.v_scale : reciprocal(all.sum);
  const query_place at = place_of(p, row);
  const uint32_t head = w.kv_head * p.group + at.head;
  float o[Count];
  unrolled_for (int i = 0; i < Count; i++) o[i] = nothing ? 0.0f : all.o[i] * inverse;
  if (p.partial_o) {
    const uint64_t kv_heads = gridDim.x / Size::cluster;
    const uint64_t index = ((w.split * (uint64_t)p.batch + w.batch) * kv_heads + w.kv_head) * p.rows + row;
    unrolled_for (int i = 0; i < Count; i += 2)
      *reinterpret_cast<float2 *>(p.partial_o + index * Size::dimension + column + i) = make_float2(o[i], o[i + 1]);
    if (column == 0) p.partial_lse[index] = nothing ? -INFINITY : all.most + log2f(all.sum);
    return;
  }
  uint16_t *to = static_cast<uint16_t *>(p.o) + offset_of(p.o_stride, w.batch, head) +
                 (uint64_t)at.position * p.o_stride.position + column;
  unrolled_for (int i = 0; i < Count; i += 2)
    *reinterpret_cast<uint32_t *>(to + i) =
        Size::e4m3 && p.bf16 ? pack_two<__nv_bfloat16>(o[i], o[i + 1]) : pack_two<typename Size::type>(o[i], o[i + 1]);
  if (p.lse && column == 0)
    p.lse[(uint64_t)w.batch * p.lse_batch_stride + (uint64_t)head * p.lse_head_stride + at.position] =
        nothing ? -INFINITY : (all.most + log2f(all.sum)) * 0.693147181f;
}

/* In clusters, `warps` lanes share two columns of a row; each joins the results of one warp of every part. */
template <typename Size> DEVICE void finish_parts(const attention_decode_parameters &p, const work<Size> &w) {
  constexpr uint32_t pairs = Size::own / 2;
  const uint32_t total = p.rows * pairs * Size::warps, warp = w.lane % Size::warps;
  for (uint32_t i = threadIdx.x; i - w.lane < total; i += Size::warps * 32) {
    const uint32_t row = min(i / Size::warps / pairs, p.rows - 1), column = i / Size::warps % pairs * 2;
    columns<2> parts[DECODE_PARTS];
    unroll<DECODE_PARTS>([&](int part) {
      const uint32_t at = (part * Size::warps + warp) * p.rows + row;
      const float2 stats = load_shared_two(w.stats + at * sizeof(float2));
      const float2 o = load_shared_two(w.received + (at * Size::own + column) * sizeof(float));
      parts[part] = {stats.x, stats.y, {o.x, o.y}};
    });
    columns<2> &all = parts[0];
    unrolled_for (int part = 1; part < DECODE_PARTS; part++) all.join(all, parts[part]);
    unrolled_for (uint32_t distance = 1; distance < Size::warps; distance *= 2) all.join_lanes(distance);
    if (warp == 0 && i < total) store(p, w, row, w.rank * Size::own + column, all);
  }
}

/* In a block that is alone, a lane joins four columns of a row of all warps. */
template <typename Size> DEVICE void finish_warps(const attention_decode_parameters &p, const work<Size> &w) {
  constexpr uint32_t fours = Size::dimension / 4;
  const uint32_t first_ring = w.ring - w.warp * w.ring_bytes();
  for (uint32_t i = threadIdx.x; i < p.rows * fours; i += Size::warps * 32) {
    const uint32_t row = i / fours, column = i % fours * 4;
    columns<4> warps[Size::warps];
    unrolled_for (uint32_t warp = 0; warp < Size::warps; warp++) {
      const float2 stats = load_shared_two(w.stats + (warp * p.rows + row) * sizeof(float2));
      const float4 o =
          load_shared_four(first_ring + warp * w.ring_bytes() + (row * Size::pitch + column) * sizeof(float));
      warps[warp] = {stats.x, stats.y, {o.x, o.y, o.z, o.w}};
    }
    unrolled_for (uint32_t distance = 1; distance < Size::warps; distance *= 2)
      unrolled_for (uint32_t warp = 0; warp < Size::warps; warp += 2 * distance)
        warps[warp].join(warps[warp], warps[warp + distance]);
    store(p, w, row, column, warps[0]);
  }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Requests the first tiles, or those after the first. The first one does not wait for the length: rows after the length
 * are read, and not used. With pages or a window it has to wait. Returns the length. Sets the position of new rows, and
 * the end: the length, or more if new rows do not all fit. */
template <typename Size>
DEVICE uint32_t begin(const attention_decode_parameters &p, const work<Size> &w, source<Size> &kv, bool has_first,
                      int32_t &position, int32_t &end) {
  int32_t given = (int32_t)p.capacity;
  if (Size::appends && p.new_k) {
    position = p.positions[w.batch * p.position_step];
    given = min(position, given) + (int32_t)p.query_length;
  }
  if (p.kv_lengths) given = p.kv_lengths[w.batch];
  const auto know = [&] {
    end = min(max(given, 0), p.most_length);
    return min((uint32_t)end, p.capacity);
  };
  uint32_t length = p.capacity;
  if constexpr (Size::general)
    if (p.kv_pages || p.window < DECODE_NO_WINDOW) {
      length = know();
      kv.begin(p, w, end, length);
    }
  rolled_for (uint32_t stage = 0; stage < w.ahead_bytes(); stage += Size::stage_bytes) {
    if (stage || !has_first) kv.ask(p, w, length, stage);
    if (stage) continue;
    copy_queries(p, w);
    if (Size::appends && p.new_k) copy_new_rows(p, w);
    cp_async_commit();
    if (Size::cluster > 1) {
      if (threadIdx.x == 0) {
        barrier_init(w.barrier, 1);
        barriers_are_initialised();
      }
      __syncwarp();
      if (threadIdx.x == 0)
        barrier_expect(w.barrier,
                       Size::is_pair ? (uint32_t)Size::kept_bytes
                                     : DECODE_PARTS * Size::warps * p.rows * (Size::own + 2) * (uint32_t)sizeof(float));
      __syncwarp();
      only_arrive_at_cluster();
    }
    length = know();
  }
  return length;
}

/* The warp's queries to registers, with the new rows rotated before. */
template <typename Size>
DEVICE void take_queries(const attention_decode_parameters &p, const work<Size> &w,
                         const lane_frequencies<Size> &frequencies, int32_t position, query_fragments<Size> &q,
                         of_rows<Size> &scale) {
  if (Size::appends && p.rotates) make_table(p, w, frequencies, position);
  w.wait_for_tile();
  if (Size::appends && p.rotates) rotate_rows(p, w);
  if constexpr (Size::e4m3)
    load_queries_e4m3(p, w, q, scale);
  else
    load_queries(p, w, q);
}

/* After the last tile: the results of all parts, and of all warps, become one. */
template <typename Size>
DEVICE void finish(const attention_decode_parameters &p, const work<Size> &w, const partial<Size> &mine) {
  let_successors_start();
  lay_out(p, w, mine.o);
  if constexpr (!Size::has_parts) {
    send(p, w, mine);
    barrier_wait_cluster(w.barrier, 0); /* its only phase, since each launch initialises it */
    finish_parts(p, w);
  } else {
    store_stats(p, w, mine);
    __syncthreads();
    finish_warps(p, w);
  }
}

/* Joins a part's results to those before; the second block of a pair keeps them, but for the last part's. */
template <typename Size>
DEVICE void add_part(const work<Size> &w, uint32_t part, const partial<Size> &now, partial<Size> &all) {
  if (Size::is_pair && w.rank) {
    if (part < w.last_part()) keep_part(w, part - w.first_part() + 1, now);
  } else if (part == w.first_part()) {
    all = now;
  } else {
    join(all, now);
  }
}

/* The first block of a pair sends its results: false. The second one joins its own to them, `last` the last. */
template <typename Size> DEVICE bool meet_pair(const work<Size> &w, const partial<Size> &last, partial<Size> &all) {
  partial<Size> next;
  if (!w.rank) {
    cp_async_wait<0>();
    send_part(w, all);
    return false;
  }
  wait_for_cluster();
  barrier_wait_cluster(w.barrier, 0);
  take_part(w, 0, all);
  rolled_for (uint32_t place = 1; place < Size::part_count; place++) {
    take_part(w, place, next);
    join(all, next);
  }
  join(all, last);
  return true;
}

template <typename Size> DEVICE void decode(const attention_decode_parameters &p) {
  extern __shared__ __align__(128) unsigned char decode_memory[];
  lane_frequencies<Size> frequencies(p);
  /* Lines of the parameters, too, are fetched by then. */
  if constexpr (Size::appends) keep_early(p.always_zero, p.capacity ^ p.rows ^ p.batch ^ p.rotates ^ p.position_step);
  const work<Size> w(p, shared_address(decode_memory));
  if constexpr (Size::general) only_wait_for_predecessors(); /* for pages */
  source<Size> kv(p, w);
  bool has_first = false;
  if constexpr (!Size::general) {
    if (p.early) has_first = kv.ask_first(p, w);
    only_wait_for_predecessors();
  }
  frequencies.load(p);
  int32_t position = INT32_MAX; /* of the first new row */
  int32_t end;
  const uint32_t length = begin(p, w, kv, has_first, position, end);
  const limits<Size> limits(p, w, end, length);
  const lane_addresses at = addresses_of(w);
  query_fragments<Size> q;
  of_rows<Size> scale;
  take_queries(p, w, frequencies, position, q, scale);

  uint32_t stage = 0, before = w.ring_bytes() - Size::stage_bytes; /* and the stage before it */
  partial<Size> now, all;
  const auto attend_part = [&](uint32_t part) {
    now.clear();
    rolled_for (uint32_t first = kv.start_of(w, part); first < length; first += w.step()) {
      w.wait_for_tile();
      const bool has = kv.has(Size::ahead - 1);
      if (Size::appends && (int32_t)first + DECODE_TILE > position && has)
        place_new_rows(p, w, position, length, first, stage);
      score_fragments<Size> s = {}, odd = {};
      score<Size>(q, at.key + stage, s, odd);
      if (Size::asks_early) kv.ask(p, w, length, before);
      if (has) attend_tile<Size>(p, w, limits, scale, at.value + stage, (int)first, s, odd, now);
      __syncwarp();
      if (!Size::asks_early) kv.ask(p, w, length, stage);
      before = stage;
      stage += Size::stage_bytes;
      if (stage == w.ring_bytes()) stage = 0;
    }
    now.sum_up();
  };
  if constexpr (!Size::has_parts) {
    attend_part(w.rank);
    finish(p, w, now);
  } else {
    rolled_for (uint32_t part = w.first_part(); part <= w.last_part(); part++) {
      attend_part(part);
      add_part(w, part, now, all);
    }
    if constexpr (Size::is_pair)
      if (!meet_pair(w, now, all)) return;
    finish(p, w, all);
  }
}

/* A kernel's work. A general one has code for both types. */
template <rondo_dtype Dtype, decode_kind Kind, int... Sizes>
DEVICE void decode_as(const attention_decode_parameters &p) {
  if constexpr (Kind == DECODE_GENERAL)
    if (!p.bf16) return decode<tiling<RONDO_F16, Kind, Sizes...>>(p);
  decode<tiling<Dtype, Kind, Sizes...>>(p);
}

#define DECODE_CLUSTER_1
#define DECODE_CLUSTER_2 __cluster_dims__(2, 1, 1)
#define DECODE_CLUSTER_8 __cluster_dims__(8, 1, 1)
#define DEFINE(chips, parameters, name, threads, type, kind, dimension, operands, warps, stages, cluster)              \
  extern "C" __global__ void DECODE_CLUSTER_##cluster __launch_bounds__(threads, 1)                                    \
      name(const __grid_constant__ parameters p) {                                                                     \
    decode_as<type, kind, dimension, operands, warps, stages, cluster>(p);                                             \
    publish(p.done);                                                                                                   \
  }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
ATTENTION_DECODE_KERNELS(DEFINE)
#endif
