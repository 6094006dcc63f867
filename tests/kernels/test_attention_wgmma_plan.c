/* test_attention_wgmma_plan.c - the plans of attention_wgmma.cu and attention_wgmma_e4m3.cu: properties of plans for
 * random problems, such as that the blocks together compute every query tile once; which tasks the kernels take; and
 * their tensor maps. Needs no GPU. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/attention/attention_append.h"
#include "../../kernels/attention/attention_choose.h"
#include "../support.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct chip h200 = {90, 132, 232448};

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* Mostly one that is taken. e4m3 has heads of 128, and neither window nor cap. */
static struct attention_problem random_problem(struct random *random) {
  static const int32_t multiprocessors[] = {1, 16, 78, 114, 132};
  static const int64_t dimensions[] = {64, 128, 256}, groups[] = {1, 1, 3, 8};
  static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16, RONDO_E4M3};
  struct attention_problem problem = {.chip = {90, RANDOM_OF(random, multiprocessors), 232448}, .has_maps = true};
  struct attention_shape *shape = &problem.shape;
  shape->kv_heads = random_between(random, 1, random_between(random, 0, 1) ? 40 : 2);
  shape->group = RANDOM_OF(random, groups);
  shape->query_heads = shape->kv_heads * shape->group;
  shape->causal = random_between(random, 0, 1);
  shape->scale = 0.125f;
  shape->soft_cap = random_between(random, 0, 2) ? 0.0f : 30.0f;
  shape->window = shape->causal && random_between(random, 0, 1) ? random_between(random, 1, 2000) : 0;
  shape->batch = random_between(random, 1, 9);
  shape->query_length = random_between(random, 64, 2000);
  shape->capacity = random_between(random, 1, 3000);
  shape->has_ends = shape->causal && random_between(random, 0, 1);
  shape->head_dimension = RANDOM_OF(random, dimensions);
  problem.q = RANDOM_OF(random, dtypes);
  if (problem.q != RONDO_E4M3) return problem;
  shape->head_dimension = 128;
  shape->soft_cap = 0.0f;
  shape->window = 0;
  return problem;
}

static int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

/* What the kernel relies on: it has the type and the mask, its slots are in the shared memory that is asked for, and
 * copies fill whole slots. */
static void check_variant(const struct attention_problem *problem, const struct attention_wgmma_variant *variant) {
  const struct attention_shape *shape = &problem->shape;
  cr_assert(variant->dtype == problem->q && variant->head_dimension == shape->head_dimension);
  const bool is_general = variant->mask == ATTENTION_WGMMA_GENERAL;
  cr_assert(is_general || (variant->mask == ATTENTION_WGMMA_CAUSAL) == shape->causal);
  cr_assert(is_general || (!shape->window && shape->soft_cap == 0.0f));
  cr_assert_leq(variant->shared_bytes, problem->chip.shared_bytes);
  const int64_t number_bytes = problem->q == RONDO_E4M3 ? 1 : 2;
  cr_assert_geq(variant->shared_bytes, number_bytes * variant->head_dimension * (variant->rows + 4 * variant->tile));
  const int64_t tile_numbers = variant->tile * variant->head_dimension, landings = number_bytes == 1 ? 2 : 1;
  const int64_t shares = variant->cluster / variant->parts; /* of blocks that walk over the same KV tiles */
  cr_assert_eq(variant->key_box_rows * variant->box_columns * shares, tile_numbers);
  cr_assert_eq(variant->value_box_rows * variant->box_columns * shares * landings, tile_numbers);
  cr_assert(shares == 1 || variant->mask == ATTENTION_WGMMA_ALL);
  cr_assert(variant->parts == 1 || (variant->parts == variant->cluster && variant->mask == ATTENTION_WGMMA_CAUSAL));
}

