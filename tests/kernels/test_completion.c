/* test_completion.c - the result is whole when the completion word says so. Each graph ends in one kernel, which
 * publishes completion itself if it has few blocks and whose results lie in pinned memory if its operation allows it.
 * Faults that would show: a block that publishes too early, as bytes that are missing; a block that never publishes,
 * as a replay without an end. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/qr/qr.h"
#include "../../runtime/planner.h"
#include "../support.h"

enum { POISON = 0xa5, MOST_INPUTS = 3, MOST_RESULTS = 3, HOST_REPLAYS = 6, CUDA_REPLAYS = 300 };

/* A graph of one task, in the making. A tensor that is changed in place is in both lists. */
struct subject {
  struct trial trial;
  rondo_tensor inputs[MOST_INPUTS], results[MOST_RESULTS];
  uint32_t input_count, result_count;
};

/* One case: how its graph is described, and what from. */
struct family {
  uint32_t publishing_blocks; /* of the last kernel; 0: too many, a node publishes for them */
  const char *name;
  void (*describe)(struct subject *subject, const struct family *family);
  rondo_dtype dtype;
  int64_t batch, m, n, k;
  int32_t option; /* the family's own */
};

typedef int64_t shape[RONDO_MAX_RANK];

static rondo_tensor input(struct subject *subject, rondo_dtype dtype, uint32_t rank, const int64_t *extent) {
  rondo_tensor *tensor = &subject->inputs[subject->input_count++];
  REQUIRE_OK(rondo_input(subject->trial.graph, "input", dtype, rank, extent, tensor));
  return *tensor;
}

/* In pinned memory, touched by nothing but the kernel. */
static rondo_tensor result(struct subject *subject, rondo_dtype dtype, uint32_t rank, const int64_t *extent) {
  rondo_tensor *tensor = &subject->results[subject->result_count++];
  REQUIRE_OK(rondo_output(subject->trial.graph, "result", dtype, rank, extent, tensor));
  return *tensor;
}

/* In device memory: an output would be brought to pinned memory by a copy, which then published. */
static rondo_tensor device_result(struct subject *subject, rondo_dtype dtype, uint32_t rank, const int64_t *extent) {
  rondo_tensor *tensor = &subject->results[subject->result_count++];
  REQUIRE_OK(rondo_state(subject->trial.graph, "result", dtype, rank, extent, tensor));
  return *tensor;
}

/* ---- Families ---------------------------------------------------------------------------------------------------- */

static void gemv(struct subject *s, const struct family *f) {
  rondo_tensor weights = input(s, f->dtype, 2, (shape){f->m, f->k}),
               vectors = input(s, f->dtype, 2, (shape){f->n, f->k});
  rondo_gemv_desc desc = {.weights = weights, .vectors = vectors, .out = result(s, RONDO_F32, 2, (shape){f->n, f->m})};
  REQUIRE_OK(rondo_add_gemv(s->trial.graph, &desc));
}

static void gemv_nvfp4(struct subject *s, const struct family *f) {
  rondo_gemv_desc desc = {.weights = input(s, RONDO_NVFP4, 2, (shape){f->m, f->k}),
                          .weight_scales = input(s, RONDO_E4M3, 2, (shape){f->m, f->k / 16}),
                          .vectors = input(s, f->dtype, 2, (shape){f->n, f->k}),
                          .out = result(s, f->dtype, 2, (shape){f->n, f->m})};
  REQUIRE_OK(rondo_add_gemv(s->trial.graph, &desc));
}

static void quantize(struct subject *s, const struct family *f) {
  rondo_quantize_nvfp4_desc desc = {.x = input(s, f->dtype, 2, (shape){f->m, f->n}),
                                    .codes = result(s, RONDO_NVFP4, 2, (shape){f->m, f->n}),
                                    .scales = result(s, RONDO_E4M3, 2, (shape){f->m, f->n / 16})};
  REQUIRE_OK(rondo_add_quantize_nvfp4(s->trial.graph, &desc));
}

