/* quads_list.h - the instances for NVFP4 weights. */
#pragma once
#include "quads.cuh"

template <number_format V> static void add_all(std::vector<variant> &v) {
  /* one wave: 4096 x 4096 */
  add<NVFP4, V, 4, 1, 16, 1, 8, 1, 2, HALF>(v);
  add<NVFP4, V, 4, 1, 8, 2, 4, 2, 2, HALF>(v);
  add<NVFP4, V, 2, 1, 16, 2, 8, 1, 2, HALF>(v);
  add<NVFP4, V, 1, 1, 32, 2, 16, 1, 1, HALF>(v);
  add<NVFP4, V, 1, 1, 16, 2, 8, 1, 2, STAY, 2>(v);
  /* several waves */
  add<NVFP4, V, 4, 1, 8, 2, 4, 1, 4, STAY>(v);
  add<NVFP4, V, 4, 1, 8, 1, 4, 1, 6, STAY>(v);
  add<NVFP4, V, 2, 1, 8, 2, 8, 1, 3, STAY>(v);
  add<NVFP4, V, 2, 1, 8, 2, 4, 1, 6, STAY>(v);
  add<NVFP4, V, 1, 1, 16, 2, 16, 1, 1, STAY>(v);
  add<NVFP4, V, 1, 1, 16, 4, 8, 1, 2, STAY>(v);
  add<NVFP4, V, 1, 1, 16, 2, 8, 1, 3, STAY>(v);
  add<NVFP4, V, 1, 2, 16, 2, 16, 1, 1, STAY>(v);
  add<NVFP4, V, 1, 2, 16, 2, 8, 1, 2, STAY>(v);
  /* k of 7168 and more */
  if constexpr (V == NVFP4) add<NVFP4, V, 4, 1, 8, 2, 7, 1, 2, STAY>(v);
  if constexpr (V == NVFP4) add<NVFP4, V, 4, 1, 8, 2, 14, 1, 1, STAY>(v);
  add<NVFP4, V, 4, 1, 8, 2, 16, 1, 1, STAY>(v);
  add<NVFP4, V, 2, 1, 8, 2, 7, 1, 3, STAY, 4>(v);
  add<NVFP4, V, 2, 1, 8, 2, 8, 1, 3, STAY, 4>(v);
  add<NVFP4, V, 2, 1, 8, 2, 7, 1, 3, STAY, 2>(v);
  add<NVFP4, V, 1, 1, 16, 4, 14, 1, 1, STAY>(v);
  add<NVFP4, V, 1, 1, 16, 4, 14, 1, 1, STAY, 2>(v);
  add<NVFP4, V, 1, 1, 16, 4, 8, 1, 2, STAY, 4>(v);
  add<NVFP4, V, 1, 2, 16, 2, 14, 1, 1, STAY, 2>(v);
  add<NVFP4, V, 1, 2, 16, 2, 14, 1, 1, STAY, 4>(v);
  add<NVFP4, V, 1, 2, 16, 2, 16, 1, 1, STAY, 4>(v);
  /* tiny, and rows of 576 */
  add<NVFP4, V, 4, 1, 4, 1, 2, 1, 8, ALL>(v);
  add<NVFP4, V, 4, 1, 8, 1, 2, 1, 8, ALL>(v);
  add<NVFP4, V, 4, 1, 4, 1, 3, 1, 8, ALL>(v);
  add<NVFP4, V, 2, 1, 8, 1, 3, 1, 8, ALL>(v);
  add<NVFP4, V, 2, 1, 16, 1, 3, 1, 8, ALL>(v);
  add<NVFP4, V, 2, 1, 8, 1, 6, 1, 4, ALL>(v);
  add<NVFP4, V, 1, 1, 16, 1, 5, 1, 5, ALL>(v);
  add<NVFP4, V, 1, 1, 16, 1, 5, 1, 4, STAY>(v);
  add<NVFP4, V, 1, 1, 16, 1, 12, 1, 2, ALL>(v);
  add<NVFP4, V, 1, 2, 16, 1, 5, 1, 4, ALL>(v);
  add<NVFP4, V, 1, 2, 16, 1, 5, 1, 4, STAY>(v);
  add<NVFP4, V, 1, 2, 16, 1, 12, 1, 2, ALL>(v);
}
