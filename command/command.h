/* command.h - the commands of `rondo`, and what several of them share: where results go, and how a graph is named. */
#ifndef RONDO_COMMAND_H
#define RONDO_COMMAND_H

#include "json.h"
#include "ready_graphs.h"

/* The words behind the command's own name; the result is the exit code. A new command is a row in rondo.c. */
int command_bench(int count, char **words);
int command_explain(int count, char **words);
int command_info(int count, char **words);
int command_plan(int count, char **words);
int command_profile(int count, char **words);

/* --backend auto|host|cuda, a rondo_backend. */
extern const struct choice backend_choices[];
#define BACKEND_ARGUMENT(options)                                                                                      \
  {                                                                                                                    \
    .name = "backend", .help = "where to run; auto, the default: a GPU if there is one", .kind = VALUE_CHOICE,         \
    .offset = offsetof(options, backend), .choices = backend_choices                                                   \
  }

/* "rondo: sentence" on stderr. Returns EXIT_FAILED. */
int command_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Where results go -------------------------------------------------------------------------------------------- */

/* --json FILE; "-" is stdout, in place of the table. */
#define JSON_ARGUMENT(options)                                                                                         \
  {                                                                                                                    \
    .name = "json", .value_name = "FILE", .help = "JSON too; -: to stdout, and no table", .kind = VALUE_TEXT,          \
    .offset = offsetof(options, json)                                                                                  \
  }

struct output {
  FILE *table;      /* stdout, or NULL */
  struct json json; /* its file may be NULL */
  const char *path;
};

/* For people: nothing if there is no table. */
void output_print(struct output *output, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool output_open(struct output *output, const char *json_path); /* false, with a sentence: it cannot be written */
bool output_close(struct output *output);                       /* false, with a sentence: it was not written whole */

/* The library's reports go to a path: that of a file in memory, to be read back. NULL, with a sentence: there is none.
 */
enum { MEMORY_PATH_BYTES = 64 };
FILE *memory_file(char path[MEMORY_PATH_BYTES]);

/* A line on stderr while something long runs, where that is a terminal. */
void progress(const char *what, size_t done, size_t all);

/* ---- Commands over ready-made graphs ----------------------------------------------------------------------------- */

/* A graph that was described on the command line, and that line again: "gemv m=4096 k=4096". */
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

/* GRAPH [FIELD=VALUE]... [OPTION]...: describes the graph, and runs the command on it. */
int graph_command_run(const struct graph_command *command, int count, char **words, void *options);

#endif
