/* qr_plot.c - draws the picture of QR results (qr_plot.h). Lengths are tenths of a pixel. */
#include "qr_plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "svg.h"

enum {
  WIDTH = 8200,
  HEIGHT = 9600,
  LEFT = 1000,
  TOP = 1200, /* the top of the first panel; and the distance from one panel to the next */
  PANEL_WIDTH = 6800,
  PANEL_HEIGHT = 3300,
  DOWNWARD = 4000,
  DOT = 30,
  SERIES_MOST = SVG_COLOURS,
  POINTS_MOST = 64,
  SIZE_STEP = 16,
};

/* Rondo's results in each type first, then those of every rival in each type. */
struct series {
  const struct qr_results *results;
  const char *kernel; /* NULL: any */
  rondo_dtype dtype;
  char title[QR_NAME_BYTES + 16];
};

struct plot {
  struct series series[SERIES_MOST];
  size_t series_count;
  double most_size;
  double least_speed, most_speed; /* powers of ten */
  double most_fraction, step;     /* of the lower panel's axis */
};

enum panel { SPEED, FRACTION };

static bool is_shown(const struct qr_result *result) { return !result->is_warm && qr_case_is_plotted(&result->shape); }

/* A rival's result has no bound. It is that of the same case of Rondo, which moves the same bytes. */
static double bound_of(const struct qr_results *ours, const struct qr_result *result) {
  for (size_t i = 0; i < ours->count; i++)
    if (ours->items[i].bound_us > 0 && qr_case_equal(&ours->items[i].shape, &result->shape))
      return ours->items[i].bound_us;
  return result->bound_us;
}

static double speed_of(const struct qr_result *result, double us) { return qr_case_flops(&result->shape) / us / 1e3; }

static double value_of(const struct qr_results *ours, const struct qr_result *result, enum panel panel) {
  return panel == SPEED ? speed_of(result, result->us) : bound_of(ours, result) / result->us;
}

/* ---- The contents of the picture --------------------------------------------------------------------------------- */

static void add_series(struct plot *plot, const struct qr_results *results, const char *kernel, const char *name,
                       rondo_dtype dtype) {
  struct series series = {results, kernel, dtype, ""};
  snprintf(series.title, sizeof series.title, "%s, %s", name, rondo_dtype_name(dtype));
  for (size_t s = 0; s < plot->series_count; s++)
    if (!strcmp(plot->series[s].title, series.title)) return;
  if (plot->series_count < SERIES_MOST) plot->series[plot->series_count++] = series;
}

static void stretch(struct plot *plot, const struct qr_results *ours, const struct qr_results *results) {
  for (size_t i = 0; i < results->count; i++) {
    const struct qr_result *result = &results->items[i];
    if (!is_shown(result)) continue;
    plot->most_size = fmax(plot->most_size, (double)result->shape.n);
    plot->most_fraction = fmax(plot->most_fraction, value_of(ours, result, FRACTION));
    const double speed = speed_of(result, result->us), bound = bound_of(ours, result);
    plot->least_speed = fmin(plot->least_speed, speed);
    plot->most_speed = fmax(plot->most_speed, bound > 0 ? fmax(speed_of(result, bound), speed) : speed);
  }
}

/* The step of about eight lines: 1, 2 or 5 times a power of ten. */
static double step_for(double most) {
  double power = pow(10, floor(log10(most / 8)));
  return most / 8 <= power ? power : most / 8 <= 2 * power ? 2 * power : most / 8 <= 5 * power ? 5 * power : 10 * power;
}

static struct plot plot_of(const struct qr_results *results, const struct qr_results *rivals) {
  struct plot plot = {.most_size = SIZE_STEP, .least_speed = 100, .most_speed = 1000, .most_fraction = 0.01};
  add_series(&plot, results, NULL, "Rondo", RONDO_F32);
  add_series(&plot, results, NULL, "Rondo", RONDO_F64);
  for (size_t i = 0; i < rivals->count; i++)
    if (is_shown(&rivals->items[i]))
      add_series(&plot, rivals, rivals->items[i].kernel, rivals->items[i].kernel, rivals->items[i].shape.dtype);
  stretch(&plot, results, results);
  stretch(&plot, results, rivals);
  plot.least_speed = pow(10, floor(log10(fmax(plot.least_speed, 1))));
  plot.most_speed = pow(10, ceil(log10(fmin(plot.most_speed, 1e6))));
  plot.step = step_for(fmin(plot.most_fraction, 1e6));
  plot.most_fraction = ceil(fmin(plot.most_fraction, 1e6) / plot.step) * plot.step;
  return plot;
}

static int32_t x_of(const struct plot *plot, double size) {
  return LEFT + (int32_t)lround(size / plot->most_size * PANEL_WIDTH);
}

static int32_t bottom_of(enum panel panel) { return TOP + (int32_t)panel * DOWNWARD + PANEL_HEIGHT; }

/* The axis of speeds is logarithmic. */
static int32_t y_of(const struct plot *plot, enum panel panel, double value) {
  const double height = panel == SPEED ? log(value / plot->least_speed) / log(plot->most_speed / plot->least_speed)
                                       : value / plot->most_fraction;
  return bottom_of(panel) - (int32_t)lround(fmax(fmin(height, 1), 0) * PANEL_HEIGHT);
}

/* ---- Panels ------------------------------------------------------------------------------------------------------ */

