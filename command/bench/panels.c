/* panels.c - draws panels (panels.h). Lengths are tenths of a pixel. */
#include "panels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
  LEFT = 900, /* the frame of the first panel; and the distances from one panel to the next */
  TOP = 1200,
  PANEL_WIDTH = 3700,
  PANEL_HEIGHT = 2900,
  RIGHTWARD = 4600,
  DOWNWARD = 3700,
  LEGEND_UP = 280, /* from the end of the last panel */
  LEGEND_COLUMNS = 3,
  DOT = 36,
  SPEED_STEP = 100,
};

/* ---- Points ------------------------------------------------------------------------------------------------------ */

/* The place of a title in a list. A new one is added; if there is no room, the place is `most`. */
static size_t place_of(char (*titles)[PANEL_TEXT_BYTES], size_t *count, size_t most, const char *title) {
  for (size_t i = 0; i < *count; i++)
    if (!strcmp(titles[i], title)) return i;
  if (*count < most) snprintf(titles[(*count)++], PANEL_TEXT_BYTES, "%s", title);
  return *count && !strcmp(titles[*count - 1], title) ? *count - 1 : most;
}

void panels_add(struct panels *panels, const char *panel, const char *line, bool is_dashed, struct panel_point point) {
  const size_t p = place_of(panels->titles, &panels->panel_count, PANELS_MOST, panel);
  const size_t l = place_of(panels->lines, &panels->line_count, PANEL_LINES_MOST, line);
  if (p == PANELS_MOST || l == PANEL_LINES_MOST) return;
  struct panel_points *points = &panels->points[p][l][is_dashed];
  size_t at = 0;
  while (at < points->count && points->items[at].x < point.x) at++;
  if (at < points->count && points->items[at].x == point.x) {
    points->items[at].speed = fmax(points->items[at].speed, point.speed);
  } else if (points->count < PANEL_POINTS_MOST) {
    memmove(points->items + at + 1, points->items + at, (points->count++ - at) * sizeof point);
    points->items[at] = point;
  }
  panels->least_x = panels->least_x > 0 ? fmin(panels->least_x, point.x) : point.x;
  panels->most_x = fmax(panels->most_x, point.x);
  panels->most_speed = fmax(panels->most_speed, point.speed);
}

/* ---- The picture ------------------------------------------------------------------------------------------------- */

struct drawing {
  const struct panels *panels;
  const char *title, *device;
};

static int32_t left_of(size_t panel) { return LEFT + (int32_t)(panel % 2) * RIGHTWARD; }

static int32_t top_of(size_t panel) { return TOP + (int32_t)(panel / 2) * DOWNWARD; }

static int32_t x_of(const struct panels *panels, size_t panel, double x) {
  return left_of(panel) +
         (int32_t)lround(log(x / panels->least_x) / log(panels->most_x / panels->least_x) * PANEL_WIDTH);
}

static int32_t y_of(const struct panels *panels, size_t panel, double speed) {
  return top_of(panel) + PANEL_HEIGHT - (int32_t)lround(fmin(speed / panels->most_speed, 1) * PANEL_HEIGHT);
}

static void write_axes(FILE *file, const struct panels *panels, size_t panel) {
  const int32_t left = left_of(panel), bottom = top_of(panel) + PANEL_HEIGHT;
  char text[32];
  for (int speed = 0; speed <= (int)panels->most_speed; speed += SPEED_STEP) {
    const int32_t y = y_of(panels, panel, speed);
    svg_line(file, left, y, left + PANEL_WIDTH, y, svg_grid);
    snprintf(text, sizeof text, "%d", speed);
    svg_text(file, left - 80, y + SVG_SMALL / 3, SVG_SMALL, "end", text);
  }
  for (int64_t number = (int64_t)panels->least_x; number <= (int64_t)panels->most_x; number *= 2) {
    const int32_t x = x_of(panels, panel, (double)number);
    svg_line(file, x, top_of(panel), x, bottom, svg_grid);
    snprintf(text, sizeof text, "%" PRId64, number);
    svg_text(file, x, bottom + 2 * SVG_SMALL, SVG_SMALL, "middle", text);
  }
  svg_text(file, left, top_of(panel) - SVG_SMALL, SVG_SMALL, "start", panels->titles[panel]);
}

static int width_of(const struct panels *panels, size_t line) {
  return strncmp(panels->lines[line], "Rondo", 5) == 0 ? 24 : 14;
}

static void write_line(FILE *file, const struct panels *panels, size_t panel, size_t line, bool is_dashed) {
  const struct panel_points *points = &panels->points[panel][line][is_dashed];
  if (!points->count) return;
  fprintf(file, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%d\" %s d=\"", svg_colours[line],
          width_of(panels, line), is_dashed ? "stroke-dasharray=\"60 40\"" : "");
  for (size_t i = 0; i < points->count; i++)
    fprintf(file, "%c%d %d", i ? 'L' : 'M', x_of(panels, panel, points->items[i].x),
            y_of(panels, panel, points->items[i].speed));
  fputs("\"/>\n", file);
  for (size_t i = 0; i < points->count; i++) {
    const struct panel_point *point = &points->items[i];
    char title[PANEL_TEXT_BYTES + 64];
    snprintf(title, sizeof title, "%s, %.0f: %.0f TFLOP/s", panels->lines[line], point->x, point->speed);
    svg_dot(file, x_of(panels, panel, point->x), y_of(panels, panel, point->speed), DOT, svg_colours[line], title);
  }
}

static void draw(FILE *file, const void *user) {
  const struct drawing *drawing = user;
  const struct panels *panels = drawing->panels;
  const int32_t rows = panels->panel_count ? (int32_t)(panels->panel_count + 1) / 2 : 1;
  const int32_t end = TOP + rows * DOWNWARD;
  svg_begin(file, SVG_WIDTH, end + 200, LEFT, drawing->title, drawing->device);
  for (size_t p = 0; p < panels->panel_count; p++) {
    write_axes(file, panels, p);
    for (size_t l = panels->line_count; l-- > 0;) {
      write_line(file, panels, p, l, true);
      write_line(file, panels, p, l, false);
    }
  }
  for (size_t l = 0; l < panels->line_count; l++) {
    const int32_t x = LEFT + (int32_t)l % LEGEND_COLUMNS * 2900,
                  y = end - LEGEND_UP + (int32_t)l / LEGEND_COLUMNS * 260;
    fprintf(file, "<path d=\"M%d %dh240\" stroke=\"%s\" stroke-width=\"%d\"/>\n", x, y, svg_colours[l],
            width_of(panels, l));
    svg_text(file, x + 300, y + SVG_SMALL / 3, SVG_SMALL, "start", panels->lines[l]);
  }
}

bool panels_write(const char *path, struct panels *panels, const char *title, const char *device) {
  panels->most_x = fmax(panels->most_x, 2 * panels->least_x);
  panels->most_speed = ceil(fmin(fmax(panels->most_speed, SPEED_STEP), 1e4) / SPEED_STEP) * SPEED_STEP;
  return svg_write(path, draw, &(struct drawing){panels, title, device});
}
