/* bench_scale.c - measures the planning of large graphs (bench_scale.h). The tasks are own kernels, since only the
 * number of tasks and their tensors matter. The graphs have shapes that were slow in earlier versions, two
 * factorisations of a matrix of tiles, and the layers of a transformer. */
#include "bench_scale.h"

#include <stdio.h>
#include <stdlib.h>

enum { VECTOR_BYTES = 1024, ROW_BYTES = 64, TILE = 8 };

/* The figures to reach: 10,000 tasks take at most 1 second and 20 MB, 100,000 tasks at most 10 seconds. Planning 32,768
 * tasks takes at most 2 seconds and 200 MB. */
static const double seconds_per_task_most = 1e-4, host_bytes_per_task_most = 2000;
static const double planning_seconds_per_task_most = 2.0 / 32768, peak_bytes_per_task_most = 200e6 / 32768;

/* A graph during its description. A shape adds up to `task_limit` tasks; some shapes end a little below. */
struct subject {
  rondo_graph *graph;
  uint32_t task_limit, task_count;
  rondo_tensor in, out;
};

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

static void add(struct subject *s, uint32_t count, const rondo_argument *arguments) {
  TRY(rondo_add_kernel(s->graph,
                       &(rondo_kernel_desc){.host = no_work, .arguments = arguments, .argument_count = count}));
  s->task_count++;
}

#define READS(t)                                                                                                       \
  { .tensor = (t), .access = RONDO_READ }
#define WRITES(t)                                                                                                      \
  { .tensor = (t), .access = RONDO_WRITE }
#define UPDATES(t)                                                                                                     \
  { .tensor = (t), .access = RONDO_READ_WRITE }
#define ADD(s, ...)                                                                                                    \
  add((s), sizeof((rondo_argument[]){__VA_ARGS__}) / sizeof(rondo_argument), (rondo_argument[]){__VA_ARGS__})

static rondo_tensor temporary(struct subject *s, int64_t bytes) {
  rondo_tensor tensor;
  TRY(rondo_temporary(s->graph, NULL, RONDO_U8, 1, &bytes, &tensor));
  return tensor;
}

static rondo_tensor rectangle(struct subject *s, rondo_tensor of, int64_t row, int64_t rows, int64_t column,
                              int64_t columns) {
  rondo_tensor view;
  TRY(rondo_view(s->graph, of, (int64_t[]){row, column}, (int64_t[]){rows, columns}, &view));
  return view;
}

static bool is_full(const struct subject *s) { return s->task_count + 1 >= s->task_limit; }

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

static void chain(struct subject *s) {
  rondo_tensor last = s->in;
  while (!is_full(s)) {
    rondo_tensor next = temporary(s, VECTOR_BYTES);
    ADD(s, READS(last), WRITES(next));
    last = next;
  }
  ADD(s, READS(last), WRITES(s->out));
}

static void fan(struct subject *s) {
  while (!is_full(s)) ADD(s, READS(s->in), WRITES(temporary(s, VECTOR_BYTES)));
  ADD(s, READS(s->in), WRITES(s->out));
}

static void fan_in(struct subject *s) {
  rondo_tensor all;
  TRY(rondo_temporary(s->graph, "all", RONDO_U8, 2, (int64_t[]){s->task_limit - 1, VECTOR_BYTES}, &all));
  while (!is_full(s)) ADD(s, READS(s->in), WRITES(rectangle(s, all, s->task_count, 1, 0, VECTOR_BYTES)));
  ADD(s, READS(all), WRITES(s->out));
}

/* Half of the tasks write a row each; the others read all rows. */
static void bipartite(struct subject *s) {
  int64_t half = s->task_limit / 2;
  rondo_tensor from, to;
  TRY(rondo_temporary(s->graph, "from", RONDO_U8, 2, (int64_t[]){half, ROW_BYTES}, &from));
  TRY(rondo_state(s->graph, "to", RONDO_U8, 2, (int64_t[]){half, ROW_BYTES}, &to));
  for (int64_t i = 0; i < half; i++) ADD(s, READS(s->in), WRITES(rectangle(s, from, i, 1, 0, ROW_BYTES)));
  for (int64_t i = 0; !is_full(s); i++) ADD(s, READS(from), WRITES(rectangle(s, to, i, 1, 0, ROW_BYTES)));
  ADD(s, READS(s->in), WRITES(s->out));
}

