/* test_command.c - the command `rondo`, run as a person runs it: help, exit codes, what is printed and what is
 * written. Needs no GPU. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../command/ready_graphs.h"
#include "../support.h"
#include "shell.h"

TestSuite(command, .fini = shell_remove_folder, .timeout = 240);

static void require_json(const char *text) {
  const char *fault = json_fault(text);
  cr_assert_null(fault, "no JSON from here on: %s\nin %s", fault, text);
}

/* ---- Help and wrong usage ---------------------------------------------------------------------------------------- */

Test(command, help_of_every_command_exits_0_and_goes_to_stdout) {
  static const char *const commands[] = {"",
                                         "info",
                                         "explain",
                                         "explain gemv",
                                         "profile",
                                         "profile gemv",
                                         "plan",
                                         "plan qr",
                                         "bench",
                                         "bench replay",
                                         "bench lanes",
                                         "bench kernels",
                                         "bench exchange",
                                         "bench llama",
                                         "bench plan",
                                         "bench upload",
                                         "plan attention",
                                         "plan llama",
                                         "plan gemm_softmax"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    struct ran ran = shell_rondo("", "%s --help", commands[i]);
    REQUIRE_CODE(ran, 0);
    cr_assert_eq(strncmp(ran.out, "usage: rondo", 12), 0, "%s: %s", commands[i], ran.out);
    cr_assert_str_empty(ran.error);
  }
}

Test(command, version_goes_to_stdout) {
  struct ran ran = shell_rondo("", "--version");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(strncmp(ran.out, "rondo", 5), 0, "%s", ran.out);
}

