/* command_plan.c - rondo plan: what a graph takes of each pool, and pictures of it. */
#include <inttypes.h>

#include "command.h"

struct options {
  const char *svg, *dot, *json;
};

static const struct argument arguments[] = {
    {.name = "svg",
     .help = "draw the memory plan",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, svg),
     .value_name = "FILE"},
    {.name = "dot",
     .help = "write the graph for Graphviz",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, dot),
     .value_name = "FILE"},
    JSON_ARGUMENT(struct options),
};

static void write_plan(const struct described *described, const rondo_plan *plan, struct output *output) {
  const struct {
    const char *name, *about;
    uint64_t value;
  } figures[] = {
      {"device_bytes", "of the device pool, for any number of slots", plan->device_bytes},
      {"pinned_bytes_per_slot", "of the pinned pool, times the slots", plan->pinned_bytes_per_slot},
      {"host_bytes", "of the host pool", plan->host_bytes},
      {"constant_bytes", "of device_bytes: constants and states", plan->constant_bytes},
      {"borrowed_bytes", "constants and states of other graphs", plan->borrowed_bytes},
      {"temporary_bytes", "of device_bytes: the arena of all else", plan->temporary_bytes},
      {"unshared_bytes", "that arena if no bytes were shared", plan->unshared_bytes},
      {"lower_bound_bytes", "no arena can be smaller", plan->lower_bound_bytes},
      {"task_count", "tasks", plan->task_count},
      {"edge_count", "edges that are left to say", plan->edge_count},
  };
  output_print(output, "%s\n", described->text);
  json_begin(&output->json, NULL, '{');
  json_text(&output->json, "graph", described->text);
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
    output_print(output, "  %-22s %14" PRIu64 "  %s\n", figures[i].name, figures[i].value, figures[i].about);
    json_whole(&output->json, figures[i].name, figures[i].value);
  }
  json_end(&output->json, '}');
}

static int plan(const struct described *described, const void *values) {
  const struct options *options = values;
  struct output output;
  rondo_plan numbers;
  if (rondo_plan_graph(described->graph, &numbers) != RONDO_OK ||
      (options->svg && rondo_write_plan_svg(described->graph, options->svg) != RONDO_OK) ||
      (options->dot && rondo_write_dot(described->graph, options->dot) != RONDO_OK))
    return command_failed("%s", rondo_error_text());
  if (!output_open(&output, options->json)) return EXIT_FAILED;
  write_plan(described, &numbers, &output);
  return output_close(&output) ? EXIT_OK : EXIT_FAILED;
}

int command_plan(int count, char **words) {
  static const struct graph_command command = {.name = "plan",
                                               .about = "Plans a ready-made graph and prints what rondo_plan_graph "
                                                        "says: how much of each pool it takes. No device is\n"
                                                        "opened.\n",
                                               .options = ARGUMENT_TABLE(arguments),
                                               .run = plan};
  return graph_command_run(&command, count, words, &(struct options){0});
}
