/* llama_ranks.h - the small Llama of llama_oracle.h over the ranks of a group: each rank has the graphs with its part
 * of the weights. */
#pragma once

#include "llama_oracle.h"

enum { MOST_RANKS = 8 };

struct llama_ranks {
  int count;             /* 1: no exchange */
  uint32_t repeat_steps; /* of the first graph's execs; set before the start */
  struct trial exchanges[MOST_RANKS];
  rondo_tensor states[MOST_RANKS];
  struct machine machines[MOST_RANKS];
};

/* Describes `graphs` graphs for each rank, the first one the owner of the weights, opens the group and uploads each
 * rank's part of the model. On a GPU rank r has device r, or if there are fewer, one of them. */
void llama_ranks_start(struct llama_ranks *r, rondo_backend backend, const struct llama *l,
                       const rondo_graph_llama_desc *descs, int graphs, int ranks);

/* Sets an input, or a state, of all ranks. */
#define LLAMA_RANKS_SET(r, graph, member, data)                                                                        \
  llama_ranks_set((r), (graph), offsetof(rondo_graph_llama_tensors, member), (data))
void llama_ranks_set(struct llama_ranks *r, int graph, size_t member, const void *data);

/* Replays a graph on all ranks, and waits. */
void llama_ranks_replay(struct llama_ranks *r, int graph);

/* An output, which has to have the same bits on all ranks. */
#define LLAMA_RANKS_OUTPUT(r, graph, member)                                                                           \
  llama_ranks_output((r), (graph), offsetof(rondo_graph_llama_tensors, member))
const void *llama_ranks_output(struct llama_ranks *r, int graph, size_t member);

/* Closes the graphs and the group. */
void llama_ranks_end(struct llama_ranks *r);
