/* test_attention_decode.c - the kernels of attention for few query rows: what their plans promise, for random problems,
 * and which tasks take them. Needs no GPU. Faults that would show: a split that leaves rows out, shared memory beyond
 * the chip's, a task that its kernels cannot do. The results are checked in test_attention_decode_numbers.c. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/attention/attention_choose.h"
#include "../../kernels/common/launch.h"
#include "../../runtime/integer.h"
#include "../oracles/attention_run.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- Plans ------------------------------------------------------------------------------------------------------ */

enum { PROBLEMS = 200000, MOST_SHARED_BYTES = 232448 };

static struct attention_problem random_problem(struct random *random) {
  static const int64_t dimension[] = {32, 64, 128, 256};
  static const int32_t multiprocessors[] = {8, 16, 78, 132, 148};
  static const int64_t batches[] = {1, 1, 2, 7, 16, 64, 65535, 65536};
  struct attention_problem problem = {.q = random_between(random, 0, 1) ? RONDO_F16 : RONDO_BF16};
  problem.chip.version = random_between(random, 0, 3) ? 90 : 80;
  problem.chip.multiprocessors = multiprocessors[random_between(random, 0, 4)];
  problem.chip.shared_bytes = MOST_SHARED_BYTES;
  problem.shape.head_dimension = dimension[random_between(random, 0, 3)];
  problem.shape.batch = batches[random_between(random, 0, 7)];
  problem.shape.kv_heads = random_between(random, 1, 40);
  problem.shape.rows = random_between(random, 1, 20);
  problem.shape.capacity = random_between(random, 0, 40000);
  problem.shape.plain = random_between(random, 0, 1);
  problem.kv = random_between(random, 0, 2) ? problem.q : RONDO_E4M3;
  problem.asked_splits = random_between(random, 0, 3) ? 0 : random_between(random, 1, 256);
  problem.is_aligned = random_between(random, 0, 9) > 0;
  if (problem.kv == RONDO_E4M3) problem.shape.plain = false;
  if (problem.kv != RONDO_E4M3 && random_between(random, 0, 1)) {
    problem.shape.appends = true;
    problem.shape.query_length = random_between(random, 1, problem.shape.rows);
  }
  return problem;
}

static void check_plan(const struct attention_problem *problem, const struct attention_plan *plan) {
  const struct attention_decode_variant *variant = plan->decode.variant;
  const struct attention_shape *shape = &problem->shape;
  const bool is_small = shape->rows <= 8 && shape->head_dimension <= 128, is_e4m3 = problem->kv == RONDO_E4M3;
  const enum decode_kind kind = is_e4m3 ? DECODE_E4M3 : shape->plain && is_small ? DECODE_PLAIN : DECODE_GENERAL;
  cr_assert_eq(variant->kind, kind);
  if (kind != DECODE_GENERAL) cr_assert_eq(variant->dtype, is_e4m3 ? RONDO_F16 : problem->q);
  cr_assert_eq(variant->dimension, shape->head_dimension);
  cr_assert_leq(shape->rows, 8 * variant->operands);
  cr_assert(variant->kernel.chips & launch_chip(&problem->chip));
  cr_assert(problem->is_aligned && shape->capacity > 0 && shape->batch <= 65535);
  cr_assert(variant->cluster == 1 || problem->chip.multiprocessors >= 16);
  cr_assert(DECODE_PARTS % variant->cluster == 0);
  cr_assert_leq(plan->decode.shared_bytes, MOST_SHARED_BYTES);
  cr_assert_geq(plan->splits, 1);
  if (problem->asked_splits) cr_assert_leq(plan->splits, problem->asked_splits);
  cr_assert(plan->splits == 1 || (plan->splits - 1) * DECODE_LEAST_RUN < shape->capacity); /* none is empty */
}

Test(attention_decode, a_plan_keeps_what_its_kernels_rely_on) {
  struct random random = {3};
  int64_t taken = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    const struct attention_problem problem = random_problem(&random);
    struct attention_plan plan, others;
    if (!attention_decode_plan_of(&problem, &plan)) continue;
    taken++;
    check_plan(&problem, &plan);
    /* What the bits depend on is that of any batch, and of any chip. */
    struct attention_problem other = problem;
    other.shape.batch = random_between(&random, 1, 100);
    other.chip.multiprocessors = 132;
    if (!attention_decode_plan_of(&other, &others)) { /* new rows that a cluster has no room for are
                                                         written before it */
      cr_assert(other.shape.appends);
      other.shape.appends = false;
      cr_assert(attention_decode_plan_of(&other, &others));
    }
    cr_assert_eq(others.splits, plan.splits);
    cr_assert_eq(others.decode.variant->warps, plan.decode.variant->warps);
  }
  cr_expect_gt(taken, PROBLEMS / 4);
}

