/* qr_case.c - the table of batched QR, labels and work (qr_case.h). */
#include "qr_case.h"

#include <inttypes.h>
#include <stdio.h>

static const struct row {
  int64_t m, n, batch;
  double f32_us, f64_us;
} rows[] = {
    {8, 8, 1000, 2.3, 2.9},     {16, 16, 1000, 3.6, 5.2},     {32, 32, 1000, 9.5, 14.5}, {64, 64, 1000, 30, 65},
    {128, 128, 1000, 200, 480}, {256, 256, 1000, 1400, 2500}, {128, 16, 1000, 10, 16},   {256, 16, 1000, 15.5, 30},
    {512, 32, 1000, 80, 200},   {1024, 32, 1000, 185, 460},   {128, 32, 1000, 0, 0},     {256, 32, 1000, 0, 0},
    {512, 512, 640, 7000, 0},   {8, 8, 10000, 4.2, 0},        {16, 16, 10000, 11.5, 0},  {32, 32, 10000, 47, 0},
    {64, 64, 10000, 260, 0},    {128, 16, 10000, 0, 0},       {256, 16, 10000, 0, 0},    {192, 192, 1000, 0, 0},
    {200, 200, 1000, 0, 0},     {224, 224, 1000, 0, 0},       {250, 250, 1000, 0, 0},    {384, 384, 500, 0, 0},
    {160, 160, 1000, 0, 0},     {512, 64, 1000, 0, 0},        {512, 128, 1000, 0, 0},    {1024, 64, 1000, 0, 0},
    {2048, 32, 1000, 0, 0},     {100, 300, 1000, 0, 0},
};
enum {
  ROWS = sizeof rows / sizeof *rows,
  PLOTTED_BATCH = 1000,
  PLOTTED_MOST = 256, /* and those between the steps' end and it that the table has */
  STEPPED_MOST = 160,
  PLOTTED_STEP = 4,
};
/* The shapes of V and C for applying Q: squares, few columns, and the trailing columns of a panel. */
static const struct applied {
  int64_t m, n, columns, batch;
} applied[] = {
    {8, 8, 8, 1000},     {16, 16, 16, 1000},  {32, 32, 32, 1000},   {64, 64, 64, 1000},   {128, 128, 128, 1000},
    {64, 64, 1, 1000},   {128, 128, 1, 1000}, {128, 128, 32, 1000}, {128, 128, 64, 1000}, {512, 32, 32, 1000},
    {128, 32, 96, 1000}, {256, 32, 224, 250}, {512, 32, 480, 64},   {1024, 32, 992, 16},  {2048, 32, 2016, 4},
};
static const int64_t inverted[] = {16, 32, 48, 64, 96, 125, 128};

bool qr_case_equal(const struct qr_case *a, const struct qr_case *b) {
  return a->dtype == b->dtype && a->m == b->m && a->n == b->n && a->batch == b->batch && a->outputs == b->outputs &&
         a->columns == b->columns;
}

bool qr_case_is_plotted(const struct qr_case *shape) {
  return shape->outputs == QR_H_AND_TAU && shape->m == shape->n && shape->n <= PLOTTED_MOST &&
         shape->batch == PLOTTED_BATCH;
}

static size_t add(struct qr_case *cases, size_t count, struct qr_case shape) {
  for (size_t i = 0; i < count; i++)
    if (qr_case_equal(&cases[i], &shape)) return count;
  cases[count] = shape;
  return count + 1;
}

