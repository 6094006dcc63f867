/* feed_forward_stream.cu - the feed forward half of a layer for one token, with NVFP4 weights that are not in L2. Bytes
 * and the number of instructions a code bound it.
 *
 * Sixteen warps multiply. A warp has the same 128 columns of all of the block's tiles of gate and up, so that its
 * numbers of x stay in registers, and one tile of the second product. Each lane requests by cp.async the 16 bytes of
 * rows g and g + 8 that it multiplies itself, so that there is no barrier. Before x arrives the kernel prefetches: all
 * scales and the first tiles into shared memory, one decoded tile into registers, the rest into L2.
 *
 * Four more warps gather x. As soon as all warps have finished a tile, they gate it and send it to the cluster's other
 * blocks; received numbers they convert to integers (decoder_integers.cuh). Meanwhile the next tiles are multiplied.
 * When the first product ends, all chunks of the second product except the last are complete. */
#include "../gemv/gemv_operands.cuh"
#include "decoder_integers.cuh"
#include "feed_forward_stream.h"

typedef feed_forward_stream_parameters stream_parameters;

constexpr uint32_t cluster_blocks = LAYER_HALF_CLUSTER, chunk_columns = FEED_FORWARD_STREAM_CHUNK,
                   group_columns = FEED_FORWARD_STREAM_GROUP, block_warps = FEED_FORWARD_STREAM_WARPS,
                   slot_bytes = FEED_FORWARD_STREAM_SLOT, slot_count = FEED_FORWARD_STREAM_SLOTS,
                   second_slots = slot_count + 1, chunk_bytes = chunk_columns / 2, unit_columns = 64,
                   x_low = FEED_FORWARD_STREAM_HIDDEN, gated_low = FEED_FORWARD_STREAM_GROUPS * group_columns,
                   scale_pitch = FEED_FORWARD_STREAM_HIDDEN / 16 + FEED_FORWARD_STREAM_SCALE_PADDING,
                   gathering_warps = FEED_FORWARD_STREAM_HIDDEN / (cluster_blocks * 64);

/* ---- A block's place --------------------------------------------------------------------------------------------- */

struct stream_place {
  uint32_t shared, rank, cluster, lane, warp, g, t;
  uint32_t first_group, groups; /* of the cluster */
  bool is_last;                 /* cluster, with a number of groups of its own */

  DEVICE stream_place(const stream_parameters &p, uint32_t memory)
      : shared(memory), rank(blockIdx.x % cluster_blocks), cluster(blockIdx.x / cluster_blocks), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32), g(lane / 4), t(lane % 4) {
    const uint32_t others = p.parts - 1, dealt = p.groups - p.last_groups;
    is_last = cluster == others;
    first_group = is_last ? dealt : cluster * dealt / others;
    groups = is_last ? p.last_groups : (cluster + 1) * dealt / others - first_group;
  }
  /* The row of a tile whose sum a lane has, and its half of the columns. */
  DEVICE uint32_t sum_row() const { return g + t % 2 * 8; }
  DEVICE uint32_t sum_half() const { return t / 2; }
  DEVICE uint32_t chunks() const { return (groups + 1) / 2; }
  DEVICE uint32_t x_here() const { return shared + FEED_FORWARD_STREAM_X_HERE; }
  DEVICE uint32_t squares_here() const { return shared + FEED_FORWARD_STREAM_SQUARES_HERE; }
  DEVICE uint32_t summed(uint32_t tile) const { return shared + FEED_FORWARD_STREAM_SUMMED + tile * 8; }
  DEVICE uint32_t received(uint32_t chunk) const { return shared + FEED_FORWARD_STREAM_RECEIVED_HERE + chunk * 8; }
  DEVICE uint32_t converted(uint32_t chunk) const { return shared + FEED_FORWARD_STREAM_CONVERTED + chunk * 8; }
};

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* A warp's requests: its columns of the first product's tiles, then its tile of the second product, chunk by chunk. */
struct code_stream {
  const unsigned char *from, *second_from; /* of a lane's row g */
  uint32_t eight_rows, eight_second_rows;  /* bytes from there to its row g + 8 */
  uint32_t seconds;                        /* chunks of the second product of which it has columns */
  uint32_t to;

