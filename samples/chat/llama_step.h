/* llama_step.h - a graph of a Llama-like model, its exec with one slot, and the tensors that a replay sets or reads.
 * The functions end the program with a sentence if something is wrong. */
#pragma once

#include <rondo.h>
#include <rondo_graphs.h>

struct llama_step {
  rondo_graph *graph; /* NULL: there is no such step */
  rondo_graph_llama_tensors tensors;
  rondo_exec *exec;
  rondo_slot slot;
  int32_t rows; /* tokens of a prefill graph, sequences of a decode graph */
};

void llama_step_describe(struct llama_step *step, const rondo_graph_llama_desc *desc);
/* options may be NULL. */
void llama_step_open(struct llama_step *step, rondo_runtime *runtime, const rondo_exec_options *options);
void llama_step_close(struct llama_step *step);
