/* test_spare_memory.c - pools and the machine's memory: a pool that the machine cannot back is refused at once, a pool
 * that nobody uses takes none, and what an exec uses is there before its first replay. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../runtime/spare_memory.h"
#include "../support.h"

/* ---- What the system says ---------------------------------------------------------------------------------------- */

static const uint64_t kibibyte = 1024;
static const char root_pattern[] = "/tmp/rondo-spare-XXXXXX";
static char root[sizeof root_pattern];

static void root_make(void) { cr_assert_not_null(mkdtemp(memcpy(root, root_pattern, sizeof root))); }

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place) {
  (void)about, (void)kind, (void)place;
  return remove(path);
}

static void root_remove(void) { nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

TestSuite(spare_memory, .init = root_make, .fini = root_remove, .timeout = 120);

static void put(const char *file, const char *text) {
  char path[512];
  int length = snprintf(path, sizeof path, "%s%s", root, file);
  cr_assert_lt((size_t)length, sizeof path);
  for (char *at = path + sizeof root; (at = strchr(at, '/')); at++) {
    *at = '\0';
    mkdir(path, 0700);
    *at = '/';
  }
  FILE *out = fopen(path, "w");
  cr_assert_not_null(out, "%s", path);
  fputs(text, out);
  fclose(out);
}

static void require_spare(uint64_t bytes, const char *whose) {
  struct spare_memory spare = spare_memory_under(root, true);
  cr_assert_eq(spare.bytes, bytes, "%ju, expected %ju", (uintmax_t)spare.bytes, (uintmax_t)bytes);
  cr_assert_str_eq(spare.whose, whose);
}

static void put_machine(void) {
  put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    500 kB\nSwapTotal:  9 kB\n"
                       "SwapFree:          4 kB\n");
}

Test(spare_memory, of_a_machine_is_what_is_available_and_the_swap_that_is_free) {
  put_machine();
  require_spare(504 * kibibyte, "the machine");
  cr_assert_eq(spare_memory_under(root, false).bytes, 500 * kibibyte); /* for what is pinned */
}

Test(spare_memory, of_a_control_group_is_its_limit_less_what_it_uses_and_cannot_give_up) {
  put_machine();
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/proc/self/mountinfo", "24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  put("/sys/fs/cgroup/a/b/memory.current", "1000\n");
  require_spare(504 * kibibyte, "the machine");
  put("/sys/fs/cgroup/a/memory.max", "200000\n");
  put("/sys/fs/cgroup/a/memory.current", "150000\n");
  require_spare(50000 + 4 * kibibyte, "the control group"); /* one around the process's own */
  put("/sys/fs/cgroup/a/memory.stat", "anon 1\nfile 90\ninactive_file 300\nactive_file 20\nslab_reclaimable 1\n");
  require_spare(50321 + 4 * kibibyte, "the control group");
  put("/sys/fs/cgroup/a/b/memory.max", "1000\n");
  require_spare(4 * kibibyte, "the control group"); /* full */
  put("/sys/fs/cgroup/a/b/memory.current", "2000\n");
  require_spare(4 * kibibyte, "the control group");
}

/* Of the machine's swap a group has what its own limit of it leaves. */
Test(spare_memory, of_a_control_group_has_no_more_swap_than_the_group) {
  static const struct {
    const char *limit;
    uint64_t bytes;
  } swaps[] = {{"0\n", 0}, {"100\n", 0}, {"1100\n", 1000}, {"1000000\n", 4096}, {"max\n", 4096}};
  put_machine();
  put("/proc/self/cgroup", "0::/a\n");
  put("/proc/self/mountinfo", "24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/a/memory.max", "200000\n");
  put("/sys/fs/cgroup/a/memory.current", "150000\n");
  put("/sys/fs/cgroup/a/memory.swap.current", "100\n");
  for (size_t i = 0; i < sizeof swaps / sizeof *swaps; i++) {
    put("/sys/fs/cgroup/a/memory.swap.max", swaps[i].limit);
    require_spare(50000 + swaps[i].bytes, "the control group");
    cr_assert_eq(spare_memory_under(root, false).bytes, 50000);
  }
}

