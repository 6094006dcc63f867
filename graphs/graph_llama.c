/* graph_llama.c - the ready-made graph of a Llama's step, decode or prefill:
 *
 *     embedding -> (attention -> feed_forward) of each layer -> norm -> head -> next
 *     embedding -> (qkv -> attention -> output -> gate_up -> down) of each layer -> head -> next
 *
 * The first form is a decode step, and a short prompt of some sizes: a layer is two tasks, each one kernel if the chip
 * has one for its sizes, and hands on the residual stream and parts of a sum. The second form is any other prefill, and
 * a decode step of sizes that no kernel suits or whose sequences must not depend on each other's number (one_order):
 * there norms are prologues of products, gates and residuals their epilogues. All layers share their temporaries, since
 * each task waits for the one before it. More sequences than a half takes are several chains of the first form.
 */
#include <inttypes.h>
#include <string.h>

#include "graph_llama.h"

enum { NAME_MOST = NAME_BYTES - (int)sizeof ".layer65535.gate_up weights scales" };

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* Constants outside of the layers. */
static rondo_status ends_add(const struct llama_builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  rondo_graph_llama_tensors *made = b->made;
  const rondo_graph_llama_tensors lent = desc->lender ? *desc->lender : (rondo_graph_llama_tensors){0};
  char name[NAME_BYTES];
  rondo_status status = llama_weights_add(
      b, llama_name(b, name, "embedding weights"), desc->embedding, desc->vocabulary, desc->hidden,
      (rondo_tensor[]){lent.embedding, lent.embedding_scales}, &made->embedding, &made->embedding_scales);
  if (status == RONDO_OK) status = llama_norm_add(b, llama_name(b, name, "norm"), lent.norm, &made->norm);
  if (status == RONDO_OK && !desc->tied_embedding)
    status = llama_weights_add(b, llama_name(b, name, "head weights"), desc->embedding, b->head_rows, desc->hidden,
                               (rondo_tensor[]){lent.head, lent.head_scales}, &made->head, &made->head_scales);
  if (status == RONDO_OK && desc->rope_frequencies)
    status = llama_resident_add(b, rondo_constant, llama_name(b, name, "frequencies"), RONDO_F32, 1,
                                (int64_t[]){desc->head_dimension / 2}, lent.frequencies, &made->frequencies);
  return status;
}

/* In a prefill the sequence's item of a list, else the list. */
static rondo_status item_of(const struct llama_builder *b, rondo_tensor list, rondo_tensor *item) {
  *item = list;
  if (!llama_is_prefill(b) || !b->desc.feed_back) return RONDO_OK;
  return rondo_view(b->graph, list, (int64_t[]){b->desc.sequence}, (int64_t[]){1}, item);
}

/* Token ids and positions. */
static rondo_status places_add(struct llama_builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  const rondo_graph_llama_tensors lent = desc->lender ? *desc->lender : (rondo_graph_llama_tensors){0};
  rondo_graph_llama_tensors *made = b->made;
  const int64_t items = llama_items(b), sequences = desc->sequences, tokens = sequences + desc->draft;
  const bool has_prompt = llama_is_prefill(b) && !b->verifies;
  char name[NAME_BYTES];
  rondo_status status = RONDO_OK;
  if (desc->feed_back) {
    status = llama_resident_add(b, rondo_state, llama_name(b, name, "token"), RONDO_I32, 1, &tokens, lent.token,
                                &made->token);
    if (status == RONDO_OK)
      status = llama_resident_add(b, rondo_state, llama_name(b, name, "position"), RONDO_I32, 1, &sequences,
                                  lent.position, &made->position);
    if (status == RONDO_OK && !desc->draft)
      status = llama_list_add(b, rondo_input, "advance", RONDO_I32, items, &made->advance);
  } else {
    if (!llama_is_prefill(b)) status = llama_list_add(b, rondo_input, "token", RONDO_I32, items, &made->token);
    if (status == RONDO_OK) status = llama_list_add(b, rondo_input, "position", RONDO_I32, items, &made->position);
  }
  if (status == RONDO_OK && has_prompt)
    status = llama_list_add(b, rondo_input, "prompt", RONDO_I32, b->rows, &made->prompt);
  if (status == RONDO_OK && desc->packed)
    status = llama_list_add(b, rondo_input, "row offsets", RONDO_I32, items + 1, &made->row_offsets);
  if (status == RONDO_OK && llama_has_last_row(b))
    status = llama_list_add(b, rondo_input, "last", RONDO_I32, items, &made->last);
  if (status == RONDO_OK && desc->page_rows)
    status = rondo_input(b->graph, llama_name(b, name, "kv pages"), RONDO_I32, 2,
                         (int64_t[]){items, (desc->context + desc->page_rows - 1) / desc->page_rows}, &made->kv_pages);
  b->ids = has_prompt ? made->prompt : made->token;
  if (status == RONDO_OK && desc->draft && !llama_is_prefill(b)) /* without its drafts */
    status = rondo_view(b->graph, made->token, (int64_t[]){0}, (int64_t[]){1}, &b->ids);
  if (status == RONDO_OK) status = item_of(b, made->position, &b->position);
  return status == RONDO_OK && desc->draft ? llama_draft_add(b) : status;
}

