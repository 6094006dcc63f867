/* traffic.h - the bytes that a task reads and writes, by its shapes alone: dense, and all that it may touch. For
 * reports and rondo_profile. */
#pragma once

#include "device.h"
#include "op.h"

struct traffic {
  uint64_t read_bytes, written_bytes;
};

struct traffic traffic_of_operand(const struct op_task *task, uint32_t operand);
struct traffic traffic_of(const struct op_task *task);

/* The name of an operation, or "kernel" or "capture" for the user's own work (op NULL). */
const char *operation_name(const struct op *op, const struct user_work *work);
