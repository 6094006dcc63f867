/* lapack_shim.c - LAPACK's names for what Rondo computes, to be loaded in front of a LAPACK (LD_PRELOAD): geqrf, geqr2,
 * ormqr, orm2r, orgqr, org2r and gels in f32 and f64, with LAPACK's checks of arguments, workspace queries and quick
 * returns. Of gels those of minimum norm, which Rondo has not, are left to the LAPACK behind. At the end of the program
 * a line on standard error says how many calls were served, and how many were left.
 *
 * RONDO_LAPACK_BACKEND=cuda takes a GPU, else the host's threads compute. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cached_graph.h"

/* What the program and the LAPACK behind have. The length of a text comes behind all other arguments. */
extern void xerbla_(const char *name, const int *argument, size_t name_length);
extern int ilaenv_(const int *what, const char *name, const char *options, const int *n1, const int *n2, const int *n3,
                   const int *n4, size_t name_length, size_t options_length);

struct real {
  rondo_dtype dtype;
  size_t bytes;
  char letter;
};
static const struct real f32 = {RONDO_F32, sizeof(float), 'S'}, f64 = {RONDO_F64, sizeof(double), 'D'};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long served[GRAPH_SOLVE + 1], left; /* calls */

static int most(int a, int b) { return a > b ? a : b; }
static int least(int a, int b) { return a < b ? a : b; }
static bool is(const char *option, char letter) { return (*option | 32) == (letter | 32); }

static void report(void) {
  fprintf(stderr, "rondo on %s: %ld factorisations, %ld products with Q, %ld least squares served, %ld calls left\n",
          cached_graph_device(), served[GRAPH_FACTOR], served[GRAPH_APPLY], served[GRAPH_SOLVE], left);
  cached_graphs_close();
}

/* Under the lock. */
static const struct cached_graph *graph_of(const struct graph_shape *shape) {
  static bool reports;
  if (!reports) reports = !atexit(report);
  served[shape->operation]++;
  return cached_graph_of(shape);
}

/* ---- Arguments -----------------------------------------------------------------------------------------------------
 */

/* LAPACK's number of the argument that is wrong is negative; xerbla may end the program. */
static bool refuse(const struct real *real, const char *name, int wrong, int *info) {
  *info = wrong;
  if (!wrong) return false;
  char full[8];
  snprintf(full, sizeof full, "%c%s", real->letter, name);
  const int argument = -wrong;
  xerbla_(full, &argument, strlen(full));
  return true;
}

static int block_size(const struct real *real, const char *name, const char *options, int n1, int n2, int n3) {
  char full[8];
  snprintf(full, sizeof full, "%c%s", real->letter, name);
  const int block = 1, none = -1;
  return ilaenv_(&block, full, options, &n1, &n2, &n3, &none, strlen(full), strlen(options));
}

static void put_number(const struct real *real, void *to, int number) {
  if (real->dtype == RONDO_F32)
    *(float *)to = (float)number;
  else
    *(double *)to = number;
}

/* ---- Matrices ------------------------------------------------------------------------------------------------------
 */

static void *element(const struct real *real, void *matrix, int leading, int row, int column) {
  return (char *)matrix + ((size_t)column * (size_t)leading + (size_t)row) * real->bytes;
}

/* rows x columns; or, transposed, what is columns x rows in `from`. */
static void copy(const struct real *real, int rows, int columns, bool transposed, const void *from, int from_leading,
                 void *to, int to_leading) {
  for (int j = 0; j < columns; j++)
    if (transposed)
      for (int i = 0; i < rows; i++)
        memcpy(element(real, to, to_leading, i, j), element(real, (void *)from, from_leading, j, i), real->bytes);
    else
      memcpy(element(real, to, to_leading, 0, j), element(real, (void *)from, from_leading, 0, j),
             (size_t)rows * real->bytes);
}

static void fill(const struct real *real, int rows, int columns, int diagonal, void *to, int leading) {
  for (int j = 0; j < columns; j++)
    for (int i = 0; i < rows; i++) put_number(real, element(real, to, leading, i, j), i == j ? diagonal : 0);
}

