/* status.c - names of statuses, and the sentence about a thread's last failure.
 *
 * The text is kept for each thread, not for each runtime: a failed rondo_open has one too, and two threads on two execs
 * never overwrite each other's. It lies in a static table, so a failure allocates nothing, not even RONDO_BUSY between
 * replays. Thread-local variables would not do: static ones are scarce in a library that dlopen loads, and dynamic ones
 * are allocated at a thread's first access, which ends the process if there is no memory. The entry of a thread is free
 * again when the thread ends. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "status.h"
#include "text.h"

enum { TEXT_BYTES = 512, TEXTS = 4096, TEXTS_A_WORD = 64 };
static char texts[TEXTS][TEXT_BYTES];
static _Atomic uint64_t taken[TEXTS / TEXTS_A_WORD];
/* Of a thread that finds no place. */
static char crowded[] = "this call failed, and so many threads have failed before that no place is left for its text";

/* ---- The thread's place ------------------------------------------------------------------------------------------ */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void text_give(void *text) {
  if (text == crowded) return;
  size_t index = (size_t)((char(*)[TEXT_BYTES])text - texts);
  atomic_fetch_and_explicit(&taken[index / TEXTS_A_WORD], ~(UINT64_C(1) << index % TEXTS_A_WORD), memory_order_release);
}

static void key_make(void) { has_key = pthread_key_create(&key, text_give) == 0; }

/* Before a program that is linked with the library makes keys of its own: glibc takes no memory for the first 32. */
__attribute__((constructor)) static void key_make_early(void) { pthread_once(&key_once, key_make); }

static char *text_take(void) {
  for (size_t word = 0; word < TEXTS / TEXTS_A_WORD; word++) {
    uint64_t seen = atomic_load_explicit(&taken[word], memory_order_relaxed);
    while (~seen) {
      unsigned bit = (unsigned)__builtin_ctzll(~seen);
      if (atomic_compare_exchange_weak_explicit(&taken[word], &seen, seen | UINT64_C(1) << bit, memory_order_acquire,
                                                memory_order_relaxed))
        return texts[word * TEXTS_A_WORD + bit];
    }
  }
  return crowded;
}

static char *text_of_thread(void) {
  pthread_once(&key_once, key_make);
  if (!has_key) return crowded;
  char *text = pthread_getspecific(key);
  if (text && text != crowded) return text;
  text = text_take();
  if (pthread_setspecific(key, text) == 0) return text;
  text_give(text); /* nobody would at the thread's end */
  return crowded;
}

/* ---- Public ------------------------------------------------------------------------------------------------------ */

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

const char *rondo_error_text(void) {
  pthread_once(&key_once, key_make);
  const char *text = has_key ? pthread_getspecific(key) : crowded;
  return text ? text : "";
}

void status_text(const char *format, ...) {
  /* The old text may be among the arguments: callers put a phase and a task before what a callee said. */
  char text[TEXT_BYTES], *kept = text_of_thread();
  if (kept == crowded) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  text_print(kept, TEXT_BYTES, text);
}