size_t qr_cases(struct qr_case cases[QR_CASES_MOST]) {
  static const rondo_dtype dtypes[] = {RONDO_F32, RONDO_F64};
  size_t count = 0;
  for (int d = 0; d < 2; d++)
    for (size_t i = 0; i < ROWS; i++)
      for (int outputs = QR_H_AND_TAU; outputs <= QR_X; outputs++)
        if ((dtypes[d] == RONDO_F32 || rows[i].n < 512) && (outputs != QR_X || rows[i].m >= rows[i].n))
          count = add(cases, count,
                      (struct qr_case){dtypes[d], rows[i].m, rows[i].n, rows[i].batch, (enum qr_outputs)outputs, 0});
  for (int d = 0; d < 2; d++)
    for (int64_t n = PLOTTED_STEP; n <= STEPPED_MOST; n += PLOTTED_STEP)
      count = add(cases, count, (struct qr_case){dtypes[d], n, n, PLOTTED_BATCH, QR_H_AND_TAU, 0});
  for (int d = 0; d < 2; d++) {
    for (size_t i = 0; i < sizeof applied / sizeof *applied; i++)
      count = add(
          cases, count,
          (struct qr_case){dtypes[d], applied[i].m, applied[i].n, applied[i].batch, QR_APPLIED, applied[i].columns});
    for (size_t i = 0; i < sizeof inverted / sizeof *inverted; i++)
      count = add(cases, count, (struct qr_case){dtypes[d], inverted[i], inverted[i], 1000, QR_INVERSE, 0});
  }
  return count;
}

double qr_case_must_us(const struct qr_case *shape) {
  for (size_t i = 0; i < ROWS && shape->outputs == QR_H_AND_TAU; i++)
    if (rows[i].m == shape->m && rows[i].n == shape->n && rows[i].batch == shape->batch)
      return shape->dtype == RONDO_F32 ? rows[i].f32_us : rows[i].f64_us;
  return 0;
}

const char *qr_outputs_name(enum qr_outputs outputs) {
  static const char *const names[] = {
      [QR_H_AND_TAU] = "h+tau", [QR_Q_AND_R] = "q+r",    [QR_R_ALONE] = "r", [QR_X] = "x",
      [QR_APPLIED] = "q'c",     [QR_INVERSE] = "inverse"};
  return names[outputs];
}

void qr_case_label(const struct qr_case *shape, char label[QR_LABEL_BYTES]) {
  int length =
      snprintf(label, QR_LABEL_BYTES, "qr %s %" PRId64 "x%" PRId64 " batch=%" PRId64 " %s",
               rondo_dtype_name(shape->dtype), shape->m, shape->n, shape->batch, qr_outputs_name(shape->outputs));
  if (shape->columns) snprintf(label + length, QR_LABEL_BYTES - (size_t)length, " columns=%" PRId64, shape->columns);
}

double qr_case_flops(const struct qr_case *shape) {
  double m = (double)shape->m, n = (double)shape->n, k = m < n ? m : n, c = (double)shape->columns;
  if (shape->outputs == QR_APPLIED) return (4 * m * c * k - 2 * c * k * k) * (double)shape->batch;
  if (shape->outputs == QR_INVERSE) return n * n * n / 3 * (double)shape->batch;
  double further = shape->outputs == QR_Q_AND_R ? 2 * m * k * k - 2 * k * k * k / 3
                   : shape->outputs == QR_X     ? 4 * m * n - n * n
                                                : 0;
  return (4 * m * n * k - 2 * (m + n) * k * k + 4 * k * k * k / 3 + further) * (double)shape->batch;
}

uint64_t qr_case_bytes(const struct qr_case *shape) {
  uint64_t m = (uint64_t)shape->m, n = (uint64_t)shape->n, k = m < n ? m : n;
  const uint64_t others[] = {[QR_H_AND_TAU] = m * n + k,
                             [QR_Q_AND_R] = k * n + m * k,
                             [QR_R_ALONE] = k * n,
                             [QR_X] = m + n,
                             [QR_APPLIED] = k + 2 * m * (uint64_t)shape->columns,
                             [QR_INVERSE] = n * n};
  const uint64_t read = shape->outputs == QR_INVERSE ? n * (n - 1) / 2 : m * n;
  return (uint64_t)shape->batch * (read + others[shape->outputs]) * rondo_dtype_bits(shape->dtype) / 8;
}
