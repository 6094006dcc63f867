/* leaving.c - a process may end at any time without closing anything: a hundred processes do so, at different stages,
 * and each ends at once, with the status that it asked for.
 *
 *   leaving [--backend host|cuda]: host by default */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rondo.h>

enum { ROUNDS = 20, STATUS = 7, MOST_SECONDS = 120 };

/* How far a process comes before it ends. */
enum stage { OPENED, DESCRIBED, INSTANTIATED, DONE, IN_FLIGHT, STAGES };

static void require(bool holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "leaving: %s: %s\n", what, rondo_error_text());
  _exit(1);
}

#define REQUIRE(call) require((call) == RONDO_OK, #call)

static rondo_graph *describe(rondo_runtime *runtime) {
  const int64_t shape[] = {64, 64};
  rondo_graph *graph;
  rondo_tensor from, to;
  REQUIRE(rondo_graph_create(runtime, &(rondo_graph_limits){.tensors = 16, .tasks = 16}, &graph));
  REQUIRE(rondo_input(graph, "from", RONDO_F32, 2, shape, &from));
  REQUIRE(rondo_output(graph, "to", RONDO_F32, 2, shape, &to));
  REQUIRE(rondo_add_copy(graph, &(rondo_copy_desc){.src = from, .dst = to}));
  return graph;
}

static void come_to(enum stage stage, rondo_backend backend) {
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  REQUIRE(rondo_open(&(rondo_options){.backend = backend,
                                      .device_bytes = 1 << 20,
                                      .pinned_bytes = 1 << 20,
                                      .host_bytes = 1 << 20,
                                      .host_threads = 2},
                     &runtime));
  if (stage == OPENED) return;
  rondo_graph *graph = describe(runtime);
  if (stage == DESCRIBED) return;
  REQUIRE(rondo_instantiate(runtime, graph, &(rondo_exec_options){.keep_warm = 1}, &exec));
  if (stage == INSTANTIATED) return;
  REQUIRE(rondo_acquire(exec, &slot));
  REQUIRE(rondo_replay(slot));
  if (stage == DONE) REQUIRE(rondo_wait(slot, RONDO_FOREVER));
}

/* Every other process ends from a thread that is not its first. */
static void *leave(void *unused) {
  (void)unused;
  exit(STATUS);
}

static void be_a_process(int number, rondo_backend backend) {
  pthread_t thread;
  alarm(MOST_SECONDS); /* one that hangs is ended by a signal, which the parent sees */
  come_to((enum stage)(number % STAGES), backend);
  if (number / STAGES % 2 == 0) exit(STATUS);
  require(pthread_create(&thread, NULL, leave, NULL) == 0, "pthread_create");
  pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
  const bool on_gpu = argc == 3 && strcmp(argv[1], "--backend") == 0 && strcmp(argv[2], "cuda") == 0;
  int wrong = 0;
  for (int number = 0; number < ROUNDS * STAGES; number++) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) be_a_process(number, on_gpu ? RONDO_BACKEND_CUDA : RONDO_BACKEND_HOST);
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == STATUS)
      continue;
    fprintf(stderr, "leaving: process %d, stage %d, ended with status 0x%x\n", number, number % STAGES, status);
    wrong++;
  }
  printf("%s %d processes left without closing anything (%s)\n", wrong ? "FAILED" : "ok", ROUNDS * STAGES,
         on_gpu ? "cuda" : "host");
  return wrong != 0;
}
