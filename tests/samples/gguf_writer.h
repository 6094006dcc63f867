/* gguf_writer.h - makes GGUF files in memory, for tests of what reads them, and parts of small ones: a vocabulary, a
 * model. It shares nothing with the reader but the numbers of types. Out of memory it aborts. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct gguf_buffer {
  uint8_t *bytes;
  size_t count, capacity;
};

/* {0} is an empty file. */
struct gguf_writer {
  struct gguf_buffer entries, infos, data;
  uint64_t entry_count, tensor_count;
  uint32_t version;    /* 0: 3 */
  uint32_t alignment;  /* 0: 32, and no key says so */
  uint32_t layers;     /* of the small model; 0: 1 */
  const char *without; /* a key or a tensor that is not written from now on */
  /* Tokens after those of the small vocabulary, with their types. */
  const char *extra_texts[2];
  int32_t extra_kinds[2], extra_count;
  int32_t words; /* further tokens: "aa", "ab" ... "zz", "aaa" ..., each with the merge of its last letter */
};

void gguf_write_string(struct gguf_writer *writer, const char *key, const char *value);
/* A number of a kind: its bytes, and how many. */
void gguf_write_value(struct gguf_writer *writer, const char *key, uint32_t kind, const void *value, size_t bytes);
void gguf_write_u32(struct gguf_writer *writer, const char *key, uint32_t value);
void gguf_write_array(struct gguf_writer *writer, const char *key, uint32_t kind, uint64_t count, const void *values,
                      size_t bytes);
void gguf_write_strings(struct gguf_writer *writer, const char *key, uint64_t count, const char *const *values);
void gguf_write_tensor(struct gguf_writer *writer, const char *name, uint32_t type, uint32_t rank, const int64_t *shape,
                       const void *data, size_t bytes);
/* The file, which the caller frees; the writer is empty afterwards. */
struct gguf_buffer gguf_write_end(struct gguf_writer *writer);

/* Keys of a tokenizer: 256 tokens of one byte, those that merge_texts make, two special ones after them; words. */
enum { SMALL_MERGES = 21, SMALL_START = 256 + SMALL_MERGES, SMALL_END, SMALL_TOKENS };
void gguf_write_small_vocabulary(struct gguf_writer *writer);
/* What a token of it stands for. */
struct small_token {
  char bytes[16];
  uint32_t length;
};
struct small_token small_token(int32_t token);
/* The token that two become, by the lowest rank; -1 if none. Ranks are in the order of the tokens. */
int32_t small_merge(int32_t left, int32_t right);

/* Keys and tensors of a Llama-like model of 64 columns and 2 heads, over that vocabulary. What it says is
 * nothing. */
enum { SMALL_CONTEXT = 256 };
void gguf_write_small_model(struct gguf_writer *writer);
/* The same, but it says these tokens one after the other, over and over, whatever it is told: other ones each, at most
 * SMALL_SAID. */
enum { SMALL_SAID = 63 };
void gguf_write_saying_model(struct gguf_writer *writer, const int32_t *tokens, int32_t count);
