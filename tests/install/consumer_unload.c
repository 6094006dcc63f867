/* consumer_unload.c - a program whose threads use a plugin and end after it was unloaded: while they still run, or
 * after the plugin was loaded again. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* barriers */
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef void plugin_function(int opens);

static pthread_barrier_t used, unloaded;
static plugin_function *use;

static void *user(void *opens) {
  use(opens != NULL);
  pthread_barrier_wait(&used);
  pthread_barrier_wait(&unloaded);
  return NULL;
}

int main(int count, char **arguments) {
  if (count != 2) return fprintf(stderr, "usage: consumer_unload PLUGIN\n"), 1;
  pthread_barrier_init(&used, NULL, 3);
  pthread_barrier_init(&unloaded, NULL, 3);
  for (int round = 0; round < 4; round++) {
    pthread_t threads[2];
    int opens[2];
    void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return fprintf(stderr, "%s\n", dlerror()), 1;
    *(void **)&use = dlsym(plugin, "use_rondo");
    if (!use) return fprintf(stderr, "%s\n", dlerror()), 1;
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, user, i + round % 2 ? &opens[i] : NULL);
    pthread_barrier_wait(&used);
    if (dlclose(plugin) != 0) return fprintf(stderr, "%s\n", dlerror()), 1;
    pthread_barrier_wait(&unloaded);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  }
  return 0;
}
