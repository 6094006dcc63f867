/* test_hang.c - a device that never finishes, on the fake driver: waits end at their time limit in every wait mode, and
 * a close within a time gives the device up. Faults that would show: a wait that never returns, memory given back while
 * the device may still write there, an exec that is held up by another. */
#include <stdio.h>
#include <stdlib.h>

#include "../../runtime/cuda/cuda_device.h"
#include "driver_program.h"

TestSuite(hang, .init = driver_setup, .timeout = 300);

static void hang(rondo_wait_mode wait_mode) {
  enum { TIMEOUT_NS = 20 * 1000 * 1000 };
  struct program program = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &program.graph));
  program_describe(&program);
  rondo_options options = options_for(program.graph, RONDO_BACKEND_CUDA, SLOTS);
  options.wait_mode = wait_mode;
  REQUIRE_OK(rondo_open(&options, &program.runtime));
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, &(rondo_exec_options){.slots = SLOTS}, &program.exec));
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_acquire(program.exec, &program.slots[s]));
  set_mode(FAKE_NEVER);
  REQUIRE_OK(rondo_replay(program.slots[0]));
  REQUIRE_ERROR(rondo_wait(program.slots[0], TIMEOUT_NS), RONDO_TIMEOUT, "rondo_wait: slot 0 is still in flight after");
  REQUIRE_ERROR(rondo_wait(program.slots[0], 0), RONDO_TIMEOUT, "rondo_wait");
  cr_assert_eq(rondo_poll(program.slots[0]), RONDO_BUSY);
  REQUIRE_ERROR(rondo_replay(program.slots[0]), RONDO_BUSY, "slot 0 is in flight");
  REQUIRE_ERROR(rondo_release(program.slots[0]), RONDO_BUSY, "slot 0 is in flight");
  REQUIRE_OK(rondo_replay(program.slots[1])); /* queued after */
  set_mode(FAKE_THREAD);
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_wait(program.slots[s], RONDO_FOREVER));
  const uint32_t *first = rondo_data(program.slots[0], program.y), *second = rondo_data(program.slots[1], program.y);
  cr_assert_eq(first[0], 17 * 1000 + 1);
  cr_assert_eq(second[0], 31 * first[0] + 17 * 1000 + 1);
  program_end(&program);
  require_clean("after close");
}

Test(hang, a_hang_times_out_and_may_still_complete) { hang(RONDO_WAIT_SPIN_YIELD); }
Test(hang, a_hang_times_out_when_spinning) { hang(RONDO_WAIT_SPIN); }
Test(hang, a_hang_times_out_when_blocking) { hang(RONDO_WAIT_BLOCK); }

/* A service that must leave. */
Test(hang, a_close_within_a_time_gives_a_hanging_device_up) {
  struct program program;
  rondo_exec *idle = NULL;
  rondo_info info;
  program = (struct program){0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &program.graph));
  program_describe(&program);
  rondo_options options = options_for(program.graph, RONDO_BACKEND_CUDA, SLOTS);
  options.device_bytes *= 3, options.pinned_bytes *= 3, options.host_bytes *= 3;
  REQUIRE_OK(rondo_open(&options, &program.runtime));
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, NULL, &program.exec));
  REQUIRE_OK(rondo_close_exec_within(&program.exec, 0)); /* nothing hangs */
  REQUIRE_OK(rondo_runtime_info(program.runtime, &info));
  cr_assert_eq(info.host.used_bytes + info.pinned.used_bytes + info.device.used_bytes, 0);
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, NULL, &idle));
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, &(rondo_exec_options){.slots = SLOTS}, &program.exec));
  REQUIRE_OK(rondo_runtime_info(program.runtime, &info));
  uint64_t used_bytes = info.pinned.used_bytes;
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_acquire(program.exec, &program.slots[s]));
  set_mode(FAKE_NEVER);
  REQUIRE_OK(rondo_replay(program.slots[1]));
  REQUIRE_ERROR(rondo_close_exec_within(&program.exec, 3000000), RONDO_DEVICE_LOST,
                "rondo_close_exec_within: slot 1 was not done after 3000000 ns");
  cr_assert_null(program.exec);
  REQUIRE_OK(rondo_runtime_info(program.runtime, &info));
  cr_assert_eq(info.pinned.used_bytes, used_bytes, "the device may still write there");
  uint64_t calls = fake->calls(NULL);
  REQUIRE_ERROR(rondo_instantiate(program.runtime, program.graph, NULL, &program.exec), RONDO_DEVICE_LOST,
                "slot 1 was not done after 3000000 ns");
  REQUIRE_OK(rondo_close_exec(&idle));
  program_end(&program);
  cr_assert_eq(fake->calls(NULL), calls, "the driver was called after the device was given up");
  require_no_violation("after close");
}

