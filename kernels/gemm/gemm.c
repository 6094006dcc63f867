/* gemm.c - describing a product with many vectors: rondo_add_gemm and its check. */
#include "gemm.h"

#include <inttypes.h>

#include "../../runtime/integer.h"
#include "../../runtime/layer_form.h"
#include "../common/rows.h"

rondo_status rondo_add_gemm(rondo_graph *graph, const rondo_gemm_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_gemm: the description is NULL");
  struct op_argument arguments[GEMM_OPERANDS] = {
      [GEMV_WEIGHTS] = {"weights", desc->weights, RONDO_READ, 0},
      [GEMV_WEIGHT_SCALES] = {"weight_scales", desc->weight_scales, RONDO_READ, 0},
      [GEMV_VECTORS] = {"vectors", desc->vectors, RONDO_READ, 0},
      [GEMV_VECTOR_SCALES] = {"vector_scales", desc->vector_scales, RONDO_READ, 0},
      [GEMV_OUT] = {"out", desc->out, RONDO_WRITE, 0},
      [GEMV_NORM] = {"norm", desc->norm, RONDO_READ, 0},
      [GEMV_BIAS] = {"bias", desc->bias, RONDO_READ, 0},
      [GEMV_RESIDUAL] = {"residual", desc->residual, RONDO_READ, GEMV_OUT + 1},
      [GEMV_OUT_SCALES] = {.name = "out_scales", .access = RONDO_WRITE},
      [GEMM_NORMED] = {"normed", desc->normed, RONDO_WRITE, 0},
      [GEMM_SQUARES] = {"squares", desc->squares, RONDO_WRITE, 0},
      [GEMM_VECTOR_SQUARES] = {"vector_squares", desc->vector_squares, RONDO_READ, 0},
  };
  struct gemv_attributes attributes = {.scale = f32_or(desc->scale, 1.0f),
                                       .norm_epsilon = desc->norm_epsilon,
                                       .weight_scale_layout = (int32_t)desc->weight_scale_layout,
                                       .one_order = desc->one_order != 0,
                                       .silu_mul = desc->silu_mul != 0,
                                       .has_scratch = 1};
  return graph_add(graph, &op_gemm, desc->name, arguments, GEMM_OPERANDS, &attributes, sizeof attributes);
}

/* ---- Check ------------------------------------------------------------------------------------------------------ */

static rondo_status check_dtypes(const struct op_task *task) {
  const rondo_dtype weights = task->operands[GEMV_WEIGHTS].dtype, vectors = task->operands[GEMV_VECTORS].dtype;
  if (weights != RONDO_F16 && weights != RONDO_BF16 && weights != RONDO_E4M3 && weights != RONDO_NVFP4)
    return op_refuse("weights are %s, expected f16, bf16, e4m3 or nvfp4", rondo_dtype_name(weights));
  if (weights == RONDO_NVFP4 && vectors != RONDO_F16 && vectors != RONDO_BF16)
    return op_refuse("vectors are %s, expected f16 or bf16 with weights in nvfp4", rondo_dtype_name(vectors));
  if (weights != RONDO_NVFP4 && vectors != weights)
    return op_refuse("vectors are %s, expected %s as weights are", rondo_dtype_name(vectors),
                     rondo_dtype_name(weights));
  if (!rows_are_numbers(task->operands[GEMV_OUT].dtype))
    return op_refuse("out is %s, expected f16, bf16 or f32", rondo_dtype_name(task->operands[GEMV_OUT].dtype));
  return RONDO_OK;
}

/* Of vectors in e4m3. */
static rondo_status check_e4m3(const struct op_task *task) {
  const struct gemv_shape shape = gemv_shape_of(task);
  const int64_t lists[] = {shape.batch, shape.count};
  const uint32_t rank = task->operands[GEMV_WEIGHTS].rank;
  if (task->operands[GEMV_VECTORS].dtype == RONDO_E4M3 && gemm_has_norms(task))
    return op_refuse("%s is present, expected none with vectors in e4m3",
                     task->operands[GEMM_NORMED].present ? "normed" : "vector_squares");
  return gemv_check_scales(task, GEMV_VECTOR_SCALES, RONDO_SCALES_BY_ROW, rank, lists + 3 - rank);
}

