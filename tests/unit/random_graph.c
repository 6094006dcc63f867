/* random_graph.c - see random_graph.h. */
#include "random_graph.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_READER = UINT32_MAX };

static void *take(uint64_t count, uint64_t bytes) {
  void *memory = calloc(count ? count : 1, bytes);
  cr_assert_not_null(memory);
  return memory;
}

void random_graph_begin(struct random_graph *g, struct random *random, uint32_t tensor_limit, uint32_t task_limit) {
  *g = (struct random_graph){
      .random = random, .tensor_limit = tensor_limit, .task_limit = task_limit, .fault_task = NO_TASK};
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = tensor_limit, .tasks = task_limit}, &g->graph));
  g->handles = take(tensor_limit, sizeof *g->handles);
  g->areas = take(tensor_limit, sizeof *g->areas);
  g->cell_begin = take(tensor_limit, sizeof *g->cell_begin);
  g->tasks = take(task_limit, sizeof *g->tasks);
  g->before = take((uint64_t)task_limit * task_limit, sizeof *g->before);
}

void random_graph_end(struct random_graph *g) {
  REQUIRE_OK(rondo_graph_destroy(&g->graph));
  for (uint32_t i = 0; i < g->tensor_count; i++) free(g->areas[i].elements);
  free(g->handles), free(g->areas), free(g->cell_begin), free(g->tasks), free(g->before);
  free(g->cells), free(g->readers), free(g->visited), free(g->written_at_fault);
}

/* ---- Tensors and their cells ------------------------------------------------------------------------------------- */

static struct area *area_add(struct random_graph *g, uint32_t index, uint32_t root, uint32_t rank, const int64_t *shape,
                             uint32_t count) {
  struct area *area = &g->areas[index];
  *area = (struct area){root, rank, count, {1, 1, 1, 1}, take(count, sizeof(uint32_t))};
  memcpy(area->shape, shape, rank * sizeof *shape);
  return area;
}

/* Does the library say of the tensor what its elements say? */
static void check_box(const struct random_graph *g, uint32_t index) {
  const struct area *area = &g->areas[index], *root = &g->areas[area->root];
  const struct tensor *tensor = &g->graph->tensors[index];
  struct box least = {.low = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}};
  int64_t volume = 1;
  if (!area->count) return;
  for (uint32_t i = 0; i < area->count; i++) {
    uint32_t rest = area->elements[i];
    for (int d = RONDO_MAX_RANK; d-- > 0; rest /= (uint32_t)root->shape[d]) {
      uint32_t at = rest % (uint32_t)root->shape[d];
      if (at < least.low[d]) least.low[d] = at;
      if (at + 1 > least.high[d]) least.high[d] = at + 1;
    }
  }
  for (int d = 0; d < RONDO_MAX_RANK; d++) {
    volume *= least.high[d] - least.low[d];
    if (tensor->box.low[d] > least.low[d] || tensor->box.high[d] < least.high[d]) cr_assert_fail("tensor %u", index);
  }
  cr_assert_eq(tensor->is_box, volume == area->count, "tensor %u", index);
  if (tensor->is_box) cr_assert_eq(memcmp(&tensor->box, &least, sizeof least), 0, "tensor %u", index);
}

uint32_t random_graph_root(struct random_graph *g, enum tensor_kind kind, rondo_dtype dtype, uint32_t rank,
                           const int64_t *shape) {
  rondo_status (*const make[])(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *, rondo_tensor *) = {
      rondo_input, rondo_output, rondo_constant, rondo_state, rondo_temporary};
  uint32_t index = g->tensor_count++;
  REQUIRE_OK(make[kind](g->graph, NULL, dtype, rank, shape, &g->handles[index]));
  cr_assert_eq(g->handles[index].index, index);
  uint32_t elements = 1;
  for (uint32_t i = 0; i < rank; i++) elements *= (uint32_t)shape[i];
  struct area *area = area_add(g, index, index, rank, shape, elements);
  for (uint32_t i = 0; i < elements; i++) area->elements[i] = i;
  g->cell_begin[index] = g->cell_count;
  uint32_t end = g->cell_count + elements;
  g->cells = realloc(g->cells, (end + 1u) * sizeof *g->cells);
  g->visited = realloc(g->visited, (end + 1u) * sizeof *g->visited);
  bool is_written = kind == TENSOR_INPUT || kind == TENSOR_CONSTANT || kind == TENSOR_STATE;
  for (; g->cell_count < end; g->cell_count++)
    g->cells[g->cell_count] = (struct cell){.writer = NO_TASK, .readers = NO_READER, .is_written = is_written};
  return index;
}

