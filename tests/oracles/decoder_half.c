/* decoder_half.c - see decoder_half.h. */
#include "decoder_half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/layer_form.h"

double half_u(rondo_dtype dtype) { return dtype == RONDO_F32 ? 0x1p-24 : dtype == RONDO_F16 ? 0x1p-11 : 0x1p-8; }

size_t grid_bytes(const struct grid *g) { return (size_t)(g->rows * g->pitch) * rondo_dtype_bits(g->dtype) / 8; }

/* Of rank 2, or rank 1 where it is one row that is not padded. */
static struct grid grid_add(rondo_graph *graph, const char *name, tensor_kind kind, rondo_dtype dtype, int64_t rows,
                            int64_t columns, uint32_t rank, bool padded) {
  struct grid g = {dtype, rows, columns, columns + (padded ? HALF_PADDING : 0), {0}, {0}, NULL};
  const int64_t shape[] = {rows, g.pitch}, extent[] = {rows, columns}, offset[] = {0, 0};
  REQUIRE_OK(kind(graph, name, dtype, rank, shape + 2 - rank, &g.whole));
  g.view = g.whole;
  if (padded) REQUIRE_OK(rondo_view(graph, g.whole, offset, extent, &g.view));
  g.data = malloc(grid_bytes(&g));
  memset(g.data, 0xff, grid_bytes(&g));
  return g;
}

double grid_read(const struct grid *g, int64_t row, int64_t column) {
  return oracle_read(g->dtype, g->data, row * g->pitch + column);
}

static void grid_fill(struct grid *g, struct random *random, double size, double middle) {
  for (int64_t r = 0; r < g->rows; r++)
    for (int64_t c = 0; c < g->columns; c++)
      oracle_write(g->dtype, g->data, r * g->pitch + c, middle + size * random_normal(random));
}

