/* attention_run.c - see attention_run.h. */
#include "attention_run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Many tasks in one graph ------------------------------------------------------------------------------------- */

/* Many items, heads and rows fill a GPU or reach its kernels of many rows. The host has one kernel, which takes 16 rows
 * of a head at a time, so two heads and up to 63 rows test as much of it. */
static void attention_trim(struct attention *a, rondo_backend backend) {
  enum { MANY = 4, SOME = 2, ROWS = 64 };
  if (backend != RONDO_BACKEND_HOST) return;
  if (a->query_length > ROWS) a->query_length = ROWS / 2 + a->query_length % (ROWS / 2);
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

const rondo_dtype attention_types[] = {RONDO_F16, RONDO_BF16};
const int64_t attention_dimensions[] = {32, 64, 128, 256};

void attentions_check_cases(rondo_backend backend, enum attention_types_of_cases types, const struct attention *cases,
                            size_t count) {
  const size_t type_count = types == BOTH_TYPES ? ATTENTION_TYPES : 1;
  struct attention *tasks = attention_memory((int64_t)(count * type_count * ATTENTION_DIMENSIONS), sizeof *tasks);
  size_t task_count = 0;
  for (size_t t = 0; t < type_count; t++)
    for (size_t n = 0; n < ATTENTION_DIMENSIONS; n++)
      for (size_t c = 0; c < count; c++) {
        struct attention *task = &tasks[task_count++];
        const size_t layout = types == BOTH_TYPES ? c + n + t : c / 2 + n / 2;
        *task = cases[c];
        task->dtype = attention_types[types == BOTH_TYPES ? t : (c + n) % ATTENTION_TYPES];
        task->layout = layout % 2 ? RONDO_BSHD : RONDO_BHSD;
        task->dimension = attention_dimensions[n];
        if (task->deviation > 0) task->scale = task->deviation / sqrtf((float)task->dimension);
      }
  attentions_check(backend, tasks, task_count);
  free(tasks);
}

void attentions_same_bits(rondo_backend backend, struct attention *tasks, size_t count, int replays) {
  struct trial trial;
  struct random random = {17};
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) attention_add(&tasks[i], &trial);
  trial_instantiate(&trial);
  uint16_t **first = attention_memory((int64_t)count, sizeof *first);
  uint64_t *bytes = attention_memory((int64_t)count, sizeof *bytes);
  for (size_t i = 0; i < count; i++) {
    attention_fill(&tasks[i], &random);
    attention_set(&tasks[i], &trial);
    REQUIRE_OK(rondo_tensor_bytes(tasks[i].o, &bytes[i]));
    first[i] = attention_memory((int64_t)bytes[i], 1);
  }
  for (int replay = 0; replay < replays; replay++) {
    for (size_t i = 0; i < count; i++) trial_set(&trial, tasks[i].o, tasks[i].q_memory); /* something else */
    trial_replay(&trial);
    for (size_t i = 0; i < count; i++) {
      char text[256];
      attention_get(&tasks[i], &trial);
      if (!replay) memcpy(first[i], tasks[i].o_memory, bytes[i]);
      cr_expect(!memcmp(first[i], tasks[i].o_memory, bytes[i]), "%s: replay %d differs",
                attention_text(&tasks[i], text, sizeof text), replay);
    }
  }
  for (size_t i = 0; i < count; i++) {
    free(first[i]);
    attention_free(&tasks[i]);
  }
  free(first);
  free(bytes);
  trial_end(&trial);
}
