/* arguments.h - reads a command line by tables. A table's row has the name of an option or field, the type of its
 * value, the offset of the value in a structure, and the text for --help. Options are "--name VALUE" or "--name=VALUE".
 * Fields are "name=VALUE"; only some commands have them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum value_kind {
  VALUE_FLAG, /* bool: the option has no value */
  VALUE_TEXT, /* const char * */
  VALUE_INT32,
  VALUE_INT64,
  VALUE_FLOAT,
  VALUE_DOUBLE,
  VALUE_CHOICE, /* int32_t, or an enumeration */
  VALUE_CHOICES /* uint32_t: the option may be repeated; each choice sets a bit */
};

struct choice {
  const char *name;
  int32_t value;
};

struct argument {
  const char *name, *help;
  enum value_kind kind;
  size_t offset;                /* of the value in the structure */
  double least, most;           /* the range of a number; both 0: the range of the type */
  const struct choice *choices; /* ends with a choice whose name is NULL */
  const char *value_name;       /* the value's name in --help; NULL: N, X, or the choices */
};

struct argument_table {
  const struct argument *items;
  size_t count;
};
#define ARGUMENT_TABLE(array)                                                                                          \
  { (array), sizeof(array) / sizeof *(array) }

struct grammar {
  const char *program; /* "rondo plan" */
  const char *words;   /* "GRAPH", the words before the options, for --help; may be NULL */
  const char *about;   /* the description in --help; whole lines */
  const char *status;  /* the exit codes in --help; NULL: 0, 1 and 2, as for all commands */
  struct argument_table options, fields;
};

enum { SENTENCE_BYTES = 4096 }; /* the most of a sentence on stderr; the rest is cut */

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, ARGUMENTS_READ = -1 };

/* Reads the words into the two structures. Returns ARGUMENTS_READ, or an exit code: EXIT_OK after --help, EXIT_USAGE
 * after a sentence on stderr with the wrong word and the words that are expected. */
int arguments_read(const struct grammar *grammar, int count, char **words, void *options, void *fields);

void arguments_help(const struct grammar *grammar, FILE *file);

/* Writes "program: sentence; see program --help" to stderr. Returns EXIT_USAGE. */
int arguments_wrong(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes the fields as they are typed: " m=4096 k=0". It leaves out a field that is 0 in both structures. */
void arguments_write(const struct argument_table *fields, const void *values, const void *preset, FILE *file);
