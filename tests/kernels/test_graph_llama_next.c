/* test_graph_llama_next.c - how the ready-made graph of a Llama's step comes to its next tokens: fed back by the graph
 * as the host would feed them, drawn, with penalties; a sequence that rests. Faults that would show: another sequence's
 * token or seed, a position that moves on alone, logits that no penalty names. */
#include <criterion/criterion.h>
#include <string.h>

#include "../oracles/llama_oracle.h"

/* Of numbers too, which memcmp would not be asked for. */
static bool is_same(const void *a, const void *b, size_t bytes) { return !memcmp(a, b, bytes); }

enum { FED_STEPS = 7, PROMPT = 9, CHUNK = 4 };

static void set_sampling(struct machine *m, int graph, const int32_t *seed, int count) {
  const rondo_graph_llama_tensors *t = &m->tensors[graph];
  static const float warm[] = {1.5f, 0.0f}, most[] = {0.9f, 1.0f};
  float temperature[MOST_SEQUENCES], top_p[MOST_SEQUENCES];
  int32_t top_k[MOST_SEQUENCES];
  if (!t->seed.graph) return;
  for (int s = 0; s < count; s++) temperature[s] = warm[s % 2], top_p[s] = most[s % 2], top_k[s] = 12;
  trial_set(&m->trials[graph], t->temperature, temperature), trial_set(&m->trials[graph], t->top_p, top_p);
  trial_set(&m->trials[graph], t->top_k, top_k), trial_set(&m->trials[graph], t->seed, seed);
}

/* A prompt into sequence 2 of 3, then a few tokens of all: by the host's hand, or fed back. */
static void generate(const struct llama *l, rondo_backend backend, bool fed_back, int32_t tokens[1 + FED_STEPS][3],
                     float logits[FED_STEPS][3][VOCABULARY]) {
  static const int32_t seeds[] = {11, 12, 13};
  struct machine m = {.count = 0};
  rondo_graph_llama_desc desc = l->desc;
  int32_t token[] = {3, 4, 0}, position[] = {0, 0, 0};
  desc.sequences = 3, desc.feed_back = fed_back;
  machine_add(&m, backend, desc);
  desc.tokens = CHUNK, desc.sequence = 2;
  machine_add(&m, backend, desc);
  machine_start(&m, l);
  set_sampling(&m, 0, seeds, 3), set_sampling(&m, 1, seeds + 2, 1);
  if (fed_back) trial_set(&m.trials[0], m.tensors[0].token, token);
  for (int32_t begin = 0; begin < PROMPT; begin += CHUNK) {
    const int32_t count = PROMPT - begin < CHUNK ? PROMPT - begin : CHUNK, last = count - 1;
    int32_t prompt[CHUNK] = {0};
    for (int i = 0; i < count; i++) prompt[i] = llama_some_token(2, begin + i);
    trial_set(&m.trials[1], m.tensors[1].prompt, prompt);
    trial_set(&m.trials[1], m.tensors[1].last, &last);
    trial_set(&m.trials[1], fed_back ? m.tensors[1].advance : m.tensors[1].position, fed_back ? &count : &begin);
    trial_replay(&m.trials[1]);
  }
  token[2] = *(const int32_t *)trial_output(&m.trials[1], m.tensors[1].next), position[2] = PROMPT;
  memcpy(tokens[0], token, sizeof token);
  if (fed_back) trial_set(&m.trials[0], m.tensors[0].advance, (int32_t[]){1, 1, 1});
  for (int t = 0; t < FED_STEPS; t++) {
    if (!fed_back) llama_set_lists(&m, 0, m.tensors[0].token, token, m.tensors[0].position, position);
    trial_replay(&m.trials[0]);
    trial_get(&m.trials[0], m.tensors[0].next, token);
    trial_get(&m.trials[0], m.tensors[0].logits, logits[t]);
    for (int s = 0; s < 3; s++) position[s]++;
    memcpy(tokens[t + 1], token, sizeof token);
  }
  if (fed_back) {
    int32_t kept[2][3];
    trial_get(&m.trials[0], m.tensors[0].token, kept[0]), trial_get(&m.trials[0], m.tensors[0].position, kept[1]);
    cr_assert(!memcmp(kept[0], token, sizeof token) && !memcmp(kept[1], position, sizeof position));
  }
  machine_end(&m);
}

static void feeds_back(rondo_backend backend) {
  static int32_t by_hand[1 + FED_STEPS][3], fed_back[1 + FED_STEPS][3];
  static float logits_by_hand[FED_STEPS][3][VOCABULARY], logits_fed_back[FED_STEPS][3][VOCABULARY];
  for (int with_sampling = 0; with_sampling < 2; with_sampling++) {
    struct llama l;
    rondo_graph_llama_desc desc = llama_plain_desc();
    desc.with_sampling = with_sampling, desc.dtype = RONDO_F16, desc.weights = RONDO_NVFP4;
    llama_make(&l, desc, 90);
    generate(&l, backend, false, by_hand, logits_by_hand);
    generate(&l, backend, true, fed_back, logits_fed_back);
    cr_assert(!memcmp(by_hand, fed_back, sizeof by_hand), "with_sampling %d", with_sampling);
    cr_assert(is_same(logits_by_hand, logits_fed_back, sizeof logits_by_hand), "with_sampling %d", with_sampling);
    int drawn = 0; /* that are not the largest */
    for (int t = 0; t < FED_STEPS; t++)
      for (int s = 0; s < 3; s++) drawn += by_hand[t + 1][s] != llama_largest(logits_by_hand[t][s]);
    for (int t = 0; t < FED_STEPS; t++)
      cr_assert_eq(by_hand[t + 1][1], llama_largest(logits_by_hand[t][1]), "its temperature is 0");
    cr_assert_eq(drawn > 0, with_sampling, "%d", drawn);
    llama_free(&l);
  }
}
BOTH_BACKENDS(graph_llama, fed_back_are_the_tokens_that_the_host_would_feed, feeds_back)