/* ---- After the layers -------------------------------------------------------------------------------------------- */

/* The norm after the last halves, which adds their parts. */
static rondo_status chains_norm_add(const struct llama_builder *b, rondo_tensor normed) {
  char name[NAME_BYTES];
  rondo_status status = RONDO_OK;
  for (int64_t i = 0; i < b->chain_count && status == RONDO_OK; i++) {
    const struct llama_chain *chain = &b->chains[i];
    rondo_tensor out;
    status = llama_chain_rows(b, chain, normed, &out);
    if (status == RONDO_OK)
      status = rondo_add_rms_norm(b->graph, &(rondo_rms_norm_desc){.name = llama_name(b, name, "norm"),
                                                                   .x = chain->hidden,
                                                                   .norm = b->made->norm,
                                                                   .out = out,
                                                                   .epsilon = b->desc.epsilon,
                                                                   .x_parts = chain->gated});
  }
  return status;
}

/* The row of a prompt in `rows` that has logits. */
static rondo_status last_row_add(const struct llama_builder *b, rondo_tensor rows, rondo_dtype dtype,
                                 rondo_tensor *last) {
  char name[NAME_BYTES];
  rondo_status status = rondo_temporary(b->graph, llama_name(b, name, "last row"), dtype, 2,
                                        (int64_t[]){llama_results(b), b->desc.hidden}, last);
  if (status != RONDO_OK) return status;
  return rondo_add_embed(
      b->graph,
      &(rondo_embed_desc){.name = llama_name(b, name, "last row"), .table = rows, .ids = b->made->last, .out = *last});
}

/* After layer halves: the norm of all rows, since their parts are still to be added, and of a prompt the last row. */
static rondo_status halves_seen_add(const struct llama_builder *b, rondo_tensor *seen) {
  char name[NAME_BYTES];
  rondo_tensor normed;
  rondo_status status = rondo_temporary(b->graph, llama_name(b, name, "normed"), b->desc.dtype, 2,
                                        (int64_t[]){b->rows, b->desc.hidden}, &normed);
  if (status == RONDO_OK) status = chains_norm_add(b, normed);
  *seen = normed;
  return status == RONDO_OK && llama_has_last_row(b) ? last_row_add(b, normed, b->desc.dtype, seen) : status;
}

/* The head's vectors, and the norm that its product applies to them. After layer halves the norm is a task of its own,
 * which adds the last half's parts. So it is with an NVFP4 head of other sizes, whose product is faster without a norm,
 * and with many rows. */
static rondo_status seen_add(const struct llama_builder *b, rondo_tensor *seen, rondo_tensor *norm) {
  const int64_t shape[] = {llama_results(b), b->desc.hidden};
  const bool has_own_norm =
      (b->desc.embedding == RONDO_NVFP4 && !norm_suits_nvfp4_head(b->desc.hidden, b->desc.one_order)) || b->streams ||
      shape[0] > LLAMA_MOST_VECTORS;
  rondo_tensor rows = b->hidden;
  char name[NAME_BYTES];
  rondo_status status = RONDO_OK;
  *norm = (rondo_tensor){0};
  if (b->form.in_halves) return halves_seen_add(b, seen);
  if (llama_has_last_row(b)) status = last_row_add(b, b->hidden, b->streams ? RONDO_F32 : b->desc.dtype, &rows);
  *seen = rows;
  *norm = b->made->norm;
  if (status != RONDO_OK || !has_own_norm) return status;
  *norm = (rondo_tensor){0};
  status = rondo_temporary(b->graph, llama_name(b, name, "normed"), b->desc.dtype, 2, shape, seen);
  if (status != RONDO_OK) return status;
  return rondo_add_rms_norm(b->graph, &(rondo_rms_norm_desc){.name = llama_name(b, name, "norm"),
                                                             .x = rows,
                                                             .norm = b->made->norm,
                                                             .out = *seen,
                                                             .epsilon = b->desc.epsilon});
}

