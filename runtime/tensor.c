/* tensor.c - rondo_input and its siblings, rondo_view, rondo_reshape, rondo_borrow: tensors and views of a graph. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "elements.h"

uint32_t rondo_dtype_bits(rondo_dtype dtype) {
  switch (dtype) {
  case RONDO_F64:
    return 64;
  case RONDO_F32:
  case RONDO_I32:
    return 32;
  case RONDO_F16:
  case RONDO_BF16:
    return 16;
  case RONDO_E4M3:
  case RONDO_U8:
    return 8;
  case RONDO_NVFP4:
    return 4;
  }
  return 0;
}

const char *rondo_dtype_name(rondo_dtype dtype) {
  switch (dtype) {
  case RONDO_F64:
    return "f64";
  case RONDO_F32:
    return "f32";
  case RONDO_F16:
    return "f16";
  case RONDO_BF16:
    return "bf16";
  case RONDO_E4M3:
    return "e4m3";
  case RONDO_NVFP4:
    return "nvfp4";
  case RONDO_I32:
    return "i32";
  case RONDO_U8:
    return "u8";
  }
  return "unknown dtype";
}

const char *tensor_kind_name(enum tensor_kind kind) {
  static const char *const names[] = {"input", "output", "constant", "state", "temporary"};
  return names[kind];
}

int64_t tensor_elements(const struct tensor *tensor) {
  int64_t count = 1;
  for (uint32_t i = 0; i < tensor->rank; i++) count *= tensor->shape[i];
  return count;
}

uint64_t tensor_bytes(const struct tensor *tensor) {
  return (uint64_t)tensor_elements(tensor) * rondo_dtype_bits(tensor->dtype) / 8;
}

uint64_t tensor_offset_bytes(const struct tensor *tensor) {
  return (uint64_t)tensor->first * rondo_dtype_bits(tensor->dtype) / 8;
}

void tensor_describe(const struct tensor *tensor, char *text, size_t bytes) {
  shape_describe(text, bytes, tensor->dtype, tensor->rank, tensor->shape);
}

static rondo_status shape_check(const char *name, rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  if (!rondo_dtype_bits(dtype))
    return status_set(RONDO_INVALID_ARGUMENT, "describe: tensor '%s': dtype is %d, expected one of rondo_dtype", name,
                      (int)dtype);
  if (rank < 1 || rank > RONDO_MAX_RANK)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: tensor '%s': rank %u, expected 1 to %d", name, rank,
                      RONDO_MAX_RANK);
  if (!shape) return status_set(RONDO_INVALID_ARGUMENT, "describe: tensor '%s': the shape is NULL", name);
  int64_t elements = 1;
  for (uint32_t i = 0; i < rank; i++) {
    if (shape[i] < 0)
      return status_set(RONDO_INVALID_ARGUMENT,
                        "describe: tensor '%s': dimension %u is %" PRId64 ", expected 0 or more", name, i, shape[i]);
    /* Dimensions of 0 are left out: an empty tensor has strides too, and their products must not overflow. */
    int64_t factor = shape[i] ? shape[i] : 1;
    if (factor > RONDO_MAX_ELEMENTS / elements)
      return status_set(RONDO_INVALID_ARGUMENT,
                        "describe: tensor '%s': the product of the dimensions, without zeros, is more than 2^31", name);
    elements *= factor;
  }
  if (dtype == RONDO_NVFP4 && shape[rank - 1] % 2)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: tensor '%s': the last dimension of an nvfp4 tensor is %" PRId64 ", expected even",
                      name, shape[rank - 1]);
  return RONDO_OK;
}

static rondo_status slot_of_table(rondo_graph *graph, const rondo_tensor *out) {
  if (!out) return status_set(RONDO_INVALID_ARGUMENT, "describe: the tensor's address is NULL");
  if (graph->tensor_count == graph->tensor_limit)
    return status_set(RONDO_OUT_OF_MEMORY,
                      "describe: the graph is full, with %u tensors and views: raise limits.tensors",
                      graph->tensor_limit);
  return RONDO_OK;
}

/* The next row of the table is filled in, except its box. */
static rondo_tensor tensor_commit(rondo_graph *graph, struct tensor *tensor) {
  elements_find_box(tensor, &graph->tensors[tensor->root]);
  graph_changed(graph);
  return (rondo_tensor){graph, graph->tensor_count++, graph->serial};
}