/* Penalties change those logits that the program names, and no others, and the draw sees them. */
static void step_with(const struct llama *l, rondo_backend backend, int32_t penalized, const int32_t recent[3][2],
                      float logits[3][VOCABULARY], int32_t token[3]) {
  struct machine m = {.count = 0};
  rondo_graph_llama_desc desc = l->desc;
  desc.sequences = 3, desc.penalized = penalized;
  machine_add(&m, backend, desc);
  machine_start(&m, l);
  llama_set_lists(&m, 0, m.tensors[0].token, (int32_t[]){3, 4, 5}, m.tensors[0].position, (int32_t[]){0, 0, 0});
  if (penalized) {
    trial_set(&m.trials[0], m.tensors[0].recent, recent);
    trial_set(&m.trials[0], m.tensors[0].repetition, (float[]){1.5f, 1, 1});
    trial_set(&m.trials[0], m.tensors[0].frequency, (float[]){0, 0.25f, 0});
    trial_set(&m.trials[0], m.tensors[0].presence, (float[]){0, 0, 1000});
  }
  trial_replay(&m.trials[0]);
  trial_get(&m.trials[0], m.tensors[0].logits, logits);
  trial_get(&m.trials[0], m.tensors[0].next, token);
  machine_end(&m);
}

static void penalizes(rondo_backend backend) {
  static float plain[3][VOCABULARY], penalized[3][VOCABULARY];
  int32_t token[3], other[3];
  struct llama l;
  llama_make(&l, llama_plain_desc(), 91);
  step_with(&l, backend, 0, NULL, plain, token);
  const int32_t recent[3][2] = {{token[0], -1}, {token[1], token[1]}, {VOCABULARY, token[2]}};
  step_with(&l, backend, 2, recent, penalized, other);
  for (int s = 0; s < 3; s++)
    for (int i = 0; i < VOCABULARY; i++) {
      float x = plain[s][i], expected = x;
      if (i == token[s]) expected = s == 0 ? (x > 0 ? x / 1.5f : x * 1.5f) : s == 1 ? x - 0.5f : x - 1000;
      cr_assert_eq(penalized[s][i], expected, "sequence %d, token %d: %g, expected %g", s, i, (double)penalized[s][i],
                   (double)expected);
    }
  for (int s = 0; s < 3; s++) cr_assert_eq(other[s], llama_largest(penalized[s]), "sequence %d", s);
  cr_assert_neq(other[2], token[2]);
  llama_free(&l);
}
BOTH_BACKENDS(graph_llama, penalties_change_the_logits_that_are_named, penalizes)

/* advance 0 leaves a sequence where it is, and its next token is set through a view. */
static void rests(rondo_backend backend) {
  struct llama l;
  struct machine m = {.count = 0};
  rondo_graph_llama_desc desc = llama_plain_desc();
  rondo_tensor second;
  int32_t position[2], token[2];
  desc.sequences = 2, desc.feed_back = 1;
  llama_make(&l, desc, 5);
  machine_add(&m, backend, l.desc);
  REQUIRE_OK(rondo_view(m.trials[0].graph, m.tensors[0].token, (int64_t[]){1}, (int64_t[]){1}, &second));
  machine_start(&m, &l);
  trial_set(&m.trials[0], m.tensors[0].advance, (int32_t[]){1, 0});
  for (int t = 0; t < 3; t++) trial_replay(&m.trials[0]);
  trial_get(&m.trials[0], m.tensors[0].position, position);
  cr_assert(position[0] == 3 && position[1] == 0);
  static struct history h;
  double expected[VOCABULARY];
  llama_step(&l, &h, 17, 0, expected);
  REQUIRE_OK(rondo_upload(m.trials[0].exec, second, &(int32_t){17}, sizeof(int32_t)));
  trial_set(&m.trials[0], m.tensors[0].advance, (int32_t[]){1, 1});
  trial_replay(&m.trials[0]);
  const float *logits = trial_output(&m.trials[0], m.tensors[0].logits);
  llama_check_logits(&l, logits + VOCABULARY, expected, "sequence and token", 1, 17);
  trial_get(&m.trials[0], m.tensors[0].token, token);
  cr_assert_eq(token[1], llama_largest(logits + VOCABULARY));
  machine_end(&m);
  llama_free(&l);
}
BOTH_BACKENDS(graph_llama, a_sequence_that_rests_stays_where_it_is, rests)
