/* graph_qr.c - the ready-made QR graph: one fused task, or panels with lookahead.
 *
 * With panels P0, P1, .. and the trailing columns of each split in "next" (the columns of the next panel) and "rest":
 *
 *     panel 0 -> next 0 -> panel 1 -> next 1 -> panel 2 -> ..
 *         \-> rest 0 ----------\----> rest 1 ..
 *
 * Panel 1 needs only next 0, so it runs beside rest 0: the long chain of column steps is hidden behind the updates. No
 * edge is written here; they follow from the rectangles. */
#include <inttypes.h>
#include <stdio.h>

#include "../runtime/integer.h"
#include "../runtime/qr_form.h"
#include "graph_part.h"
#include <rondo_graphs.h>

/* What is being built. */
struct builder {
  rondo_graph *graph;
  const rondo_graph_qr_desc *desc;
  const char *name;
  int64_t k, width;
  rondo_tensor h, tau; /* outputs or temporaries, whatever the form */
};

static const char *panel_name(const struct builder *builder, char *text, size_t bytes, const char *part,
                              int64_t panel) {
  snprintf(text, bytes, "%s %s %" PRId64, builder->name, part, panel);
  return text;
}

/* A batch of rows x columns, in the graph's layout. */
static rondo_status matrix_add(const struct builder *builder, tensor_function add, const char *part, int64_t rows,
                               int64_t columns, rondo_tensor *tensor) {
  char name[NAME_BYTES];
  bool row_major = builder->desc->layout == RONDO_ROW_MAJOR;
  int64_t shape[] = {builder->desc->batch, row_major ? rows : columns, row_major ? columns : rows};
  return add(builder->graph, part_name(name, builder->name, part), builder->desc->dtype, 3, shape, tensor);
}

static rondo_status tau_add(const struct builder *builder, tensor_function add, rondo_tensor *tensor) {
  char name[NAME_BYTES];
  int64_t shape[] = {builder->desc->batch, builder->k};
  return add(builder->graph, part_name(name, builder->name, "tau"), builder->desc->dtype, 2, shape, tensor);
}

/* Rows from `row` on, columns [column, column + columns). */
static rondo_status matrix_view(const struct builder *builder, rondo_tensor matrix, int64_t row, int64_t column,
                                int64_t columns, rondo_tensor *view) {
  bool row_major = builder->desc->layout == RONDO_ROW_MAJOR;
  int64_t rows = builder->desc->m - row;
  int64_t offset[] = {0, row_major ? row : column, row_major ? column : row};
  int64_t extent[] = {builder->desc->batch, row_major ? rows : columns, row_major ? columns : rows};
  return rondo_view(builder->graph, matrix, offset, extent, view);
}

/* The reflectors of the panel that starts in column j, and their factors. */
static rondo_status panel_views(const struct builder *builder, int64_t j, rondo_tensor *panel, rondo_tensor *tau) {
  int64_t columns = smaller(builder->width, builder->k - j);
  rondo_status status = matrix_view(builder, builder->h, j, j, columns, panel);
  if (status != RONDO_OK) return status;
  return rondo_view(builder->graph, builder->tau, (int64_t[]){0, j}, (int64_t[]){builder->desc->batch, columns}, tau);
}

/* Columns [begin, end) := Q^T of them, with the panel that starts in column j. */
static rondo_status update_add(const struct builder *builder, const char *part, int64_t j, int64_t begin, int64_t end,
                               rondo_tensor panel, rondo_tensor tau) {
  char name[NAME_BYTES];
  rondo_tensor c;
  if (begin >= end) return RONDO_OK;
  rondo_status status = matrix_view(builder, builder->h, j, begin, end - begin, &c);
  if (status != RONDO_OK) return status;
  return rondo_add_qr_update(
      builder->graph, &(rondo_qr_update_desc){.name = panel_name(builder, name, sizeof name, part, j / builder->width),
                                              .layout = builder->desc->layout,
                                              .v = panel,
                                              .tau = tau,
                                              .c = c});
}

static rondo_status factor_add(const struct builder *builder) {
  char name[NAME_BYTES];
  for (int64_t j = 0; j < builder->k; j += builder->width) {
    rondo_tensor panel, tau;
    rondo_status status = panel_views(builder, j, &panel, &tau);
    if (status != RONDO_OK) return status;
    status = rondo_add_qr_panel(builder->graph, &(rondo_qr_panel_desc){.name = panel_name(builder, name, sizeof name,
                                                                                          "panel", j / builder->width),
                                                                       .layout = builder->desc->layout,
                                                                       .a = panel,
                                                                       .tau = tau});
    if (status != RONDO_OK) return status;
    int64_t begin = smaller(j + builder->width, builder->k), next = smaller(begin + builder->width, builder->k);
    status = update_add(builder, "next", j, begin, next, panel, tau);
    if (status == RONDO_OK) status = update_add(builder, "rest", j, next, builder->desc->n, panel, tau);
    if (status != RONDO_OK) return status;
  }
  return RONDO_OK;
}

/* Q = H_1 .. H_k I, from the last panel to the first. Columns before a panel are still those of the identity, which
 * have zeros in its rows: they need no update. */
