/* figures.h - statistics: the times of opening and of tokens, and the used memory of the pools. */
#pragma once

#include <rondo.h>
#include <stddef.h>

struct figures {
  uint64_t opened_ns; /* from the start until the model was loaded */
  uint64_t *token_ns; /* of each replay that made a token of an answer, without the first, which the prompt makes */
  size_t count, capacity;
  uint64_t answering_ns;   /* from the first token of each answer to its last */
  uint64_t first_token_ns; /* of the last prompt */
  size_t prompt_tokens;    /* of the last prompt */
  size_t answer_begin;     /* the count at the beginning of the last answer */
  uint64_t answer_ns;      /* of the last answer */
};

/* Adds the time of a token; drops it if there is no memory. */
void figures_add(struct figures *figures, uint64_t token_ns);
/* Called before and after the tokens of an answer. */
void figures_begin_answer(struct figures *figures);
void figures_end_answer(struct figures *figures, uint64_t answer_ns);
/* Both print to standard error: a line about the last answer, with the used tokens of the context; and all statistics,
 * which sorts the times. */
void figures_print_answer(const struct figures *figures, int64_t taken, int64_t context);
void figures_print(struct figures *figures, rondo_runtime *runtime);
void figures_free(struct figures *figures);
