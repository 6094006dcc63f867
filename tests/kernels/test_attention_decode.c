/* test_attention_decode.c - attention of few query rows: plans, which tasks its kernels take, the same bits in any
 * batch, lengths at every border, and numbers that reach only who sees them. */
#include "../../kernels/softmax/attention_decode.h"
#include "../../runtime/integer.h"
#include "test_attention_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16};
static const int64_t dimensions[] = {64, 128, 256};

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

enum { PROBLEMS = 200000, MOST_SHARED_BYTES = 232448 };

static struct attention_decode_problem random_problem(struct random *random) {
  static const int64_t dimension[] = {32, 64, 128, 256}, multiprocessors[] = {8, 16, 78, 132, 148};
  static const int64_t batches[] = {1, 1, 2, 7, 16, 64, 65535, 65536};
  return (struct attention_decode_problem){.dtype = random_between(random, 0, 1) ? RONDO_F16 : RONDO_BF16,
                                           .dimension = dimension[random_between(random, 0, 3)],
                                           .batch = batches[random_between(random, 0, 7)],
                                           .kv_heads = random_between(random, 1, 40),
                                           .rows = random_between(random, 1, 20),
                                           .capacity = random_between(random, 0, 40000),
                                           .splits = random_between(random, 0, 3) ? 0 : random_between(random, 1, 256),
                                           .aligned = random_between(random, 0, 9) > 0,
                                           .chip = random_between(random, 0, 3) ? CHIP_SM_90A : CHIP_SM_80,
                                           .multiprocessors = multiprocessors[random_between(random, 0, 4)],
                                           .shared_bytes = MOST_SHARED_BYTES};
}

static void check_plan(const struct attention_decode_problem *problem, const struct attention_decode_plan *plan) {
  const struct attention_decode_variant *variant = plan->variant;
  cr_assert_eq(variant->dtype, problem->dtype);
  cr_assert_eq(variant->dimension, problem->dimension);
  cr_assert_leq(problem->rows, 8 * variant->operands);
  cr_assert(variant->kernel.chips & problem->chip);
  cr_assert(problem->aligned && problem->capacity > 0 && problem->batch <= 65535);
  cr_assert(variant->cluster == 1 || (variant->cluster == DECODE_PARTS && problem->multiprocessors >= 16));
  cr_assert_leq(plan->shared_bytes, MOST_SHARED_BYTES);
  cr_assert_geq(plan->splits, 1);
  if (problem->splits) cr_assert_leq(plan->splits, problem->splits);
  cr_assert(plan->splits == 1 || (plan->splits - 1) * DECODE_RUN < problem->capacity); /* none is empty */
}

Test(attention_decode, a_plan_keeps_what_its_kernels_rely_on) {
  struct random random = {3};
  int64_t taken = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    const struct attention_decode_problem problem = random_problem(&random);
    const struct attention_decode_plan plan = attention_decode_plan_of(&problem);
    if (!plan.variant) continue;
    taken++;
    check_plan(&problem, &plan);
    /* What the bits depend on is that of any batch, and of any chip. */
    struct attention_decode_problem other = problem;
    other.batch = random_between(&random, 1, 100);
    other.multiprocessors = 132;
    const struct attention_decode_plan others = attention_decode_plan_of(&other);
    cr_assert(others.variant);
    cr_assert_eq(others.splits, plan.splits);
  }
  cr_expect_gt(taken, PROBLEMS / 4);
}

