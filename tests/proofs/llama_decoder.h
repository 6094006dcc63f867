/* llama_decoder.h - a small language model that generates token after token, fed back by its graph: what a replay of a
 * whole model does is proven of it. Its kernels are not among those that the fake driver has. */
#ifndef LLAMA_DECODER_H
#define LLAMA_DECODER_H

#include <stdint.h>

#include <rondo_graphs.h>

enum { DECODER_LAYERS = 2, DECODER_SEQUENCES = 2, DECODER_CONTEXT = 64 };

struct decoder {
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_graph_llama_tensors tensors;
  rondo_llama_layer layers[DECODER_LAYERS];
};

/* Instantiated in the runtime, with its slot and its weights. */
rondo_status decoder_open(struct decoder *decoder, rondo_runtime *runtime);
/* Back to the beginning: outside of replays. */
rondo_status decoder_restart(const struct decoder *decoder);
/* Tokens of all sequences, DECODER_CONTEXT at most after a restart; more overrun the context and mean nothing. */
rondo_status decoder_replay(const struct decoder *decoder, uint64_t count);
/* The tokens of the last replay. */
const int32_t *decoder_tokens(const struct decoder *decoder);
rondo_status decoder_close(struct decoder *decoder);

#endif
