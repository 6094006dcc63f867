/* llama_decoder.h - a small language model that generates token after token, fed back by its graph: what a replay of a
 * whole model does is proven of it. Its layers are two tasks each, an attention block and a feed forward, as those of
 * the models that docs/results.md has times of, and on a GPU with clusters each of them is the kernel that is timed
 * there. The fake driver has none of these. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rondo_graphs.h>

enum { DECODER_LAYERS = 2, DECODER_SEQUENCES_MOST = 4 };

struct decoder {
  int32_t sequences, context;
  int32_t position; /* of the tokens that the next replay takes */
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_graph_llama_tensors tensors;
  rondo_llama_layer layers[DECODER_LAYERS];
};

/* Instantiated in the runtime, with its slot and its weights. Its context has room for a repeat of all steps. */
rondo_status decoder_open(struct decoder *decoder, rondo_runtime *runtime, rondo_backend backend, int32_t sequences,
                          uint32_t repeat_steps);
/* Each half of a layer is one kernel on a chip that has clusters, and no steps. */
bool decoder_is_in_halves(const struct decoder *decoder);
/* Back to the first tokens of all sequences, by uploads: outside of replays. */
rondo_status decoder_restart(struct decoder *decoder);
/* Tokens of all sequences, each appended to its context: where that is full, the next one is the first of another. That
 * takes no upload: positions move back by what is added to them. */
rondo_status decoder_replay(struct decoder *decoder, uint64_t count);
/* Checks, by downloads, that `tokens` tokens after a restart came to their places. *complaint is the first fault, or
 * NULL. */
rondo_status decoder_check(const struct decoder *decoder, uint64_t tokens, const char **complaint);
/* The tokens of the last replay. */
const int32_t *decoder_tokens(const struct decoder *decoder);
rondo_status decoder_close(struct decoder *decoder);
