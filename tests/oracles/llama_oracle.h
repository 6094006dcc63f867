/* llama_oracle.h - a small Llama of random weights: its graphs on a backend, and its step in fp64, rounded where the
 * graph's tensors have 16 bits. */
#pragma once

#include "../support.h"
#include <rondo_graphs.h>

enum {
  LAYERS = 2,
  MOST_HIDDEN = 2048,
  MOST_QUERY = 2048,
  MOST_KV = 512,
  MOST_GATED = 1536,
  MOST_DIMENSION = 64,
  VOCABULARY = 160,
  CONTEXT = 20, /* unless the description has another, up to MOST_CONTEXT */
  MOST_CONTEXT = 160,
  MOST_SEQUENCES = 81,
};

struct matrix {
  void *codes, *scales; /* as they are uploaded */
  double *numbers;
};

struct llama {
  rondo_graph_llama_desc desc; /* of a decode of one sequence */
  struct matrix embedding, head, norm, attention_norm[LAYERS], feed_forward_norm[LAYERS];
  struct matrix qkv[LAYERS], output[LAYERS], gate_up[LAYERS], down[LAYERS];
  float frequencies[MOST_DIMENSION / 2];
  /* The norms of the layers, and the last one, are tasks, whose results are rounded. Else they are prologues of
   * products, in which only x times the norm's weights is rounded. */
  bool layer_norms_are_tasks, last_norm_is_a_task;
  bool streams; /* the residual stream is not rounded, and only the first and the last norm are tasks */
};

/* One sequence of a model in bf16, with logits. */
rondo_graph_llama_desc llama_plain_desc(void);

/* Random weights. Sizes that `desc` leaves out become tiny ones; the head dimension has to be there. */
void llama_make(struct llama *l, rondo_graph_llama_desc desc, uint64_t seed);

/* Frees the weights. */
void llama_free(struct llama *l);

/* The keys, after RoPE, and the values of a sequence. */
struct history {
  double k[LAYERS][MOST_CONTEXT][MOST_KV], v[LAYERS][MOST_CONTEXT][MOST_KV];
};

/* The logits of a token at a position. The history has all positions before it, and receives this one. */
void llama_step(const struct llama *l, struct history *h, int32_t token, int32_t position, double logits[VOCABULARY]);

/* The most that a logit may be off by, as a multiple of the root mean square of its row. Roundings of intermediate
 * tensors may fall to the other side. */
double llama_logits_gate(const struct llama *l);

/* Checks a row of logits. `where`, `a` and `b` say which. */
void llama_check_logits(const struct llama *l, const float *got, const double *expected, const char *where, int a,
                        int b);

int32_t llama_largest(const float *logits);

/* The token that a test feeds to a sequence at a position. */
int32_t llama_some_token(int sequence, int position);

enum { MOST_GRAPHS = 3 };

/* The graphs of a model in one runtime. */
struct machine {
  struct trial trials[MOST_GRAPHS]; /* with one runtime */
  rondo_graph_llama_tensors tensors[MOST_GRAPHS];
  rondo_llama_layer layers[MOST_GRAPHS][LAYERS];
  uint32_t repeat_steps; /* of the first graph's exec */
  int count;
};

/* Adds a graph of the model. The first one owns the weights, and the others borrow them. */
void machine_add(struct machine *m, rondo_backend backend, rondo_graph_llama_desc desc);

/* Opens a runtime with pools of exactly the planned size, instantiates the graphs and uploads the weights. */
void machine_start(struct machine *m, const struct llama *l);

/* The last two of these. */
void machine_start_in(struct machine *m, rondo_runtime *runtime, const struct llama *l);

/* Sets two inputs or states of a graph. */
void llama_set_lists(struct machine *m, int graph, rondo_tensor a, const int32_t *of_a, rondo_tensor b,
                     const int32_t *of_b);

/* Closes the graphs, but not the runtime. */
void machine_end_graphs(struct machine *m);

/* Closes the graphs and the runtime. */
void machine_end(struct machine *m);