static rondo_status head_add(const struct llama_builder *b, rondo_tensor *logits) {
  const rondo_graph_llama_desc *desc = &b->desc;
  rondo_graph_llama_tensors *made = b->made;
  const int64_t items = llama_results(b);
  char name[NAME_BYTES];
  rondo_tensor seen, norm, part, weights, scales;
  rondo_status status = seen_add(b, &seen, &norm);
  if (status == RONDO_OK)
    status = (desc->with_logits ? rondo_output : rondo_temporary)(b->graph, llama_name(b, name, "logits"), RONDO_F32, 2,
                                                                  (int64_t[]){items, desc->vocabulary}, logits);
  if (status != RONDO_OK) return status;
  if (desc->with_logits) made->logits = *logits;
  status = llama_head_rows(b, &weights, &scales);
  if (status == RONDO_OK) status = llama_logits_part_add(b, *logits, &part);
  if (status == RONDO_OK)
    status = llama_product_add(b, desc->embedding, items,
                               (rondo_gemv_desc){.name = llama_name(b, name, "head"),
                                                 .weights = weights,
                                                 .weight_scales = scales,
                                                 .vectors = seen,
                                                 .norm = norm,
                                                 .out = part});
  return status == RONDO_OK ? llama_logits_gather(b, part, *logits) : status;
}

/* The position of the row that the next token is drawn for. */
static rondo_status draw_step_add(const struct llama_builder *b, rondo_tensor *step) {
  char name[NAME_BYTES];
  *step = b->position;
  if (!llama_is_prefill(b) || b->verifies) return RONDO_OK;
  rondo_status status = llama_list_add(b, rondo_temporary, "last position", RONDO_I32, 1, step);
  if (status != RONDO_OK) return status;
  return rondo_add_add(
      b->graph, &(rondo_add_desc){
                    .name = llama_name(b, name, "last position"), .a = b->position, .b = b->made->last, .out = *step});
}

static rondo_status draw_add(const struct llama_builder *b, rondo_tensor logits, rondo_tensor next) {
  rondo_graph_llama_tensors *made = b->made;
  const int64_t items = b->verifies ? 1 : llama_results(b);
  char name[NAME_BYTES];
  rondo_tensor step;
  rondo_status status = llama_list_add(b, rondo_input, "temperature", RONDO_F32, items, &made->temperature);
  if (status == RONDO_OK) status = llama_list_add(b, rondo_input, "top_k", RONDO_I32, items, &made->top_k);
  if (status == RONDO_OK) status = llama_list_add(b, rondo_input, "top_p", RONDO_F32, items, &made->top_p);
  if (status == RONDO_OK) status = llama_list_add(b, rondo_input, "seed", RONDO_I32, items, &made->seed);
  if (status == RONDO_OK) status = draw_step_add(b, &step);
  if (status != RONDO_OK) return status;
  const rondo_sample_desc draw = {.name = llama_name(b, name, "next"),
                                  .x = logits,
                                  .out = next,
                                  .temperature = made->temperature,
                                  .top_k = made->top_k,
                                  .top_p = made->top_p,
                                  .seed = made->seed,
                                  .step = step};
  return (b->verifies ? sample_rows_add : rondo_add_sample)(b->graph, &draw);
}

