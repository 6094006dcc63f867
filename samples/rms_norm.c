/* rms_norm - an own kernel in a graph. The kernel in rms_norm.cu normalises vectors, and an operation of Rondo
 * multiplies a matrix with them. samples/own-kernels.md explains the sample. */
#include <immintrin.h>
#include <math.h>
#include <rondo.h>
#include <stdio.h>
#include <string.h>

#include "sample.h"

enum { THREADS = 128 }; /* the same as in rms_norm.cu */

/* The compiled rms_norm.cu. Without nvcc it has no bytes. */
extern const unsigned char rms_norm_fatbin[], rms_norm_fatbin_end[];

static const char help[] =
    "usage: rms_norm [OPTION VALUE]... WEIGHTS.npy VECTORS.npy\n\n"
    "Divides 1 to 16 VECTORS, float16 [count, k], by their root mean square with a kernel of the sample's own, and\n"
    "multiplies WEIGHTS, float16 [m, k], with them.\n\n"
    "  --backend auto|host|cuda  default auto: a GPU if there is one\n"
    "  --replays N               number of replays; default 100\n"
    "  --out FILE.npy            write the products, float32 [count, m]\n";

/* The kernel's function on the host; data[i] is argument i. The kernel gets the number of rows from its grid, this
 * function from `user`. The processor converts between f16 and f32 (F16C). */
__attribute__((target("f16c"))) static void rms_norm_on_host(void *user, void *const *data) {
  const uint16_t *x = data[0];
  uint16_t *y = data[1];
  int columns = *(const int *)data[2];
  float epsilon = *(const float *)data[3];
  for (int64_t row = 0; row < *(const int64_t *)user; row++, x += columns, y += columns) {
    float squares = 0;
    for (int i = 0; i < columns; i++) squares += _cvtsh_ss(x[i]) * _cvtsh_ss(x[i]);
    float scale = 1 / sqrtf(squares / (float)columns + epsilon);
    for (int i = 0; i < columns; i++) y[i] = _cvtss_sh(_cvtsh_ss(x[i]) * scale, 0);
  }
}

static const float epsilon = 1e-6f;

/* Adds y = x / its root mean square. The graph copies the arguments' values. The image must stay valid until
 * rondo_instantiate returns, `rows` as long as the exec. */
static void add_rms_norm(rondo_graph *graph, rondo_tensor x, rondo_tensor y, int64_t *rows, int columns) {
  size_t image_bytes = (size_t)(rms_norm_fatbin_end - rms_norm_fatbin);
  rondo_argument arguments[] = {{.tensor = x, .access = RONDO_READ},
                                {.tensor = y, .access = RONDO_WRITE},
                                {.value = &columns, .bytes = sizeof columns},
                                {.value = &epsilon, .bytes = sizeof epsilon}};
  TRY(rondo_add_kernel(graph, &(rondo_kernel_desc){.name = "rms norm",
                                                   .image = image_bytes ? rms_norm_fatbin : NULL,
                                                   .image_bytes = image_bytes,
                                                   .function = "rms_norm",
                                                   .grid = {(uint32_t)*rows, 1, 1},
                                                   .block = {THREADS, 1, 1},
                                                   .arguments = arguments,
                                                   .argument_count = 4,
                                                   .host = rms_norm_on_host,
                                                   .user = rows}));
}

/* The largest error of a product, divided by the sum of its terms' magnitudes. */
static double worst_error(const struct npy *weights, const struct npy *vectors, const float *products) {
  int64_t m = weights->shape[0], k = weights->shape[1];
  double worst = 0;
  for (int64_t vector = 0; vector < vectors->shape[0]; vector++) {
    double squares = 0;
    for (int64_t i = 0; i < k; i++) squares += pow(npy_element(vectors, vector * k + i), 2);
    double scale = 1 / sqrt(squares / (double)k + (double)epsilon);
    for (int64_t row = 0; row < m; row++) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < k; i++) {
        double term = npy_element(weights, row * k + i) * npy_element(vectors, vector * k + i) * scale;
        sum += term;
        magnitude += fabs(term);
      }
      double error = fabs((double)products[vector * m + row] - sum);
      if (error > worst * magnitude || isnan(error)) worst = error / magnitude;
    }
  }
  return worst;
}

int main(int argc, char **argv) {
  struct options options = options_parse(argc, argv, help, 2);
  struct npy weights = read_array(options.paths[0], NPY_F16, 2), vectors = read_array(options.paths[1], NPY_F16, 2);
  int64_t m = weights.shape[0], k = weights.shape[1], count = vectors.shape[0];
  printf("rms_norm: %lld vectors of %lld, weights %lld x %lld\n", (long long)count, (long long)k, (long long)m,
         (long long)k);
  if (m == 0 || k == 0 || count == 0) give_up("WEIGHTS or VECTORS has no elements");

  rondo_graph *graph;
  rondo_tensor w, x, normed, y;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_constant(graph, "weights", RONDO_F16, 2, weights.shape, &w));
  TRY(rondo_input(graph, "x", RONDO_F16, 2, vectors.shape, &x));
  TRY(rondo_temporary(graph, "normed x", RONDO_F16, 2, vectors.shape, &normed));
  TRY(rondo_output(graph, "y", RONDO_F32, 2, (int64_t[]){count, m}, &y));
  add_rms_norm(graph, x, normed, &count, (int)k);
  TRY(rondo_add_gemv(graph, &(rondo_gemv_desc){.name = "product", .weights = w, .vectors = normed, .out = y}));

  rondo_runtime *runtime = open_for(graph, &options, 1);
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, graph, NULL, &exec));
  TRY(rondo_upload(exec, w, weights.data, weights.bytes));
  TRY(rondo_acquire(exec, &slot));
  memcpy(rondo_data(slot, x), vectors.data, vectors.bytes);
  bool same = replay_timed(slot, &options, y);

  float *products = rondo_data(slot, y);
  /* The rounding of the normalised vectors to f16 causes an error of 2^-11 of each term, the sum in fp32 one of k
   * 2^-24. */
  bool fine = check("|y - y in fp64| / sum |w x|", worst_error(&weights, &vectors, products),
                    0x1p-11 + (double)(k + 8) * 0x1p-24);
  write_array(&options, &(struct npy){.type = NPY_F32, .rank = 2, .shape = {count, m}, .data = products});

  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
  npy_free(&weights);
  npy_free(&vectors);
  return fine && same ? SAMPLE_OK : SAMPLE_WRONG;
}
