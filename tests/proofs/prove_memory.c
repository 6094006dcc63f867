/* prove_memory.c - memory stays flat: replays after replays, the process has no more resident pages. The measure first
 * has to see two pages that leak on purpose. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proof.h"

struct memory {
  long resident_kb, faults;
};

/* The kernel's counters behind statm are per core and run late by megabytes; smaps_rollup walks the page tables. */
static long read_resident_kb(void) {
  static char text[4096];
  const char *line = NULL;
  int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = 0;
  if ((line = strstr(text, "\nRss:"))) return strtol(line + 5, NULL, 10);
  file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = 0;
  line = strchr(text, ' ');
  return line ? strtol(line, NULL, 10) * (sysconf(_SC_PAGESIZE) / 1024) : -1;
}

static struct memory memory_now(void) {
  struct rusage usage;
  struct memory memory = {.resident_kb = read_resident_kb()};
  getrusage(RUSAGE_SELF, &usage);
  memory.faults = usage.ru_minflt;
  return memory;
}

/* A first touch of a page of code maps the 64 KB around it: a few of those are no leak. */
enum { SEGMENTS = 10, GROWTH_KB_MOST = 192, FAULTS_MOST = GROWTH_KB_MOST * 1024 / PAGE_BYTES };

/* Is there growth in these samples, or does it seem to go on, however slowly? */
static bool grows(const struct memory *samples) {
  int rises = 0;
  for (int i = 0; i < SEGMENTS; i++) rises += samples[i + 1].resident_kb > samples[i].resident_kb;
  return rises >= SEGMENTS / 2 || samples[SEGMENTS].resident_kb - samples[0].resident_kb > GROWTH_KB_MOST ||
         samples[SEGMENTS].faults - samples[0].faults > FAULTS_MOST;
}

/* Two pages a segment leaked on purpose. */
static bool notices_a_leak(void) {
  struct memory samples[SEGMENTS + 1];
  size_t bytes = (size_t)2 * SEGMENTS * PAGE_BYTES;
  unsigned char *leak = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (leak == MAP_FAILED) return false;
  madvise(leak, bytes, MADV_NOHUGEPAGE);
  memory_now();
  for (int i = 0; i <= SEGMENTS; i++) {
    samples[i] = memory_now();
    if (i < SEGMENTS) memset(leak + (size_t)2 * PAGE_BYTES * (size_t)i, 1, (size_t)2 * PAGE_BYTES);
  }
  munmap(leak, bytes);
  return grows(samples);
}

void memory_stays_flat(const struct proof *proof) {
  if (read_resident_kb() < 0) conclude(proof, SKIPPED, "no /proc");
  if (!notices_a_leak()) conclude(proof, FAILED, "a leak on purpose was not noticed");
  open_subject(proof, 0, usual_wait_mode(proof));
  uint64_t segment = proof->replays / SEGMENTS;
  uint64_t warm = segment > WARM_REPLAYS ? segment : WARM_REPLAYS;
  CHECK(subject_replay(&subject, warm, subject_touch, read_outputs, &output_sum));
  struct memory samples[SEGMENTS + 1];
  memory_now();
  samples[0] = memory_now();
  double begin = now_s();
  for (int i = 0; i < SEGMENTS; i++) {
    CHECK(subject_replay(&subject, segment, subject_touch, read_outputs, &output_sum));
    samples[i + 1] = memory_now();
  }
  double us = (now_s() - begin) * 1e6 / (double)(segment * SEGMENTS);
  close_subject(proof);
  if (grows(samples)) {
    char text[512];
    int used = 0;
    for (int i = 0; i <= SEGMENTS && used < (int)sizeof text - 48; i++)
      used += snprintf(text + used, sizeof text - (size_t)used, " %ld (%ld)", samples[i].resident_kb,
                       samples[i].faults - samples[0].faults);
    conclude(proof, FAILED, "resident KB (page faults) after every %ju replays:%s", segment, text);
  }
  conclude(proof, PROVEN, "%ju replays, %ld KB resident, %+ld KB, %ld page faults, %.1f us each", segment * SEGMENTS,
           samples[0].resident_kb, samples[SEGMENTS].resident_kb - samples[0].resident_kb,
           samples[SEGMENTS].faults - samples[0].faults, us);
}