static rondo_status tensor_add(rondo_graph *graph, enum tensor_kind kind, const char *name, rondo_dtype dtype,
                               uint32_t rank, const int64_t *shape, rondo_tensor *out) {
  rondo_status status = graph_check(graph, "describe");
  if (status == RONDO_OK) status = slot_of_table(graph, out);
  if (status == RONDO_OK) status = shape_check(name ? name : "", dtype, rank, shape);
  if (status != RONDO_OK) return status;
  struct tensor *tensor = &graph->tensors[graph->tensor_count];
  *tensor = (struct tensor){.kind = kind, .dtype = dtype, .root = graph->tensor_count, .rank = rank};
  if (name)
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
  else
    snprintf(tensor->name, sizeof tensor->name, "%s %u", tensor_kind_name(kind), graph->tensor_count);
  int64_t stride = 1;
  for (uint32_t i = rank; i-- > 0;) {
    tensor->shape[i] = shape[i];
    tensor->stride[i] = stride;
    stride *= shape[i];
  }
  *out = tensor_commit(graph, tensor);
  return RONDO_OK;
}

#define TENSOR_FUNCTION(function, kind)                                                                                \
  rondo_status function(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank, const int64_t *shape,  \
                        rondo_tensor *tensor) {                                                                        \
    return tensor_add(graph, kind, name, dtype, rank, shape, tensor);                                                  \
  }
TENSOR_FUNCTION(rondo_input, TENSOR_INPUT)
TENSOR_FUNCTION(rondo_output, TENSOR_OUTPUT)
TENSOR_FUNCTION(rondo_constant, TENSOR_CONSTANT)
TENSOR_FUNCTION(rondo_state, TENSOR_STATE)
TENSOR_FUNCTION(rondo_temporary, TENSOR_TEMPORARY)

/* May there be a view of it? */
static rondo_status parent_check(rondo_graph *graph, rondo_tensor parent, const rondo_tensor *view,
                                 const char *function) {
  rondo_status status = graph_check(graph, "describe");
  if (status == RONDO_OK) status = slot_of_table(graph, view);
  if (status != RONDO_OK) return status;
  if (parent.graph == graph && parent.serial == graph->serial && parent.index < graph->tensor_count) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "describe: %s: the tensor %s", function,
                    parent.serial ? "belongs to another graph" : "is absent (all zeros)");
}

rondo_status rondo_view(rondo_graph *graph, rondo_tensor handle, const int64_t *offset, const int64_t *extent,
                        rondo_tensor *view) {
  rondo_status status = parent_check(graph, handle, view, "rondo_view");
  if (status != RONDO_OK) return status;
  if (!offset || !extent)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_view: the %s is NULL", offset ? "extent" : "offset");
  const struct tensor *parent = &graph->tensors[handle.index];
  for (uint32_t i = 0; i < parent->rank; i++)
    if (offset[i] < 0 || extent[i] < 0 || offset[i] > parent->shape[i] || extent[i] > parent->shape[i] - offset[i])
      return status_set(RONDO_INVALID_ARGUMENT,
                        "describe: view of '%s': dimension %u: offset %" PRId64 " and extent %" PRId64
                        " do not fit in %" PRId64,
                        parent->name, i, offset[i], extent[i], parent->shape[i]);
  uint32_t last = parent->rank - 1;
  if (parent->dtype == RONDO_NVFP4 && (offset[last] % 2 || extent[last] % 2))
    return status_set(
        RONDO_INVALID_ARGUMENT,
        "describe: view of '%s': nvfp4 needs an even offset and extent in the last dimension, not %" PRId64
        " and %" PRId64,
        parent->name, offset[last], extent[last]);
  struct tensor *tensor = &graph->tensors[graph->tensor_count];
  *tensor = *parent;
  for (uint32_t i = 0; i < parent->rank; i++) {
    tensor->first += offset[i] * tensor->stride[i];
    tensor->shape[i] = extent[i];
  }
  *view = tensor_commit(graph, tensor);
  return RONDO_OK;
}

/* The strides of the same elements in another shape; false if there are none. Adjacent dimensions without a gap are one
 * run. Each run must be the product of some of the new dimensions, which then share it. */
static bool reshape_strides(const struct tensor *from, struct tensor *to) {
  uint32_t at = to->rank;
  for (uint32_t i = from->rank; i-- > 0;) {
    int64_t run = from->shape[i], stride = from->stride[i], used = 1;
    while (i > 0 && (from->shape[i - 1] == 1 || from->stride[i - 1] == run * stride)) run *= from->shape[--i];
    while (at > 0 && (used < run || to->shape[at - 1] == 1)) {
      to->stride[--at] = used * stride;
      used *= to->shape[at];
    }
    if (used != run) return false;
  }
  return to->shape[to->rank - 1] == 1 || to->stride[to->rank - 1] == 1;
}

static rondo_status reshape_check(const struct tensor *from, struct tensor *to) {
  char old_text[128], new_text[128];
  tensor_describe(from, old_text, sizeof old_text);
  tensor_describe(to, new_text, sizeof new_text);
  int64_t elements = tensor_elements(to);
  if (elements != tensor_elements(from))
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: reshape of '%s': %s has %" PRId64 " element%s, expected the %" PRId64 " of %s",
                      from->name, new_text, elements, PLURAL(elements), tensor_elements(from), old_text);
  if (!elements) {
    for (uint32_t i = to->rank; i-- > 0;) to->stride[i] = i + 1 < to->rank ? to->stride[i + 1] * to->shape[i + 1] : 1;
    return RONDO_OK;
  }
  if (reshape_strides(from, to)) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT,
                    "describe: reshape of '%s': the view, %s, is not dense, and no strides make its elements %s: "
                    "expected a shape that keeps its rows apart, or a dense copy (rondo_add_copy)",
                    from->name, old_text, new_text);
}

