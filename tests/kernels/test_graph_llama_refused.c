/* test_graph_llama_refused.c - the ready-made graph of a Llama's step without its numbers: the names of its tasks, the
 * parts that attention leaves, and the descriptions and lenders that it refuses, each with its sentence, before
 * anything is added. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../runtime/graph.h"
#include "../oracles/llama_oracle.h"

static bool is_explained(rondo_graph *graph, const char *task) {
  char path[] = "/tmp/rondo_llama_XXXXXX", line[512], quoted[96];
  int file = mkstemp(path);
  bool is_found = false;
  cr_assert_geq(file, 0);
  close(file);
  REQUIRE_OK(rondo_explain(graph, 90, path));
  FILE *text = fopen(path, "r");
  snprintf(quoted, sizeof quoted, "'%s'", task);
  while (fgets(line, sizeof line, text)) is_found |= strstr(line, quoted) != NULL;
  fclose(text);
  remove(path);
  return is_found;
}

/* With nothing before them, and with what the graph is called. */
static void check_names(rondo_graph_llama_desc desc, const char *const *parts, rondo_task expected_last) {
  struct llama l;
  llama_make(&l, desc, 1);
  for (int named = 0; named < 2; named++) {
    struct machine m = {.count = 0};
    rondo_task last;
    char name[80];
    l.desc.name = named ? "draft" : NULL;
    machine_add(&m, RONDO_BACKEND_HOST, l.desc);
    for (int i = 0; parts[i]; i++) {
      snprintf(name, sizeof name, "%s%s", named ? "draft." : "", parts[i]);
      cr_assert(is_explained(m.trials[0].graph, name), "%s", name);
    }
    REQUIRE_OK(rondo_last_task(m.trials[0].graph, &last));
    cr_assert_eq(last, expected_last);
    REQUIRE_OK(rondo_graph_destroy(&m.trials[0].graph));
  }
  llama_free(&l);
}

Test(graph_llama, every_task_has_its_name) {
  static const char *const of_prefill[] = {
      "embedding", "layer0.qkv", "layer1.attention", "layer1.output", "layer0.gate_up", "layer1.down", "last row",
      "head",      "next",       "last position",    "token",         "move",           NULL};
  static const char *const of_decode[] = {
      "embedding", "layer0.attention", "layer1.feed_forward", "norm", "head", "next", "token", "move", NULL};
  rondo_graph_llama_desc desc = llama_plain_desc();
  desc.with_sampling = 1, desc.feed_back = 1, desc.head_dimension = 64;
  check_names(desc, of_decode, 2 * LAYERS + 5);
  desc.tokens = 5, desc.head_dimension = 32;
  check_names(desc, of_prefill, 5 * LAYERS + 6);
  desc.tokens = 17;
  check_names(desc, (const char *const[]){"layer0.qkv norm", "layer1.qkv", "norm", NULL}, 5 * LAYERS + 8);
  desc.with_sampling = desc.feed_back = 0, desc.every_row = 1;
  check_names(desc, (const char *const[]){"layer1.gate_up", "norm", "head", "next", NULL}, 5 * LAYERS + 4);
  desc.dtype = desc.weights = RONDO_F16;
  check_names(desc, (const char *const[]){"layer1.gate_up norm", "norm", "head", "next", NULL}, 7 * LAYERS + 3);
  desc.dtype = desc.weights = RONDO_BF16, desc.one_order = 1;
  check_names(desc, (const char *const[]){"layer1.qkv norm", "norm", "head", "next", NULL}, 7 * LAYERS + 3);
  desc.every_row = 0, desc.with_sampling = desc.feed_back = 1;
  desc.tokens = 0, desc.one_order = 1;
  check_names(desc, (const char *const[]){"layer0.qkv", "layer1.down", NULL}, 5 * LAYERS + 4);
}

