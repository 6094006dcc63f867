/* orthogonalize - the thin Q of every head's block of weights, in one graph: batched Householder QR.
 *
 * The sample reads weights [heads, rows, columns] and computes A = Q R for each head, in their type. It checks in fp64
 * that Q is orthonormal and that Q R is A, as LAPACK's tester dqrt01 does. It runs the factorisation as one task and in
 * LAPACK's steps (geqrf, then orgqr), and prints both times. */
#include <math.h>
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

static const char help[] = "usage: orthogonalize [OPTION VALUE]... WEIGHTS.npy\n\n"
                           "Computes the thin QR factorisation of each block of WEIGHTS, float32 or float64 [heads, "
                           "rows, columns], or of one\n"
                           "matrix [rows, columns].\n\n"
                           "  --backend auto|host|cuda  default auto: a GPU if there is one\n"
                           "  --replays N               number of replays; default 100\n"
                           "  --out FILE.npy            write Q, of the same type, [heads, rows, min(rows, columns)], "
                           "without heads if WEIGHTS\n"
                           "                            has none\n";

/* WEIGHTS as blocks: m x n, k the smaller of the two. */
struct blocks {
  int64_t heads, m, n, k;
};
static struct blocks blocks_of(const struct npy *weights) {
  const int64_t *matrix = weights->shape + weights->rank - 2;
  return (struct blocks){.heads = weights->rank == 3 ? weights->shape[0] : 1,
                         .m = matrix[0],
                         .n = matrix[1],
                         .k = matrix[0] < matrix[1] ? matrix[0] : matrix[1]};
}

/* The largest column sum of |X|, whose elements are added one by one. */
struct one_norm {
  double largest, column;
};
static void end_column(struct one_norm *norm) {
  if (norm->column > norm->largest || isnan(norm->column)) norm->largest = norm->column; /* a NaN is kept */
  norm->column = 0;
}

/* LAPACK's two ratios for one matrix, each divided by rows * machine epsilon. Correct code stays below 30. */
static void check_head(const double *a, const double *q, const double *r, const struct blocks *blocks, double epsilon,
                       double *orthogonality, double *residual) {
  int64_t m = blocks->m, n = blocks->n, k = blocks->k;
  struct one_norm identity = {0}, difference = {0}, norm_a = {0};
  for (int64_t j = 0; j < k; j++, end_column(&identity))
    for (int64_t i = 0; i < k; i++) {
      double sum = i == j ? -1 : 0;
      for (int64_t row = 0; row < m; row++) sum += q[row * k + i] * q[row * k + j];
      identity.column += fabs(sum);
    }
  for (int64_t j = 0; j < n; j++, end_column(&difference), end_column(&norm_a))
    for (int64_t row = 0; row < m; row++) {
      double sum = -a[row * n + j];
      for (int64_t i = 0; i < k; i++) sum += q[row * k + i] * r[i * n + j];
      difference.column += fabs(sum);
      norm_a.column += fabs(a[row * n + j]);
    }
  double unit = (double)(m > 0 ? m : 1) * epsilon;
  *orthogonality = identity.largest / unit;
  *residual = difference.largest == 0 ? 0 : difference.largest / (norm_a.largest * unit);
}

/* Matrix `head` of an array, in fp64. */
static void widen(const struct npy *array, int64_t head, int64_t count, double *numbers) {
  for (int64_t i = 0; i < count; i++) numbers[i] = npy_element(array, head * count + i);
}

static bool check_all(const struct npy *a, const struct npy *q, const struct npy *r, const struct blocks *blocks) {
  int64_t a_count = blocks->m * blocks->n, q_count = blocks->m * blocks->k, r_count = blocks->k * blocks->n;
  double worst_orthogonality = 0, worst_residual = 0;
  double *numbers = calloc((size_t)(a_count + q_count + r_count) + 1, sizeof *numbers);
  if (!numbers) give_up("no memory for the check");
  double *q_numbers = numbers + a_count, *r_numbers = q_numbers + q_count;
  for (int64_t head = 0; head < blocks->heads; head++) {
    double orthogonality, residual;
    widen(a, head, a_count, numbers);
    widen(q, head, q_count, q_numbers);
    widen(r, head, r_count, r_numbers);
    check_head(numbers, q_numbers, r_numbers, blocks, epsilon_of(a), &orthogonality, &residual);
    if (orthogonality > worst_orthogonality || isnan(orthogonality)) worst_orthogonality = orthogonality;
    if (residual > worst_residual || isnan(residual)) worst_residual = residual;
  }
  free(numbers);
  bool orthonormal = check("|I - Q'Q| / (rows eps)", worst_orthogonality, 30);
  return check("|A - QR| / (|A| rows eps)", worst_residual, 30) && orthonormal;
}

