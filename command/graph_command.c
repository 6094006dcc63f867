/* graph_command.c - the common part of explain, plan and profile: reads the description of a ready-made graph from the
 * command line, and runs the command on it (command.h). */
#include <stdlib.h>
#include <string.h>

#include "command.h"

enum { PROGRAM_BYTES = 64 };

static void print_help(const struct graph_command *command, const char *program) {
  arguments_help(
      &(struct grammar){
          .program = program, .words = "GRAPH [FIELD=VALUE]...", .about = command->about, .options = command->options},
      stdout);
  puts("\nGraphs, and the values of fields that are not given (all others are 0):");
  for (size_t i = 0; i < ready_graph_count; i++) {
    printf("  %-13s %s\n  %-13s", ready_graphs[i].name, ready_graphs[i].about, "");
    arguments_write(&ready_graphs[i].fields, &ready_graphs[i].preset, &ready_graphs[i].preset, stdout);
    putchar('\n');
  }
  printf("\n%s GRAPH --help lists the fields of a graph.\n", program);
}

/* The graph's name and its fields. NULL if there is no memory. */
static char *description_text(const struct ready_graph *ready, const union ready_desc *desc) {
  char *text = NULL;
  size_t bytes;
  FILE *file = open_memstream(&text, &bytes);
  if (!file) return NULL;
  fputs(ready->name, file);
  arguments_write(&ready->fields, desc, &ready->preset, file);
  if (fclose(file)) {
    free(text);
    return NULL;
  }
  return text;
}

static int run_on(const struct graph_command *command, const struct ready_graph *ready, const union ready_desc *desc,
                  const void *options) {
  struct described described = {0};
  if (ready_graph_describe(ready, desc, &described.graph, &described.tensors) != RONDO_OK)
    return command_failed("%s", rondo_error_text());
  char *text = description_text(ready, desc);
  described.text = text;
  int code = text ? command->run(&described, options) : command_failed("no memory for the text of the graph");
  free(text);
  rondo_graph_destroy(&described.graph);
  return code;
}

int graph_command_run(const struct graph_command *command, int count, char **words, void *options) {
  char program[PROGRAM_BYTES], with_graph[2 * PROGRAM_BYTES];
  snprintf(program, sizeof program, "rondo %s", command->name);
  if (!count) return arguments_wrong(program, "the graph is missing, expected %s", ready_graph_names);
  if (!strcmp(words[0], "--help")) {
    print_help(command, program);
    return EXIT_OK;
  }
  const struct ready_graph *ready = ready_graph_called(words[0]);
  if (!ready) return arguments_wrong(program, "the graph is '%s', expected %s", words[0], ready_graph_names);
  snprintf(with_graph, sizeof with_graph, "%s %s", program, ready->name);
  struct grammar grammar = {
      .program = with_graph, .about = command->about, .options = command->options, .fields = ready->fields};
  union ready_desc desc = ready->preset;
  int done = arguments_read(&grammar, count - 1, words + 1, options, &desc);
  return done == ARGUMENTS_READ ? run_on(command, ready, &desc, options) : done;
}
