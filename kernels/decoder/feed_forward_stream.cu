/* feed_forward_stream.cu - silu(gate) * up and the product behind it, of one token and NVFP4 weights that come from
 * far.
 *
 * What bounds it beside the bytes are instructions a code, so that everything else is kept out of the loop: a warp has
 * the same 128 columns of all the block's tiles of gate and up, whose numbers of x stay in its registers, and a tile of
 * the second product; all scales lie in shared memory before; each lane asks by cp.async for the 16 bytes that it needs
 * itself of rows g and g + 8, so that nobody meets. Before x comes the memory would have nothing to do: what finds room
 * is in shared memory then, a tile even decoded in registers, and the rest in the L2 cache.
 *
 * The products are of integers: twice a code's value is one, and a number of x is a power of two of its block of 16
 * times high * high_step + low, two signed bytes. A lane's 16 bytes of a row are two blocks. The eight columns of
 * operand B keep the lanes of a quad apart: column 2 t has the high bytes of lane t's numbers, column 2 t + 1 the low
 * ones, and both are zero where the other lanes' are. So each lane finds its own blocks' sums in its own registers, and
 * multiplies the scale to two sums instead of to 16 codes.
 */
#include "decoder_shared.cuh"
#include "feed_forward_stream.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

typedef feed_forward_stream_parameters stream_parameters;

constexpr uint32_t cluster_blocks = FEED_FORWARD_STREAM_CLUSTER, chunk_columns = FEED_FORWARD_STREAM_CHUNK,
                   group_columns = FEED_FORWARD_STREAM_GROUP, block_warps = FEED_FORWARD_STREAM_WARPS,
                   slot_bytes = FEED_FORWARD_STREAM_SLOT, slot_count = FEED_FORWARD_STREAM_SLOTS,
                   second_slots = slot_count + 1, chunk_bytes = chunk_columns / 2, unit_columns = 64,
                   x_low = FEED_FORWARD_STREAM_HIDDEN, gated_low = FEED_FORWARD_STREAM_GROUPS * group_columns,
                   scale_pitch = FEED_FORWARD_STREAM_HIDDEN / 16 + FEED_FORWARD_STREAM_SCALE_PADDING,
                   gathering_warps = FEED_FORWARD_STREAM_HIDDEN / (cluster_blocks * 64);
/* Numbers are integers up to 2^14 times a power of two. */
constexpr uint32_t number_bits = 14;
constexpr int high_step = 144; /* no power of two, whose product would be one more instruction of the pipe of logic */
/* What takes back that codes come twice. */
constexpr float codes_factor = 0.5f;

/* ---- A block's place --------------------------------------------------------------------------------------------- */

struct stream_place {
  uint32_t shared, rank, cluster, lane, warp, g, t;
  uint32_t first_group, groups; /* of the cluster */
  bool starts_late;             /* see last_groups in feed_forward_stream_select.c */

  __device__ __forceinline__ stream_place(const stream_parameters &p, uint32_t memory)
      : shared(memory), rank(blockIdx.x % cluster_blocks), cluster(blockIdx.x / cluster_blocks), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32), g(lane / 4), t(lane % 4) {
    const uint32_t others = p.parts - 1, dealt = p.groups - p.last_groups;
    starts_late = cluster == others;
    first_group = starts_late ? dealt : cluster * dealt / others;
    groups = starts_late ? p.last_groups : (cluster + 1) * dealt / others - first_group;
  }
  /* The row of a tile whose sum a lane gets, and the half of the columns. */
  __device__ __forceinline__ uint32_t sum_row() const { return g + t % 2 * 8; }
  __device__ __forceinline__ uint32_t sum_half() const { return t / 2; }
  __device__ __forceinline__ uint32_t barrier(uint32_t which) const { return shared + 8 * which; }
};

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* What a warp asks for: its columns of the first product's tiles, then its tile of the second, chunk by chunk. */
struct code_stream {
  const unsigned char *from[2], *second_from[2]; /* of a lane's two rows */
  uint32_t step, seconds;                        /* seconds: chunks of the second product of which it has columns */
  uint32_t to, last_to;

