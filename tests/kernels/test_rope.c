/* test_rope.c - the rotary embedding against fp64: both pairings and layouts, every type, positions up to the end of
 * their range, frequencies of a base and given ones. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/frame.h"

struct rotated {
  struct frame x, out;
  rondo_tensor position, frequencies;
  rondo_head_layout layout;
  rondo_rope_pairing pairing;
  bool in_place, with_frequencies, per_item;
  float base, given[128];
  int32_t positions[3];
};

enum { BATCH = 3 };

static struct rotated add(struct trial *trial, struct random *random, struct rotated r, rondo_dtype dtype,
                          int64_t heads, int64_t sequence, int64_t d, int64_t room) {
  int64_t shape[] = {BATCH, r.layout ? sequence : heads, r.layout ? heads : sequence, d};
  r.x = frame_add(trial, "x", dtype, 4, shape, room, 1);
  frame_fill(&r.x, random, 1);
  r.out = r.in_place ? r.x : frame_add(trial, "out", dtype, 4, shape, room, 1);
  REQUIRE_OK(rondo_input(trial->graph, "position", RONDO_I32, 1, (int64_t[]){r.per_item ? BATCH : 1}, &r.position));
  if (r.with_frequencies)
    REQUIRE_OK(rondo_constant(trial->graph, "frequencies", RONDO_F32, 1, (int64_t[]){d / 2}, &r.frequencies));
  for (int i = 0; i < d / 2; i++) r.given[i] = (float)exp2(-20 * random_uniform(random));
  REQUIRE_OK(rondo_add_rope(trial->graph, &(rondo_rope_desc){.layout = r.layout,
                                                             .pairing = r.pairing,
                                                             .x = r.x.view,
                                                             .out = r.out.view,
                                                             .position = r.position,
                                                             .frequencies = r.frequencies,
                                                             .base = r.base}));
  return r;
}

/* Radians, as the header has them: a frequency and a product of fp32. */
static float angle_of(const struct rotated *r, int64_t item, int64_t row, int64_t pair) {
  double base = r->base == 0 ? 10000 : (double)r->base;
  double frequency = (double)expl(-2 * (long double)pair / (long double)r->x.extent[3] * logl((long double)base));
  int64_t position = r->positions[r->per_item ? item : 0] + row;
  return (float)position * (r->with_frequencies ? r->given[pair] : (float)frequency);
}

static void check(struct trial *trial, const struct rotated *r, int index) {
  char what[64];
  snprintf(what, sizeof what, "rope %d", index);
  struct frame got = frame_get(trial, &r->out, what);
  int64_t d = r->x.extent[3], half = d / 2, heads = r->x.extent[r->layout ? 2 : 1];
  for (int64_t line = 0; line < frame_count(&r->x) / d; line++) {
    int64_t inner = line % r->x.extent[2], outer = line / r->x.extent[2] % r->x.extent[1];
    int64_t item = line / r->x.extent[2] / r->x.extent[1], row = r->layout ? outer : inner;
    cr_assert(heads > (r->layout ? inner : outer));
    for (int64_t pair = 0; pair < half; pair++) {
      int64_t low = line * d + (r->pairing ? pair : 2 * pair), high = r->pairing ? low + half : low + 1;
      double angle = (double)angle_of(r, item, row, pair), s = sin(angle), c = cos(angle);
      double a = frame_read(&r->x, low), b = frame_read(&r->x, high);
      double expected[] = {a * c - b * s, b * c + a * s}, value[] = {frame_read(&got, low), frame_read(&got, high)};
      double terms[] = {fabs(a * c) + fabs(b * s), fabs(b * c) + fabs(a * s)};
      for (int i = 0; i < 2; i++)
        cr_assert(fabs(value[i] - expected[i]) <= terms[i] * 0x1.8p-22 + frame_half_unit(r->x.dtype, expected[i]),
                  "%s, %s, d %d, item %d row %d pair %d, angle %g: %.9g, expected %.9g", what,
                  rondo_dtype_name(r->x.dtype), (int)d, (int)item, (int)row, (int)pair, angle, value[i], expected[i]);
    }
  }
  free(got.bytes);
}

