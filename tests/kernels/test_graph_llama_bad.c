/* test_graph_llama_bad.c - a ready-made Llama whose program gives one sequence bad values: tokens that do not exist,
 * positions outside of the cache, pages that do not exist, NaN and infinities in its cache. No other sequence's logits
 * or next token change by a bit. Offsets that do not rise mean what the clamped ones mean. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/llama_oracle.h"

enum {
  VICTIM = 1,
  STEPS = 3, /* of a decode; the rows that a packed prompt gives each sequence */
  PAGE_ROWS = 16,
  PAGES = 2, /* of a sequence */
};

/* What the victim is given in every step. */
struct given {
  const char *what;
  int32_t token, position;
  bool has_bad_cache, has_no_pages;
};
static const struct given good = {"nothing bad", 7, 2, false, false};
static const struct given bad[] = {
    {"a token below 0", -1, 2, false, false},
    {"a token behind the vocabulary", VOCABULARY, 2, false, false},
    {"the largest token", INT32_MAX, 2, false, false},
    {"a position below 0", 7, -1, false, false},
    {"the least position", 7, INT32_MIN, false, false},
    {"a position from which one row fits", 7, CONTEXT + 14, false, false},
    {"a position behind the cache", 7, CONTEXT + 40, false, false},
    {"the largest position", 7, INT32_MAX, false, false},
    {"NaN and infinities in its cache", 7, 2, true, false},
    {"pages that do not exist", 7, 2, false, true}, /* the last, since only some cases have pages */
};
enum { BAD = sizeof bad / sizeof *bad };

static const struct bad_case {
  rondo_dtype dtype, weights;
  int sequences;
  bool has_pages, is_packed;
} cases[] = {
    {RONDO_BF16, RONDO_BF16, 3, false, false},  {RONDO_F16, RONDO_NVFP4, 9, false, false},
    {RONDO_BF16, RONDO_E4M3, 4, true, false},   {RONDO_BF16, RONDO_NVFP4, 20, true, false},
    {RONDO_F16, RONDO_F16, 40, false, false},   {RONDO_BF16, RONDO_BF16, 4, false, true},
    {RONDO_BF16, RONDO_NVFP4, 20, false, true}, {RONDO_F16, RONDO_F16, 30, true, true},
};

/* The results of a decode's steps, or of one packed prompt. */
struct results {
  float logits[STEPS][MOST_SEQUENCES][VOCABULARY];
  int32_t next[STEPS][MOST_SEQUENCES];
};

/* Zeros in all caches, but bad numbers in the victim's if `is_bad`. Sequences have equal shares of a cache, in order.
 */
static void fill_caches(struct machine *m, const struct bad_case *c, bool is_bad) {
  const uint16_t infinity = c->dtype == RONDO_F16 ? 0x7c00 : 0x7f80, numbers[] = {0x7fff, infinity, infinity | 0x8000};
  for (int i = 0; i < 2 * LAYERS; i++) {
    const rondo_llama_layer *layer = &m->layers[0][i / 2];
    const rondo_tensor cache = i % 2 ? layer->v : layer->k;
    uint64_t bytes;
    REQUIRE_OK(rondo_tensor_bytes(cache, &bytes));
    const uint64_t share = bytes / sizeof(uint16_t) / (uint64_t)c->sequences;
    uint16_t *data = calloc(bytes, 1);
    cr_assert_not_null(data);
    for (uint64_t at = 0; is_bad && at < share; at++) data[VICTIM * share + at] = numbers[at % 3];
    trial_set(&m->trials[0], cache, data);
    free(data);
  }
}

static void set_pages(struct machine *m, int graph, const struct bad_case *c, bool has_no_pages) {
  int32_t pages[MOST_SEQUENCES][PAGES];
  if (!c->has_pages) return;
  for (int s = 0; s < c->sequences; s++)
    for (int page = 0; page < PAGES; page++) pages[s][page] = s * PAGES + page;
  if (has_no_pages) pages[VICTIM][0] = -1, pages[VICTIM][1] = INT32_MAX;
  trial_set(&m->trials[graph], m->tensors[graph].kv_pages, pages);
}

static void get(struct machine *m, int graph, struct results *results, int step) {
  trial_get(&m->trials[graph], m->tensors[graph].logits, results->logits[step]);
  trial_get(&m->trials[graph], m->tensors[graph].next, results->next[step]);
}

static void decode(struct machine *m, const struct bad_case *c, const struct given *g, struct results *results) {
  for (int32_t step = 0; step < STEPS; step++) {
    int32_t token[MOST_SEQUENCES], position[MOST_SEQUENCES];
    for (int s = 0; s < c->sequences; s++) {
      token[s] = s == VICTIM ? g->token : llama_some_token(s, step);
      position[s] = s == VICTIM ? g->position : step;
    }
    llama_set_lists(m, 0, m->tensors[0].token, token, m->tensors[0].position, position);
    trial_replay(&m->trials[0]);
    get(m, 0, results, step);
  }
}