/* ---- Shapes of many conflicts, nearly all of which follow from others -------------------------------------------- */

static uint32_t random_below(uint64_t *state, uint32_t limit) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth's MMIX */
  return (uint32_t)((*state >> 32) * limit >> 32);
}

/* Each task reads a window of one state, writes it, or both. */
static void windows(struct subject *s) {
  enum { SIDE = 4096 };
  static const rondo_access accesses[] = {RONDO_READ, RONDO_WRITE, RONDO_READ_WRITE};
  uint64_t state = 1;
  rondo_tensor square;
  TRY(rondo_state(s->graph, "square", RONDO_U8, 2, (int64_t[]){SIDE, SIDE}, &square));
  while (!is_full(s)) {
    int64_t row = random_below(&state, SIDE), column = random_below(&state, SIDE);
    int64_t rows = 1 + random_below(&state, (uint32_t)(SIDE - row));
    int64_t columns = 1 + random_below(&state, (uint32_t)(SIDE - column));
    rondo_argument window = {.tensor = rectangle(s, square, row, rows, column, columns)};
    window.access = accesses[random_below(&state, 3)];
    add(s, 1, &window);
  }
  ADD(s, READS(s->in), WRITES(s->out));
}

/* Alternately, a task reads all elements and a task writes one. */
static void all_and_elements(struct subject *s) {
  rondo_tensor column;
  TRY(rondo_state(s->graph, "column", RONDO_U8, 2, (int64_t[]){s->task_limit, 1}, &column));
  while (!is_full(s))
    if (s->task_count % 2)
      ADD(s, WRITES(rectangle(s, column, s->task_count, 1, 0, 1)));
    else
      ADD(s, READS(column));
  ADD(s, READS(s->in), WRITES(s->out));
}

/* Alternately, a task reads a row and a task writes a column. */
static void rows_and_columns(struct subject *s) {
  int64_t side = s->task_limit / 2;
  rondo_tensor square;
  TRY(rondo_state(s->graph, "square", RONDO_U8, 2, (int64_t[]){side, side}, &square));
  while (!is_full(s))
    if (s->task_count % 2)
      ADD(s, WRITES(rectangle(s, square, 0, side, s->task_count / 2, 1)));
    else
      ADD(s, READS(rectangle(s, square, s->task_count / 2, 1, 0, side)));
  ADD(s, READS(s->in), WRITES(s->out));
}

/* ---- Factorisations and layers ----------------------------------------------------------------------------------- */

/* A matrix of n x n tiles, each a view. */
struct tiles {
  int64_t n;
  rondo_tensor *at;
};

static struct tiles tiles_of(struct subject *s, int64_t n) {
  struct tiles tiles = {n, malloc((size_t)(n * n) * sizeof(rondo_tensor))};
  rondo_tensor matrix;
  if (!tiles.at) exit(1);
  TRY(rondo_state(s->graph, "matrix", RONDO_U8, 2, (int64_t[]){n * TILE, n * TILE}, &matrix));
  for (int64_t i = 0; i < n * n; i++) tiles.at[i] = rectangle(s, matrix, i / n * TILE, TILE, i % n * TILE, TILE);
  return tiles;
}

static rondo_tensor tile(const struct tiles *tiles, int64_t row, int64_t column) {
  return tiles->at[row * tiles->n + column];
}

static void cholesky(struct subject *s) {
  int64_t n = 1;
  while (n * (n + 1) * (n + 2) / 6 < s->task_limit) n++;
  struct tiles a = tiles_of(s, n);
  for (int64_t k = 0; k < n; k++) {
    if (!is_full(s)) ADD(s, UPDATES(tile(&a, k, k)));
    for (int64_t i = k + 1; i < n && !is_full(s); i++) ADD(s, READS(tile(&a, k, k)), UPDATES(tile(&a, i, k)));
    for (int64_t i = k + 1; i < n; i++)
      for (int64_t j = k + 1; j <= i && !is_full(s); j++)
        if (i == j)
          ADD(s, READS(tile(&a, i, k)), UPDATES(tile(&a, i, i)));
        else
          ADD(s, READS(tile(&a, i, k)), READS(tile(&a, j, k)), UPDATES(tile(&a, i, j)));
  }
  ADD(s, READS(s->in), WRITES(s->out));
  free(a.at);
}