static void check_plan(const struct attention_problem *problem, const struct attention_wgmma_plan *plan) {
  const struct attention_wgmma_variant *variant = plan->variant;
  const struct attention_shape *shape = &problem->shape;
  check_variant(problem, variant);
  const int64_t rows = variant->rows * variant->cluster / variant->parts, heads = shape->batch * shape->query_heads;
  cr_assert(plan->row_tiles * rows >= shape->query_length && (plan->row_tiles - 1) * rows < shape->query_length);
  cr_assert(plan->heads_together >= 1 && plan->heads_together <= heads);
  cr_assert(plan->blocks >= 1 && plan->blocks <= problem->chip.multiprocessors * variant->at_once);
  const int64_t clusters = plan->blocks / variant->cluster;
  cr_assert_geq(plan->rounds * clusters, plan->heads_together * plan->row_tiles);
  cr_assert_leq(divided_up(heads, plan->heads_together) * plan->rounds, ATTENTION_WGMMA_MOST_TILES);
}

Test(attention_wgmma_plan, whatever_is_planned_covers_every_row) {
  enum { PROBLEMS = 4000 };
  struct random random = {23};
  int64_t planned = 0, in_parts = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    const struct attention_problem problem = random_problem(&random);
    struct attention_plan plan;
    if (!attention_wgmma_plan_of(&problem, &plan)) continue;
    planned++;
    check_plan(&problem, &plan.wgmma);
    in_parts += plan.wgmma.variant->parts > 1;
  }
  cr_expect_gt(planned, PROBLEMS / 2);
  cr_expect_gt(in_parts, PROBLEMS / 400);
}

/* Another chip, operands without tensor maps, a negative or infinite scale, a chip with less shared memory. */
Test(attention_wgmma_plan, what_the_kernels_cannot_take_is_refused) {
  enum { PROBLEMS = 5000 };
  struct random random = {29};
  for (int i = 0; i < PROBLEMS; i++) {
    const struct attention_problem problem = random_problem(&random);
    struct attention_problem refused[5] = {problem, problem, problem, problem, problem};
    refused[0].chip.version = 80;
    refused[1].has_maps = false;
    refused[2].shape.scale = -problem.shape.scale;
    refused[3].shape.scale = INFINITY;
    refused[4].chip.shared_bytes = 99 << 10;
    struct attention_plan plan;
    for (size_t r = 0; r < COUNT(refused); r++) cr_assert_not(attention_wgmma_plan_of(&refused[r], &plan));
  }
}

/* How attention_wgmma_tiles.cuh deals under the causal mask: in each round of a group's, cluster c takes tile c of
 * those left, every other time counted from the end. */
static void deal(const struct attention_shape *shape, const struct attention_wgmma_plan *plan) {
  const int64_t heads = shape->batch * shape->query_heads, clusters = plan->blocks / plan->variant->cluster;
  const int64_t groups = divided_up(heads, plan->heads_together);
  unsigned char *dealt = calloc((size_t)(heads * plan->row_tiles), 1);
  cr_assert_not_null(dealt);
  int64_t most = 0, least = INT64_MAX, longest = divided_up(shape->capacity, plan->variant->tile);
  for (int64_t c = 0; c < clusters; c++) {
    int64_t work = 0;
    for (int64_t turn = 0; turn < groups * plan->rounds; turn++) {
      int64_t first = turn / plan->rounds * plan->heads_together;
      int64_t together = heads - first < plan->heads_together ? heads - first : plan->heads_together;
      int64_t index = turn % plan->rounds * clusters + (turn % 2 ? clusters - 1 - c : c);
      if (index >= together * plan->row_tiles) continue;
      int64_t row_tile = plan->row_tiles - 1 - index / together, head = first + index % together;
      cr_assert_eq(dealt[head * plan->row_tiles + row_tile]++, 0);
      const int64_t end = (row_tile + 1) * plan->variant->rows, row = row_tile * plan->variant->rows + 1;
      const int64_t begin = shape->window && row > shape->window ? row - shape->window : 0;
      work += divided_up(end - begin, plan->variant->tile);
    }
    most = work > most ? work : most;
    least = work < least ? work : least;
  }
  for (int64_t i = 0; i < heads * plan->row_tiles; i++) cr_assert_eq(dealt[i], 1);
  cr_expect_leq(most - least, 2 * longest);
  free(dealt);
}

