/* command_bench.c - rondo bench: the measurements under one roof. */
#include "bench/bench.h"

#include <string.h>

#include "command.h"

static const struct {
  const char *name, *about;
  int (*run)(int count, char **words);
} benches[] = {
    {"replay", "what a replay costs, beside the CUDA driver used directly", bench_replay},
    {"lanes", "what a replay costs beside work of other lanes", bench_lanes},
    {"kernels", "how long kernels take, beside reading the same bytes alone", bench_kernels},
    {"llama", "how long a token of a language model takes", bench_llama},
    {"plan", "what planning takes, and how well buffers are placed", bench_plan},
    {"upload", "how fast weights come to the device", bench_upload},
    {"wait", "how soon a replay's end is seen, by each way to wait", bench_wait},
};
enum { BENCHES = sizeof benches / sizeof *benches };

static void print_help(FILE *file) {
  fputs("usage: rondo bench replay|lanes|kernels|llama|plan|upload|wait [OPTION]...\n\n", file);
  for (int i = 0; i < BENCHES; i++) fprintf(file, "  %-10s%s\n", benches[i].name, benches[i].about);
  fputs("\nrondo bench replay --help says more, and so on.\n", file);
}

int command_bench(int count, char **words) {
  if (!count)
    return arguments_wrong("rondo bench", "the bench is missing: replay, lanes, kernels, llama, plan, upload or wait");
  if (!strcmp(words[0], "--help")) {
    print_help(stdout);
    return EXIT_OK;
  }
  for (int i = 0; i < BENCHES; i++)
    if (!strcmp(benches[i].name, words[0])) return benches[i].run(count - 1, words + 1);
  return arguments_wrong("rondo bench", "the bench is replay, lanes, kernels, llama, plan, upload or wait, not '%s'",
                         words[0]);
}
