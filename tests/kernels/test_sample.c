/* test_sample.c - the drawing of a column of each row, against a sort of the row and sums in fp64. The column that was
 * drawn is the one at which the sum passes the random number's part, within the error of the probabilities. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/frame.h"

struct setting {
  double temperature;
  int64_t top_k;
  double top_p;
};

struct draw {
  struct frame x;
  rondo_tensor temperature, top_k, top_p, seed, step, out;
  bool each, with_settings; /* a setting for each row; none: no tensors of them */
  struct setting settings[64];
  int32_t seeds[64], steps[64];
};

/* ---- The oracle -------------------------------------------------------------------------------------------------- */

/* Philox4x32-10 by its paper: rounds on (counter, key) as arrays. */
static void philox(const uint32_t *counter, const uint32_t *key, uint32_t *out) {
  uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
  for (int round = 0; round < 10; round++) {
    uint64_t first = (uint64_t)x[0] * 3528531795u, second = (uint64_t)x[2] * 3449720151u;
    uint32_t next[4] = {(uint32_t)(second >> 32) ^ x[1] ^ k[0], (uint32_t)second, (uint32_t)(first >> 32) ^ x[3] ^ k[1],
                        (uint32_t)first};
    memcpy(x, next, sizeof x);
    k[0] += 2654435769u, k[1] += 3144134277u;
  }
  memcpy(out, x, sizeof x);
}

static double uniform_of(int32_t seed, int32_t step) {
  uint32_t counter[4] = {(uint32_t)step}, key[2] = {(uint32_t)seed}, out[4];
  philox(counter, key, out);
  return ldexp((double)out[1], -32) + ldexp((double)out[0], -64);
}

Test(sample, the_oracle_knows_philox) { /* the known answers of Random123, kat_vectors */
  uint32_t out[4];
  philox((uint32_t[4]){0}, (uint32_t[2]){0}, out);
  cr_assert(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c && out[3] == 0x9b00dbd8);
  philox((uint32_t[]){~0u, ~0u, ~0u, ~0u}, (uint32_t[]){~0u, ~0u}, out);
  cr_assert(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 && out[3] == 0x6d5451fd);
}

struct entry {
  double value, sum; /* of probabilities down to here */
  int64_t column;
};

static int compare(const void *left, const void *right) {
  const struct entry *a = left, *b = right;
  if (a->value != b->value) return a->value < b->value ? 1 : -1;
  return a->column < b->column ? -1 : 1;
}

/* The column that is the largest, or -1 where one is drawn. */
static int64_t taken(const struct frame *x, int64_t row, double temperature) {
  int64_t n = x->extent[1], best = 0;
  for (int64_t i = 1; i < n; i++) {
    double value = frame_read(x, row * n + i), largest = frame_read(x, row * n + best);
    if (!isnan(largest) && (isnan(value) || value > largest)) best = i;
  }
  bool is_drawn = temperature > 0x1p-127 && isfinite(frame_read(x, row * n + best));
  return is_drawn ? -1 : best;
}

/* Could this have been drawn if the first `left` are left? */
static bool fits(const struct entry *sorted, int64_t left, int64_t at, double uniform, double slack) {
  double target = uniform * sorted[left - 1].sum;
  return at < left && (at ? sorted[at - 1].sum : 0) - slack <= target && target <= sorted[at].sum + slack;
}

static void check_row(const struct draw *d, int64_t row, int32_t got, const char *what) {
  int64_t n = d->x.extent[1], left = n, at = 0;
  int64_t place = d->each ? row : 0;
  struct setting s = d->with_settings ? d->settings[place] : (struct setting){1, 0, 1};
  int64_t expected = taken(&d->x, row, s.temperature);
  if (expected >= 0) {
    cr_assert_eq(got, expected, "%s, row %d: %d, expected %d", what, (int)row, (int)got, (int)expected);
    return;
  }
  struct entry *sorted = malloc((size_t)n * sizeof *sorted);
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sorted[i] = (struct entry){frame_read(&d->x, row * n + i), 0, i};
  qsort(sorted, (size_t)n, sizeof *sorted, compare);
  for (int64_t i = 0; i < n; i++)
    sorted[i].sum = sum += sorted[i].value > -INFINITY ? exp((sorted[i].value - sorted[0].value) / s.temperature) : 0;
  for (at = 0; at < n && sorted[at].column != got; at++) {}
  cr_assert_lt(at, n, "%s, row %d: %d is no column", what, (int)row, (int)got);
  if (s.top_k > 0 && s.top_k < n) left = s.top_k;
  double all = sorted[left - 1].sum, slack = all * 0x1p-20, uniform = uniform_of(d->seeds[place], d->steps[place]);
  bool good = false;
  if (s.top_p >= 1) {
    good = fits(sorted, left, at, uniform, slack);
  } else { /* any number of columns whose sum may be the first to reach top_p */
    double needed = s.top_p > 0 ? s.top_p * all : 0;
    int64_t first = 0;
    while (first < left - 1 && sorted[first].sum < needed - slack) first++;
    for (int64_t last = first; !good && last < left; last++) {
      good = fits(sorted, last + 1, at, uniform, slack);
      if (sorted[last].sum >= needed + slack) break;
    }
  }
  cr_assert(good, "%s, row %d: column %d, the %d-th of %d left, does not fit %g", what, (int)row, (int)got, (int)at,
            (int)left, uniform);
  free(sorted);
}

