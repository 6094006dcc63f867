/* test_pool.c - a pool never hands out overlapping extents, never grows, and gets everything back. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/pool.h"
#include "../support.h"

static _Alignas(256) unsigned char slab[1 << 16];

Test(pool, carves_aligned_extents_inside_the_slab) {
  struct pool pool;
  struct pool_extent extents[10];
  pool_init(&pool, "device", slab, sizeof slab);
  for (int i = 0; i < 10; i++) {
    REQUIRE_OK(pool_carve(&pool, 100, "x", &extents[i]));
    const unsigned char *memory = pool_memory(&pool, &extents[i]);
    cr_assert_eq((uintptr_t)memory % 256, 0);
    cr_assert(memory >= slab && memory + 256 <= slab + sizeof slab);
  }
  cr_assert_eq(pool.used_bytes, 2560);
}

Test(pool, one_byte_too_small_is_a_clear_error) {
  struct pool pool;
  struct pool_extent extent = {0};
  pool_init(&pool, "device", slab, 1023);
  REQUIRE_ERROR(pool_carve(&pool, 1024, "an exec", &extent), RONDO_OUT_OF_MEMORY, "device_bytes of at least 1024");
  REQUIRE_ERROR(pool_carve_top(&pool, 1024, "an exec", &extent), RONDO_OUT_OF_MEMORY, "device_bytes of at least 1024");
  cr_assert_eq(extent.bytes, 0);
  cr_assert_eq(pool.used_bytes, 0);
  REQUIRE_OK(pool_carve(&pool, 768, "an exec", &extent));
}

Test(pool, refuses_sizes_that_would_overflow) {
  struct pool pool;
  struct pool_extent extent = {0};
  void *memory = NULL;
  pool_init(&pool, "host", slab, sizeof slab);
  for (uint64_t bytes = UINT64_MAX; bytes > 1 << 20; bytes = bytes == UINT64_MAX ? UINT64_MAX - 300 : bytes / 2) {
    REQUIRE_ERROR(pool_carve(&pool, bytes, "x", &extent), RONDO_OUT_OF_MEMORY, "host pool");
    REQUIRE_ERROR(pool_carve_top(&pool, bytes, "x", &extent), RONDO_OUT_OF_MEMORY, "host pool");
    REQUIRE_ERROR(pool_take(&pool, bytes, "x", false, &memory), RONDO_OUT_OF_MEMORY, "host pool");
  }
  REQUIRE_OK(pool_carve_top(&pool, 1, "x", &extent));
  REQUIRE_ERROR(pool_grow_down(&pool, UINT64_MAX, "x", &extent), RONDO_OUT_OF_MEMORY, "host pool");
  cr_assert_eq(extent.bytes, 256);
}

Test(pool, an_extent_from_the_top_grows_down_until_it_meets_another) {
  struct pool pool;
  struct pool_extent bottom = {0}, top = {0}, second = {0};
  pool_init(&pool, "device", slab, 4096);
  REQUIRE_OK(pool_carve(&pool, 1024, "an exec", &bottom));
  REQUIRE_OK(pool_carve_top(&pool, 512, "a lane", &top));
  cr_assert_eq(bottom.offset, 0);
  cr_assert_eq(top.offset, 4096 - 512);
  memset(pool_memory(&pool, &top), 7, 512);
  REQUIRE_OK(pool_grow_down(&pool, 400, "a lane", &top)); /* is large enough */
  cr_assert_eq(top.bytes, 512);
  REQUIRE_OK(pool_grow_down(&pool, 3000, "a lane", &top));
  cr_assert_eq(top.offset, 1024);
  cr_assert_eq(top.offset + top.bytes, 4096, "its end has not moved");
  for (int i = 4096 - 512; i < 4096; i++) cr_assert_eq(slab[i], 7);
  cr_assert_eq(pool.used_bytes, 4096);
  cr_assert_eq(pool.high_water_bytes, 4096);
  REQUIRE_ERROR(pool_grow_down(&pool, 3500, "a lane", &top), RONDO_OUT_OF_MEMORY,
                "device pool: a lane needs 3584 bytes in one piece; 4096 of 4096 are in use: open the runtime with "
                "device_bytes of at least 4608");
  cr_assert_eq(top.bytes, 3072);
  REQUIRE_ERROR(pool_carve(&pool, 1, "an exec", &second), RONDO_OUT_OF_MEMORY, "at least 4352");
  pool_return(&pool, &bottom);
  REQUIRE_OK(pool_grow_down(&pool, 4000, "a lane", &top));
  pool_return(&pool, &top);
  pool_return(&pool, &top);
  cr_assert_eq(pool.used_bytes, 0);
}

