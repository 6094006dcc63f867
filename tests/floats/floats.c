/* floats.c - the same bits in every floating-point state of the caller's thread: one that flushes numbers to zero, as
 * all threads of a program linked with -ffast-math do, one that rounds otherwise, one that traps. Everything from the
 * description to the result runs in that state, and afterwards the thread still has it. The program prints one line for
 * all bits: `ninja emulate` compares the line of this processor with that of one without AVX-512.
 *
 *   floats [--without-avx512]: that processor has none, or it is an error */
#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rondo.h>
#include <rondo_graphs.h>

#include "../../kernels/gemv/gemv_panel.h"
#include "../../runtime/floats.h"

enum { MOST = 96, BYTES_MOST = 1 << 14, CONTROL = 0xffc0 /* all of it but the flags of what has happened */ };

static const struct state {
  const char *name;
  struct floats floats;
} states[] = {
    {"the default state", {0x1f80, 0x037f}},      {"results flushed to zero", {0x9f80, 0x037f}},
    {"operands taken as zero", {0x1fc0, 0x037f}}, {"both, as with -ffast-math", {0x9fc0, 0x037f}},
    {"rounding down", {0x3f80, 0x077f}},          {"rounding up", {0x5f80, 0x0b7f}},
    {"rounding to zero", {0x7f80, 0x0f7f}},       {"x87 of single precision", {0x1f80, 0x007f}},
    {"everything traps", {0x0000, 0x0340}},       {"everything traps, rounding up and flushing", {0xc040, 0x0b40}},
};

static void fail(const struct state *state, const char *what) {
  floats_default();
  printf("floats: %s: %s\n", state->name, what);
  exit(1);
}

/* ---- One graph of every kind of arithmetic ----------------------------------------------------------------------- */

struct held {
  rondo_tensor tensor;
  uint64_t bytes;
  const void *content; /* of an input */
};

struct bench {
  const struct state *state;
  rondo_graph *graph;
  struct held inputs[MOST], outputs[MOST];
  uint32_t input_count, output_count;
  rondo_tensor known[4]; /* whose values are known */
  bool has_begun;        /* the host function: what it found was the default */
};

static void require(const struct bench *bench, rondo_status status, const char *call) {
  struct floats now = floats_default();
  floats_set(now);
  if (status != RONDO_OK) fail(bench->state, rondo_error_text());
  if ((now.sse & CONTROL) != (bench->state->floats.sse & CONTROL) || now.x87 != bench->state->floats.x87)
    fail(bench->state, call);
}
#define REQUIRE(call) require(bench, (call), #call)

/* Bits that are the same each time, of numbers of all sizes that a type has; none is NaN or infinite. */
static uint64_t next_bits(void) {
  static uint64_t seed = 1;
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return seed >> 32;
}

static void fill(rondo_dtype dtype, void *memory, uint64_t bytes) {
  unsigned char *byte = memory;
  uint16_t *half = memory;
  uint32_t *word = memory;
  uint64_t *wide = memory;
  for (uint64_t i = 0; i < bytes; i++) byte[i] = (unsigned char)(next_bits() & 0x77); /* e4m3: 240 at most */
  /* Exponents of a few steps around 1; one number in eight is subnormal or next to it. */
  for (uint64_t i = 0; i < bytes / 2 && (dtype == RONDO_F16 || dtype == RONDO_BF16); i++) {
    uint64_t bits = next_bits();
    uint16_t mantissa = dtype == RONDO_F16 ? 0x3ff : 0x7f, one = dtype == RONDO_F16 ? 0x3800 : 0x3f00;
    half[i] =
        (uint16_t)((bits & (mantissa | 0x8000u)) | (bits >> 20 & 7 ? one + (bits >> 16 & 1) * (mantissa + 1u) : 0));
  }
  for (uint64_t i = 0; i < bytes / 4 && dtype == RONDO_F32; i++) {
    uint64_t bits = next_bits();
    word[i] = (uint32_t)((bits & 0x807fffff) | (bits >> 24 & 7 ? 0x3f000000 + (bits >> 27 & 1) * 0x800000 : 0));
  }
  for (uint64_t i = 0; i < bytes / 8 && dtype == RONDO_F64; i++)
    wide[i] = (next_bits() << 20 & 0x800fffffffffffff) | next_bits() | UINT64_C(0x3fe0000000000000);
  for (uint64_t i = 0; i < bytes / 4 && dtype == RONDO_I32; i++) word[i] = (uint32_t)(i % 4);
}

