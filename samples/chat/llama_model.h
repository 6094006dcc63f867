/* llama_model.h - a Llama-like model of a GGUF file on Rondo: graphs with the same weights and KV caches. A replay of a
 * prefill graph processes a chunk of a prompt. A replay of the decode graph makes one token and feeds it back, of the
 * verify graph up to 1 + draft tokens.
 *
 * The newest token is not in the KV caches yet: the next replay begins with it. */
#pragma once

#include "gguf.h"
#include "llama_step.h"

enum {
  LLAMA_BEST_DRAFT = -1, /* as many tokens as are best: with weights in bf16 15, else none */
  LLAMA_MOST_DRAFT = 127,
  LLAMA_MOST_STOPS = 16,
  LLAMA_RUN = 128 /* the most replays of a run */
};

/* Tokens of a prompt in one replay. Only weights in bf16 have long chunks. */
enum { LLAMA_CHUNK = 16, LLAMA_LONG_CHUNK = 256 };
enum { LLAMA_RECENT = 64 }; /* recent tokens, of prompts and answers, to which a penalty applies */

struct llama_options {
  rondo_backend backend;
  rondo_dtype weights;   /* RONDO_BF16, RONDO_E4M3 or RONDO_NVFP4; 0: NVFP4 if the file's are, else bf16 */
  rondo_dtype embedding; /* also of the output matrix: RONDO_BF16 or RONDO_NVFP4 */
  int64_t context;       /* tokens of a conversation; 0: 2048, or the trained context if that is less */
  bool with_logits;
  float temperature; /* 0: the likeliest token */
  int32_t top_k;     /* 0: all */
  float top_p;
  int32_t seed;
  float repeat_penalty;            /* factor by which the last LLAMA_RECENT tokens become less likely; 0 or 1: none */
  int32_t draft;                   /* drafted tokens of a replay in runs; 0: no runs. Without a penalty */
  int32_t stops[LLAMA_MOST_STOPS]; /* tokens that end a run */
  int32_t stop_count;
};

struct llama {
  rondo_graph_llama_desc desc;
  rondo_runtime *runtime;
  struct llama_step decode, prefill;
  struct llama_step long_prefill; /* no graph: there are no long chunks */
  struct llama_step verify;       /* of a token and its drafts; no graph: there are none */
  size_t long_from;               /* tokens from which a long chunk, with padding, is faster than short ones */
  const struct llama_step *last;  /* the graph of the last replay */
  int64_t position;               /* tokens in the KV caches */
  int64_t trained;                /* the longest context that the model was trained for */
  int32_t *tokens;                /* the tokens in the KV caches, and the newest one */
  bool runs;                      /* answers come in runs (llama_run.c) */
  const struct llama_step *running;
  uint32_t taken;             /* replays of the run */
  int64_t run_begin;          /* the position before it */
  uint64_t verified, drafted; /* replays with drafts, and the tokens that came of them */
  int32_t matched, shortest;  /* of the last replay; how long a match is that drafts are verified behind */
};

/* Both end the program with a sentence if something is wrong. */
void llama_open(const struct gguf *file, const struct llama_options *options, struct llama *llama);
void llama_close(struct llama *llama);

/* Drops the tokens from `position` on from the KV caches. */
void llama_rewind(struct llama *llama, int64_t position);

/* How many of `left` tokens the next replay processes. */
size_t llama_chunk(const struct llama *llama, size_t left);
/* Processes at least one token, at most as many as the context has room for. Returns the next token. */
int32_t llama_prefill(struct llama *llama, const int32_t *tokens, size_t count);
/* Starts a replay with the newest token, for which the context must have room. llama_end_token waits for the next
 * token. */
void llama_begin_token(struct llama *llama);
int32_t llama_end_token(struct llama *llama);

/* With runs: begins to make up to `most` tokens, for one of which the context has room, in one launch without the host.
 * llama_run_take waits for the next ones, at most 1 + draft, and returns how many came: 0 if the run has ended. That
 * may be before a stop token, and then another run may follow. llama_run_stop ends the run soon. */
void llama_run_begin(struct llama *llama, int64_t most);
size_t llama_run_take(struct llama *llama, const int32_t **tokens);
void llama_run_stop(struct llama *llama);
/* Both are called by llama_open and llama_close. */
void llama_run_describe(struct llama *llama);
void llama_run_forget(struct llama *llama);

/* For tests: the next replay of decode gets this token instead of the newest one. */
void llama_force(struct llama *llama, int32_t token);
/* With option logits: the logits of the newest token's choice, one for each token of the vocabulary. */
const float *llama_logits(const struct llama *llama);
