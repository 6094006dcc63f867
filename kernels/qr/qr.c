/* qr.c - rondo_add_qr and its family: the description of tasks, the checks of their operands, and their shared memory,
 * scratch and workspaces. */
#include <inttypes.h>

#include "../../runtime/integer.h"
#include "qr_choose.h"

/* ---- Adding tasks ----------------------------------------------------------------------------------------------- */

#define DESC_CHECK(desc, function)                                                                                     \
  if (!(desc)) return op_refuse("describe: " function ": the description is NULL")

rondo_status rondo_add_qr(rondo_graph *graph, const rondo_qr_desc *desc) {
  DESC_CHECK(desc, "rondo_add_qr");
  struct op_argument arguments[] = {
      [QR_A] = {"a", desc->a, RONDO_READ, 0},        [QR_H] = {"h", desc->h, RONDO_WRITE, QR_A + 1},
      [QR_TAU] = {"tau", desc->tau, RONDO_WRITE, 0}, [QR_R] = {"r", desc->r, RONDO_WRITE, 0},
      [QR_Q] = {"q", desc->q, RONDO_WRITE, 0},
  };
  struct qr_attributes attributes = {.layout = (int32_t)desc->layout};
  return graph_add(graph, &op_qr, desc->name, arguments, 5, &attributes, sizeof attributes);
}

rondo_status rondo_add_qr_panel(rondo_graph *graph, const rondo_qr_panel_desc *desc) {
  DESC_CHECK(desc, "rondo_add_qr_panel");
  struct op_argument arguments[] = {
      [QR_PANEL_A] = {"a", desc->a, RONDO_READ_WRITE, 0},
      [QR_PANEL_TAU] = {"tau", desc->tau, RONDO_WRITE, 0},
  };
  struct qr_attributes attributes = {.layout = (int32_t)desc->layout};
  return graph_add(graph, &op_qr_panel, desc->name, arguments, 2, &attributes, sizeof attributes);
}

static rondo_status apply_add(rondo_graph *graph, const struct op *op, const char *name, rondo_tensor v,
                              rondo_tensor tau, rondo_tensor c, struct qr_attributes attributes) {
  struct op_argument arguments[] = {
      [QR_APPLY_V] = {"v", v, RONDO_READ, 0},
      [QR_APPLY_TAU] = {"tau", tau, RONDO_READ, 0},
      [QR_APPLY_C] = {"c", c, RONDO_READ_WRITE, 0},
  };
  return graph_add(graph, op, name, arguments, 3, &attributes, sizeof attributes);
}

rondo_status rondo_add_qr_update(rondo_graph *graph, const rondo_qr_update_desc *desc) {
  DESC_CHECK(desc, "rondo_add_qr_update");
  return apply_add(graph, &op_qr_update, desc->name, desc->v, desc->tau, desc->c,
                   (struct qr_attributes){.layout = (int32_t)desc->layout, .transpose = 1});
}

rondo_status rondo_add_qr_apply(rondo_graph *graph, const rondo_qr_apply_desc *desc) {
  DESC_CHECK(desc, "rondo_add_qr_apply");
  return apply_add(graph, &op_qr_apply, desc->name, desc->v, desc->tau, desc->c,
                   (struct qr_attributes){.layout = (int32_t)desc->layout, .transpose = desc->transpose != 0});
}

rondo_status rondo_add_qr_extract(rondo_graph *graph, const rondo_qr_extract_desc *desc) {
  DESC_CHECK(desc, "rondo_add_qr_extract");
  struct op_argument arguments[] = {
      [QR_EXTRACT_H] = {"h", desc->h, RONDO_READ, 0},
      [QR_EXTRACT_R] = {"r", desc->r, RONDO_WRITE, 0},
      [QR_EXTRACT_Q] = {"q", desc->q, RONDO_WRITE, 0},
  };
  struct qr_attributes attributes = {.layout = (int32_t)desc->layout};
  return graph_add(graph, &op_qr_extract, desc->name, arguments, 3, &attributes, sizeof attributes);
}