/* Shared memory as attention_decode.cu lays it out: barrier, rings, received,
 * stats, queries; and of new rows K, V, cosines and sines. */
Test(attention_decode, shared_memory_has_room_for_all_that_lies_there) {
  struct random random = {5};
  for (int i = 0; i < PROBLEMS; i++) {
    const struct attention_problem problem = random_problem(&random);
    const struct attention_shape *shape = &problem.shape;
    struct attention_plan plan;
    if (!attention_decode_plan_of(&problem, &plan)) continue;
    const struct attention_decode_variant *v = plan.decode.variant;
    const int64_t dimension = shape->head_dimension, query = 2 * dimension;
    const int64_t row = problem.kv == RONDO_E4M3 ? dimension : query,
                  new_rows = shape->appends ? shape->query_length : 0;
    const int64_t warps = v->warps, slots = v->cluster == DECODE_PARTS ? DECODE_PARTS * warps : warps;
    /* In a pair a lane keeps its numbers of O for up to eight rows, two maxima and two sums: of four parts. */
    const int64_t kept = v->cluster == DECODE_PAIR ? DECODE_PARTS / 2 * warps * 32 * (dimension * 8 / 32 + 4) * 4 : 0;
    const int64_t received = v->cluster == DECODE_PARTS ? slots * shape->rows * (dimension / v->cluster) * 4 : kept;
    const int64_t stages = plan.decode.crowded ? 3 : v->stages;
    const int64_t needed = 128 + warps * stages * 2 * DECODE_TILE * row + received + slots * shape->rows * 8 +
                           warps * shape->rows * query + warps * new_rows * (2 * query + 4 * dimension);
    cr_assert_eq(v->kernel.threads, 32 * warps);
    /* A block that is alone, and has a multiprocessor for itself, asks for more
     * than half of what that has. */
    const int64_t heads = shape->batch * shape->kv_heads * plan.splits;
    const bool by_itself = v->cluster == 1 && heads <= problem.chip.multiprocessors;
    cr_assert_eq(plan.decode.shared_bytes, by_itself ? larger(needed, MOST_SHARED_BYTES / 2 + 1) : needed);
    /* O of a warp leaves by way of its ring. */
    cr_assert_leq(shape->rows * (dimension + 4) * 4, stages * 2 * DECODE_TILE * row);
    /* Where two blocks of many do not fill a multiprocessor, four have room, with up to eight query rows. */
    const bool is_of_64 = v->kind == DECODE_PLAIN && v->dimension == 64 && v->cluster == 1;
    cr_assert_eq(plan.decode.crowded, is_of_64 && heads > 2 * (int64_t)problem.chip.multiprocessors);
    if (plan.decode.crowded && new_rows <= 1) cr_assert_leq(4 * plan.decode.shared_bytes, MOST_SHARED_BYTES);
  }
}

/* ---- The choice of kernels -------------------------------------------------------------------------------------- */

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

struct extras {
  bool e4m3, paged;
  int32_t window;
  float soft_cap;
  bool appends, turns, misaligned;
};
static const struct extras none;

