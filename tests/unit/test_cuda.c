/* test_cuda.c - the CUDA backend on a real GPU: slots in flight, the user's kernels, captured library calls, and the
 * errors that only a driver tells. Skipped where there is no GPU. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <string.h>

#include "../support.h"

/* y[i] = 2 x[i] + c, as PTX text. */
static const char scale_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                ".visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 c)\n{\n"
                                ".reg .b64 %rd<6>;\n.reg .b32 %r<5>;\n.reg .f32 %f<5>;\n"
                                "ld.param.u64 %rd1, [x];\nld.param.u64 %rd2, [y];\nld.param.f32 %f1, [c];\n"
                                "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
                                "mad.lo.s32 %r4, %r1, %r2, %r3;\nmul.wide.u32 %rd3, %r4, 4;\n"
                                "add.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n"
                                "ld.global.f32 %f2, [%rd4];\nfma.rn.f32 %f3, %f2, 0f40000000, %f1;\n"
                                "st.global.f32 [%rd5], %f3;\nret;\n}\n";

enum { COUNT = 4096 };
static const int64_t shape[] = {COUNT};

struct scaling {
  rondo_graph *graph;
  rondo_tensor x, y;
};

static struct scaling scaling_describe(void) {
  struct scaling s = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s.graph));
  REQUIRE_OK(rondo_input(s.graph, "x", RONDO_F32, 1, shape, &s.x));
  REQUIRE_OK(rondo_output(s.graph, "y", RONDO_F32, 1, shape, &s.y));
  return s;
}

static rondo_status scaling_add(struct scaling *s, const rondo_kernel_desc *changes, uint32_t argument_count) {
  float c = 0.5f;
  rondo_argument arguments[] = {{.tensor = s->x, .access = RONDO_READ},
                                {.tensor = s->y, .access = RONDO_WRITE},
                                {.value = &c, .bytes = sizeof c},
                                {.value = &c, .bytes = sizeof c}};
  rondo_kernel_desc desc = *changes;
  if (!desc.name) desc.name = "scale";
  if (!desc.image) desc.image = scale_ptx, desc.image_bytes = sizeof scale_ptx;
  if (!desc.function) desc.function = "scale";
  desc.grid[0] = COUNT / 256;
  desc.block[0] = desc.block[0] ? desc.block[0] : 256;
  desc.arguments = arguments;
  desc.argument_count = argument_count;
  return rondo_add_kernel(s->graph, &desc);
}

static rondo_runtime *open_cuda(void) {
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = RONDO_BACKEND_CUDA, .device_bytes = 16 << 20, .pinned_bytes = 16 << 20};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

Test(cuda, says_what_it_runs_on) {
  require_backend(RONDO_BACKEND_CUDA);
  rondo_runtime *runtime = NULL;
  rondo_info info;
  REQUIRE_OK(rondo_open(&(rondo_options){.device_bytes = 1000, .pinned_bytes = 1000}, &runtime));
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_eq(info.backend, RONDO_BACKEND_CUDA, "AUTO takes a usable GPU");
  cr_assert_geq(info.chip, 80);
  cr_assert_geq(info.driver_version, 13000);
  cr_assert_gt(info.multiprocessors, 0);
  cr_assert(strstr(info.reason, "cuda") && info.device_name[0], "%s, %s", info.reason, info.device_name);
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_ERROR(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_CUDA, .device = 1000}, &runtime), RONDO_NO_DEVICE,
                "device 1000 does not exist");
  REQUIRE_ERROR(
      rondo_open(&(rondo_options){.backend = RONDO_BACKEND_CUDA, .device_bytes = UINT64_C(1) << 50}, &runtime),
      RONDO_OUT_OF_MEMORY, "are free");
}