/* Made once, in the default state, for all runs. */
static const void *content_of(uint32_t index, rondo_dtype dtype, uint64_t bytes) {
  static void *contents[MOST];
  if (contents[index]) return contents[index];
  contents[index] = malloc(BYTES_MOST);
  if (!contents[index] || bytes > BYTES_MOST) abort();
  fill(dtype, contents[index], bytes);
  return contents[index];
}

static rondo_tensor in(struct bench *bench, rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  struct held *held = &bench->inputs[bench->input_count];
  REQUIRE(rondo_input(bench->graph, NULL, dtype, rank, shape, &held->tensor));
  REQUIRE(rondo_tensor_bytes(held->tensor, &held->bytes));
  held->content = content_of(bench->input_count++, dtype, held->bytes);
  return held->tensor;
}

static rondo_tensor given(struct bench *bench, rondo_dtype dtype, uint32_t rank, const int64_t *shape,
                          const void *content) {
  rondo_tensor tensor = in(bench, dtype, rank, shape);
  bench->inputs[bench->input_count - 1].content = content;
  return tensor;
}

static rondo_tensor out(struct bench *bench, rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  struct held *held = &bench->outputs[bench->output_count++];
  REQUIRE(rondo_output(bench->graph, NULL, dtype, rank, shape, &held->tensor));
  REQUIRE(rondo_tensor_bytes(held->tensor, &held->bytes));
  return held->tensor;
}

#define SHAPE(...)                                                                                                     \
  sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]) { __VA_ARGS__ }

/* Leaves a state that none of the following tasks may see. */
static void spoil(void *user, void *const *data) {
  struct bench *bench = user;
  struct floats found = floats_default();
  bench->has_begun = (found.sse & CONTROL) == (0x1f80 & CONTROL) && found.x87 == 0x037f;
  memset(data[0], 0, 4);
  floats_set((struct floats){0xdfc0, 0x0b7f});
}

static void add_spoiler(struct bench *bench) {
  rondo_argument argument = {.tensor = out(bench, RONDO_F32, SHAPE(1)), .access = RONDO_WRITE};
  REQUIRE(rondo_add_kernel(
      bench->graph, &(rondo_kernel_desc){.host = spoil, .user = bench, .arguments = &argument, .argument_count = 1}));
}

/* What shows the state at once, with results that are known: see require_known. */
static void add_known(struct bench *bench) {
  static const uint16_t half_one[] = {0x0001, 0x0400}, ones[512] = {[0 ... 511] = 1},
                        large[512] = {[0 ... 511] = 0x7000};
  static const float column[] = {0x1p-126f, -0x1.6a09e6p-126f, 0x1p-126f}, gate[] = {-100, 1}, up[] = {1, 1};
  static const int32_t id[] = {0};
  rondo_tensor *known = bench->known;
  for (int i = 0; i < 3; i++) known[i] = out(bench, RONDO_F32, SHAPE(1, i == 0 ? 2 : i == 1 ? 3 : 1));
  known[3] = out(bench, RONDO_F32, SHAPE(2));
  REQUIRE(rondo_add_embed(bench->graph, &(rondo_embed_desc){.table = given(bench, RONDO_F16, SHAPE(1, 2), half_one),
                                                            .ids = given(bench, RONDO_I32, SHAPE(1), id),
                                                            .out = known[0]}));
  REQUIRE(
      rondo_add_qr(bench->graph, &(rondo_qr_desc){.a = given(bench, RONDO_F32, SHAPE(1, 3), column), .q = known[1]}));
  REQUIRE(rondo_add_gemv(bench->graph, &(rondo_gemv_desc){.weights = given(bench, RONDO_BF16, SHAPE(1, 512), ones),
                                                          .vectors = given(bench, RONDO_BF16, SHAPE(1, 512), large),
                                                          .out = known[2]}));
  REQUIRE(rondo_add_silu_mul(bench->graph, &(rondo_silu_mul_desc){.gate = given(bench, RONDO_F32, SHAPE(2), gate),
                                                                  .up = given(bench, RONDO_F32, SHAPE(2), up),
                                                                  .out = known[3]}));
}

