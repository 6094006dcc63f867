/* qr_panels_plan.h - which kernel factors a matrix by panels, if any does. */
#ifndef RONDO_QR_PANELS_PLAN_H
#define RONDO_QR_PANELS_PLAN_H

#include "qr_panels.h"

struct qr_panels {
  struct op_kernel kernel;
  int32_t element_bytes, blocks, rows, columns, chunk, group; /* blocks: of a multiprocessor */
};

struct qr_panels_problem {
  uint32_t element_bytes;
  int64_t m, n, batch;
  int64_t shared_bytes; /* of the chip */
};

struct qr_panels_plan {
  const struct qr_panels *panels; /* NULL: left to other designs */
  const struct qr_panels *thin_q; /* the second kernel, where Q is wanted: of the same shape */
  int64_t shared_bytes;
};

/* The kernel for the fewest rows that holds m; NULL: none does. */
const struct qr_panels *qr_panels_of(uint32_t element_bytes, int64_t m);

/* Elements from column to column of a workspace: whole vectors of 16 bytes. */
static inline int64_t qr_workspace_leading(int64_t m) { return (m + 3) / 4 * 4; }

/* Scratch of one matrix whose Q is formed: T of each group of reflectors. 0: Q is not wanted, or tiles form it. */
uint64_t qr_triangle_bytes(const struct qr_problem *problem);

/* Pure: the kernel for the fewest rows. The batch chooses nothing, so that it changes no bit. */
struct qr_panels_plan qr_panels_plan_of(const struct qr_panels_problem *problem);

#endif