static void write_height(FILE *file, const struct plot *plot, enum panel panel, double value) {
  const int32_t y = y_of(plot, panel, value);
  char text[32];
  svg_line(file, LEFT, y, LEFT + PANEL_WIDTH, y, svg_grid);
  snprintf(text, sizeof text, panel == SPEED ? "%.0f" : "%.3g", value);
  svg_text(file, LEFT - 80, y + SVG_SMALL / 3, SVG_SMALL, "end", text);
}

static void write_axes(FILE *file, const struct plot *plot, enum panel panel) {
  const int32_t bottom = bottom_of(panel), top = bottom - PANEL_HEIGHT;
  const int decades = (int)lround(log10(plot->most_speed / plot->least_speed));
  char text[96];
  if (panel == FRACTION)
    for (int i = 0; i <= (int)lround(plot->most_fraction / plot->step); i++)
      write_height(file, plot, panel, i * plot->step);
  else
    for (int i = 0; i <= decades; i++) {
      write_height(file, plot, panel, plot->least_speed * pow(10, i));
      if (i < decades) write_height(file, plot, panel, 3 * plot->least_speed * pow(10, i));
    }
  for (int size = 0; size <= (int)plot->most_size; size += SIZE_STEP) {
    svg_line(file, x_of(plot, size), top, x_of(plot, size), bottom, svg_grid);
    snprintf(text, sizeof text, "%d", size);
    svg_text(file, x_of(plot, size), bottom + 2 * SVG_SMALL, SVG_SMALL, "middle", text);
  }
  svg_text(file, LEFT, top - SVG_SMALL, SVG_SMALL, "start",
           panel == SPEED ? "GFLOP/s over n; dashed: the bound, copying the same bytes"
                          : "fraction of the bound over n: time of copying the same bytes / time");
}

/* The fastest result of each size, sorted by size. Returns their number. */
static size_t points_of(const struct series *series, const struct qr_result *points[POINTS_MOST]) {
  size_t count = 0;
  for (size_t i = 0; i < series->results->count; i++) {
    const struct qr_result *result = &series->results->items[i];
    if (!is_shown(result) || result->shape.dtype != series->dtype) continue;
    if (series->kernel && strcmp(series->kernel, result->kernel) != 0) continue;
    size_t at = 0;
    while (at < count && points[at]->shape.n < result->shape.n) at++;
    if (at < count && points[at]->shape.n == result->shape.n) {
      if (result->us < points[at]->us) points[at] = result;
    } else if (count < POINTS_MOST) {
      memmove(points + at + 1, points + at, (count++ - at) * sizeof *points);
      points[at] = result;
    }
  }
  return count;
}

static void write_series(FILE *file, const struct plot *plot, enum panel panel, size_t index) {
  const struct series *series = &plot->series[index];
  const struct qr_results *ours = plot->series[0].results;
  const struct qr_result *points[POINTS_MOST];
  size_t count = points_of(series, points);
  if (!count) return;
  fprintf(file, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%d\" d=\"", svg_colours[index], index < 2 ? 20 : 12);
  for (size_t i = 0; i < count; i++)
    fprintf(file, "%c%d %d", i ? 'L' : 'M', x_of(plot, (double)points[i]->shape.n),
            y_of(plot, panel, value_of(ours, points[i], panel)));
  fputs("\"/>\n", file);
  if (panel == SPEED && series->results == ours) {
    fprintf(file, "<path fill=\"none\" stroke=\"%s\" stroke-dasharray=\"60\" d=\"", svg_colours[index]);
    for (size_t i = 0; i < count; i++)
      fprintf(file, "%c%d %d", i ? 'L' : 'M', x_of(plot, (double)points[i]->shape.n),
              y_of(plot, SPEED, speed_of(points[i], fmax(bound_of(ours, points[i]), 1e-3))));
    fputs("\"/>\n", file);
  }
  for (size_t i = 0; i < count; i++) {
    char title[sizeof series->title + 64];
    double size = (double)points[i]->shape.n;
    snprintf(title, sizeof title, "%s, n = %.0f: %.2f us", series->title, size, points[i]->us);
    svg_dot(file, x_of(plot, size), y_of(plot, panel, value_of(ours, points[i], panel)), DOT, svg_colours[index],
            title);
  }
}

static void write_legend(FILE *file, const struct plot *plot) {
  for (size_t s = 0; s < plot->series_count; s++) {
    int32_t x = LEFT + (int32_t)s % 2 * 3600, y = HEIGHT - 640 + (int32_t)s / 2 * 220;
    fprintf(file, "<path d=\"M%d %dh240\" stroke=\"%s\" stroke-width=\"%d\"/>\n", x, y, svg_colours[s],
            s < 2 ? 20 : 12);
    svg_text(file, x + 300, y + SVG_SMALL / 3, SVG_SMALL, "start", plot->series[s].title);
  }
}

struct drawing {
  const struct qr_results *results, *rivals;
};

static void draw(FILE *file, const void *user) {
  const struct drawing *drawing = user;
  struct plot plot = plot_of(drawing->results, drawing->rivals);
  svg_begin(file, WIDTH, HEIGHT, LEFT, "QR of a thousand n x n matrices: H and tau, cold, in a graph",
            drawing->results->device);
  for (int p = SPEED; p <= FRACTION; p++) {
    write_axes(file, &plot, (enum panel)p);
    for (size_t s = plot.series_count; s-- > 0;) write_series(file, &plot, (enum panel)p, s);
  }
  write_legend(file, &plot);
}

bool qr_plot_write(const char *path, const struct qr_results *results, const struct qr_results *rivals) {
  return svg_write(path, draw, &(struct drawing){results, rivals});
}
