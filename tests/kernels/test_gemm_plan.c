/* test_gemm_plan.c - which kernel makes a product of many rows, properties of the plans of many sizes, and of launches.
 * Needs no GPU. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/gemm/gemm_choose.h"
#include "../../runtime/integer.h"
#include "../oracles/gemm_oracle.h"

/* ---- Choices ----------------------------------------------------------------------------------------------------- */

static struct gemm_problem problem_of(int64_t rows, int64_t columns, int64_t k) {
  return (struct gemm_problem){.has_maps = true,
                               .batch = 1,
                               .one_type = true,
                               .rows = rows,
                               .columns = columns,
                               .k = k,
                               .multiprocessors = 132,
                               .shared_bytes = 232448};
}

Test(gemm, gemm_chooses_each_kernel_for_some_sizes) {
  size_t count;
  const struct gemm_choice *choices = gemm_choices(&count);
  bool is_chosen[32] = {0};
  cr_assert_leq(count, sizeof is_chosen);
  for (size_t i = 0; i < gemm_size_count; i++) {
    struct gemm_plan plan;
    const struct gemm_problem problem = problem_of(gemm_sizes[i].rows, gemm_sizes[i].columns, gemm_sizes[i].k);
    const struct gemm_choice *choice = gemm_choose(&problem, &plan);
    cr_expect_str_eq(choice->name, gemm_sizes[i].choice, "%lld rows, %lld columns, k %lld: %s, expected %s",
                     (long long)problem.rows, (long long)problem.columns, (long long)problem.k, choice->name,
                     gemm_sizes[i].choice);
    is_chosen[choice - choices] = true;
  }
  static const struct gemm_size any_sizes[] = {{64, 4096, 512, "64x64_any"},
                                               {128, 2048, 576, "64x64_pair_any"},
                                               {512, 2048, 640, "64x128_turns_any"},
                                               {2944, 512, 640, "128x128_turns_any"},
                                               {64, 2048, 2048, "32x64_parts_any"}};
  for (size_t i = 0; i < sizeof any_sizes / sizeof *any_sizes; i++) {
    struct gemm_plan plan;
    struct gemm_problem problem = problem_of(any_sizes[i].rows, any_sizes[i].columns, any_sizes[i].k);
    problem.one_type = false;
    const struct gemm_choice *choice = gemm_choose(&problem, &plan);
    cr_expect_str_eq(choice->name, any_sizes[i].choice, "%s, expected %s", choice->name, any_sizes[i].choice);
    is_chosen[choice - choices] = true;
  }
  for (size_t i = 0; i < gemm_packed_size_count; i++) {
    struct gemm_plan plan;
    const struct gemm_size *size = &gemm_packed_sizes[i];
    struct gemm_problem problem = problem_of(size->rows, size->columns, size->k);
    problem.has_codes = true;
    const struct gemm_choice *choice = gemm_choose(&problem, &plan);
    cr_expect_str_eq(choice->name, size->choice, "%lld rows, %lld columns, k %lld: %s, expected %s",
                     (long long)size->rows, (long long)size->columns, (long long)size->k, choice->name, size->choice);
    is_chosen[choice - choices] = true;
  }
  struct gemm_plan plan;
  struct gemm_problem in_e4m3 = problem_of(1024, 2048, 8192);
  in_e4m3.is_e4m3 = true;
  is_chosen[gemm_choose(&in_e4m3, &plan) - choices] = true;
  in_e4m3.has_maps = false;
  cr_expect_null(gemm_choose(&in_e4m3, &plan));
  for (size_t i = 0; i < count; i++)
    cr_expect(is_chosen[i] || !choices[i].needs_maps, "%s is never chosen in the tests", choices[i].name);
}