/* Clusters of an attention half's one kernel, of eight blocks each; 0 where it takes steps. */
static int64_t clusters_of(const rondo_graph *graph, const struct task *task, int64_t *parts) {
  enum { CLUSTER = 8, OUT_PARTS = 4 };
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_launches launches;
  struct op_task half = graph_op_task(graph, task, operands);
  *parts = operands[OUT_PARTS].shape[0];
  REQUIRE_OK(half.op->select(&(struct op_call){.task = &half, .data = op_nowhere}, &(struct chip){90, 132, 232448},
                             &launches));
  return launches.count == 1 ? (int64_t)launches.items[0].grid[0] / CLUSTER : 0;
}

/* Fewer parts would take other kernels, and more would be added for nothing. */
Test(graph_llama, attention_leaves_as_many_parts_as_its_kernel_has_clusters) {
  static const struct {
    int64_t hidden, query_heads, kv_heads, d;
    rondo_dtype weights;
    int64_t parts;
    bool in_steps;
    int sequences;
  } models[] = {{576, 9, 3, 64, RONDO_BF16, 3, false, 1},      {2048, 32, 8, 64, RONDO_BF16, 16, false, 1},
                {2048, 32, 8, 64, RONDO_NVFP4, 16, false, 1},  {2048, 32, 4, 64, RONDO_NVFP4, 16, false, 1},
                {2048, 12, 2, 64, RONDO_BF16, 6, false, 1},    {2048, 6, 2, 64, RONDO_NVFP4, 2, false, 1},
                {2048, 16, 16, 64, RONDO_NVFP4, 16, false, 1}, {1024, 8, 4, 128, RONDO_NVFP4, 4, false, 1},
                {1280, 20, 5, 64, RONDO_NVFP4, 5, false, 1},   {2048, 64, 8, 64, RONDO_BF16, 8, true, 1},
                {576, 9, 3, 64, RONDO_BF16, 3, false, 4},      {576, 9, 3, 64, RONDO_NVFP4, 3, false, 8},
                {2048, 32, 8, 64, RONDO_BF16, 1, true, 4}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    rondo_llama_layer layer;
    rondo_graph_llama_tensors tensors = {.layers = &layer};
    rondo_graph_llama_desc desc = llama_plain_desc();
    struct trial trial;
    int64_t parts;
    desc.layers = 1, desc.hidden = models[i].hidden, desc.feed_forward = 1024, desc.vocabulary = 64, desc.context = 100;
    desc.query_heads = models[i].query_heads, desc.kv_heads = models[i].kv_heads, desc.head_dimension = models[i].d;
    desc.weights = models[i].weights, desc.embedding = RONDO_BF16;
    desc.sequences = models[i].sequences;
    trial_describe(&trial, RONDO_BACKEND_HOST);
    REQUIRE_OK(rondo_graph_llama(trial.graph, &desc, &tensors));
    const int64_t clusters = clusters_of(trial.graph, &trial.graph->tasks[1], &parts);
    cr_assert_eq(parts, models[i].parts, "model %d: %d", (int)i, (int)parts);
    cr_assert_eq(clusters, models[i].in_steps ? 0 : parts, "model %d: %d", (int)i, (int)clusters);
    trial_end(&trial);
  }
}

