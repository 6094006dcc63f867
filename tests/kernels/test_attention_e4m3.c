/* test_attention_e4m3.c - attention of many query rows with q, k and v in e4m3, which GPUs with products of e4m3
 * compute in attention_wgmma_e4m3.cu, against double precision: masks, lengths, scales and both types of o. It also
 * says which tasks those kernels take. Faults that would show: a scale in the wrong place, sums that lose too many bits
 * over many rows, a NaN that spreads to rows that do not see it. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../../kernels/attention/attention.h"
#include "../oracles/attention_run.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16};

/* Lengths around tiles of 128 rows, and of 512, after which sums begin anew; fewer and more queries than keys; a limit
 * at the very end of a tile. */
static const struct {
  int64_t query_length, capacity, query_heads, kv_heads;
} shapes[] = {
    {64, 1, 1, 1},    {64, 64, 2, 1},   {65, 63, 2, 2},   {128, 128, 1, 1}, {129, 257, 2, 1},  {192, 320, 3, 3},
    {191, 127, 1, 1}, {300, 172, 2, 1}, {333, 333, 4, 2}, {128, 640, 8, 1}, {200, 1001, 2, 1},
};

static struct attention shaped(size_t s, size_t i) {
  return (struct attention){.dtype = dtypes[i % 2],
                            .layout = i % 3 ? RONDO_BSHD : RONDO_BHSD,
                            .batch = 1,
                            .query_heads = shapes[s].query_heads,
                            .kv_heads = shapes[s].kv_heads,
                            .query_length = shapes[s].query_length,
                            .capacity = shapes[s].capacity,
                            .dimension = 128,
                            .lse_wanted = i % 4 != 1,
                            .e4m3_q = true,
                            .e4m3_kv = true};
}

static void prefill(rondo_backend backend) {
  static struct attention tasks[COUNT(shapes) * 4];
  size_t count = 0;
  for (size_t s = 0; s < COUNT(shapes); s++)
    for (size_t i = 0; i < 4; i++, count++) {
      tasks[count] = shaped(s, s + i);
      tasks[count].batch = s < 4 ? 2 : 1;
      tasks[count].causal = i % 2;
      if (i < 2) continue;
      tasks[count].q_scale = 0.5f, tasks[count].k_scale = 0.75f, tasks[count].v_scale = -3.0f;
    }
  attentions_check(backend, tasks, count);
}
BOTH_BACKENDS(attention_e4m3, many_rows_agree_with_double_precision, prefill)

static void lengths(rondo_backend backend) {
  static const int32_t some[] = {0, -5, 1, 63, 64, 65, 200, 1000, 129};
  struct attention tasks[4];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = shaped(1, i);
    tasks[i].batch = COUNT(some), tasks[i].lengths = some;
    tasks[i].query_length = i < 2 ? 70 : 210, tasks[i].capacity = 200;
    tasks[i].causal = i % 2;
  }
  attentions_check(backend, tasks, COUNT(tasks)); /* attention_fill has put NaN after every length */
}
BOTH_BACKENDS(attention_e4m3, rows_after_a_length_may_hold_anything, lengths)

/* Weights beyond what e4m3 has: the reference moves, or the tile is computed again. */
static void high_weights(rondo_backend backend) {
  static const enum data kinds[] = {EQUAL, RISING, FALLING, OUTLIER};
  struct attention tasks[COUNT(kinds) * 4];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = shaped(1, i);
    tasks[i].query_length = 200, tasks[i].capacity = 900;
    tasks[i].scale = i % 4 < 2 ? 0.0f : 1.0f;
    tasks[i].causal = i % 2;
    tasks[i].data = kinds[i / 4];
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_e4m3, weights_far_above_the_first_do_not_saturate, high_weights)

/* Without 300 on 1024 rows: every number keeps its own bound there, but the largest error is 3.2 times that of 16-bit
 * arithmetic, where 2 are the rule; with a reference that moves it is the same. */
static void deviations(rondo_backend backend) {
  static const float some[] = {4, 12, 20, 32, 64, 300};
  static const int64_t capacities[] = {1100, 641, 1024}; /* whose last tile has 76 columns, one, and all */
  struct attention tasks[COUNT(some) * COUNT(capacities) * 2 - 2];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = shaped(1, i);
    tasks[i].query_length = 200, tasks[i].capacity = capacities[i / 2 % COUNT(capacities)];
    tasks[i].scale = some[i / 2 / COUNT(capacities)] / sqrtf(128.0f);
    tasks[i].causal = i % 2;
  }
  attentions_check(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_e4m3, scores_of_any_deviation_agree_with_double_precision, deviations)

