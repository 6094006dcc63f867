/* llama_weights.h - the weights of a GGUF file, converted and uploaded to a graph of its model. */
#pragma once

#include <rondo_graphs.h>

#include "gguf.h"

/* exec is of the graph that owns the tensors. Ends the program with a sentence if something is wrong. */
void llama_weights_upload(const struct gguf *file, const rondo_graph_llama_desc *desc,
                          const rondo_graph_llama_tensors *tensors, rondo_exec *exec);
