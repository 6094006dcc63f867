/* fuzz_builder.c - any bytes as a program of calls: a graph is described with arguments right and wrong, planned, run
 * on the host backend, its slots are misused, everything is closed. What must hold whatever the bytes are:
 *   - a failed call has a sentence of its own and changes nothing; a call that succeeds has none
 *   - a graph whose plan fits in the pools can be instantiated
 *   - inputs and constants stay as they were; outputs and states are the same bits on each replay and in each slot
 *   - sharing bytes changes no result: the same program with states for temporaries, which share none, gives those bits
 *   - what borrows from it runs beside it, and keeps it open
 *   - after closing, the pools are empty */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/graph.h"
#include "fuzz_run.h"
#include "fuzz_tasks.h"

enum { MAX_STEPS = 32 };

static rondo_graph *foreign; /* never the one being built */

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static void call_after(struct build *b) {
  uint32_t task = next(b), before = next(b);
  if (b->task_count && task < 240) task %= b->task_count;
  if (b->task_count && before < 240) before %= b->task_count;
  if (CALL(rondo_after(b->graph, task, before))) {
    require(task < b->task_count && before < b->task_count && task != before, "an edge to no task");
    require(!CALL(rondo_after(b->graph, before, task)), "a cycle was closed");
  }
  check_counts(b);
}

static void call_report(struct build *b) {
  static const int32_t chips[] = {0, 80, 90, 100, 89, -1};
  uint32_t which = below(b, 5), choice = next(b);
  if (b->shadow || b->report_count++ == 2) return; /* planning takes most of the time */
  rondo_plan plan;
  switch (which) {
  case 0:
    CALL(rondo_write_dot(b->graph, "/dev/null"));
    break;
  case 1:
    CALL(rondo_write_plan_svg(b->graph, "/dev/null"));
    break;
  case 2:
    CALL(rondo_explain(b->graph, chips[choice % 6], "/dev/null"));
    break;
  case 3:
    require(!CALL(rondo_write_dot(b->graph, choice & 1 ? NULL : "/nonexistent/file")), "a file was written nowhere");
    require(!CALL(rondo_plan_graph(choice & 2 ? b->graph : NULL, NULL)), "NULL was accepted");
    break;
  default:
    if (CALL(rondo_plan_graph(b->graph, &plan)))
      require(plan.lower_bound_bytes <= plan.temporary_bytes && plan.temporary_bytes <= plan.unshared_bytes &&
                  plan.task_count == b->task_count,
              "the plan's sums");
  }
}

static void call_null(struct build *b) {
  uint32_t first = next(b), which = below(b, 16) + (first & 128 ? 16 : 0);
  rondo_graph *graph = first & 1 ? b->graph : NULL;
  rondo_status status = RONDO_OK;
  mark();
  switch (which) {
  case 0:
    status = rondo_add_qr(graph, NULL);
    break;
  case 1:
    status = rondo_add_qr_panel(graph, NULL);
    break;
  case 2:
    status = rondo_add_qr_update(graph, NULL);
    break;
  case 3:
    status = rondo_add_qr_apply(graph, NULL);
    break;
  case 4:
    status = rondo_add_triangular_inverse(graph, NULL);
    break;
  case 5:
    status = rondo_add_gemm_rowmax(graph, NULL);
    break;
  case 6:
    status = rondo_add_gemm_softmax(graph, NULL);
    break;
  case 7:
    status = rondo_add_attention(graph, NULL);
    break;
  case 8:
    status = rondo_add_gemv(graph, NULL);
    break;
  case 9:
    status = rondo_add_quantize_nvfp4(graph, NULL);
    break;
  case 10:
    status = rondo_add_copy(graph, NULL);
    break;
  case 11:
    status = rondo_add_kernel(graph, NULL);
    break;
  case 12:
    status = rondo_add_capture(graph, NULL, user_capture);
    break;
  case 13:
    status = rondo_add_append(graph, NULL);
    break;
  case 14:
    status = rondo_add_least_squares(graph, NULL);
    break;
  case 16:
    status = rondo_add_embed(graph, NULL);
    break;
  case 17:
    status = rondo_add_rms_norm(graph, NULL);
    break;
  case 18:
    status = rondo_add_rope(graph, NULL);
    break;
  case 19:
    status = rondo_add_silu_mul(graph, NULL);
    break;
  case 20:
    status = rondo_add_add(graph, NULL);
    break;
  case 21:
    status = rondo_add_argmax(graph, NULL);
    break;
  case 22:
    status = rondo_add_sample(graph, NULL);
    break;
  case 23:
    status = rondo_add_attention_block(graph, NULL);
    break;
  case 24:
    status = rondo_add_feed_forward(graph, NULL);
    break;
  case 25:
    status = rondo_graph_llama(graph, NULL, NULL);
    break;
  case 26:
    status = rondo_add_penalty(graph, NULL);
    break;
  case 27:
    status = rondo_add_prompt_lookup(graph, NULL);
    break;
  case 28:
    status = rondo_add_quantize_e4m3(graph, NULL);
    break;
  default:
    status = rondo_last_task(graph, NULL);
    break;
  }
  require(!judge(status, "a call with NULL"), "NULL was accepted");
  check_counts(b);
}

