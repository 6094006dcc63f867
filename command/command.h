/* command.h - the commands of `rondo`, and their shared parts: the output, and the graph that the command line
 * describes. */
#pragma once

#include "json.h"
#include "ready_graphs.h"

/* `words` are those after the command's name. Each function returns the exit code. A new command is a row in
 * rondo.c. */
int command_bench(int count, char **words);
int command_explain(int count, char **words);
int command_info(int count, char **words);
int command_plan(int count, char **words);
int command_profile(int count, char **words);

/* --backend auto|host|cuda, a rondo_backend. */
extern const struct choice backend_choices[];
#define BACKEND_ARGUMENT(options)                                                                                      \
  {                                                                                                                    \
    .name = "backend", .help = "default auto: a GPU if there is one", .kind = VALUE_CHOICE,                            \
    .offset = offsetof(options, backend), .choices = backend_choices                                                   \
  }

/* Returns how many GPUs the driver has, and `most` if it has more. */
int32_t cuda_device_count(int32_t most);

/* Writes "rondo: sentence" to stderr. Returns EXIT_FAILED. */
int command_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Output ------------------------------------------------------------------------------------------------------ */

/* --json FILE. "-" is stdout; the table is then left out. */
#define JSON_ARGUMENT(options)                                                                                         \
  {                                                                                                                    \
    .name = "json", .value_name = "FILE", .help = "write JSON too; -: to stdout, without the table",                   \
    .kind = VALUE_TEXT, .offset = offsetof(options, json)                                                              \
  }

struct output {
  FILE *table;      /* stdout, or NULL */
  struct json json; /* its file may be NULL */
  const char *path;
};

/* Writes to the table, if there is one. */
void output_print(struct output *output, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Both return false after a sentence on stderr: the file cannot be opened, or its text was not written completely. */
bool output_open(struct output *output, const char *json_path);
bool output_close(struct output *output);

/* A file in memory and its path. The library writes a report to the path, and the command reads it back from the file.
 * NULL after a sentence on stderr: there is no such file. */
enum { MEMORY_PATH_BYTES = 64 };
FILE *memory_file(char path[MEMORY_PATH_BYTES]);

/* Shows the progress of long work on stderr, if that is a terminal. */
void progress(const char *what, size_t done, size_t all);

/* ---- Commands over ready-made graphs ----------------------------------------------------------------------------- */

/* A graph that the command line describes. `text` repeats the description: "gemv m=4096 k=4096". */
struct described {
  rondo_graph *graph;
  union ready_tensors tensors;
  const char *text;
};

struct graph_command {
  const char *name;  /* "plan" */
  const char *about; /* for --help; whole lines */
  struct argument_table options;
  int (*run)(const struct described *described, const void *options);
};

/* Reads GRAPH [FIELD=VALUE]... [OPTION]..., describes the graph, and runs the command on it. */
int graph_command_run(const struct graph_command *command, int count, char **words, void *options);
