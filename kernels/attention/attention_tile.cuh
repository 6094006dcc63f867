/* attention_tile.cuh - rows of Q, K and V in shared memory, for the portable kernels: the sizes of a kernel, the places
 * of a row's chunks, and the copies of tiles. */
#pragma once

#include "../common/device_code.cuh"
#include "../common/element.cuh"
#include "../common/ptx.cuh"
#include "../common/shared_words.cuh"
#include "attention.h"

/* Steps that make the kernel fast. The library's kernels have all of them. `rondo bench kernels attention-steps` leaves
 * out one at a time, and prints the difference. */
struct every_step {
  static constexpr bool swizzle = true;       /* the chunks of rows are permuted: ldmatrix meets no bank twice */
  static constexpr bool flips = true;         /* a permuted address is another address with bits flipped */
  static constexpr bool eager = true;         /* a tile is requested before the work on the tile before ends */
  static constexpr bool ordered = true;       /* ldmatrix leaves K's fragments in the registers that mma takes */
  static constexpr bool one_reference = true; /* no running maximum */
};

/* The sizes of a kernel: a line of the list in attention.h. */
template <rondo_dtype Dtype, int Dimension, int Threads, int Parts, int Tile, int Stages, int Held,
          typename Steps = every_step>
struct tiling {
  using type = element<Dtype>;
  using steps = Steps;
  static constexpr int dimension = Dimension, tile = Tile, stages = Stages;
  static constexpr int threads = Threads;
  static constexpr int parts = Parts; /* of 16 rows, of a warp */
  static constexpr int warp_rows = 16 * Parts, rows = Threads / 32 * warp_rows;
  static constexpr int chunks = Dimension / 8; /* of 16 bytes in a row */
  static constexpr int row_bytes = Dimension * 2;
  static constexpr int tile_bytes = tile * row_bytes;
  static constexpr int query_bytes = rows * row_bytes;
  static constexpr int held = Held; /* steps of 16 columns of Q in registers; others are read for each tile */
  static_assert(query_bytes + 2 * stages * tile_bytes == ATTENTION_SHARED_BYTES(Dimension, rows, Tile, Stages),
                "what a launch asks for");
};

/* A warp's rows, in the layout of ptx.cuh. */
template <typename Size> using score_fragments = float[Size::parts][Size::tile / 8][4];
template <typename Size> using output_fragments = float[Size::parts][Size::dimension / 8][4];

/* Where a chunk of a row lies in shared memory. Rows of 64 bytes share a line of 128 in twos. */
template <typename Size> DEVICE uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  uint32_t turn = Size::dimension >= 64 ? row & 7 : (row >> 1) & 3;
  if (!Size::steps::swizzle) turn = 0;
  return row * Size::row_bytes + ((chunk ^ turn) << 4);
}

/* The address of chunk 2 step + c of a row whose chunk c, 0 or 1, lies at `address`. Shared rows and tiles begin at
 * multiples of 128 bytes (with four chunks of 64), so the permutation flips bits of the address. */
DEVICE uint32_t chunk_address(uint32_t address, uint32_t step) {
  return (address ^ (2 * step % 8 * 16)) + 2 * step / 8 * 8 * 16;
}

/* Of the thread. */
DEVICE uint32_t lane_index() { return thread_index() % 32; }
template <typename Size> DEVICE uint32_t warp_row() { /* the warp's first in the block */
  return thread_index() / 32 * Size::warp_rows;
}

/* ---- Moving chunks --------------------------------------------------------------------------------------------- */

