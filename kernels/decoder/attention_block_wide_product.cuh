/* attention_block_wide_product.cuh - the two products of attention_block_wide.cu: each warp has slots for weights.
 *
 * Each lane requests by cp.async the 16 bytes of two rows that it multiplies itself, and the warp their scales, so that
 * there is no barrier. In NVFP4 all weights have slots of their own; in bf16 the slots are a ring. Warps share each
 * tile of the first product; of the second product each warp has its own tiles. */
#pragma once

#include "attention_block_numbers.cuh"
#include "attention_block_wide.h"
#include "decoder_integers.cuh"

/* A line of the list in attention_block_wide.h. */
template <rondo_dtype Weights, bool HasRanks = false>
struct wide_sizes : block_sizes<Weights, ATTENTION_BLOCK_WIDE_DIMENSION> {
  static constexpr bool has_ranks = HasRanks; /* takes and gives parts over ranks */
  using base = block_sizes<Weights, ATTENTION_BLOCK_WIDE_DIMENSION>;
  using told = const attention_block_parameters &;
  static constexpr uint32_t warps = ATTENTION_BLOCK_WIDE_WARPS, threads = 32 * warps;
  static constexpr uint32_t attending = ATTENTION_BLOCK_WIDE_ATTENDING;
  static constexpr uint32_t row_step = attending * LAYER_HALF_CLUSTER * LAYER_HALF_TILE;
  static constexpr bool scaled_vector = Weights == RONDO_NVFP4, knows_sizes = true, alike = false;
  static constexpr uint32_t hidden = ATTENTION_BLOCK_WIDE_HIDDEN,
                            columns = ATTENTION_BLOCK_WIDE_GROUP * ATTENTION_BLOCK_WIDE_DIMENSION;
  static constexpr uint32_t chunk_columns = ATTENTION_BLOCK_WIDE_CHUNK_COLUMNS(Weights), chunk_bytes = 64,
                            slots = ATTENTION_BLOCK_WIDE_SLOTS(Weights), slot = ATTENTION_BLOCK_WIDE_SLOT;
  /* Chunks of a warp: of its piece of a tile of the first product, and of a tile of the second. */
  static constexpr uint32_t first_chunks = hidden / chunk_columns / ATTENTION_BLOCK_WIDE_CUTS,
                            second_chunks = columns / chunk_columns, second_tiles = ATTENTION_BLOCK_WIDE_SECOND_TILES;
  static constexpr bool turns_round = first_chunks + second_tiles * second_chunks > slots; /* the ring */
  static_assert(!turns_round || (first_chunks == 2 * slots && second_tiles * second_chunks == slots), "three rounds");
  static_assert(ATTENTION_BLOCK_WIDE_TILES * LAYER_HALF_CLUSTER * LAYER_HALF_TILE ==
                    columns + 2 * ATTENTION_BLOCK_WIDE_DIMENSION,
                "all tiles are there");

  /* If the slots are no ring, K and V have two more stages after the first product: in place of the weights of the
   * warp, and of a warp that does not attend. */
  static constexpr uint32_t stages = base::stages + (turns_round ? 0 : 2);
  static_assert(turns_round || (warps == 2 * attending && first_chunks * slot == base::stage_bytes), "room");
  static DEVICE uint32_t stage_behind(uint32_t stage, uint32_t warp) {
    if (turns_round) return base::stage_behind(stage, warp);
    constexpr uint32_t warp_bytes = slots * slot;
    const uint32_t third = ATTENTION_BLOCK_WIDE_RING_BYTES + warp * warp_bytes - warp * base::ring_bytes;
    const uint32_t before = stage == 0 ? base::stage_bytes : third,
                   after = stage == third ? third + attending * warp_bytes : 0;
    return stage <= base::stage_bytes ? before : after; /* no branches: a sixtieth of 4096 rows' time */
  }

