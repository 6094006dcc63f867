/* repeat_body.c - how many steps of a repeat the body of its loop has (cuda/cuda_repeat.c). An iteration of the loop
 * takes microseconds, so a body of several steps is faster. But kernels cannot be left out: if a stop ends the repeat
 * within the body, the body's other steps run too. They are the last step again, and must change nothing. So it is if
 * each state that a step writes is
 *
 *   - kept: small, and before the same step again the device gives it the content that it had before that step,
 *   - or touched by one operand alone, of an operation that leaves it as it is then (again_operands in op.h).
 *
 * Inputs and constants stay, and each element of outputs and temporaries is written before it is read. Nobody knows
 * what the user's own kernels change, and a task that waits for other ranks has to run as often there. */
#include "repeat_body.h"

#include "traffic.h"

enum { BODY_STEPS = 8, BODY_NODES = 1024 /* the most of all steps: the driver takes memory and time for each */ };

/* The most bytes of a step, as long as the last one may be done again in vain: some hundred microseconds. */
static const uint64_t step_bytes_most = UINT64_C(1) << 30;

static void operands_count(rondo_exec *exec) {
  for (uint32_t n = 0; n < exec->program.node_count; n++)
    for (uint32_t i = 0; i < exec->program.tasks[n].operand_count; i++) {
      const struct operand_source source = sources_of(exec, n)[i];
      if (source.tensor != NO_TENSOR) exec->tensors[source.tensor].touching_operands++;
    }
}

static void states_keep(rondo_exec *exec) {
  uint32_t count = 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < exec->tensor_count && count < REPEAT_KEPT; i++) {
    struct exec_tensor *tensor = &exec->tensors[i];
    if (tensor->root != i || tensor->kind != TENSOR_STATE || !(tensor->access & RONDO_WRITE)) continue;
    if (tensor->bytes % sizeof(uint32_t) || tensor->bytes > REPEAT_KEPT_WORDS * sizeof(uint32_t) - bytes) continue;
    bytes += tensor->bytes;
    count++;
    tensor->is_kept = true;
  }
}

void repeat_body_keep(const rondo_exec *exec, struct repeat_kept *kept) {
  uint32_t count = 0;
  for (uint32_t i = 0; exec->body_steps > 1 && i < exec->tensor_count; i++) {
    const struct exec_tensor *tensor = &exec->tensors[i];
    if (tensor->is_kept)
      kept[count++] = (struct repeat_kept){(void *)tensor->device_memory, (uint32_t)(tensor->bytes / sizeof(uint32_t))};
  }
}

/* Of one task. */
static bool is_the_same_again(const rondo_exec *exec, uint32_t node) {
  const struct op_task *task = &exec->program.tasks[node];
  if (exec->program.nodes[node].user_work || op_waits(task)) return false;
  for (uint32_t i = 0; i < task->operand_count; i++) {
    const struct operand_source source = sources_of(exec, node)[i];
    if (source.tensor == NO_TENSOR || !(task->operands[i].access & RONDO_WRITE)) continue;
    const struct exec_tensor *root = &exec->tensors[source.tensor];
    const bool leaves_it = task->op->again_operands >> i & 1 && root->touching_operands == 1;
    if (root->kind == TENSOR_STATE && !root->is_kept && !leaves_it) return false;
  }
  return true;
}

static void seen_fill(rondo_exec *exec, uint32_t node) {
  const struct op_task *task = &exec->program.tasks[node];
  struct device_node *filled = &exec->program.nodes[node];
  filled->reads_seen = true;
  for (uint32_t i = 0; i < task->operand_count; i++) {
    const struct operand_source source = sources_of(exec, node)[i];
    if (source.tensor == NO_TENSOR) continue;
    const struct exec_tensor *root = &exec->tensors[source.tensor];
    const bool is_output = root->kind == TENSOR_OUTPUT && source.in_slot;
    const bool writes = task->operands[i].access & RONDO_WRITE;
    if ((is_output || root->is_kept) && writes) filled->writes_seen = true;
    if (!is_output && (!root->is_kept || writes)) filled->reads_seen = false;
  }
}

void repeat_body_fill(rondo_exec *exec) {
  uint64_t bytes = 0;
  exec->body_steps = 1;
  if (exec->repeat_steps < 2) return;
  operands_count(exec);
  states_keep(exec);
  bool is_same = true;
  for (uint32_t n = 0; n < exec->program.node_count; n++) {
    const struct traffic traffic = traffic_of(&exec->program.tasks[n]);
    bytes += traffic.read_bytes + traffic.written_bytes;
    is_same = is_same && is_the_same_again(exec, n);
    seen_fill(exec, n);
  }
  const uint32_t steps = exec->repeat_steps < BODY_STEPS ? exec->repeat_steps : BODY_STEPS;
  if (is_same && bytes <= step_bytes_most && exec->program.node_count <= BODY_NODES / steps) exec->body_steps = steps;
}
