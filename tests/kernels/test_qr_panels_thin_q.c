/* test_qr_panels_thin_q.c - thin Q and R, R alone and Q alone by panels (qr_panels.h), against LAPACK's ratios, in
 * every layout and kind of matrix. Form, batch and neighbours change no bit. The host has no such kernels: only small
 * matrices run there. */
#include <criterion/criterion.h>

#include "../oracles/qr_panels_cases.h"

PANELS_TESTS(qr_panels_thin_q, run_thin_in_every_layout, FORM_QR, FORM_QR)

static void same_alone(rondo_backend backend) {
  expect_same_alone(backend, RONDO_F32, 0, SHAPES(panels_small), 0);
  expect_same_alone(backend, RONDO_F64, 0, SHAPES(panels_small), 0);
}
BOTH_BACKENDS(qr_panels_thin_q, r_alone_and_q_alone_have_the_bits_of_both, same_alone)

/* The host's sums follow the strides. */
static void same_alone_in_every_layout(void) {
  for (int layout = 1; layout < DENSE_H_LAYOUT; layout++)
    for (int i = 0; i < 2; i++) {
      const rondo_dtype dtype = i ? RONDO_F64 : RONDO_F32;
      expect_same_alone(RONDO_BACKEND_CUDA, dtype, layout, SHAPES(panels_middle), layout);
      expect_same_alone(RONDO_BACKEND_CUDA, dtype, layout, SHAPES(panels_large), layout);
    }
}
ON_CUDA(qr_panels_thin_q, r_alone_and_q_alone_have_the_bits_of_both_in_every_layout, same_alone_in_every_layout())

/* Alone and among more than there are workspaces for R alone, so that blocks take several matrices each: what one
 * leaves must not reach the next. */
static void same_bits_among_many(void) {
  for (size_t form = 0; form < 2; form++) {
    struct factorisation all[] = {{.dtype = RONDO_F32, .m = 150, .n = 40, .batch = 1401},
                                  {.dtype = RONDO_F64, .m = 258, .n = 34, .batch = 501}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
      all[i].form = thin_forms[form];
      expect_same_bits(RONDO_BACKEND_CUDA, &all[i], 1);
    }
  }
}
ON_CUDA(qr_panels_thin_q, a_matrix_has_the_same_bits_among_thousands_and_alone, same_bits_among_many())

static void poison_among_many(void) {
  struct factorisation f = {.dtype = RONDO_F32, .form = FORM_R, .m = 600, .n = 40, .batch = 331};
  expect_poison_stays(RONDO_BACKEND_CUDA, &f, 1);
}
ON_CUDA(qr_panels_thin_q, nan_stays_in_its_own_matrix_among_hundreds, poison_among_many())