  DEVICE code_stream(const stream_parameters &p, const stream_place &at) {
    const uint32_t row_bytes = p.hidden / 2, second_row_bytes = p.columns / 2;
    eight_rows = 8 * row_bytes, eight_second_rows = 8 * second_row_bytes;
    from = (const unsigned char *)p.half.first.weights +
           (at.first_group * 128 + at.rank * 16 + at.g) * (uint64_t)row_bytes + at.warp * chunk_bytes + at.t * 16;
    from -= 16 * eight_rows; /* a tile in front of the first: see ask */
    second_from = (const unsigned char *)p.half.second.weights +
                  ((at.rank + at.warp * cluster_blocks) * 16 + at.g) * (uint64_t)second_row_bytes +
                  at.first_group * (group_columns / 2) + at.t * 16;
    seconds = (at.t < 2 ? at.groups + 1 : at.groups) / 2;
    to = at.shared + p.ring + at.warp * (slot_count * slot_bytes) + at.lane * 16;
  }
  DEVICE uint32_t slot(uint32_t i) const { return to + i * slot_bytes; }
  /* The second product has one more slot, in place of the first product's scales. It is requested from nine groups on,
   * whose scales are larger than a slot. */
  static_assert((2 * slot_count + 1) * 16 * scale_pitch >= block_warps * slot_bytes, "");
  static DEVICE uint32_t last_slot(const stream_parameters &p, const stream_place &at) {
    return at.shared + p.scales + at.warp * slot_bytes + at.lane * 16;
  }
  DEVICE uint32_t second_slot(const stream_parameters &p, const stream_place &at, uint32_t i) const {
    return i < slot_count ? slot((at.groups + i) % slot_count) : last_slot(p, at);
  }
  DEVICE void ask_second(uint32_t slot, uint32_t chunk) const {
    if (chunk >= seconds) return;
    copy_early_16(slot, second_from + chunk * chunk_bytes);
    copy_early_16(slot + 512, second_from + chunk * chunk_bytes + eight_second_rows);
  }
  /* The next chunk of the first product, `tile`, or the second product's chunk in the same slot. */
  DEVICE void ask(const stream_place &at, uint32_t i, uint32_t tile) {
    if (tile < at.groups) {
      from += 16 * eight_rows; /* before, so that no copy of it is kept */
      copy_early_16(slot(i), from), copy_early_16(slot(i) + 512, from + eight_rows);
    } else {
      ask_second(slot(i), tile - at.groups);
    }
    cp_async_commit();
  }
  DEVICE void fill(const stream_place &at) {
    rolled_for (uint32_t i = 0; i < slot_count; i++) ask(at, i, i);
  }
  /* Weights without a slot go to the L2 cache, after those with a slot, while the predecessor does not use memory. A
   * tile of the first product is one piece. */
  DEVICE void bring_nearer(const stream_parameters &p, const stream_place &at) const {
    cp_async_wait<1>();
    const uint32_t tile = at.warp + slot_count + 1, row_bytes = p.hidden / 2, second_row_bytes = p.columns / 2;
    if (at.lane == 0 && tile < at.groups)
      prefetch_early((const unsigned char *)p.half.first.weights +
                         (at.first_group * 128 + at.rank * 16 + tile * 128) * (uint64_t)row_bytes,
                     16 * row_bytes);
    static_assert(32 * block_warps >= FEED_FORWARD_STREAM_HIDDEN / cluster_blocks, "a thread has one row");
    const uint32_t row = threadIdx.x;
    if (row < p.hidden / cluster_blocks)
      prefetch_early((const unsigned char *)p.half.second.weights +
                         ((at.rank + row / 16 * cluster_blocks) * 16 + row % 16) * (uint64_t)second_row_bytes +
                         at.first_group * (group_columns / 2),
                     at.groups * (group_columns / 2));
  }
};

/* A block starts when the last kernel but one ends. The predecessor then loads that kernel's results: the requests for
 * weights let these pass, or it would be 0.2 us later. */