static void rotate(rondo_backend backend) {
  static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  static const int64_t sizes[][3] = {{1, 1, 128}, {4, 5, 64}, {3, 2, 6}, {2, 7, 256}, {5, 1, 2}, {2, 3, 72}};
  static const int32_t positions[][BATCH] = {
      {0, 1, 5}, {131071, 131066, 4095}, {INT32_MAX, 1 << 20, 16777217}, {-1, INT32_MIN, -131071}};
  enum { MOST = 3 * 6 * 2 * 2 * 2 };
  static struct rotated all[MOST];
  struct random random = {7};
  struct trial trial;
  int count = 0;
  trial_describe(&trial, backend);
  for (int type = 0; type < 3; type++)
    for (int size = 0; size < 6; size++)
      for (int variant = 0; variant < 8; variant++) {
        int mixed = type + size + variant;
        struct rotated r = {.layout = variant & 1 ? RONDO_BSHD : RONDO_BHSD,
                            .pairing = variant & 2 ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED,
                            .with_frequencies = variant & 4,
                            .in_place = mixed % 3 == 0,
                            .per_item = mixed % 2,
                            .base = mixed % 5 ? 500000 : 0};
        int64_t room = mixed % 4 < 2 ? 0 : mixed % 4 == 2 ? 8 : 3;
        all[count++] = add(&trial, &random, r, types[type], sizes[size][0], sizes[size][1], sizes[size][2], room);
      }
  trial_instantiate(&trial);
  for (int i = 0; i < count; i++)
    if (all[i].with_frequencies) trial_set(&trial, all[i].frequencies, all[i].given);
  for (int replay = 0; replay < 4; replay++) {
    for (int i = 0; i < count; i++) {
      memcpy(all[i].positions, positions[replay], sizeof all[i].positions);
      trial_set(&trial, all[i].position, positions[replay]);
      frame_set(&trial, &all[i].x);
      if (!all[i].in_place) frame_set(&trial, &all[i].out);
    }
    trial_replay(&trial);
    for (int i = 0; i < count; i++) check(&trial, &all[i], i);
  }
  for (int i = 0; i < count; i++) {
    free(all[i].x.bytes);
    if (!all[i].in_place) free(all[i].out.bytes);
  }
  trial_end(&trial);
}
BOTH_BACKENDS(rope, turns_pairs_by_their_position, rotate)

/* More pairs than threads run at once (of 132 multiprocessors), so that heads share a thread. */
static void many_rows(rondo_backend backend) {
  struct random random = {10};
  struct trial trial;
  trial_describe(&trial, backend);
  struct rotated r = {.layout = RONDO_BSHD, .pairing = RONDO_ROPE_HALVES, .positions = {100000}};
  r = add(&trial, &random, r, RONDO_BF16, 38, 160, 128, 0);
  trial_instantiate(&trial);
  trial_set(&trial, r.position, r.positions);
  frame_set(&trial, &r.x), frame_set(&trial, &r.out);
  trial_replay(&trial);
  check(&trial, &r, 0);
  free(r.x.bytes), free(r.out.bytes);
  trial_end(&trial);
}
BOTH_BACKENDS(rope, turns_many_rows, many_rows)

/* Pairs (1, 0) give cosine and sine themselves: of every position up to 2^17 at frequency 1, where an error of the
 * reduction shows, and of random angles of all sizes. */
static void exact(rondo_backend backend) {
  enum { ROWS = 1 << 17, LARGE = 4096 };
  struct random random = {8};
  struct trial trial;
  rondo_tensor x, out, zero, frequencies, one, turned, large;
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_input(trial.graph, "position", RONDO_I32, 1, (int64_t[]){1}, &zero));
  REQUIRE_OK(rondo_state(trial.graph, "x", RONDO_F32, 4, (int64_t[]){1, 1, ROWS, 2}, &x));
  REQUIRE_OK(rondo_state(trial.graph, "out", RONDO_F32, 4, (int64_t[]){1, 1, ROWS, 2}, &out));
  REQUIRE_OK(rondo_add_rope(trial.graph, &(rondo_rope_desc){.x = x, .out = out, .position = zero}));
  REQUIRE_OK(rondo_input(trial.graph, "one", RONDO_I32, 1, (int64_t[]){1}, &one));
  REQUIRE_OK(rondo_constant(trial.graph, "frequencies", RONDO_F32, 1, (int64_t[]){128}, &frequencies));
  REQUIRE_OK(rondo_state(trial.graph, "large", RONDO_F32, 4, (int64_t[]){1, LARGE / 128, 1, 256}, &large));
  REQUIRE_OK(rondo_state(trial.graph, "turned", RONDO_F32, 4, (int64_t[]){1, LARGE / 128, 1, 256}, &turned));
  REQUIRE_OK(rondo_add_rope(
      trial.graph, &(rondo_rope_desc){.x = large, .out = turned, .position = one, .frequencies = frequencies}));
  trial_instantiate(&trial);
  float(*values)[2] = malloc(ROWS * sizeof *values), angles[128];
  for (int i = 0; i < ROWS; i++) values[i][0] = 1, values[i][1] = 0;
  for (int i = 0; i < 128; i++) angles[i] = (float)(exp2(60 * random_uniform(&random) - 30) * random_normal(&random));
  trial_set(&trial, x, values), trial_set(&trial, large, values), trial_set(&trial, frequencies, angles);
  trial_set(&trial, zero, (int32_t[]){0}), trial_set(&trial, one, (int32_t[]){1});
  trial_replay(&trial);
  trial_get(&trial, out, values);
  for (int i = 0; i < ROWS; i++) {
    double c = cos(i), s = sin(i);
    cr_assert(fabs((double)values[i][0] - c) <= fabs(c) * 0x1p-22, "cosine of %d: %.9g, not %.9g", i,
              (double)values[i][0], c);
    cr_assert(fabs((double)values[i][1] - s) <= fabs(s) * 0x1p-22, "sine of %d: %.9g, not %.9g", i,
              (double)values[i][1], s);
  }
  trial_get(&trial, turned, values);
  for (int i = 0; i < 128; i++) {
    double c = cos((double)angles[i]), s = sin((double)angles[i]);
    cr_assert(fabs((double)values[i][0] - c) <= fabs(c) * 0x1p-22 &&
                  fabs((double)values[i][1] - s) <= fabs(s) * 0x1p-22,
              "angle %g", (double)angles[i]);
  }
  free(values);
  trial_end(&trial);
}
BOTH_BACKENDS(rope, sine_and_cosine_are_good_to_fp32, exact)

