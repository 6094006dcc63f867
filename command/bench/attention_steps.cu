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
#define DEFINE_FOR(name, steps, threads, blocks, dimension, parts, stages, held)                                       \
  DEFINE_KERNEL(                                                                                                       \
      EVERY_CHIP, attention_parameters, name, threads, blocks,                                                         \
      attend<tiling<RONDO_BF16, dimension, threads, parts, ATTENTION_STEPS_TILE(dimension), stages, held, steps>>)
#define DEFINE(name, about, steps, threads, blocks, parts, stages, held_128, held_64)                                  \
  DEFINE_FOR(attention_##name##_128, steps, threads, blocks, 128, parts, stages, held_128)                             \
  DEFINE_FOR(attention_##name##_64, steps, threads, blocks, 64, parts, stages, held_64)
ATTENTION_STEPS(DEFINE)
