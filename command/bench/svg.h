/* svg.h - functions that draw the benches' pictures as SVG. Lengths are tenths of a pixel, so that no number needs a
 * decimal point. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Colours that readers with colour blindness can tell apart as well. */
enum { SVG_COLOURS = 6 };
extern const char *const svg_colours[SVG_COLOURS];
extern const char svg_grid[];

enum {
  SVG_SMALL = 130, /* sizes of text */
  SVG_LARGE = 190,
  /* a picture with one panel, and the panel's frame */
  SVG_WIDTH = 9600,
  SVG_HEIGHT = 6000,
  SVG_LEFT = 900,
  SVG_TOP = 900,
  SVG_RIGHT = 9300,
  SVG_BOTTOM = 5200,
};

/* Writes a file with `draw`, which must first call svg_begin. Returns false after a sentence on stderr if the file was
 * not written completely. */
bool svg_write(const char *path, void (*draw)(FILE *file, const void *user), const void *user);

/* Begins a picture: a white background, thin lines, dark letters; above the panels a title, and what was measured. */
void svg_begin(FILE *file, int32_t width, int32_t height, int32_t left, const char *title, const char *device);
/* anchor: x is the "start", "middle" or "end" of the text. */
void svg_text(FILE *file, int32_t x, int32_t y, int32_t size, const char *anchor, const char *text);
void svg_line(FILE *file, int32_t x1, int32_t y1, int32_t x2, int32_t y2, const char *colour);
/* A viewer shows the title while the pointer rests on the dot. */
void svg_dot(FILE *file, int32_t x, int32_t y, int32_t radius, const char *colour, const char *title);
