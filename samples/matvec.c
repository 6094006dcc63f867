/* matvec - y = W x with weights of four bits. One graph quantises the weights to NVFP4 on the device; another
 * multiplies with them as constants.
 *
 * The sample compares the product with one in fp64 of the four-bit weights. It also prints the error of the
 * quantisation. */
#include <math.h>
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

static const char help[] =
    "usage: matvec [OPTION VALUE]... WEIGHTS.npy VECTORS.npy\n\n"
    "Quantises WEIGHTS, float16 [m, k], to NVFP4 and multiplies them with 1 to 16 VECTORS, float16 [count, k];\n"
    "k is a multiple of 16.\n\n"
    "  --backend auto|host|cuda  default auto: a GPU if there is one\n"
    "  --replays N               number of replays; default 100\n"
    "  --out FILE.npy            write y, float32 [count, m]\n";

struct quantised {
  uint8_t *codes;  /* two elements in a byte, the even one in the low nibble */
  uint8_t *scales; /* e4m3 scale factors, one for 16 elements */
  uint64_t code_bytes, scale_bytes;
  float global_scale;
};

/* Quantises the weights in a graph of its own, which is replayed once. */
static struct quantised quantise(const struct npy *weights, const struct options *options) {
  int64_t m = weights->shape[0], k = weights->shape[1];
  double largest = 0;
  for (int64_t i = 0; i < m * k; i++) largest = fmax(largest, fabs(npy_element(weights, i)));
  /* The largest weight becomes the largest code, 6, times the largest scale factor, 448. */
  struct quantised result = {.global_scale = largest > 0 ? (float)(largest / (6 * 448)) : 1};

  rondo_graph *graph;
  rondo_tensor x, codes, scales;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_input(graph, "weights", RONDO_F16, 2, weights->shape, &x));
  TRY(rondo_output(graph, "codes", RONDO_NVFP4, 2, weights->shape, &codes));
  TRY(rondo_output(graph, "scales", RONDO_E4M3, 2, (int64_t[]){m, k / 16}, &scales));
  TRY(rondo_add_quantize_nvfp4(
      graph, &(rondo_quantize_nvfp4_desc){
                 .name = "quantise", .x = x, .codes = codes, .scales = scales, .global_scale = result.global_scale}));
  TRY(rondo_tensor_bytes(codes, &result.code_bytes));
  TRY(rondo_tensor_bytes(scales, &result.scale_bytes));

  rondo_runtime *runtime = open_quietly(graph, options, 1);
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, graph, NULL, &exec));
  TRY(rondo_acquire(exec, &slot));
  memcpy(rondo_data(slot, x), weights->data, weights->bytes);
  TRY(rondo_replay(slot));
  TRY(rondo_wait(slot, RONDO_FOREVER));
  result.codes = malloc(result.code_bytes);
  result.scales = malloc(result.scale_bytes);
  if (!result.codes || !result.scales) give_up("no memory for the quantised weights");
  memcpy(result.codes, rondo_data(slot, codes), result.code_bytes);
  memcpy(result.scales, rondo_data(slot, scales), result.scale_bytes);

  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
  return result;
}

static double dequantised(const struct quantised *w, int64_t index) {
  static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  unsigned code = (unsigned)w->codes[index / 2] >> (index % 2 * 4) & 15, scale = w->scales[index / 16];
  int exponent = (int)(scale >> 3 & 15), fraction = (int)(scale & 7);
  double factor = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
  double value = e2m1[code & 7] * factor * (double)w->global_scale;
  return code & 8 ? -value : value;
}

static bool check_product(const struct npy *weights, const struct npy *vectors, const struct quantised *w,
                          const float *y) {
  int64_t m = weights->shape[0], k = weights->shape[1];
  double worst = 0, lost = 0, whole = 0;
  for (int64_t row = 0; row < m; row++)
    for (int64_t vector = 0; vector < vectors->shape[0]; vector++) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < k; i++) {
        double term = dequantised(w, row * k + i) * npy_element(vectors, vector * k + i);
        sum += term;
        magnitude += fabs(term);
      }
      double error = fabs((double)y[vector * m + row] - sum);
      if (error > worst * magnitude || isnan(error)) worst = error / magnitude;
    }
  for (int64_t i = 0; i < m * k; i++) {
    double exact = npy_element(weights, i), difference = dequantised(w, i) - exact;
    lost += difference * difference;
    whole += exact * exact;
  }
  printf("quantised  |W - W in NVFP4| / |W| is %.3f, with 4.5 bits for each weight\n", sqrt(lost / whole));
  /* The bound for k products that are summed in fp32 in any order (Higham, Accuracy and Stability, 3.1). */
  return check("|y - y in fp64| / sum |w x|", worst, (double)k * 0x1p-24);
}

int main(int argc, char **argv) {
  struct options options = options_parse(argc, argv, help, 2);
  struct npy weights = read_array(options.paths[0], NPY_F16, 2), vectors = read_array(options.paths[1], NPY_F16, 2);
  int64_t m = weights.shape[0], k = weights.shape[1], count = vectors.shape[0];
  printf("matvec: weights %lld x %lld, %lld vectors\n", (long long)m, (long long)k, (long long)count);
  if (m == 0 || k == 0 || count == 0) give_up("WEIGHTS or VECTORS has no elements");
  struct quantised w = quantise(&weights, &options);

  rondo_graph *graph;
  rondo_tensor codes, scales, x, y;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_constant(graph, "codes", RONDO_NVFP4, 2, weights.shape, &codes));
  TRY(rondo_constant(graph, "scales", RONDO_E4M3, 2, (int64_t[]){m, k / 16}, &scales));
  TRY(rondo_input(graph, "x", RONDO_F16, 2, vectors.shape, &x));
  TRY(rondo_output(graph, "y", RONDO_F32, 2, (int64_t[]){count, m}, &y));
  TRY(rondo_add_gemv(graph, &(rondo_gemv_desc){.name = "matvec",
                                               .weights = codes,
                                               .weight_scales = scales,
                                               .vectors = x,
                                               .out = y,
                                               .scale = w.global_scale}));

  rondo_runtime *runtime = open_for(graph, &options, 1);
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, graph, NULL, &exec));
  TRY(rondo_upload(exec, codes, w.codes, w.code_bytes));
  TRY(rondo_upload(exec, scales, w.scales, w.scale_bytes));
  TRY(rondo_acquire(exec, &slot));
  memcpy(rondo_data(slot, x), vectors.data, vectors.bytes);
  bool same = replay_timed(slot, &options, y);

  float *y_data = rondo_data(slot, y);
  bool fine = check_product(&weights, &vectors, &w, y_data) && same;
  write_array(&options, &(struct npy){.type = NPY_F32, .rank = 2, .shape = {count, m}, .data = y_data});

  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
  free(w.codes);
  free(w.scales);
  npy_free(&weights);
  npy_free(&vectors);
  return fine ? SAMPLE_OK : SAMPLE_WRONG;
}
