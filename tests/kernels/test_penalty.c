/* test_penalty.c - penalties on columns that were drawn lately, against a loop that counts for each column how often
 * it is named: every type, lists with and without duplicates, ids that are no columns, settings for all rows or for
 * each. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/frame.h"

enum { MOST_ROWS = 16, MOST_IDS = 1024 };

struct punishment {
  struct frame x, ids;
  rondo_tensor repetition, frequency, presence; /* those that are there */
  bool each;
  float settings[3][MOST_ROWS];
};

static const float repetitions[] = {1.25f, 1, 3, 0.5f}, frequencies[] = {0, 0.75f, -0.5f}, presences[] = {0.5f, 0, 7};

/* Which of the three there are, bit by bit. */
static void describe(struct trial *trial, struct punishment *p, rondo_dtype dtype, const int64_t *shape, int64_t length,
                     int present, bool each, int64_t room) {
  const int64_t ids[] = {shape[0], length}, settings[] = {each ? shape[0] : 1};
  rondo_penalty_desc desc = {.name = "penalty"};
  p->each = each;
  p->x = frame_add(trial, "x", dtype, 2, shape, room, 1);
  p->ids = frame_add(trial, "ids", RONDO_I32, 2, ids, room, 1);
  if (present & 1) REQUIRE_OK(rondo_input(trial->graph, "repetition", RONDO_F32, 1, settings, &p->repetition));
  if (present & 2) REQUIRE_OK(rondo_input(trial->graph, "frequency", RONDO_F32, 1, settings, &p->frequency));
  if (present & 4) REQUIRE_OK(rondo_input(trial->graph, "presence", RONDO_F32, 1, settings, &p->presence));
  for (int64_t row = 0; row < shape[0]; row++) {
    p->settings[0][row] = present & 1 ? repetitions[each ? row % 4 : 0] : 1;
    p->settings[1][row] = present & 2 ? frequencies[each ? row % 3 : 1] : 0;
    p->settings[2][row] = present & 4 ? presences[each ? row % 3 : 0] : 0;
  }
  desc.x = p->x.view, desc.ids = p->ids.view;
  desc.repetition = p->repetition, desc.frequency = p->frequency, desc.presence = p->presence;
  REQUIRE_OK(rondo_add_penalty(trial->graph, &desc));
}

/* Of either sign, zeros, and now and then no number; half of the lists name few columns many times. */
static void fill(struct trial *trial, struct punishment *p, struct random *random) {
  const int64_t n = p->x.extent[1], length = p->ids.extent[1];
  for (int64_t i = 0; i < frame_count(&p->x); i++) {
    double odd = i % 7 == 0 ? 0 : i % 11 == 0 ? -INFINITY : i % 13 == 0 ? NAN : 4 * random_normal(random);
    frame_write(&p->x, i, odd);
  }
  for (int64_t i = 0; i < frame_count(&p->ids); i++) {
    int32_t id = (int32_t)random_between(random, 0, i / length % 2 ? n - 1 : n / 40);
    int32_t none[] = {-1, (int32_t)n, INT32_MIN, INT32_MAX};
    id = random_between(random, 0, 5) ? id : none[random_between(random, 0, 3)];
    memcpy(p->ids.bytes + frame_place(&p->ids, i) * 4, &id, 4);
  }
  frame_set(trial, &p->x), frame_set(trial, &p->ids);
  const rondo_tensor settings[] = {p->repetition, p->frequency, p->presence};
  for (int i = 0; i < 3; i++)
    if (settings[i].graph) trial_set(trial, settings[i], p->settings[i]);
}

static int32_t id_of(const struct punishment *p, int64_t i) {
  int32_t id;
  memcpy(&id, p->ids.bytes + frame_place(&p->ids, i) * 4, 4);
  return id;
}

/* Each operation of the header's formula rounded to fp32, the result once more. */
static double expected_of(const struct punishment *p, int64_t row, int64_t column) {
  const int64_t n = p->x.extent[1], length = p->ids.extent[1];
  double x = frame_read(&p->x, row * n + column);
  float times = 0;
  for (int64_t i = 0; i < length; i++) times += id_of(p, row * length + i) == column;
  if (times == 0) return x;
  volatile float value = (float)x, repetition = p->settings[0][row], product = times * p->settings[1][row];
  value = value > 0 ? value / repetition : value * repetition;
  value = value - product;
  value = value - p->settings[2][row];
  return frame_rounded(p->x.dtype, (double)value);
}

