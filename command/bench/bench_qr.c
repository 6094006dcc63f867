/* bench_qr.c - the timing of batched QR, its application, and inverses of triangles (bench_qr.h). */
#include "bench_qr.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/least_squares/least_squares.h"
#include "../../runtime/graph.h"
#include "../command.h"
#include "../room.h"
#include "reference.h"

/* Memory for every case: either the copies for cold operands, or one copy of 2 GB. */
#define OPERAND_CAPACITY UINT64_C(2100000000)
#define COPIED_BYTES     UINT64_C(500000000)
enum { SCRATCH_CAPACITY = 704 << 20, ALIGNMENT = 256, LEAST_LAUNCHES = 4, RATIO_GATE = 30 };

/* ---- What the library launches ----------------------------------------------------------------------------------- */

/* A case as a task of the library, and the offsets of its operands in each copy. The structure must not move, since the
 * task points into it. */
struct subject {
  rondo_graph *graph;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task;
  uint64_t offset[OP_MAX_OPERANDS], copy_bytes;
};

/* The subject is the last task. */
static void subject_end_description(struct subject *subject) {
  subject->task =
      graph_op_task(subject->graph, &subject->graph->tasks[subject->graph->task_count - 1], subject->operands);
  for (uint32_t i = 0; i < subject->task.operand_count; i++) {
    const struct op_operand *operand = &subject->operands[i];
    uint64_t bytes = (uint64_t)op_elements(operand) * rondo_dtype_bits(operand->dtype) / 8;
    subject->offset[i] = subject->copy_bytes;
    subject->copy_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
}

static cu_address operand_at(const struct qr_memory *memory, const struct subject *subject, uint32_t operand,
                             uint32_t copy) {
  return memory->operands + copy * subject->copy_bytes + subject->offset[operand];
}

static void add_task(const struct qr_memory *memory, const struct subject *subject, uint32_t copy,
                     struct bench_graph *graph, char kernel[QR_NAME_BYTES]) {
  void *data[OP_MAX_OPERANDS] = {NULL};
  struct op_launches launches = {0};
  for (uint32_t i = 0; i < subject->task.operand_count; i++)
    if (subject->operands[i].present) data[i] = (void *)operand_at(memory, subject, i, copy);
  struct op_call call = {.task = &subject->task, .data = data, .scratch = (void *)memory->scratch};
  TRY(subject->task.op->select(&call, &memory->device->chip, &launches));
  if (!launches.count) exit(command_failed("bench: the library chooses no kernel for '%s'", subject->task.op->name));
  for (uint32_t i = 0; i < launches.count; i++) bench_graph_add(graph, &launches.items[i]);
  snprintf(kernel, QR_NAME_BYTES, "%s", launches.items[0].kernel);
}

static void add_least_squares(const struct qr_case *shape, rondo_graph *graph) {
  const int64_t matrices[] = {shape->batch, shape->n, shape->m}, right[] = {shape->batch, 1, shape->m},
                solved[] = {shape->batch, 1, shape->n};
  rondo_least_squares_desc desc = {.name = "least squares"};
  TRY(rondo_constant(graph, "a", shape->dtype, 3, matrices, &desc.a));
  TRY(rondo_constant(graph, "b", shape->dtype, 3, right, &desc.b));
  TRY(rondo_output(graph, "x", shape->dtype, 3, solved, &desc.x));
  TRY(rondo_add_least_squares(graph, &desc));
}

/* V is factored in place. Its Q is orthogonal, and so it can be applied to C any number of times. */
static void add_apply(const struct qr_case *shape, rondo_graph *graph) {
  const int64_t k = shape->m < shape->n ? shape->m : shape->n, factors[] = {shape->batch, k};
  const int64_t panels[] = {shape->batch, shape->n, shape->m}, others[] = {shape->batch, shape->columns, shape->m};
  rondo_qr_apply_desc desc = {.name = "apply", .transpose = 1};
  TRY(rondo_state(graph, "v", shape->dtype, 3, panels, &desc.v));
  TRY(rondo_state(graph, "tau", shape->dtype, 2, factors, &desc.tau));
  TRY(rondo_state(graph, "c", shape->dtype, 3, others, &desc.c));
  TRY(rondo_add_qr_panel(graph, &(rondo_qr_panel_desc){.name = "panel", .a = desc.v, .tau = desc.tau}));
  TRY(rondo_add_qr_apply(graph, &desc));
}

static void add_inverse(const struct qr_case *shape, rondo_graph *graph) {
  const int64_t triangles[] = {shape->batch, shape->n, shape->n};
  rondo_triangular_inverse_desc desc = {.name = "inverse"};
  TRY(rondo_constant(graph, "a", shape->dtype, 3, triangles, &desc.a));
  TRY(rondo_output(graph, "out", shape->dtype, 3, triangles, &desc.out));
  TRY(rondo_add_triangular_inverse(graph, &desc));
}

static void add_qr(const struct qr_case *shape, rondo_graph *graph) {
  const int64_t k = shape->m < shape->n ? shape->m : shape->n;
  const int64_t matrices[] = {shape->batch, shape->n, shape->m}, factors[] = {shape->batch, k};
  const int64_t triangles[] = {shape->batch, shape->n, k}, bases[] = {shape->batch, k, shape->m};
  rondo_qr_desc desc = {.name = "qr"};
  TRY(rondo_constant(graph, "a", shape->dtype, 3, matrices, &desc.a));
  if (shape->outputs == QR_H_AND_TAU) {
    TRY(rondo_output(graph, "h", shape->dtype, 3, matrices, &desc.h));
    TRY(rondo_output(graph, "tau", shape->dtype, 2, factors, &desc.tau));
  } else {
    TRY(rondo_output(graph, "r", shape->dtype, 3, triangles, &desc.r));
  }
  if (shape->outputs == QR_Q_AND_R) TRY(rondo_output(graph, "q", shape->dtype, 3, bases, &desc.q));
  TRY(rondo_add_qr(graph, &desc));
}

static void describe(const struct qr_case *shape, struct subject *subject) {
  *subject = (struct subject){0};
  TRY(rondo_graph_create(NULL, NULL, &subject->graph));
  (shape->outputs == QR_X         ? add_least_squares
   : shape->outputs == QR_APPLIED ? add_apply
   : shape->outputs == QR_INVERSE ? add_inverse
                                  : add_qr)(shape, subject->graph);
  subject_end_description(subject);
  const struct op *op = subject->task.op;
  if (op->scratch_bytes && op->scratch_bytes(&subject->task) > SCRATCH_CAPACITY)
    exit(command_failed("bench: the scratch of a QR is larger than the memory for it"));
}

/* ---- The bound --------------------------------------------------------------------------------------------------- */

static double copy_rate(const struct qr_memory *memory, uint32_t samples) {
  struct subject subject = {0};
  const int64_t bytes = COPIED_BYTES;
  char kernel[QR_NAME_BYTES];
  rondo_copy_desc desc = {.name = "copy"};
  TRY(rondo_graph_create(NULL, NULL, &subject.graph));
  TRY(rondo_constant(subject.graph, "from", RONDO_U8, 1, &bytes, &desc.src));
  TRY(rondo_output(subject.graph, "to", RONDO_U8, 1, &bytes, &desc.dst));
  TRY(rondo_add_copy(subject.graph, &desc));
  subject_end_description(&subject);
  struct bench_graph graph = bench_graph_begin(memory->device, false);
  uint32_t launches = bench_launches(2 * COPIED_BYTES);
  for (uint32_t i = 0; i < launches; i++) add_task(memory, &subject, 0, &graph, kernel);
  bench_graph_finish(&graph);
  double us = bench_graph_us(&graph, samples) / launches;
  bench_graph_end(&graph);
  TRY(rondo_graph_destroy(&subject.graph));
  return 2 * (double)COPIED_BYTES / us;
}

void qr_memory_take(struct bench_device *device, uint32_t samples, struct qr_memory *memory) {
  *memory = (struct qr_memory){.device = device};
  memory->operands = bench_take(device, OPERAND_CAPACITY);
  memory->scratch = bench_take(device, SCRATCH_CAPACITY);
  memory->copy_rate = copy_rate(memory, samples);
}

/* ---- Check ------------------------------------------------------------------------------------------------------- */

/* Downloads `count` numbers of an operand of copy 0, from number `first` on. */
static double *fetch(const struct qr_memory *memory, const struct subject *subject, uint32_t operand, int64_t first,
                     int64_t count) {
  const rondo_dtype dtype = subject->operands[operand].dtype;
  const uint64_t element_bytes = rondo_dtype_bits(dtype) / 8;
  double *numbers = room_take((uint64_t)count * sizeof *numbers, "bench");
  bench_fetch(memory->device, numbers, operand_at(memory, subject, operand, 0) + (uint64_t)first * element_bytes,
              (uint64_t)count * element_bytes);
  const float *narrow = (const float *)(const void *)numbers;
  for (int64_t i = count; i-- > 0 && dtype == RONDO_F32;) numbers[i] = (double)narrow[i];
  return numbers;
}

static double ratio_of(const struct qr_memory *memory, const struct subject *subject, const struct qr_case *shape,
                       int64_t item) {
  const int64_t m = shape->m, n = shape->n, k = m < n ? m : n;
  const bool has_factors = shape->outputs == QR_H_AND_TAU, has_q = shape->outputs == QR_Q_AND_R;
  double *a = fetch(memory, subject, QR_A, item * m * n, m * n),
         *h = has_factors ? fetch(memory, subject, QR_H, item * m * n, m * n) : NULL,
         *tau = has_factors ? fetch(memory, subject, QR_TAU, item * k, k) : NULL,
         *r = has_factors ? NULL : fetch(memory, subject, QR_R, item * k * n, k * n),
         *q = has_q ? fetch(memory, subject, QR_Q, item * m * k, m * k) : NULL;
  double ratio = has_factors ? reference_qr_ratio(shape->dtype, (size_t)m, (size_t)n, a, h, tau)
                             : reference_thin_ratio(shape->dtype, (size_t)m, (size_t)n, a, q, r);
  free(a), free(h), free(tau), free(r), free(q);
  return ratio;
}

static double solution_ratio(const struct qr_memory *memory, const struct subject *subject, const struct qr_case *shape,
                             int64_t item) {
  const int64_t m = shape->m, n = shape->n;
  double *a = fetch(memory, subject, LEAST_SQUARES_A, item * m * n, m * n),
         *b = fetch(memory, subject, LEAST_SQUARES_B, item * m, m),
         *x = fetch(memory, subject, LEAST_SQUARES_X, item * n, n);
  double ratio = reference_least_squares_ratio(shape->dtype, (size_t)m, (size_t)n, a, b, x);
  free(a), free(b), free(x);
  return ratio;
}

/* The ratio of one more launch, since a launch replaces C. */
static double applied_ratio(const struct qr_memory *memory, const struct subject *subject, const struct qr_case *shape,
                            int64_t item) {
  char kernel[QR_NAME_BYTES];
  struct bench_graph once = bench_graph_begin(memory->device, false);
  add_task(memory, subject, 0, &once, kernel);
  bench_graph_finish(&once);
  const int64_t m = shape->m, n = shape->n, k = m < n ? m : n, c = m * shape->columns;
  double *before = fetch(memory, subject, QR_APPLY_C, item * c, c);
  bench_graph_run(&once);
  bench_graph_end(&once);
  double *after = fetch(memory, subject, QR_APPLY_C, item * c, c),
         *v = fetch(memory, subject, QR_APPLY_V, item * m * n, m * n),
         *tau = fetch(memory, subject, QR_APPLY_TAU, item * k, k);
  double ratio =
      reference_applied_ratio(shape->dtype, (size_t)m, (size_t)n, (size_t)shape->columns, v, tau, before, after);
  free(before), free(after), free(v), free(tau);
  return ratio;
}

static double inverse_ratio(const struct qr_memory *memory, const struct subject *subject, const struct qr_case *shape,
                            int64_t item) {
  const int64_t n = shape->n;
  double *a = fetch(memory, subject, TRIANGULAR_INVERSE_A, item * n * n, n * n),
         *x = fetch(memory, subject, TRIANGULAR_INVERSE_OUT, item * n * n, n * n);
  double ratio = reference_inverse_ratio(shape->dtype, (size_t)n, a, x);
  free(a), free(x);
  return ratio;
}

/* Checks the first matrix, one in the middle and the last. */
static bool is_right(const struct qr_memory *memory, const struct subject *subject, const struct qr_case *shape,
                     const char *kernel) {
  double worst = 0;
  for (int64_t third = 0; third < 3; third++) {
    const int64_t item = third * (shape->batch - 1) / 2;
    double ratio = shape->outputs == QR_APPLIED   ? applied_ratio(memory, subject, shape, item)
                   : shape->outputs == QR_INVERSE ? inverse_ratio(memory, subject, shape, item)
                   : shape->outputs == QR_X       ? solution_ratio(memory, subject, shape, item)
                                                  : ratio_of(memory, subject, shape, item);
    if (ratio > worst || isnan(ratio)) worst = ratio; /* a NaN is kept */
  }
  if (worst < RATIO_GATE) return true;
  fprintf(stderr, "bench: %s is wrong: LAPACK's ratio is %.3g, expected less than %d\n", kernel, worst, RATIO_GATE);
  return false;
}

/* ---- Time -------------------------------------------------------------------------------------------------------- */

/* Fewer launches of long factorisations. */
static uint32_t launches_of(const struct qr_case *shape) {
  const double flops_of_graph = 5e10, most = bench_launches(qr_case_bytes(shape));
  double launches = flops_of_graph / qr_case_flops(shape);
  return (uint32_t)(launches > most ? most : launches < LEAST_LAUNCHES ? LEAST_LAUNCHES : launches);
}

/* QR_APPLIED: factors V of every copy. */
static void factor_panels(const struct qr_memory *memory, const struct subject *subject, uint32_t copies) {
  static_assert((int)QR_PANEL_A == (int)QR_APPLY_V && (int)QR_PANEL_TAU == (int)QR_APPLY_TAU, "offsets are the same");
  struct subject panel = *subject;
  char kernel[QR_NAME_BYTES];
  panel.task = graph_op_task(panel.graph, &panel.graph->tasks[0], panel.operands);
  struct bench_graph graph = bench_graph_begin(memory->device, false);
  for (uint32_t i = 0; i < copies; i++) add_task(memory, &panel, i, &graph, kernel);
  bench_graph_finish(&graph);
  bench_graph_run(&graph);
  bench_graph_end(&graph);
}

/* Fills the outputs with NaNs, so that the check finds a result that was not written. */
static void poison_outputs(const struct qr_memory *memory, const struct subject *subject, const struct qr_case *shape,
                           uint32_t copies) {
  const uint32_t first = shape->outputs == QR_X         ? (uint32_t)LEAST_SQUARES_X
                         : shape->outputs == QR_INVERSE ? (uint32_t)TRIANGULAR_INVERSE_OUT
                                                        : (uint32_t)QR_H;
  for (uint32_t i = 0; i < copies; i++)
    bench_set(memory->device, operand_at(memory, subject, first, i), 0xff,
              subject->copy_bytes - subject->offset[first]);
}

bool qr_measure(const struct qr_memory *memory, const struct qr_case *shape, const struct qr_options *options,
                struct qr_result *result) {
  struct subject subject;
  describe(shape, &subject);
  struct bench_device *device = memory->device;
  const uint32_t copies = bench_copies(subject.copy_bytes, options->is_warm), launches = launches_of(shape);
  if (copies * subject.copy_bytes > OPERAND_CAPACITY)
    exit(command_failed("bench: %" PRIu64 " bytes of operands are more than the memory for them", subject.copy_bytes));
  *result = (struct qr_result){.shape = *shape,
                               .is_warm = options->is_warm,
                               .is_programmatic = options->is_programmatic,
                               .bound_us = (double)qr_case_bytes(shape) / memory->copy_rate};
  bench_fill(device, memory->operands, copies * subject.copy_bytes,
             shape->dtype == RONDO_F32 ? BENCH_NORMAL_F32 : BENCH_NORMAL_F64, 1);
  if (shape->outputs == QR_APPLIED)
    factor_panels(memory, &subject, copies);
  else
    poison_outputs(memory, &subject, shape, copies);
  struct bench_graph graph = bench_graph_begin(device, options->is_programmatic);
  for (uint32_t i = 0; i < launches; i++)
    add_task(memory, &subject, copies > 1 ? i % copies : 0, &graph, result->kernel);
  bench_graph_finish(&graph);
  bench_graph_run(&graph);
  bool right = is_right(memory, &subject, shape, result->kernel);
  if (right) result->us = bench_graph_us(&graph, options->samples) / launches;
  bench_graph_end(&graph);
  TRY(rondo_graph_destroy(&subject.graph));
  return right;
}
