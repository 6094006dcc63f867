/* consumer_dlopen.c - a program that is linked with nothing and loads the library given to it. */
#include <dlfcn.h>
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>

/* The library's function of that name; the pointer's bits are copied, since C knows no conversion. */
static void find(void *library, const char *name, void *pointer_address) {
  *(void **)pointer_address = dlsym(library, name);
  if (*(void **)pointer_address) return;
  fprintf(stderr, "%s\n", dlerror());
  exit(1);
}

int main(int count, char **arguments) {
  void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) return fprintf(stderr, "usage: consumer_dlopen LIBRARY\n"), 1;
  uint32_t (*version)(void);
  rondo_status (*open)(const rondo_options *options, rondo_runtime **runtime);
  rondo_status (*open_abi)(uint32_t abi, const rondo_options *options, rondo_runtime **runtime);
  rondo_status (*close)(rondo_runtime * *runtime);
  const char *(*error_text)(void);
  find(library, "rondo_version", &version);
  find(library, "rondo_open", &open);
  find(library, "rondo_open_abi", &open_abi);
  find(library, "rondo_close", &close);
  find(library, "rondo_error_text", &error_text);

  const rondo_options options = {.backend = RONDO_BACKEND_HOST};
  rondo_runtime *runtime = NULL;
  if (version() != RONDO_VERSION) return fprintf(stderr, "version %u\n", version()), 1;
  if (open(&options, &runtime) != RONDO_OK || close(&runtime) != RONDO_OK)
    return fprintf(stderr, "%s\n", error_text()), 1;
  if (open_abi(RONDO_ABI_VERSION, &options, &runtime) != RONDO_OK || close(&runtime) != RONDO_OK)
    return fprintf(stderr, "%s\n", error_text()), 1;
  if (open_abi(RONDO_ABI_VERSION + 1, &options, &runtime) != RONDO_INVALID_ARGUMENT)
    return fprintf(stderr, "another ABI was not refused\n"), 1;
  return 0;
}