Test(gemm, gemm_multiplies_few_vectors_by_slices_unless_bits_must_not_change) {
  static const struct {
    int64_t rows;
    bool one_order;
    const char *choice;
  } cases[] = {{17, false, "nvfp4_slices"},
               {32, false, "nvfp4_slices"},
               {33, false, "nvfp4_64x128"},
               {32, true, "nvfp4_64x128"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gemm_plan plan;
    struct gemm_problem problem = problem_of(cases[i].rows, 28672, 4096);
    problem.has_codes = true, problem.one_order = cases[i].one_order;
    const char *choice = gemm_choose(&problem, &plan)->name;
    cr_expect_str_eq(choice, cases[i].choice, "%lld rows, one_order %d: %s", (long long)cases[i].rows,
                     cases[i].one_order, choice);
  }
}

Test(gemm, gemm_leaves_few_rows_to_gemv_unless_bits_must_not_change) {
  struct gemm_plan plan;
  struct gemm_problem problem = problem_of(16, 4096, 4096);
  cr_expect_str_eq(gemm_choose(&problem, &plan)->name, "gemv");
  problem.one_order = true;
  cr_expect_str_eq(gemm_choose(&problem, &plan)->name, "64x64");
  problem.has_maps = false;
  cr_expect_str_eq(gemm_choose(&problem, &plan)->name, "portable_64");
  problem.rows = 4096;
  cr_expect_str_eq(gemm_choose(&problem, &plan)->name, "portable_128x256");
}

/* Three tiles of 64 x 64 take one turn where three blocks fit on a multiprocessor, on 8.6 one and a half. */
Test(gemm, gemm_counts_the_blocks_that_shared_memory_holds) {
  size_t count;
  const struct gemm_choice *choice = gemm_choices(&count);
  while (strcmp(choice->name, "portable_64") != 0) choice++;
  for (int64_t tiles = 2; tiles <= 3; tiles++) {
    struct gemm_problem problem = problem_of(64, tiles * 132 * 64, 64);
    struct gemm_plan with_164_kb, with_99_kb;
    problem.has_maps = false, problem.shared_bytes = 163 << 10;
    cr_assert(choice->plan(&problem, choice, &with_164_kb));
    problem.shared_bytes = 99 << 10;
    cr_assert(choice->plan(&problem, choice, &with_99_kb));
    cr_assert_eq(with_99_kb.cycles > with_164_kb.cycles, tiles == 3, "%.0f, %.0f", with_99_kb.cycles,
                 with_164_kb.cycles);
  }
}

/* A tile is dealt to one cluster, and blocks exist at once. */
static void plan_check(const struct gemm_problem *problem, const struct gemm_choice *choice,
                       const struct gemm_plan *plan) {
  cr_assert(choice && isfinite(plan->cycles));
  if (!choice->kernel) return;
  if (choice->kernel->blocks) {
    const int64_t x = choice->kernel->portable.x, w = choice->kernel->portable.w;
    cr_assert_eq(plan->grid, plan->row_tiles * plan->column_tiles * problem->batch * plan->parts);
    cr_assert(plan->row_tiles * x >= problem->rows && (plan->row_tiles - 1) * x < problem->rows);
    cr_assert(plan->column_tiles * w >= problem->columns && (plan->column_tiles - 1) * w < problem->columns);
    cr_assert(choice->kernel->portable.slices == 1 || !problem->one_order);
    cr_assert(plan->parts >= 1 && plan->parts <= larger(1, problem->most_parts));
    cr_assert_leq(plan->shared_bytes, problem->shared_bytes);
    return;
  }
  if (choice->kernel->parts) {
    const int64_t columns = (int64_t)plan->groups * GEMM_SLICES_ROWS;
    cr_assert(plan->groups >= 1 && plan->groups <= GEMM_SLICES_MOST_GROUPS && !problem->one_order);
    cr_assert(problem->rows <= GEMM_SLICES_ROWS && (!problem->streamed || columns % GEMM_GROUP == 0));
    cr_assert(plan->p_units * columns >= problem->columns && (plan->p_units - 1) * columns < problem->columns);
    cr_assert_eq(plan->units, plan->p_units * problem->batch);
    cr_assert_leq(plan->grid, problem->multiprocessors);
    cr_assert(choice->kernel->parts == 1 || plan->grid == plan->units * choice->kernel->parts);
    cr_assert_leq(plan->shared_bytes, problem->shared_bytes);
    return;
  }
  const struct gemm_tile *tile = &choice->kernel->tile;
  const int64_t of_p = tile->swapped ? problem->columns : problem->rows;
  const int64_t of_q = tile->swapped ? problem->rows : problem->columns;
  const int64_t p = (int64_t)gemm_tile_p(*tile) * tile->along_p, q = (int64_t)tile->columns * tile->along_q;
  cr_assert(plan->p_units * p >= of_p && (plan->p_units - 1) * p < of_p);
  cr_assert(plan->q_units * q >= of_q && (plan->q_units - 1) * q < of_q);
  cr_assert_eq(plan->units, plan->p_units * plan->q_units * problem->batch);
  cr_assert_leq(plan->grid, problem->multiprocessors);
  cr_assert(tile->parts == 1 || !problem->one_order);
  cr_assert(tile->parts == 1 || gemm_meeting_bytes(*tile) || plan->grid == plan->units * gemm_tile_cluster(*tile));
  cr_assert(plan->group >= 1);
}

Test(gemm, gemm_plans_cover_every_size) {
  struct random random = {3};
  static const int64_t counts[] = {1, 16, 17, 64, 65, 128, 200, 512, 1000, 4096, 65536};
  static const int64_t shared_bytes[] = {101376, 166912, 232448}; /* chips 8.6, 8.0, 9.0 */
  int with_parts = 0;
  for (int i = 0; i < 20000; i++) {
    const int64_t rows = random_between(&random, 0, 1) ? RANDOM_OF(&random, counts) : random_between(&random, 1, 5000);
    const int64_t columns = random_between(&random, 1, 1 << random_between(&random, 1, 17));
    struct gemm_problem problem =
        problem_of(rows, columns, random_between(&random, 0, 1 << random_between(&random, 1, 15)));
    problem.batch = random_between(&random, 0, 3) ? 1 : random_between(&random, 1, 70);
    problem.has_maps = problem.k > 0 && random_between(&random, 0, 3);
    problem.one_order = random_between(&random, 0, 1), problem.one_type = random_between(&random, 0, 1);
    problem.silu_mul = random_between(&random, 0, 1), problem.has_residual = random_between(&random, 0, 1);
    problem.one_type &= !problem.silu_mul || !problem.has_residual;
    problem.multiprocessors = random_between(&random, 0, 1) ? 132 : random_between(&random, 1, 200);
    problem.most_parts = problem.one_order ? 1 : random_between(&random, 1, 4);
    if (!problem.has_maps) problem.shared_bytes = RANDOM_OF(&random, shared_bytes);
    struct gemm_plan plan;
    plan_check(&problem, gemm_choose(&problem, &plan), &plan);
    with_parts += problem.k > 0 && !problem.has_maps && rows > 16 && plan.parts > 1;
  }
  cr_assert_gt(with_parts, 100);
}

/* As device code divides. */
static uint32_t divided(uint32_t number, const struct gemm_divisor *by) {
  return (uint32_t)((uint64_t)(2 * number) * by->factor >> 32) >> by->shift;
}

Test(gemm, gemm_divisors_divide) {
  struct random random = {4};
  for (int i = 0; i < 100000; i++) {
    const uint32_t by = (uint32_t)random_between(&random, 1, ((int64_t)1 << random_between(&random, 1, 31)) - 1);
    const struct gemm_divisor divisor = gemm_divisor_of(by);
    const uint32_t most = INT32_MAX / by * by;
    const uint32_t numbers[] = {
        0, by - 1, by, most - 1, most, INT32_MAX, (uint32_t)random_between(&random, 0, INT32_MAX)};
    cr_assert_eq(divisor.by, by);
    for (size_t j = 0; j < sizeof numbers / sizeof *numbers; j++)
      cr_assert_eq(divided(numbers[j], &divisor), numbers[j] / by, "%u / %u", numbers[j], by);
  }
}

/* With one_order only kernels of one order of sums are left, and which of the two orders it is does not depend on the
 * number of rows. */
Test(gemm, gemm_takes_kernels_of_one_order_for_one_order) {
  struct random random = {4};
  for (int i = 0; i < 2000; i++) {
    const int64_t rows = random_between(&random, 1, 65536), columns = random_between(&random, 1, 20000);
    struct gemm_problem problem = problem_of(rows, columns, random_between(&random, 1, i % 4 ? 20000 : 64));
    problem.one_order = true;
    problem.has_maps = i % 2, problem.one_type = i / 2 % 2;
    struct gemm_plan plan;
    const struct gemm_choice *choice = gemm_choose(&problem, &plan);
    cr_assert(!choice->has_order_of_its_own && choice->needs_maps == problem.has_maps, "%s: %ld x %ld x %ld",
              choice->name, (long)rows, (long)columns, (long)problem.k);
  }
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static struct op_operand operand_of(rondo_dtype dtype, int64_t rows, int64_t columns, int64_t stride, uint64_t offset) {
  return (struct op_operand){.present = true,
                             .dtype = dtype,
                             .rank = 2,
                             .shape = {rows, columns},
                             .stride = {stride, 1},
                             .offset_bytes = offset};
}

/* The same in a batch of such matrices. */
static void batch_operand(struct op_operand *operand, int64_t batch) {
  const int64_t rows = operand->shape[0], columns = operand->shape[1], stride = operand->stride[0];
  operand->rank = 3;
  operand->shape[0] = batch, operand->shape[1] = rows, operand->shape[2] = columns;
  operand->stride[0] = rows * stride, operand->stride[1] = stride, operand->stride[2] = 1;
}

static const struct op_launch *selected_by(const struct gemv_attributes *attributes, struct op_operand *operands,
                                           int32_t version, struct op_launches *launches) {
  const struct chip chip = {.version = version, .multiprocessors = 132, .shared_bytes = 232448};
  struct op_task task = {.op = &op_gemm, .operand_count = GEMM_OPERANDS, .operands = operands};
  struct op_call call = {.task = &task, .data = (void *[GEMM_OPERANDS]){0}, .settled_operands = 1u << GEMV_WEIGHTS};
  memcpy(task.attributes, attributes, sizeof *attributes);
  REQUIRE_OK(op_gemm.select(&call, &chip, launches));
  return &launches->items[0];
}

static const struct op_launch *selected(struct op_operand *operands, int32_t version, struct op_launches *launches) {
  return selected_by(&(struct gemv_attributes){.scale = 1}, operands, version, launches);
}

/* One row has no next one that its stride would lead to. */
Test(gemm, gemm_takes_the_same_order_for_one_row_as_for_two) {
  static const int64_t strides[][3] = {{208, 512, 512}, {209, 512, 512}, {208, 513, 512}, {208, 512, 513}};
  for (int i = 0; i < 4; i++)
    for (int64_t rows = 1; rows <= 2; rows++) {
      const int64_t *stride = strides[i];
      struct op_operand operands[GEMM_OPERANDS] = {[GEMV_WEIGHTS] = operand_of(RONDO_BF16, 512, 200, 208, 0),
                                                   [GEMV_VECTORS] = operand_of(RONDO_BF16, rows, 200, stride[0], 0),
                                                   [GEMV_OUT] = operand_of(RONDO_F32, rows, 512, stride[1], 0),
                                                   [GEMV_RESIDUAL] = operand_of(RONDO_F32, rows, 512, stride[2], 0)};
      struct op_launches launches;
      const struct op_launch *launch =
          selected_by(&(struct gemv_attributes){.scale = 1, .one_order = true}, operands, 90, &launches);
      cr_assert_eq(strstr(launch->kernel, "portable") != NULL, i > 0, "case %d, %d rows: %s", i, (int)rows,
                   launch->kernel);
    }
}

/* A copy of 16 bytes needs an aligned address for a row that is absent too. */
Test(gemm, gemm_copies_absent_rows_from_aligned_addresses) {
  struct op_operand operands[GEMM_OPERANDS] = {[GEMV_WEIGHTS] = operand_of(RONDO_BF16, 1, 200, 201, 0),
                                               [GEMV_VECTORS] = operand_of(RONDO_BF16, 1, 200, 203, 0),
                                               [GEMV_OUT] = operand_of(RONDO_BF16, 1, 1, 1, 0)};
  struct op_launches launches;
  struct gemm_portable_parameters p;
  memcpy(&p, selected_by(&(struct gemv_attributes){.scale = 1, .one_order = 1}, operands, 80, &launches)->parameters,
         sizeof p);
  cr_assert(p.vectors && p.x_row % 8 == 0 && p.w_row % 8 == 0, "rows of X are %ld apart, of W %ld", (long)p.x_row,
            (long)p.w_row);
}

/* Tensor maps if X and W can have them and numbers move in pairs; otherwise the portable kernels. */
Test(gemm, gemm_select_takes_wgmma_where_operands_can_be_mapped) {
  struct op_operand operands[GEMM_OPERANDS] = {[GEMV_WEIGHTS] = operand_of(RONDO_BF16, 512, 200, 208, 0),
                                               [GEMV_VECTORS] = operand_of(RONDO_BF16, 300, 200, 200, 16),
                                               [GEMV_OUT] = operand_of(RONDO_BF16, 300, 512, 512, 32)};
  struct op_launches launches;
  const struct op_launch *launch = selected(operands, 90, &launches);
  struct gemm_wgmma_parameters p;
  memcpy(&p, launch->parameters, sizeof p);
  cr_assert(launch->map_count == 3 && p.by_map && p.weights_early && p.is_bf16 && p.steps == 4, "%s", launch->kernel);
  for (uint32_t i = 0; i < 3; i++) cr_assert_eq(launch->maps[i].rank, 3);
  operands[GEMV_RESIDUAL] = operand_of(RONDO_F16, 300, 512, 520, 16);
  launch = selected(operands, 90, &launches);
  memcpy(&p, launch->parameters, sizeof p);
  cr_assert(launch->map_count == 4 && p.boxed && !p.fetched, "the residual has out's boxes");
  operands[GEMV_RESIDUAL] = operand_of(RONDO_F32, 300, 512, 520, 16);
  launch = selected(operands, 90, &launches);
  memcpy(&p, launch->parameters, sizeof p);
  cr_assert(launch->map_count == 4 && !p.boxed && p.fetched == 32, "a residual in f32 comes to registers");
  operands[GEMV_RESIDUAL] = (struct op_operand){0};
  operands[GEMV_OUT] = operand_of(RONDO_F32, 300, 512, 512, 32);
  launch = selected(operands, 90, &launches);
  memcpy(&p, launch->parameters, sizeof p);
  cr_assert(launch->map_count == 2 && !p.by_map, "f32 leaves from registers");
  operands[GEMV_OUT] = operand_of(RONDO_BF16, 300, 512, 514, 4);
  launch = selected(operands, 90, &launches);
  memcpy(&p, launch->parameters, sizeof p);
  cr_assert(launch->map_count == 2 && !p.by_map, "rows at no multiples of 16 bytes leave from registers");
  selected(operands, 80, &launches);
  cr_assert(!strncmp(launches.choice, "portable", 8), "%s", launches.choice);
  operands[GEMV_OUT] = operand_of(RONDO_BF16, 300, 512, 513, 0);
  selected(operands, 90, &launches);
  cr_assert(!strncmp(launches.choice, "portable", 8), "out in no pairs: %s", launches.choice);
  operands[GEMV_OUT] = operand_of(RONDO_BF16, 300, 512, 512, 0);
  operands[GEMV_RESIDUAL] = operand_of(RONDO_F32, 300, 512, 513, 0);
  selected(operands, 90, &launches);
  cr_assert(!strncmp(launches.choice, "portable", 8), "a residual in no pairs: %s", launches.choice);
  operands[GEMV_RESIDUAL] = (struct op_operand){0};
  operands[GEMV_VECTORS] = operand_of(RONDO_BF16, 300, 200, 204, 0);
  selected(operands, 90, &launches);
  cr_assert(!strncmp(launches.choice, "portable", 8), "vectors without a map: %s", launches.choice);
}

/* A product of few tiles has parts of k, which cover it and fit into scratch, and a second kernel adds them up: not
 * with one_order, and not in a step of another task, whose scratch is not the product's. */
Test(gemm, gemm_sums_parts_of_k_apart_where_tiles_are_few) {
  struct op_operand operands[GEMM_OPERANDS] = {[GEMV_WEIGHTS] = operand_of(RONDO_BF16, 2044, 8200, 8200, 0),
                                               [GEMV_VECTORS] = operand_of(RONDO_BF16, 61, 8200, 8200, 0),
                                               [GEMV_OUT] = operand_of(RONDO_F16, 61, 2044, 2044, 0)};
  const struct {
    struct gemv_attributes attributes;
    bool has_parts;
  } cases[] = {{{.scale = 1, .has_scratch = 1}, true},
               {{.scale = 1, .has_scratch = 1, .one_order = 1}, false},
               {{.scale = 1}, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct op_task task = {.op = &op_gemm, .operand_count = GEMM_OPERANDS, .operands = operands};
    struct op_launches launches;
    struct gemm_portable_parameters p, sum;
    memcpy(task.attributes, &cases[i].attributes, sizeof cases[i].attributes);
    memcpy(&p, selected_by(&cases[i].attributes, operands, 80, &launches)->parameters, sizeof p);
    cr_assert_eq(launches.count, cases[i].has_parts ? 2 : 1);
    cr_assert_eq(p.parts > 1, cases[i].has_parts);
    cr_assert(p.parts * p.part_k >= 8200 && (p.parts - 1) * p.part_k < 8200, "%u of %ld", p.parts, (long)p.part_k);
    if (!cases[i].has_parts) continue;
    memcpy(&sum, launches.items[1].parameters, sizeof sum);
    cr_assert_str_eq(launches.items[1].kernel, "rondo_gemm_portable_sum");
    cr_assert_eq(p.part_numbers, INT64_C(61) * 2048);
    cr_assert_leq(p.parts * (uint64_t)p.part_numbers * 4, op_gemm.scratch_bytes(&task));
    cr_assert(p.finish.out_dtype == RONDO_F32 && sum.finish.out_dtype == RONDO_F16);
    cr_assert_geq(launches.items[1].grid[0] * launches.items[1].block[0], sum.units);
  }
}

Test(gemm, gemm_sums_parts_of_k_apart_with_weights_in_nvfp4) {
  struct op_operand operands[GEMM_OPERANDS] = {[GEMV_WEIGHTS] = operand_of(RONDO_NVFP4, 2048, 8192, 8192, 0),
                                               [GEMV_WEIGHT_SCALES] = operand_of(RONDO_E4M3, 2048, 512, 512, 0),
                                               [GEMV_VECTORS] = operand_of(RONDO_BF16, 64, 8192, 8192, 0),
                                               [GEMV_OUT] = operand_of(RONDO_F16, 64, 2048, 2048, 0)};
  struct op_launches launches;
  struct gemm_portable_parameters p;
  const struct op_launch *launch =
      selected_by(&(struct gemv_attributes){.scale = 1, .has_scratch = 1}, operands, 80, &launches);
  memcpy(&p, launch->parameters, sizeof p);
  cr_assert_str_eq(launch->kernel, "rondo_gemm_portable_nvfp4_64");
  cr_assert(launches.count == 2 && p.parts == 4 && p.part_k == 2048, "%u parts of %ld", p.parts, (long)p.part_k);
}

/* X is the first operand that is mapped. */
Test(gemm, gemm_copies_no_rows_past_the_last_where_x_has_fewer_than_a_tile) {
  static const struct {
    int64_t rows, columns, k;
    uint32_t copied;
  } cases[] = {
      {40, 16384, 576, 40}, {17, 4096, 2112, 17}, {64, 4096, 512, 64}, {100, 2048, 576, 64}, {2944, 512, 640, 128}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int64_t rows = cases[i].rows, columns = cases[i].columns, k = cases[i].k;
    struct op_operand operands[GEMM_OPERANDS] = {[GEMV_WEIGHTS] = operand_of(RONDO_BF16, columns, k, k, 0),
                                                 [GEMV_VECTORS] = operand_of(RONDO_BF16, rows, k, k, 0),
                                                 [GEMV_OUT] = operand_of(RONDO_BF16, rows, columns, columns, 0)};
    struct op_launches launches;
    const struct op_launch *launch = selected(operands, 90, &launches);
    cr_assert_eq(launch->maps[0].size[1], rows, "%s", launch->kernel);
    cr_expect_eq(launch->maps[0].box[1], cases[i].copied, "%s copies %u of %lld rows, expected %u", launch->kernel,
                 launch->maps[0].box[1], (long long)rows, cases[i].copied);
  }
}

/* The walk of all clusters over a launch's units, as device code finds them: each is made once. */
static void walk_units(const struct op_launch *launch, const struct gemm_tile *tile, const int64_t units[3]) {
  struct gemm_wgmma_parameters p;
  memcpy(&p, launch->parameters, sizeof p);
  const uint32_t clusters = launch->grid[0] / (uint32_t)gemm_tile_cluster(*tile);
  const int64_t all = units[0] * units[1] * units[2];
  unsigned char *made = calloc((size_t)all, 1);
  int64_t count = 0;
  cr_assert(made);
  for (uint32_t first = 0; first < clusters; first++)
    for (uint32_t turn = 0; turn < p.least + (first < p.more); turn++, count++) {
      const uint32_t unit = first + turn * clusters, matrix = divided(unit, &p.of_matrix);
      const uint32_t in = unit - matrix * p.of_matrix.by, group = divided(in, &p.of_group);
      const uint32_t in_group = in - group * p.of_group.by;
      const struct gemm_divisor *along = group < p.groups ? &p.along : &p.last_along;
      const uint32_t q = divided(in_group, along), up = group * p.along.by + in_group - q * along->by;
      const int64_t number = (matrix * units[1] + up) * units[2] + q;
      cr_assert(matrix < units[0] && up < units[1] && q < units[2] && !made[number]++, "%s: unit %u", launch->kernel,
                unit);
    }
  cr_assert_eq(count, all, "%s", launch->kernel);
  free(made);
}

Test(gemm, gemm_launches_walk_over_every_unit_once) {
  struct random random = {5};
  size_t choices, walks = 0;
  const struct gemm_choice *choice = gemm_choices(&choices);
  for (int i = 0; i < 1000; i++) {
    const int64_t batch = random_between(&random, 1, 3), rows = random_between(&random, 17, 6000);
    const int64_t columns = 8 * random_between(&random, 1, 2000), k = 8 * random_between(&random, 10, 600);
    struct op_operand operands[GEMM_OPERANDS] = {[GEMV_WEIGHTS] = operand_of(RONDO_BF16, columns, k, k, 0),
                                                 [GEMV_VECTORS] = operand_of(RONDO_BF16, rows, k, k, 0),
                                                 [GEMV_OUT] = operand_of(RONDO_BF16, rows, columns, columns, 0)};
    for (int j = 0; j < GEMM_OPERANDS; j++)
      if (operands[j].present) batch_operand(&operands[j], batch);
    struct op_launches launches;
    const struct op_launch *launch = selected(operands, 90, &launches);
    for (size_t j = 0; j < choices; j++) {
      if (strcmp(choice[j].name, launches.choice) != 0 || !choice[j].needs_maps) continue;
      const struct gemm_tile *tile = &choice[j].kernel->tile;
      const int64_t p_units = divide_up(tile->swapped ? columns : rows, (int64_t)gemm_tile_p(*tile) * tile->along_p);
      const int64_t q_units = divide_up(tile->swapped ? rows : columns, (int64_t)tile->columns * tile->along_q);
      walk_units(launch, tile, (int64_t[]){batch, p_units, q_units});
      walks++;
    }
  }
  cr_assert_gt(walks, 500);
}

/* No other kernel takes e4m3. */
Test(gemm, gemm_select_refuses_e4m3_that_its_kernel_cannot_take) {
  const struct op_operand scales = {
      .present = true, .dtype = RONDO_F32, .rank = 1, .shape = {512}, .stride = {1}, .offset_bytes = 8};
  const struct op_operand right[GEMM_OPERANDS] = {[GEMV_WEIGHTS] = operand_of(RONDO_E4M3, 512, 208, 208, 0),
                                                  [GEMV_WEIGHT_SCALES] = scales,
                                                  [GEMV_VECTORS] = operand_of(RONDO_E4M3, 300, 208, 224, 16),
                                                  [GEMV_OUT] = operand_of(RONDO_BF16, 300, 512, 512, 32)};
  struct op_operand operands[GEMM_OPERANDS];
  struct op_launches launches;
  memcpy(operands, right, sizeof right);
  struct gemm_wgmma_parameters p;
  memcpy(&p, selected(operands, 90, &launches)->parameters, sizeof p);
  cr_assert(!strcmp(launches.choice, "e4m3_128x128") && p.steps == 2, "%s", launches.choice);
  struct op_task task = {.op = &op_gemm, .operand_count = GEMM_OPERANDS, .operands = operands};
  const struct op_call call = {.task = &task, .data = (void *[GEMM_OPERANDS]){0}};
  const struct gemv_attributes attributes = {.scale = 1};
  memcpy(task.attributes, &attributes, sizeof attributes);
  struct chip chip = {.version = 80, .multiprocessors = 108, .shared_bytes = 166912};
  REQUIRE_ERROR(op_gemm.select(&call, &chip, &launches), RONDO_UNSUPPORTED,
                "vectors are e4m3, expected f16 or bf16 without compute capability 9.0");
  chip = (struct chip){.version = 90, .multiprocessors = 132, .shared_bytes = 232448};
  operands[GEMV_WEIGHT_SCALES].offset_bytes = 4;
  REQUIRE_ERROR(op_gemm.select(&call, &chip, &launches), RONDO_UNSUPPORTED, "weight_scales at one of 8");
  memcpy(operands, right, sizeof right);
  operands[GEMV_VECTORS].offset_bytes = 8;
  REQUIRE_ERROR(op_gemm.select(&call, &chip, &launches), RONDO_UNSUPPORTED, "rows begin at multiples of 16 bytes");
}
