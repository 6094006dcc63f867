/* test_graph_llama_ranks.c - the ready-made graph of a Llama's step over 2, 4 and 8 ranks, against one rank: decode in
 * halves and as products, prompts in chunks, packed and in pages, tokens fed back, draws and penalties. Logits agree to
 * within twice what they may be off by, and all ranks have the same bits. Faults that would show: another rank's rows
 * or columns, parts added twice or not at all, a residual that every rank adds, columns of logits in the wrong order,
 * an exchange that reads what the one before left. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../../runtime/graph.h"
#include "../../runtime/kernels.h"
#include "../oracles/llama_ranks.h"

static bool is_same(const void *a, const void *b, size_t bytes) { return !memcmp(a, b, bytes); }

/* Sizes that 4 ranks divide. */
static rondo_graph_llama_desc ranks_desc(void) {
  rondo_graph_llama_desc desc = llama_plain_desc();
  desc.hidden = 64, desc.query_heads = 8, desc.kv_heads = 4, desc.feed_forward = 128;
  return desc;
}

/* Sizes of a step of one sequence whose halves give each other parts, over 2 or 4 ranks. */
static rondo_graph_llama_desc giving_desc(void) {
  rondo_graph_llama_desc desc = ranks_desc();
  desc.hidden = 2048, desc.query_heads = 32, desc.kv_heads = 8, desc.head_dimension = 64, desc.feed_forward = 4096;
  return desc;
}

/* A row of logits of all ranks beside one rank's. The next token is the largest, and as good in one rank's row. */
static void check_row(const struct llama *l, const float *one, const float *all, int32_t next, int a, int b) {
  double squares = 0, worst = 0;
  for (int i = 0; i < VOCABULARY; i++) {
    const double off = fabs((double)all[i] - (double)one[i]);
    squares += (double)one[i] * (double)one[i];
    if (!(off <= worst)) worst = off; /* NaN too */
  }
  const double size = sqrt(squares / VOCABULARY), lead = (double)one[llama_largest(one)] - (double)one[next];
  cr_assert(size > 0.01);
  cr_assert(worst <= 2 * llama_logits_gate(l) * size, "%d, %d: logits are off by %g of their size", a, b, worst / size);
  cr_assert_eq(next, llama_largest(all), "%d, %d", a, b);
  cr_assert(lead <= 2 * llama_logits_gate(l) * size, "%d, %d: another token leads by %g", a, b, lead / size);
}

/* All rows of a graph's logits. */
static void check_rows(const struct llama *l, struct llama_ranks *one, struct llama_ranks *all, int graph, int rows,
                       int step) {
  const float *expected = LLAMA_RANKS_OUTPUT(one, graph, logits), *got = LLAMA_RANKS_OUTPUT(all, graph, logits);
  const int32_t *next = LLAMA_RANKS_OUTPUT(all, graph, next);
  for (int row = 0; row < rows; row++)
    check_row(l, expected + (ptrdiff_t)row * VOCABULARY, got + (ptrdiff_t)row * VOCABULARY, next[row], step, row);
}

/* The same input of one rank and of all. */
#define SET_BOTH(graph, member, data)                                                                                  \
  LLAMA_RANKS_SET(one, graph, member, data), LLAMA_RANKS_SET(all, graph, member, data)

static void replay_both(struct llama_ranks *one, struct llama_ranks *all, int graph) {
  llama_ranks_replay(one, graph), llama_ranks_replay(all, graph);
}

/* ---- Decode ------------------------------------------------------------------------------------------------------ */

static void decode_step(struct llama_ranks *one, struct llama_ranks *all, int sequences, int t) {
  int32_t token[MOST_SEQUENCES], position[MOST_SEQUENCES];
  for (int s = 0; s < sequences; s++) {
    position[s] = t > s % 3 ? t - s % 3 : 0;
    token[s] = llama_some_token(s, position[s]);
  }
  SET_BOTH(0, token, token), SET_BOTH(0, position, position);
  replay_both(one, all, 0);
}

