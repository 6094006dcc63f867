/* feed_forward_stream.cu - silu(gate) * up and the product behind it, of one token and NVFP4 weights that come from
 * far.
 *
 * What bounds it beside the bytes are instructions a code, so that everything else is kept out of the loop: a warp has
 * the same 128 columns of all the block's tiles of gate and up, whose numbers of x stay in its registers, and a tile of
 * the second product; all scales lie in shared memory before; each lane asks by cp.async for the 16 bytes that it needs
 * itself of rows g and g + 8, so that nobody meets.
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
                   chunk_bytes = chunk_columns / 2, unit_columns = 64, x_low = FEED_FORWARD_STREAM_HIDDEN,
                   gated_low = FEED_FORWARD_STREAM_GROUPS * group_columns,
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

  __device__ __forceinline__ stream_place(const stream_parameters &p, uint32_t memory)
      : shared(memory), rank(blockIdx.x % cluster_blocks), cluster(blockIdx.x / cluster_blocks), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32), g(lane / 4), t(lane % 4) {
    const uint32_t others = p.parts - 1, dealt = p.groups - p.last_groups;
    const bool is_last = cluster == others;
    first_group = is_last ? dealt : cluster * dealt / others;
    groups = is_last ? p.last_groups : (cluster + 1) * dealt / others - first_group;
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
  uint32_t to;

  __device__ __forceinline__ code_stream(const stream_parameters &p, const stream_place &at) {
    const uint32_t row_bytes = p.hidden / 2, second_row_bytes = p.columns / 2;
    const unsigned char *first = (const unsigned char *)p.gate_up +
                                 (at.first_group * 128 + at.rank * 16) * (uint64_t)row_bytes + at.warp * chunk_bytes +
                                 at.t * 16,
                        *second = (const unsigned char *)p.down +
                                  (at.rank + at.warp * cluster_blocks) * 16 * (uint64_t)second_row_bytes +
                                  at.first_group * (group_columns / 2) + at.t * 16;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      from[i] = first + (at.g + 8 * i) * row_bytes, second_from[i] = second + (at.g + 8 * i) * second_row_bytes;
      asm("" : "+l"(from[i])); /* not to be taken apart again in each turn of the loop */
    }
    step = 128 * row_bytes;
    seconds = (at.t < 2 ? at.groups + 1 : at.groups) / 2;
    to = at.shared + p.ring + at.warp * (slot_count * slot_bytes) + at.lane * 16;
  }
  __device__ __forceinline__ uint32_t slot(uint32_t i) const { return to + i * slot_bytes; }
  __device__ __forceinline__ void ask_second(uint32_t i, uint32_t chunk) const {
    const uint32_t bytes = chunk < seconds ? 16 : 0;
    copy_early_or_not(slot(i), second_from[0] + chunk * chunk_bytes, bytes);
    copy_early_or_not(slot(i) + 512, second_from[1] + chunk * chunk_bytes, bytes);
  }
  /* Chunk `tile` of the first product, or what has the slot in the second. */
  __device__ __forceinline__ void ask(const stream_place &at, uint32_t i, uint32_t tile) const {
    if (tile < at.groups) {
      copy_early_16(slot(i), from[0] + tile * (uint64_t)step);
      copy_early_16(slot(i) + 512, from[1] + tile * (uint64_t)step);
    } else {
      ask_second(i, i);
    }
    cp_async_commit();
  }
  __device__ __forceinline__ void fill(const stream_place &at) const {
#pragma unroll 1
    for (uint32_t i = 0; i < slot_count; i++) ask(at, i, i);
  }
};

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
 * instead, which is 0 here: twice the positive values. The magnitudes of all are taken away from that by a second
 * product. */
enum : uint32_t {
  TWICE_LOW = 0x06040200u,
  TWICE_HIGH = 0x18100c08u,
  NEGATED_LOW = 0xfdfeff00u,
  NEGATED_HIGH = 0xf4f8fafcu,
  SUM_START = 0x4b400000u /* 1.5 * 2^23 and a sum below 2^22, as bits, are a number of f32 */
};
constexpr float sum_start = 12582912.0f;
static_assert(16 * 12 << number_bits < 1 << 22, "");

