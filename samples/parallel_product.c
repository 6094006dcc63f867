/* parallel - y = W x over several GPUs: each rank has some columns of W, and an all-reduce adds what they give.
 *
 * The ranks are the GPUs of this machine. Where there is one GPU or none, two ranks share it, or the host's cores: that
 * is slower than one rank, but the same program. All ranks must have the same bits, and the sum is compared with fp64.
 * If a command such as torchrun or mpirun starts several processes, each is a rank: see parallel_nccl.h. */
#include <math.h>
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel_nccl.h"

static const char help[] =
    "usage: parallel [OPTION VALUE]... WEIGHTS.npy VECTORS.npy\n\n"
    "Multiplies WEIGHTS, float16 [m, k], with 1 to 16 VECTORS, float16 [count, k], on all GPUs; k is a multiple of\n"
    "their number. Several processes that torchrun, mpirun or srun started multiply together, by NCCL, each on the "
    "GPU\n"
    "of its number on its machine.\n\n"
    "  --backend auto|host|cuda  default auto: GPUs if there are any\n"
    "  --replays N               number of replays; default 100\n"
    "  --out FILE.npy            write y, float32 [count, m]\n";

struct rank {
  rondo_graph *exchange; /* has the state alone to which the other ranks write */
  rondo_graph *graph;
  rondo_tensor weights, x, y;
  rondo_runtime *runtime;
  rondo_exec *exchange_exec, *exec;
  rondo_slot slot;
};

/* W x, of which each rank computes what its columns give. */
struct product {
  int64_t m, k, count;
  uint32_t ranks;
  struct rank rank[RONDO_MAX_RANKS];
  rondo_slot slots[RONDO_MAX_RANKS];
};

static int32_t count_gpus(rondo_backend backend) {
  rondo_runtime *runtime;
  int32_t count = 0;
  while (backend != RONDO_BACKEND_HOST && count < RONDO_MAX_RANKS &&
         rondo_open(&(rondo_options){.backend = RONDO_BACKEND_CUDA, .device = count}, &runtime) == RONDO_OK) {
    TRY(rondo_close(&runtime));
    count++;
  }
  return count;
}

/* The same tasks on each rank; `states` are those of all ranks. */
static void describe(const struct product *product, uint32_t r, const rondo_tensor *states, struct rank *rank) {
  const int64_t m = product->m, columns = product->k / product->ranks, count = product->count;
  rondo_tensor part;
  TRY(rondo_graph_create(NULL, NULL, &rank->graph));
  TRY(rondo_constant(rank->graph, "weights", RONDO_F16, 2, (int64_t[]){m, columns}, &rank->weights));
  TRY(rondo_input(rank->graph, "x", RONDO_F16, 2, (int64_t[]){count, columns}, &rank->x));
  TRY(rondo_temporary(rank->graph, "part", RONDO_F32, 2, (int64_t[]){count, m}, &part));
  TRY(rondo_output(rank->graph, "y", RONDO_F32, 2, (int64_t[]){count, m}, &rank->y));
  TRY(rondo_add_gemv(rank->graph,
                     &(rondo_gemv_desc){.name = "product", .weights = rank->weights, .vectors = rank->x, .out = part}));
  TRY(rondo_add_all_reduce(
      rank->graph,
      &(rondo_exchange_desc){
          .name = "sum", .in = part, .out = rank->y, .exchange = states, .rank = r, .ranks = product->ranks}));
}

static void open_all(struct product *product, const struct options *options, int32_t gpus) {
  rondo_tensor states[RONDO_MAX_RANKS];
  rondo_options each[RONDO_MAX_RANKS];
  rondo_runtime *runtimes[RONDO_MAX_RANKS];
  const uint64_t bytes = (uint64_t)(product->count * product->m) * sizeof(float);
  for (uint32_t r = 0; r < product->ranks; r++) {
    TRY(rondo_graph_create(NULL, NULL, &product->rank[r].exchange));
    TRY(rondo_exchange_state(product->rank[r].exchange, NULL, product->ranks, bytes, &states[r]));
  }
  for (uint32_t r = 0; r < product->ranks; r++) {
    struct rank *rank = &product->rank[r];
    rondo_plan plan;
    describe(product, r, states, rank);
    TRY(rondo_plan_graphs((rondo_graph *[]){rank->exchange, rank->graph}, 2, &plan));
    each[r] = (rondo_options){.backend = gpus ? RONDO_BACKEND_CUDA : options->backend,
                              .device = gpus ? (int32_t)r % gpus : 0,
                              .device_bytes = plan.device_bytes,
                              .pinned_bytes = plan.pinned_bytes_per_slot,
                              .host_bytes = plan.host_bytes};
  }
  TRY(rondo_open_group(each, product->ranks, runtimes));
  for (uint32_t r = 0; r < product->ranks; r++) { /* all states are there before a graph borrows one */
    product->rank[r].runtime = runtimes[r];
    TRY(rondo_instantiate(runtimes[r], product->rank[r].exchange, NULL, &product->rank[r].exchange_exec));
  }
  for (uint32_t r = 0; r < product->ranks; r++) {
    struct rank *rank = &product->rank[r];
    TRY(rondo_instantiate(rank->runtime, rank->graph, NULL, &rank->exec));
    TRY(rondo_acquire(rank->exec, &rank->slot));
    product->slots[r] = rank->slot;
  }
}

void take_columns(const struct npy *from, int64_t first, int64_t columns, uint16_t *to) {
  for (int64_t row = 0; row < from->shape[0]; row++)
    memcpy(to + row * columns, (const uint16_t *)from->data + row * from->shape[1] + first,
           (size_t)columns * sizeof *to);
}