/* Prompts of STEPS rows of each sequence. The victim's last row does not exist if its token does not. */
static void prefill(struct machine *m, const struct bad_case *c, const struct given *g, struct results *results) {
  int32_t prompt[MOST_SEQUENCES * STEPS], position[MOST_SEQUENCES] = {0}, offsets[MOST_SEQUENCES + 1],
                                          last[MOST_SEQUENCES];
  for (int row = 0; row < c->sequences * STEPS; row++)
    prompt[row] = row / STEPS == VICTIM ? g->token : llama_some_token(row / STEPS, row % STEPS);
  for (int s = 0; s <= c->sequences; s++) offsets[s] = s * STEPS;
  for (int s = 0; s < c->sequences; s++) last[s] = offsets[s + 1] - 1;
  position[VICTIM] = g->position;
  if (g->token < 0 || g->token >= VOCABULARY) last[VICTIM] = g->token;
  trial_set(&m->trials[1], m->tensors[1].prompt, prompt);
  trial_set(&m->trials[1], m->tensors[1].last, last);
  llama_set_lists(m, 1, m->tensors[1].position, position, m->tensors[1].row_offsets, offsets);
  trial_replay(&m->trials[1]);
  get(m, 1, results, 0);
}

/* A prompt, if the case is packed, and the tokens of STEPS steps: both from the first position on. */
static void run(struct machine *m, const struct bad_case *c, const struct given *g, struct results *prompt,
                struct results *tokens) {
  fill_caches(m, c, g->has_bad_cache);
  set_pages(m, 0, c, g->has_no_pages);
  if (c->is_packed) {
    set_pages(m, 1, c, g->has_no_pages);
    prefill(m, c, g, prompt);
  }
  decode(m, c, g, tokens);
}

static void check(const struct bad_case *c, const struct given *g, const struct results *got,
                  const struct results *expected, int steps) {
  for (int step = 0; step < steps; step++)
    for (int s = 0; s < c->sequences; s++)
      if (s != VICTIM) {
        const void *a = got->logits[step][s], *b = expected->logits[step][s];
        cr_assert(!memcmp(a, b, sizeof got->logits[step][s]) && got->next[step][s] == expected->next[step][s],
                  "case %d: step %d of sequence %d differs beside %s", (int)(c - cases), step, s, g->what);
      }
}

static void start(struct llama *l, struct machine *m, rondo_backend backend, const struct bad_case *c) {
  rondo_graph_llama_desc desc = llama_plain_desc();
  desc.dtype = c->dtype, desc.weights = c->weights, desc.sequences = c->sequences, desc.head_dimension = 64;
  desc.page_rows = c->has_pages ? PAGE_ROWS : 0, desc.pages = c->has_pages ? PAGES * c->sequences : 0;
  llama_make(l, desc, 900 + (uint64_t)(c - cases));
  *m = (struct machine){.count = 0};
  machine_add(m, backend, l->desc);
  desc = l->desc, desc.tokens = STEPS * c->sequences, desc.packed = 1;
  if (c->is_packed) machine_add(m, backend, desc);
  machine_start(m, l);
}

static void bad_values(rondo_backend backend) {
  static struct results expected[2], got[2];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct llama l;
    struct machine m;
    start(&l, &m, backend, &cases[i]);
    run(&m, &cases[i], &good, &expected[0], &expected[1]);
    for (int b = 0; b < BAD - !cases[i].has_pages; b++) {
      run(&m, &cases[i], &bad[b], &got[0], &got[1]);
      check(&cases[i], &bad[b], &got[0], &expected[0], cases[i].is_packed);
      check(&cases[i], &bad[b], &got[1], &expected[1], STEPS);
    }
    run(&m, &cases[i], &good, &got[0], &got[1]);
    cr_assert(!memcmp((const void *)&got[1], (const void *)&expected[1], sizeof got[1]), "case %zu does not recover",
              i);
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, bad_values_of_one_sequence_change_no_bit_of_another, bad_values)

/* ---- Offsets ----------------------------------------------------------------------------------------------------- */

enum { PACKED_SEQUENCES = 4, PACKED_ROWS = STEPS * PACKED_SEQUENCES };

static void prefill_by(struct machine *m, const int32_t offsets[PACKED_SEQUENCES + 1], struct results *results) {
  static const int32_t zeros[PACKED_SEQUENCES], last[PACKED_SEQUENCES] = {1, 4, 7, PACKED_ROWS - 1};
  int32_t prompt[PACKED_ROWS];
  for (int row = 0; row < PACKED_ROWS; row++) prompt[row] = llama_some_token(0, row);
  trial_set(&m->trials[1], m->tensors[1].prompt, prompt);
  trial_set(&m->trials[1], m->tensors[1].last, last);
  llama_set_lists(m, 1, m->tensors[1].position, zeros, m->tensors[1].row_offsets, offsets);
  trial_replay(&m->trials[1]);
  get(m, 1, results, 0);
}

static void offsets_alike(rondo_backend backend) {
  static const int32_t pairs[][2][PACKED_SEQUENCES + 1] = {
      {{0, 5, 3, 9, 12}, {0, 5, 5, 9, 12}},
      {{-7, 2, 2, INT32_MIN, 12}, {0, 2, 2, 2, 12}},
      {{0, 2, INT32_MAX, 7, -1}, {0, 2, 12, 12, 12}},
      {{100, 2, 3, 4, 5}, {12, 12, 12, 12, 12}},
  };
  static struct results expected, got;
  const struct bad_case *c = &cases[5];
  struct llama l;
  struct machine m;
  cr_assert(c->is_packed && c->sequences == PACKED_SEQUENCES);
  start(&l, &m, backend, c);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    fill_caches(&m, c, false);
    prefill_by(&m, pairs[i][1], &expected);
    fill_caches(&m, c, false);
    prefill_by(&m, pairs[i][0], &got);
    cr_assert(!memcmp((const void *)&got, (const void *)&expected, sizeof got), "offsets %zu", i);
  }
  machine_end(&m);
  llama_free(&l);
}
BOTH_BACKENDS(graph_llama, offsets_that_do_not_rise_mean_the_clamped_ones, offsets_alike)
