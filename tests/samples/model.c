/* model.c - see model.h. */
#include "model.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../samples/sample.h"

static struct gguf require_file(const char *path, const char *command) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES];
  if (access(path, R_OK) != 0) cr_skip_test("%s is not there; %s makes it", path, command);
  cr_assert(gguf_open(path, &file, message), "%s", message);
  return file;
}

struct gguf require_model(void) {
  return require_file(".model/SmolLM2-135M-Instruct.Q4_1.gguf", "./bootstrap model");
}

struct gguf require_quantised_model(void) {
  return require_file(".model/SmolLM2-135M-Instruct.NVFP4.gguf", "ninja quantise");
}

FILE *require_data(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "tests/model/%s", name);
  FILE *file = fopen(path, "r");
  if (!file) cr_skip_test("%s is not there", path);
  return file;
}

/* In place of the samples' own, which ends the program. */
void give_up(const char *format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  cr_assert(false, "%s", message);
  abort();
}