/* An exec that is done is closed at once, whatever another one of its lane holds up. To unload its kernel the driver
 * would wait for the other one, so this is left to the next exec. */
Test(hang, an_exec_that_is_done_is_closed_beside_one_that_hangs, .timeout = 20) {
  struct program program = {0};
  rondo_exec *done = NULL;
  rondo_slot slot;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &program.graph));
  rondo_tensor x = add_vector(rondo_input, program.graph, "x", COUNT);
  add_mix(program.graph, "mix", x, x, add_vector(rondo_output, program.graph, "y", COUNT), COUNT, 0);
  rondo_options options = options_for(program.graph, RONDO_BACKEND_CUDA, 2);
  options.device_bytes *= 2, options.host_bytes *= 2;
  REQUIRE_OK(rondo_open(&options, &program.runtime));
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, NULL, &done));
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, NULL, &program.exec));
  REQUIRE_OK(rondo_acquire(program.exec, &slot));
  set_mode(FAKE_NEVER);
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_close_exec_within(&done, 3000000));
  cr_assert_eq(rondo_poll(slot), RONDO_BUSY, "the device is not lost");
  require_no_violation("after an exec was closed beside one that hangs");
  set_mode(FAKE_THREAD);
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  set_mode(FAKE_IMMEDIATE);
  const uint64_t unloaded = fake->calls("cuLibraryUnload");
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, NULL, &done));
  cr_assert_eq(fake->calls("cuLibraryUnload"), unloaded + 1, "nothing was unloaded before the next kernel was loaded");
  REQUIRE_OK(rondo_close_exec(&done));
  program_end(&program);
  require_clean("after close");
}

/* One copy of the kernel to y. */
static void open_mix(struct program *program) {
  *program = (struct program){0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &program->graph));
  rondo_tensor x = add_vector(rondo_input, program->graph, "x", COUNT);
  add_mix(program->graph, "mix", x, x, add_vector(rondo_output, program->graph, "y", COUNT), COUNT, 0);
  rondo_options options = options_for(program->graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &program->runtime));
  REQUIRE_OK(rondo_instantiate(program->runtime, program->graph, NULL, &program->exec));
}

/* All runtimes of a GPU share its context, and an unload would wait for the kernels of all. */
Test(hang, an_exec_is_closed_beside_one_of_another_runtime_that_hangs, .timeout = 20) {
  struct program hanging, done;
  rondo_slot slot;
  open_mix(&hanging);
  open_mix(&done);
  REQUIRE_OK(rondo_acquire(hanging.exec, &slot));
  set_mode(FAKE_NEVER);
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_close_exec_within(&done.exec, 3000000));
  require_no_violation("after an exec was closed beside a runtime that hangs");
  set_mode(FAKE_THREAD);
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  set_mode(FAKE_IMMEDIATE);
  program_end(&done);
  program_end(&hanging);
  require_clean("after close");
}

/* More than can wait to be unloaded. */
enum { KERNELS = LEFT_LIBRARIES + 44 };

/* A graph of so many images, each with the kernel "mix". The last task asks for the kernel `last`. */
static rondo_graph *graph_of_many_images(const char *last) {
  static char images[KERNELS][32];
  rondo_graph *graph = NULL;
  uint32_t count = COUNT, salt = 0;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tasks = KERNELS}, &graph));
  rondo_tensor x = add_vector(rondo_input, graph, "x", COUNT), y = add_vector(rondo_output, graph, "y", COUNT);
  rondo_argument arguments[] = {{.tensor = x, .access = RONDO_READ},
                                {.tensor = x, .access = RONDO_READ},
                                {.tensor = y, .access = RONDO_WRITE},
                                {.value = &count, .bytes = sizeof count},
                                {.value = &salt, .bytes = sizeof salt}};
  for (int i = 0; i < KERNELS; i++) {
    snprintf(images[i], sizeof images[i], "fake image: mix");
    REQUIRE_OK(rondo_add_kernel(graph, &(rondo_kernel_desc){.image = images[i],
                                                            .image_bytes = sizeof images[i],
                                                            .function = i == KERNELS - 1 ? last : "mix",
                                                            .arguments = arguments,
                                                            .argument_count = MIX_ARGUMENTS}));
  }
  return graph;
}

