/* speed_plot.c - draws the picture of attention results (speed_plot.h). Lengths are tenths of a pixel. */
#include "speed_plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "svg.h"

enum {
  WIDTH = 9600,
  HEIGHT = 8800,
  LEFT = 900, /* the frame of the first panel; and the distances from one panel to the next */
  TOP = 1200,
  PANEL_WIDTH = 3700,
  PANEL_HEIGHT = 2900,
  RIGHTWARD = 4600,
  DOWNWARD = 3700,
  DOT = 36,
  SPEED_STEP = 100,
  SERIES_MOST = SVG_COLOURS,
  POINTS_MOST = 16,
};

/* Rondo's results first, then those of every rival. */
struct series {
  const struct softmax_results *results;
  const char *kernel; /* NULL: any */
  const char *title;
};

struct plot {
  struct series series[SERIES_MOST];
  size_t series_count;
  double least_length, most_length, most_speed; /* TFLOP/s */
};

struct panel {
  int64_t dimension;
  bool causal;
  int32_t left, top;
};

static double speed_of(const struct softmax_result *result) {
  return softmax_case_flops(&result->shape) / result->us / 1e6;
}

static bool is_shown(const struct softmax_result *result) {
  struct softmax_case plain = softmax_case_plain(&result->shape);
  return result->shape.kind == SOFTMAX_PREFILL && softmax_case_equal(&plain, &result->shape) &&
         (result->shape.dimension == 64 || result->shape.dimension == 128);
}

/* ---- The contents of the picture --------------------------------------------------------------------------------- */

static void add_series(struct plot *plot, const struct softmax_results *results, const char *kernel,
                       const char *title) {
  for (size_t s = 0; s < plot->series_count; s++)
    if (!strcmp(plot->series[s].title, title)) return;
  if (plot->series_count < SERIES_MOST) plot->series[plot->series_count++] = (struct series){results, kernel, title};
}

static void stretch(struct plot *plot, const struct softmax_results *results) {
  for (size_t i = 0; i < results->count; i++) {
    const struct softmax_result *result = &results->items[i];
    double length = (double)result->shape.keys;
    if (!is_shown(result)) continue;
    plot->least_length = plot->least_length > 0 ? fmin(plot->least_length, length) : length;
    plot->most_length = fmax(plot->most_length, length);
    plot->most_speed = fmax(plot->most_speed, speed_of(result));
  }
}

static struct plot plot_of(const struct softmax_results *results, const struct softmax_results *rivals) {
  struct plot plot = {.most_speed = SPEED_STEP};
  add_series(&plot, results, NULL, "Rondo");
  for (size_t i = 0; i < rivals->count; i++)
    if (is_shown(&rivals->items[i])) add_series(&plot, rivals, rivals->items[i].kernel, rivals->items[i].kernel);
  stretch(&plot, results);
  stretch(&plot, rivals);
  if (plot.least_length <= 0) plot.least_length = 512;
  plot.most_length = fmax(plot.most_length, 2 * plot.least_length);
  plot.most_speed = ceil(fmin(plot.most_speed, 1e4) / SPEED_STEP) * SPEED_STEP;
  return plot;
}

static int32_t x_of(const struct plot *plot, const struct panel *panel, double length) {
  double share = log(length / plot->least_length) / log(plot->most_length / plot->least_length);
  return panel->left + (int32_t)lround(share * PANEL_WIDTH);
}

static int32_t y_of(const struct plot *plot, const struct panel *panel, double speed) {
  return panel->top + PANEL_HEIGHT - (int32_t)lround(fmin(speed / plot->most_speed, 1) * PANEL_HEIGHT);
}

/* ---- Panels ------------------------------------------------------------------------------------------------------ */

static void write_axes(FILE *file, const struct plot *plot, const struct panel *panel) {
  int32_t bottom = panel->top + PANEL_HEIGHT, right = panel->left + PANEL_WIDTH;
  char text[96];
  for (int speed = 0; speed <= (int)plot->most_speed; speed += SPEED_STEP) {
    svg_line(file, panel->left, y_of(plot, panel, speed), right, y_of(plot, panel, speed), svg_grid);
    snprintf(text, sizeof text, "%d", speed);
    svg_text(file, panel->left - 80, y_of(plot, panel, speed) + SVG_SMALL / 3, SVG_SMALL, "end", text);
  }
  for (int64_t length = (int64_t)plot->least_length; length <= (int64_t)plot->most_length; length *= 2) {
    int32_t x = x_of(plot, panel, (double)length);
    svg_line(file, x, panel->top, x, bottom, svg_grid);
    snprintf(text, sizeof text, "%" PRId64, length);
    svg_text(file, x, bottom + 2 * SVG_SMALL, SVG_SMALL, "middle", text);
  }
  snprintf(text, sizeof text, "head dimension %" PRId64 ", %s: TFLOP/s over length", panel->dimension,
           panel->causal ? "causal" : "not causal");
  svg_text(file, panel->left, panel->top - SVG_SMALL, SVG_SMALL, "start", text);
}