Test(graph_llama, what_does_not_fit_is_refused_before_anything_is_added) {
  struct llama l;
  llama_make(&l, llama_plain_desc(), 1);
  const rondo_graph_llama_desc good = l.desc;
  rondo_graph_llama_desc bad = good;
  rondo_llama_layer layers[LAYERS], lent_layers[LAYERS];
  rondo_graph_llama_tensors tensors = {.layers = layers}, lender = {.layers = lent_layers}, nowhere = {0};
  struct trial trial, lending;
  rondo_plan empty, plan;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  trial_describe(&lending, RONDO_BACKEND_HOST);
  REQUIRE_OK(rondo_plan_graph(trial.graph, &empty));
#define REFUSED(fragment)                                                                                              \
  REQUIRE_ERROR(rondo_graph_llama(trial.graph, &bad, &tensors), RONDO_INVALID_ARGUMENT, fragment);                     \
  bad = good
  REQUIRE_ERROR(rondo_graph_llama(trial.graph, NULL, &tensors), RONDO_INVALID_ARGUMENT, "description is NULL");
  REQUIRE_ERROR(rondo_graph_llama(trial.graph, &good, NULL), RONDO_INVALID_ARGUMENT, "address is NULL");
  REQUIRE_ERROR(rondo_graph_llama(trial.graph, &good, &nowhere), RONDO_INVALID_ARGUMENT, "tensors' layers are NULL");
  bad.layers = 0;
  REFUSED("rondo_graph_llama: layers is 0, expected 1 to");
  bad.hidden = -64;
  REFUSED("hidden is -64, expected 1 to");
  bad.query_heads = 0;
  REFUSED("query_heads is 0");
  bad.query_heads = INT64_MAX, bad.kv_heads = INT64_MAX;
  REFUSED("query_heads is 9223372036854775807");
  bad.kv_heads = 3;
  REFUSED("task 2 'layer0.attention': ");
  bad.head_dimension = 48;
  REFUSED("task 2 'layer0.attention': ");
  bad.feed_forward = 0;
  REFUSED("feed_forward is 0");
  bad.vocabulary = 0;
  REFUSED("vocabulary is 0");
  bad.context = 0;
  REFUSED("context is 0");
  bad.sequences = 257;
  REFUSED("sequences is 257, expected 1 to 256");
  bad.tokens = 8193;
  REFUSED("tokens is 8193, expected 0 to 8192");
  bad.tokens = 17, bad.weights = RONDO_E4M3;
  REFUSED("weights is e4m3, expected bf16 or nvfp4 with more than 16 tokens");
  bad.sequences = 17, bad.weights = RONDO_E4M3;
  REFUSED("weights is e4m3, expected bf16 or nvfp4 with more than 16 sequences");
  bad.sequence = 1;
  REFUSED("sequence is 1, expected 0 to 0");
  bad.tokens = 4, bad.sequences = 3, bad.sequence = 3;
  REFUSED("sequence is 3, expected 0 to 2");
  bad.every_row = 1;
  REFUSED("every_row is 1, expected 0 to 0");
  bad.tokens = 4, bad.every_row = 1, bad.feed_back = 1;
  REFUSED("every_row is 1, expected 0 with feed_back");
  bad.tokens = 4, bad.every_row = 1, bad.with_sampling = 1;
  REFUSED("every_row is 1, expected 0 with with_sampling");
  bad.tokens = 4, bad.every_row = 1, bad.penalized = 3;
  REFUSED("every_row is 1, expected 0 with penalized");
  bad.packed = 1;
  REFUSED("packed is 1, expected 0 to 0");
  bad.tokens = 4, bad.sequences = 2, bad.packed = 1, bad.sequence = 1;
  REFUSED("sequence is 1, expected 0 to 0");
  bad.tokens = 4, bad.packed = 1, bad.feed_back = 1;
  REFUSED("packed is 1, expected 0 with feed_back");
  bad.tokens = 4, bad.packed = 1, bad.with_sampling = 1;
  REFUSED("packed is 1, expected 0 with with_sampling");
  bad.page_rows = 16;
  REFUSED("pages is 0, expected 1 to");
  bad.pages = 3;
  REFUSED("page_rows is 0, expected 1 to");
  bad.pages = 3, bad.page_rows = 24;
  REFUSED("task 2 'layer0.attention': k has pages of 24 rows, expected a power of two of at least 16");
  bad.tokens = 4, bad.sequences = INT32_MIN;
  REFUSED("sequences is -2147483648, expected 1 to 256");
  bad.dtype = RONDO_F32;
  REFUSED("dtype is f32, expected f16 or bf16");
  bad.embedding = RONDO_E4M3;
  REFUSED("embedding is e4m3, expected bf16 or nvfp4");
  bad.weights = RONDO_F16;
  REFUSED("task 1 'layer0.qkv': vectors are bf16, expected f16 with weights in f16");
  bad.epsilon = -1;
  REFUSED("task 1 'layer0.qkv': norm_epsilon is -1");
  bad.weights = RONDO_NVFP4, bad.feed_forward = 40;
  REFUSED("task 5 'layer0.down': weights have rows of 40, expected a multiple of 16");
  bad.lender = &nowhere;
  REFUSED("the lender's layers are NULL");
  REQUIRE_OK(rondo_graph_llama(lending.graph, &good, &lender));
  bad.lender = &lender, bad.feed_back = 1;
  REFUSED("rondo_borrow: tensor 'token' is of kind input, expected a constant or a state");
  bad.lender = &lender, bad.sequences = 2;
  REFUSED("the lender has caches of 1 sequence, expected 2");
  bad.lender = &lender, bad.tokens = 4, bad.sequences = 2, bad.sequence = 1;
  REFUSED("the lender has caches of 1 sequence, expected 2");
  bad.lender = &lender, bad.layers = LAYERS - 1;
  REFUSED("the lender has 2 layers, expected 1");
  bad.name = "a name that begins those of all";
  REFUSED("name has 31 characters, expected at most 29, as it begins all others");
#undef REFUSED
  REQUIRE_OK(rondo_plan_graph(trial.graph, &plan));
  cr_assert(!memcmp(&plan, &empty, sizeof plan), "a refused description left tensors behind");
  REQUIRE_OK(rondo_graph_llama(trial.graph, &good, &tensors));
  trial_end(&trial);
  trial_end(&lending);
  llama_free(&l);
}

