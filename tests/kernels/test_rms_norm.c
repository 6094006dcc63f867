/* test_rms_norm.c - RMS norm against fp64: every pair of types, rows of all lengths, and in place. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/frame.h"

struct normalised {
  struct frame x, parts, norm, out;
  bool in_place;
  float epsilon;
};

static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};

static struct normalised add(struct trial *trial, struct random *random, struct normalised n, rondo_dtype x,
                             rondo_dtype out, rondo_dtype norm, uint32_t rank, const int64_t *extent, int64_t room) {
  n.x = frame_add(trial, "x", x, rank, extent, room, 1);
  frame_fill(&n.x, random, exp2((double)random_between(random, -6, 6)));
  if (norm) n.norm = frame_add(trial, "norm", norm, 1, &extent[rank - 1], room, 1), frame_fill(&n.norm, random, 1);
  n.out = n.in_place ? n.x : frame_add(trial, "out", out, rank, extent, room, 1);
  if (rank < 4 && random_between(random, 0, 1)) {
    int64_t parts[4] = {random_between(random, 1, 9)};
    memcpy(parts + 1, extent, rank * sizeof *parts);
    n.parts = frame_add(trial, "parts", RONDO_F32, rank + 1, parts, room, 1);
    frame_fill(&n.parts, random, 0.5);
  }
  REQUIRE_OK(rondo_add_rms_norm(
      trial->graph,
      &(rondo_rms_norm_desc){
          .x = n.x.view, .norm = n.norm.view, .out = n.out.view, .epsilon = n.epsilon, .x_parts = n.parts.view}));
  return n;
}

/* x + the sum of parts, rounded to x's type as fp32 does it. */
static double sum_at(const struct normalised *n, int64_t index) {
  const int64_t count = frame_count(&n->x);
  float sum = 0;
  if (!n->parts.bytes) return frame_read(&n->x, index);
  for (int64_t p = 0; p < frame_count(&n->parts) / count; p++) sum += (float)frame_read(&n->parts, p * count + index);
  sum += (float)frame_read(&n->x, index);
  if (n->x.dtype == RONDO_F32) return (double)sum;
  return n->x.dtype == RONDO_F16 ? oracle_f16(oracle_to_f16((double)sum)) : oracle_bf16(oracle_to_bf16((double)sum));
}

static void check(struct trial *trial, const struct normalised *n, int index) {
  char what[64];
  snprintf(what, sizeof what, "rms_norm %d", index);
  struct frame got = frame_get(trial, &n->out, what);
  int64_t k = n->x.extent[n->x.rank - 1], count = frame_count(&n->x);
  for (int64_t begin = 0; begin < count; begin += k) {
    double squares = 0;
    for (int64_t i = 0; i < k; i++) squares += sum_at(n, begin + i) * sum_at(n, begin + i);
    double factor = 1 / sqrt(squares / (double)k + (double)n->epsilon);
    for (int64_t i = 0; i < k; i++) {
      double weight = n->norm.bytes ? frame_read(&n->norm, i) : 1, value = frame_read(&got, begin + i);
      double expected = sum_at(n, begin + i) * weight * factor;
      double bound = fabs(expected) * (8 + sqrt((double)k / 16)) * 0x1p-24 + frame_half_unit(n->out.dtype, expected);
      cr_assert(fabs(value - expected) <= bound, "%s, k %d, row %d, column %d: %g, expected %g", what, (int)k,
                (int)(begin / k), (int)i, value, expected);
    }
  }
  free(got.bytes);
}

