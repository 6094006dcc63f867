/* quads_mixed.cu - NVFP4 weights, bf16 vectors. */
#include "quads_list.h"

std::vector<variant> quads_mixed_variants() {
  std::vector<variant> v;
  add_all<BF16>(v);
  return v;
}