/* Several vectors of each type, and what is done to them before and after. */
static void add_products(struct bench *bench) {
  enum { M = 40, K = 160, COUNT = 3 };
  rondo_tensor vectors = in(bench, RONDO_BF16, SHAPE(COUNT, K)), halves = in(bench, RONDO_F16, SHAPE(COUNT, K));
  rondo_tensor codes = out(bench, RONDO_NVFP4, SHAPE(COUNT, K)), scales = out(bench, RONDO_E4M3, SHAPE(COUNT, K / 16));
  REQUIRE(rondo_add_gemv(bench->graph, &(rondo_gemv_desc){.weights = in(bench, RONDO_BF16, SHAPE(M, K)),
                                                          .vectors = vectors,
                                                          .scale = 1.1f,
                                                          .out = out(bench, RONDO_F32, SHAPE(COUNT, M))}));
  REQUIRE(rondo_add_gemv(bench->graph, &(rondo_gemv_desc){.weights = in(bench, RONDO_F16, SHAPE(M, K)),
                                                          .vectors = halves,
                                                          .norm_epsilon = 1e-5f,
                                                          .norm = in(bench, RONDO_F16, SHAPE(K)),
                                                          .bias = in(bench, RONDO_F32, SHAPE(M)),
                                                          .silu_mul = 1,
                                                          .out = out(bench, RONDO_F16, SHAPE(COUNT, M / 2))}));
  REQUIRE(rondo_add_gemv(bench->graph, &(rondo_gemv_desc){.weights = in(bench, RONDO_E4M3, SHAPE(M, K)),
                                                          .weight_scales = in(bench, RONDO_F32, SHAPE(M)),
                                                          .vectors = vectors,
                                                          .out = out(bench, RONDO_BF16, SHAPE(COUNT, M))}));
  REQUIRE(rondo_add_quantize_nvfp4(
      bench->graph,
      &(rondo_quantize_nvfp4_desc){.x = vectors, .codes = codes, .scales = scales, .global_scale = 0.01f}));
  REQUIRE(rondo_add_quantize_e4m3(bench->graph,
                                  &(rondo_quantize_e4m3_desc){.x = vectors,
                                                              .codes = out(bench, RONDO_E4M3, SHAPE(COUNT, K)),
                                                              .scales = out(bench, RONDO_F32, SHAPE(COUNT))}));
  REQUIRE(rondo_add_gemv(bench->graph, &(rondo_gemv_desc){.weights = in(bench, RONDO_NVFP4, SHAPE(M, K)),
                                                          .weight_scales = in(bench, RONDO_E4M3, SHAPE(M, K / 16)),
                                                          .vectors = codes,
                                                          .vector_scales = scales,
                                                          .scale = 1e-41f, /* a subnormal number, not a default */
                                                          .out = out(bench, RONDO_F32, SHAPE(COUNT, M))}));
}