static void check_choice(const struct choice *choice, const struct extras *extras) {
  struct op_operand operands[OP_MAX_OPERANDS] = {0};
  struct op_task task = {
      .op = &op_attention, .name = "attention", .operand_count = ATTENTION_OPERANDS, .operands = operands};
  operands[ATTENTION_Q] =
      heads(RONDO_BF16, choice->batch, choice->query_heads, choice->query_length, choice->dimension);
  const int64_t pages = extras->paged ? 1000 : choice->batch, page_rows = extras->paged ? 32 : choice->capacity;
  operands[ATTENTION_K] =
      heads(extras->e4m3 ? RONDO_E4M3 : RONDO_BF16, pages, choice->kv_heads, page_rows, choice->dimension);
  if (extras->paged) {
    const int64_t item_pages = choice->capacity / page_rows;
    operands[ATTENTION_KV_PAGES] = (struct op_operand){.present = true,
                                                       .dtype = RONDO_I32,
                                                       .rank = 2,
                                                       .shape = {choice->batch, item_pages},
                                                       .stride = {item_pages, 1}};
  }
  if (extras->appends)
    operands[ATTENTION_NEW_K] = operands[ATTENTION_NEW_V] =
        heads(RONDO_BF16, choice->batch, choice->kv_heads, choice->query_length, choice->dimension);
  if (extras->misaligned) operands[ATTENTION_NEW_V].offset_bytes = 8;
  if (extras->appends || extras->turns)
    operands[ATTENTION_POSITION] =
        (struct op_operand){.present = true, .dtype = RONDO_I32, .rank = 1, .shape = {1}, .stride = {1}};
  operands[ATTENTION_O] = operands[ATTENTION_Q];
  operands[ATTENTION_V] = operands[ATTENTION_K];
  operands[ATTENTION_K].offset_bytes = (uint64_t)choice->offset_bytes;
  struct attention_attributes attributes = {.layout = RONDO_BHSD,
                                            .causal = 1,
                                            .splits = choice->splits,
                                            .window = extras->window,
                                            .soft_cap = extras->soft_cap,
                                            .rope_base = extras->turns ? 10000.0f : 0.0f};
  memcpy(task.attributes, &attributes, sizeof attributes);
  const struct op_call call = {.task = &task, .data = op_nowhere};
  const struct chip chip = {choice->chip, choice->multiprocessors, MOST_SHARED_BYTES};
  struct op_launches launches;
  REQUIRE_OK(attention_select(&call, &chip, &launches));
  cr_assert_geq(launches.count, 1);
  const struct op_launch *first = &launches.items[0];
  if (!strncmp(first->kernel, "rondo_attention_append", 22)) { /* before the kernel that attends */
    cr_expect_eq(strncmp(choice->kernel, "after ", 6), 0);
    cr_expect_str_eq(launches.items[1].kernel, choice->kernel + 6);
    cr_expect_eq(launches.count, 2);
    return;
  }
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

#define DECODE(name)  "rondo_attention_decode_bf16_" name
#define GENERAL(name) "rondo_attention_decode_general_" name

Test(attention_decode, few_query_rows_go_to_its_kernels) {
  static const struct choice choices[] = {
      {1, 32, 8, 1, 8192, 128, 0, 90, 132, 0, DECODE("128_8"), {64, 1, 1}},
      {2, 32, 8, 1, 8192, 128, 0, 90, 132, 0, DECODE("128_8"), {64, 2, 1}},
      {16, 32, 8, 1, 8192, 128, 0, 90, 132, 0, DECODE("128_8_alone"), {8, 16, 1}},
      {8, 32, 8, 1, 8192, 128, 0, 90, 132, 0, DECODE("128_8_alone"), {8, 8, 1}},
      {4, 32, 8, 1, 8192, 128, 0, 90, 132, 0, DECODE("128_8_pair"), {16, 4, 1}},
      {4, 32, 8, 1, 4111, 64, 0, 90, 132, 0, DECODE("64_8_pair"), {16, 4, 1}},
      {4, 32, 8, 1, 8192, 64, 0, 90, 132, 0, DECODE("64_8"), {64, 4, 1}},
      {1, 9, 3, 1, 512, 64, 0, 90, 132, 0, DECODE("64_8"), {24, 1, 1}},
      {64, 9, 3, 1, 512, 64, 0, 90, 132, 0, DECODE("64_8_alone"), {3, 64, 1}},
      {1, 32, 8, 4, 8192, 128, 0, 100, 148, 0, GENERAL("128_16"), {64, 1, 1}},
      {1, 8, 8, 8, 100, 256, 0, 90, 132, 0, GENERAL("256_8"), {64, 1, 1}},
      {20, 40, 8, 2, 100, 256, 0, 90, 132, 0, GENERAL("256_16"), {64, 20, 1}},
      /* With few heads, or where it is asked for, splits. */
      {1, 8, 1, 1, 32768, 128, 0, 90, 132, 0, DECODE("128_8"), {8, 1, 8}},
      {1, 32, 8, 1, 8192, 128, 3, 90, 132, 0, DECODE("128_8"), {64, 1, 3}},
      {1, 32, 8, 1, 600, 128, 3, 90, 132, 0, DECODE("128_8"), {64, 1, 2}},
      /* A lane that may not have room for clusters. */
      {1, 32, 8, 1, 8192, 128, 0, 90, 8, 0, DECODE("128_8_alone"), {8, 1, 1}},
  };
  for (size_t i = 0; i < COUNT(choices); i++) check_choice(&choices[i], &none);
}

#define E4M3(name) "rondo_attention_decode_e4m3_" name

Test(attention_decode, plain_tasks_have_kernels_of_their_own) {
  static const struct {
    struct choice choice;
    struct extras extras;
  } choices[] = {
      {{1, 32, 8, 1, 8192, 128, 0, 90, 132, 0, GENERAL("128_8"), {64, 1, 1}}, {.paged = true}},
      {{1, 32, 8, 1, 8192, 128, 0, 90, 132, 0, GENERAL("128_8"), {64, 1, 1}}, {.window = 8191}},
      {{1, 32, 8, 1, 8192, 128, 0, 90, 132, 0, DECODE("128_8"), {64, 1, 1}}, {.window = 8192}}, /* of all there is */
      {{1, 32, 8, 1, 8192, 128, 0, 90, 132, 0, GENERAL("128_8"), {64, 1, 1}}, {.soft_cap = 30.0f}},
      {{16, 32, 8, 1, 8192, 128, 0, 90, 132, 0, GENERAL("128_16_alone"), {8, 16, 1}}, {.paged = true, .window = 100}},
      {{1, 8, 1, 1, 32768, 128, 0, 90, 132, 0, GENERAL("128_8"), {8, 1, 8}}, {.paged = true}},
      {{1, 32, 8, 1, 8192, 128, 0, 90, 132, 0, E4M3("128_8"), {64, 1, 1}}, {.e4m3 = true}},
      {{16, 32, 8, 1, 8192, 128, 0, 90, 132, 0, E4M3("128_8_alone"), {8, 16, 1}}, {.e4m3 = true}},
      {{1, 8, 8, 8, 128, 256, 1, 90, 132, 0, E4M3("256_8"), {64, 1, 1}}, {.e4m3 = true, .paged = true}},
      {{1, 8, 8, 9, 128, 256, 1, 90, 132, 0, "rondo_attention_general_bf16_256", {8, 1, 1}},
       {.e4m3 = true}}, /* registers */
  };
  for (size_t i = 0; i < COUNT(choices); i++) check_choice(&choices[i].choice, &choices[i].extras);
}

Test(attention_decode, new_rows_are_written_and_turned_by_the_kernel_that_attends) {
  static const struct {
    struct choice choice;
    struct extras extras;
  } choices[] = {
      {{1, 9, 3, 1, 512, 64, 0, 90, 132, 0, DECODE("64_8"), {24, 1, 1}}, {.appends = true, .turns = true}},
      {{16, 32, 8, 1, 512, 64, 0, 90, 132, 0, DECODE("64_8_alone"), {8, 16, 1}}, {.appends = true, .turns = true}},
      {{2, 32, 8, 1, 512, 128, 0, 90, 132, 0, DECODE("128_8"), {64, 2, 1}}, {.appends = true}},
      {{1, 8, 8, 16, 512, 128, 1, 90, 132, 0, GENERAL("128_16"), {64, 1, 1}}, {.appends = true}},
      {{1, 8, 1, 1, 32768, 128, 0, 100, 148, 0, GENERAL("128_8"), {8, 1, 8}}, {.appends = true, .paged = true}},
      /* What they cannot do, a kernel before another one does. */
      {{1, 9, 3, 1, 512, 64, 1, 80, 108, 0, "after rondo_attention_bf16_64", {3, 1, 1}}, {.appends = true}},
      {{1, 9, 3, 1, 512, 64, 1, 90, 132, 0, "after rondo_attention_decode_bf16_64_8", {24, 1, 1}}, {.turns = true}},
      {{1, 9, 3, 1, 512, 64, 1, 90, 132, 0, "after rondo_attention_decode_bf16_64_8", {24, 1, 1}},
       {.appends = true, .turns = true, .misaligned = true}},
  };
  for (size_t i = 0; i < COUNT(choices); i++) check_choice(&choices[i].choice, &choices[i].extras);
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
  for (size_t i = 0; i < COUNT(choices); i++) check_choice(&choices[i], &none);
}
