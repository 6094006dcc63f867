/* test_qr_tile_plan.c - plans of register tiles keep what the kernels rely on (qr_tile_memory.cuh), for random
 * matrices; the batch changes nothing but the grid. Needs no GPU. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/qr/qr_choose.h"
#include "../../runtime/graph.h"
#include "../support.h"

enum { PROBLEMS = 200000, H200_SHARED_BYTES = 227 << 10 };

/* A problem and its chip. */
struct subject {
  struct qr_problem problem;
  struct chip chip;
};

static struct qr_problem problem_of(int32_t element_bytes, int64_t m, int64_t n, int64_t batch, enum qr_tile_access a,
                                    enum qr_tile_access h, bool is_thin) {
  return (struct qr_problem){.element_bytes = (uint32_t)element_bytes,
                             .dtype = element_bytes == 4 ? RONDO_F32 : RONDO_F64,
                             .m = m,
                             .n = n,
                             .k = m < n ? m : n,
                             .batch = batch,
                             .a = {.is_present = true, .access = a},
                             .h = {.is_present = !is_thin, .access = h},
                             .r = {.is_present = is_thin}};
}

static struct subject random_subject(struct random *random) {
  static const int64_t most[] = {8, 16, 33, 64, 128, 300, 1100, (int64_t)1 << 40}, chips[] = {48, 99, 163, 227};
  const bool is_thin = random_between(random, 0, 1);
  const int64_t m = random_between(random, 1, most[random_between(random, 0, 7)]);
  const int64_t n = random_between(random, 1, most[random_between(random, 0, 5)]);
  const int64_t batch = random_between(random, 1, INT64_C(1) << random_between(random, 0, 32));
  const enum qr_tile_access a = (enum qr_tile_access)random_between(random, 0, QR_TILE_ANY);
  const enum qr_tile_access h = (enum qr_tile_access)random_between(random, 0, QR_TILE_ANY);
  struct subject subject = {.problem = problem_of(random_between(random, 0, 1) ? 4 : 8, m, n, batch, a, h, is_thin)};
  subject.chip.multiprocessors = (int32_t)random_between(random, 1, 148);
  subject.chip.shared_bytes = (int32_t)(chips[random_between(random, 0, 3)] << 10);
  struct qr_problem *problem = &subject.problem;
  if (random_between(random, 0, 3) == 0) { /* whole */
    static const int64_t shapes[][2] = {{128, 128}, {512, 32}, {1024, 32}, {256, 16}};
    const int64_t *shape = shapes[random_between(random, 0, 3)];
    problem->m = shape[0], problem->n = shape[1], problem->k = shape[1];
  }
  if (problem->element_bytes == 4 && !is_thin) {
    static const rondo_dtype dtypes[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
    problem->dtype = dtypes[random_between(random, 0, 2)];
  }
  return subject;
}

static struct qr_plan planned_for(const struct subject *subject) {
  struct qr_plan plan = {0};
  return qr_plan_tile(&subject->problem, &subject->chip, &plan) ? plan : (struct qr_plan){0};
}

static int64_t columns_of(const struct qr_tile *tile) {
  return (int64_t)tile->columns << (tile->options & TILE_HALVES ? 1 : 0);
}

static void check(const struct subject *subject, const struct qr_plan *plan) {
  const struct qr_problem *problem = &subject->problem;
  const struct qr_tile *tile = plan->tile;
  const bool is_thin = !problem->h.is_present, has_halves = tile->options & TILE_HALVES,
             persistent = tile->options & TILE_PERSISTENT,
             staged = !persistent && !has_halves && !(tile->options & TILE_IN_PLACE),
             is_narrow = qr_is_narrow(problem->dtype);
  if (persistent) {
    cr_assert(problem->m == tile->rows && problem->n == tile->columns && problem->a.access == QR_TILE_DENSE);
    cr_assert(!is_narrow);
  }
  cr_assert_eq(tile->element_bytes, (int32_t)problem->element_bytes);
  cr_assert(problem->m <= tile->rows && problem->n <= columns_of(tile));
  cr_assert(plan->shared_bytes >= 0 && plan->shared_bytes <= subject->chip.shared_bytes);
  /* The matrix stands on the diagonal, where steps are entered at. */
  cr_assert(plan->offset >= 0 &&
            plan->offset % qr_tile_offset_unit(tile->row_lanes, tile->column_lanes, tile->options) == 0);
  cr_assert_leq(plan->offset, qr_tile_offset_most(tile->columns));
  cr_assert(plan->offset + problem->m <= tile->rows && plan->offset + problem->n <= columns_of(tile));
  if (has_halves) cr_assert_eq(plan->offset, 0);
  /* All kernels take any layout through shared memory, but for those whose H leaves from the registers alone. */
  if (!staged) cr_assert_leq(problem->h.access, QR_TILE_CONTIGUOUS);
  cr_assert(staged || !is_narrow);
  if (is_thin) {
    cr_assert(staged && !(tile->options & TILES_OF_H));
    cr_assert_leq(qr_workspace_of(problem).workers, 64); /* for the host's threads only */
  }
  const int64_t lanes = (int64_t)tile->row_lanes * tile->column_lanes, matrices = lanes < 32 ? 32 / lanes : 1;
  cr_assert_eq(tile->kernel.threads, lanes * matrices);
  cr_assert(plan->grid >= 1 && (plan->grid - 1) * matrices < problem->batch);
  if (persistent || has_halves)
    cr_assert(matrices == 1 && plan->grid <= (int64_t)subject->chip.multiprocessors * tile->blocks);
  else
    cr_assert_geq(plan->grid * matrices, problem->batch);
}

/* What decides on the order of sums. */
static void check_same_bits(const struct qr_plan *one, const struct qr_plan *other) {
  const struct qr_tile *a = one->tile, *b = other->tile;
  const int32_t arithmetic = TILE_OWN_NORM | TILE_SCATTERED | TILE_MERGED | TILE_HALVES | TILE_PACKED;
  cr_assert((a == NULL) == (b == NULL));
  if (!a) return;
  cr_assert(a->rows == b->rows && a->columns == b->columns && a->row_lanes == b->row_lanes &&
            a->column_lanes == b->column_lanes && (a->options & arithmetic) == (b->options & arithmetic) &&
            one->offset == other->offset);
}

Test(qr_tile_plan, a_plan_keeps_what_its_kernel_relies_on) {
  struct random random = {1};
  int64_t planned = 0, persistent = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    struct subject subject = random_subject(&random);
    const struct qr_plan plan = planned_for(&subject);
    if (plan.tile) {
      check(&subject, &plan);
      planned++;
      persistent += (plan.tile->options & TILE_PERSISTENT) != 0;
    }
    if (subject.problem.batch > INT32_MAX) continue; /* it may have had too many blocks */
    subject.problem.batch = random_between(&random, 1, 10000);
    const struct qr_plan other = planned_for(&subject);
    check_same_bits(&plan, &other);
  }
  cr_assert(planned > 50000 && persistent > 1000, "%lld planned, %lld persistent", (long long)planned,
            (long long)persistent);
}

