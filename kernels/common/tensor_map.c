/* tensor_map.c - describes the tensor map of an operand in a launch (tensor_map.h). */
#include "tensor_map.h"

#include <assert.h>

enum { ALIGNMENT = 16, PANEL_BYTES = 128, FETCH_BYTES = 256, BOX_MOST = 256 };

static const uint64_t size_most = UINT64_C(1) << 32, stride_bytes_most = UINT64_C(1) << 40;

static uint64_t element_bytes(const struct op_operand *operand) { return rondo_dtype_bits(operand->dtype) / 8; }

bool has_tensor_map(const struct op_operand *operand) {
  uint64_t bytes = element_bytes(operand);
  if (!op_elements(operand) || !bytes || operand->rank < 2) return false;
  uint32_t last = operand->rank - 1;
  if ((operand->shape[last] > 1 && operand->stride[last] != 1) || !op_rows_aligned(operand, ALIGNMENT)) return false;
  for (uint32_t i = 0; i < operand->rank; i++)
    if ((uint64_t)operand->shape[i] > size_most ||
        (operand->shape[i] > 1 && (uint64_t)operand->stride[i] >= stride_bytes_most / bytes))
      return false;
  return true;
}

struct op_operand with_batch(const struct op_operand *operand) {
  struct op_operand three = *operand;
  if (operand->rank == 3) return three;
  three.rank = 3;
  three.shape[0] = 1, three.shape[1] = operand->shape[0], three.shape[2] = operand->shape[1];
  three.stride[0] = operand->shape[0] * operand->stride[0], three.stride[1] = operand->stride[0];
  three.stride[2] = operand->stride[1];
  return three;
}

/* The copy never uses the stride of a dimension of one element. The operand's stride may not be a multiple of 16 there,
 * as a tensor map demands, and so such a dimension gets a dense tensor's stride. */
static void add_dimension(struct op_map *map, int64_t size, uint64_t stride_bytes, uint32_t box) {
  uint32_t i = map->rank++;
  uint64_t dense_bytes = i ? map->size[i - 1] * map->stride_bytes[i - 1] : stride_bytes;
  map->size[i] = (uint64_t)size;
  map->stride_bytes[i] = size > 1 || !i ? stride_bytes : (dense_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  map->box[i] = box;
}

void launch_map(struct op_launch *launch, size_t offset, const struct op_operand *operand, const void *data,
                const uint32_t *box) {
  assert(launch->map_count < OP_MAX_MAPS && has_tensor_map(operand));
  assert(offset % OP_MAP_BYTES == 0 && offset + OP_MAP_BYTES <= launch->parameter_bytes);
  uint64_t bytes = element_bytes(operand);
  uint32_t last = operand->rank - 1, panel = PANEL_BYTES / (uint32_t)bytes;
  bool has_panels = box[last] > panel;
  assert(!has_panels || (box[last] % panel == 0 && operand->shape[last] % panel == 0));
  struct op_map *map = &launch->maps[launch->map_count++];
  *map = (struct op_map){.parameter_offset = (uint32_t)offset,
                         .dtype = operand->dtype,
                         .swizzle_bytes = PANEL_BYTES,
                         .fetch_bytes = FETCH_BYTES,
                         .base = data};
  add_dimension(map, has_panels ? panel : operand->shape[last], bytes, has_panels ? panel : box[last]);
  for (uint32_t i = last; i-- > 0;) {
    assert(box[i] && box[i] <= BOX_MOST);
    add_dimension(map, operand->shape[i], (uint64_t)operand->stride[i] * bytes, box[i]);
  }
  if (has_panels) add_dimension(map, operand->shape[last] / panel, PANEL_BYTES, box[last] / panel);
}
