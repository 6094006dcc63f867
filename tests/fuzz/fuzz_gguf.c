/* fuzz_gguf.c - any bytes as a GGUF file, and a good file with some bytes changed. The reader refuses it with a
 * sentence, or every key, element and row is there, and its vocabulary takes any text or is refused with a sentence. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/chat/dequantize.h"
#include "../../samples/chat/tokenizer.h"
#include "../samples/gguf_writer.h"

enum { MOST_ELEMENTS = 1 << 16 }; /* of a tensor whose rows are all looked at */

static struct gguf_buffer good;

static void require(bool condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "fuzz_gguf: %s\n", what);
  abort();
}

static void require_sentence(const char message[GGUF_MESSAGE_BYTES]) {
  require(message[0] != '\0' && memchr(message, '\0', GGUF_MESSAGE_BYTES), "a refusal without a sentence");
}

/* Every element is there: the address sanitizer looks on. */
static void touch_entries(const struct gguf *file) {
  volatile double sink = 0;
  for (uint64_t i = 0; i < file->entry_count; i++) {
    const struct gguf_entry *entry = &file->entries[i];
    const uint8_t *at = entry->data;
    for (uint64_t j = 0; j < entry->count; j++)
      if (entry->kind == GGUF_STRING) {
        struct gguf_text text = gguf_next_string(&at);
        for (size_t k = 0; k < text.length; k++) sink = text.bytes[k];
      } else {
        sink = gguf_element(entry, j);
      }
  }
  (void)sink;
}

static void touch_rows(const struct gguf *file) {
  for (uint64_t i = 0; i < file->tensor_count; i++) {
    const struct gguf_tensor *tensor = &file->tensors[i];
    int64_t rows = gguf_rows(tensor);
    require(tensor->row_bytes * (uint64_t)rows == tensor->bytes, "rows and bytes of a tensor disagree");
    if (tensor->shape[0] * rows > MOST_ELEMENTS) continue;
    float *row = malloc((size_t)tensor->shape[0] * sizeof *row);
    if (!row) abort();
    for (int64_t j = 0; j < rows; j++) dequantize_row(tensor, j, row);
    free(row);
  }
}

static void encode_something(const struct gguf *file) {
  static const char text[] = "<|im_start|>the hello's 12  aaaaaaa\n\n\xc3\xa9\xff\xff<|im_end|>";
  struct tokenizer tokenizer;
  struct tokens tokens = {0};
  char message[GGUF_MESSAGE_BYTES] = "";
  if (!tokenizer_open(file, &tokenizer, message)) {
    require_sentence(message);
    return;
  }
  for (int specials = 0; specials < 2; specials++)
    require(tokenizer_encode(&tokenizer, text, sizeof text, (enum tokenizer_specials)specials, &tokens), "no memory");
  for (size_t i = 0; i < tokens.count; i++)
    require(tokens.ids[i] >= 0 && tokens.ids[i] < tokenizer.vocabulary.token_count, "a token that is none");
  require(tokenizer.vocabulary.begin >= -1 && tokenizer.vocabulary.begin < tokenizer.vocabulary.token_count,
          "a conversation begins with a token that is none");
  tokens_free(&tokens);
  tokenizer_close(&tokenizer);
}

/* In memory of exactly their size, so that a byte too far is seen. */
static void try_file(const uint8_t *bytes, size_t count) {
  uint8_t *copy = malloc(count);
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES] = "";
  if (!copy && count > 0) abort();
  if (count > 0) memcpy(copy, bytes, count);
  if (gguf_parse("given.gguf", copy, count, &file, message)) {
    touch_entries(&file);
    touch_rows(&file);
    encode_something(&file);
    gguf_close(&file);
  } else {
    require_sentence(message);
    require(file.entries == NULL && file.tensors == NULL && file.file == NULL, "a refusal left something");
  }
  free(copy);
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argument_count, char ***arguments) {
  (void)argument_count;
  (void)arguments;
  static const uint32_t types[] = {GGUF_TYPE_F32,  GGUF_TYPE_F16,  GGUF_TYPE_BF16,
                                   GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_1, GGUF_TYPE_Q8_0};
  static const size_t block_bytes[] = {128, 64, 64, 18, 20, 34};
  static const uint8_t zeros[256];
  struct gguf_writer writer = {0};
  for (uint32_t i = 0; i < 6; i++) {
    char name[16];
    snprintf(name, sizeof name, "tensor %u", i);
    gguf_write_tensor(&writer, name, types[i], 2, (int64_t[]){32, 2}, zeros, 2 * block_bytes[i]);
  }
  gguf_write_tensor(&writer, "a.weight", GGUF_TYPE_NVFP4, 2, (int64_t[]){64, 2}, zeros, 72);
  gguf_write_tensor(&writer, "a.scale", GGUF_TYPE_F32, 1, (int64_t[]){1}, &(const float){1}, sizeof(float));
  gguf_write_value(&writer, "a number", GGUF_F64, zeros, 8);
  gguf_write_u32(&writer, "tokenizer.ggml.bos_token_id", SMALL_START);
  gguf_write_u32(&writer, "tokenizer.ggml.eos_token_id", SMALL_END);
  gguf_write_value(&writer, "tokenizer.ggml.add_bos_token", GGUF_BOOL, "\1", 1);
  gguf_write_value(&writer, "tokenizer.ggml.add_eos_token", GGUF_BOOL, "\0", 1);
  gguf_write_small_vocabulary(&writer);
  good = gguf_write_end(&writer);
  return 0;
}

/* The first byte: 0: the rest is a file. Else the rest is places, two bytes each, of the good file, and their bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  if (data[0] == 0) {
    try_file(data + 1, size - 1);
    return 0;
  }
  uint8_t *changed = malloc(good.count);
  if (!changed) abort();
  memcpy(changed, good.bytes, good.count);
  for (size_t i = 1; i + 3 <= size; i += 3) changed[(data[i] | (size_t)data[i + 1] << 8) % good.count] = data[i + 2];
  try_file(changed, good.count);
  free(changed);
  return 0;
}
