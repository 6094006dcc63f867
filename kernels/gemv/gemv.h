/* gemv.h - products of a matrix with up to 16 vectors, and quantising to NVFP4: the operations, and what host code
 * tells kernels. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"
#include <rondo.h>

enum {
  GEMV_COUNT = 16,       /* the most vectors */
  GEMV_BLOCK = 16,       /* nvfp4: elements that share a scale */
  GEMV_SCALE_ROWS = 128, /* of a tile of blocked scales */
  GEMV_SCALE_COLUMNS = 4,
  GEMV_MOST_PARTS = 16,   /* warps of a block that split k */
  GEMV_PITCH_PADDING = 4, /* floats after a vector's sums in shared memory, against conflicts of banks */
  QUANTIZE_THREADS = 256,
  QUANTIZE_OUTER = 3, /* dimensions around the rows */
};

/* The type of operands in kernels that take both f16 and bf16. The parameters have the type of the vectors. */
#define GEMV_16_BITS ((rondo_dtype)0)

/* Bytes between NVFP4's scales, in either layout: of one row and the next within 32; what a step to the next 32 rows,
 * and to the next 128, has more than that (modulo 2^32); and of four blocks of a row. */
struct gemv_scale_strides {
  uint32_t row, more_32, more_128, four;
};

enum gemv_early {
  GEMV_READS_EARLY = 1, /* no task of the graph writes weights and their scales: they are read before the predecessors
                           end */
  GEMV_STARTS_ONE = 2,  /* successors start after the wait, not at once: see gemv_addresses.cuh */
  GEMV_NORM_EARLY = 4,  /* no task writes norm either, and there is one */
  GEMV_OVER_RANKS = 8,  /* results go to all ranks, and blocks after those of the tiles add up what has come: see
                           exchange_rows.h */
};

/* The epilogue: operations on results after the product and its factor. */
struct gemv_epilogue {
  uint32_t silu_mul, bias_dtype, residual_dtype;    /* types: rondo_dtype, as everywhere */
  const void *bias, *residual;                      /* NULL: none */
  int64_t bias_batch, residual_batch, residual_row; /* elements */
  unsigned char *out_scales;
  int64_t out_scale_batch, out_scale_row;
  float out_global_scale, six_out_global_scale;
};

/* What every design is told. A block has `groups` x `parts` warps: a group has rows of its own, and its parts split k
 * among them. `chunks` times, one after the other, they cover the block's share of k. In the designs for short rows, a
 * part is a load of 16 bytes of a row.
 *
 * The order is that of need: a kernel reads its parameters by lines of 64 bytes, of which the first has 48 for them,
 * and each line costs a short kernel some 70 ns (H200). */
struct gemv_parameters {
  const unsigned char *weights, *weight_scales, *vectors, *vector_scales;
  uint32_t m, k;
  uint32_t always_zero; /* branches on it keep the compiler from moving loads */
  uint16_t early;       /* of enum gemv_early */
  uint16_t vector_dtype;

  uint32_t parts, groups;
  uint32_t part_reciprocal; /* 2^16 / parts, rounded up: warp * part_reciprocal / 2^16 is the warp's group */
  uint32_t count;
  uint32_t weight_row, vector_row; /* bytes; 32 bits are enough where there are two, of a tensor's 2^31 elements */
  /* From one matrix, or set of vectors, to the next: in units of 16 bytes. Of scales: bytes of NVFP4's, elements of
   * e4m3's. */
  uint32_t weight_batch, vector_batch, weight_scale_batch, vector_scale_batch;
  struct gemv_scale_strides weight_scale_strides;
  uint32_t vector_scale_row, vector_scale_four; /* bytes; there are never more than 16 */

  void *out;
  int64_t out_batch, out_row; /* elements */
  struct completion done;
  uint32_t tiles;     /* of a block's rows, in one matrix */
  uint32_t finishing; /* 0: results are sums times factors, and `epilogue` is not read */
  uint32_t out_dtype;
  float scale;
  float norm_epsilon; /* 0: vectors are taken as they are */
  float mean_factor;  /* 1 / k */
  uint32_t chunks;
  uint32_t weight_dtype;

  const void *norm; /* [k], of the vectors' type; NULL: 1 */
  struct gemv_epilogue epilogue;
};

/* A design's own parameters follow the common ones: in CUDA those are its base, in C its first member. */
#ifdef __cplusplus
#define GEMV_PARAMETERS(name) struct name : gemv_parameters
#define GEMV_COMMON
#else
#define GEMV_PARAMETERS(name) struct name
#define GEMV_COMMON           struct gemv_parameters common;
#endif

/* rondo_quantize_nvfp4. Strides are elements for x, bytes for codes and scales. */
struct quantize_parameters {
  const void *x;
  unsigned char *codes, *scales;
  int64_t x_stride[QUANTIZE_OUTER], code_stride[QUANTIZE_OUTER], scale_stride[QUANTIZE_OUTER];
  uint32_t extent[QUANTIZE_OUTER]; /* outermost first; 1 where there is no dimension */
  uint32_t row_blocks, blocks;     /* of GEMV_BLOCK elements, in a row and in all */
  uint32_t dtype;                  /* rondo_dtype of x */
  uint32_t aligned;                /* 16-byte loads of x and 8-byte stores of codes are possible */
  float global_scale, six_global_scale;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, blocks that a multiprocessor must hold at least, what it calls). */