/* Makes the tokens that the caller lists less likely, in place. */
static rondo_status penalty_add(const struct llama_builder *b, rondo_tensor logits) {
  rondo_graph_llama_tensors *made = b->made;
  const int64_t items = llama_results(b);
  char name[NAME_BYTES];
  rondo_status status = rondo_input(b->graph, llama_name(b, name, "recent"), RONDO_I32, 2,
                                    (int64_t[]){items, b->desc.penalized}, &made->recent);
  if (status == RONDO_OK) status = llama_list_add(b, rondo_input, "repetition", RONDO_F32, items, &made->repetition);
  if (status == RONDO_OK) status = llama_list_add(b, rondo_input, "frequency", RONDO_F32, items, &made->frequency);
  if (status == RONDO_OK) status = llama_list_add(b, rondo_input, "presence", RONDO_F32, items, &made->presence);
  if (status != RONDO_OK) return status;
  return rondo_add_penalty(b->graph, &(rondo_penalty_desc){.name = llama_name(b, name, "penalty"),
                                                           .x = logits,
                                                           .ids = made->recent,
                                                           .repetition = made->repetition,
                                                           .frequency = made->frequency,
                                                           .presence = made->presence});
}

static rondo_status choice_add(const struct llama_builder *b, rondo_tensor logits, rondo_tensor out) {
  char name[NAME_BYTES];
  if (b->desc.with_sampling) return draw_add(b, logits, out);
  return rondo_add_argmax(b->graph, &(rondo_argmax_desc){.name = llama_name(b, name, "next"), .x = logits, .out = out});
}

/* The next token: to the host, and with feed_back to the sequence's state. */
static rondo_status next_add(const struct llama_builder *b, rondo_tensor logits) {
  rondo_graph_llama_tensors *made = b->made;
  char name[NAME_BYTES];
  rondo_tensor next;
  rondo_status status = llama_list_add(b, rondo_output, "next", RONDO_I32, llama_results(b), &made->next);
  next = made->next;
  if (status == RONDO_OK && b->desc.draft)
    status = llama_list_add(b, rondo_temporary, "chosen", RONDO_I32, llama_results(b), &next);
  else if (status == RONDO_OK && b->desc.feed_back)
    status = item_of(b, made->token, &next);
  if (status == RONDO_OK) status = choice_add(b, logits, next);
  if (status != RONDO_OK || !b->desc.feed_back) return status;
  if (b->desc.draft) return llama_lookup_add(b, next);
  status = rondo_add_copy(b->graph,
                          &(rondo_copy_desc){.name = llama_name(b, name, "token"), .src = next, .dst = made->next});
  if (status != RONDO_OK) return status;
  return rondo_add_add(
      b->graph,
      &(rondo_add_desc){.name = llama_name(b, name, "move"), .a = b->position, .b = made->advance, .out = b->position});
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static rondo_status all_add(struct llama_builder *b) {
  const rondo_graph_llama_desc *desc = &b->desc;
  char name[NAME_BYTES];
  rondo_tensor logits;
  rondo_status status = ends_add(b);
  if (status == RONDO_OK) status = places_add(b);
  if (status == RONDO_OK) status = llama_temporaries_add(b);
  if (status == RONDO_OK)
    status =
        rondo_add_embed(b->graph, &(rondo_embed_desc){.name = llama_name(b, name, "embedding"),
                                                      .table = b->made->embedding,
                                                      .table_scales = b->made->embedding_scales,
                                                      .ids = b->ids,
                                                      .out = b->hidden,
                                                      .scale = desc->embedding == RONDO_NVFP4 ? desc->nvfp4_scale : 0});
  if (status == RONDO_OK) status = llama_layers_add(b);
  if (status == RONDO_OK) status = head_add(b, &logits);
  if (status == RONDO_OK && desc->penalized) status = penalty_add(b, logits);
  return status == RONDO_OK ? next_add(b, logits) : status;
}

/* Fields that no tensor's shape shows: cached keys are already rotated, and weights belong to one scale and epsilon. */
static rondo_status lender_numbers_check(const rondo_graph_llama_desc *desc) {
  const rondo_graph_llama_tensors *lender = desc->lender;
  const bool has_head = lender->head.graph != NULL, has_frequencies = lender->frequencies.graph != NULL;
  const bool is_packed = desc->weights == RONDO_NVFP4 || desc->embedding == RONDO_NVFP4;
  const struct {
    const char *name;
    double lent, wanted;
  } numbers[] = {
      {"ranks", lender->ranks, desc->ranks},
      {"rank", lender->rank, desc->rank},
      {"tied_embedding", !has_head, desc->tied_embedding != 0},
      {"rope_frequencies", has_frequencies, desc->rope_frequencies != 0},
      {"rope_pairing", lender->rope_pairing, desc->rope_pairing},
      {"rope_base", (double)lender->rope_base, (double)(desc->rope_frequencies ? lender->rope_base : desc->rope_base)},
      {"epsilon", (double)lender->epsilon, (double)desc->epsilon},
      {"nvfp4_scale", (double)lender->nvfp4_scale, (double)(is_packed ? desc->nvfp4_scale : lender->nvfp4_scale)}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].lent != numbers[i].wanted)
      return status_set(RONDO_INVALID_ARGUMENT, "%s is %.9g, expected the lender's, %.9g", numbers[i].name,
                        numbers[i].wanted, numbers[i].lent);
  return RONDO_OK;
}

