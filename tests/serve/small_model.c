/* small_model.c - writes the GGUF file of a model whose answers say nothing, for tests of the serve sample: a small one
 * for very many requests, or one with the sizes of SmolLM2 135M or Llama 3.2 1B, in bf16, for times.
 *
 *     out/release/serve/small_model FILE [smollm2|llama]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../samples/gguf_writer.h"

struct shape {
  const char *name;
  uint32_t layers, context;
  int64_t hidden, forward, heads, kv_heads, vocabulary;
};

static const struct shape shapes[] = {
    {"smollm2", 30, 2048, 576, 1536, 9, 3, 49152},
    {"llama", 16, 8192, 2048, 8192, 32, 8, 128256},
};

/* Random numbers of 2^-7 to 2^-3. A matrix begins at a place of its own in them. */
static uint64_t *numbers;
enum { TYPE_BF16 = 30, KIND_F32 = 6, PLACES = 1 << 12 };

static void fill_numbers(const struct shape *shape) {
  const size_t count = (size_t)(shape->vocabulary * shape->hidden) / 4 + PLACES;
  uint64_t state = UINT64_C(0x9e3779b97f4a7c15); /* xorshift (Marsaglia 2003) */
  numbers = malloc(count * sizeof *numbers);
  if (!numbers) abort();
  for (size_t i = 0; i < count; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    numbers[i] = (state & UINT64_C(0x81ff81ff81ff81ff)) | UINT64_C(0x3c003c003c003c00);
  }
}

static void write_matrix(struct gguf_writer *writer, const char *name, int64_t rows, int64_t columns) {
  gguf_write_tensor(writer, name, TYPE_BF16, 2, (int64_t[]){columns, rows}, numbers + 8 * writer->tensor_count,
                    (size_t)(rows * columns) * 2);
}

static void write_norm(struct gguf_writer *writer, const char *name, int64_t columns) {
  float *ones = malloc((size_t)columns * sizeof *ones);
  if (!ones) abort();
  for (int64_t i = 0; i < columns; i++) ones[i] = 1;
  gguf_write_tensor(writer, name, 0, 1, &columns, ones, (size_t)columns * sizeof *ones);
  free(ones);
}

static void write_layer(struct gguf_writer *writer, const struct shape *shape, uint32_t layer) {
  const int64_t hidden = shape->hidden, forward = shape->forward, kv = hidden / shape->heads * shape->kv_heads;
  const struct {
    const char *part;
    int64_t rows, columns;
  } matrices[] = {{"attn_q", hidden, hidden},    {"attn_k", kv, hidden},      {"attn_v", kv, hidden},
                  {"ffn_gate", forward, hidden}, {"ffn_up", forward, hidden}, {"attn_output", hidden, hidden},
                  {"ffn_down", hidden, forward}};
  char name[64];
  for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, matrices[i].part);
    write_matrix(writer, name, matrices[i].rows, matrices[i].columns);
  }
  snprintf(name, sizeof name, "blk.%u.attn_norm.weight", layer);
  write_norm(writer, name, hidden);
  snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", layer);
  write_norm(writer, name, hidden);
}

static void write_shape(struct gguf_writer *writer, const struct shape *shape) {
  static const float epsilon = 1e-5F;
  writer->words = (int32_t)shape->vocabulary - SMALL_TOKENS;
  gguf_write_small_vocabulary(writer);
  fill_numbers(shape);
  gguf_write_string(writer, "general.architecture", "llama");
  gguf_write_u32(writer, "llama.context_length", shape->context);
  gguf_write_u32(writer, "llama.embedding_length", (uint32_t)shape->hidden);
  gguf_write_u32(writer, "llama.block_count", shape->layers);
  gguf_write_u32(writer, "llama.feed_forward_length", (uint32_t)shape->forward);
  gguf_write_u32(writer, "llama.attention.head_count", (uint32_t)shape->heads);
  gguf_write_u32(writer, "llama.attention.head_count_kv", (uint32_t)shape->kv_heads);
  gguf_write_value(writer, "llama.attention.layer_norm_rms_epsilon", KIND_F32, &epsilon, sizeof epsilon);
  write_matrix(writer, "token_embd.weight", shape->vocabulary, shape->hidden);
  write_norm(writer, "output_norm.weight", shape->hidden);
  for (uint32_t i = 0; i < shape->layers; i++) write_layer(writer, shape, i);
  free(numbers);
}

int main(int argc, char **argv) {
  struct gguf_writer writer = {0};
  const struct shape *shape = NULL;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (argc == 3 && strcmp(argv[2], shapes[i].name) == 0) shape = &shapes[i];
  if (argc < 2 || argc > 3 || (argc == 3 && !shape)) {
    fprintf(stderr, "usage: small_model FILE [smollm2|llama]\n");
    return 2;
  }
  if (shape) {
    write_shape(&writer, shape);
  } else {
    gguf_write_small_vocabulary(&writer);
    gguf_write_small_model(&writer);
  }
  const struct gguf_buffer buffer = gguf_write_end(&writer);
  FILE *file = fopen(argv[1], "wb");
  if (!file || fwrite(buffer.bytes, 1, buffer.count, file) != buffer.count || fclose(file)) {
    perror(argv[1]);
    return 1;
  }
  return 0;
}
