/* llama_decoder.c - see llama_decoder.h. */
#include "llama_decoder.h"

#include <math.h>

#include "../../kernels/common/number.h"
#include "../../kernels/decoder/decoder.h"
#include "../../runtime/graph.h"

enum { HEAD_DIMENSION = 64, VOCABULARY = 512, MOST_ELEMENTS = 2 * 1536 * 576 /* of a tensor of weights */ };
enum { PADDING = 15, CONTEXT = 10240, CONTEXT_ON_HOST = 256 };
enum { MOST_CACHE_ELEMENTS = DECODER_SEQUENCES_MOST * (CONTEXT + PADDING) * 3 * HEAD_DIMENSION };

/* On a GPU two layers of SmolLM2 135M, of whose sizes some kernels are. The host has one form for all sizes, and ten
 * thousand tokens of such layers would take it minutes: there they are the smallest that have kernels on a GPU too. */
static rondo_graph_llama_desc describe(rondo_backend backend, int32_t sequences) {
  const bool is_small = backend == RONDO_BACKEND_HOST;
  return (rondo_graph_llama_desc){.layers = DECODER_LAYERS,
                                  .hidden = is_small ? 64 : 576,
                                  .query_heads = is_small ? 2 : 9,
                                  .kv_heads = is_small ? 1 : 3,
                                  .head_dimension = HEAD_DIMENSION,
                                  .feed_forward = is_small ? 512 : 1536,
                                  .vocabulary = VOCABULARY,
                                  .context = is_small ? CONTEXT_ON_HOST : CONTEXT,
                                  .rope_pairing = RONDO_ROPE_HALVES,
                                  .dtype = RONDO_BF16,
                                  .weights = RONDO_BF16,
                                  .tied_embedding = 1,
                                  .sequences = sequences,
                                  .feed_back = 1};
}

/* Other numbers for each tensor, of variance 1/columns: what comes of a product is of the size of what went in. */
static rondo_status set(const struct decoder *decoder, rondo_tensor tensor, int64_t columns) {
  static uint16_t numbers[MOST_ELEMENTS];
  const float most = sqrtf(3.0f / (float)columns);
  uint64_t bytes;
  uint32_t seed = tensor.index;
  rondo_status status = rondo_tensor_bytes(tensor, &bytes);
  if (status != RONDO_OK || bytes > sizeof numbers) return status == RONDO_OK ? RONDO_INTERNAL : status;
  for (uint64_t i = 0; i < bytes / sizeof *numbers; i++) {
    seed = seed * 1664525u + 1013904223u;
    numbers[i] = bf16_of_f32(most * (float)(int32_t)seed * 0x1p-31f);
  }
  return rondo_upload(decoder->exec, tensor, numbers, bytes);
}

static rondo_status set_all(const struct decoder *decoder, const rondo_graph_llama_desc *desc) {
  const int64_t hidden = desc->hidden, norm = 1;
  rondo_status status = set(decoder, decoder->tensors.embedding, hidden);
  if (status == RONDO_OK) status = set(decoder, decoder->tensors.norm, norm);
  for (int i = 0; i < DECODER_LAYERS && status == RONDO_OK; i++) {
    const rondo_llama_layer *layer = &decoder->layers[i];
    const struct {
      rondo_tensor tensor;
      int64_t columns;
    } all[] = {
        {layer->attention_norm, norm},    {layer->qkv, hidden},     {layer->output, desc->query_heads * HEAD_DIMENSION},
        {layer->feed_forward_norm, norm}, {layer->gate_up, hidden}, {layer->down, desc->feed_forward}};
    for (size_t t = 0; t < sizeof all / sizeof *all && status == RONDO_OK; t++)
      status = set(decoder, all[t].tensor, all[t].columns);
  }
  return status;
}

rondo_status decoder_open(struct decoder *decoder, rondo_runtime *runtime, rondo_backend backend, int32_t sequences,
                          uint32_t repeat_steps) {
  rondo_graph_llama_desc desc = describe(backend, sequences);
  if (desc.context < repeat_steps) desc.context = repeat_steps;
  const rondo_exec_options options = {.repeat_steps = repeat_steps};
  *decoder =
      (struct decoder){.sequences = sequences, .context = (int32_t)desc.context, .tensors.layers = decoder->layers};
  rondo_status status = rondo_graph_create(NULL, NULL, &decoder->graph);
  if (status == RONDO_OK) status = rondo_graph_llama(decoder->graph, &desc, &decoder->tensors);
  if (status == RONDO_OK) status = rondo_instantiate(runtime, decoder->graph, &options, &decoder->exec);
  if (status == RONDO_OK) status = set_all(decoder, &desc);
  if (status == RONDO_OK) status = rondo_acquire(decoder->exec, &decoder->slot);
  return status == RONDO_OK ? decoder_restart(decoder) : status;
}

