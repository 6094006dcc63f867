/* quads_wide.cu - e4m3 and bf16 weights, bf16 vectors: tiny matrices, and those of one wave. */
#include "quads.cuh"

std::vector<variant> quads_wide_variants() {
  std::vector<variant> v;
  add<E4M3, BF16, 4, 1, 8, 2, 8, 1, 2, HALF>(v);
  add<E4M3, BF16, 2, 1, 32, 2, 16, 1, 1, HALF>(v);
  add<E4M3, BF16, 2, 1, 16, 4, 8, 1, 2, HALF>(v);
  add<E4M3, BF16, 1, 1, 32, 4, 16, 1, 1, HALF>(v);
  add<E4M3, BF16, 1, 1, 16, 4, 16, 1, 1, STAY>(v);
  add<E4M3, BF16, 2, 1, 8, 4, 14, 1, 1, STAY, 2>(v);
  add<E4M3, BF16, 2, 1, 8, 4, 16, 1, 1, STAY, 2>(v);
  add<E4M3, BF16, 1, 1, 16, 4, 14, 1, 1, STAY, 4>(v);
  add<E4M3, BF16, 1, 1, 16, 4, 16, 1, 1, STAY, 4>(v);
  add<E4M3, BF16, 4, 1, 4, 4, 14, 1, 1, STAY>(v);
  add<E4M3, BF16, 4, 1, 4, 4, 16, 1, 1, STAY>(v);
  add<BF16, BF16, 4, 1, 4, 5, 1, 4, 4, ALL>(v);
  add<BF16, BF16, 4, 1, 4, 3, 2, 2, 4, ALL>(v);
  add<BF16, BF16, 2, 1, 8, 3, 3, 1, 4, ALL>(v);
  add<BF16, BF16, 4, 1, 4, 3, 4, 1, 4, ALL>(v);
  add<BF16, BF16, 2, 1, 8, 3, 8, 1, 2, ALL>(v);
  add<BF16, BF16, 1, 1, 16, 3, 6, 1, 2, ALL>(v);
  add<BF16, BF16, 1, 1, 16, 4, 12, 1, 1, ALL>(v);
  add<BF16, BF16, 1, 2, 16, 3, 6, 1, 2, ALL>(v);
  add<BF16, BF16, 1, 2, 16, 4, 12, 1, 1, ALL>(v);
  return v;
}
