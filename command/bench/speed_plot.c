/* speed_plot.c - chooses the points of the pictures of TFLOP/s (speed_plot.h). */
#include "speed_plot.h"

#include <inttypes.h>

#include "panels.h"

/* ---- Attention --------------------------------------------------------------------------------------------------- */

static void add_prompts(struct panels *panels, const struct softmax_results *results, int64_t dimension, bool causal,
                        const char *line) {
  char panel[PANEL_TEXT_BYTES];
  snprintf(panel, sizeof panel, "head dimension %" PRId64 ", %s: TFLOP/s over length", dimension,
           causal ? "causal" : "not causal");
  for (size_t i = 0; i < results->count; i++) {
    const struct softmax_result *result = &results->items[i];
    const struct softmax_case *shape = &result->shape, plain = softmax_case_plain(shape);
    if (shape->kind != SOFTMAX_PREFILL || !softmax_case_equal(&plain, shape)) continue;
    if (shape->dimension != dimension || shape->causal != causal) continue;
    panels_add(panels, panel, line ? line : result->kernel, result->state == SOFTMAX_SUSTAINED,
               (struct panel_point){(double)shape->keys, softmax_case_flops(shape) / result->us / 1e6});
  }
}

bool speed_plot_attention(const char *path, const struct softmax_results *results,
                          const struct softmax_results *rivals) {
  static const int64_t dimensions[] = {128, 128, 64, 64};
  struct panels panels = {0};
  for (int p = 0; p < 4; p++) {
    add_prompts(&panels, results, dimensions[p], p % 2 != 0, "Rondo");
    add_prompts(&panels, rivals, dimensions[p], p % 2 != 0, NULL);
  }
  return panels_write(path, &panels,
                      "Attention of 16384 tokens in bf16; solid lines: after a pause, dashed: under load",
                      results->device);
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

static void add_products(struct panels *panels, const struct kernel_results *results, const char *whose,
                         bool is_dashed) {
  for (size_t i = 0; i < results->count; i++) {
    const struct kernel_case *shape = &results->items[i].shape;
    char panel[PANEL_TEXT_BYTES], line[PANEL_TEXT_BYTES];
    if (shape->count <= KERNEL_MOST_VECTORS || shape->batch != 1) continue;
    snprintf(panel, sizeof panel, "%" PRId64 " x %" PRId64 ": TFLOP/s over vectors", shape->m, shape->k);
    snprintf(line, sizeof line, "%s, %s x %s", whose, rondo_dtype_name(shape->weights),
             rondo_dtype_name(shape->vectors));
    panels_add(panels, panel, line, is_dashed,
               (struct panel_point){(double)shape->count, kernel_case_flops(shape) / results->items[i].us / 1e6});
  }
}

bool speed_plot_products(const char *path, const struct kernel_results *results, const struct kernel_results *rivals) {
  struct panels panels = {0};
  add_products(&panels, results, "Rondo", false);
  add_products(&panels, rivals, "cuBLAS", true);
  return panels_write(path, &panels, "Products with many vectors", results->device);
}
