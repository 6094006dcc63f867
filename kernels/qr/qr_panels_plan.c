/* qr_panels_plan.c - see qr_panels_plan.h. */
#include "qr_panels_plan.h"

#include "../common/launch.h"

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

struct qr_panels_plan qr_panels_plan_of(const struct qr_panels_problem *problem) {
  enum { COLUMNS_MOST = INT32_MAX / 2 }; /* their number is an int, and so is the next one after the last panel */
  if (problem->n > COLUMNS_MOST || problem->batch > INT32_MAX) return (struct qr_panels_plan){0};
  const struct qr_panels *panels = qr_panels_of(problem->element_bytes, problem->m);
  if (!panels) return (struct qr_panels_plan){0};
  const int64_t bytes = qr_panels_shared_bytes(panels->element_bytes, panels->rows, panels->columns,
                                               (int32_t)panels->kernel.threads, panels->chunk, panels->group);
  return bytes <= problem->shared_bytes ? (struct qr_panels_plan){panels, &thin_q[panels - kernels], bytes}
                                        : (struct qr_panels_plan){0};
}