  static constexpr __device__ uint32_t bytes_of(uint32_t number) {
    return Weights == RONDO_NVFP4 ? number / 2 : number * 2;
  }
  static DEVICE attention_block_share first(told) {
    return {ATTENTION_BLOCK_WIDE_TILES, ATTENTION_BLOCK_WIDE_TILES * LAYER_HALF_CLUSTER, ATTENTION_BLOCK_WIDE_CUTS,
            hidden / chunk_columns};
  }
  static DEVICE uint32_t group(told) { return ATTENTION_BLOCK_WIDE_GROUP; }
  static DEVICE uint32_t received(told) { return ATTENTION_BLOCK_WIDE_RECEIVED; }
  static DEVICE uint32_t cuts(told) { return ATTENTION_BLOCK_WIDE_SUMS; }
  static DEVICE uint32_t activations(told) { return ATTENTION_BLOCK_WIDE_ROW; }
  static DEVICE uint32_t pitch(told) { return ATTENTION_BLOCK_WIDE_SECOND_PITCH; }
  static DEVICE uint32_t powers(told) { return ATTENTION_BLOCK_WIDE_POWERS; }
  static DEVICE uint32_t ring(told) { return ATTENTION_BLOCK_WIDE_RING; }
};

/* The warp's weights, and the next request for its slots. */
template <typename Size> struct weight_stream {
  const unsigned char *from, *second;
  uint32_t high, second_high; /* bytes from the lane's first row to its second */
  uint32_t to;                /* the lane's place in the first slot */
  uint32_t scales;            /* the warp's */
  code_tables tables;         /* of NVFP4 */

  /* Requests scales, and in a later group weights for all slots. */
  DEVICE weight_stream(const attention_block_parameters &p, const kv_head_place &b) {
    const qkv_rows<Size> rows_of{b.part, b.kv_head, p.heads, p.splits, Size::group(p), (uint32_t)p.rope_is_halves};
    constexpr uint32_t tiles = ATTENTION_BLOCK_WIDE_TILES, cuts = ATTENTION_BLOCK_WIDE_CUTS;
    const uint32_t cut = b.warp / tiles, first_tile = b.warp % tiles * Size::cluster + b.rank,
                   second_tile = b.warp * Size::cluster + b.rank, all_columns = p.heads * p.splits * Size::columns;
    const weight_rows rows = rows_of(first_tile, b.g);
    constexpr uint64_t row_bytes = Size::bytes_of(Size::hidden);
    const uint64_t second_bytes = Size::bytes_of(all_columns);
    from = (const unsigned char *)p.half.first.weights + rows.low * row_bytes + cut * (row_bytes / cuts) + b.t * 16;
    high = (uint32_t)((rows.high - rows.low) * row_bytes);
    second = (const unsigned char *)p.half.second.weights + (second_tile * LAYER_HALF_TILE + b.g) * second_bytes +
             b.part * Size::bytes_of(Size::columns) + b.t * 16;
    second_high = (uint32_t)(8 * second_bytes);
    to = b.shared + ATTENTION_BLOCK_WIDE_WEIGHTS + b.warp * (Size::slots * Size::slot) + b.lane * 16;
    scales = b.shared + ATTENTION_BLOCK_WIDE_SCALES(Size::weights) + b.warp * ATTENTION_BLOCK_WIDE_SCALE_BYTES;
    if constexpr (Size::scaled_vector) {
      tables = code_tables(b.shared + ATTENTION_BLOCK_WIDE_CODE_TABLES + b.warp * 8);
      static_assert(Size::hidden / 16 / cuts == 32 && Size::columns / 16 == 8 && Size::second_tiles == 2,
                    "two lanes a row");
      const uint32_t row = b.lane / 2;
      const weight_rows scaled = rows_of(first_tile, row % 8);
      copy_early_16(scales + row * ATTENTION_BLOCK_WIDE_SCALE_PITCH + b.lane % 2 * 16,
                    (const unsigned char *)p.half.first.scales +
                        (row < 8 ? scaled.low : scaled.high) * (Size::hidden / 16) + cut * 32 + b.lane % 2 * 16);
      const uint32_t second_row =
          (second_tile + b.lane / 16 * (Size::warps * Size::cluster)) * LAYER_HALF_TILE + b.lane % 16;
      copy_early<8>(second_scales() + b.lane * 8, (const unsigned char *)p.half.second.scales +
                                                      second_row * (uint64_t)(all_columns / 16) + b.part * 8);
    }
    cp_async_commit();
    constexpr uint32_t at_once = Size::turns_round ? Size::slots : Size::first_chunks;
    rolled_for (uint32_t i = 0; i < at_once; i++) ask(i), Size::turns_round ? cp_async_commit() : (void)0;
    if (Size::turns_round) return;
    cp_async_commit();
    begin_second();
    rolled_for (uint32_t i = 0; i < Size::second_tiles; i++) ask_second(Size::first_chunks + i, i);
    cp_async_commit();
  }
  DEVICE uint32_t second_scales() const { return scales + 16 * ATTENTION_BLOCK_WIDE_SCALE_PITCH; }

  /* The next chunk, into that slot. */
  DEVICE void ask(uint32_t slot) {
    copy_early_16(to + slot * Size::slot, from);
    copy_early_16(to + slot * Size::slot + 512, from + high);
    from += Size::chunk_bytes;
  }
  DEVICE void begin_second() { from = second, high = second_high; }
  /* The second product's chunk number `before`. */
  DEVICE void ask_second(uint32_t slot, uint32_t before) {
    ask(slot);
    if ((before + 1) % Size::second_chunks == 0)
      from += (uint64_t)second_high * (LAYER_HALF_TILE / 8 * Size::warps * Size::cluster) -
              Size::second_chunks * Size::chunk_bytes;
  }
};

