/* test_group.c - rondo_open_group: all ranks or none, states that the ranks lend each other, and replays of all ranks.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "../../runtime/op.h"
#include "../support.h"

enum { RANKS = 2, COUNT = 256, BYTES = COUNT * 4 };

TestSuite(group, .timeout = 60);

static void options_of(rondo_backend backend, uint32_t ranks, rondo_options *options) {
  for (uint32_t r = 0; r < ranks; r++)
    options[r] = (rondo_options){
        .backend = backend, .device_bytes = 1 << 20, .pinned_bytes = 1 << 18, .host_bytes = 1 << 20, .host_threads = 1};
}

static void open_ranks(rondo_backend backend, uint32_t ranks, rondo_runtime **runtimes) {
  rondo_options options[RONDO_MAX_RANKS];
  options_of(backend, ranks, options);
  REQUIRE_OK(rondo_open_group(options, ranks, runtimes));
}

/* ---- Open and close ---------------------------------------------------------------------------------------------- */

static void opens_and_closes_in_any_order(rondo_backend backend) {
  static const uint32_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    rondo_runtime *runtimes[3];
    open_ranks(backend, 3, runtimes);
    for (int j = 0; j < 3; j++) {
      rondo_info info;
      REQUIRE_OK(rondo_runtime_info(runtimes[orders[i][j]], &info));
      cr_assert_eq(info.backend, backend);
      REQUIRE_OK(rondo_close(&runtimes[orders[i][j]]));
    }
  }
}
BOTH_BACKENDS(group, opens_and_closes_in_any_order, opens_and_closes_in_any_order)

Test(group, the_number_of_ranks_and_their_options_are_checked) {
  rondo_options options[RONDO_MAX_RANKS + 1];
  rondo_runtime *runtimes[RONDO_MAX_RANKS + 1] = {NULL};
  options_of(RONDO_BACKEND_HOST, RONDO_MAX_RANKS + 1, options);
  REQUIRE_ERROR(rondo_open_group(options, 0, runtimes), RONDO_INVALID_ARGUMENT, "open: 0 ranks, expected 1 to 8");
  REQUIRE_ERROR(rondo_open_group(options, 9, runtimes), RONDO_INVALID_ARGUMENT, "open: 9 ranks, expected 1 to 8");
  REQUIRE_ERROR(rondo_open_group(NULL, 2, runtimes), RONDO_INVALID_ARGUMENT, "open: the options is NULL");
  REQUIRE_ERROR(rondo_open_group(options, 2, NULL), RONDO_INVALID_ARGUMENT, "the runtime's address is NULL");
  options[1].host_threads = 5000;
  options[1].device = 3;
  REQUIRE_ERROR(rondo_open_group(options, 2, runtimes), RONDO_INVALID_ARGUMENT,
                "open: rank 1 (device 3): 5000 host threads");
  options[1].host_threads = 1;
  options[1].backend = RONDO_BACKEND_AUTO;
  REQUIRE_ERROR(rondo_open_group(options, 2, runtimes), RONDO_INVALID_ARGUMENT,
                "open: rank 1 (device 3): backend 0, expected 1 as of rank 0");
  cr_assert_null(runtimes[0]);
  options[1].backend = RONDO_BACKEND_HOST;
  REQUIRE_OK(rondo_open_group(options, RONDO_MAX_RANKS, runtimes));
  for (int r = 0; r < RONDO_MAX_RANKS; r++) REQUIRE_OK(rondo_close(&runtimes[r]));
}
