/* gemm_softmax_select.c - which kernels a product takes: those of sm_90a where tensor maps can be made of its operands
 * and gemm_softmax_plan.c has one, else those of gemm_softmax.cu, with wide or narrow blocks of columns and what the
 * alignment of the rows allows. */
#include <assert.h>
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemm_softmax_plan.h"

struct variant {
  struct op_kernel kernel;
  rondo_dtype dtype;
  int64_t columns;
  bool is_softmax;
  uint32_t shared_bytes;
};

#define VARIANT(chips, parameters, name, threads, dtype, columns, is_softmax, blocks)                                  \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, columns, is_softmax, GEMM_SOFTMAX_SHARED_BYTES(columns)},
static const struct variant variants[] = {GEMM_SOFTMAX_KERNELS(VARIANT)};

static const struct variant *variant_of(const struct op_task *task, int64_t columns) {
  rondo_dtype dtype = task->operands[GEMM_A].dtype;
  bool is_softmax = task->op == &op_gemm_softmax;
  for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
    const struct variant *variant = &variants[i];
    if (variant->is_softmax == is_softmax && variant->dtype == dtype && variant->columns == columns) return variant;
  }
  assert(false && "a kernel for every task that passes the check");
  return NULL;
}

static uint32_t output_of(rondo_dtype dtype) {
  return dtype == RONDO_F32 ? GEMM_SOFTMAX_F32 : dtype == RONDO_F16 ? GEMM_SOFTMAX_F16 : GEMM_SOFTMAX_BF16;
}

/* ---- sm_90a ------------------------------------------------------------------------------------------------------ */

/* The operand with its batch dimension, of one where it is left out: kernels give three coordinates. */
static struct op_operand with_batch(const struct op_operand *operand) {
  struct op_operand three = *operand;
  if (operand->rank == 3) return three;
  three.rank = 3;
  three.shape[0] = 1, three.shape[1] = operand->shape[0], three.shape[2] = operand->shape[1];
  three.stride[0] = operand->shape[0] * operand->stride[0], three.stride[1] = operand->stride[0];
  three.stride[2] = operand->stride[1];
  return three;
}

static void map_add(struct op_launch *launch, size_t offset, const struct op_call *call, int which, int64_t rows,
                    int64_t columns) {
  struct op_operand operand = with_batch(&call->task->operands[which]);
  launch_map(launch, offset, &operand, call->data[which], (const uint32_t[]){1, (uint32_t)rows, (uint32_t)columns});
}

/* log2(e) |scale| must be a number too. */
enum { MOST_SCALE_EXPONENT = 126 };

static bool may_have_maps(const struct op_task *task, const struct gemm_softmax_shape *shape, const struct chip *chip) {
  if (chip->version != 90 || fabsf(shape->scale) > ldexpf(1, MOST_SCALE_EXPONENT)) return false;
  const int count = task->op == &op_gemm_softmax ? 3 : 2;
  for (int i = 0; i < count; i++) {
    struct op_operand operand = with_batch(&task->operands[i]);
    if (!has_tensor_map(&operand)) return false;
    /* A copy out writes pieces of 16 bytes whole, over what lies behind the last column. */
    if (operand.shape[2] * rondo_dtype_bits(operand.dtype) % 128 != 0) return false;
  }
  return true;
}

/* B's rows for teams, in the order in which they want them: {128 i, 16 j, l, k} for row 128 i + 16 j + l. Returns how
 * many groups of 128 there are from one matrix to the next, or 0 where there is no such view. */
static uint32_t groups_of(const struct op_call *call, const struct gemm_softmax_shape *shape,
                          struct op_operand *groups) {
  const int64_t row = shape->b_row_stride, group = TEAM_GROUP * row, each = shape->n / TEAM_GROUP;
  const int64_t stride = shape->batch > 1 ? shape->b_batch_stride : each * group;
  if (group <= 0 || shape->n % TEAM_GROUP != 0 || stride % group != 0) return 0;
  const int64_t count = stride / group;
  *groups = call->task->operands[GEMM_B];
  groups->rank = 4;
  groups->shape[0] = (shape->batch - 1) * count + each, groups->stride[0] = group;
  groups->shape[1] = 8, groups->stride[1] = 16 * row;
  groups->shape[2] = 16, groups->stride[2] = row;
  groups->shape[3] = shape->k, groups->stride[3] = 1;
  return groups->shape[0] <= INT32_MAX && has_tensor_map(groups) ? (uint32_t)count : 0;
}

static void map_add_groups(struct op_launch *launch, const struct op_call *call, const struct op_operand *groups) {
  launch_map(launch, offsetof(struct gemm_softmax_wgmma_parameters, b), groups, call->data[GEMM_B],
             (const uint32_t[]){TEAM_COLUMNS / TEAM_GROUP, 1, 16, WGMMA_DEPTH});
}