/* ---- Rows and settings ------------------------------------------------------------------------------------------- */

static void fill_row(struct frame *x, struct random *random, int64_t row, int kind) {
  int64_t n = x->extent[1], begin = row * n, where = random_between(random, 0, n - 1);
  double size = kind == 1 ? 0.05 : kind == 2 ? 0 : 3;
  for (int64_t i = 0; i < n; i++) {
    double value = size * random_normal(random) + (kind == 2 ? 2.5 : 0);
    if (kind == 3) value = nearbyint(value); /* many alike */
    if (kind == 4 && i % 3) value = -INFINITY;
    frame_write(x, begin + i, value);
  }
  if (kind == 5) frame_write(x, begin + where, 60);
  if (kind == 6) frame_write(x, begin + where, NAN);
  if (kind == 7) frame_write(x, begin + where, INFINITY);
  if (kind == 8)
    for (int64_t i = 0; i < n; i++) frame_write(x, begin + i, -INFINITY);
}

static struct setting setting_of(struct random *random, int64_t n) {
  static const double temperatures[] = {1, 0.7, 1.5, 0, 4, 1e-3, -1, 1e30, 1e-39, 1};
  static const double ps[] = {1, 0.9, 0.5, 0.999, 0.01, 0, 1.5, -1, 1, 0.95};
  const int64_t ks[] = {0, 1, 5, 50, 1000, n, n - 1, -7, INT32_MAX, 40};
  const double temperature = temperatures[random_between(random, 0, 9)];
  const int64_t k = ks[random_between(random, 0, 9)];
  return (struct setting){(double)(float)temperature, k, (double)(float)ps[random_between(random, 0, 9)]};
}

static struct draw add(struct trial *trial, struct random *random, rondo_dtype dtype, int64_t count, int64_t n,
                       bool with_settings, int64_t room) {
  struct draw d = {.each = random_between(random, 0, 1), .with_settings = with_settings};
  int64_t settings = d.each ? count : 1;
  d.x = frame_add(trial, "x", dtype, 2, (int64_t[]){count, n}, room, 1);
  if (with_settings) {
    REQUIRE_OK(rondo_input(trial->graph, "temperature", RONDO_F32, 1, &settings, &d.temperature));
    REQUIRE_OK(rondo_input(trial->graph, "top_k", RONDO_I32, 1, &settings, &d.top_k));
    REQUIRE_OK(rondo_input(trial->graph, "top_p", RONDO_F32, 1, &settings, &d.top_p));
  }
  REQUIRE_OK(rondo_input(trial->graph, "seed", RONDO_I32, 1, &settings, &d.seed));
  REQUIRE_OK(rondo_input(trial->graph, "step", RONDO_I32, 1, &settings, &d.step));
  REQUIRE_OK(rondo_output(trial->graph, "out", RONDO_I32, 1, &count, &d.out));
  REQUIRE_OK(rondo_add_sample(trial->graph, &(rondo_sample_desc){.x = d.x.view,
                                                                 .out = d.out,
                                                                 .temperature = d.temperature,
                                                                 .top_k = d.top_k,
                                                                 .top_p = d.top_p,
                                                                 .seed = d.seed,
                                                                 .step = d.step}));
  return d;
}

