/* gguf_writer.c - see gguf_writer.h. */
#include "gguf_writer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRING = 8, ARRAY = 9, U32 = 4, I32 = 5, F32 = 6 }; /* of metadata */
enum { TENSOR_F32 = 0 };

static void put(struct gguf_buffer *buffer, const void *bytes, size_t count) {
  if (buffer->count + count > buffer->capacity) {
    buffer->capacity = 2 * (buffer->count + count) + 64;
    buffer->bytes = realloc(buffer->bytes, buffer->capacity);
    if (!buffer->bytes) abort();
  }
  if (count > 0) memcpy(buffer->bytes + buffer->count, bytes, count);
  buffer->count += count;
}

static void put_u32(struct gguf_buffer *buffer, uint32_t value) { put(buffer, &value, sizeof value); }
static void put_u64(struct gguf_buffer *buffer, uint64_t value) { put(buffer, &value, sizeof value); }

static void put_text(struct gguf_buffer *buffer, const char *text) {
  put_u64(buffer, strlen(text));
  put(buffer, text, strlen(text));
}

static bool leaves_out(const struct gguf_writer *writer, const char *name) {
  return writer->without && strcmp(name, writer->without) == 0;
}

static void begin_value(struct gguf_writer *writer, const char *key, uint32_t kind) {
  writer->entry_count++;
  put_text(&writer->entries, key);
  put_u32(&writer->entries, kind);
}

void gguf_write_value(struct gguf_writer *writer, const char *key, uint32_t kind, const void *value, size_t bytes) {
  if (leaves_out(writer, key)) return;
  begin_value(writer, key, kind);
  put(&writer->entries, value, bytes);
}

void gguf_write_string(struct gguf_writer *writer, const char *key, const char *value) {
  if (leaves_out(writer, key)) return;
  begin_value(writer, key, STRING);
  put_text(&writer->entries, value);
}

void gguf_write_u32(struct gguf_writer *writer, const char *key, uint32_t value) {
  gguf_write_value(writer, key, U32, &value, sizeof value);
}

void gguf_write_array(struct gguf_writer *writer, const char *key, uint32_t kind, uint64_t count, const void *values,
                      size_t bytes) {
  if (leaves_out(writer, key)) return;
  begin_value(writer, key, ARRAY);
  put_u32(&writer->entries, kind);
  put_u64(&writer->entries, count);
  put(&writer->entries, values, bytes);
}

void gguf_write_strings(struct gguf_writer *writer, const char *key, uint64_t count, const char *const *values) {
  if (leaves_out(writer, key)) return;
  gguf_write_array(writer, key, STRING, count, NULL, 0);
  for (uint64_t i = 0; i < count; i++) put_text(&writer->entries, values[i]);
}

static void pad(struct gguf_buffer *buffer, size_t alignment) {
  while (buffer->count % alignment != 0) put(buffer, "", 1);
}

static uint32_t alignment_of(const struct gguf_writer *writer) { return writer->alignment ? writer->alignment : 32; }

void gguf_write_tensor(struct gguf_writer *writer, const char *name, uint32_t type, uint32_t rank, const int64_t *shape,
                       const void *data, size_t bytes) {
  if (leaves_out(writer, name)) return;
  pad(&writer->data, alignment_of(writer));
  writer->tensor_count++;
  put_text(&writer->infos, name);
  put_u32(&writer->infos, rank);
  put(&writer->infos, shape, rank * sizeof *shape);
  put_u32(&writer->infos, type);
  put_u64(&writer->infos, writer->data.count);
  put(&writer->data, data, bytes);
}

