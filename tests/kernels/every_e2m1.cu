/* every_e2m1.cu - the task of every_e2m1.h as a kernel of the user's own. */
#include "every_e2m1.h"

extern "C" __global__ void every_e2m1_kernel(uint32_t *pairs, e2m1_layout *layout) {
  every_e2m1(threadIdx.x, blockDim.x, pairs, layout);
}