static void choose_settings(struct draw *d, struct random *random) {
  for (int i = 0; i < (d->each ? d->x.extent[0] : 1); i++) {
    d->settings[i] = setting_of(random, d->x.extent[1]);
    d->seeds[i] = (int32_t)(uint32_t)random_bits(random), d->steps[i] = (int32_t)random_between(random, 0, 1000);
  }
}

static void set(struct trial *trial, const struct draw *d) {
  float temperatures[64], ps[64];
  int32_t ks[64];
  for (int i = 0; i < (d->each ? d->x.extent[0] : 1); i++)
    temperatures[i] = (float)d->settings[i].temperature, ps[i] = (float)d->settings[i].top_p,
    ks[i] = (int32_t)d->settings[i].top_k;
  frame_set(trial, &d->x);
  if (d->with_settings) {
    trial_set(trial, d->temperature, temperatures), trial_set(trial, d->top_k, ks), trial_set(trial, d->top_p, ps);
  }
  trial_set(trial, d->seed, d->seeds), trial_set(trial, d->step, d->steps);
}

static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};

static const struct {
  int64_t count, n;
} shapes[] = {{3, 1}, {9, 7}, {17, 64}, {16, 1000}, {2, 4097}, {10, 12000}, {3, 49152}, {1, 128256}, {40, 5000}};
enum { SHAPES = sizeof shapes / sizeof *shapes, DRAWS = 3 * SHAPES };

static int add_all(struct trial *trial, struct draw *all) {
  struct random random = {21};
  int count = 0;
  for (int t = 0; t < 3; t++)
    for (int i = 0; i < SHAPES; i++, count++)
      all[count] = add(trial, &random, types[t], shapes[i].count, shapes[i].n, (t + i) % 4, (t + i) % 3 == 1 ? 3 : 0);
  return count;
}

/* New numbers and settings for all; the same of the same seed. */
static void fill_all(struct draw *all, int count, uint64_t seed) {
  struct random random = {seed};
  for (int i = 0; i < count; i++) {
    for (int64_t row = 0; row < all[i].x.extent[0]; row++)
      fill_row(&all[i].x, &random, row, (int)random_between(&random, 0, 9));
    choose_settings(&all[i], &random);
  }
}

static void draw_columns(rondo_backend backend) {
  static struct draw all[DRAWS];
  struct trial trial;
  trial_describe(&trial, backend);
  int count = add_all(&trial, all);
  trial_instantiate(&trial);
  for (uint64_t replay = 0; replay < (backend == RONDO_BACKEND_HOST ? 2 : 6); replay++) {
    fill_all(all, count, 100 + replay);
    for (int i = 0; i < count; i++) set(&trial, &all[i]);
    trial_replay(&trial);
    for (int i = 0; i < count; i++) {
      char what[96];
      snprintf(what, sizeof what, "replay %d, %s of %d columns", (int)replay, rondo_dtype_name(all[i].x.dtype),
               (int)all[i].x.extent[1]);
      for (int64_t row = 0; row < all[i].x.extent[0]; row++)
        check_row(&all[i], row, ((const int32_t *)trial_output(&trial, all[i].out))[row], what);
    }
  }
  for (int i = 0; i < count; i++) free(all[i].x.bytes);
  trial_end(&trial);
}
BOTH_BACKENDS(sample, draws_what_the_random_number_points_at, draw_columns)

/* ---- The same everywhere ----------------------------------------------------------------------------------------- */

Test(sample, the_gpu_draws_what_the_host_draws_cuda) {
  static struct draw all[2][DRAWS];
  struct trial trials[2];
  require_backend(RONDO_BACKEND_CUDA);
  int count = 0;
  for (int b = 0; b < 2; b++) {
    trial_describe(&trials[b], b ? RONDO_BACKEND_CUDA : RONDO_BACKEND_HOST);
    count = add_all(&trials[b], all[b]);
    trial_instantiate(&trials[b]);
  }
  for (uint64_t replay = 0; replay < 4; replay++) {
    for (int b = 0; b < 2; b++) {
      fill_all(all[b], count, 200 + replay);
      for (int i = 0; i < count; i++) set(&trials[b], &all[b][i]);
      trial_replay(&trials[b]);
    }
    for (int i = 0; i < count; i++) {
      const int32_t *host = trial_output(&trials[0], all[0][i].out), *gpu = trial_output(&trials[1], all[1][i].out);
      for (int64_t row = 0; row < all[0][i].x.extent[0]; row++)
        cr_assert_eq(host[row], gpu[row], "draw %d, row %d: %d on the host, %d on the GPU", i, (int)row, host[row],
                     gpu[row]);
    }
  }
  for (int b = 0; b < 2; b++) {
    for (int i = 0; i < count; i++) free(all[b][i].x.bytes);
    trial_end(&trials[b]);
  }
}