Test(command, wrong_usage_exits_2_and_says_what_is_allowed) {
  static const struct {
    const char *words, *says;
  } lines[] = {
      {"", "usage: rondo"},
      {"plam", "the command is 'plam', expected info, explain, plan, profile or bench"},
      {"--version now", "unexpected argument 'now'"},
      {"info now", "unexpected argument 'now', expected an option"},
      {"plan", "the graph is missing, expected attention, gemm_softmax, gemv, llama, qr or smollm2"},
      {"plan gemw", "the graph is 'gemw', expected attention, gemm_softmax, gemv, llama, qr or smollm2"},
      {"plan gemv --sgv x", "unknown option '--sgv', expected --svg, --dot, --json or --help"},
      {"plan gemv --svg", "--svg has no value, expected FILE"},
      {"plan gemv m", "unexpected argument 'm', expected FIELD=VALUE or an option"},
      {"plan qr rows=3", "unknown field 'rows', expected name, dtype, layout, m, n, batch, form or panel_width"},
      {"plan gemv m=4k", "m is '4k', expected a whole number of 64 bits"},
      {"plan gemv m=", "m is '', expected a whole number of 64 bits"},
      {"plan gemv m=9223372036854775808", "m is '9223372036854775808', expected a whole number of 64 bits"},
      {"plan gemv count=4294967297", "count is '4294967297', expected a whole number of 32 bits"},
      {"plan gemv scale=1e99", "scale is '1e99', expected a number"},
      {"plan qr form=q", "form is 'q', expected h_tau, r or thin_q"},
      {"explain gemv weights=int4", "weights is 'int4', expected nvfp4, e4m3, f16 or bf16"},
      {"explain gemv vectors=f64", "vectors is 'f64', expected f16, bf16, e4m3 or nvfp4"},
      {"explain gemv out=u8", "out is 'u8', expected f32, f16, bf16 or nvfp4"},
      {"explain attention dtype=f32", "dtype is 'f32', expected f16 or bf16"},
      {"explain gemm_softmax p_dtype=f64", "p_dtype is 'f64', expected f32, f16 or bf16"},
      {"explain qr dtype=bf16", "dtype is 'bf16', expected f32 or f64"},
      {"explain llama embedding=e4m3", "embedding is 'e4m3', expected f16, bf16 or nvfp4"},
      {"explain gemv --chip 75", "--chip is '75', expected host, 80, 90, 100 or all"},
      {"explain gemv --chip", "--chip has no value, expected host|80|90|100|all"},
      {"bench", "the measurement is missing, expected replay, lanes, kernels, exchange, llama, plan, upload or wait"},
      {"bench replays",
       "the measurement is 'replays', expected replay, lanes, kernels, exchange, llama, plan, upload or wait"},
      {"bench replay --samples 99", "--samples is '99', expected a whole number from 100 to 10000000"},
      {"bench replay --only all",
       "--only is 'all', expected launch, visible, in-out, chains, branches, idle, slots or resident"},
      {"bench kernels svd", "the group is 'svd', expected gemv, gemm, chain, ladder, attention, attention-steps, "
                            "softmax, rowmax-tile or qr"},
      {"bench kernels --edges none", "--edges is 'none', expected plain or programmatic"},
      {"bench lanes --seconds nan", "--seconds is 'nan', expected a number from 0.01 to 3600"},
      {"bench plan --scale=1", "--scale has the value '1', expected none"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct ran ran = shell_rondo("", "%s", lines[i].words);
    REQUIRE_CODE(ran, 2);
    cr_assert_not_null(strstr(ran.error, lines[i].says), "%s: %s", lines[i].words, ran.error);
    cr_assert_not_null(strstr(ran.error, "--help"), "%s: %s", lines[i].words, ran.error);
    cr_assert_str_empty(ran.out);
  }
}

Test(command, work_that_fails_exits_1_with_the_librarys_sentence) {
  static const struct {
    const char *words, *says;
  } lines[] = {
      {"plan gemv k=-1", "rondo: describe: rondo_graph_gemv: "},
      {"explain attention head_dimension=48", "q has head dimension 48, expected 32, 64, 128 or 256"},
      {"plan gemv --svg /nonexistent/a.svg", "'/nonexistent/a.svg' cannot be written"},
      {"plan gemv --json /nonexistent/a.json", "'/nonexistent/a.json' cannot be written"},
      {"plan gemv --json /dev/full", "'/dev/full' was not written completely"},
      {"plan gemv --json - >/dev/full", "stdout cannot be written"},
      {"bench replay --backend cuda", "rondo: open: "},
      {"bench kernels", "rondo: bench: kernels are timed on a GPU, and there is none here: "},
      {"bench kernels --from /nonexistent", "'/nonexistent' cannot be read: No such file"},
      {"bench kernels --rivals /dev/null", "'/dev/null' is not an array of objects"},
      {"bench llama --rivals /nonexistent", "'/nonexistent' cannot be read: No such file"},
      {"bench llama --rivals /dev/null", "'/dev/null' is not an array of objects"},
      {"bench plan --minimalloc /nonexistent", "rondo: '/nonexistent': No such file"},
      {"bench plan --minimalloc /proc/self/fd", "rondo: '/proc/self/fd' has no .csv files"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    /* An empty list hides every GPU from the driver. */
    struct ran ran = shell_rondo("CUDA_VISIBLE_DEVICES=", "%s", lines[i].words);
    REQUIRE_CODE(ran, 1);
    cr_assert_not_null(strstr(ran.error, lines[i].says), "%s: %s", lines[i].words, ran.error);
  }
}

/* ---- Descriptions ------------------------------------------------------------------------------------------------ */

static size_t field_bytes(const struct argument *field) {
  switch (field->kind) {
  case VALUE_TEXT:
    return sizeof(const char *);
  case VALUE_INT64:
  case VALUE_DOUBLE:
    return 8;
  default:
    return 4;
  }
}

static size_t rounded(size_t offset, size_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

Test(command, every_field_of_every_descriptor_can_be_set) {
  for (size_t i = 0; i < ready_graph_count; i++) {
    const struct ready_graph *ready = &ready_graphs[i];
    size_t end = 0;
    for (size_t f = 0; f < ready->fields.count; f++) {
      const struct argument *field = &ready->fields.items[f];
      cr_assert_eq(field->offset, rounded(end, field_bytes(field)), "%s: what comes before %s?", ready->name,
                   field->name);
      end = field->offset + field_bytes(field);
    }
    cr_assert_eq(rounded(end, 8), ready->desc_bytes, "%s: what comes after the last field?", ready->name);
  }
}

Test(command, a_field_that_is_given_is_described_with_that_value) {
  for (size_t i = 0; i < ready_graph_count; i++) {
    const struct ready_graph *ready = &ready_graphs[i];
    struct grammar grammar = {.program = "test", .fields = ready->fields};
    for (size_t f = 0; f < ready->fields.count; f++) {
      const struct argument *field = &ready->fields.items[f];
      char word[64], wanted[80], text[512] = "";
      snprintf(word, sizeof word, "%s=%s", field->name, field->choices ? field->choices[1].name : "7");
      snprintf(wanted, sizeof wanted, " %s", word);
      union ready_desc desc = ready->preset;
      cr_assert_eq(arguments_read(&grammar, 1, (char *[]){word}, NULL, &desc), ARGUMENTS_READ);
      FILE *file = fmemopen(text, sizeof text, "w");
      arguments_write(&ready->fields, &desc, &ready->preset, file);
      fclose(file);
      cr_assert_not_null(strstr(text, wanted), "%s after %s:%s", ready->name, word, text);
    }
  }
}

Test(command, a_field_of_zero_is_described_where_it_is_preset_otherwise) {
  struct ran ran = shell_rondo("", "plan qr m=0 batch=0 --json -");
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.out, "\"qr dtype=f32 layout=row_major m=0 n=16 batch=0 form=thin_q\""), "%s", ran.out);
}

Test(command, an_option_may_be_given_with_an_equals_sign_and_the_last_one_counts) {
  struct ran ran = shell_rondo("", "explain gemv --chip=80 m=7 m=8 --chip=90");
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.out, " m=8 "), "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "sm_90:"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "sm_80:"), 0, "%s", ran.out);
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

/* Every task once and with what runs it, on one chip. */
static void require_explained(const struct ready_graph *ready, const char *words, const char *chip, uint32_t tasks) {
  struct ran ran = shell_rondo("", "explain %s %s --chip %s", ready->name, words, chip);
  REQUIRE_CODE(ran, 0);
  bool is_host = !strcmp(chip, "host");
  for (uint32_t task = 0; task < tasks; task++) {
    char text[32];
    snprintf(text, sizeof text, "\n  task %u '", task);
    cr_assert_eq(shell_occurrences(ran.out, text), 1, "%s %s on %s: task %u: %s", ready->name, words, chip, task,
                 ran.out);
  }
  cr_assert_eq(shell_occurrences(ran.out, "\n  completion: "), !is_host, "%s", ran.out);
  char *rest = NULL;
  for (char *line = strtok_r((char *)(uintptr_t)strstr(ran.out, "\n  "), "\n", &rest); line;
       line = strtok_r(NULL, "\n", &rest))
    cr_assert(strstr(line, is_host ? ": host, " : " grid ") || strstr(line, "  completion: ") ||
                  (!is_host && !strncmp(line, "      ", 6)), /* the design of the kernel above, and the reason for it */
              "nothing runs: %s", line);
}

Test(command, explain_names_what_runs_every_task_of_every_graph_on_every_chip) {
  static const char *const chips[] = {"host", "80", "90", "100"};
  static const struct {
    const char *graph, *words;
  } shapes[] = {{"attention", ""},
                {"attention", "query_length=512 kv_length=512 causal=1 with_lse=1 with_lengths=1 dtype=bf16"},
                {"gemm_softmax", ""},
                {"gemm_softmax", "m=7 n=9000 k=48 p_dtype=f32 causal=1"},
                {"gemv", ""},
                {"gemv", "weights=nvfp4 vectors=nvfp4 quantize_from=f32 count=16 batch=3"},
                {"gemv", "weights=e4m3 vectors=f16 row_scales=1"},
                {"gemv", "weights=f16 vectors=f16 out=f16 m=7 k=9"},
                {"gemv", "weights=bf16 vectors=bf16 out=bf16 m=512 k=256 count=300 residual=bf16 bias=f32"},
                {"qr", ""},
                {"qr", "m=512 n=256 batch=2 form=thin_q"},
                {"qr", "m=512 n=256 batch=2 dtype=f64 form=r layout=column_major"},
                {"smollm2", ""},
                {"llama", "weights=nvfp4 tokens=16 sequences=16 sequence=15 with_sampling=1"},
                {"llama", "weights=e4m3 sequences=16 with_logits=1 feed_back=0"}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const struct ready_graph *ready = ready_graph_called(shapes[i].graph);
    struct ran ran = shell_rondo("", "plan %s %s --json -", ready->name, shapes[i].words);
    REQUIRE_CODE(ran, 0);
    const char *count = strstr(ran.out, "\"task_count\": ");
    cr_assert_not_null(count, "%s", ran.out);
    uint32_t tasks = (uint32_t)strtoul(count + strlen("\"task_count\": "), NULL, 10);
    cr_assert_gt(tasks, 0);
    for (size_t c = 0; c < sizeof chips / sizeof *chips; c++)
      require_explained(ready, shapes[i].words, chips[c], tasks);
  }
}

Test(command, explain_answers_for_every_chip_if_none_is_named) {
  struct ran ran = shell_rondo("", "explain gemv");
  REQUIRE_CODE(ran, 0);
  static const char *const headings[] = {"\nhost:\n", "\nsm_80:\n", "\nsm_90:\n", "\nsm_100:\n"};
  for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
    cr_assert_eq(shell_occurrences(ran.out, headings[i]), 1, "%s", ran.out);
}

Test(command, plan_prints_what_rondo_plan_graph_says) {
  for (size_t i = 0; i < ready_graph_count; i++) {
    rondo_graph *graph;
    rondo_plan plan;
    char text[64];
    union ready_tensors tensors;
    REQUIRE_OK(ready_graph_describe(&ready_graphs[i], &ready_graphs[i].preset, &graph, &tensors));
    REQUIRE_OK(rondo_plan_graph(graph, &plan));
    struct ran ran = shell_rondo("", "plan %s --json -", ready_graphs[i].name);
    snprintf(text, sizeof text, "\"device_bytes\": %llu,", (unsigned long long)plan.device_bytes);
    cr_assert_not_null(strstr(ran.out, text), "%s: %s", text, ran.out);
    snprintf(text, sizeof text, "\"edge_count\": %u\n", plan.edge_count);
    cr_assert_not_null(strstr(ran.out, text), "%s: %s", text, ran.out);
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

Test(command, plan_writes_its_pictures) {
  const char *folder = shell_folder();
  char path[256];
  struct ran ran = shell_rondo("", "plan qr --svg %s/plan.svg --dot %s/plan.dot", folder, folder);
  REQUIRE_CODE(ran, 0);
  snprintf(path, sizeof path, "%s/plan.svg", folder);
  cr_assert_not_null(strstr(shell_read(path), "</svg>"));
  snprintf(path, sizeof path, "%s/plan.dot", folder);
  cr_assert_eq(strncmp(shell_read(path), "digraph", 7), 0);
}

/* Small enough to take no time. */
static const char *const small_graphs[] = {
    "attention kv_length=16 query_heads=2 kv_heads=1 head_dimension=32 with_lengths=1", "gemm_softmax m=8 n=8 k=16",
    "gemv m=8 k=32 weights=nvfp4 vectors=nvfp4 quantize_from=f32", "qr m=48 n=32 batch=1 panel_width=8",
    "llama layers=2 hidden=64 query_heads=2 kv_heads=1 feed_forward=96 vocabulary=160 context=32"};

Test(command, profile_times_every_task_of_every_graph) {
  char path[256];
  snprintf(path, sizeof path, "%s/trace.json", shell_folder());
  for (size_t i = 0; i < sizeof small_graphs / sizeof *small_graphs; i++) {
    struct ran ran = shell_rondo("", "profile %s --backend host --passes 1 --trace %s --json -", small_graphs[i], path);
    REQUIRE_CODE(ran, 0);
    require_json(ran.out);
    require_json(shell_read(path));
    int tasks = shell_occurrences(ran.out, "\"time_ns\": ");
    ran = shell_rondo("", "explain %s --chip host", small_graphs[i]);
    cr_assert_eq(tasks, shell_occurrences(ran.out, "\n  "), "%d tasks, and explain says %s", tasks, ran.out);
  }
}

Test(command, profile_prints_a_table) {
  struct ran ran = shell_rondo("", "profile %s --backend host --passes 1", small_graphs[3]);
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.out, "qr panel 0"), "%s", ran.out);
  cr_assert_str_empty(ran.error);
}

Test(command, json_of_every_command_parses) {
  static const char llama[] = "bench llama --backend host --model smollm2 --sequences 1 --context 128 --capacity 128 "
                              "--samples 2";
  char path[256], line[1024];
  const char *folder = shell_folder();
  snprintf(line, sizeof line, "printf 'id,lower,upper,size\\n0,0,2,64\\n1,1,3,64\\n' >%s/two.csv", folder);
  REQUIRE_CODE(shell_run(line), 0);
  snprintf(line, sizeof line, "bench plan --minimalloc %s", folder);
  const char *const lines[] = {"info",
                               "explain attention",
                               "explain gemm_softmax",
                               "explain gemv --chip 100 name='a\"\\\t'",
                               "explain qr m=512 n=256 batch=2",
                               "plan attention",
                               "plan gemm_softmax",
                               "plan gemv name='a\"\\\t'",
                               "plan qr",
                               "profile gemv --backend host --passes 1 m=64 k=64 name='a\"'",
                               "bench replay --backend host --samples 100 --only visible",
                               "bench lanes --backend host --samples 1 --seconds 0.01 --only own-8",
                               llama,
                               "bench upload --backend host --samples 1 --total 2",
                               line};
  snprintf(path, sizeof path, "%s/json", folder);
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct ran ran = shell_rondo("", "%s --json %s", lines[i], path);
    REQUIRE_CODE(ran, 0);
    cr_assert_str_not_empty(ran.out, "the table stays");
    require_json(shell_read(path));
  }
}

