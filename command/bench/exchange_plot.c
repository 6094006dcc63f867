/* exchange_plot.c - draws the picture of an exchange (exchange_plot.h). Lengths are tenths of a pixel. */
#include "exchange_plot.h"

#include <math.h>
#include <stdio.h>

#include "svg.h"

enum {
  DOT = 40,
  LEGEND_LEFT = 1200,
  LEGEND_TOP = 1200,
  LEGEND_LINE = 220,
};

enum engine { RONDO, NCCL, ENGINES };

static const char *const names[ENGINES] = {"Rondo", "NCCL"};

/* The least and the greatest power of two on each axis. */
struct scale {
  int least_bytes, most_bytes, least_us, most_us;
};

static double us_of(const struct exchange_point *point, enum engine engine) {
  return engine == RONDO ? point->us : point->nccl_us;
}

static struct scale scale_of(const struct exchange_plot *plot) {
  double least = 0, most = 0;
  for (size_t i = 0; i < plot->count; i++)
    for (enum engine e = RONDO; e < ENGINES; e++) {
      const double us = us_of(&plot->points[i], e);
      if (us <= 0) continue;
      least = least > 0 ? fmin(least, us) : us, most = fmax(most, us);
    }
  if (least <= 0) return (struct scale){0, 1, 0, 1};
  const struct scale scale = {.least_bytes = (int)floor(log2((double)plot->points[0].bytes)),
                              .most_bytes = (int)ceil(log2((double)plot->points[plot->count - 1].bytes)),
                              .least_us = (int)floor(log2(least)),
                              .most_us = (int)ceil(log2(most))};
  return (struct scale){scale.least_bytes, scale.most_bytes + (scale.most_bytes == scale.least_bytes), scale.least_us,
                        scale.most_us + (scale.most_us == scale.least_us)};
}

static int32_t x_of(const struct scale *scale, double bytes) {
  const double share = (log2(bytes) - scale->least_bytes) / (scale->most_bytes - scale->least_bytes);
  return SVG_LEFT + (int32_t)lround(share * (SVG_RIGHT - SVG_LEFT));
}

static int32_t y_of(const struct scale *scale, double us) {
  const double share = (log2(us) - scale->least_us) / (scale->most_us - scale->least_us);
  return SVG_BOTTOM - (int32_t)lround(share * (SVG_BOTTOM - SVG_TOP));
}

/* 2^power bytes: "4 KB", "1 MB". */
static void bytes_text(int power, char *text, size_t text_bytes) {
  static const char *const units[] = {"B", "KB", "MB", "GB"};
  const int unit = power < 0 ? 0 : power / 10 > 3 ? 3 : power / 10;
  snprintf(text, text_bytes, "%.0f %s", exp2(power - 10 * unit), units[unit]);
}

static void write_axes(FILE *file, const struct scale *scale) {
  char text[32];
  for (int power = scale->least_us; power <= scale->most_us; power++) {
    const int32_t y = y_of(scale, exp2(power));
    svg_line(file, SVG_LEFT, y, SVG_RIGHT, y, svg_grid);
    snprintf(text, sizeof text, "%g us", exp2(power));
    svg_text(file, SVG_LEFT - 80, y + SVG_SMALL / 3, SVG_SMALL, "end", text);
  }
  for (int power = scale->least_bytes; power <= scale->most_bytes; power++) {
    const int32_t x = x_of(scale, exp2(power));
    svg_line(file, x, SVG_TOP, x, SVG_BOTTOM, svg_grid);
    bytes_text(power, text, sizeof text);
    svg_text(file, x, SVG_BOTTOM + 2 * SVG_SMALL, SVG_SMALL, "middle", text);
  }
}

static void write_line(FILE *file, const struct exchange_plot *plot, const struct scale *scale, enum engine engine) {
  char title[64], separator = 'M';
  fprintf(file, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"20\" d=\"", svg_colours[engine]);
  for (size_t i = 0; i < plot->count; i++) {
    const double us = us_of(&plot->points[i], engine);
    if (us <= 0) continue;
    fprintf(file, "%c%d %d", separator, x_of(scale, (double)plot->points[i].bytes), y_of(scale, us));
    separator = 'L';
  }
  fputs("\"/>\n", file);
  for (size_t i = 0; i < plot->count; i++) {
    const double us = us_of(&plot->points[i], engine);
    if (us <= 0) continue;
    snprintf(title, sizeof title, "%s, %lld bytes: %.2f us", names[engine], (long long)plot->points[i].bytes, us);
    svg_dot(file, x_of(scale, (double)plot->points[i].bytes), y_of(scale, us), DOT, svg_colours[engine], title);
  }
}

static void draw(FILE *file, const void *user) {
  const struct exchange_plot *plot = user;
  const struct scale scale = scale_of(plot);
  svg_begin(file, SVG_WIDTH, SVG_HEIGHT, SVG_LEFT, plot->title, plot->device);
  write_axes(file, &scale);
  for (enum engine e = RONDO; e < ENGINES; e++) {
    write_line(file, plot, &scale, e);
    const int32_t y = LEGEND_TOP + LEGEND_LINE * (int32_t)e;
    svg_dot(file, LEGEND_LEFT, y, DOT, svg_colours[e], names[e]);
    svg_text(file, LEGEND_LEFT + 120, y + SVG_SMALL / 3, SVG_SMALL, "start", names[e]);
  }
}

bool exchange_plot_write(const char *path, const struct exchange_plot *plot) { return svg_write(path, draw, plot); }