struct gguf_buffer gguf_write_end(struct gguf_writer *writer) {
  if (writer->alignment) gguf_write_u32(writer, "general.alignment", writer->alignment);
  struct gguf_buffer file = {0};
  put(&file, "GGUF", 4);
  put_u32(&file, writer->version ? writer->version : 3);
  put_u64(&file, writer->tensor_count);
  put_u64(&file, writer->entry_count);
  put(&file, writer->entries.bytes, writer->entries.count);
  put(&file, writer->infos.bytes, writer->infos.count);
  if (writer->tensor_count > 0) pad(&file, alignment_of(writer));
  put(&file, writer->data.bytes, writer->data.count);
  free(writer->entries.bytes);
  free(writer->infos.bytes);
  free(writer->data.bytes);
  memset(writer, 0, sizeof *writer);
  return file;
}

/* ---- A small vocabulary ------------------------------------------------------------------------------------------ */

/* Some compete for the same bytes: "aa" in a run of a, "th" "he" "the". The last three are no UTF-8 alone. */
static const char *const merge_texts[SMALL_MERGES][2] = {
    {"t", "h"},   {"h", "e"}, {"th", "e"},  {" ", "the"}, {"l", "l"},       {"he", "ll"},     {"hell", "o"},
    {" ", "t"},   {"e", "r"}, {"a", "a"},   {"aa", "aa"}, {"aaaa", "aa"},   {"'", "s"},       {" ", " "},
    {"  ", "  "}, {"1", "2"}, {"\n", "\n"}, {"o", "he"},  {"\xc3", "\xa9"}, {"\xf0", "\x9f"}, {"\xff", "\xff"},
};

struct small_token small_token(int32_t token) {
  struct small_token result = {.length = 1};
  if (token < 256)
    result.bytes[0] = (char)token;
  else if (token < SMALL_START)
    snprintf(result.bytes, sizeof result.bytes, "%s%s", merge_texts[token - 256][0], merge_texts[token - 256][1]);
  else
    snprintf(result.bytes, sizeof result.bytes, "%s", token == SMALL_START ? "<|im_start|>" : "<|im_end|>");
  if (token >= 256) result.length = (uint32_t)strlen(result.bytes);
  return result;
}

int32_t small_merge(int32_t left, int32_t right) {
  struct small_token a = small_token(left), b = small_token(right);
  for (int32_t i = 0; i < SMALL_MERGES; i++)
    if (strlen(merge_texts[i][0]) == a.length && memcmp(merge_texts[i][0], a.bytes, a.length) == 0 &&
        strlen(merge_texts[i][1]) == b.length && memcmp(merge_texts[i][1], b.bytes, b.length) == 0)
      return 256 + i;
  return -1;
}

/* As GPT-2 writes bytes: a byte that prints in Latin-1 as that character, the others from U+0100 on, in order. */
static int character_of(int byte) {
  static const char printable[] = "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
                                  "abcdefghijklmnopqrstuvwxyz{|}~";
  int others = 0;
  for (int i = 0; i <= byte; i++) {
    bool prints = (i && i < 128 && strchr(printable, i)) || (i > 160 && i != 173);
    if (i == byte) return prints ? byte : 256 + others;
    others += !prints;
  }
  return 0;
}

static char *write_as_characters(char *out, const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    int code = character_of((uint8_t)bytes[i]);
    if (code >= 128) *out++ = (char)(0xc0 | code >> 6);
    *out++ = (char)(code < 128 ? code : 0x80 | (code & 63));
  }
  *out = '\0';
  return out;
}

static int32_t small_count(const struct gguf_writer *writer) {
  return SMALL_TOKENS + writer->extra_count + writer->words;
}

enum { WRITTEN = 40 };
typedef char written[WRITTEN];

static void *new_list(int32_t count, size_t bytes) {
  void *list = calloc((size_t)count, bytes);
  if (!list) abort();
  return list;
}

/* Word 0 is "aa". */
static void write_word(int32_t word, char *text) {
  int32_t letters = 2, first = 0;
  for (int32_t count = 26 * 26; word >= first + count; count *= 26) first += count, letters++;
  text[letters] = '\0';
  for (word -= first; letters > 0; word /= 26) text[--letters] = (char)('a' + word % 26);
}

