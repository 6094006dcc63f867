/* test_decoder_early.c - layer halves use the values that were written last, although their kernels start before their
 * predecessors have ended and read settled operands early (runtime/op.h). Before the half stands a task that keeps one
 * block busy, then tasks that write some of its operands. Replays take two sets of values in turn, checked once
 * against fp64 and then for the same bits. Faults that would show: a kernel that reads an operand before its writer
 * has ended, and so finds the values of the replay before. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/decoder/attention_block.h"
#include "../../kernels/decoder/decoder.h"
#include "../../kernels/decoder/feed_forward_known.h"
#include "../../kernels/decoder/feed_forward_stream.h"
#include "../../runtime/exec.h"
#include "../oracles/decoder_run.h"

enum { SETS = 2, LONG_ROW = 1 << 18 };

/* What tasks before the half write; the rest has been there since before the replay. */
enum { NOTHING = 0, MATRICES = 1, NORM = 2, CONTEXT = 4, POSITION = 8, ALL = 15 };

static int replays_on(rondo_backend backend) { return backend == RONDO_BACKEND_HOST ? 4 : 40; }

/* ---- The graph --------------------------------------------------------------------------------------------------- */

/* Of the half's tensors, one that is a state: what it is written by, and where its values lie. */
struct source {
  int kind;
  rondo_tensor to, from; /* from: the input that a task copies, or `to` where none does */
  const void *data[SETS];
};

enum { SOURCES = 8 };

struct early {
  struct trial trial;
  struct half sets[SETS]; /* the same tensors, other values */
  struct source sources[SOURCES];
  rondo_task last;
};

static void follow(struct early *early) {
  rondo_task task;
  REQUIRE_OK(rondo_last_task(early->trial.graph, &task));
  REQUIRE_OK(rondo_after(early->trial.graph, task, early->last));
  early->last = task;
}

static void keep_busy(struct early *early) {
  rondo_tensor row, out;
  REQUIRE_OK(rondo_state(early->trial.graph, "row", RONDO_F32, 1, (int64_t[]){LONG_ROW}, &row));
  REQUIRE_OK(rondo_state(early->trial.graph, "normalised", RONDO_F32, 1, (int64_t[]){LONG_ROW}, &out));
  REQUIRE_OK(rondo_add_rms_norm(early->trial.graph, &(rondo_rms_norm_desc){.x = row, .out = out, .epsilon = 1}));
  REQUIRE_OK(rondo_last_task(early->trial.graph, &early->last));
}

static void write_in_front(struct early *early, struct source *source, rondo_dtype dtype, int64_t rows,
                           int64_t columns) {
  const int64_t shape[] = {rows, columns};
  rondo_tensor seen;
  REQUIRE_OK(rondo_input(early->trial.graph, "written", dtype, 2, shape, &source->from));
  REQUIRE_OK(rondo_reshape(early->trial.graph, source->to, 2, shape, &seen));
  REQUIRE_OK(rondo_add_copy(early->trial.graph, &(rondo_copy_desc){.src = source->from, .dst = seen}));
  follow(early);
}

