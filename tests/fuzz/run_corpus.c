/* run_corpus.c - the main function of a fuzzer that searches nothing: it runs each input in the folders it is given
 * once. So the corpus needs neither libFuzzer nor a second build of the library. An input that fails, takes more than a
 * minute or crashes ends the program, which names the input. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS = 60, PATH_BYTES = 4096 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static char path[PATH_BYTES]; /* of the input that runs */

/* For signals: it calls nothing that may wait for a lock. */
static void name_input(int signal_number) {
  static const char what[] = "\nthe input is ";
  if (write(STDERR_FILENO, what, sizeof what - 1) < 0 || write(STDERR_FILENO, path, strlen(path)) < 0 ||
      write(STDERR_FILENO, "\n", 1) < 0)
    _exit(2);
  if (signal_number) _exit(1);
}

/* The sanitizers call what it is given after a report. NULL in a program without them. */
/* NOLINTNEXTLINE(bugprone-reserved-identifier) */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));
static void name_input_of_report(void) { name_input(0); }

static void fail(const char *what) {
  fprintf(stderr, "run_corpus: %s: ", what);
  perror(path);
  exit(1);
}

/* The bytes are in a block of exactly their size, so that nobody reads beyond them. */
static void run_file(void) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END) != 0) fail("cannot open");
  const long count = ftell(file);
  uint8_t *bytes = count >= 0 ? malloc((size_t)count) : NULL;
  if (!bytes && count != 0) fail("cannot hold");
  rewind(file);
  if (fread(bytes, 1, (size_t)count, file) != (size_t)count) fail("cannot read");
  fclose(file);
  alarm(SECONDS);
  LLVMFuzzerTestOneInput(bytes, (size_t)count);
  alarm(0);
  free(bytes);
}

static int run_folder(const char *folder) {
  int count = 0;
  DIR *open = opendir(folder);
  snprintf(path, sizeof path, "%s", folder);
  if (!open) fail("cannot open");
  for (const struct dirent *entry; (entry = readdir(open));) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    run_file();
    count++;
  }
  closedir(open);
  return count;
}

int main(int argc, char **argv) {
  int count = 0;
  signal(SIGALRM, name_input);
  signal(SIGABRT, name_input);
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(name_input_of_report);
  LLVMFuzzerInitialize(&argc, &argv);
  for (int i = 1; i < argc; i++) count += run_folder(argv[i]);
  if (count == 0) {
    fprintf(stderr, "usage: %s FOLDER ...\nruns each file of the folders\n", argv[0]);
    return 2;
  }
  printf("%s: %d inputs\n", argv[0], count);
  return 0;
}
