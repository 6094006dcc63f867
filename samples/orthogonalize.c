/* orthogonalize - the thin Q of every head's weight block, in one graph: batched Householder QR.
 *
 * Reads weights [heads, rows, columns], computes A = Q R for each head, and checks in fp64, as LAPACK's own tester
 * (dqrt01) does, that Q is orthonormal and that Q R is A. Once as one task, and once in the steps that LAPACK has for
 * it (geqrf, then orgqr), to see what one task saves. */
#include <math.h>
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

static const char help[] =
    "usage: orthogonalize [OPTION VALUE]... WEIGHTS.npy\n\n"
    "Computes the thin QR factorisation of each block of WEIGHTS, float32 [heads, rows, columns].\n\n"
    "  --backend auto|host|cuda  where to run (auto: a GPU if there is one)\n"
    "  --replays N               how many times to replay (100)\n"
    "  --out FILE.npy            write Q, float32 [heads, rows, min(rows, columns)]\n";

/* The largest column sum of |X|, for an X given element by element. */
struct one_norm {
  double largest, column;
};
static void end_column(struct one_norm *norm) {
  if (norm->column > norm->largest || isnan(norm->column)) norm->largest = norm->column; /* a NaN stays */
  norm->column = 0;
}

/* LAPACK's two ratios for one matrix, each in units of rows times machine epsilon: sound code stays below 30. */
static void check_head(const float *a, const float *q, const float *r, int64_t m, int64_t n, double *orthogonality,
                       double *residual) {
  int64_t k = m < n ? m : n;
  struct one_norm identity = {0}, difference = {0}, norm_a = {0};
  for (int64_t j = 0; j < k; j++, end_column(&identity))
    for (int64_t i = 0; i < k; i++) {
      double sum = i == j ? -1 : 0;
      for (int64_t row = 0; row < m; row++) sum += (double)q[row * k + i] * (double)q[row * k + j];
      identity.column += fabs(sum);
    }
  for (int64_t j = 0; j < n; j++, end_column(&difference), end_column(&norm_a))
    for (int64_t row = 0; row < m; row++) {
      double sum = -(double)a[row * n + j];
      for (int64_t i = 0; i < k; i++) sum += (double)q[row * k + i] * (double)r[i * n + j];
      difference.column += fabs(sum);
      norm_a.column += fabs((double)a[row * n + j]);
    }
  double unit = (double)(m > 0 ? m : 1) * 0x1p-24;
  *orthogonality = identity.largest / unit;
  *residual = difference.largest == 0 ? 0 : difference.largest / (norm_a.largest * unit);
}

static bool check_all(const float *a, const float *q, const float *r, const int64_t *shape) {
  int64_t m = shape[1], n = shape[2], k = m < n ? m : n;
  double worst_orthogonality = 0, worst_residual = 0;
  for (int64_t head = 0; head < shape[0]; head++) {
    double orthogonality, residual;
    check_head(a + head * m * n, q + head * m * k, r + head * k * n, m, n, &orthogonality, &residual);
    if (orthogonality > worst_orthogonality || isnan(orthogonality)) worst_orthogonality = orthogonality;
    if (residual > worst_residual || isnan(residual)) worst_residual = residual;
  }
  bool orthonormal = check("|I - Q'Q| / (rows eps)", worst_orthogonality, 30);
  return check("|A - QR| / (|A| rows eps)", worst_residual, 30) && orthonormal;
}

struct factorisation {
  rondo_graph *graph;
  rondo_tensor a, q, r;
};

static struct factorisation describe(const int64_t *shape, bool in_steps) {
  int64_t heads = shape[0], m = shape[1], n = shape[2], k = m < n ? m : n;
  struct factorisation f;
  TRY(rondo_graph_create(NULL, NULL, &f.graph));
  TRY(rondo_input(f.graph, "weights", RONDO_F32, 3, shape, &f.a));
  TRY(rondo_output(f.graph, "q", RONDO_F32, 3, (int64_t[]){heads, m, k}, &f.q));
  TRY(rondo_output(f.graph, "r", RONDO_F32, 3, (int64_t[]){heads, k, n}, &f.r));
  rondo_layout layout = RONDO_ROW_MAJOR;
  if (!in_steps) {
    TRY(rondo_add_qr(f.graph, &(rondo_qr_desc){.name = "qr", .layout = layout, .a = f.a, .q = f.q, .r = f.r}));
    return f;
  }
  rondo_tensor h, tau;
  TRY(rondo_temporary(f.graph, "h", RONDO_F32, 3, shape, &h));
  TRY(rondo_temporary(f.graph, "tau", RONDO_F32, 2, (int64_t[]){heads, k}, &tau));
  TRY(rondo_add_qr(f.graph, &(rondo_qr_desc){.name = "factor", .layout = layout, .a = f.a, .h = h, .tau = tau}));
  TRY(rondo_add_qr_extract(f.graph,
                           &(rondo_qr_extract_desc){.name = "extract", .layout = layout, .h = h, .r = f.r, .q = f.q}));
  TRY(rondo_add_qr_apply(f.graph,
                         &(rondo_qr_apply_desc){.name = "form", .layout = layout, .v = h, .tau = tau, .c = f.q}));
  return f;
}

/* Times it, checks it, and writes Q if it is to be written. */
static bool run(struct factorisation *f, const struct npy *weights, const struct options *options, bool is_first) {
  rondo_runtime *runtime = is_first ? open_for(f->graph, options, 1) : open_quietly(f->graph, options, 1);
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, f->graph, NULL, &exec));
  TRY(rondo_acquire(exec, &slot));
  if (weights->bytes > 0) memcpy(rondo_data(slot, f->a), weights->data, weights->bytes);
  printf("%s\n", is_first ? "one task: qr to q and r" : "in steps: qr to h and tau, qr_extract, qr_apply");
  bool same = replay_timed(slot, options, f->q);

  int64_t heads = weights->shape[0], m = weights->shape[1], n = weights->shape[2];
  float *q = rondo_data(slot, f->q);
  bool fine = check_all(weights->data, q, rondo_data(slot, f->r), weights->shape) && same;
  if (is_first)
    write_array(options, &(struct npy){.type = NPY_F32, .rank = 3, .shape = {heads, m, m < n ? m : n}, .data = q});

  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&f->graph));
  TRY(rondo_close(&runtime));
  return fine;
}

int main(int argc, char **argv) {
  struct options options = options_parse(argc, argv, help, 1);
  struct npy weights = read_array(options.paths[0], NPY_F32, 3);
  printf("orthogonalize: %lld blocks of %lld x %lld from %s\n", (long long)weights.shape[0],
         (long long)weights.shape[1], (long long)weights.shape[2], options.paths[0]);
  struct factorisation at_once = describe(weights.shape, false), in_steps = describe(weights.shape, true);
  bool fine = run(&at_once, &weights, &options, true);
  fine = run(&in_steps, &weights, &options, false) && fine;
  npy_free(&weights);
  return fine ? SAMPLE_OK : SAMPLE_WRONG;
}
