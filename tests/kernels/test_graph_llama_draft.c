/* test_graph_llama_draft.c - a Llama's answers with drafted tokens. Each token is a likeliest one after those before
 * it, by the oracle in fp64; on the host, where a row of some models has the same bits in any replay, all are those of
 * decode. A repeat has the tokens of replays one by one. Faults that would show: a token accepted behind a wrong draft,
 * a row that sees a rejected one, keys of rejected rows that stay, a draw of another position. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/graph.h"
#include "../oracles/llama_oracle.h"

enum { VERIFY, DECODE, PREFILL, PROMPT = 12, PROMPT_ROWS = 16, MOST_ROWS = 32, ROOM = 140, SHORT = 76, RUN = 8 };

struct answer {
  int count, replays, accepted_most;
  int32_t tokens[ROOM + MOST_ROWS];
};

static void set_draws(struct machine *m, int graph) {
  const rondo_graph_llama_tensors *t = &m->tensors[graph];
  if (!t->seed.graph) return;
  trial_set(&m->trials[graph], t->temperature, &(float){0.15f}), trial_set(&m->trials[graph], t->top_p, &(float){0.9f});
  trial_set(&m->trials[graph], t->top_k, &(int32_t){20}), trial_set(&m->trials[graph], t->seed, &(int32_t){17});
}

/* Most tokens get one that always follows, so that answers repeat runs of RUN tokens: the head's row for it is the
 * token's of the embedding. What begins a run depends on all tokens before. */
static void make_repetitive(struct llama *l) {
  const rondo_dtype table = l->desc.embedding                ? l->desc.embedding
                            : l->desc.weights == RONDO_NVFP4 ? RONDO_NVFP4
                                                             : l->desc.dtype;
  const size_t row = (size_t)l->desc.hidden, codes = row * rondo_dtype_bits(table) / 8, scales = row / 16;
  for (size_t i = 1; i < VOCABULARY; i++) {
    if (i % RUN == 0) continue;
    memcpy((char *)l->head.codes + i * codes, (const char *)l->embedding.codes + (i - 1) * codes, codes);
    if (table == RONDO_NVFP4)
      memcpy((char *)l->head.scales + i * scales, (const char *)l->embedding.scales + (i - 1) * scales, scales);
    memcpy(l->head.numbers + i * row, l->embedding.numbers + (i - 1) * row, row * sizeof(double));
  }
}

/* The answer ends at this position, or at the stop token. */
static void set_ends(struct machine *m, int graph, int32_t limit, int32_t stop) {
  int32_t stops[16];
  for (int i = 0; i < 16; i++) stops[i] = i == 3 ? stop : -1;
  llama_set_lists(m, graph, m->tensors[graph].stops, stops, m->tensors[graph].limit, &limit);
}

/* Processes a prompt, with padding. Returns the first token of the answer. */
static int32_t begin(struct machine *m, int32_t prompt[PROMPT_ROWS]) {
  const rondo_graph_llama_tensors *t = &m->tensors[PREFILL];
  int32_t next;
  for (int i = 0; i < PROMPT_ROWS; i++) prompt[i] = llama_some_token(i % 5 + i / PROMPT, 3);
  trial_set(&m->trials[VERIFY], m->tensors[VERIFY].position, &(int32_t){0});
  llama_set_lists(m, PREFILL, t->prompt, prompt, t->last, &(int32_t){PROMPT - 1});
  set_draws(m, PREFILL);
  trial_replay(&m->trials[PREFILL]);
  trial_get(&m->trials[PREFILL], t->next, &next);
  return next;
}

