/* qr_panels_plan.c - plans of QR by panels: of the kernels that hold the rows, that of the fewest. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "qr_choose.h"

#define PANELS(chips, parameters, name, threads, blocks, type, layers, tile_columns, row_lanes, column_lanes, chunk,   \
               group, together)                                                                                        \
  {KERNEL_ENTRY(chips, parameters, name, threads),                                                                     \
   sizeof(type),                                                                                                       \
   blocks,                                                                                                             \
   (layers) * (row_lanes) * (int32_t)(16 / sizeof(type)),                                                              \
   (tile_columns) * (column_lanes),                                                                                    \
   chunk,                                                                                                              \
   group},
static const struct qr_panels kernels[] = {QR_PANELS_F32_KERNELS(PANELS, rondo_qr_panels)
                                               QR_PANELS_F64_KERNELS(PANELS, rondo_qr_panels)};
static const struct qr_panels thin_q[] = {QR_PANELS_F32_KERNELS(PANELS, rondo_qr_panels_thin_q)
                                              QR_PANELS_F64_KERNELS(PANELS, rondo_qr_panels_thin_q)};

const struct qr_panels *qr_panels_of(uint32_t element_bytes, int64_t m) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (kernels[i].element_bytes == (int32_t)element_bytes && m <= kernels[i].rows) return &kernels[i];
  return NULL;
}

/* Q alone does not need the columns of A right of the first m. Columns are counted in an int, and one panel more. */
bool qr_plan_panels(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  const bool has_h = problem->h.is_present, has_q = problem->q.is_present;
  const int64_t n = has_h || problem->r.is_present ? problem->n : problem->k;
  const struct qr_panels *panels = qr_panels_of(problem->element_bytes, problem->m);
  if (!panels || n > INT32_MAX / 2 || problem->batch > INT32_MAX) return false;
  const struct qr_workspace workspace = qr_workspace_of(problem);
  if (!has_h && !qr_triangle_bytes(problem) && !workspace.work_bytes) return false; /* no scratch was planned */
  plan->panels = panels;
  plan->kernel = &panels->kernel;
  plan->thin_q = has_q ? &thin_q[panels - kernels] : NULL;
  plan->threads = panels->kernel.threads;
  plan->shared_bytes = qr_panels_shared_bytes(panels->element_bytes, panels->rows, panels->columns,
                                              (int32_t)panels->kernel.threads, panels->chunk, panels->group);
  plan->grid = problem->batch;
  /* With a workspace no more blocks than run at once: others would begin when these have ended. */
  if (!has_h && !has_q) plan->grid = smaller(workspace.workers, (int64_t)panels->blocks * chip->multiprocessors);
  return plan->shared_bytes <= chip->shared_bytes;
}
