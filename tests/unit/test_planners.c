/* test_planners.c - what the plan of every operation must be, for random tasks on each generation of chips: a status
 * with a sentence, or launches of kernels that exist on the chip, within its limits and those of the kernels, in whole
 * clusters, of a choice that the family's table has for such sizes, with pointers into the task's operands and scratch.
 * The answer depends on nothing but the task and the chip, and a larger chip takes what a smaller one takes. Nothing is
 * allocated: tasks are only described. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "../../kernels/all_kernels.h"
#include "../../kernels/attention/attention_choose.h"
#include "../../kernels/decoder/decoder_choose.h"
#include "../../kernels/gemm/gemm_choose.h"
#include "../../kernels/gemm_softmax/gemm_softmax_choose.h"
#include "../../kernels/gemv/gemv_plan.h"
#include "../../kernels/least_squares/least_squares_choose.h"
#include "../../kernels/qr/qr_choose.h"
#include "../../runtime/graph.h"
#include "random_task.h"

enum { TASKS_OF_A_KIND = 2000 };

/* ---- The kernels that exist -------------------------------------------------------------------------------------- */

#define LISTED(chips, parameters, name, threads, ...) {#name, sizeof(struct parameters), 0, (chips), (threads)},
static const struct op_kernel listed[] = {ALL_KERNELS(LISTED)};

static const struct op_kernel *kernel_called(const char *name) {
  for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
    if (!strcmp(listed[i].name, name)) return &listed[i];
  return NULL;
}

/* Kernels in clusters, by the column of their list that says so, or of a size that the whole list has. */
#define OF_HALF(chips, parameters, name, ...)                {#name, LAYER_HALF_CLUSTER},
#define OF_NORM(chips, parameters, name, ...)                {#name, RMS_NORM_CLUSTER},
#define OF_ARGMAX(chips, parameters, name, ...)              {#name, ARGMAX_CLUSTER},
#define OF_SAMPLE(chips, parameters, name, ...)              {#name, SAMPLE_CLUSTER},
#define OF_SOFTMAX(chips, parameters, name, ...)             {#name, WGMMA_CLUSTER},
#define SIXTH(chips, parameters, name, threads, a, b, ...)   {#name, b},
#define OF_GEMV(c, p, name, t, b, w, v, q, o, r, s, cluster) {#name, cluster},
#define OF_STREAM(c, p, name, t, v, o, s, st, cluster)       {#name, cluster},
#define OF_DECODE(c, p, name, t, ty, k, d, o, w, s, cluster) {#name, cluster},
#define OF_WGMMA(c, p, name, t, ty, d, m, w, r, k, q, cl, e) {#name, cl},
static const struct {
  const char *name;
  uint32_t blocks;
} clusters[] = {ATTENTION_BLOCK_KERNELS(OF_HALF) ATTENTION_BLOCK_WIDE_KERNELS(OF_HALF) ATTENTION_MANY_TOKENS_KERNELS(
    OF_HALF) ATTENTION_SEVERAL_TOKENS_KERNELS(OF_HALF) FEED_FORWARD_KERNELS(OF_HALF)
                    FEED_FORWARD_MANY_TOKENS_KERNELS(OF_HALF) FEED_FORWARD_ONE_TOKEN_KERNELS(OF_HALF)
                        FEED_FORWARD_SEVERAL_TOKENS_KERNELS(OF_HALF) FEED_FORWARD_STREAM_KERNELS(OF_HALF)
                            RMS_NORM_CLUSTER_KERNELS(OF_NORM) ARGMAX_CLUSTER_KERNELS(OF_ARGMAX)
                                SAMPLE_CLUSTER_KERNELS(OF_SAMPLE) GEMM_SOFTMAX_RESIDENT_KERNELS(OF_SOFTMAX)
                                    GEMM_SOFTMAX_STAGGERED_KERNELS(OF_SOFTMAX) GEMM_SOFTMAX_STREAMED_KERNELS(SIXTH)
                                        GEMV_CLUSTERS_E4M3_KERNELS(OF_GEMV) GEMV_CLUSTERS_16_KERNELS(OF_GEMV)
                                            GEMV_STREAM_KERNELS(OF_STREAM) ATTENTION_DECODE_KERNELS(OF_DECODE)
                                                ATTENTION_WGMMA_KERNELS(OF_WGMMA) ATTENTION_E4M3_KERNELS(OF_WGMMA)};