/* Each step factors a column of tiles from top to bottom, and applies each factor to the columns right of it. */
static void qr(struct subject *s) {
  int64_t n = 1;
  while (n * (n + 1) * (2 * n + 1) / 6 < s->task_limit) n++;
  struct tiles a = tiles_of(s, n);
  for (int64_t k = 0; k < n; k++)
    for (int64_t i = k; i < n && !is_full(s); i++) {
      rondo_tensor tau = temporary(s, VECTOR_BYTES);
      if (i == k)
        ADD(s, UPDATES(tile(&a, k, k)), WRITES(tau));
      else
        ADD(s, UPDATES(tile(&a, k, k)), UPDATES(tile(&a, i, k)), WRITES(tau));
      for (int64_t j = k + 1; j < n && !is_full(s); j++)
        if (i == k)
          ADD(s, READS(tau), READS(tile(&a, k, k)), UPDATES(tile(&a, k, j)));
        else
          ADD(s, READS(tau), READS(tile(&a, i, k)), UPDATES(tile(&a, k, j)), UPDATES(tile(&a, i, j)));
    }
  ADD(s, READS(s->in), WRITES(s->out));
  free(a.at);
}

/* A layer has twelve tasks: two norms, q, k and v in parallel, attention, three projections, an activation, two
 * sums. */
static void transformer(struct subject *s) {
  enum { TASKS_OF_A_LAYER = 12, HIDDEN = 64 * 1024, WIDE = 4 * HIDDEN };
  rondo_tensor x = temporary(s, HIDDEN);
  ADD(s, READS(s->in), WRITES(x));
  while (s->task_count + TASKS_OF_A_LAYER < s->task_limit) {
    rondo_tensor normal = temporary(s, HIDDEN), q = temporary(s, HIDDEN), k = temporary(s, HIDDEN / 4);
    rondo_tensor v = temporary(s, HIDDEN / 4), mixed = temporary(s, HIDDEN), projected = temporary(s, HIDDEN);
    rondo_tensor sum = temporary(s, HIDDEN), again = temporary(s, HIDDEN), gate = temporary(s, WIDE);
    rondo_tensor up = temporary(s, WIDE), down = temporary(s, HIDDEN), next = temporary(s, HIDDEN);
    ADD(s, READS(x), WRITES(normal));
    ADD(s, READS(normal), WRITES(q));
    ADD(s, READS(normal), WRITES(k));
    ADD(s, READS(normal), WRITES(v));
    ADD(s, READS(q), READS(k), READS(v), WRITES(mixed));
    ADD(s, READS(mixed), WRITES(projected));
    ADD(s, READS(x), READS(projected), WRITES(sum));
    ADD(s, READS(sum), WRITES(again));
    ADD(s, READS(again), WRITES(gate));
    ADD(s, READS(again), READS(gate), WRITES(up));
    ADD(s, READS(up), WRITES(down));
    ADD(s, READS(sum), READS(down), WRITES(next));
    x = next;
  }
  ADD(s, READS(x), WRITES(s->out));
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static double seconds_since(uint64_t *begin_ns) {
  uint64_t now_ns = timing_now_ns(), passed_ns = now_ns - *begin_ns;
  *begin_ns = now_ns;
  return (double)passed_ns / 1e9;
}

/* The memory of the process: now, and the most so far. */
struct taken {
  uint64_t bytes, most;
};

static void *take_counted(void *user, size_t bytes, size_t alignment) {
  struct taken *taken = user;
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!memory) return NULL;
  taken->bytes += bytes;
  if (taken->bytes > taken->most) taken->most = taken->bytes;
  return memory;
}

static void give_counted(void *user, void *memory, size_t bytes) {
  ((struct taken *)user)->bytes -= bytes;
  free(memory);
}