/* Shared memory as attention_decode.cu lays it out: barrier, rings, received, stats, queries. */
Test(attention_decode, shared_memory_has_room_for_all_that_lies_there) {
  struct random random = {5};
  for (int i = 0; i < PROBLEMS; i++) {
    const struct attention_decode_problem problem = random_problem(&random);
    const struct attention_decode_plan plan = attention_decode_plan_of(&problem);
    if (!plan.variant) continue;
    const int64_t row = 2 * problem.dimension, own = problem.dimension / plan.variant->cluster;
    const int64_t slots = plan.variant->cluster > 1 ? DECODE_PARTS * DECODE_WARPS : DECODE_WARPS;
    const int64_t received = plan.variant->cluster > 1 ? slots * problem.rows * own * 4 : 0;
    const int64_t needed = 128 + DECODE_WARPS * plan.variant->stages * 2 * DECODE_TILE * row + received +
                           slots * problem.rows * 8 + DECODE_WARPS * problem.rows * row;
    /* A block that is alone, and has a multiprocessor for itself, asks for more than half of what that has. */
    const int64_t heads = problem.batch * problem.kv_heads * plan.splits;
    const bool by_itself = plan.variant->cluster == 1 && heads <= problem.multiprocessors;
    cr_assert_eq(plan.shared_bytes, by_itself ? larger(needed, MOST_SHARED_BYTES / 2 + 1) : needed);
    /* O of a warp leaves by way of its ring. */
    cr_assert_leq(problem.rows * (problem.dimension + 4) * 4, plan.variant->stages * 2 * DECODE_TILE * row);
  }
}

/* ---- The choice of kernels --------------------------------------------------------------------------------------- */

static struct op_operand heads(rondo_dtype dtype, int64_t batch, int64_t head_count, int64_t length,
                               int64_t dimension) {
  return (struct op_operand){.present = true,
                             .dtype = dtype,
                             .rank = 4,
                             .shape = {batch, head_count, length, dimension},
                             .stride = {head_count * length * dimension, length * dimension, dimension, 1}};
}

struct choice {
  int64_t batch, query_heads, kv_heads, query_length, capacity, dimension;
  int32_t splits, chip, multiprocessors;
  int64_t offset_bytes; /* of k */
  const char *kernel;
  uint32_t grid[3];
};

static void check_choice(const struct choice *choice) {
  struct op_operand operands[OP_MAX_OPERANDS] = {0};
  struct op_task task = {
      .op = &op_attention, .name = "attention", .operand_count = ATTENTION_OPERANDS, .operands = operands};
  operands[ATTENTION_Q] =
      heads(RONDO_BF16, choice->batch, choice->query_heads, choice->query_length, choice->dimension);
  operands[ATTENTION_K] = heads(RONDO_BF16, choice->batch, choice->kv_heads, choice->capacity, choice->dimension);
  operands[ATTENTION_O] = operands[ATTENTION_Q];
  operands[ATTENTION_V] = operands[ATTENTION_K];
  operands[ATTENTION_K].offset_bytes = (uint64_t)choice->offset_bytes;
  struct attention_attributes attributes = {.layout = RONDO_BHSD, .splits = choice->splits};
  memcpy(task.attributes, &attributes, sizeof attributes);
  const struct op_call call = {.task = &task, .data = op_nowhere};
  const struct chip chip = {choice->chip, choice->multiprocessors, MOST_SHARED_BYTES};
  struct op_launches launches;
  REQUIRE_OK(attention_select(&call, &chip, &launches));
  cr_assert_geq(launches.count, 1);
  const struct op_launch *first = &launches.items[0];
  cr_expect_str_eq(first->kernel, choice->kernel);
  for (int i = 0; i < 3; i++)
    cr_expect_eq(first->grid[i], choice->grid[i], "%s: grid[%d] is %u, expected %u", choice->kernel, i, first->grid[i],
                 choice->grid[i]);
  cr_expect_eq(launches.count, choice->grid[2] > 1 ? 2 : 1);
  if (launches.count == 2) {
    cr_expect_str_eq(launches.items[1].kernel, "rondo_attention_combine");
    struct attention_parameters merge;
    memcpy(&merge, launches.items[1].parameters, sizeof merge);
    cr_expect_eq(merge.splits, choice->grid[2]);
    const uint64_t rows = (uint64_t)(choice->batch * choice->query_heads * choice->query_length);
    cr_expect_geq(attention_scratch_bytes(&task),
                  choice->grid[2] * rows * (uint64_t)(choice->dimension + 1) * sizeof(float));
  }
}