DEVICE void give_way() { asm volatile("nanosleep.u32 400;"); }

/* Scales of the block's rows of the first product, 16 bytes at once. */
DEVICE void ask_scales(const stream_parameters &p, const stream_place &at) {
  const uint32_t pieces = p.hidden / 256, piece = threadIdx.x % 8, rows = block_warps * 4;
  if (piece < pieces)
    for (uint32_t row = threadIdx.x / 8; row < at.groups * 16; row += rows)
      copy_early_16(at.shared + p.scales + row * scale_pitch + piece * 16,
                    (const unsigned char *)p.half.first.scales +
                        (at.first_group * 128 + (at.rank + row / 16 * cluster_blocks) * 16 + row % 16) *
                            (uint64_t)(p.hidden / 16) +
                        piece * 16);
}

/* Those of the second product: four of a row for each group. */
DEVICE void ask_second_scales(const stream_parameters &p, const stream_place &at) {
  const uint32_t rows = block_warps * 4;
  for (uint32_t group = threadIdx.x % 8; group < at.groups; group += 8)
#pragma unroll 2
    for (uint32_t row = threadIdx.x / 8; row < p.hidden / cluster_blocks; row += rows)
      copy_early<4>(at.shared + p.second_scales + (row * at.groups + group) * 4,
                    (const unsigned char *)p.half.second.scales +
                        ((at.rank + row / 16 * cluster_blocks) * 16 + row % 16) * (uint64_t)(p.columns / 16) +
                        (at.first_group + group) * 4);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Of a lane and its neighbour; lanes with odd t get row g + 8. */
DEVICE float sum_of_neighbours(const float2 &sum, uint32_t t) {
  const float give = t % 2 ? sum.x : sum.y, keep = t % 2 ? sum.y : sum.x;
  return keep + __shfl_xor_sync(0xffffffffu, give, 1);
}

/* A lane's two numbers of x, and their parts. */
struct gathered {
  uint32_t unit, pair;
  float2 x, part[FEED_FORWARD_STREAM_PARTS];

  DEVICE explicit gathered(const stream_place &at)
      : unit((at.warp - block_warps) * cluster_blocks + at.rank), pair(unit * 32 + at.lane) {}
  DEVICE bool any(const stream_parameters &p) const { return unit < p.hidden / unit_columns; }
  DEVICE uint32_t norm_at(const stream_place &at) const {
    return at.shared + FEED_FORWARD_STREAM_NORM + (threadIdx.x - 32 * block_warps) * 4;
  }
  DEVICE void ask_norm(const stream_parameters &p, const stream_place &at) const {
    if (p.half.norm) copy_early<4>(norm_at(at), (const unsigned char *)p.half.norm + pair * 4);
  }
  DEVICE void load(const stream_parameters &p) {
    x = *((const float2 *)p.half.x + pair);
    unroll<FEED_FORWARD_STREAM_PARTS>([&](uint32_t j) {
      part[j] = float2{};
      if (j < p.half.part_count) part[j] = *((const float2 *)p.half.x_parts + (j * (p.hidden / 2) + pair));
    });
  }
  /* x and its parts, times the norm, to all blocks of the cluster, which share the work. */
  DEVICE void send(const stream_parameters &p, const stream_place &at) const {
    float2 two = x;
    unroll<FEED_FORWARD_STREAM_PARTS>([&](uint32_t j) { two.x += part[j].x, two.y += part[j].y; });
    if (at.cluster == 0) *((float2 *)p.half.out + pair) = two;
    float square = two.x * two.x + two.y * two.y;
    if (p.half.norm) {
      const float2 by = two_numbers(load_word(norm_at(at)));
      two.x *= by.x, two.y *= by.y;
    }
    scaled_numbers(two).send(pair, at.shared + FEED_FORWARD_STREAM_X, x_low, at.shared + FEED_FORWARD_STREAM_BLOCKS,
                             at.x_here());
    square = warp_sum(square);
    if (at.lane < cluster_blocks)
      send_word(address_in_block(at.shared + FEED_FORWARD_STREAM_SQUARES + unit * 4, at.lane), __float_as_uint(square),
                address_in_block(at.squares_here(), at.lane));
  }
};

DEVICE float norm_factor(const stream_parameters &p, const stream_place &at) {
  barrier_wait_cluster(at.squares_here(), 0);
  if (p.half.epsilon == 0.0f) return p.half.scale * codes_factor;
  float square = at.lane < p.hidden / unit_columns
                     ? __uint_as_float(load_word(at.shared + FEED_FORWARD_STREAM_SQUARES + at.lane * 4))
                     : 0.0f;
  square = warp_sum(square);
  return rsqrtf(square * p.inverse_hidden + p.half.epsilon) * (p.half.scale * codes_factor);
}

/* silu(gate) * up of a tile to all blocks: a lane has one of its columns and a quarter of the cuts. */
DEVICE void send_gated(const stream_parameters &p, const stream_place &at, uint32_t tile, float factor) {
  const uint32_t cuts = p.hidden / chunk_columns, quarter = at.lane / 8, column = at.lane % 8;
  barrier_wait(at.summed(tile), 0);
  const uint32_t from = at.shared + p.sums + (tile * block_warps * 32 + 4 * column) * 4;
  float2 sum = {};
  float4 of_cut[block_warps / 4];
  unroll<block_warps / 4>([&](uint32_t i) {
    of_cut[i] = load_shared_four(4 * i + quarter < cuts ? from + (4 * i + quarter) * 128
                                                        : at.shared + FEED_FORWARD_STREAM_ZEROS);
  });
  unroll<block_warps / 4>([&](uint32_t i) { sum.x += of_cut[i].x + of_cut[i].y, sum.y += of_cut[i].z + of_cut[i].w; });
  unrolled_for (int d = 8; d < 32; d *= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, d);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, d);
  }
  const float gated = silu(sum.x * factor) * (sum.y * factor);
  const uint32_t to = at.shared + FEED_FORWARD_STREAM_RECEIVED + ((at.rank + tile * cluster_blocks) * 8 + column) * 4;
  unrolled_for (uint32_t block = quarter; block < cluster_blocks; block += 4)
    send_word(address_in_block(to, block), __float_as_uint(gated), address_in_block(at.received(tile / 2), block));
}

