/* fuzz_npy.c - any bytes as a .npy file: refused with a sentence, or read, written and read again to the same array. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../samples/npy.h"

/* A file in memory; both are reused by all inputs. */
struct file {
  int descriptor;
  char path[32];
};
static struct file given, written;

static struct file file_open(const char *name) {
  struct file file = {.descriptor = memfd_create(name, MFD_CLOEXEC)};
  if (file.descriptor < 0) abort();
  snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.descriptor);
  return file;
}

static void file_set(const struct file *file, const uint8_t *bytes, size_t count) {
  if (ftruncate(file->descriptor, 0) != 0) abort();
  for (size_t done = 0; done < count;) {
    ssize_t step = pwrite(file->descriptor, bytes + done, count - done, (off_t)done);
    if (step <= 0) abort();
    done += (size_t)step;
  }
}

static void require(bool condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "fuzz_npy: %s\n", what);
  abort();
}

/* Every element is there: the address sanitizer looks on. */
static void touch_elements(const struct npy *array) {
  volatile double sink = 0;
  int64_t count = npy_count(array);
  if (array->data)
    for (int64_t i = 0; i < count; i++) sink = npy_element(array, i);
  (void)sink;
}

static bool same(const struct npy *a, const struct npy *b) {
  return a->type == b->type && a->rank == b->rank && a->bytes == b->bytes &&
         memcmp(a->shape, b->shape, a->rank * sizeof a->shape[0]) == 0 &&
         (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argument_count, char ***arguments) {
  (void)argument_count;
  (void)arguments;
  given = file_open("given");
  written = file_open("written");
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct npy array, again;
  char message[NPY_MESSAGE_BYTES] = "";
  file_set(&given, data, size);
  if (!npy_read(given.path, &array, message)) {
    require(message[0] != '\0' && memchr(message, '\0', sizeof message), "a refusal without a sentence");
    require(array.data == NULL && array.rank == 0 && array.bytes == 0, "a refusal left something in the array");
    return 0;
  }
  require((array.data == NULL) == (array.bytes == 0), "data and bytes disagree");
  require(array.bytes < size, "more data than the file has");
  touch_elements(&array);
  require(npy_write(written.path, &array, message), "what was read could not be written");
  require(npy_read(written.path, &again, message), "what was written could not be read");
  require(same(&array, &again), "what was written and read again differs");
  npy_free(&array);
  npy_free(&again);
  return 0;
}
