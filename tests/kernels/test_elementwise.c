/* test_elementwise.c - silu(gate) * up against fp64, and a + b bit by bit: every type and rank, dense and with room
 * around the operands, and in place of either operand. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/frame.h"

struct pair {
  struct frame a, b, out;
  bool is_add;
  int in_place; /* 0: neither; 1: out is a, or the gate; 2: b, or up */
};

static rondo_status describe(struct trial *trial, bool is_add, rondo_tensor a, rondo_tensor b, rondo_tensor out) {
  if (is_add) return rondo_add_add(trial->graph, &(rondo_add_desc){.a = a, .b = b, .out = out});
  return rondo_add_silu_mul(trial->graph, &(rondo_silu_mul_desc){.gate = a, .up = b, .out = out});
}

static void fill(struct frame *f, struct random *random) {
  if (f->dtype != RONDO_I32) {
    frame_fill(f, random, 4);
    return;
  }
  for (int64_t i = 0; i < frame_count(f); i++) {
    int32_t bits = (int32_t)(uint32_t)random_bits(random);
    memcpy(f->bytes + 4 * frame_place(f, i), &bits, 4);
  }
}

static struct pair add(struct trial *trial, struct random *random, bool is_add, rondo_dtype dtype, uint32_t rank,
                       const int64_t *extent, int in_place, int64_t room) {
  struct pair p = {.is_add = is_add, .in_place = in_place};
  p.a = frame_add(trial, "a", dtype, rank, extent, room % 3, 1);
  p.b = frame_add(trial, "b", dtype, rank, extent, room, 1);
  fill(&p.a, random), fill(&p.b, random);
  p.out = in_place == 1 ? p.a : in_place == 2 ? p.b : frame_add(trial, "out", dtype, rank, extent, room, 1);
  REQUIRE_OK(describe(trial, is_add, p.a.view, p.b.view, p.out.view));
  return p;
}

static double silu(double x) { return x / (1 + exp(-x)); }

static void check(struct trial *trial, const struct pair *p, int index) {
  char what[64];
  snprintf(what, sizeof what, "%s %d in %s", p->is_add ? "add" : "silu_mul", index, rondo_dtype_name(p->out.dtype));
  struct frame got = frame_get(trial, &p->out, what);
  for (int64_t i = 0; i < frame_count(&p->out); i++) {
    double a = frame_read(&p->a, i), b = frame_read(&p->b, i), value = frame_read(&got, i), expected, bound = 0;
    if (p->out.dtype == RONDO_I32) {
      expected = a + b;
      if (expected > INT32_MAX) expected -= 0x1p32;
      if (expected < INT32_MIN) expected += 0x1p32;
    } else if (p->is_add) {
      expected = frame_rounded(p->out.dtype, (double)(float)(a + b));
    } else {
      expected = silu(a) * b;
      bound = fabs(expected) * 0x1p-21 + fabs(b) * 0x1p-121 + frame_half_unit(p->out.dtype, expected);
    }
    cr_assert(fabs(value - expected) <= bound, "%s, element %d of %g and %g: %.9g, expected %.9g", what, (int)i, a, b,
              value, expected);
  }
  free(got.bytes);
}