static void write_token(const struct gguf_writer *writer, int32_t i, char *text) {
  const int32_t extra = i - SMALL_TOKENS;
  if (extra >= writer->extra_count) {
    write_word(extra - writer->extra_count, text);
  } else if (extra >= 0) {
    snprintf(text, WRITTEN, "%s", writer->extra_texts[extra]);
  } else {
    const struct small_token token = small_token(i);
    if (i < SMALL_START)
      write_as_characters(text, token.bytes, token.length);
    else
      snprintf(text, WRITTEN, "%s", token.bytes);
  }
}

static void write_merge(int32_t i, char *text) {
  if (i < SMALL_MERGES) {
    text = write_as_characters(text, merge_texts[i][0], strlen(merge_texts[i][0]));
    *text++ = ' ';
    write_as_characters(text, merge_texts[i][1], strlen(merge_texts[i][1]));
  } else {
    write_word(i - SMALL_MERGES, text);
    const size_t last = strlen(text) - 1;
    text[last + 1] = text[last], text[last] = ' ', text[last + 2] = '\0';
  }
}

void gguf_write_small_vocabulary(struct gguf_writer *writer) {
  const int32_t count = small_count(writer), merge_count = SMALL_MERGES + writer->words, extra = SMALL_TOKENS;
  written *texts = new_list(count + merge_count, sizeof *texts);
  const char **list = new_list(count + merge_count, sizeof *list);
  int32_t *kinds = new_list(count, sizeof *kinds);
  for (int32_t i = 0; i < count; i++) {
    const bool is_extra = i >= extra && i < extra + writer->extra_count, is_special = i >= SMALL_START && i < extra;
    kinds[i] = is_extra ? writer->extra_kinds[i - extra] : is_special ? 3 : 1;
    write_token(writer, i, texts[i]);
  }
  for (int32_t i = 0; i < merge_count; i++) write_merge(i, texts[count + i]);
  for (int32_t i = 0; i < count + merge_count; i++) list[i] = texts[i];
  gguf_write_string(writer, "tokenizer.ggml.model", "gpt2");
  gguf_write_string(writer, "tokenizer.ggml.pre", "smollm");
  gguf_write_strings(writer, "tokenizer.ggml.tokens", (uint64_t)count, list);
  gguf_write_strings(writer, "tokenizer.ggml.merges", (uint64_t)merge_count, list + count);
  gguf_write_array(writer, "tokenizer.ggml.token_type", I32, (uint64_t)count, kinds, (size_t)count * sizeof *kinds);
  free(texts);
  free(list);
  free(kinds);
}

/* ---- A small model ----------------------------------------------------------------------------------------------- */

enum { HIDDEN = 64, HEADS = 2, FORWARD = 128, KV = HIDDEN / HEADS };

static void write_matrix(struct gguf_writer *writer, const char *name, int64_t rows, int64_t columns,
                         const float *values) {
  gguf_write_tensor(writer, name, TENSOR_F32, rows == 1 ? 1 : 2, (int64_t[]){columns, rows}, values,
                    (size_t)(rows * columns) * sizeof *values);
}

static float *new_values(int64_t count) {
  float *values = calloc((size_t)count, sizeof *values);
  if (!values) abort();
  return values;
}

