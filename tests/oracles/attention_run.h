/* attention_run.h - many attention tasks in one graph: described, replayed once and checked against
 * attention_oracle.h. */
#pragma once

#include "attention_oracle.h"

enum { ATTENTION_TYPES = 2, ATTENTION_DIMENSIONS = 4 };
extern const rondo_dtype attention_types[ATTENTION_TYPES];
extern const int64_t attention_dimensions[ATTENTION_DIMENSIONS];

enum attention_types_of_cases {
  BOTH_TYPES,   /* each case in each dimension has both types */
  TYPES_IN_TURN /* or one of them */
};

/* Checks each case, which leaves type, layout and head dimension out, in every head dimension. Types that take turns do
 * it with the layouts: each case sees each pair of type and layout in one of its four dimensions, and four cases show
 * each dimension each pair. */
void attentions_check_cases(rondo_backend backend, enum attention_types_of_cases types, const struct attention *cases,
                            size_t count);

/* All replays of a graph with these tasks give the same bits. */
void attentions_same_bits(rondo_backend backend, struct attention *tasks, size_t count, int replays);

/* For operands that hold NaN, infinities or other special numbers. `plant` writes them into task i, and every number
 * of the result has to be that of double precision. */
void attentions_planted(rondo_backend backend, struct attention *tasks, size_t count, uint64_t seed,
                        void (*plant)(struct attention *a, size_t i));

/* For scores so large that the oracle's bound says nothing. The scores of a row are equal, so that its result is a
 * mean. */
void attentions_immense(rondo_backend backend, struct attention *tasks, size_t count);

/* Runs and checks the tasks, in as many graphs as their tensors need. */
void attentions_check(rondo_backend backend, struct attention *tasks, size_t count);
