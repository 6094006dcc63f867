/* report_text.h - a report as text. */
#pragma once

/* A path for a report to write to. */
struct report_file {
  char path[32];
  int descriptor;
};
struct report_file report_file_open(void);
/* The whole text, the caller's to free; the file is gone afterwards. */
char *report_file_read(struct report_file file);

/* How often a text has a part. */
int occurrences(const char *text, const char *part);