Test(cuda, slots_in_flight_keep_their_own_inputs_and_outputs) {
  require_backend(RONDO_BACKEND_CUDA);
  enum { SLOTS = 4, REPLAYS = 1000 };
  struct scaling s = scaling_describe();
  REQUIRE_OK(scaling_add(&s, &(rondo_kernel_desc){0}, 3));
  rondo_runtime *runtime = open_cuda();
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, s.graph, &(rondo_exec_options){.slots = SLOTS}, &exec));
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  rondo_slot slots[SLOTS];
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_acquire(exec, &slots[i]));
  for (int replay = 0; replay < REPLAYS + SLOTS; replay++) {
    rondo_slot slot = slots[replay % SLOTS];
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    float *x = rondo_data(slot, s.x);
    const float *y = rondo_data(slot, s.y);
    for (int i = 0; i < COUNT && replay >= SLOTS; i++)
      cr_assert_eq(y[i], 2.0f * (float)(replay - SLOTS + i) + 0.5f, "replay %d element %d", replay - SLOTS, i);
    if (replay >= REPLAYS) continue;
    for (int i = 0; i < COUNT; i++) x[i] = (float)(replay + i);
    REQUIRE_OK(rondo_replay(slot));
  }
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_release(slots[i]));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
}

Test(cuda, a_bad_user_kernel_is_refused_and_the_runtime_stays_usable) {
  require_backend(RONDO_BACKEND_CUDA);
  static const char not_ended[] = {'.', 'v', 'e', 'r', 's', 'i', 'o', 'n'};
  const struct {
    rondo_kernel_desc desc;
    uint32_t argument_count;
    rondo_status status;
    const char *text;
  } bad[] = {
      {{.function = "no_such"}, 3, RONDO_INVALID_ARGUMENT, "task 'scale': the image has no kernel 'no_such'"},
      {{0}, 2, RONDO_INVALID_ARGUMENT, "has more than 2 parameters"},
      {{0}, 4, RONDO_INVALID_ARGUMENT, "has 3 parameters, expected 4"},
      {{.image = "garbage", .image_bytes = 8}, 3, RONDO_DEVICE_ERROR, "task 'scale': cuLibrary"},
      {{.image = not_ended, .image_bytes = sizeof not_ended}, 3, RONDO_INVALID_ARGUMENT, "must end with a NUL"},
      {{.shared_bytes = 1 << 22}, 3, RONDO_DEVICE_ERROR, "task 'scale'"},
  };
  rondo_runtime *runtime = open_cuda();
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct scaling s = scaling_describe();
    rondo_exec *exec = NULL;
    REQUIRE_OK(scaling_add(&s, &bad[i].desc, bad[i].argument_count));
    REQUIRE_ERROR(rondo_instantiate(runtime, s.graph, NULL, &exec), bad[i].status, bad[i].text);
    REQUIRE_OK(rondo_graph_destroy(&s.graph));
  }
  rondo_info info;
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_eq(info.device.used_bytes + info.pinned.used_bytes + info.host.used_bytes, 0);
  struct scaling s = scaling_describe();
  rondo_exec *exec = NULL;
  REQUIRE_OK(scaling_add(&s, &(rondo_kernel_desc){0}, 3));
  REQUIRE_OK(rondo_instantiate(runtime, s.graph, NULL, &exec));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_close(&runtime));
}

/* ---- Capture: the driver's own asynchronous work stands for a library's. ----------------------------------------- */

enum behaviour { FILLS, COPIES_TWICE, DOES_NOTHING, REFUSES, ALLOCATES, CALLS_BACK };

struct third_party {
  enum behaviour behaviour;
  int (*fill)(uint64_t, unsigned char, size_t, void *);
  int (*copy)(uint64_t, uint64_t, size_t, void *);
  int (*allocate)(uint64_t *, size_t, void *);
  int (*call_back)(void *, void (*)(void *), void *);
};

static void never_called(void *user) { (void)user; }