#define DECODE(name) "rondo_attention_decode_bf16_" name

Test(attention_decode, few_query_rows_go_to_its_kernels) {
  static const struct choice choices[] = {
      {1, 32, 8, 1, 8192, 128, 0, 90, 132, 0, DECODE("128_8"), {64, 1, 1}},
      {2, 32, 8, 1, 8192, 128, 0, 90, 132, 0, DECODE("128_8"), {64, 2, 1}},
      {16, 32, 8, 1, 8192, 128, 0, 90, 132, 0, DECODE("128_8_alone"), {8, 16, 1}},
      {1, 9, 3, 1, 512, 64, 0, 90, 132, 0, DECODE("64_8"), {24, 1, 1}},
      {64, 9, 3, 1, 512, 64, 0, 90, 132, 0, DECODE("64_8_alone"), {3, 64, 1}},
      {1, 32, 8, 4, 8192, 128, 0, 100, 148, 0, DECODE("128_16"), {64, 1, 1}},
      {1, 8, 8, 8, 100, 256, 0, 90, 132, 0, DECODE("256_8"), {64, 1, 1}},
      {20, 40, 8, 2, 100, 256, 0, 90, 132, 0, DECODE("256_16"), {64, 20, 1}},
      /* With few heads, or where it is asked for, splits. */
      {1, 8, 1, 1, 32768, 128, 0, 90, 132, 0, DECODE("128_8"), {8, 1, 8}},
      {1, 32, 8, 1, 8192, 128, 3, 90, 132, 0, DECODE("128_8"), {64, 1, 3}},
      {1, 32, 8, 1, 600, 128, 3, 90, 132, 0, DECODE("128_8"), {64, 1, 2}},
      /* A lane that may not have room for clusters. */
      {1, 32, 8, 1, 8192, 128, 0, 90, 8, 0, DECODE("128_8_alone"), {8, 1, 1}},
  };
  for (size_t i = 0; i < COUNT(choices); i++) check_choice(&choices[i]);
}

Test(attention_decode, what_its_kernels_cannot_do_is_not_sent_there) {
  static const struct choice choices[] = {
      {1, 8, 8, 17, 128, 128, 1, 90, 132, 0, "rondo_attention_bf16_128", {8, 1, 1}}, /* too many rows */
      {1, 34, 2, 1, 128, 128, 1, 90, 132, 0, "rondo_attention_bf16_128", {2, 1, 1}},
      {1, 8, 8, 1, 128, 32, 1, 90, 132, 0, "rondo_attention_bf16_32", {8, 1, 1}},
      {1, 8, 8, 1, 128, 128, 1, 80, 108, 0, "rondo_attention_bf16_128", {8, 1, 1}},
      {1, 8, 8, 1, 128, 128, 1, 103, 148, 0, "rondo_attention_bf16_128", {8, 1, 1}}, /* has only translated code */
      {1, 8, 8, 1, 128, 128, 1, 120, 188, 0, "rondo_attention_bf16_128", {8, 1, 1}},
      {1, 8, 8, 1, 128, 128, 1, 90, 132, 8, "rondo_attention_bf16_128", {8, 1, 1}},  /* k is not aligned */
      {1, 8, 8, 1, 0, 128, 1, 90, 132, 0, "rondo_attention_bf16_128", {8, 1, 1}},    /* no memory to read ahead */
      {1, 8, 8, 16, 128, 256, 1, 90, 132, 0, "rondo_attention_bf16_256", {8, 1, 1}}, /* too much shared memory */
      {1, 8, 1, 2, 128, 256, 1, 90, 8, 0, "rondo_attention_bf16_256", {1, 1, 1}},    /* no cluster, and none alone */
  };
  for (size_t i = 0; i < COUNT(choices); i++) check_choice(&choices[i]);
}

/* ---- The same bits ----------------------------------------------------------------------------------------------- */

