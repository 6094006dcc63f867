/* driver_support.c - see driver_support.h. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <string.h>

#include "driver_support.h"

#include "../../runtime/kernels.h"

/* Rondo's device code, as far as the fake has it. It replaces the library's own table, which is empty without nvcc.
 * Every open loads the first image; a graph that copies loads the second, an exec with repeats the third, and a
 * resident exec the fourth. */
static const char point_image[] = "fake image: rondo_point";
static const char repeat_image[] = "fake image: rondo_repeat_step";
static const char doorbell_image[] = "fake image: rondo_await_bell";
static const char copy_image[] = "fake image: rondo_copy rondo_copy_small rondo_transfer mapped_copy rondo_rope";
const struct device_image device_images[] = {
    {"point.cu", point_image, point_image + sizeof point_image, "rondo_point\0"},
    {"copies.cu", copy_image, copy_image + sizeof copy_image,
     "rondo_copy\0rondo_copy_small\0rondo_transfer\0mapped_copy\0rondo_rope\0"},
    {"repeat.cu", repeat_image, repeat_image + sizeof repeat_image, "rondo_repeat_step\0"},
    {"await_bell.cu", doorbell_image, doorbell_image + sizeof doorbell_image, "rondo_await_bell\0"}};
const uint32_t device_image_count = sizeof device_images / sizeof *device_images;

const struct fake_driver *fake;

const char mix_image[] = "fake image: mixture mix mix_unregistered";
const size_t mix_image_bytes = sizeof mix_image;

static void mix(const uint32_t *a, const uint32_t *b, uint32_t *out, uint32_t count, uint32_t salt) {
  for (uint32_t i = 0; i < count; i++) out[i] = 31 * a[i] + 17 * b[i] + salt;
}

static void mix_kernel(const struct fake_launch *launch) {
  void *const *p = launch->parameters;
  mix(*(uint32_t **)p[0], *(uint32_t **)p[1], *(uint32_t **)p[2], *(uint32_t *)p[3], *(uint32_t *)p[4]);
}

void mix_host(void *user, void *const *data) {
  (void)user;
  uint32_t count, salt;
  memcpy(&count, data[3], sizeof count);
  memcpy(&salt, data[4], sizeof salt);
  mix(data[0], data[1], data[2], count, salt);
}

void driver_setup(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) cr_assert_fail("no libcuda.so.1: run with LD_LIBRARY_PATH set to the fake's folder");
  void *symbol = dlsym(library, "fake_driver");
  if (!symbol) cr_assert_fail("libcuda.so.1 is not the fake: run with LD_LIBRARY_PATH set to the fake's folder");
  fake_driver_function find;
  memcpy(&find, &symbol, sizeof find);
  fake = find();
  fake->reset();
  fake->register_kernel("mix", mix_kernel, MIX_ARGUMENTS, (const size_t[]){8, 8, 8, 4, 4});
}

void require_no_violation(const char *when) {
  char text[1024];
  if (fake->violations(text, sizeof text)) cr_assert_fail("%s: %s", when, text);
}

void require_clean(const char *when) {
  char text[1024];
  require_no_violation(when);
  if (fake->live(text, sizeof text)) cr_assert_fail("%s: left behind: %s", when, text);
  if (fake->context_depth()) cr_assert_fail("%s: %d contexts are still pushed", when, fake->context_depth());
}

void set_mode(enum fake_mode mode) {
  struct fake_settings settings = fake->settings();
  settings.mode = mode;
  fake->configure(&settings);
}

void set_seed(uint64_t seed) {
  struct fake_settings settings = fake->settings();
  settings.seed = seed;
  fake->configure(&settings);
}

rondo_task add_mix(rondo_graph *graph, const char *name, rondo_tensor a, rondo_tensor b, rondo_tensor out,
                   uint32_t count, uint32_t salt) {
  rondo_argument arguments[] = {{.tensor = a, .access = RONDO_READ},
                                {.tensor = b, .access = RONDO_READ},
                                {.tensor = out, .access = RONDO_WRITE},
                                {.value = &count, .bytes = sizeof count},
                                {.value = &salt, .bytes = sizeof salt}};
  REQUIRE_OK(rondo_add_kernel(graph, &(rondo_kernel_desc){.name = name,
                                                          .image = mix_image,
                                                          .image_bytes = sizeof mix_image,
                                                          .function = "mix",
                                                          .arguments = arguments,
                                                          .argument_count = MIX_ARGUMENTS,
                                                          .host = mix_host}));
  rondo_task task;
  REQUIRE_OK(rondo_last_task(graph, &task));
  return task;
}

rondo_task add_copy(rondo_graph *graph, const char *name, rondo_tensor src, rondo_tensor dst) {
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.name = name, .src = src, .dst = dst}));
  rondo_task task;
  REQUIRE_OK(rondo_last_task(graph, &task));
  return task;
}

rondo_tensor add_vector(tensor_kind add, rondo_graph *graph, const char *name, uint32_t count) {
  rondo_tensor tensor;
  REQUIRE_OK(add(graph, name, RONDO_I32, 1, &(int64_t){count}, &tensor));
  return tensor;
}

void add_mixed_state(rondo_graph *graph, rondo_tensor x, rondo_tensor state, rondo_tensor y, uint32_t count) {
  static const char *const names[] = {"a", "b", "c", "d"};
  rondo_tensor parts[4], halves[2];
  for (uint32_t i = 0; i < 4; i++) {
    parts[i] = add_vector(rondo_temporary, graph, names[i], count);
    add_mix(graph, names[i], state, x, parts[i], count, i);
  }
  for (size_t i = 0; i < 2; i++) {
    halves[i] = add_vector(rondo_temporary, graph, NULL, count);
    add_mix(graph, i ? "right" : "left", parts[2 * i], parts[2 * i + 1], halves[i], count, 9);
  }
  add_mix(graph, "join", halves[0], halves[1], state, count, 5);
  add_copy(graph, "out", state, y);
}

rondo_options options_for(rondo_graph *graph, rondo_backend backend, uint32_t slots) {
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  return (rondo_options){.backend = backend,
                         .device_bytes = plan.device_bytes,
                         .pinned_bytes = plan.pinned_bytes_per_slot * slots,
                         .host_bytes = plan.host_bytes,
                         .host_threads = 1};
}

rondo_options options_with_lanes(const rondo_lane *lanes, uint32_t count) {
  return (rondo_options){.backend = RONDO_BACKEND_CUDA,
                         .device_bytes = 1 << 20,
                         .pinned_bytes = 1 << 20,
                         .host_bytes = 4 << 20,
                         .lanes = lanes,
                         .lane_count = count};
}

rondo_runtime *open_lanes(const rondo_lane *lanes, uint32_t count) {
  rondo_options options = options_with_lanes(lanes, count);
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

void close_clean(rondo_runtime *runtime) {
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}