static uint32_t cluster_of(const char *kernel) {
  for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++)
    if (!strcmp(clusters[i].name, kernel)) return clusters[i].blocks;
  return 1;
}

/* ---- Addresses --------------------------------------------------------------------------------------------------- */

/* That no other parameter looks like. Operand i begins at (i + 1) 2^40, scratch at 0. */
#define ADDRESSES UINT64_C(0x5eed000000000000)
enum { PLACE_BITS = 40 };

static void *address_of(uint32_t place) { return (void *)(uintptr_t)(ADDRESSES | (uint64_t)place << PLACE_BITS); }

/* Bytes from an operand's first element to the end of its last. */
static uint64_t bytes_of(const struct op_operand *operand) {
  int64_t last = 0;
  for (uint32_t i = 0; i < operand->rank; i++) last += (operand->shape[i] - 1) * operand->stride[i];
  return ((uint64_t)last + 1) * rondo_dtype_bits(operand->dtype) / 8;
}

/* A task with its addresses, on a chip. */
struct subject {
  const char *kind;
  const struct op_task *task;
  struct op_call call;
  const struct chip *chip;
  uint64_t scratch_bytes;
};

#define EXPECT(condition, ...)                                                                                         \
  cr_assert((condition), "%s on sm_%d with %d multiprocessors, '%s': %s", s->kind, s->chip->version,                   \
            s->chip->multiprocessors, launches->choice ? launches->choice : s->task->op->name, #condition)

static void check_pointer(const struct subject *s, const struct op_launches *launches, uint64_t word) {
  if ((word & UINT64_C(0xffff000000000000)) != ADDRESSES) return;
  const uint64_t place = (word ^ ADDRESSES) >> PLACE_BITS, offset = word & ((UINT64_C(1) << PLACE_BITS) - 1);
  EXPECT(place <= s->task->operand_count);
  if (place == 0) {
    EXPECT(offset < s->scratch_bytes);
  } else {
    EXPECT(s->task->operands[place - 1].present && offset <= bytes_of(&s->task->operands[place - 1]));
  }
}

static void check_pointers(const struct subject *s, const struct op_launches *launches,
                           const struct op_launch *launch) {
  /* Some words have padding, which is undefined; valgrind would report it. */
  const uint32_t end = is_under_valgrind() ? 0 : launch->parameter_bytes;
  for (uint32_t at = 0; at + sizeof(uint64_t) <= end; at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, launch->parameters + at, sizeof word);
    check_pointer(s, launches, word);
  }
  EXPECT(launch->map_count <= OP_MAX_MAPS);
  for (uint32_t i = 0; i < launch->map_count; i++) {
    const struct op_map *map = &launch->maps[i];
    EXPECT(map->parameter_offset % OP_MAP_BYTES == 0 &&
           map->parameter_offset + OP_MAP_BYTES <= launch->parameter_bytes);
    EXPECT((uintptr_t)map->base % 16 == 0 && map->rank >= 1 && map->rank <= OP_MAP_RANK);
    for (uint32_t d = 0; d < map->rank; d++) EXPECT(map->box[d] >= 1 && map->box[d] <= 256 && map->size[d] >= 1);
    check_pointer(s, launches, (uint64_t)(uintptr_t)map->base);
  }
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static void check_launch(const struct subject *s, const struct op_launches *launches, const struct op_launch *launch) {
  const struct op_kernel *kernel = kernel_called(launch->kernel);
  const uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
  EXPECT(kernel && kernel->chips & launch_chip(s->chip));
  EXPECT(launch->parameter_bytes == kernel->parameter_bytes);
  EXPECT(threads >= 32 && threads % 32 == 0 && threads <= 1024 && threads <= kernel->threads);
  EXPECT(launch->shared_bytes <= (uint32_t)s->chip->shared_bytes);
  EXPECT(launch->grid[0] >= 1 && launch->grid[0] <= INT32_MAX);
  EXPECT(launch->grid[1] >= 1 && launch->grid[1] <= UINT16_MAX && launch->grid[2] >= 1 &&
         launch->grid[2] <= UINT16_MAX);
  EXPECT(launch->grid[0] % cluster_of(launch->kernel) == 0);
  check_pointers(s, launches, launch);
}

static void check_same(const struct subject *s, const struct op_launches *launches, const struct op_launches *other) {
  EXPECT(launches->count == other->count && launches->choice == other->choice && launches->why == other->why);
  for (uint32_t i = 0; i < launches->count; i++) {
    const struct op_launch *a = &launches->items[i], *b = &other->items[i];
    EXPECT(!strcmp(a->kernel, b->kernel) && !memcmp(a->grid, b->grid, sizeof a->grid));
    EXPECT(!memcmp(a->block, b->block, sizeof a->block) && a->shared_bytes == b->shared_bytes);
    EXPECT(a->parameter_bytes == b->parameter_bytes && a->map_count == b->map_count);
  }
}

/* ---- Choices ----------------------------------------------------------------------------------------------------- */

enum { MOST_CHOICES = 64 };

/* Defines FAMILY_choice_called, which returns a row of the family's table and notes it, or NULL; and
 * FAMILY_check_seen, which asks for every row. */
#define CHOICES_OF(family)                                                                                             \
  static bool family##_seen[MOST_CHOICES];                                                                             \
  static const struct family##_choice *family##_choice_called(const char *name) {                                      \
    size_t count;                                                                                                      \
    const struct family##_choice *rows = family##_choices(&count);                                                     \
    for (size_t i = 0; i < count; i++)                                                                                 \
      if (!strcmp(rows[i].name, name)) return family##_seen[i] = true, &rows[i];                                       \
    return NULL;                                                                                                       \
  }                                                                                                                    \
  static void family##_check_seen(void) {                                                                              \
    size_t count;                                                                                                      \
    const struct family##_choice *rows = family##_choices(&count);                                                     \
    cr_assert_leq(count, MOST_CHOICES);                                                                                \
    for (size_t i = 0; i < count; i++)                                                                                 \
      cr_expect(family##_seen[i], "no random task came to " #family "'s choice %s", rows[i].name);                     \
  }
