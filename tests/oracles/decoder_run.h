/* decoder_run.h - one layer half from its description to its check, the sizes of models, and the kernel that each case
 * is for. */
#pragma once

#include "decoder_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Writes the half's types and sizes as text. */
void half_describe(const struct half *h, char text[200]);

/* Replays once more: the same bits. */
void half_repeat(struct half *h, struct trial *trial, const char *what);

enum { HALF_KERNEL_BYTES = 64 };

/* The launches of the graph's task `index` on a chip of each kind. A chip without clusters takes steps; on the others
 * the half is one kernel, the one that this file says, or steps. */
void half_check_launches(const rondo_graph *graph, uint32_t index, const struct half *h, const char *what);

/* The kernels of the cases that were run. */
struct half_noted {
  int count;
  char names[1024][HALF_KERNEL_BYTES];
};

/* NULL, or where a test that only asks for kernels notes them: then half_run describes its case and does not run it. */
extern struct half_noted *half_noted;

/* For a list of kernels: each is that of a case. */
#define REQUIRE_HALF_FOR(chips, parameters, name, ...)                                                                 \
  for (int i = 0, there = 0; !there; i++) {                                                                            \
    cr_assert_lt(i, half_noted->count, "no case for " #name);                                                          \
    there = !strcmp(half_noted->names[i], #name);                                                                      \
  }

/* Describes, fills, replays and checks a half. `change` alters its numbers before the replay; NULL: nothing. */
void half_run_changed(rondo_backend backend, struct half *h, void (*change)(struct half *));

/* half_run_changed without a change. */
void half_run(rondo_backend backend, struct half *h);

/* Sets all of x to zero but two columns in 48. */
void x_mostly_zero(struct half *h);

/* Sets x to zero. */
void x_zero(struct half *h);

/* Changes of x: numbers of very different sizes beside each other and in different places, huge ones, tiny ones,
 * zeros. */
enum { X_CHANGES = 5 };

extern void (*const x_changes[X_CHANGES])(struct half *);

/* For halves of one token and NVFP4, whose products are of integers, which know neither NaN nor infinity: with one of
 * them in x, every result is NaN or infinite. */
void half_run_not_finite(rondo_backend backend, const struct half *of);

static const struct {
  rondo_dtype stream, dtype, weights;
} types[] = {{RONDO_F32, RONDO_BF16, RONDO_BF16},  {RONDO_F16, RONDO_F16, RONDO_F16},
             {RONDO_BF16, RONDO_BF16, RONDO_E4M3}, {RONDO_F32, RONDO_F16, RONDO_E4M3},
             {RONDO_F32, RONDO_BF16, RONDO_NVFP4}, {RONDO_F16, RONDO_F16, RONDO_NVFP4},
             {RONDO_BF16, RONDO_BF16, RONDO_BF16}};

enum { IN_BF16 = 0, IN_NVFP4 = 4 }; /* x in f32, the rest in bf16 */

static const int64_t row_counts[] = {1, 2, 3, 4, 5, 8, 9, 16};

/* The half with types[type], this number of rows, and an epsilon if it has none. */
struct half with_types(struct half h, size_t type, int64_t rows, bool attention);

/* The half whose norm has weights or none; without them, what lies between is bf16 if x is f32. */
struct half with_norm_weights(struct half h, bool has_weights);

/* The half without a norm; then too. */
struct half without_norm(struct half h);

/* The half at positions all over the capacity, among them the first or the last row. */
struct half at_positions(struct half h, uint64_t seed);

/* The sizes of SmolLM2 135M and 360M, and a small model with larger heads. */
static const struct half models[] = {
    {.hidden = 576, .query_heads = 9, .kv_heads = 3, .dimension = 64, .capacity = 527, .columns = 1536},
    {.hidden = 960, .query_heads = 15, .kv_heads = 5, .dimension = 64, .capacity = 300, .columns = 2560},
    {.hidden = 512, .query_heads = 8, .kv_heads = 2, .dimension = 128, .capacity = 200, .columns = 1024},
};

/* Runs every type of x and weights with every number of rows. */
void models_run(rondo_backend backend, bool attention);
