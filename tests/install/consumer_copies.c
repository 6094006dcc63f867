/* consumer_copies.c - a program that loads the given libraries one after the other and keeps them. Each of Rondo's has
 * error texts of its own. */
#include <dlfcn.h>
#include <rondo.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments) {
  for (int i = 1; i < count; i++) {
    rondo_status (*open_abi)(uint32_t abi, const rondo_options *options, rondo_runtime **runtime);
    const char *(*error_text)(void);
    void *library = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "library %d: %s\n", i, dlerror()), 1;
    *(void **)&open_abi = dlsym(library, "rondo_open_abi");
    *(void **)&error_text = dlsym(library, "rondo_error_text");
    if (!open_abi || !error_text) continue;
    if (*error_text()) return fprintf(stderr, "%s: failed before: %s\n", arguments[i], error_text()), 1;
    if (open_abi((uint32_t)i + 1000, NULL, NULL) != RONDO_INVALID_ARGUMENT) return 1;
    char expected[32];
    snprintf(expected, sizeof expected, "ABI %d,", i + 1000);
    if (!strstr(error_text(), expected)) return fprintf(stderr, "%s: %s\n", arguments[i], error_text()), 1;
  }
  return 0;
}