/* A warp's half of a received chunk, as the second product's numbers; zeros after its end. */
DEVICE void convert_gated(const stream_place &at, uint32_t chunk, uint32_t half) {
  const uint32_t pair = chunk * (chunk_columns / 2) + half * 32 + at.lane;
  static_assert(chunk_columns == 128, "two warps have a chunk");
  float2 two = {};
  barrier_wait_cluster(at.received(chunk), 0);
  if (pair < at.groups * (group_columns / 2))
    two = load_shared_two(at.shared + FEED_FORWARD_STREAM_RECEIVED + pair * 8);
  const scaled_numbers scaled(two);
  store_word(at.shared + FEED_FORWARD_STREAM_GATED + scaled.place(pair, gated_low), scaled.bytes);
  if (at.lane % 8 == 0) store_number(at.shared + FEED_FORWARD_STREAM_SECOND_BLOCKS + pair / 8 * 4, scaled.power);
  __syncwarp();
  if (at.lane == 0) barrier_arrive(at.converted(chunk));
}

static_assert(FEED_FORWARD_STREAM_THREADS == 32 * (block_warps + gathering_warps) && gathering_warps == 4, "");
/* The warps without weights: two gate tiles in turn, two convert chunks together. */
DEVICE void gate_and_convert(const stream_parameters &p, const stream_place &at) {
  const uint32_t odd = at.warp % 2;
  if (at.warp < block_warps + 2) {
    const float factor = norm_factor(p, at);
    rolled_for (uint32_t tile = odd; tile < at.groups; tile += 2) send_gated(p, at, tile, factor);
  } else {
    rolled_for (uint32_t chunk = 0; chunk < at.chunks(); chunk++) convert_gated(at, chunk, odd);
  }
}

/* ---- The products ------------------------------------------------------------------------------------------------ */

/* A warp's first tile: its codes are decoded to bytes before x arrives, and its slot goes to the first tile without
 * one. */
