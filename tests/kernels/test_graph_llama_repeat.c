/* test_graph_llama_repeat.c - a Llama's tokens in one repeat, against those of replays one by one. Each step changes
 * what the next one reads, some of it early: token, position and KV caches. Faults that would show: a position of the
 * step before, a row of the caches that is not there yet, a token drawn for another step. */
#include <criterion/criterion.h>
#include <string.h>

#include "../oracles/llama_oracle.h"

enum { STEPS = 40, SEQUENCES = 4 };

/* All sequences begin at position 0. */
static void begin(struct machine *m, int sequences) {
  static const int32_t token[SEQUENCES] = {3, 4, 5, 6}, position[SEQUENCES] = {0}, advance[SEQUENCES] = {1, 1, 1, 1};
  static const float temperature[SEQUENCES] = {1.5f, 0, 1, 2}, top_p[SEQUENCES] = {0.9f, 1, 0.8f, 0.9f};
  static const int32_t top_k[SEQUENCES] = {12, 12, 12, 12}, seed[SEQUENCES] = {11, 12, 13, 14};
  const rondo_graph_llama_tensors *t = &m->tensors[0];
  cr_assert_leq(sequences, SEQUENCES);
  llama_set_lists(m, 0, t->token, token, t->position, position);
  trial_set(&m->trials[0], t->advance, advance);
  if (!t->seed.graph) return;
  trial_set(&m->trials[0], t->temperature, temperature), trial_set(&m->trials[0], t->top_p, top_p);
  trial_set(&m->trials[0], t->top_k, top_k), trial_set(&m->trials[0], t->seed, seed);
}

/* The repeat comes first, while the caches are zeros: later they hold the right rows already. */
static void check(struct machine *m, int sequences) {
  const rondo_graph_llama_tensors *t = &m->tensors[0];
  const rondo_slot slot = m->trials[0].slot;
  const size_t row = VOCABULARY * sizeof(float), rows = (size_t)sequences * row;
  int32_t position[SEQUENCES];
  uint32_t done = 0;
  begin(m, sequences);
  REQUIRE_OK(rondo_repeat(slot, &(rondo_repeat_options){.count = STEPS}));
  REQUIRE_OK(rondo_repeat_wait(slot, STEPS, RONDO_FOREVER, &done));
  cr_assert_eq(done, STEPS);
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  trial_get(&m->trials[0], t->position, position);
  for (int s = 0; s < sequences; s++) cr_assert_eq(position[s], STEPS);
  begin(m, sequences);
  for (uint32_t i = 0; i < STEPS; i++) {
    trial_replay(&m->trials[0]);
    const void *next = trial_output(&m->trials[0], t->next), *logits = trial_output(&m->trials[0], t->logits);
    cr_assert_eq(memcmp(rondo_repeat_data(slot, t->next, i), next, (size_t)sequences * sizeof(int32_t)), 0, "step %u",
                 i);
    cr_assert_eq(memcmp(rondo_repeat_data(slot, t->logits, i), logits, rows), 0, "step %u", i);
    if (i) cr_assert_neq(memcmp(rondo_repeat_data(slot, t->logits, i - 1), logits, row), 0, "step %u is the last", i);
  }
}

static void tokens(rondo_backend backend) {
  skip_under_sanitizers();
  static const struct {
    int64_t hidden, query_heads, kv_heads, feed_forward; /* SmolLM2's have kernels of their own */
    rondo_dtype weights;
    int sequences, with_sampling;
  } cases[] = {{576, 9, 3, 1536, RONDO_BF16, 1, 0},
               {576, 9, 3, 1536, RONDO_NVFP4, 1, 1},
               {576, 9, 3, 1536, RONDO_BF16, 4, 1},
               {0, 0, 0, 0, RONDO_E4M3, 3, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct llama l;
    struct machine m = {.repeat_steps = STEPS};
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.hidden = cases[i].hidden, desc.query_heads = cases[i].query_heads, desc.kv_heads = cases[i].kv_heads;
    desc.feed_forward = cases[i].feed_forward, desc.weights = cases[i].weights, desc.head_dimension = 64;
    desc.sequences = cases[i].sequences, desc.with_sampling = cases[i].with_sampling;
    desc.feed_back = 1, desc.context = 64;
    llama_make(&l, desc, 500 + i);
    machine_add(&m, backend, l.desc);
    machine_start(&m, &l);
    check(&m, cases[i].sequences);
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, tokens_of_a_repeat_have_the_bits_of_those_one_by_one, tokens)

/* A kernel that turns them off and on would make the driver launch too many of their blocks. */
Test(graph_llama, kernels_in_clusters_are_not_resident_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  struct llama l;
  struct machine m = {0};
  rondo_graph_llama_desc desc = llama_plain_desc();
  rondo_exec_options options = {.linger_ns = 1};
  rondo_runtime *runtime;
  rondo_exec *exec = NULL;
  rondo_info info;
  desc.hidden = 576, desc.query_heads = 9, desc.kv_heads = 3, desc.feed_forward = 1536, desc.head_dimension = 64;
  desc.weights = RONDO_BF16, desc.sequences = 1, desc.context = 64;
  llama_make(&l, desc, 1);
  machine_add(&m, RONDO_BACKEND_CUDA, l.desc);
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = RONDO_BACKEND_CUDA, .device_bytes = 256 << 20, .pinned_bytes = 1 << 20}, &runtime));
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  if (info.chip < 90) /* which has no clusters */
    REQUIRE_OK(rondo_instantiate(runtime, m.trials[0].graph, &options, &exec));
  else
    REQUIRE_ERROR(rondo_instantiate(runtime, m.trials[0].graph, &options, &exec), RONDO_UNSUPPORTED,
                  "its kernel runs in clusters of 8 blocks, and a resident exec has none");
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&m.trials[0].graph));
  REQUIRE_OK(rondo_close(&runtime));
  llama_free(&l);
}