static int64_t flat_of(const struct area *area, const int64_t *at) {
  int64_t flat = 0;
  for (int i = 0; i < RONDO_MAX_RANK; i++) flat = flat * area->shape[i] + at[i];
  return flat;
}

uint32_t random_graph_view(struct random_graph *g, uint32_t parent, const int64_t *offset, const int64_t *extent) {
  uint32_t index = g->tensor_count++;
  REQUIRE_OK(rondo_view(g->graph, g->handles[parent], offset, extent, &g->handles[index]));
  const struct area *from = &g->areas[parent];
  int64_t low[RONDO_MAX_RANK] = {0}, size[RONDO_MAX_RANK] = {1, 1, 1, 1}, at[RONDO_MAX_RANK];
  memcpy(low, offset, from->rank * sizeof *offset);
  memcpy(size, extent, from->rank * sizeof *extent);
  struct area *area =
      area_add(g, index, from->root, from->rank, size, (uint32_t)(size[0] * size[1] * size[2] * size[3]));
  uint32_t count = 0;
  for (at[0] = low[0]; at[0] < low[0] + size[0]; at[0]++)
    for (at[1] = low[1]; at[1] < low[1] + size[1]; at[1]++)
      for (at[2] = low[2]; at[2] < low[2] + size[2]; at[2]++)
        for (at[3] = low[3]; at[3] < low[3] + size[3]; at[3]++)
          area->elements[count++] = from->elements[flat_of(from, at)];
  check_box(g, index);
  return index;
}

/* Do steps of the same length along each dimension, of one element along the last, lead to all elements? */
static bool has_strides(const struct area *from, const int64_t *shape) {
  int64_t stride[RONDO_MAX_RANK] = {0}, inner = 1, at[RONDO_MAX_RANK];
  for (int d = RONDO_MAX_RANK; d-- > 0; inner *= shape[d])
    if (shape[d] > 1) stride[d] = (int64_t)from->elements[inner] - from->elements[0];
  uint32_t count = 0;
  for (at[0] = 0; at[0] < shape[0]; at[0]++)
    for (at[1] = 0; at[1] < shape[1]; at[1]++)
      for (at[2] = 0; at[2] < shape[2]; at[2]++)
        for (at[3] = 0; at[3] < shape[3]; at[3]++)
          if (from->elements[count++] - from->elements[0] !=
              at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2] + at[3] * stride[3])
            return false;
  return true;
}

uint32_t random_graph_tile(struct random_graph *g, uint32_t parent, int64_t row, int64_t rows, int64_t column,
                           int64_t columns) {
  return random_graph_view(g, parent, (int64_t[]){row, column}, (int64_t[]){rows, columns});
}

uint32_t random_graph_reshape(struct random_graph *g, uint32_t parent, uint32_t rank, const int64_t *shape) {
  const struct area *from = &g->areas[parent];
  int64_t all[RONDO_MAX_RANK] = {1, 1, 1, 1};
  memcpy(all, shape, rank * sizeof *shape);
  bool is_last_dense = !from->count || shape[rank - 1] < 2 || from->elements[1] == from->elements[0] + 1;
  rondo_tensor handle;
  if (from->count && !(is_last_dense && has_strides(from, all))) {
    REQUIRE_ERROR(rondo_reshape(g->graph, g->handles[parent], rank, shape, &handle), RONDO_INVALID_ARGUMENT,
                  "is not dense");
    g->reshape_refused_count++;
    return NO_TENSOR;
  }
  uint32_t index = g->tensor_count++;
  REQUIRE_OK(rondo_reshape(g->graph, g->handles[parent], rank, shape, &g->handles[index]));
  struct area *area = area_add(g, index, from->root, rank, shape, from->count);
  if (from->count) memcpy(area->elements, from->elements, from->count * sizeof *area->elements);
  check_box(g, index);
  g->reshape_count++;
  return index;
}

