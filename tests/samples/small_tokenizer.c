/* small_tokenizer.c - see small_tokenizer.h. */
#include "small_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

static void require(bool fine, const char *message) {
  if (fine) return;
  fprintf(stderr, "%s\n", message);
  abort();
}

struct tokenizer open_written_tokenizer(struct gguf_writer *writer) {
  gguf_write_small_vocabulary(writer);
  struct gguf_buffer bytes = gguf_write_end(writer);
  struct gguf file;
  struct tokenizer tokenizer;
  char message[GGUF_MESSAGE_BYTES] = "";
  require(gguf_parse("small.gguf", bytes.bytes, bytes.count, &file, message), message);
  require(tokenizer_open(&file, &tokenizer, message), message);
  gguf_close(&file);
  free(bytes.bytes);
  return tokenizer;
}

struct tokenizer open_small_tokenizer(void) {
  struct gguf_writer writer = {0};
  return open_written_tokenizer(&writer);
}
