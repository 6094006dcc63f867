/* test_graph_llama_packed.c - the ready-made graph of a Llama's step with prompts of several sequences in one replay,
 * and with KV caches in pages, against the same steps in fp64. Faults that would show: rows in another sequence's
 * cache, a last row of another sequence, pages that decode and prefill number differently. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/llama_oracle.h"

enum { SEQUENCES = 4, ROUNDS = 4, MOST_ROWS = 160, MOST_PAGES = 64, DECODE_STEPS = 3 };

/* Rows of each sequence in each replay: none, one, many, and more than a tile. */
static const int32_t short_counts[ROUNDS][SEQUENCES] = {{5, 0, 1, 9}, {0, 17, 1, 2}, {3, 3, 0, 3}, {1, 0, 18, 0}};
static const int32_t long_counts[ROUNDS][SEQUENCES] = {{70, 0, 3, 60}, {0, 130, 20, 0}, {10, 1, 66, 40}, {1, 1, 1, 1}};

struct packed_case {
  rondo_dtype dtype, weights;
  int rows, dimension;
  int64_t page_rows;
  bool every_row, feed_back;
  const int32_t (*counts)[SEQUENCES];
};

/* Pages of each sequence, none twice; those of the last one come first. */
static void set_pages(struct machine *m, int graph, const rondo_graph_llama_desc *desc) {
  int32_t pages[SEQUENCES * MOST_PAGES];
  if (!desc->page_rows) return;
  const int64_t count = (desc->context + desc->page_rows - 1) / desc->page_rows;
  for (int64_t i = 0; i < SEQUENCES * count; i++) pages[i] = (int32_t)(desc->pages - 1 - i);
  trial_set(&m->trials[graph], m->tensors[graph].kv_pages, pages);
}

/* One replay of the packed graph. Rows after the last offset are tokens that do not exist. */
static void prefill_round(const struct llama *l, struct machine *m, const struct packed_case *c, int round,
                          int32_t position[SEQUENCES], int32_t next[SEQUENCES], struct history *histories) {
  int32_t prompt[MOST_ROWS], offsets[SEQUENCES + 1] = {0}, last[SEQUENCES];
  static double expected[MOST_ROWS][VOCABULARY];
  for (int i = 0; i < MOST_ROWS; i++) prompt[i] = -1;
  for (int s = 0; s < SEQUENCES; s++) {
    offsets[s + 1] = offsets[s] + c->counts[round][s];
    last[s] = offsets[s + 1] - 1;
    for (int32_t i = 0; i < c->counts[round][s]; i++) {
      const int32_t row = offsets[s] + i;
      prompt[row] = llama_some_token(s, position[s] + i);
      llama_step(l, &histories[s], prompt[row], position[s] + i, expected[row]);
    }
  }
  trial_set(&m->trials[1], m->tensors[1].prompt, prompt);
  llama_set_lists(m, 1, m->tensors[1].position, position, m->tensors[1].row_offsets, offsets);
  if (!c->every_row) trial_set(&m->trials[1], m->tensors[1].last, last);
  trial_replay(&m->trials[1]);
  const float *logits = trial_output(&m->trials[1], m->tensors[1].logits);
  const int32_t *got = trial_output(&m->trials[1], m->tensors[1].next);
  for (int s = 0; s < SEQUENCES; s++) {
    for (int32_t row = c->every_row ? offsets[s] : last[s]; row < offsets[s + 1] && row >= offsets[s]; row++) {
      const int result = c->every_row ? row : s;
      llama_check_logits(l, logits + (ptrdiff_t)result * VOCABULARY, expected[row], "sequence and row", s, row);
      cr_assert_eq(got[result], llama_largest(logits + (ptrdiff_t)result * VOCABULARY));
      next[s] = got[result];
    }
    position[s] += c->counts[round][s];
  }
}

/* After the prompts all sequences go on, each at its own position. */
static void decode_on(const struct llama *l, struct machine *m, bool feed_back, int32_t position[SEQUENCES],
                      int32_t token[SEQUENCES], struct history *histories) {
  double expected[VOCABULARY];
  for (int step = 0; step < DECODE_STEPS; step++) {
    if (!feed_back || !step) llama_set_lists(m, 0, m->tensors[0].token, token, m->tensors[0].position, position);
    if (feed_back) trial_set(&m->trials[0], m->tensors[0].advance, (int32_t[]){1, 1, 1, 1});
    trial_replay(&m->trials[0]);
    const float *logits = trial_output(&m->trials[0], m->tensors[0].logits);
    for (int s = 0; s < SEQUENCES; s++) {
      llama_step(l, &histories[s], token[s], position[s]++, expected);
      llama_check_logits(l, logits + (ptrdiff_t)s * VOCABULARY, expected, "sequence and step after prompts", s, step);
    }
    trial_get(&m->trials[0], m->tensors[0].next, token);
  }
}