int32_t rondo_qr_panel_width(rondo_dtype dtype, int64_t m, int64_t n) {
  if ((dtype != RONDO_F32 && dtype != RONDO_F64) || m <= 0 || n <= 0) return 0;
  uint32_t element_bytes = rondo_dtype_bits(dtype) / 8;
  if (m <= RONDO_MAX_ELEMENTS / n && qr_fits_every_chip(element_bytes, m, n)) return 0;
  int32_t width = 32;
  while (width > 8 && !(m <= RONDO_MAX_ELEMENTS / width && qr_fits_every_chip(element_bytes, m, width))) width /= 2;
  return n > m || width < n ? width : 0; /* if n <= m, n is the smaller one */
}

rondo_status rondo_add_triangular_inverse(rondo_graph *graph, const rondo_triangular_inverse_desc *desc) {
  DESC_CHECK(desc, "rondo_add_triangular_inverse");
  struct op_argument arguments[] = {
      [TRIANGULAR_INVERSE_A] = {"a", desc->a, RONDO_READ, 0},
      [TRIANGULAR_INVERSE_OUT] = {"out", desc->out, RONDO_WRITE, TRIANGULAR_INVERSE_A + 1},
  };
  return graph_add(graph, &op_triangular_inverse, desc->name, arguments, 2, NULL, 0);
}

/* ---- Operands --------------------------------------------------------------------------------------------------- */

/* Matrices are the last two dimensions; one before them is the batch. */
static bool is_matrix(const struct op_operand *operand) {
  return operand->present && (operand->rank == 2 || operand->rank == 3);
}

static bool is_wide(rondo_dtype dtype) { return dtype == RONDO_F32 || dtype == RONDO_F64; }

static rondo_status layout_check(int32_t layout) {
  if (layout != RONDO_COLUMN_MAJOR && layout != RONDO_ROW_MAJOR)
    return op_refuse("layout is %d, expected RONDO_COLUMN_MAJOR or RONDO_ROW_MAJOR", layout);
  return RONDO_OK;
}

rondo_status matrix_check(const char *name, const struct op_operand *operand, int32_t layout) {
  OP_TRY(layout_check(layout));
  if (!is_matrix(operand) || !is_wide(operand->dtype))
    return op_unexpected(name, operand, "a matrix or a batch of matrices, f32 or f64");
  return RONDO_OK;
}

/* rows x columns in the layout and batch of `like`. */
rondo_status matrix_like_check(const char *name, const struct op_operand *operand, const struct op_operand *like,
                               int32_t layout, int64_t rows, int64_t columns) {
  int64_t shape[3] = {like->shape[0]};
  uint32_t rank = like->rank;
  shape[rank - 2] = layout == RONDO_ROW_MAJOR ? rows : columns;
  shape[rank - 1] = layout == RONDO_ROW_MAJOR ? columns : rows;
  return op_expect(name, operand, qr_computed_in(like->dtype), rank, shape);
}

static rondo_status tau_check(const struct op_operand *tau, const struct op_operand *like, int64_t k) {
  int64_t shape[2] = {like->shape[0]};
  shape[like->rank - 2] = k;
  return op_expect("tau", tau, qr_computed_in(like->dtype), like->rank - 1, shape);
}

/* ---- Checks ----------------------------------------------------------------------------------------------------- */

static rondo_status form_check(const struct op_task *task) {
  bool h = task->operands[QR_H].present, tau = task->operands[QR_TAU].present;
  bool r = task->operands[QR_R].present, q = task->operands[QR_Q].present;
  if (h != tau) return op_refuse("%s is absent: h and tau come together", h ? "tau" : "h");
  if (h && (r || q))
    return op_refuse("%s is present beside h and tau: expected h and tau, or r, or q and r", r ? "r" : "q");
  if (!h && !r && !q) return op_refuse("h is absent, and so are r and q: expected h and tau, or r, or q and r");
  return RONDO_OK;
}

/* f16 and bf16 widen on their way into the tiles (qr_tile_memory.cuh). */
static rondo_status factored_check(const struct op_task *task) {
  const struct op_operand *a = &task->operands[QR_A];
  if (!is_matrix(a) || (!is_wide(a->dtype) && !qr_is_narrow(a->dtype)))
    return op_unexpected("a", a, "a matrix or a batch of matrices, f32 or f64, or f16 or bf16 for h and tau");
  if (!qr_is_narrow(a->dtype)) return RONDO_OK;
  const struct qr_sizes sizes = qr_sizes_of(a, qr_layout_of(task));
  const bool is_square = sizes.rows <= 128 && sizes.columns <= 128,
             is_panel = sizes.rows <= 1024 && sizes.columns <= 32;
  if (!task->operands[QR_H].present || (!is_square && !is_panel))
    return op_unexpected("a", a, "f32 or f64: f16 and bf16 are factored into h and tau, up to 128 x 128 or 1024 x 32");
  return RONDO_OK;
}

