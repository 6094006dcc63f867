/* prove_allocations.c - a replay allocates nothing, asks neither a pool nor the driver for anything but its launch, and
 * makes no system call: of the subject, of graphs of any shape, and of a language model's decode. The traps first have
 * to see calls that are made on purpose. */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "allocations.h"
#include "forbidden.h"
#include "proof.h"
#include "shapes.h"

/* ---- replay_allocates_nothing ------------------------------------------------------------------------------------ */

/* The CUDA driver has a thread that allocates a little every 100 ms, replays or not: no more often than at rest. */
static bool is_as_at_rest(uint64_t calls, uint64_t calls_at_rest) { return calls <= 2 * calls_at_rest + 16; }

static void rest(double seconds) {
  struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&time, &time) && errno == EINTR) {}
}

/* The counters see what is called on purpose, and what instantiating and rebinding call. Leaves the subject open. */
static void show_the_counters(const struct proof *proof) {
  const char *unseen = allocations_unseen();
  if (!unseen) unseen = forbidden_unseen();
  if (unseen) conclude(proof, FAILED, "a call of %s on purpose was not counted", unseen);
  forbidden_count();
  open_subject(proof, 0, usual_wait_mode(proof));
  CHECK(subject_detour(&subject));
  forbidden_stop();
  const char *missed = forbidden_missed(proof->backend == RONDO_BACKEND_CUDA);
  if (missed) conclude(proof, FAILED, "%s was not counted while an exec was instantiated, rebound and closed", missed);
}

static void check_forbidden(const struct proof *proof, uint64_t calls, uint64_t replays) {
  char text[1024];
  forbidden_describe(text, sizeof text);
  if (calls) conclude(proof, FAILED, "%ju forbidden calls in %ju replays: %s", calls, replays, text);
  if (proof->backend == RONDO_BACKEND_CUDA && forbidden_launches() != replays)
    conclude(proof, FAILED, "%ju launches in %ju replays", forbidden_launches(), replays);
}

void replay_allocates_nothing(const struct proof *proof) {
  show_the_counters(proof);
  double begin = now_s();
  forbidden_count();
  allocations_count();
  rondo_status status = subject_replay(&subject, proof->replays, subject_touch, read_outputs, &output_sum);
  if (status == RONDO_OK) status = subject_repeat(&subject, REPEATS);
  struct allocations calls = allocations_stop(), at_rest = {0};
  uint64_t forbidden = forbidden_stop();
  double seconds = now_s() - begin, us = seconds * 1e6 / (double)proof->replays;
  check(proof, status, "replay");
  check_forbidden(proof, forbidden, proof->replays + REPEATS);
  char text[1024];
  allocations_describe(text, sizeof text);
  if (calls.ours) conclude(proof, FAILED, "%ju calls in %ju replays: %s", calls.ours, proof->replays, text);
  if (calls.foreign) {
    allocations_count();
    rest(seconds);
    at_rest = allocations_stop();
  }
  bool has_own_threads = proof->backend == RONDO_BACKEND_CUDA && !proof->verdict->is_fake;
  if (calls.foreign && (!has_own_threads || !is_as_at_rest(calls.foreign, at_rest.foreign)))
    conclude(proof, FAILED, "%ju calls by other threads in %ju replays, %ju in %.1f s of rest: %s", calls.foreign,
             proof->replays, at_rest.foreign, seconds, text);
  close_subject(proof);
  conclude(proof, PROVEN,
           "%ju replays and %d repeats, 0 calls of %d kinds, 0 forbidden ones of %d; the driver's own threads: %ju, "
           "%ju at rest; "
           "%.1f us each",
           proof->replays, REPEATS, ALLOCATION_CALL_COUNT, forbidden_kinds(proof->backend == RONDO_BACKEND_CUDA),
           calls.foreign, at_rest.foreign, us);
}

/* ---- any_shape_allocates_nothing --------------------------------------------------------------------------------- */

void any_shape_allocates_nothing(const struct proof *proof) {
  static const uint32_t widths[] = {1, 2, 3, 4, 5, 8, 16, 64};
  show_the_counters(proof); /* and open a runtime */
  int shapes = 0;
  for (int kind = 0; kind < SHAPE_KINDS; kind++)
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++, shapes++) {
      struct shape shape;
      char name[64], text[1024];
      shape_name(name, sizeof name, (enum shape_kind)kind, widths[w]);
      check(proof, shape_open(&shape, subject.runtime, (enum shape_kind)kind, widths[w]), name);
      forbidden_count();
      allocations_count();
      rondo_status status = shape_replay(&shape, proof->replays);
      struct allocations calls = allocations_stop();
      uint64_t forbidden = forbidden_stop();
      check(proof, status, name);
      check_forbidden(proof, forbidden, proof->replays);
      allocations_describe(text, sizeof text);
      if (calls.ours)
        conclude(proof, FAILED, "%s: %ju calls in %ju replays: %s", name, calls.ours, proof->replays, text);
      check(proof, shape_close(&shape), name);
    }
  close_subject(proof);
  conclude(proof, PROVEN, "%d shapes, %ju replays of each", shapes, proof->replays);
}