static rondo_status lender_check(const rondo_graph_llama_desc *desc) {
  const rondo_graph_llama_tensors *lender = desc->lender;
  if (!lender->layers) return status_set(RONDO_INVALID_ARGUMENT, "the lender's layers are NULL");
  if (lender->layer_count != desc->layers)
    return status_set(RONDO_INVALID_ARGUMENT, "the lender has %" PRId32 " layer%s, expected %" PRId32,
                      lender->layer_count, PLURAL(lender->layer_count), desc->layers);
  if (llama_takes_pages_in_order(desc) && desc->sequences != 1)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "sequences is %" PRId32 ", expected 1 without page_rows, as the lender has pages",
                      desc->sequences);
  if (lender->sequences != desc->sequences && !lender->kv_pages.graph)
    return status_set(RONDO_INVALID_ARGUMENT, "the lender has caches of %" PRId32 " sequence%s, expected %" PRId32,
                      lender->sequences, PLURAL(lender->sequences), desc->sequences);
  if (lender->context != desc->context)
    return status_set(RONDO_INVALID_ARGUMENT, "the lender has a context of %" PRId64 ", expected %" PRId64,
                      lender->context, desc->context);
  return lender_numbers_check(desc);
}

/* Fields that no task checks, or that sizes are computed from before a task checks them. */
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
               {"context", desc->context, 1, RONDO_MAX_ELEMENTS - LLAMA_PADDING},
               {"sequences", desc->sequences, 1, LLAMA_MOST_SEQUENCES},
               {"tokens", desc->tokens, 0, LLAMA_MOST_TOKENS},
               {"penalized", desc->penalized, 0, LLAMA_MOST_PENALIZED},
               {"draft", desc->draft, 0, LLAMA_MOST_DRAFT},
               {"verify", desc->verify, 0, desc->draft && !desc->tokens ? 1 : 0},
               {"packed", desc->packed, 0, desc->tokens ? 1 : 0},
               {"sequence", desc->sequence, 0, desc->tokens && !desc->packed ? (int64_t)desc->sequences - 1 : 0},
               {"every_row", desc->every_row, 0, desc->tokens ? 1 : 0},
               {"page_rows", desc->page_rows, desc->pages ? 1 : 0, RONDO_MAX_ELEMENTS},
               {"pages", desc->pages, desc->page_rows ? 1 : 0, RONDO_MAX_ELEMENTS}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].value < sizes[i].least || sizes[i].value > sizes[i].most)
      return status_set(RONDO_INVALID_ARGUMENT, "%s is %" PRId64 ", expected %" PRId64 " to %" PRId64, sizes[i].name,
                        sizes[i].value, sizes[i].least, sizes[i].most);
  if (desc->dtype != RONDO_F16 && desc->dtype != RONDO_BF16)
    return status_set(RONDO_INVALID_ARGUMENT, "dtype is %s, expected f16 or bf16", rondo_dtype_name(desc->dtype));
  if (desc->embedding != desc->dtype && desc->embedding != RONDO_NVFP4)
    return status_set(RONDO_INVALID_ARGUMENT, "embedding is %s, expected %s or nvfp4",
                      rondo_dtype_name(desc->embedding), rondo_dtype_name(desc->dtype));
  const int64_t tokens = desc->verify ? 1 + desc->draft : desc->tokens;
  if ((tokens ? tokens : desc->sequences) > LLAMA_MOST_VECTORS && desc->weights == RONDO_E4M3)
    return status_set(RONDO_INVALID_ARGUMENT, "weights is e4m3, expected %s or nvfp4 with more than %d %s",
                      rondo_dtype_name(desc->dtype), LLAMA_MOST_VECTORS, tokens ? "tokens" : "sequences");
  if (desc->every_row && (desc->feed_back || desc->with_sampling || desc->penalized))
    return status_set(RONDO_INVALID_ARGUMENT, "every_row is 1, expected 0 with %s",
                      desc->feed_back       ? "feed_back"
                      : desc->with_sampling ? "with_sampling"
                                            : "penalized");
  if (desc->packed && (desc->feed_back || desc->with_sampling))
    return status_set(RONDO_INVALID_ARGUMENT, "packed is 1, expected 0 with %s",
                      desc->feed_back ? "feed_back" : "with_sampling");
  if (desc->name && strlen(desc->name) > NAME_MOST)
    return status_set(RONDO_INVALID_ARGUMENT, "name has %zu characters, expected at most %d, as it begins all others",
                      strlen(desc->name), NAME_MOST);
  rondo_status status = llama_draft_check(desc);
  if (status == RONDO_OK) status = llama_ranks_check(desc);
  return status == RONDO_OK && desc->lender ? lender_check(desc) : status;
}

