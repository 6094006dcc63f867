/* test_fault.c - a task that waits for another rank in vain: it says so, and the device is lost with that as the cause.
 */
#include <criterion/criterion.h>

#include "../../runtime/fault.h"
#include "../../runtime/op.h"
#include "../support.h"

static atomic_int runs;

/* Rank 1 has not come once the task's operand is not zero. */
static void wait_for_rank_1(const struct op_call *call, int64_t first, int64_t last) {
  (void)first, (void)last;
  runs++;
  if (*(const int32_t *)call->data[0]) atomic_store(call->fault, fault_word(call->fault_number, 1));
}

static const struct op waiting = {.name = "waiting",
                                  .waits_for_others = true,
                                  .check = accept_any_task,
                                  .host_items = one_item,
                                  .host_run = wait_for_rank_1};

struct setup {
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_tensor gone, seen;
  rondo_slot slot;
};

static struct setup setup_begin(void) {
  struct setup s;
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 16, .pinned_bytes = 1 << 16}, &s.runtime));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s.graph));
  REQUIRE_OK(rondo_input(s.graph, "gone", RONDO_I32, 1, (int64_t[]){1}, &s.gone));
  REQUIRE_OK(rondo_output(s.graph, "seen", RONDO_I32, 1, (int64_t[]){1}, &s.seen));
  const struct op_argument argument = {.name = "gone", .tensor = s.gone, .access = RONDO_READ};
  REQUIRE_OK(graph_add(s.graph, &waiting, "sum of parts", &argument, 1, NULL, 0));
  REQUIRE_OK(rondo_add_copy(s.graph, &(rondo_copy_desc){.src = s.gone, .dst = s.seen}));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
  REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
  return s;
}

static void setup_end(struct setup *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_close(&s->runtime));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
}

Test(fault, names_the_task_and_the_rank_for_ever) {
  static const char cause[] = "task 'sum of parts': rank 1 did not come in time";
  struct setup s = setup_begin();
  REQUIRE_OK(rondo_replay(s.slot));
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  *(int32_t *)rondo_data(s.slot, s.gone) = 1;
  REQUIRE_OK(rondo_replay(s.slot));
  REQUIRE_ERROR(rondo_wait(s.slot, RONDO_FOREVER), RONDO_DEVICE_LOST, cause);
  cr_assert_eq(*(const int32_t *)rondo_data(s.slot, s.seen), 0, "no task runs after it");
  REQUIRE_ERROR(rondo_runtime_health(s.runtime), RONDO_DEVICE_LOST, cause);
  REQUIRE_ERROR(rondo_replay(s.slot), RONDO_DEVICE_LOST, cause);
  setup_end(&s);
}

Test(fault, a_task_that_waits_has_no_warm_up_and_no_profile) {
  struct setup s = setup_begin();
  rondo_task_profile tasks[3];
  rondo_profile_totals totals;
  rondo_exec_usage usage;
  cr_assert_eq(runs, 0);
  REQUIRE_OK(rondo_exec_info(s.exec, &usage));
  REQUIRE_ERROR(rondo_profile(s.slot, NULL, tasks, usage.node_count, &totals), RONDO_UNSUPPORTED,
                "rondo_profile: task 'sum of parts' waits for other ranks");
  REQUIRE_OK(rondo_replay(s.slot));
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  cr_assert_eq(runs, 1);
  setup_end(&s);
}
