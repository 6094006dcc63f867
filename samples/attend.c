/* attend - attention: O = softmax(Q K' / sqrt(d)) V.
 *
 * The sample reads Q, K and V as [batch, heads, length, d], and compares rows of O with the same sums in fp64. */
#include <math.h>
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

static const char help[] =
    "usage: attend [OPTION VALUE]... Q.npy K.npy V.npy\n\n"
    "Computes softmax(Q K' / sqrt(d)) V for float16 arrays [batch, heads, length, d], d 32, 64, 128 or 256.\n\n"
    "  --backend auto|host|cuda  default auto: a GPU if there is one\n"
    "  --replays N               number of replays; default 100\n"
    "  --out FILE.npy            write O, float16, with the shape of Q\n";

/* One row in fp64: the expected values, and for each the sum of |p v|, to which rounding errors are proportional. */
static void attend_row(const struct npy *q, const struct npy *k, const struct npy *v, int64_t q_row, int64_t kv_row,
                       double *scores, double *expected, double *magnitude) {
  int64_t d = q->shape[3], length = k->shape[2];
  double largest = -(double)INFINITY, sum = 0;
  for (int64_t j = 0; j < length; j++) {
    double dot = 0;
    for (int64_t i = 0; i < d; i++) dot += npy_element(q, q_row * d + i) * npy_element(k, (kv_row + j) * d + i);
    scores[j] = dot / sqrt((double)d);
    largest = fmax(largest, scores[j]);
  }
  for (int64_t j = 0; j < length; j++) sum += scores[j] = exp(scores[j] - largest);
  for (int64_t i = 0; i < d; i++) expected[i] = magnitude[i] = 0;
  for (int64_t j = 0; j < length; j++)
    for (int64_t i = 0; i < d; i++) {
      double term = scores[j] / sum * npy_element(v, (kv_row + j) * d + i);
      expected[i] += term;
      magnitude[i] += fabs(term);
    }
}

/* The weights and the result are each rounded to fp16 once, with an error of at most 2^-11 sum |p v| each. All other
 * arithmetic is fp32. The error is therefore at most about 2 * 2^-11 sum |p v|, plus half the smallest fp16 number. */
static bool check_rows(const struct npy *q, const struct npy *k, const struct npy *v, const struct npy *o) {
  int64_t d = q->shape[3], length = q->shape[2], rows = npy_count(q) / d, step = rows / 500 + 1;
  int64_t group = q->shape[1] / k->shape[1]; /* query heads of a KV head */
  double *scores = malloc((size_t)(k->shape[2] + 2 * d) * sizeof *scores), worst = 0;
  if (!scores) give_up("no memory for the check");
  double *expected = scores + k->shape[2], *magnitude = expected + d;
  for (int64_t row = 0; row < rows; row += step) {
    int64_t head = row / length; /* over batch and heads */
    attend_row(q, k, v, row, head / group * k->shape[2], scores, expected, magnitude);
    for (int64_t i = 0; i < d; i++) {
      double error = fabs(npy_element(o, row * d + i) - expected[i]) / (0x1p-11 * magnitude[i] + 0x1p-24);
      if (error > worst || isnan(error)) worst = error;
    }
  }
  free(scores);
  printf("sampled    %lld of %lld rows\n", (long long)((rows + step - 1) / step), (long long)rows);
  return check("|O - O in fp64| / (2^-11 sum |p v|)", worst, 2.5);
}

int main(int argc, char **argv) {
  struct options options = options_parse(argc, argv, help, 3);
  struct npy q_data = read_array(options.paths[0], NPY_F16, 4);
  struct npy k_data = read_array(options.paths[1], NPY_F16, 4);
  struct npy v_data = read_array(options.paths[2], NPY_F16, 4);
  printf("attend: batch %lld, %lld heads of %lld, %lld queries, %lld keys\n", (long long)q_data.shape[0],
         (long long)q_data.shape[1], (long long)q_data.shape[3], (long long)q_data.shape[2],
         (long long)k_data.shape[2]);
  if (npy_count(&q_data) == 0) give_up("%s: the array has no elements", options.paths[0]);

  rondo_graph *graph;
  rondo_tensor q, k, v, o;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_input(graph, "q", RONDO_F16, 4, q_data.shape, &q));
  TRY(rondo_input(graph, "k", RONDO_F16, 4, k_data.shape, &k));
  TRY(rondo_input(graph, "v", RONDO_F16, 4, v_data.shape, &v));
  TRY(rondo_output(graph, "o", RONDO_F16, 4, q_data.shape, &o));
  TRY(rondo_add_attention(graph, &(rondo_attention_desc){.name = "attention", .q = q, .k = k, .v = v, .o = o}));

  rondo_runtime *runtime = open_for(graph, &options, 1);
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, graph, NULL, &exec));
  TRY(rondo_acquire(exec, &slot));
  memcpy(rondo_data(slot, q), q_data.data, q_data.bytes);
  memcpy(rondo_data(slot, k), k_data.data, k_data.bytes);
  memcpy(rondo_data(slot, v), v_data.data, v_data.bytes);
  bool same = replay_timed(slot, &options, o);

  struct npy o_data = q_data;
  o_data.data = rondo_data(slot, o);
  bool fine = check_rows(&q_data, &k_data, &v_data, &o_data) && same;
  write_array(&options, &o_data);

  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
  npy_free(&q_data);
  npy_free(&k_data);
  npy_free(&v_data);
  return fine ? SAMPLE_OK : SAMPLE_WRONG;
}