rondo_status rondo_reshape(rondo_graph *graph, rondo_tensor handle, uint32_t rank, const int64_t *shape,
                           rondo_tensor *view) {
  rondo_status status = parent_check(graph, handle, view, "rondo_reshape");
  if (status != RONDO_OK) return status;
  const struct tensor *parent = &graph->tensors[handle.index];
  status = shape_check(parent->name, parent->dtype, rank, shape);
  if (status != RONDO_OK) return status;
  struct tensor *tensor = &graph->tensors[graph->tensor_count];
  *tensor = *parent;
  tensor->rank = rank;
  memset(tensor->shape, 0, sizeof tensor->shape);
  memset(tensor->stride, 0, sizeof tensor->stride);
  memcpy(tensor->shape, shape, rank * sizeof *shape);
  status = reshape_check(parent, tensor);
  if (status != RONDO_OK) return status;
  *view = tensor_commit(graph, tensor);
  return RONDO_OK;
}

/* The root that stands for another graph's in this one; NO_TENSOR if none does yet. */
static uint32_t find_borrowed(const rondo_graph *graph, uint64_t lender_serial, uint32_t lender_index) {
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    if (tensor->lender_serial == lender_serial && tensor->lender_index == lender_index && tensor->root == i) return i;
  }
  return NO_TENSOR;
}

rondo_status rondo_borrow(rondo_graph *graph, rondo_tensor lent, rondo_tensor *out) {
  rondo_status status = graph_check(graph, "describe");
  if (status == RONDO_OK) status = graph_check(lent.graph, "describe: rondo_borrow: the lender");
  if (status != RONDO_OK) return status;
  if (!out) return status_set(RONDO_INVALID_ARGUMENT, "describe: the tensor's address is NULL");
  const rondo_graph *lender = lent.graph;
  if (lent.serial != lender->serial || lent.index >= lender->tensor_count)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_borrow: the tensor's graph is destroyed");
  if (lender == graph)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_borrow: tensor '%s' is the graph's own",
                      lender->tensors[lent.index].name);
  const struct tensor *from = &lender->tensors[lent.index], *from_root = graph_root(lender, lent.index);
  if (!tensor_is_resident(from))
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: rondo_borrow: tensor '%s' is of kind %s, expected a constant or a state", from->name,
                      tensor_kind_name(from->kind));
  /* What is borrowed already is borrowed from its owner. */
  uint64_t owner_serial = from_root->lender_serial ? from_root->lender_serial : lender->serial;
  uint32_t owner_index = from_root->lender_serial ? from_root->lender_index : from->root;
  uint32_t root = owner_serial == graph->serial ? owner_index : find_borrowed(graph, owner_serial, owner_index);
  bool is_view = from != from_root;
  uint32_t needed = (root == NO_TENSOR ? 1u : 0) + (is_view ? 1u : 0);
  if (graph->tensor_limit - graph->tensor_count < needed)
    return status_set(RONDO_OUT_OF_MEMORY,
                      "describe: the graph is full, with %u tensors and views: raise limits.tensors",
                      graph->tensor_limit);
  graph_changed(graph);
  if (root == NO_TENSOR) {
    root = graph->tensor_count++;
    struct tensor *tensor = &graph->tensors[root];
    *tensor = *from_root;
    tensor->root = root;
    tensor->lender_serial = owner_serial;
    tensor->lender_index = owner_index;
    tensor->reader_count = 0;
    tensor->is_touched_often = false;
  }
  uint32_t index = root;
  if (is_view) {
    index = graph->tensor_count++;
    graph->tensors[index] = *from;
    graph->tensors[index].root = root;
    graph->tensors[index].lender_serial = graph->tensors[root].lender_serial;
    graph->tensors[index].lender_index = graph->tensors[root].lender_index;
  }
  *out = (rondo_tensor){graph, index, graph->serial};
  return RONDO_OK;
}

rondo_status rondo_tensor_bytes(rondo_tensor handle, uint64_t *bytes) {
  rondo_status status = graph_check(handle.graph, "rondo_tensor_bytes");
  if (status != RONDO_OK) return status;
  if (handle.serial != handle.graph->serial)
    return status_set(RONDO_INVALID_STATE, "rondo_tensor_bytes: the tensor's graph is destroyed");
  if (handle.index >= handle.graph->tensor_count || !bytes)
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_tensor_bytes: %s", bytes ? "no such tensor" : "bytes is NULL");
  *bytes = tensor_bytes(&handle.graph->tensors[handle.index]);
  return RONDO_OK;
}