static bool is_zero(const struct real *real, int rows, int columns, const void *a, int leading) {
  for (int j = 0; j < columns; j++)
    for (int i = 0; i < rows; i++) {
      const void *number = element(real, (void *)a, leading, i, j);
      if (real->dtype == RONDO_F32 ? *(const float *)number != 0 : *(const double *)number != 0) return false;
    }
  return true;
}

/* ---- QR ------------------------------------------------------------------------------------------------------------
 */

/* The unblocked geqr2, orm2r and org2r have no lwork: it is NULL then. */
static bool is_query(const int *lwork) { return lwork && *lwork == -1; }

static void geqrf(const struct real *real, const int *m, const int *n, void *a, const int *lda, void *tau, void *work,
                  const int *lwork, int *info) {
  int wrong = *m < 0 ? -1 : *n < 0 ? -2 : *lda < most(1, *m) ? -4 : 0;
  if (!wrong && lwork && !is_query(lwork) && (*lwork <= 0 || (*m > 0 && *lwork < most(1, *n)))) wrong = -7;
  if (refuse(real, lwork ? "GEQRF" : "GEQR2", wrong, info)) return;
  const int k = least(*m, *n);
  if (lwork) put_number(real, work, k ? *n * block_size(real, "GEQRF", " ", *m, *n, -1) : 1);
  if (is_query(lwork) || !k) return;
  pthread_mutex_lock(&lock);
  const struct cached_graph *graph =
      graph_of(&(struct graph_shape){.operation = GRAPH_FACTOR, .dtype = real->dtype, .m = *m, .n = *n});
  copy(real, *m, *n, false, a, *lda, graph->a, *m);
  cached_graph_replay(graph);
  copy(real, *m, *n, false, graph->h, *m, a, *lda);
  memcpy(tau, graph->tau, (size_t)k * real->bytes);
  pthread_mutex_unlock(&lock);
}

/* ---- Q -------------------------------------------------------------------------------------------------------------
 */

/* Of k reflectors, each of which has `order` rows. */
struct reflectors {
  int order, k;
  const void *h;
  int leading;
  const void *tau;
};

/* C := Q C or Q'C for an order x columns matrix. From the right it is C' that is multiplied: C Q = (Q'C')'. */
static void apply(const struct real *real, const struct reflectors *q, bool transpose, int columns, bool from_right,
                  void *c, int leading) {
  pthread_mutex_lock(&lock);
  const struct cached_graph *graph = graph_of(&(struct graph_shape){.operation = GRAPH_APPLY,
                                                                    .dtype = real->dtype,
                                                                    .m = q->order,
                                                                    .n = q->k,
                                                                    .sides = columns,
                                                                    .transpose = transpose != from_right});
  copy(real, q->order, q->k, false, q->h, q->leading, graph->h, q->order);
  memcpy(graph->tau, q->tau, (size_t)q->k * real->bytes);
  copy(real, q->order, columns, from_right, c, leading, graph->b, q->order);
  cached_graph_replay(graph);
  if (from_right)
    copy(real, columns, q->order, true, graph->c, q->order, c, leading);
  else
    copy(real, q->order, columns, false, graph->c, q->order, c, leading);
  pthread_mutex_unlock(&lock);
}

static void ormqr(const struct real *real, const char *side, const char *trans, const int *m, const int *n,
                  const int *k, const void *a, const int *lda, const void *tau, void *c, const int *ldc, void *work,
                  const int *lwork, int *info) {
  const bool from_left = is(side, 'L'), transpose = is(trans, 'T');
  const int order = from_left ? *m : *n, columns = from_left ? *n : *m;
  int wrong = !from_left && !is(side, 'R')    ? -1
              : !transpose && !is(trans, 'N') ? -2
              : *m < 0                        ? -3
              : *n < 0                        ? -4
              : *k < 0 || *k > order          ? -5
              : *lda < most(1, order)         ? -7
              : *ldc < most(1, *m)            ? -10
                                              : 0;
  if (!wrong && lwork && !is_query(lwork) && *lwork < most(1, columns)) wrong = -12;
  if (refuse(real, lwork ? "ORMQR" : "ORM2R", wrong, info)) return;
  const bool nothing = *m == 0 || *n == 0 || *k == 0;
  if (lwork) {
    enum { MOST_BLOCK = 64, TRIANGLE = (MOST_BLOCK + 1) * MOST_BLOCK };
    const char options[] = {*side, *trans, 0};
    const int block = least(MOST_BLOCK, block_size(real, "ORMQR", options, *m, *n, *k));
    put_number(real, work, nothing && !is_query(lwork) ? 1 : most(1, columns) * block + TRIANGLE);
  }
  if (is_query(lwork) || nothing) return;
  apply(real, &(struct reflectors){order, *k, a, *lda, tau}, transpose, columns, !from_left, c, *ldc);
}

