/* proofs.c - what rondo.h promises of a replay, shown by observation from outside: that it allocates nothing (and asks
 * neither a pool nor the driver for anything but its launch), makes no system call, lets memory stay flat and gives the
 * same bits each time. Every proof first shows that it can fail. On the host, on a GPU, and on the fake driver.
 *
 * Each runs in a process of its own, forked before any runtime is opened, since CUDA does not survive fork. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../command/arguments.h"
#include "allocations.h"
#include "fake_device.h"
#include "forbidden.h"
#include "llama_decoder.h"
#include "seal.h"
#include "shapes.h"
#include "subject.h"

enum { ALLOCATION_REPLAYS = 100000, SYSTEM_CALL_REPLAYS = 20000, BITS_REPLAYS = 20000, BITS_REPLAYS_MOST = 100000 };
enum { SYSTEM_CALL_BATCH = 100, SYSTEM_CALL_REPLAYS_LEAST = 1000, SYSTEM_CALL_SECONDS = 5 };
enum { SHAPE_REPLAYS = 500, MEMORY_REPLAYS = 200000, WARM_REPLAYS = 2000, PAGE_BYTES = 4096, SECONDS_MOST = 300 };
/* Of each decoder; a text is generated at least so many times. The longest takes each ring of the kernels of attention
 * round more than once. */
enum { TOKENS = 10000, TOKENS_LEAST = 100, REPLAYS_A_TOKEN = MEMORY_REPLAYS / TOKENS };
enum { TEXTS = 4, TEXT_TOKENS_MOST = TOKENS / TEXTS };

enum { ONLY_HOST = 1, ONLY_CUDA };

struct options {
  int32_t backend; /* one of them; 0: the host, and CUDA if it is there */
  int64_t replays; /* 0: the defaults */
};

enum outcome { UNSAID, PROVEN, FAILED, SKIPPED };

/* In memory shared by the proof's process and its parent. */
struct verdict {
  enum outcome outcome;
  bool is_fake; /* the driver */
  char text[2048];
  struct breach breach;
};

struct proof {
  rondo_backend backend;
  enum ending ending;
  uint64_t replays, tokens;
  struct verdict *verdict;
};

static struct subject subject;

/* ---- Verdicts, in the proof's process ---------------------------------------------------------------------------- */

__attribute__((noreturn, format(printf, 3, 4))) static void conclude(const struct proof *proof, enum outcome outcome,
                                                                     const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(proof->verdict->text, sizeof proof->verdict->text, format, arguments);
  va_end(arguments);
  proof->verdict->outcome = outcome;
  _exit(0);
}

static void check(const struct proof *proof, rondo_status status, const char *what) {
  if (status == RONDO_OK) return;
  conclude(proof, FAILED, "%s: %s: %s", what, rondo_status_name(status), rondo_error_text());
}
#define CHECK(call) check(proof, (call), #call)

static void open_subject(const struct proof *proof, uint32_t host_threads, rondo_wait_mode wait_mode) {
  proof->verdict->is_fake = proof->backend == RONDO_BACKEND_CUDA && fake_device_prepare();
  rondo_status status = subject_open(&subject, proof->ending, proof->backend, host_threads, wait_mode);
  if (status == RONDO_NO_DEVICE) conclude(proof, SKIPPED, "%s", rondo_error_text());
  check(proof, status, "opening the subject");
  if (proof->backend == RONDO_BACKEND_CUDA && !subject_ends_as_meant(&subject))
    conclude(proof, FAILED, "completion is not published where it was meant to be");
}

static void close_subject(const struct proof *proof) {
  CHECK(subject_close(&subject));
  const char *complaint = fake_device_complaint();
  if (complaint) conclude(proof, FAILED, "a real driver would not forgive: %s", complaint);
}

/* Where threads have to share a busy core, those that yield wait longer for each other than those that sleep. */
static rondo_wait_mode usual_wait_mode(const struct proof *proof) {
  bool is_narrow = proof->backend == RONDO_BACKEND_HOST && sysconf(_SC_NPROCESSORS_ONLN) <= 2;
  return is_narrow ? RONDO_WAIT_BLOCK : RONDO_WAIT_SPIN_YIELD;
}

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Looks at every output, as a caller would. */
static bool read_outputs(void *user, const struct subject *s, rondo_slot slot) {
  volatile unsigned char *sum = user;
  for (int i = 0; i < OUTPUTS; i++) {
    const unsigned char *data = rondo_data(slot, s->outputs[i]);
    for (uint64_t at = 0; at < s->output_bytes[i]; at += 64) *sum ^= data[at];
  }
  return true;
}

static unsigned char output_sum;

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