static void check(struct trial *trial, const struct punishment *p, const char *what) {
  struct frame got = frame_get(trial, &p->x, what);
  const int64_t n = p->x.extent[1];
  for (int64_t i = 0; i < frame_count(&got); i++) {
    double value = frame_read(&got, i), expected = expected_of(p, i / n, i % n);
    cr_assert(frame_same(value, expected), "%s, row %d, column %d: %.9g, expected %.9g", what, (int)(i / n),
              (int)(i % n), value, expected);
  }
  free(got.bytes);
}

static void punish(rondo_backend backend) {
  static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  static const int64_t shapes[][3] = {{1, 1, 1},     {3, 100, 64}, {MOST_ROWS, 333, 7}, {2, 4096, MOST_IDS},
                                      {5, 64, 1000}, {1, 9, 0},    {4, 257, 256},       {7, 40, 257}};
  enum { SHAPES = sizeof shapes / sizeof *shapes, CASES = 3 * SHAPES };
  static struct punishment all[CASES];
  static char names[CASES][64];
  struct random random = {19};
  struct trial trial;
  trial_describe(&trial, backend);
  for (int i = 0; i < CASES; i++) {
    const int64_t *shape = shapes[i / 3];
    snprintf(names[i], sizeof names[i], "%s [%d, %d], %d ids", rondo_dtype_name(types[i % 3]), (int)shape[0],
             (int)shape[1], (int)shape[2]);
    describe(&trial, &all[i], types[i % 3], shape, shape[2], (i * 3 + 7) % 8, i % 2, i % 4 == 3 ? 2 : 0);
  }
  trial_instantiate(&trial);
  for (int replay = 0; replay < 3; replay++) {
    for (int i = 0; i < CASES; i++) fill(&trial, &all[i], &random);
    trial_replay(&trial);
    for (int i = 0; i < CASES; i++) check(&trial, &all[i], names[i]);
  }
  for (int i = 0; i < CASES; i++) free(all[i].x.bytes), free(all[i].ids.bytes);
  trial_end(&trial);
}
BOTH_BACKENDS(penalty, changes_the_columns_that_are_named_once_each, punish)

Test(penalty, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor x, ids, one, each, other, codes, longer;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  REQUIRE_OK(rondo_state(g, "logits", RONDO_F32, 2, (int64_t[]){3, 100}, &x));
  REQUIRE_OK(rondo_state(g, "codes", RONDO_I32, 2, (int64_t[]){3, 100}, &codes));
  REQUIRE_OK(rondo_state(g, "ids", RONDO_I32, 2, (int64_t[]){3, 8}, &ids));
  REQUIRE_OK(rondo_state(g, "longer", RONDO_I32, 2, (int64_t[]){3, MOST_IDS + 1}, &longer));
  REQUIRE_OK(rondo_state(g, "one", RONDO_F32, 1, (int64_t[]){1}, &one));
  REQUIRE_OK(rondo_state(g, "each", RONDO_F32, 1, (int64_t[]){3}, &each));
  REQUIRE_OK(rondo_state(g, "other", RONDO_F32, 1, (int64_t[]){4}, &other));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_penalty(g, &(rondo_penalty_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REQUIRE_ERROR(rondo_add_penalty(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_penalty: the description is NULL");
  REFUSED("x is absent, expected [count, n] f32, f16 or bf16", .ids = ids);
  REFUSED("x is [3, 100] i32, expected [count, n]", .x = codes, .ids = ids);
  REFUSED("x is [3] f32, expected [count, n]", .x = each, .ids = ids);
  REFUSED("ids is absent, expected [3, up to 1024] i32", .x = x);
  REFUSED("ids is [3, 1025] i32, expected [3, up to 1024] i32", .x = x, .ids = longer);
  REFUSED("ids is [3, 100] f32", .x = x, .ids = x);
  REFUSED("repetition is [4] f32, expected [1] or [3] f32", .x = x, .ids = ids, .repetition = other);
  REFUSED("frequency is [3, 8] i32, expected [1] or [3] f32", .x = x, .ids = ids, .frequency = ids);
  REFUSED("presence is [4] f32, expected [1] or [3] f32", .x = x, .ids = ids, .repetition = one, .presence = other);
#undef REFUSED
  REQUIRE_OK(rondo_add_penalty(
      g, &(rondo_penalty_desc){.x = x, .ids = ids, .repetition = one, .frequency = each, .presence = one}));
  trial_end(&trial);
}
