/* qr_form.h - the question of a ready-made graph before it describes a QR: as one task, or by panels?
 *
 * graphs/ asks and kernels/ answers, as in layer_form.h: from sizes and types alone, the same on every chip and on the
 * host. */
#pragma once

#include <rondo_graphs.h>

/* The width of panels; 0: one task. A panel_width of the description counts, unless one panel would be the whole
 * matrix. Sizes are not negative. (kernels/qr/qr_form.c) */
int64_t qr_form_panel_width(const rondo_graph_qr_desc *desc);
