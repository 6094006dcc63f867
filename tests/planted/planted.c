/* planted.c - tests that end in every way, for tests/planted/run, which checks what tests/runner.c reports of each.
 * Those of the suite shared have the names of tests that share processes. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "../support.h"

bool keeps_backend; /* instead of support.c's, which needs the library */

static int setups;

static void count_setups(void) { setups++; }

static void tell_process(void) { fprintf(stderr, "process %d\n", (int)getpid()); }

TestSuite(alone, .init = count_setups);

Test(alone, tells_its_process, OWN_PROCESS) {
  cr_assert_eq(setups, 1);
  cr_assert(!keeps_backend);
  tell_process();
}
Test(alone, tells_its_process_too, OWN_PROCESS) {
  cr_assert_eq(setups, 1);
  tell_process();
}
Test(alone, tells_its_process_with_others) { tell_process(); }
Test(alone, tells_its_process_with_others_too) { tell_process(); }
Test(alone, fails) { cr_assert_fail("as planned"); }
Test(alone, expects_and_goes_on) {
  cr_expect_eq(setups, 2, "first");
  cr_expect_eq(setups, 3, "second");
}
Test(alone, crashes) { raise(SIGSEGV); }

/* The runner recognises tests that share processes by their file. */
#line 1 "tests/kernels/planted.c"

Test(shared, tells_its_process_cuda) {
  tell_process();
  cr_assert(keeps_backend);
}
Test(shared, tells_its_process_too_cuda) { tell_process(); }
Test(shared, is_skipped_cuda) { cr_skip_test("as planned"); }
Test(shared, fails_cuda) { cr_assert_eq(1, 2); }
Test(shared, crashes_cuda) { raise(SIGSEGV); }
Test(shared, ends_its_process_cuda) { _exit(0); }
Test(shared, hangs_cuda, .timeout = 1) { pause(); }
