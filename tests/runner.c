/* runner.c - the main function of the test programs: it runs the tests that Criterion's macros describe.
 *
 *   --filter PATTERN  the tests SUITE/NAME that match; '@(copy|gemv)*' is a pattern too
 *   --jobs N          at once; a processor has one unless this says otherwise
 *   --json FILE       writes the counts
 *   --list            the tests' names alone
 *   --apart           no two tests in one process
 *   --suites          the tests of a suite in one process, but for those with OWN_PROCESS; this halves valgrind's time,
 *                     which translates code anew in each process
 *   --here            all in this process, one after the other, for debuggers and compute-sanitizer
 *   --slower N        time limits, N times as long
 *   --times           the seconds that each test took, and its processors' seconds
 *
 * A test runs in a process of its own, a fork of this one, so that no test sees what another has left. Only tests of
 * kernels whose name ends with _cuda share processes, because making a GPU's context takes longer than most of them. A
 * process that shares takes test after test. It ends with the first that fails, and before one that shares none: what
 * follows gets a new process. The number of a process's test is in memory that all processes see. So a test that
 * crashes is named too. What is found at a process's end, such as a leak, is said of its last test.
 *
 * Criterion's own main function starts a program for each test, which takes longer than most tests. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fnmatch.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

/* Where Test and TestSuite leave what they describe: the linker names the ends of sections. */
typedef struct criterion_test *const *test_list;
typedef struct criterion_suite *const *suite_list;
extern struct criterion_test *const tests_begin[] __asm__("__start_cr_tst");
extern struct criterion_test *const tests_end[] __asm__("__stop_cr_tst");
extern struct criterion_suite *const suites_begin[] __asm__("__start_cr_sts") __attribute__((weak));
extern struct criterion_suite *const suites_end[] __asm__("__stop_cr_sts") __attribute__((weak));

enum { JOBS_MOST = 64, DEFAULT_SECONDS = 900, FAILED_STATUS = 70 };

static const char usage[] = "[--filter 'SUITE/NAME'] [--jobs N] [--json FILE] [--list] [--apart] [--suites] [--here] "
                            "[--slower N] [--times]";

enum verdict { NO_VERDICT, PASSED, SKIPPED, FAILED };

/* The test that a process runs, and the end of those that it has taken. */
struct taken {
  unsigned running, end;
};

/* What all processes see. */
struct shared {
  atomic_uint next; /* the next test that no process has taken */
  struct taken taken[JOBS_MOST];
  struct result {
    enum verdict verdict;
    double seconds, processor_seconds;
  } results[];
};

static struct {
  const char *filter, *json;
  unsigned jobs, slower;
  bool lists, keeps_apart, keeps_suites, stays_here, tells_times;
} options = {.filter = "*", .slower = 1};

static const struct criterion_test **tests; /* those of the filter: those that share processes come last */
static unsigned count;
static struct shared *shared;

struct criterion_options criterion_options;
static const struct criterion_test *running;
static bool has_failed;
static sigjmp_buf after_skip;

/* ---- What the macros call ---------------------------------------------------------------------------------------- */

