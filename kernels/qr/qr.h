/* qr.h - batched Householder QR: its operations (kernels/ops.c has their rows), its parameters and lists of kernels.
 *
 * A matrix is an address and three strides, so layouts, leading dimensions and column panels are one case. Conventions
 * are LAPACK's: H = I - tau v v^T with v = (0, .., 0, 1, x / (alpha - beta)) and beta = -sign(alpha) |(alpha, x)|. If x
 * is zero or empty, tau = 0: H = I, and alpha is kept. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

struct qr_matrix {
  void *data;                                      /* NULL: absent */
  int64_t row_stride, column_stride, batch_stride; /* in elements */
};

struct qr_vector {
  void *data;
  int64_t batch_stride;
};

/* How a matrix is read or written. Vectors have 16 bytes in the type of the kernel: four numbers, or two of f64. */
enum qr_tile_access {
  QR_TILE_DENSE,   /* contiguous as a whole, aligned, its columns made of whole vectors */
  QR_TILE_VECTORS, /* columns contiguous, aligned and made of whole vectors */
  QR_TILE_CONTIGUOUS,
  QR_TILE_ANY,
};

/* The numbers of a matrix to factor. */
enum qr_number {
  QR_OWN, /* the type that the kernel computes in */
  QR_F16,
  QR_BF16,
};

/* rondo_qr_blocked_* and _global_*. h, r and q may be absent. The kernels factor in `work`: h, r or q, or
 * (workers != 0) a workspace of each block of the grid. */
struct qr_parameters {
  struct qr_matrix a, h, r, q, work;
  struct qr_vector tau, work_tau;
  int64_t m, n, batch;
  int64_t work_columns;     /* n, or less if the rest of R is not wanted */
  int32_t workers;          /* work and work_tau advance with: 0 the matrix, 1 the block of the grid */
  int32_t work_tau_workers; /* the same for work_tau */
  int32_t leading;          /* elements from column to column in shared memory */
  int32_t panel;            /* columns factored at a time, and updated at a time */
  struct completion done;
};

/* rondo_qr_apply_*: C := Q C (backward) or Q^T C (forward), one block for `block_columns` columns of one matrix. */
struct qr_apply_parameters {
  struct qr_matrix v, c;
  struct qr_vector tau;
  int64_t m, reflectors, columns;
  int64_t blocks; /* of the grid for one matrix */
  int32_t backward;
  int32_t leading;
  int32_t block_columns;
  int32_t chunk; /* reflectors in shared memory at a time */
  struct completion done;
};

/* rondo_qr_extract_*: r := the upper triangle of h, q := the first columns of the identity. */
struct qr_extract_parameters {
  struct qr_matrix h, r, q;
  int64_t m, n, k, batch;
  struct completion done;
};

/* rondo_triangular_inverse_*: a block has `matrices` triangles. */
struct triangular_inverse_parameters {
  struct qr_matrix a, out;
  int64_t batch;
  int32_t n, matrices;
  int32_t vectors; /* the rows of a consist of whole vectors of 16 bytes */
  struct completion done;
};

enum {
  QR_TILE_COLUMNS = 4,      /* columns that a thread updates at a time */
  QR_PANEL_COLUMNS = 32,    /* widest panel of the blocked kernel */
  QR_TRIANGULAR_BLOCK = 16, /* rows that a thread of the triangular inverse keeps in registers */
  QR_BLOCKED_THREADS = 512,
  QR_GLOBAL_THREADS = 256,
  QR_EXTRACT_THREADS = 256,
  QR_APPLY_THREADS = 256,           /* at most */
  TRIANGULAR_INVERSE_THREADS = 128, /* at most, */
  TRIANGULAR_INVERSE_LEAST_THREADS = 64,
  /* Most dynamic shared memory of a block on sm_80. sm_90 and sm_100 have more, other chips that run sm_80's code may
   * have less: they use other kernels. */
  EVERY_CHIP_SHARED_BYTES = 163 * 1024,
};

/* Pure functions for the host and the device. */
#ifdef __CUDACC__
#define QR_CONSTANT static __host__ __device__ constexpr
#else
#define QR_CONSTANT static inline
#endif

