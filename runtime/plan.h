/* plan.h - a legal order and a place for every tensor. Knows no device. */
#ifndef RONDO_PLAN_H
#define RONDO_PLAN_H

#include "completion.h"
#include "graph.h"

/* What runs: the tasks, joins (see dependencies.h), and copies of the inputs (pinned to device, before all tasks that
 * touch them) and outputs (device to pinned, after all tasks that touch them) that are not used in place. Small ones
 * share a node, since a node costs more than the bytes of a small tensor. No node comes before an input's or after an
 * output's, so none of this can close a cycle. */
enum node_kind { NODE_INPUT, NODE_TASK, NODE_JOIN, NODE_OUTPUT };

/* Where the tasks find a tensor. */
enum tensor_place {
  PLACE_RESIDENT, /* in memory that lives across replays: a constant or a state, of this exec or of a lender */
  PLACE_ARENA,    /* a temporary */
  PLACE_MOVED,    /* in the arena: an input or output that a node moves from or to the slot's pinned memory */
  PLACE_SLOT,     /* in the slot's pinned memory itself: an input or output used in place */
};

struct plan_node {
  enum node_kind kind;
  uint32_t index;          /* of the task */
  const uint32_t *tensors; /* of an input's or output's node: what it moves */
  uint32_t tensor_count;
};

/* A plan lives in one piece of memory taken from the graph's source, which begins with this struct. */
struct plan {
  rondo_plan summary;
  struct memory_source source;
  uint64_t memory_bytes;
  /* Of a host pool: what making it took at the most, itself included, and where it ends once that is given back. */
  uint64_t planning_bytes, kept_bytes;
  uint32_t node_count;
  struct plan_node *nodes; /* in a legal order */
  uint32_t *moved;         /* the tensors of the nodes that move some, node by node */
  uint8_t *places;         /* enum tensor_place, by tensor; a view's is its root's */
  /* Node n waits for predecessors[begin[n]] to predecessors[begin[n + 1] - 1]: edges that no others imply. */
  uint32_t *begin, *predecessors;
  bool *is_awaited; /* by a later node */
  /* By tensor index (roots only): where in the exec's own device memory (constants and states that are not borrowed) or
   * in the arena, and where in a slot's pinned extent. */
  uint64_t *device_offset;
  uint64_t *pinned_offset;
  uint64_t *scratch_offset; /* by task index, in the arena */
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
  PLAN_PINNED_HEADER_BYTES = 256, /* a slot's completion words, apart from its tensors */
  PLAN_COUNTS_BYTES = RONDO_MAX_SLOTS * COMPLETION_WORDS * 8,
};

/* The graph's plan, made where the graph has none, and kept until the description changes. Errors: an element read
 * before anything writes it, an output that is not written whole, out of memory. */
rondo_status plan_of(rondo_graph *graph, const struct plan **plan);
void plan_drop(rondo_graph *graph);

/* Of a node that is no task: "copy in a, b, c", cut to fit, or "join"; and what runs, without a name: for each tensor a
 * source and a destination. `operands` has room for OP_MAX_OPERANDS. */
void plan_node_name(const rondo_graph *graph, const struct plan_node *node, char name[NAME_BYTES]);
struct op_task plan_node_task(const rondo_graph *graph, const struct plan_node *node, struct op_operand *operands);

#endif
