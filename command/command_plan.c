/* command_plan.c - rondo plan: shows the bytes that a graph takes of each pool, and draws its memory plan. */
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
      {"pinned_bytes_per_slot", "of the pinned pool, for each slot", plan->pinned_bytes_per_slot},
      {"pinned_bytes_per_step", "and for each step of its repeats", plan->pinned_bytes_per_step},
      {"host_bytes", "of the host pool", plan->host_bytes},
      {"constant_bytes", "part of device_bytes: constants and states", plan->constant_bytes},
      {"borrowed_bytes", "constants and states of other graphs", plan->borrowed_bytes},
      {"temporary_bytes", "part of device_bytes: the arena of the temporaries", plan->temporary_bytes},
      {"unshared_bytes", "the arena if temporaries shared no memory", plan->unshared_bytes},
      {"lower_bound_bytes", "no plan has a smaller arena", plan->lower_bound_bytes},
      {"task_count", "tasks", plan->task_count},
      {"edge_count", "edges, without those that follow from others", plan->edge_count},
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
                                               .about = "Shows how much of each pool a ready-made graph takes, as "
                                                        "rondo_plan_graph computes it, and draws\n"
                                                        "the plan. No device is opened.\n",
                                               .options = ARGUMENT_TABLE(arguments),
                                               .run = plan};
  return graph_command_run(&command, count, words, &(struct options){0});
}
