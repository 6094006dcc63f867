/* exchange_plot.h - a picture of an exchange: its time over the bytes, beside NCCL's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exchange_point {
  int64_t bytes;
  double us, nccl_us; /* nccl_us 0: not known */
};

enum { EXCHANGE_POINTS_MOST = 32 };

/* The points rise in bytes. */
struct exchange_plot {
  char title[96], device[64];
  size_t count;
  struct exchange_point points[EXCHANGE_POINTS_MOST];
};

/* Writes an SVG with a line for Rondo and one for NCCL, both axes by powers of two. Returns false after a sentence on
 * stderr if the file was not written completely. */
bool exchange_plot_write(const char *path, const struct exchange_plot *plot);