/* Threads of one triangular inverse: a column each, in whole warps, or two matrices of 16 columns in a warp. */
QR_CONSTANT int32_t triangular_inverse_threads(int32_t n) { return n <= 16 ? 16 : (n + 31) / 32 * 32; }
/* Numbers of a block of 16 x 16 in shared memory, with padding in the middle and at the end; and the bytes of a matrix
 * there: its blocks on and below the diagonal, and one of zeros. */
QR_CONSTANT int32_t triangular_inverse_block_numbers(int32_t element_bytes) { return element_bytes == 4 ? 272 : 258; }
QR_CONSTANT int32_t triangular_inverse_bytes(int32_t n, int32_t element_bytes) {
  int32_t blocks = (n + QR_TRIANGULAR_BLOCK - 1) / QR_TRIANGULAR_BLOCK;
  return (blocks * (blocks + 1) / 2 + 1) * triangular_inverse_block_numbers(element_bytes) * element_bytes;
}

/* The kernels: a list for each .cu file. KERNEL(chips, parameters, name, the most threads of a block, blocks that a
 * multiprocessor must hold, device function). The blocks leave a thread few registers, without spills. */
#define QR_BLOCKED_KERNELS(KERNEL)                                                                                     \
  KERNEL(EVERY_CHIP, qr_parameters, rondo_qr_blocked_f32, QR_BLOCKED_THREADS, 1, qr_blocked<float>)                    \
  KERNEL(EVERY_CHIP, qr_parameters, rondo_qr_blocked_f64, QR_BLOCKED_THREADS, 1, qr_blocked<double>)                   \
  KERNEL(EVERY_CHIP, qr_parameters, rondo_qr_global_f32, QR_GLOBAL_THREADS, 1, qr_global<float>)                       \
  KERNEL(EVERY_CHIP, qr_parameters, rondo_qr_global_f64, QR_GLOBAL_THREADS, 1, qr_global<double>)
#define QR_APPLY_KERNELS(KERNEL)                                                                                       \
  KERNEL(EVERY_CHIP, qr_apply_parameters, rondo_qr_apply_f32, QR_APPLY_THREADS, 4, qr_apply<float>)                    \
  KERNEL(EVERY_CHIP, qr_apply_parameters, rondo_qr_apply_f64, QR_APPLY_THREADS, 3, qr_apply<double>)                   \
  KERNEL(EVERY_CHIP, qr_apply_parameters, rondo_qr_apply_global_f32, QR_APPLY_THREADS, 1, qr_apply_global<float>)      \
  KERNEL(EVERY_CHIP, qr_apply_parameters, rondo_qr_apply_global_f64, QR_APPLY_THREADS, 1, qr_apply_global<double>)
#define QR_EXTRACT_KERNELS(KERNEL)                                                                                     \
  KERNEL(EVERY_CHIP, qr_extract_parameters, rondo_qr_extract_f32, QR_EXTRACT_THREADS, 0, qr_extract<float>)            \
  KERNEL(EVERY_CHIP, qr_extract_parameters, rondo_qr_extract_f64, QR_EXTRACT_THREADS, 0, qr_extract<double>)
#define TRIANGULAR_INVERSE_KERNELS(KERNEL)                                                                             \
  KERNEL(EVERY_CHIP, triangular_inverse_parameters, rondo_triangular_inverse_f32, TRIANGULAR_INVERSE_THREADS, 5,       \
         triangular_inverse<float>)                                                                                    \
  KERNEL(EVERY_CHIP, triangular_inverse_parameters, rondo_triangular_inverse_f64, TRIANGULAR_INVERSE_THREADS, 3,       \
         triangular_inverse<double>)

#ifndef __CUDACC__
#include "../../runtime/integer.h"
#include "../../runtime/op.h"

extern const struct op op_qr, op_qr_panel, op_qr_update, op_qr_apply, op_qr_extract, op_triangular_inverse;

enum { QR_A, QR_H, QR_TAU, QR_R, QR_Q };           /* operands of qr */
enum { QR_PANEL_A, QR_PANEL_TAU };                 /* of qr_panel */
enum { QR_APPLY_V, QR_APPLY_TAU, QR_APPLY_C };     /* of qr_update and qr_apply */
enum { QR_EXTRACT_H, QR_EXTRACT_R, QR_EXTRACT_Q }; /* of qr_extract */
enum { TRIANGULAR_INVERSE_A, TRIANGULAR_INVERSE_OUT };