/* Replays a graph until the answer ends. */
static struct answer answer_by(struct machine *m, int graph, int32_t limit, int32_t stop) {
  const rondo_graph_llama_tensors *t = &m->tensors[graph];
  struct answer answer = {0};
  int32_t prompt[PROMPT_ROWS], matched = 0, position;
  uint64_t bytes;
  REQUIRE_OK(rondo_tensor_bytes(t->next, &bytes));
  set_ends(m, graph, limit, stop), set_draws(m, graph);
  answer.tokens[answer.count++] = begin(m, prompt);
  while (matched >= 0 && answer.count < ROOM) {
    const int32_t *next;
    int accepted = 0;
    trial_replay(&m->trials[graph]);
    next = trial_output(&m->trials[graph], t->next);
    for (; accepted < (int)(bytes / sizeof *next) && next[accepted] >= 0; accepted++)
      answer.tokens[answer.count++] = next[accepted];
    trial_get(&m->trials[graph], t->matched, &matched);
    trial_get(&m->trials[VERIFY], m->tensors[VERIFY].position, &position);
    cr_assert(accepted > 0 && position == PROMPT + answer.count - 1, "position %d", (int)position);
    answer.replays++;
    if (accepted > answer.accepted_most) answer.accepted_most = accepted;
  }
  return answer;
}

/* K, else V, of cache `i` of all layers. */
static rondo_tensor cache_of(const struct machine *m, int i) {
  const rondo_llama_layer *layer = &m->layers[VERIFY][i / 2];
  return i % 2 ? layer->v : layer->k;
}

static size_t cache_numbers(const struct machine *m) {
  uint64_t bytes;
  REQUIRE_OK(rondo_tensor_bytes(cache_of(m, 0), &bytes));
  return bytes / sizeof(uint16_t);
}

/* All layers' K and V. */
static uint16_t *caches_of(struct machine *m, size_t *numbers) {
  const size_t one = cache_numbers(m);
  *numbers = (size_t)2 * LAYERS * one;
  uint16_t *caches = malloc(*numbers * sizeof *caches);
  for (int i = 0; i < 2 * LAYERS; i++) trial_get(&m->trials[VERIFY], cache_of(m, i), caches + (size_t)i * one);
  return caches;
}

/* A prompt, and then a text up to position `at`, of which K and V are any numbers below 1. */
static int32_t begin_at(struct machine *m, int32_t prompt[PROMPT_ROWS], int32_t at) {
  const int32_t first = begin(m, prompt);
  const size_t one = cache_numbers(m);
  uint16_t *filler = malloc(one * sizeof *filler);
  for (int i = 0; i < 2 * LAYERS; i++) {
    uint32_t state = (uint32_t)i + 1;
    for (size_t k = 0; k < one; k++)
      state = state * 1664525 + 1013904223,
      filler[k] = (uint16_t)((state >> 16 & 0x807f) | (0x3c + (state >> 8) % 4) << 8);
    trial_set(&m->trials[VERIFY], cache_of(m, i), filler);
  }
  trial_set(&m->trials[VERIFY], m->tensors[VERIFY].position, &at);
  free(filler);
  return first;
}

struct apart {
  double logits;  /* in root mean squares */
  size_t numbers; /* of the caches that are others */
};

/* How far verified rows are from the tokens of decode, all of which are their drafts. */
static struct apart verified_apart(struct machine *m, int draft, int32_t at) {
  static float plain[MOST_ROWS][VOCABULARY], verified[MOST_ROWS][VOCABULARY];
  int32_t prompt[PROMPT_ROWS], tokens[MOST_ROWS + 1];
  double squares = 0, differences = 0;
  struct apart apart = {0};
  size_t numbers;
  set_ends(m, DECODE, 0, -1), set_ends(m, VERIFY, 0, -1);
  tokens[0] = begin_at(m, prompt, at);
  for (int i = 0; i <= draft; i++) {
    trial_replay(&m->trials[DECODE]);
    trial_get(&m->trials[DECODE], m->tensors[DECODE].next, &tokens[i + 1]);
    trial_get(&m->trials[DECODE], m->tensors[DECODE].logits, plain[i]);
  }
  uint16_t *of_decode = caches_of(m, &numbers);
  cr_assert_eq(begin_at(m, prompt, at), tokens[0]);
  trial_set(&m->trials[VERIFY], m->tensors[VERIFY].token, tokens);
  trial_replay(&m->trials[VERIFY]);
  trial_get(&m->trials[VERIFY], m->tensors[VERIFY].logits, verified);
  uint16_t *of_verify = caches_of(m, &numbers);
  for (size_t i = 0; i < numbers; i++) apart.numbers += of_decode[i] != of_verify[i];
  for (int i = 0; i <= draft; i++)
    for (int column = 0; column < VOCABULARY; column++) {
      const double expected = (double)plain[i][column], difference = (double)verified[i][column] - expected;
      squares += expected * expected, differences += difference * difference;
    }
  apart.logits = sqrt(differences / squares);
  free(of_decode), free(of_verify);
  return apart;
}

