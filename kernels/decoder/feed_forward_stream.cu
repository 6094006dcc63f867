/* feed_forward_stream.cu - silu(gate) * up and the product behind it, of one token and NVFP4 weights that come from
 * far.
 *
 * What bounds it beside the bytes are instructions a code, so that everything else is kept out of the loop: a warp has
 * the same 128 columns of all the block's tiles of gate and up, whose numbers of x stay in its registers, and a tile of
 * the second product; all scales lie in shared memory before; each lane asks by cp.async for the 16 bytes that it needs
 * itself of rows g and g + 8, so that nobody meets.
 *
 * A lane's 16 bytes of a row are two blocks. The eight columns of operand B keep the lanes of a quad apart: column 2 t
 * has lane t's numbers of x, column 2 t + 1 what rounding left of them, and both are zero where the other lanes' are.
 * So each lane finds its own blocks' sums in its own registers, and multiplies the scale to two sums instead of to 16
 * codes. The numbers are f16 times a power of two of each block of 16, which the scale takes back.
 */
#include "decoder_shared.cuh"
#include "feed_forward_stream.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

typedef feed_forward_stream_parameters stream_parameters;

constexpr uint32_t cluster_blocks = FEED_FORWARD_STREAM_CLUSTER, chunk_columns = FEED_FORWARD_STREAM_CHUNK,
                   group_columns = FEED_FORWARD_STREAM_GROUP, block_warps = FEED_FORWARD_STREAM_WARPS,
                   slot_bytes = FEED_FORWARD_STREAM_SLOT, slot_count = FEED_FORWARD_STREAM_SLOTS,
                   chunk_bytes = chunk_columns / 2, unit_columns = 64;
constexpr uint32_t x_rest = FEED_FORWARD_STREAM_HIDDEN * 2, gated_rest = FEED_FORWARD_STREAM_GROUPS * 128;
/* What takes back that codes come times 2^E2M1_EXPONENT. */
constexpr float codes_factor = E2M1_EXPONENT ? 16384.0f : 1.0f;

/* ---- A block's place --------------------------------------------------------------------------------------------- */

struct stream_place {
  uint32_t shared, rank, cluster, lane, warp, g, t;
  uint32_t first_group, groups; /* of the cluster */

  __device__ __forceinline__ stream_place(const stream_parameters &p, uint32_t memory)
      : shared(memory), rank(blockIdx.x % cluster_blocks), cluster(blockIdx.x / cluster_blocks), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32), g(lane / 4), t(lane % 4) {
    first_group = cluster * p.groups / p.parts;
    groups = (cluster + 1) * p.groups / p.parts - first_group;
  }
  __device__ __forceinline__ uint32_t barrier(uint32_t which) const { return shared + 8 * which; }
};

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* What a warp asks for, chunk by chunk: its columns of the first product's tiles, then its tile of the second. */
struct code_stream {
  uint64_t step, eight_rows;
  const unsigned char *from;
  uint32_t left, valid; /* chunks, and those of which the lane has columns */
  const unsigned char *second_from;
  uint32_t second_left, second_valid, second_eight_rows;
  uint32_t to, asked;

  __device__ __forceinline__ code_stream(const stream_parameters &p, const stream_place &at) : asked(0) {
    const uint32_t row_bytes = p.hidden / 2;
    from = (const unsigned char *)p.gate_up + (at.first_group * 128 + at.rank * 16 + at.g) * (uint64_t)row_bytes +
           at.warp * chunk_bytes + at.t * 16;
    step = 128 * (uint64_t)row_bytes, eight_rows = 8 * (uint64_t)row_bytes;
    left = valid = at.warp < p.hidden / chunk_columns ? at.groups : 0;
    second_eight_rows = 4 * p.columns;
    second_from = (const unsigned char *)p.down +
                  ((at.rank + at.warp * cluster_blocks) * 16 + at.g) * (uint64_t)(p.columns / 2) +
                  at.first_group * (group_columns / 2) + at.t * 16;
    second_left = at.warp < p.hidden / chunk_columns ? (at.groups + 1) / 2 : 0;
    second_valid = at.t < 2 ? second_left : at.groups / 2;
    to = at.shared + p.ring + at.warp * (slot_count * slot_bytes) + at.lane * 16;
  }
  __device__ __forceinline__ void ask() {
    if (left == 0) {
      from = second_from, left = second_left, valid = second_valid, step = chunk_bytes, eight_rows = second_eight_rows;
      second_left = 0;
    }
    if (left) {
      const uint32_t bytes = valid ? 16 : 0;
      copy_early_or_not(to + asked, from, bytes);
      copy_early_or_not(to + asked + 512, from + eight_rows, bytes);
      left--, valid -= valid ? 1 : 0;
      if (left) from += step;
      asked = (asked + slot_bytes) % (slot_count * slot_bytes);
    }
    cp_async_commit();
  }
};

