/* svg.c - draws SVG (svg.h). */
#include "svg.h"

#include <errno.h>
#include <string.h>

#include "../command.h"

const char *const svg_colours[SVG_COLOURS] = {"#d55e00", "#0072b2", "#009e73", "#b85c9e", "#806b00", "#000000"};
const char svg_grid[] = "#dddddd";

static void write_escaped(FILE *file, const char *text) {
  for (; *text; text++)
    if (strchr("&<>\"", *text) || (unsigned char)*text < ' ')
      fprintf(file, "&#%d;", *text >= ' ' ? *text : ' ');
    else
      fputc(*text, file);
}

void svg_text(FILE *file, int32_t x, int32_t y, int32_t size, const char *anchor, const char *text) {
  fprintf(file, "<text x=\"%d\" y=\"%d\" font-size=\"%d\" text-anchor=\"%s\">", x, y, size, anchor);
  write_escaped(file, text);
  fputs("</text>\n", file);
}

void svg_begin(FILE *file, int32_t width, int32_t height, int32_t left, const char *title, const char *device) {
  fprintf(file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
          "font-family=\"sans-serif\" stroke-width=\"10\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
          "<style>text{stroke:none;fill:#222}</style>\n",
          width / 10, height / 10, width, height, width, height);
  svg_text(file, left, 380, SVG_LARGE, "start", title);
  svg_text(file, left, 640, SVG_SMALL, "start", device);
}

void svg_line(FILE *file, int32_t x1, int32_t y1, int32_t x2, int32_t y2, const char *colour) {
  fprintf(file, "<path d=\"M%d %dL%d %d\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour);
}

void svg_dot(FILE *file, int32_t x, int32_t y, int32_t radius, const char *colour, const char *title) {
  fprintf(file, "<circle cx=\"%d\" cy=\"%d\" r=\"%d\" fill=\"%s\"><title>", x, y, radius, colour);
  write_escaped(file, title);
  fputs("</title></circle>\n", file);
}

bool svg_write(const char *path, void (*draw)(FILE *file, const void *user), const void *user) {
  FILE *file = fopen(path, "w");
  if (file) draw(file, user);
  if (file) fputs("</svg>\n", file);
  bool is_written = file && !ferror(file);
  if (file && fclose(file)) is_written = false;
  if (!is_written) command_failed("'%s' cannot be written: %s", path, strerror(errno));
  return is_written;
}
