/* model.c - see model.h. */
#include "model.h"

#include <criterion/criterion.h>
#include <unistd.h>

static const char model_path[] = ".model/SmolLM2-135M-Instruct.Q4_1.gguf";

struct gguf require_model(void) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES];
  if (access(model_path, R_OK) != 0) cr_skip_test("%s is not there; ./bootstrap model fetches it", model_path);
  cr_assert(gguf_open(model_path, &file, message), "%s", message);
  return file;
}

FILE *require_data(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "tests/model/%s", name);
  FILE *file = fopen(path, "r");
  if (!file) cr_skip_test("%s is not there", path);
  return file;
}
