/* gemv.h - products of a matrix with up to 16 vectors, and quantising to NVFP4: the rows of the operation table, and
 * what host code and kernels tell each other.
 *
 * k may be cut into slices (split-K) where rows alone do not fill a GPU. The cut follows from the shape only, so that
 * a plan is good for every chip. With one slice the first kernel writes the result; with more it writes fp32 partial
 * sums [slices][batch][count][m] to the scratch, and a second kernel adds them in order. */
#ifndef RONDO_GEMV_H
#define RONDO_GEMV_H

#include <stdint.h>

#include "../../runtime/completion.h"
#include <rondo.h>

enum {
  GEMV_COUNT = 16,      /* the most vectors */
  GEMV_BLOCK = 16,      /* nvfp4: elements that share a scale */
  GEMV_LOAD_BYTES = 16, /* of weights, per lane and step */
  GEMV_WARPS = 4,       /* of a thread block: each has rows of its own */
  GEMV_THREADS = 32 * GEMV_WARPS,
  GEMV_REDUCE_THREADS = 128,
  QUANTIZE_THREADS = 256,
  QUANTIZE_ELEMENTS = 8, /* of a thread: two neighbours share a block */
  QUANTIZE_OUTER = 3,    /* dimensions around the rows */
};

/* rondo_gemv_* and rondo_gemv_reduce. Strides are bytes for weights, vectors and e4m3 scales, elements for f32 scales
 * and the result. */
struct gemv_parameters {
  const void *weights, *weight_scales, *vectors, *vector_scales;
  void *out;
  float *partials; /* used if slices > 1 */
  int64_t weight_batch, weight_row;
  int64_t weight_scale_batch, weight_scale_row;
  int64_t vector_batch, vector_row;
  int64_t vector_scale_batch, vector_scale_row;
  int64_t out_batch, out_row;
  uint32_t batch, m, k, count;
  uint32_t row_groups; /* of one matrix: what a warp computes */
  uint32_t warps;      /* batch x row_groups */
  uint32_t slice;      /* elements of k */
  uint32_t slices;
  uint32_t weight_dtype, vector_dtype, out_dtype; /* rondo_dtype */
  float scale;
  struct completion done;
};

/* rondo_quantize_nvfp4. Strides are elements for x, bytes for codes and scales. */
struct quantize_parameters {
  const void *x;
  unsigned char *codes, *scales;
  int64_t x_stride[QUANTIZE_OUTER], code_stride[QUANTIZE_OUTER], scale_stride[QUANTIZE_OUTER];
  uint32_t extent[QUANTIZE_OUTER]; /* outermost first; 1 where there is no dimension */
  uint32_t row_parts;              /* of QUANTIZE_ELEMENTS, in a row */
  uint32_t parts;                  /* in all */
  uint32_t dtype;                  /* rondo_dtype of x */
  uint32_t aligned;                /* 16-byte loads of x and 4-byte stores of codes are possible */
  float global_scale, six_global_scale;
  struct completion done;
};

/* Those with 16-byte loads. KERNEL(chips, parameters, name, threads, weights, vectors, rows of a warp, vectors of a
 * pass, blocks that a multiprocessor must hold at least). A warp has two rows, and four where unpacking a single vector
 * costs as much as a row. The rest of the registers is for loads under way. Of the entries of a pair of types the first
 * that fits is taken. */
#define GEMV_KERNELS(KERNEL)                                                                                           \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_f16_x1, GEMV_THREADS, RONDO_F16, RONDO_F16, 2, 1, 6)                  \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_f16_x4, GEMV_THREADS, RONDO_F16, RONDO_F16, 2, 4, 5)                  \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_bf16_x1, GEMV_THREADS, RONDO_BF16, RONDO_BF16, 2, 1, 6)               \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_bf16_x4, GEMV_THREADS, RONDO_BF16, RONDO_BF16, 2, 4, 5)               \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_e4m3_f16_x1, GEMV_THREADS, RONDO_E4M3, RONDO_F16, 2, 1, 6)            \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_e4m3_f16_x4, GEMV_THREADS, RONDO_E4M3, RONDO_F16, 2, 4, 4)            \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_e4m3_bf16_x1, GEMV_THREADS, RONDO_E4M3, RONDO_BF16, 2, 1, 6)          \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_e4m3_bf16_x4, GEMV_THREADS, RONDO_E4M3, RONDO_BF16, 2, 4, 4)          \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_nvfp4_f16_x1, GEMV_THREADS, RONDO_NVFP4, RONDO_F16, 4, 1, 4)          \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_nvfp4_f16_x4, GEMV_THREADS, RONDO_NVFP4, RONDO_F16, 2, 4, 3)          \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_nvfp4_bf16_x1, GEMV_THREADS, RONDO_NVFP4, RONDO_BF16, 4, 1, 4)        \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_nvfp4_bf16_x4, GEMV_THREADS, RONDO_NVFP4, RONDO_BF16, 2, 4, 3)        \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_nvfp4_nvfp4_x1, GEMV_THREADS, RONDO_NVFP4, RONDO_NVFP4, 4, 1, 4)      \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_nvfp4_nvfp4_x4, GEMV_THREADS, RONDO_NVFP4, RONDO_NVFP4, 2, 4, 3)

/* KERNEL(chips, parameters, name, threads, blocks as above, what it calls). With fewer blocks ptxas spills the scalar
 * one on sm_80. */
#define GEMV_OTHER_KERNELS(KERNEL)                                                                                     \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_scalar, GEMV_THREADS, 8, gemv_scalar)                                 \
  KERNEL(EVERY_CHIP, gemv_parameters, rondo_gemv_reduce, GEMV_REDUCE_THREADS, 0, reduce)
#define QUANTIZE_KERNELS(KERNEL)                                                                                       \
  KERNEL(EVERY_CHIP, quantize_parameters, rondo_quantize_nvfp4, QUANTIZE_THREADS, 0, quantize)

#ifndef __CUDACC__
#include "../../runtime/op.h"

extern const struct op op_gemv;
extern const struct op op_quantize_nvfp4;

enum { GEMV_WEIGHTS, GEMV_WEIGHT_SCALES, GEMV_VECTORS, GEMV_VECTOR_SCALES, GEMV_OUT, GEMV_OPERANDS };

struct gemv_attributes {
  float scale; /* never 0 */
};

/* The sizes, and how k is cut. */
struct gemv_shape {
  int64_t batch, m, k, count;
  int64_t slice; /* elements; a multiple of what a warp reads of a row in one step */
  int64_t slices;
};
struct gemv_shape gemv_shape_of(const struct op_task *task);
/* An operand's stride from one matrix, or set of vectors, to the next; 0 without a batch dimension. */
int64_t gemv_batch_stride(const struct op_operand *operand);

int64_t gemv_host_items(const struct op_task *task);
void gemv_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status gemv_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);

enum { QUANTIZE_X, QUANTIZE_CODES, QUANTIZE_SCALES, QUANTIZE_OPERANDS };

struct quantize_attributes {
  float global_scale; /* never 0 */
};

int64_t quantize_host_items(const struct op_task *task);
void quantize_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status quantize_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
#endif
