/* gemv_addresses.cuh - addresses of a product's operands (struct gemv_parameters); its warps, tiles and successors. */
#pragma once

#include "gemv.h"
#include "gemv_formats.cuh"
#include "gemv_scales.cuh"

/* ---- Operands --------------------------------------------------------------------------------------------------- */

/* Where the loads of 16 bytes of a row of this block's matrix begin, and those of its scales; the same of its vectors.
 */
DEVICE const unsigned char *weights_from(const gemv_parameters &p, uint32_t row, uint32_t load) {
  return offset(offset(p.weights, blockIdx.y * p.weight_batch + load, 16), row, p.weight_row);
}
DEVICE const unsigned char *weight_scales_from(const gemv_parameters &p, uint32_t row, uint32_t block) {
  return p.weight_scales + (blockIdx.y * p.weight_scale_batch + scales_of_row(p.weight_scale_strides, row) +
                            offset_of_scale(p.weight_scale_strides.four, block));
}
DEVICE const unsigned char *vector_from(const gemv_parameters &p, uint32_t row, uint32_t load) {
  return offset(offset(p.vectors, blockIdx.y * p.vector_batch + load, 16), row, p.vector_row);
}
DEVICE const unsigned char *vector_scales_from(const gemv_parameters &p, uint32_t row, uint32_t block) {
  return p.vector_scales +
         (blockIdx.y * p.vector_scale_batch + row * p.vector_scale_row + offset_of_scale(p.vector_scale_four, block));
}

/* A lane's first piece of a vector; the next ones lie a constant number of elements further, in multiples of 64, or of
 * 32 from a multiple of 64 on. Addresses are known before anything is asked for: under the predicate whether a piece
 * exists, each constant that they are made of would be a load of its own (LDC instead of ULDC). */
template <rondo_dtype V> struct vector_address {
  const unsigned char *data, *scales;
  DEVICE vector_address(const gemv_parameters &p, uint32_t row, uint32_t element) {
    data = computed_now(vector_from(p, row, element / (V == RONDO_NVFP4 ? 32 : 8)));
    if constexpr (V == RONDO_NVFP4) scales = computed_now(vector_scales_from(p, row, element / 16));
  }
  DEVICE words load(int further) const { return load_vector(data + further * (V == RONDO_NVFP4 ? 4 : 16) / 8); }
  DEVICE uint32_t load_scales(const gemv_parameters &p, int further) const {
    return load_vector_scales(scales + (further / 64 * p.vector_scale_four + further % 64 / 16));
  }
};

/* ---- Warps and tiles --------------------------------------------------------------------------------------------- */

/* A warp's place in its block: see gemv_parameters. */
struct warp_position {
  uint32_t part, group;
};
DEVICE warp_position position_of_warp(const gemv_parameters &p) {
  const uint32_t warp = threadIdx.x / 32, group = warp * p.part_reciprocal >> 16;
  return {warp - group * p.parts, group};
}

/* The first row of a tile. The last one moves up to end with the matrix, so that no row needs a bound: it computes some
 * again, which finish_rows does not store. */
DEVICE uint32_t first_row_of(const gemv_parameters &p, uint32_t tile, uint32_t rows) {
  return min(tile * rows, p.m - rows);
}

/* ---- The order of loads ----------------------------------------------------------------------------------------- */

/* A branch that is never taken. The compiler moves no load across; and as what is loaded in front of it is used after
 * it, the loads stay in front too, instead of sinking to where registers are cheapest. Without them half of the bytes
 * are not in flight, or not before the predecessors end (the SASS says; asm volatile alone does not hold ptxas). */
#define KEEP_LOADED(p, number, all)                                                                                    \
  if ((p).always_zero == (number)) {                                                                                   \
    *(uint32_t *)(p).out = (all);                                                                                      \
    return;                                                                                                            \
  }
#define KEEP_ORDER(p, number)                                                                                          \
  if ((p).always_zero == (number)) return

/* ---- Successors -------------------------------------------------------------------------------------------------- */

/* Of kernels that let their successors start at once, as many wait side by side as there is room for. Where matrices
 * are small these are a dozen, and on an H200 a product then takes up to 1.5 us longer. With GEMV_STARTS_ONE successors
 * start after the wait: one is there, and has its weights. */
DEVICE void may_start_all(const gemv_parameters &p) {
  if (!(p.early & GEMV_STARTS_ONE)) let_successors_start();
}
DEVICE void wait_and_may_start_one(const gemv_parameters &p) {
  only_wait_for_predecessors();
  if (p.early & GEMV_STARTS_ONE) let_successors_start();
}

#define DEFINE_TILES_KERNEL(chips, parameters, name, threads, blocks, ...)                                             \
  DEFINE_KERNEL_FROM(may_start_all(p), __launch_bounds__(threads, blocks), parameters, name, __VA_ARGS__)
