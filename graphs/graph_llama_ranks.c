/* graph_llama_ranks.c - the ready-made Llama graph as one rank of several has it: its part of heads, feed forward and
 * vocabulary, and the exchanges where all ranks' results meet.
 *
 *     attention -> sum -> feed_forward -> sum                     a layer in halves: sums of all ranks' parts
 *     qkv -> attention -> output -> sum -> gate_up -> down -> sum   as products: the residual joins in the sum
 *     head -> logits                                              the ranks' columns side by side
 *
 * Halves of one token have the sum between them; a product of one token ends with it.
 *
 * After each exchange all ranks have the same bits, and so they have the same tokens. Products of up to 16 rows go into
 * the sum in f32. Those of more rows are rounded first: a prompt's exchange then takes half of the time.
 */
#include <inttypes.h>
#include <stdio.h>

#include "../runtime/integer.h"
#include "graph_llama.h"

/* ---- The rank's part --------------------------------------------------------------------------------------------- */

rondo_status llama_ranks_check(const rondo_graph_llama_desc *desc) {
  const struct {
    const char *name;
    int64_t value;
  } divided[] = {{"query_heads", desc->query_heads},
                 {"kv_heads", desc->kv_heads},
                 {"feed_forward", desc->feed_forward},
                 {"vocabulary", desc->vocabulary}};
  if (desc->ranks > RONDO_MAX_RANKS)
    return status_set(RONDO_INVALID_ARGUMENT, "ranks is %" PRIu32 ", expected at most %d", desc->ranks,
                      RONDO_MAX_RANKS);
  if (desc->rank >= desc->ranks)
    return status_set(RONDO_INVALID_ARGUMENT, "rank is %" PRIu32 ", expected 0 to %" PRIu32, desc->rank,
                      desc->ranks - 1);
  for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
    if (divided[i].value % desc->ranks != 0)
      return status_set(RONDO_INVALID_ARGUMENT, "%s is %" PRId64 ", expected a multiple of ranks, %" PRIu32,
                        divided[i].name, divided[i].value, desc->ranks);
  return RONDO_OK;
}

void llama_ranks_divide(struct llama_builder *b) {
  const int64_t ranks = b->desc.ranks;
  b->desc.query_heads /= ranks;
  b->desc.kv_heads /= ranks;
  b->desc.feed_forward /= ranks;
  b->head_rows = b->desc.vocabulary / ranks;
}

rondo_status llama_head_rows(const struct llama_builder *b, rondo_tensor *weights, rondo_tensor *scales) {
  const rondo_graph_llama_tensors *made = b->made;
  *weights = b->desc.tied_embedding ? made->embedding : made->head;
  *scales = b->desc.tied_embedding ? made->embedding_scales : made->head_scales;
  if (!llama_has_ranks(b) || !b->desc.tied_embedding) return RONDO_OK;
  const int64_t first[] = {b->desc.rank * b->head_rows, 0};
  rondo_status status = rondo_view(b->graph, *weights, first, (int64_t[]){b->head_rows, b->desc.hidden}, weights);
  if (status != RONDO_OK || !scales->graph) return status;
  const int64_t columns = b->graph->tensors[scales->index].shape[1];
  return rondo_view(b->graph, *scales, first, (int64_t[]){b->head_rows, columns}, scales);
}

/* ---- Exchanges --------------------------------------------------------------------------------------------------- */

static rondo_exchange_desc exchange_of(const struct llama_builder *b, const char *name, rondo_tensor in,
                                       rondo_tensor out) {
  return (rondo_exchange_desc){
      .name = name, .in = in, .out = out, .exchange = b->desc.exchange, .rank = b->desc.rank, .ranks = b->desc.ranks};
}

rondo_status llama_sum_add(const struct llama_builder *b, const char *name, rondo_tensor in, rondo_tensor residual,
                           rondo_tensor out) {
  char of_sum[NAME_BYTES];
  snprintf(of_sum, sizeof of_sum, "%.59s sum", name);
  rondo_exchange_desc sum = exchange_of(b, of_sum, in, out);
  sum.residual = residual;
  return rondo_add_all_reduce(b->graph, &sum);
}

