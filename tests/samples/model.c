/* model.c - see model.h. */
#include "model.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../samples/sample.h"

static const char model_path[] = ".model/SmolLM2-135M-Instruct.Q4_1.gguf";

struct gguf require_model(void) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES];
  if (access(model_path, R_OK) != 0) cr_skip_test("%s is not there; ./bootstrap model fetches it", model_path);
  cr_assert(gguf_open(model_path, &file, message), "%s", message);
  return file;
}

void skip_under_sanitizers(void) {
#ifdef __SANITIZE_ADDRESS__
  cr_skip_test("it takes minutes under sanitizers");
#endif
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
