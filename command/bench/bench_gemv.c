/* bench_gemv.c - see bench_gemv.h. */
#include "bench_gemv.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/gemv/gemv.h"
#include "../../runtime/graph.h"
#include "../command.h"
#include "reference.h"
#include "timing.h"

/* Room for every case: the copies that make it cold, or one of 1.05 GB; below 2 GB in all. */
#define WEIGHT_CAPACITY UINT64_C(1400000000)
enum {
  SCALE_CAPACITY = 160000000,
  VECTOR_CAPACITY = 8 << 20,
  OUT_CAPACITY = 32 << 20,
  SCRATCH_CAPACITY = 128 << 20,
  ALIGNMENT = 256,
  CHAIN = 8,
};

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* ---- A product --------------------------------------------------------------------------------------------------- */

/* A task as the library sees it, and where the bytes of copy i of its weights are. */
struct product {
  rondo_graph *graph;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task;
  struct kernel_case shape;
  float scale;
  uint64_t weight_bytes, weight_scale_bytes; /* of a copy, aligned */
  uint32_t copies;
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

static void product_describe(struct product *product, const struct kernel_case *shape, float scale, bool is_warm) {
  *product = (struct product){.shape = *shape, .scale = scale};
  TRY(rondo_graph_create(NULL, NULL, &product->graph));
  rondo_graph *graph = product->graph;
  int64_t l = shape->batch, m = shape->m, k = shape->k, n = shape->count;
  rondo_gemv_desc desc = {.name = "product", .scale = scale};
  desc.weights = add_tensor(graph, false, "weights", shape->weights, l, m, k);
  desc.vectors = add_tensor(graph, false, "vectors", shape->vectors, l, n, k);
  desc.out = add_tensor(graph, true, "out", shape->out, l, n, m);
  if (shape->weights == RONDO_NVFP4)
    desc.weight_scales = add_tensor(graph, false, "weight scales", RONDO_E4M3, l, m, k / GEMV_BLOCK);
  if (shape->vectors == RONDO_NVFP4)
    desc.vector_scales = add_tensor(graph, false, "vector scales", RONDO_E4M3, l, n, k / GEMV_BLOCK);
  TRY(rondo_add_gemv(graph, &desc));
  product->task = graph_op_task(graph, &graph->tasks[0], product->operands);
  product->weight_bytes = aligned(kernel_weight_bytes(shape));
  product->weight_scale_bytes = aligned(kernel_weight_scale_bytes(shape));
  product->copies = bench_copies(kernel_weight_bytes(shape) + kernel_weight_scale_bytes(shape), is_warm);
  uint64_t scratch = product->task.op->scratch_bytes ? product->task.op->scratch_bytes(&product->task) : 0;
  if (product->copies * product->weight_bytes > WEIGHT_CAPACITY ||
      product->copies * product->weight_scale_bytes > SCALE_CAPACITY || scratch > SCRATCH_CAPACITY)
    exit(command_failed("bench: a product of %" PRIu64 " bytes with %" PRIu64 " of scratch is larger than its memory",
                        product->weight_bytes, scratch));
}

static void product_end(struct product *product) { TRY(rondo_graph_destroy(&product->graph)); }

/* What the library launches for copy `copy` of the weights. This is the one place that stands for what the runtime
 * tells an operation about its operands. */
static void product_choose(const struct product *product, const struct gemv_memory *memory, uint32_t copy,
                           cu_address vectors, cu_address out, bool weights_are_settled, struct op_launches *launches) {
  void *data[OP_MAX_OPERANDS] = {NULL};
  data[GEMV_WEIGHTS] = (void *)(memory->weights + copy * product->weight_bytes);
  data[GEMV_VECTORS] = (void *)vectors;
  data[GEMV_OUT] = (void *)out;
  if (product->operands[GEMV_WEIGHT_SCALES].present)
    data[GEMV_WEIGHT_SCALES] = (void *)(memory->weight_scales + copy * product->weight_scale_bytes);
  if (product->operands[GEMV_VECTOR_SCALES].present) data[GEMV_VECTOR_SCALES] = (void *)memory->vector_scales;
  struct op_call call = {.task = &product->task, .data = data, .scratch = (void *)memory->scratch};
  (void)weights_are_settled; /* the call has no word for it yet */
  launches->count = 0;
  TRY(product->task.op->select(&call, &memory->device->chip, launches));
  if (!launches->count) exit(command_failed("bench: the library launches nothing for a product"));
}

static void add_product(struct bench_graph *graph, const struct op_launches *launches) {
  for (uint32_t i = 0; i < launches->count; i++) bench_graph_add(graph, &launches->items[i]);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

void gemv_memory_take(struct bench_device *device, struct gemv_memory *memory) {
  *memory = (struct gemv_memory){.device = device};
  memory->weights = bench_take(device, WEIGHT_CAPACITY);
  memory->weight_scales = bench_take(device, SCALE_CAPACITY);
  memory->vectors = bench_take(device, VECTOR_CAPACITY);
  memory->vector_scales = bench_take(device, VECTOR_CAPACITY);
  memory->out = bench_take(device, OUT_CAPACITY);
  memory->scratch = bench_take(device, SCRATCH_CAPACITY);
  bench_fill(device, memory->weight_scales, SCALE_CAPACITY, BENCH_SCALES, 3);
  bench_fill(device, memory->vector_scales, VECTOR_CAPACITY, BENCH_SCALES, 4);
}

static enum bench_data data_of(rondo_dtype dtype) {
  return dtype == RONDO_NVFP4  ? BENCH_CODES
         : dtype == RONDO_E4M3 ? BENCH_E4M3
         : dtype == RONDO_BF16 ? BENCH_BF16
                               : BENCH_F16;
}

static void fill_for(struct gemv_memory *memory, const struct kernel_case *shape) {
  if (memory->filled_weights != shape->weights)
    bench_fill(memory->device, memory->weights, WEIGHT_CAPACITY, data_of(shape->weights), 1);
  if (memory->filled_vectors != shape->vectors)
    bench_fill(memory->device, memory->vectors, VECTOR_CAPACITY, data_of(shape->vectors), 2);
  memory->filled_weights = shape->weights;
  memory->filled_vectors = shape->vectors;
  /* A NaN in every type of out: what is not written shows. The scratch is zero for whoever counts in it. */
  bench_set(memory->device, memory->out, 0xff, OUT_CAPACITY);
  bench_set(memory->device, memory->scratch, 0, SCRATCH_CAPACITY);
}

/* ---- Check ------------------------------------------------------------------------------------------------------- */

static void *take(uint64_t bytes) {
  void *memory = malloc(bytes ? bytes : 1);
  if (!memory) exit(command_failed("bench: no memory for %" PRIu64 " bytes", bytes));
  return memory;
}

/* Rows of one operand on the host: codes, then scales, then values. */
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

static void rows_fetch(struct rows *rows, struct bench_device *device, cu_address bytes, cu_address scales,
                       uint64_t first, uint64_t count) {
  uint64_t row_bytes = rows->k * rondo_dtype_bits(rows->dtype) / 8, row_scales = rows->k / GEMV_BLOCK;
  bench_fetch(device, rows->bytes, bytes + first * row_bytes, count * row_bytes);
  if (rows->dtype == RONDO_NVFP4) bench_fetch(device, rows->scales, scales + first * row_scales, count * row_scales);
  reference_decode(rows->dtype, rows->bytes, rows->scales, count * rows->k, rows->values);
}

/* The worst error of a few rows of each matrix, the first and the last among them, for every vector, in units of what
 * is allowed; and every result is a number. */
static double worst_error(const struct product *product, const struct gemv_memory *memory, uint32_t copy,
                          cu_address vectors, cu_address out) {
  enum { SAMPLED_ROWS = 4 };
  const struct kernel_case *shape = &product->shape;
  uint64_t m = (uint64_t)shape->m, k = (uint64_t)shape->k, n = (uint64_t)shape->count, l = (uint64_t)shape->batch;
  uint64_t results = l * n * m, out_bytes = results * rondo_dtype_bits(shape->out) / 8;
  struct rows row = rows_take(shape->weights, 1, k), x = rows_take(shape->vectors, n, k);
  uint8_t *result_bytes = take(out_bytes);
  double *y = take(results * sizeof *y), worst = 0;
  bench_fetch(memory->device, result_bytes, out, out_bytes);
  reference_decode(shape->out, result_bytes, NULL, results, y);
  for (uint64_t i = 0; i < results; i++)
    if (!isfinite(y[i])) worst = INFINITY;
  for (uint64_t b = 0; b < l; b++) {
    rows_fetch(&x, memory->device, vectors, memory->vector_scales, b * n, n);
    for (uint64_t i = 0; i < SAMPLED_ROWS; i++) {
      uint64_t at = i == 0 ? 0 : i == 1 ? m - 1 : (i * 2654435761u + b * 40503u) % m;
      rows_fetch(&row, memory->device, memory->weights + copy * product->weight_bytes,
                 memory->weight_scales + copy * product->weight_scale_bytes, b * m + at, 1);
      for (uint64_t v = 0; v < n; v++)
        worst = fmax(worst, reference_error(y[(b * n + v) * m + at], (double)product->scale, row.values,
                                            x.values + v * k, k, shape->out));
    }
  }
  rows_free(&row);
  rows_free(&x);
  free(result_bytes);
  free(y);
  return worst;
}

static void require_right(const struct product *product, const struct gemv_memory *memory, uint32_t copy,
                          cu_address vectors, cu_address out, const char *kernel) {
  double worst = worst_error(product, memory, copy, vectors, out);
  if (worst <= 1) return;
  char label[KERNEL_LABEL_BYTES];
  kernel_case_label(&product->shape, label);
  exit(command_failed("bench: %s: %s is wrong: a sampled row is %.3g times as far from its value in fp64 as is allowed",
                      label, kernel, worst));
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* So that no result overflows in f16, whatever the scales are. */
static const float f16_scale = 0x1p-14f;

struct gemv_timing gemv_measure(struct gemv_memory *memory, const struct kernel_case *shape,
                                const struct gemv_options *options) {
  struct gemv_timing timing = {0};
  struct product product;
  struct op_launches launches;
  product_describe(&product, shape, shape->out == RONDO_F16 ? f16_scale : 1, options->is_warm);
  fill_for(memory, shape);
  struct bench_graph graph = bench_graph_begin(memory->device, options->is_programmatic);
  uint32_t count = bench_launches(kernel_case_bytes(shape));
  for (uint32_t i = 0; i < count; i++) {
    product_choose(&product, memory, i % product.copies, memory->vectors, memory->out, options->is_programmatic,
                   &launches);
    add_product(&graph, &launches);
  }
  snprintf(timing.kernel, sizeof timing.kernel, "%s", launches.items[0].kernel);
  bench_graph_finish(&graph);
  bench_graph_run(&graph);
  require_right(&product, memory, (count - 1) % product.copies, memory->vectors, memory->out, timing.kernel);
  timing.us = bench_graph_us(&graph, options->samples) / count;
  bench_graph_end(&graph);
  product_end(&product);
  return timing;
}

double gemv_read_us(const struct gemv_memory *memory, const struct kernel_case *shape,
                    const struct gemv_options *options) {
  uint64_t bytes = kernel_case_bytes(shape), apart = aligned(bytes);
  uint32_t copies = bench_copies(bytes, options->is_warm);
  if (copies * apart > WEIGHT_CAPACITY) exit(command_failed("bench: %" PRIu64 " bytes are too many to read", bytes));
  return bench_read_us(memory->device, memory->weights, bytes, apart, copies, options->samples);
}

double gemv_read_rate(const struct gemv_memory *memory, uint32_t samples) {
  const uint64_t bytes = 1000000000;
  return (double)bytes / bench_read_us(memory->device, memory->weights, bytes, bytes, 1, samples);
}

/* ---- Chains ------------------------------------------------------------------------------------------------------ */

/* A square product whose result is the next one's vector, where the types allow it; the factor keeps the numbers about
 * as large as they are. Each eighth begins again with the same vector. */
double gemv_chain_us(struct gemv_memory *memory, const struct kernel_case *shape, enum chain_edges edges,
                     uint32_t samples) {
  bool is_dependent = shape->vectors == shape->out;
  struct product product;
  struct op_launches launches;
  product_describe(&product, shape, is_dependent ? 0x1p-12f : f16_scale, false);
  fill_for(memory, shape);
  uint64_t out_bytes = aligned((uint64_t)(shape->count * shape->m) * rondo_dtype_bits(shape->out) / 8);
  uint32_t count = bench_launches(kernel_case_bytes(shape)) / CHAIN * CHAIN;
  struct bench_graph graph = bench_graph_begin(memory->device, edges != CHAIN_PLAIN);
  cu_address vectors = memory->vectors, out = memory->out;
  for (uint32_t i = 0; i < count; i++) {
    vectors = i % CHAIN && is_dependent ? out : memory->vectors;
    out = memory->out + i % CHAIN * out_bytes;
    product_choose(&product, memory, i % product.copies, vectors, out, edges == CHAIN_EARLY, &launches);
    add_product(&graph, &launches);
  }
  bench_graph_finish(&graph);
  bench_graph_run(&graph);
  require_right(&product, memory, (count - 1) % product.copies, vectors, out, launches.items[0].kernel);
  double us = bench_graph_us(&graph, samples) / count;
  bench_graph_end(&graph);
  product_end(&product);
  return us;
}