static void both_of_type(rondo_backend backend, int type) {
  static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16, RONDO_I32};
  static const int64_t shapes[][4] = {{1, 1, 1, 1}, {1, 2, 3, 37}, {2, 3, 5, 64}, {2, 1, 9, 1000}, {1, 2, 1, 40001}};
  enum { MOST = 2 * 5 * 9 };
  static struct pair all[MOST];
  struct random random = {9};
  struct trial trial;
  int count = 0;
  trial_describe(&trial, backend);
  for (int is_add = type == 3; is_add < 2; is_add++)
    for (int shape = 0; shape < 5; shape++)
      for (int variant = 0; variant < 9; variant++) {
        uint32_t rank = 1 + (uint32_t)(type + shape + variant) % 4;
        if (shape > 2 && (variant + shape + is_add) % 4) continue; /* of the large ones fewer */
        all[count++] = add(&trial, &random, is_add, types[type], rank, shapes[shape] + 4 - rank, variant % 3,
                           variant / 3 == 2 ? 8 : variant / 3);
      }
  trial_instantiate(&trial);
  for (int i = 0; i < count; i++) {
    frame_set(&trial, &all[i].a), frame_set(&trial, &all[i].b);
    if (!all[i].in_place) frame_set(&trial, &all[i].out);
  }
  trial_replay(&trial);
  for (int i = 0; i < count; i++) {
    check(&trial, &all[i], i);
    free(all[i].a.bytes), free(all[i].b.bytes);
    if (!all[i].in_place) free(all[i].out.bytes);
  }
  trial_end(&trial);
}
static void both_of_all(rondo_backend backend) {
  for (int type = 0; type < 4; type++) both_of_type(backend, type);
}
BOTH_BACKENDS(elementwise, silu_mul_and_add_match_the_oracle, both_of_all)

/* What no random number is. */
static void special(rondo_backend backend) {
  enum { COUNT = 14 };
  static const float a[COUNT] = {0,      -0.0f, NAN, INFINITY, -INFINITY, 100,     -100,
                                 -1e30f, 3e38f, 1,   1e-40f,   -80,       -88.73f, -95};
  static const float b[COUNT] = {1, 1, 1, 2, 1, 1, 1, 1, 3e38f, NAN, 1, 1e-3f, 1, 1};
  struct trial trial;
  rondo_tensor in[2], sum, product;
  float sums[COUNT], products[COUNT];
  trial_describe(&trial, backend);
  for (int i = 0; i < 2; i++)
    REQUIRE_OK(rondo_input(trial.graph, i ? "b" : "a", RONDO_F32, 1, (int64_t[]){COUNT}, &in[i]));
  REQUIRE_OK(rondo_output(trial.graph, "sum", RONDO_F32, 1, (int64_t[]){COUNT}, &sum));
  REQUIRE_OK(rondo_output(trial.graph, "product", RONDO_F32, 1, (int64_t[]){COUNT}, &product));
  REQUIRE_OK(describe(&trial, true, in[0], in[1], sum));
  REQUIRE_OK(describe(&trial, false, in[0], in[1], product));
  trial_instantiate(&trial);
  trial_set(&trial, in[0], a), trial_set(&trial, in[1], b);
  trial_replay(&trial);
  memcpy(sums, trial_output(&trial, sum), sizeof sums), memcpy(products, trial_output(&trial, product), sizeof sums);
  for (int i = 0; i < COUNT; i++) {
    double added = (double)(float)((double)a[i] + (double)b[i]), expected = silu((double)a[i]) * (double)b[i];
    cr_assert(frame_same((double)sums[i], added), "sum %d: %g", i, (double)sums[i]);
    if (a[i] == -INFINITY) expected = NAN;
    cr_assert((double)products[i] == (double)(float)expected || (isnan(expected) && isnan(products[i])) ||
                  fabs((double)products[i] - expected) <= fabs(expected) * 0x1p-21 + 0x1p-121,
              "product %d: %g, expected %g", i, (double)products[i], expected);
  }
  trial_end(&trial);
}
BOTH_BACKENDS(elementwise, special_values_give_what_ieee_says, special)

/* A position in a state, moved on by a one. */
static void moves_on(rondo_backend backend) {
  struct trial trial;
  rondo_tensor position, one;
  int32_t at;
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_state(trial.graph, "position", RONDO_I32, 1, (int64_t[]){1}, &position));
  REQUIRE_OK(rondo_constant(trial.graph, "one", RONDO_I32, 1, (int64_t[]){1}, &one));
  REQUIRE_OK(describe(&trial, true, position, one, position));
  trial_instantiate(&trial);
  trial_set(&trial, one, (int32_t[]){1});
  trial_set(&trial, position, (int32_t[]){INT32_MAX - 1});
  for (int replay = 0; replay < 3; replay++) trial_replay(&trial);
  trial_get(&trial, position, &at);
  cr_assert_eq(at, INT32_MIN + 1);
  trial_end(&trial);
}
BOTH_BACKENDS(elementwise, a_state_in_i32_moves_on_by_itself_and_wraps, moves_on)

