/* staged_wide.cu - e4m3 and bf16 weights, bf16 vectors. */
#include "staged.cuh"

std::vector<variant> staged_wide_variants() {
  std::vector<variant> v;
  add<E4M3, BF16, 4, 1, 1, 16, 1>(v);
  add<BF16, BF16, 4, 2, 2, 16, 1>(v);
  add<BF16, BF16, 4, 2, 2, 14, 1>(v);
  add<BF16, BF16, 4, 2, 2, 8, 2>(v);
  add<BF16, BF16, 4, 4, 2, 14, 1>(v);
  add<BF16, BF16, 2, 1, 2, 9, 2>(v);
  return v;
}