static int enqueue(void *user, void *stream, void *const *data) {
  const struct third_party *work = user;
  uint64_t address = 0;
  switch (work->behaviour) {
  case FILLS:
    return work->fill((uint64_t)(uintptr_t)data[1], 0x41, COUNT * sizeof(float), stream);
  case COPIES_TWICE: {
    size_t half = COUNT / 2 * sizeof(float);
    uint64_t x = (uint64_t)(uintptr_t)data[0], y = (uint64_t)(uintptr_t)data[1];
    int result = work->copy(y, x + half, half, stream);
    return result ? result : work->copy(y + half, x, half, stream);
  }
  case DOES_NOTHING:
    return 0;
  case REFUSES:
    return 17;
  case ALLOCATES:
    return work->allocate(&address, 1024, stream);
  case CALLS_BACK:
    return work->call_back(stream, never_called, NULL);
  }
  return 1;
}

static void *driver_symbol(void *library, const char *name) {
  void *symbol = dlsym(library, name);
  cr_assert_not_null(symbol, "%s", name);
  return symbol;
}

static struct third_party third_party_load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  cr_assert_not_null(library);
  struct third_party work = {0};
  *(void **)&work.fill = driver_symbol(library, "cuMemsetD8Async");
  *(void **)&work.copy = driver_symbol(library, "cuMemcpyDtoDAsync_v2");
  *(void **)&work.allocate = driver_symbol(library, "cuMemAllocAsync");
  *(void **)&work.call_back = driver_symbol(library, "cuLaunchHostFunc");
  return work;
}

static rondo_status capture_add(struct scaling *s, struct third_party *work) {
  rondo_argument arguments[] = {{.tensor = s->x, .access = RONDO_READ}, {.tensor = s->y, .access = RONDO_WRITE}};
  return rondo_add_capture(
      s->graph, &(rondo_capture_desc){.name = "library", .arguments = arguments, .argument_count = 2, .user = work},
      enqueue);
}

Test(cuda, captured_work_is_replayed_between_the_tasks_around_it) {
  require_backend(RONDO_BACKEND_CUDA);
  struct third_party work = third_party_load();
  work.behaviour = COPIES_TWICE;
  struct trial trial;
  rondo_tensor x, swapped, y;
  trial_describe(&trial, RONDO_BACKEND_CUDA);
  REQUIRE_OK(rondo_input(trial.graph, "x", RONDO_F32, 1, shape, &x));
  REQUIRE_OK(rondo_temporary(trial.graph, "swapped", RONDO_F32, 1, shape, &swapped));
  REQUIRE_OK(rondo_output(trial.graph, "y", RONDO_F32, 1, shape, &y));
  REQUIRE_OK(capture_add(&(struct scaling){trial.graph, x, swapped}, &work));
  REQUIRE_OK(scaling_add(&(struct scaling){trial.graph, swapped, y}, &(rondo_kernel_desc){0}, 3));
  trial_instantiate(&trial);
  for (int replay = 0; replay < 5; replay++) {
    float values[COUNT];
    for (int i = 0; i < COUNT; i++) values[i] = (float)(i * 7 + replay);
    trial_set(&trial, x, values);
    trial_replay(&trial);
    const float *got = trial_output(&trial, y);
    for (int i = 0; i < COUNT; i++) cr_assert_eq(got[i], 2.0f * values[(i + COUNT / 2) % COUNT] + 0.5f);
  }
  trial_end(&trial);
}

Test(cuda, captured_work_that_a_replay_may_not_do_is_refused_by_name) {
  require_backend(RONDO_BACKEND_CUDA);
  const struct {
    enum behaviour behaviour;
    rondo_status status;
    const char *text;
  } cases[] = {
      {REFUSES, RONDO_DEVICE_ERROR, "task 'library': the callback returned 17"},
      {ALLOCATES, RONDO_UNSUPPORTED, "task 'library': the callback enqueued a memory allocation"},
      {CALLS_BACK, RONDO_UNSUPPORTED, "task 'library': the callback enqueued a host callback"},
      {DOES_NOTHING, RONDO_OK, ""},
      {FILLS, RONDO_OK, ""},
  };
  struct third_party work = third_party_load();
  rondo_runtime *runtime = open_cuda();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct scaling s = scaling_describe();
    rondo_exec *exec = NULL;
    work.behaviour = cases[i].behaviour;
    REQUIRE_OK(capture_add(&s, &work));
    rondo_status status = rondo_instantiate(runtime, s.graph, NULL, &exec);
    if (cases[i].status)
      REQUIRE_ERROR(status, cases[i].status, cases[i].text);
    else
      REQUIRE_OK(status);
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_graph_destroy(&s.graph));
  }
  REQUIRE_OK(rondo_close(&runtime));
}