/* More vectors than gemv's. */
static void add_many(struct bench *bench) {
  enum { M = 36, K = 208, COUNT = 21 };
  const rondo_gemm_desc plain = {.weights = in(bench, RONDO_F16, SHAPE(M, K)),
                                 .vectors = in(bench, RONDO_F16, SHAPE(COUNT, K)),
                                 .scale = 1e-41f,
                                 .out = out(bench, RONDO_F32, SHAPE(COUNT, M))};
  const rondo_gemm_desc gated = {.weights = in(bench, RONDO_NVFP4, SHAPE(M, K)),
                                 .weight_scales = in(bench, RONDO_E4M3, SHAPE(M, K / 16)),
                                 .vectors = in(bench, RONDO_BF16, SHAPE(COUNT, K)),
                                 .scale = 0.001f,
                                 .silu_mul = 1,
                                 .out = out(bench, RONDO_F32, SHAPE(COUNT, M / 2))};
  REQUIRE(rondo_add_gemm(bench->graph, &plain));
  REQUIRE(rondo_add_gemm(bench->graph, &gated));
}

static void add_attention(struct bench *bench) {
  enum { HEADS = 2, ROWS = 5, CAPACITY = 40, D = 32 };
  rondo_tensor position = in(bench, RONDO_I32, SHAPE(1));
  const rondo_attention_desc plain = {.q = in(bench, RONDO_BF16, SHAPE(1, HEADS, ROWS, D)),
                                      .k = in(bench, RONDO_BF16, SHAPE(1, HEADS, CAPACITY, D)),
                                      .v = in(bench, RONDO_BF16, SHAPE(1, HEADS, CAPACITY, D)),
                                      .o = out(bench, RONDO_BF16, SHAPE(1, HEADS, ROWS, D)),
                                      .lse = out(bench, RONDO_F32, SHAPE(1, HEADS, ROWS)),
                                      .position = position,
                                      .rope_base = 500.5f,
                                      .causal = 1};
  rondo_attention_desc capped = plain;
  capped.soft_cap = 3;
  capped.rope_base = 0;
  capped.position = (rondo_tensor){0};
  capped.o = out(bench, RONDO_BF16, SHAPE(1, HEADS, ROWS, D)), capped.lse = (rondo_tensor){0};
  REQUIRE(rondo_add_attention(bench->graph, &plain));
  REQUIRE(rondo_add_attention(bench->graph, &capped));
  REQUIRE(rondo_add_rope(bench->graph, &(rondo_rope_desc){.x = in(bench, RONDO_F32, SHAPE(1, HEADS, ROWS, D)),
                                                          .out = out(bench, RONDO_F32, SHAPE(1, HEADS, ROWS, D)),
                                                          .position = position}));
  REQUIRE(rondo_add_gemm_softmax(bench->graph, &(rondo_gemm_softmax_desc){.a = in(bench, RONDO_F16, SHAPE(9, 32)),
                                                                          .b = in(bench, RONDO_F16, SHAPE(17, 32)),
                                                                          .scale = 12.5f,
                                                                          .p = out(bench, RONDO_F32, SHAPE(9, 17))}));
}

static void add_elements(struct bench *bench) {
  enum { COUNT = 3, N = 50 };
  rondo_tensor x = in(bench, RONDO_F32, SHAPE(COUNT, N)), y = in(bench, RONDO_F32, SHAPE(COUNT, N));
  REQUIRE(rondo_add_rms_norm(bench->graph, &(rondo_rms_norm_desc){.x = x,
                                                                  .norm = in(bench, RONDO_F32, SHAPE(N)),
                                                                  .epsilon = 1e-6f,
                                                                  .out = out(bench, RONDO_F32, SHAPE(COUNT, N))}));
  REQUIRE(rondo_add_silu_mul(
      bench->graph, &(rondo_silu_mul_desc){.gate = x, .up = y, .out = out(bench, RONDO_F32, SHAPE(COUNT, N))}));
  REQUIRE(
      rondo_add_add(bench->graph, &(rondo_add_desc){.a = x, .b = y, .out = out(bench, RONDO_F32, SHAPE(COUNT, N))}));
  REQUIRE(rondo_add_argmax(bench->graph, &(rondo_argmax_desc){.x = x, .out = out(bench, RONDO_I32, SHAPE(COUNT))}));
  REQUIRE(rondo_add_sample(bench->graph, &(rondo_sample_desc){.x = x,
                                                              .out = out(bench, RONDO_I32, SHAPE(COUNT)),
                                                              .temperature = in(bench, RONDO_F32, SHAPE(COUNT)),
                                                              .top_p = in(bench, RONDO_F32, SHAPE(COUNT)),
                                                              .seed = in(bench, RONDO_I32, SHAPE(1)),
                                                              .step = in(bench, RONDO_I32, SHAPE(1))}));
}

