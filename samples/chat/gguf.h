/* gguf.h - GGUF files, version 3, little-endian: a model's name and sizes, its vocabulary and its tensors
 * (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Nothing is copied: a reader gets pointers into the
 * mapped file. A file is refused if it is damaged, is a part of a model, has types that are not read, or lacks what is
 * asked for; the sentence names the file and the offset, key or tensor.
 *
 * The order of dimensions is the file's: shape[0] is the length of a row, whose elements lie beside each other. */
#ifndef GGUF_H
#define GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GGUF_MAX_RANK = 4, GGUF_MESSAGE_BYTES = 320 };

/* Of metadata. */
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

/* Of tensors: ggml's numbers, of which these are read. */
enum gguf_type {
  GGUF_TYPE_F32 = 0,
  GGUF_TYPE_F16 = 1,
  GGUF_TYPE_Q4_0 = 2,
  GGUF_TYPE_Q4_1 = 3,
  GGUF_TYPE_Q8_0 = 8,
  GGUF_TYPE_BF16 = 30
};

struct gguf_text {
  const char *bytes; /* not ended by a zero */
  size_t length;
};

/* For messages: as much of a text as they have room for, with ? for what does not print. A file's bytes could be a
 * terminal's commands. */
struct gguf_quoted {
  char text[72];
};
struct gguf_quoted gguf_quote(struct gguf_text text);

struct gguf_entry {
  struct gguf_text key;
  enum gguf_kind kind; /* of an array, of its elements, which are no arrays */
  bool is_array;       /* else count is 1 */
  uint64_t count;      /* elements */
  const uint8_t *data; /* the first; of any alignment */
};

struct gguf_tensor {
  struct gguf_text name;
  enum gguf_type type;
  uint32_t rank;
  int64_t shape[GGUF_MAX_RANK]; /* 1 beyond rank */
  uint64_t row_bytes, bytes;
  const uint8_t *data;
};

struct gguf {
  const char *path;    /* the caller's, in messages */
  const uint8_t *file; /* all of it */
  uint64_t bytes;
  bool mapped;
  struct gguf_entry *entries; /* by key, in order */
  uint64_t entry_count;
  struct gguf_tensor *tensors; /* by name, in order */
  uint64_t tensor_count;
};

/* Maps a file and checks all of its structure. On failure *file is all zero and message says why. The path is kept. The
 * file must not be written or cut while it is open. */
bool gguf_open(const char *path, struct gguf *file, char message[GGUF_MESSAGE_BYTES]);
/* The same of a file in memory, which stays the caller's and outlives *file; the path is for messages. */
bool gguf_parse(const char *path, const void *bytes, uint64_t count, struct gguf *file,
                char message[GGUF_MESSAGE_BYTES]);
void gguf_close(struct gguf *file);

/* Metadata, NULL if there is none of this key. */
const struct gguf_entry *gguf_find(const struct gguf *file, const char *key);
/* A value, which must be there and of this kind (any integer that is not negative; a number). */
bool gguf_integer(const struct gguf *file, const char *key, int64_t *value, char message[GGUF_MESSAGE_BYTES]);
bool gguf_number(const struct gguf *file, const char *key, double *value, char message[GGUF_MESSAGE_BYTES]);
bool gguf_string(const struct gguf *file, const char *key, struct gguf_text *value, char message[GGUF_MESSAGE_BYTES]);
/* An array of elements of this kind. */
bool gguf_array(const struct gguf *file, const char *key, enum gguf_kind kind, struct gguf_entry *array,
                char message[GGUF_MESSAGE_BYTES]);
/* Element by element, of an array of strings: where *at stands, which begins as the array's data and is moved on. */
struct gguf_text gguf_next_string(const uint8_t **at);
/* Element `index` of an entry of any kind of number, as one. */
double gguf_element(const struct gguf_entry *entry, uint64_t index);

/* NULL if there is none of this name. */
const struct gguf_tensor *gguf_tensor(const struct gguf *file, const char *name);
int64_t gguf_rows(const struct gguf_tensor *tensor);
const char *gguf_type_name(enum gguf_type type);

#endif
