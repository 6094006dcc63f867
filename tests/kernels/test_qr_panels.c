/* test_qr_panels.c - H and tau by panels (qr_panels_plan.c), of matrices wider or longer than the register tiles,
 * against LAPACK's ratios: rows that fill a kernel and rows that do not, every layout and kind of matrix. Batch and
 * neighbours change no bit. The host has no such kernels: only small matrices run there. */
#include <criterion/criterion.h>

#include "../oracles/qr_panels_cases.h"

PANELS_TESTS(qr_panels, run_in_every_layout, FORM_H, FORM_PANEL)

/* Alone and among more than run at once. */
static void same_bits_among_many(void) {
  struct factorisation all[] = {{.dtype = RONDO_F32, .m = 170, .n = 40, .batch = 1201},
                                {.dtype = RONDO_F64, .m = 258, .n = 34, .batch = 301}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_same_bits(RONDO_BACKEND_CUDA, &all[i], 1);
}
ON_CUDA(qr_panels, a_matrix_has_the_same_bits_among_thousands_and_alone, same_bits_among_many())
