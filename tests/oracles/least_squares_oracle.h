/* least_squares_oracle.h - tasks of rondo_add_least_squares with their matrices, from description to the check of the
 * solutions. */
#pragma once

#include "qr_factorisation.h"

/* Item i of the batch is of kind kinds[i mod kind_count]. */
struct fit {
  rondo_dtype dtype;
  rondo_layout layout;
  int64_t m, n, sides, batch;
  int64_t padding; /* rows and columns around every matrix, one of them before it, */
  bool aligned;    /* or four */
  bool x_alone;    /* without residual and info */
  const enum qr_kind *kinds;
  int64_t kind_count;
  /* Filled by fit_add and fit_fill. */
  struct qr_place a_place, b_place, x_place;
  rondo_tensor a, b, x, residual, info;
  double *matrices, *rights; /* [batch][n][m], [batch][sides][m] */
};

/* The results of a problem, dense. */
struct solution {
  double *x, *residual; /* [batch][sides][n], [batch][sides] */
  int32_t *info;
};

/* Makes the matrices and the right-hand sides. */
void fit_fill(struct fit *p, struct random *random);

/* Frees a solution. */
void solution_free(struct solution *solution);

/* Runs many problems in one graph, replayed once, and checks the numbers around the results. */
void fits_run(rondo_backend backend, struct fit *all, size_t count, struct solution *solutions);

/* Writes the problem and the item as text. */
void fit_describe(const struct fit *p, int64_t item, char *text, size_t bytes);

/* Checks all solutions, and frees the problems and solutions. */
void fits_expect(rondo_backend backend, struct fit *all, size_t count);