Test(hang, all_kernels_of_an_idle_exec_are_unloaded_in_the_end) {
  struct program program = {.graph = graph_of_many_images("mix")};
  rondo_options options = options_for(program.graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &program.runtime));
  const uint64_t loaded = fake->calls("cuLibraryLoadData");
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, NULL, &program.exec));
  cr_assert_geq(fake->calls("cuLibraryLoadData"), loaded + KERNELS);
  REQUIRE_OK(rondo_close_exec(&program.exec));
  program_end(&program);
  require_clean("after close");
}

/* Beside another lane's exec in flight, for which an instantiation may wait. */
Test(hang, no_kernel_of_a_failed_instantiation_is_kept) {
  struct program program = {.graph = graph_of_many_images("mix")};
  rondo_graph *failing = graph_of_many_images("absent");
  rondo_exec *exec = NULL;
  rondo_slot slot;
  rondo_options options = options_for(program.graph, RONDO_BACKEND_CUDA, 1);
  options.device_bytes *= 2, options.pinned_bytes *= 2, options.host_bytes *= 2;
  options.lanes = (const rondo_lane[]){{0}, {0}}, options.lane_count = 2;
  REQUIRE_OK(rondo_open(&options, &program.runtime));
  REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, NULL, &program.exec));
  REQUIRE_OK(rondo_acquire(program.exec, &slot));
  struct fake_settings settings = fake->settings();
  settings.mode = FAKE_DEFERRED, settings.unload_waits = true;
  fake->configure(&settings);
  REQUIRE_OK(rondo_replay(slot));
  const uint64_t unloaded = fake->calls("cuLibraryUnload");
  REQUIRE_ERROR(rondo_instantiate(program.runtime, failing, &(rondo_exec_options){.lane = 1}, &exec),
                RONDO_INVALID_ARGUMENT, "has no kernel");
  cr_assert_eq(fake->calls("cuLibraryUnload"), unloaded + KERNELS);
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_graph_destroy(&failing));
  program_end(&program);
  require_clean("after close");
}

/* The limit is that of all slots together. */
Test(hang, a_close_within_a_time_waits_for_what_ends_in_time) {
  struct program program;
  program_begin(&program);
  set_mode(FAKE_THREAD);
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_replay(program.slots[s]));
  REQUIRE_OK(rondo_close_exec_within(&program.exec, UINT64_C(20) * 1000 * 1000 * 1000));
  cr_assert_null(program.exec);
  program_end(&program);
  require_clean("after close");
}

/* What a runtime keeps in host memory is not given back where somebody may still look at it. */
static size_t live_bytes;
static void *count_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  live_bytes += bytes;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void count_release(void *user, void *memory, size_t bytes) {
  (void)user;
  live_bytes -= bytes;
  free(memory);
}

Test(hang, the_host_pool_of_a_lost_device_is_leaked_and_nothing_else_of_the_allocators) {
  for (int lost = 0; lost < 2; lost++) {
    driver_setup();
    struct program program = {0};
    rondo_allocator allocator = {.allocate = count_allocate, .release = count_release};
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &program.graph));
    program_describe(&program);
    rondo_options options = options_for(program.graph, RONDO_BACKEND_CUDA, SLOTS);
    options.allocator = &allocator;
    REQUIRE_OK(rondo_open(&options, &program.runtime));
    REQUIRE_OK(rondo_instantiate(program.runtime, program.graph, NULL, &program.exec));
    REQUIRE_OK(rondo_acquire(program.exec, &program.slots[0]));
    if (lost) set_mode(FAKE_NEVER);
    REQUIRE_OK(rondo_replay(program.slots[0]));
    cr_assert_eq(rondo_close_exec_within(&program.exec, lost ? 0 : RONDO_FOREVER), lost ? RONDO_DEVICE_LOST : RONDO_OK);
    program_end(&program);
    cr_assert_eq(live_bytes, lost ? (options.host_bytes + 255) / 256 * 256 : 0);
  }
}