bool random_graph_overlap(const struct random_graph *g, uint32_t a, uint32_t b) {
  const struct area *x = &g->areas[a], *y = &g->areas[b];
  uint32_t i = 0, j = 0;
  while (x->root == y->root && i < x->count && j < y->count) {
    if (x->elements[i] == y->elements[j]) return true;
    if (x->elements[i] < y->elements[j])
      i++;
    else
      j++;
  }
  return false;
}

uint32_t random_graph_cells(const struct random_graph *g, uint32_t root) {
  int64_t elements = tensor_elements(&g->graph->tensors[root]);
  return (uint32_t)(g->graph->tensors[root].dtype == RONDO_NVFP4 ? elements / 2 : elements);
}

static uint32_t cell_of(const struct random_graph *g, uint32_t root, int64_t flat) {
  return g->cell_begin[root] + (uint32_t)(g->graph->tensors[root].dtype == RONDO_NVFP4 ? flat / 2 : flat);
}

uint32_t random_graph_cell(const struct random_graph *g, uint32_t root, const int64_t *element) {
  return cell_of(g, root, flat_of(&g->areas[root], element));
}

/* Into g->visited: the cells of a tensor. Returns how many. */
static uint32_t visit(struct random_graph *g, uint32_t tensor) {
  const struct area *area = &g->areas[tensor];
  uint32_t count = 0, step = g->graph->tensors[tensor].dtype == RONDO_NVFP4 ? 2 : 1;
  for (uint32_t i = 0; i < area->count; i += step) g->visited[count++] = cell_of(g, area->root, area->elements[i]);
  return count;
}

bool random_graph_is_written(struct random_graph *g, uint32_t tensor) {
  uint32_t count = visit(g, tensor);
  for (uint32_t i = 0; i < count; i++)
    if (!g->cells[g->visited[i]].is_written) return false;
  return true;
}

bool random_graph_touches(const struct random_graph *g, uint32_t task, uint32_t root) {
  for (uint32_t i = 0; i < g->tasks[task].count; i++)
    if (g->areas[g->tasks[task].operand[i].tensor].root == root) return true;
  return false;
}

/* ---- What a task means ------------------------------------------------------------------------------------------- */

/* All that comes before `first` comes before `second` too. */
static void put_before(struct random_graph *g, uint32_t first, uint32_t second) {
  bool *into = &g->before[(uint64_t)second * g->task_limit];
  const bool *from = &g->before[(uint64_t)first * g->task_limit];
  if (first == second || into[first]) return;
  for (uint32_t t = 0; t < g->task_count; t++) into[t] |= from[t];
  into[first] = true;
}

static void look(struct random_graph *g, uint32_t task, const struct operand *operand) {
  uint32_t count = visit(g, operand->tensor);
  for (uint32_t i = 0; i < count; i++) {
    const struct cell *cell = &g->cells[g->visited[i]];
    if (cell->writer != NO_TASK) put_before(g, cell->writer, task);
    if (operand->access & RONDO_WRITE)
      for (uint32_t r = cell->readers; r != NO_READER; r = g->readers[r].next) put_before(g, g->readers[r].task, task);
    if (!(operand->access & RONDO_READ) || cell->is_written || g->fault_task != NO_TASK) continue;
    g->fault_task = task;
    g->written_at_fault = take(g->cell_count, sizeof *g->written_at_fault);
    for (uint32_t c = 0; c < g->cell_count; c++) g->written_at_fault[c] = g->cells[c].is_written;
  }
}

static void mark(struct random_graph *g, uint32_t task, const struct operand *operand) {
  if (g->graph->tensors[g->areas[operand->tensor].root].kind == TENSOR_CONSTANT) return;
  uint32_t count = visit(g, operand->tensor);
  for (uint32_t i = 0; i < count; i++) {
    struct cell *cell = &g->cells[g->visited[i]];
    if (operand->access & RONDO_WRITE) {
      *cell = (struct cell){.writer = task, .readers = NO_READER, .is_written = true};
      continue;
    }
    if (cell->readers != NO_READER && g->readers[cell->readers].task == task) continue;
    if (g->reader_count == g->reader_room) {
      g->reader_room = 2 * g->reader_room + 1024;
      g->readers = realloc(g->readers, g->reader_room * sizeof *g->readers);
    }
    g->readers[g->reader_count] = (struct reader){task, cell->readers};
    cell->readers = g->reader_count++;
  }
}