/* One row, in batches of 1, 4 and 40, by its seed and step alone; other steps draw otherwise. */
static void wherever(rondo_backend backend) {
  enum { N = 5000, BATCHES = 3, STEPS = 30 };
  static const int64_t batches[BATCHES] = {1, 4, 40};
  static float rows[40][N];
  rondo_tensor x[BATCHES], out[BATCHES], seed, step;
  struct random random = {23};
  struct trial trial;
  int changes = 0;
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_input(trial.graph, "seed", RONDO_I32, 1, (int64_t[]){1}, &seed));
  REQUIRE_OK(rondo_input(trial.graph, "step", RONDO_I32, 1, (int64_t[]){1}, &step));
  for (int b = 0; b < BATCHES; b++) {
    REQUIRE_OK(rondo_state(trial.graph, "x", RONDO_F32, 2, (int64_t[]){batches[b], N}, &x[b]));
    REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_I32, 1, &batches[b], &out[b]));
    REQUIRE_OK(
        rondo_add_sample(trial.graph, &(rondo_sample_desc){.x = x[b], .out = out[b], .seed = seed, .step = step}));
  }
  trial_instantiate(&trial);
  for (int i = 0; i < N; i++) rows[0][i] = (float)(2 * random_normal(&random));
  for (int i = 1; i < 40; i++) memcpy(rows[i], rows[0], sizeof rows[0]);
  for (int b = 0; b < BATCHES; b++) trial_set(&trial, x[b], rows);
  trial_set(&trial, seed, (int32_t[]){77});
  for (int32_t at = 0, before = -1; at < STEPS; at++) {
    trial_set(&trial, step, &at);
    trial_replay(&trial);
    int32_t first = *(const int32_t *)trial_output(&trial, out[0]);
    for (int b = 0; b < BATCHES; b++)
      for (int i = 0; i < batches[b]; i++)
        cr_assert_eq(((const int32_t *)trial_output(&trial, out[b]))[i], first, "batch %d, row %d", b, i);
    changes += first != before;
    before = first;
  }
  cr_assert_gt(changes, STEPS / 2);
  trial_end(&trial);
}
BOTH_BACKENDS(sample, the_same_seed_and_step_draw_the_same_wherever_the_row_stands, wherever)

/* As often as probabilities say: 6000 draws of eight columns, Pearson's test with seven degrees of freedom. */
static void as_often(rondo_backend backend) {
  enum { ROWS = 60, N = 8, REPLAYS = 100 };
  static float rows[ROWS * N];
  double weight[N], all = 0, chi = 0;
  int drawn[N] = {0};
  rondo_tensor x, out, seed, step;
  struct trial trial;
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_input(trial.graph, "seed", RONDO_I32, 1, (int64_t[]){1}, &seed));
  REQUIRE_OK(rondo_input(trial.graph, "step", RONDO_I32, 1, (int64_t[]){ROWS}, &step));
  REQUIRE_OK(rondo_state(trial.graph, "x", RONDO_F32, 2, (int64_t[]){ROWS, N}, &x));
  REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_I32, 1, (int64_t[]){ROWS}, &out));
  REQUIRE_OK(rondo_add_sample(trial.graph, &(rondo_sample_desc){.x = x, .out = out, .seed = seed, .step = step}));
  trial_instantiate(&trial);
  for (int i = 0; i < ROWS * N; i++) rows[i] = (float)(i % N * 5 % N) / 3;
  for (int i = 0; i < N; i++) all += weight[i] = exp((double)rows[i]);
  trial_set(&trial, x, rows);
  trial_set(&trial, seed, (int32_t[]){5});
  for (int replay = 0; replay < REPLAYS; replay++) {
    int32_t steps[ROWS];
    for (int i = 0; i < ROWS; i++) steps[i] = replay * ROWS + i;
    trial_set(&trial, step, steps);
    trial_replay(&trial);
    for (int i = 0; i < ROWS; i++) drawn[((const int32_t *)trial_output(&trial, out))[i]]++;
  }
  for (int i = 0; i < N; i++) {
    double expected = weight[i] / all * ROWS * REPLAYS;
    chi += ((double)drawn[i] - expected) * ((double)drawn[i] - expected) / expected;
  }
  cr_assert_lt(chi, 24.3, "Pearson's statistic is %g: less than one in a thousand is", chi);
  trial_end(&trial);
}
BOTH_BACKENDS(sample, columns_come_as_often_as_their_probability_says, as_often)