rondo_status qr_check(const struct op_task *task) {
  const struct op_operand *operands = task->operands, *a = &operands[QR_A];
  int32_t layout = qr_layout_of(task);
  OP_TRY(layout_check(layout));
  OP_TRY(factored_check(task));
  OP_TRY(form_check(task));
  struct qr_sizes sizes = qr_sizes_of(a, layout);
  int64_t k = smaller(sizes.rows, sizes.columns);
  if (operands[QR_H].present) {
    OP_TRY(matrix_like_check("h", &operands[QR_H], a, layout, sizes.rows, sizes.columns));
    return tau_check(&operands[QR_TAU], a, k);
  }
  if (operands[QR_R].present) OP_TRY(matrix_like_check("r", &operands[QR_R], a, layout, k, sizes.columns));
  if (operands[QR_Q].present) OP_TRY(matrix_like_check("q", &operands[QR_Q], a, layout, sizes.rows, k));
  return RONDO_OK;
}

rondo_status qr_panel_check(const struct op_task *task) {
  const struct op_operand *a = &task->operands[QR_PANEL_A];
  int32_t layout = qr_layout_of(task);
  OP_TRY(matrix_check("a", a, layout));
  struct qr_sizes sizes = qr_sizes_of(a, layout);
  return tau_check(&task->operands[QR_PANEL_TAU], a, smaller(sizes.rows, sizes.columns));
}

rondo_status qr_apply_check(const struct op_task *task) {
  const struct op_operand *v = &task->operands[QR_APPLY_V], *c = &task->operands[QR_APPLY_C];
  int32_t layout = qr_layout_of(task);
  OP_TRY(matrix_check("v", v, layout));
  OP_TRY(matrix_check("c", c, layout));
  struct qr_sizes sizes = qr_sizes_of(v, layout);
  OP_TRY(tau_check(&task->operands[QR_APPLY_TAU], v, smaller(sizes.rows, sizes.columns)));
  if (c->rank != v->rank) return op_unexpected("c", c, v->rank == 2 ? "one matrix, as v is" : "a batch, as v is");
  return matrix_like_check("c", c, v, layout, sizes.rows, qr_sizes_of(c, layout).columns);
}

rondo_status qr_extract_check(const struct op_task *task) {
  const struct op_operand *h = &task->operands[QR_EXTRACT_H];
  const struct op_operand *r = &task->operands[QR_EXTRACT_R], *q = &task->operands[QR_EXTRACT_Q];
  int32_t layout = qr_layout_of(task);
  OP_TRY(matrix_check("h", h, layout));
  struct qr_sizes sizes = qr_sizes_of(h, layout);
  int64_t k = smaller(sizes.rows, sizes.columns);
  if (!r->present && !q->present) return op_refuse("r is absent, and so is q: expected either");
  if (r->present) OP_TRY(matrix_like_check("r", r, h, layout, k, sizes.columns));
  if (q->present) OP_TRY(matrix_like_check("q", q, h, layout, sizes.rows, k));
  return RONDO_OK;
}

rondo_status triangular_inverse_check(const struct op_task *task) {
  const struct op_operand *a = &task->operands[TRIANGULAR_INVERSE_A];
  OP_TRY(matrix_check("a", a, RONDO_ROW_MAJOR));
  struct qr_sizes sizes = qr_sizes_of(a, RONDO_ROW_MAJOR);
  if (sizes.rows != sizes.columns || sizes.rows < 16 || sizes.rows > 128)
    return op_unexpected("a", a, "square matrices of 16 to 128 rows");
  return op_expect("out", &task->operands[TRIANGULAR_INVERSE_OUT], a->dtype, a->rank, a->shape);
}

/* ---- Reads of operands ------------------------------------------------------------------------------------------- */

