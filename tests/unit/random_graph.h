/* random_graph.h - random graphs of everything that can be described, each with its meaning, element by element: the
 * order of its tasks, and whether an element is read that nothing wrote. The meaning is kept in a map of all elements
 * and shares no code with the library. */
#pragma once

#include "../../runtime/graph.h"
#include "../support.h"

enum { OPERANDS_MOST = 8, NO_TASK = UINT32_MAX };

/* What a tensor, view or reshape has of its root: every element, as its number in the root, in ascending order. */
struct area {
  uint32_t root, rank, count;
  int64_t shape[RONDO_MAX_RANK]; /* dimensions beyond the rank are 1 */
  uint32_t *elements;
};

struct operand {
  uint32_t tensor;
  rondo_access access;
};

struct random_graph {
  rondo_graph *graph;
  struct random *random;
  uint32_t tensor_limit, task_limit, tensor_count, task_count;
  rondo_tensor *handles; /* all by tensor */
  struct area *areas;
  uint32_t *cell_begin; /* of a root; a cell is an element or, of nvfp4, a byte */
  struct task_operands {
    uint32_t count;
    struct operand operand[OPERANDS_MOST];
  } * tasks;
  bool *before;                        /* [t * task_limit + u]: u must come before t, with all that follows from it */
  uint32_t after_count, refused_count; /* rondo_after */
  uint32_t reshape_count, reshape_refused_count;
  /* The map. */
  uint32_t cell_count, reader_count, reader_room;
  struct cell {
    uint32_t writer, readers; /* the last one, and the list of those since then */
    bool is_written;
  } * cells;
  struct reader {
    uint32_t task, next;
  } * readers;
  uint32_t *visited; /* the cells of one operand */
  /* The first task that reads what nothing wrote, and the map at that time. */
  uint32_t fault_task;
  bool *written_at_fault;
};

void random_graph_begin(struct random_graph *g, struct random *random, uint32_t tensor_limit, uint32_t task_limit);
void random_graph_end(struct random_graph *g);

uint32_t random_graph_root(struct random_graph *g, enum tensor_kind kind, rondo_dtype dtype, uint32_t rank,
                           const int64_t *shape);
uint32_t random_graph_view(struct random_graph *g, uint32_t parent, const int64_t *offset, const int64_t *extent);
/* Some rows and columns of a tensor of two dimensions. */
uint32_t random_graph_tile(struct random_graph *g, uint32_t parent, int64_t row, int64_t rows, int64_t column,
                           int64_t columns);
/* The tensor's number; NO_TENSOR if it was refused: exactly where no strides reach the elements. */
uint32_t random_graph_reshape(struct random_graph *g, uint32_t parent, uint32_t rank, const int64_t *shape);
/* A tensor that is there, or a new view or reshape of one. */
uint32_t random_graph_tensor(struct random_graph *g);
bool random_graph_overlap(const struct random_graph *g, uint32_t a, uint32_t b);
void random_graph_kernel(struct random_graph *g, const struct operand *operands, uint32_t count);
/* Also checks that exactly what would close a cycle is refused. */
void random_graph_after(struct random_graph *g, uint32_t task, uint32_t prerequisite);

/* Tensors of 1 to 4 dimensions, views and reshapes of each other, tasks of every kind over them. Where
 * `may_read_unwritten`, some read what nothing wrote, and some outputs are left unfinished. */
void random_graph_fill(struct random_graph *g, uint32_t root_count, uint32_t task_count, bool may_read_unwritten);

bool random_graph_is_written(struct random_graph *g, uint32_t tensor);    /* wholly, by the tasks so far */
uint32_t random_graph_cells(const struct random_graph *g, uint32_t root); /* how many it has, from cell_begin on */
uint32_t random_graph_cell(const struct random_graph *g, uint32_t root, const int64_t *element);
bool random_graph_touches(const struct random_graph *g, uint32_t task, uint32_t root);

static inline bool must_precede(const struct random_graph *g, uint32_t first, uint32_t second) {
  return g->before[(uint64_t)second * g->task_limit + first];
}