/* A reference is so rounded that the weights of its tile are 2^5, 2^11, 2^21, or vanish. */
static void immense_scores(rondo_backend backend) {
  static const float scales[] = {1.0f, 5.0f, 10.0f, 30.0f};
  struct attention tasks[COUNT(scales)];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = shaped(1, i);
    tasks[i].query_length = 128, tasks[i].capacity = 256, tasks[i].scale = scales[i];
  }
  attentions_immense(backend, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_e4m3, scores_as_large_as_their_rounding_still_give_weights, immense_scores)

/* So many query rows that they are not cut into splits, on so many KV rows: attention_e4m3_plan. */
enum { LONG_HEADS = 96, LONG_CAPACITY = 65536 };

/* With all scores 0, a result is a mean, and that of numbers near 1 is near 1, of however many. Summed in 14 bits all
 * the way it would lose half, and with totals of eight bits an eighth. */
static void long_sums(rondo_backend backend) {
  struct attention task = shaped(0, 1);
  struct trial trial;
  struct random random = {29};
  double mean[128] = {0}, worst = 0.0;
  task.query_heads = backend == RONDO_BACKEND_HOST ? 1 : LONG_HEADS;
  task.query_length = 64, task.capacity = LONG_CAPACITY;
  trial_describe(&trial, backend);
  attention_add(&task, &trial);
  trial_instantiate(&trial);
  attention_fill(&task, &random);
  const struct rectangle query = query_rectangle(&task), kv = kv_rectangle(&task);
  for (int64_t i = 0; i < rectangle_elements(&kv); i++) {
    oracle_write(RONDO_E4M3, task.k_memory, i, 0.0);
    oracle_write(RONDO_E4M3, task.v_memory, i, (double)random_between(&random, 8, 15) / 12.0);
    mean[i % 128] += oracle_read(RONDO_E4M3, task.v_memory, i) / LONG_CAPACITY;
  }
  attention_set(&task, &trial);
  trial_replay(&trial);
  attention_get(&task, &trial);
  for (int64_t i = 0; i < rectangle_elements(&query); i++)
    worst = fmax(worst, fabs(oracle_read(task.dtype, task.o_memory, i) - mean[i % 128]));
  cr_expect_lt(worst, 0.02);
  attention_free(&task);
  trial_end(&trial);
}
BOTH_BACKENDS(attention_e4m3, sums_of_many_rows_lose_nothing, long_sums)

/* In q or k, a NaN makes whole rows; in v, one column of those that see it. Some lie where few rows of a tile do. */
static void plant(struct attention *a, size_t task) {
  const bool values = task < 4;
  struct rectangle query = query_rectangle(a), kv = kv_rectangle(a);
  for (int64_t i = 0; i < 12 && values; i++) {
    int64_t row = i % 4 == 3 ? a->capacity - 1 - i : i * (a->capacity / 12), column = (i * 37) % a->dimension;
    oracle_write(RONDO_E4M3, a->v_memory, row_index(a, &kv, i % a->batch, i % 2, row) + column, NAN);
  }
  if (values) return;
  oracle_write(RONDO_E4M3, a->q_memory, row_index(a, &query, 0, 0, 70) + 3, NAN);
  oracle_write(RONDO_E4M3, a->k_memory, row_index(a, &kv, 0, 0, a->capacity - 4) + 1, NAN);
}

static void special_numbers(rondo_backend backend) {
  struct attention tasks[6];
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = shaped(2, i);
    tasks[i].batch = 2;
    tasks[i].query_length = 330, tasks[i].capacity = i % 3 == 2 ? 270 : 400;
    tasks[i].causal = i != 1;
  }
  attentions_planted(backend, tasks, COUNT(tasks), 13, plant);
}
BOTH_BACKENDS(attention_e4m3, a_nan_reaches_exactly_the_rows_that_see_it, special_numbers)

/* ---- Which are theirs -------------------------------------------------------------------------------------------- */

struct description {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task;
};

static struct op_operand operand_of(rondo_dtype dtype, int64_t heads, int64_t length, int64_t dimension) {
  return (struct op_operand){.present = true,
                             .dtype = dtype,
                             .rank = 4,
                             .shape = {2, heads, length, dimension},
                             .stride = {heads * length * dimension, length * dimension, dimension, 1}};
}

