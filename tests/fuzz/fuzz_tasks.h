/* fuzz_tasks.h - the steps of a program that add tasks. */
#ifndef RONDO_FUZZ_TASKS_H
#define RONDO_FUZZ_TASKS_H

#include "fuzz_describe.h"

/* Each a task of that operation. */
void add_copy(struct build *b);
void add_append(struct build *b);
void add_qr(struct build *b);
void add_qr_part(struct build *b);
void add_triangular_inverse(struct build *b);
void add_least_squares(struct build *b);
void add_gemm_softmax(struct build *b);
void add_attention(struct build *b);
void add_gemv(struct build *b);
void add_quantize(struct build *b);

/* A task of the user's own. */
void add_user(struct build *b);
int user_capture(void *user, void *stream, void *const *data);

/* A whole graph of rondo_graphs.h (fuzz_ready_made.c). */
void add_ready_made(struct build *b);

#endif
