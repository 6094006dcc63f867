/* fit - batched least squares in one graph, on files or on the calibration of many sensors.
 *
 * Without files, the sample fits a cubic of the temperature to each sensor's error. It generates the readings: a cubic
 * for each sensor, plus noise. One sensor has readings at a single temperature, and so its matrix is singular. The
 * check is in fp64: the residual of a fit must be orthogonal to every column. */
#include <math.h>
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

enum { SENSORS = 4096, READINGS = 24, COEFFICIENTS = 4, BROKEN = 17 };

static const char help[] =
    "usage: fit [OPTION VALUE]... [A.npy B.npy]\n\n"
    "Finds the x that minimises |b - A x| for each matrix of A, float32 or float64 [batch, rows, columns], and each\n"
    "right-hand side of B, of the same type, [batch, rows] or [batch, rows, sides]; or one such matrix without batch.\n"
    "Without files it fits a cubic to 24 readings of each of 4096 sensors, float32.\n\n"
    "  --backend auto|host|cuda  default auto: a GPU if there is one\n"
    "  --replays N               number of replays; default 100\n"
    "  --out FILE.npy            write x, with the shape of B, columns in place of rows\n";

/* ---- The problem ------------------------------------------------------------------------------------------------- */

struct problem {
  struct npy a, b, x; /* without a batch [rows, columns]; b and x have sides if there is more than one */
  bool has_batch, is_made_up;
  int64_t batch, rows, columns, sides;
};

/* Random numbers in [-1, 1), the same on every machine. */
static float noise(void) {
  static uint32_t state = 1;
  state = state * 1664525 + 1013904223;
  return (float)(state >> 8) * 0x1p-23f - 1;
}

/* a[sensor][reading][power] is a power of the temperature, b[sensor][reading] the error. */
static void make_readings(float *a, float *b) {
  for (int sensor = 0; sensor < SENSORS; sensor++) {
    float own[COEFFICIENTS];
    for (int k = 0; k < COEFFICIENTS; k++) own[k] = noise();
    for (int i = 0; i < READINGS; i++, b++) {
      float temperature = sensor == BROKEN ? 0 : noise(), power = 1;
      *b = 0.01f * noise();
      for (int k = 0; k < COEFFICIENTS; k++, a++, power *= temperature) {
        *a = power;
        *b += own[k] * power;
      }
    }
  }
}

static struct npy array_new(uint32_t rank, const int64_t *shape) {
  struct npy array = {.type = NPY_F32, .rank = rank};
  memcpy(array.shape, shape, rank * sizeof *shape);
  array.bytes = (uint64_t)npy_count(&array) * sizeof(float);
  array.data = malloc(array.bytes);
  if (!array.data) give_up("no memory for the readings");
  return array;
}

static void make_up(struct problem *p) {
  p->is_made_up = true;
  p->a = array_new(3, (int64_t[]){SENSORS, READINGS, COEFFICIENTS});
  p->b = array_new(2, (int64_t[]){SENSORS, READINGS});
  make_readings(p->a.data, p->b.data);
}

static void read_files(struct problem *p, const char *const *paths) {
  p->a = read_numbers(paths[0], 2, 3);
  p->b = read_numbers(paths[1], p->a.rank - 1, p->a.rank);
  if (p->a.type != p->b.type)
    give_up("%s: holds %s, expected %s as in %s", paths[1], npy_type_name(p->b.type), npy_type_name(p->a.type),
            paths[0]);
  for (uint32_t i = 0; i + 1 < p->a.rank; i++)
    if (p->a.shape[i] != p->b.shape[i])
      give_up("%s: dimension %u is %lld, expected %lld as in %s", paths[1], i, (long long)p->b.shape[i],
              (long long)p->a.shape[i], paths[0]);
}

/* Takes the sizes from the arrays, and sets the shape of x. */
static void take_sizes(struct problem *p) {
  const uint32_t rank = p->a.rank;
  p->has_batch = rank == 3;
  p->batch = p->has_batch ? p->a.shape[0] : 1;
  p->rows = p->a.shape[rank - 2];
  p->columns = p->a.shape[rank - 1];
  p->sides = p->b.rank == rank ? p->b.shape[rank - 1] : 1;
  p->x = (struct npy){.type = p->a.type, .rank = p->b.rank};
  memcpy(p->x.shape, p->b.shape, sizeof p->x.shape);
  p->x.shape[rank - 2] = p->columns;
}

/* ---- The check --------------------------------------------------------------------------------------------------- */

/* The largest |a'(b - A x)| / (|a| (|b| + |A| |x|)) of the columns a, divided by rows * machine epsilon. */
static double ratio_of(const struct problem *p, int64_t matrix, int64_t side, double *left) {
  const int64_t m = p->rows, n = p->columns, s = p->sides;
  double b_norm = 0, x_norm = 0, a_norm = 0, worst = 0;
  for (int64_t j = 0; j < n; j++) x_norm = hypot(x_norm, npy_element(&p->x, (matrix * n + j) * s + side));
  for (int64_t i = 0; i < m; i++) {
    left[i] = npy_element(&p->b, (matrix * m + i) * s + side);
    b_norm = hypot(b_norm, left[i]);
    for (int64_t j = 0; j < n; j++) {
      double element = npy_element(&p->a, (matrix * m + i) * n + j);
      a_norm = hypot(a_norm, element);
      left[i] -= element * npy_element(&p->x, (matrix * n + j) * s + side);
    }
  }
  for (int64_t j = 0; j < n; j++) {
    double dot = 0, norm = 0;
    for (int64_t i = 0; i < m; i++) {
      double element = npy_element(&p->a, (matrix * m + i) * n + j);
      dot += element * left[i];
      norm = hypot(norm, element);
    }
    if (dot == 0) continue; /* the denominator may be 0 too */
    double ratio = fabs(dot) / (norm * (b_norm + a_norm * x_norm) * (double)m * epsilon_of(&p->a));
    if (ratio > worst || isnan(ratio)) worst = ratio; /* a NaN is kept */
  }
  return worst;
}