static void add_factors(struct bench *bench, rondo_dtype dtype) {
  enum { BATCH = 2, M = 20, N = 16, SIDES = 2 };
  rondo_tensor a = in(bench, dtype, SHAPE(BATCH, M, N));
  REQUIRE(rondo_add_qr(bench->graph, &(rondo_qr_desc){.layout = RONDO_ROW_MAJOR,
                                                      .a = a,
                                                      .q = out(bench, dtype, SHAPE(BATCH, M, N)),
                                                      .r = out(bench, dtype, SHAPE(BATCH, N, N))}));
  REQUIRE(rondo_add_least_squares(bench->graph,
                                  &(rondo_least_squares_desc){.layout = RONDO_ROW_MAJOR,
                                                              .a = a,
                                                              .b = in(bench, dtype, SHAPE(BATCH, M, SIDES)),
                                                              .x = out(bench, dtype, SHAPE(BATCH, N, SIDES)),
                                                              .residual = out(bench, dtype, SHAPE(BATCH, SIDES))}));
  REQUIRE(rondo_add_triangular_inverse(bench->graph,
                                       &(rondo_triangular_inverse_desc){.a = in(bench, dtype, SHAPE(BATCH, N, N)),
                                                                        .out = out(bench, dtype, SHAPE(BATCH, N, N))}));
}

/* All of them after the host function. */
static void describe(struct bench *bench) {
  REQUIRE(rondo_graph_create(NULL, NULL, &bench->graph));
  add_spoiler(bench);
  add_known(bench);
  add_products(bench);
  add_many(bench);
  add_attention(bench);
  add_elements(bench);
  add_factors(bench, RONDO_F32);
  add_factors(bench, RONDO_F64);
  rondo_task last = 0;
  REQUIRE(rondo_last_task(bench->graph, &last));
  for (rondo_task task = 1; task <= last; task++) REQUIRE(rondo_after(bench->graph, task, 0));
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

static void require_known(const struct bench *bench, rondo_slot slot) {
  const float *embedded = rondo_data(slot, bench->known[0]), *q = rondo_data(slot, bench->known[1]);
  const float *product = rondo_data(slot, bench->known[2]), *silu = rondo_data(slot, bench->known[3]);
  floats_default();
  if (embedded[0] != 0x1p-24f || embedded[1] != 0x1p-14f)
    fail(bench->state, "f16's smallest numbers are embedded wrong");
  if (fabsf(fabsf(q[0]) - 0.5f) > 1e-6f || fabsf(q[0] + q[1] / 1.41421356f) > 1e-6f || fabsf(q[0] - q[2]) > 1e-6f)
    fail(bench->state, "a column of numbers next to the smallest normal one is factored wrong");
  if (product[0] != 0x1p-27f) fail(bench->state, "bf16's smallest numbers are multiplied wrong");
  if (!(fabsf(silu[0]) < 1e-40f && fabsf(silu[1] - 0.731058579f) < 1e-7f)) fail(bench->state, "silu is wrong");
  floats_set(bench->state->floats);
}

/* FNV-1a: of all outputs, bit for bit. */
static uint64_t hash_outputs(const struct bench *bench, rondo_slot slot) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (uint32_t i = 0; i < bench->output_count; i++) {
    const unsigned char *bytes = rondo_data(slot, bench->outputs[i].tensor);
    for (uint64_t b = 0; b < bench->outputs[i].bytes; b++) hash = (hash ^ bytes[b]) * UINT64_C(0x100000001b3);
  }
  return hash;
}

