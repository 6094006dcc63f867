/* llama_model.h - a Llama-like model of a GGUF file on Rondo: two graphs over one set of weights and KV caches. One
 * takes a prompt, 16 tokens a replay; the other makes a token a replay and feeds it back to itself.
 *
 * The newest token is not in the KV caches yet: the next replay begins with it. */
#ifndef LLAMA_MODEL_H
#define LLAMA_MODEL_H

#include <rondo.h>
#include <rondo_graphs.h>

#include "gguf.h"

enum { LLAMA_CHUNK = 16 };     /* tokens of a prompt that one replay takes */
enum { LLAMA_CONTEXT = 2048 }; /* tokens of a conversation where nobody asks for more */
enum { LLAMA_RECENT = 64 };    /* the last tokens, of prompts and answers, that a penalty sees */

struct llama_options {
  rondo_backend backend;
  rondo_dtype weights;   /* RONDO_BF16, RONDO_E4M3 or RONDO_NVFP4 */
  rondo_dtype embedding; /* and the last product's matrix: RONDO_BF16 or RONDO_NVFP4 */
  int64_t context;       /* tokens of a conversation; 0: LLAMA_CONTEXT, or as many as the model was trained for */
  bool with_logits;
  float temperature; /* 0: the likeliest token */
  int32_t top_k;     /* 0: all */
  float top_p;
  int32_t seed;
  float repeat_penalty; /* what tokens among the last LLAMA_RECENT are made less likely by; 0 or 1: nothing */
};

/* A graph and what a replay of it needs. */
struct llama_step {
  rondo_graph *graph;
  rondo_graph_llama_tensors tensors;
  rondo_exec *exec;
  rondo_slot slot;
};

struct llama {
  rondo_graph_llama_desc desc;
  rondo_runtime *runtime;
  struct llama_step decode, prefill;
  const struct llama_step *last; /* what was replayed last */
  int64_t position;              /* tokens in the KV caches */
  int64_t trained;               /* the longest context that the model was trained for */
  int32_t *tokens;               /* those in the KV caches, and the one that was made last */
};

/* Both give up with a sentence, as samples do, where something is wrong. */
void llama_open(const struct gguf *file, const struct llama_options *options, struct llama *llama);
void llama_close(struct llama *llama);

/* Forgets what the KV caches took after the first so many tokens. */
void llama_rewind(struct llama *llama, int64_t position);

/* Takes the tokens, at least one and no more than there is room for, and returns the next one. */
int32_t llama_prefill(struct llama *llama, const int32_t *tokens, size_t count);
/* Starts a replay that takes the token made last, for which there has to be room; then waits for the next one. */
void llama_begin_token(struct llama *llama);
int32_t llama_end_token(struct llama *llama);

/* For tests: the next replay of decode takes this token, instead of the one made last. */
void llama_force(struct llama *llama, int32_t token);
/* With logits: those that the next token was chosen by, as many as the vocabulary has tokens. */
const float *llama_logits(const struct llama *llama);

#endif
