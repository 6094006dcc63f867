/* fuzz_tasks.h - the steps of a program that add tasks. */
#pragma once

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
void add_quantize_e4m3(struct build *b);

/* The parts of a language model (fuzz_model.c). */
void add_attention_append(struct build *b);
void add_embed(struct build *b);
void add_rms_norm(struct build *b);
void add_rope(struct build *b);
void add_elementwise(struct build *b);
void add_argmax(struct build *b);
void add_penalty(struct build *b);
void add_prompt_lookup(struct build *b);
void add_sample(struct build *b);
void add_attention_block(struct build *b);
void add_feed_forward(struct build *b);

/* A task of the user's own. */
void add_user(struct build *b);
int user_capture(void *user, void *stream, void *const *data);

/* A whole graph of rondo_graphs.h (fuzz_ready_made.c). */
void add_ready_made(struct build *b);
void add_llama(struct build *b);
/* The Llama that borrows from the lender's. */
void add_borrower(struct build *b);
