/* bandwidth_plot.c - draws the picture of products (bandwidth_plot.h). Lengths are tenths of a pixel. */
#include "bandwidth_plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "svg.h"

enum {
  DOT = 40,
  DASH = 70, /* half the width of a dash */
  LEGEND_LEFT = 6500,
  LEGEND_LINE = 220,
  PERCENT_STEP = 20,
  SERIES_MOST = 8,
};

static const char *const colours[SERIES_MOST] = {"#0072b2", "#009e73", "#d55e00", "#b85c9e",
                                                 "#56b4e9", "#806b00", "#000000", "#7f3f00"};

/* The meaning of a point: a product, reading its bytes, or the share to reach. */
enum measure { OURS, READING, MUST };

/* A pair of types. */
struct series {
  rondo_dtype weights, vectors;
};

struct plot {
  const struct kernel_results *results, *rivals;
  int64_t vector_count;           /* of the products in the picture */
  double least_bytes, most_bytes; /* the range of the axis */
  int32_t most_percent;
  struct series series[SERIES_MOST];
  size_t series_count;
};

static bool is_shown(const struct plot *plot, size_t index) {
  const struct kernel_result *result = &plot->results->items[index];
  return result->shape.count == plot->vector_count && result->bound_us > 0;
}

static double bytes_of(const struct plot *plot, size_t index) {
  return (double)kernel_case_bytes(&plot->results->items[index].shape);
}

/* The percentage of the read rate at 1 GB. 0 if there is no such point. */
static double percent_of(const struct plot *plot, size_t index, enum measure measure) {
  const struct kernel_result *result = &plot->results->items[index];
  double us = measure == OURS      ? result->us
              : measure == READING ? result->read_us
                                   : kernel_must_us(plot->results, index, plot->rivals);
  return us > 0 ? 100 * result->bound_us / us : 0;
}

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

static void add_series(struct plot *plot, const struct kernel_case *shape) {
  for (size_t s = 0; s < plot->series_count; s++)
    if (plot->series[s].weights == shape->weights && plot->series[s].vectors == shape->vectors) return;
  if (plot->series_count < SERIES_MOST)
    plot->series[plot->series_count++] = (struct series){shape->weights, shape->vectors};
}

static struct plot plot_of(const struct kernel_results *results, const struct kernel_results *rivals) {
  struct plot plot = {.results = results, .rivals = rivals};
  double least = 0, most = 0, most_percent = 100;
  for (size_t i = 0; i < results->count; i++) {
    int64_t count = results->items[i].shape.count;
    if (!plot.vector_count || count < plot.vector_count) plot.vector_count = count;
  }
  for (size_t i = 0; i < results->count; i++) {
    if (!is_shown(&plot, i)) continue;
    add_series(&plot, &results->items[i].shape);
    least = least > 0 ? fmin(least, bytes_of(&plot, i)) : bytes_of(&plot, i);
    most = fmax(most, bytes_of(&plot, i));
    for (enum measure m = OURS; m <= MUST; m++) most_percent = fmax(most_percent, percent_of(&plot, i, m));
  }
  /* Warm products may be far above the rate of memory. */
  plot.most_percent = (int32_t)ceil(fmin(most_percent, 1000) / PERCENT_STEP) * PERCENT_STEP;
  plot.least_bytes = (least > 0 ? least : 1e5) / 1.5;
  plot.most_bytes = fmax(most, 10 * plot.least_bytes) * 1.5;
  return plot;
}

static int32_t x_of(const struct plot *plot, double bytes) {
  double share = log(bytes / plot->least_bytes) / log(plot->most_bytes / plot->least_bytes);
  return SVG_LEFT + (int32_t)lround(share * (SVG_RIGHT - SVG_LEFT));
}

static int32_t y_of(const struct plot *plot, double percent) {
  double share = fmin(percent, plot->most_percent) / plot->most_percent;
  return SVG_BOTTOM - (int32_t)lround(share * (SVG_BOTTOM - SVG_TOP));
}

/* ---- Axes -------------------------------------------------------------------------------------------------------- */

/* The text of a power of ten: "100 KB", "1 GB". */
static void bytes_text(double bytes, char *text, size_t text_bytes) {
  static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++) bytes /= 1000;
  snprintf(text, text_bytes, "%.0f %s", bytes, units[unit]);
}