static void quantize_e4m3(struct subject *s, const struct family *f) {
  rondo_quantize_e4m3_desc desc = {.x = input(s, f->dtype, 2, (shape){f->m, f->n}),
                                   .codes = result(s, RONDO_E4M3, 2, (shape){f->m, f->n}),
                                   .scales = result(s, RONDO_F32, 1, (shape){f->m})};
  REQUIRE_OK(rondo_add_quantize_e4m3(s->trial.graph, &desc));
}

/* n query and 1 KV head; m query and k KV positions. */
static void attention(struct subject *s, const struct family *f) {
  enum { DIMENSION = 64 };
  rondo_attention_desc desc = {.q = input(s, f->dtype, 4, (shape){f->batch, f->n, f->m, DIMENSION}),
                               .k = input(s, f->dtype, 4, (shape){f->batch, 1, f->k, DIMENSION}),
                               .v = input(s, f->dtype, 4, (shape){f->batch, 1, f->k, DIMENSION}),
                               .o = result(s, f->dtype, 4, (shape){f->batch, f->n, f->m, DIMENSION}),
                               .lse = result(s, RONDO_F32, 3, (shape){f->batch, f->n, f->m}),
                               .splits = f->option};
  REQUIRE_OK(rondo_add_attention(s->trial.graph, &desc));
}

static void gemm_softmax(struct subject *s, const struct family *f) {
  rondo_gemm_softmax_desc desc = {.a = input(s, f->dtype, 3, (shape){f->batch, f->m, f->k}),
                                  .b = input(s, f->dtype, 3, (shape){f->batch, f->n, f->k}),
                                  .p = result(s, f->dtype, 3, (shape){f->batch, f->m, f->n}),
                                  .causal = f->option};
  REQUIRE_OK(rondo_add_gemm_softmax(s->trial.graph, &desc));
}

static void gemm_rowmax(struct subject *s, const struct family *f) {
  rondo_gemm_rowmax_desc desc = {.a = input(s, f->dtype, 3, (shape){f->batch, f->m, f->k}),
                                 .b = input(s, f->dtype, 3, (shape){f->batch, f->n, f->k}),
                                 .max = result(s, RONDO_F32, 2, (shape){f->batch, f->m}),
                                 .causal = f->option};
  REQUIRE_OK(rondo_add_gemm_rowmax(s->trial.graph, &desc));
}

/* h and tau, or (option) thin q and r. */
static void qr(struct subject *s, const struct family *f) {
  int64_t k = smaller(f->m, f->n);
  rondo_qr_desc desc = {.layout = RONDO_ROW_MAJOR, .a = input(s, f->dtype, 3, (shape){f->batch, f->m, f->n})};
  if (f->option) {
    desc.r = device_result(s, f->dtype, 3, (shape){f->batch, k, f->n});
    desc.q = device_result(s, f->dtype, 3, (shape){f->batch, f->m, k});
  } else {
    desc.h = device_result(s, f->dtype, 3, (shape){f->batch, f->m, f->n});
    desc.tau = device_result(s, f->dtype, 2, (shape){f->batch, k});
  }
  REQUIRE_OK(rondo_add_qr(s->trial.graph, &desc));
}

/* k reflectors, applied in place. */
static void qr_apply(struct subject *s, const struct family *f) {
  rondo_qr_apply_desc desc = {.layout = RONDO_COLUMN_MAJOR,
                              .transpose = f->option,
                              .v = input(s, f->dtype, 3, (shape){f->batch, f->k, f->m}),
                              .tau = input(s, f->dtype, 2, (shape){f->batch, f->k}),
                              .c = device_result(s, f->dtype, 3, (shape){f->batch, f->n, f->m})};
  s->inputs[s->input_count++] = desc.c;
  REQUIRE_OK(rondo_add_qr_apply(s->trial.graph, &desc));
}

static void qr_extract(struct subject *s, const struct family *f) {
  int64_t k = smaller(f->m, f->n);
  rondo_tensor h = input(s, f->dtype, 3, (shape){f->batch, f->m, f->n});
  rondo_tensor r = device_result(s, f->dtype, 3, (shape){f->batch, k, f->n});
  rondo_tensor q = device_result(s, f->dtype, 3, (shape){f->batch, f->m, k});
  REQUIRE_OK(rondo_add_qr_extract(s->trial.graph, &(rondo_qr_extract_desc){"extract", RONDO_ROW_MAJOR, h, r, q}));
}