static void decodes(rondo_backend backend) {
  skip_under_sanitizers();
  static const struct {
    int64_t hidden, query_heads, kv_heads; /* 0: small ones */
    rondo_dtype dtype, weights, embedding;
    int tied, dimension, one_order, sequences, steps, ranks;
    uint32_t tasks; /* of all: of a layer 4 in halves, of one token 2 and one at the end, else 7, of one token 5, beyond
                       16 rows 9 */
  } cases[] = {{0, 0, 0, RONDO_BF16, RONDO_BF16, 0, 0, 64, 0, 1, 9, 2, 10},
               {0, 0, 0, RONDO_BF16, RONDO_BF16, 0, 1, 64, 0, 3, 9, 4, 13},
               {0, 0, 0, RONDO_BF16, RONDO_NVFP4, 0, 0, 64, 0, 2, 9, 2, 13},
               {0, 0, 0, RONDO_BF16, RONDO_NVFP4, 0, 1, 64, 0, 20, 3, 4, 22},
               {2048, 32, 8, RONDO_BF16, RONDO_BF16, 0, 1, 64, 0, 1, 9, 2, 10},
               {2048, 32, 8, RONDO_BF16, RONDO_NVFP4, 0, 0, 64, 0, 1, 2, 4, 10},
               {0, 0, 0, RONDO_BF16, RONDO_BF16, 0, 0, 32, 0, 3, 9, 2, 18},
               {0, 0, 0, RONDO_BF16, RONDO_BF16, 0, 0, 64, 1, 3, 5, 4, 18},
               {0, 0, 0, RONDO_F16, RONDO_F16, 0, 1, 64, 0, 1, 9, 4, 14},
               {0, 0, 0, RONDO_F16, RONDO_NVFP4, RONDO_F16, 0, 64, 0, 2, 9, 2, 18},
               {0, 0, 0, RONDO_BF16, RONDO_E4M3, RONDO_NVFP4, 1, 32, 0, 3, 9, 2, 19},
               {0, 0, 0, RONDO_F16, RONDO_E4M3, 0, 0, 64, 0, 1, 5, 4, 14},
               {0, 0, 0, RONDO_F16, RONDO_F16, 0, 0, 32, 0, 40, 3, 2, 23},
               {0, 0, 0, RONDO_BF16, RONDO_BF16, 0, 1, 32, 0, 17, 3, 4, 23},
               {64, 8, 8, RONDO_F16, RONDO_F16, 0, 0, 32, 0, 1, 5, 8, 14}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static struct llama_ranks one, all;
    struct llama l;
    rondo_graph_llama_desc desc = ranks_desc();
    desc.dtype = cases[i].dtype, desc.weights = cases[i].weights, desc.embedding = cases[i].embedding;
    desc.tied_embedding = cases[i].tied, desc.head_dimension = cases[i].dimension, desc.one_order = cases[i].one_order;
    desc.sequences = cases[i].sequences;
    if (cases[i].hidden) desc.hidden = cases[i].hidden, desc.feed_forward = 2048; /* halves give parts */
    if (cases[i].hidden) desc.query_heads = cases[i].query_heads, desc.kv_heads = cases[i].kv_heads;
    llama_make(&l, desc, 700 + i);
    llama_ranks_start(&one, backend, &l, &l.desc, 1, 1);
    llama_ranks_start(&all, backend, &l, &l.desc, 1, cases[i].ranks);
    cr_assert_eq(all.machines[0].trials[0].graph->task_count, cases[i].tasks, "case %zu", i);
    for (int t = 0; t < cases[i].steps; t++) {
      decode_step(&one, &all, cases[i].sequences, t);
      check_rows(&l, &one, &all, 0, cases[i].sequences, t);
    }
    llama_ranks_end(&one), llama_ranks_end(&all);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama_ranks, decoding_agrees_with_one_rank, decodes)

/* The same step again and again, on ranks that begin at different times. */
static void stays_with(rondo_backend backend, rondo_graph_llama_desc desc, int ranks) {
  enum { REPLAYS = 1000, HOST_REPLAYS = 200, LARGE_HOST_REPLAYS = 10 };
  static struct llama_ranks all;
  static float first[3 * VOCABULARY];
  const bool is_large = desc.hidden == giving_desc().hidden;
  const uint32_t on_host = is_large ? LARGE_HOST_REPLAYS : rounds_here(HOST_REPLAYS);
  const size_t bytes = sizeof(float) * VOCABULARY * (size_t)desc.sequences;
  struct llama l;
  llama_make(&l, desc, 800);
  llama_ranks_start(&all, backend, &l, &l.desc, 1, ranks);
  LLAMA_RANKS_SET(&all, 0, token, ((int32_t[]){3, 4, 5}));
  LLAMA_RANKS_SET(&all, 0, position, ((int32_t[]){0, 0, 0}));
  for (uint32_t i = 0; i < (backend == RONDO_BACKEND_HOST ? on_host : REPLAYS); i++) {
    llama_ranks_replay(&all, 0);
    const float *logits = LLAMA_RANKS_OUTPUT(&all, 0, logits);
    if (!i) memcpy(first, logits, bytes);
    cr_assert(is_same(first, logits, bytes), "replay %u of %d ranks", i, ranks);
  }
  llama_ranks_end(&all);
  llama_free(&l);
}

/* As products, in halves, and in halves of one sequence that give each other parts. */
static void stays(rondo_backend backend) {
  skip_under_sanitizers();
  for (int ranks = 2; ranks <= 4; ranks += 2) {
    rondo_graph_llama_desc desc = ranks_desc();
    desc.sequences = 3;
    desc.head_dimension = 32, stays_with(backend, desc, ranks);
    desc.head_dimension = 64, stays_with(backend, desc, ranks);
    desc = giving_desc();
    desc.sequences = 1, stays_with(backend, desc, ranks);
  }
}
BOTH_BACKENDS(graph_llama_ranks, every_replay_and_every_rank_has_the_same_bits, stays)

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

enum { SEQUENCES = 2, MOST_ROWS = 120, PAGES = 24 };

struct prompt_case {
  rondo_dtype dtype, weights;
  int rows, length; /* packed: of each sequence */
  int64_t page_rows;
  int packed, every_row, ranks;
};

/* The next chunk of a prompt into sequence 1, or with packed of one into each. Returns its rows. */
static int32_t chunk_step(const struct prompt_case *c, struct llama_ranks *one, struct llama_ranks *all,
                          int32_t begin) {
  const int32_t most = c->packed ? c->rows / SEQUENCES : c->rows, left = c->length - begin;
  const int32_t count = left < most ? left : most, positions[SEQUENCES] = {begin, begin};
  const int32_t offsets[] = {0, count, 2 * count}, lasts[] = {count - 1, 2 * count - 1};
  int32_t prompt[MOST_ROWS] = {0};
  for (int32_t i = 0; i < count; i++) prompt[i] = llama_some_token(c->packed ? 0 : 1, begin + i);
  for (int32_t i = 0; i < count && c->packed; i++) prompt[count + i] = llama_some_token(1, begin + i);
  SET_BOTH(1, prompt, prompt), SET_BOTH(1, position, positions);
  if (c->packed) SET_BOTH(1, row_offsets, offsets);
  if (!c->every_row) SET_BOTH(1, last, lasts);
  replay_both(one, all, 1);
  return count;
}

static void set_pages(const struct prompt_case *c, struct llama_ranks *one, struct llama_ranks *all, int64_t context) {
  int32_t pages[PAGES];
  if (!c->page_rows) return;
  for (int32_t i = 0; i < PAGES; i++) pages[i] = (i * 5 + 1) % PAGES;
  const int32_t *of_one = c->packed ? pages : pages + (context + c->page_rows - 1) / c->page_rows;
  SET_BOTH(0, kv_pages, pages), SET_BOTH(1, kv_pages, of_one);
}

static void prompt_and_decode(const struct llama *l, const struct prompt_case *c, struct llama_ranks *one,
                              struct llama_ranks *all) {
  for (int32_t begin = 0, count; begin < c->length; begin += count) {
    count = chunk_step(c, one, all, begin);
    const int sequences = c->packed ? SEQUENCES : 1;
    check_rows(l, one, all, 1, c->every_row ? count * sequences : sequences, begin);
  }
  for (int32_t at = c->length; at < c->length + 3; at++) {
    const int32_t token[] = {5, llama_some_token(1, at)}, position[] = {c->packed ? at : 0, at};
    SET_BOTH(0, token, token), SET_BOTH(0, position, position);
    replay_both(one, all, 0);
    check_rows(l, one, all, 0, SEQUENCES, at);
  }
}

static void prompts(rondo_backend backend) {
  skip_under_sanitizers();
  static const struct prompt_case cases[] = {
      {RONDO_BF16, RONDO_BF16, 6, 14, 0, 0, 0, 2},     {RONDO_F16, RONDO_E4M3, 16, 20, 0, 0, 0, 4},
      {RONDO_BF16, RONDO_NVFP4, 16, 19, 16, 0, 0, 4},  {RONDO_BF16, RONDO_BF16, 100, 110, 0, 0, 0, 4},
      {RONDO_F16, RONDO_F16, 100, 110, 16, 0, 0, 2},   {RONDO_BF16, RONDO_NVFP4, 64, 70, 16, 0, 0, 2},
      {RONDO_F16, RONDO_F16, 20, 33, 0, 0, 1, 2},      {RONDO_BF16, RONDO_BF16, 5, 14, 0, 0, 1, 4},
      {RONDO_BF16, RONDO_BF16, 120, 100, 0, 1, 0, 4},  {RONDO_F16, RONDO_F16, 60, 70, 16, 1, 1, 2},
      {RONDO_BF16, RONDO_NVFP4, 120, 90, 16, 1, 0, 2}, {RONDO_F16, RONDO_F16, 17, 16, 0, 0, 0, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static struct llama_ranks one, all;
    struct llama l;
    rondo_graph_llama_desc desc = ranks_desc(), descs[2];
    desc.dtype = cases[i].dtype, desc.weights = cases[i].weights, desc.head_dimension = i % 2 ? 32 : 64;
    desc.sequences = SEQUENCES, desc.context = cases[i].length + 5;
    desc.page_rows = cases[i].page_rows, desc.pages = cases[i].page_rows ? PAGES : 0;
    llama_make(&l, desc, 900 + i);
    descs[0] = descs[1] = l.desc;
    descs[1].tokens = cases[i].rows, descs[1].packed = cases[i].packed, descs[1].every_row = cases[i].every_row;
    descs[1].sequence = !cases[i].packed;
    llama_ranks_start(&one, backend, &l, descs, 2, 1);
    llama_ranks_start(&all, backend, &l, descs, 2, cases[i].ranks);
    set_pages(&cases[i], &one, &all, desc.context);
    prompt_and_decode(&l, &cases[i], &one, &all);
    llama_ranks_end(&one), llama_ranks_end(&all);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama_ranks, prompts_agree_with_one_rank, prompts)

/* ---- Fed back ---------------------------------------------------------------------------------------------------- */

enum { FED = 3, FED_STEPS = 12, PROMPT = 9 };

static void set_draws(struct llama_ranks *all, int graph) {
  LLAMA_RANKS_SET(all, graph, temperature, ((float[]){1.5f, 0.0f, 1.5f}));
  LLAMA_RANKS_SET(all, graph, top_k, ((int32_t[]){12, 12, 0}));
  LLAMA_RANKS_SET(all, graph, top_p, ((float[]){0.9f, 1.0f, 1.0f}));
  LLAMA_RANKS_SET(all, graph, seed, ((int32_t[]){11, 12, 13}));
}

/* A prompt into sequence 0 of 3, then tokens of all, which are drawn and fed back, with penalties. */
static void generate(const struct llama *l, rondo_backend backend, int ranks, int32_t tokens[FED_STEPS + 1][FED]) {
  static struct llama_ranks all;
  rondo_graph_llama_desc descs[] = {l->desc, l->desc};
  int32_t prompt[PROMPT], recent[FED][2] = {{0, -1}, {0, -1}, {0, -1}};
  int drawn = 0;
  descs[1].tokens = PROMPT;
  llama_ranks_start(&all, backend, l, descs, 2, ranks);
  for (int32_t i = 0; i < PROMPT; i++) prompt[i] = llama_some_token(0, i);
  for (int graph = 0; graph < 2; graph++) {
    set_draws(&all, graph);
    LLAMA_RANKS_SET(&all, graph, repetition, ((float[]){1.5f, 1, 1}));
    LLAMA_RANKS_SET(&all, graph, frequency, ((float[]){0, 0.25f, 0}));
    LLAMA_RANKS_SET(&all, graph, presence, ((float[]){0, 0, 1000}));
    LLAMA_RANKS_SET(&all, graph, recent, recent);
  }
  LLAMA_RANKS_SET(&all, 1, prompt, prompt);
  LLAMA_RANKS_SET(&all, 1, last, &(int32_t){PROMPT - 1}), LLAMA_RANKS_SET(&all, 1, advance, &(int32_t){PROMPT});
  llama_ranks_replay(&all, 1);
  tokens[0][0] = *(const int32_t *)LLAMA_RANKS_OUTPUT(&all, 1, next), tokens[0][1] = tokens[0][2] = 0;
  LLAMA_RANKS_SET(&all, 0, advance, ((int32_t[]){1, 1, 1}));
  for (int t = 1; t <= FED_STEPS; t++) {
    for (int s = 0; s < FED; s++) recent[s][0] = tokens[t - 1][s];
    LLAMA_RANKS_SET(&all, 0, recent, recent);
    llama_ranks_replay(&all, 0);
    const float *logits = LLAMA_RANKS_OUTPUT(&all, 0, logits);
    memcpy(tokens[t], LLAMA_RANKS_OUTPUT(&all, 0, next), sizeof tokens[t]);
    cr_assert_eq(tokens[t][1], llama_largest(logits + VOCABULARY), "its temperature is 0");
    cr_assert_neq(tokens[t][2], tokens[t - 1][2], "its last token has a penalty of 1000");
    drawn += tokens[t][0] != llama_largest(logits);
  }
  cr_assert_gt(drawn, 0);
  llama_ranks_end(&all);
}

static void feeds_back(rondo_backend backend) {
  for (int ranks = 2; ranks <= 4; ranks += 2) {
    static int32_t tokens[2][FED_STEPS + 1][FED];
    struct llama l;
    rondo_graph_llama_desc desc = ranks_desc();
    desc.head_dimension = 64, desc.weights = RONDO_NVFP4, desc.sequences = FED, desc.context = PROMPT + FED_STEPS;
    desc.feed_back = desc.with_sampling = 1, desc.penalized = 2;
    llama_make(&l, desc, 950);
    for (int run = 0; run < 2; run++) generate(&l, backend, ranks, tokens[run]);
    cr_assert(is_same(tokens[0], tokens[1], sizeof tokens[0]));
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama_ranks, drawn_tokens_are_fed_back_on_all_ranks, feeds_back)

/* The ranks' repeats run beside each other. */
static void repeats_of(rondo_backend backend, rondo_graph_llama_desc desc) {
  enum { STEPS = 30, END = 20 };
  static struct llama_ranks all = {.repeat_steps = STEPS};
  static int32_t tokens[STEPS][FED];
  struct llama l;
  const size_t bytes = sizeof **tokens * (size_t)desc.sequences;
  uint32_t done;
  desc.context = STEPS, desc.feed_back = desc.with_sampling = 1;
  llama_make(&l, desc, 960);
  llama_ranks_start(&all, backend, &l, &l.desc, 1, 2);
  set_draws(&all, 0);
  LLAMA_RANKS_SET(&all, 0, advance, ((int32_t[]){1, 1, 1}));
  for (int repeated = 0; repeated < 2; repeated++) {
    LLAMA_RANKS_SET(&all, 0, token, ((int32_t[]){3, 4, 5}));
    LLAMA_RANKS_SET(&all, 0, position, ((int32_t[]){0, 0, 0}));
    for (int t = 0; t < STEPS && !repeated; t++) {
      llama_ranks_replay(&all, 0);
      memcpy(tokens[t], LLAMA_RANKS_OUTPUT(&all, 0, next), bytes);
    }
    for (int i = 0; i < all.count && repeated; i++)
      REQUIRE_OK(rondo_repeat(all.machines[i].trials[0].slot, &(rondo_repeat_options){.count = END}));
    for (int i = 0; i < all.count && repeated; i++) {
      const struct machine *m = &all.machines[i];
      REQUIRE_OK(rondo_repeat_wait(m->trials[0].slot, STEPS, RONDO_FOREVER, &done));
      cr_assert_eq(done, END);
      for (uint32_t t = 0; t < END; t++)
        cr_assert(is_same(rondo_repeat_data(m->trials[0].slot, m->tensors[0].next, t), tokens[t], bytes),
                  "rank %d, step %u", i, t);
    }
  }
  llama_ranks_end(&all);
  llama_free(&l);
}

static void repeats(rondo_backend backend) {
  skip_under_sanitizers();
  rondo_graph_llama_desc of_three = ranks_desc(), of_one = giving_desc();
  of_three.head_dimension = 64, of_three.sequences = FED, of_one.sequences = 1;
  repeats_of(backend, of_three);
  repeats_of(backend, of_one);
}
BOTH_BACKENDS(graph_llama_ranks, tokens_of_repeats_have_the_bits_of_those_one_by_one, repeats)

/* ---- Descriptions ------------------------------------------------------------------------------------------------ */

Test(graph_llama_ranks, what_ranks_do_not_divide_is_refused_before_anything_is_added) {
  rondo_llama_layer layers[LAYERS], lent_layers[LAYERS];
  rondo_graph_llama_tensors tensors = {.layers = layers}, lender = {.layers = lent_layers};
  rondo_tensor states[RONDO_MAX_RANKS] = {0};
  struct trial trial, lending;
  rondo_plan empty, plan;
  uint64_t bytes = 0;
  rondo_graph_llama_desc good = ranks_desc();
  good.layers = LAYERS, good.vocabulary = VOCABULARY, good.context = CONTEXT;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  trial_describe(&lending, RONDO_BACKEND_HOST);
  REQUIRE_OK(rondo_plan_graph(trial.graph, &empty));
  REQUIRE_OK(rondo_graph_llama(lending.graph, &good, &lender));
  good.ranks = 4, good.exchange = states;
  rondo_graph_llama_desc bad = good;
#define REFUSED(fragment)                                                                                              \
  REQUIRE_ERROR(rondo_graph_llama(trial.graph, &bad, &tensors), RONDO_INVALID_ARGUMENT, fragment);                     \
  bad = good
  bad.rank = 4;
  REFUSED("rondo_graph_llama: rank is 4, expected 0 to 3");
  bad.ranks = 0, bad.rank = 1;
  REFUSED("rank is 1, expected 0 to 0");
  bad.ranks = 9;
  REFUSED("ranks is 9, expected at most 8");
  bad.query_heads = 6, bad.kv_heads = 2;
  REFUSED("query_heads is 6, expected a multiple of ranks, 4");
  bad.kv_heads = 2;
  REFUSED("kv_heads is 2, expected a multiple of ranks, 4");
  bad.feed_forward = 126;
  REFUSED("feed_forward is 126, expected a multiple of ranks, 4");
  bad.vocabulary = 158;
  REFUSED("vocabulary is 158, expected a multiple of ranks, 4");
  bad.exchange = NULL;
  REFUSED("exchange is NULL, expected the states of 4 ranks");
  bad.lender = &lender;
  REFUSED("ranks is 4, expected the lender's, 1");
  lender.ranks = 4, lender.rank = 2;
  bad.lender = &lender, bad.rank = 1;
  REFUSED("rank is 1, expected the lender's, 2");
  REFUSED("rondo_graph_llama: ");
#undef REFUSED
  REQUIRE_OK(rondo_plan_graph(trial.graph, &plan));
  cr_assert(is_same(&plan, &empty, sizeof plan), "a refused description left tensors behind");
  REQUIRE_ERROR(rondo_graph_llama_exchange_bytes(NULL, &bytes), RONDO_INVALID_ARGUMENT, "the description is NULL");
  REQUIRE_ERROR(rondo_graph_llama_exchange_bytes(&good, NULL), RONDO_INVALID_ARGUMENT, "the bytes' address is NULL");
  bad.kv_heads = 2;
  REQUIRE_ERROR(rondo_graph_llama_exchange_bytes(&bad, &bytes), RONDO_INVALID_ARGUMENT, "kv_heads is 2");
  trial_end(&trial);
  trial_end(&lending);
}

/* Of a sum of all rows, in f32 up to 16, or of the logits of a rank. */
Test(graph_llama_ranks, the_largest_exchange_has_these_bytes) {
  static const struct {
    int tokens, every_row, ranks;
    int64_t vocabulary;
    uint64_t bytes;
  } cases[] = {{0, 0, 1, 16, 0},     {0, 0, 2, 16, 256},      {0, 0, 4, 1600, 1600},
               {16, 0, 4, 16, 4096}, {100, 0, 4, 160, 12800}, {100, 1, 4, 160, 16000}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rondo_graph_llama_desc desc = ranks_desc();
    uint64_t bytes;
    desc.layers = LAYERS, desc.context = 100, desc.tokens = cases[i].tokens, desc.every_row = cases[i].every_row;
    desc.ranks = (uint32_t)cases[i].ranks, desc.vocabulary = cases[i].vocabulary;
    REQUIRE_OK(rondo_graph_llama_exchange_bytes(&desc, &bytes));
    cr_assert_eq(bytes, cases[i].bytes, "case %zu: %llu", i, (unsigned long long)bytes);
  }
}

/* ---- Which kernels ----------------------------------------------------------------------------------------------- */

/* Tasks of rank 1 whose kernels give and take parts where each rank has a device of its own. */
static int giving_tasks(const rondo_graph *graph, const struct chip *chip) {
  static struct op_launches launches;
  int giving = 0;
  for (uint32_t t = 0; t < graph->task_count; t++) {
    struct op_operand operands[OP_MAX_OPERANDS];
    struct op_task task = graph_op_task(graph, &graph->tasks[t], operands);
    REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere, .lets_successors_start = true},
                               chip, &launches));
    const char *last = launches.count ? launches.items[launches.count - 1].kernel : "";
    giving += strstr(last, "_ranks") != NULL;
  }
  return giving;
}

/* Both halves of a layer, or none: the graph decides by the sizes, and the kernels are chosen later. */
static void check_giving(int64_t query_heads, int64_t kv_heads, int64_t feed_forward) {
  static const struct chip chips[] = {{90, 132, 232448}, {100, 148, 232448}, {90, 8, 232448}};
  rondo_graph *lenders[2], *graph;
  rondo_tensor states[2];
  rondo_llama_layer layers[2];
  rondo_graph_llama_tensors tensors = {.layers = layers};
  rondo_graph_llama_desc desc = giving_desc();
  uint64_t bytes;
  desc.query_heads = 2 * query_heads, desc.kv_heads = 2 * kv_heads, desc.feed_forward = 2 * feed_forward;
  desc.layers = 2, desc.vocabulary = VOCABULARY, desc.context = 64, desc.sequences = 1;
  desc.ranks = 2, desc.rank = 1, desc.exchange = states;
  REQUIRE_OK(rondo_graph_llama_exchange_bytes(&desc, &bytes));
  for (int r = 0; r < 2; r++) {
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &lenders[r]));
    REQUIRE_OK(rondo_exchange_state(lenders[r], NULL, 2, bytes, &states[r]));
  }
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_graph_llama(graph, &desc, &tensors));
  const bool gives = query_heads / kv_heads % 2 == 0 && query_heads / kv_heads <= 8 && query_heads <= 32 &&
                     feed_forward >= 960 && feed_forward % 64 == 0;
  for (size_t c = 0; c < sizeof chips / sizeof *chips; c++)
    cr_assert_eq(giving_tasks(graph, &chips[c]), gives ? 4 : 0, "%d heads, %d, %d", (int)query_heads, (int)kv_heads,
                 (int)feed_forward);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  for (int r = 0; r < 2; r++) REQUIRE_OK(rondo_graph_destroy(&lenders[r]));
}

Test(graph_llama_ranks, halves_that_give_parts_have_kernels_for_it) {
  static const int64_t columns[] = {896, 960, 992, 1024, 4096, 14336, 65536};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
    for (int64_t heads = 2; heads <= 40; heads += 2)
      for (int64_t kv_heads = 1; kv_heads <= heads; kv_heads++)
        if (heads % kv_heads == 0) check_giving(heads, kv_heads, columns[i]);
}