CHOICES_OF(attention)
CHOICES_OF(decoder)
CHOICES_OF(gemm)
CHOICES_OF(gemm_softmax)
CHOICES_OF(gemv)
CHOICES_OF(least_squares)
CHOICES_OF(qr)

/* The row that the launches name; it has the same reason. */
#define ROW(family)                                                                                                    \
  const struct family##_choice *row = launches->choice ? family##_choice_called(launches->choice) : NULL;              \
  EXPECT(row && launches->why == row->why)

static bool has_type(uint32_t types, rondo_dtype dtype) { return !types || types & 1u << dtype; }

static void check_attention(const struct subject *s, const struct op_launches *launches) {
  ROW(attention);
  const struct attention_problem problem = attention_problem_of(s->task, s->chip);
  EXPECT(row->chips & launch_chip(s->chip) && has_type(row->q, problem.q) && has_type(row->kv, problem.kv));
  const bool in_two = !strncmp(launches->items[0].kernel, "rondo_attention_append", 22); /* new rows first */
  const uint32_t of_first = in_two ? ATTENTION_WITH_NEW_ROWS | ATTENTION_WITH_ROTATED_Q : 0;
  EXPECT(!(problem.demands & ~row->takes & ~of_first));
  EXPECT(is_in_range(problem.shape.head_dimension, row->dimension) && is_in_range(problem.shape.rows, row->rows));
  EXPECT(is_in_range(problem.shape.query_length, row->query_length));
  EXPECT(is_in_range(problem.shape.capacity, row->capacity));
}

static void check_decoder(const struct subject *s, const struct op_launches *launches) {
  ROW(decoder);
  const struct decoder_shape shape = decoder_shape_of(s->task);
  EXPECT(row->op == s->task->op && is_in_range(shape.rows, row->rows) && is_in_range(shape.hidden, row->hidden));
  EXPECT(is_in_range(shape.head_dimension, row->head_dimension) && is_in_range(shape.group, row->group));
  EXPECT(is_in_range(shape.x_parts, row->x_parts) && is_in_range(shape.out_parts, row->out_parts));
  EXPECT(!row->weights || row->weights == shape.weights);
  if (!row->plan) return;
  EXPECT(launches->count == 1 && shape.stream == RONDO_F32);
  EXPECT(row->one_sequence == shape.one_sequence && row->as_tokens == shape.as_tokens);
}