/* ---- decoding_allocates_nothing ---------------------------------------------------------------------------------- */

/* How many us a token took: one of each sequence. */
static double decode_and_count(const struct proof *proof, struct decoder *decoder) {
  char text[1024];
  double begin = now_s();
  forbidden_count();
  allocations_count();
  rondo_status status = decoder_replay(decoder, proof->tokens);
  struct allocations calls = allocations_stop();
  uint64_t forbidden = forbidden_stop();
  double seconds = now_s() - begin;
  check(proof, status, "replay");
  check_forbidden(proof, forbidden, proof->tokens);
  allocations_describe(text, sizeof text);
  if (calls.ours) conclude(proof, FAILED, "%ju calls in %ju tokens: %s", calls.ours, proof->tokens, text);
  const char *complaint;
  CHECK(decoder_check(decoder, proof->tokens, &complaint));
  if (complaint) conclude(proof, FAILED, "after %ju tokens %s", proof->tokens, complaint);
  return seconds * 1e6 / (double)proof->tokens;
}

void decoding_allocates_nothing(const struct proof *proof) {
  double us[DECODERS];
  show_the_counters(proof); /* and open a runtime */
  for (int i = 0; i < DECODERS; i++) {
    struct decoder *decoder = open_decoder(proof, i, 0);
    us[i] = decode_and_count(proof, decoder);
    CHECK(decoder_close(decoder));
  }
  close_subject(proof);
  conclude(proof, PROVEN, "%ju tokens of one sequence, %.1f us each, and of each of %d, %.1f us, in contexts of %d",
           proof->tokens, us[0], DECODER_SEQUENCES_MOST, us[1], decoders[0].context);
}

/* ---- replay_makes_no_system_call --------------------------------------------------------------------------------- */

static void ask_for_parent(void) { getppid(); }

static void read_clock(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
}

static void do_nothing(void) {}

struct sealed {
  uint64_t replays;
  double us; /* each */
};

/* Of a decoder; NULL: of the subject. On the host two threads that spin on one busy core take a time slice a replay:
 * then fewer have to do. */
static rondo_status replay_sealed(const struct proof *proof, struct decoder *decoder, uint64_t replays,
                                  struct sealed *done) {
  rondo_status status = RONDO_OK;
  bool is_enough = false;
  double begin = now_s(), seconds = 0;
  while (status == RONDO_OK && !is_enough && done->replays < replays) {
    uint64_t left = replays - done->replays, batch = left < SYSTEM_CALL_BATCH ? left : SYSTEM_CALL_BATCH;
    status = decoder ? decoder_replay(decoder, batch)
                     : subject_replay(&subject, batch, subject_touch, read_outputs, &output_sum);
    done->replays += batch;
    seconds = now_s() - begin;
    is_enough = proof->backend == RONDO_BACKEND_HOST && done->replays >= SYSTEM_CALL_REPLAYS_LEAST &&
                seconds > SYSTEM_CALL_SECONDS;
  }
  done->us = seconds * 1e6 / (double)done->replays;
  return status;
}

void replay_makes_no_system_call(const struct proof *proof) {
  struct breach *breach = &proof->verdict->breach;
  if (!survives_seal(do_nothing, breach)) conclude(proof, SKIPPED, "this system has no seccomp filters");
  if (survives_seal(ask_for_parent, breach)) conclude(proof, FAILED, "a getppid on purpose was not caught");
  if (!survives_seal(read_clock, breach)) {
    breach->number = -1;
    conclude(proof, SKIPPED, "the clock of this machine takes a system call (no vDSO)");
  }
  /* With two cores or fewer, a team of one: more threads that spin only wait for a core. */
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  open_subject(proof, cores > 2 ? 2 : 1, RONDO_WAIT_SPIN);
  CHECK(subject_replay(&subject, 1, subject_touch, read_outputs, &output_sum));
  const int decoder_count = proof->verdict->is_fake ? 0 : DECODERS;
  for (int i = 0; i < decoder_count; i++) open_decoder(proof, i, 0);
  if (!seal(breach)) conclude(proof, SKIPPED, "this system has no seccomp filters");
  struct sealed done = {0}, decoded[DECODERS] = {0};
  rondo_status status = replay_sealed(proof, NULL, proof->replays, &done);
  if (status == RONDO_OK) status = subject_repeat(&subject, SEALED_REPEATS);
  for (int i = 0; i < decoder_count && status == RONDO_OK; i++)
    status = replay_sealed(proof, &decoders[i], proof->tokens, &decoded[i]);
  check(proof, status, "replay");
  conclude(proof, PROVEN,
           "under seccomp %ju replays, %.1f us each, %d repeats, %ju tokens of one sequence, %.1f us, and %ju of each "
           "of %d, %.1f us",
           done.replays, done.us, SEALED_REPEATS, decoded[0].replays, decoded[0].us, decoded[1].replays,
           DECODER_SEQUENCES_MOST, decoded[1].us);
}
