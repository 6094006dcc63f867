/* test_pool.c - a pool never hands out overlapping extents, never grows, and gets everything back. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/pool.h"
#include "../support.h"

static _Alignas(256) unsigned char slab[1 << 16];

Test(pool, carves_aligned_extents_inside_the_slab) {
  struct pool pool;
  pool_init(&pool, "device", slab, sizeof slab);
  void *memory;
  for (int i = 0; i < 10; i++) {
    REQUIRE_OK(pool_carve(&pool, 100, "x", &memory));
    cr_assert_eq((uintptr_t)memory % 256, 0);
    cr_assert((unsigned char *)memory + 256 <= slab + sizeof slab);
  }
  cr_assert_eq(pool.used_bytes, 2560);
}

Test(pool, one_byte_too_small_is_a_clear_error) {
  struct pool pool;
  pool_init(&pool, "device", slab, 1023);
  void *memory = NULL;
  REQUIRE_ERROR(pool_carve(&pool, 1024, "an exec", &memory), RONDO_OUT_OF_MEMORY, "device_bytes of at least 1024");
  cr_assert_null(memory);
  cr_assert_eq(pool.used_bytes, 0);
  REQUIRE_OK(pool_carve(&pool, 768, "an exec", &memory));
}

Test(pool, refuses_sizes_that_would_overflow) {
  struct pool pool;
  pool_init(&pool, "host", slab, sizeof slab);
  void *memory;
  REQUIRE_ERROR(pool_carve(&pool, UINT64_MAX, "x", &memory), RONDO_OUT_OF_MEMORY, "host pool");
  REQUIRE_ERROR(pool_carve(&pool, UINT64_MAX / 2, "x", &memory), RONDO_OUT_OF_MEMORY, "host pool");
}

Test(pool, random_carving_never_overlaps_and_returns_everything) {
  struct pool pool;
  pool_init(&pool, "pinned", slab, sizeof slab);
  struct random random = {1};
  struct {
    unsigned char *memory;
    uint64_t bytes;
    unsigned char mark;
  } live[64] = {0};
  for (int step = 0; step < 20000; step++) {
    int i = (int)random_between(&random, 0, 63);
    if (live[i].memory) {
      for (uint64_t b = 0; b < live[i].bytes; b++) cr_assert_eq(live[i].memory[b], live[i].mark);
      pool_return(&pool, live[i].memory);
      live[i].memory = NULL;
    } else {
      void *memory;
      uint64_t bytes = (uint64_t)random_between(&random, 1, 3000);
      if (pool_carve(&pool, bytes, "x", &memory) != RONDO_OK) continue;
      live[i].memory = memory;
      live[i].bytes = bytes;
      live[i].mark = (unsigned char)step;
      memset(memory, live[i].mark, bytes);
    }
  }
  for (int i = 0; i < 64; i++) pool_return(&pool, live[i].memory);
  cr_assert_eq(pool.used_bytes, 0);
  cr_assert_eq(pool.extent_count, 0);
  cr_assert_leq(pool.high_water_bytes, sizeof slab);
}
