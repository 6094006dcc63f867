/* test_bench_exchange.c - `rondo bench exchange` on the host: NCCL's times from a file, and the picture. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "shell.h"

TestSuite(bench_exchange, .fini = shell_remove_folder, .timeout = 240);

static const char short_exchange[] = "bench exchange --backend host --ranks 2 --samples 1";

/* The picture has a point of Rondo for each size of all_reduce, and one of NCCL where its time is known. */
Test(bench_exchange, shows_and_draws_nccl_beside_ours) {
  char plot[256];
  const char *rivals = shell_write("rivals.json", "[{\"name\": \"all_reduce of 8192 bytes, 2 ranks\", \"us\": 7.5},\n"
                                                  " {\"name\": \"broadcast of 8192 bytes, 2 ranks\", \"us\": 5.25},\n"
                                                  " {\"name\": \"all_reduce of 8192 bytes, 4 ranks\", \"us\": 99}]");
  snprintf(plot, sizeof plot, "%s/plot.svg", shell_folder());
  struct ran ran = shell_rondo("", "%s --rivals %s --plot %s", short_exchange, rivals, plot);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, " /     7.50 us"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, " /     5.25 us"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, " 99.00 us"), 0, "%s", ran.out);
  const char *svg = shell_read(plot);
  cr_assert_eq(shell_occurrences(svg, "<title>Rondo, "), 7, "%s", svg);
  cr_assert_eq(shell_occurrences(svg, "<title>NCCL, 8192 bytes: 7.50 us</title>"), 1, "%s", svg);
  cr_assert_eq(shell_occurrences(svg, "<title>NCCL, "), 1, "%s", svg);
}

Test(bench_exchange, draws_nothing_of_nccl_alone) {
  struct ran ran = shell_rondo("", "%s --engine nccl --plot x.svg", short_exchange);
  cr_assert_neq(ran.code, 0);
  cr_assert_not_null(strstr(ran.error, "--plot goes with Rondo's own exchanges"), "%s", ran.error);
}
