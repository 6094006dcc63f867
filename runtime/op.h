/* op.h - what an operation is to the rest of Rondo.
 *
 * An operation is one row of the table in ops.c: a name and some pure functions of a task's description. The builder
 * calls check, the planner scratch_bytes, the host backend host_items and host_run, or step, the CUDA backend select.
 * Nothing here knows a device: select only says which kernel to launch, with which grid and parameters.
 *
 * Each family's folder holds FAMILY.h (attribute and parameter structs and the list of its kernels, shared with the .cu
 * files; the functions of its rows), FAMILY.c (rondo_add_*, check, scratch, select), FAMILY_host.c and FAMILY_*.cu.
 * Large families have more files, which choose and plan their kernels.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

enum {
  OP_MAX_OPERANDS = 24,
  OP_MAX_LAUNCHES = 7,
  OP_ATTRIBUTE_BYTES = 64,
  OP_PARAMETER_BYTES = 1024,
  OP_MAX_MAPS = 5, /* of a launch */
  OP_MAP_BYTES = 128,
  OP_MAP_RANK = RONDO_MAX_RANK + 1,
};

/* A tensor or view as a task sees it. Rank is the described one; shape and stride (in elements) are filled up to it. */
struct op_operand {
  bool present; /* false: an optional operand left out; the rest is zero */
  rondo_access access;
  rondo_dtype dtype;
  uint32_t rank;
  int64_t shape[RONDO_MAX_RANK];
  int64_t stride[RONDO_MAX_RANK];
  uint64_t offset_bytes; /* of the first element in its tensor, which is 256-byte aligned: gives the alignment */
};

struct op_task {
  const struct op *op;
  const char *name;
  uint32_t operand_count;
  struct op_operand *operands;
  _Alignas(8) unsigned char attributes[OP_ATTRIBUTE_BYTES]; /* the operation's own attribute struct */
};

/* A task with addresses. data[i] is the address of operand i's first element, NULL if absent or where only the choice
 * of kernels is wanted; scratch is 256-byte aligned, op->scratch_bytes long, undefined at entry and shared with other
 * tasks afterwards. */
struct op_call {
  const struct op_task *task;
  void *const *data;
  void *scratch;
  /* Bit i: operand i is settled, and a kernel of Rondo precedes the task. No earlier task writes the tensor of the
   * operand, so the task's kernels may read it before their wait (kernels/common/launch.cuh), except for elements that
   * they write. Zero if no kernel of Rondo precedes the task: there is nothing to overlap with. */
  uint32_t settled_operands;
  /* For a task that waits for other ranks. If one does not come in time, it stores fault_word(fault_number, the rank)
   * from fault.h in *fault, which lies in pinned memory and is the device's. Then a kernel traps, after a system fence,
   * and host_run returns. Both are 0 where only a choice is wanted. */
  _Atomic uint64_t *fault;
  uint64_t fault_number;
  /* The same task's successors may start while it waits for other ranks: no rank needs the multiprocessors that they
   * take to come to the same place. */
  bool lets_successors_start;
};

static inline bool op_is_settled(const struct op_call *call, uint32_t operand) {
  return call->settled_operands >> operand & 1;
}

/* Where something in an operand or in scratch begins; NULL without addresses. */
static inline void *op_after(void *begin, uint64_t bytes) { return begin ? (unsigned char *)begin + bytes : NULL; }

/* A task that another one is made of. */
struct op_step {
  struct op_call call; /* of this task, these addresses */
  struct op_task task;
  struct op_operand operands[OP_MAX_OPERANDS];
  void *data[OP_MAX_OPERANDS];
};

/* No addresses, for where only a task's shape is asked for. */
extern void *const op_nowhere[OP_MAX_OPERANDS];

/* op.c: begins a step of a call, in the same scratch: its operands are absent, and none is settled. */
void op_step_begin(const struct op_call *call, const struct op *op, uint32_t operand_count, struct op_step *step);

struct chip {
  int32_t version; /* 80, 90, 100: compute capability times ten */
  int32_t multiprocessors;
  int32_t shared_bytes; /* most dynamic shared memory of one block, opted in */
};

