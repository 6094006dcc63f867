/* panels.h - pictures of panels, two a row: lines of TFLOP/s over a number that doubles along the axis. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "svg.h"

enum { PANELS_MOST = 8, PANEL_LINES_MOST = SVG_COLOURS, PANEL_POINTS_MOST = 16, PANEL_TEXT_BYTES = 96 };

struct panel_point {
  double x, speed; /* TFLOP/s */
};

/* A line's points in one panel, by x. */
struct panel_points {
  size_t count;
  struct panel_point items[PANEL_POINTS_MOST];
};

/* Zeros at first. */
struct panels {
  size_t panel_count, line_count;
  char titles[PANELS_MOST][PANEL_TEXT_BYTES], lines[PANEL_LINES_MOST][PANEL_TEXT_BYTES];
  struct panel_points points[PANELS_MOST][PANEL_LINES_MOST][2]; /* of a solid line, and of a dashed one */
  double least_x, most_x, most_speed;
};

/* Adds a point to the panel and the line of these titles, or replaces a slower one at the same x. Those for which there
 * is no room are left out. */
void panels_add(struct panels *panels, const char *panel, const char *line, bool is_dashed, struct panel_point point);

/* Writes an SVG. Lines whose titles begin with "Rondo" are thick. Returns false after a sentence on stderr if the file
 * was not written completely. */
bool panels_write(const char *path, struct panels *panels, const char *title, const char *device);
