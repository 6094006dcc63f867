/* llama_decoder.c - see llama_decoder.h. */
#include "llama_decoder.h"

enum { HIDDEN = 64, VOCABULARY = 256, MOST_ELEMENTS = 2 * 96 * HIDDEN * 2 };

static const rondo_graph_llama_desc desc = {.layers = DECODER_LAYERS,
                                            .hidden = HIDDEN,
                                            .query_heads = 2,
                                            .kv_heads = 1,
                                            .head_dimension = 64,
                                            .feed_forward = 96,
                                            .vocabulary = VOCABULARY,
                                            .context = DECODER_CONTEXT,
                                            .dtype = RONDO_F16,
                                            .weights = RONDO_F16,
                                            .tied_embedding = 1,
                                            .sequences = DECODER_SEQUENCES,
                                            .feed_back = 1};

/* +-[1/8, 1/4), other numbers for each tensor. */
static rondo_status set(const struct decoder *decoder, rondo_tensor tensor) {
  static uint16_t numbers[MOST_ELEMENTS];
  uint64_t bytes;
  uint32_t seed = tensor.index;
  rondo_status status = rondo_tensor_bytes(tensor, &bytes);
  if (status != RONDO_OK || bytes > sizeof numbers) return status == RONDO_OK ? RONDO_INTERNAL : status;
  for (uint64_t i = 0; i < bytes / sizeof *numbers; i++) {
    seed = seed * 1664525u + 1013904223u;
    numbers[i] = (uint16_t)(0x3000u | ((seed >> 16) & 0x83ffu));
  }
  return rondo_upload(decoder->exec, tensor, numbers, bytes);
}

static rondo_status set_all(const struct decoder *decoder) {
  rondo_status status = set(decoder, decoder->tensors.embedding);
  if (status == RONDO_OK) status = set(decoder, decoder->tensors.norm);
  for (int i = 0; i < DECODER_LAYERS && status == RONDO_OK; i++) {
    const rondo_llama_layer *layer = &decoder->layers[i];
    const rondo_tensor all[] = {layer->attention_norm,    layer->qkv,     layer->output,
                                layer->feed_forward_norm, layer->gate_up, layer->down};
    for (size_t t = 0; t < sizeof all / sizeof *all && status == RONDO_OK; t++) status = set(decoder, all[t]);
  }
  return status;
}

rondo_status decoder_open(struct decoder *decoder, rondo_runtime *runtime) {
  *decoder = (struct decoder){.tensors.layers = decoder->layers};
  rondo_status status = rondo_graph_create(NULL, NULL, &decoder->graph);
  if (status == RONDO_OK) status = rondo_graph_llama(decoder->graph, &desc, &decoder->tensors);
  if (status == RONDO_OK) status = rondo_instantiate(runtime, decoder->graph, NULL, &decoder->exec);
  if (status == RONDO_OK) status = set_all(decoder);
  if (status == RONDO_OK) status = rondo_acquire(decoder->exec, &decoder->slot);
  if (status != RONDO_OK) return status;
  int32_t *advance = rondo_data(decoder->slot, decoder->tensors.advance);
  for (int s = 0; s < DECODER_SEQUENCES; s++) advance[s] = 1;
  return decoder_restart(decoder);
}

rondo_status decoder_restart(const struct decoder *decoder) {
  static const int32_t tokens[DECODER_SEQUENCES] = {3, 200}, positions[DECODER_SEQUENCES] = {0};
  rondo_status status = rondo_upload(decoder->exec, decoder->tensors.token, tokens, sizeof tokens);
  if (status != RONDO_OK) return status;
  return rondo_upload(decoder->exec, decoder->tensors.position, positions, sizeof positions);
}

rondo_status decoder_replay(const struct decoder *decoder, uint64_t count) {
  rondo_status status = RONDO_OK;
  for (uint64_t i = 0; i < count && status == RONDO_OK; i++) {
    status = rondo_replay(decoder->slot);
    if (status == RONDO_OK) status = rondo_wait(decoder->slot, RONDO_FOREVER);
  }
  return status;
}

const int32_t *decoder_tokens(const struct decoder *decoder) {
  return rondo_data(decoder->slot, decoder->tensors.next);
}

rondo_status decoder_close(struct decoder *decoder) {
  rondo_status status = rondo_release(decoder->slot);
  if (status == RONDO_OK) status = rondo_close_exec(&decoder->exec);
  return status == RONDO_OK ? rondo_graph_destroy(&decoder->graph) : status;
}
