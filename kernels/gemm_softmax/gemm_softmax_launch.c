/* gemm_softmax_launch.c - the problem of a task, and the launch of a plan: parameters and tensor maps. */
#include <math.h>

#include "../common/launch.h"
#include "gemm_softmax_choose.h"

static uint32_t output_of(rondo_dtype dtype) {
  return dtype == RONDO_F32 ? GEMM_SOFTMAX_F32 : dtype == RONDO_F16 ? GEMM_SOFTMAX_F16 : GEMM_SOFTMAX_BF16;
}

/* ---- sm_90a ------------------------------------------------------------------------------------------------------ */

static void map_add(struct op_launch *launch, size_t offset, const struct op_call *call, int which, int64_t rows,
                    int64_t columns) {
  struct op_operand operand = with_batch(&call->task->operands[which]);
  launch_map(launch, offset, &operand, call->data[which], (const uint32_t[]){1, (uint32_t)rows, (uint32_t)columns});
}

/* log2(e) |scale| is finite too. */
enum { MOST_SCALE_EXPONENT = 126 };

static bool may_have_maps(const struct op_task *task, const struct gemm_softmax_shape *shape, const struct chip *chip) {
  if (chip->version != 90 || fabsf(shape->scale) > ldexpf(1, MOST_SCALE_EXPONENT)) return false;
  const int count = task->op == &op_gemm_softmax ? 3 : 2;
  for (int i = 0; i < count; i++) {
    struct op_operand operand = with_batch(&task->operands[i]);
    if (!has_tensor_map(&operand)) return false;
    /* A copy out writes whole pieces of 16 bytes, also past the last column. */
    if (operand.shape[2] * rondo_dtype_bits(operand.dtype) % 128 != 0) return false;
  }
  return true;
}

/* B's rows in the order of the staggered kernels: {128 i, 16 j, l, k} for row 128 i + 16 j + l. Returns the number of
 * groups of 128 from one matrix to the next, or 0 if there is no such view. */
static uint32_t groups_of(const struct op_call *call, const struct gemm_softmax_shape *shape,
                          struct op_operand *groups) {
  const int64_t row = shape->b_row_stride, group = STAGGERED_GROUP * row, each = shape->n / STAGGERED_GROUP;
  const int64_t stride = shape->batch > 1 ? shape->b_batch_stride : each * group;
  if (group <= 0 || shape->n % STAGGERED_GROUP != 0 || stride % group != 0) return 0;
  const int64_t count = stride / group;
  *groups = call->task->operands[GEMM_B];
  groups->rank = 4;
  groups->shape[0] = (shape->batch - 1) * count + each, groups->stride[0] = group;
  groups->shape[1] = 8, groups->stride[1] = 16 * row;
  groups->shape[2] = 16, groups->stride[2] = row;
  groups->shape[3] = shape->k, groups->stride[3] = 1;
  return groups->shape[0] <= INT32_MAX && has_tensor_map(groups) ? (uint32_t)count : 0;
}

struct gemm_softmax_problem gemm_softmax_problem_of(const struct op_call *call, const struct chip *chip) {
  const struct gemm_softmax_shape shape = gemm_softmax_shape_of(call->task);
  struct op_operand groups;
  const bool has_maps = may_have_maps(call->task, &shape, chip);
  return (struct gemm_softmax_problem){.is_softmax = call->task->op == &op_gemm_softmax,
                                       .is_exact = call->task->operands[GEMM_OUT].dtype == RONDO_F32,
                                       .has_maps = has_maps,
                                       .is_dealt = has_maps && !shape.causal && groups_of(call, &shape, &groups),
                                       .batch = shape.batch,
                                       .m = shape.m,
                                       .n = shape.n,
                                       .k = shape.k,
                                       .multiprocessors = chip->multiprocessors,
                                       .shared_bytes = chip->shared_bytes};
}

