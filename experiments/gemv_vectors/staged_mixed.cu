/* staged_mixed.cu - NVFP4 weights, bf16 vectors. */
#include "staged.cuh"

std::vector<variant> staged_mixed_variants() {
  std::vector<variant> v;
  add<NVFP4, BF16, 4, 1, 1, 16, 1>(v);
  add<NVFP4, BF16, 2, 1, 2, 16, 1>(v);
  add<NVFP4, BF16, 2, 1, 2, 8, 2>(v);
  return v;
}
