/* status.c - status names and the sentence about a thread's last failure.
 *
 * The text is kept per thread and not per runtime, so that a failed rondo_open has one too, and so that two threads on
 * two execs never overwrite each other's. It is static TLS: touching it allocates nothing. */
#include <stdarg.h>
#include <stdio.h>

#include "status.h"
#include "text.h"

static _Thread_local __attribute__((tls_model("initial-exec"))) char error_text[512];

const char *rondo_status_name(rondo_status status) {
  static const char *const names[] = {
      [RONDO_OK] = "RONDO_OK",
      [RONDO_BUSY] = "RONDO_BUSY",
      [RONDO_TIMEOUT] = "RONDO_TIMEOUT",
      [RONDO_INVALID_ARGUMENT] = "RONDO_INVALID_ARGUMENT",
      [RONDO_INVALID_STATE] = "RONDO_INVALID_STATE",
      [RONDO_OUT_OF_MEMORY] = "RONDO_OUT_OF_MEMORY",
      [RONDO_UNSUPPORTED] = "RONDO_UNSUPPORTED",
      [RONDO_NO_DEVICE] = "RONDO_NO_DEVICE",
      [RONDO_DEVICE_ERROR] = "RONDO_DEVICE_ERROR",
      [RONDO_DEVICE_LOST] = "RONDO_DEVICE_LOST",
      [RONDO_IO_ERROR] = "RONDO_IO_ERROR",
      [RONDO_INTERNAL] = "RONDO_INTERNAL",
  };
  size_t index = (size_t)status;
  return index < sizeof names / sizeof *names ? names[index] : "unknown status";
}

const char *rondo_error_text(void) { return error_text; }

void status_text(const char *format, ...) {
  /* The old text may be among the arguments: callers put a phase and a task before what a callee said. */
  char text[sizeof error_text];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  text_print(error_text, sizeof error_text, text);
}
