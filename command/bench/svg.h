/* svg.h - what the pictures of the benches are drawn with. Lengths are tenths of a pixel, so that no number needs a
 * decimal point. */
#ifndef RONDO_SVG_H
#define RONDO_SVG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Lines that can be told apart, also by those who do not see all colours alike; and those behind them. */
enum { SVG_COLOURS = 6 };
extern const char *const svg_colours[SVG_COLOURS];
extern const char svg_grid[];

/* Writes a file by `draw`, which begins with svg_begin. false, with a sentence: it was not written whole. */
bool svg_write(const char *path, void (*draw)(FILE *file, const void *user), const void *user);

/* White, with thin lines and dark letters. */
void svg_begin(FILE *file, int32_t width, int32_t height);
/* anchor: "start", "middle" or "end" is at x. */
void svg_text(FILE *file, int32_t x, int32_t y, int32_t size, const char *anchor, const char *text);
void svg_line(FILE *file, int32_t x1, int32_t y1, int32_t x2, int32_t y2, const char *colour);
/* What it says shows where the pointer rests on it. */
void svg_dot(FILE *file, int32_t x, int32_t y, int32_t radius, const char *colour, const char *title);

#endif