Test(command, json_on_stdout_comes_alone) {
  static const char *const lines[] = {"info", "explain gemv", "plan gemv",
                                      "bench replay --backend host --samples 100 --only launch"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct ran ran = shell_rondo("", "%s --json -", lines[i]);
    REQUIRE_CODE(ran, 0);
    require_json(ran.out);
    cr_assert_str_empty(ran.error, "no progress where there is no terminal: %s", ran.error);
  }
}

static void require_no_escape(const char *text, const char *words) {
  cr_assert_null(strpbrk(text, "\x1b\x07\r\x7f"), "%s: %s", words, text);
}

/* A name, or a wrong word, that would clear the terminal and change its title. */
Test(command, what_was_typed_is_printed_without_control_codes) {
  static const char *const lines[] = {"explain gemv m=64 k=64 name=\"$e\"",
                                      "plan gemv m=64 k=64 name=\"$e\"",
                                      "profile gemv m=64 k=64 name=\"$e\" --backend host --passes 1",
                                      "plan llama name=\"$e$e\" layers=0",
                                      "plan gemv m=64 k=64 --svg /nonexistent/\"$e\"",
                                      "plan gemv m=64 k=64 --json /nonexistent/\"$e\"",
                                      "plan gemv m=\"$e\"",
                                      "plan qr form=\"$e\"",
                                      "plan gemv \"$e\"",
                                      "plan gemv \"$e\"=1",
                                      "plan \"$e\"",
                                      "plan --\"$e\"",
                                      "--version \"$e\"",
                                      "bench \"$e\"",
                                      "bench kernels \"$e\"",
                                      "bench kernels --only \"$e\"",
                                      "bench plan --minimalloc /nonexistent/\"$e\"",
                                      "bench llama --rivals /nonexistent/\"$e\"",
                                      "\"$e\""};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct ran ran = shell_rondo("e=$(printf 'seen \\033[2J\\033]0;title\\007\\r\\177 end');", "%s", lines[i]);
    require_no_escape(ran.out, lines[i]);
    require_no_escape(ran.error, lines[i]);
    cr_assert(strstr(ran.out, "seen") || strstr(ran.error, "seen") || ran.code == 1, "%s: %s%s", lines[i], ran.out,
              ran.error);
  }
  struct ran ran = shell_rondo("e=$(printf 'seen \\033[2J\\377\\302 end');", "explain gemv name=\"$e\" --json -");
  REQUIRE_CODE(ran, 0);
  require_json(ran.out);
  require_no_escape(ran.out, "JSON");
}