__device__ __forceinline__ uint32_t scale_pitch(const stream_parameters &p) {
  return p.hidden / 16 + FEED_FORWARD_STREAM_SCALE_PADDING;
}

/* All scales of the block: rows of the first product in 16 bytes, of the second in four, for each group. */
__device__ __forceinline__ void ask_scales(const stream_parameters &p, const stream_place &at) {
  const uint32_t pitch = scale_pitch(p), pieces = p.hidden / 256;
  for (uint32_t piece = threadIdx.x % 8; piece < pieces; piece += 8)
    for (uint32_t row = threadIdx.x / 8; row < at.groups * 16; row += block_warps * 4)
      copy_early_16(at.shared + p.scales + row * pitch + piece * 16,
                    (const unsigned char *)p.gate_up_scales +
                        (at.first_group * 128 + (at.rank + row / 16 * cluster_blocks) * 16 + row % 16) *
                            (uint64_t)(p.hidden / 16) +
                        piece * 16);
  for (uint32_t group = threadIdx.x % 8; group < at.groups; group += 8)
    for (uint32_t row = threadIdx.x / 8; row < p.hidden / cluster_blocks; row += block_warps * 4)
      copy_early<4>(at.shared + p.second_scales + (row * at.groups + group) * 4,
                    (const unsigned char *)p.down_scales +
                        ((at.rank + row / 16 * cluster_blocks) * 16 + row % 16) * (uint64_t)(p.columns / 16) +
                        (at.first_group + group) * 4);
}