/* What device code is compiled for, as bits; newer chips translate the portable code of the first. */
enum { CHIP_SM_80 = 1, CHIP_SM_90A = 2, CHIP_SM_100A = 4, EVERY_CHIP = 7 };

/* A kernel as its family's header lists it (kernels/common/launch.h). It is extern "C" and takes one struct by value
 * (const __grid_constant__), laid out alike in C and CUDA; the build compares this with what was compiled. */
struct op_kernel {
  const char *name;
  uint32_t parameter_bytes;
  uint32_t completion_offset; /* of a struct completion in the parameters; 0: it cannot publish */
  uint32_t chips;
  uint32_t threads; /* the most of a block */
};

/* A tensor map in a launch's parameters: it describes the tensor that a kernel's cp.async.bulk.tensor reads or writes
 * (PTX ISA, tensors). The driver alone knows the layout of its 128 bytes. So select only says what the map describes
 * and where in the parameters it stands, and the CUDA backend has the driver encode it whenever addresses are set. If
 * select is asked for its choice alone, nothing is encoded. Dimension 0 is dense in memory. Elements outside of the
 * sizes are read as zeros and not written. kernels/common/tensor_map.h makes one from an operand. */
struct op_map {
  uint32_t parameter_offset; /* a multiple of its 128 bytes */
  rondo_dtype dtype;         /* f32, f16, bf16; e4m3 as bytes */
  uint32_t rank;
  uint32_t swizzle_bytes; /* 128, and the box is no wider in dimension 0; 0: not swizzled */
  uint32_t fetch_bytes;   /* by which L2 reads memory: 64, 128 or 256; 0: what it needs */
  const void *base;       /* a multiple of 16 */
  uint64_t size[OP_MAP_RANK];
  uint64_t stride_bytes[OP_MAP_RANK]; /* multiples of 16; that of dimension 0 is its element's size */
  uint32_t box[OP_MAP_RANK];
};

/* One launch of a kernel. select writes its parameters. */
struct op_launch {
  const char *kernel;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /* dynamic */
  uint32_t parameter_bytes;
  uint32_t completion_offset;
  uint32_t map_count;
  struct op_map maps[OP_MAX_MAPS];
  _Alignas(64) unsigned char parameters[OP_PARAMETER_BYTES];
};

/* Launches of one task, run one after the other. None is allowed: an empty task. */
struct op_launches {
  const char *choice; /* the design that was chosen, by its name in the family's table; NULL: there is one alone */
  const char *why;    /* the reason for it, in words */
  uint32_t count;
  struct op_launch items[OP_MAX_LAUNCHES];
};

