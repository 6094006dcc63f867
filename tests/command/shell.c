/* shell.c - see shell.h. */
#include "shell.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *shell_root(void) {
  static char root[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", root, sizeof root - 1);
  cr_assert_gt(length, 0);
  root[length] = '\0';
  for (int i = 0; i < 2; i++) *strrchr(root, '/') = '\0';
  return root;
}

const char *shell_folder(void) {
  static char folder[] = "/tmp/rondo-command-XXXXXX";
  static bool is_made;
  if (!is_made) cr_assert_not_null(mkdtemp(folder));
  is_made = true;
  return folder;
}

void shell_remove_folder(void) {
  char line[PATH_MAX];
  snprintf(line, sizeof line, "rm -rf %s", shell_folder());
  cr_assert_eq(system(line), 0);
}

static void read_into(const char *path, char text[SHELL_TEXT_BYTES]) {
  FILE *file = fopen(path, "r");
  size_t bytes = file ? fread(text, 1, SHELL_TEXT_BYTES - 1, file) : 0;
  text[bytes] = '\0';
  if (file) fclose(file);
}

const char *shell_read(const char *path) {
  static char text[SHELL_TEXT_BYTES];
  read_into(path, text);
  return text;
}

const char *shell_write(const char *name, const char *text) {
  static char paths[4][256], *path;
  static int next;
  path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", shell_folder(), name);
  FILE *file = fopen(path, "w");
  cr_assert_not_null(file);
  fputs(text, file);
  fclose(file);
  return path;
}

int shell_occurrences(const char *text, const char *part) {
  int count = 0;
  for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) count++;
  return count;
}

struct ran shell_run(const char *line) {
  static char out[SHELL_TEXT_BYTES], error[SHELL_TEXT_BYTES];
  char whole[4 * PATH_MAX], out_path[PATH_MAX], error_path[PATH_MAX];
  snprintf(out_path, sizeof out_path, "%s/out", shell_folder());
  snprintf(error_path, sizeof error_path, "%s/error", shell_folder());
  int length = snprintf(whole, sizeof whole, "{ %s ; } >%s 2>%s </dev/null", line, out_path, error_path);
  cr_assert_lt((size_t)length, sizeof whole);
  int status = system(whole);
  read_into(out_path, out);
  read_into(error_path, error);
  return (struct ran){WIFEXITED(status) ? WEXITSTATUS(status) : -1, out, error};
}

struct ran shell_rondo(const char *environment, const char *format, ...) {
  char words[2 * PATH_MAX], line[4 * PATH_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  snprintf(line, sizeof line, "%s %s/bin/rondo %s", environment, shell_root(), words);
  return shell_run(line);
}

/* ---- JSON: RFC 8259, each function returns what follows the value, or NULL with the fault noted ------------------ */

static const char *fault;

static const char *value(const char *at);

static const char *fail(const char *at) {
  if (!fault) fault = at;
  return NULL;
}

static const char *blank(const char *at) { return at + strspn(at, " \n\r\t"); }

static const char *text_value(const char *at) {
  if (*at != '"') return fail(at);
  for (at++; *at != '"'; at++) {
    if ((unsigned char)*at < 32) return fail(at);
    if (*at != '\\') continue;
    at++;
    if (*at == 'u' && strspn(at + 1, "0123456789abcdefABCDEF") >= 4)
      at += 4;
    else if (!*at || !strchr("\"\\/bfnrt", *at))
      return fail(at);
  }
  return at + 1;
}

static const char *number_value(const char *at) {
  const char *begin = at;
  at += *at == '-';
  if (!isdigit((unsigned char)*at) || (*at == '0' && isdigit((unsigned char)at[1]))) return fail(begin);
  at += strspn(at, "0123456789");
  if (*at == '.') {
    if (!isdigit((unsigned char)at[1])) return fail(at);
    at += 1 + strspn(at + 1, "0123456789");
  }
  if (*at != 'e' && *at != 'E') return at;
  at += 1 + (at[1] == '-' || at[1] == '+');
  return isdigit((unsigned char)*at) ? at + strspn(at, "0123456789") : fail(at);
}

static const char *items(const char *at, char end) {
  at = blank(at + 1);
  if (*at == end) return at + 1;
  for (;;) {
    if (end == '}') {
      at = text_value(blank(at));
      if (!at) return NULL;
      at = blank(at);
      if (*at++ != ':') return fail(at);
    }
    at = value(at);
    if (!at) return NULL;
    at = blank(at);
    if (*at == end) return at + 1;
    if (*at++ != ',') return fail(at);
  }
}

static const char *value(const char *at) {
  static const char *const words[] = {"true", "false", "null"};
  at = blank(at);
  if (*at == '{' || *at == '[') return items(at, *at == '{' ? '}' : ']');
  if (*at == '"') return text_value(at);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strncmp(at, words[i], strlen(words[i]))) return at + strlen(words[i]);
  return number_value(at);
}

const char *json_fault(const char *text) {
  fault = NULL;
  const char *end = value(text);
  if (!end) return fault;
  end = blank(end);
  return *end ? end : NULL;
}