/* The sums of two rows' 16 bytes in a slot with a lane's numbers, times their scales. */
__device__ __forceinline__ void multiply_codes(uint32_t codes_at, const uint32_t (&b)[16], const float2 &scales,
                                               const float2 &scales_8, float2 &sum) {
  const words codes = load_words(codes_at), codes_8 = load_words(codes_at + 512);
#pragma unroll
  for (int block = 0; block < 2; block++) {
    float c[4] = {};
#pragma unroll
    for (int w = 2 * block; w < 2 * block + 2; w++) {
      uint32_t a[4], a_8[4];
      decode_e2m1(codes.word[w], a), decode_e2m1(codes_8.word[w], a_8);
      multiply_accumulate<false>(c, a, a_8, b + 4 * w);
      multiply_accumulate<false>(c, a + 2, a_8 + 2, b + 4 * w + 2);
    }
    sum.x = fmaf(c[0] + c[1], block ? scales.y : scales.x, sum.x);
    sum.y = fmaf(c[2] + c[3], block ? scales_8.y : scales_8.x, sum.y);
  }
}
__device__ __forceinline__ float2 scales_of(uint32_t pair, const float2 &powers) {
  const float2 two = __half22float2(half2_of_e4m3(pair));
  return {two.x * powers.x, two.y * powers.y};
}
/* Of a quad; lanes with odd t get row g + 8. */
__device__ __forceinline__ float sum_of_quad(float2 sum, uint32_t t) {
  const float give = t % 2 ? sum.x : sum.y;
  float keep = t % 2 ? sum.y : sum.x;
  keep += __shfl_xor_sync(0xffffffffu, give, 1);
  return keep + __shfl_xor_sync(0xffffffffu, keep, 2);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Two numbers a lane, eight lanes a block: as f16 times a power of two, and what is left of them, in the order in which
 * codes are decoded. `factor` takes the power back. */
struct scaled_pair {
  uint32_t rounded, rest;
  float factor;

  __device__ __forceinline__ explicit scaled_pair(float2 two) {
    float most = fmaxf(fabsf(two.x), fabsf(two.y));
#pragma unroll
    for (int d = 1; d < 8; d *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    const uint32_t exponent = max(min(__float_as_uint(most) >> 23, 254u), 15u);
    const float up = __uint_as_float((268 - exponent) << 23); /* the largest to 2^14 and more */
    factor = __uint_as_float((exponent - 14) << 23);
    two.x *= up, two.y *= up;
    if (E2M1_EXPONENT) {
      const bool odd = threadIdx.x % 2;
      const float other = __shfl_xor_sync(0xffffffffu, odd ? two.x : two.y, 1);
      two = odd ? float2{other, two.y} : float2{two.x, other};
    }
    const __half2 half = __floats2half2_rn(two.x, two.y);
    const float2 seen = __half22float2(half);
    rounded = bits_of(half), rest = bits_of(__floats2half2_rn(two.x - seen.x, two.y - seen.y));
  }
  /* The pair's byte among its eight numbers'. */
  static __device__ __forceinline__ uint32_t place() {
    const uint32_t lane = threadIdx.x % 4;
    return 4 * (E2M1_EXPONENT ? lane % 2 * 2 + lane / 2 : lane);
  }
};

/* x and what is to be added, times the norm, to all blocks of the cluster, which share the work. */
template <rondo_dtype V> __device__ __forceinline__ void gather(const stream_parameters &p, const stream_place &at) {
  const uint32_t unit = at.warp * cluster_blocks + at.rank, pair = unit * 32 + at.lane;
  if (unit >= p.hidden / unit_columns) return;
  const uint32_t x = *((const uint32_t *)p.x + pair);
  float2 part[FEED_FORWARD_STREAM_PARTS];
#pragma unroll
  for (uint32_t j = 0; j < FEED_FORWARD_STREAM_PARTS; j++) {
    part[j] = float2{};
    if (j < p.part_count) part[j] = *((const float2 *)p.x_parts + (j * (p.hidden / 2) + pair));
  }
  float2 two = f32_of_pair<V>(x);
#pragma unroll
  for (uint32_t j = 0; j < FEED_FORWARD_STREAM_PARTS; j++) two.x += part[j].x, two.y += part[j].y;
  const uint32_t rounded = pack_two<element<V>>(two.x, two.y);
  if (at.cluster == 0) *((uint32_t *)p.out + pair) = rounded;
  two = f32_of_pair<V>(rounded);
  float square = two.x * two.x + two.y * two.y;
  if (p.norm) {
    const float2 by = f32_of_pair<V>(load_word(at.shared + FEED_FORWARD_STREAM_NORM + pair * 4));
    two.x *= by.x, two.y *= by.y;
  }
  const scaled_pair scaled(two);
  const uint32_t to = at.shared + FEED_FORWARD_STREAM_X + pair / 4 * 16 + scaled.place();
#pragma unroll
  for (uint32_t block = 0; block < cluster_blocks; block++) {
    const uint32_t there = address_in_block(to, block), barrier = address_in_block(at.barrier(0), block);
    send_word(there, scaled.rounded, barrier);
    send_word(there + x_rest, scaled.rest, barrier);
  }
  const uint32_t block = at.lane % 8, there = address_in_block(at.shared, block),
                 barrier = address_in_block(at.barrier(0), block);
  send_word(there + FEED_FORWARD_STREAM_POWERS + pair / 8 * 4, __float_as_uint(scaled.factor), barrier);
#pragma unroll
  for (int d = 16; d; d /= 2) square += __shfl_xor_sync(0xffffffffu, square, d);
  if (at.lane < cluster_blocks)
    send_word(there + FEED_FORWARD_STREAM_SQUARES + unit * 4, __float_as_uint(square), barrier);
}

__device__ __forceinline__ float norm_factor(const stream_parameters &p, const stream_place &at) {
  if (p.epsilon == 0.0f) return p.scale * codes_factor;
  float square = at.lane < p.hidden / unit_columns
                     ? __uint_as_float(load_word(at.shared + FEED_FORWARD_STREAM_SQUARES + at.lane * 4))
                     : 0.0f;
#pragma unroll
  for (int d = 16; d; d /= 2) square += __shfl_xor_sync(0xffffffffu, square, d);
  return rsqrtf(square * p.inverse_hidden + p.epsilon) * (p.scale * codes_factor);
}

/* silu(gate) * up to all blocks: a warp has a tile, a quad a column, a lane a quarter of the cuts. */
__device__ __forceinline__ void send_gated(const stream_parameters &p, const stream_place &at, float factor) {
  const uint32_t cuts = p.hidden / chunk_columns;
  for (uint32_t tile = at.warp; tile < at.groups; tile += block_warps) {
    float2 sum = {};
#pragma unroll
    for (uint32_t i = 0; i < block_warps; i += 4)
      if (i + at.t < cuts) {
        const float2 of_cut = load_two(at.shared + p.sums + ((tile * block_warps + i + at.t) * 16 + 2 * at.g) * 4);
        sum.x += of_cut.x, sum.y += of_cut.y;
      }
#pragma unroll
    for (int d = 1; d < 4; d *= 2) {
      sum.x += __shfl_xor_sync(0xffffffffu, sum.x, d);
      sum.y += __shfl_xor_sync(0xffffffffu, sum.y, d);
    }
    const float gate = sum.x * factor;
    const float gated = gate * reciprocal(1.0f + exp2_approximate(gate * -1.44269504f)) * (sum.y * factor);
    const uint32_t to = at.shared + FEED_FORWARD_STREAM_RECEIVED + ((at.rank + tile * cluster_blocks) * 8 + at.g) * 4;
#pragma unroll
    for (uint32_t block = at.t; block < cluster_blocks; block += 4)
      send_word(address_in_block(to, block), __float_as_uint(gated), address_in_block(at.barrier(1), block));
  }
}

/* What has been received, as the second product's numbers; zeros behind. */
__device__ __forceinline__ void convert_gated(const stream_place &at) {
  for (uint32_t pair = threadIdx.x; pair < (at.groups + 1) / 2 * (chunk_columns / 2); pair += 32 * block_warps) {
    float2 two = {};
    if (pair < at.groups * (group_columns / 2)) two = load_two(at.shared + FEED_FORWARD_STREAM_RECEIVED + pair * 8);
    const scaled_pair scaled(two);
    const uint32_t to = at.shared + FEED_FORWARD_STREAM_GATED + pair / 4 * 16 + scaled.place();
    store_word(to, scaled.rounded);
    store_word(to + gated_rest, scaled.rest);
    if (at.lane % 8 == 0) store_number(at.shared + FEED_FORWARD_STREAM_SECOND_POWERS + pair / 8 * 4, scaled.factor);
  }
}

/* ---- The products ------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ void first_product(const stream_parameters &p, const stream_place &at, code_stream &stream,
                                              uint32_t &used) {
  const bool mine = at.g / 2 == at.t;
  const uint32_t numbers =
      at.shared + FEED_FORWARD_STREAM_X + at.g % 2 * x_rest + at.warp * (chunk_columns * 2) + at.t * 64;
  uint32_t b[16];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const words four = load_words(mine ? numbers + i * 16 : at.shared + FEED_FORWARD_STREAM_ZEROS);
#pragma unroll
    for (int j = 0; j < 4; j++) b[4 * i + j] = four.word[j];
  }
  const float2 powers = load_two(at.shared + FEED_FORWARD_STREAM_POWERS + at.warp * 32 + at.t * 8);
  const uint32_t pitch = scale_pitch(p);
  uint32_t scales_at = at.shared + p.scales + at.g * pitch + at.warp * 8 + at.t * 2;
  uint32_t to = at.shared + p.sums + (at.warp * 16 + at.g + 8 * at.t) * 4;
#pragma unroll 1
  for (uint32_t tile = 0; tile < at.groups; tile++) {
    const float2 scales = scales_of(load_half_word(scales_at), powers),
                 scales_8 = scales_of(load_half_word(scales_at + 8 * pitch), powers);
    cp_async_wait<slot_count - 1>();
    float2 sum = {};
    multiply_codes(stream.to + used, b, scales, scales_8, sum);
    used = (used + slot_bytes) % (slot_count * slot_bytes);
    stream.ask();
    const float of_row = sum_of_quad(sum, at.t);
    if (at.t < 2) store_number(to, of_row);
    to += block_warps * 64, scales_at += 16 * pitch;
  }
}

__device__ __forceinline__ void second_product(const stream_parameters &p, const stream_place &at, code_stream &stream,
                                               uint32_t used) {
  const bool mine = at.g / 2 == at.t;
  uint32_t numbers = mine ? at.shared + FEED_FORWARD_STREAM_GATED + at.g % 2 * gated_rest + at.t * 64
                          : at.shared + FEED_FORWARD_STREAM_ZEROS;
  const uint32_t numbers_step = mine ? chunk_columns * 2 : 0;
  uint32_t powers_at = at.shared + FEED_FORWARD_STREAM_SECOND_POWERS + at.t * 8;
  uint32_t scales_at = at.shared + p.second_scales + (at.warp * 16 + at.g) * at.groups * 4 + at.t * 2;
  const uint32_t chunks = (at.groups + 1) / 2, valid = at.t < 2 ? chunks : at.groups / 2;
  float2 sum = {};
#pragma unroll 1
  for (uint32_t i = 0; i < chunks; i++) {
    const float2 powers = load_two(powers_at);
    const float2 scales = scales_of(i < valid ? load_half_word(scales_at) : 0, powers),
                 scales_8 = scales_of(i < valid ? load_half_word(scales_at + at.groups * 32) : 0, powers);
    uint32_t b[16];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const words four = load_words(numbers + j * 16);
#pragma unroll
      for (int k = 0; k < 4; k++) b[4 * j + k] = four.word[k];
    }
    cp_async_wait<slot_count - 1>();
    multiply_codes(stream.to + used, b, scales, scales_8, sum);
    used = (used + slot_bytes) % (slot_count * slot_bytes);
    stream.ask();
    numbers += numbers_step, powers_at += 32, scales_at += 8;
  }
  const float of_row = sum_of_quad(sum, at.t);
  if (at.t < 2)
    p.out_parts[at.cluster * p.hidden + (at.rank + at.warp * cluster_blocks) * 16 + at.g + 8 * at.t] =
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
    barrier_expect(at.barrier(0), p.hidden * 4 + (p.hidden / 16 + p.hidden / unit_columns) * 4);
    barrier_expect(at.barrier(1), at.groups * (group_columns * 4));
  }
  __syncwarp();
  arrive_at_cluster();
  if (threadIdx.x < 16) store_word(at.shared + FEED_FORWARD_STREAM_ZEROS + threadIdx.x * 4, 0);
  if (!p.early) only_wait_for_predecessors();
  const uint32_t pair = (at.warp * cluster_blocks + at.rank) * 32 + at.lane;
  if (p.norm && pair < p.hidden / 2)
    copy_early<4>(at.shared + FEED_FORWARD_STREAM_NORM + pair * 4, (const unsigned char *)p.norm + pair * 4);
  ask_scales(p, at);
  cp_async_commit();
  code_stream stream(p, at);
#pragma unroll 1
  for (uint32_t i = 0; i < slot_count; i++) stream.ask();
  const bool multiplies = at.warp < p.hidden / chunk_columns;
  cp_async_wait<slot_count>();
  __syncthreads();
  wait_for_cluster();
  only_wait_for_predecessors();
  gather<V>(p, at);
  barrier_wait_cluster(at.barrier(0), 0);
  uint32_t used = 0;
  if (multiplies) first_product(p, at, stream, used);
  used = at.groups * slot_bytes % (slot_count * slot_bytes);
  const float factor = norm_factor(p, at);
  __syncthreads();
  send_gated(p, at, factor);
  barrier_wait_cluster(at.barrier(1), 0);
  convert_gated(at);
  __syncthreads();
  if (multiplies) second_product(p, at, stream, used);
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
