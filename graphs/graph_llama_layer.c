/* graph_llama_layer.c - the layers of the ready-made Llama graph: their constants, caches and tasks. A layer is two
 * tasks, its halves, or five: attention, and a task for each product. */
#include <inttypes.h>

#include "graph_llama.h"

/* ---- Form -------------------------------------------------------------------------------------------------------- */

struct layer_form llama_form_of(const struct llama_builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  const bool is_of_one = llama_is_of_one(b);
  if (desc->packed || desc->one_order || (desc->page_rows && !is_of_one)) return (struct layer_form){0};
  return layer_form_of(&(struct layer_sizes){.rows = is_of_one ? desc->tokens : desc->sequences,
                                             .one_sequence = is_of_one,
                                             .as_tokens = b->verifies,
                                             .feed_forward = desc->feed_forward,
                                             .hidden = desc->hidden,
                                             .query_heads = desc->query_heads,
                                             .kv_heads = desc->kv_heads,
                                             .head_dimension = desc->head_dimension,
                                             .dtype = desc->dtype,
                                             .weights = desc->weights});
}

bool llama_streams(const struct llama_builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  return !desc->one_order && !b->form.in_halves && !llama_has_ranks(b) &&
         norms_suit_products(&(struct layer_sizes){.rows = b->rows,
                                                   .one_sequence = llama_is_of_one(b),
                                                   .hidden = desc->hidden,
                                                   .dtype = desc->dtype,
                                                   .weights = desc->weights});
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* The pages of a lender, after the first one, as the cache of one sequence. */
static rondo_status pages_in_order(const struct llama_builder *b, rondo_tensor lent, rondo_tensor *cache) {
  const rondo_graph_llama_desc *desc = &b->desc;
  rondo_tensor pages, rows;
  rondo_status status = rondo_borrow(b->graph, lent, &pages);
  if (status != RONDO_OK) return status;
  const int64_t *shape = b->graph->tensors[pages.index].shape, page_rows = shape[1];
  status = rondo_reshape(b->graph, pages, 4, (int64_t[]){1, shape[0] * page_rows, desc->kv_heads, desc->head_dimension},
                         &rows);
  if (status != RONDO_OK) return status;
  return rondo_view(b->graph, rows, (int64_t[]){0, page_rows, 0, 0},
                    (int64_t[]){1, desc->context + LLAMA_PADDING, desc->kv_heads, desc->head_dimension}, cache);
}

/* A layer's K or V. */
static rondo_status cache_add(const struct llama_builder *b, const char *name, rondo_tensor lent, rondo_tensor *cache) {
  const rondo_graph_llama_desc *desc = &b->desc;
  if (llama_takes_pages_in_order(desc) && lent.graph) return pages_in_order(b, lent, cache);
  const int64_t shape[] = {desc->page_rows ? desc->pages : desc->sequences,
                           desc->page_rows ? desc->page_rows : desc->context + LLAMA_PADDING, desc->kv_heads,
                           desc->head_dimension};
  return llama_resident_add(b, rondo_state, name, desc->dtype, 4, shape, lent, cache);
}

/* The constants and states of layer i. */
static rondo_status layer_tensors_add(const struct llama_builder *b, int32_t i, rondo_llama_layer *layer) {
  const rondo_graph_llama_desc *desc = &b->desc;
  const rondo_llama_layer lent = desc->lender ? desc->lender->layers[i] : (rondo_llama_layer){0};
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
  rondo_status status = llama_norm_add(b, llama_name(b, name, "layer%" PRId32 ".attention_norm", i),
                                       lent.attention_norm, &layer->attention_norm);
  for (size_t m = 0; m < sizeof matrices / sizeof *matrices && status == RONDO_OK; m++)
    status = llama_weights_add(b, llama_name(b, name, "layer%" PRId32 ".%s weights", i, matrices[m].name),
                               desc->weights, matrices[m].rows, matrices[m].columns, matrices[m].lent,
                               matrices[m].weights, matrices[m].scales);
  if (status == RONDO_OK)
    status = llama_norm_add(b, llama_name(b, name, "layer%" PRId32 ".feed_forward_norm", i), lent.feed_forward_norm,
                            &layer->feed_forward_norm);
  if (status == RONDO_OK) status = cache_add(b, llama_name(b, name, "layer%" PRId32 ".k", i), lent.k, &layer->k);
  return status == RONDO_OK ? cache_add(b, llama_name(b, name, "layer%" PRId32 ".v", i), lent.v, &layer->v) : status;
}

/* Some columns of [rows, ..] as heads: in a decode step of one row a sequence, in a prefill of all rows. */
static rondo_status heads_of(const struct llama_builder *b, rondo_tensor rows, int64_t column, int64_t heads,
                             rondo_tensor *seen) {
  const int64_t d = b->desc.head_dimension, items = llama_is_prefill(b) ? 1 : b->rows;
  rondo_tensor part;
  rondo_status status = rondo_view(b->graph, rows, (int64_t[]){0, column}, (int64_t[]){b->rows, heads * d}, &part);
  if (status != RONDO_OK) return status;
  return rondo_reshape(b->graph, part, 4, (int64_t[]){items, b->rows / items, heads, d}, seen);
}

/* f32 [groups, rows]. */
static rondo_status squares_add(const struct llama_builder *b, rondo_tensor *squares) {
  char name[NAME_BYTES];
  return rondo_temporary(b->graph, llama_name(b, name, "squares"), RONDO_F32, 2,
                         (int64_t[]){norm_groups_of(b->desc.hidden), b->rows}, squares);
}

/* [rows, columns]. */
static rondo_status rows_add(const struct llama_builder *b, const char *part, rondo_dtype dtype, int64_t columns,
                             rondo_tensor *tensor) {
  char name[NAME_BYTES];
  return rondo_temporary(b->graph, llama_name(b, name, "%s", part), dtype, 2, (int64_t[]){b->rows, columns}, tensor);
}

rondo_status llama_chain_rows(const struct llama_builder *b, const struct llama_chain *chain, rondo_tensor all,
                              rondo_tensor *seen) {
  return rondo_view(b->graph, all, (int64_t[]){chain->first, 0}, (int64_t[]){chain->rows, b->desc.hidden}, seen);
}

static rondo_status chain_parts_add(const struct llama_builder *b, const char *part, int64_t count, int64_t rows,
                                    rondo_tensor *tensor) {
  char name[NAME_BYTES];
  return rondo_temporary(b->graph, llama_name(b, name, "%s", part), RONDO_F32, 3,
                         (int64_t[]){count, rows, b->desc.hidden}, tensor);
}

/* Where the chain's rows begin in a prompt, or the list of their positions. */
static rondo_status chain_position_add(const struct llama_builder *b, struct llama_chain *chain) {
  char name[NAME_BYTES];
  chain->position = b->position;
  if (!llama_is_prefill(b) && b->rows > 1)
    return rondo_view(b->graph, b->position, &chain->first, &chain->rows, &chain->position);
  if (!llama_is_prefill(b) || chain->first == 0) return RONDO_OK;
  llama_name(b, name, "position.%d", (int)(chain - b->chains));
  rondo_status status = rondo_temporary(b->graph, name, RONDO_I32, 1, (int64_t[]){1}, &chain->position);
  if (status != RONDO_OK) return status;
  return position_add(b->graph, name, b->position, (int32_t)chain->first, chain->position);
}

/* Parts are dense, so each chain has its own; the stream is one tensor for all. */
static rondo_status chain_add(const struct llama_builder *b, rondo_tensor between, struct llama_chain *chain) {
  rondo_status status = llama_chain_rows(b, chain, b->hidden, &chain->hidden);
  if (status == RONDO_OK) status = llama_chain_rows(b, chain, between, &chain->between);
  if (status == RONDO_OK) status = chain_position_add(b, chain);
  if (status == RONDO_OK)
    status = chain_parts_add(b, "attended", b->form.attention_parts, chain->rows, &chain->attended_parts);
  if (status == RONDO_OK)
    status = chain_parts_add(b, "gated", b->form.feed_forward_parts, chain->rows, &chain->gated_parts);
  return status == RONDO_OK ? llama_chain_sums_add(b, chain) : status;
}

/* As few chains as can be, and as even. */
static rondo_status chains_add(struct llama_builder *b) {
  const int64_t count = b->chain_count = (b->rows + b->form.chain_rows - 1) / b->form.chain_rows;
  rondo_tensor between;
  rondo_status status = rows_add(b, "hidden between", RONDO_F32, b->desc.hidden, &between);
  for (int64_t i = 0; i < count && status == RONDO_OK; i++) {
    struct llama_chain *chain = &b->chains[i];
    chain->first = b->rows * i / count, chain->rows = b->rows * (i + 1) / count - chain->first;
    status = chain_add(b, between, chain);
  }
  return status;
}

rondo_status llama_temporaries_add(struct llama_builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  const rondo_dtype dtype = desc->dtype, stream = b->form.in_halves || b->streams ? RONDO_F32 : dtype;
  rondo_status status = rows_add(b, "hidden", stream, desc->hidden, &b->hidden);
  if (b->form.in_halves) return status == RONDO_OK ? chains_add(b) : status;
  if ((b->rows > LLAMA_MOST_VECTORS || b->streams) && status == RONDO_OK)
    status = rows_add(b, "normed rows", dtype, desc->hidden, &b->normed);
  if (b->streams && status == RONDO_OK) status = squares_add(b, &b->squares);
  if (llama_has_ranks(b) && b->rows > 1 && status == RONDO_OK) status = llama_product_part_add(b);
  if (status == RONDO_OK) status = rows_add(b, "qkv", dtype, b->q_columns + 2 * b->kv_columns, &b->qkv);
  if (status == RONDO_OK) status = rows_add(b, "attended", dtype, b->q_columns, &b->attended);
  if (status == RONDO_OK) status = rows_add(b, "gated", dtype, desc->feed_forward, &b->gated);
  if (status == RONDO_OK) status = heads_of(b, b->qkv, 0, desc->query_heads, &b->q);
  if (status == RONDO_OK) status = heads_of(b, b->qkv, b->q_columns, desc->kv_heads, &b->new_k);
  if (status == RONDO_OK) status = heads_of(b, b->qkv, b->q_columns + b->kv_columns, desc->kv_heads, &b->new_v);
  return status == RONDO_OK ? heads_of(b, b->attended, 0, desc->query_heads, &b->o) : status;
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* A layer's KV cache; in a prefill of one sequence that sequence alone, unless pages say where it is. */
static rondo_status cache_of(const struct llama_builder *b, rondo_tensor cache, rondo_tensor *seen) {
  const rondo_graph_llama_desc *desc = &b->desc;
  *seen = cache;
  if (!llama_is_of_one(b) || desc->page_rows) return RONDO_OK;
  return rondo_view(b->graph, cache, (int64_t[]){desc->sequence, 0, 0, 0},
                    (int64_t[]){1, desc->context + LLAMA_PADDING, desc->kv_heads, desc->head_dimension}, seen);
}

static rondo_status attention_add(const struct llama_builder *b, int32_t i, const rondo_llama_layer *layer) {
  const rondo_graph_llama_desc *desc = &b->desc;
  char name[NAME_BYTES];
  rondo_tensor k, v;
  rondo_status status = cache_of(b, layer->k, &k);
  if (status == RONDO_OK) status = cache_of(b, layer->v, &v);
  if (status != RONDO_OK) return status;
  return rondo_add_attention(b->graph,
                             &(rondo_attention_desc){.name = llama_name(b, name, "layer%" PRId32 ".attention", i),
                                                     .layout = RONDO_BSHD,
                                                     .q = b->q,
                                                     .k = k,
                                                     .v = v,
                                                     .o = b->o,
                                                     .causal = llama_is_prefill(b),
                                                     .new_k = b->new_k,
                                                     .new_v = b->new_v,
                                                     .position = b->position,
                                                     .row_offsets = b->made->row_offsets,
                                                     .kv_pages = b->made->kv_pages,
                                                     .rope_frequencies = b->made->frequencies,
                                                     .rope_base = desc->rope_base,
                                                     .rope_pairing = desc->rope_pairing});
}

/* The caches of the chain's sequences, or of a prompt's. */
static rondo_status chain_cache_of(const struct llama_builder *b, const struct llama_chain *chain, rondo_tensor cache,
                                   rondo_tensor *seen) {
  const rondo_graph_llama_desc *desc = &b->desc;
  if (llama_is_prefill(b)) return cache_of(b, cache, seen);
  return rondo_view(b->graph, cache, (int64_t[]){chain->first, 0, 0, 0},
                    (int64_t[]){chain->rows, desc->context + LLAMA_PADDING, desc->kv_heads, desc->head_dimension},
                    seen);
}

/* "layer3.attention", or with several chains "layer3.attention.0". */
static const char *half_name(const struct llama_builder *b, char text[NAME_BYTES], int32_t layer, const char *half,
                             const struct llama_chain *chain) {
  if (b->chain_count == 1) return llama_name(b, text, "layer%" PRId32 ".%s", layer, half);
  return llama_name(b, text, "layer%" PRId32 ".%s.%d", layer, half, (int)(chain - b->chains));
}

/* Attention adds the parts of the layer before to hidden and writes between; the feed forward adds attention's parts to
 * between and writes hidden. */
static rondo_status chain_halves_add(const struct llama_builder *b, const struct llama_chain *chain, int32_t i,
                                     const rondo_llama_layer *layer) {
  const rondo_graph_llama_desc *desc = &b->desc;
  const float scale = desc->weights == RONDO_NVFP4 ? desc->nvfp4_scale : 0;
  const bool is_last = i + 1 == desc->layers, sums = llama_halves_sum(b);
  const struct layer_exchange of_attention = llama_layer_exchange(b, 2 * i - 1),
                              of_feed_forward = llama_layer_exchange(b, 2 * i);
  char name[NAME_BYTES];
  rondo_tensor k, v;
  rondo_status status = chain_cache_of(b, chain, layer->k, &k);
  if (status == RONDO_OK) status = chain_cache_of(b, chain, layer->v, &v);
  if (status != RONDO_OK) return status;
  const rondo_attention_block_desc attention = {.name = half_name(b, name, i, "attention", chain),
                                                .x = chain->hidden,
                                                .x_parts = !i     ? (rondo_tensor){0}
                                                           : sums ? chain->gated_parts
                                                                  : chain->gated,
                                                .norm = layer->attention_norm,
                                                .norm_epsilon = desc->epsilon,
                                                .scale = scale,
                                                .qkv = layer->qkv,
                                                .qkv_scales = layer->qkv_scales,
                                                .output = layer->output,
                                                .output_scales = layer->output_scales,
                                                .k = k,
                                                .v = v,
                                                .position = chain->position,
                                                .rope_frequencies = b->made->frequencies,
                                                .rope_base = desc->rope_base,
                                                .rope_pairing = desc->rope_pairing,
                                                .out = chain->between,
                                                .out_parts = chain->attended_parts};
  status = llama_is_prefill(b) ? prompt_attention_add(b->graph, &attention, b->made->kv_pages, b->form.as_tokens)
                               : attention_block_add(b->graph, &attention, of_attention.states ? &of_attention : NULL);
  if (status == RONDO_OK && llama_has_ranks(b) && !sums)
    status = llama_sum_add(b, name, chain->attended_parts, (rondo_tensor){0}, chain->attended_sum);
  if (status == RONDO_OK)
    status = feed_forward_add(b->graph,
                              &(rondo_feed_forward_desc){.name = half_name(b, name, i, "feed_forward", chain),
                                                         .x = chain->between,
                                                         .x_parts = chain->attended,
                                                         .norm = layer->feed_forward_norm,
                                                         .norm_epsilon = desc->epsilon,
                                                         .scale = scale,
                                                         .gate_up = layer->gate_up,
                                                         .gate_up_scales = layer->gate_up_scales,
                                                         .down = layer->down,
                                                         .down_scales = layer->down_scales,
                                                         .out = chain->hidden,
                                                         .out_parts = chain->gated_parts},
                              b->form.last_part_is_late, b->form.as_tokens,
                              of_feed_forward.states ? &of_feed_forward : NULL);
  if (status != RONDO_OK || !llama_has_ranks(b) || (sums && !is_last)) return status;
  return llama_sum_add(b, name, chain->gated_parts, (rondo_tensor){0}, chain->gated_sum);
}

static rondo_status layer_halves_add(const struct llama_builder *b, int32_t i, const rondo_llama_layer *layer) {
  rondo_status status = RONDO_OK;
  for (int64_t c = 0; c < b->chain_count && status == RONDO_OK; c++)
    status = chain_halves_add(b, &b->chains[c], i, layer);
  return status;
}

/* A product whose norm has begun in the product before, or with a norm of its own. */
static rondo_status normed_add(const struct llama_builder *b, bool has_begun, rondo_gemv_desc product) {
  return has_begun ? llama_normed_product_add(b, product) : llama_product_add(b, b->desc.weights, b->rows, product);
}

/* A product that is added to the stream; there the norm that follows may begin. */
static rondo_status joined_add(const struct llama_builder *b, rondo_gemv_desc product, rondo_tensor next_norm) {
  if (llama_has_ranks(b)) return llama_summed_product_add(b, product);
  return b->streams ? llama_stream_add(b, product, next_norm) : llama_product_add(b, b->desc.weights, b->rows, product);
}

/* In a stream the norm before a layer's first product begins in the product before it; in the first layer it is a task.
 */
static rondo_status layer_products_add(const struct llama_builder *b, int32_t i, const rondo_llama_layer *layer) {
  const rondo_tensor after = i + 1 < b->desc.layers ? b->made->layers[i + 1].attention_norm : b->made->norm;
  char name[NAME_BYTES];
  rondo_status status = normed_add(b, b->streams && i,
                                   (rondo_gemv_desc){.name = llama_name(b, name, "layer%" PRId32 ".qkv", i),
                                                     .weights = layer->qkv,
                                                     .weight_scales = layer->qkv_scales,
                                                     .vectors = b->hidden,
                                                     .norm = layer->attention_norm,
                                                     .out = b->qkv});
  if (status == RONDO_OK) status = attention_add(b, i, layer);
  if (status == RONDO_OK)
    status = joined_add(b,
                        (rondo_gemv_desc){.name = llama_name(b, name, "layer%" PRId32 ".output", i),
                                          .weights = layer->output,
                                          .weight_scales = layer->output_scales,
                                          .vectors = b->attended,
                                          .residual = b->hidden,
                                          .out = b->hidden},
                        layer->feed_forward_norm);
  if (status == RONDO_OK)
    status = normed_add(b, b->streams,
                        (rondo_gemv_desc){.name = llama_name(b, name, "layer%" PRId32 ".gate_up", i),
                                          .weights = layer->gate_up,
                                          .weight_scales = layer->gate_up_scales,
                                          .vectors = b->hidden,
                                          .norm = layer->feed_forward_norm,
                                          .silu_mul = 1,
                                          .out = b->gated});
  if (status != RONDO_OK) return status;
  return joined_add(b,
                    (rondo_gemv_desc){.name = llama_name(b, name, "layer%" PRId32 ".down", i),
                                      .weights = layer->down,
                                      .weight_scales = layer->down_scales,
                                      .vectors = b->gated,
                                      .residual = b->hidden,
                                      .out = b->hidden},
                    after);
}

rondo_status llama_layers_add(const struct llama_builder *b) {
  rondo_llama_layer *layers = b->made->layers;
  rondo_status status = RONDO_OK;
  for (int32_t i = 0; i < b->desc.layers && status == RONDO_OK; i++) status = layer_tensors_add(b, i, &layers[i]);
  for (int32_t i = 0; i < b->desc.layers && status == RONDO_OK; i++)
    status = (b->form.in_halves ? layer_halves_add : layer_products_add)(b, i, &layers[i]);
  return status;
}