static void replay_allocates_nothing(const struct proof *proof) {
  show_the_counters(proof);
  double begin = now_s();
  forbidden_count();
  allocations_count();
  rondo_status status = subject_replay(&subject, proof->replays, subject_touch, read_outputs, &output_sum);
  struct allocations calls = allocations_stop(), at_rest = {0};
  uint64_t forbidden = forbidden_stop();
  double seconds = now_s() - begin, us = seconds * 1e6 / (double)proof->replays;
  check(proof, status, "replay");
  check_forbidden(proof, forbidden, proof->replays);
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
           "%ju replays, 0 calls of %d kinds, 0 forbidden ones of %d; the driver's own threads: %ju, %ju at rest; "
           "%.1f us each",
           proof->replays, ALLOCATION_CALL_COUNT, forbidden_kinds(proof->backend == RONDO_BACKEND_CUDA), calls.foreign,
           at_rest.foreign, us);
}

/* ---- any_shape_allocates_nothing --------------------------------------------------------------------------------- */

static void any_shape_allocates_nothing(const struct proof *proof) {
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

/* ---- decoding_allocates_nothing, decoded_tokens_stay_the_same ---------------------------------------------------- */

/* One sequence and several have kernels of their own. */
static const int32_t sequence_counts[] = {1, DECODER_SEQUENCES_MOST};
enum { DECODERS = sizeof sequence_counts / sizeof *sequence_counts };
static struct decoder decoders[DECODERS];

/* Beside the subject, whose runtime it shares. */
static struct decoder *open_decoder(const struct proof *proof, int index) {
  if (proof->verdict->is_fake) conclude(proof, SKIPPED, "the fake driver has not all its kernels");
  CHECK(decoder_open(&decoders[index], subject.runtime, proof->backend, sequence_counts[index]));
  if (!decoder_is_in_halves(&decoders[index])) conclude(proof, FAILED, "a half of a decoder's layer is no kernel");
  return &decoders[index];
}

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

static void decoding_allocates_nothing(const struct proof *proof) {
  double us[DECODERS];
  show_the_counters(proof); /* and open a runtime */
  for (int i = 0; i < DECODERS; i++) {
    struct decoder *decoder = open_decoder(proof, i);
    us[i] = decode_and_count(proof, decoder);
    CHECK(decoder_close(decoder));
  }
  close_subject(proof);
  conclude(proof, PROVEN, "%ju tokens of one sequence, %.1f us each, and of each of %d, %.1f us, in contexts of %d",
           proof->tokens, us[0], DECODER_SEQUENCES_MOST, us[1], decoders[0].context);
}

/* The same text again and again. */
static void compare_texts(const struct proof *proof, struct decoder *decoder, uint64_t texts, uint64_t text_tokens) {
  static int32_t first[TEXT_TOKENS_MOST][DECODER_SEQUENCES_MOST];
  const size_t bytes = (size_t)decoder->sequences * sizeof *first[0];
  int changes = 0;
  for (uint64_t text = 0; text < texts; text++) {
    CHECK(decoder_restart(decoder));
    for (uint64_t t = 0; t < text_tokens; t++) {
      CHECK(decoder_replay(decoder, 1));
      if (!text) memcpy(first[t], decoder_tokens(decoder), bytes);
      if (memcmp(first[t], decoder_tokens(decoder), bytes) != 0)
        conclude(proof, FAILED, "decoder of %d, text %ju: token %ju differs", decoder->sequences, text, t);
      changes += t > 0 && memcmp(first[t], first[t - 1], bytes) != 0;
    }
  }
  if (!changes) conclude(proof, FAILED, "all tokens are the same: nothing is fed back");
}

static void decoded_tokens_stay_the_same(const struct proof *proof) {
  uint64_t text_tokens = proof->tokens / TEXTS < TEXT_TOKENS_MOST ? proof->tokens / TEXTS : TEXT_TOKENS_MOST;
  uint64_t texts = proof->tokens / text_tokens;
  open_subject(proof, 0, usual_wait_mode(proof));
  for (int i = 0; i < DECODERS; i++) {
    struct decoder *decoder = open_decoder(proof, i);
    compare_texts(proof, decoder, texts, text_tokens);
    CHECK(decoder_close(decoder));
  }
  close_subject(proof);
  conclude(proof, PROVEN, "%ju times %ju tokens of one sequence, and of each of %d", texts, text_tokens,
           DECODER_SEQUENCES_MOST);
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

static void replay_makes_no_system_call(const struct proof *proof) {
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
  for (int i = 0; i < decoder_count; i++) open_decoder(proof, i);
  if (!seal(breach)) conclude(proof, SKIPPED, "this system has no seccomp filters");
  struct sealed done = {0}, decoded[DECODERS] = {0};
  rondo_status status = replay_sealed(proof, NULL, proof->replays, &done);
  for (int i = 0; i < decoder_count && status == RONDO_OK; i++)
    status = replay_sealed(proof, &decoders[i], proof->tokens, &decoded[i]);
  check(proof, status, "replay");
  conclude(
      proof, PROVEN,
      "under seccomp %ju replays, %.1f us each, %ju tokens of one sequence, %.1f us, and %ju of each of %d, %.1f us",
      done.replays, done.us, decoded[0].replays, decoded[0].us, decoded[1].replays, DECODER_SEQUENCES_MOST,
      decoded[1].us);
}

/* ---- memory_stays_flat ------------------------------------------------------------------------------------------- */

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

static void memory_stays_flat(const struct proof *proof) {
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

/* ---- bits_stay_the_same ------------------------------------------------------------------------------------------ */

struct bits {
  bool has_reference;
  uint64_t compared[SLOTS];
  int output; /* of the difference */
  uint64_t offset;
  uint32_t slot;
  unsigned char reference[OUTPUTS][OUTPUT_BYTES_MOST];
};

static bool compare_outputs(void *user, const struct subject *s, rondo_slot slot) {
  struct bits *bits = user;
  for (int i = 0; i < OUTPUTS; i++) {
    const unsigned char *data = rondo_data(slot, s->outputs[i]);
    uint64_t bytes = s->output_bytes[i];
    if (!bits->has_reference) memcpy(bits->reference[i], data, bytes);
    if (!memcmp(bits->reference[i], data, bytes)) continue;
    bits->output = i;
    bits->slot = slot.index;
    for (bits->offset = 0; bits->reference[i][bits->offset] == data[bits->offset];) bits->offset++;
    return false;
  }
  bits->has_reference = true;
  bits->compared[slot.index]++;
  return true;
}

/* The inputs anew, and in the outputs what no task left there. */
static void fill_and_spoil(const struct subject *s, rondo_slot slot) {
  subject_fill(s, slot);
  for (int i = 0; i < OUTPUTS; i++) memset(rondo_data(slot, s->outputs[i]), 0xa5, s->output_bytes[i]);
}

static void fill_but_one_bit(const struct subject *s, rondo_slot slot) {
  fill_and_spoil(s, slot);
  uint16_t *large = rondo_data(slot, s->large);
  large[LARGE_ROWS * SMALL_COUNT - 1] ^= 1;
}

static void bits_stay_the_same(const struct proof *proof) {
  static struct bits bits;
  open_subject(proof, 0, usual_wait_mode(proof));
  for (int i = 0; i < OUTPUTS; i++)
    if (subject.output_bytes[i] > OUTPUT_BYTES_MOST) conclude(proof, FAILED, "output %d is too large", i);
  /* Once without comparing: the state is still zero. */
  CHECK(subject_replay(&subject, 1, fill_and_spoil, read_outputs, &output_sum));
  double begin = now_s();
  rondo_status status = subject_replay(&subject, proof->replays, fill_and_spoil, compare_outputs, &bits);
  if (status == RONDO_INTERNAL)
    conclude(proof, FAILED, "replay %ju, slot %u: output %d differs from byte %ju on",
             bits.compared[0] + bits.compared[1], bits.slot, bits.output, bits.offset);
  check(proof, status, "replay");
  double us = (now_s() - begin) * 1e6 / (double)proof->replays;
  if (bits.compared[0] + bits.compared[1] != proof->replays || bits.compared[0] < proof->replays / 2)
    conclude(proof, FAILED, "compared %ju and %ju replays of the slots", bits.compared[0], bits.compared[1]);
  if (subject_replay(&subject, 1, fill_but_one_bit, compare_outputs, &bits) != RONDO_INTERNAL)
    conclude(proof, FAILED, "another input did not change the outputs");
  uint64_t bytes = 0;
  for (int i = 0; i < OUTPUTS; i++) bytes += subject.output_bytes[i];
  close_subject(proof);
  conclude(proof, PROVEN, "%ju replays, %ju and %ju in the slots, %ju bytes of outputs, %.1f us each", proof->replays,
           bits.compared[0], bits.compared[1], bytes, us);
}

/* ---- One after the other ----------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  void (*prove)(const struct proof *proof);
  uint64_t replays;
  enum ending ending;
} proofs[] = {{"replay_allocates_nothing", replay_allocates_nothing, ALLOCATION_REPLAYS, ENDS_IN_BLOCKS},
              {"any_shape_allocates_nothing", any_shape_allocates_nothing, SHAPE_REPLAYS, ENDS_IN_BLOCKS},
              {"decoding_allocates_nothing", decoding_allocates_nothing, 0, ENDS_IN_BLOCKS},
              {"decoded_tokens_stay_the_same", decoded_tokens_stay_the_same, 0, ENDS_IN_BLOCKS},
              {"replay_makes_no_system_call", replay_makes_no_system_call, SYSTEM_CALL_REPLAYS, ENDS_IN_A_NODE},
              {"memory_stays_flat", memory_stays_flat, MEMORY_REPLAYS, ENDS_IN_A_NODE},
              {"bits_stay_the_same", bits_stay_the_same, BITS_REPLAYS, ENDS_IN_BLOCKS}};
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
  if (outcome == SKIPPED && is_cuda && !verdict->is_fake && options->backend == ONLY_CUDA) outcome = FAILED;
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