static rondo_status form_add(const struct builder *builder, rondo_tensor q) {
  char name[NAME_BYTES];
  for (int64_t j = builder->k ? (builder->k - 1) / builder->width * builder->width : -1; j >= 0; j -= builder->width) {
    rondo_tensor panel, tau, c;
    rondo_status status = panel_views(builder, j, &panel, &tau);
    if (status == RONDO_OK) status = matrix_view(builder, q, j, j, builder->k - j, &c);
    if (status != RONDO_OK) return status;
    status = rondo_add_qr_apply(builder->graph, &(rondo_qr_apply_desc){.name = panel_name(builder, name, sizeof name,
                                                                                          "form", j / builder->width),
                                                                       .layout = builder->desc->layout,
                                                                       .v = panel,
                                                                       .tau = tau,
                                                                       .c = c});
    if (status != RONDO_OK) return status;
  }
  return RONDO_OK;
}

static rondo_status panels_add(struct builder *builder, rondo_graph_qr_tensors *tensors) {
  const rondo_graph_qr_desc *desc = builder->desc;
  char name[NAME_BYTES];
  bool reflectors_wanted = desc->form == RONDO_QR_H_TAU;
  tensor_function add = reflectors_wanted ? rondo_output : rondo_temporary;
  rondo_status status = matrix_add(builder, add, "h", desc->m, desc->n, &builder->h);
  if (status == RONDO_OK) status = tau_add(builder, add, &builder->tau);
  if (status == RONDO_OK)
    status = rondo_add_copy(
        builder->graph,
        &(rondo_copy_desc){.name = part_name(name, builder->name, "copy"), .src = tensors->a, .dst = builder->h});
  if (status == RONDO_OK) status = factor_add(builder);
  if (status != RONDO_OK) return status;
  if (reflectors_wanted) {
    tensors->h = builder->h;
    tensors->tau = builder->tau;
    return RONDO_OK;
  }
  status = matrix_add(builder, rondo_output, "r", builder->k, desc->n, &tensors->r);
  if (status == RONDO_OK && desc->form == RONDO_QR_THIN_Q)
    status = matrix_add(builder, rondo_output, "q", desc->m, builder->k, &tensors->q);
  if (status == RONDO_OK)
    status =
        rondo_add_qr_extract(builder->graph, &(rondo_qr_extract_desc){.name = part_name(name, builder->name, "extract"),
                                                                      .layout = desc->layout,
                                                                      .h = builder->h,
                                                                      .r = tensors->r,
                                                                      .q = tensors->q});
  if (status == RONDO_OK && desc->form == RONDO_QR_THIN_Q) status = form_add(builder, tensors->q);
  return status;
}

static rondo_status fused_add(const struct builder *builder, rondo_graph_qr_tensors *tensors) {
  const rondo_graph_qr_desc *desc = builder->desc;
  rondo_status status = RONDO_OK;
  if (desc->form == RONDO_QR_H_TAU) {
    status = matrix_add(builder, rondo_output, "h", desc->m, desc->n, &tensors->h);
    if (status == RONDO_OK) status = tau_add(builder, rondo_output, &tensors->tau);
  } else {
    status = matrix_add(builder, rondo_output, "r", builder->k, desc->n, &tensors->r);
    if (status == RONDO_OK && desc->form == RONDO_QR_THIN_Q)
      status = matrix_add(builder, rondo_output, "q", desc->m, builder->k, &tensors->q);
  }
  if (status != RONDO_OK) return status;
  return rondo_add_qr(builder->graph, &(rondo_qr_desc){.name = builder->name,
                                                       .layout = desc->layout,
                                                       .a = tensors->a,
                                                       .h = tensors->h,
                                                       .tau = tensors->tau,
                                                       .r = tensors->r,
                                                       .q = tensors->q});
}

/* What no task sees. */
static rondo_status desc_check(const rondo_graph_qr_desc *desc) {
  if (desc->form < RONDO_QR_H_TAU || desc->form > RONDO_QR_THIN_Q)
    return status_set(RONDO_INVALID_ARGUMENT, "form is %d, expected RONDO_QR_H_TAU, RONDO_QR_R or RONDO_QR_THIN_Q",
                      (int)desc->form);
  if (desc->panel_width < 0)
    return status_set(RONDO_INVALID_ARGUMENT, "panel_width is %" PRId32 ", expected no negative size",
                      desc->panel_width);
  if (desc->dtype == RONDO_F16 || desc->dtype == RONDO_BF16) /* rondo_add_qr would take them, panels would not */
    return status_set(RONDO_INVALID_ARGUMENT, "dtype is %s, expected f32 or f64", rondo_dtype_name(desc->dtype));
  return RONDO_OK;
}

static rondo_status qr_add(struct builder *builder, rondo_graph_qr_tensors *tensors) {
  const rondo_graph_qr_desc *desc = builder->desc;
  rondo_status status = desc_check(desc);
  if (status == RONDO_OK) status = matrix_add(builder, rondo_input, "a", desc->m, desc->n, &tensors->a);
  if (status != RONDO_OK) return status;
  builder->width = qr_form_panel_width(desc); /* the sizes are checked by now */
  return builder->width ? panels_add(builder, tensors) : fused_add(builder, tensors);
}

rondo_status rondo_graph_qr(rondo_graph *graph, const rondo_graph_qr_desc *desc, rondo_graph_qr_tensors *tensors) {
  if (!desc || !tensors)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_graph_qr: the %s is NULL",
                      desc ? "tensors' address" : "description");
  struct graph_mark mark;
  rondo_status status = graph_begin(graph, "rondo_graph_qr", &mark);
  if (status != RONDO_OK) return status;
  rondo_graph_qr_tensors out = {0};
  struct builder builder = {
      .graph = graph, .desc = desc, .name = desc->name ? desc->name : "qr", .k = smaller(desc->m, desc->n)};
  status = graph_end(graph, &mark, qr_add(&builder, &out));
  if (status == RONDO_OK) *tensors = out;
  return status;
}
