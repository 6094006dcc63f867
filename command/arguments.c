/* arguments.c - the command line: reading options and fields, the messages about wrong ones, and --help
 * (arguments.h). */
#include "arguments.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/text.h"

enum { HELP_COLUMN = 28, LINE_BYTES = 1024 };

/* ---- Sentences --------------------------------------------------------------------------------------------------- */

int arguments_wrong(const char *program, const char *format, ...) {
  char text[SENTENCE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "%s: ", program);
  text_write(stderr, text, "");
  fprintf(stderr, "; see %s --help\n", program);
  return EXIT_USAGE;
}

static void append(char *text, const char *more) {
  size_t length = strlen(text);
  snprintf(text + length, LINE_BYTES - length, "%s", more);
}

/* The names of all choices, with `between` between two of them and `before_last` before the last one. */
static void list_choices(const struct choice *choices, const char *between, const char *before_last, char *text) {
  *text = '\0';
  for (size_t i = 0; choices[i].name; i++) {
    if (i) append(text, choices[i + 1].name ? between : before_last);
    append(text, choices[i].name);
  }
}

/* "--svg, --dot or --help", or the names of all fields. */
static void list_names(const struct argument_table *table, bool is_options, char *text) {
  *text = '\0';
  for (size_t i = 0; i < table->count; i++) {
    if (i) append(text, is_options || i + 1 < table->count ? ", " : " or ");
    if (is_options) append(text, "--");
    append(text, table->items[i].name);
  }
  if (is_options) append(text, table->count ? " or --help" : "--help");
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static bool is_whole(const struct argument *argument) {
  return argument->kind == VALUE_INT32 || argument->kind == VALUE_INT64;
}

/* Reads a number. False if it is not in the range of the argument, or of its type. */
static bool read_number(const struct argument *argument, const char *text, int64_t *whole, double *number) {
  bool is_bounded = argument->least < argument->most;
  char *end;
  errno = 0;
  if (is_whole(argument)) {
    *whole = strtoll(text, &end, 10);
    *number = (double)*whole;
    if (argument->kind == VALUE_INT32 && (*whole < INT32_MIN || *whole > INT32_MAX)) return false;
  } else {
    *number = argument->kind == VALUE_FLOAT ? (double)strtof(text, &end) : strtod(text, &end);
  }
  if (errno || end == text || *end) return false;
  return !is_bounded || (*number >= argument->least && *number <= argument->most);
}

/* "--" before an option, nothing before a field. */
static const char *dashes(const struct grammar *grammar, const struct argument *argument) {
  const struct argument_table *options = &grammar->options;
  return argument >= options->items && argument < options->items + options->count ? "--" : "";
}

static int wrong_number(const struct grammar *grammar, const struct argument *argument, const char *text) {
  const char *kind = is_whole(argument) ? "a whole number" : "a number";
  if (argument->least < argument->most)
    return arguments_wrong(grammar->program, "%s%s is '%s', expected %s from %.15g to %.15g", dashes(grammar, argument),
                           argument->name, text, kind, argument->least, argument->most);
  return arguments_wrong(grammar->program, "%s%s is '%s', expected %s%s", dashes(grammar, argument), argument->name,
                         text, kind,
                         argument->kind == VALUE_INT32   ? " of 32 bits"
                         : argument->kind == VALUE_INT64 ? " of 64 bits"
                                                         : "");
}

static const struct choice *choice_called(const struct choice *choices, const char *name) {
  for (; choices->name; choices++)
    if (!strcmp(choices->name, name)) return choices;
  return NULL;
}

static int store_choice(const struct grammar *grammar, const struct argument *argument, const char *text, void *value) {
  const struct choice *choice = choice_called(argument->choices, text);
  if (!choice) {
    char list[LINE_BYTES];
    list_choices(argument->choices, ", ", " or ", list);
    return arguments_wrong(grammar->program, "%s%s is '%s', expected %s", dashes(grammar, argument), argument->name,
                           text, list);
  }
  if (argument->kind == VALUE_CHOICES)
    *(uint32_t *)value |= (uint32_t)choice->value;
  else
    *(int32_t *)value = choice->value;
  return ARGUMENTS_READ;
}

static int store(const struct grammar *grammar, const struct argument *argument, const char *text, void *values) {
  void *value = (char *)values + argument->offset;
  int64_t whole = 0;
  double number = 0;
  switch (argument->kind) {
  case VALUE_FLAG:
    *(bool *)value = true;
    return ARGUMENTS_READ;
  case VALUE_TEXT:
    *(const char **)value = text;
    return ARGUMENTS_READ;
  case VALUE_CHOICE:
  case VALUE_CHOICES:
    return store_choice(grammar, argument, text, value);
  case VALUE_INT32:
  case VALUE_INT64:
  case VALUE_FLOAT:
  case VALUE_DOUBLE:
    break;
  }
  if (!read_number(argument, text, &whole, &number)) return wrong_number(grammar, argument, text);
  if (argument->kind == VALUE_INT32) *(int32_t *)value = (int32_t)whole;
  if (argument->kind == VALUE_INT64) *(int64_t *)value = whole;
  if (argument->kind == VALUE_FLOAT) *(float *)value = (float)number;
  if (argument->kind == VALUE_DOUBLE) *(double *)value = number;
  return ARGUMENTS_READ;
}

static bool is_zero(const struct argument *field, const void *values) {
  const void *value = (const char *)values + field->offset;
  switch (field->kind) {
  case VALUE_TEXT:
    return !*(const char *const *)value;
  case VALUE_INT64:
    return *(const int64_t *)value == 0;
  case VALUE_FLOAT:
    return *(const float *)value == 0;
  case VALUE_DOUBLE:
    return *(const double *)value == 0;
  default:
    return *(const int32_t *)value == 0;
  }
}

void arguments_write(const struct argument_table *fields, const void *values, const void *preset, FILE *file) {
  for (size_t i = 0; i < fields->count; i++) {
    const struct argument *field = &fields->items[i];
    const void *value = (const char *)values + field->offset;
    if (!field->choices && is_zero(field, values) && is_zero(field, preset)) continue;
    if (field->kind == VALUE_TEXT) {
      fprintf(file, " %s=", field->name);
      text_write(file, *(const char *const *)value, "");
    }
    if (field->kind == VALUE_INT32) fprintf(file, " %s=%" PRId32, field->name, *(const int32_t *)value);
    if (field->kind == VALUE_INT64) fprintf(file, " %s=%" PRId64, field->name, *(const int64_t *)value);
    if (field->kind == VALUE_FLOAT) fprintf(file, " %s=%.9g", field->name, (double)*(const float *)value);
    if (field->kind == VALUE_DOUBLE) fprintf(file, " %s=%.17g", field->name, *(const double *)value);
    for (const struct choice *choice = field->choices; choice && choice->name; choice++)
      if (*(const int32_t *)value == choice->value) fprintf(file, " %s=%s", field->name, choice->name);
  }
}

/* The value as --help shows it: "FILE", "N", "f16|bf16". */
static void value_text(const struct argument *argument, char *text) {
  *text = '\0';
  if (argument->value_name)
    append(text, argument->value_name);
  else if (argument->choices)
    list_choices(argument->choices, "|", "|", text);
  else if (argument->kind != VALUE_FLAG)
    append(text, is_whole(argument) ? "N" : argument->kind == VALUE_TEXT ? "TEXT" : "X");
}

/* ---- The words of the command line ------------------------------------------------------------------------------- */

static const struct argument *argument_called(const struct argument_table *table, const char *name, size_t length) {
  for (size_t i = 0; i < table->count; i++)
    if (strlen(table->items[i].name) == length && !memcmp(table->items[i].name, name, length)) return &table->items[i];
  return NULL;
}

/* Reads the option at words[*at]. If its value is the next word, *at moves to that word. */
static int read_option(const struct grammar *grammar, int count, char **words, int *at, void *options) {
  const char *name = words[*at] + 2, *equals = strchr(name, '=');
  size_t length = equals ? (size_t)(equals - name) : strlen(name);
  const struct argument *option = argument_called(&grammar->options, name, length);
  if (!option) {
    char list[LINE_BYTES];
    list_names(&grammar->options, true, list);
    return arguments_wrong(grammar->program, "unknown option '--%.*s', expected %s", (int)length, name, list);
  }
  if (option->kind == VALUE_FLAG && equals)
    return arguments_wrong(grammar->program, "--%s has the value '%s', expected none", option->name, equals + 1);
  if (option->kind == VALUE_FLAG) return store(grammar, option, NULL, options);
  if (!equals && *at + 1 == count) {
    char value[LINE_BYTES];
    value_text(option, value);
    return arguments_wrong(grammar->program, "--%s has no value, expected %s", option->name, value);
  }
  return store(grammar, option, equals ? equals + 1 : words[++*at], options);
}

static int read_field(const struct grammar *grammar, const char *word, void *fields) {
  const char *equals = strchr(word, '=');
  if (!grammar->fields.count || !equals)
    return arguments_wrong(grammar->program, "unexpected argument '%s'%s", word,
                           grammar->fields.count ? ", expected FIELD=VALUE or an option" : ", expected an option");
  const struct argument *field = argument_called(&grammar->fields, word, (size_t)(equals - word));
  if (field) return store(grammar, field, equals + 1, fields);
  char list[LINE_BYTES];
  list_names(&grammar->fields, false, list);
  return arguments_wrong(grammar->program, "unknown field '%.*s', expected %s", (int)(equals - word), word, list);
}

int arguments_read(const struct grammar *grammar, int count, char **words, void *options, void *fields) {
  for (int i = 0; i < count; i++) {
    if (!strcmp(words[i], "--help")) {
      arguments_help(grammar, stdout);
      return EXIT_OK;
    }
    bool is_option = !strncmp(words[i], "--", 2);
    int done = is_option ? read_option(grammar, count, words, &i, options) : read_field(grammar, words[i], fields);
    if (done != ARGUMENTS_READ) return done;
  }
  return ARGUMENTS_READ;
}

/* ---- Help -------------------------------------------------------------------------------------------------------- */

/* "--samples N", or "m=N". */
static void typed_text(const struct argument *argument, bool is_option, char *text) {
  char value[LINE_BYTES];
  value_text(argument, value);
  snprintf(text, LINE_BYTES, "%s%s%s", is_option ? "--" : "", argument->name,
           !is_option                     ? "="
           : argument->kind == VALUE_FLAG ? ""
                                          : " ");
  append(text, value);
}

static void help_line(FILE *file, const char *typed, const char *help) {
  fprintf(file, "  %-*s", HELP_COLUMN, typed);
  if (strlen(typed) >= HELP_COLUMN) fprintf(file, "\n  %*s", HELP_COLUMN, "");
  fprintf(file, "%s\n", help);
}

void arguments_help(const struct grammar *grammar, FILE *file) {
  char text[LINE_BYTES];
  fprintf(file, "usage: %s%s%s", grammar->program, grammar->words ? " " : "", grammar->words ? grammar->words : "");
  if (grammar->fields.count) fputs(" [FIELD=VALUE]...", file);
  for (size_t i = 0; i < grammar->options.count; i++) {
    typed_text(&grammar->options.items[i], true, text);
    fprintf(file, " [%s]", text);
  }
  fprintf(file, "\n\n%s\n", grammar->about);
  if (grammar->fields.count) fputs("Fields:\n", file);
  for (size_t i = 0; i < grammar->fields.count; i++) {
    typed_text(&grammar->fields.items[i], false, text);
    help_line(file, text, grammar->fields.items[i].help);
  }
  if (grammar->fields.count) fputs("\nOptions:\n", file);
  for (size_t i = 0; i < grammar->options.count; i++) {
    typed_text(&grammar->options.items[i], true, text);
    help_line(file, text, grammar->options.items[i].help);
  }
  help_line(file, "--help", "show this text");
  fprintf(file, "\n%s\n",
          grammar->status ? grammar->status
                          : "Exit status: 0 success, 1 failure, 2 wrong usage; the reason is on standard error.");
}