/* Reflectors stand in v's first min(m, n) columns. */
int64_t qr_apply_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access) {
  if (operand != QR_APPLY_V || access != RONDO_READ) return op_elements(&task->operands[operand]);
  const struct qr_problem problem = qr_problem_nowhere(task);
  return problem.batch * problem.m * problem.k;
}

/* R stands in h's first min(m, n) rows, and Q of the identity is not read from anywhere. */
int64_t qr_extract_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access) {
  const bool is_h = operand == QR_EXTRACT_H && access == RONDO_READ;
  return op_elements(&task->operands[is_h ? (uint32_t)QR_EXTRACT_R : operand]);
}

/* ---- Shared memory, scratch and workspaces ----------------------------------------------------------------------- */

/* 8 modulo 16: the four column lanes of a warp read different banks (f64: the two of each half). */
int64_t qr_leading(int64_t m) { return (m + 7) / 16 * 16 + 8; }

/* A whole matrix there with its tau. */
static uint64_t qr_shared_bytes(uint32_t element_bytes, int64_t m, int64_t n) {
  return (uint64_t)(qr_leading(m) * n + smaller(m, n)) * element_bytes;
}

bool qr_fits_every_chip(uint32_t element_bytes, int64_t m, int64_t n) {
  return qr_shared_bytes(element_bytes, m, n) <= EVERY_CHIP_SHARED_BYTES;
}

enum qr_place qr_place_of(const struct qr_problem *problem) {
  if (problem->h.is_present) return QR_IN_H;
  if (problem->q.is_present && (problem->m >= problem->n || !problem->r.is_present)) return QR_IN_Q;
  return problem->m <= problem->n ? QR_IN_R : QR_IN_WORKSPACE;
}

/* The kernel by panels for Q or R, if some chip has no tile for them. NULL: every chip has one, or no kernel takes so
 * many rows. */
static const struct qr_panels *thin_panels_of(const struct qr_problem *problem) {
  return qr_tile_on_every_chip(problem) ? NULL : qr_panels_of(problem->element_bytes, problem->m);
}

struct qr_workspace qr_workspace_of(const struct qr_problem *problem) {
  enum { MULTIPROCESSORS = 160 }; /* no chip that Rondo is compiled for has more */
  struct qr_workspace workspace = {0};
  if (problem->h.is_present || !problem->k || !problem->batch) return workspace;
  /* A part for each block that has no output to work in: enough to fill a chip. Matrices that stay in registers need it
   * on the host and, of f64, on chips with less shared memory. */
  const struct qr_panels *panels = thin_panels_of(problem);
  const bool small = !panels && qr_tile_on_every_chip(problem);
  workspace.workers =
      smaller(problem->batch, small ? QR_HOST_WORKERS : MULTIPROCESSORS * (panels ? panels->blocks : 2));
  /* R alone by panels has no place for reflectors in an output. */
  if (qr_place_of(problem) == QR_IN_WORKSPACE || (!problem->q.is_present && panels))
    workspace.work_bytes = qr_part_bytes(qr_workspace_leading(problem->m) * problem->k * problem->element_bytes);
  workspace.worker_bytes = workspace.work_bytes + qr_part_bytes(problem->k * problem->element_bytes);
  return workspace;
}

uint64_t qr_triangle_bytes(const struct qr_problem *problem) {
  const struct qr_panels *panels = problem->q.is_present ? thin_panels_of(problem) : NULL;
  if (!panels) return 0;
  return (uint64_t)(round_up(problem->k, panels->group) * panels->group) * problem->element_bytes;
}

uint64_t qr_scratch_bytes(const struct op_task *task) {
  struct qr_problem problem = qr_problem_nowhere(task);
  struct qr_workspace workspace = qr_workspace_of(&problem);
  uint64_t bytes = (uint64_t)workspace.workers * workspace.worker_bytes,
           triangles = (uint64_t)problem.batch * qr_triangle_bytes(&problem);
  return bytes > triangles ? bytes : triangles;
}

/* In a tile. Other kernels read the matrix again. */
bool qr_touches_once(const struct op_task *task) {
  const struct qr_problem problem = qr_problem_nowhere(task);
  return qr_tile_on_every_chip(&problem);
}
