/* bench_gemv.c - the timing of products, and of reading the same bytes (bench_gemv.h). */
#include "bench_gemv.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/gemv/gemv.h"
#include "../../runtime/graph.h"
#include "../command.h"
#include "../room.h"
#include "reference.h"
#include "timing.h"

/* Memory for every case: either the copies for cold operands, or one copy of 1.05 GB. All memory is below 2 GB. */
#define WEIGHT_CAPACITY UINT64_C(1400000000)
enum {
  SCALE_CAPACITY = 160000000,
  VECTOR_CAPACITY = 128 << 20,
  OUT_CAPACITY = 256 << 20,
  SCRATCH_CAPACITY = 128 << 20,
  ALIGNMENT = 256,
  CHAIN = 8,
};

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* The copies of the weights follow each other. */
struct layout {
  uint64_t weight_bytes, weight_scale_bytes; /* of one copy, rounded up to the alignment */
  uint32_t copies;
};

static struct layout layout_of(const struct kernel_case *shape, bool is_warm) {
  uint64_t weights = kernel_weight_bytes(shape), scales = kernel_weight_scale_bytes(shape);
  struct layout layout = {aligned(weights), aligned(scales), bench_copies(weights + scales, is_warm)};
  if (layout.copies * layout.weight_bytes > WEIGHT_CAPACITY ||
      layout.copies * layout.weight_scale_bytes > SCALE_CAPACITY)
    exit(command_failed("bench: the weights have %" PRIu64 " bytes, more than the memory for them", weights));
  return layout;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

void gemv_memory_take(struct bench_device *device, struct gemv_memory *memory) {
  *memory = (struct gemv_memory){.device = device};
  struct gemv_operands *at = &memory->at;
  at->weights = bench_take(device, WEIGHT_CAPACITY);
  at->weight_scales = bench_take(device, SCALE_CAPACITY);
  at->vectors = bench_take(device, VECTOR_CAPACITY);
  at->vector_scales = bench_take(device, VECTOR_CAPACITY);
  at->out = bench_take(device, OUT_CAPACITY);
  at->scratch = bench_take(device, SCRATCH_CAPACITY);
  bench_fill(device, at->weight_scales, SCALE_CAPACITY, BENCH_SCALES, 3);
  bench_fill(device, at->vector_scales, VECTOR_CAPACITY, BENCH_SCALES, 4);
}

static enum bench_data data_of(rondo_dtype dtype) {
  return dtype == RONDO_NVFP4  ? BENCH_CODES
         : dtype == RONDO_E4M3 ? BENCH_E4M3
         : dtype == RONDO_BF16 ? BENCH_BF16
                               : BENCH_F16;
}

static void fill_for(struct gemv_memory *memory, const struct kernel_case *shape) {
  if (memory->filled_weights != shape->weights)
    bench_fill(memory->device, memory->at.weights, WEIGHT_CAPACITY, data_of(shape->weights), 1);
  if (memory->filled_vectors != shape->vectors)
    bench_fill(memory->device, memory->at.vectors, VECTOR_CAPACITY, data_of(shape->vectors), 2);
  memory->filled_weights = shape->weights;
  memory->filled_vectors = shape->vectors;
  /* These bytes are NaN in every type of out: the check finds a result that was not written. The scratch begins with
   * zeros, since some kernels count in it. */
  bench_set(memory->device, memory->at.out, 0xff, OUT_CAPACITY);
  bench_set(memory->device, memory->at.scratch, 0, SCRATCH_CAPACITY);
}

/* ---- Check ------------------------------------------------------------------------------------------------------- */

static void *take(uint64_t bytes) { return room_take(bytes, "bench"); }

/* Rows of one operand on the host: codes, then scale factors, then values. */
struct rows {
  rondo_dtype dtype;
  uint64_t k;
  uint8_t *bytes, *scales;
  double *values;
};

static struct rows rows_take(rondo_dtype dtype, uint64_t count, uint64_t k) {
  return (struct rows){dtype, k, take(count * k * rondo_dtype_bits(dtype) / 8), take(count * k / GEMV_BLOCK),
                       take(count * k * sizeof(double))};
}

static void rows_free(struct rows *rows) {
  free(rows->bytes);
  free(rows->scales);
  free(rows->values);
}

/* Row `index` of the operand becomes row `i`. */
static void row_fetch(struct rows *rows, uint64_t i, struct bench_device *device, cu_address bytes, cu_address scales,
                      uint64_t index) {
  uint64_t row_bytes = rows->k * rondo_dtype_bits(rows->dtype) / 8, row_scales = rows->k / GEMV_BLOCK;
  bench_fetch(device, rows->bytes, bytes + index * row_bytes, row_bytes);
  if (rows->dtype == RONDO_NVFP4) bench_fetch(device, rows->scales, scales + index * row_scales, row_scales);
  reference_decode(rows->dtype, rows->bytes, rows->scales, rows->k, rows->values + i * rows->k);
}

/* Of many vectors or rows a few, the first and the last among them. */
enum { SAMPLED_ROWS = 4, SAMPLED_VECTORS = 16 };
static uint64_t sampled(uint64_t i, uint64_t count, uint64_t samples, uint64_t salt) {
  if (count <= samples) return i;
  return i == 0 ? 0 : i == 1 ? count - 1 : (i * 2654435761u + salt * 40503u) % count;
}

/* The largest error of a few rows of each matrix for a few vectors, divided by the allowed error. A result that is not
 * finite counts as an error. */
static double worst_error(struct bench_device *device, const struct kernel_case *shape, const struct gemv_operands *at,
                          float scale) {
  uint64_t m = (uint64_t)shape->m, k = (uint64_t)shape->k, n = (uint64_t)shape->count, l = (uint64_t)shape->batch;
  uint64_t row_bytes = m * rondo_dtype_bits(shape->out) / 8;
  struct rows row = rows_take(shape->weights, SAMPLED_ROWS, k), x = rows_take(shape->vectors, 1, k);
  uint8_t *bytes = take(row_bytes);
  double *y = take(m * sizeof *y), worst = 0;
  for (uint64_t b = 0; b < l; b++)
    for (uint64_t j = 0; j < SAMPLED_VECTORS && j < n; j++) {
      uint64_t v = sampled(j, n, SAMPLED_VECTORS, b);
      row_fetch(&x, 0, device, at->vectors, at->vector_scales, b * n + v);
      bench_fetch(device, bytes, at->out + (b * n + v) * row_bytes, row_bytes);
      reference_decode(shape->out, bytes, NULL, m, y);
      for (uint64_t i = 0; i < m; i++)
        if (!isfinite(y[i])) worst = INFINITY;
      for (uint64_t i = 0; i < SAMPLED_ROWS && i < m; i++) {
        uint64_t r = sampled(i, m, SAMPLED_ROWS, b);
        if (!j) row_fetch(&row, i, device, at->weights, at->weight_scales, b * m + r);
        worst = fmax(worst, reference_error(y[r], (double)scale, row.values + i * k, x.values, k, shape->out,
                                            shape->vectors == RONDO_E4M3 ? 0x1p-13 : 4e-6));
      }
    }
  rows_free(&row);
  rows_free(&x);
  free(bytes);
  free(y);
  return worst;
}

static bool is_right(struct bench_device *device, const struct kernel_case *shape, const struct gemv_operands *at,
                     float scale, const char *name) {
  double worst = worst_error(device, shape, at, scale);
  if (worst <= 1) return true;
  char label[KERNEL_LABEL_BYTES];
  kernel_case_label(shape, label);
  command_failed("bench: %s: %s is wrong: the error of a sampled row is %.3g times the allowed one", label, name,
                 worst);
  return false;
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* A scale that keeps results within f16. In a chain all results keep about the same size. */
static float scale_for(const struct kernel_case *shape, bool is_chain) {
  if (shape->out == RONDO_F16) return 0x1p-14f;
  return is_chain ? 0x1p-12f : 1;
}

/* The operands of product number `index`. previous_out: the previous product's result. */
static struct gemv_operands operands_of(const struct gemv_memory *memory, const struct kernel_case *shape,
                                        const struct gemv_options *options, const struct layout *layout, uint32_t index,
                                        cu_address previous_out) {
  struct gemv_operands at = memory->at;
  uint32_t copy = index % layout->copies;
  at.weights += copy * layout->weight_bytes;
  at.weight_scales += copy * layout->weight_scale_bytes;
  if (!options->is_chain) return at;
  at.out += index % CHAIN * aligned((uint64_t)(shape->count * shape->m) * rondo_dtype_bits(shape->out) / 8);
  if (shape->vectors == shape->out && index % CHAIN) at.vectors = previous_out;
  return at;
}

double gemv_time_us(struct gemv_memory *memory, const struct kernel_case *shape, const struct gemv_options *options,
                    const struct gemv_way *way) {
  struct layout layout = layout_of(shape, options->is_warm);
  struct gemv_operands at = memory->at;
  float scale = scale_for(shape, options->is_chain);
  uint32_t count = bench_launches(kernel_case_bytes(shape));
  if (options->is_chain) count = (count + CHAIN - 1) / CHAIN * CHAIN;
  fill_for(memory, shape);
  struct bench_graph graph = bench_graph_begin(memory->device, options->is_programmatic);
  for (uint32_t i = 0; i < count; i++) {
    at = operands_of(memory, shape, options, &layout, i, at.out);
    way->add(way->user, &graph, &at, scale);
  }
  bench_graph_finish(&graph);
  bench_graph_run(&graph);
  /* The operands of the last product are still in memory. */
  bool is_timed = is_right(memory->device, shape, &at, scale, way->name);
  double us = is_timed ? bench_graph_us(&graph, options->samples) / count : NAN;
  bench_graph_end(&graph);
  return us;
}

/* ---- What the library launches ----------------------------------------------------------------------------------- */

/* A product as a task of the library. */
struct product {
  rondo_graph *graph;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task;
  struct chip chip;
  bool weights_are_settled;
  char kernel[KERNEL_NAME_BYTES];
};

static rondo_tensor add_tensor(rondo_graph *graph, bool is_output, const char *name, rondo_dtype dtype, int64_t batch,
                               int64_t rows, int64_t columns) {
  const int64_t shape[] = {batch, rows, columns};
  uint32_t first = batch == 1;
  rondo_tensor tensor;
  TRY(is_output ? rondo_output(graph, name, dtype, 3 - first, shape + first, &tensor)
                : rondo_constant(graph, name, dtype, 3 - first, shape + first, &tensor));
  return tensor;
}

static void product_describe(struct product *product, const struct kernel_case *shape, float scale,
                             bool has_one_order) {
  TRY(rondo_graph_create(NULL, NULL, &product->graph));
  rondo_graph *graph = product->graph;
  int64_t l = shape->batch, m = shape->m, k = shape->k, n = shape->count;
  rondo_gemv_desc desc = {.name = "product", .scale = scale, .one_order = has_one_order};
  desc.weights = add_tensor(graph, false, "weights", shape->weights, l, m, k);
  desc.vectors = add_tensor(graph, false, "vectors", shape->vectors, l, n, k);
  desc.out = add_tensor(graph, true, "out", shape->out, l, n, m);
  if (shape->weights == RONDO_NVFP4)
    desc.weight_scales = add_tensor(graph, false, "weight scales", RONDO_E4M3, l, m, k / GEMV_BLOCK);
  if (shape->vectors == RONDO_NVFP4)
    desc.vector_scales = add_tensor(graph, false, "vector scales", RONDO_E4M3, l, n, k / GEMV_BLOCK);
  TRY(n > GEMV_COUNT ? rondo_add_gemm(graph, &(rondo_gemm_desc){.name = desc.name,
                                                                .weights = desc.weights,
                                                                .weight_scales = desc.weight_scales,
                                                                .vectors = desc.vectors,
                                                                .out = desc.out,
                                                                .scale = scale,
                                                                .one_order = has_one_order})
                     : rondo_add_gemv(graph, &desc));
  product->task = graph_op_task(graph, &graph->tasks[0], product->operands);
  const struct op *op = product->task.op;
  if (op->scratch_bytes && op->scratch_bytes(&product->task) > SCRATCH_CAPACITY)
    exit(command_failed("bench: a product's scratch has %" PRIu64 " bytes, more than the memory for it",
                        op->scratch_bytes(&product->task)));
}

static void *pointer(bool present, cu_address address) { return present ? (void *)address : NULL; }

static void add_chosen(void *user, struct bench_graph *graph, const struct gemv_operands *at, float scale) {
  struct product *product = user;
  const struct op_operand *operands = product->operands;
  void *data[OP_MAX_OPERANDS] = {NULL};
  struct op_launches launches = {0};
  (void)scale; /* the description of the task has it */
  data[GEMV_WEIGHTS] = pointer(true, at->weights);
  data[GEMV_WEIGHT_SCALES] = pointer(operands[GEMV_WEIGHT_SCALES].present, at->weight_scales);
  data[GEMV_VECTORS] = pointer(true, at->vectors);
  data[GEMV_VECTOR_SCALES] = pointer(operands[GEMV_VECTOR_SCALES].present, at->vector_scales);
  data[GEMV_OUT] = pointer(true, at->out);
  /* As the runtime does for constants. The first task has no predecessor, and so nothing is early there. */
  bool is_early = product->weights_are_settled && graph->last;
  struct op_call call = {.task = &product->task,
                         .data = data,
                         .scratch = (void *)at->scratch,
                         .settled_operands = is_early ? 1u << GEMV_WEIGHTS | 1u << GEMV_WEIGHT_SCALES : 0};
  TRY(product->task.op->select(&call, &product->chip, &launches));
  if (!launches.count) exit(command_failed("bench: the library chooses no kernel for a product"));
  for (uint32_t i = 0; i < launches.count; i++) bench_graph_add(graph, &launches.items[i]);
  snprintf(product->kernel, sizeof product->kernel, "%s", launches.items[0].kernel);
}

struct gemv_timing gemv_measure(struct gemv_memory *memory, const struct kernel_case *shape,
                                const struct gemv_options *options, bool weights_are_settled) {
  struct product product = {.chip = bench_chip(memory->device, options->is_portable),
                            .weights_are_settled = weights_are_settled};
  struct gemv_timing timing = {0};
  product_describe(&product, shape, scale_for(shape, options->is_chain), options->has_one_order);
  timing.us = gemv_time_us(memory, shape, options, &(struct gemv_way){product.kernel, add_chosen, &product});
  memcpy(timing.kernel, product.kernel, sizeof timing.kernel);
  TRY(rondo_graph_destroy(&product.graph));
  return timing;
}

/* ---- Reading alone ----------------------------------------------------------------------------------------------- */

double gemv_read_us(const struct gemv_memory *memory, const struct kernel_case *shape,
                    const struct gemv_options *options) {
  uint64_t bytes = kernel_case_bytes(shape), apart = aligned(bytes);
  uint32_t copies = bench_copies(bytes, options->is_warm);
  if (copies * apart > WEIGHT_CAPACITY)
    exit(command_failed("bench: %" PRIu64 " bytes to read are more than the memory for them", bytes));
  return bench_read_us(memory->device, memory->at.weights, bytes, apart, copies, options->samples);
}

double gemv_read_rate(const struct gemv_memory *memory, uint32_t samples) {
  const uint64_t bytes = 1000000000;
  return (double)bytes / bench_read_us(memory->device, memory->at.weights, bytes, bytes, 1, samples);
}