/* Is each token nearly the likeliest after those before it? */
static void check_likeliest(const struct llama *l, const struct answer *answer, const char *where) {
  static struct history history;
  double logits[VOCABULARY];
  int32_t prompt[PROMPT_ROWS];
  for (int i = 0; i < PROMPT; i++) {
    prompt[i] = llama_some_token(i % 5 + i / PROMPT, 3);
    llama_step(l, &history, prompt[i], i, logits);
  }
  for (int i = 0; i < answer->count; i++) {
    double most = -INFINITY, squares = 0;
    for (int column = 0; column < VOCABULARY; column++)
      most = fmax(most, logits[column]), squares += logits[column] * logits[column];
    cr_assert_geq(logits[answer->tokens[i]], most - 2 * llama_logits_gate(l) * sqrt(squares / VOCABULARY),
                  "%s: token %d of %d", where, i, answer->count);
    llama_step(l, &history, answer->tokens[i], PROMPT + i, logits);
  }
}

static void require_same(const struct answer *a, const struct answer *b, const char *where) {
  cr_assert_eq(a->count, b->count, "%s: %d and %d tokens", where, a->count, b->count);
  for (int i = 0; i < a->count; i++)
    cr_assert_eq(a->tokens[i], b->tokens[i], "%s: token %d is %d, expected %d", where, i, (int)a->tokens[i],
                 (int)b->tokens[i]);
}

/* The same answer by a repeat, which stops where the answer ends. */
static void check_repeat(struct machine *m, const struct answer *expected, int32_t limit, int32_t stop) {
  const rondo_graph_llama_tensors *t = &m->tensors[VERIFY];
  const rondo_slot slot = m->trials[VERIFY].slot;
  static const int32_t end = -1;
  struct answer answer = {0};
  int32_t prompt[PROMPT_ROWS];
  uint32_t done = 0;
  uint64_t bytes;
  REQUIRE_OK(rondo_tensor_bytes(t->next, &bytes));
  set_ends(m, VERIFY, limit, stop), set_draws(m, VERIFY);
  answer.tokens[answer.count++] = begin(m, prompt);
  REQUIRE_OK(rondo_repeat(
      slot, &(rondo_repeat_options){.count = m->repeat_steps, .until = t->matched, .values = &end, .value_count = 1}));
  for (uint32_t i = 0; rondo_repeat_wait(slot, i + 1, RONDO_FOREVER, &done) == RONDO_OK && done > i; i++) {
    const int32_t *next = rondo_repeat_data(slot, t->next, i);
    for (int row = 0; row < (int)(bytes / sizeof *next) && next[row] >= 0; row++)
      answer.tokens[answer.count++] = next[row];
  }
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  cr_assert_eq((int)done, expected->replays);
  require_same(&answer, expected, "repeat");
}

/* On the host: products of up to 16 rows, in a layer of the same form as decode's. */
static bool has_same_bits(const struct llama *l) {
  const bool in_halves = l->desc.hidden == 576 && l->desc.weights == RONDO_BF16;
  return l->desc.draft < 16 && (l->desc.one_order || in_halves);
}

