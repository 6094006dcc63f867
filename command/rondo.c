/* rondo.c - the command: rondo info, explain, plan, profile, bench. docs/rondo.1 is its manual. */
#include <string.h>

#include "../runtime/text.h"
#include "command.h"

static const struct {
  const char *name, *about;
  int (*run)(int count, char **words);
} commands[] = {
    {"info", "the devices of this machine, and what a graph would run on", command_info},
    {"explain", "which kernels would run for a ready-made graph", command_explain},
    {"plan", "the memory that a ready-made graph takes, and pictures of it", command_plan},
    {"profile", "how long each task of a ready-made graph takes here", command_profile},
    {"bench", "what a replay costs, alone and beside other work, and what planning takes", command_bench},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *file) {
  fputs("usage: rondo COMMAND [ARGUMENT]...\n"
        "       rondo --help | --version\n\n"
        "Shows what Rondo, a static runtime for GPU task graphs, does with a graph on this machine and on others.\n\n",
        file);
  for (int i = 0; i < COMMANDS; i++) fprintf(file, "  %-10s%s\n", commands[i].name, commands[i].about);
  fputs("\nrondo COMMAND --help says more of each.\n\n"
        "Exit status: 0 done, 1 the work failed, as the text says, 2 wrong usage, 3 a figure of bench missed its "
        "limit.\n",
        file);
}

static int wrong_command(const char *word) {
  fputs("rondo: the command is ", stderr);
  for (int i = 0; i < COMMANDS; i++)
    fprintf(stderr, "%s%s", !i ? "" : i + 1 < COMMANDS ? ", " : " or ", commands[i].name);
  fputs(", not '", stderr);
  text_write(stderr, word, "");
  fputs("'; see rondo --help\n", stderr);
  return EXIT_USAGE;
}

static int run(int count, char **words) {
  if (!count) {
    print_help(stderr);
    return EXIT_USAGE;
  }
  for (int i = 0; i < COMMANDS; i++)
    if (!strcmp(commands[i].name, words[0])) return commands[i].run(count - 1, words + 1);
  bool wants_version = !strcmp(words[0], "--version");
  if (!wants_version && strcmp(words[0], "--help") != 0) return wrong_command(words[0]);
  if (count > 1) return arguments_wrong("rondo", "'%s' is one word too many", words[1]);
  if (wants_version)
    printf("rondo %s, ABI %u\n", RONDO_VERSION_STRING, RONDO_ABI_VERSION);
  else
    print_help(stdout);
  return EXIT_OK;
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0); /* so that a long command's lines are seen as they come */
  int code = run(count - 1, words + 1);
  if ((fflush(stdout) || ferror(stdout)) && code == EXIT_OK) return command_failed("stdout cannot be written");
  return code;
}