/* k right-hand sides. */
static void least_squares(struct subject *s, const struct family *f) {
  rondo_least_squares_desc desc = {.a = input(s, f->dtype, 3, (shape){f->batch, f->n, f->m}),
                                   .b = input(s, f->dtype, 3, (shape){f->batch, f->k, f->m}),
                                   .x = device_result(s, f->dtype, 3, (shape){f->batch, f->k, f->n}),
                                   .residual = device_result(s, f->dtype, 2, (shape){f->batch, f->k})};
  REQUIRE_OK(rondo_add_least_squares(s->trial.graph, &desc));
}

static void triangular_inverse(struct subject *s, const struct family *f) {
  rondo_triangular_inverse_desc desc = {.a = input(s, f->dtype, 3, (shape){f->batch, f->n, f->n}),
                                        .out = device_result(s, f->dtype, 3, (shape){f->batch, f->n, f->n})};
  REQUIRE_OK(rondo_add_triangular_inverse(s->trial.graph, &desc));
}

/* One block, several, and (more) too many to publish; blocks, warps and threads without work wherever a shape can leave
 * some. */
static const struct family families[] = {
    {1, "gemv, one block", gemv, RONDO_F16, 0, 6, 1, 64, 0},
    {8, "gemv", gemv, RONDO_F16, 0, 61, 1, 64, 0},
    {0, "gemv, more", gemv, RONDO_F16, 0, 8191, 1, 64, 0},
    {4, "gemv, five vectors", gemv, RONDO_BF16, 0, 299, 5, 32, 0},
    {5, "gemv, chunks", gemv, RONDO_F16, 0, 67, 5, 8192, 0},
    {0, "gemv, chunks, more", gemv, RONDO_F16, 0, 997, 3, 8192, 0},
    {1, "gemv, unaligned", gemv, RONDO_F16, 0, 29, 3, 7, 0},
    {0, "gemv, unaligned, more", gemv, RONDO_BF16, 0, 33, 1, 4003, 0},
    {4, "gemv, nvfp4", gemv_nvfp4, RONDO_F16, 0, 31, 1, 64, 0},
    {1, "quantize, one block", quantize, RONDO_F16, 0, 3, 16, 0, 0},
    {7, "quantize", quantize, RONDO_F32, 0, 24, 1040, 0, 0},
    {0, "quantize, more", quantize, RONDO_F32, 0, 67, 1040, 0, 0},
    {1, "quantize to e4m3, one block", quantize_e4m3, RONDO_BF16, 0, 3, 1024, 0, 0},
    {7, "quantize to e4m3", quantize_e4m3, RONDO_F32, 0, 7, 8192, 0, 0},
    {0, "quantize to e4m3, more", quantize_e4m3, RONDO_F16, 0, 24, 2080, 0, 0},
    {1, "attention, one block", attention, RONDO_BF16, 1, 9, 2, 40, 1},
    {8, "attention, few rows", attention, RONDO_BF16, 1, 3, 2, 40, 1},
    {0, "attention, few rows, more", attention, RONDO_F16, 2, 3, 2, 40, 1},
    {6, "attention", attention, RONDO_F16, 2, 70, 2, 130, 1},
    {7, "attention, splits", attention, RONDO_BF16, 2, 7, 2, 640, 5},
    {0, "attention, splits, more", attention, RONDO_BF16, 2, 7, 3, 640, 5},
    {6, "gemm_softmax", gemm_softmax, RONDO_F16, 3, 100, 60, 40, 0},
    {2, "gemm_softmax, wide, causal", gemm_softmax, RONDO_BF16, 1, 100, 300, 40, 1},
    {6, "gemm_rowmax", gemm_rowmax, RONDO_F16, 2, 130, 40, 40, 0},
    {0, "gemm_rowmax, more", gemm_rowmax, RONDO_F16, 17, 130, 40, 40, 0},
    {1, "gemm_rowmax, wide, causal", gemm_rowmax, RONDO_BF16, 1, 30, 140, 70, 1},
    {7, "qr, tiles of some matrices a warp", qr, RONDO_F32, 13, 12, 9, 0, 0},
    {7, "qr, tiles", qr, RONDO_F64, 7, 40, 36, 0, 0},
    {7, "qr, thin q of some matrices a warp", qr, RONDO_F32, 13, 12, 9, 0, 1},
    {7, "qr, thin q", qr, RONDO_F64, 7, 20, 30, 0, 1},
    {8, "qr, thin q, two warps a matrix", qr, RONDO_F64, 8, 40, 36, 0, 1},
    {2, "qr, panels", qr, RONDO_F64, 2, 250, 140, 0, 0},
    {8, "qr, square", qr, RONDO_F32, 8, 150, 140, 0, 1},
    {5, "qr, tall", qr, RONDO_F32, 5, 1100, 20, 0, 1},
    {0, "qr, tall, more", qr, RONDO_F32, 9, 1100, 20, 0, 1},
    {2, "qr, blocked", qr, RONDO_F64, 2, 250, 140, 0, 1},
    {2, "qr, global", qr, RONDO_F32, 2, 8000, 8, 0, 0},
    {2, "qr_apply, tiles", qr_apply, RONDO_F32, 2, 50, 12, 20, 1},
    {4, "qr_apply, lowered tiles", qr_apply, RONDO_F64, 2, 200, 33, 40, 1},
    {0, "qr_apply, lowered tiles, more", qr_apply, RONDO_F32, 7, 1000, 37, 20, 1},
    {6, "qr_apply", qr_apply, RONDO_F64, 2, 1100, 12, 20, 1},
    {0, "qr_apply, more", qr_apply, RONDO_F64, 7, 1100, 37, 20, 1},
    {2, "qr_apply, global", qr_apply, RONDO_F64, 1, 30000, 5, 2, 0},
    {4, "qr_extract", qr_extract, RONDO_F32, 1, 20, 25, 0, 0},
    {1, "least_squares, several matrices a block", least_squares, RONDO_F32, 13, 8, 8, 1, 0},
    {6, "least_squares, passes", least_squares, RONDO_F64, 3, 60, 40, 3, 0},
    {6, "least_squares, two kernels", least_squares, RONDO_F32, 2, 150, 40, 11, 0},
    {1, "triangular_inverse, one block", triangular_inverse, RONDO_F64, 1, 0, 100, 0, 0},
    {6, "triangular_inverse", triangular_inverse, RONDO_F32, 11, 0, 20, 0, 0},
};