/* What is planned for 132 multiprocessors. */
struct planned {
  int32_t bytes, m, n, batch;
  enum qr_tile_access a, h;
  const char *name;
  int32_t offset, grid;
};

static void expect_planned(bool is_thin, const struct planned *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const struct planned *one = &cases[i];
    const struct subject subject = {problem_of(one->bytes, one->m, one->n, one->batch, one->a, one->h, is_thin),
                                    {.multiprocessors = 132, .shared_bytes = H200_SHARED_BYTES}};
    const struct qr_plan plan = planned_for(&subject);
    cr_assert_not_null(plan.tile, "case %zu takes no tile", i);
    cr_expect_str_eq(plan.tile->kernel.name, cases[i].name, "case %zu takes %s", i, plan.tile->kernel.name);
    cr_expect(plan.offset == cases[i].offset && plan.grid == cases[i].grid, "case %zu: offset %d, %lld blocks", i,
              plan.offset, (long long)plan.grid);
  }
}

/* What was measured. */
Test(qr_tile_plan, a_plan_takes_the_smallest_tile_and_what_was_fastest) {
#define D QR_TILE_DENSE
#define V QR_TILE_VECTORS
#define C QR_TILE_CONTIGUOUS
#define A QR_TILE_ANY
  static const struct planned reflectors[] = {
      {4, 8, 8, 1000, D, D, "rondo_qr_tile_f32_8", 0, 250},
      {4, 3, 2, 1000, A, A, "rondo_qr_tile_f32_8", 4, 250},
      {4, 16, 16, 1000, D, V, "rondo_qr_tile_f32_16", 0, 500},
      {4, 16, 16, 1000, C, D, "rondo_qr_tile_f32_16", 0, 500},
      {4, 11, 10, 1001, V, V, "rondo_qr_tile_f32_16", 4, 501},
      {4, 17, 9, 1000, D, D, "rondo_qr_tile_f32_32", 12, 1000},
      {4, 64, 64, 1000, A, A, "rondo_qr_tile_f32_64", 0, 1000},
      {4, 36, 33, 1000, D, D, "rondo_qr_tile_f32_64", 28, 1000},
      {4, 36, 16, 1000, D, D, "rondo_qr_tile_f32_128x16_h", 0, 1000},
      {4, 48, 48, 1000, D, D, "rondo_qr_tile_f32_64", 16, 1000},
      {4, 128, 128, 1000, D, D, "rondo_qr_tile_f32_128_whole", 0, 264},
      {4, 128, 128, 1000, D, A, "rondo_qr_tile_f32_128", 0, 1000},
      {4, 68, 68, 1000, D, D, "rondo_qr_tile_f32_80", 12, 1000},
      {4, 81, 40, 1000, C, D, "rondo_qr_tile_f32_96", 12, 1000},
      {4, 96, 96, 10, A, A, "rondo_qr_tile_f32_96", 0, 10},
      {4, 97, 100, 1000, C, C, "rondo_qr_tile_f32_128", 24, 1000},
      {4, 113, 100, 1000, C, C, "rondo_qr_tile_f32_128", 8, 1000},
      {4, 129, 65, 1000, D, D, "rondo_qr_tile_f32_160", 24, 1000},
      {4, 160, 160, 1000, A, A, "rondo_qr_tile_f32_160", 0, 1000},
      {4, 128, 128, 1000, V, D, "rondo_qr_tile_f32_128", 0, 1000},
      {4, 128, 16, 1000, D, D, "rondo_qr_tile_f32_128x16_h", 0, 1000},
      {4, 128, 16, 1000, A, A, "rondo_qr_tile_f32_128x16", 0, 1000},
      {4, 128, 16, 10000, D, C, "rondo_qr_tile_f32_128x16", 0, 10000},
      {4, 64, 16, 1000, D, D, "rondo_qr_tile_f32_128x16_h", 0, 1000},
      {4, 128, 32, 1000, D, D, "rondo_qr_tile_f32_128x32", 0, 1000},
      {4, 129, 17, 5000, A, A, "rondo_qr_tile_f32_256x32", 12, 5000},
      {4, 60, 30, 1000, D, D, "rondo_qr_tile_f32_64", 4, 1000},
      {4, 256, 16, 1000, V, D, "rondo_qr_tile_f32_256x16_h", 0, 1000},
      {4, 255, 16, 10000, C, C, "rondo_qr_tile_f32_256x16", 0, 10000},
      {4, 512, 32, 1000, D, D, "rondo_qr_tile_f32_512x32_whole", 0, 264},
      {4, 512, 32, 1000, A, A, "rondo_qr_tile_f32_512x32", 0, 1000},
      {4, 1024, 32, 1000, D, D, "rondo_qr_tile_f32_1024x32_whole", 0, 132},
      {4, 600, 10, 1000, A, A, "rondo_qr_tile_f32_1024x32", 16, 1000},
      {8, 8, 8, 1000, D, D, "rondo_qr_tile_f64_8", 0, 250},
      {8, 16, 16, 1000, D, D, "rondo_qr_tile_f64_16", 0, 500},
      {8, 32, 32, 1000, A, A, "rondo_qr_tile_f64_32", 0, 1000},
      {8, 64, 64, 1000, D, D, "rondo_qr_tile_f64_64", 0, 1000},
      {8, 44, 40, 1000, D, D, "rondo_qr_tile_f64_48", 4, 1000},
      {8, 68, 72, 1000, D, D, "rondo_qr_tile_f64_72", 0, 1000},
      {8, 70, 73, 1000, A, D, "rondo_qr_tile_f64_96", 16, 1000},
      {8, 90, 80, 1000, D, D, "rondo_qr_tile_f64_96", 0, 1000},
      {8, 97, 97, 1000, C, C, "rondo_qr_tile_f64_104", 0, 1000},
      {8, 105, 97, 1000, D, D, "rondo_qr_tile_f64_128", 16, 1000},
      {8, 128, 128, 1000, D, D, "rondo_qr_tile_f64_128_whole", 0, 132},
      {8, 128, 16, 10000, D, D, "rondo_qr_tile_f64_128x16", 0, 10000},
      {8, 128, 32, 1000, D, D, "rondo_qr_tile_f64_128x32", 0, 1000},
      {8, 256, 32, 1000, A, D, "rondo_qr_tile_f64_256x32", 0, 1000},
      {8, 256, 16, 1000, D, D, "rondo_qr_tile_f64_256x16_whole", 0, 528},
      {8, 512, 32, 1000, D, D, "rondo_qr_tile_f64_512x32_whole", 0, 132},
      {8, 1024, 32, 1000, A, D, "rondo_qr_tile_f64_1024x32", 0, 132},
      {8, 600, 4, 100, D, D, "rondo_qr_tile_f64_1024x32", 0, 100},
  };
  static const struct planned thin[] = {
      {4, 8, 8, 1001, D, D, "rondo_qr_tile_f32_8", 0, 251},
      {4, 9, 1, 1000, A, D, "rondo_qr_tile_f32_16", 4, 500},
      {4, 20, 30, 1000, A, D, "rondo_qr_tile_f32_32", 0, 1000},
      {4, 64, 64, 1000, D, D, "rondo_qr_tile_f32_64", 0, 1000},
      {4, 128, 128, 1000, A, D, "rondo_qr_tile_f32_128", 0, 1000},
      {4, 128, 16, 10000, D, D, "rondo_qr_tile_f32_128x16", 0, 10000},
      {4, 129, 5, 1000, D, D, "rondo_qr_tile_f32_256x16", 8, 1000},
      {4, 1024, 32, 1000, A, D, "rondo_qr_tile_f32_1024x32", 0, 1000},
      {8, 128, 128, 1000, D, D, "rondo_qr_tile_f64_128", 0, 1000},
      {8, 512, 32, 1000, A, D, "rondo_qr_tile_f64_512x32", 0, 1000},
  };
#undef D
#undef V
#undef C
#undef A
  expect_planned(false, reflectors, sizeof reflectors / sizeof *reflectors);
  expect_planned(true, thin, sizeof thin / sizeof *thin);
}