/* Answers of `room` tokens. */
static void check(struct machine *m, const struct llama *l, rondo_backend backend, int room) {
  const int32_t limit = PROMPT + room - 1;
  const struct answer plain = answer_by(m, DECODE, limit, -1), drafted = answer_by(m, VERIFY, limit, -1);
  cr_assert_eq(drafted.count, room);
  cr_assert_lt(drafted.replays, room - 1, "no draft was right");
  cr_assert_leq(drafted.accepted_most, l->desc.draft + 1);
  if (!l->desc.with_sampling) check_likeliest(l, &drafted, "verify");
  if (backend == RONDO_BACKEND_HOST && has_same_bits(l)) require_same(&drafted, &plain, "verify");
  check_repeat(m, &drafted, limit, -1);
  /* A stop token ends it where it first comes. */
  const int32_t stop = drafted.tokens[room / 2];
  int first = 0;
  while (drafted.tokens[first] != stop) first++;
  const struct answer stopped = answer_by(m, VERIFY, limit, stop);
  cr_assert_eq(stopped.tokens[stopped.count - 1], stop);
  if (first > 0) cr_assert_eq(stopped.count, first + 1);
  check_repeat(m, &stopped, limit, stop);
}

/* One that verifies, a token, and a prompt. */
static void trials_start(struct machine *m, struct llama *l, rondo_backend backend) {
  l->desc.verify = 1;
  machine_add(m, backend, l->desc);
  l->desc.verify = 0;
  machine_add(m, backend, l->desc);
  l->desc.tokens = PROMPT_ROWS;
  machine_add(m, backend, l->desc);
  l->desc.tokens = 0;
  machine_start(m, l);
}

