/* bench_softmax.c - the timing of attention and the fused softmax (bench_softmax.h). The operands are normally
 * distributed, as those of the rivals are: the power that a product takes depends on its numbers. */
#include "bench_softmax.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/attention/attention.h"
#include "../../kernels/gemm_softmax/gemm_softmax.h"
#include "../../runtime/graph.h"
#include "../command.h"
#include "../room.h"
#include "reference.h"

/* Memory for every case: either the copies for cold operands, or one copy of 540 MB. */
#define OPERAND_CAPACITY UINT64_C(1000000000)
enum {
  SCRATCH_CAPACITY = 512 << 20,
  BATCH_MOST = 64,
  PAGES_MOST = 4096,
  ALIGNMENT = 256,
  PAUSE_NS = 100 * 1000 * 1000,
  LOAD_NS = 200 * 1000 * 1000,
};

void softmax_memory_take(struct bench_device *device, struct softmax_memory *memory) {
  *memory = (struct softmax_memory){.device = device};
  memory->operands = bench_take(device, OPERAND_CAPACITY);
  memory->scratch = bench_take(device, SCRATCH_CAPACITY);
  memory->lengths = bench_take(device, BATCH_MOST * sizeof(int32_t));
  memory->pages = bench_take(device, PAGES_MOST * sizeof(int32_t));
}

/* ---- What the library launches ----------------------------------------------------------------------------------- */

/* A case as a task of the library, and the offsets of its operands in each copy. */
struct subject {
  const struct softmax_case *shape;
  rondo_graph *graph;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task;
  uint32_t out; /* the operand's index */
  uint64_t offset[OP_MAX_OPERANDS], copy_bytes;
  uint32_t copies;
};

static rondo_dtype two_byte_type(const struct softmax_case *shape) { return shape->f16 ? RONDO_F16 : RONDO_BF16; }

static uint64_t operand_bytes(const struct op_operand *operand) {
  return (uint64_t)op_elements(operand) * rondo_dtype_bits(operand->dtype) / 8;
}

/* In a prompt the heads of a token are contiguous, as a projection writes them. In a cache the rows of a head are. */
static bool has_heads_first(const struct softmax_case *shape) { return shape->kind == SOFTMAX_DECODE; }

static rondo_tensor add_heads(const struct subject *subject, const char *name, rondo_dtype dtype, int64_t items,
                              int64_t heads, int64_t positions) {
  bool heads_first = has_heads_first(subject->shape);
  const int64_t extents[] = {items, heads_first ? heads : positions, heads_first ? positions : heads,
                             subject->shape->dimension};
  rondo_tensor tensor;
  TRY(*name == 'o' ? rondo_output(subject->graph, name, dtype, 4, extents, &tensor)
                   : rondo_constant(subject->graph, name, dtype, 4, extents, &tensor));
  return tensor;
}

/* The pages of a batch item. The pool has the pages of all items and no others. */
static int64_t item_pages(const struct softmax_case *shape) { return shape->keys / shape->page_rows; }

/* The page of the pool for page `index` of an item. Neighbours are far apart in the pool. The factor is odd and the
 * number of pages a power of two, and so each page of the pool is used once. */
static int64_t page_of(const struct softmax_case *shape, int64_t item, int64_t index) {
  int64_t pages = item_pages(shape);
  return (item * pages + index) * 40503 % (shape->batch * pages);
}

static void describe_attention(struct subject *subject) {
  const struct softmax_case *shape = subject->shape;
  const bool is_paged = shape->page_rows > 0;
  const int64_t items = is_paged ? shape->batch * item_pages(shape) : shape->batch,
                rows = is_paged ? shape->page_rows : shape->keys;
  const rondo_dtype o = two_byte_type(shape), q = shape->e4m3 == SOFTMAX_E4M3_ALL ? RONDO_E4M3 : o,
                    kv = shape->e4m3 == SOFTMAX_E4M3_NONE ? o : RONDO_E4M3;
  rondo_attention_desc desc = {.name = "attention",
                               .layout = has_heads_first(shape) ? RONDO_BHSD : RONDO_BSHD,
                               .causal = shape->causal,
                               .scale = softmax_case_scale(shape),
                               .window = (int32_t)shape->window,
                               .soft_cap = (float)shape->soft_cap,
                               .q = add_heads(subject, "q", q, shape->batch, shape->heads, shape->queries),
                               .k = add_heads(subject, "k", kv, items, shape->kv_heads, rows),
                               .v = add_heads(subject, "v", kv, items, shape->kv_heads, rows),
                               .o = add_heads(subject, "o", o, shape->batch, shape->heads, shape->queries)};
  if (is_paged)
    TRY(rondo_constant(subject->graph, "kv pages", RONDO_I32, 2, (int64_t[]){shape->batch, item_pages(shape)},
                       &desc.kv_pages));
  if (shape->kind == SOFTMAX_DECODE)
    TRY(rondo_constant(subject->graph, "kv lengths", RONDO_I32, 1, &shape->batch, &desc.kv_lengths));
  TRY(rondo_add_attention(subject->graph, &desc));
  subject->out = ATTENTION_O;
}