/* Checks all matrices of full rank. For generated readings it also checks which matrices are reported as singular. */
static bool check_all(const struct problem *p, const struct npy *residual, const int32_t *info) {
  double worst = 0, largest = 0;
  int64_t singular = 0, first = 0, wrong = 0;
  double *left = malloc((size_t)p->rows * sizeof *left);
  if (!left) give_up("no memory for the check");
  for (int64_t matrix = 0; matrix < p->batch; matrix++) {
    if ((info[matrix] != 0) != (matrix == BROKEN)) wrong++;
    if (info[matrix] && singular++ == 0) first = matrix;
    for (int64_t side = 0; side < p->sides && !info[matrix]; side++) {
      double own = ratio_of(p, matrix, side, left);
      if (own > worst || isnan(own)) worst = own;
      largest = fmax(largest, npy_element(residual, matrix * p->sides + side));
    }
  }
  free(left);
  if (singular)
    printf("singular   %lld of %lld, whose x is NaN; the first is %lld, by its column %d\n", (long long)singular,
           (long long)p->batch, (long long)first, (int)info[first]);
  if (p->is_made_up)
    printf("residual   at most %.4f, with noise of 0.01 on each of %d readings\n", largest, READINGS);
  else
    printf("residual   at most %.6g\n", largest);
  bool fine = !p->is_made_up || check("matrices with a wrong report of singularity", (double)wrong, 0);
  return check("|a'(b - Ax)| / (|a| (|b| + |A| |x|) rows eps)", worst, 30) && fine;
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

struct fit {
  rondo_graph *graph;
  rondo_tensor a, b, x, residual, info;
};

static struct fit describe(const struct problem *p) {
  struct fit f;
  const rondo_dtype dtype = dtype_of(&p->a);
  const uint32_t skipped = !p->has_batch, rank = 3 - skipped; /* of [batch, ..] */
  const int64_t a[] = {p->batch, p->rows, p->columns}, b[] = {p->batch, p->rows, p->sides};
  const int64_t x[] = {p->batch, p->columns, p->sides}, residual[] = {p->batch, p->sides};
  TRY(rondo_graph_create(NULL, NULL, &f.graph));
  TRY(rondo_input(f.graph, "A", dtype, rank, a + skipped, &f.a));
  TRY(rondo_input(f.graph, "b", dtype, rank, b + skipped, &f.b));
  TRY(rondo_output(f.graph, "x", dtype, rank, x + skipped, &f.x));
  TRY(rondo_output(f.graph, "residual", dtype, rank - 1, residual + skipped, &f.residual));
  TRY(rondo_output(f.graph, "info", RONDO_I32, 1, &p->batch, &f.info));
  TRY(rondo_add_least_squares(f.graph, &(rondo_least_squares_desc){.name = "fit",
                                                                   .layout = RONDO_ROW_MAJOR,
                                                                   .a = f.a,
                                                                   .b = f.b,
                                                                   .x = f.x,
                                                                   .residual = f.residual,
                                                                   .info = f.info}));
  return f;
}

int main(int argc, char **argv) {
  struct options options = options_parse_any(argc, argv, help, 2);
  struct problem p = {0};
  if (options.paths[0])
    read_files(&p, options.paths);
  else
    make_up(&p);
  take_sizes(&p);
  if (p.is_made_up)
    printf("fit: a cubic to %d readings of each of %d sensors\n", READINGS, SENSORS);
  else
    printf("fit: %lld x %lld, %lld of them with %lld right-hand side%s, %s, from %s and %s\n", (long long)p.rows,
           (long long)p.columns, (long long)p.batch, (long long)p.sides, p.sides == 1 ? "" : "s",
           npy_type_name(p.a.type), options.paths[0], options.paths[1]);

  struct fit f = describe(&p);
  rondo_runtime *runtime = open_for(f.graph, &options, 1);
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, f.graph, NULL, &exec));
  TRY(rondo_acquire(exec, &slot));
  if (p.a.bytes) memcpy(rondo_data(slot, f.a), p.a.data, p.a.bytes);
  if (p.b.bytes) memcpy(rondo_data(slot, f.b), p.b.data, p.b.bytes);
  bool same = replay_timed(slot, &options, f.x);

  p.x.data = rondo_data(slot, f.x);
  const struct npy residual = {.type = p.a.type, .data = rondo_data(slot, f.residual)};
  bool fine = check_all(&p, &residual, rondo_data(slot, f.info)) && same;
  write_array(&options, &p.x);

  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&f.graph));
  TRY(rondo_close(&runtime));
  npy_free(&p.a);
  npy_free(&p.b);
  return fine ? SAMPLE_OK : SAMPLE_WRONG;
}
