/* npy.c - reads and writes .npy files (npy.h). The reader accepts only strict headers. It compares their sizes with the
 * size of the file before it uses them: no allocation is larger than the file. */
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *descr, *name;
  uint32_t bytes;
} types[NPY_TYPE_COUNT] = {
    [NPY_F64] = {"<f8", "float64", 8}, [NPY_F32] = {"<f4", "float32", 4}, [NPY_F16] = {"<f2", "float16", 2},
    [NPY_I32] = {"<i4", "int32", 4},   [NPY_U16] = {"<u2", "uint16", 2},  [NPY_U8] = {"|u1", "uint8", 1},
    [NPY_I8] = {"|i1", "int8", 1},
};

enum { MAX_HEADER_BYTES = 65536 };

const char *npy_type_name(enum npy_type type) { return types[type].name; }

static bool is_empty(const struct npy *array) {
  for (uint32_t i = 0; i < array->rank; i++)
    if (array->shape[i] == 0) return true;
  return false;
}

/* If one size is 0, the others may be so large that their product overflows. */
int64_t npy_count(const struct npy *array) {
  int64_t count = !is_empty(array);
  for (uint32_t i = 0; i < array->rank && count; i++) count *= array->shape[i];
  return count;
}

void npy_free(struct npy *array) {
  free(array->data);
  memset(array, 0, sizeof *array);
}

static double f16_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                     : exponent == 0 ? ldexp(fraction, -24)
                                     : ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

double npy_element(const struct npy *array, int64_t index) {
  switch (array->type) {
  case NPY_F64:
    return ((const double *)array->data)[index];
  case NPY_F32:
    return (double)((const float *)array->data)[index];
  case NPY_F16:
    return f16_value(((const uint16_t *)array->data)[index]);
  case NPY_I32:
    return ((const int32_t *)array->data)[index];
  case NPY_U16:
    return ((const uint16_t *)array->data)[index];
  case NPY_U8:
    return ((const uint8_t *)array->data)[index];
  case NPY_I8:
    return ((const int8_t *)array->data)[index];
  default:
    return (double)NAN;
  }
}

/* ---- Header ------------------------------------------------------------------------------------------------------ */

/* The header is a Python dictionary, such as
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * Each function removes the element that it names from the front of the text. If the element is not there, it removes
 * nothing and returns false. */
struct text {
  const char *at, *end;
};

static void skip_spaces(struct text *text) {
  while (text->at < text->end && strchr(" \t\r\n", *text->at) && *text->at) text->at++;
}

static bool take(struct text *text, const char *word) {
  skip_spaces(text);
  size_t length = strlen(word);
  if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length) != 0) return false;
  text->at += length;
  return true;
}

static bool take_string(struct text *text, char *string, size_t capacity) {
  skip_spaces(text);
  if (text->at == text->end || (*text->at != '\'' && *text->at != '"')) return false;
  const char *begin = text->at + 1;
  const char *close = memchr(begin, *text->at, (size_t)(text->end - begin));
  if (!close || (size_t)(close - begin) >= capacity) return false;
  memcpy(string, begin, (size_t)(close - begin));
  string[close - begin] = '\0';
  text->at = close + 1;
  return true;
}

static bool take_dimension(struct text *text, int64_t *dimension) {
  skip_spaces(text);
  const char *begin = text->at;
  int64_t value = 0;
  for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *text->at - '0', &value))
      return false;
  *dimension = value;
  return text->at > begin;
}

/* Each of these functions returns NULL, or the fault. */
static const char *read_descr(struct text *text, struct npy *array) {
  char descr[16];
  if (!take_string(text, descr, sizeof descr)) return "its descr is not the name of a plain type";
  if (descr[0] == '>') return "it is big-endian";
  for (uint32_t type = 0; type < NPY_TYPE_COUNT; type++)
    if ((descr[0] == '<' || descr[0] == '|') && strcmp(descr + 1, types[type].descr + 1) == 0) {
      array->type = (enum npy_type)type;
      return NULL;
    }
  return "its element type is not one of f2, f4, f8, i1, i4, u1, u2";
}

static const char *read_order(struct text *text, bool *is_fortran) {
  *is_fortran = take(text, "True");
  return *is_fortran || take(text, "False") ? NULL : "its fortran_order is neither True nor False";
}

/* An array with one dimension that is not 1 has the same order of elements in C and in Fortran. */
static bool has_one_order(const struct npy *array) {
  uint32_t long_dimensions = 0;
  for (uint32_t i = 0; i < array->rank; i++) long_dimensions += array->shape[i] > 1;
  return long_dimensions <= 1 || is_empty(array);
}

static const char *read_shape(struct text *text, struct npy *array) {
  if (!take(text, "(")) return "its shape is not a tuple";
  array->rank = 0;
  while (!take(text, ")")) {
    if (array->rank == NPY_MAX_RANK) return "it has more than 4 dimensions";
    if (!take_dimension(text, &array->shape[array->rank++]))
      return "its shape has a size that is not from 0 to 2^63 - 1";
    if (!take(text, ",") && (text->at == text->end || *text->at != ')')) return "its shape has no closing parenthesis";
  }
  return NULL;
}