#define QUANTIZE_KERNELS(KERNEL)                                                                                       \
  KERNEL(EVERY_CHIP, quantize_parameters, rondo_quantize_nvfp4, QUANTIZE_THREADS, 8, quantize)

#ifndef __CUDACC__
#include "../../runtime/op.h"

extern const struct op op_gemv, op_summed_gemv;
extern const struct op op_quantize_nvfp4;

enum {
  GEMV_WEIGHTS,
  GEMV_WEIGHT_SCALES,
  GEMV_VECTORS,
  GEMV_VECTOR_SCALES,
  GEMV_OUT,
  GEMV_NORM,
  GEMV_BIAS,
  GEMV_RESIDUAL,
  GEMV_OUT_SCALES,
  GEMV_OPERANDS
};

struct gemv_attributes {
  float scale;                                      /* never 0 */
  float norm_epsilon;                               /* 0: vectors are taken as they are */
  float out_global_scale;                           /* as described: 0 means 1 */
  int32_t weight_scale_layout, vector_scale_layout; /* rondo_scale_layout */
  int32_t one_order, silu_mul;                      /* 0 or 1 */
  int32_t has_scratch;                              /* 1: a task of its own; 0: a step, which has no scratch */
};

/* A task's arguments, GEMV_OPERANDS, and attributes. */
void gemv_describe(const rondo_gemv_desc *desc, struct op_argument *arguments, struct gemv_attributes *attributes);

struct gemv_shape {
  int64_t batch, m, k, count;
  int64_t columns; /* of out: m, or half of it */
};
struct gemv_shape gemv_shape_of(const struct op_task *task);
/* An operand's stride from one matrix, or set of vectors, to the next; 0 without a batch dimension. */
int64_t gemv_batch_stride(const struct op_operand *operand);

/* The byte at which a scale of a matrix lies in the blocked layout, from the matrix's first; `row_bytes` is the width
 * of its rows. */
static inline int64_t gemv_blocked_scale(int64_t row, int64_t block, int64_t row_bytes) {
  int64_t inside = row % GEMV_SCALE_ROWS;
  return row / GEMV_SCALE_ROWS * GEMV_SCALE_ROWS * row_bytes + block / 4 * 512 + inside % 32 * 16 + inside / 32 * 4 +
         block % 4;
}

OP_FUNCTIONS(gemv);
/* gemm has the same operands. Of weights and vectors the ranks, 2 or 3 for a batch, k, and the number of vectors; after
 * that the shapes of out, bias and residual. */
rondo_status gemv_check_matrices(const struct op_task *task, int most_vectors);
rondo_status gemv_check_results(const struct op_task *task);
/* Of operand `index`, the scales of the operand before it. `blocks` is [batch, rows, k / 16], cut to `rank`. */
rondo_status gemv_check_scales(const struct op_task *task, uint32_t index, int32_t layout, uint32_t rank,
                               const int64_t *blocks);
struct gemv_scale_strides gemv_scale_strides_of(const struct op_operand *scales, int32_t layout);
/* Tiles of blocked scales have padding after the matrix, which is not read. */
int64_t gemv_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
enum { GEMV_HOST_ROWS = 32 }; /* of an item: whole blocks of NVFP4 results, of pairs of rows too */
/* Columns of rows of weights or vectors, from an address that is a multiple of 64 on, `pitch` apart, with zeros behind
 * them up to a multiple of 32: each 32 in the order of decoded weights (gemv_panel.h). Weights are not e4m3. */
void gemv_host_decode(const struct op_call *call, uint32_t index, int64_t batch, int64_t row, int64_t rows,
                      int64_t column, int64_t columns, float *tile, int64_t pitch);
/* Results of one vector from the sums of an item's rows, first_row .. first_row + rows - 1, which are overwritten;
 * `factor` is what each is multiplied with. */
void gemv_host_finish(const struct op_call *call, int64_t batch, int64_t vector, int64_t first_row, int64_t rows,
                      float factor, float *sums);

/* gemv_ranks.c: a product, the sum of all ranks' products, and a residual. */
rondo_status summed_gemv_check(const struct op_task *task);
uint64_t summed_gemv_scratch_bytes(const struct op_task *task);
int64_t summed_gemv_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
bool summed_gemv_step(const struct op_call *call, uint32_t index, struct op_step *step);
rondo_status summed_gemv_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
/* Both as one launch; false: no kernel takes them so. */
bool gemv_rows_select(const struct op_call *product, const struct op_call *sum, const struct chip *chip,
                      struct op_launches *launches);

enum { QUANTIZE_X, QUANTIZE_CODES, QUANTIZE_SCALES, QUANTIZE_OPERANDS };

struct quantize_attributes {
  float global_scale; /* never 0 */
};

OP_FUNCTIONS(quantize);
/* 16 values to 8 bytes of codes, and the block's scale. */
uint8_t quantize_host_block(const float *values, float global_scale, uint8_t *codes);
#endif
