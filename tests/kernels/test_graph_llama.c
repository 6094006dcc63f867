/* test_graph_llama.c - the ready-made graph of a Llama's step, against the same step in fp64: decode and prefill in
 * every type of weights, layers of tasks and of halves. A sequence alone has the bits that it has beside others. Faults
 * that would show: a task left out, other layers' weights, a cache row at the wrong position, another sequence's token.
 * Names, refusals: test_graph_llama_refused.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "../../runtime/graph.h"
#include "../oracles/llama_oracle.h"

/* Of numbers too, which memcmp would not be asked for. */
static bool is_same(const void *a, const void *b, size_t bytes) { return !memcmp(a, b, bytes); }

/* The token that 64 bits say, unless another one is as good to within what logits may be off by: the same beside other
 * sequences and alone. */
static void check_token(const struct llama *l, int32_t token, const double *expected, int a, int b) {
  int best = 0;
  double squares = 0;
  for (int i = 0; i < VOCABULARY; i++) {
    squares += expected[i] * expected[i];
    if (expected[i] > expected[best]) best = i;
  }
  double lead = expected[best] - expected[token], size = sqrt(squares / VOCABULARY);
  cr_assert(lead <= 2 * llama_logits_gate(l) * size, "%d, %d: token %d instead of %d, which leads by %g", a, b, token,
            best, lead / size);
}

/* ---- Decode ------------------------------------------------------------------------------------------------------ */

/* Sequences that begin at different times. */
static void decode_and_check(const struct llama *l, struct machine *m, int sequences, int steps) {
  static struct history histories[MOST_SEQUENCES];
  double expected[VOCABULARY];
  for (int t = 0; t < steps; t++) {
    int32_t token[MOST_SEQUENCES], position[MOST_SEQUENCES];
    for (int s = 0; s < sequences; s++) {
      position[s] = t > 2 * s ? t - 2 * s : 0; /* it rests at 0 */
      token[s] = llama_some_token(s, position[s]);
    }
    llama_set_lists(m, 0, m->tensors[0].token, token, m->tensors[0].position, position);
    trial_replay(&m->trials[0]);
    const float *logits = trial_output(&m->trials[0], m->tensors[0].logits);
    const int32_t *next = trial_output(&m->trials[0], m->tensors[0].next);
    for (int s = 0; s < sequences; s++) {
      llama_step(l, &histories[s], token[s], position[s], expected);
      llama_check_logits(l, logits + (ptrdiff_t)s * VOCABULARY, expected, "step and sequence", t, s);
      cr_assert_eq(next[s], llama_largest(logits + (ptrdiff_t)s * VOCABULARY), "step %d, sequence %d", t, s);
      check_token(l, next[s], expected, t, s);
    }
  }
}