/* ---- Replays ----------------------------------------------------------------------------------------------------- */

/* Two sets of inputs, and what each first gave. */
struct answers {
  unsigned char *inputs[2][MOST_INPUTS], *results[2][MOST_RESULTS];
};

static uint64_t bytes_of(rondo_tensor tensor) {
  uint64_t bytes;
  REQUIRE_OK(rondo_tensor_bytes(tensor, &bytes));
  return bytes;
}

/* Numbers small enough that nothing overflows; codes and scales of any value but NaN. */
static unsigned char *random_data(struct random *random, rondo_tensor tensor) {
  uint64_t bytes = bytes_of(tensor);
  rondo_dtype dtype = tensor.graph->tensors[tensor.index].dtype;
  unsigned char *data = malloc(bytes);
  if (dtype == RONDO_NVFP4 || dtype == RONDO_E4M3)
    for (uint64_t i = 0; i < bytes; i++) data[i] = (unsigned char)random_bits(random) & 0x77u;
  else
    for (int64_t i = 0; i < (int64_t)(bytes * 8 / rondo_dtype_bits(dtype)); i++)
      oracle_write(dtype, data, i, random_uniform(random) - 0.5);
  return data;
}

static void answers_make(struct answers *answers, const struct subject *subject, struct random *random) {
  for (int set = 0; set < 2; set++) {
    for (uint32_t i = 0; i < subject->input_count; i++)
      answers->inputs[set][i] = random_data(random, subject->inputs[i]);
    for (uint32_t i = 0; i < subject->result_count; i++)
      answers->results[set][i] = calloc(1, bytes_of(subject->results[i]));
  }
}

