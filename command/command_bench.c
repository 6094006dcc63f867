/* command_bench.c - rondo bench: calls one of the measurements in command/bench/. */
#include "bench/bench.h"

#include <string.h>

#include "command.h"

static const struct {
  const char *name, *about;
  int (*run)(int count, char **words);
} benches[] = {
    {"replay", "the time of a replay, and of the same work launched with the CUDA driver directly", bench_replay},
    {"lanes", "the time of a replay while another lane's work fills the device", bench_lanes},
    {"kernels", "the time of kernels, and of reading the same bytes", bench_kernels},
    {"exchange", "the time of exchanges between ranks", bench_exchange},
    {"llama", "the time of a token of a language model", bench_llama},
    {"plan", "the time of planning, and the placement of buffers", bench_plan},
    {"upload", "the speed of uploads to the device", bench_upload},
    {"wait", "the time until the host sees the end of a replay, for each way to wait", bench_wait},
};
enum { BENCHES = sizeof benches / sizeof *benches };

static void print_help(FILE *file) {
  fputs("usage: rondo bench replay|lanes|kernels|exchange|llama|plan|upload|wait [OPTION]...\n\n", file);
  for (int i = 0; i < BENCHES; i++) fprintf(file, "  %-10s%s\n", benches[i].name, benches[i].about);
  fputs("\nrondo bench replay --help shows the options of a measurement.\n", file);
}

int command_bench(int count, char **words) {
  if (!count)
    return arguments_wrong(
        "rondo bench",
        "the measurement is missing, expected replay, lanes, kernels, exchange, llama, plan, upload or wait");
  if (!strcmp(words[0], "--help")) {
    print_help(stdout);
    return EXIT_OK;
  }
  for (int i = 0; i < BENCHES; i++)
    if (!strcmp(benches[i].name, words[0])) return benches[i].run(count - 1, words + 1);
  return arguments_wrong(
      "rondo bench", "the measurement is '%s', expected replay, lanes, kernels, exchange, llama, plan, upload or wait",
      words[0]);
}