struct early_tile {
  added_bytes bytes;

  DEVICE void take(const stream_place &at, code_stream &stream, const code_tables &tables) {
    cp_async_wait<slot_count - 1>();
    bytes.take(code_bytes(slot_codes(stream.slot(0)), tables));
    stream.ask(at, 0, slot_count);
  }
};

struct row_scales {
  uint32_t row, second_row;
};

/* Of one warp: addresses of its tiles' scales and sums. */
struct first_tiles {
  uint32_t scales, to, b[8];
  float2 powers;

  DEVICE first_tiles(const stream_parameters &p, const stream_place &at)
      : powers(load_shared_two(at.shared + FEED_FORWARD_STREAM_BLOCKS + at.warp * 32 + at.t * 8)) {
    load_numbers(at.shared + (at.g / 2 == at.t
                                  ? FEED_FORWARD_STREAM_X + at.g % 2 * x_low + at.warp * chunk_columns + at.t * 32
                                  : FEED_FORWARD_STREAM_ZEROS),
                 b);
    scales = at.shared + p.scales + at.g * scale_pitch + at.warp * 8 + at.t * 2;
    to = at.shared + p.sums + (at.warp * 32 + at.sum_row() * 2 + at.sum_half()) * 4;
  }
  DEVICE row_scales scales_here() const { return {load_half_word(scales), load_half_word(scales + 8 * scale_pitch)}; }
  template <typename Bytes>
  DEVICE void multiply(const stream_place &at, const Bytes &bytes, const row_scales &of, uint32_t tile) {
    float2 sum = {};
    multiply_codes(bytes, powers, b, of.row, of.second_row, sum);
    store_number(to, sum_of_neighbours(sum, at.t));
    __syncwarp();
    if (at.lane == 0) barrier_arrive(at.summed(tile));
    scales += 16 * scale_pitch, to += block_warps * 128;
  }
};

DEVICE void first_product(const stream_parameters &p, const stream_place &at, code_stream &stream,
                          const code_tables &tables, const early_tile &early) {
  first_tiles tiles(p, at);
  tiles.multiply(at, early.bytes, tiles.scales_here(), 0);
  rolled_for (uint32_t tile = 1; tile < at.groups; tile++) {
    cp_async_wait<slot_count - 1>();
    const uint32_t slot = tile % slot_count;
    const slot_codes codes(stream.slot(slot));
    const row_scales of = tiles.scales_here();
    stream.ask(at, slot, tile + slot_count);
    tiles.multiply(at, code_bytes(codes, tables), of, tile);
  }
}

DEVICE void second_product(const stream_parameters &p, const stream_place &at, const code_stream &stream,
                           const code_tables &tables) {
  const bool mine = at.g / 2 == at.t;
  uint32_t numbers =
      at.shared + (mine ? FEED_FORWARD_STREAM_GATED + at.g % 2 * gated_low + at.t * 32 : FEED_FORWARD_STREAM_ZEROS);
  const uint32_t numbers_step = mine ? chunk_columns : 0;
  uint32_t blocks_at = at.shared + FEED_FORWARD_STREAM_SECOND_BLOCKS + at.t * 8;
  uint32_t scales_at[2];
  unroll<2>([&](int i) {
    scales_at[i] = at.shared + p.second_scales + (at.warp * 16 + at.g + 8 * i) * at.groups * 4 + at.t * 2;
  });
  const uint32_t chunks = at.chunks();
  float2 sum = {};
  uint32_t slot = 0;
  rolled_for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    cp_async_wait<slot_count - 1>();
    const uint32_t codes_at = stream.second_slot(p, at, slot);
    const slot_codes codes(codes_at);
    const uint32_t pair = chunk < stream.seconds ? load_half_word(scales_at[0]) : 0,
                   second_pair = chunk < stream.seconds ? load_half_word(scales_at[1]) : 0;
    if (chunk == 0) {
      barrier_wait(at.summed(at.groups - 1), 0); /* the first product's scales */
      stream.ask_second(stream.last_slot(p, at), slot_count);
    }
    stream.ask_second(codes_at, chunk + second_slots);
    cp_async_commit();
    barrier_wait(at.converted(chunk), 0);
    const float2 powers = load_shared_two(blocks_at);
    uint32_t b[8];
    load_numbers(numbers, b);
    multiply_codes(code_bytes(codes, tables), powers, b, pair, second_pair, sum);
    numbers += numbers_step, blocks_at += 32, scales_at[0] += 8, scales_at[1] += 8;
    slot = slot == slot_count ? 0 : slot + 1;
  }
  float of_row = sum_of_neighbours(sum, at.t);
  of_row += __shfl_xor_sync(0xffffffffu, of_row, 2);
  if (at.sum_half() == 0)
    p.half.out_parts[at.cluster * p.hidden + (at.rank + at.warp * cluster_blocks) * 16 + at.sum_row()] =
        of_row * (p.half.scale * codes_factor);
}

