/* bench_rowmax_tile.c - checks and measures the kernels of rowmax_tile.cu (bench_rowmax_tile.h). */
#include "bench_rowmax_tile.h"

#include <math.h>
#include <stdio.h>

#include "../command.h"
#include "reference.h"
#include "rowmax_tile.h"

enum {
  NUMBERS = ROWMAX_TILE * ROWMAX_TILE,
  PRODUCTS = 10000, /* products of a launch whose cycles are counted */
  LAUNCHES = 200,   /* launches of a timed graph, with one product each */
  ALIGNMENT = 256,
};

#define WAY(name, about, barriers) {about, "rowmax_tile_" #name, barriers},
static const struct way {
  const char *about, *kernel;
  uint32_t barriers;
} ways[] = {ROWMAX_TILE_KERNELS(WAY)};
enum { WAYS = sizeof ways / sizeof *ways };

/* Addresses on the device. */
struct operands {
  cu_address a, b, most, cycles;
};

static struct operands operands_take(struct bench_device *device) {
  const uint64_t matrix_bytes = NUMBERS * sizeof(uint16_t), apart = ALIGNMENT;
  struct operands at = {.a = bench_take(device, 2 * matrix_bytes + 2 * apart)};
  at.b = at.a + matrix_bytes;
  at.most = at.b + matrix_bytes;
  at.cycles = at.most + apart;
  bench_fill(device, at.a, 2 * matrix_bytes, BENCH_NORMAL, 1);
  return at;
}

static void add_way(struct bench_graph *graph, const struct way *way, const struct operands *at, uint32_t products) {
  struct operands given = *at;
  void *parameters[] = {&given.a, &given.b, &given.most, &given.cycles, &products};
  bench_graph_add_kernel(graph, bench_kernel(graph->device, way->kernel), (uint32_t[]){1, 1, 1}, 32, 0, parameters);
}

static double cycles_of_product(struct bench_device *device, const struct way *way, const struct operands *at) {
  uint64_t cycles;
  struct bench_graph graph = bench_graph_begin(device, false);
  add_way(&graph, way, at, PRODUCTS);
  bench_graph_finish(&graph);
  for (int i = 0; i < 2; i++) bench_graph_run(&graph); /* the first run fills the caches */
  bench_graph_end(&graph);
  bench_fetch(device, &cycles, at->cycles, sizeof cycles);
  return (double)cycles / PRODUCTS;
}

static double us_of_launch(struct bench_device *device, const struct way *way, const struct operands *at,
                           uint32_t samples) {
  struct bench_graph graph = bench_graph_begin(device, false);
  for (int i = 0; i < LAUNCHES; i++) add_way(&graph, way, at, 1);
  bench_graph_finish(&graph);
  double us = bench_graph_us(&graph, samples) / LAUNCHES;
  bench_graph_end(&graph);
  return us;
}

/* Checks the maxima of sums of 16 products of bf16 numbers, added in fp32 in any order. */
static bool is_right(struct bench_device *device, const struct way *way, const struct operands *at) {
  uint16_t bits[2][NUMBERS];
  double numbers[2][NUMBERS], row[ROWMAX_TILE];
  float most[ROWMAX_TILE];
  bench_fetch(device, bits, at->a, sizeof bits);
  bench_fetch(device, most, at->most, sizeof most);
  for (int m = 0; m < 2; m++) reference_decode(RONDO_BF16, (const uint8_t *)bits[m], NULL, NUMBERS, numbers[m]);
  for (size_t r = 0; r < ROWMAX_TILE; r++) {
    double expected = reference_softmax(&numbers[0][r * ROWMAX_TILE], numbers[1], ROWMAX_TILE, ROWMAX_TILE, 1, 0, row);
    if (fabs((double)most[r] - expected) <= 1e-5) continue;
    command_failed("bench: %s is wrong: the maximum of row %zu is %.7g, expected %.7g", way->kernel, r, (double)most[r],
                   expected);
    return false;
  }
  return true;
}

uint32_t rowmax_tile_measure(struct bench_device *device, struct report *report, uint32_t samples) {
  const struct operands at = operands_take(device);
  struct json *json = &report->output.json;
  uint32_t wrong = 0;
  output_print(&report->output, "%-36s  %8s  %11s  %9s  %12s  %8s\n", "row maxima of a product of one tile", "cycles",
               "us a launch", "registers", "shared bytes", "barriers");
  for (int i = 0; i < WAYS; i++) {
    const struct way *way = &ways[i];
    fprintf(stderr, "rowmax-tile: %s\n", way->about);
    bench_set(device, at.most, 0xff,
              ROWMAX_TILE * sizeof(float)); /* NaNs: the check finds a result that was not written */
    const double cycles = cycles_of_product(device, way, &at);
    if (!is_right(device, way, &at)) {
      wrong++;
      continue;
    }
    const double us = us_of_launch(device, way, &at, samples);
    const struct bench_use use = bench_kernel_use(device, way->kernel);
    output_print(&report->output, "%-36s  %8.1f  %11.2f  %9d  %12d  %8u\n", way->about, cycles, us, use.registers,
                 use.shared_bytes, way->barriers);
    json_begin_line(json, NULL, '{');
    json_text(json, "rowmax_tile", way->about);
    json_real(json, "cycles", cycles);
    json_real(json, "us", us);
    json_whole(json, "registers", (uint64_t)use.registers);
    json_whole(json, "shared_bytes", (uint64_t)use.shared_bytes);
    json_whole(json, "barriers", way->barriers);
    json_end(json, '}');
  }
  return wrong;
}
