/* driver_bench.c - see driver_bench.h. */
#include "driver_bench.h"

void bench_begin(struct bench *bench) {
  *bench = (struct bench){0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &bench->graph));
  bench->x = add_vector(rondo_input, bench->graph, "x", COUNT);
  bench->y = add_vector(rondo_output, bench->graph, "y", COUNT);
}

rondo_status bench_instantiate(struct bench *bench) {
  if (!bench->runtime) {
    rondo_options options = options_for(bench->graph, RONDO_BACKEND_CUDA, SLOTS);
    REQUIRE_OK(rondo_open(&options, &bench->runtime));
  }
  return rondo_instantiate(bench->runtime, bench->graph, &(rondo_exec_options){.slots = SLOTS}, &bench->exec);
}

void bench_end(struct bench *bench) {
  REQUIRE_OK(rondo_close_exec(&bench->exec));
  REQUIRE_OK(rondo_close(&bench->runtime));
  REQUIRE_OK(rondo_graph_destroy(&bench->graph));
  require_clean("after close");
}

void require_result(struct bench *bench, const char *what, uint32_t (*expected)(uint32_t x)) {
  rondo_slot slots[SLOTS];
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_acquire(bench->exec, &slots[s]));
  for (uint32_t round = 0; round < 20; round++) {
    set_seed(round);
    for (uint32_t s = 0; s < SLOTS; s++) {
      uint32_t *x = rondo_data(slots[s], bench->x);
      for (uint32_t i = 0; i < COUNT; i++) x[i] = 7 * i + 100 * s + round;
      REQUIRE_OK(rondo_replay(slots[s]));
    }
    for (uint32_t s = 0; s < SLOTS; s++) {
      REQUIRE_OK(rondo_wait(slots[s], RONDO_FOREVER));
      const uint32_t *y = rondo_data(slots[s], bench->y);
      for (uint32_t i = 0; i < COUNT; i++)
        cr_assert_eq(y[i], expected(7 * i + 100 * s + round), "%s, round %u", what, round);
    }
  }
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_release(slots[s]));
}

void require_refused(struct bench *bench, const char *what, rondo_status expected, const char *sentence) {
  char text[256];
  require_error(bench_instantiate(bench), expected, sentence, what);
  cr_assert_null(bench->exec, "%s", what);
  require_no_violation(what);
  cr_assert_eq(fake->context_depth(), 0, "%s", what);
  cr_assert_eq(fake->live(text, sizeof text), 7, "%s: context, 2 libraries, 2 streams, 2 pools, but: %s", what, text);
  rondo_info info;
  REQUIRE_OK(rondo_runtime_info(bench->runtime, &info));
  cr_assert_eq(info.device.used_bytes + info.pinned.used_bytes + info.host.used_bytes, 0, "%s", what);
  struct bench good;
  bench_begin(&good);
  good.runtime = bench->runtime;
  add_copy(good.graph, "good", good.x, good.y);
  REQUIRE_OK(bench_instantiate(&good));
  REQUIRE_OK(rondo_close_exec(&good.exec));
  REQUIRE_OK(rondo_graph_destroy(&good.graph));
  bench_end(bench);
}

uint32_t mixed(uint32_t x) { return 48 * x + COUNT; }
