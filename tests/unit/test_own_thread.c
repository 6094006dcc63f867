/* test_own_thread.c - processes of every kind around the library: small default stacks, pinned threads, a CPU quota,
 * and children that a host function starts. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../runtime/cores.h"
#include "lone_task.h"

TestSuite(own_thread, .timeout = 60);

/* ---- Stacks ------------------------------------------------------------------------------------------------------ */

enum { HEADS = 6, ROWS = 40, WIDEST = 256, OUTPUTS = HEADS * ROWS * WIDEST };

struct attended {
  uint16_t numbers[OUTPUTS];
};

/* The largest frames there are: attention's on the team, and those of all calls here. */
static void *attend(void *argument) {
  struct attended *attended = argument;
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  rondo_tensor q, k, v, o;
  rondo_plan plan;
  const int64_t shape[] = {1, HEADS, ROWS, WIDEST};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "q", RONDO_BF16, 4, shape, &q));
  REQUIRE_OK(rondo_input(graph, "k", RONDO_BF16, 4, shape, &k));
  REQUIRE_OK(rondo_input(graph, "v", RONDO_BF16, 4, shape, &v));
  REQUIRE_OK(rondo_output(graph, "o", RONDO_BF16, 4, shape, &o));
  REQUIRE_OK(rondo_add_attention(graph, &(rondo_attention_desc){.q = q, .k = k, .v = v, .o = o, .causal = 1}));
  REQUIRE_OK(rondo_explain(graph, 90, "/dev/null"));
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                         .device_bytes = plan.device_bytes,
                                         .pinned_bytes = plan.pinned_bytes_per_slot,
                                         .host_bytes = plan.host_bytes,
                                         .host_threads = 4},
                        &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  rondo_tensor inputs[] = {q, k, v};
  struct random random = {7};
  for (int i = 0; i < 3; i++)
    for (int n = 0; n < OUTPUTS; n++)
      oracle_write(RONDO_BF16, rondo_data(slot, inputs[i]), n, random_uniform(&random) - 0.5);
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  memcpy(attended->numbers, rondo_data(slot, o), sizeof attended->numbers);
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return NULL;
}

/* As where the stack's limit was so when the program began: the calling thread has no more either. */
static void require_enough_stack(size_t bytes) {
  static struct attended expected, attended;
  pthread_attr_t attributes;
  pthread_t thread;
  attend(&expected);
  cr_assert_eq(pthread_attr_init(&attributes), 0);
  cr_assert_eq(pthread_attr_setstacksize(&attributes, bytes), 0);
  cr_assert_eq(pthread_setattr_default_np(&attributes), 0);
  cr_assert_eq(pthread_create(&thread, NULL, attend, &attended), 0);
  cr_assert_eq(pthread_join(thread, NULL), 0);
  cr_assert_eq(memcmp(&attended, &expected, sizeof attended), 0, "the results differ");
}

Test(own_thread, a_default_stack_of_128_kib_is_enough) { require_enough_stack(128 << 10); }
Test(own_thread, a_default_stack_of_96_kib_is_enough) { require_enough_stack(96 << 10); }

static void note_stack(void *user, void *const *data) {
  (void)data;
  pthread_attr_t attributes;
  cr_assert_eq(pthread_getattr_np(pthread_self(), &attributes), 0);
  cr_assert_eq(pthread_attr_getstacksize(&attributes, user), 0);
  pthread_attr_destroy(&attributes);
}

static rondo_runtime *open_one(void) {
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(rondo_open(
      &(rondo_options){
          .backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 16, .pinned_bytes = 1 << 16, .host_threads = 1},
      &runtime));
  return runtime;
}

Test(own_thread, a_host_function_has_the_default_stack_where_that_is_larger) {
  const size_t wanted = 24 << 20;
  size_t found = 0;
  pthread_attr_t attributes;
  cr_assert_eq(pthread_attr_init(&attributes), 0);
  cr_assert_eq(pthread_attr_setstacksize(&attributes, wanted), 0);
  cr_assert_eq(pthread_setattr_default_np(&attributes), 0);
  rondo_runtime *runtime = open_one();
  struct lone_task task = lone_task(runtime, note_stack, NULL, &found);
  cr_assert_geq(found, wanted);
  lone_task_end(&task);
  REQUIRE_OK(rondo_close(&runtime));
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

/* Threads of the process but the calling one that have SIGTERM or SIGUSR1 unblocked; one may be about to begin. */
static int threads_that_take_signals(char *names, size_t bytes) {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  if (!folder) cr_skip_test("no /proc");
  names[0] = '\0';
  for (struct dirent *entry; (entry = readdir(folder));) {
    char path[300], line[256], name[64] = "";
    uint64_t blocked = UINT64_MAX;
    if (entry->d_name[0] == '.' || strtol(entry->d_name, NULL, 10) == gettid()) continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
      sscanf(line, "Name: %63s", name);
      sscanf(line, "SigBlk: %" SCNx64, &blocked);
    }
    if (file) fclose(file);
    if (blocked >> (SIGTERM - 1) & blocked >> (SIGUSR1 - 1) & 1) continue;
    snprintf(names + strlen(names), bytes - strlen(names), " %s", name);
    count++;
  }
  closedir(folder);
  return count;
}

