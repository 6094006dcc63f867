/* qr_factorisation.h - tasks of rondo_add_qr and rondo_add_qr_panel with their matrices, from description to LAPACK's
 * ratios, the same bits, and NaN that stays in its own matrix. */
#pragma once

#include "qr_oracle.h"

enum form { FORM_H, FORM_PANEL, FORM_R, FORM_Q, FORM_QR };

static const char *const form_names[] = {"h and tau", "panel", "r", "q", "q and r"};

/* One task and its data. Item i of the batch is of kind kinds[i mod kind_count]. */
struct factorisation {
  rondo_dtype dtype;
  rondo_layout layout;
  enum form form;
  int64_t m, n, batch;
  int64_t padding;    /* rows and columns around every matrix, one of them before it, */
  bool aligned;       /* or four; */
  bool dense_h;       /* but none around h */
  rondo_dtype narrow; /* of a, where it is not dtype */
  const enum qr_kind *kinds;
  int64_t kind_count;
  /* Filled by factorisation_add and _read. */
  int64_t k;
  struct qr_place a_place, h_place, r_place, q_place;
  rondo_tensor a, h, tau, r, q;
  double *matrices; /* [batch][n][m] */
};

static const enum qr_kind every_kind[] = {
    QR_DIAGONAL,       QR_UPPER,          QR_LOWER,     QR_CONDITION_2,  QR_CONDITION_MIDDLE, QR_CONDITION_LARGE,
    QR_NEAR_UNDERFLOW, QR_NEAR_OVERFLOW,  QR_RANDOM,    QR_DUPLICATE,    QR_RANK_DEFICIENT,   QR_COLUMN_SCALES,
    QR_ROW_SCALES,     QR_NEAR_COLLINEAR, QR_CLUSTERED, QR_ALTERNATING,  QR_TINY_BELOW,       QR_WILD_SCALES,
    QR_BAND,           QR_ONE_TINY,       QR_ONE_HUGE,  QR_ONE_ZERO,     QR_ONE_DENORMAL,     QR_SMALL_UNITS,
    QR_LARGE_UNITS,    QR_ZERO,           QR_LARGEST,   QR_SOME_LARGEST,
};

static const enum qr_kind hard_kinds[] = {QR_RANDOM, QR_CONDITION_LARGE, QR_LARGEST, QR_WILD_SCALES};

static const enum qr_kind random_kind[] = {QR_RANDOM};

static const enum qr_kind extreme_kinds[] = {QR_ONE_TINY,       QR_ONE_HUGE,    QR_ONE_ZERO,    QR_ONE_DENORMAL,
                                             QR_SMALL_UNITS,    QR_LARGE_UNITS, QR_ZERO,        QR_ALTERNATING,
                                             QR_NEAR_UNDERFLOW, QR_LARGEST,     QR_SOME_LARGEST};

enum { EXTREME_KINDS = sizeof extreme_kinds / sizeof extreme_kinds[0] };

/* Matrix `item` of the batch. */
const double *factorisation_matrix(const struct factorisation *f, int64_t item);

/* Makes the matrices, rounded to the type of a. */
void factorisation_fill(struct factorisation *f, struct random *random);

/* Writes the task and the item as text. */
void factorisation_describe(const struct factorisation *f, int64_t item, char *text, size_t bytes);

/* The results of a factorisation. */
struct results {
  void *h, *tau, *r, *q;
};

/* Frees the results. */
void results_free(struct results *results);

/* tau[j] of an item. */
double factorisation_tau(const struct factorisation *f, const struct results *results, int64_t item, int64_t j);

/* Checks the results of one item. */
void factorisation_expect(const struct factorisation *f, const struct results *results, int64_t item);

/* Runs many factorisations in one graph, and checks all items and guards. */
void factorisations_run(rondo_backend backend, struct factorisation *all, size_t count);

/* Dense, padded and aligned, padded and not, row-major, row-major and padded, padded with a dense H. */
enum { LAYOUTS = 6, DENSE_H_LAYOUT = 5, LAYOUT_SHAPES_MOST = 48 };

static const enum form thin_forms[] = {FORM_QR, FORM_R, FORM_Q};

/* H and tau of all shapes in every layout; every third task factors in place. */
void run_in_every_layout(rondo_backend backend, rondo_dtype dtype, const int16_t (*shapes)[2], size_t count);

/* Q and R, Q alone and R alone in every layout. */
void run_thin_in_every_layout(rondo_backend backend, rondo_dtype dtype, const int16_t (*shapes)[2], size_t count);

/* Runs the factorisations on their own matrices, `replays` times in one graph, and keeps the results. Each replay must
 * give the same bits. */
void factorisations_run_kept(rondo_backend backend, struct factorisation *all, size_t count, int replays,
                             struct results *kept);

enum { BITS_MOST = 32 }; /* factorisations in one call of the three below */

/* Makes matrices in which the first of each batch stands in it again, in the middle and at the end. All three must
 * have the same bits, and so must the first one in a batch of its own. */
void expect_same_bits(rondo_backend backend, struct factorisation *all, size_t count);

/* Q and R together, Q alone and R alone, of the same matrices, have the same bits. `less`: taken off the shapes' rows
 * and columns. */
void expect_same_alone(rondo_backend backend, rondo_dtype dtype, int layout, const int16_t (*shapes)[2], size_t count,
                       int less);

/* Whether no value is NaN or infinite. */
bool all_are_finite(const double *values, int64_t count);

/* An infinity, a NaN and a matrix of NaN appear in the results of their own matrices, and no other matrix has other
 * bits than without them. A batch of 0 stands for 9. */
void expect_poison_stays(rondo_backend backend, struct factorisation *all, size_t count);