static const struct criterion_test_extra_data *suite_of(const struct criterion_test *test) {
  for (suite_list suite = suites_begin; suite < suites_end; suite++)
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

int cr_asprintf(char **text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(text, format, arguments);
  va_end(arguments);
  return length;
}

void cr_asprintf_free(char *text) { free(text); }

/* The sentence for an assertion that has none of its own. The expression, if there is one, is the first argument. */
char *cr_translate_assert_msg(int index, ...) {
  va_list arguments;
  char *text = NULL;
  va_start(arguments, index);
  const char *expression = va_arg(arguments, const char *);
  if (asprintf(&text, index == CRITERION_ASSERT_MSG_FAIL ? "%sthe test fails" : "%s", expression) < 0) abort();
  va_end(arguments);
  return text;
}

void cri_asserts_passed_incr(void) {}

void criterion_send_assert(struct criterion_assert_stats *stats) {
  fprintf(stderr, "[----] %s:%u: %s/%s: %s\n", stats->file, stats->line, running->category, running->name,
          stats->message);
}

void criterion_abort_test(void) { exit(FAILED_STATUS); }

void criterion_continue_test(void) { has_failed = true; }

void criterion_skip_test(const char *format, ...) {
  (void)format;
  siglongjmp(after_skip, 1);
}

void cr_log(enum criterion_severity severity, const char *format, ...) { (void)severity, (void)format; }

/* ---- In a test's process ----------------------------------------------------------------------------------------- */

static bool is_alone(const struct criterion_test *test) {
  return test->data->description && !strcmp(test->data->description, IN_A_PROCESS_OF_ITS_OWN);
}

static bool shares_process(const struct criterion_test *test) {
  return !options.keeps_apart && !is_alone(test) && !fnmatch("*_cuda", test->name, 0) &&
         !fnmatch("*tests/kernels/*", test->data->file_, 0);
}

static unsigned seconds_of(const struct criterion_test *test) {
  const struct criterion_test_extra_data *suite = suite_of(test);
  double seconds = test->data->timeout > 0 ? test->data->timeout : suite ? suite->timeout : 0;
  return options.slower * (seconds > 0 ? (unsigned)seconds : DEFAULT_SECONDS);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Of all threads of this process, and of the processes that it has waited for. */
static double processor_seconds(void) {
  double seconds = 0;
  for (int who = 0; who < 2; who++) {
    struct rusage usage;
    getrusage(who ? RUSAGE_CHILDREN : RUSAGE_SELF, &usage);
    seconds += (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
    seconds += (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  }
  return seconds;
}

static void run(unsigned number) {
  const double begin = now(), processor_begin = processor_seconds();
  running = tests[number];
  has_failed = false;
  keeps_backend = shares_process(running);
  alarm(seconds_of(running));
  if (sigsetjmp(after_skip, 1)) {
    shared->results[number].verdict = SKIPPED;
  } else {
    running->test();
    if (has_failed) exit(FAILED_STATUS);
    shared->results[number].verdict = PASSED;
  }
  alarm(0);
  shared->results[number].seconds = now() - begin;
  shared->results[number].processor_seconds = processor_seconds() - processor_begin;
}

/* Of the tests from `begin` on, the end of those that one process takes at once. */
static unsigned end_of(unsigned begin) {
  unsigned end = begin + 1;
  if (!options.keeps_suites || is_alone(tests[begin])) return end;
  while (end < count && !is_alone(tests[end]) && !strcmp(tests[end]->category, tests[begin]->category)) end++;
  return end;
}

/* False: no test is left, or the next one needs a new process and this one has run others. */
static bool take(struct taken *taken, bool is_new_process) {
  unsigned begin = atomic_load(&shared->next), end;
  do {
    if (begin >= count || (!is_new_process && !shares_process(tests[begin]))) return false;
    end = end_of(begin);
  } while (!atomic_compare_exchange_weak(&shared->next, &begin, end));
  *taken = (struct taken){begin, end};
  return true;
}

/* What is taken, and then as many as may share the process. */
static void run_taken(struct taken *taken) {
  do {
    for (run(taken->running); taken->running + 1 < taken->end; run(taken->running)) taken->running++;
  } while (shares_process(tests[taken->running]) && take(taken, false));
}

/* ---- All processes ----------------------------------------------------------------------------------------------- */

/* A process has ended, and with it what it ran. */
static void judge(unsigned number, int status) {
  if (!status && shared->results[number].verdict) return;
  const char *reason = "it ended its process";
  if (WIFSIGNALED(status)) reason = WTERMSIG(status) == SIGALRM ? "timed out" : strsignal(WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) == FAILED_STATUS) reason = "an assertion failed";
  shared->results[number].verdict = FAILED;
  printf("[FAIL] %s::%s: %s (status %#x)\n", tests[number]->category, tests[number]->name, reason, (unsigned)status);
  fflush(stdout);
}

/* A process for the rest of what another has taken, which ended in between, or for other tests. 0: none is left. */
static pid_t start(struct taken *taken) {
  if (taken->running + 1 < taken->end)
    taken->running++;
  else if (!take(taken, true))
    return 0;
  pid_t child = fork();
  if (child < 0) perror("fork"), exit(2);
  if (child) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  run_taken(taken);
  exit(0);
}

static void run_all(void) {
  pid_t children[JOBS_MOST] = {0};
  unsigned alive = 0;
  for (unsigned i = 0; i < options.jobs; i++) alive += (children[i] = start(&shared->taken[i])) != 0;
  while (alive) {
    int status;
    pid_t child = wait(&status);
    if (child < 0 && errno != EINTR) perror("wait"), exit(2);
    for (unsigned i = 0; i < options.jobs; i++) {
      if (child <= 0 || children[i] != child) continue;
      judge(shared->taken[i].running, status);
      children[i] = start(&shared->taken[i]);
      alive -= !children[i];
    }
  }
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

static void choose(void) {
  tests = calloc((size_t)(tests_end - tests_begin) + 1, sizeof *tests);
  if (!tests) abort();
  for (int shares = 0; shares < 2; shares++)
    for (test_list test = tests_begin; test < tests_end; test++) {
      char name[512];
      if (!*test || (*test)->data->disabled || shares_process(*test) != shares) continue;
      snprintf(name, sizeof name, "%s/%s", (*test)->category, (*test)->name);
      if (!fnmatch(options.filter, name, FNM_EXTMATCH)) tests[count++] = *test;
    }
}

static void report(unsigned passed, unsigned skipped, unsigned failed) {
  printf("[====] Synthesis: Tested: %u | Passing: %u | Failing: %u | Skipped: %u\n", passed + failed, passed, failed,
         skipped);
  if (!options.json) return;
  FILE *file = fopen(options.json, "w");
  if (!file) perror(options.json), exit(2);
  fprintf(file, "{\n  \"passed\": %u,\n  \"failed\": %u,\n  \"skipped\": %u\n}\n", passed, failed, skipped);
  if (fclose(file)) perror(options.json), exit(2);
}

static unsigned processors(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : (unsigned)CPU_COUNT(&set);
}

/* The value of an option: --jobs=2, --jobs 2, -j2 and -j 2. NULL: the word is another option. */
static const char *value_of(char ***word, const char *name, const char *letter) {
  const char *text = **word;
  size_t length = strlen(name);
  if (!strncmp(text, name, length) && text[length] == '=') return text + length + 1;
  if (letter && !strncmp(text, letter, 2) && text[2]) return text + 2;
  bool is_named = !strcmp(text, name) || (letter && !strcmp(text, letter));
  if (!is_named) return NULL;
  if (!(*word)[1]) return NULL;
  return *++*word;
}

static bool understand(char **word) {
  for (const char *value; *word; word++) {
    if ((value = value_of(&word, "--filter", NULL))) {
      options.filter = value;
    } else if ((value = value_of(&word, "--json", NULL))) {
      options.json = value;
    } else if ((value = value_of(&word, "--jobs", "-j"))) {
      options.jobs = (unsigned)strtoul(value, NULL, 10);
    } else if ((value = value_of(&word, "--slower", NULL))) {
      options.slower = (unsigned)strtoul(value, NULL, 10);
    } else if (!strcmp(*word, "--list")) {
      options.lists = true;
    } else if (!strcmp(*word, "--apart")) {
      options.keeps_apart = true;
    } else if (!strcmp(*word, "--suites")) {
      options.keeps_suites = true;
    } else if (!strcmp(*word, "--here")) {
      options.stays_here = true;
    } else if (!strcmp(*word, "--times")) {
      options.tells_times = true;
    } else {
      return false;
    }
  }
  return true;
}

int main(int argument_count, char **words) {
  (void)argument_count;
  if (!understand(words + 1)) return fprintf(stderr, "usage: %s %s\n", words[0], usage), 2;
  if (!options.jobs) options.jobs = processors();
  if (options.jobs > JOBS_MOST) options.jobs = JOBS_MOST;
  choose();
  for (unsigned i = 0; i < count && options.lists; i++) printf("%s/%s\n", tests[i]->category, tests[i]->name);
  if (options.lists) return 0;
  shared = mmap(NULL, sizeof *shared + count * sizeof *shared->results, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return perror("mmap"), 2;
  if (options.stays_here)
    for (unsigned i = 0; i < count; i++) run(i);
  else
    run_all();
  unsigned found[FAILED + 1] = {0};
  for (unsigned i = 0; i < count && options.tells_times; i++)
    printf("%9.3f s, of processors %7.3f s  %s/%s\n", shared->results[i].seconds, shared->results[i].processor_seconds,
           tests[i]->category, tests[i]->name);
  for (unsigned i = 0; i < count; i++) found[shared->results[i].verdict]++;
  report(found[PASSED], found[SKIPPED], found[FAILED]);
  return found[FAILED] || found[NO_VERDICT] ? 1 : 0;
}