Test(cuda, a_kernel_that_faults_loses_the_device_with_its_cause) {
  require_backend(RONDO_BACKEND_CUDA);
  struct scaling s = scaling_describe();
  int64_t small[] = {1};
  uint64_t wild = UINT64_C(0x7fff00000000);
  rondo_tensor flag;
  REQUIRE_OK(rondo_input(s.graph, "flag", RONDO_F32, 1, small, &flag));
  float c = 0;
  rondo_argument arguments[] = {
      {.value = &wild, .bytes = sizeof wild}, {.tensor = s.y, .access = RONDO_WRITE}, {.value = &c, .bytes = sizeof c}};
  REQUIRE_OK(rondo_add_kernel(s.graph, &(rondo_kernel_desc){.name = "wild",
                                                            .image = scale_ptx,
                                                            .image_bytes = sizeof scale_ptx,
                                                            .function = "scale",
                                                            .arguments = arguments,
                                                            .argument_count = 3}));
  rondo_runtime *runtime = open_cuda();
  rondo_exec *exec = NULL;
  REQUIRE_ERROR(rondo_instantiate(runtime, s.graph, NULL, &exec), RONDO_DEVICE_LOST, "CUDA_ERROR");
  struct scaling good = scaling_describe();
  REQUIRE_OK(scaling_add(&good, &(rondo_kernel_desc){0}, 3));
  REQUIRE_ERROR(rondo_instantiate(runtime, good.graph, NULL, &exec), RONDO_DEVICE_LOST, "lost before");
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_graph_destroy(&good.graph));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_ERROR(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_CUDA}, &runtime), RONDO_NO_DEVICE,
                "only a new process can use the device");
}

/* ---- Lanes ------------------------------------------------------------------------------------------------------- */