/* A model's parts only where the flags ask for them: what was found before there were any stays what it was. */
static void build(struct build *b, bool with_models) {
  enum { STEPS = 31, PARTS = 10 };
  static void (*const steps[STEPS])(struct build *) = {add_tensor,        add_view,
                                                       add_copy,          add_user,
                                                       add_user,          add_qr,
                                                       add_qr_part,       add_triangular_inverse,
                                                       add_gemm_softmax,  add_gemv,
                                                       add_quantize,      add_attention,
                                                       add_ready_made,    call_after,
                                                       call_report,       call_null,
                                                       add_copy,          add_view,
                                                       add_tensor,        add_view,
                                                       add_reshape,       add_append,
                                                       add_user,          add_qr,
                                                       add_qr_part,       add_triangular_inverse,
                                                       add_reshape,       add_append,
                                                       add_least_squares, add_attention,
                                                       add_ready_made};
  static void (*const parts[PARTS])(struct build *) = {
      add_embed,  add_rms_norm,        add_rope,         add_elementwise,      add_argmax,
      add_sample, add_attention_block, add_feed_forward, add_attention_append, add_llama};
  for (int step = 0; step < MAX_STEPS && b->at < b->end; step++) {
    uint32_t choice = next(b), which = choice % 32;
    if (with_models && choice & 32) {
      void (*const part)(struct build *) = which == 31   ? add_penalty
                                           : which == 30 ? add_prompt_lookup
                                           : which == 29 ? add_quantize_e4m3
                                                         : parts[which % PARTS];
      part(b);
      continue;
    }
    if (which == STEPS) break;
    steps[which](b);
  }
}

/* ---- One input --------------------------------------------------------------------------------------------------- */

/* Another graph, over constants and states of the one that was built, whose exec is open or NULL. */
static void lend(const struct build *b, rondo_exec *exec, const struct filler *filler) {
  static struct build borrower;
  rondo_graph_limits limits = {.tensors = MAX_TENSORS, .tasks = MAX_TASKS};
  rondo_exec *borrowing = NULL, *lending = exec;
  if (!b->llama.is_there) return;
  memset(&borrower, 0, sizeof borrower);
  borrower.exact = true, borrower.lender = b, borrower.lender_exec = exec;
  require(CALL(rondo_graph_create(NULL, &limits, &borrower.graph)), "no graph");
  borrower.serial = borrower.graph->serial;
  add_borrower(&borrower);
  if (borrower.task_count && instantiate_borrower(&borrower, &borrowing)) {
    run(&borrower, borrowing, 1, filler);
    require(!CALL(rondo_close_exec(&lending)) && lending == exec, "a lender was closed");
    require(CALL(rondo_close_exec(&borrowing)) && !borrowing, "an exec was not closed");
  }
  require(CALL(rondo_graph_destroy(&borrower.graph)) && !borrower.graph, "a graph was not destroyed");
}

