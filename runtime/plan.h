/* plan.h - a legal order and a place for every tensor. Knows no device. */
#ifndef RONDO_PLAN_H
#define RONDO_PLAN_H

#include "../kernels/common/completion.h"
#include "graph.h"

/* What runs: the tasks, and copies of the inputs (pinned to device, before all tasks that touch them) and outputs
 * (device to pinned, after all tasks that touch them) that are not used in place. Small ones share a node, since a node
 * costs more than the bytes of a small tensor. No node comes before an input's or after an output's, so none of this
 * can close a cycle. */
enum node_kind { NODE_INPUT, NODE_TASK, NODE_OUTPUT };

struct plan_node {
  enum node_kind kind;
  uint32_t index;          /* of the task */
  const uint32_t *tensors; /* else: what it moves */
  uint32_t tensor_count;
};

/* A plan lives in one piece of memory taken from the graph's source. */
struct plan {
  rondo_plan summary;
  struct memory_source source;
  void *memory;
  uint64_t memory_bytes;
  uint32_t node_count;
  struct plan_node *nodes;     /* in a legal order */
  uint32_t *moved;             /* the tensors of the nodes that move some, node by node */
  struct bit_matrix ancestors; /* of nodes: row n has bit m if node m must come before n */
  struct bit_matrix edges;     /* its transitive reduction */
  /* By tensor index (roots only): where in the device extent, and where in a slot's pinned extent. */
  uint64_t *device_offset;
  uint64_t *pinned_offset;
  uint64_t *scratch_offset; /* by task index, in the device extent */
  uint64_t counts_offset;   /* the slots' counts of replays, in the device extent */
  /* Arena buffers, for reports and tests: roots that are inputs, outputs or temporaries, then scratch. */
  uint32_t buffer_count;
  struct plan_buffer {
    bool is_scratch;
    uint32_t index; /* tensor or task */
    uint64_t bytes, offset;
    uint32_t first_node, last_node; /* in the order above */
  } * buffers;
  struct bit_matrix conflicts; /* of buffers */
};

enum {
  PLAN_PINNED_HEADER_BYTES = 256, /* a slot's completion words, apart from its tensors */
  PLAN_COUNTS_BYTES = RONDO_MAX_SLOTS * COMPLETION_WORDS * 8,
};

/* Errors: a tensor read before anything writes it, an output nobody writes, out of memory. */
rondo_status plan_make(const rondo_graph *graph, struct plan *plan);
void plan_free(struct plan *plan);

/* Of a node that moves tensors: "copy in a, b, c", cut to fit; and what runs, without a name: for each tensor a source
 * and a destination. */
void plan_move_name(const rondo_graph *graph, const struct plan_node *node, char name[NAME_BYTES]);
struct op_task plan_move_task(const rondo_graph *graph, const struct plan_node *node);

#endif