/* It sees its own folder as the root, by whatever name it is called outside. */
Test(spare_memory, of_a_container_is_that_of_the_folder_it_sees) {
  put_machine();
  put("/proc/self/mountinfo", "24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/memory.max", "3000\n");
  put("/sys/fs/cgroup/memory.current", "1000\n");
  static const char *const groups[] = {"0::/\n", "0::/kubepods/pod7/c\n", "0::/../other\n"};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    put("/proc/self/cgroup", groups[i]);
    require_spare(2000 + 4 * kibibyte, "the control group");
  }
}

Test(spare_memory, of_the_first_version_of_control_groups_counts_too) {
  put_machine();
  put("/proc/self/cgroup", "5:devices:/\n4:cpu,memory:/docker/x\n1:name=systemd:/\n0::/\n");
  put("/proc/self/mountinfo", "30 1 0:9 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
                              "31 1 0:9 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "70000\n");
  require_spare(504 * kibibyte, "the machine");
  put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "100000\n");
  put("/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "70000\n");
  put("/sys/fs/cgroup/memory/docker/x/memory.stat", "inactive_file 5\ntotal_inactive_file 10\ntotal_active_file 7\n");
  require_spare(30017 + 4 * kibibyte, "the control group");
  put("/sys/fs/cgroup/memory/docker/x/memory.memsw.limit_in_bytes", "100000\n"); /* of memory and swap together */
  put("/sys/fs/cgroup/memory/docker/x/memory.memsw.usage_in_bytes", "70100\n");
  require_spare(29917, "the control group");
  put("/sys/fs/cgroup/memory/docker/x/memory.memsw.limit_in_bytes", "101000\n");
  require_spare(30917, "the control group");
  put("/sys/fs/cgroup/memory/docker/x/memory.memsw.limit_in_bytes", "9223372036854771712\n");
  require_spare(30017 + 4 * kibibyte, "the control group");
}

Test(spare_memory, without_proc_is_all_that_the_machine_has) {
  struct spare_memory spare = spare_memory_under(root, true);
  cr_assert_geq(spare.bytes, (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
  cr_assert_str_eq(spare.whose, "the machine");
}

/* ---- Pools ------------------------------------------------------------------------------------------------------- */

Test(spare_memory, refuses_a_pool_that_is_larger_at_once) {
  static const uint64_t sizes[] = {UINT64_C(1) << 44, UINT64_C(1) << 50, UINT64_C(1) << 60};
  for (int pool = 0; pool < 4; pool++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      char asked[64];
      rondo_runtime *runtime = NULL;
      rondo_options options = {.backend = RONDO_BACKEND_HOST, .host_threads = 1};
      *(pool == 0 ? &options.device_bytes : pool == 1 ? &options.pinned_bytes : &options.host_bytes) = sizes[i];
      if (pool == 3) options.device_bytes = options.pinned_bytes = sizes[i] / 2; /* neither is too large by itself */
      snprintf(asked, sizeof asked, "%ju", (uintmax_t)sizes[i]);
      if (pool < 3) REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_OUT_OF_MEMORY, asked);
      REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_OUT_OF_MEMORY, " bytes are needed, but the ");
      REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_OUT_OF_MEMORY, " to spare");
      cr_assert_null(runtime);
      options.backend = RONDO_BACKEND_AUTO;
      cr_assert_eq(rondo_open(&options, &runtime), RONDO_OUT_OF_MEMORY);
    }
}

/* A program's own knows what it has: nothing is written to what it gave before that is used. */
Test(spare_memory, of_a_programs_allocator_is_not_asked_for) {
  const rondo_allocator allocator = {.allocate = promised_memory, .release = release_promised};
  rondo_runtime *runtime = NULL;
  const uint64_t bytes = UINT64_C(1) << 40;
  void *memory = promised_memory(NULL, 3 * bytes, 1);
  if (!memory) cr_skip_test("the system promises no more than it has");
  release_promised(NULL, memory, 3 * bytes);
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                         .host_threads = 1,
                                         .device_bytes = bytes,
                                         .pinned_bytes = bytes,
                                         .host_bytes = bytes,
                                         .allocator = &allocator},
                        &runtime));
  REQUIRE_OK(rondo_close(&runtime));
}

