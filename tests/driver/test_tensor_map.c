/* test_tensor_map.c - tensor maps on the fake driver: the map of a launch has the launch's address; a map that cannot
 * be made is an error that names its task and leaves nothing behind.
 *
 * The operation of these tests reads its operand through a map only, so that a wrong map shows as a wrong result. */
#include <stdio.h>
#include <string.h>

#include "../../kernels/common/launch.h"
#include "../../kernels/common/tensor_map.h"
#include "../../runtime/completion.h"
#include "../../runtime/cuda/driver.h"
#include "../../runtime/kernels.h"
#include "driver_support.h"

enum { ROWS = 5, COLUMNS = 32, COUNT = ROWS * COLUMNS, BYTES = COUNT * sizeof(float), SLOTS = 3 };
enum { SRC, DST };

struct mapped_parameters {
  uint32_t rows, columns;
  struct tensor_map src;
  float *dst;
  struct completion done;
};

static const struct op_kernel mapped_kernel = KERNEL_ENTRY(EVERY_CHIP, mapped_parameters, mapped_copy, 32, "of a test");

/* ---- The operation ----------------------------------------------------------------------------------------------- */

static rondo_status mapped_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  const struct op_operand *src = &call->task->operands[SRC];
  struct mapped_parameters parameters = {
      .rows = (uint32_t)src->shape[0], .columns = (uint32_t)src->shape[1], .dst = call->data[DST]};
  struct op_launch *launch = launch_add(launches, &mapped_kernel, 1, 32, 0, &parameters, sizeof parameters);
  launch_map(launch, offsetof(struct mapped_parameters, src), src, call->data[SRC], (const uint32_t[]){1, COLUMNS});
  return RONDO_OK;
}

/* As any operation that takes a map without asking whether there can be one. */
static rondo_status crooked_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  rondo_status status = mapped_select(call, chip, launches);
  launches->items[0].maps[0].stride_bytes[1] += 4;
  return status;
}

static const struct op mapped = {
    .name = "mapped", .once_operands = 1u << SRC | 1u << DST, .check = accept_any_task, .select = mapped_select};
static const struct op crooked = {.name = "crooked", .check = accept_any_task, .select = crooked_select};

static void mapped_run(const struct fake_launch *launch) {
  struct mapped_parameters p;
  struct fake_map map;
  memcpy(&p, launch->parameters[0], sizeof p);
  memcpy(&map, &p.src, sizeof map);
  cr_assert(map.base && map.rank == 2 && map.size[0] == p.columns && map.size[1] == p.rows);
  cr_assert(map.type == CU_MAP_FLOAT32 && map.swizzled && map.fetch == CU_MAP_FETCH_256);
  cr_assert(map.box[0] == COLUMNS && map.box[1] == 1);
  for (uint32_t i = 0; i < p.rows; i++)
    memcpy(p.dst + (size_t)i * p.columns, (char *)map.base + i * map.stride_bytes[1], p.columns * sizeof(float));
  if (p.done.words) __atomic_store_n(p.done.words, ++*p.done.counts, __ATOMIC_RELEASE);
}

static void add_mapped(rondo_graph *graph, const struct op *op, const char *name, rondo_tensor src, rondo_tensor dst) {
  struct op_argument arguments[] = {{.name = "src", .tensor = src, .access = RONDO_READ},
                                    {.name = "dst", .tensor = dst, .access = RONDO_WRITE}};
  REQUIRE_OK(graph_add(graph, op, name, arguments, 2, NULL, 0));
}

static void map_setup(void) {
  driver_setup();
  fake->register_kernel("mapped_copy", mapped_run, 1, (const size_t[]){sizeof(struct mapped_parameters)});
}

TestSuite(tensor_map, .init = map_setup, .timeout = 60);

/* ---- A graph of it ----------------------------------------------------------------------------------------------- */

/* y = x and z = a constant, through maps, z by way of a temporary. */
struct subject {
  rondo_graph *graph;
  rondo_tensor x, constant, y, z;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slots[SLOTS];
};

static rondo_tensor add(const struct subject *s,
                        rondo_status (*kind)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                             rondo_tensor *),
                        const char *name) {
  rondo_tensor tensor;
  REQUIRE_OK(kind(s->graph, name, RONDO_F32, 2, (int64_t[]){ROWS, COLUMNS}, &tensor));
  return tensor;
}

