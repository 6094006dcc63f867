/* llama_step.c - see llama_step.h. */
#include "llama_step.h"

#include <stdlib.h>

#include "../sample.h"

void llama_step_describe(struct llama_step *step, const rondo_graph_llama_desc *desc) {
  const uint32_t layers = (uint32_t)desc->layers;
  step->rows = desc->tokens ? desc->tokens : desc->sequences;
  step->tensors.layers = calloc(layers, sizeof *step->tensors.layers);
  if (!step->tensors.layers) give_up("no memory for %u layers", layers);
  TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 32 * layers + 64, .tasks = 8 * layers + 32},
                         &step->graph));
  TRY(rondo_graph_llama(step->graph, desc, &step->tensors));
}

void llama_step_open(struct llama_step *step, rondo_runtime *runtime, const rondo_exec_options *options) {
  TRY(rondo_instantiate(runtime, step->graph, options, &step->exec));
  TRY(rondo_acquire(step->exec, &step->slot));
}

void llama_step_close(struct llama_step *step) {
  TRY(rondo_release(step->slot));
  TRY(rondo_close_exec(&step->exec));
  TRY(rondo_graph_destroy(&step->graph));
  free(step->tensors.layers);
}
