/* fake_tensor_map.c - tensor maps: what the driver's documentation allows, kept as it was given. A real driver writes
 * what the chip reads. */
#include <string.h>

#include "fake.h"

enum { TYPES = 16, SWIZZLE_BYTES = 128 };

static_assert(sizeof(struct fake_map) <= sizeof(struct cu_tensor_map), "a map's place is all that it has");

/* 0: the fake knows no such type. */
static uint32_t element_bytes(int type) {
  static const uint8_t bytes[TYPES] = {
      [CU_MAP_UINT8] = 1, [CU_MAP_FLOAT16] = 2, [CU_MAP_FLOAT32] = 4, [CU_MAP_BFLOAT16] = 2};
  return type >= 0 && type < TYPES ? bytes[type] : 0;
}

static bool sizes_are_valid(uint32_t rank, const uint64_t *size, const uint64_t *stride_bytes, const uint32_t *box,
                            const uint32_t *step) {
  for (uint32_t i = 0; i < rank; i++) {
    if (size[i] < 1 || size[i] > UINT64_C(1) << 32 || box[i] < 1 || box[i] > 256 || step[i] < 1 || step[i] > 8)
      return false;
    if (i && (stride_bytes[i - 1] % 16 || stride_bytes[i - 1] >= UINT64_C(1) << 40)) return false;
  }
  return true;
}

cu_result fake_cuTensorMapEncodeTiled(struct cu_tensor_map *map, int type, uint32_t rank, void *base,
                                      const uint64_t *size, const uint64_t *stride_bytes, const uint32_t *box,
                                      const uint32_t *step, int interleave, int swizzle, int fetch, int outside) {
  CALL(cuTensorMapEncodeTiled);
  if ((uintptr_t)map % 64) violation("cuTensorMapEncodeTiled: the map is at no multiple of 64 bytes");
  if (!map || !base || (uintptr_t)base % 16) return CU_INVALID_VALUE;
  if (rank < 1 || rank > FAKE_MAP_RANK || !sizes_are_valid(rank, size, stride_bytes, box, step))
    return CU_INVALID_VALUE;
  uint32_t bytes = element_bytes(type), inner_bytes = box[0] * bytes;
  bool is_swizzled = swizzle == CU_MAP_SWIZZLE_128;
  if (!bytes || interleave != CU_MAP_NOT_INTERLEAVED || (!is_swizzled && swizzle != CU_MAP_NOT_SWIZZLED)) {
    violation("cuTensorMapEncodeTiled: the fake has no maps of type %d, interleave %d, swizzle %d", type, interleave,
              swizzle);
    return CU_INVALID_VALUE;
  }
  if (inner_bytes % 16 || (is_swizzled && inner_bytes > SWIZZLE_BYTES)) return CU_INVALID_VALUE;
  if (fetch < CU_MAP_FETCH_AS_NEEDED || fetch > CU_MAP_FETCH_256 || outside != CU_MAP_ZEROS_OUTSIDE)
    return CU_INVALID_VALUE;
  struct fake_map encoded = {.base = base, .rank = (uint8_t)rank, .type = (uint8_t)type, .swizzled = is_swizzled};
  encoded.fetch = (uint8_t)fetch;
  for (uint32_t i = 0; i < rank; i++) {
    encoded.size[i] = size[i];
    encoded.stride_bytes[i] = i ? stride_bytes[i - 1] : bytes;
    encoded.box[i] = (uint16_t)box[i];
  }
  memset(map, 0, sizeof *map);
  memcpy(map, &encoded, sizeof encoded);
  return CU_SUCCESS;
}
