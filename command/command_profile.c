/* command_profile.c - rondo profile: measures each task of a graph on this machine; writes a table, JSON and a
 * trace. */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "room.h"

/* The content of all tensors. In every floating-point type it is a small positive number. As a number of KV rows it is
 * larger than any cache, and so all rows count. */
enum { FILL_BYTE = 0x3c };

struct options {
  rondo_backend backend;
  int32_t passes;
  const char *trace, *json;
};

static const struct argument arguments[] = {
    BACKEND_ARGUMENT(struct options),
    {.name = "passes",
     .help = "passes through all tasks; medians are shown; default 20",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, passes),
     .least = 1,
     .most = 1e6},
    {.name = "trace",
     .help = "write a trace for ui.perfetto.dev or chrome://tracing",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, trace),
     .value_name = "FILE"},
    JSON_ARGUMENT(struct options),
};

/* The profiled exec, and the results. */
struct session {
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  bool has_slot;
  rondo_task_profile *tasks;
  rondo_profile_totals totals;
};

static rondo_status open_session(struct session *session, rondo_graph *graph, rondo_backend backend) {
  rondo_plan plan;
  rondo_status status = rondo_plan_graph(graph, &plan);
  if (status == RONDO_OK)
    status = rondo_open(&(rondo_options){.backend = backend,
                                         .device_bytes = plan.device_bytes,
                                         .pinned_bytes = plan.pinned_bytes_per_slot,
                                         .host_bytes = plan.host_bytes},
                        &session->runtime);
  if (status == RONDO_OK) status = rondo_instantiate(session->runtime, graph, NULL, &session->exec);
  if (status == RONDO_OK) status = rondo_acquire(session->exec, &session->slot);
  session->has_slot = status == RONDO_OK;
  return status;
}

static void close_session(struct session *session) {
  if (session->has_slot) rondo_release(session->slot);
  rondo_close_exec(&session->exec);
  rondo_close(&session->runtime);
  free(session->tasks);
}

/* Fills one tensor: an input or output in the slot, or a constant or state by an upload. */
static rondo_status fill(const struct session *session, rondo_tensor tensor) {
  uint64_t bytes;
  rondo_status status = rondo_tensor_bytes(tensor, &bytes);
  if (status != RONDO_OK) return status;
  void *data = rondo_data(session->slot, tensor);
  if (data) {
    memset(data, FILL_BYTE, bytes);
    return RONDO_OK;
  }
  data = room_take(bytes, "profile");
  memset(data, FILL_BYTE, bytes);
  status = rondo_upload(session->exec, tensor, data, bytes);
  free(data);
  return status;
}

static rondo_status fill_all(const struct session *session, const union ready_tensors *tensors) {
  rondo_status status = RONDO_OK;
  for (int i = 0; i < READY_TENSORS_MOST && status == RONDO_OK; i++)
    if (tensors->each[i].graph) status = fill(session, tensors->each[i]);
  return status;
}

static void tell_progress(void *user, uint32_t done, uint32_t passes) { progress(user, done, passes); }

static rondo_status take_profile(struct session *session, const struct options *options) {
  rondo_exec_usage usage;
  rondo_status status = rondo_exec_info(session->exec, &usage);
  if (status != RONDO_OK) return status;
  session->tasks = room_take((usage.node_count + UINT64_C(1)) * sizeof *session->tasks, "profile");
  return rondo_profile(session->slot,
                       &(rondo_profile_options){.passes = (uint32_t)options->passes,
                                                .progress = tell_progress,
                                                .user = (char[]){"profiling"}},
                       session->tasks, usage.node_count, &session->totals);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static rondo_status write_table(const struct session *session, struct output *output) {
  char path[MEMORY_PATH_BYTES], text[4096];
  FILE *report = memory_file(path);
  if (!report) exit(EXIT_FAILED);
  rondo_status status = rondo_write_profile(session->tasks, &session->totals, path);
  while (fgets(text, sizeof text, report)) output_print(output, "%s", text);
  fclose(report);
  return status;
}

static void write_json(const struct session *session, struct json *json) {
  const rondo_profile_totals *totals = &session->totals;
  json_text(json, "device", totals->device_name);
  json_whole(json, "replay_ns", totals->replay_ns);
  json_whole(json, "launch_ns", totals->launch_ns);
  json_whole(json, "tasks_ns", totals->tasks_ns);
  json_whole(json, "path_ns", totals->path_ns);
  json_whole(json, "bytes_per_second", totals->bytes_per_second);
  json_begin(json, "tasks", '[');
  for (uint32_t i = 0; i < totals->task_count; i++) {
    const rondo_task_profile *task = &session->tasks[i];
    json_begin_line(json, NULL, '{');
    json_text(json, "name", task->name);
    json_text(json, "operation", task->operation);
    json_whole(json, "time_ns", task->time_ns);
    json_whole(json, "begin_ns", task->begin_ns);
    json_whole(json, "bytes", task->bytes);
    json_whole(json, "bus_bytes", task->bus_bytes);
    json_end(json, '}');
  }
  json_end(json, ']');
}

static int profile(const struct described *described, const void *values) {
  const struct options *options = values;
  struct session session = {0};
  struct output output;
  if (!output_open(&output, options->json)) return EXIT_FAILED;
  rondo_status status = open_session(&session, described->graph, options->backend);
  if (status == RONDO_OK) status = fill_all(&session, &described->tensors);
  if (status == RONDO_OK) status = take_profile(&session, options);
  if (status == RONDO_OK && options->trace) status = rondo_write_trace(session.tasks, &session.totals, options->trace);
  output_print(&output, "%s\n", described->text);
  if (status == RONDO_OK) status = write_table(&session, &output);
  json_begin(&output.json, NULL, '{');
  json_text(&output.json, "graph", described->text);
  if (status == RONDO_OK)
    write_json(&session, &output.json);
  else
    command_failed("%s", rondo_error_text());
  json_end(&output.json, '}');
  close_session(&session);
  return output_close(&output) && status == RONDO_OK ? EXIT_OK : EXIT_FAILED;
}

int command_profile(int count, char **words) {
  static const struct graph_command command = {
      .name = "profile",
      .about = "Measures each task of a ready-made graph on this machine, and lists the longest first, with the bytes "
               "that it\n"
               "must move and its share of a copy's bandwidth.\n",
      .options = ARGUMENT_TABLE(arguments),
      .run = profile};
  return graph_command_run(&command, count, words, &(struct options){0});
}
