/* nccl_ranks.c - see nccl_ranks.h. */
#include "nccl_ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int (*open_all)(struct ncclComm **communicators, int ranks, const int *devices);
static int (*close_one)(struct ncclComm *communicator);

bool nccl_ranks_open(uint32_t ranks, struct ncclComm **communicators, const char **why) {
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  void *opens = library ? dlsym(library, "ncclCommInitAll") : NULL;
  void *closes = library ? dlsym(library, "ncclCommDestroy") : NULL;
  *why = library ? "libnccl.so.2 has no ncclCommInitAll" : "no libnccl.so.2";
  if (!opens || !closes) return false;
  memcpy(&open_all, &opens, sizeof opens);
  memcpy(&close_one, &closes, sizeof closes);
  *why = "ncclCommInitAll failed";
  return open_all(communicators, (int)ranks, NULL) == 0;
}

void nccl_ranks_close(uint32_t ranks, struct ncclComm **communicators) {
  for (uint32_t r = 0; r < ranks; r++) close_one(communicators[r]);
}

struct rank {
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_exec **exec;
  rondo_status status;
  char text[NCCL_TEXT_BYTES];
};

static void *instantiate(void *argument) {
  struct rank *rank = argument;
  rank->status = rondo_instantiate(rank->runtime, rank->graph, NULL, rank->exec);
  snprintf(rank->text, sizeof rank->text, "%s", rondo_error_text());
  return NULL;
}

rondo_status nccl_ranks_instantiate(uint32_t ranks, rondo_runtime *const *runtimes, rondo_graph *const *graphs,
                                    rondo_exec **execs, char text[NCCL_TEXT_BYTES]) {
  struct rank all[RONDO_MAX_RANKS];
  pthread_t threads[RONDO_MAX_RANKS];
  uint32_t begun = 0;
  for (; begun < ranks; begun++) {
    all[begun] = (struct rank){runtimes[begun], graphs[begun], &execs[begun], RONDO_OK, ""};
    if (pthread_create(&threads[begun], NULL, instantiate, &all[begun])) break;
  }
  rondo_status status = begun == ranks ? RONDO_OK : RONDO_OUT_OF_MEMORY;
  snprintf(text, NCCL_TEXT_BYTES, "a thread for each rank");
  for (uint32_t r = 0; r < begun; r++) {
    pthread_join(threads[r], NULL);
    if (status != RONDO_OK || all[r].status == RONDO_OK) continue;
    status = all[r].status;
    snprintf(text, NCCL_TEXT_BYTES, "rank %u: %s", r, all[r].text);
  }
  return status;
}