/* NVFP4: every code, and scales from 0.5 to 1.9. */
static void codes_fill(struct grid *codes, struct grid *scales, struct random *random) {
  uint8_t *bytes = codes->data, *scale = scales->data;
  for (int64_t r = 0; r < codes->rows; r++) {
    for (int64_t c = 0; c < codes->columns / 2; c++) bytes[r * codes->pitch / 2 + c] = (uint8_t)random_bits(random);
    for (int64_t c = 0; c < scales->columns; c++)
      scale[r * scales->pitch + c] = (uint8_t)(0x30 | (random_bits(random) & 0xf));
  }
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

static int64_t half_first_rows(const struct half *h) {
  return h->attention ? (h->query_heads + 2 * h->kv_heads) * h->dimension : 2 * h->columns;
}

int64_t half_inner(const struct half *h) { return h->attention ? h->query_heads * h->dimension : h->columns; }

static void matrix_add(rondo_graph *graph, const struct half *h, int64_t rows, int64_t columns, struct grid *matrix,
                       struct grid *scales) {
  const tensor_kind kind = h->states ? rondo_state : rondo_constant;
  *matrix = grid_add(graph, "weights", kind, h->weights, rows, columns, 2, h->padded);
  if (h->weights == RONDO_NVFP4)
    *scales = grid_add(graph, "scales", kind, RONDO_E4M3, rows, columns / HALF_BLOCK, 2, h->padded);
  else if (h->weights == RONDO_E4M3 && !h->no_row_scales)
    *scales = grid_add(graph, "scales", kind, RONDO_F32, 1, rows, 1, false);
}

/* f32 [parts, rows, hidden]; as a grid, parts and rows are rows. */
static struct grid parts_add(rondo_graph *graph, const struct half *h, const char *name, int64_t parts) {
  struct grid g = {RONDO_F32, parts * h->rows, h->hidden, h->hidden, {0}, {0}, NULL};
  REQUIRE_OK(rondo_state(graph, name, RONDO_F32, 3, (int64_t[]){parts, h->rows, h->hidden}, &g.whole));
  g.view = g.whole;
  g.data = malloc(grid_bytes(&g));
  memset(g.data, 0xff, grid_bytes(&g));
  return g;
}

/* Sequences that have caches, or with pages their number. A page more than the sequence has is never its own. */
static int64_t cache_items(const struct half *h) {
  return h->page_rows ? h->capacity / h->page_rows + 1 : h->one_sequence ? 1 : h->rows;
}

static struct grid cache_add(rondo_graph *graph, const struct half *h, const char *name) {
  const int64_t rows = h->page_rows ? h->page_rows : h->capacity;
  struct grid g = {h->dtype, cache_items(h) * rows * h->kv_heads, h->dimension, h->dimension, {0}, {0}, NULL};
  const int64_t shape[] = {cache_items(h), rows, h->kv_heads, h->dimension};
  REQUIRE_OK(rondo_state(graph, name, h->dtype, 4, shape, &g.whole));
  g.view = g.whole;
  g.data = malloc(grid_bytes(&g) + 1);
  return g;
}

static rondo_attention_block_desc half_attention_desc(const struct half *h) {
  return (rondo_attention_block_desc){.x = h->x.view,
                                      .x_parts = h->parts.view,
                                      .norm = h->norm.view,
                                      .norm_epsilon = h->epsilon,
                                      .scale = h->scale,
                                      .qkv = h->first.view,
                                      .qkv_scales = h->first_scales.view,
                                      .output = h->last.view,
                                      .output_scales = h->last_scales.view,
                                      .k = h->k.view,
                                      .v = h->v.view,
                                      .position = h->position,
                                      .rope_frequencies = h->rope_frequencies,
                                      .rope_base = h->base,
                                      .rope_pairing = h->pairing,
                                      .out = h->out.view,
                                      .out_parts = h->out_sums.view};
}

static rondo_feed_forward_desc half_feed_forward_desc(const struct half *h) {
  return (rondo_feed_forward_desc){.x = h->x.view,
                                   .x_parts = h->parts.view,
                                   .norm = h->norm.view,
                                   .norm_epsilon = h->epsilon,
                                   .scale = h->scale,
                                   .gate_up = h->first.view,
                                   .gate_up_scales = h->first_scales.view,
                                   .down = h->last.view,
                                   .down_scales = h->last_scales.view,
                                   .out = h->out.view,
                                   .out_parts = h->out_sums.view};
}

static void half_place_add(rondo_graph *graph, struct half *h) {
  h->k = cache_add(graph, h, "k");
  h->v = cache_add(graph, h, "v");
  const tensor_kind kind = h->state_position ? rondo_state : rondo_input;
  REQUIRE_OK(kind(graph, "position", RONDO_I32, 1, (int64_t[]){h->one_position || h->one_sequence ? 1 : h->rows},
                  &h->position));
  if (h->page_rows)
    REQUIRE_OK(rondo_input(graph, "kv_pages", RONDO_I32, 2, (int64_t[]){1, h->capacity / h->page_rows}, &h->kv_pages));
  if (h->frequencies)
    REQUIRE_OK(rondo_constant(graph, "frequencies", RONDO_F32, 1, (int64_t[]){h->dimension / 2}, &h->rope_frequencies));
}

void half_tensors_add(rondo_graph *graph, struct half *h, const struct half *before) {
  const bool sixteen = h->weights == RONDO_F16 || h->weights == RONDO_BF16;
  h->scale = h->weights == RONDO_NVFP4 ? 0.3f / sqrtf((float)h->hidden) : sixteen ? 0 : 0.25f;
  if (before) {
    h->x = before->out, h->parts = before->out_sums;
    h->x_parts = before->out_parts;
  } else {
    h->x = grid_add(graph, "x", rondo_input, h->stream, h->rows, h->hidden, 2, h->padded);
    if (h->x_parts) h->parts = parts_add(graph, h, "x_parts", h->x_parts);
  }
  if (h->epsilon > 0 && !h->no_norm_weights)
    h->norm = grid_add(graph, "norm", h->states ? rondo_state : rondo_constant, h->dtype, 1, h->hidden, 1, false);
  matrix_add(graph, h, half_first_rows(h), h->hidden, &h->first, &h->first_scales);
  matrix_add(graph, h, h->hidden, half_inner(h), &h->last, &h->last_scales);
  h->out = grid_add(graph, "out", rondo_state, h->stream, h->rows, h->hidden, 2, h->padded);
  h->out_sums = parts_add(graph, h, "out_parts", h->out_parts);
  if (h->attention) half_place_add(graph, h);
}

void half_task_add(rondo_graph *graph, const struct half *h) {
  if (h->attention) {
    const rondo_attention_block_desc desc = half_attention_desc(h);
    REQUIRE_OK(h->one_sequence ? prompt_attention_add(graph, &desc, h->kv_pages, h->as_tokens)
                               : attention_block_add(graph, &desc, NULL));
  } else {
    const rondo_feed_forward_desc desc = half_feed_forward_desc(h);
    REQUIRE_OK(feed_forward_add(graph, &desc, h->last_part_is_late, h->as_tokens, NULL));
  }
}

void half_add(rondo_graph *graph, struct half *h, const struct half *before) {
  half_tensors_add(graph, h, before);
  half_task_add(graph, h);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Of one deviation, between its root of three and the other sign's. */
static double even(struct random *random) { return 3.4641 * (random_uniform(random) - 0.5); }

static void numbers_fill(struct grid *g, struct random *random, double size) {
  for (int64_t r = 0; r < g->rows; r++)
    for (int64_t c = 0; c < g->columns; c++) oracle_write(g->dtype, g->data, r * g->pitch + c, size * even(random));
}

static void matrix_fill(struct grid *matrix, struct grid *scales, struct random *random) {
  const double size = 1 / sqrt((double)matrix->columns);
  if (matrix->dtype == RONDO_NVFP4) {
    codes_fill(matrix, scales, random);
    return;
  }
  numbers_fill(matrix, random, scales->data ? 1 : matrix->dtype == RONDO_E4M3 ? 0.1 : size);
  if (!scales->data) return;
  grid_fill(scales, random, size, 4 * size);
}

int64_t half_position(const struct half *h, int64_t row) {
  return h->one_sequence ? h->positions[0] + row : h->positions[h->one_position ? 0 : row];
}

int64_t half_cache_row(const struct half *h, int64_t row, int64_t j) {
  const int64_t item = h->page_rows ? 0 : h->one_sequence ? 0 : row;
  const int64_t at =
      h->page_rows ? h->pages[j / h->page_rows] * h->page_rows + j % h->page_rows : item * h->capacity + j;
  return at * h->kv_heads;
}

int64_t half_length(const struct half *h, int64_t row) {
  const int64_t length = half_position(h, row) + 1;
  return length < 0 ? 0 : length > h->capacity ? h->capacity : length;
}

/* NaN from the token's own row on. */
static void cache_fill(const struct half *h, struct grid *cache, uint16_t **before, struct random *random) {
  numbers_fill(cache, random, 1);
  uint16_t *numbers = cache->data;
  for (int64_t b = 0; b < (h->one_sequence ? 1 : h->rows); b++) {
    const int64_t at = half_position(h, b);
    for (int64_t j = at < 0 ? 0 : at; j < h->capacity; j++)
      memset(numbers + half_cache_row(h, b, j) * h->dimension, 0xff, (size_t)(h->kv_heads * h->dimension) * 2);
  }
  *before = malloc(grid_bytes(cache) + 1);
  memcpy(*before, cache->data, grid_bytes(cache));
}

void half_fill(struct half *h, struct random *random, bool is_first) {
  if (is_first) grid_fill(&h->x, random, 1, 0);
  if (is_first && h->x_parts) grid_fill(&h->parts, random, 1 / sqrt((double)h->x_parts), 0);
  if (h->norm.data) grid_fill(&h->norm, random, 0.3, 1);
  matrix_fill(&h->first, &h->first_scales, random);
  matrix_fill(&h->last, &h->last_scales, random);
  if (!h->attention) return;
  cache_fill(h, &h->k, &h->k_before, random);
  cache_fill(h, &h->v, &h->v_before, random);
  for (int64_t i = 0; i < h->dimension / 2; i++)
    h->frequency[i] = (float)(h->frequencies ? random_uniform(random)
                                             : pow((double)h->base, -2.0 * (double)i / (double)h->dimension));
}

void half_set(const struct half *h, struct trial *trial, bool is_first) {
  const struct grid *grids[] = {&h->x, &h->parts,       &h->norm, &h->first, &h->first_scales, &h->last,
                                &h->k, &h->last_scales, &h->v,    &h->out,   &h->out_sums};
  for (size_t i = is_first ? 0 : 2; i < sizeof grids / sizeof *grids; i++)
    if (grids[i]->data && grids[i]->rows) trial_set(trial, grids[i]->whole, grids[i]->data);
  if (h->attention) trial_set(trial, h->position, h->positions);
  if (h->page_rows) trial_set(trial, h->kv_pages, h->pages);
  if (h->rope_frequencies.graph) trial_set(trial, h->rope_frequencies, h->frequency);
}

void half_get(struct half *h, struct trial *trial) {
  trial_get(trial, h->out.whole, h->out.data);
  trial_get(trial, h->out_sums.whole, h->out_sums.data);
  if (!h->attention || !h->capacity) return;
  trial_get(trial, h->k.whole, h->k.data);
  trial_get(trial, h->v.whole, h->v.data);
}

void half_free(struct half *h, bool is_first) {
  void *all[] = {h->norm.data, h->first.data, h->first_scales.data, h->last.data, h->last_scales.data, h->k.data,
                 h->v.data,    h->k_before,   h->v_before,          h->out.data,  h->out_sums.data};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  if (is_first) free(h->x.data), free(h->parts.data);
}