static void describe(struct description *d, struct attention_attributes attributes, rondo_dtype o, int64_t length,
                     int64_t dimension) {
  *d = (struct description){.task = {.op = &op_attention, .name = "attention", .operand_count = ATTENTION_OPERANDS}};
  d->task.operands = d->operands;
  attributes.layout = RONDO_BHSD;
  d->operands[ATTENTION_Q] = operand_of(RONDO_E4M3, 8, length, dimension);
  d->operands[ATTENTION_O] = operand_of(o, 8, length, dimension);
  d->operands[ATTENTION_K] = d->operands[ATTENTION_V] = operand_of(RONDO_E4M3, 2, 512, dimension);
  memcpy(d->task.attributes, &attributes, sizeof attributes);
}

static const char *kernel_of(const struct description *d, const struct chip *chip, struct op_launches *launches) {
  struct op_call call = {.task = &d->task, .data = op_nowhere};
  REQUIRE_OK(attention_select(&call, chip, launches));
  cr_assert_geq(launches->count, 1);
  return launches->items[0].kernel;
}

Test(attention_e4m3_plan, many_rows_of_dimension_128_without_extras_are_theirs) {
  static const struct chip h200 = {90, 132, 232448}, others[] = {{80, 108, 166912}, {100, 148, 232448}};
  struct description d;
  struct op_launches launches;
#define ELSEWHERE(chip) cr_expect(!strstr(kernel_of(&d, &(chip), &launches), "attention_e4m3"))
  for (size_t i = 0; i < 4; i++) {
    describe(&d, (struct attention_attributes){.causal = i % 2}, dtypes[i / 2], 512, 128);
    cr_expect_str_eq(kernel_of(&d, &h200, &launches),
                     i % 2 ? "rondo_attention_e4m3_128_causal" : "rondo_attention_e4m3_128");
    cr_assert_eq(launches.items[0].map_count, 3);
    const uint32_t boxes[3][4] = {{128, 64, 1, 1}, {128, 128, 1, 1}, {128, 64, 1, 1}};
    for (size_t m = 0; m < 3; m++) {
      cr_expect_arr_eq(launches.items[0].maps[m].box, boxes[m], sizeof boxes[m]);
      cr_expect_eq(launches.items[0].maps[m].dtype, RONDO_E4M3);
    }
    ELSEWHERE(others[0]);
    ELSEWHERE(others[1]);
  }
  describe(&d, (struct attention_attributes){.causal = 0}, RONDO_BF16, 64, 128);
  d.operands[ATTENTION_Q] = d.operands[ATTENTION_O] = operand_of(RONDO_E4M3, LONG_HEADS / 2, 64, 128);
  d.operands[ATTENTION_O].dtype = RONDO_BF16;
  d.operands[ATTENTION_K] = d.operands[ATTENTION_V] = operand_of(RONDO_E4M3, 1, LONG_CAPACITY, 128);
  cr_expect_str_eq(kernel_of(&d, &h200, &launches), "rondo_attention_e4m3_128");
  d.operands[ATTENTION_K] = d.operands[ATTENTION_V] = operand_of(RONDO_E4M3, 1, (1 << 19) + 1, 128);
  ELSEWHERE(h200);
  describe(&d, (struct attention_attributes){.causal = 1, .window = 100}, RONDO_BF16, 512, 128);
  ELSEWHERE(h200);
  describe(&d, (struct attention_attributes){.soft_cap = 30.0f}, RONDO_BF16, 512, 128);
  ELSEWHERE(h200);
  describe(&d, (struct attention_attributes){.k_scale = -1.0f}, RONDO_BF16, 512, 128);
  ELSEWHERE(h200);
  describe(&d, (struct attention_attributes){.splits = 2}, RONDO_BF16, 512, 128);
  ELSEWHERE(h200);
  describe(&d, (struct attention_attributes){.causal = 0}, RONDO_BF16, 512, 64);
  ELSEWHERE(h200);
  describe(&d, (struct attention_attributes){.causal = 0}, RONDO_BF16, 63, 128);
  ELSEWHERE(h200);
  describe(&d, (struct attention_attributes){.causal = 0}, RONDO_BF16, 512, 128);
  d.operands[ATTENTION_Q].dtype = d.operands[ATTENTION_O].dtype;
  ELSEWHERE(h200);
}
