/* qr_sizes.c - the shared memory, scratch and workspaces of QR: pure functions of a task. */
#include "../../runtime/integer.h"
#include "qr_choose.h"

/* 8 modulo 16: the four column lanes of a warp read different banks (f64: the two of each half). */
int64_t qr_leading(int64_t m) { return (m + 7) / 16 * 16 + 8; }

uint64_t qr_shared_bytes(uint32_t element_bytes, int64_t m, int64_t n) {
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
  /* A part for each block that has no output to work in: enough to fill a chip. Matrices that stay in registers or
   * shared memory need it on the host only. */
  const struct qr_panels *panels = thin_panels_of(problem);
  const bool small =
      !panels && (qr_tile_on_every_chip(problem) || qr_fits_every_chip(problem->element_bytes, problem->m, problem->n));
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
