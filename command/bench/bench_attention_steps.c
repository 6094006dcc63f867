/* bench_attention_steps.c - measures the kernels of attention_steps.cu (bench_attention_steps.h). Each launch is the
 * library's, with another kernel. */
#include "bench_attention_steps.h"

#include <stdio.h>
#include <string.h>

#include "attention_steps.h"
#include "kernel_case.h"

enum { CASES = 2, TOKENS = 16384, LENGTH = 4096, HEADS = 16 };
static const char *const columns[CASES] = {"all", "causal"};

#define SHARED_BYTES(threads, parts, stages)                                                                           \
  ATTENTION_SHARED_BYTES(ATTENTION_STEPS_DIMENSION, ATTENTION_ROWS(threads, parts), ATTENTION_STEPS_TILE, stages)
#define STEP(name, about, steps, threads, blocks, parts, stages, held)                                                 \
  {about, "attention_" #name, threads, SHARED_BYTES(threads, parts, stages), false},
static const struct step {
  const char *about, *kernel;
  uint32_t threads, shared_bytes;
  bool one_by_one; /* with a causal mask: one head after the other; the library takes several together */
} steps[] = {
    ATTENTION_STEPS(STEP){"heads one after another", "attention_every_step", 128, SHARED_BYTES(128, 2, 2), true}};
enum { STEPS = sizeof steps / sizeof *steps };

static struct softmax_case case_of(int column) {
  return (struct softmax_case){.kind = SOFTMAX_PREFILL,
                               .batch = TOKENS / LENGTH,
                               .heads = HEADS,
                               .kv_heads = HEADS,
                               .queries = LENGTH,
                               .keys = LENGTH,
                               .dimension = ATTENTION_STEPS_DIMENSION,
                               .causal = column == 1};
}

/* Gives the library's launch the step's kernel. Rows of a block and parameters stay the same. */
static void change(const void *user, struct op_launch *launch) {
  const struct step *step = user;
  struct attention_parameters parameters;
  memcpy(&parameters, launch->parameters, sizeof parameters);
  if (step->one_by_one) parameters.section_heads = 1;
  memcpy(launch->parameters, &parameters, sizeof parameters);
  launch->kernel = step->kernel;
  launch->block[0] = step->threads;
  launch->shared_bytes = step->shared_bytes;
}

/* The time in microseconds; 0 if a result is wrong. */
static double measure_step(struct softmax_memory *memory, const struct step *step, const struct softmax_case *shape,
                           uint32_t samples) {
  const struct softmax_options options = {
      .is_portable = true, .is_brief = true, .samples = samples, .change = change, .user = step};
  struct softmax_result results[2];
  char label[SOFTMAX_LABEL_BYTES];
  softmax_case_label(shape, label);
  fprintf(stderr, "attention-steps: %s, %s\n", step->about, label);
  return softmax_measure(memory, shape, &options, results) ? results[0].us : 0;
}

static void write_figure(struct report *report, const struct step *step, bool causal, double us, double speed,
                         const struct bench_use *use) {
  struct json *json = &report->output.json;
  json_begin_line(json, NULL, '{');
  json_text(json, "attention_step", step->about);
  json_whole(json, "dimension", ATTENTION_STEPS_DIMENSION);
  json_flag(json, "causal", causal);
  json_real(json, "us", us);
  json_real(json, "tflops", speed);
  json_whole(json, "registers", (uint64_t)use->registers);
  json_whole(json, "local_bytes", (uint64_t)use->local_bytes);
  json_end(json, '}');
}

/* Measures one line. Returns the number of wrong results. */
static uint32_t measure_line(struct softmax_memory *memory, struct report *report, const struct step *step,
                             const bool wanted[CASES], uint32_t samples) {
  const struct bench_use use = bench_kernel_use(memory->device, step->kernel);
  uint32_t wrong = 0;
  output_print(&report->output, "%-44s", step->about);
  for (int c = 0; c < CASES; c++) {
    const struct softmax_case shape = case_of(c);
    if (!wanted[c]) continue;
    if (step->one_by_one && !shape.causal) {
      output_print(&report->output, "  %10s", "-");
      continue;
    }
    const double us = measure_step(memory, step, &shape, samples);
    if (us > 0) {
      const double speed = softmax_case_flops(&shape) / us / 1e6;
      output_print(&report->output, "  %10.0f", speed);
      write_figure(report, step, shape.causal, us, speed, &use);
    } else {
      output_print(&report->output, "  %10s", "WRONG");
      wrong++;
    }
  }
  output_print(&report->output, "  %12d, %d\n", use.registers, use.local_bytes);
  return wrong;
}

bool attention_steps_label(size_t index, char label[SOFTMAX_LABEL_BYTES]) {
  if (index >= CASES) return false;
  const struct softmax_case shape = case_of((int)index);
  softmax_case_label(&shape, label);
  return true;
}

uint32_t attention_steps_measure(struct softmax_memory *memory, struct report *report, const char *only,
                                 uint32_t samples) {
  char label[SOFTMAX_LABEL_BYTES];
  bool wanted[CASES], is_any_wanted = false;
  uint32_t wrong = 0;
  for (size_t c = 0; attention_steps_label(c, label); c++) {
    wanted[c] = kernel_label_wanted(label, only);
    is_any_wanted |= wanted[c];
  }
  if (!is_any_wanted) return 0;
  output_print(&report->output, "%-44s", "portable attention without a step, TFLOP/s");
  for (int c = 0; c < CASES; c++)
    if (wanted[c]) output_print(&report->output, "  %10s", columns[c]);
  output_print(&report->output, "  registers, spilled bytes\n");
  for (int i = 0; i < STEPS; i++) wrong += measure_line(memory, report, &steps[i], wanted, samples);
  return wrong;
}