static void subject_describe(struct subject *s) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  s->x = add(s, rondo_input, "x"), s->constant = add(s, rondo_constant, "constant");
  s->y = add(s, rondo_output, "y"), s->z = add(s, rondo_output, "z");
  rondo_tensor a = add(s, rondo_temporary, "a");
  add_mapped(s->graph, &mapped, "all of x", s->x, s->y);
  add_mapped(s->graph, &mapped, "all of the constant", s->constant, a);
  add_mapped(s->graph, &mapped, "all of a", a, s->z);
}

static void subject_start(struct subject *s) {
  subject_describe(s);
  float constant[COUNT];
  for (int i = 0; i < COUNT; i++) constant[i] = (float)-i;
  rondo_options options = options_for(s->graph, RONDO_BACKEND_CUDA, SLOTS);
  REQUIRE_OK(rondo_open(&options, &s->runtime));
  rondo_exec_options exec_options = {.slots = SLOTS, .constants_begin_as_zeros = 1};
  REQUIRE_OK(rondo_instantiate(s->runtime, s->graph, &exec_options, &s->exec));
  REQUIRE_OK(rondo_upload(s->exec, s->constant, constant, BYTES));
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_acquire(s->exec, &s->slots[i]));
}

static void subject_end(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  REQUIRE_OK(rondo_close(&s->runtime));
  require_clean("after close");
}

/* Replays; y must be x, and z what `constant` says it is. */
static void require_results(const struct subject *s, int slot, float first, const float *constant, const char *when) {
  float *x = rondo_data(s->slots[slot], s->x);
  for (int i = 0; i < COUNT; i++) x[i] = first + (float)i;
  REQUIRE_OK(rondo_replay(s->slots[slot]));
  REQUIRE_OK(rondo_wait(s->slots[slot], RONDO_FOREVER));
  const float *y = rondo_data(s->slots[slot], s->y), *z = rondo_data(s->slots[slot], s->z);
  for (int i = 0; i < COUNT; i++) {
    float expected = constant ? constant[i] : (float)-i;
    cr_assert(y[i] == first + (float)i && z[i] == expected, "slot %d, %s, element %d: %g and %g", slot, when, i,
              (double)y[i], (double)z[i]);
  }
}

/* ---- Promises ---------------------------------------------------------------------------------------------------- */

Test(tensor_map, each_slot_reads_what_is_its_own) {
  struct subject s = {0};
  subject_start(&s);
  uint64_t encoded = fake->calls("cuTensorMapEncodeTiled");
  cr_assert_eq(encoded, (uint64_t)3 * SLOTS);
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < SLOTS; i++) require_results(&s, i, (float)(100 * i + round), NULL, "replayed in turn");
  cr_assert_eq(fake->calls("cuTensorMapEncodeTiled"), encoded, "a replay makes no map");
  subject_end(&s);
}

Test(tensor_map, a_profile_runs_the_tasks_through_their_maps) {
  struct subject s = {0};
  rondo_task_profile tasks[3];
  rondo_profile_totals totals;
  rondo_profile_options options = {.passes = 2, .copy_bytes = 4096};
  subject_start(&s);
  require_results(&s, 1, 5, NULL, "before the profile");
  memset(rondo_data(s.slots[1], s.y), 0, BYTES);
  for (int i = 0; i < SLOTS; i++)
    if (i != 1) REQUIRE_OK(rondo_release(s.slots[i]));
  REQUIRE_OK(rondo_profile(s.slots[1], &options, tasks, 3, &totals));
  const float *y = rondo_data(s.slots[1], s.y);
  for (int i = 0; i < COUNT; i++) cr_assert_eq(y[i], (float)(5 + i));
  require_results(&s, 1, 7, NULL, "after the profile");
  subject_end(&s);
}