/* Attributes of all but triangular_inverse. */
struct qr_attributes {
  int32_t layout;
  int32_t transpose; /* qr_apply; qr_update always transposes */
};

/* The layout of a task's matrices. */
static inline int32_t qr_layout_of(const struct op_task *task) {
  const struct qr_attributes *attributes = op_attributes(task);
  return attributes->layout;
}

/* An operand of a task of QR. */
struct qr_operand {
  bool is_present;
  enum qr_tile_access access;
  struct qr_matrix matrix;
};

/* A task of QR or least squares: its matrices, whichever of its operands they are. */
struct qr_problem {
  int64_t batch, m, n, k; /* of a; k = min(m, n) */
  int64_t columns;        /* of c */
  rondo_dtype dtype;      /* of a */
  uint32_t element_bytes; /* of the type that it is computed in */
  struct qr_operand a;    /* the matrix to factor, or with the reflectors that are applied or extracted */
  struct qr_operand h, r, q, c;
  struct qr_vector tau;
};
struct qr_problem qr_problem_of(const struct op_call *call);
/* The same before the task has memory. */
static inline struct qr_problem qr_problem_nowhere(const struct op_task *task) {
  return qr_problem_of(&(struct op_call){.task = task, .data = op_nowhere});
}

/* The workspace of tasks whose outputs cannot hold the matrix while it is factored. */
struct qr_workspace {
  int64_t workers;       /* matrices that are factored at a time, each with its own part; 0: no workspace */
  uint64_t work_bytes;   /* of the copy of one matrix; 0 if an output serves */
  uint64_t worker_bytes; /* of one part: the matrix, then tau */
};
struct qr_workspace qr_workspace_of(const struct qr_problem *problem);

/* Matrices with scratch that the host works on at a time. */
enum { QR_HOST_WORKERS = 64 };

/* The bytes of a part of the scratch: the next part is aligned as the scratch is. */
static inline uint64_t qr_part_bytes(int64_t bytes) { return (uint64_t)round_up(bytes, 256); }

/* The place in which a matrix is factored that does not stay in shared memory. */
enum qr_place { QR_IN_H, QR_IN_R, QR_IN_Q, QR_IN_WORKSPACE };
enum qr_place qr_place_of(const struct qr_problem *problem);

/* f16 and bf16; and the type that a matrix of `dtype` is computed in. */
bool qr_is_narrow(rondo_dtype dtype);
rondo_dtype qr_computed_in(rondo_dtype dtype);

/* The batch and sizes of a matrix operand that passed matrix_check. */
struct qr_sizes {
  int64_t batch, rows, columns;
};
struct qr_sizes qr_sizes_of(const struct op_operand *operand, int32_t layout);

struct qr_matrix qr_matrix_of(const struct op_operand *operand, void *data, int32_t layout);
struct qr_vector qr_vector_of(const struct op_operand *operand, void *data);

/* Elements from column to column in shared memory. */
int64_t qr_leading(int64_t m);
/* Is a matrix factored in shared memory even on the smallest of the chips Rondo is compiled for? */
bool qr_fits_every_chip(uint32_t element_bytes, int64_t m, int64_t n);

/* Checks that end in a sentence: a layout, and a matrix or a batch of them; rows x columns in the layout and batch of
 * `like`. */
rondo_status matrix_check(const char *name, const struct op_operand *operand, int32_t layout);
rondo_status matrix_like_check(const char *name, const struct op_operand *operand, const struct op_operand *like,
                               int32_t layout, int64_t rows, int64_t columns);

OP_FUNCTIONS(qr);
rondo_status qr_panel_check(const struct op_task *task);
OP_FUNCTIONS(qr_apply);
OP_FUNCTIONS(qr_extract);
OP_FUNCTIONS(triangular_inverse);

uint64_t qr_scratch_bytes(const struct op_task *task);
bool qr_touches_once(const struct op_task *task);
int64_t qr_apply_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
int64_t qr_extract_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
#endif
