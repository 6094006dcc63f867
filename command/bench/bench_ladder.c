/* bench_ladder.c - measures the steps of ladder.cu (bench_ladder.h). */
#include "bench_ladder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "ladder.h"

enum { SHAPES = 3 };
static const struct kernel_case shapes[SHAPES] = {
    {RONDO_NVFP4, RONDO_NVFP4, RONDO_F16, 7168, 16384, 1, 1},
    {RONDO_NVFP4, RONDO_NVFP4, RONDO_F16, 4096, 7168, 8, 1},
    {RONDO_NVFP4, RONDO_NVFP4, RONDO_F16, 7168, 2048, 4, 1},
};

struct step {
  const char *name, *kernel;
  uint32_t threads, rows; /* of a thread block */
  uint32_t shared_bytes;
  int32_t oldest_chip;
  double b200_us[SHAPES]; /* the time on a B200 in the write-up of the competition */
};

enum {
  WARPS_THREADS = 32 * LADDER_WARPS,
  TILE = LADDER_WARPS * LADDER_ROWS,
  BULK_BYTES = LADDER_BARRIER_BYTES + LADDER_STAGES * LADDER_STAGE_BYTES,
};
static const struct step steps[] = {
    {"1 a thread a row", "ladder_thread_a_row", LADDER_LANES, LADDER_LANES, 0, 80, {831.2, 575.0, 174.2}},
    {"2 a thread block a row", "ladder_block_a_row", LADDER_LANES, 1, 0, 80, {163.1, 316.6, 82.8}},
    {"3 shuffles", "ladder_shuffle", LADDER_LANES, 1, 0, 80, {158.6, 306.2, 80.9}},
    {"4 four rows a warp", "ladder_four_rows", WARPS_THREADS, TILE, 0, 80, {151.9, 196.3, 60.0}},
    {"5 converted once, staged", "ladder_staged", WARPS_THREADS, TILE, 0, 80, {58.7, 64.4, 21.5}},
    {"6 double buffer", "ladder_double_buffer", WARPS_THREADS, TILE, 0, 80, {46.5, 54.4, 19.6}},
    {"7 ring of async copies", "ladder_ring", WARPS_THREADS, TILE, 0, 80, {42.2, 52.8, 21.5}},
    {"8 bulk copies, native", "ladder_bulk", WARPS_THREADS, TILE, BULK_BYTES, 90, {23.6, 35.9, 15.4}},
};
enum { STEPS = sizeof steps / sizeof *steps };

static const char ours[] = "the library's";

/* The data of add_step. */
struct climb {
  const struct step *step;
  const struct kernel_case *shape;
  struct cu_kernel *kernel;
};

static void add_step(void *user, struct bench_graph *graph, const struct gemv_operands *at, float scale) {
  const struct climb *climb = user;
  const struct kernel_case *shape = climb->shape;
  struct ladder_product product = {.a = (const uint8_t *)at->weights,
                                   .a_scales = (const uint8_t *)at->weight_scales,
                                   .b = (const uint8_t *)at->vectors,
                                   .b_scales = (const uint8_t *)at->vector_scales,
                                   .c = (uint16_t *)at->out,
                                   .m = (uint32_t)shape->m,
                                   .k = (uint32_t)shape->k,
                                   .scale = scale};
  uint32_t blocks = ((uint32_t)shape->m + climb->step->rows - 1) / climb->step->rows;
  void *parameters[] = {&product};
  bench_graph_add_kernel(graph, climb->kernel, (uint32_t[]){blocks, (uint32_t)shape->batch, 1}, climb->step->threads,
                         climb->step->shared_bytes, parameters);
}

/* Writes a line of the table with the measured times of the wanted shapes. */
static void write_row(struct report *report, const char *name, const bool wanted[SHAPES], const double us[SHAPES],
                      const double b200_us[SHAPES]) {
  struct json *json = &report->output.json;
  output_print(&report->output, "%-26s", name);
  for (int s = 0; s < SHAPES; s++) {
    if (!wanted[s]) continue;
    json_begin_line(json, NULL, '{');
    json_text(json, "ladder", name);
    json_whole(json, "m", (uint64_t)shapes[s].m);
    json_whole(json, "k", (uint64_t)shapes[s].k);
    json_whole(json, "batch", (uint64_t)shapes[s].batch);
    json_real(json, "us", us[s]);
    if (b200_us) json_real(json, "b200_us", b200_us[s]);
    json_end(json, '}');
    if (isnan(us[s]))
      output_print(&report->output, "  %9s", "WRONG");
    else
      output_print(&report->output, "  %9.2f", us[s]);
    if (b200_us)
      output_print(&report->output, " (%5.1f)", b200_us[s]);
    else
      output_print(&report->output, "        ");
  }
  output_print(&report->output, "\n");
}

static void print_heading(struct report *report, const bool wanted[SHAPES]) {
  output_print(&report->output, "%-26s", "ladder, us (on a B200)");
  for (int s = 0; s < SHAPES; s++) {
    char shape[KERNEL_LABEL_BYTES];
    snprintf(shape, sizeof shape, "%" PRId64 " x %" PRId64 "x%" PRId64, shapes[s].batch, shapes[s].m, shapes[s].k);
    if (wanted[s]) output_print(&report->output, "  %-17s", shape);
  }
  output_print(&report->output, "\n");
}

static void announce(const char *name, const struct kernel_case *shape) {
  char label[KERNEL_LABEL_BYTES];
  kernel_case_label(shape, label);
  fprintf(stderr, "ladder: %s, %s\n", name, label);
}

static double measure_step(struct gemv_memory *memory, const struct step *step, const struct kernel_case *shape,
                           const struct gemv_options *options) {
  announce(step ? step->name : ours, shape);
  if (!step) return gemv_measure(memory, shape, options, false).us;
  struct climb climb = {step, shape, bench_kernel(memory->device, step->kernel)};
  return gemv_time_us(memory, shape, options, &(struct gemv_way){step->kernel, add_step, &climb});
}

bool ladder_label(size_t index, char label[KERNEL_LABEL_BYTES]) {
  if (index >= SHAPES) return false;
  kernel_case_label(&shapes[index], label);
  return true;
}

uint32_t ladder_measure(struct gemv_memory *memory, struct report *report, const char *only, uint32_t samples) {
  const struct gemv_options options = {.samples = samples};
  char label[KERNEL_LABEL_BYTES];
  bool wanted[SHAPES], is_any_wanted = false;
  uint32_t wrong = 0;
  for (size_t s = 0; ladder_label(s, label); s++) {
    wanted[s] = kernel_label_wanted(label, only);
    is_any_wanted |= wanted[s];
  }
  if (!is_any_wanted) return 0;
  print_heading(report, wanted);
  for (int i = 0; i <= STEPS; i++) {
    const struct step *step = i < STEPS ? &steps[i] : NULL; /* NULL: the kernels that the library chooses */
    if (step && memory->device->chip.version < step->oldest_chip) continue;
    double us[SHAPES];
    for (int s = 0; s < SHAPES; s++) {
      if (!wanted[s]) continue;
      us[s] = measure_step(memory, step, &shapes[s], &options);
      wrong += isnan(us[s]) ? 1 : 0;
    }
    write_row(report, step ? step->name : ours, wanted, us, step ? step->b200_us : NULL);
  }
  return wrong;
}
