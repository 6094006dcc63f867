/* small_model.c - writes the GGUF file of a small model whose answers say nothing, for tests of the serve sample with
 * very many requests: out/release/serve/small_model FILE */
#include <stdio.h>

#include "../samples/gguf_writer.h"

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: small_model FILE\n");
    return 2;
  }
  struct gguf_writer writer = {0};
  gguf_write_small_vocabulary(&writer);
  gguf_write_small_model(&writer);
  const struct gguf_buffer buffer = gguf_write_end(&writer);
  FILE *file = fopen(argv[1], "wb");
  if (!file || fwrite(buffer.bytes, 1, buffer.count, file) != buffer.count || fclose(file)) {
    perror(argv[1]);
    return 1;
  }
  return 0;
}
