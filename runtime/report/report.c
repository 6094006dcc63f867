/* report.c - see report.h. */
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "../planner.h"
#include "../text.h"

/* ---- Files ------------------------------------------------------------------------------------------------------- */

rondo_status report_open(struct report *report, const char *path, const char *function) {
  if (!path) return status_set(RONDO_INVALID_ARGUMENT, "%s: the path is NULL", function);
  *report = (struct report){fopen(path, "w"), path, function};
  if (report->file) return RONDO_OK;
  return status_set(RONDO_IO_ERROR, "%s: '%s' cannot be written: %s", function, path, strerror(errno));
}

rondo_status report_open_plan(struct report *report, rondo_graph *graph, const char *path, const char *function,
                              const struct plan **plan) {
  rondo_status status = graph_check(graph, function);
  if (status != RONDO_OK) return status;
  status = plan_of(graph, plan);
  if (status != RONDO_OK) return status_set(status, "%s: %s", function, rondo_error_text());
  return report_open(report, path, function);
}

rondo_status report_close(const struct report *report) {
  bool failed = ferror(report->file) != 0;
  if (fclose(report->file) || failed)
    return status_set(RONDO_IO_ERROR, "%s: '%s' was not written whole: %s", report->function, report->path,
                      strerror(errno));
  return RONDO_OK;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static int32_t character_width(const char *text) {
  if ((unsigned char)*text >= 0x80) return 110;
  return (*text >= 'A' && *text <= 'Z') || strchr("mw@%&", *text) ? 95 : 64;
}

static void write_character(FILE *file, const char *text, uint32_t bytes) {
  if (bytes == 0)
    fputs(TEXT_REPLACEMENT, file);
  else if (*text == '&')
    fputs("&amp;", file);
  else if (*text == '<')
    fputs("&lt;", file);
  else if (*text == '>')
    fputs("&gt;", file);
  else if (*text == '"')
    fputs("&quot;", file);
  else
    fwrite(text, 1, bytes, file);
}

int32_t report_name_width(const char *name) {
  int32_t width = 0;
  for (uint32_t bytes; *name; name += bytes ? bytes : 1) {
    bytes = text_character_bytes(name);
    width += character_width(name);
  }
  return width;
}

void report_name(FILE *file, const char *name, int32_t width) {
  const int32_t ellipsis = 110;
  bool is_cut = report_name_width(name) > width;
  int32_t left = is_cut ? width - ellipsis : width;
  for (uint32_t bytes; *name; name += bytes ? bytes : 1) {
    bytes = text_character_bytes(name);
    left -= character_width(name);
    if (left < 0) break;
    write_character(file, name, bytes);
  }
  if (is_cut) fputs("\xe2\x80\xa6", file);
}

size_t report_group_length(const char *name) {
  const char *first = strchr(name, '.');
  if (!first || !first[1]) return 0; /* nothing after it */
  for (const char *dot = first; dot && dot[1]; dot = strchr(dot + 1, '.'))
    if (dot > name && dot[-1] >= '0' && dot[-1] <= '9') return (size_t)(dot - name);
  return (size_t)(first - name);
}

const char *report_short_name(const char *name) {
  size_t length = report_group_length(name);
  return length ? name + length + 1 : name;
}

/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

const char *report_bytes(uint64_t bytes, char text[BYTES_TEXT]) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    snprintf(text, BYTES_TEXT, "%" PRIu64 " B", bytes);
    return text;
  }
  int unit = 0;
  while (bytes >> (10 * (unit + 1)) >= 1024) unit++;
  uint64_t whole = bytes >> (10 * (unit + 1)), rest = bytes >> (10 * unit) & 1023;
  uint64_t hundredths = rest * 100 / 1024; /* cut, so that 1023.9 does not become 1024.0 */
  if (whole >= 100 || hundredths == 0 || (whole >= 10 && hundredths < 10))
    snprintf(text, BYTES_TEXT, "%" PRIu64 " %s", whole, units[unit]);
  else if (whole >= 10 || hundredths % 10 == 0)
    snprintf(text, BYTES_TEXT, "%" PRIu64 ".%" PRIu64 " %s", whole, hundredths / 10, units[unit]);
  else
    snprintf(text, BYTES_TEXT, "%" PRIu64 ".%02" PRIu64 " %s", whole, hundredths, units[unit]);
  return text;
}