/* Describes one graph over another's weights and caches, decode and prefill; fragment NULL: it can be done. */
static void require_borrowing(rondo_graph_llama_desc lent, rondo_graph_llama_desc wanted, const char *fragment) {
  rondo_llama_layer lent_layers[LAYERS], layers[LAYERS];
  rondo_graph_llama_tensors lender = {.layers = lent_layers}, tensors = {.layers = layers};
  rondo_graph *lending = NULL, *graph = NULL;
  rondo_plan empty, plan;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &lending));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_plan_graph(graph, &empty));
  REQUIRE_OK(rondo_graph_llama(lending, &lent, &lender));
  for (int tokens = 0; tokens <= 4; tokens += 4) {
    wanted.tokens = tokens, wanted.lender = &lender;
    if (fragment)
      REQUIRE_ERROR(rondo_graph_llama(graph, &wanted, &tensors), RONDO_INVALID_ARGUMENT, fragment);
    else
      REQUIRE_OK(rondo_graph_llama(graph, &wanted, &tensors));
  }
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  if (fragment) cr_assert(!memcmp(&plan, &empty, sizeof plan), "a refused description left something behind");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&lending));
}

/* A field at a time is another one, and the sentence names it, or the tensor that would be. */
Test(graph_llama, a_lender_of_another_description_is_refused) {
  struct llama l;
  llama_make(&l, llama_plain_desc(), 1);
  const rondo_graph_llama_desc good = l.desc;
  rondo_graph_llama_desc other = good;
#define REFUSED(fragment)                                                                                              \
  require_borrowing(good, other, fragment);                                                                            \
  other = good
  other.context = 100000;
  REFUSED("rondo_graph_llama: the lender has a context of 20, expected 100000");
  other.context = 19; /* its caches are not larger by chance */
  REFUSED("the lender has a context of 20, expected 19");
  other.head_dimension = 64;
  REFUSED("the lender's 'layer0.qkv weights' is [256, 64] bf16, expected [512, 64] bf16");
  other.query_heads = 4, other.kv_heads = 4;
  REFUSED("the lender's 'layer0.qkv weights' is ");
  other.query_heads = 6, other.kv_heads = 1; /* as many rows of q, k and v in all */
  REFUSED("the lender's 'layer0.output weights' is ");
  other.hidden = 128;
  REFUSED("the lender's 'embedding weights' is [160, 64] bf16, expected [160, 128] bf16");
  other.feed_forward = 112;
  REFUSED("the lender's 'layer0.gate_up weights' is ");
  other.vocabulary = 144;
  REFUSED("the lender's 'embedding weights' is [160, 64] bf16, expected [144, 64] bf16");
  other.rope_base = 500000;
  REFUSED("rope_base is 500000, expected the lender's, 10000");
  other.rope_pairing = RONDO_ROPE_INTERLEAVED;
  REFUSED("rope_pairing is 0, expected the lender's, 1");
  other.rope_frequencies = 1;
  REFUSED("rope_frequencies is 1, expected the lender's, 0");
  other.epsilon = 1e-6f;
  REFUSED("epsilon is 9.99999997e-07, expected the lender's, 9.99999975e-06");
  other.tied_embedding = !other.tied_embedding;
  REFUSED("tied_embedding is ");
  other.dtype = RONDO_F16, other.weights = RONDO_F16, other.embedding = 0;
  REFUSED("the lender's 'embedding weights' is [160, 64] bf16, expected [160, 64] f16");
  other.weights = RONDO_E4M3;
  REFUSED("the lender's 'layer0.qkv weights' is [256, 64] bf16, expected [256, 64] e4m3");
  other.weights = RONDO_NVFP4, other.embedding = RONDO_BF16;
  REFUSED("the lender's 'layer0.qkv weights' is [256, 64] bf16, expected [256, 64] nvfp4");
  other.embedding = RONDO_NVFP4;
  REFUSED("the lender's 'embedding weights' is [160, 64] bf16, expected [160, 64] nvfp4");
  other.pages = 3, other.page_rows = 32;
  REFUSED("the lender's 'layer0.k' is [1, 35, 2, 32] bf16, expected [3, 32, 2, 32] bf16");
  other.feed_back = 1;
  REFUSED("tensor 'token' is of kind input, expected a constant or a state");
#undef REFUSED
  llama_free(&l);
}

