/* test_report.c - reports name every task and tensor, stay well-formed whatever the names are, and say why they cannot
 * be written. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "markup.h"
#include "report_text.h"

static rondo_graph *two_copies(void) {
  rondo_graph *graph = NULL;
  rondo_tensor in, middle, out;
  int64_t shape[] = {128, 256}; /* too large to stay in pinned memory */
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "an \"input\" <&>", RONDO_F32, 2, shape, &in));
  REQUIRE_OK(rondo_temporary(graph, "middle", RONDO_F32, 2, shape, &middle));
  REQUIRE_OK(rondo_output(graph, "result", RONDO_F32, 2, shape, &out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = "first", .src = in, .dst = middle}));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = "second", .src = middle, .dst = out}));
  return graph;
}

static char *written(rondo_status (*report)(rondo_graph *, const char *), rondo_graph *graph) {
  struct report_file file = report_file_open();
  REQUIRE_OK(report(graph, file.path));
  return report_file_read(file);
}

static void require_dot(const char *text) {
  const char *fault = dot_fault(text);
  cr_assert_null(fault, "not DOT from byte %ld on", (long)(fault - text));
}

static void require_xml(const char *text) {
  const char *fault = xml_fault(text);
  cr_assert_null(fault, "not XML from byte %ld on", (long)(fault - text));
}

Test(report, dot_names_every_task_and_draws_every_edge) {
  rondo_graph *graph = two_copies();
  char *text = written(rondo_write_dot, graph);
  require_dot(text);
  cr_assert_eq(occurrences(text, "[label=<<table"), 4, "%s", text);
  cr_assert_eq(occurrences(text, " -> "), 3, "%s", text);
  cr_assert_not_null(strstr(text, "<b>first</b></td></tr><tr><td align=\"left\">"));
  cr_assert_not_null(strstr(text, ">copy: reads 128 KiB, writes 128 KiB<"), "%s", text);
  cr_assert_not_null(strstr(text, "label=<&#160;middle 128 KiB>"), "a temporary is on its edge: %s", text);
  cr_assert_not_null(strstr(text, "an &quot;input&quot; &lt;&amp;&gt; [128, 256] f32, 128 KiB, input"), "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* Three inputs that move together, each read by two tasks. */
static rondo_graph *three_inputs(void) {
  static const char *const names[] = {"a", "b", "c"};
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (int i = 0; i < 3; i++) {
    rondo_tensor in, state;
    REQUIRE_OK(rondo_input(graph, names[i], RONDO_F32, 1, (int64_t[]){4 + i}, &in));
    for (int reader = 0; reader < 2; reader++) {
      REQUIRE_OK(rondo_state(graph, "kept", RONDO_F32, 1, (int64_t[]){4 + i}, &state));
      REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = "reader", .src = in, .dst = state}));
    }
  }
  return graph;
}

Test(report, dot_draws_what_moves_together_as_one) {
  rondo_graph *graph = three_inputs();
  char *text = written(rondo_write_dot, graph);
  cr_assert_eq(occurrences(text, "[label=<<table"), 1 + 6, "%s", text);
  cr_assert_eq(occurrences(text, "n0 -> "), 6, "%s", text);
  cr_assert_eq(occurrences(text, " -> "), 6, "%s", text);
  cr_assert_eq(occurrences(text, "f32, 16 B, input<") + occurrences(text, "f32, 20 B, input<") +
                   occurrences(text, "f32, 24 B, input<"),
               3, "%s", text);
  cr_assert_eq(occurrences(text, ", state, written<"), 6, "%s", text);
  free(text);
  text = written(rondo_write_plan_svg, graph);
  cr_assert_eq(occurrences(text, "<title>"), 3 + 6, "three inputs and six states: %s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* ---- Many tasks, and odd names ----------------------------------------------------------------------------------- */

static void no_work(void *user, void *const *data) { (void)user, (void)data; }

static void add_task(rondo_graph *graph, const char *name, rondo_tensor in, rondo_tensor weights, rondo_tensor out) {
  rondo_argument arguments[] = {{.tensor = in, .access = RONDO_READ},
                                {.tensor = weights, .access = RONDO_READ},
                                {.tensor = out, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_kernel(
      graph, &(rondo_kernel_desc){.name = name, .host = no_work, .arguments = arguments, .argument_count = 3}));
}

/* A chain of layers of ten tasks each, whose tensors differ in size. In each name stand the letters of `odd`. */
static rondo_graph *layers(int layer_count, const char *odd) {
  rondo_graph *graph = NULL;
  rondo_tensor in, weights, out;
  char name[128];
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8192, .tasks = 1024}, &graph));
  REQUIRE_OK(rondo_input(graph, "tokens", RONDO_F32, 1, (int64_t[]){40000}, &in));
  for (int task = 0; task < 10 * layer_count; task++) {
    int64_t shape[] = {20000 + 1000 * (task % 10)};
    snprintf(name, sizeof name, "layer%d.weights %d%s", task / 10, task % 10, odd);
    REQUIRE_OK(rondo_constant(graph, name, RONDO_F32, 1, shape, &weights));
    snprintf(name, sizeof name, "layer%d.out %d%s", task / 10, task % 10, odd);
    REQUIRE_OK((task + 1 == 10 * layer_count ? rondo_output : rondo_temporary)(graph, name, RONDO_F32, 1, shape, &out));
    snprintf(name, sizeof name, "layer%d.task %d%s", task / 10, task % 10, odd);
    add_task(graph, name, in, weights, out);
    in = out;
  }
  return graph;
}

