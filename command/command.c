/* command.c - the output of the commands: messages, tables, JSON files and progress (command.h). */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../runtime/cuda/driver.h"
#include "../runtime/text.h"
#include "command.h"

const struct choice backend_choices[] = {
    {"auto", RONDO_BACKEND_AUTO}, {"host", RONDO_BACKEND_HOST}, {"cuda", RONDO_BACKEND_CUDA}, {NULL, 0}};

int32_t cuda_device_count(int32_t most) {
  struct driver driver;
  int count;
  if (driver_load(&driver) != RONDO_OK || driver.cuDeviceGetCount(&count) != CU_SUCCESS) return 0;
  return count < most ? count : most;
}

int command_failed(const char *format, ...) {
  char text[SENTENCE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fputs("rondo: ", stderr);
  text_write(stderr, text, "");
  fputc('\n', stderr);
  return EXIT_FAILED;
}

bool output_open(struct output *output, const char *json_path) {
  *output = (struct output){.table = stdout, .path = json_path};
  if (!json_path) return true;
  bool is_stdout = !strcmp(json_path, "-");
  if (is_stdout) output->table = NULL;
  output->json.file = is_stdout ? stdout : fopen(json_path, "w");
  if (output->json.file) return true;
  command_failed("'%s' cannot be written: %s", json_path, strerror(errno));
  return false;
}

bool output_close(struct output *output) {
  FILE *file = output->json.file;
  if (!file || file == stdout) return true;
  bool failed = ferror(file) != 0;
  if (!fclose(file) && !failed) return true;
  command_failed("'%s' was not written completely: %s", output->path, strerror(errno));
  return false;
}

void output_print(struct output *output, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (output->table) vfprintf(output->table, format, arguments);
  va_end(arguments);
}

FILE *memory_file(char path[MEMORY_PATH_BYTES]) {
  int descriptor = memfd_create("rondo", MFD_CLOEXEC);
  FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "r");
  snprintf(path, MEMORY_PATH_BYTES, "/proc/self/fd/%d", descriptor);
  if (!file) command_failed("a temporary file in memory cannot be created: %s", strerror(errno));
  if (!file && descriptor >= 0) close(descriptor);
  return file;
}

/* The cursor returns to the first column, so that the next line of the table overwrites this one. */
void progress(const char *what, size_t done, size_t all) {
  if (!isatty(STDERR_FILENO)) return;
  if (done < all)
    fprintf(stderr, "\r%-60s %3zu %%\r", what, done * 100 / all);
  else
    fputs("\r\033[K", stderr);
}