  __device__ __forceinline__ code_stream(const stream_parameters &p, const stream_place &at) {
    const uint32_t row_bytes = p.hidden / 2, second_row_bytes = p.columns / 2;
    const unsigned char *first = (const unsigned char *)p.gate_up +
                                 (at.first_group * 128 + at.rank * 16) * (uint64_t)row_bytes + at.warp * chunk_bytes +
                                 at.t * 16,
                        *second = (const unsigned char *)p.down +
                                  (at.rank + at.warp * cluster_blocks) * 16 * (uint64_t)second_row_bytes +
                                  at.first_group * (group_columns / 2) + at.t * 16;
#pragma unroll
    for (int i = 0; i < 2; i++)
      from[i] = first + (at.g + 8 * i) * row_bytes, second_from[i] = second + (at.g + 8 * i) * second_row_bytes;
    step = 128 * row_bytes;
    seconds = (at.t < 2 ? at.groups + 1 : at.groups) / 2;
    to = at.shared + p.ring + at.warp * (slot_count * slot_bytes) + at.lane * 16;
    last_to = at.shared + p.scales + at.warp * slot_bytes + at.lane * 16;
  }
  __device__ __forceinline__ uint32_t slot(uint32_t i) const { return to + i * slot_bytes; }
  /* In the second product there is one more, where the first one's scales were: of nine groups, below which nobody asks
   * for it, they take more. */
  static_assert((2 * slot_count + 1) * 16 * scale_pitch >= block_warps * slot_bytes, "");
  __device__ __forceinline__ uint32_t second_slot(uint32_t i) const { return i < slot_count ? slot(i) : last_to; }
  __device__ __forceinline__ void ask_second(uint32_t i, uint32_t chunk) const {
    if (chunk >= seconds) return;
    copy_early_16(second_slot(i), second_from[0] + chunk * chunk_bytes);
    copy_early_16(second_slot(i) + 512, second_from[1] + chunk * chunk_bytes);
  }
  /* The next chunk of the first product, `tile`, or what has the slot in the second. */
  __device__ __forceinline__ void ask(const stream_place &at, uint32_t i, uint32_t tile) {
    if (tile < at.groups) {
      copy_early_16(slot(i), from[0]), copy_early_16(slot(i) + 512, from[1]);
      from[0] += step, from[1] += step;
    } else {
      ask_second(i, i);
    }
    cp_async_commit();
  }
  __device__ __forceinline__ void fill(const stream_place &at) {
#pragma unroll 1
    for (uint32_t i = 0; i < slot_count; i++) ask(at, i, i);
  }
  /* What has no slot yet comes to the L2 cache while the predecessor leaves the memory alone; behind what has. A tile
   * of the first product lies in one piece. */
  __device__ __forceinline__ void bring_nearer(const stream_parameters &p, const stream_place &at) const {
    cp_async_wait<1>();
    const uint32_t tile = at.warp - gathering_warps + slot_count + 1, row_bytes = p.hidden / 2,
                   second_row_bytes = p.columns / 2;
    if (at.lane == 0 && tile < at.groups)
      prefetch_early((const unsigned char *)p.gate_up +
                         (at.first_group * 128 + at.rank * 16 + tile * 128) * (uint64_t)row_bytes,
                     16 * row_bytes);
    for (uint32_t row = threadIdx.x - 32 * gathering_warps; row < p.hidden / cluster_blocks;
         row += 32 * (block_warps - gathering_warps))
      prefetch_early((const unsigned char *)p.down +
                         ((at.rank + row / 16 * cluster_blocks) * 16 + row % 16) * (uint64_t)second_row_bytes +
                         at.first_group * (group_columns / 2),
                     at.groups * (group_columns / 2));
  }
};

/* A block starts when the last kernel but one ends, and the one between now loads what that has left: not beside this
 * one's weights, of which it would be 0.2 us later. */
__device__ __forceinline__ void give_way() { asm volatile("nanosleep.u32 1000;"); }