__device__ __forceinline__ uint32_t look_up(uint32_t low, uint32_t high, uint32_t codes) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(codes));
  return bytes;
}
__device__ __forceinline__ void multiply_bytes(uint32_t (&d)[4], const uint32_t (&a)[4], const uint32_t *b,
                                               const uint32_t (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

/* The sums of a lane's two rows in a slot with its numbers, times their scales. */
__device__ __forceinline__ void multiply_codes(uint32_t codes_at, const words &start, const uint32_t (&b)[8],
                                               const float2 &scales, const float2 &second_scales, float2 &sum) {
  const words codes = load_words(codes_at), second_codes = load_words(codes_at + 512);
#pragma unroll
  for (int block = 0; block < 2; block++) {
    uint32_t c[4] = {start.word[0], start.word[1], start.word[2], start.word[3]};
#pragma unroll
    for (int w = 2 * block; w < 2 * block + 2; w++) {
      const uint32_t code[] = {codes.word[w], second_codes.word[w]};
      uint32_t twice[4], negated[4];
#pragma unroll
      for (int row = 0; row < 2; row++) {
        const uint32_t magnitude = code[row] & 0x77777777u;
        twice[row] = look_up(TWICE_LOW, TWICE_HIGH, code[row]);
        twice[row + 2] = look_up(TWICE_LOW, TWICE_HIGH, code[row] >> 16);
        negated[row] = look_up(NEGATED_LOW, NEGATED_HIGH, magnitude);
        negated[row + 2] = look_up(NEGATED_LOW, NEGATED_HIGH, magnitude >> 16);
      }
      multiply_bytes(c, twice, b + 2 * w, c);
      multiply_bytes(c, negated, b + 2 * w, c);
    }
    const float of_row = __uint_as_float(c[0] * high_step + c[1]) - sum_start,
                of_second = __uint_as_float(c[2] * high_step + c[3]) - sum_start;
    sum.x = fmaf(of_row, block ? scales.y : scales.x, sum.x);
    sum.y = fmaf(of_second, block ? second_scales.y : second_scales.x, sum.y);
  }
}
__device__ __forceinline__ float2 scales_of(uint32_t pair, const float2 &powers) {
  const float2 two = __half22float2(half2_of_e4m3(pair));
  return {two.x * powers.x, two.y * powers.y};
}
/* Of a lane and its neighbour; lanes with odd t get row g + 8. */
__device__ __forceinline__ float sum_of_neighbours(const float2 &sum, uint32_t t) {
  const float give = t % 2 ? sum.x : sum.y, keep = t % 2 ? sum.y : sum.x;
  return keep + __shfl_xor_sync(0xffffffffu, give, 1);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Two numbers a lane, eight lanes a block: as integers times a power of two, which `factor` takes back. Lanes with an
 * even number get the high bytes of their four numbers and their neighbour's, those with an odd one the low ones. */
struct scaled_numbers {
  uint32_t bytes;
  float factor;

  __device__ __forceinline__ explicit scaled_numbers(const float2 &two) {
    uint32_t most = max(__float_as_uint(two.x) & 0x7fffffffu, __float_as_uint(two.y) & 0x7fffffffu);
#pragma unroll
    for (int d = 1; d < 8; d *= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
    const uint32_t exponent = max(most >> 23, number_bits);
    const float up = __uint_as_float((253 + number_bits - min(exponent, 254u)) << 23);
    factor = __uint_as_float(exponent == 255 ? 0x7fffffffu : (exponent + 1 - number_bits) << 23);
    uint32_t high[2], low[2];
    split(two.x * up, high[0], low[0]), split(two.y * up, high[1], low[1]);
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
    send_word(there + FEED_FORWARD_STREAM_POWERS + pair / 8 * 4, __float_as_uint(scaled.factor), barrier);
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
    if (at.lane % 8 == 0) store_number(at.shared + FEED_FORWARD_STREAM_SECOND_POWERS + pair / 8 * 4, scaled.factor);
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

__device__ __forceinline__ void first_product(const stream_parameters &p, const stream_place &at,
                                              const code_stream &stream, const words &start) {
  uint32_t b[8];
  load_numbers(at.shared + (at.g / 2 == at.t
                                ? FEED_FORWARD_STREAM_X + at.g % 2 * x_low + at.warp * chunk_columns + at.t * 32
                                : FEED_FORWARD_STREAM_ZEROS),
               b);
  const float2 powers = load_two(at.shared + FEED_FORWARD_STREAM_POWERS + at.warp * 32 + at.t * 8);
  uint32_t scales_at[2], to = at.shared + p.sums + (at.warp * 32 + at.sum_row() * 2 + at.sum_half()) * 4;
#pragma unroll
  for (int i = 0; i < 2; i++)
    scales_at[i] = at.shared + p.scales + (at.g + 8 * i) * scale_pitch + at.warp * 8 + at.t * 2;
#pragma unroll 1
  for (uint32_t first = 0; first < at.groups; first += slot_count) {
#pragma unroll
    for (uint32_t i = 0; i < slot_count; i++) {
      if (first + i >= at.groups) break;
      const uint32_t skip = i * 16 * scale_pitch;
      const float2 scales = scales_of(load_half_word(scales_at[0] + skip), powers),
                   second_scales = scales_of(load_half_word(scales_at[1] + skip), powers);
      cp_async_wait<slot_count - 1>();
      float2 sum = {};
      multiply_codes(stream.slot(i), start, b, scales, second_scales, sum);
      stream.ask(at, i, first + i + slot_count);
      store_number(to + i * block_warps * 128, sum_of_neighbours(sum, at.t));
    }
    scales_at[0] += slot_count * 16 * scale_pitch, scales_at[1] += slot_count * 16 * scale_pitch;
    to += slot_count * block_warps * 128;
  }
}

__device__ __forceinline__ void second_product(const stream_parameters &p, const stream_place &at,
                                               const code_stream &stream, const words &start) {
  const bool mine = at.g / 2 == at.t;
  uint32_t numbers =
      at.shared + (mine ? FEED_FORWARD_STREAM_GATED + at.g % 2 * gated_low + at.t * 32 : FEED_FORWARD_STREAM_ZEROS);
  const uint32_t numbers_step = mine ? chunk_columns : 0;
  uint32_t powers_at = at.shared + FEED_FORWARD_STREAM_SECOND_POWERS + at.t * 8;
  uint32_t scales_at[2];
#pragma unroll
  for (int i = 0; i < 2; i++)
    scales_at[i] = at.shared + p.second_scales + (at.warp * 16 + at.g + 8 * i) * at.groups * 4 + at.t * 2;
  const uint32_t chunks = (at.groups + 1) / 2;
  float2 sum = {};
#pragma unroll 1
  for (uint32_t first = 0; first < chunks; first += slot_count) {
#pragma unroll
    for (uint32_t i = 0; i < slot_count; i++) {
      const uint32_t chunk = first + i;
      if (chunk >= chunks) break;
      const float2 powers = load_two(powers_at);
      const uint32_t pair = chunk < stream.seconds ? load_half_word(scales_at[0]) : 0,
                     second_pair = chunk < stream.seconds ? load_half_word(scales_at[1]) : 0;
      uint32_t b[8];
      load_numbers(numbers, b);
      cp_async_wait<slot_count - 1>();
      multiply_codes(stream.slot(i), start, b, scales_of(pair, powers), scales_of(second_pair, powers), sum);
      stream.ask_second(i, chunk + slot_count);
      cp_async_commit();
      numbers += numbers_step, powers_at += 32, scales_at[0] += 8, scales_at[1] += 8;
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
    barrier_expect(at.barrier(0), p.hidden * 2 + (p.hidden / 16 + p.hidden / unit_columns) * 4);
    barrier_expect(at.barrier(1), at.groups * (group_columns * 4));
  }
  __syncwarp();
  arrive_at_cluster();
  if (threadIdx.x < 8) store_word(at.shared + FEED_FORWARD_STREAM_ZEROS + threadIdx.x * 4, 0);
  if (threadIdx.x < 4)
    store_word(at.shared + FEED_FORWARD_STREAM_SUM_START + threadIdx.x * 4, threadIdx.x % 2 ? SUM_START : 0);
  if (!p.early) only_wait_for_predecessors();
  const code_stream stream(p, at);
  gathered<V> numbers(at);
  const bool gathers = numbers.any(p), multiplies = at.warp < p.hidden / chunk_columns;
  /* What the predecessors leave is not to stand behind weights in the queues to memory: warps that gather it ask for
   * theirs later, and blocks that start late, when it is there already, lose no time. */
  if (at.warp < gathering_warps) {
    if (gathers) numbers.ask_norm(p, at);
  } else {
    ask_scales(p, at);
    ask_second_scales(p, at);
  }
  cp_async_commit();
  if (at.warp >= gathering_warps && multiplies) stream.fill(at);
  only_wait_for_predecessors();
  if (gathers) numbers.load(p);
  if (at.warp < gathering_warps && multiplies) stream.fill(at);
  wait_for_cluster();
  if (multiplies)
    cp_async_wait<slot_count>();
  else
    cp_async_wait<0>(); /* of its scales */
  if (gathers) numbers.send(p, at);
  __syncthreads();
  barrier_wait_cluster(at.barrier(0), 0);
  const words start = load_words(at.shared + FEED_FORWARD_STREAM_SUM_START);
  const float factor = norm_factor(p, at);
  if (multiplies) first_product(p, at, stream, start);
  __syncthreads();
  send_gated(p, at, factor);
  barrier_wait_cluster(at.barrier(1), 0);
  convert_gated(at);
  cp_async_wait<0>();
  __syncthreads();
  if (multiplies) second_product(p, at, stream, start);
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
