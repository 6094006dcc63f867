/* attention_run.h - many attention tasks in one graph: described, replayed once and checked against
 * attention_oracle.h. */
#ifndef RONDO_TEST_ATTENTION_RUN_H
#define RONDO_TEST_ATTENTION_RUN_H

#include "attention_oracle.h"

/* For operands that hold NaN, infinities or other special numbers. `plant` writes them into task i, and every number
 * of the result has to be that of double precision. */
void attentions_planted(rondo_backend backend, struct attention *tasks, size_t count, uint64_t seed,
                        void (*plant)(struct attention *a, size_t i));

/* For scores so large that the oracle's bound says nothing. The scores of a row are equal, so that its result is a
 * mean. */
void attentions_immense(rondo_backend backend, struct attention *tasks, size_t count);

/* Runs and checks the tasks, in as many graphs as their tensors need. */
void attentions_check(rondo_backend backend, struct attention *tasks, size_t count);

#endif
