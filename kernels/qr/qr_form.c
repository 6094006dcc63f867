/* qr_form.c - the form of a QR, for the ready-made graph that asks (runtime/qr_form.h): one task, or panels. */
#include "../../runtime/qr_form.h"

#include "../../runtime/integer.h"
#include "qr_choose.h"

/* Have qr, qr_panel and qr_update kernels that hold the rows in registers? */
static bool stays_in_registers(const rondo_graph_qr_desc *desc) {
  return qr_panels_of(rondo_dtype_bits(desc->dtype) / 8, desc->m) != NULL;
}

/* One task gives each matrix one multiprocessor; panels give it all of them. So one task is faster for a matrix of few
 * panels, and for a batch that fills half of the blocks that run at once on an H200: one a multiprocessor, of up to 256
 * rows four (f64: two). A matrix at least twice as wide as high has to fill them all. Of up to 128 rows a wide matrix
 * is always faster by panels.
 *
 * Measured, in us as one task and by panels:
 *   f32   256 x 128      121  115     16 of them   176   125
 *         512 x 128      113  123
 *        1024 x 128      214  162
 *         256 x 256      335  217    264 of them   603   571    528 of them   679  1001
 *         512 x 512      934  473     64 of them  1056  1010     96 of them  1087  1358
 *        1024 x 1024    8592 1160     96 of them  9058  9280
 *         300 x 600                   66 of them   934   612    132 of them   994  1072
 *          32 x 1024     314   24   1000 of them   910   388
 *   f64   512 x 64        75   76     64 of them    94   106
 *         512 x 128      212  163
 *         512 x 512     2217  574     96 of them  2451  2559 */
static bool one_task_is_faster(const rondo_graph_qr_desc *desc) {
  enum { TILE = 128, PANEL_ROWS = 512, FEW_ROWS = 256, HALF = 64 };
  const bool is_single = desc->dtype == RONDO_F32;
  const int64_t blocks = desc->m > FEW_ROWS ? 1 : is_single ? 4 : 2;
  if (desc->form != RONDO_QR_H_TAU) return rondo_qr_panel_width(desc->dtype, desc->m, desc->n) == 0;
  if (desc->m <= TILE) return desc->n <= TILE;
  if (desc->m <= PANEL_ROWS && desc->n <= desc->m / 4 && (is_single || desc->n <= 64)) return true;
  return stays_in_registers(desc) && desc->batch > HALF * blocks * (desc->n / desc->m >= 2 ? 2 : 1);
}

/* Of 16, 32 and 64 columns 32 is the fastest, or within a tenth of it, wherever there are kernels in registers. */
int64_t qr_form_panel_width(const rondo_graph_qr_desc *desc) {
  const int64_t k = smaller(desc->m, desc->n);
  int64_t width = desc->panel_width;
  if (!width && (!k || one_task_is_faster(desc))) return 0;
  if (!width) width = stays_in_registers(desc) ? 32 : rondo_qr_panel_width(desc->dtype, desc->m, desc->n);
  return width < k || desc->n > k ? width : 0;
}