/* The lane's numbers of the vector, and from a chunk to the next; the other lanes of operand B have zeros. */
template <typename Size> struct vector_place {
  static constexpr uint32_t bytes = Size::scaled_vector ? Size::chunk_columns : Size::chunk_columns * 2;
  uint32_t from, step;
  bool has_any;

  DEVICE vector_place(const kv_head_place &b, uint32_t pitch) : step(bytes) {
    has_any = Size::scaled_vector ? b.g / 2 == b.t : b.g < 2;
    from = b.shared + ATTENTION_BLOCK_WIDE_ROW + b.g % 2 * pitch + b.t * (bytes / 4);
    if (Size::scaled_vector && !has_any) from = b.shared + ATTENTION_BLOCK_WIDE_ZEROS, step = 0;
  }
};

DEVICE float2 sum_of(const float (&c)[2][4]) {
  return {(c[0][0] + c[1][0]) + (c[0][1] + c[1][1]), (c[0][2] + c[1][2]) + (c[0][3] + c[1][3])};
}

/* The warp's sums of its piece, of eight pairs of rows. */
template <typename Size> DEVICE void multiply_first(const kv_head_place &b, weight_stream<Size> &stream) {
  const vector_place<Size> x(b, ATTENTION_BLOCK_WIDE_PITCH);
  const uint32_t first = b.warp / ATTENTION_BLOCK_WIDE_TILES * Size::first_chunks; /* chunk */
  uint32_t from = x.from + first * x.step;
  float2 sum = {};
  if constexpr (Size::scaled_vector) {
    const uint32_t scales = stream.scales + b.g * ATTENTION_BLOCK_WIDE_SCALE_PITCH + b.t * 2,
                   powers = b.shared + ATTENTION_BLOCK_WIDE_POWERS + first * 32 + b.t * 8;
    unrolled_for (uint32_t i = 0; i < Size::first_chunks; i++, from += x.step)
      multiply_codes(code_bytes(slot_codes(stream.to + i * Size::slot), stream.tables),
                     {from, powers + i * 32, scales + i * 8, scales + i * 8 + 8 * ATTENTION_BLOCK_WIDE_SCALE_PITCH},
                     sum);
    sum = sums_of_quad(sum);
  } else {
    float c[2][4] = {};
    rolled_for (uint32_t round = 0; round < 2; round++) {
      if (round) stream.begin_second();
#pragma unroll 2
      for (uint32_t i = 0; i < Size::slots; i++, from += x.step) {
        cp_async_wait<Size::slots - 1>();
        multiply_chunk<Size>(b, stream.to + i * Size::slot - b.lane * 16, from, x.has_any, c);
        if (round)
          stream.ask_second(i, i);
        else
          stream.ask(i);
        cp_async_commit();
      }
    }
    sum = sum_of(c);
  }
  if (b.t == 0) store_two_numbers(b.shared + ATTENTION_BLOCK_WIDE_SUMS + b.warp * 64 + b.g * 8, sum);
}

