/* figures.h - how long opening and tokens took, and what was taken of the pools. */
#ifndef FIGURES_H
#define FIGURES_H

#include <rondo.h>
#include <stddef.h>

struct figures {
  uint64_t opened_ns; /* from the beginning until the model was there */
  uint64_t *token_ns; /* of each replay that made a token of an answer; the first one came with the prompt */
  size_t count, capacity;
  uint64_t answering_ns;   /* from the first token of each answer to its last */
  uint64_t first_token_ns; /* of the last prompt */
  size_t prompt_tokens;    /* of the last prompt */
};

/* Without memory a token is not counted. */
void figures_add(struct figures *figures, uint64_t token_ns);
/* Sorts the times. To standard error. */
void figures_print(struct figures *figures, rondo_runtime *runtime);
void figures_free(struct figures *figures);

#endif
