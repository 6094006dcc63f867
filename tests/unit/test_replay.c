/* test_replay.c - a replayed graph computes what its tasks compute one by one: random graphs whose tasks hash random
 * rectangles, against an interpreter with memory of its own for every tensor, so that a shared byte or a missing edge
 * shows as a wrong value. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

enum { TENSORS = 20, TASKS = 40, OPERANDS = 4 };

struct rectangle {
  int tensor;
  rondo_access access;
  int64_t offset[2], extent[2], row_stride;
};

struct work {
  uint64_t seed;
  uint32_t count;
  struct rectangle operands[OPERANDS];
};

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ (hash >> 29);
}

/* Reads every element of the read rectangles, then writes a hash of them into every element of the written ones. */
static void hash_rectangles(void *user, void *const *data) {
  const struct work *work = user;
  uint64_t hash = work->seed;
  for (uint32_t i = 0; i < work->count; i++) {
    const struct rectangle *r = &work->operands[i];
    if (!(r->access & RONDO_READ)) continue;
    for (int64_t y = 0; y < r->extent[0]; y++)
      for (int64_t x = 0; x < r->extent[1]; x++) hash = mix(hash, ((const uint32_t *)data[i])[y * r->row_stride + x]);
  }
  for (uint32_t i = 0; i < work->count; i++) {
    const struct rectangle *r = &work->operands[i];
    if (!(r->access & RONDO_WRITE)) continue;
    for (int64_t y = 0; y < r->extent[0]; y++)
      for (int64_t x = 0; x < r->extent[1]; x++)
        ((uint32_t *)data[i])[y * r->row_stride + x] = (uint32_t)mix(hash, (uint64_t)(y * 1000 + x));
  }
}

struct scenario {
  int64_t shape[TENSORS][2];
  int kind[TENSORS]; /* 0 input, 1 output, 2 state, 3 temporary */
  rondo_tensor tensors[TENSORS];
  uint32_t *reference[TENSORS];
  struct work works[TASKS];
};

static void make_tensors(struct scenario *s, rondo_graph *graph, struct random *random, bool *defined) {
  static rondo_status (*const make[])(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                      rondo_tensor *) = {rondo_input, rondo_output, rondo_state, rondo_temporary};
  for (int i = 0; i < TENSORS; i++) {
    s->kind[i] = i < 4 ? i : (int)random_between(random, 2, 5) > 3 ? 3 : (int)random_between(random, 0, 3);
    s->shape[i][0] = random_between(random, 1, 24);
    s->shape[i][1] = random_between(random, 1, 24);
    REQUIRE_OK(make[s->kind[i]](graph, NULL, RONDO_I32, 2, s->shape[i], &s->tensors[i]));
    s->reference[i] = calloc((size_t)(s->shape[i][0] * s->shape[i][1]), sizeof(uint32_t));
    defined[i] = s->kind[i] == 0 || s->kind[i] == 2;
  }
}

/* A temporary or output is first written whole, so that no value is read before it is defined. */
static void make_task(struct scenario *s, rondo_graph *graph, struct random *random, int t, bool *defined) {
  struct work *work = &s->works[t];
  *work = (struct work){.seed = random_bits(random)};
  rondo_argument arguments[OPERANDS];
  bool used[TENSORS] = {false};
  for (int i = 0; i < OPERANDS; i++) {
    int pick = t < TENSORS && i == 0 ? t : (int)random_between(random, 0, TENSORS - 1);
    if (used[pick]) continue;
    used[pick] = true;
    struct rectangle *r = &work->operands[work->count];
    *r = (struct rectangle){
        .tensor = pick, .extent = {s->shape[pick][0], s->shape[pick][1]}, .row_stride = s->shape[pick][1]};
    r->access = defined[pick] ? (rondo_access)random_between(random, 1, 3) : RONDO_WRITE;
    if (defined[pick] && random_between(random, 0, 2))
      for (int d = 0; d < 2; d++) {
        r->offset[d] = random_between(random, 0, r->extent[d] - 1);
        r->extent[d] = random_between(random, 1, r->extent[d] - r->offset[d]);
      }
    defined[pick] = true;
    rondo_tensor view;
    REQUIRE_OK(rondo_view(graph, s->tensors[pick], r->offset, r->extent, &view));
    arguments[work->count++] = (rondo_argument){.tensor = view, .access = r->access};
  }
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){
                 .host = hash_rectangles, .user = work, .arguments = arguments, .argument_count = work->count}));
  if (t > 3 && random_between(random, 0, 4) == 0)
    rondo_after(graph, (rondo_task)random_between(random, 0, t), (rondo_task)random_between(random, 0, t));
}

static void run_reference(struct scenario *s) {
  for (int t = 0; t < TASKS; t++) {
    void *data[OPERANDS];
    for (uint32_t i = 0; i < s->works[t].count; i++) {
      const struct rectangle *r = &s->works[t].operands[i];
      data[i] = s->reference[r->tensor] + r->offset[0] * r->row_stride + r->offset[1];
    }
    hash_rectangles(&s->works[t], data);
  }
}

Test(replay, a_graph_computes_what_its_tasks_compute_one_by_one) {
  struct random random = {2024};
  for (int round = 0; round < 40; round++) {
    struct scenario s = {0};
    struct trial trial;
    bool defined[TENSORS];
    trial_describe(&trial, RONDO_BACKEND_HOST);
    make_tensors(&s, trial.graph, &random, defined);
    for (int t = 0; t < TASKS; t++) make_task(&s, trial.graph, &random, t, defined);
    trial_instantiate(&trial);
    for (int replay = 0; replay < 3; replay++) {
      for (int i = 0; i < TENSORS; i++) {
        if (s.kind[i] != 0) continue;
        for (int64_t e = 0; e < s.shape[i][0] * s.shape[i][1]; e++) s.reference[i][e] = (uint32_t)random_bits(&random);
        trial_set(&trial, s.tensors[i], s.reference[i]);
      }
      run_reference(&s);
      trial_replay(&trial);
      for (int i = 0; i < TENSORS; i++) {
        uint32_t got[24 * 24];
        if (s.kind[i] != 1 && s.kind[i] != 2) continue;
        trial_get(&trial, s.tensors[i], got);
        cr_assert_arr_eq(got, s.reference[i], (size_t)(s.shape[i][0] * s.shape[i][1]) * sizeof(uint32_t),
                         "round %d replay %d tensor %d", round, replay, i);
      }
    }
    trial_end(&trial);
    for (int i = 0; i < TENSORS; i++) free(s.reference[i]);
  }
}