/* Rows g and g + 8 of a tile of the result, to all ranks as pairs of rows; zeros in parts without a cluster. */
DEVICE void give_rows(const attention_block_parameters &p, const kv_head_place &b, uint32_t tile, float2 rows,
                      uint32_t sum) {
  const bool is_odd = b.g % 2;
  const float other = __shfl_xor_sync(0xffffffffu, is_odd ? rows.x : rows.y, 4);
  if (b.t) return;
  const float2 two = is_odd ? make_float2(other, rows.y) : make_float2(rows.x, other);
  const uint32_t pair = tile * (LAYER_HALF_TILE / 2) + b.g / 2 + (is_odd ? 4 : 0);
  give_pair(p.exchange, sum, b.part, pair, two);
  const uint32_t parts = p.heads * p.splits;
  rolled_for (uint32_t part = b.part + parts; part < p.out_part_count; part += parts)
    give_pair(p.exchange, sum, part, pair, float2{});
}

/* The second product's results, the block's rows of its cluster's part; zeros in parts without a cluster. */
template <typename Size>
DEVICE void multiply_second(const attention_block_parameters &p, const kv_head_place &b,
                            const weight_stream<Size> &stream, float factor, uint32_t taken) {
  const vector_place<Size> x(b, ATTENTION_BLOCK_WIDE_SECOND_PITCH);
  const uint32_t parts = p.heads * p.splits;
  cp_async_wait<0>();
  rolled_for (uint32_t i = 0; i < Size::second_tiles; i++) {
    const uint32_t tile = (b.warp + i * Size::warps) * Size::cluster + b.rank;
    float2 sum = {};
    if constexpr (Size::scaled_vector) {
      const uint32_t scales = stream.second_scales() + i * 128 + b.g * 8 + b.t * 2;
      multiply_codes(code_bytes(slot_codes(stream.to + (Size::first_chunks + i) * Size::slot), stream.tables),
                     {x.from, b.shared + ATTENTION_BLOCK_WIDE_POWERS + b.t * 8, scales, scales + 64}, sum);
      sum = sums_of_quad(sum);
    } else {
      float c[2][4] = {};
      unrolled_for (uint32_t chunk = 0; chunk < Size::second_chunks; chunk++)
        multiply_chunk<Size>(b, stream.to + (i * Size::second_chunks + chunk) * Size::slot - b.lane * 16,
                             x.from + chunk * x.step, x.has_any, c);
      sum = sum_of(c);
    }
    if constexpr (Size::has_ranks)
      if (p.exchange.gives) {
        give_rows(p, b, tile, {sum.x * factor, sum.y * factor}, sum_given(p.exchange, taken));
        continue;
      }
    if (b.t) continue;
    float *to = p.half.out_parts + b.part * Size::hidden + tile * LAYER_HALF_TILE + b.g;
    to[0] = sum.x * factor, to[8] = sum.y * factor;
    rolled_for (uint32_t part = b.part + parts; part < p.out_part_count; part += parts) {
      to += parts * Size::hidden;
      to[0] = to[8] = 0.0f;
    }
  }
}
