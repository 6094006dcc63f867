/* batch_model.h - a Llama-like model for many sequences on Rondo: decode graphs for 1, 2, 4 ... sequences and prefill
 * graphs for several lengths, over one set of weights and one pool of KV pages, all instantiated at the start. */
#pragma once

#include "../chat/gguf.h"
#include "../chat/llama_step.h"

enum { PAGE_ROWS = 64, SEQUENCES_MOST = 256 };
enum { MODEL_DECODES_MOST = 9, MODEL_CHUNKS_MOST = 4 };
enum { MODEL_STEPS_MOST = 2 * (MODEL_DECODES_MOST + 2 * MODEL_CHUNKS_MOST + 1) };

struct model_options {
  rondo_backend backend;
  rondo_dtype weights;             /* bf16, e4m3 or nvfp4; 0: nvfp4 if the file's are, else bf16 */
  int64_t context;                 /* tokens of a sequence; 0: 2048, or the trained context if that is less */
  int32_t sequences;               /* at a time */
  int32_t pages;                   /* 0: as many as all sequences can fill */
  int32_t lanes;                   /* 2: prefill has a lane of its own */
  int32_t prefill_multiprocessors; /* of that lane alone; 0: it shares those of decode; -1: as suits the device */
  bool spins;                      /* the replaying thread waits without system calls */
  bool any_order;  /* the fastest graphs: last bits of an answer may depend on the sequences beside it */
  int32_t threads; /* of the host backend; 0: as rondo_options.host_threads */
};

struct model {
  rondo_graph_llama_desc desc;
  rondo_runtime *runtime;
  rondo_info info;
  int32_t lanes, decode_count, chunk_count;
  /* The smallest first; [1]: with logits. */
  struct llama_step decodes[2][MODEL_DECODES_MOST];
  struct llama_step chunks[2][2][MODEL_CHUNKS_MOST]; /* [1]: in prefill's lane, to run beside decode */
  struct llama_step alone[2];                        /* for a sequence in pages 1, 2, 3 ...; only with any_order */
  struct {
    struct llama_step *step;
    uint32_t lane;
  } steps[MODEL_STEPS_MOST]; /* all of them, that which owns the weights and the pages first */
  uint32_t step_count;
};

/* A sequence in a replay. */
struct model_row {
  int32_t token;    /* of decode: the newest one */
  int32_t position; /* tokens in the caches */
  int32_t page_count;
  const int32_t *pages;
  float temperature, top_p;
  int32_t seed;
};

/* Pages of a sequence that fills its context. */
static inline int64_t model_pages_most(const rondo_graph_llama_desc *desc) {
  return (desc->context + PAGE_ROWS - 1) / PAGE_ROWS;
}

/* Opens everything and uploads the weights. Ends the program with a sentence if something is wrong. */
void model_open(const struct gguf *file, const struct model_options *options, struct model *model);
void model_close(struct model *model);
/* Replays every graph once, on tokens that mean nothing. The first replay of a graph makes system calls, and on a GPU
 * the driver may allocate in it. */
void model_warm_up(struct model *model);

/* Begins a replay of the smallest decode graph for `count` sequences, and of a lane's prefill graph with at most its
 * tokens.
 * *begun is then the step, whose results are those of model_next and model_logits after rondo_wait. */
rondo_status model_decode(struct model *model, bool with_logits, const struct model_row *rows, int32_t count,
                          struct llama_step **begun);
rondo_status model_prefill(struct model *model, int32_t lane, bool with_logits, int32_t chunk,
                           const struct model_row *row, const int32_t *tokens, int32_t count,
                           struct llama_step **begun);
int32_t model_next(const struct llama_step *step, int32_t row);
const float *model_logits(const struct llama_step *step, int32_t row, int64_t vocabulary);
