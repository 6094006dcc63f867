/* report_plan.c - the memory plan as a picture: the arena with time across and bytes up, one box a buffer, and a bar of
 * what lives across replays beside it. Lengths are in tenths of a pixel, so that no number needs a decimal point, which
 * is a comma in some locales. */
#include <inttypes.h>
#include <string.h>

#include "report.h"

enum {
  WIDTH = 12800,
  HEIGHT = 7200,
  HEIGHT_WITHOUT_NAMES = 6400,
  LEFT = 900, /* the arena's frame */
  TOP = 1250,
  RIGHT = 10400,
  BOTTOM = 5900,
  HEADROOM = 260, /* in the frame above the arena: for the names of two lines */
  BAR_LEFT = 11250,
  BAR_RIGHT = 12500,
  SMALL = 100, /* sizes of letters */
  LARGE = 190,
  LEAST_NAME = 90,
  MARGIN = 30, /* of a name in its box */
  TILTED_NAME_WIDTH = 1150,
  LEAST_ROOM = 140, /* between tilted names */
};

enum colour { INPUT, OUTPUT, CONSTANT, STATE, TEMPORARY, SCRATCH, COLOURS };
static const struct {
  const char *colour, *name;
} kinds[COLOURS] = {[INPUT] = {"#8fb5dd", "input"},         [OUTPUT] = {"#86c586", "output"},
                    [CONSTANT] = {"#b3a5d6", "constant"},   [STATE] = {"#e39ab5", "state"},
                    [TEMPORARY] = {"#f6bd84", "temporary"}, [SCRATCH] = {"#c4beb8", "a task's scratch"}};

struct drawn_box {
  int32_t x, y, width, height;
};

/* What the frame shows. */
struct scale {
  uint64_t node_count, bytes; /* at least 1 */
};

static int32_t x_of(const struct scale *scale, uint64_t node) {
  return LEFT + (int32_t)((RIGHT - LEFT) * node / scale->node_count);
}

static int32_t y_of(const struct scale *scale, uint64_t bytes) {
  return BOTTOM - (int32_t)((unsigned __int128)(BOTTOM - TOP - HEADROOM) * bytes / scale->bytes);
}

static void write_text(FILE *file, int32_t x, int32_t y, int32_t size, const char *attributes, const char *text) {
  fprintf(file, "<text x=\"%d\" y=\"%d\" font-size=\"%d\"%s%s>", x, y, size, *attributes ? " " : "", attributes);
  report_name(file, text, REPORT_NAME_WHOLE);
  fputs("</text>\n", file);
}