static void check_equal_work(int64_t window) {
  static const int64_t lengths[] = {512, 1024, 4096, 16384}, dimensions[] = {64, 128, 256};
  for (size_t i = 0; i < COUNT(lengths); i++)
    for (size_t n = 0; n < COUNT(dimensions); n++) {
      const int64_t heads = 2048 / dimensions[n];
      const struct attention_problem problem = {.chip = h200,
                                                .shape = {.causal = true,
                                                          .scale = 0.1f,
                                                          .window = window,
                                                          .batch = 16384 / lengths[i],
                                                          .query_heads = heads,
                                                          .kv_heads = heads,
                                                          .group = 1,
                                                          .query_length = lengths[i],
                                                          .capacity = lengths[i],
                                                          .head_dimension = dimensions[n]},
                                                .q = RONDO_BF16,
                                                .has_maps = true};
      struct attention_plan plan;
      cr_assert(attention_wgmma_plan_of(&problem, &plan));
      check_plan(&problem, &plan.wgmma);
      deal(&problem.shape, &plan.wgmma);
    }
}

Test(attention_wgmma_plan, under_the_causal_mask_blocks_get_equal_work) { check_equal_work(0); }
Test(attention_wgmma_plan, with_a_window_blocks_get_equal_work) {
  check_equal_work(128);
  check_equal_work(1024);
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

struct description {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task;
};

static struct op_operand operand_of(rondo_head_layout layout, rondo_dtype dtype, int64_t batch, int64_t heads,
                                    int64_t length, int64_t dimension) {
  struct op_operand operand = {.present = true, .dtype = dtype, .rank = 4, .shape = {batch, heads, length, dimension}};
  if (layout == RONDO_BSHD) {
    operand.shape[1] = length;
    operand.shape[2] = heads;
  }
  operand.stride[3] = 1;
  for (int i = 2; i >= 0; i--) operand.stride[i] = operand.stride[i + 1] * operand.shape[i + 1];
  return operand;
}

static void describe(struct description *d, struct attention_attributes attributes, rondo_dtype dtype, int64_t batch,
                     int64_t query_heads, int64_t kv_heads, int64_t query_length, int64_t capacity, int64_t dimension) {
  rondo_head_layout layout = (rondo_head_layout)attributes.layout;
  *d = (struct description){.task = {.op = &op_attention, .name = "attention", .operand_count = ATTENTION_OPERANDS}};
  d->task.operands = d->operands;
  d->operands[ATTENTION_Q] = d->operands[ATTENTION_O] =
      operand_of(layout, dtype, batch, query_heads, query_length, dimension);
  d->operands[ATTENTION_K] = d->operands[ATTENTION_V] = operand_of(layout, dtype, batch, kv_heads, capacity, dimension);
  memcpy(d->task.attributes, &attributes, sizeof attributes);
}

static const char *kernel_of(const struct description *d, const struct chip *chip, struct op_launches *launches) {
  struct op_call call = {.task = &d->task, .data = op_nowhere};
  REQUIRE_OK(attention_select(&call, chip, launches));
  cr_assert_geq(launches->count, 1);
  return launches->items[0].kernel;
}

Test(attention_wgmma_plan, every_type_dimension_and_mask_of_many_rows_has_a_kernel) {
  static const struct {
    int64_t dimension, length;
    int32_t causal;
    const char *kernel;
  } cases[] = {
      {32, 128, 0, "64"},       {32, 4096, 1, "64_high_causal"}, {64, 128, 0, "64"},
      {64, 4096, 0, "64_high"}, {64, 512, 1, "64_causal"},       {64, 4096, 1, "64_high_causal"},
      {128, 128, 0, "128"},     {128, 4096, 0, "128_pair"},      {128, 4096, 1, "128_causal"},
      {256, 128, 0, "256"},     {256, 4096, 0, "256_pair"},      {256, 1024, 1, "256_causal"},
  };
  for (size_t i = 0; i < COUNT(cases); i++)
    for (int bf16 = 0; bf16 < 2; bf16++) {
      char kernel[64];
      struct description d;
      struct op_launches launches;
      snprintf(kernel, sizeof kernel, "rondo_attention_wgmma_%s_%s", bf16 ? "bf16" : "f16", cases[i].kernel);
      describe(&d, (struct attention_attributes){.layout = RONDO_BSHD, .causal = cases[i].causal},
               bf16 ? RONDO_BF16 : RONDO_F16, 4, 16, 4, cases[i].length, cases[i].length, cases[i].dimension);
      cr_expect_str_eq(kernel_of(&d, &h200, &launches), kernel);
      cr_expect_eq(launches.count, 1);
      cr_expect_eq(launches.items[0].map_count, 3);
    }
}

Test(attention_wgmma_plan, narrow_heads_are_copied_with_zeros_beside_them) {
  struct description d;
  struct op_launches launches;
  describe(&d, (struct attention_attributes){.layout = RONDO_BHSD}, RONDO_F16, 2, 8, 8, 512, 512, 32);
  kernel_of(&d, &h200, &launches);
  for (uint32_t i = 0; i < launches.items[0].map_count; i++) {
    cr_expect_eq(launches.items[0].maps[i].size[0], 32);
    cr_expect_eq(launches.items[0].maps[i].box[0], 64);
  }
  struct attention_wgmma_parameters p;
  memcpy(&p, launches.items[0].parameters, sizeof p);
  cr_expect_eq(p.head_dimension, 32, "columns of O that are stored");
}

static void describe_new_rows(struct description *d, int64_t query_heads, int64_t query_length, int64_t capacity) {
  describe(d, (struct attention_attributes){.layout = RONDO_BSHD, .causal = 1, .rope_base = 1e4f}, RONDO_BF16, 1,
           query_heads, 3, query_length, capacity, 64);
  d->operands[ATTENTION_NEW_K] = d->operands[ATTENTION_NEW_V] =
      operand_of(RONDO_BSHD, RONDO_BF16, 1, 3, query_length, 64);
  d->operands[ATTENTION_POSITION] =
      (struct op_operand){.present = true, .dtype = RONDO_I32, .rank = 1, .shape = {1}, .stride = {1}};
}

/* Lengths known on the device alone: a causal kernel without the means for uneven ends, and query tiles for less than a
 * third of the chip, as long as the capacity has at most four KV rows for each query row. */
Test(attention_wgmma_plan, new_rows_are_planned_without_their_position) {
  static const struct {
    int64_t query_heads, query_length, capacity;
    bool appends;
    const char *kernel;
  } cases[] = {
      {9, 128, 4111, true, "rondo_attention_wgmma_bf16_64_parts_causal"},
      {9, 128, 4608, true, "rondo_attention_wgmma_bf16_64_parts_causal"},
      {9, 128, 4609, true, "rondo_attention_bf16_64"},
      {9, 128, 4111, false, "rondo_attention_bf16_64"},
      {9, 63, 2000, true, "rondo_attention_bf16_64"},
      {9, 64, 2000, true, "rondo_attention_wgmma_bf16_64_parts_causal"},
      {33, 2048, 4111, true, "rondo_attention_wgmma_bf16_64_high_causal"},
      {33, 2048, 4111, false, "rondo_attention_wgmma_bf16_64_general"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct description d;
    struct op_launches launches;
    describe_new_rows(&d, cases[i].query_heads, cases[i].query_length, cases[i].capacity);
    d.operands[ATTENTION_NEW_K].present = d.operands[ATTENTION_NEW_V].present = cases[i].appends;
    kernel_of(&d, &h200, &launches);
    cr_assert_gt(launches.count, 1); /* the first rotates q */
    cr_expect_str_eq(launches.items[1].kernel, cases[i].kernel, "case %zu", i);
  }
}

/* The launch before it has a block for as many rows as 128 threads have, in vectors of 16 numbers; with more heads than
 * 512 threads have, several blocks for each row, or one for two rows. They start early, and must not gather on a part
 * of the chip. */
Test(attention_wgmma_plan, blocks_that_write_new_rows_are_spread_evenly) {
  static const struct {
    int64_t query_heads, rows, blocks, threads;
  } cases[] = {{9, 128, 64, 128},     {9, 132, 66, 128},     {9, 133, 67, 128},     {9, 512, 256, 128},
               {9, 1023, 512, 128},   {9, 1057, 529, 128},   {33, 128, 128, 160},   {33, 352, 352, 160},
               {33, 2048, 2048, 160}, {129, 128, 1152, 128}, {129, 1057, 529, 128}, {129, 2048, 1024, 128}};
  const int64_t of_a_multiprocessor = h200.shared_bytes + 1024, of_a_block = 1024 + ATTENTION_APPEND_ROW_BYTES;
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct description d;
    struct op_launches launches;
    describe_new_rows(&d, cases[i].query_heads, cases[i].rows, 4111);
    cr_expect_str_eq(kernel_of(&d, &h200, &launches),
                     cases[i].query_heads < 129 ? "rondo_attention_append_vectors" : "rondo_attention_append");
    cr_expect_eq(launches.items[0].block[0], cases[i].threads);
    const int64_t blocks = launches.items[0].grid[0], each = divided_up(blocks, h200.multiprocessors);
    const int64_t bytes = launches.items[0].shared_bytes + of_a_block;
    cr_expect_eq(blocks, cases[i].blocks);
    cr_expect_leq(bytes - 1024, h200.shared_bytes);
    cr_expect_leq(each * bytes, of_a_multiprocessor);
    if (each <= 8) cr_expect_gt((each + 1) * bytes, of_a_multiprocessor);
  }
}

Test(attention_wgmma_plan, windows_caps_and_uneven_lengths_have_kernels_of_their_own) {
  static const struct {
    int64_t dimension, query_length, capacity;
    int32_t causal, window;
    float soft_cap;
    const char *kernel;
  } cases[] = {
      {64, 512, 512, 1, 128, 0.0f, "64_general"},
      {64, 4096, 4096, 1, 1024, 0.0f, "64_general"},
      {64, 4096, 4096, 0, 0, 50.0f, "64_general"},
      {128, 512, 512, 1, 512, 0.0f, "128_causal"}, /* all of them */
      {128, 512, 512, 1, 511, 0.0f, "128_general"},
      {128, 300, 330, 1, 0, 0.0f, "128_general"},
      {128, 300, 330, 0, 0, 0.0f, "128"},
      {128, 512, 512, 0, 0, 50.0f, "128_general"},
      {256, 512, 512, 1, 100, 50.0f, "256_general"},
      {256, 512, 512, 1, 0, 50.0f, "256_general"},
      {256, 512, 512, 0, 0, 50.0f, "256_general"},
      {256, 512, 512, 1, 100, 0.0f, "256_general"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    char kernel[64];
    struct description d;
    struct op_launches launches;
    snprintf(kernel, sizeof kernel, "rondo_attention_wgmma_f16_%s", cases[i].kernel);
    describe(
        &d,
        (struct attention_attributes){
            .layout = RONDO_BHSD, .causal = cases[i].causal, .window = cases[i].window, .soft_cap = cases[i].soft_cap},
        RONDO_F16, 4, 16, 4, cases[i].query_length, cases[i].capacity, cases[i].dimension);
    cr_expect_str_eq(kernel_of(&d, &h200, &launches), kernel);
    struct attention_wgmma_parameters p;
    memcpy(&p, launches.items[0].parameters, sizeof p);
    cr_expect_eq(p.window,
                 cases[i].window && cases[i].window < cases[i].capacity ? cases[i].window : ATTENTION_WGMMA_NO_WINDOW);
    const float scale = 1.0f / sqrtf((float)cases[i].dimension), cap = cases[i].soft_cap;
    cr_expect_float_eq(p.scale_log2, (cap > 0.0f ? cap : scale) * 1.44269504f, 1e-5f);
    if (cap > 0.0f) cr_expect_float_eq(p.cap_scale, scale / cap, 1e-8f);
  }
}

Test(attention_wgmma_plan, what_its_kernels_cannot_do_or_do_worse_goes_elsewhere) {
  static const struct chip others[] = {{80, 108, 166912}, {100, 148, 232448}};
  struct description d;
  struct op_launches launches;
  const struct attention_attributes plain = {.layout = RONDO_BHSD};
#define ELSEWHERE(chip) cr_expect(!strstr(kernel_of(&d, &(chip), &launches), "wgmma"), "%s", launches.items[0].kernel)
  describe(&d, plain, RONDO_BF16, 2, 8, 8, 512, 512, 128);
  cr_expect(strstr(kernel_of(&d, &h200, &launches), "wgmma"));
  ELSEWHERE(others[0]);
  ELSEWHERE(others[1]);
  d.operands[ATTENTION_K].offset_bytes = 8;
  ELSEWHERE(h200);
  describe(&d, plain, RONDO_BF16, 2, 8, 8, 512, 512, 128);
  d.operands[ATTENTION_V].stride[1] += 4;
  ELSEWHERE(h200);
  describe(&d, plain, RONDO_BF16, 2, 8, 8, 512, 512, 128);
  d.operands[ATTENTION_O].stride[2] += 1;
  ELSEWHERE(h200);
  describe(&d, plain, RONDO_BF16, 2, 8, 8, 1, 4096, 128);
  ELSEWHERE(h200);
  describe(&d, plain, RONDO_BF16, 1, 2, 2, 64, 65536, 128);
  ELSEWHERE(h200);
  describe(&d, plain, RONDO_BF16, 2, 8, 8, 512, 0, 128);
  ELSEWHERE(h200);
  describe(&d, (struct attention_attributes){.layout = RONDO_BHSD, .scale = -1.0f}, RONDO_BF16, 2, 8, 8, 512, 512, 128);
  ELSEWHERE(h200);
  describe(&d, (struct attention_attributes){.layout = RONDO_BHSD, .splits = 3}, RONDO_BF16, 2, 8, 8, 512, 512, 128);
  ELSEWHERE(h200);
}

static const char *choice_of(const struct description *d) {
  const struct attention_problem problem = attention_problem_of(&d->task, &h200);
  struct attention_plan plan;
  const struct attention_choice *choice = attention_choose(&problem, &plan);
  cr_assert_not_null(choice);
  return choice->name;
}

Test(attention_wgmma_plan, pages_and_e4m3_go_elsewhere) {
  struct description d;
  describe(&d, (struct attention_attributes){.layout = RONDO_BHSD}, RONDO_BF16, 2, 8, 8, 512, 512, 128);
  cr_expect_str_eq(choice_of(&d), "wgmma");
  d.operands[ATTENTION_K].dtype = d.operands[ATTENTION_V].dtype = RONDO_E4M3;
  cr_expect_str_eq(choice_of(&d), "general");
  describe(&d, (struct attention_attributes){.layout = RONDO_BHSD}, RONDO_BF16, 2, 8, 8, 512, 64, 128);
  d.operands[ATTENTION_K].shape[0] = d.operands[ATTENTION_V].shape[0] = 16; /* pages of 64 rows */
  d.operands[ATTENTION_KV_PAGES] =
      (struct op_operand){.present = true, .dtype = RONDO_I32, .rank = 2, .shape = {2, 8}, .stride = {8, 1}};
  cr_expect_str_eq(choice_of(&d), "general");
}

/* Of both layouts the map is that of [batch][head][position][column]. */
Test(attention_wgmma_plan, maps_have_positions_behind_columns_in_both_layouts) {
  for (int layout = RONDO_BHSD; layout <= RONDO_BSHD; layout++) {
    struct description d;
    struct op_launches launches;
    describe(&d, (struct attention_attributes){.layout = layout}, RONDO_BF16, 4, 32, 8, 4096, 1000, 128);
    kernel_of(&d, &h200, &launches);
    const struct op_map *q = &launches.items[0].maps[0], *k = &launches.items[0].maps[1];
    const uint64_t row = layout == RONDO_BHSD ? 256 : 32 * 256, head = layout == RONDO_BHSD ? 4096 * 256 : 256;
    const uint64_t q_size[] = {64, 4096, 32, 4, 2}, q_strides[] = {2, row, head, 4096ull * 32 * 256, 128};
    const uint64_t kv_size[] = {128, 1000, 8, 4};
    const uint32_t q_box[] = {64, 64, 1, 1, 2}, kv_box[] = {64, 128, 1, 1}; /* a panel for each of a pair */
    cr_assert(q->rank == 5 && k->rank == 4);
    cr_expect_arr_eq(q->size, q_size, sizeof q_size);
    cr_expect_arr_eq(q->stride_bytes, q_strides, sizeof q_strides);
    cr_expect_arr_eq(q->box, q_box, sizeof q_box);
    cr_expect_arr_eq(k->size, kv_size, sizeof kv_size);
    cr_expect_arr_eq(k->box, kv_box, sizeof kv_box);
  }
}
