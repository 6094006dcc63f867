/* attention_steps.cu - the library's portable attention kernel for many rows, complete and with one of its steps left
 * out. Their times show the gain of each step on a chip. attention_tile.cuh describes the steps. */
#include "attention_steps.h"

#include "../../kernels/attention/attention_loop.cuh"
#include "../../kernels/common/launch.cuh"

struct with_running_maximum : every_step {
  static constexpr bool one_reference = false;
};
struct without_eagerness : every_step {
  static constexpr bool eager = false;
};
struct without_order : every_step {
  static constexpr bool ordered = false;
};
struct without_flips : every_step {
  static constexpr bool flips = false;
};
struct without_swizzle : every_step {
  static constexpr bool swizzle = false;
};
#define DEFINE(name, about, steps, threads, blocks, parts, stages, held)                                               \
  DEFINE_KERNEL(                                                                                                       \
      EVERY_CHIP, attention_parameters, attention_##name, threads, blocks,                                             \
      attend<                                                                                                          \
          tiling<RONDO_BF16, ATTENTION_STEPS_DIMENSION, threads, parts, ATTENTION_STEPS_TILE, stages, held, steps>>)
ATTENTION_STEPS(DEFINE)