DEVICE void meet_multiplying_warps() { asm volatile("bar.sync 1, %0;" ::"n"(32 * block_warps) : "memory"); }

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

DEVICE void feed_forward_stream(const stream_parameters &p) {
  extern __shared__ __align__(128) unsigned char feed_forward_stream_memory[];
  const stream_place at(p, shared_address(feed_forward_stream_memory));
  if (threadIdx.x == 0) {
    barrier_init(at.x_here(), 1);
    barrier_init(at.squares_here(), 1);
    for (uint32_t tile = 0; tile < at.groups; tile++) barrier_init(at.summed(tile), p.hidden / chunk_columns);
    for (uint32_t chunk = 0; chunk < at.chunks(); chunk++)
      barrier_init(at.received(chunk), 1), barrier_init(at.converted(chunk), 2);
    barriers_are_initialised();
    barrier_expect(at.x_here(), p.hidden * 2 + p.hidden / 16 * 4);
    barrier_expect(at.squares_here(), p.hidden / unit_columns * 4);
    for (uint32_t chunk = 0; chunk < at.chunks(); chunk++)
      barrier_expect(at.received(chunk), min(at.groups - 2 * chunk, 2u) * (group_columns * 4));
  }
  __syncwarp();
  arrive_at_cluster();
  if (threadIdx.x < 8) store_word(at.shared + FEED_FORWARD_STREAM_ZEROS + threadIdx.x * 4, 0);
  if (!p.half.early) only_wait_for_predecessors();
  if (at.warp >= block_warps) {
    gathered numbers(at);
    if (numbers.any(p)) numbers.ask_norm(p, at);
    cp_async_commit();
    wait_for_cluster();
    only_wait_for_predecessors();
    if (numbers.any(p)) {
      numbers.load(p);
      cp_async_wait<0>(); /* of its norm */
      numbers.send(p, at);
    }
    gate_and_convert(p, at);
    return;
  }
  code_stream stream(p, at);
  const code_tables tables(at.shared + FEED_FORWARD_STREAM_TABLES + at.warp * 8);
  const bool multiplies = at.warp < p.hidden / chunk_columns;
  early_tile early;
  ask_scales(p, at), ask_second_scales(p, at);
  cp_async_commit();
  /* The predecessors' results must not queue after weights on the way to memory. */
  if (p.half.early && !at.is_last) give_way();
  if (multiplies) stream.fill(at), early.take(at, stream, tables);
  if (p.half.early) stream.bring_nearer(p, at);
  wait_for_cluster();
  only_wait_for_predecessors();
  if (!multiplies) cp_async_wait<0>(); /* of its scales */
  meet_multiplying_warps();
  barrier_wait_cluster(at.x_here(), 0);
  if (!multiplies) return;
  first_product(p, at, stream, tables, early);
  cp_async_commit();
  second_product(p, at, stream, tables);
}

/* ptxas takes 64 registers a thread for sm_90a. With more, a block does not fit next to one of attention_block_wide.cu
 * (README.md). Nothing enforces the 64: another order of the parameters is enough for 69. */
#define DEFINE(chips, parameters, name, threads)                                                                       \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 1, feed_forward_stream)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
FEED_FORWARD_STREAM_KERNELS(DEFINE)
#endif