/* Adds the launch of a plan. */
static void wgmma_launch(const struct op_call *call, const struct gemm_softmax_shape *shape,
                         const struct gemm_softmax_plan *plan, uint32_t b_groups, const struct op_operand *groups,
                         struct op_launches *launches) {
  const bool is_softmax = call->task->op == &op_gemm_softmax;
  const rondo_dtype out = call->task->operands[GEMM_OUT].dtype;
  const float log2_e = 1.4426950408889634f, scale = fabsf(shape->scale);
  struct gemm_softmax_wgmma_parameters parameters = {
      .max = is_softmax ? NULL : call->data[GEMM_OUT],
      .max_batch_stride = shape->out_batch_stride,
      .max_row_stride = shape->out_row_stride,
      .batch = (uint32_t)shape->batch,
      .m = (uint32_t)shape->m,
      .n = (uint32_t)shape->n,
      .steps = (uint32_t)plan->steps,
      .tiles = (uint32_t)plan->tiles,
      .clusters = (uint32_t)plan->clusters,
      .blocks = (uint32_t)plan->column_blocks,
      .causal = shape->causal,
      .negative = shape->scale < 0,
      .output = output_of(out),
      .b_groups = b_groups,
      .factor = is_softmax ? scale * log2_e : scale,
  };
  struct op_launch *launch = launch_add(launches, &plan->variant->kernel, plan->grid, plan->variant->kernel.threads,
                                        (uint64_t)plan->shared_bytes, &parameters, sizeof parameters);
  map_add(launch, offsetof(struct gemm_softmax_wgmma_parameters, a), call, GEMM_A, plan->a_box_rows, WGMMA_DEPTH);
  if (plan->variant->steps)
    map_add_groups(launch, call, groups);
  else
    map_add(launch, offsetof(struct gemm_softmax_wgmma_parameters, b), call, GEMM_B, plan->b_box_rows, WGMMA_DEPTH);
  if (is_softmax)
    map_add(launch, offsetof(struct gemm_softmax_wgmma_parameters, p), call, GEMM_OUT, plan->p_box_rows,
            8 * WGMMA_BOX_BYTES / rondo_dtype_bits(out));
}

static bool wgmma_select(const struct op_call *call, const struct gemm_softmax_shape *shape, const struct chip *chip,
                         struct op_launches *launches) {
  if (!may_have_maps(call->task, shape, chip)) return false;
  struct op_operand groups;
  const uint32_t b_groups = groups_of(call, shape, &groups);
  const struct gemm_softmax_problem problem = {.dtype = call->task->operands[GEMM_A].dtype,
                                               .is_softmax = call->task->op == &op_gemm_softmax,
                                               .is_exact = call->task->operands[GEMM_OUT].dtype == RONDO_F32,
                                               .is_dealt = b_groups && !shape->causal,
                                               .batch = shape->batch,
                                               .m = shape->m,
                                               .n = shape->n,
                                               .k = shape->k,
                                               .multiprocessors = chip->multiprocessors};
  const struct gemm_softmax_plan plan = gemm_softmax_plan_of(&problem);
  if (!plan.variant || plan.shared_bytes > chip->shared_bytes) return false;
  wgmma_launch(call, shape, &plan, b_groups, &groups, launches);
  return true;
}

/* ---- Every chip -------------------------------------------------------------------------------------------------- */

rondo_status gemm_softmax_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_task *task = call->task;
  const struct op_operand *a = &task->operands[GEMM_A], *b = &task->operands[GEMM_B], *out = &task->operands[GEMM_OUT];
  launches->count = 0;
  if (op_elements(out) == 0) return RONDO_OK;
  struct gemm_softmax_shape shape = gemm_softmax_shape_of(task);
  if (wgmma_select(call, &shape, chip, launches)) return RONDO_OK;
  int64_t row_tiles = divide_up(shape.m, GEMM_SOFTMAX_ROWS), blocks = row_tiles * shape.batch;
  if (blocks > INT32_MAX)
    return status_set(RONDO_UNSUPPORTED, "a has %lld tiles of %d rows, expected at most 2^31 - 1", (long long)blocks,
                      GEMM_SOFTMAX_ROWS);
  const struct variant *variant = variant_of(task, shape.n > 64 ? 128 : 64);
  if (variant->shared_bytes > (uint32_t)chip->shared_bytes)
    return status_set(RONDO_UNSUPPORTED, "a block needs %u bytes of shared memory, the chip has %d",
                      variant->shared_bytes, (int)chip->shared_bytes);
  struct gemm_softmax_parameters parameters = {
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
      .row_tiles = (uint32_t)row_tiles,
      .scale = shape.scale,
      .causal = shape.causal,
      .vectors = op_rows_aligned(a, 16) && op_rows_aligned(b, 16),
      .pairs = task->op == &op_gemm_softmax && op_rows_aligned(out, rondo_dtype_bits(out->dtype) / 4),
      .output = output_of(out->dtype),
  };
  launch_add(launches, &variant->kernel, blocks, GEMM_THREADS, variant->shared_bytes, &parameters, sizeof parameters);
  return RONDO_OK;
}