static const char *read_dictionary(struct text text, struct npy *array) {
  enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };
  unsigned seen = 0;
  bool is_fortran = false;
  if (!take(&text, "{")) return "its header is not a dictionary";
  while (!take(&text, "}")) {
    char key[16];
    if (!take_string(&text, key, sizeof key) || !take(&text, ":")) return "its header is cut off or malformed";
    unsigned bit = strcmp(key, "descr") == 0           ? DESCR
                   : strcmp(key, "fortran_order") == 0 ? ORDER
                   : strcmp(key, "shape") == 0         ? SHAPE
                                                       : 0;
    if (bit == 0 || seen & bit) return "its header has an unknown or repeated key";
    seen |= bit;
    const char *wrong = bit == DESCR   ? read_descr(&text, array)
                        : bit == ORDER ? read_order(&text, &is_fortran)
                                       : read_shape(&text, array);
    if (wrong) return wrong;
    skip_spaces(&text);
    if (!take(&text, ",") && (text.at == text.end || *text.at != '}')) return "its header is cut off or malformed";
  }
  skip_spaces(&text);
  if (text.at != text.end) return "something follows the dictionary in its header";
  if (seen != ALL) return "its header lacks descr, fortran_order or shape";
  return is_fortran && !has_one_order(array) ? "it is in Fortran order: save numpy.ascontiguousarray of it" : NULL;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static bool refuse(char message[NPY_MESSAGE_BYTES], const char *path, const char *why) {
  snprintf(message, NPY_MESSAGE_BYTES, "%s: %s", path, why);
  return false;
}

/* Computes the bytes of the elements. False if they do not fit in 63 bits. */
static bool count_bytes(struct npy *array) {
  uint64_t bytes = is_empty(array) ? 0 : types[array->type].bytes;
  for (uint32_t i = 0; i < array->rank && bytes; i++)
    if (__builtin_mul_overflow(bytes, (uint64_t)array->shape[i], &bytes) || bytes > INT64_MAX) return false;
  array->bytes = bytes;
  return true;
}

static bool read_open_file(FILE *file, const char *path, struct npy *array, char message[NPY_MESSAGE_BYTES]) {
  if (fseeko(file, 0, SEEK_END) != 0) return refuse(message, path, "is not a regular file");
  off_t size = ftello(file);
  if (size < 0 || fseeko(file, 0, SEEK_SET) != 0) return refuse(message, path, "is not a regular file");
  uint64_t left = (uint64_t)size;

  unsigned char start[12] = {0}; /* magic, version, and the header's length in 2 or 4 bytes */
  if (left < 10 || fread(start, 1, 8, file) != 8 || memcmp(start, "\x93NUMPY", 6) != 0)
    return refuse(message, path, "is not a .npy file");
  if (start[6] < 1 || start[6] > 3 || start[7] != 0) return refuse(message, path, "is of an unknown .npy version");
  uint64_t length_bytes = start[6] == 1 ? 2 : 4;
  if (fread(start + 8, 1, length_bytes, file) != length_bytes) return refuse(message, path, "its header is cut off");
  uint64_t header_bytes = start[8] | (uint64_t)start[9] << 8 | (uint64_t)start[10] << 16 | (uint64_t)start[11] << 24;
  left -= 8 + length_bytes;
  if (header_bytes > MAX_HEADER_BYTES) return refuse(message, path, "its header is longer than 65536 bytes");
  if (header_bytes > left) return refuse(message, path, "its header is cut off");
  left -= header_bytes;

  static _Thread_local char header[MAX_HEADER_BYTES];
  if (fread(header, 1, header_bytes, file) != header_bytes) return refuse(message, path, "cannot be read");
  const char *wrong = read_dictionary((struct text){header, header + header_bytes}, array);
  if (wrong) return refuse(message, path, wrong);
  if (!count_bytes(array)) return refuse(message, path, "its shape has more elements than any file");
  if (array->bytes != left) {
    snprintf(message, NPY_MESSAGE_BYTES, "%s: its shape needs %" PRIu64 " bytes of data, it has %" PRIu64, path,
             array->bytes, left);
    return false;
  }
  if (array->bytes == 0) return true;
  array->data = malloc(array->bytes);
  if (!array->data) return refuse(message, path, "there is no memory for its data");
  if (fread(array->data, 1, array->bytes, file) != array->bytes) return refuse(message, path, "cannot be read");
  return true;
}

bool npy_read(const char *path, struct npy *array, char message[NPY_MESSAGE_BYTES]) {
  memset(array, 0, sizeof *array);
  FILE *file = fopen(path, "rb");
  if (!file) return refuse(message, path, strerror(errno));
  bool read = read_open_file(file, path, array, message);
  fclose(file);
  if (!read) npy_free(array);
  return read;
}

bool npy_write(const char *path, const struct npy *array, char message[NPY_MESSAGE_BYTES]) {
  /* Magic, version and dictionary, padded with spaces and ended with a newline at a multiple of 64 bytes. */
  char header[256] = "\x93NUMPY\x01", *at = header + 10, *end = header + sizeof header;
  at +=
      snprintf(at, (size_t)(end - at), "{'descr': '%s', 'fortran_order': False, 'shape': (", types[array->type].descr);
  for (uint32_t i = 0; i < array->rank; i++) at += snprintf(at, (size_t)(end - at), "%" PRId64 ", ", array->shape[i]);
  at += snprintf(at, (size_t)(end - at), "), }");
  size_t used = ((size_t)(at - header) + 1 + 63) / 64 * 64;
  memset(at, ' ', (size_t)(header + used - at));
  header[used - 1] = '\n';
  header[8] = (char)((used - 10) & 255);
  header[9] = (char)((used - 10) >> 8);

  size_t bytes = (size_t)npy_count(array) * types[array->type].bytes;
  FILE *file = fopen(path, "wb");
  if (!file) return refuse(message, path, strerror(errno));
  bool written = fwrite(header, 1, used, file) == used && (bytes == 0 || fwrite(array->data, 1, bytes, file) == bytes);
  if (fclose(file) != 0) written = false;
  return written || refuse(message, path, "cannot be written");
}