/* Q's first n columns: Q times those of the identity. */
static void orgqr(const struct real *real, const int *m, const int *n, const int *k, void *a, const int *lda,
                  const void *tau, void *work, const int *lwork, int *info) {
  int wrong = *m < 0 ? -1 : *n < 0 || *n > *m ? -2 : *k < 0 || *k > *n ? -3 : *lda < most(1, *m) ? -5 : 0;
  if (!wrong && lwork && !is_query(lwork) && *lwork < most(1, *n)) wrong = -8;
  if (refuse(real, lwork ? "ORGQR" : "ORG2R", wrong, info)) return;
  if (lwork) put_number(real, work, *n ? *n * block_size(real, "ORGQR", " ", *m, *n, *k) : 1);
  if (is_query(lwork) || *n == 0) return;
  if (*k == 0) {
    fill(real, *m, *n, 1, a, *lda);
    return;
  }
  void *h = malloc((size_t)*m * (size_t)*k * real->bytes);
  if (!h) abort();
  copy(real, *m, *k, false, a, *lda, h, *m);
  fill(real, *m, *n, 1, a, *lda);
  apply(real, &(struct reflectors){*m, *k, h, *m, tau}, false, *n, false, a, *lda);
  free(h);
}

/* ---- Least squares -------------------------------------------------------------------------------------------------
 */

typedef void gels_routine(const char *trans, const int *m, const int *n, const int *nrhs, void *a, const int *lda,
                          void *b, const int *ldb, void *work, const int *lwork, int *info, size_t trans_length);

static void leave_gels(const struct real *real, const char *trans, const int *m, const int *n, const int *nrhs, void *a,
                       const int *lda, void *b, const int *ldb, void *work, const int *lwork, int *info) {
  gels_routine *behind = (gels_routine *)dlsym(RTLD_NEXT, real->dtype == RONDO_F32 ? "sgels_" : "dgels_");
  if (!behind) abort();
  pthread_mutex_lock(&lock);
  left++;
  pthread_mutex_unlock(&lock);
  behind(trans, m, n, nrhs, a, lda, b, ldb, work, lwork, info, 1);
}

/* min |b - A x| for a `rows` x `columns` matrix, rows >= columns; or, transposed, for A' of a `columns` x `rows` one,
 * whose LQ is the transposed QR. Returns LAPACK's info. */
static int solve(const struct real *real, int rows, int columns, bool transposed, int sides, void *a, int lda, void *b,
                 int ldb) {
  pthread_mutex_lock(&lock);
  const struct cached_graph *graph = graph_of(
      &(struct graph_shape){.operation = GRAPH_SOLVE, .dtype = real->dtype, .m = rows, .n = columns, .sides = sides});
  copy(real, rows, columns, transposed, a, lda, graph->a, rows);
  copy(real, rows, sides, false, b, ldb, graph->b, rows);
  cached_graph_replay(graph);
  if (transposed)
    copy(real, columns, rows, true, graph->h, rows, a, lda);
  else
    copy(real, rows, columns, false, graph->h, rows, a, lda);
  copy(real, rows, sides, false, graph->c, rows, b, ldb);
  const int info = *graph->info;
  if (info == 0) copy(real, columns, sides, false, graph->x, columns, b, ldb);
  pthread_mutex_unlock(&lock);
  return info;
}

/* The block size that its steps have. */
static int gels_block(const struct real *real, bool transpose, int m, int n, int sides) {
  const bool tall = m >= n;
  const int factors = block_size(real, tall ? "GEQRF" : "GELQF", " ", m, n, -1);
  return most(factors, block_size(real, tall ? "ORMQR" : "ORMLQ", tall == transpose ? "LN" : "LT", tall ? m : n, sides,
                                  tall ? n : m));
}

