/* decoder_half.h - a layer half of a test, attention or feed forward: its description in a graph, its tensors and its
 * numbers.
 *
 * Inputs lie in wider tensors with NaN after each row, if the half is padded. Results and the rows of the caches that
 * no token has written yet begin as NaN. */
#pragma once

#include "../support.h"

enum { HALF_MOST_ROWS = 128, HALF_MOST_PAGES = 16, HALF_PADDING = 32, HALF_BLOCK = 16, HALF_MOST_PAIRS = 128 };

/* Rows of any type, each followed by NaN (all bits set) if there is padding. */
struct grid {
  rondo_dtype dtype;
  int64_t rows, columns, pitch;
  rondo_tensor whole, view;
  void *data;
};

struct half {
  bool attention;
  rondo_dtype stream, dtype, weights; /* stream: of x and out */
  int64_t rows, hidden;
  int64_t query_heads, kv_heads, dimension, capacity; /* attention */
  int64_t columns;                                    /* feed forward */
  int64_t x_parts, out_parts;                         /* x_parts 0: absent */
  float epsilon;                                      /* 0: no norm */
  bool no_norm_weights, no_row_scales, padded;
  bool last_part_is_late; /* feed forward */
  float base;
  bool frequencies, one_position;
  bool state_position; /* so that it may be read before the tasks in front have ended */
  bool states;         /* so are the weights and the norm, which tasks may write then */
  rondo_rope_pairing pairing;
  bool one_sequence; /* attention: rows are tokens one after the other, of which the first has the first position */
  bool as_tokens;    /* of one sequence: rows have the bits that they have alone */
  int64_t page_rows; /* of one sequence; 0: K and V have no pages */
  int32_t pages[HALF_MOST_PAGES];
  int32_t positions[HALF_MOST_ROWS];
  /* Made by half_add. */
  float scale;
  struct grid x, parts, norm, out, out_sums;
  struct grid first, first_scales, last, last_scales; /* qkv or gate_up, output or down */
  struct grid k, v;                                   /* rows: of all sequences, capacity and KV heads */
  rondo_tensor position, rope_frequencies, kv_pages;
  float frequency[HALF_MOST_PAIRS];
  uint16_t *k_before, *v_before;
};

/* The unit roundoff of f32 or a 16-bit type. */
double half_u(rondo_dtype dtype);

/* The bytes of a grid with its padding. */
size_t grid_bytes(const struct grid *g);

/* A number of a grid. */
double grid_read(const struct grid *g, int64_t row, int64_t column);

/* The columns of the second matrix: of all query heads, or of the gated vector. */
int64_t half_inner(const struct half *h);

/* Adds the half's tensors. x and its parts are the results of `before`, or inputs if it is NULL. */
void half_tensors_add(rondo_graph *graph, struct half *h, const struct half *before);

/* Adds the task. */
void half_task_add(rondo_graph *graph, const struct half *h);

/* half_tensors_add and half_task_add. */
void half_add(rondo_graph *graph, struct half *h, const struct half *before);

/* The position of a row's token. */
int64_t half_position(const struct half *h, int64_t row);

/* The row of the grids of K and V that has head 0 of row `j` of the sequence of row `row`. */
int64_t half_cache_row(const struct half *h, int64_t row, int64_t j);

/* The rows of the caches that a row's token sees, its own among them. */
int64_t half_length(const struct half *h, int64_t row);

/* Fills the tensors, those of x only if the half is the first of its graph. */
void half_fill(struct half *h, struct random *random, bool is_first);

/* Uploads them. States begin as NaN. */
void half_set(const struct half *h, struct trial *trial, bool is_first);

/* Fetches the results and the caches. */
void half_get(struct half *h, struct trial *trial);

/* Frees the half's memory, that of x only if the half is the first of its graph. */
void half_free(struct half *h, bool is_first);