/* What makes an RMS norm of two products: a second result, and factors of rows. */
static rondo_status check_norms(const struct op_task *task, int64_t columns) {
  const struct op_operand *operands = task->operands, *normed = &operands[GEMM_NORMED];
  const struct gemv_attributes *attributes = op_attributes(task);
  const struct gemv_shape shape = gemv_shape_of(task);
  const rondo_dtype dtype = operands[GEMV_VECTORS].dtype;
  const uint32_t rank = operands[GEMV_WEIGHTS].rank, first = 3 - rank;
  const int64_t results[] = {shape.batch, shape.count, columns};
  const int64_t squares[] = {shape.batch, gemm_groups(columns), shape.count};
  const int64_t of_vectors[] = {shape.batch, gemm_groups(shape.k), shape.count};
  if (operands[GEMV_NORM].present || normed->present || operands[GEMM_SQUARES].present) {
    OP_TRY(op_expect("norm", &operands[GEMV_NORM], dtype, 1, &columns));
    OP_TRY(op_expect("normed", normed, dtype, rank, results + first));
    OP_TRY(op_expect("squares", &operands[GEMM_SQUARES], RONDO_F32, rank, squares + first));
    if (attributes->silu_mul || attributes->one_order)
      return op_refuse("%s is 1, expected 0 with normed", attributes->silu_mul ? "silu_mul" : "one_order");
  }
  if (!operands[GEMM_VECTOR_SQUARES].present) {
    if (attributes->norm_epsilon == 0) return RONDO_OK;
    return op_refuse("norm_epsilon is %g, expected 0 without vector_squares", (double)attributes->norm_epsilon);
  }
  OP_TRY(op_expect_not_negative("norm_epsilon", attributes->norm_epsilon));
  return op_expect("vector_squares", &operands[GEMM_VECTOR_SQUARES], RONDO_F32, rank, of_vectors + first);
}

rondo_status gemm_check(const struct op_task *task) {
  const struct gemv_attributes *attributes = op_attributes(task);
  OP_TRY(gemv_check_matrices(task, GEMM_MOST_ROWS));
  OP_TRY(check_dtypes(task));
  OP_TRY(op_expect_finite("scale", attributes->scale));
  const struct gemv_shape shape = gemv_shape_of(task);
  if (shape.m > INT32_MAX) return op_refuse("weights have %" PRId64 " rows, expected at most 2^31 - 1", shape.m);
  const struct op_operand *vectors = &task->operands[GEMV_VECTORS];
  const uint32_t rank = vectors->rank, first = 3 - rank; /* of [batch, .., ..] */
  const int64_t vector_shape[] = {shape.batch, shape.count, shape.k};
  const int64_t blocks[] = {shape.batch, shape.m, shape.k / GEMV_BLOCK};
  OP_TRY(op_expect("vectors", vectors, vectors->dtype, rank, vector_shape + first));
  OP_TRY(gemv_check_scales(task, GEMV_WEIGHT_SCALES, attributes->weight_scale_layout, rank, blocks + first));
  OP_TRY(gemv_check_results(task));
  OP_TRY(check_e4m3(task));
  return check_norms(task, shape.columns);
}

int64_t gemm_part_numbers(const struct op_task *task) {
  const struct gemv_shape shape = gemv_shape_of(task);
  return shape.batch * shape.count * round_up(shape.m, 8);
}

int64_t gemm_most_parts(const struct op_task *task) {
  enum { MOST_PARTS = 4, LEAST_K = 512, MOST_NUMBERS = 1 << 21 };
  const struct gemv_attributes *attributes = op_attributes(task);
  const int64_t k = gemv_shape_of(task).k, numbers = gemm_part_numbers(task);
  if (!attributes->has_scratch || attributes->one_order || gemm_has_norms(task)) return 1;
  if (task->operands[GEMV_WEIGHTS].dtype == RONDO_E4M3) return 1;
  return larger(1, smaller(smaller(MOST_PARTS, k / LEAST_K), MOST_NUMBERS / larger(1, numbers)));
}

uint64_t gemm_scratch_bytes(const struct op_task *task) {
  const int64_t parts = gemm_most_parts(task);
  return parts == 1 ? 0 : (uint64_t)(parts * gemm_part_numbers(task)) * sizeof(float);
}

/* As measured on an H200 (README.md): few rows, or short ones. Still fewer rows are faster in gemv's kernels, or as
 * halves. Larger products lose more than the norm's task takes, as the stream has twice the bytes. The vectors lack the
 * factor of their norm, and f16 has too small a range for that. Rows of 16 bits move by tensor maps. */
bool norms_suit_products(const struct layer_sizes *layer) {
  enum { MAP_ELEMENTS = 8, MOST_ELEMENTS = 11 << 16, MOST_BESIDE_NVFP4 = 1 << 19, WIDE = 2048, LEAST_WIDE_ROWS = 9 };
  const int64_t most = layer->weights == RONDO_NVFP4 ? MOST_BESIDE_NVFP4 : MOST_ELEMENTS;
  const bool is_wide_prompt = layer->one_sequence && layer->weights == RONDO_BF16 && layer->hidden >= WIDE;
  if (layer->rows < (is_wide_prompt ? LEAST_WIDE_ROWS : GEMV_COUNT + 1)) return false;
  return layer->dtype == RONDO_BF16 && layer->hidden % MAP_ELEMENTS == 0 && layer->hidden * layer->rows <= most;
}

int64_t norm_groups_of(int64_t columns) { return gemm_groups(columns); }
