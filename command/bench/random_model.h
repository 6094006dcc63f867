/* random_model.h - a language model with random weights and KV caches, opened for `rondo bench llama`. */
#pragma once

#include "../command.h"

/* Of each 64 bits: those that are random, and those that are set. */
struct pattern {
  uint64_t random, set;
};

/* The bytes that are uploaded: as many as the largest tensor of a pattern has. */
enum { SOURCES = 8 };
struct source {
  uint64_t *words;
  uint64_t bytes;
  struct pattern pattern;
};

/* What each rank has. */
struct random_rank {
  rondo_graph_llama_tensors ends;
  rondo_graph *graph, *exchange; /* exchange: of several ranks, with the state that others write to */
  rondo_exec *exec, *exchange_exec;
  rondo_runtime *runtime;
};

/* The caller sets desc, with ranks, repeat_steps and wait_mode before it opens the model. */
struct random_model {
  rondo_graph_llama_desc desc;
  uint32_t ranks; /* at least 1 */
  struct random_rank rank[RONDO_MAX_RANKS];
  rondo_slot slots[RONDO_MAX_RANKS];
  struct source sources[SOURCES];
  rondo_content *contents; /* of the constants and states of a rank */
  uint32_t content_count;
  uint64_t instantiate_ns, upload_ns, upload_bytes;
  uint32_t repeat_steps;
  rondo_wait_mode wait_mode;
  char no_repeat[256]; /* "", or why the exec has no repeats after all; then repeat_steps is 0 */
  bool is_on_gpu;      /* on the host there is no figure to reach */
  int32_t devices;     /* GPUs that the ranks are on */
};

/* Opens the model in runtimes of its own, uploads its contents and sets its inputs. Rank r is on device r, or if there
 * are fewer, shares one. Both end the program with the error's text if something fails. */
void random_model_open(struct random_model *model, rondo_backend backend);
void random_model_close(struct random_model *model);