Test(command, bench_measures_the_groups_that_are_asked_for) {
  struct ran ran = shell_rondo("", "bench replay --backend host --samples 100 --only slots --only chains");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "slots, a replay"), 3, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "\nchain of "), 4, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "\n"), 2 + 3 + 4 + 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "\ntakes about "), 1, "%s", ran.out);
}

Test(command, bench_compares_nothing_with_keep_warm_where_that_has_no_effect) {
  struct ran ran = shell_rondo("", "bench replay --backend host --samples 100 --only idle");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "\nreplay after "), 3, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "keep_warm") + shell_occurrences(ran.out, " = "), 0, "%s", ran.out);
}

Test(command, bench_plan_exits_3_if_buffers_do_not_fit) {
  char line[1024];
  snprintf(line, sizeof line, "printf 'id,lower,upper,size\\n0,0,2,1048576\\n1,1,3,64\\n' >%s/large.csv",
           shell_folder());
  REQUIRE_CODE(shell_run(line), 0);
  struct ran ran = shell_rondo("", "bench plan --minimalloc %s", shell_folder());
  REQUIRE_CODE(ran, 3);
  cr_assert_not_null(strstr(ran.out, "1 figure missed its limit"), "%s", ran.out);
}

Test(command, info_says_what_runs_here_and_why) {
  struct ran ran = shell_rondo("", "info");
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.out, "runs on    "), "%s", ran.out);
  cr_assert_not_null(strstr(ran.out, "because    "), "%s", ran.out);
  cr_assert_not_null(strstr(ran.out, "\nhost, "), "%s", ran.out);
}

Test(command, info_lists_each_gpu_with_its_driver_and_lanes) {
  char environment[512];
  snprintf(environment, sizeof environment, "LD_LIBRARY_PATH=%s/fake", shell_root());
  struct ran ran = shell_rondo(environment, "info");
  REQUIRE_CODE(ran, 0);
  if (strstr(ran.out, "made without nvcc")) cr_skip_test("this build has no device code");
  cr_assert_not_null(strstr(ran.out, "device 0: Fake GPU\n"), "%s", ran.out);
  cr_assert_not_null(strstr(ran.out, "multiprocessors  132\n"), "%s", ran.out);
  cr_assert_not_null(strstr(ran.out, "driver           CUDA 13.0\n"), "%s", ran.out);
  cr_assert_not_null(strstr(ran.out, "at most 8 with multiprocessors of their own, 8 at a time\n"), "%s", ran.out);
}
