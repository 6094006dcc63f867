/* graph_llama.c - the ready-made graph of a Llama's step, decode or prefill:
 *
 *     embedding -> (attention -> feed_forward) of each layer -> norm -> head -> next
 *     embedding -> (qkv -> attention -> output -> gate_up -> down) of each layer -> head -> next
 *
 * The first is decode, whose layers are two tasks of what a chip may have as one kernel each: they hand on the residual
 * stream and parts of a sum. The second is a prefill, and decode where that was not made for it or each sequence is to
 * have bits of its own: norms are prologues of products, gates and residuals their epilogues. All layers share their
 * temporaries: each task waits for the one before it anyway. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../runtime/graph.h"
#include <rondo_graphs.h>

/* A cache has room for the padding behind a context's last token. */
enum { NVFP4_BLOCK = 16, MOST_ROWS = 16, PADDING = MOST_ROWS - 1, HALF = 2 };

/* Decode in halves: parts of the sum that a feed forward leaves, one for each of its clusters of eight blocks: of a
 * small model and of one that keeps the memory busy (an H200 runs fifteen such clusters at once, and a sixteenth behind
 * them); and the most KV heads, each of which leaves one too. Kernels of several sequences and of a wide model have
 * narrow heads alone. */
enum { SMALL_HIDDEN = 1024, SMALL_PARTS = 8, LARGE_PARTS = 15, MOST_PARTS = 16, NARROW_HEAD = 64, WIDE_HEAD = 128 };
enum { WIDE_HIDDEN = 2048, CLUSTER_HEADS = 2 };

/* What is being built. */
struct builder {
  rondo_graph *graph;
  rondo_graph_llama_desc desc; /* with defaults filled in */
  rondo_graph_llama_tensors *made;
  int64_t rows, q_columns, kv_columns;       /* rows: tokens that this graph takes */
  rondo_tensor ids, position;                /* what the tasks read */
  rondo_tensor hidden, qkv, attended, gated; /* temporaries [rows, ..] */
  rondo_tensor q, new_k, new_v, o;           /* heads in them */
  rondo_tensor between; /* of halves: the stream that a feed forward takes, as hidden is a layer's */
  rondo_tensor attended_parts, gated_parts; /* f32 [parts, rows, hidden]: what the halves leave to be added */
};

typedef rondo_status (*tensor_function)(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                        const int64_t *shape, rondo_tensor *tensor);

static bool is_prefill(const struct builder *b) { return b->desc.tokens > 0; }

/* Does a chip have attention of these types in one kernel? */
static bool has_attention_kernels(const rondo_graph_llama_desc *desc) {
  return desc->dtype == RONDO_BF16 && (desc->weights == RONDO_BF16 || desc->weights == RONDO_NVFP4);
}

/* Are layers two tasks? Of several sequences where there are kernels for these; else five are faster as yet
 * (docs/performance.md). */
static bool in_halves(const struct builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  const int64_t d = desc->head_dimension;
  if (is_prefill(b) || desc->one_order || desc->kv_heads > MOST_PARTS || (d != NARROW_HEAD && d != WIDE_HEAD))
    return false;
  return desc->sequences == 1 || (desc->hidden <= SMALL_HIDDEN && d == NARROW_HEAD && has_attention_kernels(desc));
}