/* Measures a graph and writes a line of the table. Returns the bytes of the temporaries. */
static uint64_t measure(const char *name, void (*shape)(struct subject *), uint32_t task_count, struct report *report) {
  struct subject s = {.task_limit = task_count};
  struct taken taken = {0};
  rondo_allocator counted = {.user = &taken, .allocate = take_counted, .release = give_counted};
  uint64_t begin_ns = timing_now_ns();
  rondo_graph_limits limits = {.tensors = 3 * task_count + 1024, .tasks = task_count + 1, .allocator = &counted};
  TRY(rondo_graph_create(NULL, &limits, &s.graph));
  TRY(rondo_input(s.graph, "in", RONDO_U8, 1, &(int64_t){VECTOR_BYTES}, &s.in));
  TRY(rondo_output(s.graph, "out", RONDO_U8, 1, &(int64_t){VECTOR_BYTES}, &s.out));
  shape(&s);
  double describe = seconds_since(&begin_ns);
  rondo_plan plan;
  uint64_t described_bytes = taken.bytes;
  TRY(rondo_plan_graph(s.graph, &plan));
  double planning = seconds_since(&begin_ns), peak_bytes = (double)(taken.most - described_bytes);
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  TRY(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                  .device_bytes = plan.device_bytes,
                                  .pinned_bytes = plan.pinned_bytes_per_slot,
                                  .host_bytes = plan.host_bytes},
                 &runtime));
  seconds_since(&begin_ns);
  TRY(rondo_instantiate(runtime, s.graph, NULL, &exec));
  double instantiate = seconds_since(&begin_ns), all = describe + planning + instantiate;
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&s.graph));
  TRY(rondo_close(&runtime));
  /* Small graphs are measured for their bytes only. */
  bool is_missed =
      task_count >= 1000 &&
      (all > seconds_per_task_most * task_count || (double)plan.host_bytes > host_bytes_per_task_most * task_count ||
       planning > planning_seconds_per_task_most * task_count || peak_bytes > peak_bytes_per_task_most * task_count);
  report->missed += is_missed;
  struct json *json = &report->output.json;
  json_begin_line(json, NULL, '{');
  json_text(json, "graph", name);
  json_whole(json, "tasks", plan.task_count);
  json_whole(json, "edges", plan.edge_count);
  json_real(json, "describe_s", describe);
  json_real(json, "plan_s", planning);
  json_real(json, "instantiate_s", instantiate);
  json_whole(json, "host_bytes", plan.host_bytes);
  json_whole(json, "planning_bytes", (uint64_t)peak_bytes);
  json_whole(json, "temporary_bytes", plan.temporary_bytes);
  json_whole(json, "lower_bound_bytes", plan.lower_bound_bytes);
  json_flag(json, "missed", is_missed);
  json_end(json, '}');
  output_print(&report->output, "%-12s %7u %8u %8.3f %8.3f %11.3f %7.3f %7.2f %7.2f %11.2f %11.2f%s\n", name,
               plan.task_count, plan.edge_count, describe, planning, instantiate, all, peak_bytes / 1e6,
               (double)plan.host_bytes / 1e6, (double)plan.temporary_bytes / 1e6, (double)plan.lower_bound_bytes / 1e6,
               is_missed ? "  missed" : "");
  return plan.temporary_bytes;
}

void bench_scale(struct report *report) {
  static const struct {
    const char *name;
    void (*shape)(struct subject *);
    uint32_t task_count;
  } lines[] = {{"chain", chain, 10000},
               {"fan", fan, 10000},
               {"fan-in", fan_in, 10000},
               {"bipartite", bipartite, 10000},
               {"cholesky", cholesky, 10000},
               {"qr", qr, 10000},
               {"chain", chain, 100000},
               {"windows", windows, 32768},
               {"elements", all_and_elements, 32768},
               {"columns", rows_and_columns, 32768}};
  const size_t count = sizeof lines / sizeof *lines;
  output_print(&report->output, "%-12s %7s %8s %8s %8s %11s %7s %7s %7s %11s %11s\n", "graph", "tasks", "edges",
               "describe", "plan", "instantiate", "all s", "plan MB", "host MB", "temporaries", "lower bound");
  for (size_t i = 0; i < count; i++) {
    progress(lines[i].name, i, count);
    measure(lines[i].name, lines[i].shape, lines[i].task_count, report);
  }
  progress("layers", count, count);
  uint64_t few = measure("4 layers", transformer, 4 * 12 + 2, report);
  uint64_t many = measure("24 layers", transformer, 24 * 12 + 2, report);
  if (many <= few) return;
  output_print(&report->output, "24 identical layers need more than 4 of them: missed\n");
  report->missed++;
}