/* The scales of the block's rows of the first product, 16 bytes at once. The warps that gather x have no time for it.
 */
__device__ __forceinline__ void ask_scales(const stream_parameters &p, const stream_place &at) {
  const uint32_t pieces = p.hidden / 256, piece = threadIdx.x % 8, rows = (block_warps - gathering_warps) * 4;
  if (piece < pieces)
    for (uint32_t row = threadIdx.x / 8 - gathering_warps * 4; row < at.groups * 16; row += rows)
      copy_early_16(at.shared + p.scales + row * scale_pitch + piece * 16,
                    (const unsigned char *)p.gate_up_scales +
                        (at.first_group * 128 + (at.rank + row / 16 * cluster_blocks) * 16 + row % 16) *
                            (uint64_t)(p.hidden / 16) +
                        piece * 16);
}

/* Those of the second product: four of a row for each group. */
__device__ __forceinline__ void ask_second_scales(const stream_parameters &p, const stream_place &at) {
  const uint32_t rows = (block_warps - gathering_warps) * 4;
  for (uint32_t group = threadIdx.x % 8; group < at.groups; group += 8)
#pragma unroll 2
    for (uint32_t row = threadIdx.x / 8 - gathering_warps * 4; row < p.hidden / cluster_blocks; row += rows)
      copy_early<4>(at.shared + p.second_scales + (row * at.groups + group) * 4,
                    (const unsigned char *)p.down_scales +
                        ((at.rank + row / 16 * cluster_blocks) * 16 + row % 16) * (uint64_t)(p.columns / 16) +
                        (at.first_group + group) * 4);
}

/* ---- Products of integers ---------------------------------------------------------------------------------------- */

/* prmt looks four codes up in a table of eight bytes, and where a code's sign is set gives the sign of the byte
 * instead. So a look with the codes gives the positive ones' bytes, and zeros, and one with their signs turned the
 * negative ones' bytes, and -1 where a code is positive: those have one more in their own table. Both are multiplied by
 * the same numbers into the same sums. */
enum : uint32_t {
  POSITIVE_LOW = 0x04030200u,
  POSITIVE_HIGH = 0x0d090705u,
  NEGATIVE_LOW = 0xfdfeff00u,
  NEGATIVE_HIGH = 0xf4f8fafcu
};

