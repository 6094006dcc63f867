/* quads_nvfp4.cu - NVFP4 weights, NVFP4 vectors. */
#include "quads_list.h"

std::vector<variant> quads_nvfp4_variants() {
  std::vector<variant> v;
  add_all<NVFP4>(v);
  return v;
}
