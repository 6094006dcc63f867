/* test_user_work.c - the user's own kernels on the fake driver, against a function of one number. A kernel gets its
 * tensors and values, and leave for the shared memory and clusters that it needs. A graph that cannot run is refused at
 * instantiate, with the task's name. Faults that would show: a parameter of the wrong size, a missing attribute, an
 * image that is loaded twice, a refused graph that keeps memory or a context. */
#include "driver_bench.h"

TestSuite(user_work, .init = driver_setup, .timeout = 60);

/* A task 'mine' of the kernel 'mix', with one thing changed. */
struct mine {
  const char *what;
  size_t image_bytes;    /* 0: all of the image */
  const char *function;  /* NULL: mix */
  uint32_t shared_bytes; /* asked for at the launch */
  uint32_t missing;      /* parameters that are not given; */
  uint32_t added;        /* or more than the kernel has */
  uint32_t last_bytes;   /* of parameter 4; 0: 4 */
  /* Of the fake's kernels. */
  int32_t static_shared_bytes, cluster_width;
  /* What instantiate does. */
  uint64_t attributes_set; /* in each slot, which loads the image for itself */
  rondo_status expected;
  const char *sentence;
};

static void add_mine(struct bench *bench, const struct mine *mine) {
  uint64_t value = COUNT;
  rondo_argument arguments[] = {{.tensor = bench->x, .access = RONDO_READ},
                                {.tensor = bench->x, .access = RONDO_READ},
                                {.tensor = bench->y, .access = RONDO_WRITE},
                                {.value = &value, .bytes = 4},
                                {.value = &value, .bytes = mine->last_bytes ? mine->last_bytes : 4},
                                {.value = &value, .bytes = 8}};
  REQUIRE_OK(rondo_add_kernel(
      bench->graph, &(rondo_kernel_desc){.name = "mine",
                                         .image = mix_image,
                                         .image_bytes = mine->image_bytes ? mine->image_bytes : mix_image_bytes,
                                         .function = mine->function ? mine->function : "mix",
                                         .shared_bytes = mine->shared_bytes,
                                         .arguments = arguments,
                                         .argument_count = MIX_ARGUMENTS - mine->missing + mine->added}));
}

static const struct mine run_kernels[] = {
    {.what = "nothing out of the ordinary"},
    {"shared memory above 48 KiB", .shared_bytes = 100 * 1024, .attributes_set = 1},
    {"48 KiB beside the kernel's own", .shared_bytes = 48 * 1024, .static_shared_bytes = 128, .attributes_set = 1},
    {"clusters of 8 blocks, which every chip runs", .cluster_width = 8},
    {"clusters of 16 blocks, which need leave", .cluster_width = 16, .attributes_set = 1},
};

/* The fake refuses a launch for which no attribute gives leave, as the driver does. */
Test(user_work, a_kernel_gets_its_tensors_and_values_and_leave_for_what_it_needs) {
  for (size_t i = 0; i < sizeof run_kernels / sizeof *run_kernels; i++) {
    const struct mine *mine = &run_kernels[i];
    struct bench bench;
    driver_setup();
    struct fake_settings settings = fake->settings();
    settings.static_shared_bytes = mine->static_shared_bytes;
    if (mine->cluster_width) settings.cluster_width = mine->cluster_width;
    fake->configure(&settings);
    bench_begin(&bench);
    add_mine(&bench, mine);
    require_ok(bench_instantiate(&bench), mine->what);
    cr_assert_eq(fake->calls("cuKernelSetAttribute"), mine->attributes_set * SLOTS, "%s", mine->what);
    require_result(&bench, mine->what, mixed);
    bench_end(&bench);
  }
}

static const struct mine refused_kernels[] = {
    {"a function that is not in the image", .function = "mix_nowhere", .expected = RONDO_INVALID_ARGUMENT,
     .sentence = "task 'mine': the image has no kernel 'mix_nowhere'"},
    {"a parameter of another size", .last_bytes = 8, .expected = RONDO_INVALID_ARGUMENT,
     .sentence = "task 'mine': parameter 4 of kernel 'mix' has 4 bytes, expected 8"},
    {"too few parameters", .missing = 1, .expected = RONDO_INVALID_ARGUMENT,
     .sentence = "task 'mine': kernel 'mix' has more than 4 parameters"},
    {"too many parameters", .added = 1, .expected = RONDO_INVALID_ARGUMENT,
     .sentence = "task 'mine': kernel 'mix' has 5 parameters, expected 6"},
    {"more shared memory than the chip has", .shared_bytes = 232449, .expected = RONDO_DEVICE_ERROR,
     .sentence = "task 'mine': 232449 bytes of shared memory"},
    {"a text image without an end", .image_bytes = 10, .expected = RONDO_INVALID_ARGUMENT, .sentence = "task 'mine'"},
};

Test(user_work, a_kernel_that_cannot_be_launched_is_refused_by_name) {
  for (size_t i = 0; i < sizeof refused_kernels / sizeof *refused_kernels; i++) {
    const struct mine *mine = &refused_kernels[i];
    struct bench bench;
    driver_setup();
    bench_begin(&bench);
    add_mine(&bench, mine);
    require_refused(&bench, mine->what, mine->expected, mine->sentence);
  }
}

Test(user_work, an_image_of_several_tasks_is_loaded_once_for_a_slot) {
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor between = add_vector(rondo_temporary, bench.graph, "between", COUNT);
  add_mix(bench.graph, "first", bench.x, bench.x, between, COUNT, 1);
  add_mix(bench.graph, "second", between, between, bench.y, COUNT, 2);
  REQUIRE_OK(bench_instantiate(&bench));
  cr_assert_eq(fake->calls("cuLibraryLoadData"), 2 + SLOTS);
  bench_end(&bench);
}

Test(user_work, tasks_for_the_host_alone_are_refused_on_the_device) {
  for (int capture = 0; capture < 2; capture++) {
    struct bench bench;
    driver_setup();
    bench_begin(&bench);
    rondo_argument arguments[] = {{.tensor = bench.x, .access = RONDO_READ},
                                  {.tensor = bench.y, .access = RONDO_WRITE}};
    const rondo_kernel_desc kernel = {.name = "hosted", .arguments = arguments, .argument_count = 2, .host = mix_host};
    const rondo_capture_desc call = {.name = "hosted", .arguments = arguments, .argument_count = 2, .host = mix_host};
    REQUIRE_OK(capture ? rondo_add_capture(bench.graph, &call, NULL) : rondo_add_kernel(bench.graph, &kernel));
    require_refused(&bench, capture ? "a capture" : "a kernel", RONDO_UNSUPPORTED, "hosted");
  }
}
