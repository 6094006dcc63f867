/* plan.h - the plan of a graph: its nodes in a legal order, the edges between them, and an offset for each tensor. A
 * plan knows no device. planner.h makes it. */
#pragma once

#include "completion.h"
#include "graph.h"

/* A node is a task, a join (see dependencies.h), or a copy. Inputs that are not used in place are copied from pinned to
 * device memory before all tasks that touch them; outputs are copied back after all tasks that touch them. Several
 * small tensors share a node, since a node costs more than their bytes. No node precedes an input's node or follows an
 * output's node, so copies cannot close a cycle. */
enum node_kind { NODE_INPUT, NODE_TASK, NODE_JOIN, NODE_OUTPUT };

/* The memory in which the tasks find a tensor. */
enum allocation {
  ALLOCATION_RESIDENT, /* it lives across replays: a constant or a state, of this exec or of a lender */
  ALLOCATION_ARENA,    /* a temporary */
  ALLOCATION_MOVED,    /* in the arena: an input or output that a node moves from or to the slot's pinned memory */
  ALLOCATION_SLOT,     /* in the slot's pinned memory itself: an input or output used in place */
};

struct plan_node {
  enum node_kind kind;
  uint32_t index;          /* of the task */
  const uint32_t *tensors; /* that an input's or output's node copies */
  uint32_t tensor_count;
};

/* A plan is one piece of memory of the graph's source, and begins with this struct. */
struct plan {
  rondo_plan summary;
  /* Of a host pool: the most bytes in use while the plan is made, the plan included; and those that stay in use. */
  uint64_t planning_bytes, kept_bytes;
  uint32_t node_count;
  struct plan_node *nodes; /* in a legal order */
  uint32_t *moved;         /* the tensors of the nodes that move some, node by node */
  uint8_t *allocations;    /* enum allocation, by tensor; a view's is its root's */
  /* Node n waits for predecessors[begin[n]] to predecessors[begin[n + 1] - 1]: edges that no others imply. */
  uint32_t *begin, *predecessors;
  bool *is_awaited; /* by a later node */
  /* By tensor index (roots only): where in the exec's own device memory (constants and states that are not borrowed) or
   * in the arena, and where in a slot's pinned extent. */
  uint64_t *device_offset;
  uint64_t *pinned_offset;
  uint64_t *scratch_offset; /* by task index, in the arena */
  uint64_t outputs_offset;  /* in a slot's pinned extent, which ends with the outputs */
  uint64_t counts_offset;   /* the slots' counts of replays, in the exec's own memory */
  uint64_t own_bytes;       /* of that memory; the arena has summary.temporary_bytes */
  /* Arena buffers, for reports and tests: roots that are inputs, outputs or temporaries, then scratch. */
  uint32_t buffer_count;
  struct plan_buffer {
    bool is_scratch;
    uint32_t index; /* tensor or task */
    uint64_t bytes, offset;
    uint32_t first_node, last_node; /* in the order above; UINT32_MAX: none */
  } * buffers;
};

enum {
  PLAN_PINNED_HEADER_BYTES = 256, /* a slot's completion words, its bell, and the control of its repeats: */
  PLAN_DOORBELL_OFFSET = 64,
  PLAN_CONTROL_OFFSET = 128,
  /* Of all slots. A resident exec has one, and its bell's state in the place of the second slot's. */
  PLAN_COUNTS_BYTES = RONDO_MAX_SLOTS * COMPLETION_WORDS * 8,
};

/* Of a node that is no task: "copy in a, b, c", cut to fit, or "join"; and what runs, without a name: for each tensor a
 * source and a destination. `operands` has room for OP_MAX_OPERANDS. */
void plan_node_name(const rondo_graph *graph, const struct plan_node *node, char name[NAME_BYTES]);
struct op_task plan_node_task(const rondo_graph *graph, const struct plan_node *node, struct op_operand *operands);