bool decoder_is_in_halves(const struct decoder *decoder) {
  static const struct chip chip = {90, 132, 232448}; /* an H200 */
  int halves = 0;
  for (uint32_t i = 0; i < decoder->graph->task_count; i++) {
    struct op_operand operands[OP_MAX_OPERANDS];
    struct op_launches launches;
    struct op_task task = graph_op_task(decoder->graph, &decoder->graph->tasks[i], operands);
    if (task.op != &op_attention_block && task.op != &op_feed_forward) continue;
    const struct op_call call = {.task = &task, .data = op_nowhere};
    if (task.op->select(&call, &chip, &launches) != RONDO_OK || launches.count != 1) return false;
    halves++;
  }
  return halves == 2 * DECODER_LAYERS;
}

rondo_status decoder_restart(struct decoder *decoder) {
  static const int32_t tokens[DECODER_SEQUENCES_MOST] = {3, 200, 71, 430}, positions[DECODER_SEQUENCES_MOST] = {0};
  const uint64_t bytes = (uint64_t)decoder->sequences * sizeof *tokens;
  rondo_status status = rondo_upload(decoder->exec, decoder->tensors.token, tokens, bytes);
  if (status != RONDO_OK) return status;
  decoder->position = 0;
  return rondo_upload(decoder->exec, decoder->tensors.position, positions, bytes);
}

rondo_status decoder_replay(struct decoder *decoder, uint64_t count) {
  int32_t *advance = rondo_data(decoder->slot, decoder->tensors.advance);
  rondo_status status = RONDO_OK;
  for (uint64_t i = 0; i < count && status == RONDO_OK; i++) {
    const int32_t next = (decoder->position + 1) % decoder->context;
    for (int32_t s = 0; s < decoder->sequences; s++) advance[s] = next - decoder->position;
    status = rondo_replay(decoder->slot);
    if (status == RONDO_OK) status = rondo_wait(decoder->slot, RONDO_FOREVER);
    decoder->position = next;
  }
  return status;
}

/* A row of V is of zeros until a token comes there. */
static bool is_as_appended(const uint16_t *row, int64_t count, bool is_there) {
  int64_t zeros = 0;
  for (int64_t i = 0; i < count; i++) {
    if (!isfinite(f32_of_bf16(row[i]))) return false;
    zeros += f32_of_bf16(row[i]) == 0;
  }
  return is_there ? zeros < count / 2 : zeros == count;
}

rondo_status decoder_check(const struct decoder *decoder, uint64_t tokens, const char **complaint) {
  static uint16_t v[MOST_CACHE_ELEMENTS];
  int32_t positions[DECODER_SEQUENCES_MOST] = {0};
  const rondo_tensor last = decoder->layers[DECODER_LAYERS - 1].v;
  uint64_t bytes;
  *complaint = NULL;
  rondo_status status = rondo_download(decoder->exec, decoder->tensors.position, positions,
                                       (uint64_t)decoder->sequences * sizeof *positions);
  if (status == RONDO_OK) status = rondo_tensor_bytes(last, &bytes);
  if (status == RONDO_OK) status = bytes > sizeof v ? RONDO_INTERNAL : rondo_download(decoder->exec, last, v, bytes);
  if (status != RONDO_OK) return status;
  const uint64_t context = (uint64_t)decoder->context, rows = context + PADDING,
                 count = bytes / sizeof *v / rows / (uint64_t)decoder->sequences;
  for (int32_t s = 0; s < decoder->sequences; s++) {
    if ((uint64_t)positions[s] != tokens % context) *complaint = "a sequence stands elsewhere";
    for (uint64_t row = 0; row < rows; row++)
      if (!is_as_appended(&v[((uint64_t)s * rows + row) * count], (int64_t)count, row < tokens && row < context))
        *complaint = "a row of V is missing, not finite or one too many";
  }
  return RONDO_OK;
}

const int32_t *decoder_tokens(const struct decoder *decoder) {
  return rondo_data(decoder->slot, decoder->tensors.next);
}

rondo_status decoder_close(struct decoder *decoder) {
  rondo_status status = rondo_release(decoder->slot);
  if (status == RONDO_OK) status = rondo_close_exec(&decoder->exec);
  return status == RONDO_OK ? rondo_graph_destroy(&decoder->graph) : status;
}