/* Builds and runs the program; size of the results in snapshots[0], or -1 if it did not run or is not determined. */
static int64_t perform(struct build *b, const uint8_t *data, size_t size, bool shadow) {
  b->at = data, b->end = data + size;
  b->graph = NULL, b->shadow = shadow, b->exact = true, b->huge = b->no_host = false;
  b->tensor_count = b->task_count = b->user_count = b->report_count = 0;
  b->lender = NULL, b->llama = (struct llama){0};
  memset(b->records, 0, sizeof b->records);
  uint32_t flags = next(b);
  struct filler filler = {data, size, flags & 1};
  uint32_t slot_count = 1 + (flags >> 1 & 1);
  rondo_graph_limits limits = {.tensors = flags >> 2 & 1 ? MAX_TENSORS : 24, .tasks = flags >> 3 & 1 ? MAX_TASKS : 6};
  require(CALL(rondo_graph_create(flags & 16 ? runtime : NULL, &limits, &b->graph)), "no graph");
  b->serial = b->graph->serial;
  rondo_graph *stale = NULL;
  require(CALL(rondo_graph_create(runtime, &limits, &stale)), "no graph");
  require(CALL(rondo_input(stale, NULL, RONDO_F32, 1, (int64_t[]){1}, &stale_tensor)), "no tensor");
  require(CALL(rondo_graph_destroy(&stale)) && !stale, "a graph was not destroyed");
  build(b, flags >> 6 == 2);
  rondo_exec *exec = NULL;
  int64_t used = -1;
  bool is_ready = instantiate(b, slot_count, &exec);
  if (!shadow && is_ready) misuse(b, exec, slot_count);
  if (!shadow) lend(b, exec, &filler);
  if (is_ready) {
    used = (int64_t)run(b, exec, slot_count, &filler);
    rondo_slot held = {0};
    require(CALL(rondo_acquire(exec, &held)) && CALL(rondo_replay(held)), "a last replay");
    require(CALL(rondo_close_exec(&exec)) && !exec, "an exec was not closed");
    require(!CALL(rondo_wait(held, 0)), "a slot of a closed exec");
    require(CALL(rondo_close_exec(&exec)), "closing twice");
  }
  require(CALL(rondo_graph_destroy(&b->graph)) && !b->graph, "a graph was not destroyed");
  check_pools(true);
  return b->exact ? used : -1;
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argument_count, char ***arguments) {
  (void)argument_count, (void)arguments;
  trace = getenv("FUZZ_TRACE") != NULL;
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = DEVICE_BYTES,
                           .pinned_bytes = PINNED_BYTES,
                           .host_bytes = HOST_BYTES,
                           .host_threads = 2,
                           .wait_mode = RONDO_WAIT_BLOCK};
  require(rondo_open(&options, &runtime) == RONDO_OK, "no runtime");
  require(rondo_graph_create(NULL, NULL, &foreign) == RONDO_OK, "no graph");
  require(rondo_input(foreign, "foreign", RONDO_F32, 2, (int64_t[]){4, 4}, &foreign_tensor) == RONDO_OK, "no tensor");
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct build b;
  static uint8_t results[SNAPSHOT_BYTES];
  int64_t used = perform(&b, data, size, false);
  if (used <= 0) return 0;
  memcpy(results, snapshots[0], (size_t)used);
  int64_t unshared = perform(&b, data, size, true); /* may not fit in the pools */
  require(unshared < 0 || (unshared == used && memcmp(results, snapshots[0], (size_t)used) == 0),
          "without shared bytes the results are others");
  return 0;
}