/* "layer3.qkv", with what the graph is called in front. */
static const char *name_of(const struct builder *b, char text[NAME_BYTES], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static const char *name_of(const struct builder *b, char text[NAME_BYTES], const char *format, ...) {
  va_list arguments;
  int used = b->desc.name ? snprintf(text, NAME_BYTES, "%s.", b->desc.name) : 0;
  if (used >= NAME_BYTES) return text;
  va_start(arguments, format);
  vsnprintf(text + used, (size_t)(NAME_BYTES - used), format, arguments);
  va_end(arguments);
  return text;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* A constant or state of the graph's own, or the lender's. */
static rondo_status resident_add(const struct builder *b, tensor_function add, const char *name, rondo_dtype dtype,
                                 uint32_t rank, const int64_t *shape, rondo_tensor lent, rondo_tensor *tensor) {
  return b->desc.lender ? rondo_borrow(b->graph, lent, tensor) : add(b->graph, name, dtype, rank, shape, tensor);
}

static rondo_status norm_add(const struct builder *b, const char *name, rondo_tensor lent, rondo_tensor *tensor) {
  return resident_add(b, rondo_constant, name, b->desc.dtype, 1, &b->desc.hidden, lent, tensor);
}

/* A matrix of weights, and its scales where its type has any. */
static rondo_status weights_add(const struct builder *b, const char *name, rondo_dtype dtype, int64_t rows,
                                int64_t columns, const rondo_tensor lent[2], rondo_tensor *weights,
                                rondo_tensor *scales) {
  char of_scales[NAME_BYTES];
  int64_t shape[] = {rows, columns}, blocks[] = {rows, columns / NVFP4_BLOCK};
  rondo_status status = resident_add(b, rondo_constant, name, dtype, 2, shape, lent[0], weights);
  if (status != RONDO_OK || (dtype != RONDO_E4M3 && dtype != RONDO_NVFP4)) return status;
  snprintf(of_scales, sizeof of_scales, "%.55s scales", name);
  bool is_packed = dtype == RONDO_NVFP4;
  return resident_add(b, rondo_constant, of_scales, is_packed ? RONDO_E4M3 : RONDO_F32, is_packed ? 2 : 1, blocks,
                      lent[1], scales);
}

/* The constants and states of layer i. */
static rondo_status layer_tensors_add(const struct builder *b, int32_t i, rondo_llama_layer *layer) {
  const rondo_graph_llama_desc *desc = &b->desc;
  const rondo_llama_layer lent = desc->lender ? desc->lender->layers[i] : (rondo_llama_layer){0};
  const int64_t cache[] = {desc->sequences, desc->context + PADDING, desc->kv_heads, desc->head_dimension};
  char name[NAME_BYTES];
  *layer = (rondo_llama_layer){0};
  const struct {
    const char *name;
    int64_t rows, columns;
    rondo_tensor lent[2], *weights, *scales;
  } matrices[] = {
      {"qkv",
       b->q_columns + 2 * b->kv_columns,
       desc->hidden,
       {lent.qkv, lent.qkv_scales},
       &layer->qkv,
       &layer->qkv_scales},
      {"output", desc->hidden, b->q_columns, {lent.output, lent.output_scales}, &layer->output, &layer->output_scales},
      {"gate_up",
       2 * desc->feed_forward,
       desc->hidden,
       {lent.gate_up, lent.gate_up_scales},
       &layer->gate_up,
       &layer->gate_up_scales},
      {"down", desc->hidden, desc->feed_forward, {lent.down, lent.down_scales}, &layer->down, &layer->down_scales},
  };
  rondo_status status =
      norm_add(b, name_of(b, name, "layer%" PRId32 ".attention_norm", i), lent.attention_norm, &layer->attention_norm);
  for (size_t m = 0; m < sizeof matrices / sizeof *matrices && status == RONDO_OK; m++)
    status =
        weights_add(b, name_of(b, name, "layer%" PRId32 ".%s weights", i, matrices[m].name), desc->weights,
                    matrices[m].rows, matrices[m].columns, matrices[m].lent, matrices[m].weights, matrices[m].scales);
  if (status == RONDO_OK)
    status = norm_add(b, name_of(b, name, "layer%" PRId32 ".feed_forward_norm", i), lent.feed_forward_norm,
                      &layer->feed_forward_norm);
  if (status == RONDO_OK)
    status = resident_add(b, rondo_state, name_of(b, name, "layer%" PRId32 ".k", i), desc->dtype, 4, cache, lent.k,
                          &layer->k);
  if (status != RONDO_OK) return status;
  return resident_add(b, rondo_state, name_of(b, name, "layer%" PRId32 ".v", i), desc->dtype, 4, cache, lent.v,
                      &layer->v);
}

/* The constants that no layer has. */
static rondo_status ends_add(const struct builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  rondo_graph_llama_tensors *made = b->made;
  const rondo_graph_llama_tensors lent = desc->lender ? *desc->lender : (rondo_graph_llama_tensors){0};
  char name[NAME_BYTES];
  rondo_status status =
      weights_add(b, name_of(b, name, "embedding weights"), desc->embedding, desc->vocabulary, desc->hidden,
                  (rondo_tensor[]){lent.embedding, lent.embedding_scales}, &made->embedding, &made->embedding_scales);
  if (status == RONDO_OK) status = norm_add(b, name_of(b, name, "norm"), lent.norm, &made->norm);
  if (status == RONDO_OK && !desc->tied_embedding)
    status = weights_add(b, name_of(b, name, "head weights"), desc->embedding, desc->vocabulary, desc->hidden,
                         (rondo_tensor[]){lent.head, lent.head_scales}, &made->head, &made->head_scales);
  if (status == RONDO_OK && desc->rope_frequencies)
    status = resident_add(b, rondo_constant, name_of(b, name, "frequencies"), RONDO_F32, 1,
                          (int64_t[]){desc->head_dimension / HALF}, lent.frequencies, &made->frequencies);
  return status;
}

/* i32 or f32 [count]. */
static rondo_status list_add(const struct builder *b, tensor_function add, const char *part, rondo_dtype dtype,
                             int64_t count, rondo_tensor *tensor) {
  char name[NAME_BYTES];
  return add(b->graph, name_of(b, name, "%s", part), dtype, 1, &count, tensor);
}

/* The sequence's item of a list, in a prefill; else the list. */
static rondo_status item_of(const struct builder *b, rondo_tensor list, rondo_tensor *item) {
  *item = list;
  if (!is_prefill(b) || !b->desc.feed_back) return RONDO_OK;
  return rondo_view(b->graph, list, (int64_t[]){b->desc.sequence}, (int64_t[]){1}, item);
}

/* What says which tokens, and where they stand. */
static rondo_status places_add(struct builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  const rondo_graph_llama_tensors lent = desc->lender ? *desc->lender : (rondo_graph_llama_tensors){0};
  rondo_graph_llama_tensors *made = b->made;
  const int64_t items = is_prefill(b) ? 1 : desc->sequences, sequences = desc->sequences;
  char name[NAME_BYTES];
  rondo_status status = RONDO_OK;
  if (desc->feed_back) {
    status =
        resident_add(b, rondo_state, name_of(b, name, "token"), RONDO_I32, 1, &sequences, lent.token, &made->token);
    if (status == RONDO_OK)
      status = resident_add(b, rondo_state, name_of(b, name, "position"), RONDO_I32, 1, &sequences, lent.position,
                            &made->position);
    if (status == RONDO_OK) status = list_add(b, rondo_input, "advance", RONDO_I32, items, &made->advance);
  } else {
    if (!is_prefill(b)) status = list_add(b, rondo_input, "token", RONDO_I32, items, &made->token);
    if (status == RONDO_OK) status = list_add(b, rondo_input, "position", RONDO_I32, items, &made->position);
  }
  if (status == RONDO_OK && is_prefill(b)) {
    status = list_add(b, rondo_input, "prompt", RONDO_I32, b->rows, &made->prompt);
    if (status == RONDO_OK) status = list_add(b, rondo_input, "last", RONDO_I32, 1, &made->last);
  }
  b->ids = is_prefill(b) ? made->prompt : made->token;
  return status == RONDO_OK ? item_of(b, made->position, &b->position) : status;
}

/* Some columns of [rows, ..] as heads: of each sequence's one row, or of the rows of one sequence. */
static rondo_status heads_of(const struct builder *b, rondo_tensor rows, int64_t column, int64_t heads,
                             rondo_tensor *seen) {
  const int64_t d = b->desc.head_dimension, items = is_prefill(b) ? 1 : b->rows;
  rondo_tensor part;
  rondo_status status = rondo_view(b->graph, rows, (int64_t[]){0, column}, (int64_t[]){b->rows, heads * d}, &part);
  if (status != RONDO_OK) return status;
  return rondo_reshape(b->graph, part, 4, (int64_t[]){items, b->rows / items, heads, d}, seen);
}

/* [rows, columns] of dtype. */
static rondo_status rows_add(const struct builder *b, const char *part, int64_t columns, rondo_tensor *tensor) {
  char name[NAME_BYTES];
  return rondo_temporary(b->graph, name_of(b, name, "%s", part), b->desc.dtype, 2, (int64_t[]){b->rows, columns},
                         tensor);
}

static rondo_status parts_add(const struct builder *b, const char *part, int64_t count, rondo_tensor *tensor) {
  char name[NAME_BYTES];
  return rondo_temporary(b->graph, name_of(b, name, "%s", part), RONDO_F32, 3,
                         (int64_t[]){count, b->rows, b->desc.hidden}, tensor);
}

/* One of each KV head; of a wide model, whose kernels have two query heads in a cluster, one of each cluster. */
static int64_t attended_parts(const rondo_graph_llama_desc *desc) {
  const int64_t group = desc->query_heads / desc->kv_heads, clusters = desc->query_heads / CLUSTER_HEADS;
  const bool is_wide =
      desc->hidden == WIDE_HIDDEN && desc->head_dimension == NARROW_HEAD && has_attention_kernels(desc);
  return is_wide && group % CLUSTER_HEADS == 0 && clusters <= MOST_PARTS ? clusters : desc->kv_heads;
}

static rondo_status temporaries_add(struct builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  rondo_status status = rows_add(b, "hidden", desc->hidden, &b->hidden);
  if (in_halves(b)) {
    if (status == RONDO_OK) status = rows_add(b, "hidden between", desc->hidden, &b->between);
    if (status == RONDO_OK) status = parts_add(b, "attended", attended_parts(desc), &b->attended_parts);
    const int64_t parts = desc->hidden <= SMALL_HIDDEN ? SMALL_PARTS : LARGE_PARTS;
    return status == RONDO_OK ? parts_add(b, "gated", parts, &b->gated_parts) : status;
  }
  if (status == RONDO_OK) status = rows_add(b, "qkv", b->q_columns + 2 * b->kv_columns, &b->qkv);
  if (status == RONDO_OK) status = rows_add(b, "attended", b->q_columns, &b->attended);
  if (status == RONDO_OK) status = rows_add(b, "gated", desc->feed_forward, &b->gated);
  if (status == RONDO_OK) status = heads_of(b, b->qkv, 0, desc->query_heads, &b->q);
  if (status == RONDO_OK) status = heads_of(b, b->qkv, b->q_columns, desc->kv_heads, &b->new_k);
  if (status == RONDO_OK) status = heads_of(b, b->qkv, b->q_columns + b->kv_columns, desc->kv_heads, &b->new_v);
  return status == RONDO_OK ? heads_of(b, b->attended, 0, desc->query_heads, &b->o) : status;
}

/* ---- A layer ----------------------------------------------------------------------------------------------------- */

/* What all products of the graph have in common; `product` says the rest. */
static rondo_status product_add(const struct builder *b, rondo_dtype weights, rondo_gemv_desc product) {
  product.scale = weights == RONDO_NVFP4 ? b->desc.nvfp4_scale : 0;
  product.one_order = b->desc.one_order;
  product.norm_epsilon = product.norm.graph ? b->desc.epsilon : 0;
  return rondo_add_gemv(b->graph, &product);
}

/* A layer's KV cache; in a prefill that of its sequence. */
static rondo_status cache_of(const struct builder *b, rondo_tensor cache, rondo_tensor *seen) {
  const rondo_graph_llama_desc *desc = &b->desc;
  *seen = cache;
  if (!is_prefill(b)) return RONDO_OK;
  return rondo_view(b->graph, cache, (int64_t[]){desc->sequence, 0, 0, 0},
                    (int64_t[]){1, desc->context + PADDING, desc->kv_heads, desc->head_dimension}, seen);
}

static rondo_status attention_add(const struct builder *b, int32_t i, const rondo_llama_layer *layer) {
  const rondo_graph_llama_desc *desc = &b->desc;
  char name[NAME_BYTES];
  rondo_tensor k, v;
  rondo_status status = cache_of(b, layer->k, &k);
  if (status == RONDO_OK) status = cache_of(b, layer->v, &v);
  if (status != RONDO_OK) return status;
  return rondo_add_attention(b->graph,
                             &(rondo_attention_desc){.name = name_of(b, name, "layer%" PRId32 ".attention", i),
                                                     .layout = RONDO_BSHD,
                                                     .q = b->q,
                                                     .k = k,
                                                     .v = v,
                                                     .o = b->o,
                                                     .causal = is_prefill(b),
                                                     .new_k = b->new_k,
                                                     .new_v = b->new_v,
                                                     .position = b->position,
                                                     .rope_frequencies = b->made->frequencies,
                                                     .rope_base = desc->rope_base,
                                                     .rope_pairing = desc->rope_pairing});
}

/* From hidden, and what the layer before has left, to between, and to hidden again. */
static rondo_status layer_halves_add(const struct builder *b, int32_t i, const rondo_llama_layer *layer) {
  const rondo_graph_llama_desc *desc = &b->desc;
  const float scale = desc->weights == RONDO_NVFP4 ? desc->nvfp4_scale : 0;
  char name[NAME_BYTES];
  rondo_status status = rondo_add_attention_block(
      b->graph, &(rondo_attention_block_desc){.name = name_of(b, name, "layer%" PRId32 ".attention", i),
                                              .x = b->hidden,
                                              .x_parts = i ? b->gated_parts : (rondo_tensor){0},
                                              .norm = layer->attention_norm,
                                              .norm_epsilon = desc->epsilon,
                                              .scale = scale,
                                              .qkv = layer->qkv,
                                              .qkv_scales = layer->qkv_scales,
                                              .output = layer->output,
                                              .output_scales = layer->output_scales,
                                              .k = layer->k,
                                              .v = layer->v,
                                              .position = b->position,
                                              .rope_frequencies = b->made->frequencies,
                                              .rope_base = desc->rope_base,
                                              .rope_pairing = desc->rope_pairing,
                                              .out = b->between,
                                              .out_parts = b->attended_parts});
  if (status != RONDO_OK) return status;
  return rondo_add_feed_forward(b->graph,
                                &(rondo_feed_forward_desc){.name = name_of(b, name, "layer%" PRId32 ".feed_forward", i),
                                                           .x = b->between,
                                                           .x_parts = b->attended_parts,
                                                           .norm = layer->feed_forward_norm,
                                                           .norm_epsilon = desc->epsilon,
                                                           .scale = scale,
                                                           .gate_up = layer->gate_up,
                                                           .gate_up_scales = layer->gate_up_scales,
                                                           .down = layer->down,
                                                           .down_scales = layer->down_scales,
                                                           .out = b->hidden,
                                                           .out_parts = b->gated_parts});
}

static rondo_status layer_products_add(const struct builder *b, int32_t i, const rondo_llama_layer *layer) {
  const rondo_dtype weights = b->desc.weights;
  char name[NAME_BYTES];
  rondo_status status = product_add(b, weights,
                                    (rondo_gemv_desc){.name = name_of(b, name, "layer%" PRId32 ".qkv", i),
                                                      .weights = layer->qkv,
                                                      .weight_scales = layer->qkv_scales,
                                                      .vectors = b->hidden,
                                                      .norm = layer->attention_norm,
                                                      .out = b->qkv});
  if (status == RONDO_OK) status = attention_add(b, i, layer);
  if (status == RONDO_OK)
    status = product_add(b, weights,
                         (rondo_gemv_desc){.name = name_of(b, name, "layer%" PRId32 ".output", i),
                                           .weights = layer->output,
                                           .weight_scales = layer->output_scales,
                                           .vectors = b->attended,
                                           .residual = b->hidden,
                                           .out = b->hidden});
  if (status == RONDO_OK)
    status = product_add(b, weights,
                         (rondo_gemv_desc){.name = name_of(b, name, "layer%" PRId32 ".gate_up", i),
                                           .weights = layer->gate_up,
                                           .weight_scales = layer->gate_up_scales,
                                           .vectors = b->hidden,
                                           .norm = layer->feed_forward_norm,
                                           .silu_mul = 1,
                                           .out = b->gated});
  if (status != RONDO_OK) return status;
  return product_add(b, weights,
                     (rondo_gemv_desc){.name = name_of(b, name, "layer%" PRId32 ".down", i),
                                       .weights = layer->down,
                                       .weight_scales = layer->down_scales,
                                       .vectors = b->gated,
                                       .residual = b->hidden,
                                       .out = b->hidden});
}

static rondo_status layer_add(const struct builder *b, int32_t i) {
  rondo_llama_layer *layer = &b->made->layers[i];
  rondo_status status = layer_tensors_add(b, i, layer);
  if (status != RONDO_OK) return status;
  return in_halves(b) ? layer_halves_add(b, i, layer) : layer_products_add(b, i, layer);
}

/* ---- Behind the layers ------------------------------------------------------------------------------------------- */

/* What the head multiplies, and the norm that its product does itself. Behind halves the norm is a task of its own,
 * which adds up what the last of them has left; and NVFP4 is multiplied faster where the product has to do nothing
 * else. */
static rondo_status seen_add(const struct builder *b, rondo_tensor *seen, rondo_tensor *norm) {
  const int64_t shape[] = {is_prefill(b) ? 1 : b->rows, b->desc.hidden};
  rondo_tensor rows = b->hidden;
  char name[NAME_BYTES];
  rondo_status status = RONDO_OK;
  if (is_prefill(b)) {
    status = rondo_temporary(b->graph, name_of(b, name, "last row"), b->desc.dtype, 2, shape, &rows);
    if (status == RONDO_OK)
      status = rondo_add_embed(
          b->graph, &(rondo_embed_desc){
                        .name = name_of(b, name, "last row"), .table = b->hidden, .ids = b->made->last, .out = rows});
  }
  *seen = rows;
  *norm = b->made->norm;
  if (status != RONDO_OK || (b->desc.embedding != RONDO_NVFP4 && !in_halves(b))) return status;
  *norm = (rondo_tensor){0};
  status = rondo_temporary(b->graph, name_of(b, name, "normed"), b->desc.dtype, 2, shape, seen);
  if (status != RONDO_OK) return status;
  return rondo_add_rms_norm(b->graph, &(rondo_rms_norm_desc){.name = name_of(b, name, "norm"),
                                                             .x = rows,
                                                             .norm = b->made->norm,
                                                             .out = *seen,
                                                             .epsilon = b->desc.epsilon,
                                                             .x_parts = b->gated_parts});
}

static rondo_status head_add(const struct builder *b, rondo_tensor *logits) {
  const rondo_graph_llama_desc *desc = &b->desc;
  rondo_graph_llama_tensors *made = b->made;
  const int64_t items = is_prefill(b) ? 1 : b->rows;
  char name[NAME_BYTES];
  rondo_tensor seen, norm;
  rondo_status status = seen_add(b, &seen, &norm);
  if (status == RONDO_OK)
    status = (desc->with_logits ? rondo_output : rondo_temporary)(b->graph, name_of(b, name, "logits"), RONDO_F32, 2,
                                                                  (int64_t[]){items, desc->vocabulary}, logits);
  if (status != RONDO_OK) return status;
  if (desc->with_logits) made->logits = *logits;
  return product_add(
      b, desc->embedding,
      (rondo_gemv_desc){.name = name_of(b, name, "head"),
                        .weights = desc->tied_embedding ? made->embedding : made->head,
                        .weight_scales = desc->tied_embedding ? made->embedding_scales : made->head_scales,
                        .vectors = seen,
                        .norm = norm,
                        .out = *logits});
}

/* The position of the row that is drawn from. */
static rondo_status draw_step_add(const struct builder *b, rondo_tensor *step) {
  char name[NAME_BYTES];
  *step = b->position;
  if (!is_prefill(b)) return RONDO_OK;
  rondo_status status = list_add(b, rondo_temporary, "last position", RONDO_I32, 1, step);
  if (status != RONDO_OK) return status;
  return rondo_add_add(
      b->graph,
      &(rondo_add_desc){.name = name_of(b, name, "last position"), .a = b->position, .b = b->made->last, .out = *step});
}

static rondo_status draw_add(const struct builder *b, rondo_tensor logits, rondo_tensor next) {
  rondo_graph_llama_tensors *made = b->made;
  const int64_t items = is_prefill(b) ? 1 : b->rows;
  char name[NAME_BYTES];
  rondo_tensor step;
  rondo_status status = list_add(b, rondo_input, "temperature", RONDO_F32, items, &made->temperature);
  if (status == RONDO_OK) status = list_add(b, rondo_input, "top_k", RONDO_I32, items, &made->top_k);
  if (status == RONDO_OK) status = list_add(b, rondo_input, "top_p", RONDO_F32, items, &made->top_p);
  if (status == RONDO_OK) status = list_add(b, rondo_input, "seed", RONDO_I32, items, &made->seed);
  if (status == RONDO_OK) status = draw_step_add(b, &step);
  if (status != RONDO_OK) return status;
  return rondo_add_sample(b->graph, &(rondo_sample_desc){.name = name_of(b, name, "next"),
                                                         .x = logits,
                                                         .out = next,
                                                         .temperature = made->temperature,
                                                         .top_k = made->top_k,
                                                         .top_p = made->top_p,
                                                         .seed = made->seed,
                                                         .step = step});
}

/* The next token, to the host and, fed back, to the sequence's state. */
static rondo_status next_add(const struct builder *b, rondo_tensor logits) {
  rondo_graph_llama_tensors *made = b->made;
  char name[NAME_BYTES];
  rondo_tensor next;
  rondo_status status = list_add(b, rondo_output, "next", RONDO_I32, is_prefill(b) ? 1 : b->rows, &made->next);
  next = made->next;
  if (status == RONDO_OK && b->desc.feed_back) status = item_of(b, made->token, &next);
  if (status != RONDO_OK) return status;
  status = b->desc.with_sampling
               ? draw_add(b, logits, next)
               : rondo_add_argmax(b->graph,
                                  &(rondo_argmax_desc){.name = name_of(b, name, "next"), .x = logits, .out = next});
  if (status != RONDO_OK || !b->desc.feed_back) return status;
  status =
      rondo_add_copy(b->graph, &(rondo_copy_desc){.name = name_of(b, name, "token"), .src = next, .dst = made->next});
  if (status != RONDO_OK) return status;
  return rondo_add_add(
      b->graph,
      &(rondo_add_desc){.name = name_of(b, name, "move"), .a = b->position, .b = made->advance, .out = b->position});
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static rondo_status all_add(struct builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  char name[NAME_BYTES];
  rondo_tensor logits;
  rondo_status status = ends_add(b);
  if (status == RONDO_OK) status = places_add(b);
  if (status == RONDO_OK) status = temporaries_add(b);
  if (status == RONDO_OK)
    status =
        rondo_add_embed(b->graph, &(rondo_embed_desc){.name = name_of(b, name, "embedding"),
                                                      .table = b->made->embedding,
                                                      .table_scales = b->made->embedding_scales,
                                                      .ids = b->ids,
                                                      .out = b->hidden,
                                                      .scale = desc->embedding == RONDO_NVFP4 ? desc->nvfp4_scale : 0});
  for (int32_t i = 0; i < desc->layers && status == RONDO_OK; i++) status = layer_add(b, i);
  if (status == RONDO_OK) status = head_add(b, &logits);
  return status == RONDO_OK ? next_add(b, logits) : status;
}

/* What no task sees, or sees too late for its sizes to be computed with. */
static rondo_status desc_check(const rondo_graph_llama_desc *desc) {
  enum { MOST_HEADS = 1 << 16, MOST_LAYERS = 1 << 16 };
  const struct {
    const char *name;
    int64_t value, least, most;
  } sizes[] = {{"layers", desc->layers, 1, MOST_LAYERS},
               {"hidden", desc->hidden, 1, RONDO_MAX_ELEMENTS},
               {"query_heads", desc->query_heads, 1, MOST_HEADS},
               {"kv_heads", desc->kv_heads, 1, MOST_HEADS},
               {"head_dimension", desc->head_dimension, 1, MOST_HEADS},
               {"feed_forward", desc->feed_forward, 1, RONDO_MAX_ELEMENTS / 2},
               {"vocabulary", desc->vocabulary, 1, RONDO_MAX_ELEMENTS},
               {"context", desc->context, 1, RONDO_MAX_ELEMENTS - PADDING},
               {"sequences", desc->sequences, 1, MOST_ROWS},
               {"tokens", desc->tokens, 0, MOST_ROWS},
               {"sequence", desc->sequence, 0, desc->tokens ? desc->sequences - 1 : 0}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].value < sizes[i].least || sizes[i].value > sizes[i].most)
      return status_set(RONDO_INVALID_ARGUMENT, "%s is %" PRId64 ", expected %" PRId64 " to %" PRId64, sizes[i].name,
                        sizes[i].value, sizes[i].least, sizes[i].most);
  if (desc->dtype != RONDO_F16 && desc->dtype != RONDO_BF16)
    return status_set(RONDO_INVALID_ARGUMENT, "dtype is %s, expected f16 or bf16", rondo_dtype_name(desc->dtype));
  if (desc->embedding != desc->dtype && desc->embedding != RONDO_NVFP4)
    return status_set(RONDO_INVALID_ARGUMENT, "embedding is %s, expected %s or nvfp4",
                      rondo_dtype_name(desc->embedding), rondo_dtype_name(desc->dtype));
  if (!desc->lender || desc->lender->layers) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "the lender's layers are NULL");
}

static void defaults_fill(rondo_graph_llama_desc *desc) {
  if (!desc->head_dimension && desc->query_heads > 0) desc->head_dimension = desc->hidden / desc->query_heads;
  if (!desc->sequences) desc->sequences = 1;
  if (desc->epsilon == 0) desc->epsilon = 1e-5f;
  if (desc->rope_base == 0) desc->rope_base = 10000.0f;
  if (!desc->embedding) desc->embedding = desc->weights == RONDO_NVFP4 ? RONDO_NVFP4 : desc->dtype;
}

rondo_status rondo_graph_llama(rondo_graph *graph, const rondo_graph_llama_desc *desc,
                               rondo_graph_llama_tensors *tensors) {
  if (!desc || !tensors || !tensors->layers)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_llama: the %s NULL",
                      !desc      ? "description is"
                      : !tensors ? "tensors' address is"
                                 : "tensors' layers are");
  struct graph_mark mark;
  rondo_status status = graph_begin(graph, "rondo_graph_llama", &mark);
  if (status != RONDO_OK) return status;
  rondo_graph_llama_tensors made = {.layers = tensors->layers};
  struct builder b = {.graph = graph, .desc = *desc, .made = &made};
  defaults_fill(&b.desc);
  status = desc_check(&b.desc);
  if (status == RONDO_OK) {
    b.rows = b.desc.tokens ? b.desc.tokens : b.desc.sequences;
    b.q_columns = b.desc.query_heads * b.desc.head_dimension;
    b.kv_columns = b.desc.kv_heads * b.desc.head_dimension;
    status = all_add(&b);
  }
  status = graph_end(graph, &mark, status);
  if (status == RONDO_OK) *tensors = made;
  return status;
}
