/* figures.h - the times of opening and of tokens, and the memory taken of the pools. */
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
  size_t answer_begin;     /* of the last answer: the count that it began with */
  uint64_t answer_ns;      /* of the last answer */
};

/* Without memory a token is not counted. */
void figures_add(struct figures *figures, uint64_t token_ns);
/* Around the tokens of an answer. */
void figures_begin_answer(struct figures *figures);
void figures_end_answer(struct figures *figures, uint64_t answer_ns);
/* To standard error: a line about the last answer, of whose context so many tokens are taken; and all, which sorts the
 * times. */
void figures_print_answer(const struct figures *figures, int64_t taken, int64_t context);
void figures_print(struct figures *figures, rondo_runtime *runtime);
void figures_free(struct figures *figures);

#endif
