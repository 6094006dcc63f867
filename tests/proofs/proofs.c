/* proofs.c - shows from outside what rondo.h promises of a replay, on the host, on a GPU and on the fake driver. Each
 * proof first shows that it can fail. It runs in a process of its own, which is forked before a runtime is opened,
 * since CUDA does not survive fork. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../command/arguments.h"
#include "proof.h"

enum { ONLY_HOST = 1, ONLY_CUDA };

struct options {
  int32_t backend; /* one of them; 0: the host, and CUDA if it is there */
  int64_t replays; /* 0: the defaults */
  const char *only;
};

/* ---- One after the other ----------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  void (*prove)(const struct proof *proof);
  uint64_t replays;
  enum ending ending;
  bool may_be_skipped; /* on a GPU too */
} proofs[] = {{"replay_allocates_nothing", replay_allocates_nothing, ALLOCATION_REPLAYS, ENDS_IN_BLOCKS, false},
              {"any_shape_allocates_nothing", any_shape_allocates_nothing, SHAPE_REPLAYS, ENDS_IN_BLOCKS, false},
              {"decoding_allocates_nothing", decoding_allocates_nothing, 0, ENDS_IN_BLOCKS, false},
              {"decoded_tokens_stay_the_same", decoded_tokens_stay_the_same, 0, ENDS_IN_BLOCKS, false},
              {"replay_makes_no_system_call", replay_makes_no_system_call, SYSTEM_CALL_REPLAYS, ENDS_IN_A_NODE, false},
              {"answers_ask_for_nothing", answers_ask_for_nothing, 0, ENDS_IN_BLOCKS, false},
              {"resident_replay_is_a_store", resident_replay_is_a_store, ALLOCATION_REPLAYS, ENDS_IN_BLOCKS, false},
              {"ranks_ask_for_nothing", ranks_ask_for_nothing, SYSTEM_CALL_REPLAYS, ENDS_IN_BLOCKS, false},
              {"nccl_ranks_ask_for_nothing", nccl_ranks_ask_for_nothing, SYSTEM_CALL_REPLAYS, ENDS_IN_BLOCKS, true},
              {"memory_stays_flat", memory_stays_flat, MEMORY_REPLAYS, ENDS_IN_A_NODE, false},
              {"bits_stay_the_same", bits_stay_the_same, BITS_REPLAYS, ENDS_IN_BLOCKS, false}};
enum { PROOFS = sizeof proofs / sizeof *proofs };

static uint64_t replays_of(size_t index, const struct options *options) {
  if (!options->replays) return proofs[index].replays;
  uint64_t half = (uint64_t)options->replays / 2;
  if (proofs[index].prove == bits_stay_the_same) return half < BITS_REPLAYS_MOST ? half : BITS_REPLAYS_MOST;
  return proofs[index].prove == memory_stays_flat ? (uint64_t)options->replays : proofs[index].replays;
}

static uint64_t tokens_of(const struct options *options) {
  uint64_t tokens = (uint64_t)options->replays / REPLAYS_A_TOKEN;
  if (!options->replays) return TOKENS;
  return tokens > TOKENS_LEAST ? tokens : TOKENS_LEAST;
}

static void run_in_child(size_t index, const struct proof *proof) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(SECONDS_MOST + (unsigned)(proof->replays / 2000 + proof->tokens / 100));
  proofs[index].prove(proof);
  _exit(1);
}

/* The outcome, with verdict->text. */
static enum outcome judge(struct verdict *verdict, int status) {
  if (verdict->outcome == UNSAID && verdict->breach.number >= 0)
    snprintf(verdict->text, sizeof verdict->text, "%s", verdict->breach.text);
  else if (WIFSIGNALED(status))
    snprintf(verdict->text, sizeof verdict->text, "%s",
             WTERMSIG(status) == SIGALRM ? "took too long" : strsignal(WTERMSIG(status)));
  else if (verdict->outcome == UNSAID)
    snprintf(verdict->text, sizeof verdict->text, "ended with status %d and no verdict", WEXITSTATUS(status));
  else
    return verdict->outcome;
  return FAILED;
}

static bool run_proof(size_t index, const struct options *options, rondo_backend backend, struct verdict *verdict) {
  if (options->only && !strstr(proofs[index].name, options->only)) return true;
  *verdict = (struct verdict){.breach = {.number = -1}};
  struct proof proof = {backend, proofs[index].ending, replays_of(index, options), tokens_of(options), verdict};
  pid_t child = fork();
  if (child == 0) run_in_child(index, &proof);
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  enum outcome outcome = FAILED;
  if (child > 0)
    outcome = judge(verdict, status);
  else
    snprintf(verdict->text, sizeof verdict->text, "fork: %s", strerror(errno));
  bool is_cuda = backend == RONDO_BACKEND_CUDA;
  if (outcome == SKIPPED && !proofs[index].may_be_skipped && is_cuda && !verdict->is_fake &&
      options->backend == ONLY_CUDA)
    outcome = FAILED;
  const char *name = proofs[index].name, *on = !is_cuda ? "host" : verdict->is_fake ? "fake" : "cuda";
  if (outcome == PROVEN)
    printf("ok %s.%s (%s)\n", name, on, verdict->text);
  else
    printf("%s %s.%s: %s\n", outcome == SKIPPED ? "skipped" : "FAILED", name, on, verdict->text);
  return outcome != FAILED;
}

/* ---- Command line ------------------------------------------------------------------------------------------------ */

static const struct choice backends[] = {{"host", ONLY_HOST}, {"cuda", ONLY_CUDA}, {NULL, 0}};

static const struct argument arguments[] = {
    {.name = "backend",
     .help = "only this one, and cuda must be there; default host, and cuda if there is one",
     .kind = VALUE_CHOICE,
     .offset = offsetof(struct options, backend),
     .choices = backends},
    {.name = "replays",
     .help = "that watch memory, default 200000; half as many compare bits, a twentieth decode tokens",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, replays),
     .least = 100,
     .most = 1e9},
    {.name = "only",
     .help = "proofs with this text in their name",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, only),
     .value_name = "TEXT"},
};

static const struct grammar grammar = {.program = "proofs",
                                       .about = "Shows that replays allocate nothing, ask neither a pool nor the "
                                                "driver for anything but their one launch, make\n"
                                                "no system call, keep memory flat and give the same bits. With the "
                                                "fake driver's folder in LD_LIBRARY_PATH, cuda\n"
                                                "is the fake, and is called so.\n",
                                       .status = "Exit status: 0 none failed, 1 some failed, 2 wrong usage.",
                                       .options = ARGUMENT_TABLE(arguments)};

int main(int count, char **words) {
  struct options options = {0};
  int done = arguments_read(&grammar, count - 1, words + 1, &options, NULL);
  if (done != ARGUMENTS_READ) return done;
  struct verdict *verdict = mmap(NULL, sizeof *verdict, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (verdict == MAP_FAILED) return fprintf(stderr, "no shared memory\n"), 1;
  setvbuf(stdout, NULL, _IOLBF, 0);
  bool all = true;
  for (size_t i = 0; options.backend != ONLY_CUDA && i < PROOFS; i++)
    all &= run_proof(i, &options, RONDO_BACKEND_HOST, verdict);
  for (size_t i = 0; options.backend != ONLY_HOST && i < PROOFS; i++)
    all &= run_proof(i, &options, RONDO_BACKEND_CUDA, verdict);
  return all ? 0 : 1;
}