static void normalise_type(rondo_backend backend, int x) {
  static const int64_t extents[][4] = {{1}, {7}, {64}, {300}, {2048}, {8192}, {8200}, {20001}};
  enum { MOST = 3 * 4 * 8 };
  static struct normalised all[MOST];
  struct random random = {5};
  struct trial trial;
  int count = 0;
  trial_describe(&trial, backend);
  for (int out = 0; out < 3; out++)
    for (int norm = 0; norm < 4; norm++)
      for (uint32_t e = 0; e < 8; e++) {
        int64_t k = extents[e][0], room = 4 * (int64_t)((x + out + norm + (int)e) % 3);
        int64_t shape[] = {k > 1000 ? 1 : 2, 3, k > 1000 ? 1 : 5, k};
        uint32_t rank = 1 + (e + (uint32_t)norm) % 4;
        if (k > 1000 && (x + out + norm) % 4) continue; /* of the large ones fewer */
        struct normalised n = {.in_place = x == out && e % 2, .epsilon = e % 2 ? 1e-5f : 1};
        all[count++] =
            add(&trial, &random, n, types[x], types[out], norm ? types[norm - 1] : 0, rank, shape + 4 - rank, room);
      }
  trial_instantiate(&trial);
  for (int i = 0; i < count; i++) {
    frame_set(&trial, &all[i].x);
    if (all[i].norm.bytes) frame_set(&trial, &all[i].norm);
    if (all[i].parts.bytes) frame_set(&trial, &all[i].parts);
    if (!all[i].in_place) frame_set(&trial, &all[i].out);
  }
  trial_replay(&trial);
  for (int i = 0; i < count; i++) {
    check(&trial, &all[i], i);
    free(all[i].x.bytes), free(all[i].parts.bytes), free(all[i].norm.bytes);
    if (!all[i].in_place) free(all[i].out.bytes);
  }
  trial_end(&trial);
}
static void normalise(rondo_backend backend) {
  for (int x = 0; x < 3; x++) normalise_type(backend, x);
}
BOTH_BACKENDS(rms_norm, divides_rows_by_their_root_mean_square, normalise)

/* Behind another task the norm is loaded before that ends. Rows of one type in whole vectors, of every number of
 * threads and of vectors of a thread, have the same bits with and without. */
static void follow(rondo_backend backend) {
  static const int64_t extents[][2] = {{1, 8},    {7, 72},   {33, 264},  {2049, 576}, {5, 1032},
                                       {9, 2048}, {3, 4104}, {2, 16384}, {2, 16392},  {1, 20000}};
  enum { COUNT = 2 * sizeof extents / sizeof *extents };
  static struct normalised all[COUNT];
  static struct frame following[COUNT];
  struct random random = {6};
  struct trial trial;
  trial_describe(&trial, backend);
  for (int i = 0; i < COUNT; i++) {
    const rondo_dtype type = types[1 + i % 2];
    const int64_t *extent = extents[i / 2];
    struct normalised *n = &all[i];
    *n = (struct normalised){.epsilon = 1e-5f};
    n->x = frame_add(&trial, "x", type, 2, extent, 8, 1);
    frame_fill(&n->x, &random, 3);
    if (i % 6 < 5) n->norm = frame_add(&trial, "norm", type, 1, extent + 1, 8, 1), frame_fill(&n->norm, &random, 1);
    n->out = frame_add(&trial, "out", type, 2, extent, 8, 1);
    following[i] = frame_add(&trial, "following", type, 2, extent, 8, 1);
    rondo_rms_norm_desc desc = {.x = n->x.view, .norm = n->norm.view, .out = n->out.view, .epsilon = n->epsilon};
    REQUIRE_OK(rondo_add_rms_norm(trial.graph, &desc));
    REQUIRE_OK(rondo_temporary(trial.graph, "copied", type, 2, extent, &desc.x));
    REQUIRE_OK(rondo_add_copy(trial.graph, &(rondo_copy_desc){.src = n->x.view, .dst = desc.x}));
    desc.out = following[i].view;
    REQUIRE_OK(rondo_add_rms_norm(trial.graph, &desc));
  }
  trial_instantiate(&trial);
  for (int i = 0; i < COUNT; i++) {
    frame_set(&trial, &all[i].x), frame_set(&trial, &all[i].out), frame_set(&trial, &following[i]);
    if (all[i].norm.bytes) frame_set(&trial, &all[i].norm);
  }
  trial_replay(&trial);
  for (int i = 0; i < COUNT; i++) {
    check(&trial, &all[i], i);
    struct frame alone = frame_get(&trial, &all[i].out, "alone"), behind = frame_get(&trial, &following[i], "behind");
    for (int64_t j = 0; j < frame_count(&alone); j++)
      cr_assert_eq(frame_read(&alone, j), frame_read(&behind, j), "rms_norm %d, number %d", i, (int)j);
    free(alone.bytes), free(behind.bytes), free(all[i].x.bytes), free(all[i].norm.bytes), free(all[i].out.bytes);
    free(following[i].bytes);
  }
  trial_end(&trial);
}
BOTH_BACKENDS(rms_norm, a_norm_that_is_loaded_early_gives_the_same_bits, follow)