/* The task that was just added. What it writes counts after all that it reads. */
static void note(struct random_graph *g, const struct operand *operands, uint32_t count) {
  uint32_t task = g->task_count++;
  cr_assert_eq(g->task_count, g->graph->task_count);
  g->tasks[task].count = count;
  memcpy(g->tasks[task].operand, operands, count * sizeof *operands);
  for (uint32_t i = 0; i < count; i++) look(g, task, &operands[i]);
  for (int writes = 0; writes < 2; writes++)
    for (uint32_t i = 0; i < count; i++)
      if (((operands[i].access & RONDO_WRITE) != 0) == writes) mark(g, task, &operands[i]);
}

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

void random_graph_kernel(struct random_graph *g, const struct operand *operands, uint32_t count) {
  rondo_argument arguments[OPERANDS_MOST] = {0};
  for (uint32_t i = 0; i < count; i++)
    arguments[i] = (rondo_argument){.tensor = g->handles[operands[i].tensor], .access = operands[i].access};
  REQUIRE_OK(rondo_add_kernel(g->graph,
                              &(rondo_kernel_desc){.host = no_work, .arguments = arguments, .argument_count = count}));
  note(g, operands, count);
}

void random_graph_after(struct random_graph *g, uint32_t task, uint32_t prerequisite) {
  if (task == prerequisite || must_precede(g, task, prerequisite)) {
    REQUIRE_ERROR(rondo_after(g->graph, task, prerequisite), RONDO_INVALID_ARGUMENT, "would close a cycle");
    g->refused_count++;
    return;
  }
  REQUIRE_OK(rondo_after(g->graph, task, prerequisite));
  g->after_count++;
  put_before(g, prerequisite, task);
  for (uint32_t t = 0; t < g->task_count; t++)
    if (must_precede(g, task, t)) {
      g->before[(uint64_t)t * g->task_limit + task] = false; /* to be put there again, with what is new before it */
      put_before(g, task, t);
    }
}

/* ---- Drawing ----------------------------------------------------------------------------------------------------- */

static bool chance(struct random_graph *g, int percent) { return random_between(g->random, 0, 99) < percent; }

static uint32_t draw_root(struct random_graph *g) {
  static const enum tensor_kind kinds[] = {TENSOR_INPUT,     TENSOR_OUTPUT,    TENSOR_STATE,    TENSOR_TEMPORARY,
                                           TENSOR_TEMPORARY, TENSOR_TEMPORARY, TENSOR_CONSTANT, TENSOR_TEMPORARY};
  static const rondo_dtype dtypes[] = {RONDO_F32, RONDO_F64, RONDO_F16, RONDO_U8, RONDO_NVFP4};
  static const int64_t longest[] = {300, 20, 8, 5};
  uint32_t rank = (uint32_t)random_between(g->random, 1, RONDO_MAX_RANK);
  rondo_dtype dtype = dtypes[random_between(g->random, 0, 4)];
  int64_t shape[RONDO_MAX_RANK] = {0};
  for (uint32_t i = 0; i < rank; i++) shape[i] = chance(g, 1) ? 0 : random_between(g->random, 1, longest[rank - 1]);
  if (chance(g, 4)) shape[0] *= 32; /* too large to be moved with others */
  if (dtype == RONDO_NVFP4) shape[rank - 1] *= 2;
  return random_graph_root(g, kinds[random_between(g->random, 0, 7)], dtype, rank, shape);
}

static uint32_t draw_view(struct random_graph *g, uint32_t parent) {
  const struct tensor *tensor = &g->graph->tensors[parent];
  int64_t offset[RONDO_MAX_RANK] = {0}, extent[RONDO_MAX_RANK] = {0};
  for (uint32_t i = 0; i < tensor->rank; i++) {
    int64_t unit = tensor->dtype == RONDO_NVFP4 && i == tensor->rank - 1 ? 2 : 1, most = tensor->shape[i] / unit;
    bool is_whole = chance(g, 40);
    offset[i] = is_whole ? 0 : random_between(g->random, 0, most) * unit;
    int64_t left = most - offset[i] / unit;
    extent[i] = is_whole ? tensor->shape[i] : left ? random_between(g->random, chance(g, 3) ? 0 : 1, left) * unit : 0;
  }
  return random_graph_view(g, parent, offset, extent);
}

