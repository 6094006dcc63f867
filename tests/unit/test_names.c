/* test_names.c - names of tasks, tensors, lanes, kernels and files may be any bytes. A report or an error text that
 * prints one shows no control code, ends no line and stays valid UTF-8, and the legible part of the name is there. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "markup.h"
#include "report_text.h"

/* Every byte but the one that ends a name, in pieces that fit in one; an escape that clears the screen, line ends, C1
 * controls, characters cut off at either end. */
enum { NAMES = 12, BYTES_EACH = 48 };
static const char *names(int i) {
  static const char *const special[] = {"seen \x1b[2J\x1b]0;title\x07 end",
                                        "seen one\nline\r\nand another end",
                                        "seen \xc2\x9b[31m \xc2\x85 \xe2\x82 end",
                                        "seen \x7f\x01\xff\xfe\xc0\x80 end",
                                        "\xac seen end \xf0\x9f\x98",
                                        "seen \xe6\xbc\xa2\xed\xa0\x80 end"};
  enum { SPECIAL = sizeof special / sizeof *special };
  static char name[BYTES_EACH + sizeof "seen  end"];
  if (i < SPECIAL) return special[i];
  char bytes[BYTES_EACH + 1];
  for (int b = 0; b < BYTES_EACH; b++) {
    int byte = (i - SPECIAL) * BYTES_EACH + b + 1;
    bytes[b] = (char)(byte < 256 && byte != '.' ? byte : 'x'); /* a dot would make a group of the name */
  }
  bytes[BYTES_EACH] = '\0';
  snprintf(name, sizeof name, "seen %s end", bytes);
  return name;
}

static int lines_of(const char *text) { return occurrences(text, "\n"); }

static void require_lines(const char *text, const char *what) {
  const char *fault = lines_fault(text);
  cr_assert_null(fault, "%s: byte %#x at %ld of '%s'", what, (unsigned char)(fault ? *fault : 0),
                 fault ? (long)(fault - text) : 0, text);
  cr_assert_not_null(strstr(text, "seen"), "%s: %s", what, text);
}

/* An input that moves, a user's kernel, a copy and an output, all of that name. */
static rondo_graph *graph_of(const char *name) {
  rondo_graph *graph = NULL;
  rondo_tensor in, out, kept;
  int64_t shape[] = {100000};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, name, RONDO_F32, 1, shape, &in));
  REQUIRE_OK(rondo_output(graph, name, RONDO_F32, 1, shape, &out));
  REQUIRE_OK(rondo_state(graph, name, RONDO_F32, 1, shape, &kept));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = name, .src = in, .dst = kept}));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = name, .src = in, .dst = out}));
  return graph;
}

static rondo_status explain_host(rondo_graph *graph, const char *path) { return rondo_explain(graph, 0, path); }
static rondo_status explain_hopper(rondo_graph *graph, const char *path) { return rondo_explain(graph, 90, path); }

static char *written(rondo_status (*report)(rondo_graph *, const char *), rondo_graph *graph) {
  struct report_file file = report_file_open();
  REQUIRE_OK(report(graph, file.path));
  return report_file_read(file);
}

Test(names, every_report_of_a_graph_prints_them_on_their_line) {
  static rondo_status (*const reports[])(rondo_graph *, const char *) = {explain_host, explain_hopper, rondo_write_dot,
                                                                         rondo_write_plan_svg};
  static const char *const called[] = {"explain, host", "explain, 90", "dot", "svg"};
  for (size_t r = 0; r < sizeof reports / sizeof *reports; r++) {
    rondo_graph *plain = graph_of("seen");
    char *text = written(reports[r], plain);
    const int lines = lines_of(text);
    free(text);
    REQUIRE_OK(rondo_graph_destroy(&plain));
    for (int i = 0; i < NAMES; i++) {
      rondo_graph *graph = graph_of(names(i));
      text = written(reports[r], graph);
      require_lines(text, called[r]);
      cr_assert(reports[r] == rondo_write_plan_svg || lines_of(text) == lines, "%s: %s", called[r], text);
      free(text);
      REQUIRE_OK(rondo_graph_destroy(&graph));
    }
  }
}

/* Three about the whole, and two headings with a line after each, all of them apart. */
enum { PROFILE_LINES = 3 + 1 + 2 + 1 + 2 };