static void prompts(rondo_backend backend) {
  static const struct packed_case cases[] = {
      {RONDO_BF16, RONDO_BF16, 24, 32, 0, false, false, short_counts},
      {RONDO_F16, RONDO_F16, 24, 64, 16, true, false, short_counts},
      {RONDO_BF16, RONDO_NVFP4, 160, 64, 0, true, true, long_counts},
      {RONDO_F16, RONDO_F16, 150, 32, 0, false, true, long_counts},
      {RONDO_BF16, RONDO_BF16, 160, 64, 32, false, true, long_counts},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static struct history histories[SEQUENCES];
    const struct packed_case *c = &cases[i];
    struct llama l;
    struct machine m = {.count = 0};
    int32_t position[SEQUENCES] = {0}, next[SEQUENCES] = {0};
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.dtype = c->dtype, desc.weights = c->weights, desc.head_dimension = c->dimension, desc.sequences = SEQUENCES;
    desc.context = MOST_CONTEXT, desc.page_rows = c->page_rows;
    desc.pages = c->page_rows ? SEQUENCES * (MOST_CONTEXT / c->page_rows) + 3 : 0;
    llama_make(&l, desc, 500 + i);
    desc = l.desc, desc.feed_back = c->feed_back;
    machine_add(&m, backend, desc);
    desc.feed_back = 0, desc.tokens = c->rows, desc.packed = 1, desc.every_row = c->every_row;
    machine_add(&m, backend, desc);
    machine_start(&m, &l);
    set_pages(&m, 0, &desc), set_pages(&m, 1, &desc);
    memset(histories, 0, sizeof histories);
    l.streams = c->dtype == RONDO_BF16;
    l.layer_norms_are_tasks = !l.streams, l.last_norm_is_a_task = c->every_row;
    for (int round = 0; round < ROUNDS; round++) prefill_round(&l, &m, c, round, position, next, histories);
    l.layer_norms_are_tasks = l.last_norm_is_a_task = l.streams = false;
    decode_on(&l, &m, c->feed_back, position, next, histories);
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama_packed, prompts_of_several_sequences_match_64_bits_token_after_token, prompts)

/* ---- Pages ------------------------------------------------------------------------------------------------------- */

enum { PAGED_STEPS = 20, PAGED_SEQUENCES = 3, PAGE_ROWS = 16 };

/* Logits of every step. `broken`: sequence 1 has no pages. */
static void decode_logits(const struct llama *l, rondo_backend backend, int64_t page_rows, bool broken,
                          float (*logits)[PAGED_SEQUENCES][VOCABULARY]) {
  struct machine m = {.count = 0};
  rondo_graph_llama_desc desc = l->desc;
  desc.page_rows = page_rows, desc.pages = page_rows ? 9 : 0;
  machine_add(&m, backend, desc);
  machine_start(&m, l);
  int32_t pages[PAGED_SEQUENCES][2] = {{7, 0}, {2, 8}, {4, 1}};
  if (broken) pages[1][0] = -1, pages[1][1] = INT32_MAX;
  if (page_rows) trial_set(&m.trials[0], m.tensors[0].kv_pages, pages);
  for (int32_t t = 0; t < PAGED_STEPS; t++) {
    int32_t token[PAGED_SEQUENCES], position[PAGED_SEQUENCES];
    for (int s = 0; s < PAGED_SEQUENCES; s++) position[s] = t, token[s] = llama_some_token(s, t);
    llama_set_lists(&m, 0, m.tensors[0].token, token, m.tensors[0].position, position);
    trial_replay(&m.trials[0]);
    trial_get(&m.trials[0], m.tensors[0].logits, logits[t]);
  }
  machine_end(&m);
}

/* With one_order the products of both are the same. */
static void pages_alike(rondo_backend backend) {
  static float plain[PAGED_STEPS][PAGED_SEQUENCES][VOCABULARY], paged[PAGED_STEPS][PAGED_SEQUENCES][VOCABULARY],
      broken[PAGED_STEPS][PAGED_SEQUENCES][VOCABULARY];
  struct llama l;
  rondo_graph_llama_desc desc = llama_plain_desc();
  desc.head_dimension = 64, desc.one_order = 1, desc.sequences = PAGED_SEQUENCES;
  llama_make(&l, desc, 71);
  decode_logits(&l, backend, 0, false, plain);
  decode_logits(&l, backend, PAGE_ROWS, false, paged);
  decode_logits(&l, backend, PAGE_ROWS, true, broken);
  for (int t = 0; t < PAGED_STEPS; t++)
    for (int s = 0; s < PAGED_SEQUENCES; s++) {
      cr_assert(!memcmp((const void *)plain[t][s], (const void *)paged[t][s], sizeof plain[t][s]),
                "step %d, sequence %d", t, s);
      cr_assert(s == 1 || !memcmp((const void *)plain[t][s], (const void *)broken[t][s], sizeof plain[t][s]),
                "step %d, sequence %d beside one without pages", t, s);
    }
  llama_free(&l);
}
BOTH_BACKENDS(graph_llama_packed, decode_has_the_same_bits_with_pages_and_beside_a_sequence_without_any, pages_alike)