static void answers_free(struct answers *answers, const struct subject *subject) {
  for (int set = 0; set < 2; set++) {
    for (uint32_t i = 0; i < subject->input_count; i++) free(answers->inputs[set][i]);
    for (uint32_t i = 0; i < subject->result_count; i++) free(answers->results[set][i]);
  }
}

static void poison(struct trial *trial, rondo_tensor tensor) {
  uint64_t bytes = bytes_of(tensor);
  unsigned char *data = malloc(bytes);
  memset(data, POISON, bytes);
  trial_set(trial, tensor, data);
  free(data);
}

/* Straight from where it lies, if that is pinned memory. */
static void expect(struct trial *trial, rondo_tensor tensor, const unsigned char *expected, const char *name,
                   int replay) {
  uint64_t bytes = bytes_of(tensor), same = 0;
  unsigned char *copy = NULL;
  const unsigned char *got = rondo_data(trial->slot, tensor);
  if (!got) trial_get(trial, tensor, copy = malloc(bytes)), got = copy;
  cr_assert(got && expected);
  if (memcmp(got, expected, bytes) != 0) {
    while (same < bytes && got[same] == expected[same]) same++;
    cr_assert_fail("%s: replay %d, byte %llu of %llu", name, replay, (unsigned long long)same,
                   (unsigned long long)bytes);
  }
  free(copy);
}

/* Of the last kernel; 0: it leaves that to a node behind it. The same on every chip that has the same kernel as the
 * newest. */
static uint32_t publishing_blocks(const rondo_graph *graph) {
  static const struct chip chips[] = {{100, 148, 232448}, {90, 132, 232448}, {80, 108, 166912}};
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task = graph_op_task(graph, &graph->tasks[0], operands);
  const char *kernel = NULL;
  uint32_t blocks[3];
  for (int i = 0; i < 3; i++) {
    struct op_launches launches;
    REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &chips[i], &launches));
    const char *last = launches.items[launches.count - 1].kernel;
    if (!kernel) kernel = last;
    blocks[i] = op_publishing_blocks(&launches);
    if (blocks[i] > COMPLETION_WORDS) blocks[i] = 0;
    if (!strcmp(last, kernel)) cr_assert_eq(blocks[i], blocks[0]);
  }
  return blocks[0];
}

static void whole(rondo_backend backend, const struct family *family, struct random *random) {
  struct subject subject = {0};
  struct answers answers = {0};
  struct trial *trial = &subject.trial;
  trial_describe(trial, backend);
  family->describe(&subject, family);
  trial_instantiate(trial);
  const struct plan *plan;
  REQUIRE_OK(plan_of(trial->graph, &plan));
  for (uint32_t i = 0; i < subject.result_count; i++)
    cr_assert_neq(plan->allocations[subject.results[i].index], ALLOCATION_MOVED, "%s: a copy publishes", family->name);
  cr_expect_eq(publishing_blocks(trial->graph), family->publishing_blocks, "%s: %u", family->name,
               publishing_blocks(trial->graph));
  answers_make(&answers, &subject, random);
  for (int replay = 0; replay < (backend == RONDO_BACKEND_HOST ? HOST_REPLAYS : CUDA_REPLAYS); replay++) {
    int set = replay % 2;
    for (uint32_t i = 0; i < subject.result_count; i++) poison(trial, subject.results[i]);
    for (uint32_t i = 0; i < subject.input_count; i++) trial_set(trial, subject.inputs[i], answers.inputs[set][i]);
    trial_replay(trial);
    for (uint32_t i = 0; i < subject.result_count; i++)
      if (replay < 2)
        trial_get(trial, subject.results[i], answers.results[set][i]);
      else
        expect(trial, subject.results[i], answers.results[set][i], family->name, replay);
  }
  uint64_t bytes = bytes_of(subject.results[0]);
  cr_assert(memcmp(answers.results[0][0], answers.results[1][0], bytes) != 0, "%s: nothing is computed", family->name);
  answers_free(&answers, &subject);
  trial_end(trial);
}

static void all_whole(rondo_backend backend) {
  struct random random = {31};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) whole(backend, &families[i], &random);
}

BOTH_BACKENDS(completion, the_result_is_whole_when_the_word_says_so, all_whole)
