/* rondo.c - the main function of the command `rondo`: calls info, explain, plan, profile or bench. docs/rondo.1 is the
 * manual. */
#include <string.h>

#include "../runtime/text.h"
#include "command.h"

static const struct {
  const char *name, *about;
  int (*run)(int count, char **words);
} commands[] = {
    {"info", "shows the devices of this machine, and the one that graphs run on by default", command_info},
    {"explain", "shows the kernels of a ready-made graph", command_explain},
    {"plan", "shows the memory of a ready-made graph, and draws it", command_plan},
    {"profile", "measures each task of a ready-made graph on this machine", command_profile},
    {"bench", "measures replays, kernels, a language model, planning and uploads", command_bench},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *file) {
  fputs(
      "usage: rondo COMMAND [ARGUMENT]...\n"
      "       rondo --help | --version\n\n"
      "Rondo is a static runtime for GPU task graphs. This command shows the devices that it finds, and the kernels,\n"
      "memory and times of graphs.\n\n",
      file);
  for (int i = 0; i < COMMANDS; i++) fprintf(file, "  %-10s%s\n", commands[i].name, commands[i].about);
  fputs(
      "\nrondo COMMAND --help shows the options of a command.\n\n"
      "Exit status: 0 success, 1 failure, 2 wrong usage, 3 a figure of bench missed its limit. The reason of 1 and 2\n"
      "is on standard error.\n",
      file);
}

static int wrong_command(const char *word) {
  fputs("rondo: the command is '", stderr);
  text_write(stderr, word, "");
  fputs("', expected ", stderr);
  for (int i = 0; i < COMMANDS; i++)
    fprintf(stderr, "%s%s", !i ? "" : i + 1 < COMMANDS ? ", " : " or ", commands[i].name);
  fputs("; see rondo --help\n", stderr);
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
  if (count > 1) return arguments_wrong("rondo", "unexpected argument '%s'", words[1]);
  if (wants_version)
    printf("rondo %s, ABI %u\n", RONDO_VERSION_STRING, RONDO_ABI_VERSION);
  else
    print_help(stdout);
  return EXIT_OK;
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0); /* a long command's lines appear one by one, in a pipe too */
  int code = run(count - 1, words + 1);
  if ((fflush(stdout) || ferror(stdout)) && code == EXIT_OK) return command_failed("stdout cannot be written");
  return code;
}
