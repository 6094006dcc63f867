/* command_explain.c - rondo explain: shows the kernels of a graph on each chip. */
#include <stdlib.h>
#include <string.h>

#include "command.h"

enum { EVERY_CHIP = -1 };

struct options {
  int32_t chip;
  const char *json;
};

static const struct choice chips[] = {{"host", 0},  {"80", 80},          {"90", 90},
                                      {"100", 100}, {"all", EVERY_CHIP}, {NULL, 0}};

static const struct argument arguments[] = {
    {.name = "chip",
     .help = "compute capability times ten, or host; default all",
     .kind = VALUE_CHOICE,
     .offset = offsetof(struct options, chip),
     .choices = chips},
    JSON_ARGUMENT(struct options),
};

static void write_lines(struct output *output, FILE *report) {
  char *line = NULL;
  size_t bytes = 0;
  while (getline(&line, &bytes, report) > 0) {
    line[strcspn(line, "\n")] = '\0';
    output_print(output, "  %s\n", line);
    json_text(&output->json, NULL, line);
  }
  free(line);
}

static int explain_chip(const struct described *described, const struct choice *chip, struct output *output) {
  char path[MEMORY_PATH_BYTES];
  int code = EXIT_OK;
  FILE *report = memory_file(path);
  if (!report) return EXIT_FAILED;
  if (rondo_explain(described->graph, chip->value, path) != RONDO_OK) code = command_failed("%s", rondo_error_text());
  output_print(output, "%s%s:\n", chip->value ? "sm_" : "", chip->name);
  json_begin(&output->json, NULL, '{');
  json_text(&output->json, "chip", chip->name);
  json_begin(&output->json, "lines", '[');
  write_lines(output, report);
  json_end(&output->json, ']');
  json_end(&output->json, '}');
  fclose(report);
  return code;
}

static int explain(const struct described *described, const void *values) {
  const struct options *options = values;
  struct output output;
  int code = EXIT_OK;
  if (!output_open(&output, options->json)) return EXIT_FAILED;
  output_print(&output, "%s\n", described->text);
  json_begin(&output.json, NULL, '{');
  json_text(&output.json, "graph", described->text);
  json_begin(&output.json, "chips", '[');
  for (const struct choice *chip = chips; chip->value != EVERY_CHIP; chip++)
    if (options->chip == EVERY_CHIP || options->chip == chip->value) code |= explain_chip(described, chip, &output);
  json_end(&output.json, ']');
  json_end(&output.json, '}');
  return output_close(&output) ? code : EXIT_FAILED;
}

int command_explain(int count, char **words) {
  static const struct graph_command command = {
      .name = "explain",
      .about = "Shows the kernels of a ready-made graph: a line for each task and each copy of inputs and outputs, "
               "with grid,\n"
               "block and bytes of shared memory. If a family has several designs, the next line shows the kernel's "
               "design and\n"
               "the reason for it. The last line shows the publication of completion. No GPU is needed.\n",
      .options = ARGUMENT_TABLE(arguments),
      .run = explain};
  return graph_command_run(&command, count, words, &(struct options){.chip = EVERY_CHIP});
}
