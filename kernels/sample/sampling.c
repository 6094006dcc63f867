/* sampling.c - rondo_add_sample and the check of its arguments. */
#include "sampling.h"

#include <inttypes.h>

#include "../common/rows.h"
#include "sample_number.h"
#include "setting.h"

rondo_status rondo_add_sample(rondo_graph *graph, const rondo_sample_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_sample: the description is NULL");
  struct op_argument arguments[] = {
      [SAMPLE_X] = {"x", desc->x, RONDO_READ, 0},
      [SAMPLE_OUT] = {"out", desc->out, RONDO_WRITE, 0},
      [SAMPLE_TEMPERATURE] = {"temperature", desc->temperature, RONDO_READ, 0},
      [SAMPLE_TOP_K] = {"top_k", desc->top_k, RONDO_READ, 0},
      [SAMPLE_TOP_P] = {"top_p", desc->top_p, RONDO_READ, 0},
      [SAMPLE_SEED] = {"seed", desc->seed, RONDO_READ, 0},
      [SAMPLE_STEP] = {"step", desc->step, RONDO_READ, 0},
  };
  return graph_add(graph, &op_sample, desc->name, arguments, SAMPLE_OPERANDS, NULL, 0);
}

rondo_status sample_check(const struct op_task *task) {
  const struct op_operand *x = &task->operands[SAMPLE_X];
  static const struct {
    uint32_t index;
    const char *name;
    rondo_dtype dtype;
    bool optional;
  } settings[] = {{SAMPLE_TEMPERATURE, "temperature", RONDO_F32, true},
                  {SAMPLE_TOP_K, "top_k", RONDO_I32, true},
                  {SAMPLE_TOP_P, "top_p", RONDO_F32, true},
                  {SAMPLE_SEED, "seed", RONDO_I32, false},
                  {SAMPLE_STEP, "step", RONDO_I32, false}};
  if (!x->present || x->rank != 2 || !rows_are_numbers(x->dtype))
    return op_unexpected("x", x, "[count, n] f32, f16 or bf16");
  if (x->shape[1] < 1 || x->shape[1] > SAMPLE_MOST_COLUMNS)
    return status_set(RONDO_INVALID_ARGUMENT, "x has rows of %" PRId64 ", expected 1 to %d", x->shape[1],
                      SAMPLE_MOST_COLUMNS);
  rondo_status status = op_expect("out", &task->operands[SAMPLE_OUT], RONDO_I32, 1, x->shape);
  for (size_t i = 0; status == RONDO_OK && i < sizeof settings / sizeof *settings; i++)
    if (!settings[i].optional || task->operands[settings[i].index].present)
      status = setting_check(task, settings[i].index, settings[i].name, settings[i].dtype, x->shape[0]);
  return status;
}
