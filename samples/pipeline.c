/* pipeline - four slots: while the device works on one request, the host fills the input of the next.
 *
 * A request is one vector x, its answer W x. The sample serves all requests with one slot and again with four. Both
 * series of answers must have the same bits. */
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

enum { SLOTS = 4 };

static const char help[] =
    "usage: pipeline [OPTION VALUE]... WEIGHTS.npy VECTORS.npy\n\n"
    "Multiplies WEIGHTS, float16 [m, k], with the VECTORS, float16 [count, k], one by one. Prints the requests per "
    "second\n"
    "with one and with four replays in flight.\n\n"
    "  --backend auto|host|cuda  default auto: a GPU if there is one\n"
    "  --replays N               requests (100)\n"
    "  --out FILE.npy            write the answers to the first round of vectors, float32 [count, m]\n";

struct service {
  rondo_exec *exec;
  rondo_tensor x, y;
  const struct npy *vectors;
  uint64_t x_bytes, y_bytes;
};

/* Serves the requests in order with `depth` of them in flight. An answer has y_bytes bytes. */
static double serve(const struct service *service, uint32_t requests, uint32_t depth, unsigned char *answers) {
  uint64_t begin = clock_ns();
  for (uint32_t request = 0, in_flight = 0; request < requests || in_flight > 0;) {
    rondo_slot slot;
    if (request < requests && in_flight < depth) {
      TRY(rondo_acquire(service->exec, &slot));
      uint64_t vector = request % (uint64_t)service->vectors->shape[0];
      memcpy(rondo_data(slot, service->x), (const char *)service->vectors->data + vector * service->x_bytes,
             service->x_bytes);
      slot.user = answers + request++ * service->y_bytes; /* the place of its answer */
      TRY(rondo_replay(slot));
      in_flight++;
    } else {
      TRY(rondo_wait_any(&service->exec, 1, RONDO_FOREVER, &slot));
      memcpy(slot.user, rondo_data(slot, service->y), service->y_bytes);
      TRY(rondo_release(slot));
      in_flight--;
    }
  }
  double seconds = (double)(clock_ns() - begin) / 1e9;
  printf("in flight  %u: %u requests in %.2f ms, %.0f in a second\n", depth, requests, seconds * 1e3,
         requests / seconds);
  return seconds;
}

int main(int argc, char **argv) {
  struct options options = options_parse(argc, argv, help, 2);
  struct npy weights = read_array(options.paths[0], NPY_F16, 2), vectors = read_array(options.paths[1], NPY_F16, 2);
  int64_t m = weights.shape[0], k = weights.shape[1];
  printf("pipeline: weights %lld x %lld from %s, %u requests\n", (long long)m, (long long)k, options.paths[0],
         options.replays);
  if (npy_count(&weights) == 0 || npy_count(&vectors) == 0) give_up("WEIGHTS or VECTORS has no elements");
  if (vectors.shape[1] != k)
    give_up("%s: the vectors have %lld elements, expected %lld, the columns of the weights", options.paths[1],
            (long long)vectors.shape[1], (long long)k);

  struct service service = {.vectors = &vectors, .x_bytes = 2 * (uint64_t)k, .y_bytes = 4 * (uint64_t)m};
  rondo_graph *graph;
  rondo_tensor w;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_constant(graph, "weights", RONDO_F16, 2, weights.shape, &w));
  TRY(rondo_input(graph, "x", RONDO_F16, 2, (int64_t[]){1, k}, &service.x));
  TRY(rondo_output(graph, "y", RONDO_F32, 2, (int64_t[]){1, m}, &service.y));
  TRY(rondo_add_gemv(graph,
                     &(rondo_gemv_desc){.name = "matvec", .weights = w, .vectors = service.x, .out = service.y}));

  rondo_runtime *runtime = open_for(graph, &options, SLOTS);
  TRY(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = SLOTS}, &service.exec));
  TRY(rondo_upload(service.exec, w, weights.data, weights.bytes));

  uint64_t answer_bytes = options.replays * service.y_bytes;
  unsigned char *one = malloc(answer_bytes), *four = malloc(answer_bytes);
  if (!one || !four) give_up("no memory for %u answers", options.replays);
  double alone = serve(&service, options.replays, 1, one), together = serve(&service, options.replays, SLOTS, four);
  bool fine = memcmp(one, four, answer_bytes) == 0;
  printf("speed-up   %.2f\n", alone / together);
  printf("checked    the answers with %d in flight have the same bits: %s\n", SLOTS, fine ? "ok" : "WRONG");
  int64_t rounds = options.replays < vectors.shape[0] ? options.replays : vectors.shape[0];
  write_array(&options, &(struct npy){.type = NPY_F32, .rank = 2, .shape = {rounds, m}, .data = four});

  free(one);
  free(four);
  TRY(rondo_close_exec(&service.exec));
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
  npy_free(&weights);
  npy_free(&vectors);
  return fine ? SAMPLE_OK : SAMPLE_WRONG;
}
