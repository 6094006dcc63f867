/* test_launch_map.c - tensor maps of operands (kernels/common/tensor_map.h): every coordinate leads to the operand's
 * element, in every layout, and what the driver documents as invalid is never described. */
#include <criterion/criterion.h>

#include "../../kernels/common/tensor_map.h"
#include "../support.h"

enum { PARAMETER_BYTES = 512 };

static struct op_operand operand(rondo_dtype dtype, uint32_t rank, const int64_t *shape, const int64_t *stride) {
  struct op_operand made = {.present = true, .access = RONDO_READ, .dtype = dtype, .rank = rank};
  for (uint32_t i = 0; i < rank; i++) made.shape[i] = shape[i], made.stride[i] = stride[i];
  return made;
}

static struct op_map map_of(const struct op_operand *operand, const uint32_t *box) {
  struct op_launch launch = {.parameter_bytes = PARAMETER_BYTES};
  launch_map(&launch, 128, operand, (void *)(uintptr_t)4096, box);
  cr_assert_eq(launch.map_count, 1);
  cr_assert_eq(launch.maps[0].parameter_offset, 128);
  return launch.maps[0];
}

/* What the driver's documentation asks for. */
static void require_valid(const struct op_map *map, uint64_t element_bytes) {
  cr_assert(map->rank >= 1 && map->rank <= OP_MAP_RANK && (uintptr_t)map->base % 16 == 0);
  cr_assert_leq(map->box[0] * element_bytes, map->swizzle_bytes);
  for (uint32_t i = 0; i < map->rank; i++) {
    cr_assert(map->size[i] >= 1 && map->size[i] <= UINT64_C(1) << 32);
    cr_assert(map->box[i] >= 1 && map->box[i] <= 256);
    if (i) cr_assert(map->stride_bytes[i] % 16 == 0 && map->stride_bytes[i] < UINT64_C(1) << 40, "dimension %u", i);
  }
}

/* Of the element at a place of the operand, by the map. */
static uint64_t address(const struct op_map *map, const struct op_operand *operand, const int64_t *place,
                        bool has_panels) {
  uint32_t last = operand->rank - 1;
  uint64_t coordinates[OP_MAP_RANK] = {0}, at = (uintptr_t)map->base;
  for (uint32_t i = 0; i <= last; i++) coordinates[i] = (uint64_t)place[last - i];
  if (has_panels) {
    coordinates[last + 1] = coordinates[0] / map->size[0];
    coordinates[0] %= map->size[0];
  }
  cr_assert_eq(map->rank, operand->rank + has_panels);
  for (uint32_t i = 0; i < map->rank; i++) {
    cr_assert_lt(coordinates[i], map->size[i]);
    at += coordinates[i] * map->stride_bytes[i];
  }
  return at;
}

static void require_every_element(const struct op_operand *operand, const uint32_t *box, uint64_t element_bytes,
                                  bool has_panels) {
  cr_assert(has_tensor_map(operand));
  struct op_map map = map_of(operand, box);
  require_valid(&map, element_bytes);
  int64_t place[RONDO_MAX_RANK] = {0};
  for (int64_t n = 0; n < op_elements(operand); n++) {
    uint64_t expected = 4096;
    int64_t rest = n;
    for (uint32_t i = operand->rank; i-- > 0; rest /= operand->shape[i]) {
      place[i] = rest % operand->shape[i];
      expected += (uint64_t)(place[i] * operand->stride[i]) * element_bytes;
    }
    cr_assert_eq(address(&map, operand, place, has_panels), expected, "element %d", (int)n);
  }
}

Test(launch_map, coordinates_lead_to_the_operands_elements) {
  /* heads inside of positions and outside of them; a view with gaps; one row, whose stride is none; e4m3 and f32 */
  const struct {
    rondo_dtype dtype;
    uint32_t rank;
    int64_t shape[RONDO_MAX_RANK], stride[RONDO_MAX_RANK];
    uint32_t box[RONDO_MAX_RANK];
    uint64_t element_bytes;
    bool has_panels;
  } cases[] = {
      {RONDO_BF16, 4, {2, 9, 3, 128}, {3456, 384, 128, 1}, {1, 64, 1, 128}, 2, true},
      {RONDO_F16, 4, {2, 3, 9, 256}, {6912, 256, 768, 1}, {1, 1, 64, 256}, 2, true},
      {RONDO_F16, 4, {2, 3, 9, 64}, {1728, 64, 192, 1}, {1, 1, 64, 64}, 2, false},
      {RONDO_BF16, 3, {2, 5, 40}, {2000, 48, 1}, {1, 16, 64}, 2, false},
      {RONDO_BF16, 4, {1, 1, 7, 128}, {3, 5, 136, 1}, {1, 1, 8, 128}, 2, true},
      {RONDO_F16, 2, {1, 24}, {25, 1}, {16, 64}, 2, false},
      {RONDO_E4M3, 2, {6, 256}, {512, 1}, {6, 256}, 1, true},
      {RONDO_F32, 2, {6, 96}, {96, 1}, {6, 32}, 4, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct op_operand made = operand(cases[i].dtype, cases[i].rank, cases[i].shape, cases[i].stride);
    require_every_element(&made, cases[i].box, cases[i].element_bytes, cases[i].has_panels);
  }
}

Test(launch_map, panels_have_all_rows_of_the_box) {
  struct op_operand k = operand(RONDO_BF16, 4, (int64_t[]){2, 8, 500, 128}, (int64_t[]){512000, 64000, 128, 1});
  struct op_map map = map_of(&k, (const uint32_t[]){1, 1, 176, 128});
  const uint64_t size[] = {64, 500, 8, 2, 2}, stride_bytes[] = {2, 256, 128000, 1024000, 128};
  const uint32_t box[] = {64, 176, 1, 1, 2};
  cr_assert_eq(map.rank, 5);
  cr_assert_arr_eq(map.size, size, sizeof size);
  cr_assert_arr_eq(map.stride_bytes, stride_bytes, sizeof stride_bytes);
  cr_assert_arr_eq(map.box, box, sizeof box);
}

Test(launch_map, an_operand_that_can_have_none_is_known) {
  const int64_t shape[] = {4, 64};
  struct op_operand good = operand(RONDO_BF16, 2, shape, (int64_t[]){64, 1});
  cr_assert(has_tensor_map(&good));
  struct op_operand rows = operand(RONDO_BF16, 2, shape, (int64_t[]){68, 1}),
                    columns = operand(RONDO_BF16, 2, shape, (int64_t[]){128, 2}),
                    reversed = operand(RONDO_BF16, 2, shape, (int64_t[]){-64, 1}),
                    far = operand(RONDO_BF16, 2, shape, (int64_t[]){INT64_C(1) << 39, 1}),
                    empty = operand(RONDO_BF16, 2, (int64_t[]){0, 64}, (int64_t[]){64, 1}),
                    vector = operand(RONDO_BF16, 1, (int64_t[]){64}, (int64_t[]){1}),
                    nibbles = operand(RONDO_NVFP4, 2, shape, (int64_t[]){64, 1}), begin = good, absent = {0};
  begin.offset_bytes = 8;
  const struct op_operand *const refused[] = {&rows,   &columns, &reversed, &far,   &empty,
                                              &vector, &nibbles, &begin,    &absent};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) cr_assert_not(has_tensor_map(refused[i]), "%zu", i);
}
