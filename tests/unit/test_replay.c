/* test_replay.c - a replayed graph computes what its tasks compute one by one: random graphs of tasks that hash random
 * rectangles, against an interpreter with memory of its own for every tensor. A shared byte or a missing edge shows as
 * a wrong value. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

#include "hash_rectangles.h"

enum { TENSORS = 20, TASKS = 40, OPERANDS = HASH_OPERANDS };

extern const unsigned char hash_rectangles_fatbin[], hash_rectangles_fatbin_end[];

struct rectangle {
  int tensor;
  rondo_access access;
  int64_t offset[2], extent[2], row_stride;
};

struct work {
  uint64_t seed;
  struct hash_shape shape;
  uint32_t count;
  struct rectangle operands[OPERANDS];
};

/* Arguments: OPERANDS addresses, the shape, the seed. */
static void hash_on_host(void *user, void *const *data) {
  (void)user;
  uint32_t *operands[OPERANDS];
  uint64_t seed;
  struct hash_shape shape;
  for (int i = 0; i < OPERANDS; i++) operands[i] = data[i];
  memcpy(&shape, data[OPERANDS], sizeof shape);
  memcpy(&seed, data[OPERANDS + 1], sizeof seed);
  hash_rectangles(operands, &shape, seed);
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

/* The tensor, or all of it with rows of another length. */
static rondo_tensor draw_shape(const struct scenario *s, rondo_graph *graph, struct random *random, int pick,
                               int64_t *shape) {
  int64_t elements = s->shape[pick][0] * s->shape[pick][1], columns = random_between(random, 1, 255);
  rondo_tensor reshaped;
  memcpy(shape, s->shape[pick], 2 * sizeof *shape);
  while (elements % columns) columns--;
  if (elements / columns > 255 || random_between(random, 0, 1)) return s->tensors[pick];
  shape[0] = elements / columns, shape[1] = columns;
  REQUIRE_OK(rondo_reshape(graph, s->tensors[pick], 2, shape, &reshaped));
  return reshaped;
}

/* A temporary or output is first written whole, so that no value is read before it is defined. */
static void make_task(struct scenario *s, rondo_graph *graph, struct random *random, int t, bool *defined) {
  struct work *work = &s->works[t];
  *work = (struct work){.seed = random_bits(random)};
  rondo_argument arguments[OPERANDS + 2];
  bool used[TENSORS] = {false};
  for (int i = 0; i < OPERANDS; i++) {
    int pick = t < TENSORS && i == 0 ? t : (int)random_between(random, 0, TENSORS - 1);
    if (used[pick]) continue;
    used[pick] = true;
    struct rectangle *r = &work->operands[work->count];
    int64_t shape[2];
    rondo_tensor whole = draw_shape(s, graph, random, pick, shape);
    *r = (struct rectangle){.tensor = pick, .extent = {shape[0], shape[1]}, .row_stride = shape[1]};
    r->access = defined[pick] ? (rondo_access)random_between(random, 1, 3) : RONDO_WRITE;
    if (defined[pick] && random_between(random, 0, 2))
      for (int d = 0; d < 2; d++) {
        r->offset[d] = random_between(random, 0, r->extent[d] - 1);
        r->extent[d] = random_between(random, 1, r->extent[d] - r->offset[d]);
      }
    defined[pick] = true;
    rondo_tensor view;
    REQUIRE_OK(rondo_view(graph, whole, r->offset, r->extent, &view));
    arguments[work->count] = (rondo_argument){.tensor = view, .access = r->access};
    work->shape.operands[work->count].access = (uint8_t)r->access;
    work->shape.operands[work->count].rows = (uint8_t)r->extent[0];
    work->shape.operands[work->count].columns = (uint8_t)r->extent[1];
    work->shape.operands[work->count++].stride = (uint8_t)r->row_stride;
  }
  static void *const nothing;
  for (uint32_t i = work->count; i < OPERANDS; i++)
    arguments[i] = (rondo_argument){.value = &nothing, .bytes = sizeof nothing};
  arguments[OPERANDS] = (rondo_argument){.value = &work->shape, .bytes = sizeof work->shape};
  arguments[OPERANDS + 1] = (rondo_argument){.value = &work->seed, .bytes = sizeof work->seed};
  size_t image_bytes = (size_t)(hash_rectangles_fatbin_end - hash_rectangles_fatbin);
  REQUIRE_OK(rondo_add_kernel(graph, &(rondo_kernel_desc){.image = image_bytes ? hash_rectangles_fatbin : NULL,
                                                          .image_bytes = image_bytes,
                                                          .function = "hash_rectangles_kernel",
                                                          .host = hash_on_host,
                                                          .arguments = arguments,
                                                          .argument_count = OPERANDS + 2}));
  if (t > 3 && random_between(random, 0, 4) == 0) {
    const rondo_task before = (rondo_task)random_between(random, 0, t);
    rondo_after(graph, before, (rondo_task)random_between(random, 0, t));
  }
}

static void run_reference(struct scenario *s) {
  for (int t = 0; t < TASKS; t++) {
    uint32_t *data[OPERANDS] = {0};
    for (uint32_t i = 0; i < s->works[t].count; i++) {
      const struct rectangle *r = &s->works[t].operands[i];
      data[i] = s->reference[r->tensor] + r->offset[0] * r->row_stride + r->offset[1];
    }
    hash_rectangles(data, &s->works[t].shape, s->works[t].seed);
  }
}

static void compare_with_one_by_one(rondo_backend backend, int rounds) {
  struct random random = {2024};
  for (int round = 0; round < rounds; round++) {
    struct scenario s = {0};
    struct trial trial;
    bool defined[TENSORS];
    trial_describe(&trial, backend);
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

Test(replay, a_graph_computes_what_its_tasks_compute_one_by_one_host) {
  compare_with_one_by_one(RONDO_BACKEND_HOST, 40);
}

Test(replay, a_graph_computes_what_its_tasks_compute_one_by_one_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  compare_with_one_by_one(RONDO_BACKEND_CUDA, 20);
}