static void describe_gemm(struct subject *subject) {
  const struct softmax_case *shape = subject->shape;
  rondo_graph *graph = subject->graph;
  float scale = softmax_case_scale(shape);
  rondo_tensor a, b, out;
  TRY(rondo_constant(graph, "a", RONDO_BF16, 2, (int64_t[]){shape->queries, shape->dimension}, &a));
  TRY(rondo_constant(graph, "b", RONDO_BF16, 2, (int64_t[]){shape->keys, shape->dimension}, &b));
  subject->out = GEMM_OUT;
  if (shape->kind == SOFTMAX_ROWMAX) {
    TRY(rondo_output(graph, "max", RONDO_F32, 1, &shape->queries, &out));
    TRY(rondo_add_gemm_rowmax(graph, &(rondo_gemm_rowmax_desc){.a = a, .b = b, .max = out, .scale = scale}));
    return;
  }
  TRY(rondo_output(graph, "p", RONDO_BF16, 2, (int64_t[]){shape->queries, shape->keys}, &out));
  TRY(rondo_add_gemm_softmax(graph, &(rondo_gemm_softmax_desc){.a = a, .b = b, .p = out, .scale = scale}));
}

static void subject_describe(struct subject *subject, const struct softmax_case *shape, bool is_warm) {
  *subject = (struct subject){.shape = shape};
  TRY(rondo_graph_create(NULL, NULL, &subject->graph));
  if (softmax_kind_is_attention(shape->kind))
    describe_attention(subject);
  else
    describe_gemm(subject);
  subject->task = graph_op_task(subject->graph, &subject->graph->tasks[0], subject->operands);
  for (uint32_t i = 0; i < subject->task.operand_count; i++) {
    subject->offset[i] = subject->copy_bytes;
    subject->copy_bytes += (operand_bytes(&subject->operands[i]) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
  enum softmax_state states[2];
  softmax_case_states(shape, is_warm, states);
  subject->copies = bench_copies(subject->copy_bytes, states[0] != SOFTMAX_COLD);
  const struct op *op = subject->task.op;
  if (subject->copies * subject->copy_bytes > OPERAND_CAPACITY || shape->batch > BATCH_MOST ||
      (op->scratch_bytes && op->scratch_bytes(&subject->task) > SCRATCH_CAPACITY))
    exit(command_failed("bench: %" PRIu64 " bytes of operands, or their scratch, are more than the memory for them",
                        subject->copy_bytes));
}

static cu_address operand_at(const struct softmax_memory *memory, const struct subject *subject, uint32_t operand,
                             uint32_t copy) {
  return memory->operands + copy * subject->copy_bytes + subject->offset[operand];
}

static void fill_pages(const struct softmax_memory *memory, const struct softmax_case *shape) {
  static int32_t pages[PAGES_MOST];
  const int64_t of_item = item_pages(shape), count = shape->batch * of_item;
  if (count > PAGES_MOST) exit(command_failed("bench: more than %d pages", PAGES_MOST));
  for (int64_t i = 0; i < count; i++) pages[i] = (int32_t)page_of(shape, i / of_item, i % of_item);
  bench_store(memory->device, memory->pages, pages, (uint64_t)count * sizeof *pages);
}

static void fill(const struct softmax_memory *memory, const struct subject *subject) {
  struct bench_device *device = memory->device;
  const struct softmax_case *shape = subject->shape;
  int32_t lengths[BATCH_MOST];
  bench_fill(device, memory->operands, subject->copies * subject->copy_bytes,
             shape->f16 ? BENCH_NORMAL_F16 : BENCH_NORMAL, 1);
  for (uint32_t i = 0; i < subject->copies; i++)
    for (uint32_t o = 0; o < subject->task.operand_count; o++)
      if (subject->operands[o].dtype == RONDO_E4M3)
        bench_fill(device, operand_at(memory, subject, o, i), operand_bytes(&subject->operands[o]), BENCH_NORMAL_E4M3,
                   2 + o);
  /* NaNs: the check finds a result that was not written, and a read of scratch that no kernel has written. */
  for (uint32_t i = 0; i < subject->copies; i++)
    bench_set(device, operand_at(memory, subject, subject->out, i), 0xff,
              operand_bytes(&subject->operands[subject->out]));
  bench_set(device, memory->scratch, 0xff, SCRATCH_CAPACITY);
  for (int i = 0; i < BATCH_MOST; i++) lengths[i] = (int32_t)shape->keys;
  bench_store(device, memory->lengths, lengths, sizeof lengths);
  if (shape->page_rows) fill_pages(memory, shape);
}

static void add_task(const struct softmax_memory *memory, const struct subject *subject,
                     const struct softmax_options *options, uint32_t copy, struct bench_graph *graph,
                     char kernel[SOFTMAX_NAME_BYTES]) {
  const struct chip chip = bench_chip(memory->device, options->is_portable);
  void *data[OP_MAX_OPERANDS] = {NULL};
  struct op_launches launches = {0};
  for (uint32_t i = 0; i < subject->task.operand_count; i++)
    if (subject->operands[i].present) data[i] = (void *)operand_at(memory, subject, i, copy);
  if (softmax_kind_is_attention(subject->shape->kind) && data[ATTENTION_KV_LENGTHS])
    data[ATTENTION_KV_LENGTHS] = (void *)memory->lengths;
  if (subject->shape->page_rows) data[ATTENTION_KV_PAGES] = (void *)memory->pages;
  struct op_call call = {.task = &subject->task, .data = data, .scratch = (void *)memory->scratch};
  TRY(subject->task.op->select(&call, &chip, &launches));
  if (!launches.count) exit(command_failed("bench: the library chooses no kernel for '%s'", subject->task.op->name));
  if (options->change) options->change(options->user, &launches.items[0]);
  for (uint32_t i = 0; i < launches.count; i++) bench_graph_add(graph, &launches.items[i]);
  snprintf(kernel, SOFTMAX_NAME_BYTES, "%s", launches.items[0].kernel);
}

/* ---- Check ------------------------------------------------------------------------------------------------------- */

static void *take(uint64_t bytes) { return room_take(bytes, "bench"); }

/* Downloads `bytes` bytes of an operand of copy 0, from byte `first` on. */
static void *fetch(const struct softmax_memory *memory, const struct subject *subject, uint32_t operand, uint64_t first,
                   uint64_t bytes) {
  void *fetched = take(bytes);
  bench_fetch(memory->device, fetched, operand_at(memory, subject, operand, 0) + first, bytes);
  return fetched;
}

static double bf16(uint16_t bits) {
  static double values[1 << 16];
  if (!values[1])
    for (uint32_t i = 0; i < 1 << 16; i++) {
      uint16_t code = (uint16_t)i;
      reference_decode(RONDO_BF16, (const uint8_t *)&code, NULL, 1, &values[i]);
    }
  return values[bits];
}

static void decode(rondo_dtype dtype, const uint8_t *bytes, int64_t count, double *values) {
  const uint16_t *bits = (const uint16_t *)(const void *)bytes;
  if (dtype != RONDO_BF16) reference_decode(dtype, bytes, NULL, (size_t)count, values);
  for (int64_t i = 0; i < count && dtype == RONDO_BF16; i++) values[i] = bf16(bits[i]);
}

/* The rows of one head of a batch item, contiguous. Without pages one download fetches all rows of the item. */
static double *head_rows(const struct softmax_memory *memory, const struct subject *subject, uint32_t index,
                         int64_t item, int64_t head, int64_t count) {
  const struct op_operand *operand = &subject->operands[index];
  const bool heads_first = has_heads_first(subject->shape),
             is_paged = index != ATTENTION_Q && index != ATTENTION_O && subject->shape->page_rows;
  const int64_t *stride = operand->stride, d = operand->shape[3], page_rows = operand->shape[2];
  const uint64_t element_bytes = rondo_dtype_bits(operand->dtype) / 8, row_bytes = (uint64_t)d * element_bytes;
  uint8_t *rows = take((uint64_t)count * row_bytes);
  double *values = take((uint64_t)(count * d) * sizeof *values);
  if (is_paged) {
    for (int64_t row = 0; row < count; row += page_rows)
      bench_fetch(memory->device, rows + (uint64_t)row * row_bytes,
                  operand_at(memory, subject, index, 0) +
                      (uint64_t)(page_of(subject->shape, item, row / page_rows) * stride[0] + head * stride[1]) *
                          element_bytes,
                  (uint64_t)page_rows * row_bytes);
  } else {
    const uint64_t item_bytes = (uint64_t)stride[0] * element_bytes;
    uint8_t *bytes = fetch(memory, subject, index, (uint64_t)item * item_bytes, item_bytes);
    for (int64_t row = 0; row < count; row++)
      memcpy(rows + (uint64_t)row * row_bytes,
             bytes + (uint64_t)(head * stride[heads_first ? 1 : 2] + row * stride[heads_first ? 2 : 1]) * element_bytes,
             row_bytes);
    free(bytes);
  }
  decode(operand->dtype, rows, count * d, values);
  free(rows);
  return values;
}

/* The error of a row, divided by the allowed error. */
static double attention_row_error(const struct softmax_case *shape, const double *q, const double *k, const double *v,
                                  int64_t row, const double *o) {
  int64_t seen = shape->causal ? row + 1 + shape->keys - shape->queries : shape->keys, d = shape->dimension;
  if (shape->window && shape->window < seen) {
    k += (seen - shape->window) * d;
    v += (seen - shape->window) * d;
    seen = shape->window;
  }
  double *p = take((uint64_t)shape->keys * sizeof *p), worst = 0;
  reference_softmax(q, k, (size_t)seen, (size_t)d, (double)softmax_case_scale(shape), (double)shape->soft_cap, p);
  for (int64_t c = 0; c < d; c++)
    worst = fmax(worst, reference_mean_error(o[c], p, v + c, (size_t)seen, (size_t)d, shape->e4m3 == SOFTMAX_E4M3_ALL));
  free(p);
  return worst;
}

/* The largest error of the first, middle and last row of one head. */
static double head_error(const struct softmax_memory *memory, const struct subject *subject, int64_t item,
                         int64_t head) {
  const struct softmax_case *shape = subject->shape;
  const int64_t kv_head = head / (shape->heads / shape->kv_heads), d = shape->dimension;
  double worst = 0;
  double *k = head_rows(memory, subject, ATTENTION_K, item, kv_head, shape->keys),
         *v = head_rows(memory, subject, ATTENTION_V, item, kv_head, shape->keys),
         *q = head_rows(memory, subject, ATTENTION_Q, item, head, shape->queries),
         *o = head_rows(memory, subject, ATTENTION_O, item, head, shape->queries);
  for (int64_t third = 0; third < 3; third++) {
    int64_t row = third * (shape->queries - 1) / 2;
    worst = fmax(worst, attention_row_error(shape, q + row * d, k, v, row, o + row * d));
  }
  free(k);
  free(v);
  free(q);
  free(o);
  return worst;
}

static double attention_error(const struct softmax_memory *memory, const struct subject *subject) {
  return fmax(head_error(memory, subject, 0, 0),
              head_error(memory, subject, subject->shape->batch - 1, subject->shape->heads - 1));
}

/* The largest error of a few rows, the first and the last among them. */
static double gemm_error(const struct softmax_memory *memory, const struct subject *subject) {
  enum { SAMPLED_ROWS = 6 };
  const struct softmax_case *shape = subject->shape;
  int64_t m = shape->queries, n = shape->keys, k = shape->dimension;
  uint16_t *a_bits = fetch(memory, subject, GEMM_A, 0, (uint64_t)(m * k) * 2),
           *b_bits = fetch(memory, subject, GEMM_B, 0, (uint64_t)(n * k) * 2);
  void *out = fetch(memory, subject, GEMM_OUT, 0, operand_bytes(&subject->operands[GEMM_OUT]));
  double *a = take((uint64_t)k * sizeof *a), *b = take((uint64_t)(n * k) * sizeof *b),
         *p = take((uint64_t)n * sizeof *p), worst = 0;
  for (int64_t i = 0; i < n * k; i++) b[i] = bf16(b_bits[i]);
  for (int64_t s = 0; s < SAMPLED_ROWS; s++) {
    int64_t row = s * (m - 1) / (SAMPLED_ROWS - 1);
    for (int64_t i = 0; i < k; i++) a[i] = bf16(a_bits[row * k + i]);
    double most = reference_softmax(a, b, (size_t)n, (size_t)k, (double)softmax_case_scale(shape), 0, p);
    if (shape->kind == SOFTMAX_ROWMAX) worst = fmax(worst, fabs((double)((const float *)out)[row] - most) / 1e-4);
    for (int64_t j = 0; j < n && shape->kind == SOFTMAX_GEMM; j++)
      worst = fmax(worst, fabs(bf16(((const uint16_t *)out)[row * n + j]) - p[j]) / (ldexp(p[j], -7) + 1e-30));
  }
  free(a_bits);
  free(b_bits);
  free(out);
  free(a);
  free(b);
  free(p);
  return worst;
}

/* Are all numbers of the result in copy 0 finite? */
static bool is_all_numbers(const struct softmax_memory *memory, const struct subject *subject) {
  const struct op_operand *operand = &subject->operands[subject->out];
  uint64_t count = operand_bytes(operand) / 2, bad = 0;
  uint16_t *bits = fetch(memory, subject, subject->out, 0, 2 * count);
  uint16_t exponent = operand->dtype == RONDO_F16 ? 0x7c00 : 0x7f80; /* of bf16, and of the upper half of an f32 */
  for (uint64_t i = operand->dtype == RONDO_F32; i < count; i += operand->dtype == RONDO_F32 ? 2 : 1)
    bad += (bits[i] & exponent) == exponent;
  free(bits);
  return !bad;
}

static bool is_right(const struct softmax_memory *memory, const struct subject *subject, const char *kernel) {
  char label[SOFTMAX_LABEL_BYTES];
  softmax_case_label(subject->shape, label);
  if (!is_all_numbers(memory, subject)) {
    command_failed("bench: %s: %s is wrong: a result is NaN or infinite", label, kernel);
    return false;
  }
  double worst =
      softmax_kind_is_attention(subject->shape->kind) ? attention_error(memory, subject) : gemm_error(memory, subject);
  if (worst <= 1) return true;
  command_failed("bench: %s: %s is wrong: the error of a sampled row is %.3g times the allowed one", label, kernel,
                 worst);
  return false;
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* Cases that are bound by arithmetic need no cold operands. Their graph takes about 8 ms on an H200, so that the clock
 * of a pause lasts for all of it. */
static uint32_t launch_count(const struct softmax_case *shape, enum softmax_state state) {
  if (state == SOFTMAX_COLD || shape->kind == SOFTMAX_DECODE || !softmax_kind_is_attention(shape->kind))
    return bench_launches(softmax_case_bytes(shape));
  double count = 6e12 / softmax_case_flops(shape);
  return count > 20 ? 20 : count < 4 ? 4 : (uint32_t)count;
}

static double read_us(const struct softmax_memory *memory, const struct subject *subject, uint32_t samples) {
  if (subject->shape->kind != SOFTMAX_DECODE) return 0;
  return bench_read_us(memory->device, memory->operands, softmax_case_bytes(subject->shape), subject->copy_bytes,
                       subject->copies, samples);
}

size_t softmax_measure(struct softmax_memory *memory, const struct softmax_case *shape,
                       const struct softmax_options *options, struct softmax_result results[2]) {
  struct bench_device *device = memory->device;
  struct subject subject;
  char kernel[SOFTMAX_NAME_BYTES] = "";
  enum softmax_state states[2];
  size_t count = softmax_case_states(shape, options->is_warm, states);
  uint32_t launches = launch_count(shape, states[0]);
  subject_describe(&subject, shape, options->is_warm);
  fill(memory, &subject);
  struct bench_graph graph = bench_graph_begin(device, options->is_programmatic);
  for (uint32_t i = 0; i < launches; i++) add_task(memory, &subject, options, i % subject.copies, &graph, kernel);
  bench_graph_finish(&graph);
  bench_graph_run(&graph);
  if (count > 1 && options->is_brief) count = 1;
  if (!is_right(memory, &subject, kernel)) count = 0;
  for (size_t i = 0; i < count; i++) {
    struct bench_load load = {.pause_ns = states[i] == SOFTMAX_PAUSE ? PAUSE_NS : 0,
                              .busy_ns = states[i] == SOFTMAX_SUSTAINED ? LOAD_NS : 0};
    results[i] = (struct softmax_result){.shape = *shape, .state = states[i], .is_portable = options->is_portable};
    results[i].us = bench_graph_us_under(&graph, options->samples, load) / launches;
    memcpy(results[i].kernel, kernel, sizeof kernel);
  }
  bench_graph_end(&graph);
  if (count) results[0].read_us = read_us(memory, &subject, options->samples);
  TRY(rondo_graph_destroy(&subject.graph));
  return count;
}