static void gels(const struct real *real, const char *trans, const int *m, const int *n, const int *nrhs, void *a,
                 const int *lda, void *b, const int *ldb, void *work, const int *lwork, int *info) {
  const bool transpose = is(trans, 'T'), tall = *m >= *n;
  const int k = least(*m, *n);
  int wrong = !transpose && !is(trans, 'N')  ? -1
              : *m < 0                       ? -2
              : *n < 0                       ? -3
              : *nrhs < 0                    ? -4
              : *lda < most(1, *m)           ? -6
              : *ldb < most(1, most(*m, *n)) ? -8
                                             : 0;
  if (!wrong && !is_query(lwork) && *lwork < most(1, k + most(k, *nrhs))) wrong = -10;
  if (refuse(real, "GELS ", wrong, info)) return;
  put_number(real, work, most(1, k + most(k, *nrhs) * gels_block(real, transpose, *m, *n, *nrhs)));
  if (is_query(lwork)) return;
  if (k == 0 || *nrhs == 0 || is_zero(real, *m, *n, a, *lda))
    fill(real, most(*m, *n), *nrhs, 0, b, *ldb);
  else if (tall == transpose)
    leave_gels(real, trans, m, n, nrhs, a, lda, b, ldb, work, lwork, info);
  else
    *info = solve(real, most(*m, *n), k, transpose, *nrhs, a, *lda, b, *ldb);
}

/* ---- The names -----------------------------------------------------------------------------------------------------
 */

/* DEFINE(NAME, PARAMETERS, CALL): a routine that the program finds by its name, in no header. */
#define DEFINE(name, parameters, call)                                                                                 \
  void name parameters;                                                                                                \
  __attribute__((visibility("default"))) void name parameters { call; }

#define DEFINE_ROUTINES(letter, real)                                                                                  \
  DEFINE(letter##geqrf_,                                                                                               \
         (const int *m, const int *n, void *a, const int *lda, void *tau, void *work, const int *lwork, int *info),    \
         geqrf(&(real), m, n, a, lda, tau, work, lwork, info))                                                         \
  DEFINE(letter##geqr2_, (const int *m, const int *n, void *a, const int *lda, void *tau, void *work, int *info),      \
         geqrf(&(real), m, n, a, lda, tau, work, NULL, info))                                                          \
  DEFINE(letter##ormqr_,                                                                                               \
         (const char *side, const char *trans, const int *m, const int *n, const int *k, const void *a,                \
          const int *lda, const void *tau, void *c, const int *ldc, void *work, const int *lwork, int *info),          \
         ormqr(&(real), side, trans, m, n, k, a, lda, tau, c, ldc, work, lwork, info))                                 \
  DEFINE(letter##orm2r_,                                                                                               \
         (const char *side, const char *trans, const int *m, const int *n, const int *k, const void *a,                \
          const int *lda, const void *tau, void *c, const int *ldc, void *work, int *info),                            \
         ormqr(&(real), side, trans, m, n, k, a, lda, tau, c, ldc, work, NULL, info))                                  \
  DEFINE(letter##orgqr_,                                                                                               \
         (const int *m, const int *n, const int *k, void *a, const int *lda, const void *tau, void *work,              \
          const int *lwork, int *info),                                                                                \
         orgqr(&(real), m, n, k, a, lda, tau, work, lwork, info))                                                      \
  DEFINE(letter##org2r_,                                                                                               \
         (const int *m, const int *n, const int *k, void *a, const int *lda, const void *tau, void *work, int *info),  \
         orgqr(&(real), m, n, k, a, lda, tau, work, NULL, info))                                                       \
  DEFINE(letter##gels_,                                                                                                \
         (const char *trans, const int *m, const int *n, const int *nrhs, void *a, const int *lda, void *b,            \
          const int *ldb, void *work, const int *lwork, int *info),                                                    \
         gels(&(real), trans, m, n, nrhs, a, lda, b, ldb, work, lwork, info))

DEFINE_ROUTINES(s, f32)
DEFINE_ROUTINES(d, f64)