static void nothing(rondo_backend backend) {
  static const int64_t shapes[][4] = {{0, 2, 3, 8}, {1, 0, 3, 8}, {1, 2, 0, 8}, {1, 2, 3, 0}};
  struct trial trial;
  trial_describe(&trial, backend);
  for (int i = 0; i < 4; i++) {
    rondo_tensor x, out, position;
    REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F16, 4, shapes[i], &x));
    REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_F16, 4, shapes[i], &out));
    REQUIRE_OK(rondo_input(trial.graph, "position", RONDO_I32, 1, (int64_t[]){shapes[i][0]}, &position));
    REQUIRE_OK(rondo_add_rope(trial.graph, &(rondo_rope_desc){.x = x, .out = out, .position = position}));
  }
  trial_instantiate(&trial);
  trial_replay(&trial);
  trial_end(&trial);
}
BOTH_BACKENDS(rope, empty_tensors_are_no_work, nothing)

Test(rope, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor x, out, other, odd, long_rows, at, at_each, three, frequencies, flat;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  REQUIRE_OK(rondo_state(g, "x", RONDO_BF16, 4, (int64_t[]){2, 4, 3, 64}, &x));
  REQUIRE_OK(rondo_output(g, "out", RONDO_BF16, 4, (int64_t[]){2, 4, 3, 64}, &out));
  REQUIRE_OK(rondo_output(g, "other", RONDO_F16, 4, (int64_t[]){2, 4, 3, 64}, &other));
  REQUIRE_OK(rondo_state(g, "odd", RONDO_BF16, 4, (int64_t[]){2, 4, 3, 63}, &odd));
  REQUIRE_OK(rondo_state(g, "long rows", RONDO_BF16, 4, (int64_t[]){2, 4, 3, 258}, &long_rows));
  REQUIRE_OK(rondo_state(g, "flat", RONDO_BF16, 2, (int64_t[]){2, 64}, &flat));
  REQUIRE_OK(rondo_input(g, "at", RONDO_I32, 1, (int64_t[]){1}, &at));
  REQUIRE_OK(rondo_input(g, "at each", RONDO_I32, 1, (int64_t[]){2}, &at_each));
  REQUIRE_OK(rondo_input(g, "three", RONDO_I32, 1, (int64_t[]){3}, &three));
  REQUIRE_OK(rondo_constant(g, "frequencies", RONDO_F32, 1, (int64_t[]){31}, &frequencies));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_rope(g, &(rondo_rope_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REQUIRE_ERROR(rondo_add_rope(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_rope: the description is NULL");
  REFUSED("x is absent, expected [batch, heads, sequence, d] f32, f16 or bf16", .out = out, .position = at);
  REFUSED("x is [2, 64] bf16, expected [batch, heads, sequence, d]", .x = flat, .out = out, .position = at);
  REFUSED("x has rows of 63, expected an even number up to 256", .x = odd, .out = odd, .position = at);
  REFUSED("x has rows of 258, expected an even number up to 256", .x = long_rows, .out = long_rows, .position = at);
  REFUSED("out is absent, expected [2, 4, 3, 64] bf16", .x = x, .position = at);
  REFUSED("is [2, 4, 3, 64] f16, expected [2, 4, 3, 64] bf16", .x = x, .out = other, .position = at);
  REFUSED("position is absent, expected [1] or [2] i32", .x = x, .out = out);
  REFUSED("is [3] i32, expected [1] or [2] i32", .x = x, .out = out, .position = three);
  REFUSED("frequencies is [31] f32, expected [32] f32", .x = x, .out = out, .position = at, .frequencies = frequencies);
  REFUSED("base is -1, expected a finite number that is not negative", .x = x, .out = out, .position = at, .base = -1);
  REFUSED("base is inf", .x = x, .out = out, .position = at, .base = INFINITY);
  REFUSED("layout is 2, expected RONDO_BHSD or RONDO_BSHD", .x = x, .out = out, .position = at,
          .layout = (rondo_head_layout)2);
  REFUSED("pairing is 2, expected RONDO_ROPE_INTERLEAVED or RONDO_ROPE_HALVES", .x = x, .out = out, .position = at,
          .pairing = (rondo_rope_pairing)2);
#undef REFUSED
  REQUIRE_OK(rondo_add_rope(g, &(rondo_rope_desc){.x = x, .out = x, .position = at_each}));
  trial_end(&trial);
}