Test(names, every_report_of_a_profile_prints_them_on_their_line) {
  for (int i = 0; i < NAMES; i++) {
    rondo_task_profile task = {.operation = names(i), .time_ns = 1};
    rondo_profile_totals totals = {.task_count = 1, .tasks_ns = 1};
    snprintf(task.name, sizeof task.name, "%s", names(i));
    snprintf(totals.device_name, sizeof totals.device_name, "%s", names(i));
    struct report_file table = report_file_open(), trace = report_file_open();
    REQUIRE_OK(rondo_write_profile(&task, &totals, table.path));
    REQUIRE_OK(rondo_write_trace(&task, &totals, trace.path));
    char *text = report_file_read(table);
    require_lines(text, "profile");
    cr_assert_eq(lines_of(text), PROFILE_LINES, "%s", text);
    free(text);
    text = report_file_read(trace);
    require_lines(text, "trace");
    cr_assert_null(json_fault(text), "%s", text);
    free(text);
  }
}

Test(names, an_operation_that_json_would_stumble_over_is_escaped) {
  const rondo_task_profile task = {.operation = "say \"\\\"\n", .time_ns = 1};
  const rondo_profile_totals totals = {.task_count = 1, .tasks_ns = 1};
  struct report_file file = report_file_open();
  REQUIRE_OK(rondo_write_trace(&task, &totals, file.path));
  char *text = report_file_read(file);
  cr_assert_null(json_fault(text), "%s", text);
  cr_assert_not_null(strstr(text, "\"operation\":\"say \\\"\\\\\\\"\xef\xbf\xbd\""), "%s", text);
  free(text);
  const rondo_task_profile nameless = {.time_ns = 1};
  REQUIRE_ERROR(rondo_write_trace(&nameless, &totals, "/tmp/x"), RONDO_INVALID_ARGUMENT, "operation of task 0 is NULL");
  REQUIRE_ERROR(rondo_write_profile(&nameless, &totals, "/tmp/x"), RONDO_INVALID_ARGUMENT, "operation of task 0");
}

static void require_said(rondo_status status, const char *what) {
  cr_assert_neq(status, RONDO_OK, "%s", what);
  require_lines(rondo_error_text(), what);
  cr_assert_null(strchr(rondo_error_text(), '\n'), "%s: %s", what, rondo_error_text());
}

Test(names, every_error_text_prints_them_on_its_line) {
  for (int i = 0; i < NAMES; i++) {
    const char *name = names(i);
    char path[256];
    rondo_graph *graph = graph_of(name);
    rondo_tensor small, large, view;
    rondo_plan plan;
    rondo_runtime *runtime = NULL;
    snprintf(path, sizeof path, "/nonexistent/%s", name);
    REQUIRE_OK(rondo_state(graph, name, RONDO_F32, 1, (int64_t[]){1}, &small));
    REQUIRE_OK(rondo_temporary(graph, name, RONDO_F32, 1, (int64_t[]){2}, &large));
    require_said(rondo_state(graph, name, RONDO_F32, 1, (int64_t[]){-1}, &view), "a tensor");
    require_said(rondo_view(graph, small, (int64_t[]){1}, (int64_t[]){1}, &view), "a view");
    require_said(rondo_reshape(graph, large, 1, (int64_t[]){3}, &view), "a reshape");
    require_said(rondo_add_copy(graph, &(rondo_copy_desc){.name = name, .src = small, .dst = large}), "a task");
    require_said(rondo_write_dot(graph, path), "a path");
    require_said(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                             .lanes = &(rondo_lane){.name = name, .multiprocessors = -1},
                                             .lane_count = 1},
                            &runtime),
                 "a lane");
    require_said(rondo_add_copy(graph, &(rondo_copy_desc){.name = name, .src = large, .dst = large}), "an overlap");
    REQUIRE_OK(rondo_state(graph, name, RONDO_F32, 1, (int64_t[]){2}, &view));
    REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = name, .src = large, .dst = view}));
    require_said(rondo_plan_graph(graph, &plan), "what nothing has written");
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

/* However long a name is, of an error text no character is cut in two. */
Test(names, an_error_text_ends_with_a_whole_character) {
  char path[1024];
  rondo_graph *graph = graph_of("seen");
  for (int shift = 0; shift < 4; shift++) {
    int used = snprintf(path, sizeof path, "/nonexistent/seen%.*s", shift, "...");
    while (used + 4 < (int)sizeof path) used += snprintf(path + used, sizeof path - (size_t)used, "\xe6\xbc\xa2");
    require_said(rondo_write_dot(graph, path), "a long path");
    cr_assert_gt(strlen(rondo_error_text()), 500);
  }
  REQUIRE_OK(rondo_graph_destroy(&graph));
}
