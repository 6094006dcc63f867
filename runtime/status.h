/* status.h - sets the text of rondo_error_text. */
#pragma once

#include <rondo.h>

/* Records the sentence and gives the status back. (A macro, so that a reader of the caller, person or analyser, sees
 * which status that is.) */
#define status_set(status, ...) (status_text(__VA_ARGS__), status_same(status))
void status_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline rondo_status status_same(rondo_status status) { return status; }

/* The end of a noun after a count: "s", or nothing for one. */
#define PLURAL(count) ((count) == 1 ? "" : "s")