static void give_parts(const struct product *product, const struct npy *weights, const struct npy *vectors) {
  const int64_t columns = product->k / product->ranks;
  const uint64_t bytes = (uint64_t)(product->m * columns) * sizeof(uint16_t);
  uint16_t *part = malloc(bytes);
  if (!part) give_up("no memory for a rank's weights");
  for (uint32_t r = 0; r < product->ranks; r++) {
    const struct rank *rank = &product->rank[r];
    take_columns(weights, r * columns, columns, part);
    TRY(rondo_upload(rank->exec, rank->weights, part, bytes));
    take_columns(vectors, r * columns, columns, rondo_data(rank->slot, rank->x));
  }
  free(part);
}

/* Replays with other bits than the first, or with other bits on another rank. */
static uint32_t replay_all(const struct product *product, const struct options *options) {
  const size_t bytes = (size_t)(product->count * product->m) * sizeof(float);
  const float *first = rondo_data(product->slots[0], product->rank[0].y);
  float *kept = malloc(bytes);
  uint64_t *times = malloc(options->replays * sizeof *times);
  uint32_t different = 0;
  if (!kept || !times) give_up("no memory for %u times", options->replays);
  for (uint32_t i = 0; i < options->replays; i++) {
    const uint64_t begin = clock_ns();
    TRY(rondo_replay_all(product->slots, product->ranks));
    TRY(rondo_wait_all(product->slots, product->ranks, RONDO_FOREVER));
    times[i] = clock_ns() - begin;
    if (i == 0) memcpy(kept, first, bytes);
    for (uint32_t r = 0; r < product->ranks; r++)
      different += memcmp(kept, rondo_data(product->slots[r], product->rank[r].y), bytes) != 0;
  }
  qsort(times, options->replays, sizeof *times, compare_times);
  const uint64_t median = times[options->replays / 2];
  printf("replay     %.1f us, the median of %u\n", (double)median / 1e3, options->replays);
  free(times);
  free(kept);
  return different;
}

bool check_product(const float *y, const struct npy *weights, const struct npy *vectors) {
  const int64_t m = weights->shape[0], k = weights->shape[1];
  double worst = 0;
  for (int64_t vector = 0; vector < vectors->shape[0]; vector++)
    for (int64_t row = 0; row < m; row++) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < k; i++) {
        const double term = npy_element(weights, row * k + i) * npy_element(vectors, vector * k + i);
        sum += term;
        magnitude += fabs(term);
      }
      const double error = fabs((double)y[vector * m + row] - sum);
      if (error > worst * magnitude || isnan(error)) worst = error / magnitude;
    }
  return check("|y - y in fp64| / sum |w x|", worst, (double)k * 0x1p-24);
}

static void close_all(struct product *product) {
  for (uint32_t r = 0; r < product->ranks; r++) { /* those that borrow first */
    TRY(rondo_release(product->rank[r].slot));
    TRY(rondo_close_exec(&product->rank[r].exec));
    TRY(rondo_graph_destroy(&product->rank[r].graph));
  }
  for (uint32_t r = 0; r < product->ranks; r++) {
    TRY(rondo_close_exec(&product->rank[r].exchange_exec));
    TRY(rondo_graph_destroy(&product->rank[r].exchange));
    TRY(rondo_close(&product->rank[r].runtime));
  }
}

static void require_parts(const struct options *options, int64_t k, uint32_t ranks) {
  if (k % ranks != 0)
    give_up("%s: the weights have %lld columns, expected a multiple of %u ranks", options->paths[0], (long long)k,
            ranks);
}

/* The ranks of one process. True: all checks passed. */
static bool multiply_alone(struct product *product, const struct options *options, const struct npy *weights,
                           const struct npy *vectors) {
  const int32_t gpus = count_gpus(options->backend);
  product->ranks = gpus > 1 ? (uint32_t)gpus : 2;
  require_parts(options, product->k, product->ranks);
  printf("parallel: weights %lld x %lld, %lld vectors, %u ranks on %d GPU%s\n", (long long)product->m,
         (long long)product->k, (long long)product->count, product->ranks, (int)gpus, gpus == 1 ? "" : "s");
  open_all(product, options, gpus);
  give_parts(product, weights, vectors);
  const uint32_t different = replay_all(product, options);
  void *y = rondo_data(product->slots[0], product->rank[0].y);
  bool fine = check("results of a rank with other bits", different, 0);
  fine = check_product(y, weights, vectors) && fine;
  write_array(options, &(struct npy){.type = NPY_F32, .rank = 2, .shape = {product->count, product->m}, .data = y});
  close_all(product);
  return fine;
}

int main(int argc, char **argv) {
  struct options options = options_parse(argc, argv, help, 2);
  struct npy weights = read_array(options.paths[0], NPY_F16, 2), vectors = read_array(options.paths[1], NPY_F16, 2);
  struct product product = {.m = weights.shape[0], .k = weights.shape[1], .count = vectors.shape[0]};
  if (npy_count(&weights) == 0 || npy_count(&vectors) == 0) give_up("WEIGHTS or VECTORS has no elements");
  if (vectors.shape[1] != product.k)
    give_up("%s: the vectors have %lld elements, expected %lld, the columns of the weights", options.paths[1],
            (long long)vectors.shape[1], (long long)product.k);
  struct world world = world_open();
  bool fine;
  if (world.ranks > 1) {
    require_parts(&options, product.k, (uint32_t)world.ranks);
    fine = multiply_in_processes(&world, &options, &weights, &vectors);
  } else {
    fine = multiply_alone(&product, &options, &weights, &vectors);
  }
  world_close(&world);
  npy_free(&weights);
  npy_free(&vectors);
  return fine ? SAMPLE_OK : SAMPLE_WRONG;
}
