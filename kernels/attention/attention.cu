/* attention.cu - the kernels of attention.h's list: attention_loop.cuh, made for their sizes. */
#include "../common/launch.cuh"
#include "attention_loop.cuh"

#if __CUDA_ARCH__ >= 900
#define STAGES(stages, stages_80) stages
#else
#define STAGES(stages, stages_80) stages_80
#endif
#define DEFINE(chips, parameters, name, threads, blocks, type, dimension, parts, tile, stages, stages_80, held)        \
  DEFINE_KERNEL(chips, parameters, name, threads, blocks,                                                              \
                attend<tiling<type, dimension, threads, parts, tile, STAGES(stages, stages_80), held>>)
ATTENTION_KERNELS(DEFINE)