/* With CUDA the driver's threads too: every one was started in a call of the library. */
static void no_thread_takes_signals(rondo_backend backend) {
  char names[512];
  struct trial trial;
  rondo_tensor x, y;
  int file = eventfd(0, EFD_CLOEXEC);
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F32, 1, (int64_t[]){1000}, &x));
  REQUIRE_OK(rondo_output(trial.graph, "y", RONDO_F32, 1, (int64_t[]){1000}, &y));
  REQUIRE_OK(rondo_add_copy(trial.graph, &(rondo_copy_desc){.src = x, .dst = y}));
  trial_instantiate(&trial);
  REQUIRE_OK(rondo_notify(trial.slot, file));
  for (int i = 0; i < 3; i++) trial_replay(&trial);
  int count = threads_that_take_signals(names, sizeof names);
  cr_assert_eq(count, 0, "%d threads take signals:%s", count, names);
  trial_end(&trial);
  close(file);
}

BOTH_BACKENDS(own_thread, no_thread_takes_signals_of_the_program, no_thread_takes_signals)

/* ---- Children of a host function --------------------------------------------------------------------------------- */

struct child {
  bool unblocks; /* as rondo.h says */
  pid_t process;
};

static void start_child(void *user, void *const *data) {
  struct child *child = user;
  (void)data;
  sigset_t all, before;
  if (child->process) return; /* no warm-up, no second replay */
  sigemptyset(&all);
  if (child->unblocks) {
    sigfillset(&all);
    cr_assert_eq(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    cr_assert(sigismember(&before, SIGTERM), "the thread takes no signals of the application");
  }
  child->process = fork();
  if (child->process) return;
  if (child->unblocks) pthread_sigmask(SIG_UNBLOCK, &all, NULL);
  execl("/bin/sleep", "sleep", "20", (char *)NULL);
  _exit(1);
}

/* Which signal ended the child: SIGTERM, or SIGKILL that is sent if it is still there a moment later. */
static int signal_that_ends(bool unblocks) {
  struct child child = {.unblocks = unblocks};
  int status = 0;
  rondo_runtime *runtime = open_one();
  struct lone_task task = lone_task(runtime, start_child, NULL, &child);
  cr_assert_gt(child.process, 0);
  kill(child.process, SIGTERM);
  usleep(200000);
  if (!unblocks) kill(child.process, SIGKILL);
  cr_assert_eq(waitpid(child.process, &status, 0), child.process);
  lone_task_end(&task);
  REQUIRE_OK(rondo_close(&runtime));
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

Test(own_thread, a_child_that_unblocks_signals_takes_them_and_another_one_does_not) {
  skip_under_valgrind("a new program's signals are valgrind's until it begins");
  cr_assert_eq(signal_that_ends(true), SIGTERM);
  cr_assert_eq(signal_that_ends(false), SIGKILL);
}

/* ---- Cores ------------------------------------------------------------------------------------------------------- */

Test(own_thread, a_thread_on_one_core_says_nothing_of_the_process) {
  enum { CALLER, MAIN, LOADED };
  static const struct {
    uint32_t counts[3]; /* cores of the thread that opens, of the main thread, and when the library was loaded */
    int expected;
    const char *what;
  } cases[] = {
      {{16, 16, 16}, CALLER, "a process that nobody has pinned"},
      {{4, 16, 16}, CALLER, "the caller's share of a machine, such as the cores near its memory"},
      {{1, 16, 16}, MAIN, "the thread that replays opens, pinned"},
      {{1, 16, 1}, MAIN, "and has loaded the library so"},
      {{16, 1, 16}, CALLER, "the main thread is pinned, and another one opens"},
      {{16, 16, 1}, CALLER, "loaded by a pinned thread, opened by one that is not"},
      {{16, 1, 1}, CALLER, "loaded by a pinned main thread, opened by another one"},
      {{1, 1, 16}, LOADED, "a program of one thread, which has pinned itself"},
      {{1, 1, 1}, CALLER, "a process that was given one core"},
      {{0, 0, 0}, CALLER, "a system that does not tell"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct cores cores[3] = {0};
    for (int i = 0; i < 3; i++) cores[i].count = cases[c].counts[i];
    cr_assert_eq(cores_choose(&cores[CALLER], &cores[MAIN], &cores[LOADED]) - cores, cases[c].expected, "%s",
                 cases[c].what);
  }
}

static void put(const char *root, const char *path, const char *text) {
  char name[512];
  snprintf(name, sizeof name, "%s%s", root, path);
  for (char *slash = strchr(name + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(name, 0700);
    *slash = '/';
  }
  FILE *file = fopen(name, "w");
  cr_assert_not_null(file, "%s", name);
  cr_assert_geq(fputs(text, file), 0);
  fclose(file);
}

struct group_file {
  const char *path, *text;
};

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status, (void)kind, (void)place;
  return remove(path);
}

static uint32_t quota_with(const struct group_file *files) {
  char root[] = "/tmp/rondo-quota-XXXXXX";
  cr_assert_not_null(mkdtemp(root));
  for (; files->path; files++) put(root, files->path, files->text);
  uint32_t quota = cores_quota(root);
  cr_assert_eq(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
  return quota;
}

#define QUOTA(...) quota_with((const struct group_file[]){__VA_ARGS__, {0}})
#define GROUPS     "/proc/self/cgroup"
#define MOUNTS     "/proc/self/mountinfo"
#define VERSION_2                                                                                                      \
  { MOUNTS, "22 1 0:20 / /proc rw - proc proc rw\n30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 c rw\n" }
#define VERSION_1                                                                                                      \
  {                                                                                                                    \
    MOUNTS, "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup c "          \
            "rw,cpu,cpuacct\n"                                                                                         \
  }

Test(own_thread, the_cpu_quota_of_every_group_around_the_process_counts) {
  cr_assert_eq(QUOTA(VERSION_2, {GROUPS, "0::/a/b\n"}, {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}), 0);
  cr_assert_eq(QUOTA(VERSION_2, {GROUPS, "0::/a/b\n"}, {"/sys/fs/cgroup/a/b/cpu.max", "350000 100000\n"}), 3);
  cr_assert_eq(QUOTA(VERSION_2, {GROUPS, "0::/a/b\n"}, {"/sys/fs/cgroup/a/b/cpu.max", "500000 100000\n"},
                     {"/sys/fs/cgroup/a/cpu.max", "400000 200000\n"}),
               2, "the outer group has less");
  cr_assert_eq(QUOTA(VERSION_2, {GROUPS, "0::/a/b\n"}, {"/sys/fs/cgroup/a/b/cgroup.procs", ""},
                     {"/sys/fs/cgroup/a/cpu.max", "400000 200000\n"}),
               2, "the inner one has no controller");
  cr_assert_eq(QUOTA(VERSION_2, {GROUPS, "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "50000 100000\n"}), 1,
               "a container's own, of half a processor");
  cr_assert_eq(QUOTA(VERSION_1, {GROUPS, "9:name=systemd:/\n4:cpu,cpuacct:/a\n0::/\n"},
                     {"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000\n"},
                     {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"},
                     {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                     {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}),
               2);
  cr_assert_eq(QUOTA(VERSION_1, {GROUPS, "4:cpu,cpuacct:/docker/0123\n"},
                     {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "600000\n"},
                     {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}),
               6, "a path of the host's, seen in a container");
  cr_assert_eq(QUOTA({MOUNTS, "32 31 0:29 /docker/01 /sys/fs/cgroup/cpu ro - cgroup c rw,cpu\n"},
                     {GROUPS, "4:cpu:/docker/01/inner\n"}, {"/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "700000\n"},
                     {"/sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n"}),
               7, "a part of the hierarchy is mounted");
}

Test(own_thread, where_there_is_nothing_to_read_there_is_no_quota) {
  cr_assert_eq(cores_quota("/nowhere"), 0);
  cr_assert_eq(QUOTA({GROUPS, "0::/a\n"}), 0, "no mountinfo");
  cr_assert_eq(QUOTA(VERSION_2, {GROUPS, "rubbish\n\n:\n::\n"}), 0);
  cr_assert_eq(QUOTA({MOUNTS, "rubbish\n - \n1 2 3\n1 2 3 / /x - cgroup2\n"}, {GROUPS, "0::/a\n"}), 0);
  cr_assert_eq(QUOTA(VERSION_2, {GROUPS, "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", "many 0\n"}), 0);
  cr_assert_eq(QUOTA(VERSION_2, {GROUPS, "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", "100000 0\n"}), 0);
}

Test(own_thread, a_runtime_has_as_many_threads_as_cores_or_as_the_quota_lets_run) {
  struct cores cores = {.count = 16};
  cr_assert_eq(cores_threads(&cores), 16);
  cores.quota = 3;
  cr_assert_eq(cores_threads(&cores), 3);
  cores.quota = 64;
  cr_assert_eq(cores_threads(&cores), 16);
  cores = (struct cores){0};
  cr_assert_eq(cores_threads(&cores), 1);
}