static void write_axes(FILE *file, const struct plot *plot) {
  static const char fine[] = "#f2f2f2";
  char text[32];
  for (int32_t percent = 0; percent <= plot->most_percent; percent += PERCENT_STEP) {
    int32_t y = y_of(plot, percent);
    svg_line(file, SVG_LEFT, y, SVG_RIGHT, y, percent == 100 ? "#888888" : svg_grid);
    snprintf(text, sizeof text, "%d %%", percent);
    svg_text(file, SVG_LEFT - 80, y + SVG_SMALL / 3, SVG_SMALL, "end", text);
  }
  for (int power = (int)floor(log10(plot->least_bytes)); power <= (int)log10(plot->most_bytes); power++)
    for (int i = 1; i < 10; i++) {
      double bytes = pow(10, power) * i;
      if (bytes < plot->least_bytes || bytes > plot->most_bytes) continue;
      svg_line(file, x_of(plot, bytes), SVG_TOP, x_of(plot, bytes), SVG_BOTTOM, i == 1 ? svg_grid : fine);
      if (i > 1) continue;
      bytes_text(bytes, text, sizeof text);
      svg_text(file, x_of(plot, bytes), SVG_BOTTOM + 2 * SVG_SMALL, SVG_SMALL, "middle", text);
    }
  svg_line(file, SVG_LEFT, SVG_TOP, SVG_LEFT, SVG_BOTTOM, svg_grid);
  svg_text(file, (SVG_LEFT + SVG_RIGHT) / 2, SVG_BOTTOM + 4 * SVG_SMALL, SVG_SMALL, "middle",
           "bytes that a product must read and write, each once");
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* The points of a line from left to right. series NULL: the points of reading, for all products. */
struct line {
  size_t count, items[KERNEL_CASES_MOST];
};

static void line_add(struct line *line, const struct plot *plot, size_t index) {
  size_t at = line->count++;
  for (; at > 0 && bytes_of(plot, line->items[at - 1]) > bytes_of(plot, index); at--)
    line->items[at] = line->items[at - 1];
  line->items[at] = index;
}

static void line_of(struct line *line, const struct plot *plot, const struct series *series, enum measure measure) {
  line->count = 0;
  for (size_t i = 0; i < plot->results->count; i++) {
    const struct kernel_case *shape = &plot->results->items[i].shape;
    bool is_of = !series || (shape->weights == series->weights && shape->vectors == series->vectors);
    if (is_of && is_shown(plot, i) && percent_of(plot, i, measure) > 0) line_add(line, plot, i);
  }
}

static void write_path(FILE *file, const struct plot *plot, const struct line *line, enum measure measure,
                       const char *colour, const char *style) {
  if (!line->count) return;
  fprintf(file, "<path fill=\"none\" stroke=\"%s\" %s d=\"", colour, style);
  for (size_t i = 0; i < line->count; i++)
    fprintf(file, "%c%d %d", i ? 'L' : 'M', x_of(plot, bytes_of(plot, line->items[i])),
            y_of(plot, percent_of(plot, line->items[i], measure)));
  fputs("\"/>\n", file);
}

static void write_dots(FILE *file, const struct plot *plot, const struct line *line, const char *colour) {
  for (size_t i = 0; i < line->count; i++) {
    const struct kernel_result *result = &plot->results->items[line->items[i]];
    char label[KERNEL_LABEL_BYTES], title[KERNEL_LABEL_BYTES + 64];
    int32_t x = x_of(plot, bytes_of(plot, line->items[i]));
    double percent = percent_of(plot, line->items[i], OURS), must = percent_of(plot, line->items[i], MUST);
    kernel_case_label(&result->shape, label);
    if (must > 0) svg_line(file, x - DASH, y_of(plot, must), x + DASH, y_of(plot, must), colour);
    snprintf(title, sizeof title, "%s: %.2f us, %.0f %%", label, result->us, percent);
    svg_dot(file, x, y_of(plot, percent), DOT, colour, title);
  }
}

/* The legend is at the bottom of the frame. The lines end near the top, where products move many bytes. */
static void write_legend(FILE *file, const struct plot *plot) {
  int32_t y = SVG_BOTTOM - LEGEND_LINE * (int32_t)(plot->series_count + 2);
  for (size_t s = 0; s < plot->series_count + 2; s++, y += LEGEND_LINE) {
    char text[64];
    const char *colour = s < plot->series_count ? colours[s] : "#888888";
    if (s < plot->series_count)
      snprintf(text, sizeof text, "%s x %s", rondo_dtype_name(plot->series[s].weights),
               rondo_dtype_name(plot->series[s].vectors));
    else
      snprintf(text, sizeof text, "%s", s == plot->series_count ? "only reading the same bytes" : "share to reach");
    if (s <= plot->series_count)
      fprintf(file, "<path d=\"M%d %dh360\" stroke=\"%s\" %s/>\n", LEGEND_LEFT, y, colour,
              s < plot->series_count ? "stroke-width=\"20\"" : "stroke-dasharray=\"60 40\" stroke-width=\"14\"");
    else
      svg_line(file, LEGEND_LEFT + 180 - DASH, y, LEGEND_LEFT + 180 + DASH, y, colour);
    if (s < plot->series_count)
      fprintf(file, "<circle cx=\"%d\" cy=\"%d\" r=\"%d\" fill=\"%s\"/>\n", LEGEND_LEFT + 180, y, DOT, colour);
    svg_text(file, LEGEND_LEFT + 480, y + SVG_SMALL / 3, SVG_SMALL, "start", text);
  }
}

static void write_plot(FILE *file, const struct plot *plot) {
  static struct line line;
  char title[256];
  snprintf(title, sizeof title, "Bandwidth of products with %" PRId64 " vector%s, of what reading 1 GB reaches",
           plot->vector_count, plot->vector_count == 1 ? "" : "s");
  svg_begin(file, SVG_WIDTH, SVG_HEIGHT, SVG_LEFT, title, plot->results->device);
  write_axes(file, plot);
  line_of(&line, plot, NULL, READING);
  write_path(file, plot, &line, READING, "#888888", "stroke-dasharray=\"60 40\" stroke-width=\"14\"");
  for (size_t s = 0; s < plot->series_count; s++) {
    line_of(&line, plot, &plot->series[s], OURS);
    write_path(file, plot, &line, OURS, colours[s], "stroke-width=\"20\"");
    write_dots(file, plot, &line, colours[s]);
  }
  write_legend(file, plot);
}

struct drawing {
  const struct kernel_results *results, *rivals;
};

static void draw(FILE *file, const void *user) {
  const struct drawing *drawing = user;
  struct plot plot = plot_of(drawing->results, drawing->rivals);
  write_plot(file, &plot);
}

bool bandwidth_plot_write(const char *path, const struct kernel_results *results, const struct kernel_results *rivals) {
  return svg_write(path, draw, &(struct drawing){results, rivals});
}
