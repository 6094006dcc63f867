/* gguf.c - reads GGUF files (gguf.h). The reader passes once over the file. It compares every length with the rest of
 * the file before it uses the length. No allocation is larger than a few times the file. */
#include "gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
  const char *name;
  uint32_t bytes; /* 0: the size varies */
} kinds[GGUF_KIND_COUNT] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},         [GGUF_U16] = {"u16", 2},     [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4}, [GGUF_I32] = {"i32", 4},       [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1},
    [GGUF_U64] = {"u64", 8}, [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

/* The elements and bytes of a block of each type. */
static const struct {
  enum gguf_type type;
  const char *name;
  uint32_t elements, bytes;
} types[] = {
    {GGUF_TYPE_F32, "F32", 1, 4},
    {GGUF_TYPE_F16, "F16", 1, 2},
    {GGUF_TYPE_BF16, "BF16", 1, 2},
    {GGUF_TYPE_Q4_0, "Q4_0", 32, 18},
    {GGUF_TYPE_Q4_1, "Q4_1", 32, 20},
    {GGUF_TYPE_Q8_0, "Q8_0", 32, 34},
    {GGUF_TYPE_NVFP4, "NVFP4", GGUF_NVFP4_ELEMENTS, GGUF_NVFP4_BYTES},
};
enum { TYPE_COUNT = sizeof types / sizeof *types };
static const char read_types[] = "F32, F16, BF16, Q8_0, Q4_0, Q4_1 and NVFP4";

/* The names of unsupported types by ggml's number, for messages. */
static const char *const unread_types[] = {
    [6] = "Q5_0",   [7] = "Q5_1",    [9] = "Q8_1",   [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",
    [13] = "Q5_K",  [14] = "Q6_K",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS",
    [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",
    [25] = "I16",   [26] = "I32",    [27] = "I64",   [28] = "F64",     [29] = "IQ1_M",  [34] = "TQ1_0",
    [35] = "TQ2_0", [39] = "MXFP4",  [41] = "Q1_0",
};

/* 6 * 448 times the greatest factor is a finite number. */
#define GREATEST_FACTOR 0x1p116f

/* The shortest entry has a length, a kind and one byte; the shortest tensor a length, a rank, a type and an offset. */
enum { LEAST_ENTRY_BYTES = 13, LEAST_TENSOR_BYTES = 24, DEFAULT_ALIGNMENT = 32 };

/* ---- Reading on -------------------------------------------------------------------------------------------------- */

struct reader {
  struct gguf *file;
  uint64_t at;
  char *message;
};

static bool refuse(const struct reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(const struct reader *reader, const char *format, ...) {
  char why[GGUF_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, sizeof why, format, arguments);
  va_end(arguments);
  snprintf(reader->message, GGUF_MESSAGE_BYTES, "%.120s, byte %" PRIu64 ": %.160s", reader->file->path, reader->at,
           why);
  return false;
}

static uint64_t left(const struct reader *reader) { return reader->file->bytes - reader->at; }

static bool take(struct reader *reader, const char *what, void *value, uint64_t bytes) {
  if (bytes > left(reader)) return refuse(reader, "the file ends within %s", what);
  memcpy(value, reader->file->file + reader->at, bytes);
  reader->at += bytes;
  return true;
}

static bool take_text(struct reader *reader, const char *what, struct gguf_text *text) {
  uint64_t length = 0;
  if (!take(reader, what, &length, sizeof length)) return false;
  if (length > left(reader))
    return refuse(reader, "%s is %" PRIu64 " bytes long, but only %" PRIu64 " bytes of the file are left", what, length,
                  left(reader));
  *text = (struct gguf_text){(const char *)reader->file->file + reader->at, (size_t)length};
  reader->at += length;
  return true;
}

/* ---- Metadata ---------------------------------------------------------------------------------------------------- */

static bool take_kind(struct reader *reader, struct gguf_text key, enum gguf_kind *kind) {
  uint32_t number = 0;
  if (!take(reader, "the type of a value", &number, sizeof number)) return false;
  if (number >= GGUF_KIND_COUNT) return refuse(reader, "key %s: unknown type %" PRIu32, gguf_quote(key).text, number);
  *kind = (enum gguf_kind)number;
  return true;
}

static bool take_entry(struct reader *reader, struct gguf_entry *entry) {
  if (!take_text(reader, "a key", &entry->key) || !take_kind(reader, entry->key, &entry->kind)) return false;
  entry->count = 1;
  entry->is_array = entry->kind == GGUF_ARRAY;
  if (entry->is_array && (!take_kind(reader, entry->key, &entry->kind) ||
                          !take(reader, "the length of an array", &entry->count, sizeof entry->count)))
    return false;
  if (entry->kind == GGUF_ARRAY)
    return refuse(reader, "key %s: arrays of arrays are not supported", gguf_quote(entry->key).text);

  entry->data = reader->file->file + reader->at;
  uint64_t bytes = kinds[entry->kind].bytes;
  if (bytes > 0) {
    if (entry->count > left(reader) / bytes)
      return refuse(reader, "key %s: %" PRIu64 " values of type %s are more than the file has",
                    gguf_quote(entry->key).text, entry->count, kinds[entry->kind].name);
    reader->at += entry->count * bytes;
    return true;
  }
  struct gguf_text text;
  for (uint64_t i = 0; i < entry->count; i++)
    if (!take_text(reader, "a string", &text)) return false;
  return true;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static bool refuse_type(const struct reader *reader, const char *name, uint32_t type) {
  if (type < sizeof unread_types / sizeof *unread_types && unread_types[type])
    return refuse(reader, "tensor %s is of type %s, expected %s", name, unread_types[type], read_types);
  return refuse(reader, "tensor %s is of the unknown type %" PRIu32 ", expected %s", name, type, read_types);
}

/* Computes the tensor's bytes from its shape and type. */
static bool measure(const struct reader *reader, struct gguf_tensor *tensor, uint32_t type) {
  struct gguf_quoted quoted = gguf_quote(tensor->name);
  const char *name = quoted.text;
  uint32_t known = 0;
  while (known < TYPE_COUNT && types[known].type != (enum gguf_type)type) known++;
  if (known == TYPE_COUNT) return refuse_type(reader, name, type);
  tensor->type = types[known].type;
  uint64_t elements = 1;
  for (uint32_t i = 0; i < GGUF_MAX_RANK; i++) {
    if (tensor->shape[i] < 1) return refuse(reader, "tensor %s: dimension %u is not from 1 to 2^63 - 1", name, i);
    if (__builtin_mul_overflow(elements, (uint64_t)tensor->shape[i], &elements) || elements > INT64_MAX / 4)
      return refuse(reader, "tensor %s has more elements than any file", name);
  }
  if (tensor->shape[0] % types[known].elements != 0)
    return refuse(reader, "tensor %s: rows of %" PRId64 " elements are not a multiple of %s's %u", name,
                  tensor->shape[0], types[known].name, types[known].elements);
  tensor->row_bytes = (uint64_t)tensor->shape[0] / types[known].elements * types[known].bytes;
  tensor->bytes = elements / types[known].elements * types[known].bytes;
  return true;
}

/* Reads a tensor's description. *offset is the place of its data, whose address is known after all descriptions. */
static bool take_tensor(struct reader *reader, struct gguf_tensor *tensor, uint64_t *offset) {
  uint32_t type = 0;
  if (!take_text(reader, "a tensor's name", &tensor->name) ||
      !take(reader, "a tensor's rank", &tensor->rank, sizeof tensor->rank))
    return false;
  if (tensor->rank < 1 || tensor->rank > GGUF_MAX_RANK)
    return refuse(reader, "tensor %s has %" PRIu32 " dimensions, expected 1 to 4", gguf_quote(tensor->name).text,
                  tensor->rank);
  for (uint32_t i = 0; i < GGUF_MAX_RANK; i++) tensor->shape[i] = 1;
  return take(reader, "a tensor's shape", tensor->shape, tensor->rank * sizeof tensor->shape[0]) &&
         take(reader, "a tensor's type", &type, sizeof type) && measure(reader, tensor, type) &&
         take(reader, "a tensor's offset", offset, sizeof *offset);
}

static bool place(const struct reader *reader, struct gguf_tensor *tensor, uint64_t offset, uint64_t alignment) {
  uint64_t room = left(reader);
  if (offset % alignment != 0)
    return refuse(reader, "tensor %s: its offset %" PRIu64 " is not a multiple of %" PRIu64,
                  gguf_quote(tensor->name).text, offset, alignment);
  if (offset > room || tensor->bytes > room - offset)
    return refuse(reader, "tensor %s: %" PRIu64 " bytes at offset %" PRIu64 " of the data, which has %" PRIu64,
                  gguf_quote(tensor->name).text, tensor->bytes, offset, room);
  tensor->data = reader->file->file + reader->at + offset;
  return true;
}

/* ---- The whole file ---------------------------------------------------------------------------------------------- */

static int compare_texts(struct gguf_text a, struct gguf_text b) {
  int order = memcmp(a.bytes, b.bytes, a.length < b.length ? a.length : b.length);
  return order ? order : (a.length > b.length) - (a.length < b.length);
}

static int compare_entries(const void *a, const void *b) {
  return compare_texts(((const struct gguf_entry *)a)->key, ((const struct gguf_entry *)b)->key);
}

static int compare_tensors(const void *a, const void *b) {
  return compare_texts(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static bool take_entries(struct reader *reader) {
  struct gguf *file = reader->file;
  for (uint64_t i = 0; i < file->entry_count; i++)
    if (!take_entry(reader, &file->entries[i])) return false;
  if (file->entry_count > 0) qsort(file->entries, file->entry_count, sizeof *file->entries, compare_entries);
  for (uint64_t i = 1; i < file->entry_count; i++)
    if (compare_entries(&file->entries[i - 1], &file->entries[i]) == 0)
      return refuse(reader, "the file has the key %s twice", gguf_quote(file->entries[i].key).text);
  return true;
}

/* Finds the factor of an NVFP4 tensor. */
static bool take_factor(const struct reader *reader, struct gguf_tensor *tensor) {
  static const char weight[] = "weight";
  const size_t end = sizeof weight - 1;
  struct gguf_text name = tensor->name;
  char scale_name[128];
  tensor->factor = 1;
  if (name.length < end || name.length >= sizeof scale_name || memcmp(name.bytes + name.length - end, weight, end) != 0)
    return true;
  snprintf(scale_name, sizeof scale_name, "%.*sscale", (int)(name.length - end), name.bytes);
  const struct gguf_tensor *scale = gguf_tensor(reader->file, scale_name);
  if (!scale) return true;
  if (scale->type != GGUF_TYPE_F32 || scale->bytes != sizeof tensor->factor)
    return refuse(reader, "tensor %s is not one number of type F32", gguf_quote(scale->name).text);
  memcpy(&tensor->factor, scale->data, sizeof tensor->factor);
  if (!(tensor->factor >= FLT_MIN && tensor->factor <= GREATEST_FACTOR))
    return refuse(reader, "tensor %s is %g, expected %g to %g", gguf_quote(scale->name).text, (double)tensor->factor,
                  (double)FLT_MIN, (double)GREATEST_FACTOR);
  return true;
}

/* The data begins after the last tensor's description, at the next multiple of the alignment. */
static bool begin_data(struct reader *reader, uint64_t *alignment) {
  int64_t value = DEFAULT_ALIGNMENT;
  if (gguf_find(reader->file, "general.alignment") &&
      !gguf_integer(reader->file, "general.alignment", &value, reader->message))
    return false;
  if (value < 1 || value > 1 << 20 || (value & (value - 1)) != 0)
    return refuse(reader, "general.alignment is %" PRId64 ", expected a power of two up to 2^20", value);
  *alignment = (uint64_t)value;
  uint64_t padding = (*alignment - reader->at % *alignment) % *alignment;
  reader->at += padding < left(reader) ? padding : left(reader);
  return true;
}

static bool take_tensors(struct reader *reader) {
  struct gguf *file = reader->file;
  uint64_t *offsets = calloc(file->tensor_count + 1, sizeof *offsets), alignment = DEFAULT_ALIGNMENT;
  if (!offsets) return refuse(reader, "no memory for %" PRIu64 " tensors", file->tensor_count);
  bool fine = true;
  for (uint64_t i = 0; i < file->tensor_count && fine; i++) fine = take_tensor(reader, &file->tensors[i], &offsets[i]);
  fine = fine && begin_data(reader, &alignment);
  for (uint64_t i = 0; i < file->tensor_count && fine; i++)
    fine = place(reader, &file->tensors[i], offsets[i], alignment);
  free(offsets);
  if (!fine) return false;
  if (file->tensor_count > 0) qsort(file->tensors, file->tensor_count, sizeof *file->tensors, compare_tensors);
  for (uint64_t i = 1; i < file->tensor_count; i++)
    if (compare_tensors(&file->tensors[i - 1], &file->tensors[i]) == 0)
      return refuse(reader, "the file has the tensor %s twice", gguf_quote(file->tensors[i].name).text);
  for (uint64_t i = 0; i < file->tensor_count && fine; i++)
    fine = file->tensors[i].type != GGUF_TYPE_NVFP4 || take_factor(reader, &file->tensors[i]);
  return fine;
}

static bool take_file(struct reader *reader) {
  struct gguf *file = reader->file;
  char magic[4];
  uint32_t version = 0;
  if (left(reader) < sizeof magic || memcmp(file->file, "GGUF", sizeof magic) != 0)
    return refuse(reader, "it is not a GGUF file");
  if (!take(reader, "the magic", magic, sizeof magic) || !take(reader, "the version", &version, sizeof version))
    return false;
  if (version != 3) return refuse(reader, "it has GGUF version %" PRIu32 ", expected 3", version);
  uint64_t entries = 0, tensors = 0;
  if (!take(reader, "the number of tensors", &tensors, sizeof tensors) ||
      !take(reader, "the number of keys", &entries, sizeof entries))
    return false;
  if (entries > left(reader) / LEAST_ENTRY_BYTES || tensors > left(reader) / LEAST_TENSOR_BYTES)
    return refuse(reader, "%" PRIu64 " keys and %" PRIu64 " tensors are more than the file has", entries, tensors);
  file->entries = calloc(entries + 1, sizeof *file->entries);
  file->tensors = calloc(tensors + 1, sizeof *file->tensors);
  if (!file->entries || !file->tensors) return refuse(reader, "no memory for its keys and tensors");
  file->entry_count = entries;
  file->tensor_count = tensors;
  if (!take_entries(reader)) return false;
  file->keys_end = reader->at;
  return take_tensors(reader);
}

/* The number of parts by the file's name: 3 for model-00002-of-00003.gguf, 1 for other names. */
static int64_t parts_by_name(const char *path) {
  enum { TAIL = sizeof "-00002-of-00003.gguf" - 1 };
  size_t length = strlen(path);
  unsigned part, parts;
  int end = 0;
  if (length < TAIL || sscanf(path + length - TAIL, "-%5u-of-%5u.gguf%n", &part, &parts, &end) != 2) return 1;
  return end == TAIL ? parts : 1;
}

/* Is the file a whole model? A part has only some of the tensors, and only the first part has the metadata. */
static bool is_whole(const struct reader *reader) {
  int64_t parts = parts_by_name(reader->file->path);
  if (gguf_find(reader->file, "split.count") && !gguf_integer(reader->file, "split.count", &parts, reader->message))
    return false;
  return parts <= 1 || refuse(reader,
                              "it is one of %" PRId64 " parts of a model, expected one file: make it with "
                              "llama-gguf-split --merge",
                              parts);
}

bool gguf_parse(const char *path, const void *bytes, uint64_t count, struct gguf *file,
                char message[GGUF_MESSAGE_BYTES]) {
  *file = (struct gguf){.path = path, .file = bytes, .bytes = count};
  struct reader reader = {.file = file, .message = message};
  if (take_file(&reader) && is_whole(&reader)) return true;
  gguf_close(file);
  return false;
}

/* Returns NULL, or the reason of a failure. */
static const char *map_file(const char *path, const void **bytes, uint64_t *count) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return strerror(errno);
  struct stat status = {0};
  errno = 0;
  bool usable = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
  *count = (uint64_t)status.st_size;
  *bytes = usable ? mmap(NULL, *count, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
  int error = errno;
  close(descriptor);
  if (*bytes != MAP_FAILED) return NULL;
  return error ? strerror(error) : "is not a regular file, or is empty";
}

bool gguf_open(const char *path, struct gguf *file, char message[GGUF_MESSAGE_BYTES]) {
  memset(file, 0, sizeof *file);
  const void *bytes = NULL;
  uint64_t count = 0;
  const char *why = map_file(path, &bytes, &count);
  if (why) {
    snprintf(message, GGUF_MESSAGE_BYTES, "%.200s: %.100s", path, why);
    return false;
  }
  file->mapped = gguf_parse(path, bytes, count, file, message);
  if (!file->mapped) munmap((void *)(uintptr_t)bytes, count);
  return file->mapped;
}

void gguf_close(struct gguf *file) {
  if (file->mapped) munmap((void *)(uintptr_t)file->file, (size_t)file->bytes);
  free(file->entries);
  free(file->tensors);
  memset(file, 0, sizeof *file);
}

struct gguf_quoted gguf_quote(struct gguf_text text) {
  struct gguf_quoted quoted;
  size_t length = text.length < sizeof quoted.text - 1 ? text.length : sizeof quoted.text - 1;
  for (size_t i = 0; i < length; i++)
    quoted.text[i] = text.bytes[i] >= ' ' && text.bytes[i] <= '~' ? text.bytes[i] : '?';
  quoted.text[length] = '\0';
  return quoted;
}

/* ---- Keys and tensors -------------------------------------------------------------------------------------------- */

static struct gguf_text text_of(const char *string) { return (struct gguf_text){string, strlen(string)}; }

const struct gguf_entry *gguf_find(const struct gguf *file, const char *key) {
  if (file->entry_count == 0) return NULL;
  struct gguf_entry wanted = {.key = text_of(key)};
  return bsearch(&wanted, file->entries, file->entry_count, sizeof wanted, compare_entries);
}

const struct gguf_tensor *gguf_tensor(const struct gguf *file, const char *name) {
  if (file->tensor_count == 0) return NULL;
  struct gguf_tensor wanted = {.name = text_of(name)};
  return bsearch(&wanted, file->tensors, file->tensor_count, sizeof wanted, compare_tensors);
}

static bool lacks(const struct gguf *file, const char *key, const struct gguf_entry *entry, const char *expected,
                  char message[GGUF_MESSAGE_BYTES]) {
  if (entry)
    snprintf(message, GGUF_MESSAGE_BYTES, "%.120s: %.80s is of type %s%s, expected %s", file->path, key,
             entry->is_array ? "array of " : "", kinds[entry->kind].name, expected);
  else
    snprintf(message, GGUF_MESSAGE_BYTES, "%.120s: it has no %.80s", file->path, key);
  return false;
}

double gguf_element(const struct gguf_entry *entry, uint64_t index) {
  const uint8_t *data = entry->data + index * kinds[entry->kind].bytes;
  uint64_t bits = 0;
  float single;
  double value;
  memcpy(&bits, data, kinds[entry->kind].bytes);
  switch (entry->kind) {
  case GGUF_I8:
    return (int8_t)bits;
  case GGUF_I16:
    return (int16_t)bits;
  case GGUF_I32:
    return (int32_t)bits;
  case GGUF_I64:
    return (double)(int64_t)bits;
  case GGUF_F32:
    memcpy(&single, data, sizeof single);
    return (double)single;
  case GGUF_F64:
    memcpy(&value, data, sizeof value);
    return value;
  default:
    return (double)bits;
  }
}

bool gguf_number(const struct gguf *file, const char *key, double *value, char message[GGUF_MESSAGE_BYTES]) {
  const struct gguf_entry *entry = gguf_find(file, key);
  if (!entry || entry->is_array || kinds[entry->kind].bytes == 0 || entry->kind == GGUF_BOOL)
    return lacks(file, key, entry, "a number", message);
  *value = gguf_element(entry, 0);
  return true;
}

bool gguf_integer(const struct gguf *file, const char *key, int64_t *value, char message[GGUF_MESSAGE_BYTES]) {
  const struct gguf_entry *entry = gguf_find(file, key);
  double number = 0;
  if (!entry || entry->kind == GGUF_F32 || entry->kind == GGUF_F64)
    return lacks(file, key, entry, "an integer", message);
  if (!gguf_number(file, key, &number, message)) return false;
  if (!(number >= 0 && number <= 0x1p53)) {
    snprintf(message, GGUF_MESSAGE_BYTES, "%.120s: %.80s is %g, expected 0 to 2^53", file->path, key, number);
    return false;
  }
  *value = (int64_t)number;
  return true;
}

bool gguf_string(const struct gguf *file, const char *key, struct gguf_text *value, char message[GGUF_MESSAGE_BYTES]) {
  const struct gguf_entry *entry = gguf_find(file, key);
  if (!entry || entry->is_array || entry->kind != GGUF_STRING) return lacks(file, key, entry, "a string", message);
  const uint8_t *at = entry->data;
  *value = gguf_next_string(&at);
  return true;
}

bool gguf_array(const struct gguf *file, const char *key, enum gguf_kind kind, struct gguf_entry *array,
                char message[GGUF_MESSAGE_BYTES]) {
  const struct gguf_entry *entry = gguf_find(file, key);
  char expected[32];
  snprintf(expected, sizeof expected, "array of %s", kinds[kind].name);
  if (!entry || !entry->is_array || entry->kind != kind) return lacks(file, key, entry, expected, message);
  *array = *entry;
  return true;
}

struct gguf_text gguf_next_string(const uint8_t **at) {
  uint64_t length = 0;
  memcpy(&length, *at, sizeof length);
  struct gguf_text text = {(const char *)*at + sizeof length, (size_t)length};
  *at += sizeof length + length;
  return text;
}

int64_t gguf_rows(const struct gguf_tensor *tensor) { return tensor->shape[1] * tensor->shape[2] * tensor->shape[3]; }

const char *gguf_type_name(enum gguf_type type) {
  for (uint32_t i = 0; i < TYPE_COUNT; i++)
    if (types[i].type == type) return types[i].name;
  return "unknown";
}