static rondo_status carve(struct pool *pool, bool from_top, uint64_t bytes, struct pool_extent *extent) {
  return from_top ? pool_carve_top(pool, bytes, "x", extent) : pool_carve(pool, bytes, "x", extent);
}

/* So that the advice in the text is true: the pool that it names is large enough, and one byte less is not. */
Test(pool, the_text_names_the_capacity_that_would_have_done) {
  struct random random = {5};
  for (int round = 0; round < 400; round++) {
    const uint64_t capacity = 4096;
    uint64_t sizes[8];
    bool from_top[8];
    for (int i = 0; i < 8; i++) {
      sizes[i] = (uint64_t)random_between(&random, 1, 1500);
      from_top[i] = random_between(&random, 0, 1);
    }
    struct pool pool;
    struct pool_extent extents[8] = {0};
    int failing = 0;
    pool_init(&pool, "device", slab, capacity);
    while (failing < 8 && carve(&pool, from_top[failing], sizes[failing], &extents[failing]) == RONDO_OK) failing++;
    if (failing == 8) continue;
    uint64_t advised = strtoull(strstr(rondo_error_text(), "at least ") + 9, NULL, 10);
    for (uint64_t less = 0; less < 2; less++) {
      pool_init(&pool, "device", slab, advised - less);
      for (int i = 0; i < failing; i++) REQUIRE_OK(carve(&pool, from_top[i], sizes[i], &extents[i]));
      cr_assert_eq(carve(&pool, from_top[failing], sizes[failing], &extents[failing]),
                   less ? RONDO_OUT_OF_MEMORY : RONDO_OK);
    }
  }
}

Test(pool, random_carving_never_overlaps_and_returns_everything) {
  enum { COUNT = 64 };
  struct pool pool;
  pool_init(&pool, "pinned", slab, sizeof slab);
  struct random random = {1};
  static struct {
    struct pool_extent extent;
    unsigned char *memory; /* taken: the extent lies in front */
    uint64_t bytes;
    unsigned char mark;
  } live[COUNT];
  uint64_t refused = 0;
  for (int step = 0; step < 40000; step++) {
    int i = (int)random_between(&random, 0, COUNT - 1), how = (int)random_between(&random, 0, 3);
    unsigned char *memory = live[i].memory;
    uint64_t bytes = (uint64_t)random_between(&random, 1, 3000);
    if (live[i].extent.bytes) {
      memory = pool_memory(&pool, &live[i].extent) + live[i].extent.bytes - live[i].bytes; /* marked at its end */
      for (uint64_t b = 0; b < live[i].bytes; b++) cr_assert_eq(memory[b], live[i].mark);
      if (how == 0) {
        uint64_t before = live[i].extent.bytes;
        if (pool_grow_down(&pool, before + bytes, "x", &live[i].extent) == RONDO_OK)
          memset(pool_memory(&pool, &live[i].extent), 255, live[i].extent.bytes - before);
        else
          refused++;
      } else {
        pool_return(&pool, &live[i].extent);
      }
    } else if (memory) {
      for (uint64_t b = 0; b < live[i].bytes; b++) cr_assert_eq(memory[b], live[i].mark);
      pool_give(&pool, memory);
      live[i].memory = NULL;
    } else {
      void *taken = NULL;
      rondo_status status = how == 0   ? pool_carve(&pool, bytes, "x", &live[i].extent)
                            : how == 1 ? pool_carve_top(&pool, bytes, "x", &live[i].extent)
                                       : pool_take(&pool, bytes, "x", false, &taken);
      live[i].bytes = bytes;
      live[i].mark = (unsigned char)step;
      live[i].memory = taken;
      if (status != RONDO_OK)
        refused++;
      else
        memset(taken ? taken : pool_memory(&pool, &live[i].extent) + live[i].extent.bytes - bytes, live[i].mark, bytes);
    }
  }
  cr_assert_gt(refused, 100);
  for (int i = 0; i < COUNT; i++) {
    pool_return(&pool, &live[i].extent);
    pool_give(&pool, live[i].memory);
  }
  cr_assert_eq(pool.used_bytes, 0);
  cr_assert_eq(pool.ends.after, &pool.ends);
  cr_assert_eq(pool.ends.before, &pool.ends);
  cr_assert_leq(pool.high_water_bytes, sizeof slab);
}
