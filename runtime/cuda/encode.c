/* encode.c - see encode.h. The driver checks the maps, since their rules depend on the chip. */
#include "encode.h"

#include <assert.h>
#include <string.h>

static int type_of(rondo_dtype dtype) {
  switch (dtype) {
  case RONDO_F32:
    return CU_MAP_FLOAT32;
  case RONDO_F16:
    return CU_MAP_FLOAT16;
  case RONDO_BF16:
    return CU_MAP_BFLOAT16;
  default:
    assert(dtype == RONDO_E4M3 && "a type of elements that maps are of");
    return CU_MAP_UINT8;
  }
}

static int fetch_of(uint32_t bytes) {
  return bytes >= 256   ? CU_MAP_FETCH_256
         : bytes >= 128 ? CU_MAP_FETCH_128
         : bytes >= 64  ? CU_MAP_FETCH_64
                        : CU_MAP_FETCH_AS_NEEDED;
}

static cu_result encode(const struct driver *driver, const struct op_map *map, struct cu_tensor_map *encoded) {
  static const uint32_t every_element[OP_MAP_RANK] = {1, 1, 1, 1, 1};
  return driver->cuTensorMapEncodeTiled(
      encoded, type_of(map->dtype), map->rank, (void *)(uintptr_t)map->base, map->size, map->stride_bytes + 1, map->box,
      every_element, CU_MAP_NOT_INTERLEAVED, map->swizzle_bytes ? CU_MAP_SWIZZLE_128 : CU_MAP_NOT_SWIZZLED,
      fetch_of(map->fetch_bytes), CU_MAP_ZEROS_OUTSIDE);
}

static_assert(sizeof(struct cu_tensor_map) == OP_MAP_BYTES, "CUtensorMap");

cu_result encode_maps(const struct driver *driver, struct op_launch *launch, uint32_t *failed) {
  for (uint32_t i = 0; i < launch->map_count; i++) {
    *failed = i;
    if (!driver->cuTensorMapEncodeTiled) return CU_NOT_SUPPORTED;
    struct cu_tensor_map encoded;
    cu_result result = encode(driver, &launch->maps[i], &encoded);
    if (result != CU_SUCCESS) return result;
    memcpy(launch->parameters + launch->maps[i].parameter_offset, &encoded, sizeof encoded);
  }
  return CU_SUCCESS;
}