Test(graph_llama, what_weights_and_caches_do_not_depend_on_may_be_another_than_the_lenders) {
  struct llama l;
  llama_make(&l, llama_plain_desc(), 1);
  rondo_graph_llama_desc lent = l.desc, wanted = l.desc;
  lent.feed_back = 1;
  wanted.name = "draft", wanted.one_order = 1, wanted.with_logits = 0, wanted.with_sampling = 1;
  wanted.nvfp4_scale = 7; /* of nothing */
  require_borrowing(lent, wanted, NULL);
  lent.rope_frequencies = wanted.rope_frequencies = 1;
  wanted.rope_base = 500000; /* there are frequencies in its place */
  require_borrowing(lent, wanted, NULL);
  lent.weights = wanted.weights = RONDO_NVFP4, lent.nvfp4_scale = 1, wanted.nvfp4_scale = 0;
  require_borrowing(lent, wanted, NULL);
  wanted.nvfp4_scale = 0.5f;
  require_borrowing(lent, wanted, "nvfp4_scale is 0.5, expected the lender's, 1");
  lent = wanted = l.desc; /* caches in pages belong to no sequence */
  lent.page_rows = wanted.page_rows = 16, lent.pages = wanted.pages = 9, lent.sequences = 4;
  require_borrowing(lent, wanted, NULL);
  wanted.page_rows = wanted.pages = 0;
  require_borrowing(lent, wanted, NULL);
  wanted.sequences = 4;
  require_borrowing(lent, wanted, "sequences is 4, expected 1 without page_rows, as the lender has pages");
  wanted.sequences = 1, lent.pages = (lent.context + 15) / 16; /* the first page is of no sequence */
  require_borrowing(lent, wanted, "layer0.k");
  lent.pages = wanted.pages = 9, wanted.page_rows = 16;
  lent.feed_back = wanted.feed_back = 1; /* but states do */
  require_borrowing(lent, wanted, "the lender's 'token' is [4] i32, expected [1] i32");
  llama_free(&l);
}