Test(qr_tile_plan, matrices_that_no_tile_holds_are_left_to_the_other_kernels) {
  static const struct {
    int32_t bytes, m, n;
    enum qr_tile_access h;
    int32_t shared_bytes;
  } cases[] = {
      {4, 161, 33, QR_TILE_DENSE, H200_SHARED_BYTES}, {4, 160, 79, QR_TILE_DENSE, H200_SHARED_BYTES},
      {4, 1025, 1, QR_TILE_DENSE, H200_SHARED_BYTES}, {4, 16, 161, QR_TILE_DENSE, H200_SHARED_BYTES},
      {8, 1024, 32, QR_TILE_ANY, H200_SHARED_BYTES},  {4, 1024, 32, QR_TILE_DENSE, 99 << 10},
      {8, 128, 128, QR_TILE_DENSE, 99 << 10},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int is_thin = 0; is_thin < 2; is_thin++) {
      const struct subject subject = {
          problem_of(cases[i].bytes, cases[i].m, cases[i].n, 1000, QR_TILE_DENSE, cases[i].h, is_thin != 0),
          {.multiprocessors = 132, .shared_bytes = cases[i].shared_bytes}};
      const struct qr_plan plan = planned_for(&subject);
      if (!is_thin || cases[i].h == QR_TILE_DENSE) cr_expect_null(plan.tile, "case %zu, thin: %d", i, is_thin);
    }
  }
}

