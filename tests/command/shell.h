/* shell.h - runs the programs of this build as a person does, and keeps what they print. */
#pragma once

#include <criterion/criterion.h>

enum { SHELL_TEXT_BYTES = 1 << 18 };

/* What one run left; static memory of the next run. */
struct ran {
  int code; /* its exit status; -1 if it died otherwise */
  const char *out, *error;
};

/* The folder that holds bin/, samples/, fake/ and this program's tests/. */
const char *shell_root(void);
/* A folder of this test's own, made when first asked for. */
const char *shell_folder(void);
void shell_remove_folder(void);

/* "rondo WORDS"; before it `environment`, such as "A=b ", which may be empty. */
struct ran shell_rondo(const char *environment, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Any command line. */
struct ran shell_run(const char *line);

/* Ends the test, with all that was printed, unless the run's exit status is this. */
#define REQUIRE_CODE(ran, expected)                                                                                    \
  cr_assert_eq((ran).code, (expected), "exit status %d\n%s\n%s", (ran).code, (ran).out, (ran).error)

/* A whole file, as text; "" if there is none. */
const char *shell_read(const char *path);
/* A file of the test's folder, and its path: static memory of the fourth such file after it. */
const char *shell_write(const char *name, const char *text);
/* How often one text stands in another. */
int shell_occurrences(const char *text, const char *part);

/* Where the text stops being one JSON value; NULL: nowhere. */
const char *json_fault(const char *text);