/* f32 [rows, hidden], and the same as one part. */
static rondo_status chain_sum_add(const struct llama_builder *b, const char *part, int64_t rows, rondo_tensor *sum,
                                  rondo_tensor *as_part) {
  const int64_t shape[] = {1, rows, b->desc.hidden};
  char name[NAME_BYTES];
  rondo_status status = rondo_temporary(b->graph, llama_name(b, name, "%s", part), RONDO_F32, 2, shape + 1, sum);
  return status == RONDO_OK ? rondo_reshape(b->graph, *sum, 3, shape, as_part) : status;
}

rondo_status llama_chain_sums_add(const struct llama_builder *b, struct llama_chain *chain) {
  chain->attended = chain->attended_parts, chain->gated = chain->gated_parts;
  if (!llama_has_ranks(b)) return RONDO_OK;
  rondo_status status = RONDO_OK;
  if (!llama_halves_sum(b))
    status = chain_sum_add(b, "attended sum", chain->rows, &chain->attended_sum, &chain->attended);
  return status == RONDO_OK ? chain_sum_add(b, "gated sum", chain->rows, &chain->gated_sum, &chain->gated) : status;
}

struct layer_exchange llama_layer_exchange(const struct llama_builder *b, int32_t sum) {
  const bool gives = b->form.gives_parts && sum < 2 * b->desc.layers - 2, takes = b->form.gives_parts && sum >= 0;
  if (!llama_halves_sum(b) || (sum < 0 && !gives)) return (struct layer_exchange){0};
  return (struct layer_exchange){.states = b->desc.exchange,
                                 .rank = b->desc.rank,
                                 .ranks = b->desc.ranks,
                                 .before = sum < 0 ? 0 : (uint32_t)sum,
                                 .gives = gives,
                                 .takes = takes};
}

static rondo_dtype product_type(const struct llama_builder *b) {
  return b->rows > LLAMA_MOST_VECTORS ? b->desc.dtype : RONDO_F32;
}

rondo_status llama_product_part_add(struct llama_builder *b) {
  char name[NAME_BYTES];
  return rondo_temporary(b->graph, llama_name(b, name, "product"), product_type(b), 2,
                         (int64_t[]){b->rows, b->desc.hidden}, &b->product);
}

/* Of one row, with the sum as its end. */
static rondo_status product_over_ranks_add(const struct llama_builder *b, rondo_gemv_desc product) {
  const struct layer_exchange of_ranks = {.states = b->desc.exchange, .rank = b->desc.rank, .ranks = b->desc.ranks};
  product.scale = b->desc.weights == RONDO_NVFP4 ? b->desc.nvfp4_scale : 0;
  product.one_order = b->desc.one_order;
  return summed_product_add(b->graph, &product, &of_ranks);
}

rondo_status llama_summed_product_add(const struct llama_builder *b, rondo_gemv_desc product) {
  const rondo_tensor residual = product.residual, out = product.out;
  if (b->rows == 1) return product_over_ranks_add(b, product);
  product.residual = (rondo_tensor){0}, product.out = b->product;
  rondo_status status = llama_product_add(b, b->desc.weights, b->rows, product);
  return status == RONDO_OK ? llama_sum_add(b, product.name, b->product, residual, out) : status;
}

rondo_status llama_logits_part_add(const struct llama_builder *b, rondo_tensor logits, rondo_tensor *part) {
  char name[NAME_BYTES];
  *part = logits;
  if (!llama_has_ranks(b)) return RONDO_OK;
  return rondo_temporary(b->graph, llama_name(b, name, "logits of the rank"), RONDO_F32, 2,
                         (int64_t[]){llama_results(b), b->head_rows}, part);
}

rondo_status llama_logits_gather(const struct llama_builder *b, rondo_tensor part, rondo_tensor logits) {
  char name[NAME_BYTES];
  if (!llama_has_ranks(b)) return RONDO_OK;
  rondo_exchange_desc gather = exchange_of(b, llama_name(b, name, "logits"), part, logits);
  gather.dimension = 1;
  return rondo_add_all_gather(b->graph, &gather);
}

uint64_t llama_exchange_bytes(const struct llama_builder *b) {
  const uint64_t number = b->form.in_halves || product_type(b) == RONDO_F32 ? sizeof(float) : sizeof(uint16_t);
  const int64_t sums = b->rows * b->desc.hidden, logits = llama_results(b) * b->head_rows;
  const uint64_t of_sums = (uint64_t)sums * number, of_logits = (uint64_t)logits * sizeof(float);
  if (!llama_has_ranks(b)) return 0;
  return of_sums > of_logits ? of_sums : of_logits;
}