/* The fastest result of each length, sorted by length. Returns their number. */
static size_t points_of(const struct series *series, const struct panel *panel, enum softmax_state state,
                        const struct softmax_result *points[POINTS_MOST]) {
  size_t count = 0;
  for (size_t i = 0; i < series->results->count; i++) {
    const struct softmax_result *result = &series->results->items[i];
    if (!is_shown(result) || result->state != state || result->shape.dimension != panel->dimension) continue;
    if (result->shape.causal != panel->causal || (series->kernel && strcmp(series->kernel, result->kernel) != 0))
      continue;
    size_t at = 0;
    while (at < count && points[at]->shape.keys < result->shape.keys) at++;
    if (at < count && points[at]->shape.keys == result->shape.keys) {
      if (speed_of(result) > speed_of(points[at])) points[at] = result;
    } else if (count < POINTS_MOST) {
      memmove(points + at + 1, points + at, (count++ - at) * sizeof *points);
      points[at] = result;
    }
  }
  return count;
}

static void write_series(FILE *file, const struct plot *plot, const struct panel *panel, size_t index,
                         enum softmax_state state) {
  const struct softmax_result *points[POINTS_MOST];
  size_t count = points_of(&plot->series[index], panel, state, points);
  if (!count) return;
  fprintf(file, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%d\" %s d=\"", svg_colours[index], index ? 14 : 24,
          state == SOFTMAX_PAUSE ? "" : "stroke-dasharray=\"60 40\"");
  for (size_t i = 0; i < count; i++)
    fprintf(file, "%c%d %d", i ? 'L' : 'M', x_of(plot, panel, (double)points[i]->shape.keys),
            y_of(plot, panel, speed_of(points[i])));
  fputs("\"/>\n", file);
  for (size_t i = 0; i < count; i++) {
    char title[SOFTMAX_NAME_BYTES + 64];
    double length = (double)points[i]->shape.keys, speed = speed_of(points[i]);
    snprintf(title, sizeof title, "%s, %.0f, %s: %.0f TFLOP/s", plot->series[index].title, length,
             softmax_state_name(state), speed);
    svg_dot(file, x_of(plot, panel, length), y_of(plot, panel, speed), DOT, svg_colours[index], title);
  }
}

static void write_legend(FILE *file, const struct plot *plot) {
  for (size_t s = 0; s < plot->series_count; s++) {
    int32_t x = LEFT + (int32_t)s % 3 * 2900, y = HEIGHT - 480 + (int32_t)s / 3 * 260;
    fprintf(file, "<path d=\"M%d %dh240\" stroke=\"%s\" stroke-width=\"%d\"/>\n", x, y, svg_colours[s], s ? 14 : 24);
    svg_text(file, x + 300, y + SVG_SMALL / 3, SVG_SMALL, "start", plot->series[s].title);
  }
}

struct drawing {
  const struct softmax_results *results, *rivals;
};

static void draw(FILE *file, const void *user) {
  const struct drawing *drawing = user;
  struct plot plot = plot_of(drawing->results, drawing->rivals);
  svg_begin(file, WIDTH, HEIGHT, LEFT,
            "Attention of 16384 tokens in bf16; solid lines: after a pause, dashed: under load",
            drawing->results->device);
  for (int p = 0; p < 4; p++) {
    struct panel panel = {p < 2 ? 128 : 64, p % 2 != 0, LEFT + p % 2 * RIGHTWARD, TOP + p / 2 * DOWNWARD};
    write_axes(file, &plot, &panel);
    for (size_t s = plot.series_count; s-- > 0;) {
      write_series(file, &plot, &panel, s, SOFTMAX_SUSTAINED);
      write_series(file, &plot, &panel, s, SOFTMAX_PAUSE);
    }
  }
  write_legend(file, &plot);
}

bool speed_plot_write(const char *path, const struct softmax_results *results, const struct softmax_results *rivals) {
  return svg_write(path, draw, &(struct drawing){results, rivals});
}