/* The prime factors of the number of elements, dealt out. */
static uint32_t draw_reshape(struct random_graph *g, uint32_t parent) {
  const struct area *from = &g->areas[parent];
  bool has_pairs = g->graph->tensors[parent].dtype == RONDO_NVFP4;
  int64_t shape[RONDO_MAX_RANK] = {1, 1, 1, 1}, rest = has_pairs ? from->count / 2 : from->count;
  uint32_t rank = (uint32_t)random_between(g->random, 1, RONDO_MAX_RANK);
  if (!rest) shape[0] = rest;
  for (int64_t factor = 2; rest > 1; factor++)
    for (; rest % factor == 0; rest /= factor) shape[random_between(g->random, 0, rank - 1)] *= factor;
  if (has_pairs) shape[rank - 1] *= 2;
  uint32_t reshape = random_graph_reshape(g, parent, rank, shape);
  return reshape == NO_TENSOR ? parent : reshape;
}

uint32_t random_graph_tensor(struct random_graph *g) {
  uint32_t parent = (uint32_t)random_between(g->random, 0, g->tensor_count - 1);
  if (chance(g, 30) || g->tensor_count == g->tensor_limit) return parent;
  return chance(g, 30) ? draw_reshape(g, parent) : draw_view(g, parent);
}

static void draw_kernel(struct random_graph *g, bool may_read_unwritten) {
  struct operand operands[OPERANDS_MOST];
  uint32_t count = 0, wanted = (uint32_t)random_between(g->random, 1, 5);
  for (uint32_t attempt = 0; attempt < 3 * wanted && count < wanted; attempt++) {
    uint32_t tensor = random_graph_tensor(g);
    enum tensor_kind kind = g->graph->tensors[tensor].kind;
    rondo_access access = kind == TENSOR_CONSTANT ? RONDO_READ : (rondo_access)random_between(g->random, 1, 3);
    if (!random_graph_is_written(g, tensor) && !(may_read_unwritten && chance(g, 12))) access = RONDO_WRITE;
    bool is_refused = false;
    for (uint32_t i = 0; i < count; i++)
      is_refused = is_refused || (((operands[i].access | access) & RONDO_WRITE) &&
                                  random_graph_overlap(g, operands[i].tensor, tensor));
    if (!is_refused) operands[count++] = (struct operand){tensor, access};
  }
  random_graph_kernel(g, operands, count);
}

static uint32_t draw_state(struct random_graph *g, rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  enum tensor_kind kind = chance(g, 50) ? TENSOR_STATE : TENSOR_INPUT;
  return random_graph_root(g, kind, dtype, rank, shape);
}

static uint32_t draw_result(struct random_graph *g, rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  return random_graph_root(g, chance(g, 70) ? TENSOR_TEMPORARY : TENSOR_OUTPUT, dtype, rank, shape);
}

static void draw_gemv(struct random_graph *g) {
  uint32_t w = random_graph_root(g, TENSOR_CONSTANT, RONDO_F16, 2, (int64_t[]){4, 4096});
  uint32_t x = draw_state(g, RONDO_F16, 2, (int64_t[]){1, 4096}), y = draw_result(g, RONDO_F32, 2, (int64_t[]){1, 4});
  REQUIRE_OK(rondo_add_gemv(
      g->graph, &(rondo_gemv_desc){.weights = g->handles[w], .vectors = g->handles[x], .out = g->handles[y]}));
  note(g, (struct operand[]){{w, RONDO_READ}, {x, RONDO_READ}, {y, RONDO_WRITE}}, 3);
}

static void draw_attention(struct random_graph *g) {
  const int64_t one[] = {1, 1, 1, 32}, many[] = {1, 1, 128, 32};
  uint32_t q = draw_state(g, RONDO_F16, 4, one), k = draw_state(g, RONDO_F16, 4, many);
  uint32_t v = draw_state(g, RONDO_F16, 4, many), o = draw_result(g, RONDO_F16, 4, one);
  REQUIRE_OK(rondo_add_attention(
      g->graph, &(rondo_attention_desc){
                    .q = g->handles[q], .k = g->handles[k], .v = g->handles[v], .o = g->handles[o], .splits = 2}));
  note(g, (struct operand[]){{q, RONDO_READ}, {k, RONDO_READ}, {v, RONDO_READ}, {o, RONDO_WRITE}}, 4);
}

