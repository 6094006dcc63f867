/* report_text.c - see report_text.h. */
#include "report_text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct report_file report_file_open(void) {
  struct report_file file = {.path = "/tmp/rondo-report-XXXXXX"};
  file.descriptor = mkstemp(file.path);
  cr_assert_geq(file.descriptor, 0);
  return file;
}

char *report_file_read(struct report_file file) {
  enum { TEXT_BYTES = 1 << 21 };
  char *text = calloc(1, TEXT_BYTES);
  FILE *stream = fdopen(file.descriptor, "r");
  cr_assert_lt(fread(text, 1, TEXT_BYTES, stream), (size_t)TEXT_BYTES);
  fclose(stream);
  unlink(file.path);
  return text;
}

int occurrences(const char *text, const char *part) {
  int count = 0;
  for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) count++;
  return count;
}