/* A row with NaN, one with infinity, zeros, and an ordinary one among them. */
static void keep_to_their_rows(rondo_backend backend) {
  enum { K = 96 };
  static float x[5 * K], out[5 * K];
  struct random random = {6};
  struct trial trial;
  rondo_tensor in, result;
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F32, 2, (int64_t[]){5, K}, &in));
  REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_F32, 2, (int64_t[]){5, K}, &result));
  REQUIRE_OK(rondo_add_rms_norm(trial.graph, &(rondo_rms_norm_desc){.x = in, .out = result, .epsilon = 1e-6f}));
  trial_instantiate(&trial);
  for (int i = 0; i < 5 * K; i++) x[i] = i / K == 2 ? 0 : (float)random_normal(&random);
  x[1 * K + 40] = NAN, x[3 * K + 95] = -INFINITY;
  for (int i = 0; i < K; i++) x[4 * K + i] = x[i];
  trial_set(&trial, in, x);
  trial_replay(&trial);
  memcpy(out, trial_output(&trial, result), sizeof out);
  for (int i = 0; i < K; i++) {
    cr_assert(isfinite(out[i]) && isnan(out[K + i]) && out[2 * K + i] == 0);
    if (i == 95)
      cr_assert(isnan(out[3 * K + i]));
    else
      cr_assert_eq(out[3 * K + i], 0);
  }
  for (int i = 0; i < K; i++) cr_assert_eq(out[i], out[4 * K + i], "a row's bits depend on where it stands");
  trial_end(&trial);
}
BOTH_BACKENDS(rms_norm, nan_and_infinity_stay_in_their_row, keep_to_their_rows)

static void nothing(rondo_backend backend) {
  static const int64_t shapes[][2] = {{0, 8}, {3, 0}, {0, 0}};
  struct trial trial;
  trial_describe(&trial, backend);
  for (int i = 0; i < 3; i++) {
    rondo_tensor x, out;
    REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F16, 2, shapes[i], &x));
    REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_F32, 2, shapes[i], &out));
    REQUIRE_OK(rondo_add_rms_norm(trial.graph, &(rondo_rms_norm_desc){.x = x, .out = out}));
  }
  trial_instantiate(&trial);
  trial_replay(&trial);
  trial_end(&trial);
}
BOTH_BACKENDS(rms_norm, empty_tensors_are_no_work, nothing)

/* A block has 32 such rows, with eight threads each: more than 2^32 threads in all. */
Test(rms_norm_rows, more_than_2_to_29_cuda) {
  enum { ENDS = 3 };
  static const uint16_t numbers[ENDS] = {0x4200, 0xc200, 0}; /* f16: 3, -3 and 0 */
  static const uint16_t expected[ENDS] = {0x3a00, 0xba00, 0};
  const int64_t rows = (INT64_C(1) << 29) + ENDS, begin[] = {0, INT64_C(1) << 29};
  require_backend(RONDO_BACKEND_CUDA);
  struct trial trial;
  rondo_tensor x, ends[2];
  trial_describe(&trial, RONDO_BACKEND_CUDA);
  REQUIRE_OK(rondo_state(trial.graph, "x", RONDO_F16, 2, (int64_t[]){rows, 1}, &x));
  for (int i = 0; i < 2; i++)
    REQUIRE_OK(rondo_view(trial.graph, x, (int64_t[]){begin[i], 0}, (int64_t[]){ENDS, 1}, &ends[i]));
  REQUIRE_OK(rondo_add_rms_norm(trial.graph, &(rondo_rms_norm_desc){.x = x, .out = x, .epsilon = 7}));
  trial_instantiate(&trial);
  for (int i = 0; i < 2; i++) trial_set(&trial, ends[i], numbers);
  trial_replay(&trial);
  for (int i = 0; i < 2; i++) {
    uint16_t got[ENDS];
    trial_get(&trial, ends[i], got);
    for (int row = 0; row < ENDS; row++)
      cr_expect_eq(got[row], expected[row], "row %d from %lld on: 0x%04x, expected 0x%04x", row, (long long)begin[i],
                   got[row], expected[row]);
  }
  trial_end(&trial);
}

