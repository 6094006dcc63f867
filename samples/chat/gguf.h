/* gguf.h - GGUF files, version 3, little-endian: a model's metadata, vocabulary and tensors
 * (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Nothing is copied: the functions return pointers into
 * the mapped file. They reject a file that is damaged, is one part of a model, has unsupported types, or lacks a
 * requested key or tensor. The message names the file and the offset, key or tensor.
 *
 * Dimensions have the file's order: shape[0] is the length of a row, whose elements are contiguous. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GGUF_MAX_RANK = 4, GGUF_MESSAGE_BYTES = 320 };

/* The types of metadata. */
enum gguf_kind {
  GGUF_U8,
  GGUF_I8,
  GGUF_U16,
  GGUF_I16,
  GGUF_U32,
  GGUF_I32,
  GGUF_F32,
  GGUF_BOOL,
  GGUF_STRING,
  GGUF_ARRAY,
  GGUF_U64,
  GGUF_I64,
  GGUF_F64,
  GGUF_KIND_COUNT
};

/* The supported types of tensors, with ggml's numbers. */
enum gguf_type {
  GGUF_TYPE_F32 = 0,
  GGUF_TYPE_F16 = 1,
  GGUF_TYPE_Q4_0 = 2,
  GGUF_TYPE_Q4_1 = 3,
  GGUF_TYPE_Q8_0 = 8,
  GGUF_TYPE_BF16 = 30,
  GGUF_TYPE_NVFP4 = 40
};
enum { GGUF_NVFP4_ELEMENTS = 64, GGUF_NVFP4_BYTES = 36 }; /* of a block */

struct gguf_text {
  const char *bytes; /* without a zero at the end */
  size_t length;
};

/* A text for messages: cut to a maximal length, with ? for characters that are not printable. A file's bytes could be
 * commands for a terminal. */
struct gguf_quoted {
  char text[72];
};
struct gguf_quoted gguf_quote(struct gguf_text text);

struct gguf_entry {
  struct gguf_text key;
  enum gguf_kind kind; /* of the value, or of an array's elements, which are not arrays themselves */
  bool is_array;       /* if not, count is 1 */
  uint64_t count;      /* elements */
  const uint8_t *data; /* the first element, with any alignment */
};

struct gguf_tensor {
  struct gguf_text name;
  enum gguf_type type;
  uint32_t rank;
  int64_t shape[GGUF_MAX_RANK]; /* 1 in dimensions from rank on */
  uint64_t row_bytes, bytes;
  const uint8_t *data;
  /* Of NVFP4, which is multiplied by it: the number of the tensor whose name has "scale" in place of "weight" at its
   * end, as in llama.cpp; 1 without such a tensor. */
  float factor;
};

struct gguf {
  const char *path;    /* for messages; it belongs to the caller */
  const uint8_t *file; /* the whole file */
  uint64_t bytes;
  uint64_t keys_end; /* where the keys end, and the tensors' descriptions begin */
  bool mapped;
  struct gguf_entry *entries; /* by key, in order */
  uint64_t entry_count;
  struct gguf_tensor *tensors; /* by name, in order */
  uint64_t tensor_count;
};

/* Maps a file and checks its whole structure. On failure *file is all zero, and message has the reason. The structure
 * keeps the path. The file must not change while it is open. */
bool gguf_open(const char *path, struct gguf *file, char message[GGUF_MESSAGE_BYTES]);
/* The same for a file in memory, which belongs to the caller and must outlive *file. The path is for messages. */
bool gguf_parse(const char *path, const void *bytes, uint64_t count, struct gguf *file,
                char message[GGUF_MESSAGE_BYTES]);
void gguf_close(struct gguf *file);

/* The metadata of a key. NULL if the file does not have the key. */
const struct gguf_entry *gguf_find(const struct gguf *file, const char *key);
/* A value that must exist, with the right type: any integer that is not negative, any number, or a string. */
bool gguf_integer(const struct gguf *file, const char *key, int64_t *value, char message[GGUF_MESSAGE_BYTES]);
bool gguf_number(const struct gguf *file, const char *key, double *value, char message[GGUF_MESSAGE_BYTES]);
bool gguf_string(const struct gguf *file, const char *key, struct gguf_text *value, char message[GGUF_MESSAGE_BYTES]);
/* An array that must exist, with elements of this kind. */
bool gguf_array(const struct gguf *file, const char *key, enum gguf_kind kind, struct gguf_entry *array,
                char message[GGUF_MESSAGE_BYTES]);
/* Reads the next string of an array of strings and advances *at, which begins as the array's data. */
struct gguf_text gguf_next_string(const uint8_t **at);
/* Element `index` of an entry with any number type. */
double gguf_element(const struct gguf_entry *entry, uint64_t index);

/* The tensor of this name. NULL if the file does not have it. */
const struct gguf_tensor *gguf_tensor(const struct gguf *file, const char *name);
int64_t gguf_rows(const struct gguf_tensor *tensor);
const char *gguf_type_name(enum gguf_type type);