/* Every name that the library keeps is cut at 63 bytes, in the middle of a character if need be. */
static const char odd_letters[] =
    "<&>\"'\\]]>{}|%s%n\n\t\x01\x7f\xff\xc3\xa9\xed\xa0\x80\xef\xbf\xbe\xf0\x9f\x98\x80\xe6\xbc\xa2"
    "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2";

Test(report, pictures_are_well_formed_whatever_the_names_are) {
  static const int sizes[] = {1, 4, 30};
  for (int i = 0; i < 3; i++) {
    rondo_graph *graph = layers(sizes[i], odd_letters);
    char *text = written(rondo_write_dot, graph);
    require_dot(text);
    free(text);
    text = written(rondo_write_plan_svg, graph);
    require_xml(text);
    free(text);
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

Test(report, a_name_of_16_thousand_bytes_is_no_worse_than_its_beginning) {
  static char name[16385];
  rondo_graph *graph = NULL;
  rondo_tensor in, out;
  for (size_t i = 0; i + 1 < sizeof name; i++) name[i] = odd_letters[i % (sizeof odd_letters - 1)];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, name, RONDO_F32, 1, (int64_t[]){100000}, &in));
  REQUIRE_OK(rondo_output(graph, name + 1, RONDO_F32, 1, (int64_t[]){100000}, &out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = name + 2, .src = in, .dst = out}));
  char *text = written(rondo_write_dot, graph);
  require_dot(text);
  free(text);
  text = written(rondo_write_plan_svg, graph);
  require_xml(text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, dot_frames_tasks_whose_names_begin_alike) {
  rondo_graph *graph = layers(2, "");
  char *text = written(rondo_write_dot, graph);
  cr_assert_eq(occurrences(text, "subgraph cluster_"), 2, "%s", text);
  cr_assert_not_null(strstr(text, "<b>layer1</b><br align=\"left\"/>10 tasks, constants and states of 957 KiB<br "),
                     "%s", text);
  for (int task = 0; task < 10; task++) {
    char part[64];
    snprintf(part, sizeof part, "<b>task %d</b>", task);
    cr_assert_eq(occurrences(text, part), 2, "each layer has a %s: %s", part, text);
    snprintf(part, sizeof part, ">weights %d [%d] f32, ", task, 20000 + 1000 * task);
    cr_assert_eq(occurrences(text, part), 2, "%s: %s", part, text);
  }
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, dot_draws_many_groups_that_are_alike_once) {
  rondo_graph *graph = layers(30, "");
  char *text = written(rondo_write_dot, graph);
  cr_assert_eq(occurrences(text, "subgraph cluster_"), 2, "the first reads more, the others are alike: %s", text);
  cr_assert_not_null(
      strstr(text, "<b>layer1 \xe2\x80\xa6 layer29: 29 alike, the first is drawn</b><br align=\"left\"/>290 tasks"),
      "%s", text);
  cr_assert_eq(occurrences(text, "red: to the next one alike"), 1, "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, dot_explains_red_only_where_there_is_some) {
  rondo_graph *graph = NULL;
  rondo_tensor in, out;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, (int64_t[]){8}, &in));
  for (int task = 0; task < 40; task++) {
    REQUIRE_OK(rondo_state(graph, "out", RONDO_F32, 1, (int64_t[]){8}, &out));
    add_task(graph, "a name of no group", in, in, out);
  }
  char *text = written(rondo_write_dot, graph);
  cr_assert_eq(occurrences(text, "red: to the next one alike"), 0, "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, dot_names_what_a_task_reads_twice_once) {
  rondo_graph *graph = NULL;
  rondo_tensor in, middle, out;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, (int64_t[]){8}, &in));
  REQUIRE_OK(rondo_temporary(graph, "middle", RONDO_F32, 1, (int64_t[]){8}, &middle));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, (int64_t[]){8}, &out));
  add_task(graph, "first", in, in, middle);
  add_task(graph, "square", middle, middle, out);
  char *text = written(rondo_write_dot, graph);
  cr_assert_eq(occurrences(text, "middle 32 B"), 1, "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* ---- What the plan's picture shows ------------------------------------------------------------------------------- */

Test(report, plan_svg_draws_one_box_a_tensor) {
  rondo_graph *graph = two_copies();
  char *text = written(rondo_write_plan_svg, graph);
  require_xml(text);
  cr_assert_eq(occurrences(text, "<title>"), 3, "%s", text);
  cr_assert_not_null(strstr(text, ">an &quot;input&quot; &lt;&amp;&gt;: input, 131072 bytes at "), "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, plan_svg_shows_every_tensor_of_300_tasks) {
  rondo_graph *graph = layers(30, "");
  char *text = written(rondo_write_plan_svg, graph), part[64];
  for (int task = 0; task < 300; task++) {
    snprintf(part, sizeof part, ">layer%d.out %d: %s, ", task / 10, task % 10, task == 299 ? "output" : "temporary");
    cr_assert_eq(occurrences(text, part), 1, "%s: %s", part, text);
    snprintf(part, sizeof part, "%slayer%d.weights %d%s", task < 10 ? ">" : " ", task / 10, task % 10,
             task < 290 ? "," : ":");
    cr_assert_eq(occurrences(text, part), 1, "%s: %s", part, text);
  }
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

static void add_layer_constant(rondo_graph *graph, const char *name, int64_t elements) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_constant(graph, name, RONDO_F32, 1, &elements, &tensor));
}

/* Beside the bar stand no groups: a piece of its own has its whole name, and of pieces alike what follows the group. */
Test(report, plan_svg_names_constants_so_that_they_differ) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  char name[64];
  for (int layer = 0; layer < 15; layer++) {
    snprintf(name, sizeof name, "layer%d.query.weight", layer);
    add_layer_constant(graph, name, 1000);
    snprintf(name, sizeof name, "layer%d.key.weight", layer);
    add_layer_constant(graph, name, 1000);
  }
  add_layer_constant(graph, "embed.weight", 10000);
  char *text = written(rondo_write_plan_svg, graph);
  cr_assert_not_null(strstr(text, ">15 \xc3\x97 query.weight<"), "%s", text);
  cr_assert_not_null(strstr(text, ">15 \xc3\x97 key.weight<"), "%s", text);
  cr_assert_not_null(strstr(text, ">embed.weight<"), "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

static bool number_of(const char *tag, const char *attribute, double *number) {
  const char *end = strchr(tag, '>'), *at = strstr(tag, attribute);
  if (!at || at > end) return false;
  *number = strtod(at + strlen(attribute), NULL);
  return true;
}

Test(report, plan_svg_keeps_everything_inside_the_picture) {
  static const int sizes[] = {1, 4, 30};
  for (int i = 0; i < 3; i++) {
    rondo_graph *graph = layers(sizes[i], i ? "" : odd_letters);
    char *text = written(rondo_write_plan_svg, graph);
    double width, height;
    cr_assert_eq(sscanf(strstr(text, "viewBox"), "viewBox=\"0 0 %lf %lf\"", &width, &height), 2);
    for (const char *at = strstr(text, "<rect"); at; at = strstr(at + 1, "<rect")) {
      double x = 0, y = 0, w, h;
      number_of(at, " x=\"", &x), number_of(at, " y=\"", &y);
      cr_assert(number_of(at, " width=\"", &w) && number_of(at, " height=\"", &h));
      cr_assert(x >= 0 && y >= 0 && w >= 0 && h >= 0 && x + w <= width && y + h <= height, "%.120s", at);
    }
    for (const char *at = strstr(text, "<text"); at; at = strstr(at + 1, "<text")) {
      double x, y, size;
      cr_assert(number_of(at, " x=\"", &x) && number_of(at, " y=\"", &y) && number_of(at, " font-size=\"", &size));
      cr_assert(x >= 0 && y - size >= 0 && x <= width && y <= height && size >= 90, "%.120s", at);
    }
    free(text);
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

/* Lifetimes and sizes that no placement brings down to the bound: there the arena's line and the bound's are two. */
static rondo_graph *gap(void) {
  enum { STEPS = 14, TENSORS = 15 };
  static const int lives[TENSORS][3] = {{8, 13, 4}, {0, 4, 1}, {8, 11, 1}, {11, 13, 3}, {12, 13, 3},
                                        {9, 10, 4}, {0, 6, 7}, {0, 5, 3},  {4, 10, 1},  {2, 4, 1},
                                        {6, 9, 5},  {6, 8, 7}, {9, 13, 4}, {7, 12, 1},  {10, 13, 5}};
  rondo_graph *graph = NULL;
  rondo_tensor order, tensors[TENSORS];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "order", RONDO_U8, 1, (int64_t[]){1}, &order));
  for (int t = 0; t < TENSORS; t++)
    REQUIRE_OK(rondo_temporary(graph, "t", RONDO_U8, 1, (int64_t[]){INT64_C(256) * lives[t][2]}, &tensors[t]));
  for (int step = 0; step < STEPS; step++) {
    rondo_argument arguments[RONDO_MAX_ARGUMENTS] = {{.tensor = order, .access = RONDO_READ_WRITE}};
    uint32_t count = 1;
    for (int t = 0; t < TENSORS; t++)
      if (lives[t][0] == step || lives[t][1] == step)
        arguments[count++] =
            (rondo_argument){.tensor = tensors[t], .access = lives[t][0] == step ? RONDO_WRITE : RONDO_READ};
    REQUIRE_OK(rondo_add_kernel(
        graph, &(rondo_kernel_desc){.host = no_work, .arguments = arguments, .argument_count = count}));
  }
  return graph;
}

/* The heights of two boxes tell the scale. */
Test(report, plan_svg_draws_the_bound_at_its_height) {
  rondo_graph *graph = gap();
  char *text = written(rondo_write_plan_svg, graph);
  double top_y = 1e9, top_bytes = 0, bottom_y = 0, bound_y, end_y;
  for (const char *at = strstr(text, "<g><rect"); at; at = strstr(at + 1, "<g><rect")) {
    const char *rect = at + strlen("<g>"), *title = strstr(at, "<title>"), *place = strstr(title, " bytes at ");
    unsigned long long bytes, offset;
    double y, h;
    if (!place || place > strstr(title, "</title>")) continue; /* a constant */
    while (place[-1] != ' ') place--;
    cr_assert_eq(sscanf(place, "%llu bytes at %llu", &bytes, &offset), 2, "%s", place);
    cr_assert(number_of(rect, " y=\"", &y) && number_of(rect, " height=\"", &h));
    if (y < top_y) top_y = y, top_bytes = (double)(offset + bytes);
    if (y + h > bottom_y) bottom_y = y + h;
  }
  const char *bound = strstr(text, "<path class=\"bound\" d=\"M900"); /* not the legend's */
  cr_assert_eq(sscanf(bound, "<path class=\"bound\" d=\"M900 %lfL10400 %lf", &bound_y, &end_y), 2, "%s", bound);
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_lt(plan.lower_bound_bytes, plan.temporary_bytes, "a better bound wants another example");
  double expected = bottom_y - (bottom_y - top_y) * (double)plan.lower_bound_bytes / top_bytes;
  cr_assert(bound_y == end_y && bound_y - expected <= 1.5 && expected - bound_y <= 1.5, "at %g, expected %g", bound_y,
            expected);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* ---- Explain, and errors ----------------------------------------------------------------------------------------- */

static rondo_status explain_host(rondo_graph *graph, const char *path) { return rondo_explain(graph, 0, path); }
static rondo_status explain_hopper(rondo_graph *graph, const char *path) { return rondo_explain(graph, 90, path); }

Test(report, explain_says_what_runs_each_task) {
  rondo_graph *graph = two_copies();
  char *text = written(explain_host, graph);
  cr_assert_eq(occurrences(text, "host, "), 4, "%s", text);
  cr_assert_eq(occurrences(text, "completion"), 0, "%s", text);
  free(text);
  text = written(explain_hopper, graph);
  cr_assert_eq(occurrences(text, "rondo_copy"), 4, "%s", text);
  cr_assert_eq(occurrences(text, "completion: rondo_point"), 1, "%s", text);
  free(text);
  REQUIRE_ERROR(rondo_explain(graph, 75, "/tmp/x"), RONDO_INVALID_ARGUMENT, "chip 75");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, explain_shows_what_moves_and_what_publishes_completion) {
  rondo_graph *graph = three_inputs();
  char *text = written(explain_hopper, graph);
  cr_assert_eq(occurrences(text, ": transfer: rondo_transfer grid 3x1x1"), 1, "%s", text);
  cr_assert_eq(occurrences(text, "completion: 6 blocks"), 1, "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(report, an_unwritable_path_is_a_clear_error) {
  rondo_graph *graph = two_copies();
  REQUIRE_ERROR(rondo_write_dot(graph, "/nonexistent/x.dot"), RONDO_IO_ERROR, "'/nonexistent/x.dot' cannot be written");
  REQUIRE_ERROR(rondo_write_dot(graph, NULL), RONDO_INVALID_ARGUMENT, "path is NULL");
  REQUIRE_ERROR(rondo_write_dot(NULL, "/tmp/x"), RONDO_INVALID_ARGUMENT, "graph is NULL");
  REQUIRE_ERROR(rondo_write_plan_svg(graph, "/dev/full"), RONDO_IO_ERROR, "not written whole");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}