/* Numbers from -0.5 to 0.5, other ones for each tensor. */
static void write_weights(struct gguf_writer *writer, const char *name, int64_t rows, int64_t columns) {
  float *values = new_values(rows * columns);
  uint32_t state = (uint32_t)writer->tensor_count;
  for (int64_t i = 0; i < rows * columns; i++) {
    state = state * 1664525 + 1013904223; /* Numerical Recipes' generator */
    values[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
  }
  write_matrix(writer, name, rows, columns, values);
  free(values);
}

static void write_zeros(struct gguf_writer *writer, const char *name, int64_t rows, int64_t columns) {
  float *values = new_values(rows * columns);
  write_matrix(writer, name, rows, columns, values);
  free(values);
}

static uint32_t layer_count(const struct gguf_writer *writer) { return writer->layers ? writer->layers : 1; }

static void write_keys(struct gguf_writer *writer) {
  static const float epsilon = 1e-5f, base = 1e4f;
  gguf_write_string(writer, "general.architecture", "llama");
  gguf_write_u32(writer, "llama.context_length", SMALL_CONTEXT);
  gguf_write_u32(writer, "llama.embedding_length", HIDDEN);
  gguf_write_u32(writer, "llama.block_count", layer_count(writer));
  gguf_write_u32(writer, "llama.feed_forward_length", FORWARD);
  gguf_write_u32(writer, "llama.attention.head_count", HEADS);
  gguf_write_u32(writer, "llama.attention.head_count_kv", 1);
  gguf_write_value(writer, "llama.attention.layer_norm_rms_epsilon", F32, &epsilon, sizeof epsilon);
  gguf_write_value(writer, "llama.rope.freq_base", F32, &base, sizeof base);
}

typedef void matrix_writer(struct gguf_writer *writer, const char *name, int64_t rows, int64_t columns);

static void write_matrix_of(struct gguf_writer *writer, uint32_t layer, const char *part, int64_t rows, int64_t columns,
                            matrix_writer *write) {
  char name[64];
  snprintf(name, sizeof name, "blk.%u.%s.weight", layer, part);
  write(writer, name, rows, columns);
}

/* What a layer adds to the residual stream is a product with two of its matrices. */
static void write_layer(struct gguf_writer *writer, uint32_t layer, matrix_writer *write_added) {
  write_matrix_of(writer, layer, "attn_norm", 1, HIDDEN, write_weights);
  write_matrix_of(writer, layer, "attn_q", HIDDEN, HIDDEN, write_weights);
  write_matrix_of(writer, layer, "attn_k", KV, HIDDEN, write_weights);
  write_matrix_of(writer, layer, "attn_v", KV, HIDDEN, write_weights);
  write_matrix_of(writer, layer, "ffn_norm", 1, HIDDEN, write_weights);
  write_matrix_of(writer, layer, "ffn_gate", FORWARD, HIDDEN, write_weights);
  write_matrix_of(writer, layer, "ffn_up", FORWARD, HIDDEN, write_weights);
  write_matrix_of(writer, layer, "attn_output", HIDDEN, HIDDEN, write_added);
  write_matrix_of(writer, layer, "ffn_down", HIDDEN, FORWARD, write_added);
}

void gguf_write_small_model(struct gguf_writer *writer) {
  write_keys(writer);
  write_weights(writer, "token_embd.weight", small_count(writer), HIDDEN);
  write_weights(writer, "output_norm.weight", 1, HIDDEN);
  for (uint32_t i = 0; i < layer_count(writer); i++) write_layer(writer, i, write_weights);
}

/* The layer adds nothing. Each said token has a column of its own in the embedding, all others the first one; the head
 * looks for the next one's in it. */
void gguf_write_saying_model(struct gguf_writer *writer, const int32_t *tokens, int32_t count) {
  int64_t rows = small_count(writer);
  float *embedding = new_values(rows * HIDDEN), *head = new_values(rows * HIDDEN), norm[HIDDEN];
  for (int i = 0; i < HIDDEN; i++) norm[i] = 1;
  for (int64_t row = 0; row < rows; row++) embedding[row * HIDDEN] = 1;
  for (int32_t i = 0; i < count; i++) {
    int64_t row = tokens[i];
    embedding[row * HIDDEN] = 0;
    embedding[row * HIDDEN + i + 1] = 1;
    head[row * HIDDEN + i] = 1;
  }
  head[(int64_t)tokens[0] * HIDDEN + count] = 1;
  write_keys(writer);
  write_matrix(writer, "token_embd.weight", rows, HIDDEN, embedding);
  write_matrix(writer, "output.weight", rows, HIDDEN, head);
  write_matrix(writer, "output_norm.weight", 1, HIDDEN, norm);
  write_layer(writer, 0, write_zeros);
  free(embedding);
  free(head);
}
