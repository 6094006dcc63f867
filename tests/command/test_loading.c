/* test_loading.c - machines on which a file or a feature that Rondo needs is missing or broken: the command names it
 * and does not crash. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shell.h"

TestSuite(loading, .fini = shell_remove_folder, .timeout = 240);

/* ---- CUDA's driver ----------------------------------------------------------------------------------------------- */

/* "rondo info" where that command has made libcuda.so.1 in the test's folder. */
static struct ran info_with(const char *makes) {
  char line[4096];
  snprintf(line, sizeof line, "cd %s && rm -f libcuda.so.1 && { %s ; } && LD_LIBRARY_PATH=%s '%s'/bin/rondo info",
           shell_folder(), makes, shell_folder(), shell_root());
  struct ran ran = shell_run(line);
  if (strstr(ran.out, "no device code")) cr_skip_test("built without nvcc: nothing is loaded");
  return ran;
}

static void require_reason(const char *makes, const char *reason) {
  struct ran ran = info_with(makes);
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.out, "host: "), "%s\n%s", makes, ran.out);
  cr_assert_not_null(strstr(ran.out, reason), "%s: expected %s\n%s", makes, reason, ran.out);
}

Test(loading, a_driver_that_is_broken_is_told_by_the_loaders_words) {
  require_reason(": >libcuda.so.1", "libcuda.so.1: file too short");
  require_reason("head -c 100000 /dev/zero >libcuda.so.1", "libcuda.so.1: invalid ELF header");
}

Test(loading, a_driver_that_lacks_a_library_is_told_by_the_librarys_name) {
  char makes[4096];
  snprintf(makes, sizeof makes, "LC_ALL=C sed s/libc[.]so[.]6/libx.so.6/g '%s'/fake/libcuda.so.1 >libcuda.so.1",
           shell_root());
  require_reason(makes, "libx.so.6: cannot open shared object file");
}

Test(loading, a_driver_that_is_not_there_is_told_in_few_words) {
  struct ran ran = info_with(":");
  REQUIRE_CODE(ran, 0);
  if (strstr(ran.out, "cuda: ")) cr_skip_test("there is a driver");
  cr_assert_not_null(strstr(ran.out, "host: no libcuda.so.1\n"), "%s", ran.out);
}

/* ---- The processor ----------------------------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

/* The command on another processor, one before AVX. */
static struct ran rondo_on_nehalem(const char *words) {
  char line[4096];
  if (is_sanitized) cr_skip_test("the sanitizers want their addresses from the emulator too");
  if (shell_run("command -v qemu-x86_64").code != 0) cr_skip_test("qemu-x86_64 is not installed");
  snprintf(line, sizeof line, "qemu-x86_64 -cpu Nehalem '%s'/bin/rondo %s", shell_root(), words);
  return shell_run(line);
}

Test(loading, a_processor_without_avx2_is_refused_with_a_sentence) {
  static const char *const commands[] = {"info", "profile qr m=4 n=2", "bench replay"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    struct ran ran = rondo_on_nehalem(commands[i]);
    REQUIRE_CODE(ran, 1);
    cr_assert_not_null(strstr(ran.error, "rondo: open: the host backend needs a processor with AVX2"), "%s: %s",
                       commands[i], ran.error);
    cr_assert_not_null(strstr(ran.error, "this one has no AVX2"), "%s: %s", commands[i], ran.error);
  }
}

/* What takes no device takes no such processor. */
Test(loading, a_processor_without_avx2_describes_and_plans) {
  static const char *const commands[] = {"plan qr m=512 n=256 batch=8", "plan llama",
                                         "explain gemv m=4096 k=4096 weights=nvfp4", "explain attention", "--version"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    struct ran ran = rondo_on_nehalem(commands[i]);
    REQUIRE_CODE(ran, 0);
    cr_assert_str_empty(ran.error);
    char here[SHELL_TEXT_BYTES / 8];
    snprintf(here, sizeof here, "%s", ran.out);
    ran = shell_rondo("", "%s", commands[i]);
    cr_assert_eq(strncmp(here, ran.out, sizeof here - 1), 0, "%s: here\n%s\nthere\n%s", commands[i], ran.out, here);
  }
}