/* Reports and a ready-made graph compute too. */
static void require_reports(struct bench *bench, rondo_exec *exec, rondo_slot slot) {
  static rondo_task_profile tasks[MOST];
  rondo_graph *graph = NULL;
  rondo_graph_gemv_tensors tensors;
  rondo_exec_usage usage;
  rondo_profile_totals totals;
  REQUIRE(rondo_exec_info(exec, &usage));
  REQUIRE(rondo_profile(slot, &(rondo_profile_options){.passes = 1, .copy_bytes = 1 << 20}, tasks, usage.node_count,
                        &totals));
  REQUIRE(rondo_write_profile(tasks, &totals, "/dev/null"));
  REQUIRE(rondo_write_trace(tasks, &totals, "/dev/null"));
  REQUIRE(rondo_explain(bench->graph, 90, "/dev/null"));
  REQUIRE(rondo_explain(bench->graph, 0, "/dev/null"));
  REQUIRE(rondo_write_plan_svg(bench->graph, "/dev/null"));
  REQUIRE(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE(rondo_graph_gemv(graph,
                           &(rondo_graph_gemv_desc){.m = 32,
                                                    .k = 64,
                                                    .weights = RONDO_NVFP4,
                                                    .vectors = RONDO_NVFP4,
                                                    .out = RONDO_F32,
                                                    .scale = 0x1.1p100f,
                                                    .quantize_from = RONDO_BF16,
                                                    .quantize_scale = 0x1.3p-130f},
                           &tensors));
  REQUIRE(rondo_graph_destroy(&graph));
}

static uint64_t run(const struct state *state) {
  static struct bench whole;
  struct bench *bench = &whole;
  whole = (struct bench){.state = state};
  rondo_plan plan;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  floats_set(state->floats);
  describe(bench);
  REQUIRE(rondo_plan_graph(bench->graph, &plan));
  REQUIRE(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                      .device_bytes = plan.device_bytes,
                                      .pinned_bytes = plan.pinned_bytes_per_slot,
                                      .host_bytes = plan.host_bytes,
                                      .host_threads = 2},
                     &runtime));
  REQUIRE(rondo_instantiate(runtime, bench->graph, NULL, &exec));
  REQUIRE(rondo_acquire(exec, &slot));
  for (uint32_t i = 0; i < bench->input_count; i++)
    memcpy(rondo_data(slot, bench->inputs[i].tensor), bench->inputs[i].content, bench->inputs[i].bytes);
  bench->has_begun = false;
  REQUIRE(rondo_replay(slot));
  REQUIRE(rondo_wait(slot, RONDO_FOREVER));
  if (!bench->has_begun) fail(state, "a host function begins in another state");
  require_known(bench, slot);
  uint64_t hash = hash_outputs(bench, slot);
  require_reports(bench, exec, slot);
  REQUIRE(rondo_release(slot));
  REQUIRE(rondo_close_exec(&exec));
  REQUIRE(rondo_close(&runtime));
  REQUIRE(rondo_graph_destroy(&bench->graph));
  floats_default();
  return hash;
}

int main(int count, char **words) {
  if (count == 2 && !strcmp(words[1], "--without-avx512") && gemv_panel_has_512()) {
    puts("floats: this processor has AVX-512");
    return 1;
  }
  const uint64_t expected = run(&states[0]);
  for (size_t s = 0; s < sizeof states / sizeof *states; s++)
    if (run(&states[s]) != expected) fail(&states[s], "other bits than in the default state");
  printf("floats: the same bits in %zu states: %016" PRIx64 "\n", sizeof states / sizeof *states, expected);
  return 0;
}
