/* forked_tests.c - stands in for Criterion under valgrind: each test runs in a fork of this process. Criterion starts
 * a program for each test, and valgrind would translate its loader each time, which takes a second.
 *
 *   unit [PART PARTS]: every PARTS-th test from number PART on. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Where Test and TestSuite leave what they describe: the linker names the ends of sections. */
extern struct criterion_test *const tests_begin[] __asm__("__start_cr_tst"), *const tests_end[] __asm__(
                                                                                 "__stop_cr_tst");
extern struct criterion_suite *const suites_begin[] __asm__("__start_cr_sts"), *const suites_end[] __asm__(
                                                                                   "__stop_cr_sts");

/* A test that hangs is ended after its time, which is another one under valgrind. */
enum { SKIPPED = 77, TIMES_SLOWER = 20, DEFAULT_SECONDS = 60 };

struct criterion_options criterion_options;
static const struct criterion_test *running;

static const struct criterion_test_extra_data *suite_of(const struct criterion_test *test) {
  for (struct criterion_suite *const *suite = suites_begin; suite < suites_end; suite++)
    if (*suite && !strcmp((*suite)->name, test->category)) return (*suite)->data;
  return NULL;
}

void criterion_internal_test_setup(void) {
  const struct criterion_test_extra_data *suite = suite_of(running);
  if (suite && suite->init) suite->init();
  if (running->data->init) running->data->init();
}

void criterion_internal_test_main(void (*body)(void)) { body(); }

void criterion_internal_test_teardown(void) {
  const struct criterion_test_extra_data *suite = suite_of(running);
  if (running->data->fini) running->data->fini();
  if (suite && suite->fini) suite->fini();
}

/* ---- What assertions call ---------------------------------------------------------------------------------------- */

int cr_asprintf(char **text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(text, format, arguments);
  va_end(arguments);
  return length;
}

void cr_asprintf_free(char *text) { free(text); }

char *cr_translate_assert_msg(int index, ...) {
  (void)index;
  return strdup("an assertion fails");
}

void cri_asserts_passed_incr(void) {}

void criterion_send_assert(struct criterion_assert_stats *stats) {
  fprintf(stderr, "%s/%s: %s:%u: %s\n", running->category, running->name, stats->file, stats->line, stats->message);
}

void criterion_abort_test(void) { exit(1); }

void criterion_continue_test(void) { exit(1); }

void criterion_skip_test(const char *format, ...) {
  (void)format;
  exit(SKIPPED);
}

void cr_log(enum criterion_severity severity, const char *format, ...) { (void)severity, (void)format; }

/* ---- All of them ------------------------------------------------------------------------------------------------- */

static unsigned seconds_of(const struct criterion_test *test) {
  const struct criterion_test_extra_data *suite = suite_of(test);
  double seconds = test->data->timeout > 0 ? test->data->timeout : suite ? suite->timeout : 0;
  return TIMES_SLOWER * (seconds > 0 ? (unsigned)seconds : DEFAULT_SECONDS);
}

/* How its process ended. */
static int run(const struct criterion_test *test) {
  int status = 0;
  running = test;
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(seconds_of(test));
    test->test();
    exit(0);
  }
  if (child < 0 || waitpid(child, &status, 0) != child) return perror("fork"), -1;
  return status;
}

int main(int count, char **words) {
  size_t part = count == 3 ? strtoul(words[1], NULL, 10) : 0, parts = count == 3 ? strtoul(words[2], NULL, 10) : 1;
  size_t number = 0, passed = 0, skipped = 0, failed = 0;
  if (part >= parts) return fprintf(stderr, "usage: %s [PART PARTS]\n", words[0]), 2;
  for (struct criterion_test *const *test = tests_begin; test < tests_end; test++) {
    if (!*test || number++ % parts != part) continue;
    int status = run(*test);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
      skipped++;
    } else if (!status) {
      passed++;
    } else {
      failed++;
      printf("%s/%s failed, status %#x\n", (*test)->category, (*test)->name, (unsigned)status);
    }
  }
  printf("%zu tests passed, %zu skipped, %zu failed\n", passed, skipped, failed);
  return failed || !number;
}
