/* test_qr_panel_width.c - the widths of rondo_qr_panel_width, against what shared memory holds. */
#include <criterion/criterion.h>

#include "../../kernels/qr/qr.h"
#include "../support.h"

Test(qr_panel_width, a_panel_is_as_wide_as_shared_memory_allows) {
  static const rondo_dtype dtypes[] = {RONDO_F32, RONDO_F64};
  for (int i = 0; i < 2; i++) {
    uint32_t bytes = rondo_dtype_bits(dtypes[i]) / 8;
    for (int64_t m = 1; m < 6000; m += 37)
      for (int64_t n = 1; n < 400; n += 13) {
        int32_t width = rondo_qr_panel_width(dtypes[i], m, n), wider = 2 * width;
        if (!width) {
          cr_assert(qr_fits_every_chip(bytes, m, n) || (n <= m && n <= 32), "%ld x %ld", (long)m, (long)n);
          continue;
        }
        cr_assert(width == 8 || width == 16 || width == 32);
        cr_assert(width == 8 || qr_fits_every_chip(bytes, m, width), "%ld x %ld", (long)m, (long)n);
        cr_assert(width == 32 || !qr_fits_every_chip(bytes, m, wider), "%ld x %ld", (long)m, (long)n);
      }
  }
  cr_assert_eq(rondo_qr_panel_width(RONDO_F64, INT64_C(1) << 31, INT64_C(1) << 31), 8);
  cr_assert_eq(rondo_qr_panel_width(RONDO_F32, INT64_MAX, INT64_MAX), 8);
  cr_assert_eq(rondo_qr_panel_width(RONDO_F32, -1, 4), 0);
  cr_assert_eq(rondo_qr_panel_width(RONDO_F32, 4, 0), 0);
  cr_assert_eq(rondo_qr_panel_width(RONDO_F16, 1000, 1000), 0);
}
