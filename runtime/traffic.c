/* traffic.c - see traffic.h. */
#include "traffic.h"

#include "floats.h"

static uint64_t touched_bytes(const struct op_task *task, uint32_t index, rondo_access access) {
  const struct op_operand *operand = &task->operands[index];
  if (!(operand->access & access)) return 0;
  bool knows = task->op && task->op->touched_elements;
  const struct floats floats = floats_default();
  int64_t elements = knows ? task->op->touched_elements(task, index, access) : op_elements(operand);
  floats_set(floats);
  return (uint64_t)elements * rondo_dtype_bits(operand->dtype) / 8;
}

struct traffic traffic_of_operand(const struct op_task *task, uint32_t index) {
  if (!task->operands[index].present) return (struct traffic){0};
  return (struct traffic){touched_bytes(task, index, RONDO_READ), touched_bytes(task, index, RONDO_WRITE)};
}

struct traffic traffic_of(const struct op_task *task) {
  struct traffic all = {0};
  for (uint32_t i = 0; i < task->operand_count; i++) {
    struct traffic traffic = traffic_of_operand(task, i);
    all.read_bytes += traffic.read_bytes;
    all.written_bytes += traffic.written_bytes;
  }
  return all;
}

const char *operation_name(const struct op *op, const struct user_work *work) {
  return op ? op->name : work->capture ? "capture" : "kernel";
}