Test(tensor_map, a_rebound_tensor_takes_its_map_along_and_a_rebind_that_fails_changes_nothing) {
  struct subject s = {0};
  struct driver driver;
  struct cu_context *context = NULL;
  cu_address buffer = 0;
  float bound[COUNT];
  for (int i = 0; i < COUNT; i++) bound[i] = (float)(1000 + i);
  subject_start(&s);
  REQUIRE_OK(driver_load(&driver));
  cr_assert_eq(driver.cuDevicePrimaryCtxRetain(&context, 0), CU_SUCCESS);
  cr_assert_eq(driver.cuCtxPushCurrent(context), CU_SUCCESS);
  cr_assert_eq(driver.cuMemAlloc(&buffer, BYTES), CU_SUCCESS);
  void *address = (void *)(uintptr_t)buffer; /* the fake's device memory is the host's */
  memcpy(address, bound, BYTES);
  bool failed = true, encoding_failed = false;
  for (uint64_t n = 1; failed; n++) {
    fake->fail_call(n, CU_INVALID_VALUE);
    rondo_status status = rondo_rebind(s.slots[1], s.constant, address);
    failed = fake->failed_call() != NULL;
    encoding_failed |= failed && strcmp(fake->failed_call(), "cuTensorMapEncodeTiled") == 0;
    fake->fail_call(0, 0);
    cr_assert(failed || status == RONDO_OK);
    for (int i = 0; i < SLOTS; i++)
      require_results(&s, i, (float)i, i == 1 && status == RONDO_OK ? bound : NULL, "one of them rebound");
    REQUIRE_OK(rondo_rebind(s.slots[1], s.constant, NULL));
    require_results(&s, 1, 3, NULL, "unbound");
  }
  cr_assert(encoding_failed);
  cr_assert_eq(driver.cuMemFree(buffer), CU_SUCCESS);
  cr_assert_eq(driver.cuCtxPopCurrent(&context), CU_SUCCESS);
  cr_assert_eq(driver.cuDevicePrimaryCtxRelease(0), CU_SUCCESS);
  subject_end(&s);
}

static uint32_t encodings_left; /* before one fails */

static void fail_when_due(void) {
  if (encodings_left-- == 0) fake->fail_call(1, CU_INVALID_VALUE);
}

Test(tensor_map, an_encoding_that_fails_leaves_nothing_half_built) {
  struct subject s = {0};
  subject_describe(&s);
  rondo_options options = options_for(s.graph, RONDO_BACKEND_CUDA, SLOTS);
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  rondo_exec_options exec_options = {.slots = SLOTS, .constants_begin_as_zeros = 1};
  static const char *const tasks[] = {"all of x", "all of the constant", "all of a"};
  char before[1024], after[1024], text[128];
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, &exec_options, &s.exec)); /* loads images, which stay */
  REQUIRE_OK(rondo_close_exec(&s.exec));
  fake->live(before, sizeof before);
  fake->before_call("cuTensorMapEncodeTiled", fail_when_due);
  for (uint32_t n = 0; n < 3 * SLOTS; n++) {
    encodings_left = n;
    snprintf(text, sizeof text,
             "instantiate: task '%s': map 0 of kernel 'mapped_copy': cuTensorMapEncodeTiled: ", tasks[n % 3]);
    REQUIRE_ERROR(rondo_instantiate(s.runtime, s.graph, &exec_options, &s.exec), RONDO_DEVICE_ERROR, text);
    fake->fail_call(0, 0);
    fake->live(after, sizeof after);
    cr_assert_str_eq(after, before, "encoding %u", n);
  }
  fake->before_call(NULL, NULL);
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, &exec_options, &s.exec));
  subject_end(&s);
}

/* A graph of one task. */
static rondo_status instantiate_one(const struct op *op) {
  struct subject s = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s.graph));
  add_mapped(s.graph, op, "only", add(&s, rondo_input, "x"), add(&s, rondo_output, "y"));
  rondo_options options = options_for(s.graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  rondo_status status = rondo_instantiate(s.runtime, s.graph, NULL, &s.exec);
  char text[512];
  snprintf(text, sizeof text, "%s", rondo_error_text());
  subject_end(&s);
  return status == RONDO_OK ? status : status_set(status, "%s", text);
}

Test(tensor_map, one_that_the_driver_refuses_is_an_error_that_names_its_task) {
  REQUIRE_ERROR(instantiate_one(&crooked), RONDO_DEVICE_ERROR,
                "instantiate: task 'only': map 0 of kernel 'mapped_copy': cuTensorMapEncodeTiled: "
                "CUDA_ERROR_INVALID_VALUE");
}

Test(tensor_map, a_driver_that_makes_none_is_an_error_only_where_one_is_needed) {
  fake->hide("cuTensorMapEncodeTiled", CU_SYMBOL_NOT_FOUND);
  REQUIRE_ERROR(instantiate_one(&mapped), RONDO_UNSUPPORTED,
                "instantiate: task 'only': kernel 'mapped_copy' takes a tensor map, and the driver has no "
                "cuTensorMapEncodeTiled");
  REQUIRE_OK(instantiate_one(&op_copy));
}

Test(tensor_map, asking_what_a_task_launches_makes_none) {
  struct subject s = {0};
  subject_describe(&s);
  REQUIRE_OK(rondo_explain(s.graph, 90, "/dev/null"));
  cr_assert_eq(fake->calls("cuTensorMapEncodeTiled"), 0);
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
}