__device__ __forceinline__ uint32_t look_up(uint32_t low, uint32_t high, uint32_t codes) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(codes));
  return bytes;
}
/* By the pipe of products, since that of logic is what a tile waits for. */
__device__ __forceinline__ uint32_t upper_half(uint32_t word) {
  uint32_t half;
  asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(half) : "r"(word), "r"(0x0100), "r"(0));
  return half;
}
__device__ __forceinline__ void multiply_bytes(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t *b) {
  const int32_t c[4] = {d[0], d[1], d[2], d[3]};
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

/* The low words of the tables. From shared memory, so that they have registers: those that the compiler knows, or knows
 * to be alike in all lanes, it would move there anew for each look. */
struct code_tables {
  uint32_t positive, negative;

  __device__ __forceinline__ explicit code_tables(const stream_place &at) {
    const uint32_t here = at.shared + FEED_FORWARD_STREAM_TABLES + at.warp * 8;
    if (at.lane < 2) store_word(here + at.lane * 4, at.lane ? NEGATIVE_LOW : POSITIVE_LOW);
    __syncwarp();
    const uint2 two = load_two_words(here);
    positive = two.x, negative = two.y;
  }
  __device__ __forceinline__ uint32_t positives(uint32_t codes) const {
    return look_up(positive, POSITIVE_HIGH, codes);
  }
  __device__ __forceinline__ uint32_t negatives(uint32_t turned) const {
    return look_up(negative, NEGATIVE_HIGH, turned);
  }
};

/* A lane's codes of two rows in a slot; and as bytes, operands A of each word's products. */
struct slot_codes {
  words row, second_row;
  __device__ __forceinline__ explicit slot_codes(uint32_t slot)
      : row(load_words(slot)), second_row(load_words(slot + 512)) {}
};
struct code_bytes {
  uint32_t positive[4][4], negative[4][4];

  __device__ __forceinline__ code_bytes(const slot_codes &codes, const code_tables &tables) {
#pragma unroll
    for (int w = 0; w < 4; w++)
#pragma unroll
      for (int row = 0; row < 2; row++) {
        const uint32_t code = row ? codes.second_row.word[w] : codes.row.word[w], turned = code ^ 0x88888888u;
        positive[w][row] = tables.positives(code), positive[w][row + 2] = tables.positives(upper_half(code));
        negative[w][row] = tables.negatives(turned), negative[w][row + 2] = tables.negatives(upper_half(turned));
      }
  }
  __device__ __forceinline__ void multiply(int32_t (&sums)[4], int w, const uint32_t *b) const {
    multiply_bytes(sums, positive[w], b);
    multiply_bytes(sums, negative[w], b);
  }
};
/* The same added byte by byte: half of the registers, and four instructions more for eight codes. */
struct added_bytes {
  uint32_t of_word[4][4];

  __device__ __forceinline__ void take(const code_bytes &bytes) {
#pragma unroll
    for (int w = 0; w < 4; w++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        of_word[w][i] =
            (bytes.positive[w][i] + (bytes.negative[w][i] & 0x7f7f7f7fu)) ^ (bytes.negative[w][i] & 0x80808080u);
  }
  __device__ __forceinline__ void multiply(int32_t (&sums)[4], int w, const uint32_t *b) const {
    multiply_bytes(sums, of_word[w], b);
  }
};

/* The powers of two of a lane's two blocks. */
struct block_powers {
  float power[2];
  __device__ __forceinline__ explicit block_powers(uint32_t from) {
    const float2 two = load_two(from);
    power[0] = two.x, power[1] = two.y;
  }
};

/* The sums of a lane's two rows with its numbers, times their scales: integers below 2^22, which f32 has. */
template <typename Bytes>
__device__ __forceinline__ void multiply_codes(const Bytes &bytes, const block_powers &blocks, const uint32_t (&b)[8],
                                               uint32_t scales, uint32_t second_scales, float2 &sum) {
  const float2 scale = __half22float2(half2_of_e4m3(scales)),
               second_scale = __half22float2(half2_of_e4m3(second_scales));
#pragma unroll
  for (int block = 0; block < 2; block++) {
    int32_t sums[4] = {};
#pragma unroll
    for (int w = 2 * block; w < 2 * block + 2; w++) bytes.multiply(sums, w, b + 2 * w);
    const float of_row = sums[0] * high_step + sums[1], of_second = sums[2] * high_step + sums[3];
    sum.x = fmaf(of_row, (block ? scale.y : scale.x) * blocks.power[block], sum.x);
    sum.y = fmaf(of_second, (block ? second_scale.y : second_scale.x) * blocks.power[block], sum.y);
  }
}
/* Of a lane and its neighbour; lanes with odd t get row g + 8. */
__device__ __forceinline__ float sum_of_neighbours(const float2 &sum, uint32_t t) {
  const float give = t % 2 ? sum.x : sum.y, keep = t % 2 ? sum.y : sum.x;
  return keep + __shfl_xor_sync(0xffffffffu, give, 1);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Two numbers a lane, eight lanes a block: as integers times the block's power of two. Lanes with an even number get
 * the high bytes of their four numbers and their neighbour's, those with an odd one the low ones. */
struct scaled_numbers {
  uint32_t bytes;
  float power;

  __device__ __forceinline__ explicit scaled_numbers(const float2 &two) {
    uint32_t most = max(__float_as_uint(two.x) & 0x7fffffffu, __float_as_uint(two.y) & 0x7fffffffu);
#pragma unroll
    for (int d = 1; d < 8; d *= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
    const uint32_t exponent = max(most >> 23, number_bits);
    const float up = __uint_as_float((253 + number_bits - min(exponent, 254u)) << 23);
    uint32_t high[2], low[2];
    split(two.x * up, high[0], low[0]), split(two.y * up, high[1], low[1]);
    power = __uint_as_float(exponent == 255 ? 0x7fffffffu : (exponent + 1 - number_bits) << 23);
    const bool odd = threadIdx.x % 2;
    const uint32_t highs = look_up(high[0], high[1], 0x0040), lows = look_up(low[0], low[1], 0x0040),
                   other = __shfl_xor_sync(0xffffffffu, odd ? highs : lows, 1);
    bytes = odd ? look_up(other, lows, 0x5410) : look_up(highs, other, 0x5410);
  }
  /* Of a pair: its four numbers' place. */
  static __device__ __forceinline__ uint32_t place(uint32_t pair, uint32_t low) {
    return pair / 2 * 4 + (pair % 2 ? low : 0);
  }

private:
  static __device__ __forceinline__ void split(float number, uint32_t &high, uint32_t &low) {
    const float whole = rintf(number), step = high_step, highest = rintf(whole * (1 / step));
    high = (uint32_t)__float2int_rn(highest), low = (uint32_t)__float2int_rn(fmaf(-step, highest, whole));
  }
};

/* What a lane gathers: two numbers of x, and what is to be added. */
template <rondo_dtype V> struct gathered {
  uint32_t unit, pair, x;
  float2 part[FEED_FORWARD_STREAM_PARTS];

  __device__ __forceinline__ explicit gathered(const stream_place &at)
      : unit(at.warp * cluster_blocks + at.rank), pair(unit * 32 + at.lane) {}
  __device__ __forceinline__ bool any(const stream_parameters &p) const { return unit < p.hidden / unit_columns; }
  __device__ __forceinline__ uint32_t norm_at(const stream_place &at) const {
    return at.shared + FEED_FORWARD_STREAM_NORM + threadIdx.x * 4;
  }
  __device__ __forceinline__ void ask_norm(const stream_parameters &p, const stream_place &at) const {
    if (p.norm) copy_early<4>(norm_at(at), (const unsigned char *)p.norm + pair * 4);
  }
  __device__ __forceinline__ void load(const stream_parameters &p) {
    x = *((const uint32_t *)p.x + pair);
#pragma unroll
    for (uint32_t j = 0; j < FEED_FORWARD_STREAM_PARTS; j++) {
      part[j] = float2{};
      if (j < p.part_count) part[j] = *((const float2 *)p.x_parts + (j * (p.hidden / 2) + pair));
    }
  }
  /* x and what is to be added, times the norm, to all blocks of the cluster, which share the work. */
  __device__ __forceinline__ void send(const stream_parameters &p, const stream_place &at) const {
    float2 two = f32_of_pair<V>(x);
#pragma unroll
    for (uint32_t j = 0; j < FEED_FORWARD_STREAM_PARTS; j++) two.x += part[j].x, two.y += part[j].y;
    const uint32_t rounded = pack_two<element<V>>(two.x, two.y);
    if (at.cluster == 0) *((uint32_t *)p.out + pair) = rounded;
    two = f32_of_pair<V>(rounded);
    float square = two.x * two.x + two.y * two.y;
    if (p.norm) {
      const float2 by = f32_of_pair<V>(load_word(norm_at(at)));
      two.x *= by.x, two.y *= by.y;
    }
    const scaled_numbers scaled(two);
    const uint32_t to = at.shared + FEED_FORWARD_STREAM_X + scaled.place(pair, x_low);
#pragma unroll
    for (uint32_t block = 0; block < cluster_blocks; block++)
      send_word(address_in_block(to, block), scaled.bytes, address_in_block(at.barrier(0), block));
    const uint32_t block = at.lane % 8, there = address_in_block(at.shared, block),
                   barrier = address_in_block(at.barrier(0), block);
    send_word(there + FEED_FORWARD_STREAM_BLOCKS + pair / 8 * 4, __float_as_uint(scaled.power), barrier);
#pragma unroll
    for (int d = 16; d; d /= 2) square += __shfl_xor_sync(0xffffffffu, square, d);
    if (at.lane < cluster_blocks)
      send_word(there + FEED_FORWARD_STREAM_SQUARES + unit * 4, __float_as_uint(square), barrier);
  }
};

__device__ __forceinline__ float norm_factor(const stream_parameters &p, const stream_place &at) {
  if (p.epsilon == 0.0f) return p.scale * codes_factor;
  float square = at.lane < p.hidden / unit_columns
                     ? __uint_as_float(load_word(at.shared + FEED_FORWARD_STREAM_SQUARES + at.lane * 4))
                     : 0.0f;
#pragma unroll
  for (int d = 16; d; d /= 2) square += __shfl_xor_sync(0xffffffffu, square, d);
  return rsqrtf(square * p.inverse_hidden + p.epsilon) * (p.scale * codes_factor);
}

/* silu(gate) * up to all blocks: a warp has a tile, a lane one of its columns and a quarter of the cuts. */
__device__ __forceinline__ void send_gated(const stream_parameters &p, const stream_place &at, float factor) {
  const uint32_t cuts = p.hidden / chunk_columns, quarter = at.lane / 8, column = at.lane % 8;
  for (uint32_t tile = at.warp; tile < at.groups; tile += block_warps) {
    float2 sum = {};
#pragma unroll
    for (uint32_t i = 0; i < block_warps; i += 4)
      if (i + quarter < cuts) {
        const words of_cut =
            load_words(at.shared + p.sums + ((tile * block_warps + i + quarter) * 32 + 4 * column) * 4);
        sum.x += __uint_as_float(of_cut.word[0]) + __uint_as_float(of_cut.word[1]);
        sum.y += __uint_as_float(of_cut.word[2]) + __uint_as_float(of_cut.word[3]);
      }
#pragma unroll
    for (int d = 8; d < 32; d *= 2) {
      sum.x += __shfl_xor_sync(0xffffffffu, sum.x, d);
      sum.y += __shfl_xor_sync(0xffffffffu, sum.y, d);
    }
    const float gate = sum.x * factor;
    const float gated = gate * reciprocal(1.0f + exp2_approximate(gate * -1.44269504f)) * (sum.y * factor);
    const uint32_t to = at.shared + FEED_FORWARD_STREAM_RECEIVED + ((at.rank + tile * cluster_blocks) * 8 + column) * 4;
#pragma unroll
    for (uint32_t block = quarter; block < cluster_blocks; block += 4)
      send_word(address_in_block(to, block), __float_as_uint(gated), address_in_block(at.barrier(1), block));
  }
}

/* What has been received, as the second product's numbers; zeros behind. */
__device__ __forceinline__ void convert_gated(const stream_place &at) {
  for (uint32_t pair = threadIdx.x; pair < (at.groups + 1) / 2 * (chunk_columns / 2); pair += 32 * block_warps) {
    float2 two = {};
    if (pair < at.groups * (group_columns / 2)) two = load_two(at.shared + FEED_FORWARD_STREAM_RECEIVED + pair * 8);
    const scaled_numbers scaled(two);
    store_word(at.shared + FEED_FORWARD_STREAM_GATED + scaled.place(pair, gated_low), scaled.bytes);
    if (at.lane % 8 == 0) store_number(at.shared + FEED_FORWARD_STREAM_SECOND_BLOCKS + pair / 8 * 4, scaled.power);
  }
}

/* ---- The products ------------------------------------------------------------------------------------------------ */

/* A lane's numbers of a chunk, as operand B. */
__device__ __forceinline__ void load_numbers(uint32_t from, uint32_t (&b)[8]) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const words four = load_words(from + i * 16);
#pragma unroll
    for (int j = 0; j < 4; j++) b[4 * i + j] = four.word[j];
  }
}

/* A warp's first tile, whose codes are bytes before x has come, and whose slot has the next. */
struct early_tile {
  added_bytes bytes;

  __device__ __forceinline__ void take(const stream_place &at, code_stream &stream, const code_tables &tables) {
    cp_async_wait<slot_count - 1>();
    bytes.take(code_bytes(slot_codes(stream.slot(0)), tables));
    stream.ask(at, 0, slot_count);
  }
};

/* Of one warp: where the scales of its tiles lie, and their sums. */
struct first_tiles {
  uint32_t scales, to, b[8];
  block_powers blocks;

  __device__ __forceinline__ first_tiles(const stream_parameters &p, const stream_place &at)
      : blocks(at.shared + FEED_FORWARD_STREAM_BLOCKS + at.warp * 32 + at.t * 8) {
    load_numbers(at.shared + (at.g / 2 == at.t
                                  ? FEED_FORWARD_STREAM_X + at.g % 2 * x_low + at.warp * chunk_columns + at.t * 32
                                  : FEED_FORWARD_STREAM_ZEROS),
                 b);
    scales = at.shared + p.scales + at.g * scale_pitch + at.warp * 8 + at.t * 2;
    to = at.shared + p.sums + (at.warp * 32 + at.sum_row() * 2 + at.sum_half()) * 4;
  }
  template <typename Bytes>
  __device__ __forceinline__ void multiply(const stream_place &at, const Bytes &bytes, uint32_t tile) const {
    float2 sum = {};
    const uint32_t from = scales + tile * (16 * scale_pitch);
    multiply_codes(bytes, blocks, b, load_half_word(from), load_half_word(from + 8 * scale_pitch), sum);
    store_number(to + tile * (block_warps * 128), sum_of_neighbours(sum, at.t));
  }
  __device__ __forceinline__ void go_on(uint32_t tiles) {
    scales += tiles * (16 * scale_pitch), to += tiles * (block_warps * 128);
  }
};

__device__ __forceinline__ void first_product(const stream_parameters &p, const stream_place &at, code_stream &stream,
                                              const code_tables &tables, const early_tile &early) {
  first_tiles tiles(p, at);
  tiles.multiply(at, early.bytes, 0);
  tiles.go_on(1);
#pragma unroll 1
  for (uint32_t first = 1; first < at.groups; first += slot_count) {
#pragma unroll
    for (uint32_t i = 0; i < slot_count; i++) {
      if (first + i >= at.groups) break;
      cp_async_wait<slot_count - 1>();
      const code_bytes bytes(slot_codes(stream.slot((1 + i) % slot_count)), tables);
      stream.ask(at, (1 + i) % slot_count, first + i + slot_count);
      tiles.multiply(at, bytes, i);
    }
    tiles.go_on(slot_count);
  }
}

__device__ __forceinline__ void second_product(const stream_parameters &p, const stream_place &at,
                                               const code_stream &stream, const code_tables &tables) {
  const bool mine = at.g / 2 == at.t;
  uint32_t numbers =
      at.shared + (mine ? FEED_FORWARD_STREAM_GATED + at.g % 2 * gated_low + at.t * 32 : FEED_FORWARD_STREAM_ZEROS);
  const uint32_t numbers_step = mine ? chunk_columns : 0;
  uint32_t blocks_at = at.shared + FEED_FORWARD_STREAM_SECOND_BLOCKS + at.t * 8;
  uint32_t scales_at[2];
#pragma unroll
  for (int i = 0; i < 2; i++)
    scales_at[i] = at.shared + p.second_scales + (at.warp * 16 + at.g + 8 * i) * at.groups * 4 + at.t * 2;
  const uint32_t chunks = (at.groups + 1) / 2;
  float2 sum = {};
#pragma unroll 1
  for (uint32_t first = 0; first < chunks; first += second_slots) {
#pragma unroll
    for (uint32_t i = 0; i < second_slots; i++) {
      const uint32_t chunk = first + i;
      if (chunk >= chunks) break;
      const block_powers blocks(blocks_at);
      const uint32_t pair = chunk < stream.seconds ? load_half_word(scales_at[0]) : 0,
                     second_pair = chunk < stream.seconds ? load_half_word(scales_at[1]) : 0;
      uint32_t b[8];
      load_numbers(numbers, b);
      cp_async_wait<second_slots - 1>();
      const code_bytes bytes(slot_codes(stream.second_slot(i)), tables);
      stream.ask_second(i, chunk + second_slots);
      cp_async_commit();
      multiply_codes(bytes, blocks, b, pair, second_pair, sum);
      numbers += numbers_step, blocks_at += 32, scales_at[0] += 8, scales_at[1] += 8;
    }
  }
  float of_row = sum_of_neighbours(sum, at.t);
  of_row += __shfl_xor_sync(0xffffffffu, of_row, 2);
  if (at.sum_half() == 0)
    p.out_parts[at.cluster * p.hidden + (at.rank + at.warp * cluster_blocks) * 16 + at.sum_row()] =
        of_row * (p.scale * codes_factor);
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

template <rondo_dtype V> __device__ __forceinline__ void feed_forward_stream(const stream_parameters &p) {
  extern __shared__ __align__(128) unsigned char feed_forward_stream_memory[];
  const stream_place at(p, shared_address(feed_forward_stream_memory));
  if (threadIdx.x == 0) {
    barrier_init(at.barrier(0), 1);
    barrier_init(at.barrier(1), 1);
    barriers_are_initialised();
    barrier_expect(at.barrier(0), p.hidden * 2 + p.hidden / 16 * 4 + p.hidden / unit_columns * 4);
    barrier_expect(at.barrier(1), at.groups * (group_columns * 4));
  }
  __syncwarp();
  arrive_at_cluster();
  if (threadIdx.x < 8) store_word(at.shared + FEED_FORWARD_STREAM_ZEROS + threadIdx.x * 4, 0);
  if (!p.early) only_wait_for_predecessors();
  code_stream stream(p, at);
  const code_tables tables(at);
  gathered<V> numbers(at);
  const bool gathers = numbers.any(p), multiplies = at.warp < p.hidden / chunk_columns;
  early_tile early;
  if (at.warp >= gathering_warps)
    ask_scales(p, at), ask_second_scales(p, at);
  else if (gathers)
    numbers.ask_norm(p, at);
  cp_async_commit();
  /* What the predecessors leave is not to stand behind weights in the queues to memory. In a block that starts late it
   * is there already: the warps that gather it ask for their weights behind it. */
  const bool fills = multiplies && (at.warp >= gathering_warps || !at.starts_late);
  if (p.early && !at.starts_late) give_way();
  if (fills) stream.fill(at);
  if (at.warp >= gathering_warps) {
    if (multiplies) early.take(at, stream, tables);
    if (p.early) stream.bring_nearer(p, at);
  }
  only_wait_for_predecessors();
  if (gathers) {
    numbers.load(p);
    if (!fills) stream.fill(at);
    wait_for_cluster();
    cp_async_wait<slot_count>(); /* of its norm */
    numbers.send(p, at);
    early.take(at, stream, tables);
  } else {
    wait_for_cluster();
    if (at.warp < gathering_warps && multiplies) {
      if (!fills) stream.fill(at);
      early.take(at, stream, tables);
    }
    if (!multiplies) cp_async_wait<0>(); /* of its scales */
  }
  __syncthreads();
  barrier_wait_cluster(at.barrier(0), 0);
  const float factor = norm_factor(p, at);
  if (multiplies) first_product(p, at, stream, tables, early);
  __syncthreads();
  if (multiplies) stream.ask_second(slot_count, slot_count);
  cp_async_commit();
  send_gated(p, at, factor);
  barrier_wait_cluster(at.barrier(1), 0);
  convert_gated(at);
  cp_async_wait<0>();
  __syncthreads();
  if (multiplies) second_product(p, at, stream, tables);
}

#define DEFINE(chips, parameters, name, threads, type)                                                                 \
  extern "C" __global__ void __cluster_dims__(FEED_FORWARD_STREAM_CLUSTER, 1, 1) __launch_bounds__(threads, 1)         \
      name(const __grid_constant__ parameters p) {                                                                     \
    let_successors_start();                                                                                            \
    feed_forward_stream<type>(p);                                                                                      \
    publish(p.done);                                                                                                   \
  }
FEED_FORWARD_STREAM_KERNELS(DEFINE)
#endif
