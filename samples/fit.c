/* fit - calibration curves of many sensors at once, in one graph: batched least squares.
 *
 * Each sensor was read at some temperatures, and its error is to be a cubic of the temperature. The readings are made
 * up: a cubic of each sensor's own with noise on top; and one sensor was read at a single temperature only, which no
 * cubic can be fitted to. Checked in fp64: a fit is right if what it leaves over is orthogonal to every column. */
#include <math.h>
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>

#include "sample.h"

enum { SENSORS = 4096, READINGS = 24, COEFFICIENTS = 4, BROKEN = 17 };

static const char help[] = "usage: fit [OPTION VALUE]...\n\n"
                           "Fits a cubic to 24 readings of each of 4096 sensors, float32.\n\n"
                           "  --backend auto|host|cuda  where to run (auto: a GPU if there is one)\n"
                           "  --replays N               how many times to replay (100)\n"
                           "  --out FILE.npy            write the coefficients, float32 [4096, 1, 4]\n";

/* The same numbers everywhere, in [-1, 1). */
static float noise(void) {
  static uint32_t state = 1;
  state = state * 1664525 + 1013904223;
  return (float)(state >> 8) * 0x1p-23f - 1;
}

/* Column-major: a[sensor][power][reading] is the temperature's power, b[sensor][reading] the error. */
static void make_readings(float *a, float *b) {
  for (int sensor = 0; sensor < SENSORS; sensor++) {
    float own[COEFFICIENTS];
    for (int k = 0; k < COEFFICIENTS; k++) own[k] = noise();
    for (int i = 0; i < READINGS; i++, b++) {
      float temperature = sensor == BROKEN ? 0 : noise(), power = 1;
      *b = 0.01f * noise();
      for (int k = 0; k < COEFFICIENTS; k++, power *= temperature) {
        a[(sensor * COEFFICIENTS + k) * READINGS + i] = power;
        *b += own[k] * power;
      }
    }
  }
}

/* |a'(b - A x)| over |a| |b|, the largest, in units of readings times machine epsilon. */
static double worst_of(const float *a, const float *b, const float *x) {
  double left[READINGS], b_norm = 0, worst = 0;
  for (int i = 0; i < READINGS; i++) {
    left[i] = (double)b[i];
    b_norm = hypot(b_norm, left[i]);
    for (int k = 0; k < COEFFICIENTS; k++) left[i] -= (double)a[k * READINGS + i] * (double)x[k];
  }
  for (int k = 0; k < COEFFICIENTS; k++) {
    double dot = 0, norm = 0;
    for (int i = 0; i < READINGS; i++) {
      dot += (double)a[k * READINGS + i] * left[i];
      norm = hypot(norm, (double)a[k * READINGS + i]);
    }
    double ratio = fabs(dot) / (norm * b_norm * READINGS * 0x1p-24);
    if (ratio > worst || isnan(ratio)) worst = ratio; /* a NaN stays */
  }
  return worst;
}

int main(int argc, char **argv) {
  struct options options = options_parse(argc, argv, help, 0);
  printf("fit: a cubic to %d readings of each of %d sensors\n", READINGS, SENSORS);

  rondo_graph *graph;
  rondo_tensor a, b, x, residual, info;
  const int64_t sensors = SENSORS;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_input(graph, "powers", RONDO_F32, 3, (int64_t[]){SENSORS, COEFFICIENTS, READINGS}, &a));
  TRY(rondo_input(graph, "errors", RONDO_F32, 3, (int64_t[]){SENSORS, 1, READINGS}, &b));
  TRY(rondo_output(graph, "coefficients", RONDO_F32, 3, (int64_t[]){SENSORS, 1, COEFFICIENTS}, &x));
  TRY(rondo_output(graph, "residual", RONDO_F32, 2, (int64_t[]){SENSORS, 1}, &residual));
  TRY(rondo_output(graph, "info", RONDO_I32, 1, &sensors, &info));
  TRY(rondo_add_least_squares(
      graph, &(rondo_least_squares_desc){.name = "fit", .a = a, .b = b, .x = x, .residual = residual, .info = info}));

  rondo_runtime *runtime = open_for(graph, &options, 1);
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, graph, NULL, &exec));
  TRY(rondo_acquire(exec, &slot));
  float *powers = rondo_data(slot, a), *errors = rondo_data(slot, b);
  make_readings(powers, errors);
  bool same = replay_timed(slot, &options, x);

  float *coefficients = rondo_data(slot, x);
  const float *left = rondo_data(slot, residual);
  const int32_t *singular = rondo_data(slot, info);
  double worst = 0, largest = 0;
  int wrong = 0;
  for (int sensor = 0; sensor < SENSORS; sensor++) {
    if ((singular[sensor] != 0) != (sensor == BROKEN)) wrong++;
    if (singular[sensor]) continue;
    size_t own_rows = (size_t)sensor * READINGS, own_columns = (size_t)sensor * COEFFICIENTS;
    double own = worst_of(powers + own_rows * COEFFICIENTS, errors + own_rows, coefficients + own_columns);
    if (own > worst || isnan(own)) worst = own;
    largest = fmax(largest, (double)left[sensor]);
  }
  printf("singular   sensor %d, read at one temperature, column %d\n", BROKEN, (int)singular[BROKEN]);
  printf("residual   at most %.4f, with noise of 0.01 on each of %d readings\n", largest, READINGS);
  bool fine = check("singular where it should not be, or not where it should", wrong, 0) && same;
  fine = check("|a'(b - Ax)| / (|a| |b| readings eps)", worst, 30) && fine;
  write_array(&options,
              &(struct npy){.type = NPY_F32, .rank = 3, .shape = {SENSORS, 1, COEFFICIENTS}, .data = coefficients});

  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
  return fine ? SAMPLE_OK : SAMPLE_WRONG;
}
