/* conformance_maps.c - the tensor maps that the driver makes. Only the chip knows their content. Not tried: an address
 * that is no multiple of 64 bytes, which the documentation forbids and the driver of an H200 accepts. */
#include "conformance.h"

/* 100 rows of two panels of 64 bf16 elements, in two heads and two batches. */
struct request {
  size_t map_offset, base_offset;
  int type, swizzle;
  uint32_t rank;
  uint64_t size[5], stride_bytes[4];
  uint32_t box[5];
};

static const struct request panels = {.type = CU_MAP_BFLOAT16,
                                      .swizzle = CU_MAP_SWIZZLE_128,
                                      .rank = 5,
                                      .size = {64, 100, 2, 2, 2},
                                      .stride_bytes = {512, 256, 51200, 128},
                                      .box = {64, 80, 1, 1, 2}};

static cu_result encode(const struct request *request) {
  static struct cu_tensor_map maps[2];
  static const uint32_t every_element[] = {1, 1, 1, 1, 1};
  struct cu_tensor_map *map = (void *)((unsigned char *)maps + request->map_offset);
  return driver.cuTensorMapEncodeTiled(map, request->type, request->rank,
                                       (void *)(uintptr_t)(device_memory + request->base_offset), request->size,
                                       request->stride_bytes, request->box, every_element, CU_MAP_NOT_INTERLEAVED,
                                       request->swizzle, CU_MAP_FETCH_256, CU_MAP_ZEROS_OUTSIDE);
}

static void made(struct request request) { expect("cuTensorMapEncodeTiled", encode(&request), CU_SUCCESS); }
static void refused(struct request request) { expect("cuTensorMapEncodeTiled", encode(&request), CU_INVALID_VALUE); }

/* A change of it, and what comes of it. */
#define CHANGED(name, verdict_of, ...)                                                                                 \
  static void name(void) {                                                                                             \
    struct request request = panels;                                                                                   \
    __VA_ARGS__;                                                                                                       \
    verdict_of(request);                                                                                               \
  }

CHANGED(map_of_panels, made, (void)0)
CHANGED(map_of_a_matrix, made, request.rank = 2)
CHANGED(map_of_f16, made, request.type = CU_MAP_FLOAT16)
CHANGED(map_of_f32, made, request.type = CU_MAP_FLOAT32, request.size[0] = request.box[0] = 32)
CHANGED(map_of_bytes, made, request.type = CU_MAP_UINT8, request.size[0] = request.box[0] = 128)
CHANGED(map_not_swizzled, made, request.swizzle = CU_MAP_NOT_SWIZZLED, request.size[0] = request.box[0] = 128)
CHANGED(map_with_an_inner_box_beyond_its_swizzle, refused, request.size[0] = request.box[0] = 128)
CHANGED(map_with_an_inner_box_of_8_bytes, refused, request.box[0] = 4)
CHANGED(map_with_a_box_beyond_its_sizes, made, request.size[1] = 3)
CHANGED(map_with_a_box_of_256, made, request.box[1] = 256)
CHANGED(map_with_a_box_of_257, refused, request.box[1] = 257)
CHANGED(map_with_an_empty_box, refused, request.box[1] = 0)
CHANGED(map_of_no_rows, refused, request.size[1] = 0)
CHANGED(map_of_most_rows, made, request.size[1] = UINT64_C(1) << 32)
CHANGED(map_of_more_rows, refused, request.size[1] = (UINT64_C(1) << 32) + 1)
CHANGED(map_with_a_stride_that_is_no_multiple_of_16, refused, request.stride_bytes[0] = 520)
CHANGED(map_with_most_of_a_stride, made, request.stride_bytes[2] = (UINT64_C(1) << 40) - 16)
CHANGED(map_with_more_of_a_stride, refused, request.stride_bytes[2] = UINT64_C(1) << 40)
CHANGED(map_of_a_base_that_is_a_multiple_of_16, made, request.base_offset = 16)
CHANGED(map_of_a_base_that_is_no_multiple_of_16, refused, request.base_offset = 8)
CHANGED(map_at_a_multiple_of_64, made, request.map_offset = 64)
CHANGED(map_of_no_dimension, refused, request.rank = 0)
CHANGED(map_of_six_dimensions, refused, request.rank = 6)

/* ---- All of them ------------------------------------------------------------------------------------------------- */

const struct behaviour map_behaviours[] = {
    {NAMED(map_of_panels), MAPS},
    {NAMED(map_of_a_matrix), MAPS},
    {NAMED(map_of_f16), MAPS},
    {NAMED(map_of_f32), MAPS},
    {NAMED(map_of_bytes), MAPS},
    {NAMED(map_not_swizzled), MAPS},
    {NAMED(map_with_an_inner_box_beyond_its_swizzle), MAPS},
    {NAMED(map_with_an_inner_box_of_8_bytes), MAPS},
    {NAMED(map_with_a_box_beyond_its_sizes), MAPS},
    {NAMED(map_with_a_box_of_256), MAPS},
    {NAMED(map_with_a_box_of_257), MAPS},
    {NAMED(map_with_an_empty_box), MAPS},
    {NAMED(map_of_no_rows), MAPS},
    {NAMED(map_of_most_rows), MAPS},
    {NAMED(map_of_more_rows), MAPS},
    {NAMED(map_with_a_stride_that_is_no_multiple_of_16), MAPS},
    {NAMED(map_with_most_of_a_stride), MAPS},
    {NAMED(map_with_more_of_a_stride), MAPS},
    {NAMED(map_of_a_base_that_is_a_multiple_of_16), MAPS},
    {NAMED(map_of_a_base_that_is_no_multiple_of_16), MAPS},
    {NAMED(map_at_a_multiple_of_64), MAPS},
    {NAMED(map_of_no_dimension), MAPS},
    {NAMED(map_of_six_dimensions), MAPS},
    {0},
};
