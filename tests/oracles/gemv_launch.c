/* gemv_launch.c - see gemv_launch.h. */
#include "gemv_launch.h"

#include <criterion/criterion.h>

#include "../../runtime/graph.h"
#include "../../runtime/plan.h"

struct op_launch selected_launch(struct trial *trial, bool written) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_launches launches;
  struct op_task task = graph_op_task(trial->graph, &trial->graph->tasks[0], operands);
  struct op_call call = {.task = &task, .data = op_nowhere};
  if (!written) call.settled_operands = 1 << GEMV_WEIGHTS | 1 << GEMV_WEIGHT_SCALES;
  REQUIRE_OK(task.op->select(&call, &(struct chip){90, 132, 232448}, &launches));
  cr_assert_eq(launches.count, 1);
  trial_end(trial);
  return launches.items[0];
}

static rondo_tensor columns_of(rondo_graph *graph, bool written, const char *name, rondo_dtype dtype, int64_t rows,
                               int64_t columns, int64_t gap) {
  rondo_tensor whole, view;
  int64_t shape[] = {rows, columns + gap}, zero[] = {0, 0}, extent[] = {rows, columns};
  REQUIRE_OK((written ? rondo_input : rondo_constant)(graph, name, dtype, 2, shape, &whole));
  if (!gap) return whole;
  REQUIRE_OK(rondo_view(graph, whole, zero, extent, &view));
  return view;
}

struct op_launch launch_of(struct described what) {
  struct trial trial;
  const int64_t m = what.m ? what.m : 7168, k = what.k ? what.k : 16384, count = what.count ? what.count : 1;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_gemv_desc desc = {.weight_scale_layout = what.layout,
                          .norm_epsilon = what.norm_epsilon,
                          .one_order = what.one_order,
                          .silu_mul = what.silu_mul};
  desc.weights = columns_of(trial.graph, what.written, "weights", RONDO_NVFP4, m, k, what.gap);
  desc.weight_scales = columns_of(trial.graph, what.written, "scales", RONDO_E4M3, m, k / 16, what.gap / 16);
  desc.vectors = columns_of(trial.graph, true, "vectors", what.vectors, count, k, 0);
  if (what.vectors == RONDO_NVFP4)
    desc.vector_scales = columns_of(trial.graph, true, "vector scales", RONDO_E4M3, count, k / 16, 0);
  REQUIRE_OK(rondo_output(trial.graph, "y", RONDO_F32, 2, (int64_t[]){count, what.silu_mul ? m / 2 : m}, &desc.out));
  REQUIRE_OK(rondo_add_gemv(trial.graph, &desc));
  return selected_launch(&trial, what.written);
}