struct op {
  const char *name;
  /* Bit i: the kernels touch each element of operand i at most once, so that it may lie in the host's pinned memory. */
  uint32_t once_operands;
  /* The tasks for which that holds; NULL: all. Whatever the chip, since graphs are planned without one. */
  bool (*touches_once)(const struct op_task *task);
  /* For reports: how many elements of a present operand the kernels may read, or write, if the shapes confine them to a
   * part of it: as many rows of a table as there are ids, the new rows of a cache, a window. NULL: all. */
  int64_t (*touched_elements)(const struct op_task *task, uint32_t operand, rondo_access read_or_write);
  uint32_t launches_most; /* by select, for any task; 0 means 1 */
  /* The tasks wait for tasks of other ranks: they run in replays alone, not in a warm-up or a profile. They keep the
   * order of their accesses to each other's states themselves. */
  bool waits_for_others;
  /* The first operand that is a state of a rank, without which a task does not wait after all; 0: all tasks wait. */
  uint32_t waits_with;
  /* Are shapes, dtypes and attributes right? On failure returns status_set(...): a sentence that starts with the
   * operand's name, e.g. "k has 5 heads, q has 12: query heads must be a multiple". task.c puts phase and task before
   * it. NULL: no graph describes it, the runtime adds it itself. */
  rondo_status (*check)(const struct op_task *task);
  /* Device memory the task needs while it runs, on any chip. NULL: none. */
  uint64_t (*scratch_bytes)(const struct op_task *task);
  /* Independent items of work on the host, each computed by one thread in a fixed order. */
  int64_t (*host_items)(const struct op_task *task);
  void (*host_run)(const struct op_call *call, int64_t first, int64_t last);
  /* For a task that consists of other tasks, one after the other: fills in step number `index`, or returns false if
   * there is none. The host runs the steps; host_items and host_run are then NULL. NULL: the task has no steps. */
  bool (*step)(const struct op_call *call, uint32_t index, struct op_step *step);
  /* Which kernels, on this chip. Addresses may be NULL when only the choice is wanted; it must not depend on them. */
  rondo_status (*select)(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
};

/* Declares the functions that the rows of most operations name. */
#define OP_FUNCTIONS(name)                                                                                             \
  rondo_status name##_check(const struct op_task *task);                                                               \
  int64_t name##_host_items(const struct op_task *task);                                                               \
  void name##_host_run(const struct op_call *call, int64_t first, int64_t last);                                       \
  rondo_status name##_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches)

/* task.c: adds a task. arguments[i] has the tensor and the access of operand i; an absent tensor is all zero. If an
 * operand may be the same view as an earlier one (in place), in_place_of is that operand's index plus one. */
struct op_argument {
  const char *name; /* the operand's name in messages: "q", "tau" */
  rondo_tensor tensor;
  rondo_access access;
  uint32_t in_place_of;
};
rondo_status graph_add(rondo_graph *graph, const struct op *op, const char *name, const struct op_argument *arguments,
                       uint32_t argument_count, const void *attributes, size_t attribute_bytes);

/* op.c: "[4, 7] f32" into text. */
void shape_describe(char *text, size_t bytes, rondo_dtype dtype, uint32_t rank, const int64_t *shape);
/* A check's answer to a wrong argument: the sentence names it, and says what was expected. */
#define op_refuse(...) status_set(RONDO_INVALID_ARGUMENT, __VA_ARGS__)
/* Returns from the function that has it, if the call fails. */
#define OP_TRY(call)                                                                                                   \
  do {                                                                                                                 \
    const rondo_status op_status = (call);                                                                             \
    if (op_status != RONDO_OK) return op_status;                                                                       \
  } while (0)
/* "tau is [3] f32, expected ...", or "tau is absent, expected ...". */
rondo_status op_unexpected(const char *name, const struct op_operand *operand, const char *expected);
/* The operand must be there, with exactly this type and shape. */
rondo_status op_expect(const char *name, const struct op_operand *operand, rondo_dtype dtype, uint32_t rank,
                       const int64_t *shape);

/* An attribute must be a finite number; and not a negative one. */
rondo_status op_expect_finite(const char *name, float value);
rondo_status op_expect_not_negative(const char *name, float value);

/* The operand must be there, with this type and the shape [1] or [count]: one number for all, or one for each. */
rondo_status op_expect_list(const char *name, const struct op_operand *operand, rondo_dtype dtype, int64_t count);

/* Do all rows of the operand, those along its last dimension, begin at multiples of this many bytes, at most 256? */
bool op_rows_aligned(const struct op_operand *operand, uint64_t bytes);

/* The operation's own attribute struct. */
static inline const void *op_attributes(const struct op_task *task) { return task->attributes; }

/* Blocks of a task's last launch, if it can publish completion; else 0. */
static inline uint32_t op_publishing_blocks(const struct op_launches *launches) {
  const struct op_launch *last = launches->count ? &launches->items[launches->count - 1] : NULL;
  return last && last->completion_offset && last->grid[1] == 1 && last->grid[2] == 1 ? last->grid[0] : 0;
}

/* Does the task wait for tasks of other ranks? */
static inline bool op_waits(const struct op_task *task) {
  const uint32_t with = task->op->waits_with;
  return task->op->waits_for_others && (!with || (with < task->operand_count && task->operands[with].present));
}

static inline int64_t op_elements(const struct op_operand *operand) {
  int64_t count = operand->present ? 1 : 0;
  for (uint32_t i = 0; i < operand->rank; i++) count *= operand->shape[i];
  return count;
}