static uint64_t resident_bytes(void) {
  FILE *file = fopen("/proc/self/statm", "r");
  unsigned long pages = 0, resident = 0;
  int found = file ? fscanf(file, "%lu %lu", &pages, &resident) : 0; /* NOLINT(cert-err34-c): the kernel's */
  if (file) fclose(file);
  if (found != 2) cr_skip_test("no /proc");
  return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

enum { MEBIBYTES = 1 << 20 };

Test(spare_memory, is_not_taken_by_pools_that_nobody_uses) {
  rondo_runtime *runtime = NULL;
  const uint64_t pool_bytes = 512 * (uint64_t)MEBIBYTES, before = resident_bytes();
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                         .host_threads = 1,
                                         .device_bytes = pool_bytes,
                                         .pinned_bytes = pool_bytes,
                                         .host_bytes = pool_bytes},
                        &runtime));
  cr_assert_lt(resident_bytes(), before + 64 * (uint64_t)MEBIBYTES);
  REQUIRE_OK(rondo_close(&runtime));
}

/* In the constants, the device's copies of an input and an output, both slots' pinned memory, and the arena. */
Test(spare_memory, of_an_exec_is_there_before_its_first_replay) {
  enum { ROWS = 16, COLUMNS = MEBIBYTES / 4, PAGES = ROWS * MEBIBYTES / 4096 };
  rondo_runtime *runtime = NULL;
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  rondo_tensor in, out, between, kept;
  rondo_plan plan;
  struct rusage before, after;
  skip_under_valgrind("page faults are valgrind's own");
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_I32, 2, (int64_t[]){ROWS, COLUMNS}, &in));
  REQUIRE_OK(rondo_temporary(graph, "between", RONDO_I32, 2, (int64_t[]){ROWS, COLUMNS}, &between));
  REQUIRE_OK(rondo_state(graph, "kept", RONDO_I32, 2, (int64_t[]){ROWS, COLUMNS}, &kept));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_I32, 2, (int64_t[]){ROWS, COLUMNS}, &out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = in, .dst = between}));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = between, .dst = kept}));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = between, .dst = out}));
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                         .host_threads = 1,
                                         .device_bytes = 2 * plan.device_bytes,
                                         .pinned_bytes = 3 * plan.pinned_bytes_per_slot,
                                         .host_bytes = 2 * plan.host_bytes},
                        &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = 2, .without_warm_up = 1}, &exec));
  getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(rondo_acquire(exec, &slot));
    memset(rondo_data(slot, in), 1, (size_t)ROWS * COLUMNS * sizeof(int32_t));
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    REQUIRE_OK(rondo_release(slot));
  }
  getrusage(RUSAGE_SELF, &after);
  /* Where nothing was there beforehand it is twice PAGES; the address sanitizer's own memory is a fourth of it. */
  cr_assert_lt(after.ru_minflt - before.ru_minflt, PAGES / 2, "%ld page faults", after.ru_minflt - before.ru_minflt);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}

/* Of what is there already no more is asked for; of what is not, the machine is. */
Test(spare_memory, settles_pages_and_leaves_their_content) {
  const uint64_t bytes = 64 * (uint64_t)MEBIBYTES, promised = UINT64_C(1) << 45, stride = UINT64_C(3) * 4096 + 1;
  unsigned char *memory = promised_memory(NULL, bytes, 1);
  cr_assert_not_null(memory);
  for (uint64_t i = 0; i < bytes; i += stride) memory[i] = 7;
  uint64_t before = resident_bytes();
  REQUIRE_OK(spare_memory_settle(memory + 100, bytes - 200, true, "a test"));
  cr_assert_gt(resident_bytes(), before + bytes / 4);
  uint64_t sevens = 0, others = 0;
  for (uint64_t i = 0; i < bytes; i++) {
    sevens += memory[i] == 7 && i % stride == 0;
    others += memory[i] != 0;
  }
  cr_assert_eq(sevens, (bytes + stride - 1) / stride);
  cr_assert_eq(others, sevens);
  release_promised(NULL, memory, bytes);
  memory = promised_memory(NULL, promised, 1);
  if (!memory) cr_skip_test("the system promises no more than it has");
  REQUIRE_ERROR(spare_memory_settle(memory, promised, true, "a test"), RONDO_OUT_OF_MEMORY,
                " bytes are needed, but the ");
  release_promised(NULL, memory, promised);
}