static void check_gemv_of(const struct subject *s, const struct op_launches *launches) {
  ROW(gemv);
  const struct gemv_shape shape = gemv_shape_of(s->task);
  const rondo_dtype weights = s->task->operands[GEMV_WEIGHTS].dtype;
  const int64_t bytes = shape.batch * shape.m * shape.k * (int64_t)rondo_dtype_bits(weights) / 8;
  EXPECT(row->chips & launch_chip(s->chip) && has_type(row->weights, weights));
  EXPECT(has_type(row->vectors, s->task->operands[GEMV_VECTORS].dtype));
  EXPECT(is_in_range(shape.count, row->count) && is_in_range(shape.k, row->k) && is_in_range(bytes, row->bytes));
  EXPECT(!row->k_multiple || shape.k % row->k_multiple == 0);
}

static void check_gemm(const struct subject *s, const struct op_launches *launches) {
  if (!launches->choice || !gemm_choice_called(launches->choice)) { /* few rows are gemv's */
    check_gemv_of(s, launches);
    return;
  }
  ROW(gemm);
  const struct gemm_problem problem = gemm_problem_of(&s->call, s->chip);
  EXPECT(is_in_range(problem.rows, row->rows) && is_in_range(problem.k, row->k));
  EXPECT(!row->has_order_of_its_own || !problem.one_order);
  EXPECT(!row->needs_maps || (problem.has_maps && s->chip->version == 90));
  if (!row->needs_maps) return;
  const int cluster = row->kernel->parts ? row->kernel->parts : gemm_tile_cluster(row->kernel->tile);
  EXPECT(launches->items[0].grid[0] % (uint32_t)cluster == 0);
}

static void check_gemm_softmax(const struct subject *s, const struct op_launches *launches) {
  ROW(gemm_softmax);
  const struct gemm_softmax_shape shape = gemm_softmax_shape_of(s->task);
  EXPECT(is_in_range(shape.n, row->n) && is_in_range(shape.k, row->k));
  EXPECT(!row->needs_maps || s->chip->version == 90);
}

static void check_least_squares(const struct subject *s, const struct op_launches *launches) { ROW(least_squares); }

static void check_qr(const struct subject *s, const struct op_launches *launches) {
  ROW(qr);
  const struct qr_problem problem = qr_problem_of(&s->call);
  const bool factors = s->task->op == &op_qr || s->task->op == &op_qr_panel;
  EXPECT(row->work == (factors ? QR_FACTORS : QR_APPLIES) && has_type(row->types, problem.dtype));
  EXPECT(is_in_range(problem.m, row->m) && is_in_range(problem.n, row->n));
}

static const struct {
  const struct op *op;
  void (*check)(const struct subject *s, const struct op_launches *launches);
} families[] = {
    {&op_attention, check_attention},
    {&op_attention_block, check_decoder},
    {&op_feed_forward, check_decoder},
    {&op_gemm, check_gemm},
    {&op_gemv, check_gemv_of},
    {&op_gemm_softmax, check_gemm_softmax},
    {&op_gemm_rowmax, check_gemm_softmax},
    {&op_least_squares, check_least_squares},
    {&op_qr, check_qr},
    {&op_qr_panel, check_qr},
    {&op_qr_update, check_qr},
    {&op_qr_apply, check_qr},
};

/* ---- All of it --------------------------------------------------------------------------------------------------- */

/* The launches of the subject's task, which are the same without addresses, with settled operands, and once more. */
static rondo_status planned(const struct subject *s, struct op_launches *launches) {
  static struct op_launches other;
  struct op_call calls[] = {s->call, s->call, s->call};
  launches->count = 0, launches->choice = launches->why = NULL;
  const rondo_status status = s->task->op->select(&s->call, s->chip, launches);
  if (status != RONDO_OK) {
    launches->choice = NULL;
    EXPECT(status == RONDO_UNSUPPORTED && strlen(rondo_error_text()) > 20);
  }
  calls[1].data = op_nowhere, calls[1].scratch = NULL;
  calls[2].settled_operands = UINT32_MAX;
  for (int i = 0; i < 3; i++) {
    other.count = 0, other.choice = other.why = NULL;
    EXPECT(s->task->op->select(&calls[i], s->chip, &other) == status);
    if (status == RONDO_OK) check_same(s, launches, &other);
  }
  return status;
}