static void nothing(rondo_backend backend) {
  struct trial trial;
  trial_describe(&trial, backend);
  for (int i = 0; i < 4; i++) {
    int64_t shape[] = {i % 2 ? 3 : 0, i % 2 ? 0 : 5};
    rondo_tensor a, out;
    REQUIRE_OK(rondo_input(trial.graph, "a", RONDO_BF16, 2, shape, &a));
    REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_BF16, 2, shape, &out));
    REQUIRE_OK(describe(&trial, i / 2, a, a, out));
  }
  trial_instantiate(&trial);
  trial_replay(&trial);
  trial_end(&trial);
}
BOTH_BACKENDS(elementwise, empty_tensors_are_no_work, nothing)

Test(elementwise, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor a, wide, other, ints, bytes, top, middle;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  const rondo_status invalid = RONDO_INVALID_ARGUMENT;
  const rondo_tensor absent = {0};
  REQUIRE_OK(rondo_state(g, "tall", RONDO_F16, 2, (int64_t[]){4, 32}, &a));
  REQUIRE_OK(rondo_state(g, "wide", RONDO_F16, 2, (int64_t[]){4, 64}, &wide));
  REQUIRE_OK(rondo_state(g, "other", RONDO_BF16, 2, (int64_t[]){4, 32}, &other));
  REQUIRE_OK(rondo_state(g, "ints", RONDO_I32, 2, (int64_t[]){4, 32}, &ints));
  REQUIRE_OK(rondo_state(g, "bytes", RONDO_U8, 2, (int64_t[]){4, 32}, &bytes));
  REQUIRE_OK(rondo_view(g, a, (int64_t[]){0, 0}, (int64_t[]){2, 32}, &top));
  REQUIRE_OK(rondo_view(g, a, (int64_t[]){1, 0}, (int64_t[]){2, 32}, &middle));
  REQUIRE_ERROR(rondo_add_add(g, NULL), invalid, "rondo_add_add: the description is NULL");
  REQUIRE_ERROR(rondo_add_silu_mul(g, NULL), invalid, "rondo_add_silu_mul: the description is NULL");
  REQUIRE_ERROR(describe(&trial, true, absent, a, a), invalid, "a is absent, expected f32, f16, bf16 or i32");
  REQUIRE_ERROR(describe(&trial, true, bytes, a, a), invalid, "a is [4, 32] u8, expected f32, f16, bf16 or i32");
  REQUIRE_ERROR(describe(&trial, true, a, absent, a), invalid, "b is absent, expected [4, 32] f16");
  REQUIRE_ERROR(describe(&trial, true, a, other, a), invalid, "b is [4, 32] bf16, expected [4, 32] f16");
  REQUIRE_ERROR(describe(&trial, true, a, a, wide), invalid, "out is [4, 64] f16, expected [4, 32] f16");
  REQUIRE_ERROR(describe(&trial, false, absent, a, a), invalid, "gate is absent, expected f32, f16 or bf16");
  REQUIRE_ERROR(describe(&trial, false, ints, ints, ints), invalid, "gate is [4, 32] i32, expected f32, f16 or bf16");
  REQUIRE_ERROR(describe(&trial, false, a, wide, a), invalid, "up is [4, 64] f16, expected [4, 32] f16");
  REQUIRE_ERROR(describe(&trial, false, a, a, absent), invalid, "out is absent, expected [4, 32] f16");
  REQUIRE_ERROR(describe(&trial, true, top, top, middle), invalid, "overlap");
  REQUIRE_OK(describe(&trial, true, a, a, a));
  REQUIRE_OK(describe(&trial, false, a, a, a));
  trial_end(&trial);
}
