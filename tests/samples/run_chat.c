/* run_chat.c - see run_chat.h. */
#include "run_chat.h"

#include <stdio.h>
#include <stdlib.h>

struct ran run_chat(const char *words, const char *input) {
  char line[4096];
  const char *path = shell_write("input", input);
  snprintf(line, sizeof line, "%s/samples/chat %s < %s", shell_root(), words, path);
  return shell_run(line);
}

static const char *write_model(struct gguf_writer *writer) {
  static char path[256];
  struct gguf_buffer bytes = gguf_write_end(writer);
  snprintf(path, sizeof path, "%s/small.gguf", shell_folder());
  FILE *file = fopen(path, "wb");
  cr_assert(file && fwrite(bytes.bytes, 1, bytes.count, file) == bytes.count && fclose(file) == 0);
  free(bytes.bytes);
  return path;
}

const char *write_small_model(struct gguf_writer *writer) {
  gguf_write_small_vocabulary(writer);
  gguf_write_small_model(writer);
  return write_model(writer);
}

const char *write_saying_model(struct gguf_writer *writer, const int32_t *tokens, int32_t count) {
  gguf_write_small_vocabulary(writer);
  gguf_write_saying_model(writer, tokens, count);
  return write_model(writer);
}

static struct ran run_on(const char *model, const char *words) {
  char all[512];
  snprintf(all, sizeof all, "--backend host --prompt hello --model %s %s", model, words);
  return run_chat(all, "");
}

struct ran run_small_model(struct gguf_writer *writer, const char *words) {
  return run_on(write_small_model(writer), words);
}

struct ran run_saying_model(struct gguf_writer *writer, const int32_t *tokens, int32_t count, const char *words) {
  return run_on(write_saying_model(writer, tokens, count), words);
}