static rondo_status check_plan(const struct subject *s) {
  static struct op_launches launches_;
  struct op_launches *launches = &launches_;
  const uint32_t most = s->task->op->launches_most;
  const rondo_status status = planned(s, launches);
  if (status != RONDO_OK) return status;
  EXPECT(launches->count <= (most ? most : 1));
  EXPECT(!launches->choice == !launches->why);
  EXPECT(!launches->choice || (launches->choice[0] && strlen(launches->why) > 10));
  for (uint32_t i = 0; i < launches->count; i++) check_launch(s, launches, &launches->items[i]);
  for (size_t i = 0; launches->count && i < sizeof families / sizeof *families; i++)
    if (families[i].op == s->task->op) families[i].check(s, launches);
  return RONDO_OK;
}

/* On every chip; what a part of a chip takes, the whole takes too. */
static void check_task(const char *kind, const struct op_task *task) {
  static const struct chip chips[][2] = {{{80, 54, 99 << 10}, {80, 108, 163 << 10}},
                                         {{90, 16, 227 << 10}, {90, 132, 227 << 10}},
                                         {{100, 16, 227 << 10}, {100, 148, 227 << 10}}};
  void *data[OP_MAX_OPERANDS] = {0};
  for (uint32_t i = 0; i < task->operand_count; i++)
    if (task->operands[i].present) data[i] = address_of(i + 1);
  struct subject subject = {.kind = kind, .task = task, .call = {.task = task, .data = data, .scratch = address_of(0)}};
  subject.scratch_bytes = task->op->scratch_bytes ? task->op->scratch_bytes(task) : 0;
  for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
    subject.chip = &chips[i][0];
    const rondo_status of_part = check_plan(&subject);
    subject.chip = &chips[i][1];
    const rondo_status of_whole = check_plan(&subject);
    cr_assert(of_part != RONDO_OK || of_whole == RONDO_OK, "%s: sm_%d takes it on a part alone: %s", kind,
              subject.chip->version, rondo_error_text());
  }
}

/* All operations of the table have tasks here, but for those that no public function adds alone or that need ranks. */
static bool is_left_out(const struct op *op) {
  static const char *const names[] = {"summed_gemv", "transfer", "join", "attention_new_rows", "attention_rows"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(op->name, names[i])) return true;
  return op->waits_for_others && !op->waits_with;
}

Test(planners, every_plan_is_one_that_its_chip_can_run_and_the_same_each_time) {
  const uint32_t rounds = rounds_here(TASKS_OF_A_KIND);
  bool has_task[64] = {0};
  for (size_t kind = 0; kind < random_task_count; kind++) {
    struct random random = {.state = 1 + kind};
    uint32_t added = 0;
    for (uint32_t i = 0; i < rounds; i++) {
      rondo_graph *graph = NULL;
      REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
      if (random_tasks[kind].add(graph, &random) == RONDO_OK) added++;
      for (uint32_t t = 0; t < graph->task_count; t++) {
        struct op_operand operands[OP_MAX_OPERANDS];
        const struct op_task task = graph_op_task(graph, &graph->tasks[t], operands);
        for (uint32_t o = 0; op_table[o]; o++) has_task[o] |= op_table[o] == task.op;
        check_task(random_tasks[kind].name, &task);
      }
      REQUIRE_OK(rondo_graph_destroy(&graph));
    }
    cr_expect_gt(added, rounds / 2, "%s: %u of %u are accepted: %s", random_tasks[kind].name, added, rounds,
                 rondo_error_text());
  }
  for (uint32_t o = 0; op_table[o]; o++)
    cr_expect(has_task[o] || is_left_out(op_table[o]), "no task of %s", op_table[o]->name);
  if (rounds < TASKS_OF_A_KIND) return; /* fewer tasks come to fewer choices */
  attention_check_seen(), decoder_check_seen(), gemm_check_seen(), gemm_softmax_check_seen();
  gemv_check_seen(), least_squares_check_seen(), qr_check_seen();
}