static void defaults_fill(rondo_graph_llama_desc *desc) {
  if (!desc->head_dimension && desc->query_heads > 0) desc->head_dimension = desc->hidden / desc->query_heads;
  if (!desc->sequences) desc->sequences = 1;
  if (!desc->ranks) desc->ranks = 1;
  if (desc->epsilon == 0) desc->epsilon = 1e-5f;
  if (desc->rope_base == 0) desc->rope_base = 10000.0f;
  if (desc->nvfp4_scale == 0) desc->nvfp4_scale = 1;
  if (!desc->embedding) desc->embedding = desc->weights == RONDO_NVFP4 ? RONDO_NVFP4 : desc->dtype;
  desc->packed = desc->packed != 0, desc->every_row = desc->every_row != 0, desc->verify = desc->verify != 0;
}

/* What follows from the description, before anything is added. */
static rondo_status prepare(struct llama_builder *b) {
  defaults_fill(&b->desc);
  const rondo_status status = desc_check(&b->desc);
  if (status != RONDO_OK) return status;
  llama_ranks_divide(b);
  b->verifies = b->desc.verify;
  if (b->verifies) b->desc.tokens = 1 + b->desc.draft, b->desc.every_row = 1; /* the rows are those of a prompt */
  b->rows = b->desc.tokens ? b->desc.tokens : b->desc.sequences;
  b->q_columns = b->desc.query_heads * b->desc.head_dimension;
  b->kv_columns = b->desc.kv_heads * b->desc.head_dimension;
  b->form = llama_form_of(b);
  b->streams = llama_streams(b);
  return RONDO_OK;
}

rondo_status rondo_graph_llama_exchange_bytes(const rondo_graph_llama_desc *desc, uint64_t *bytes) {
  if (!desc || !bytes)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_llama_exchange_bytes: the %s is NULL",
                      desc ? "bytes' address" : "description");
  struct llama_builder b = {.desc = *desc};
  const rondo_status status = prepare(&b);
  if (status == RONDO_OK) *bytes = llama_exchange_bytes(&b);
  return status;
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
  struct llama_builder b = {.graph = graph, .desc = *desc, .made = &made};
  status = prepare(&b);
  if (status == RONDO_OK && llama_has_ranks(&b) && !desc->exchange)
    status =
        status_set(RONDO_INVALID_ARGUMENT, "exchange is NULL, expected the states of %" PRIu32 " ranks", desc->ranks);
  if (status == RONDO_OK) status = all_add(&b);
  status = graph_end(graph, &mark, status);
  made.layer_count = b.desc.layers;
  made.sequences = b.desc.sequences;
  made.rank = b.desc.rank;
  made.ranks = b.desc.ranks;
  made.context = b.desc.context;
  made.rope_pairing = b.desc.rope_pairing;
  made.rope_base = b.desc.rope_base;
  made.epsilon = b.desc.epsilon;
  made.nvfp4_scale = b.desc.nvfp4_scale;
  if (status == RONDO_OK) *tensors = made;
  return status;
}