/* The first item of `one` into an item of `many`. */
static void copy_item(const struct attention *one, struct attention *many, int64_t item) {
  const size_t query = (size_t)(one->query_heads * one->query_length * one->dimension);
  const size_t kv = (size_t)(one->kv_heads * one->capacity * one->dimension);
  memcpy(many->q_memory + (size_t)item * query, one->q_memory, query * sizeof(uint16_t));
  memcpy(many->k_memory + (size_t)item * kv, one->k_memory, kv * sizeof(uint16_t));
  memcpy(many->v_memory + (size_t)item * kv, one->v_memory, kv * sizeof(uint16_t));
}

static void batches(rondo_backend backend) {
  static const int64_t sizes[] = {1, 7, 64};
  for (size_t c = 0; c < 2 * COUNT(dimensions); c++) {
    static int32_t lengths[64];
    struct attention tasks[COUNT(sizes)];
    struct trial trial;
    struct random random = {19};
    for (int i = 0; i < 64; i++) lengths[i] = 1 + 37 * i % 1100;
    lengths[0] = 1093;
    trial_describe(&trial, backend);
    for (size_t i = 0; i < COUNT(sizes); i++) {
      tasks[i] = (struct attention){.dtype = dtypes[c % 2],
                                    .batch = sizes[i],
                                    .query_heads = 4,
                                    .kv_heads = 2,
                                    .query_length = c % 2 ? 1 : 3,
                                    .capacity = 1100,
                                    .dimension = dimensions[c / 2],
                                    .causal = 1,
                                    .lengths = lengths,
                                    .lse_wanted = true};
      attention_add(&tasks[i], &trial);
    }
    trial_instantiate(&trial);
    for (size_t i = 0; i < COUNT(sizes); i++) {
      attention_fill(&tasks[i], &random);
      copy_item(&tasks[0], &tasks[i], 0);
      attention_set(&tasks[i], &trial);
    }
    trial_replay(&trial);
    const size_t elements = (size_t)(4 * tasks[0].query_length * tasks[0].dimension);
    for (size_t i = 0; i < COUNT(sizes); i++) {
      attention_get(&tasks[i], &trial);
      cr_expect(!memcmp(tasks[i].o_memory, tasks[0].o_memory, elements * sizeof(uint16_t)),
                "case %zu: o of an item differs in a batch of %ld", c, (long)sizes[i]);
      cr_expect(!memcmp(tasks[i].lse_memory, tasks[0].lse_memory, 4 * (size_t)tasks[0].query_length * sizeof(float)),
                "case %zu: lse of an item differs in a batch of %ld", c, (long)sizes[i]);
    }
    for (size_t i = 0; i < COUNT(sizes); i++) attention_free(&tasks[i]);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(attention_decode, an_item_has_the_same_bits_in_any_batch, batches)

static void replays(rondo_backend backend) {
  enum { REPLAYS = 1000 };
  struct attention tasks[] = {
      {.batch = 1, .query_heads = 8, .kv_heads = 2, .query_length = 1, .capacity = 1500, .dimension = 128},
      {.batch = 40, .query_heads = 4, .kv_heads = 2, .query_length = 2, .capacity = 130, .dimension = 64},
      {.batch = 1, .query_heads = 2, .kv_heads = 1, .query_length = 1, .capacity = 9000, .dimension = 64},
  };
  struct trial trial;
  struct random random = {23};
  uint16_t *first[COUNT(tasks)];
  trial_describe(&trial, backend);
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i].dtype = dtypes[i % 2];
    tasks[i].causal = 1;
    attention_add(&tasks[i], &trial);
  }
  trial_instantiate(&trial);
  for (size_t i = 0; i < COUNT(tasks); i++) {
    attention_fill(&tasks[i], &random);
    attention_set(&tasks[i], &trial);
  }
  const int count = backend == RONDO_BACKEND_HOST ? 2 : REPLAYS;
  for (int replay = 0; replay < count; replay++) {
    trial_replay(&trial);
    for (size_t i = 0; i < COUNT(tasks); i++) {
      const size_t bytes =
          (size_t)(tasks[i].batch * tasks[i].query_heads * tasks[i].query_length * tasks[i].dimension) *
          sizeof(uint16_t);
      attention_get(&tasks[i], &trial);
      if (!replay) first[i] = memcpy(attention_memory((int64_t)bytes, 1), tasks[i].o_memory, bytes);
      cr_assert(!memcmp(first[i], tasks[i].o_memory, bytes), "task %zu differs in replay %d", i, replay);
    }
  }
  for (size_t i = 0; i < COUNT(tasks); i++) {
    free(first[i]);
    attention_free(&tasks[i]);
  }
  trial_end(&trial);
}
BOTH_BACKENDS(attention_decode, a_thousand_replays_give_the_same_bits, replays)