struct factorisation {
  rondo_graph *graph;
  rondo_tensor a, q, r;
};

/* An array of rows x columns for each head, or one such matrix if WEIGHTS is one. */
static struct npy like(const struct npy *weights, int64_t rows, int64_t columns) {
  struct npy array = {.type = weights->type, .rank = weights->rank};
  if (array.rank == 3) array.shape[0] = weights->shape[0];
  array.shape[array.rank - 2] = rows;
  array.shape[array.rank - 1] = columns;
  return array;
}

static struct factorisation describe(const struct npy *weights, bool in_steps) {
  const struct blocks blocks = blocks_of(weights);
  const struct npy q = like(weights, blocks.m, blocks.k), r = like(weights, blocks.k, blocks.n);
  const rondo_dtype dtype = dtype_of(weights);
  const uint32_t rank = weights->rank;
  struct factorisation f;
  TRY(rondo_graph_create(NULL, NULL, &f.graph));
  TRY(rondo_input(f.graph, "weights", dtype, rank, weights->shape, &f.a));
  TRY(rondo_output(f.graph, "q", dtype, rank, q.shape, &f.q));
  TRY(rondo_output(f.graph, "r", dtype, rank, r.shape, &f.r));
  rondo_layout layout = RONDO_ROW_MAJOR;
  if (!in_steps) {
    TRY(rondo_add_qr(f.graph, &(rondo_qr_desc){.name = "qr", .layout = layout, .a = f.a, .q = f.q, .r = f.r}));
    return f;
  }
  rondo_tensor h, tau;
  const int64_t tau_shape[] = {blocks.heads, blocks.k};
  TRY(rondo_temporary(f.graph, "h", dtype, rank, weights->shape, &h));
  TRY(rondo_temporary(f.graph, "tau", dtype, rank - 1, tau_shape + 3 - rank, &tau));
  TRY(rondo_add_qr(f.graph, &(rondo_qr_desc){.name = "factor", .layout = layout, .a = f.a, .h = h, .tau = tau}));
  TRY(rondo_add_qr_extract(f.graph,
                           &(rondo_qr_extract_desc){.name = "extract", .layout = layout, .h = h, .r = f.r, .q = f.q}));
  TRY(rondo_add_qr_apply(f.graph,
                         &(rondo_qr_apply_desc){.name = "form", .layout = layout, .v = h, .tau = tau, .c = f.q}));
  return f;
}

/* Times a factorisation, checks it, and writes Q if --out is given. */
static bool run(struct factorisation *f, const struct npy *weights, const struct options *options, bool is_first) {
  rondo_runtime *runtime = is_first ? open_for(f->graph, options, 1) : open_quietly(f->graph, options, 1);
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, f->graph, NULL, &exec));
  TRY(rondo_acquire(exec, &slot));
  if (weights->bytes > 0) memcpy(rondo_data(slot, f->a), weights->data, weights->bytes);
  printf("%s\n", is_first ? "one task: qr to q and r" : "in steps: qr to h and tau, qr_extract, qr_apply");
  bool same = replay_timed(slot, options, f->q);

  const struct blocks blocks = blocks_of(weights);
  struct npy q = like(weights, blocks.m, blocks.k), r = like(weights, blocks.k, blocks.n);
  q.data = rondo_data(slot, f->q);
  r.data = rondo_data(slot, f->r);
  bool fine = check_all(weights, &q, &r, &blocks) && same;
  if (is_first) write_array(options, &q);

  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&f->graph));
  TRY(rondo_close(&runtime));
  return fine;
}

int main(int argc, char **argv) {
  struct options options = options_parse(argc, argv, help, 1);
  struct npy weights = read_numbers(options.paths[0], 2, 3);
  const struct blocks blocks = blocks_of(&weights);
  printf("orthogonalize: %lld block%s of %lld x %lld, %s, from %s\n", (long long)blocks.heads,
         blocks.heads == 1 ? "" : "s", (long long)blocks.m, (long long)blocks.n, npy_type_name(weights.type),
         options.paths[0]);
  struct factorisation at_once = describe(&weights, false), in_steps = describe(&weights, true);
  bool fine = run(&at_once, &weights, &options, true);
  fine = run(&in_steps, &weights, &options, false) && fine;
  npy_free(&weights);
  return fine ? SAMPLE_OK : SAMPLE_WRONG;
}
