/* staged_nvfp4.cu - NVFP4 weights, NVFP4 vectors. */
#include "staged.cuh"

std::vector<variant> staged_nvfp4_variants() {
  std::vector<variant> v;
  add<NVFP4, NVFP4, 4, 1, 1, 16, 1>(v);
  add<NVFP4, NVFP4, 2, 1, 2, 16, 1>(v);
  add<NVFP4, NVFP4, 2, 1, 2, 8, 2>(v);
  return v;
}