Test(rms_norm, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor x, norm, long_norm, out, wide, ints;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  REQUIRE_OK(rondo_state(g, "x", RONDO_BF16, 2, (int64_t[]){4, 32}, &x));
  REQUIRE_OK(rondo_constant(g, "norm", RONDO_F32, 1, (int64_t[]){32}, &norm));
  REQUIRE_OK(rondo_constant(g, "long norm", RONDO_F32, 1, (int64_t[]){33}, &long_norm));
  REQUIRE_OK(rondo_output(g, "out", RONDO_F16, 2, (int64_t[]){4, 32}, &out));
  REQUIRE_OK(rondo_output(g, "wide", RONDO_F16, 2, (int64_t[]){4, 64}, &wide));
  REQUIRE_OK(rondo_state(g, "ints", RONDO_I32, 2, (int64_t[]){4, 32}, &ints));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_rms_norm(g, &(rondo_rms_norm_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REQUIRE_ERROR(rondo_add_rms_norm(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_rms_norm: the description is NULL");
  REFUSED("x is absent, expected f32, f16 or bf16", .out = out);
  REFUSED("x is [4, 32] i32, expected f32, f16 or bf16", .x = ints, .out = out);
  REFUSED("norm is [33] f32, expected [32] f32", .x = x, .norm = long_norm, .out = out);
  REFUSED("norm is [4, 32] i32, expected f32, f16 or bf16", .x = x, .norm = ints, .out = out);
  REFUSED("out is absent, expected [4, 32] bf16", .x = x);
  REFUSED("out is [4, 64] f16, expected [4, 32] f16", .x = x, .out = wide);
  REFUSED("out is [4, 32] i32, expected f32, f16 or bf16", .x = x, .out = ints);
  REFUSED("epsilon is -1, expected a finite number that is not negative", .x = x, .out = out, .epsilon = -1);
  REFUSED("epsilon is ", .x = x, .out = out, .epsilon = NAN);
  rondo_tensor parts, deep, none;
  REQUIRE_OK(rondo_state(g, "parts", RONDO_F32, 3, (int64_t[]){2, 4, 31}, &parts));
  REQUIRE_OK(rondo_state(g, "deep", RONDO_F32, 4, (int64_t[]){1, 1, 4, 32}, &deep));
  REQUIRE_OK(rondo_state(g, "none", RONDO_F32, 3, (int64_t[]){0, 4, 32}, &none));
  REFUSED("x_parts is [2, 4, 31] f32, expected [2, 4, 32] f32", .x = x, .out = out, .x_parts = parts);
  REFUSED("x_parts is [0, 4, 32] f32, expected [1, 4, 32] f32", .x = x, .out = out, .x_parts = none);
  REFUSED("x has rank 4, expected less: x_parts has one dimension more than x", .x = deep, .out = deep,
          .x_parts = parts);
  rondo_tensor top, middle;
  REQUIRE_OK(rondo_view(g, x, (int64_t[]){0, 0}, (int64_t[]){2, 32}, &top));
  REQUIRE_OK(rondo_view(g, x, (int64_t[]){1, 0}, (int64_t[]){2, 32}, &middle));
  REFUSED("x and out overlap", .x = top, .out = middle);
#undef REFUSED
  REQUIRE_OK(rondo_add_rms_norm(g, &(rondo_rms_norm_desc){.x = x, .norm = norm, .out = x}));
  trial_end(&trial);
}