static void drafted(rondo_backend backend) {
  static const struct {
    int64_t hidden, query_heads, kv_heads, feed_forward; /* SmolLM2's have kernels of their own */
    rondo_dtype weights;
    int draft, with_sampling, one_order, room;
    uint32_t seed;
  } cases[] = {
      {0, 0, 0, 0, RONDO_BF16, 3, 0, 1, ROOM, 900},        {0, 0, 0, 0, RONDO_E4M3, 9, 1, 1, ROOM, 907},
      {576, 9, 3, 1536, RONDO_BF16, 15, 0, 0, SHORT, 901}, {576, 9, 3, 1536, RONDO_BF16, 31, 0, 0, SHORT, 902},
      {576, 9, 3, 1536, RONDO_BF16, 15, 0, 1, SHORT, 903}, {576, 9, 3, 1536, RONDO_NVFP4, 7, 0, 0, ROOM, 904},
      {576, 9, 3, 1536, RONDO_BF16, 15, 1, 0, ROOM, 905},  {576, 9, 3, 1536, RONDO_NVFP4, 15, 1, 1, ROOM, 906}};
  /* Sanitizers see the small ones, which come first. */
  for (size_t i = 0; i < rounds_here(sizeof cases / sizeof *cases); i++) {
    struct llama l;
    struct machine m = {.repeat_steps = ROOM};
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.hidden = cases[i].hidden, desc.query_heads = cases[i].query_heads, desc.kv_heads = cases[i].kv_heads;
    desc.feed_forward = cases[i].feed_forward, desc.weights = cases[i].weights, desc.head_dimension = 64;
    desc.with_sampling = cases[i].with_sampling, desc.draft = cases[i].draft;
    desc.one_order = cases[i].one_order;
    desc.feed_back = 1, desc.context = MOST_CONTEXT, desc.with_logits = 0;
    llama_make(&l, desc, cases[i].seed);
    make_repetitive(&l);
    trials_start(&m, &l, backend);
    /* On the host, where large ones take long, their answers are short. */
    check(&m, &l, backend, backend == RONDO_BACKEND_HOST && desc.hidden ? SHORT : cases[i].room);
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, drafts_change_no_token, drafted)

/* Of SmolLM2 135M's sizes. */
static rondo_graph_llama_desc drafting_smollm2(int draft) {
  rondo_graph_llama_desc desc = llama_plain_desc();
  desc.hidden = 576, desc.query_heads = 9, desc.kv_heads = 3, desc.feed_forward = 1536, desc.head_dimension = 64;
  desc.weights = RONDO_BF16, desc.draft = draft, desc.feed_back = 1;
  return desc;
}

/* With these sizes kernels give a verified row the bits of a token, but for the head's order of sums. */
static void bits(rondo_backend backend) {
  static const struct {
    int draft, at;
  } cases[] = {{15, PROMPT}, {31, 250}, {3, PROMPT}, {7, 509}, {7, 1100}, {12, 2063}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct llama l;
    struct machine m = {0};
    rondo_info info;
    rondo_graph_llama_desc desc = drafting_smollm2(cases[i].draft);
    desc.context = cases[i].at + 100, desc.with_logits = 1;
    llama_make(&l, desc, 950 + i);
    trials_start(&m, &l, backend);
    REQUIRE_OK(rondo_runtime_info(m.trials[VERIFY].runtime, &info));
    const struct apart got = verified_apart(&m, desc.draft, cases[i].at);
    cr_log_info("%d drafts: logits %.3g apart, %zu numbers of the caches", (int)desc.draft, got.logits, got.numbers);
    if (backend == RONDO_BACKEND_HOST || info.chip >= 90) {
      cr_assert_eq(got.numbers, 0, "%d drafts: %zu numbers of the caches differ", (int)desc.draft, got.numbers);
      cr_assert(got.logits <= 0.00001, "%d drafts: logits are %.3g apart", (int)desc.draft, got.logits);
    }
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, verified_rows_have_the_bits_of_tokens, bits)

/* 128 rows are as many chains of halves as there may be. */
Test(graph_llama, the_most_drafts_are_verified_by_eights) {
  rondo_graph *graph;
  rondo_llama_layer layers[LAYERS];
  rondo_graph_llama_tensors tensors = {.layers = layers};
  rondo_graph_llama_desc desc = drafting_smollm2(127);
  desc.layers = LAYERS, desc.vocabulary = VOCABULARY, desc.context = MOST_CONTEXT, desc.verify = 1;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_graph_llama(graph, &desc, &tensors));
  int chains = 0;
  for (uint32_t i = 0; i < graph->task_count; i++) {
    static const char half[] = "layer1.attention.";
    struct op_operand operands[OP_MAX_OPERANDS];
    if (strncmp(graph->tasks[i].name, half, sizeof half - 1) != 0) continue;
    graph_op_task(graph, &graph->tasks[i], operands);
    cr_expect_eq(operands[0].shape[0], 8, "%s has %d rows", graph->tasks[i].name, (int)operands[0].shape[0]);
    chains++;
  }
  cr_expect_eq(chains, 16);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(graph_llama, drafts_refuse_what_does_not_fit) {
  rondo_graph *graph;
  rondo_llama_layer layers[LAYERS];
  rondo_graph_llama_tensors tensors = {.layers = layers};
  rondo_graph_llama_desc desc = llama_plain_desc();
  desc.layers = LAYERS, desc.hidden = 64, desc.query_heads = 4, desc.kv_heads = 2, desc.feed_forward = 96;
  desc.vocabulary = VOCABULARY, desc.context = CONTEXT, desc.draft = 5;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
#define REFUSED(fragment) REQUIRE_ERROR(rondo_graph_llama(graph, &desc, &tensors), RONDO_INVALID_ARGUMENT, fragment)
  REFUSED("draft is 5, expected 0 without feed_back");
  desc.feed_back = 1, desc.sequences = 2;
  REFUSED("draft is 5, expected 0 with several sequences");
  desc.sequences = 1, desc.penalized = 3;
  REFUSED("draft is 5, expected 0 with penalized");
  desc.penalized = 0, desc.ranks = 2;
  REFUSED("draft is 5, expected 0 with several ranks");
  desc.ranks = 0, desc.page_rows = 16, desc.pages = 4;
  REFUSED("draft is 5, expected 0 with page_rows");
  desc.page_rows = 0, desc.pages = 0, desc.draft = 128;
  REFUSED("draft is 128, expected 0 to 127");
  desc.draft = 5, desc.verify = 1, desc.tokens = 4;
  REFUSED("verify is 1, expected 0 to 0");
  desc.tokens = 0, desc.weights = RONDO_E4M3, desc.draft = 16;
  REFUSED("weights is e4m3, expected bf16 or nvfp4 with more than 16 tokens");
#undef REFUSED
  desc.weights = RONDO_BF16, desc.draft = 5;
  REQUIRE_OK(rondo_graph_llama(graph, &desc, &tensors));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}