static void decodes(rondo_backend backend) {
  static const struct {
    rondo_dtype dtype, weights, embedding;
    int tied, pairing, frequencies, dimension, sequences, steps;
  } cases[] = {
      {RONDO_BF16, RONDO_BF16, 0, 0, RONDO_ROPE_HALVES, 0, 32, 3, 9},
      {RONDO_BF16, RONDO_NVFP4, 0, 1, RONDO_ROPE_INTERLEAVED, 1, 32, 3, 9},
      {RONDO_BF16, RONDO_E4M3, 0, 0, RONDO_ROPE_HALVES, 1, 64, 3, 9},
      {RONDO_F16, RONDO_F16, 0, 1, RONDO_ROPE_INTERLEAVED, 0, 64, 3, 9},
      {RONDO_F16, RONDO_NVFP4, RONDO_F16, 0, RONDO_ROPE_HALVES, 0, 64, 3, 9},
      {RONDO_F16, RONDO_E4M3, RONDO_NVFP4, 1, RONDO_ROPE_HALVES, 0, 32, 3, 9},
      {RONDO_BF16, RONDO_BF16, 0, 1, RONDO_ROPE_HALVES, 0, 64, 17, 3},
      {RONDO_F16, RONDO_F16, 0, 0, RONDO_ROPE_HALVES, 0, 64, MOST_SEQUENCES, 4},
      {RONDO_BF16, RONDO_NVFP4, 0, 1, RONDO_ROPE_HALVES, 0, 64, MOST_SEQUENCES, 4},
      {RONDO_F16, RONDO_NVFP4, RONDO_F16, 0, RONDO_ROPE_HALVES, 0, 64, 17, 3},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct llama l;
    struct machine m = {.count = 0};
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.dtype = cases[i].dtype, desc.weights = cases[i].weights, desc.embedding = cases[i].embedding;
    desc.tied_embedding = cases[i].tied, desc.rope_pairing = (rondo_rope_pairing)cases[i].pairing;
    desc.rope_frequencies = cases[i].frequencies, desc.head_dimension = cases[i].dimension;
    desc.sequences = cases[i].sequences, desc.name = i % 2 ? "draft" : NULL;
    llama_make(&l, desc, 3 + i);
    l.last_norm_is_a_task = cases[i].sequences > 16;
    l.streams = l.last_norm_is_a_task && cases[i].dtype == RONDO_BF16;
    l.layer_norms_are_tasks = l.last_norm_is_a_task && !l.streams;
    machine_add(&m, backend, l.desc);
    machine_start(&m, &l);
    decode_and_check(&l, &m, cases[i].sequences, cases[i].steps);
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, decoding_matches_64_bits_in_every_type_of_weights, decodes)

/* Layers of two tasks: of SmolLM2's sizes, which have kernels on a GPU, of tiny ones, and of a wide model, of whose
 * several sequences attention is steps. */
static void decodes_in_halves(rondo_backend backend) {
  skip_under_sanitizers();
  static const struct {
    int64_t hidden, query_heads, kv_heads, feed_forward;
    rondo_dtype weights;
    int sequences, steps;
  } cases[] = {
      {576, 9, 3, 1536, RONDO_BF16, 1, 9},   {576, 9, 3, 1536, RONDO_NVFP4, 1, 5}, {576, 9, 3, 1536, RONDO_BF16, 4, 3},
      {576, 9, 3, 1536, RONDO_NVFP4, 9, 2},  {576, 9, 3, 1536, RONDO_BF16, 16, 2}, {576, 9, 3, 1536, RONDO_BF16, 30, 2},
      {576, 9, 3, 1536, RONDO_NVFP4, 17, 2}, {576, 9, 3, 1536, RONDO_BF16, 35, 1}, {576, 9, 3, 1536, RONDO_BF16, 81, 1},
      {0, 0, 0, 0, RONDO_NVFP4, 40, 3},      {0, 0, 0, 0, RONDO_BF16, 2, 9},       {1280, 20, 5, 512, RONDO_BF16, 2, 3},
      {2048, 32, 8, 512, RONDO_NVFP4, 1, 2}};
  enum { AROUND = 3 /* embedding, head and next */ };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const bool has_large_chains = cases[i].hidden == 576 && cases[i].weights == RONDO_BF16;
    const int most_rows = !has_large_chains || cases[i].sequences <= 16 ? 16 : cases[i].sequences <= 80 ? 80 : 64;
    const int chains = (cases[i].sequences + most_rows - 1) / most_rows;
    struct llama l;
    struct machine m = {.count = 0};
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.hidden = cases[i].hidden, desc.query_heads = cases[i].query_heads, desc.kv_heads = cases[i].kv_heads;
    desc.feed_forward = cases[i].feed_forward, desc.weights = cases[i].weights, desc.head_dimension = 64;
    desc.sequences = cases[i].sequences;
    llama_make(&l, desc, 300 + i);
    machine_add(&m, backend, l.desc);
    cr_assert_eq(m.trials[0].graph->task_count, chains * (2 * LAYERS + 1) + AROUND);
    machine_start(&m, &l);
    decode_and_check(&l, &m, cases[i].sequences, cases[i].steps);
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, layers_of_two_tasks_match_64_bits_of_one_sequence_and_of_many, decodes_in_halves)

/* ---- Alone and beside others ------------------------------------------------------------------------------------- */

enum { ALIKE_STEPS = 6, ALIKE_SEQUENCES = 5 };

/* The logits of sequences first .. first + count, at every step. */
static void logits_of(const struct llama *l, rondo_backend backend, int first, int count,
                      float (*logits)[ALIKE_STEPS][VOCABULARY]) {
  struct machine m = {.count = 0};
  rondo_graph_llama_desc desc = l->desc;
  desc.sequences = count;
  machine_add(&m, backend, desc);
  machine_start(&m, l);
  for (int t = 0; t < ALIKE_STEPS; t++) {
    int32_t token[MOST_SEQUENCES], position[MOST_SEQUENCES];
    for (int s = 0; s < count; s++) position[s] = t, token[s] = llama_some_token(first + s, t);
    llama_set_lists(&m, 0, m.tensors[0].token, token, m.tensors[0].position, position);
    trial_replay(&m.trials[0]);
    const float *got = trial_output(&m.trials[0], m.tensors[0].logits);
    for (int s = 0; s < count; s++) memcpy(logits[s][t], got + (ptrdiff_t)s * VOCABULARY, sizeof logits[s][t]);
  }
  machine_end(&m);
}

static void alike(rondo_backend backend) {
  static const rondo_dtype weights[] = {RONDO_BF16, RONDO_NVFP4, RONDO_E4M3};
  static float together[ALIKE_SEQUENCES][ALIKE_STEPS][VOCABULARY], alone[1][ALIKE_STEPS][VOCABULARY];
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
    struct llama l;
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.weights = weights[i], desc.head_dimension = 64, desc.one_order = 1;
    llama_make(&l, desc, 40 + i);
    logits_of(&l, backend, 0, ALIKE_SEQUENCES, together);
    for (int s = 0; s < ALIKE_SEQUENCES; s++) {
      logits_of(&l, backend, s, 1, alone);
      cr_assert(is_same(together[s], alone, sizeof alone), "%s weights, sequence %d", rondo_dtype_name(weights[i]), s);
    }
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, a_sequence_has_the_same_bits_alone_and_beside_others_with_one_order, alike)

/* ---- Prefill ----------------------------------------------------------------------------------------------------- */

/* A prompt in chunks of up to `rows`, into sequence 1 of 2; returns what follows. The last row of each is checked. */
static int32_t prefill_and_check(const struct llama *l, struct machine *m, int rows, int length, struct history *h) {
  int32_t next = -1;
  double expected[VOCABULARY];
  memset(h, 0, sizeof *h);
  for (int32_t begin = 0; begin < length; begin += rows) {
    const int32_t count = length - begin < rows ? length - begin : rows, last = count - 1;
    int32_t prompt[MOST_CONTEXT] = {0};
    for (int32_t i = 0; i < count; i++) {
      prompt[i] = llama_some_token(1, begin + i);
      llama_step(l, h, prompt[i], begin + i, expected);
    }
    trial_set(&m->trials[1], m->tensors[1].prompt, prompt);
    llama_set_lists(m, 1, m->tensors[1].position, &begin, m->tensors[1].last, &last);
    trial_replay(&m->trials[1]);
    const float *logits = trial_output(&m->trials[1], m->tensors[1].logits);
    llama_check_logits(l, logits, expected, "prompt and chunk", length, begin);
    next = *(const int32_t *)trial_output(&m->trials[1], m->tensors[1].next);
    cr_assert_eq(next, llama_largest(logits));
  }
  return next;
}

enum { PREFILL_PAGES = 11 };

/* Of the two sequences of decode, and of the second alone. */
static void set_prefill_pages(struct machine *m, const rondo_graph_llama_desc *desc) {
  int32_t pages[PREFILL_PAGES];
  if (!desc->page_rows) return;
  for (int32_t i = 0; i < PREFILL_PAGES; i++) pages[i] = (i * 4 + 1) % PREFILL_PAGES;
  trial_set(&m->trials[0], m->tensors[0].kv_pages, pages);
  trial_set(&m->trials[1], m->tensors[1].kv_pages, pages + (desc->context + desc->page_rows - 1) / desc->page_rows);
}

/* Chunks that end in padding, some after the context's end; then the sequence goes on beside one that rests. */
static void prefills(rondo_backend backend) {
  skip_under_sanitizers();
  enum { OF_SMOLLM2 = 6, STREAMS = 7, WIDE = 8 /* cases of its sizes, and two of wide models: the second streams */ };
  static const struct {
    int rows, length, context;
    rondo_dtype dtype, weights;
    int64_t page_rows;
  } cases[] = {{64, 70, 72, RONDO_BF16, RONDO_BF16, 0},     {100, 150, 152, RONDO_BF16, RONDO_BF16, 0},
               {150, 150, 152, RONDO_BF16, RONDO_BF16, 32}, {17, 40, 42, RONDO_BF16, RONDO_BF16, 16},
               {9, 20, 22, RONDO_BF16, RONDO_NVFP4, 0},     {30, 40, 42, RONDO_BF16, RONDO_NVFP4, 16},
               {4, 10, 12, RONDO_BF16, RONDO_BF16, 0},      {12, 20, 22, RONDO_BF16, RONDO_BF16, 0},
               {6, 14, 20, RONDO_BF16, RONDO_BF16, 0},      {16, 20, 20, RONDO_BF16, RONDO_NVFP4, 0},
               {16, 3, 20, RONDO_F16, RONDO_E4M3, 0},       {1, 4, 20, RONDO_F16, RONDO_F16, 0},
               {7, 20, 20, RONDO_F16, RONDO_NVFP4, 0},      {16, 16, 20, RONDO_BF16, RONDO_E4M3, 0},
               {16, 19, 20, RONDO_F16, RONDO_F16, 0},       {17, 16, 20, RONDO_BF16, RONDO_BF16, 0},
               {100, 20, 20, RONDO_F16, RONDO_F16, 0},      {64, 70, 72, RONDO_F16, RONDO_F16, 0},
               {100, 150, 152, RONDO_BF16, RONDO_BF16, 0},  {150, 160, 160, RONDO_F16, RONDO_F16, 0},
               {17, 20, 20, RONDO_BF16, RONDO_NVFP4, 0},    {100, 150, 152, RONDO_BF16, RONDO_NVFP4, 0},
               {64, 70, 72, RONDO_F16, RONDO_NVFP4, 0},     {6, 14, 20, RONDO_F16, RONDO_F16, 16},
               {100, 150, 152, RONDO_BF16, RONDO_NVFP4, 32}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static struct history h;
    struct llama l;
    struct machine m = {.count = 0};
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.dtype = cases[i].dtype, desc.weights = cases[i].weights, desc.sequences = 2;
    desc.head_dimension = i % 2 ? 64 : 32, desc.context = cases[i].context;
    desc.page_rows = cases[i].page_rows, desc.pages = desc.page_rows ? PREFILL_PAGES : 0;
    if (i < OF_SMOLLM2) desc.hidden = 576, desc.query_heads = 9, desc.kv_heads = 3, desc.feed_forward = 1536;
    if (i >= OF_SMOLLM2 && i < WIDE) {
      desc.hidden = i < STREAMS ? 1280 : 2048, desc.feed_forward = 512;
      desc.query_heads = desc.hidden / 64, desc.kv_heads = desc.hidden / 256;
    }
    if (i < WIDE) desc.head_dimension = 64;
    llama_make(&l, desc, 70 + i);
    machine_add(&m, backend, l.desc);
    desc = l.desc;
    desc.tokens = cases[i].rows, desc.sequence = 1;
    machine_add(&m, backend, desc);
    machine_start(&m, &l);
    set_prefill_pages(&m, &desc);
    l.streams = (i == STREAMS || cases[i].rows > 16) && cases[i].dtype == RONDO_BF16;
    l.layer_norms_are_tasks = cases[i].rows > 16 && !l.streams;
    int32_t next = prefill_and_check(&l, &m, cases[i].rows, cases[i].length, &h);
    l.layer_norms_are_tasks = l.streams = false;
    for (int32_t at = cases[i].length; at < cases[i].context; at++) {
      double expected[VOCABULARY];
      llama_set_lists(&m, 0, m.tensors[0].token, (int32_t[]){5, next}, m.tensors[0].position, (int32_t[]){0, at});
      trial_replay(&m.trials[0]);
      const float *logits = (const float *)trial_output(&m.trials[0], m.tensors[0].logits) + VOCABULARY;
      llama_step(&l, &h, next, at, expected);
      llama_check_logits(&l, logits, expected, "prompt and position behind it", cases[i].length, at);
      next = llama_largest(logits);
    }
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, a_prompt_in_padded_chunks_is_as_good_as_token_after_token, prefills)

/* A prompt is read into pages 1, 2, 3 ..., and goes on in a graph of one sequence without pages. */
static void continues(rondo_backend backend) {
  enum { ROWS = 20, LENGTH = 37, CONTEXT = 60, PAGE = 16, PAGES = 6 };
  static const struct {
    int64_t hidden, query_heads, kv_heads, feed_forward;
    int one_order;
  } cases[] = {{576, 9, 3, 1536, 0}, {64, 4, 2, 96, 0}, {64, 4, 2, 96, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static struct history h;
    struct llama l;
    struct machine m = {.count = 0};
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.hidden = cases[i].hidden, desc.query_heads = cases[i].query_heads, desc.kv_heads = cases[i].kv_heads;
    desc.feed_forward = cases[i].feed_forward, desc.head_dimension = 64, desc.one_order = cases[i].one_order;
    desc.context = CONTEXT, desc.sequences = 2, desc.page_rows = PAGE, desc.pages = PAGES;
    llama_make(&l, desc, 400 + i);
    machine_add(&m, backend, l.desc);
    desc = l.desc, desc.tokens = ROWS, desc.sequence = 1;
    machine_add(&m, backend, desc);
    desc = l.desc, desc.page_rows = desc.pages = 0, desc.sequences = 1;
    machine_add(&m, backend, desc);
    cr_assert_eq(m.trials[2].graph->task_count, cases[i].one_order ? 5 * LAYERS + 3 : 2 * LAYERS + 4);
    machine_start(&m, &l);
    trial_set(&m.trials[1], m.tensors[1].kv_pages, (int32_t[]){1, 2, 3, 4});
    l.streams = !cases[i].one_order, l.layer_norms_are_tasks = !l.streams;
    int32_t next = prefill_and_check(&l, &m, ROWS, LENGTH, &h);
    for (int32_t at = LENGTH; at < CONTEXT; at++) {
      double expected[VOCABULARY];
      l.layer_norms_are_tasks = l.streams = false;
      llama_step(&l, &h, next, at, expected);
      llama_set_lists(&m, 2, m.tensors[2].token, &next, m.tensors[2].position, &at);
      trial_replay(&m.trials[2]);
      const float *logits = trial_output(&m.trials[2], m.tensors[2].logits);
      llama_check_logits(&l, logits, expected, "case and position", (int)i, at);
      next = llama_largest(logits);
    }
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, a_sequence_in_pages_in_order_goes_on_without_a_list_of_them, continues)

/* A text in chunks, each row of which has logits and a next token; the last chunk ends in padding. With one_order a
 * graph with `last` gives one row the same bits, unless the norm before the head is a task in one of the two. */
static void scores(rondo_backend backend) {
  enum { MOST_ROWS = 20, LENGTH = 33 };
  static const struct {
    int rows;
    rondo_dtype weights, embedding;
    bool same_norm;
  } cases[] = {{MOST_ROWS, RONDO_BF16, 0, false},
               {MOST_ROWS, RONDO_NVFP4, 0, true},
               {5, RONDO_NVFP4, RONDO_BF16, true},
               {5, RONDO_E4M3, 0, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static struct history h;
    struct llama l;
    struct machine m = {.count = 0};
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.weights = cases[i].weights, desc.embedding = cases[i].embedding, desc.sequences = 2;
    desc.context = 40, desc.one_order = 1, desc.head_dimension = 64;
    llama_make(&l, desc, 170 + i);
    machine_add(&m, backend, l.desc);
    desc = l.desc, desc.tokens = cases[i].rows, desc.sequence = 1;
    machine_add(&m, backend, desc);
    desc.every_row = 1;
    machine_add(&m, backend, desc);
    cr_assert(!m.tensors[2].last.graph);
    machine_start(&m, &l);
    memset(&h, 0, sizeof h);
    l.layer_norms_are_tasks = l.last_norm_is_a_task = cases[i].rows > 16;
    for (int32_t begin = 0; begin < LENGTH; begin += cases[i].rows) {
      const int32_t left = LENGTH - begin, count = left < cases[i].rows ? left : cases[i].rows, one = count / 2;
      int32_t prompt[MOST_ROWS] = {0};
      for (int32_t r = 0; r < count; r++) prompt[r] = llama_some_token(1, begin + r);
      trial_set(&m.trials[1], m.tensors[1].prompt, prompt);
      llama_set_lists(&m, 1, m.tensors[1].position, &begin, m.tensors[1].last, &one);
      trial_replay(&m.trials[1]);
      llama_set_lists(&m, 2, m.tensors[2].position, &begin, m.tensors[2].prompt, prompt);
      trial_replay(&m.trials[2]);
      const float *logits = trial_output(&m.trials[2], m.tensors[2].logits);
      const int32_t *next = trial_output(&m.trials[2], m.tensors[2].next);
      for (int32_t r = 0; r < count; r++) {
        double expected[VOCABULARY];
        llama_step(&l, &h, prompt[r], begin + r, expected);
        llama_check_logits(&l, logits + (ptrdiff_t)r * VOCABULARY, expected, "case and row", (int)i, begin + r);
        cr_assert_eq(next[r], llama_largest(logits + (ptrdiff_t)r * VOCABULARY));
      }
      const float *of_last = trial_output(&m.trials[1], m.tensors[1].logits);
      cr_assert(!cases[i].same_norm ||
                    is_same(of_last, logits + (ptrdiff_t)one * VOCABULARY, VOCABULARY * sizeof *logits),
                "case %zu, row %d", i, begin + one);
    }
    machine_end(&m);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, every_row_of_a_prompt_has_logits_and_a_next_token, scores)
