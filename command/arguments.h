/* arguments.h - a command line, read by tables: which options there are, what values they take, where a value goes, and
 * what --help says. Options are "--name VALUE" or "--name=VALUE"; fields, where a command has them, "name=VALUE". */
#ifndef RONDO_ARGUMENTS_H
#define RONDO_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum value_kind {
  VALUE_FLAG, /* bool: the option stands for itself */
  VALUE_TEXT, /* const char * */
  VALUE_INT32,
  VALUE_INT64,
  VALUE_FLOAT,
  VALUE_DOUBLE,
  VALUE_CHOICE, /* int32_t, or an enumeration */
  VALUE_CHOICES /* uint32_t: the option may come several times, and each choice is a bit */
};

struct choice {
  const char *name;
  int32_t value;
};

struct argument {
  const char *name, *help;
  enum value_kind kind;
  size_t offset;                /* in the structure that takes the values */
  double least, most;           /* of a number; both 0: what the type holds */
  const struct choice *choices; /* ends with one without a name */
  const char *value_name;       /* for the value in --help; NULL: N, X, or the choices */
};

struct argument_table {
  const struct argument *items;
  size_t count;
};
#define ARGUMENT_TABLE(array)                                                                                          \
  { (array), sizeof(array) / sizeof *(array) }

struct grammar {
  const char *program; /* "rondo plan" */
  const char *about;   /* what it does, for --help; whole lines */
  const char *status;  /* its exit codes, for --help; NULL: those that all commands have */
  struct argument_table options, fields;
};

enum { SENTENCE_BYTES = 4096 }; /* of one on stderr: what is longer is cut */

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, ARGUMENTS_READ = -1 };

/* Reads the words into the two structures. ARGUMENTS_READ, or the code to exit with: EXIT_OK after --help, and
 * EXIT_USAGE after a sentence on stderr that says what is wrong and what is allowed. */
int arguments_read(const struct grammar *grammar, int count, char **words, void *options, void *fields);

void arguments_help(const struct grammar *grammar, FILE *file);

/* "program: sentence", and where to read more. Returns EXIT_USAGE. */
int arguments_wrong(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The fields as they are typed, " m=4096 k=0", but for those that are zero and were preset to it. */
void arguments_write(const struct argument_table *fields, const void *values, const void *preset, FILE *file);

#endif