/* With the map of A. */
static struct op_launch *launch_begin(const struct op_call *call, const struct gemm_softmax_plan *plan,
                                      uint32_t b_groups, struct op_launches *launches) {
  const bool is_softmax = call->task->op == &op_gemm_softmax;
  const struct gemm_softmax_shape shape = gemm_softmax_shape_of(call->task);
  const rondo_dtype out = call->task->operands[GEMM_OUT].dtype;
  const float log2_e = 1.4426950408889634f, scale = fabsf(shape.scale);
  const struct gemm_softmax_wgmma_parameters parameters = {
      .max = is_softmax ? NULL : call->data[GEMM_OUT],
      .max_batch_stride = shape.out_batch_stride,
      .max_row_stride = shape.out_row_stride,
      .batch = (uint32_t)shape.batch,
      .m = (uint32_t)shape.m,
      .n = (uint32_t)shape.n,
      .steps = (uint32_t)plan->steps,
      .tiles = (uint32_t)plan->tiles,
      .row_blocks = (uint32_t)plan->row_blocks,
      .row_blocks_log2 = (uint32_t)__builtin_ctzll((unsigned long long)plan->row_blocks),
      .groups = (uint32_t)plan->groups,
      .blocks = (uint32_t)plan->column_blocks,
      .is_bf16 = call->task->operands[GEMM_A].dtype == RONDO_BF16,
      .causal = shape.causal,
      .negative = shape.scale < 0,
      .output = output_of(out),
      .b_groups = b_groups,
      .factor = is_softmax ? scale * log2_e : scale,
  };
  struct op_launch *launch = launch_add(launches, plan->kernel, plan->grid, plan->kernel->threads,
                                        (uint64_t)plan->shared_bytes, &parameters, sizeof parameters);
  map_add(launch, offsetof(struct gemm_softmax_wgmma_parameters, a), call, GEMM_A, plan->a_box_rows, WGMMA_DEPTH);
  return launch;
}

static void map_add_p(struct op_launch *launch, const struct op_call *call, const struct gemm_softmax_plan *plan) {
  map_add(launch, offsetof(struct gemm_softmax_wgmma_parameters, p), call, GEMM_OUT, plan->p_box_rows,
          8 * WGMMA_BOX_BYTES / rondo_dtype_bits(call->task->operands[GEMM_OUT].dtype));
}

void gemm_softmax_wgmma_launch(const struct op_call *call, const struct gemm_softmax_plan *plan,
                               struct op_launches *launches) {
  struct op_launch *launch = launch_begin(call, plan, 0, launches);
  map_add(launch, offsetof(struct gemm_softmax_wgmma_parameters, b), call, GEMM_B, plan->b_box_rows, WGMMA_DEPTH);
  if (call->task->op == &op_gemm_softmax) map_add_p(launch, call, plan);
}

void gemm_softmax_staggered_launch(const struct op_call *call, const struct gemm_softmax_plan *plan,
                                   struct op_launches *launches) {
  const struct gemm_softmax_shape shape = gemm_softmax_shape_of(call->task);
  struct op_operand groups;
  const uint32_t count = groups_of(call, &shape, &groups);
  struct op_launch *launch = launch_begin(call, plan, count, launches);
  launch_map(launch, offsetof(struct gemm_softmax_wgmma_parameters, b), &groups, call->data[GEMM_B],
             (const uint32_t[]){STAGGERED_COLUMNS / STAGGERED_GROUP, 1, (uint32_t)plan->b_box_rows, WGMMA_DEPTH});
  map_add_p(launch, call, plan);
}

/* ---- Every chip -------------------------------------------------------------------------------------------------- */

void gemm_softmax_portable_launch(const struct op_call *call, const struct gemm_softmax_plan *plan,
                                  struct op_launches *launches) {
  const struct op_task *task = call->task;
  const struct op_operand *a = &task->operands[GEMM_A], *b = &task->operands[GEMM_B], *out = &task->operands[GEMM_OUT];
  const struct gemm_softmax_shape shape = gemm_softmax_shape_of(task);
  const struct gemm_softmax_parameters parameters = {
      .a = call->data[GEMM_A],
      .b = call->data[GEMM_B],
      .out = call->data[GEMM_OUT],
      .a_batch_stride = shape.a_batch_stride,
      .a_row_stride = shape.a_row_stride,
      .b_batch_stride = shape.b_batch_stride,
      .b_row_stride = shape.b_row_stride,
      .out_batch_stride = shape.out_batch_stride,
      .out_row_stride = shape.out_row_stride,
      .m = shape.m,
      .n = shape.n,
      .k = shape.k,
      .row_tiles = (uint32_t)plan->tiles,
      .scale = shape.scale,
      .is_softmax = task->op == &op_gemm_softmax,
      .is_bf16 = a->dtype == RONDO_BF16,
      .causal = shape.causal,
      .vectors = op_rows_aligned(a, 16) && op_rows_aligned(b, 16),
      .pairs = task->op == &op_gemm_softmax && op_rows_aligned(out, rondo_dtype_bits(out->dtype) / 4),
      .output = output_of(out->dtype),
  };
  launch_add(launches, plan->kernel, plan->grid, GEMM_THREADS, (uint64_t)plan->shared_bytes, &parameters,
             sizeof parameters);
}
