/* gemv_designs.c - see gemv_designs.h. */
#include "gemv_designs.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../kernels/gemv/gemv_head.h"
#include "../../kernels/gemv/gemv_ring.h"
#include "../../kernels/gemv/gemv_scalar.h"
#include "../../kernels/gemv/gemv_stream.h"

enum { TILE_ROWS = 16, NUMBER = sizeof(float), MULTIPROCESSOR_BYTES = 228 << 10, BLOCK_BYTES = 1 << 10 };

#define NAME(chips, parameters, name, ...) #name,
#define LENGTH(array)                      (sizeof(array) / sizeof *(array))
#define REQUIRE(condition)                                                                                             \
  cr_assert((condition), "%s for %s: %s", plan->kernel->name, gemv_problem_text(problem), #condition)

/* ---- Problems ---------------------------------------------------------------------------------------------------- */

const char *gemv_problem_text(const struct gemv_problem *p) {
  static char text[256];
  snprintf(text, sizeof text,
           "%s x %s, %d x [%d, %d], %d vectors, chip %u of %d multiprocessors, %d rows at a time%s%s%s%s%s%s%s",
           rondo_dtype_name(p->weights), rondo_dtype_name(p->vectors), (int)p->batch, (int)p->m, (int)p->k,
           (int)p->count, p->chip, (int)p->multiprocessors, (int)p->row_multiple, p->finishing ? ", finishing" : "",
           p->norm ? ", norm" : "", p->one_order ? ", one order" : "", p->blocked_scales ? ", blocked scales" : "",
           p->packed_weights ? ", packed" : "", p->dense_weights ? ", dense" : "", p->wide_loads ? "" : ", narrow");
  return text;
}

struct gemv_problem gemv_dense_problem(rondo_dtype weights, rondo_dtype vectors, int64_t batch, int64_t m, int64_t k,
                                       int64_t count) {
  struct gemv_problem problem = {.weights = weights,
                                 .vectors = vectors,
                                 .batch = batch,
                                 .m = m,
                                 .k = k,
                                 .count = count,
                                 .chip = CHIP_SM_90A,
                                 .multiprocessors = 132,
                                 .row_multiple = 1,
                                 .scale_bytes = 16,
                                 .wide_loads = true};
  while (weights == RONDO_NVFP4 && k / 16 % problem.scale_bytes) problem.scale_bytes /= 2;
  return problem;
}

struct gemv_problem gemv_head_problem(rondo_dtype weights, rondo_dtype vectors, int64_t count) {
  struct gemv_problem problem = gemv_dense_problem(weights, vectors, 1, 49152, 576, count);
  problem.packed_weights = true;
  return problem;
}

/* NVFP4 with loads of 16 bytes, on a chip with compute capability 9.0 or 10.0; the size is not set yet. */
static struct gemv_problem draw_newer(struct random *random) {
  static const int64_t multiples[] = {1, 1, 2, 16, 32}, multiprocessors[] = {1, 78, 114, 132, 148};
  struct gemv_problem problem = {.weights = RONDO_NVFP4, .wide_loads = true};
  problem.chip = random_between(random, 0, 1) ? CHIP_SM_90A : CHIP_SM_100A;
  problem.multiprocessors = RANDOM_OF(random, multiprocessors);
  problem.row_multiple = RANDOM_OF(random, multiples);
  return problem;
}

/* At least as many rows, a multiple of what the epilogue takes at a time. */
static void rows_set(struct gemv_problem *problem, int64_t rows) {
  problem->m = (rows / problem->row_multiple + 1) * problem->row_multiple;
  problem->finishing = problem->row_multiple > 1;
}

/* A kernel takes one type, both types of 16 bits, or every type. */
static bool takes_type(rondo_dtype of_kernel, rondo_dtype type) {
  if (of_kernel == GEMV_16_BITS) return type == RONDO_F16 || type == RONDO_BF16;
  return of_kernel == GEMV_ANY_TYPE || of_kernel == type;
}

static void require_types(const struct gemv_problem *problem, const struct gemv_plan *plan,
                          const struct gemv_kernel *kernel) {
  REQUIRE(takes_type(kernel->weights, problem->weights) && takes_type(kernel->vectors, problem->vectors));
}

/* ---- Head, NVFP4 and e4m3 ---------------------------------------------------------------------------------------- */

static struct gemv_problem draw_codes(struct random *random) {
  static const int64_t vectors[] = {RONDO_F16, RONDO_BF16, RONDO_NVFP4}, batches[] = {1, 1, 1, 2, 4, 37, 132};
  const bool in_e4m3 = random_between(random, 0, 1);
  struct gemv_problem problem = draw_newer(random);
  if (in_e4m3) problem.weights = RONDO_E4M3;
  problem.vectors = (rondo_dtype)vectors[random_between(random, 0, in_e4m3 ? 1 : 2)];
  problem.batch = RANDOM_OF(random, batches);
  problem.k = 16 * random_between(random, 1, 70);
  problem.count = random_between(random, 1, 16);
  problem.scale_bytes = 2;
  problem.packed_weights = true;
  rows_set(&problem, random_between(random, 1, 200000) / problem.batch);
  return problem;
}

/* A slot of each warp. */
static struct gemv_share share_codes(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_head_parameters *layout = &plan->told.head;
  return (struct gemv_share){.rows = layout->block_rows,
                             .pieces = plan->blocks,
                             .part = problem->weights == RONDO_E4M3 ? 16 : 32,
                             .cluster = 1,
                             .least_bytes = layout->first_slot + plan->threads / 32 * layout->slot_bytes};
}

/* In shared memory rows are whole steps of 64 elements, an odd number of them. */
static void check_codes(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_head_parameters *layout = &plan->told.head;
  const bool in_e4m3 = problem->weights == RONDO_E4M3;
  const int64_t k = problem->k, step_bytes = in_e4m3 ? 64 : 32, steps = (k + 63) / 64;
  const int64_t vectors = 8 * plan->of.head->width * (steps * 128 + 16), pitch = (steps | 1) * step_bytes;
  require_types(problem, plan, &plan->of.head->of);
  REQUIRE(k % (in_e4m3 ? 16 : 32) == 0 && k <= GEMV_HEAD_MOST_K);
  REQUIRE(plan->parts * 16 == (in_e4m3 ? k : k / 2));
  REQUIRE(layout->first_slot % 128 == 0 && layout->first_slot >= INT64_C(16) * NUMBER + vectors);
  REQUIRE(layout->slot_bytes % 16 == 0 && layout->slot_bytes >= 16 * (pitch + (in_e4m3 ? 0 : k / 16)));
  REQUIRE(layout->block_rows % 16 == 0);
  REQUIRE(plan->blocks * problem->batch <= problem->multiprocessors);
  REQUIRE(problem->count <= 8 * plan->of.head->width);
  REQUIRE(plan->threads / 32 >= problem->count); /* each converts a vector */
}

static const char *const codes_kernels[] = {GEMV_HEAD_KERNELS(NAME)};

/* ---- Ring: large matrices through stages of shared memory -------------------------------------------------------- */

static struct gemv_problem draw_ring(struct random *random) {
  static const int64_t vectors[] = {RONDO_NVFP4, RONDO_F16, RONDO_BF16};
  static const int64_t counts[] = {1, 1, 2, 4}, batches[] = {1, 1, 1, 2, 4, 8, 37, 132, 300};
  static const int64_t sizes[] = {1 << 22, 1 << 25, 1 << 27, 1 << 30, INT64_C(1) << 34};
  struct gemv_problem problem = draw_newer(random);
  problem.vectors = (rondo_dtype)RANDOM_OF(random, vectors);
  problem.batch = RANDOM_OF(random, batches);
  problem.k = random_between(random, 0, 3) ? 512 * random_between(random, 1, 36) : 32 * random_between(random, 1, 600);
  problem.count = RANDOM_OF(random, counts);
  problem.scale_bytes = 8;
  problem.dense_weights = true;
  rows_set(&problem, random_between(random, 1, RANDOM_OF(random, sizes)) * 2 / problem.k / problem.batch);
  return problem;
}

/* Barriers and sums, then the stages. */
static struct gemv_share share_ring(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_ring_parameters *layout = &plan->told.ring;
  (void)problem;
  return (struct gemv_share){.rows = layout->block_rows,
                             .pieces = plan->blocks,
                             .part = plan->of.ring->part,
                             .cluster = 1,
                             .least_bytes = layout->own_memory + (plan->parts * plan->groups + 1) * layout->own_bytes};
}

static void check_ring(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_ring_parameters *layout = &plan->told.ring;
  const struct gemv_ring_kernel *kernel = plan->of.ring;
  const int64_t tile_rows = plan->groups * layout->group_rows, beyond = plan->parts * kernel->part - problem->k;
  const int64_t sums = plan->parts * kernel->most * layout->pitch;
  require_types(problem, plan, &kernel->of);
  REQUIRE(problem->k / 2 % 16 == 0 && problem->k / 16 % 16 == 0); /* copies are multiples of rows */
  REQUIRE(layout->stage_bytes % 128 == 0 && layout->stage_bytes >= tile_rows * (problem->k / 2 + problem->k / 16));
  REQUIRE(layout->first_stage % 128 == 0 && layout->first_stage >= 16 * (int64_t)layout->stages + sums * NUMBER);
  REQUIRE(layout->pitch >= plan->tiles * tile_rows);
  REQUIRE(kernel->blocks * (plan->shared_bytes + BLOCK_BYTES) <= MULTIPROCESSOR_BYTES);
  REQUIRE(plan->tiles * tile_rows >= layout->block_rows && (plan->tiles - 1) * tile_rows < layout->block_rows);
  REQUIRE(layout->stages >= 1 && layout->stages <= plan->tiles && layout->group_rows % kernel->rows == 0);
  REQUIRE(beyond >= 0 && beyond < kernel->beyond);
  REQUIRE(plan->threads == 32 * (plan->parts * plan->groups + 1)); /* and the warp that copies */
  REQUIRE(layout->own_memory >= layout->first_stage + (int64_t)layout->stages * layout->stage_bytes);
  REQUIRE(layout->own_bytes == (problem->vectors == RONDO_NVFP4 ? 0 : 2 * kernel->part));
  REQUIRE(problem->count <= kernel->most && plan->threads / 32 > kernel->most);
}

static const char *const ring_kernels[] = {GEMV_RING_KERNELS(NAME)};

/* ---- Stream: several vectors, each warp with a ring of its own --------------------------------------------------- */

static struct gemv_problem draw_stream(struct random *random) {
  static const int64_t vectors[] = {RONDO_NVFP4, RONDO_NVFP4, RONDO_F16, RONDO_BF16};
  static const int64_t batches[] = {1, 1, 1, 2, 4, 8, 37, 300}, sizes[] = {1 << 18, 1 << 25, 1 << 27, 1 << 30};
  struct gemv_problem problem = draw_newer(random);
  problem.vectors = (rondo_dtype)RANDOM_OF(random, vectors);
  problem.batch = RANDOM_OF(random, batches);
  problem.k = random_between(random, 0, 7) ? 128 * random_between(random, 1, 300) : 32 * random_between(random, 1, 600);
  problem.count = random_between(random, 1, 16);
  problem.scale_bytes = 16;
  while (problem.k / 16 % problem.scale_bytes) problem.scale_bytes /= 2;
  rows_set(&problem, random_between(random, 1, RANDOM_OF(random, sizes)) * 2 / problem.k / problem.batch);
  problem.finishing |= random_between(random, 0, 3) == 0;
  return problem;
}

/* Before the stages: sums, meeting point, factors, squares and, in clusters, the sums of all of a block's tiles. */
static struct gemv_share share_stream(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_stream_kernel *kernel = plan->of.stream;
  const int64_t part = 128 * kernel->slices, piece = TILE_ROWS * part / 2 + TILE_ROWS * part / 16;
  const int64_t teams = plan->blocks / kernel->cluster, tiles = (plan->tiles + teams - 1) / teams;
  int64_t first_stage =
      INT64_C(2) * 16 * NUMBER * TILE_ROWS * 8 * kernel->operands + 16 + INT64_C(16) * (1 + 16 + 16) * NUMBER;
  if (kernel->cluster > 1) first_stage += tiles * plan->groups * TILE_ROWS * problem->count * NUMBER;
  if (first_stage < plan->told.stream.first_stage) first_stage = plan->told.stream.first_stage;
  return (struct gemv_share){.rows = plan->groups * TILE_ROWS,
                             .pieces = plan->tiles,
                             .part = part,
                             .cluster = kernel->cluster,
                             .least_bytes = first_stage + plan->threads / 32 * kernel->stages * piece};
}

static void check_stream(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_stream_kernel *kernel = plan->of.stream;
  const int64_t part = 128 * kernel->slices;
  require_types(problem, plan, &kernel->of);
  REQUIRE(plan->told.stream.first_stage % 128 == 0);
  REQUIRE(plan->parts >= 1 && plan->parts <= GEMV_MOST_PARTS && (kernel->cluster > 1 || plan->chunks == 1));
  REQUIRE(plan->groups == 1 || (plan->groups == 2 && plan->parts <= 8)); /* sums lie in 16 slots */
  /* Two lanes copy the scales of a row of a piece: none of their copies crosses the end of k, all are aligned. */
  REQUIRE(problem->k % (part / 2) == 0 && problem->scale_bytes >= part / 32);
  REQUIRE(plan->threads == 32 * plan->parts * plan->groups);
  REQUIRE(problem->m >= plan->groups * TILE_ROWS);
  REQUIRE(problem->count >= 1 && problem->count <= 8 * kernel->operands);
  /* One block finishes neither NVFP4 results, nor any beside NVFP4 vectors. */
  const bool is_quantised = problem->row_multiple >= TILE_ROWS;
  REQUIRE(kernel->cluster > 1 || !problem->finishing || (problem->vectors != RONDO_NVFP4 && !is_quantised));
  REQUIRE(kernel->stages >= 2 && (kernel->slices == 2 || kernel->slices == 4));
}

static const char *const stream_kernels[] = {GEMV_STREAM_KERNELS(NAME)};

/* ---- Head, 16 bits ----------------------------------------------------------------------------------------------- */

static struct gemv_problem draw_16(struct random *random) {
  static const int64_t types[] = {RONDO_F16, RONDO_BF16}, batches[] = {1, 1, 1, 2, 4, 37, 132, 300};
  struct gemv_problem problem = draw_newer(random);
  problem.weights = problem.vectors = (rondo_dtype)RANDOM_OF(random, types);
  problem.batch = RANDOM_OF(random, batches);
  problem.k = random_between(random, 0, 3) ? 32 * random_between(random, 1, 70) : 8 * random_between(random, 1, 280);
  problem.count = random_between(random, 1, 16);
  problem.row_multiple = 1;
  problem.packed_weights = true;
  rows_set(&problem, random_between(random, 1, 200000) / problem.batch);
  return problem;
}

static struct gemv_share share_16(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_head_parameters *layout = &plan->told.head;
  (void)problem;
  return (struct gemv_share){.rows = TILE_ROWS,
                             .pieces = plan->tiles,
                             .cluster = 1,
                             .least_bytes = layout->first_slot + layout->slots * layout->slot_bytes};
}

/* Barriers, factors, then vectors, an odd number of pieces apart; a slot holds sixteen rows without gaps. */
static void check_16(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_head_parameters *layout = &plan->told.head;
  const int64_t pieces = problem->k / 32, vectors = 8 * plan->of.head->width;
  require_types(problem, plan, &plan->of.head->of);
  REQUIRE(problem->k % 32 == 0 && problem->k <= GEMV_HEAD_16_MOST_K && problem->m >= TILE_ROWS);
  REQUIRE(layout->first_slot % 128 == 0 && layout->first_slot >= 16 * 8 + 16 * NUMBER + vectors * (pieces | 1) * 64);
  REQUIRE(layout->slot_bytes == INT64_C(2) * TILE_ROWS * problem->k);
  REQUIRE(plan->blocks * problem->batch <= problem->multiprocessors);
  REQUIRE(problem->count <= 8 * plan->of.head->width);
  REQUIRE(32 * problem->count <= plan->of.head->of.kernel.threads); /* each warp has a vector */
  REQUIRE(layout->early_slots >= 1 && layout->early_slots <= layout->slots);
  REQUIRE(layout->slots >= 2 && 32 * layout->slots <= plan->of.head->of.kernel.threads);
}

static const char *const kernels_of_16[] = {GEMV_HEAD_16_KERNELS(NAME)};

/* ---- Integer and quads ------------------------------------------------------------------------------------------- */

/* 1 to `most`, small numbers as often as large ones. */
static int64_t draw_size(struct random *random, double most) {
  return (int64_t)exp(random_uniform(random) * log(most + 1));
}

struct gemv_problem gemv_draw_quads(struct random *random) {
  static const rondo_dtype types[][2] = {
      {RONDO_F16, RONDO_F16},   {RONDO_BF16, RONDO_BF16},  {RONDO_E4M3, RONDO_F16},    {RONDO_E4M3, RONDO_BF16},
      {RONDO_NVFP4, RONDO_F16}, {RONDO_NVFP4, RONDO_BF16}, {RONDO_NVFP4, RONDO_NVFP4},
  };
  static const int64_t multiples[] = {1, 2, 16, 32}, multiprocessors[] = {1, 108, 132, 148};
  static const int64_t chips[] = {CHIP_SM_80, CHIP_SM_90A, CHIP_SM_100A};
  const rondo_dtype *pair = types[random_between(random, 0, (int64_t)LENGTH(types) - 1)];
  const int64_t step = pair[0] == RONDO_NVFP4 ? 32 : pair[0] == RONDO_E4M3 ? 16 : 8; /* of wide loads */
  const int64_t multiple = RANDOM_OF(random, multiples), m = draw_size(random, 200000);
  struct gemv_problem problem =
      gemv_dense_problem(pair[0], pair[1], draw_size(random, 300), (m + multiple - 1) / multiple * multiple,
                         draw_size(random, 4096) * step, random_between(random, 1, 16));
  if (problem.scale_bytes > 8) problem.scale_bytes = 8;
  problem.chip = (uint32_t)RANDOM_OF(random, chips);
  problem.multiprocessors = RANDOM_OF(random, multiprocessors);
  problem.row_multiple = multiple;
  problem.finishing = multiple > 1 || random_between(random, 0, 1);
  problem.one_order = random_between(random, 0, 3) == 0;
  if (pair[0] == RONDO_NVFP4) {
    problem.blocked_scales = random_between(random, 0, 1);
    if (random_between(random, 0, 7) == 0) problem.scale_bytes = 2;
  }
  return problem;
}

static struct gemv_problem draw_integer(struct random *random) {
  struct gemv_problem problem = gemv_draw_quads(random);
  problem.weights = problem.vectors = RONDO_NVFP4;
  problem.count = 1, problem.k = (problem.k + 31) / 32 * 32;
  while (problem.k / 16 % problem.scale_bytes) problem.scale_bytes /= 2;
  return problem;
}

/* Wide loads of all lanes, of which quads share rows. Sums: a warp's of each of the tile's rows and vectors and, in
 * chunks and clusters, those of all of a block's tiles. */
static struct gemv_share share_quads(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_quads_kernel *kernel = plan->of.quads;
  const int64_t lanes = kernel->quads ? 4 * kernel->quads : 32, rows = plan->groups * kernel->rows;
  const int64_t teams = plan->blocks / kernel->cluster, tiles = (plan->tiles + teams - 1) / teams;
  const int64_t sums = plan->parts * rows + (kernel->cut == GEMV_CHUNKED || kernel->cluster > 1 ? tiles * rows : 0);
  return (struct gemv_share){.rows = rows,
                             .pieces = plan->tiles,
                             .part = lanes * 128 / (int64_t)rondo_dtype_bits(problem->weights) * kernel->slices,
                             .order = kernel->quads,
                             .cluster = kernel->cluster,
                             .least_bytes = sums * problem->count * NUMBER};
}

static void check_quads(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  const struct gemv_quads_kernel *kernel = plan->of.quads;
  const struct gemv_share share = share_quads(problem, plan);
  require_types(problem, plan, &kernel->of);
  REQUIRE(kernel->quads ? problem->count <= 8 / kernel->quads * kernel->operands : problem->count == 1);
  if (kernel->of.weights == RONDO_NVFP4 && kernel->quads)
    REQUIRE(problem->scale_bytes >= (kernel->slices > 1 ? 4 : 2) && problem->k % (32 * kernel->slices) == 0);
  REQUIRE(!problem->blocked_scales || problem->m % kernel->rows == 0);
  REQUIRE(plan->parts >= 1 && plan->parts <= GEMV_MOST_PARTS && plan->groups >= 1 && share.rows <= problem->m);
  REQUIRE(plan->chunks == 1 || kernel->cut == GEMV_CHUNKED);
  /* Each warp has something, in the first block of a cluster at least. */
  REQUIRE(plan->chunks > 1 || (plan->parts - 1) * share.part < problem->k);
  REQUIRE(kernel->cut != GEMV_EXACT || problem->k % share.part == 0);
  /* A kernel that takes one tile and ends. */
  const bool ends = kernel->half || kernel->cut == GEMV_SINGLE || (problem->finishing && kernel->cut != GEMV_CHUNKED);
  REQUIRE(!ends || kernel->cluster > 1 || plan->blocks == plan->tiles);
  REQUIRE(32 * plan->parts * plan->groups <= kernel->of.kernel.threads);
  REQUIRE(plan->shared_bytes > 0 && plan->shared_bytes <= 96 << 10); /* on every chip */
}

/* ---- Scalar: everything ------------------------------------------------------------------------------------------ */

static struct gemv_problem draw_scalar(struct random *random) {
  struct gemv_problem problem = gemv_draw_quads(random);
  problem.wide_loads = random_between(random, 0, 1);
  problem.batch = random_between(random, 0, 9) ? problem.batch : 65536;
  return problem;
}

static struct gemv_share share_scalar(const struct gemv_problem *problem, const struct gemv_plan *plan) {
  (void)problem;
  return (struct gemv_share){
      .rows = plan->groups * GEMV_SCALAR_ROWS, .pieces = plan->tiles, .part = GEMV_SCALAR_STEP, .cluster = 1};
}

static const char *const scalar_kernels[] = {GEMV_SCALAR_KERNELS(NAME)};

/* ---- The designs ------------------------------------------------------------------------------------------------- */

#define KERNELS(array) .kernels = (array), .kernel_count = LENGTH(array)

const struct gemv_design gemv_designs[] = {
    {"head_codes", draw_codes, share_codes, check_codes, KERNELS(codes_kernels), .classes = {{2, 8}, {9, 16}}},
    {"ring", draw_ring, share_ring, check_ring, KERNELS(ring_kernels), .classes = {{0}}},
    {"stream", draw_stream, share_stream, check_stream, KERNELS(stream_kernels), .classes = {{2, 4}, {5, 8}, {9, 16}}},
    {"head_16", draw_16, share_16, check_16, KERNELS(kernels_of_16), .classes = {{2, 4}, {5, 8}, {9, 16}}},
    {"integer", draw_integer, share_quads, check_quads, .classes = {{0}}},
    {"quads", gemv_draw_quads, share_quads, check_quads, .classes = {{2, 4}, {5, 8}, {9, 16}}},
    {"scalar", draw_scalar, share_scalar, NULL, KERNELS(scalar_kernels), .classes = {{1, 16}}},
};

bool gemv_design_has(const struct gemv_design *design, const struct gemv_choice *choice) {
  const size_t length = strlen(design->name);
  return !strncmp(choice->name, design->name, length) && (choice->name[length] == '\0' || choice->name[length] == '_');
}

struct gemv_plan gemv_design_plan(const struct gemv_design *design, const struct gemv_problem *problem) {
  size_t count;
  struct gemv_plan plan = {0};
  const struct gemv_choice *choices = gemv_choices(&count);
  for (size_t i = 0; i < count && !plan.kernel; i++)
    if (gemv_design_has(design, &choices[i])) gemv_plan_by(&choices[i], problem, &plan);
  return plan;
}

const struct gemv_design *gemv_design_called(const char *name) {
  for (int i = 0; i < GEMV_DESIGNS; i++)
    if (!strcmp(gemv_designs[i].name, name)) return &gemv_designs[i];
  cr_assert_fail("no design is called %s", name);
  return NULL;
}

struct gemv_plan gemv_plan_of(const char *design, const struct gemv_problem *problem) {
  return gemv_design_plan(gemv_design_called(design), problem);
}
