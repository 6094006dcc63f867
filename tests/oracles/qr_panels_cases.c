/* qr_panels_cases.c - see qr_panels_cases.h. */
#include "qr_panels_cases.h"

rondo_dtype panels_type(int kernel) { return kernel < PANELS_F32_KERNELS ? RONDO_F32 : RONDO_F64; }

void panels_every_kind(int first, int last, enum form even, enum form odd) {
  struct factorisation all[PANELS_KERNELS];
  for (int i = first; i < last; i++)
    all[i - first] = (struct factorisation){.dtype = panels_type(i),
                                            .form = i % 2 ? odd : even,
                                            .m = rows_filled[i][0],
                                            .n = rows_filled[i][1],
                                            .batch = QR_KINDS,
                                            .kinds = every_kind,
                                            .kind_count = QR_KINDS};
  factorisations_run(RONDO_BACKEND_CUDA, all, (size_t)(last - first));
}

void panels_square(enum form form) {
  static const int16_t sizes[] = {160, 256, 320};
  enum { COUNT = 2 * sizeof sizes / sizeof *sizes };
  struct factorisation all[COUNT];
  for (int i = 0; i < COUNT; i++)
    all[i] = (struct factorisation){.dtype = i % 2 ? RONDO_F64 : RONDO_F32,
                                    .form = form,
                                    .m = sizes[i / 2],
                                    .n = sizes[i / 2],
                                    .batch = 2,
                                    .kinds = hard_kinds,
                                    .kind_count = 2};
  factorisations_run(RONDO_BACKEND_CUDA, all, COUNT);
}

void panels_extreme_columns(rondo_backend backend, enum form form) {
  static const int16_t shapes[][2] = {{18, 165}, {129, 40}, {250, 70}, {300, 34}};
  enum { COUNT = 2 * sizeof shapes / sizeof shapes[0] };
  struct factorisation all[COUNT];
  for (int i = 0; i < COUNT; i++)
    all[i] = (struct factorisation){.dtype = i % 2 ? RONDO_F64 : RONDO_F32,
                                    .layout = i % 3 ? RONDO_COLUMN_MAJOR : RONDO_ROW_MAJOR,
                                    .form = form,
                                    .m = shapes[i / 2][0],
                                    .n = shapes[i / 2][1],
                                    .batch = EXTREME_KINDS,
                                    .kinds = extreme_kinds,
                                    .kind_count = EXTREME_KINDS};
  factorisations_run(backend, all, COUNT);
}

void panels_same_bits(rondo_backend backend, enum form form) {
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++) {
    const bool filled = i < PANELS_KERNELS;
    all[i] = (struct factorisation){.dtype = panels_type(i % PANELS_KERNELS),
                                    .layout = filled ? RONDO_COLUMN_MAJOR : RONDO_ROW_MAJOR,
                                    .form = form,
                                    .m = rows_filled[i % PANELS_KERNELS][0] - (filled ? 0 : 7),
                                    .n = 36,
                                    .batch = 5};
  }
  expect_same_bits(backend, all, BOTH);
}

void panels_poisoned(rondo_backend backend, enum form even, enum form odd) {
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++)
    all[i] = (struct factorisation){.dtype = panels_type(i % PANELS_KERNELS),
                                    .form = i % 2 ? odd : even,
                                    .m = rows_filled[i % PANELS_KERNELS][0] - i / PANELS_KERNELS,
                                    .n = i < PANELS_KERNELS ? 34 : 65};
  expect_poison_stays(backend, all, BOTH);
}