/* cp_async_16 without a size, which takes one instruction less. */
DEVICE void cp_async_16(uint32_t shared, const void *global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

template <typename T> constexpr uint16_t exponent_bits = 0;
template <> constexpr uint16_t exponent_bits<__half> = 0x7c00;
template <> constexpr uint16_t exponent_bits<__nv_bfloat16> = 0x7f80;

template <typename T> DEVICE float widen(uint16_t bits);
template <> DEVICE float widen<__half>(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
template <> DEVICE float widen<__nv_bfloat16>(uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }

/* Numbers that are not finite become zeros; whether there was any. */
template <typename T> DEVICE bool clean(uint32_t (&pair)[4]) {
  constexpr uint32_t exponent = exponent_bits<T>;
  bool found = false;
  unroll<4>([&](int i) {
    if ((pair[i] & exponent) == exponent) found = true, pair[i] &= 0xffff0000u;
    if ((pair[i] >> 16 & exponent) == exponent) found = true, pair[i] &= 0xffffu;
  });
  return found;
}

/* Eight numbers at any even address. */
DEVICE uint4 gather(const void *global, bool present) {
  const uint16_t *from = static_cast<const uint16_t *>(global);
  uint32_t pair[4] = {0, 0, 0, 0};
  if (present) {
    unroll<4>([&](int i) { pair[i] = from[2 * i] | (uint32_t)from[2 * i + 1] << 16; });
  }
  return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

DEVICE void scatter(void *global, uint4 value) {
  uint16_t *to = static_cast<uint16_t *>(global);
  const uint32_t pair[4] = {value.x, value.y, value.z, value.w};
  unroll<4>([&](int i) {
    to[2 * i] = (uint16_t)pair[i];
    to[2 * i + 1] = (uint16_t)(pair[i] >> 16);
  });
}

/* Tiles of K or of V on their way to the stages of shared memory. */
template <typename Size> struct stream {
  static constexpr int rows_at_once = Size::threads / Size::chunks, passes = Size::tile / rows_at_once;
  static_assert(Size::tile % rows_at_once == 0, "a tile is whole passes");
  const unsigned char *stages;

  /* Where the thread's chunk of its first row in a stage lies. */
  static DEVICE uint32_t first_chunk(const unsigned char *stages, uint32_t thread, uint32_t stage) {
    return shared_address(stages) + stage * Size::tile_bytes +
           chunk_offset<Size>(thread / Size::chunks, thread % Size::chunks);
  }

  /* Where the thread's chunk of a pass lies, `at` being that of the first: another row, another turn. */
  static DEVICE uint32_t chunk_of_pass(uint32_t at, int pass) {
    const uint32_t turned = Size::steps::swizzle ? at ^ (pass * rows_at_once % 8 << 4) : at;
    return turned + pass * rows_at_once * Size::row_bytes;
  }

  /* `from` is the KV head's first row. KV rows from `end` on are zeros. */
  DEVICE void load(const uint16_t *from, int64_t stride, int begin, int end, int stage, bool aligned) const {
    const uint32_t thread = thread_index(), at = first_chunk(stages, thread, stage);
    const int first = (int)(thread / Size::chunks);
    from += thread % Size::chunks * 8;
    if (aligned && begin + Size::tile <= end) {
      const uint16_t *row = from + (begin + first) * stride;
      unrolled_for (int pass = 0; pass < passes; pass++, row += rows_at_once * stride)
        cp_async_16(chunk_of_pass(at, pass), row);
    } else {
      rolled_for (int pass = 0; pass < passes; pass++) {
        const int row = begin + first + pass * rows_at_once;
        const uint16_t *address = from + min(row, end - 1) * stride; /* one that could be read */
        if (aligned)
          cp_async_16(chunk_of_pass(at, pass), address, row < end ? 16 : 0);
        else
          store_four_words(chunk_of_pass(at, pass), gather(address, row < end));
      }
    }
  }

  /* Makes zeros of what is not finite in the thread's chunks of a tile; whether there was any. */
  DEVICE bool clean(int stage) const {
    bool found = false;
    const uint32_t first = first_chunk(stages, thread_index(), stage);
    rolled_for (int pass = 0; pass < passes; pass++) {
      const uint32_t at = chunk_of_pass(first, pass);
      uint32_t pair[4];
      load_four_words(at, pair);
      if (!::clean<typename Size::type>(pair)) continue;
      store_four_words(at, make_uint4(pair[0], pair[1], pair[2], pair[3]));
      found = true;
    }
    return found;
  }
};