static void write_line(FILE *file, int32_t x1, int32_t y1, int32_t x2, int32_t y2, const char *style) {
  fprintf(file, "<path class=\"%s\" d=\"M%d %dL%d %d\"/>\n", style, x1, y1, x2, y2);
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

/* ---- Boxes ------------------------------------------------------------------------------------------------------- */

/* A name as large as fits, lying or standing; none where it could not be read. Below it the bytes, where there is room.
 */
static void write_box_name(FILE *file, struct drawn_box box, const char *name, uint64_t bytes) {
  const int32_t least_width = 250, line = SMALL * 13 / 10;
  bool stands = box.height > box.width && report_name_width(name) * LEAST_NAME / 100 > box.width - 2 * MARGIN;
  int32_t length = (stands ? box.height : box.width) - 2 * MARGIN, thickness = stands ? box.width : box.height;
  int32_t size = smaller(thickness * 6 / 10, LARGE * 8 / 10), width = report_name_width(name);
  if (width > 0 && size > LEAST_NAME) { /* rather small than cut */
    int32_t fitting = (int32_t)((int64_t)length * 100 / width);
    size = smaller(size, fitting < LEAST_NAME ? LEAST_NAME : fitting);
  }
  if (size < LEAST_NAME || length < least_width) return;
  bool has_bytes = !stands && box.height > size + 2 * line && length > 700;
  int32_t x = stands ? box.x + box.width / 2 + size / 3 : box.x + MARGIN;
  int32_t y = stands ? box.y + box.height - MARGIN : box.y + box.height / 2 + size / 3 - (has_bytes ? line / 2 : 0);
  fprintf(file, "<text x=\"%d\" y=\"%d\" font-size=\"%d\"", x, y, size);
  if (stands) fprintf(file, " transform=\"rotate(-90 %d %d)\"", x, y);
  fputc('>', file);
  report_name(file, name, (int32_t)((int64_t)length * 100 / size));
  fputs("</text>", file);
  char text[BYTES_TEXT];
  if (has_bytes) write_text(file, x, y + line, SMALL, "", report_bytes(bytes, text));
}

/* A box up to the begin of its explanation, and the part after it. */
static void begin_box(FILE *file, struct drawn_box box, enum colour colour) {
  fprintf(file, "<g><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"%s/><title>", box.x, box.y, box.width,
          box.height, kinds[colour].colour, box.height < 40 ? " class=\"thin\"" : "");
}

static void end_box(FILE *file, struct drawn_box box, const char *name, uint64_t bytes) {
  fputs("</title>", file);
  write_box_name(file, box, name, bytes);
  fputs("</g>\n", file);
}

static void write_buffers(FILE *file, const rondo_graph *graph, const struct plan *plan, const struct scale *scale) {
  static const enum colour of_kind[] = {
      [TENSOR_INPUT] = INPUT, [TENSOR_OUTPUT] = OUTPUT, [TENSOR_TEMPORARY] = TEMPORARY};
  for (uint32_t b = 0; b < plan->buffer_count; b++) {
    const struct plan_buffer *buffer = &plan->buffers[b];
    if (!buffer->bytes) continue;
    enum colour colour = buffer->is_scratch ? SCRATCH : of_kind[graph->tensors[buffer->index].kind];
    const char *name = buffer->is_scratch ? graph->tasks[buffer->index].name : graph->tensors[buffer->index].name;
    int32_t x = x_of(scale, buffer->first_node), y = y_of(scale, buffer->offset + buffer->bytes);
    struct drawn_box box = {x, y, x_of(scale, buffer->last_node + UINT64_C(1)) - x, y_of(scale, buffer->offset) - y};
    begin_box(file, box, colour);
    report_name(file, name, REPORT_NAME_WHOLE);
    fprintf(file, ": %s, %" PRIu64 " bytes at %" PRIu64, kinds[colour].name, buffer->bytes, buffer->offset);
    end_box(file, box, report_short_name(name), buffer->bytes); /* the groups stand above the frame */
  }
}

/* ---- Axes -------------------------------------------------------------------------------------------------------- */

/* A power of two, of which some four to eight make the whole. */
static uint64_t round_step(uint64_t bytes) {
  uint64_t step = 1;
  while (bytes / step > 8) step *= 2;
  return step;
}

static void write_byte_axis(FILE *file, const struct scale *scale, int32_t left, int32_t right) {
  char text[BYTES_TEXT];
  uint64_t step = round_step(scale->bytes);
  for (uint64_t bytes = 0; bytes <= scale->bytes; bytes += step) {
    int32_t y = y_of(scale, bytes);
    write_line(file, left, y, right, y, "grid");
    write_text(file, left - 60, y + 35, SMALL, "text-anchor=\"end\"", report_bytes(bytes, text));
  }
}

/* Without the group's, which stands above the frame. */
static const char *node_name(const rondo_graph *graph, const struct plan_node *node, char name[NAME_BYTES]) {
  if (node->kind == NODE_TASK) return report_short_name(graph->tasks[node->index].name);
  plan_node_name(graph, node, name);
  return name;
}

/* For a node's name. */
static int32_t room_of(const struct plan *plan) {
  return plan->node_count ? (RIGHT - LEFT) / (int32_t)plan->node_count : RIGHT - LEFT;
}

/* The tasks' names, lying where all fit, else tilted, else none: then there are the groups' above. */
static void write_node_names(FILE *file, const rondo_graph *graph, const struct plan *plan, const struct scale *scale) {
  char name[NAME_BYTES];
  int32_t widest = 0, room = room_of(plan);
  if (room < LEAST_ROOM) return;
  for (uint32_t n = 0; n < plan->node_count; n++) {
    int32_t width = report_name_width(node_name(graph, &plan->nodes[n], name));
    if (width > widest) widest = width;
  }
  bool lies = widest <= (room - 60) * 100 / SMALL;
  for (uint32_t n = 0; n < plan->node_count; n++) {
    int32_t x = x_of(scale, n) + room / 2, y = BOTTOM + (lies ? 330 : 300);
    fprintf(file, "<text x=\"%d\" y=\"%d\" font-size=\"%d\"", x, y, SMALL);
    if (lies)
      fputs(" text-anchor=\"middle\">", file);
    else
      fprintf(file, " text-anchor=\"end\" transform=\"rotate(-45 %d %d)\">", x, y);
    report_name(file, node_name(graph, &plan->nodes[n], name), TILTED_NAME_WIDTH * 100 / SMALL);
    fputs("</text>\n", file);
  }
}

static void write_node_axis(FILE *file, const struct plan *plan, const struct scale *scale, int32_t height) {
  static const uint32_t factors[] = {2, 5, 10};
  uint32_t step = 1;
  for (uint32_t decade = 1, i = 0; plan->node_count / step > 10; decade *= i == 2 ? 10 : 1, i = (i + 1) % 3)
    step = decade * factors[i];
  for (uint64_t n = 0; n < plan->node_count; n += step) {
    char number[24];
    int32_t x = (x_of(scale, n) + x_of(scale, n + 1)) / 2;
    snprintf(number, sizeof number, "%" PRIu64, n);
    write_line(file, x, BOTTOM, x, BOTTOM + 50, "axis");
    write_text(file, x, BOTTOM + 160, SMALL, "text-anchor=\"middle\" fill=\"#666\"", number);
  }
  write_text(file, RIGHT, height - 60, SMALL, "text-anchor=\"end\" fill=\"#666\"",
             "time: tasks and copies in the order of the plan \xe2\x86\x92");
}

/* The name of the group that a node is of, and its length. */
static const char *group_name(const rondo_graph *graph, const struct plan_node *node, size_t *length) {
  const char *name = node->kind == NODE_TASK ? graph->tasks[node->index].name : "";
  *length = report_group_length(name);
  return name;
}

/* Stripes for groups of tasks that follow each other, with their names above where there is room. */
static void write_groups(FILE *file, const rondo_graph *graph, const struct plan *plan, const struct scale *scale) {
  int32_t free_from = LEFT;
  uint32_t stripes = 0;
  for (uint32_t n = 0, end; n < plan->node_count; n = end) {
    size_t length, next_length;
    const char *name = group_name(graph, &plan->nodes[n], &length);
    for (end = n + 1; end < plan->node_count && length; end++) {
      const char *next = group_name(graph, &plan->nodes[end], &next_length);
      if (next_length != length || memcmp(next, name, length) != 0) break;
    }
    if (!length) continue;
    int32_t x = x_of(scale, n);
    if (stripes++ % 2 == 0)
      fprintf(file, "<path class=\"stripe\" d=\"M%d %dH%dV%dH%d\"/>\n", x, TOP, x_of(scale, end), BOTTOM, x);
    char text[NAME_BYTES] = {0};
    memcpy(text, name, length);
    int32_t width = report_name_width(text) * SMALL / 100;
    if (x < free_from || x + width > RIGHT) continue;
    write_line(file, x, TOP - 150, x, TOP, "axis");
    write_text(file, x + 30, TOP - 60, SMALL, "fill=\"#666\"", text);
    free_from = x + width + 100;
  }
}

/* ---- What lives across replays ----------------------------------------------------------------------------------- */

static bool is_resident_root(const rondo_graph *graph, uint32_t index, enum tensor_kind kind) {
  const struct tensor *tensor = &graph->tensors[index];
  return tensor->root == index && tensor->kind == kind && tensor_bytes(tensor) > 0;
}

/* In a bar of many tensors, those whose names differ in their groups only are one piece: "key weights x 30". */
static bool are_one_piece(const rondo_graph *graph, uint32_t first, uint32_t other) {
  const struct tensor *a = &graph->tensors[first], *b = &graph->tensors[other];
  return is_resident_root(graph, other, a->kind) && report_group_length(a->name) && report_group_length(b->name) &&
         !strcmp(report_short_name(a->name), report_short_name(b->name));
}

struct bar {
  FILE *file;
  const rondo_graph *graph;
  struct scale scale;
  uint32_t resident_count;
  uint64_t offset;
};

static bool is_merged(const struct bar *bar) { return bar->resident_count > 24 && bar->resident_count <= 8192; }

static bool is_in_earlier_piece(const struct bar *bar, uint32_t tensor) {
  if (!is_merged(bar)) return false;
  for (uint32_t i = 0; i < tensor; i++)
    if (is_resident_root(bar->graph, i, bar->graph->tensors[tensor].kind) && are_one_piece(bar->graph, i, tensor))
      return true;
  return false;
}

/* The piece that begins with a tensor. */
static void write_piece(struct bar *bar, uint32_t first) {
  const struct tensor *tensor = &bar->graph->tensors[first];
  uint32_t count = 1;
  uint64_t bytes = tensor_bytes(tensor);
  for (uint32_t t = first + 1; t < bar->graph->tensor_count && is_merged(bar); t++) {
    if (!are_one_piece(bar->graph, first, t)) continue;
    count++;
    bytes += tensor_bytes(&bar->graph->tensors[t]);
  }
  struct drawn_box box = {BAR_LEFT, y_of(&bar->scale, bar->offset + bytes), BAR_RIGHT - BAR_LEFT, 0};
  box.height = y_of(&bar->scale, bar->offset) - box.y;
  bar->offset += bytes;
  begin_box(bar->file, box, tensor->kind == TENSOR_CONSTANT ? CONSTANT : STATE);
  report_name(bar->file, tensor->name, REPORT_NAME_WHOLE);
  for (uint32_t t = first + 1; t < bar->graph->tensor_count && count > 1; t++) {
    if (!are_one_piece(bar->graph, first, t)) continue;
    fputs(", ", bar->file);
    report_name(bar->file, bar->graph->tensors[t].name, REPORT_NAME_WHOLE);
  }
  fprintf(bar->file, ": %s%s, %" PRIu64 " bytes", tensor->lender_serial ? "borrowed " : "",
          tensor_kind_name(tensor->kind), bytes);
  char name[NAME_BYTES + 16];
  bool fits = report_name_width(tensor->name) * LEAST_NAME / 100 <= box.width - 2 * MARGIN;
  if (count > 1) /* at the begin, where nothing is cut */
    snprintf(name, sizeof name, "%u \xc3\x97 %s", count, report_short_name(tensor->name));
  else
    snprintf(name, sizeof name, "%s", fits ? tensor->name : report_short_name(tensor->name));
  end_box(bar->file, box, name, bytes);
}

/* Constants below, states above. */
static void write_bar(FILE *file, const rondo_graph *graph) {
  struct bar bar = {file, graph, {1, 0}, 0, 0};
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    if (!is_resident_root(graph, t, TENSOR_CONSTANT) && !is_resident_root(graph, t, TENSOR_STATE)) continue;
    bar.scale.bytes += tensor_bytes(&graph->tensors[t]);
    bar.resident_count++;
  }
  char total[BYTES_TEXT];
  int32_t middle = (BAR_LEFT + BAR_RIGHT) / 2;
  write_text(file, middle, TOP + 20, SMALL * 12 / 10, "text-anchor=\"middle\"", "constants and states");
  write_text(file, middle, TOP + 180, SMALL * 12 / 10, "text-anchor=\"middle\"",
             bar.scale.bytes ? report_bytes(bar.scale.bytes, total) : "none");
  if (!bar.scale.bytes) return;
  write_byte_axis(file, &bar.scale, BAR_LEFT, BAR_RIGHT);
  static const enum tensor_kind upwards[] = {TENSOR_CONSTANT, TENSOR_STATE};
  for (int i = 0; i < 2; i++)
    for (uint32_t t = 0; t < graph->tensor_count; t++)
      if (is_resident_root(graph, t, upwards[i]) && !is_in_earlier_piece(&bar, t)) write_piece(&bar, t);
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static void write_head(FILE *file, const rondo_plan *plan, int32_t height) {
  char arena[BYTES_TEXT], bound[BYTES_TEXT], unshared[BYTES_TEXT], text[256];
  fprintf(
      file,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-family=\"Helvetica, Arial, sans-serif\" fill=\"#222\">\n"
      "<style>g rect{stroke:#fff;stroke-width:5}g .thin{stroke:none}.grid{stroke:#ddd;stroke-width:6}.axis{stroke:#999;"
      "stroke-width:8}.frame{fill:none;stroke:#999;stroke-width:8}.stripe{fill:#f4f4f4}.bound{stroke:#c0392b;"
      "stroke-width:14;stroke-dasharray:60 40}g "
      "text{fill:#111}.halo{paint-order:stroke;stroke:#fff;stroke-width:40;stroke-linejoin:round}</style>\n"
      "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
      WIDTH / 10, height / 10, WIDTH, height, WIDTH, height);
  write_text(file, LEFT, 330, LARGE, "font-weight=\"bold\"", "Memory plan");
  snprintf(text, sizeof text, "%u task%s in an arena of %s; lower bound %s; without sharing %s", plan->task_count,
           PLURAL(plan->task_count), report_bytes(plan->temporary_bytes, arena),
           report_bytes(plan->lower_bound_bytes, bound), report_bytes(plan->unshared_bytes, unshared));
  write_text(file, LEFT, 560, SMALL * 14 / 10, "", text);
}

static void write_legend(FILE *file) {
  const int32_t y = 720, size = SMALL * 12 / 10;
  int32_t x = LEFT;
  for (int i = 0; i < COLOURS; i++) {
    fprintf(file, "<rect x=\"%d\" y=\"%d\" width=\"120\" height=\"120\" fill=\"%s\"/>\n", x, y, kinds[i].colour);
    write_text(file, x + 170, y + 105, size, "", kinds[i].name);
    x += 420 + report_name_width(kinds[i].name) * size / 100;
  }
  write_line(file, x, y + 60, x + 300, y + 60, "bound");
  write_text(file, x + 350, y + 105, size, "", "lower bound: no placement needs less");
}

static void write_bound(FILE *file, const rondo_plan *plan, const struct scale *scale) {
  char bytes[BYTES_TEXT], text[BYTES_TEXT + 32];
  if (!plan->temporary_bytes) return;
  int32_t bound = y_of(scale, plan->lower_bound_bytes), arena = y_of(scale, plan->temporary_bytes);
  write_line(file, LEFT, arena, RIGHT, arena, "axis");
  write_line(file, LEFT, bound, RIGHT, bound, "bound");
  snprintf(text, sizeof text, "arena %s", report_bytes(plan->temporary_bytes, bytes));
  write_text(file, LEFT + 60, arena - 60, SMALL * 12 / 10, "", text);
  if (bound - arena > 2 * SMALL) arena = bound; /* apart from the arena's line: beside its own */
  snprintf(text, sizeof text, "lower bound %s", report_bytes(plan->lower_bound_bytes, bytes));
  write_text(file, RIGHT - 60, arena - 60, SMALL * 12 / 10, "class=\"halo\" text-anchor=\"end\" fill=\"#c0392b\"",
             text);
}

/* Small inputs and outputs that stay in the slots' pinned memory. */
static void write_in_place(FILE *file, const rondo_graph *graph, const struct plan *plan, int32_t height) {
  uint32_t count = 0;
  uint64_t bytes = 0;
  char text[BYTES_TEXT];
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    if (graph->tensors[t].root != t || plan->allocations[t] != ALLOCATION_SLOT) continue;
    fputs(count++ ? ", " : "<g><title>", file);
    report_name(file, graph->tensors[t].name, REPORT_NAME_WHOLE);
    bytes += tensor_bytes(&graph->tensors[t]);
  }
  if (!count) return;
  fprintf(file,
          "</title><text x=\"%d\" y=\"%d\" font-size=\"%d\">not drawn: %u small %s in pinned "
          "memory (%s)</text></g>\n",
          LEFT, height - 60, SMALL, count,
          count == 1 ? "input or output, which stays" : "inputs and outputs, which stay", report_bytes(bytes, text));
}

rondo_status rondo_write_plan_svg(rondo_graph *graph, const char *path) {
  const struct plan *plan;
  struct report report;
  rondo_status status = report_open_plan(&report, graph, path, "rondo_write_plan_svg", &plan);
  if (status != RONDO_OK) return status;
  FILE *file = report.file;
  int32_t height = room_of(plan) < LEAST_ROOM ? HEIGHT_WITHOUT_NAMES : HEIGHT;
  struct scale scale = {plan->node_count ? plan->node_count : 1,
                        plan->summary.temporary_bytes ? plan->summary.temporary_bytes : 1};
  write_head(file, &plan->summary, height);
  write_legend(file);
  write_groups(file, graph, plan, &scale);
  if (plan->summary.temporary_bytes) write_byte_axis(file, &scale, LEFT, RIGHT);
  write_buffers(file, graph, plan, &scale);
  write_bound(file, &plan->summary, &scale);
  fprintf(file, "<path class=\"frame\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, BOTTOM, RIGHT);
  write_node_axis(file, plan, &scale, height);
  write_node_names(file, graph, plan, &scale);
  write_bar(file, graph);
  write_in_place(file, graph, plan, height);
  fputs("</svg>\n", file);
  return report_close(&report);
}
