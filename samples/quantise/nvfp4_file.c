/* nvfp4_file.c - see nvfp4_file.h. The file is written under another name first, and then renamed. */
#include "nvfp4_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sample.h"

enum { BLOCK = 16, SCALES = GGUF_NVFP4_ELEMENTS / BLOCK };
enum { HEADER_BYTES = 24, FILE_TYPE_NVFP4 = 39 }; /* llama.cpp's LLAMA_FTYPE_MOSTLY_NVFP4 */

struct nvfp4_file nvfp4_file_begin(const struct gguf *source, float factor) {
  struct nvfp4_file file = {source, factor, calloc(source->tensor_count + 1, sizeof *file.blocks)};
  if (!file.blocks) give_up("no memory for %llu tensors", (unsigned long long)source->tensor_count);
  return file;
}

void nvfp4_file_free(struct nvfp4_file *file) {
  for (uint64_t i = 0; i < file->source->tensor_count; i++) free(file->blocks[i]);
  free(file->blocks);
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

static uint64_t nvfp4_bytes(const struct gguf_tensor *tensor) {
  return (uint64_t)(gguf_rows(tensor) * tensor->shape[0] / GGUF_NVFP4_ELEMENTS) * GGUF_NVFP4_BYTES;
}

/* A row as blocks: 4 scales, then for each of them 8 bytes, whose low nibbles are its first 8 codes. */
static void put_row(const uint8_t *codes, const uint8_t *scales, int64_t columns, uint8_t *out) {
  for (int64_t i = 0; i < columns / GGUF_NVFP4_ELEMENTS; i++, out += GGUF_NVFP4_BYTES)
    for (int s = 0; s < SCALES; s++, codes += BLOCK) {
      out[s] = *scales++;
      for (int j = 0; j < BLOCK / 2; j++)
        out[SCALES + s * BLOCK / 2 + j] = (uint8_t)(codes[j] | codes[j + BLOCK / 2] << 4);
    }
}

void nvfp4_file_set(struct nvfp4_file *file, const struct matrix *matrix, const uint8_t *codes, const uint8_t *scales) {
  const int64_t columns = matrix_columns(matrix);
  int64_t first = 0; /* of the part's rows in a stacked matrix */
  for (uint32_t part = 0; part < matrix->part_count; part++) {
    const struct gguf_tensor *tensor = matrix->parts[part];
    const int64_t rows = gguf_rows(tensor), row_bytes = columns / GGUF_NVFP4_ELEMENTS * GGUF_NVFP4_BYTES;
    uint8_t *blocks = malloc(nvfp4_bytes(tensor));
    if (!blocks) give_up("no memory for the weights");
    for (int64_t i = 0; i < rows; i++) {
      const int64_t row = matrix->interleaved ? i * matrix->part_count + part : first + i;
      put_row(codes + row * columns, scales + row * columns / BLOCK, columns, blocks + i * row_bytes);
    }
    file->blocks[tensor - file->source->tensors] = blocks;
    first += rows;
  }
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

struct output {
  FILE *stream;
  uint64_t at;        /* bytes written */
  uint64_t data;      /* bytes of the tensors described so far, with their padding */
  uint64_t alignment; /* of tensors */
};

static void put(struct output *output, const void *bytes, uint64_t count) {
  fwrite(bytes, 1, count, output->stream); /* ferror tells of a failure */
  output->at += count;
}

static void put_u32(struct output *output, uint32_t value) { put(output, &value, sizeof value); }
static void put_u64(struct output *output, uint64_t value) { put(output, &value, sizeof value); }

static void pad(struct output *output) {
  while (output->at % output->alignment != 0) put(output, "", 1);
}

/* The keys as they are, except that of the file's type. */
static void put_keys(struct output *output, const struct gguf *source) {
  const struct gguf_entry *type = gguf_find(source, "general.file_type");
  uint64_t at = HEADER_BYTES;
  if (type && type->kind == GGUF_U32 && !type->is_array) {
    put(output, source->file + at, (uint64_t)(type->data - source->file) - at);
    put_u32(output, FILE_TYPE_NVFP4);
    at = (uint64_t)(type->data - source->file) + sizeof(uint32_t);
  }
  put(output, source->file + at, source->keys_end - at);
}

/* The name of a tensor, or of its factor with "scale" in place of "weight". */
static void put_name(struct output *output, struct gguf_text name, bool of_factor) {
  static const char weight[] = "weight", scale[] = "scale";
  const size_t length = of_factor ? name.length - strlen(weight) : name.length;
  put_u64(output, length + (of_factor ? strlen(scale) : 0));
  put(output, name.bytes, length);
  if (of_factor) put(output, scale, strlen(scale));
}

static void describe(struct output *output, uint32_t rank, const int64_t *shape, enum gguf_type type, uint64_t bytes) {
  put_u32(output, rank);
  put(output, shape, rank * sizeof *shape);
  put_u32(output, type);
  put_u64(output, output->data);
  output->data += (bytes + output->alignment - 1) / output->alignment * output->alignment;
}

static void put_descriptions(struct output *output, const struct nvfp4_file *file) {
  static const int64_t one = 1;
  for (uint64_t i = 0; i < file->source->tensor_count; i++) {
    const struct gguf_tensor *tensor = &file->source->tensors[i];
    put_name(output, tensor->name, false);
    if (file->blocks[i])
      describe(output, tensor->rank, tensor->shape, GGUF_TYPE_NVFP4, nvfp4_bytes(tensor));
    else
      describe(output, tensor->rank, tensor->shape, tensor->type, tensor->bytes);
    if (!file->blocks[i]) continue;
    put_name(output, tensor->name, true);
    describe(output, 1, &one, GGUF_TYPE_F32, sizeof file->factor);
  }
}

static void put_data(struct output *output, const struct nvfp4_file *file) {
  for (uint64_t i = 0; i < file->source->tensor_count; i++) {
    const struct gguf_tensor *tensor = &file->source->tensors[i];
    pad(output);
    if (!file->blocks[i]) {
      put(output, tensor->data, tensor->bytes);
      continue;
    }
    put(output, file->blocks[i], nvfp4_bytes(tensor));
    pad(output);
    put(output, &file->factor, sizeof file->factor);
  }
}

static void put_file(struct output *output, const struct nvfp4_file *file) {
  char message[GGUF_MESSAGE_BYTES];
  int64_t alignment = 32;
  if (gguf_find(file->source, "general.alignment"))
    gguf_integer(file->source, "general.alignment", &alignment, message);
  output->alignment = (uint64_t)alignment;
  uint64_t tensors = file->source->tensor_count;
  for (uint64_t i = 0; i < file->source->tensor_count; i++) tensors += file->blocks[i] != NULL;
  put(output, "GGUF", 4);
  put_u32(output, 3);
  put_u64(output, tensors);
  put_u64(output, file->source->entry_count);
  put_keys(output, file->source);
  put_descriptions(output, file);
  put_data(output, file);
}

void nvfp4_file_write(const struct nvfp4_file *file, const char *path) {
  char *part = malloc(strlen(path) + sizeof ".part");
  if (!part) give_up("no memory for a file's name");
  sprintf(part, "%s.part", path);
  struct output output = {.stream = fopen(part, "wb")};
  if (!output.stream) give_up("%s: %s", part, strerror(errno));
  put_file(&output, file);
  bool fine = !ferror(output.stream);
  fine = fclose(output.stream) == 0 && fine;
  if (!fine || rename(part, path) != 0) {
    int error = errno;
    remove(part);
    give_up("%s: %s", path, strerror(error));
  }
  free(part);
}