/* y[i] = the multiprocessor of block i. */
static const char where_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry where(.param .u64 y)\n{\n"
    ".reg .b64 %rd<4>;\n.reg .b32 %r<3>;\nld.param.u64 %rd1, [y];\n"
    "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %smid;\nmul.wide.u32 %rd2, %r1, 4;\n"
    "add.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r2;\nret;\n}\n";
enum { BLOCKS = 2048, MULTIPROCESSORS_MOST = 1024 };

static rondo_runtime *open_lanes(const rondo_lane *lanes, uint32_t count) {
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = RONDO_BACKEND_CUDA,
                           .device_bytes = 16 << 20,
                           .pinned_bytes = 16 << 20,
                           .lanes = lanes,
                           .lane_count = count};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

/* Which multiprocessors a lane's blocks ran on, in its own stream or in another. */
static void find_where(rondo_runtime *runtime, uint32_t lane, void *const *stream, bool *used) {
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  rondo_tensor y;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_output(graph, "y", RONDO_I32, 1, &(int64_t){BLOCKS}, &y));
  rondo_argument argument = {.tensor = y, .access = RONDO_WRITE};
  REQUIRE_OK(rondo_add_kernel(graph, &(rondo_kernel_desc){.name = "where",
                                                          .image = where_ptx,
                                                          .image_bytes = sizeof where_ptx,
                                                          .function = "where",
                                                          .grid = {BLOCKS},
                                                          .arguments = &argument,
                                                          .argument_count = 1}));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.lane = lane}, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(stream ? rondo_replay_on(slot, *stream) : rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  const int32_t *where = rondo_data(slot, y);
  for (int i = 0; i < BLOCKS; i++) {
    cr_assert(where[i] >= 0 && where[i] < MULTIPROCESSORS_MOST);
    used[where[i]] = true;
  }
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(cuda, lanes_share_no_multiprocessor) {
  require_backend(RONDO_BACKEND_CUDA);
  rondo_runtime *runtime = open_lanes((const rondo_lane[]){{.multiprocessors = 8}, {.multiprocessors = 9}, {0}}, 3);
  rondo_lane_grant grants[3];
  bool used[3][MULTIPROCESSORS_MOST] = {0};
  for (uint32_t lane = 0; lane < 3; lane++) {
    REQUIRE_OK(rondo_lane_info(runtime, lane, &grants[lane]));
    find_where(runtime, lane, NULL, used[lane]);
  }
  cr_assert_geq(grants[0].multiprocessors, 8);
  cr_assert_geq(grants[1].multiprocessors, 9);
  find_where(runtime, 0, &grants[2].stream, used[0]); /* in another lane's stream it still runs on its own */
  int32_t counts[3] = {0};
  for (int i = 0; i < MULTIPROCESSORS_MOST; i++) {
    cr_assert_leq(used[0][i] + used[1][i] + used[2][i], 1, "multiprocessor %d", i);
    for (int lane = 0; lane < 3; lane++) counts[lane] += used[lane][i];
  }
  for (int lane = 0; lane < 3; lane++)
    cr_assert(counts[lane] > 0 && counts[lane] <= grants[lane].multiprocessors, "lane %d: %d of %d", lane, counts[lane],
              grants[lane].multiprocessors);
  REQUIRE_OK(rondo_close(&runtime));
}

/* A chain of replays, half of them in a stream of another context than the lane's, each of which adds to what the one
 * before it left. */
Test(cuda, replays_in_the_callers_stream_keep_the_lanes_order) {
  require_backend(RONDO_BACKEND_CUDA);
  rondo_runtime *runtime = open_lanes((const rondo_lane[]){{.multiprocessors = 8}, {0}}, 2);
  rondo_lane_grant other;
  REQUIRE_OK(rondo_lane_info(runtime, 1, &other));
  struct scaling s = scaling_describe();
  rondo_tensor sum;
  REQUIRE_OK(rondo_state(s.graph, "sum", RONDO_F32, 1, shape, &sum));
  s.x = sum;                                               /* the input is left out */
  REQUIRE_OK(scaling_add(&s, &(rondo_kernel_desc){0}, 3)); /* y = 2 sum + 0.5 */
  REQUIRE_OK(rondo_add_copy(s.graph, &(rondo_copy_desc){.src = s.y, .dst = sum}));
  rondo_exec *exec = NULL;
  rondo_slot slots[2];
  REQUIRE_OK(rondo_instantiate(runtime, s.graph, &(rondo_exec_options){.slots = 2}, &exec));
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_acquire(exec, &slots[i]));
  float expected = 0;
  for (int round = 0; round < 50; round++) {
    for (int i = 0; i < 20; i++) {
      REQUIRE_OK(rondo_wait(slots[i % 2], RONDO_FOREVER));
      REQUIRE_OK(i % 2 ? rondo_replay_on(slots[1], other.stream) : rondo_replay(slots[0]));
      expected = 2 * expected + 0.5f;
    }
    float got[COUNT];
    REQUIRE_OK(rondo_wait(slots[0], RONDO_FOREVER));
    REQUIRE_OK(rondo_wait(slots[1], RONDO_FOREVER));
    REQUIRE_OK(rondo_download(exec, sum, got, sizeof got));
    for (int i = 0; i < COUNT; i++)
      cr_assert_eq(got[i], expected, "round %d, %d: %g, not %g", round, i, got[i], expected);
    memset(got, 0, sizeof got);
    REQUIRE_OK(rondo_upload(exec, sum, got, sizeof got));
    expected = 0;
  }
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_release(slots[i]));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_close(&runtime));
}
