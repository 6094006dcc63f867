/* trial_plan.h - checks a plan of a random graph against random_graph.c by brute force over all pairs: the order is
 * the one that the elements ask for and no more, and buffers share bytes exactly if every path allows it. */
#pragma once

#include "../../runtime/planner.h"
#include "random_graph.h"

/* A plan beside the graph that it was made of. */
struct trial_plan {
  struct random_graph *g;
  const struct plan *plan;
  uint32_t nodes;
  uint32_t *node_of_task;
  bool *reaches; /* [n * nodes + m]: m comes before n along the edges */
  /* By buffer, ascending: the nodes that touch it. */
  uint32_t *access_begin, *accesses;
};
/* How much there was to see, so that no test passes because its graphs are dull. */
struct seen {
  uint64_t joins, shared_bytes, scratch, backward, refused, reshapes, no_boxes, most_nodes, most_buffers;
};

void trial_plan_begin(struct trial_plan *p, struct random_graph *g);
void trial_plan_end(struct trial_plan *p, struct seen *seen);
void check_order(struct trial_plan *p);
void check_sharing(struct trial_plan *p);
/* Both. */
void check_plan(struct random_graph *g, struct seen *seen);
uint64_t most_that_lives_at_a_node(const struct trial_plan *p);