/* f16 and bf16 have no other kernels: what is accepted is launched on the chips that rondo.h names, and refused by
 * those that have less. */
static rondo_status bf16_selected(int64_t m, int64_t n, int32_t shared_bytes) {
  rondo_graph *graph;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_launches launches = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_qr_desc desc = {0};
  REQUIRE_OK(rondo_input(graph, "a", RONDO_BF16, 3, (int64_t[]){2, n, m}, &desc.a));
  REQUIRE_OK(rondo_output(graph, "h", RONDO_F32, 3, (int64_t[]){2, n, m}, &desc.h));
  REQUIRE_OK(rondo_output(graph, "tau", RONDO_F32, 2, (int64_t[]){2, m < n ? m : n}, &desc.tau));
  REQUIRE_OK(rondo_add_qr(graph, &desc));
  struct op_task task = graph_op_task(graph, &graph->tasks[0], operands);
  struct op_call call = {.task = &task, .data = op_nowhere};
  rondo_status status = op_qr.select(&call, &(struct chip){80, 108, shared_bytes}, &launches);
  if (status == RONDO_OK) cr_expect(!strncmp(launches.items[0].kernel, "rondo_qr_tile_f32", 17));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return status;
}

Test(qr_tile_plan, a_tile_serves_every_shape_of_f16_and_bf16_where_shared_memory_suffices) {
  for (int64_t n = 1; n <= 128; n++) {
    for (int64_t m = 1; m <= 128; m += n % 7 + 1) REQUIRE_OK(bf16_selected(m, n, 163 << 10));
    for (int64_t m = 129; m <= 1024 && n <= 32; m += 31) REQUIRE_OK(bf16_selected(m, n, 163 << 10));
  }
  cr_expect_eq(bf16_selected(128, 128, 48 << 10), RONDO_UNSUPPORTED);
  cr_expect(strstr(rondo_error_text(), "shared memory"), "%s", rondo_error_text());
}
