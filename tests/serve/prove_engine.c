/* prove_engine.c - the replaying thread of the serve sample makes no system call and allocates nothing, while another
 * thread submits and cancels requests whose prompts begin alike. First a call and an allocation on purpose have to be
 * seen. Each part runs in a process of its own, since the thread under the seal cannot end. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../samples/sample.h"
#include "../proofs/allocations.h"
#include "../proofs/seal.h"
#include "../samples/small_engine.h"

enum { RECORDS = 12, TOKENS = 10000, PLANTED_TOKENS = 200, SECONDS_MOST = 120 };
enum plant { NOTHING, SYSTEM_CALL, ALLOCATION };
enum status { PROVEN, BROKEN, UNUSABLE };

/* What the processes share. */
struct verdict {
  struct breach breach;
  uint64_t allocations, answered, reused, cancelled;
  char text[1024]; /* of the allocations */
};
static struct verdict *verdict;

static struct small_engine small;
static struct small_request records[RECORDS];
static enum plant planted;
static atomic_bool sealed, ended, is_unusable;

/* ---- The replaying thread ---------------------------------------------------------------------------------------- */

_Noreturn static void *replay(void *user) {
  struct engine *engine = user;
  /* A thread's first allocation also makes system calls. */
  if (planted != ALLOCATION && !seal(&verdict->breach)) atomic_store(&is_unusable, true);
  atomic_store(&sealed, true);
  for (uint64_t round = 0; engine_round(engine); round++) {
    if (engine->metrics.answered_tokens < PLANTED_TOKENS / 2) continue;
    if (planted == SYSTEM_CALL) getppid();
    if (planted == ALLOCATION) free(*(void *volatile[]){malloc(64)});
    if (planted != NOTHING) planted = NOTHING;
  }
  atomic_store(&ended, true);
  for (;;) __builtin_ia32_pause(); /* the end of a thread is a system call */
}

/* ---- The other one ----------------------------------------------------------------------------------------------- */

/* Waits without a share of the processor, which may be the replaying thread's. */
static void pause_shortly(void) { nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); }

static void submit(struct small_request *record) {
  static int32_t number;
  const int32_t kind = number++ * 7 % SMALL_KINDS;
  small_request_fill(record, kind, 1 + number * 5 % SMALL_ANSWER_MOST);
  if (number % 9 == 0) record->request.deadline_ns = record->request.submitted_ns + 1000000;
  engine_submit(&small.engine, &record->request);
}

static void talk(uint64_t tokens) {
  static bool submitted[RECORDS];
  for (uint64_t look = 0; small.engine.metrics.answered_tokens < tokens; look++) {
    for (int i = 0; i < RECORDS; i++)
      if (!submitted[i] || atomic_load(&records[i].request.end) != END_NONE) {
        submit(&records[i]);
        submitted[i] = true;
      } else if ((look + (uint64_t)i * 29) % 400 == 399) {
        atomic_store(&records[i].request.cancelled, true);
      }
    pause_shortly();
  }
  atomic_store(&small.engine.stopping, true);
  while (!atomic_load(&ended)) pause_shortly();
}

/* With two cores or fewer, a team of one: more threads that spin only wait for a core. */
_Noreturn static void run(uint64_t tokens, int32_t lanes) {
  const int32_t threads = sysconf(_SC_NPROCESSORS_ONLN) > 2 ? 2 : 1;
  alarm(SECONDS_MOST);
  small_engine_open(
      &small,
      &(struct model_options){.sequences = 6, .lanes = lanes, .pages = 16, .threads = threads * lanes, .spins = true},
      RECORDS, true);
  model_warm_up(&small.model); /* as engine_open does on a GPU */
  if (pthread_create(&small.engine.thread, NULL, replay, &small.engine)) _exit(UNUSABLE);
  while (!atomic_load(&sealed)) pause_shortly();
  if (atomic_load(&is_unusable)) _exit(UNUSABLE);
  allocations_count();
  talk(tokens);
  verdict->allocations = allocations_stop().ours;
  allocations_describe(verdict->text, sizeof verdict->text);
  const struct engine_metrics *metrics = &small.engine.metrics;
  verdict->answered = metrics->answered_tokens;
  verdict->reused = metrics->reused_tokens;
  verdict->cancelled = metrics->cancelled;
  _exit(PROVEN);
}

/* ---- Processes --------------------------------------------------------------------------------------------------- */

/* The wait status of a child that runs the engine. */
static int run_apart(enum plant plant, uint64_t tokens, int32_t lanes) {
  *verdict = (struct verdict){.breach = {.number = -1}};
  planted = plant;
  const pid_t child = fork();
  if (child == 0) run(tokens, lanes);
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

static void read_clock(void) { clock_ns(); }

static int fail(const char *sentence) {
  printf("FAILED %s\n", sentence);
  return 1;
}

int main(void) {
  verdict = mmap(NULL, sizeof *verdict, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (verdict == MAP_FAILED) return fail("no memory to share");
  if (!survives_seal(read_clock, &verdict->breach)) {
    puts("skipped: this system has no seccomp filters, or its clock takes a system call");
    return 0;
  }
  run_apart(SYSTEM_CALL, PLANTED_TOKENS, 1);
  if (verdict->breach.number < 0) return fail("a getppid on purpose was not caught");
  if (run_apart(ALLOCATION, PLANTED_TOKENS, 1) != 0) return fail("an allocation on purpose ended the process");
  if (verdict->allocations < 2) return fail("an allocation on purpose, and its end, were not counted");
  for (int32_t lanes = 1; lanes <= 2; lanes++) {
    const int status = run_apart(NOTHING, lanes == 1 ? TOKENS : TOKENS / 4, lanes);
    if (verdict->breach.number >= 0) return fail(verdict->breach.text);
    if (status != 0) return fail("the engine did not end in time, or not well");
    if (verdict->allocations) return fail(verdict->text);
    if (!verdict->reused || !verdict->cancelled) return fail("no tokens in the caches, or no cancelled requests");
    printf(
        "ok %ju tokens in %d lane%s, 0 system calls, 0 calls of %d kinds that allocate; %ju cancelled, %ju tokens of "
        "prompts in the caches\n",
        verdict->answered, lanes, lanes == 1 ? "" : "s", ALLOCATION_CALL_COUNT, verdict->cancelled, verdict->reused);
  }
  return 0;
}
