/* test_argmax.c - rondo_add_argmax against a plain loop: the first of several largest columns, both zeros, infinities,
 * NaN, every type, and rows of odd lengths. Faults that would show: the last of equal columns, a NaN that wins or is
 * lost wrongly, columns at the end of a row that are skipped. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../oracles/frame.h"

struct search {
  struct frame x;
  rondo_tensor out;
};

/* The first that no later one exceeds, by the words of the header. */
static int32_t expected_of(const struct frame *x, int64_t row) {
  int64_t n = x->extent[1], best = 0;
  for (int64_t i = 1; i < n; i++) {
    double value = frame_read(x, row * n + i), largest = frame_read(x, row * n + best);
    if (!isnan(largest) && (isnan(value) || value > largest)) best = i;
  }
  return (int32_t)best;
}

/* One kind of row after the other. */
static void fill_row(struct frame *x, struct random *random, int64_t row) {
  int64_t n = x->extent[1], begin = row * n, where = random_between(random, 0, n - 1);
  for (int64_t i = 0; i < n; i++) frame_write(x, begin + i, random_normal(random));
  switch (row % 8) {
  case 0: /* the largest at a place of its own, and once more after */
    frame_write(x, begin + where, 40);
    frame_write(x, begin + random_between(random, where, n - 1), 40);
    break;
  case 1:
    frame_write(x, begin + where, NAN);
    frame_write(x, begin + random_between(random, where, n - 1), -NAN);
    frame_write(x, begin + random_between(random, 0, n - 1), INFINITY);
    break;
  case 2: /* all the same */
    for (int64_t i = 0; i < n; i++) frame_write(x, begin + i, -3);
    break;
  case 3: /* zeros of both signs are one number */
    for (int64_t i = 0; i < n; i++) frame_write(x, begin + i, i % 2 ? 0.0 : -0.0);
    break;
  case 4:
    for (int64_t i = 0; i < n; i++) frame_write(x, begin + i, -INFINITY);
    if (row % 16 == 4) frame_write(x, begin + where, -60000);
    break;
  case 5:
    frame_write(x, begin + n - 1, INFINITY);
    break;
  case 6:
    frame_write(x, begin, 50);
    break;
  default:
    break;
  }
}

static void find(rondo_backend backend) {
  static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  static const int64_t shapes[][2] = {{16, 1},    {33, 7},    {9, 64},     {8, 1000},  {1, 49152},
                                      {16, 8191}, {3, 49152}, {2, 128256}, {9, 32008}, {200, 2050}};
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  static struct search all[3 * SHAPES];
  struct random random = {11};
  struct trial trial;
  int count = 0;
  trial_describe(&trial, backend);
  for (int t = 0; t < 3; t++)
    for (int s = 0; s < SHAPES; s++) {
      struct search *one = &all[count++];
      one->x = frame_add(&trial, "x", types[t], 2, shapes[s], (t + s) % 3 == 2 ? 8 : (t + s) % 3, 1);
      REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_I32, 1, shapes[s], &one->out));
      REQUIRE_OK(rondo_add_argmax(trial.graph, &(rondo_argmax_desc){.x = one->x.view, .out = one->out}));
    }
  trial_instantiate(&trial);
  for (int replay = 0; replay < 3; replay++) {
    for (int i = 0; i < count; i++) {
      for (int64_t row = 0; row < all[i].x.extent[0]; row++) fill_row(&all[i].x, &random, row + replay);
      frame_set(&trial, &all[i].x);
    }
    trial_replay(&trial);
    for (int i = 0; i < count; i++) {
      const int32_t *out = trial_output(&trial, all[i].out);
      for (int64_t row = 0; row < all[i].x.extent[0]; row++)
        cr_assert_eq(out[row], expected_of(&all[i].x, row), "%s of %d columns, row %d: %d, expected %d",
                     rondo_dtype_name(all[i].x.dtype), (int)all[i].x.extent[1], (int)row, (int)out[row],
                     (int)expected_of(&all[i].x, row));
    }
  }
  for (int i = 0; i < count; i++) free(all[i].x.bytes);
  trial_end(&trial);
}
BOTH_BACKENDS(argmax, finds_the_first_of_the_largest, find)

static void nothing(rondo_backend backend) {
  struct trial trial;
  rondo_tensor x, out;
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F16, 2, (int64_t[]){0, 7}, &x));
  REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_I32, 1, (int64_t[]){0}, &out));
  REQUIRE_OK(rondo_add_argmax(trial.graph, &(rondo_argmax_desc){.x = x, .out = out}));
  trial_instantiate(&trial);
  trial_replay(&trial);
  trial_end(&trial);
}
BOTH_BACKENDS(argmax, no_rows_are_no_work, nothing)

Test(argmax, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor x, empty, flat, ints, out, long_out, float_out;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  REQUIRE_OK(rondo_state(g, "logits", RONDO_F32, 2, (int64_t[]){3, 100}, &x));
  REQUIRE_OK(rondo_state(g, "empty", RONDO_F32, 2, (int64_t[]){3, 0}, &empty));
  REQUIRE_OK(rondo_state(g, "flat", RONDO_F32, 1, (int64_t[]){100}, &flat));
  REQUIRE_OK(rondo_state(g, "ints", RONDO_I32, 2, (int64_t[]){3, 100}, &ints));
  REQUIRE_OK(rondo_output(g, "ids", RONDO_I32, 1, (int64_t[]){3}, &out));
  REQUIRE_OK(rondo_output(g, "long ids", RONDO_I32, 1, (int64_t[]){4}, &long_out));
  REQUIRE_OK(rondo_output(g, "float ids", RONDO_F32, 1, (int64_t[]){3}, &float_out));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_argmax(g, &(rondo_argmax_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REQUIRE_ERROR(rondo_add_argmax(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_argmax: the description is NULL");
  REFUSED("x is absent, expected [count, n] f32, f16 or bf16", .out = out);
  REFUSED("x is [100] f32, expected [count, n]", .x = flat, .out = out);
  REFUSED("x is [3, 100] i32, expected [count, n]", .x = ints, .out = out);
  REFUSED("x has rows of 0, expected at least 1 column", .x = empty, .out = out);
  REFUSED("out is absent, expected [3] i32", .x = x);
  REFUSED("out is [4] i32, expected [3] i32", .x = x, .out = long_out);
  REFUSED("out is [3] f32, expected [3] i32", .x = x, .out = float_out);
#undef REFUSED
  REQUIRE_OK(rondo_add_argmax(g, &(rondo_argmax_desc){.x = x, .out = out}));
  trial_end(&trial);
}