static void early_describe(struct early *early, rondo_backend backend, const struct half *h, int written) {
  *early = (struct early){.sets = {*h}};
  struct half *half = &early->sets[0];
  half->states = half->state_position = true;
  trial_describe(&early->trial, backend);
  half_tensors_add(early->trial.graph, half, NULL);
  keep_busy(early);
  const struct {
    int kind;
    const struct grid *grid;
  } grids[SOURCES - 1] = {{MATRICES, &half->first},
                          {MATRICES, &half->last},
                          {MATRICES, &half->first_scales},
                          {MATRICES, &half->last_scales},
                          {NORM, &half->norm},
                          {CONTEXT, &half->k},
                          {CONTEXT, &half->v}};
  for (int i = 0; i < SOURCES - 1; i++) {
    struct source *source = &early->sources[i];
    const struct grid *grid = grids[i].grid;
    *source = (struct source){.kind = grids[i].kind, .to = grid->whole, .from = grid->whole};
    if (grid->data && grids[i].kind & written) write_in_front(early, source, grid->dtype, grid->rows, grid->pitch);
  }
  struct source *position = &early->sources[SOURCES - 1];
  *position = (struct source){.kind = POSITION, .to = half->position, .from = half->position};
  if (half->attention && written & POSITION) write_in_front(early, position, RONDO_I32, 1, half->rows);
  half_task_add(early->trial.graph, half);
  follow(early);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static void *another(const struct grid *grid) { return grid->data ? malloc(grid_bytes(grid) + 1) : NULL; }

static void sets_fill(struct early *early, uint64_t seed) {
  early->sets[1] = early->sets[0];
  struct half *other = &early->sets[1];
  struct grid *grids[] = {&other->x,       &other->parts,       &other->norm, &other->first, &other->first_scales,
                          &other->last,    &other->last_scales, &other->k,    &other->v,     &other->out,
                          &other->out_sums};
  for (size_t i = 0; i < COUNT(grids); i++) grids[i]->data = another(grids[i]);
  for (int set = 0; set < SETS; set++) {
    struct half *h = &early->sets[set];
    struct random random = {seed + (uint64_t)set};
    if (h->attention) *h = at_positions(*h, seed + (uint64_t)set);
    half_fill(h, &random, true);
    const void *data[SOURCES] = {h->first.data, h->last.data, h->first_scales.data, h->last_scales.data,
                                 h->norm.data,  h->k_before,  h->v_before,          h->positions};
    for (int i = 0; i < SOURCES; i++) early->sources[i].data[set] = data[i];
  }
}

static void set_values(struct early *early, int set) {
  const struct half *h = &early->sets[set];
  trial_set(&early->trial, h->x.whole, h->x.data);
  if (h->x_parts) trial_set(&early->trial, h->parts.whole, h->parts.data);
  for (int i = 0; i < SOURCES; i++) {
    const struct source *source = &early->sources[i];
    if (source->from.graph) trial_set(&early->trial, source->from, source->data[set]);
  }
}

/* What the launch says of weights, and of K, V and the position. */
static void early_of(const struct op_launch *launch, bool *weights, bool *context) {
  const void *told = launch->parameters;
  *context = false;
  *weights = ((const struct layer_half_parameters *)told)->early;
  if (strstr(launch->kernel, "attention")) *context = ((const struct attention_block_parameters *)told)->early_context;
}

/* In this graph as it is instantiated: else there would be nothing to wait for. */
static void check_early(const struct early *early, const struct half *h, int written, const char *what) {
  const rondo_exec *exec = early->trial.exec;
  for (uint32_t n = 0; n < exec->program.node_count; n++) {
    const struct op_call *call = &exec->program.nodes[n].call;
    struct op_launches launches;
    bool weights, context;
    if (exec->program.nodes[n].user_work ||
        (call->task->op != &op_attention_block && call->task->op != &op_feed_forward))
      continue;
    REQUIRE_OK(call->task->op->select(call, &(struct chip){90, 132, 232448}, &launches));
    early_of(&launches.items[0], &weights, &context);
    cr_assert_eq(weights, !(written & (MATRICES | NORM)), "%s", what);
    cr_assert_eq(context, h->attention && !(written & (CONTEXT | POSITION)), "%s", what);
    return;
  }
  cr_assert_fail("%s: not in the graph", what);
}

static void early_run(rondo_backend backend, const struct half *h, int written, uint64_t seed) {
  static struct early early;
  char what[200], text[240];
  void *first[SETS][2];
  early_describe(&early, backend, h, written);
  half_describe(&early.sets[0], what);
  snprintf(text, sizeof text, "%s, written %d", what, written);
  half_check_launches(early.trial.graph, early.trial.graph->task_count - 1, &early.sets[0], text);
  trial_instantiate(&early.trial);
  check_early(&early, h, written, text);
  sets_fill(&early, seed);
  for (int replay = 0; replay < replays_on(backend); replay++) {
    const int set = replay % SETS;
    struct half *now = &early.sets[set];
    const struct grid *results[] = {&now->out, &now->out_sums};
    set_values(&early, set);
    trial_replay(&early.trial);
    half_get(now, &early.trial);
    if (replay < SETS) half_check(now, text);
    for (int i = 0; i < 2; i++) {
      const size_t bytes = grid_bytes(results[i]);
      if (replay < SETS) first[set][i] = memcpy(malloc(bytes), results[i]->data, bytes);
      cr_assert(!memcmp(first[set][i], results[i]->data, bytes), "%s: other bits in replay %d", text, replay);
    }
  }
  trial_end(&early.trial);
  for (int set = 0; set < SETS; set++) half_free(&early.sets[set], true), free(first[set][0]), free(first[set][1]);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

static const struct half attention_halves[] = {
    {.rows = 1, .hidden = 256, .query_heads = 3, .kv_heads = 1, .dimension = 64, .out_parts = 1},
    {.rows = 1, .hidden = 128, .query_heads = 4, .kv_heads = 2, .dimension = 128, .out_parts = 2},
    {.rows = 1, .hidden = 2048, .query_heads = 4, .kv_heads = 1, .dimension = 64, .out_parts = 2},
    {.rows = 11, .hidden = 256, .query_heads = 6, .kv_heads = 2, .dimension = 64, .out_parts = 2},
};
static const struct half feed_forward_halves[] = {
    {.rows = 1, .hidden = 576, .columns = 1536, .out_parts = 8},
    {.rows = 6, .hidden = 576, .columns = 1536, .out_parts = 8},
    {.rows = 11, .hidden = 576, .columns = 1536, .out_parts = 8},
    {.rows = 2, .hidden = 256, .columns = 512, .out_parts = 4},
    {.rows = 7, .hidden = 256, .columns = 512, .out_parts = 4},
    {.rows = 1, .hidden = 512, .columns = 640, .out_parts = 3},
};

static struct half early_half(struct half h, bool attention, size_t type) {
  h = with_types(h, type, h.rows, attention);
  h.x_parts = 3, h.capacity = 150;
  if (attention) h.base = 10000.0f;
  return h;
}

static void attention_blocks(rondo_backend backend) {
  skip_under_sanitizers();
  static const int written[] = {NOTHING, MATRICES, NORM, CONTEXT, POSITION, MATRICES | NORM, CONTEXT | POSITION, ALL};
  for (size_t i = 0; i < 2 * COUNT(attention_halves) * COUNT(written); i++) {
    const size_t shape = i / 2 % COUNT(attention_halves);
    const struct half h = early_half(attention_halves[shape], true, i % 2 ? IN_NVFP4 : IN_BF16);
    early_run(backend, &h, written[i / 2 / COUNT(attention_halves)], 2 * i);
  }
}
BOTH_BACKENDS(early, an_attention_block_follows_the_tasks_that_write_for_it, attention_blocks)

static void feed_forwards(rondo_backend backend) {
  skip_under_sanitizers();
  static const int written[] = {NOTHING, MATRICES, NORM, MATRICES | NORM};
  for (size_t i = 0; i < 2 * COUNT(feed_forward_halves) * COUNT(written); i++) {
    const size_t shape = i / 2 % COUNT(feed_forward_halves);
    const struct half h = early_half(feed_forward_halves[shape], false, i % 2 ? IN_NVFP4 : IN_BF16);
    early_run(backend, &h, written[i / 2 / COUNT(feed_forward_halves)], 2 * i);
  }
}
BOTH_BACKENDS(early, a_feed_forward_follows_the_tasks_that_write_for_it, feed_forwards)

/* ---- What kernels are told --------------------------------------------------------------------------------------- */

/* Every operand that is not settled, one at a time: those of the list that it belongs to are not read early. */
static void require_early(const struct half *h, uint32_t of_weights, uint32_t of_context) {
  struct trial trial;
  struct half described = *h;
  struct op_operand operands[OP_MAX_OPERANDS];
  trial_describe(&trial, RONDO_BACKEND_HOST);
  half_add(trial.graph, &described, NULL);
  half_check_launches(trial.graph, 0, &described, "told");
  struct op_task task = graph_op_task(trial.graph, &trial.graph->tasks[0], operands);
  for (uint32_t i = 0; i <= task.operand_count; i++) {
    struct op_launches launches;
    const uint32_t missing = i < task.operand_count && operands[i].present ? 1u << i : 0;
    bool weights, context;
    const struct op_call call = {.task = &task, .data = op_nowhere, .settled_operands = ~missing};
    REQUIRE_OK(task.op->select(&call, &(struct chip){90, 132, 232448}, &launches));
    early_of(&launches.items[0], &weights, &context);
    cr_assert_eq(weights, !(of_weights & missing), "%s: operand %d", launches.items[0].kernel, (int)i);
    if (h->attention)
      cr_assert_eq(context, !(of_context & missing), "%s: operand %d", launches.items[0].kernel, (int)i);
  }
  trial_end(&trial);
  half_free(&described, true);
}

Test(early, halves_read_nothing_early_that_an_earlier_task_writes) {
  const uint32_t of_attention = 1u << DECODER_NORM | 1u << ATTENTION_BLOCK_QKV | 1u << ATTENTION_BLOCK_QKV_SCALES |
                                1u << ATTENTION_BLOCK_OUTPUT | 1u << ATTENTION_BLOCK_OUTPUT_SCALES,
                 of_context = 1u << ATTENTION_BLOCK_K | 1u << ATTENTION_BLOCK_V | 1u << ATTENTION_BLOCK_POSITION,
                 of_feed_forward = 1u << DECODER_NORM | 1u << FEED_FORWARD_GATE_UP | 1u << FEED_FORWARD_GATE_UP_SCALES |
                                   1u << FEED_FORWARD_DOWN | 1u << FEED_FORWARD_DOWN_SCALES;
  for (size_t type = IN_BF16; type <= IN_NVFP4; type += IN_NVFP4 - IN_BF16) {
    for (size_t i = 0; i < COUNT(attention_halves); i++) {
      const struct half h = early_half(attention_halves[i], true, type);
      require_early(&h, of_attention, of_context);
    }
    for (size_t i = 0; i < COUNT(feed_forward_halves); i++) {
      const struct half h = early_half(feed_forward_halves[i], false, type);
      require_early(&h, of_feed_forward, 0);
    }
  }
}