/* In place, of one matrix of several. */
static void draw_qr(struct random_graph *g) {
  uint32_t all = draw_state(g, RONDO_F32, 3, (int64_t[]){3, 6, 10});
  uint32_t tau = draw_result(g, RONDO_F32, 2, (int64_t[]){1, 6});
  uint32_t a = random_graph_view(g, all, (int64_t[RONDO_MAX_RANK]){random_between(g->random, 0, 2), 0, 0},
                                 (int64_t[RONDO_MAX_RANK]){1, 6, 10});
  REQUIRE_OK(rondo_add_qr(g->graph, &(rondo_qr_desc){.a = g->handles[a], .h = g->handles[a], .tau = g->handles[tau]}));
  note(g, (struct operand[]){{a, RONDO_READ}, {a, RONDO_WRITE}, {tau, RONDO_WRITE}}, 3);
}

static void draw_inverse(struct random_graph *g) {
  uint32_t a = draw_state(g, RONDO_F32, 3, (int64_t[]){1, 16, 16});
  REQUIRE_OK(rondo_add_triangular_inverse(g->graph,
                                          &(rondo_triangular_inverse_desc){.a = g->handles[a], .out = g->handles[a]}));
  note(g, (struct operand[]){{a, RONDO_READ}, {a, RONDO_WRITE}}, 2);
}

static void draw_quantize(struct random_graph *g) {
  uint32_t x = draw_state(g, RONDO_F32, 2, (int64_t[]){2, 32});
  uint32_t codes = draw_result(g, RONDO_NVFP4, 2, (int64_t[]){2, 32});
  uint32_t scales = draw_result(g, RONDO_E4M3, 2, (int64_t[]){2, 2});
  REQUIRE_OK(rondo_add_quantize_nvfp4(
      g->graph,
      &(rondo_quantize_nvfp4_desc){.x = g->handles[x], .codes = g->handles[codes], .scales = g->handles[scales]}));
  note(g, (struct operand[]){{x, RONDO_READ}, {codes, RONDO_WRITE}, {scales, RONDO_WRITE}}, 3);
}

/* From whatever is written to a new tensor. */
static void draw_copy(struct random_graph *g) {
  uint32_t from = random_graph_tensor(g);
  if (!random_graph_is_written(g, from)) return draw_inverse(g);
  const struct tensor *tensor = &g->graph->tensors[from];
  int64_t shape[RONDO_MAX_RANK];
  memcpy(shape, tensor->shape, sizeof shape);
  uint32_t to = draw_result(g, tensor->dtype, tensor->rank, shape);
  REQUIRE_OK(rondo_add_copy(g->graph, &(rondo_copy_desc){.src = g->handles[from], .dst = g->handles[to]}));
  note(g, (struct operand[]){{from, RONDO_READ}, {to, RONDO_WRITE}}, 2);
}

void random_graph_fill(struct random_graph *g, uint32_t root_count, uint32_t task_count, bool may_read_unwritten) {
  static void (*const operations[])(struct random_graph *) = {draw_gemv,    draw_attention, draw_qr,
                                                              draw_inverse, draw_quantize,  draw_copy};
  enum { TENSORS_OF_A_TASK = 8 };
  for (uint32_t i = 0; i < root_count; i++) draw_root(g);
  for (uint32_t t = 0; t < task_count; t++) {
    bool has_room = g->tensor_count + TENSORS_OF_A_TASK < g->tensor_limit;
    if (has_room && chance(g, 20))
      operations[random_between(g->random, 0, 5)](g);
    else
      draw_kernel(g, may_read_unwritten);
    if (chance(g, 20)) {
      const uint32_t before = (uint32_t)random_between(g->random, 0, t);
      random_graph_after(g, before, (uint32_t)random_between(g->random, 0, t));
    }
  }
  uint32_t roots = g->tensor_count;
  for (uint32_t i = 0; i < roots; i++) {
    bool is_output = g->areas[i].root == i && g->graph->tensors[i].kind == TENSOR_OUTPUT;
    if (is_output && g->task_count < g->task_limit && !random_graph_is_written(g, i) &&
        !(may_read_unwritten && chance(g, 30)))
      random_graph_kernel(g, &(struct operand){i, RONDO_WRITE}, 1);
  }
}