/* ---- Bad ones ---------------------------------------------------------------------------------------------------- */

Test(sample, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor x, empty, wide, out, long_out, one, three, ones, four, reals;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  REQUIRE_OK(rondo_state(g, "logits", RONDO_F16, 2, (int64_t[]){3, 100}, &x));
  REQUIRE_OK(rondo_state(g, "empty", RONDO_F32, 2, (int64_t[]){3, 0}, &empty));
  REQUIRE_OK(rondo_state(g, "wide", RONDO_F32, 2, (int64_t[]){3, (1 << 20) + 1}, &wide));
  REQUIRE_OK(rondo_output(g, "ids", RONDO_I32, 1, (int64_t[]){3}, &out));
  REQUIRE_OK(rondo_output(g, "long ids", RONDO_I32, 1, (int64_t[]){4}, &long_out));
  REQUIRE_OK(rondo_input(g, "one", RONDO_I32, 1, (int64_t[]){1}, &one));
  REQUIRE_OK(rondo_input(g, "three", RONDO_I32, 1, (int64_t[]){3}, &three));
  REQUIRE_OK(rondo_input(g, "four", RONDO_I32, 1, (int64_t[]){4}, &four));
  REQUIRE_OK(rondo_input(g, "ones", RONDO_I32, 2, (int64_t[]){1, 1}, &ones));
  REQUIRE_OK(rondo_input(g, "reals", RONDO_F32, 1, (int64_t[]){3}, &reals));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_sample(g, &(rondo_sample_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REQUIRE_ERROR(rondo_add_sample(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_sample: the description is NULL");
  REFUSED("x is absent, expected [count, n] f32, f16 or bf16", .out = out, .seed = one, .step = one);
  REFUSED("x is [3] i32, expected [count, n]", .x = three, .out = out, .seed = one, .step = one);
  REFUSED("x has rows of 0, expected 1 to 1048576", .x = empty, .out = out, .seed = one, .step = one);
  REFUSED("x has rows of 1048577, expected 1 to 1048576", .x = wide, .out = out, .seed = one, .step = one);
  REFUSED("is [4] i32, expected [3] i32", .x = x, .out = long_out, .seed = one, .step = one);
  REFUSED("seed is absent, expected [1] or [3] i32", .x = x, .out = out, .step = one);
  REFUSED("step is absent, expected [1] or [3] i32", .x = x, .out = out, .seed = one);
  REFUSED("seed is [4] i32, expected [1] or [3] i32", .x = x, .out = out, .seed = four, .step = one);
  REFUSED("step is [1, 1] i32, expected [1] or [3] i32", .x = x, .out = out, .seed = one, .step = ones);
  REFUSED("temperature is [3] i32, expected [1] or [3] f32", .x = x, .out = out, .seed = one, .step = one,
          .temperature = three);
  REFUSED("top_k is [3] f32, expected [1] or [3] i32", .x = x, .out = out, .seed = one, .step = one, .top_k = reals);
  REFUSED("top_p is [4] i32, expected [1] or [3] f32", .x = x, .out = out, .seed = one, .step = one, .top_p = four);
#undef REFUSED
  REQUIRE_OK(rondo_add_sample(
      g, &(rondo_sample_desc){
             .x = x, .out = out, .temperature = reals, .top_k = three, .top_p = reals, .seed = one, .step = three}));
  trial_end(&trial);
}

static void nothing(rondo_backend backend) {
  struct trial trial;
  rondo_tensor x, out, one;
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F16, 2, (int64_t[]){0, 7}, &x));
  REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_I32, 1, (int64_t[]){0}, &out));
  REQUIRE_OK(rondo_input(trial.graph, "one", RONDO_I32, 1, (int64_t[]){1}, &one));
  REQUIRE_OK(rondo_add_sample(trial.graph, &(rondo_sample_desc){.x = x, .out = out, .seed = one, .step = one}));
  trial_instantiate(&trial);
  trial_replay(&trial);
  trial_end(&trial);
}
BOTH_BACKENDS(sample, no_rows_are_no_work, nothing)