/* ---- Lengths and numbers ----------------------------------------------------------------------------------------- */

/* Around tiles, parts and runs; with few heads in clusters, with many alone. */
static const int32_t borders[] = {0,   1,   2,   15,  16,  17,  63,   64,   65,   127,  128,  129,
                                  511, 512, 513, 575, 576, 577, 1023, 1024, 1025, 1537, 1599, 1600};

static void lengths(rondo_backend backend) {
  static struct attention tasks[2 * COUNT(dimensions) * 2];
  size_t count = 0;
  for (size_t n = 0; n < COUNT(dimensions); n++)
    for (int64_t kv_heads = 1; kv_heads <= 3; kv_heads += 2)
      for (int64_t rows = 1; rows < 7; rows += 5, count++)
        tasks[count] = (struct attention){.dtype = dtypes[count % 2],
                                          .layout = count % 3 ? RONDO_BHSD : RONDO_BSHD,
                                          .batch = COUNT(borders),
                                          .query_heads = kv_heads,
                                          .kv_heads = kv_heads,
                                          .query_length = rows,
                                          .capacity = 1600,
                                          .dimension = dimensions[n],
                                          .causal = 1,
                                          .lengths = borders,
                                          .lse_wanted = true};
  attentions_check(backend, tasks, count); /* attention_fill has put NaN behind every length */
}
BOTH_BACKENDS(attention_decode, lengths_at_every_border_agree_with_double_precision, lengths)

/* The last KV rows are seen by the last positions only, and lie in one tile with rows that all see. */
static void not_numbers(rondo_backend backend) {
  static const double planted[] = {NAN, INFINITY, -INFINITY};
  struct attention tasks[2 * COUNT(dimensions) * COUNT(planted)];
  struct trial trial;
  struct random random = {29};
  trial_describe(&trial, backend);
  for (size_t i = 0; i < COUNT(tasks); i++) {
    tasks[i] = (struct attention){.dtype = dtypes[i % 2],
                                  .batch = i % 2 ? 1 : 70,
                                  .query_heads = 2,
                                  .kv_heads = 1,
                                  .query_length = 5,
                                  .capacity = 70,
                                  .dimension = dimensions[i / 2 % COUNT(dimensions)],
                                  .causal = 1,
                                  .lse_wanted = true};
    attention_add(&tasks[i], &trial);
  }
  trial_instantiate(&trial);
  for (size_t i = 0; i < COUNT(tasks); i++) {
    struct rectangle kv = kv_rectangle(&tasks[i]);
    const double value = planted[i / (2 * COUNT(dimensions))];
    attention_fill(&tasks[i], &random);
    for (int64_t b = 0; b < tasks[i].batch; b++) {
      oracle_write(tasks[i].dtype, tasks[i].v_memory, row_index(&tasks[i], &kv, b, 0, 69) + 3, value);
      oracle_write(tasks[i].dtype, tasks[i].v_memory, row_index(&tasks[i], &kv, b, 0, 67) + 9, value);
    }
    attention_set(&tasks[i], &trial);
  }
  attentions_end(&trial, tasks, COUNT(tasks));
}
BOTH_BACKENDS(attention_decode, nan_and_infinity_in_values_reach_only_rows_that_see_them, not_numbers)
