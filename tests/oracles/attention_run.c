/* attention_run.c - see attention_run.h. */
#include "attention_run.h"

#include <criterion/criterion.h>

/* ---- Many tasks in one graph ------------------------------------------------------------------------------------- */

/* Many items and heads are there to fill a GPU or to reach its kernels of many rows. The host has one kernel, so that
 * two of them do. */
static void attention_trim(struct attention *a, rondo_backend backend) {
  enum { MANY = 4, SOME = 2 };
  if (backend != RONDO_BACKEND_HOST) return;
  if (!a->lengths && a->batch > MANY) a->batch = SOME;
  if (a->kv_heads <= MANY) return;
  a->query_heads = a->query_heads / a->kv_heads * SOME;
  a->kv_heads = SOME;
}

static void attentions_begin(rondo_backend backend, struct attention *tasks, size_t count, struct trial *trial) {
  trial_describe(trial, backend);
  for (size_t i = 0; i < count; i++) {
    attention_trim(&tasks[i], backend);
    attention_add(&tasks[i], trial);
  }
  trial_instantiate(trial);
}

static void attentions_run(rondo_backend backend, struct attention *tasks, size_t count) {
  struct trial trial;
  struct random random = {7};
  attentions_begin(backend, tasks, count, &trial);
  for (size_t i = 0; i < count; i++) {
    attention_fill(&tasks[i], &random);
    attention_set(&tasks[i], &trial);
  }
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) attention_get(&tasks[i], &trial);
  trial_end(&trial);
}

void attentions_planted(rondo_backend backend, struct attention *tasks, size_t count, uint64_t seed,
                        void (*plant)(struct attention *a, size_t i)) {
  struct trial trial;
  struct random random = {seed};
  attentions_begin(backend, tasks, count, &trial);
  for (size_t i = 0; i < count; i++) {
    attention_fill(&tasks[i], &random);
    plant(&tasks[i], i);
    attention_set(&tasks[i], &trial);
  }
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) {
    char text[256];
    attention_get(&tasks[i], &trial);
    struct verdict verdict = attention_verdict(&tasks[i]);
    cr_expect(verdict.wrong == 0, "%s: %ld numbers are wrong", attention_text(&tasks[i], text, sizeof text),
              (long)verdict.wrong);
    attention_free(&tasks[i]);
  }
  trial_end(&trial);
}

void attentions_immense(rondo_backend backend, struct attention *tasks, size_t count) {
  for (size_t i = 0; i < count; i++) tasks[i].data = IMMENSE;
  attentions_run(backend, tasks, count);
  for (size_t i = 0; i < count; i++) {
    char text[256];
    struct verdict verdict = attention_verdict(&tasks[i]);
    cr_expect(!verdict.wrong && verdict.error < 0.005, "%s: %ld numbers are wrong, the largest error is %g",
              attention_text(&tasks[i], text, sizeof text), (long)verdict.wrong, verdict.error);
    attention_free(&tasks[i]);
  }
}

void attentions_check(rondo_backend backend, struct attention *tasks, size_t count) {
  enum { MOST = 75 };
  for (size_t first = 0; first < count; first += MOST) {
    const size_t these = count - first < MOST ? count - first : MOST;
    attentions_run(backend, tasks + first, these);
    for (size_t i = first; i < first + these; i++) {
      attention_check(&tasks[i]);
      attention_free(&tasks[i]);
    }
  }
}
