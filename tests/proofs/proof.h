/* proof.h - one proof in its process: the subject that it opens, the verdict with which it ends, and what proofs share.
 */
#pragma once

#include "llama_decoder.h"
#include "seal.h"
#include "subject.h"

/* How often each proof replays; the longest of the decoders' texts takes each ring of the kernels of attention round
 * more than once. */
enum { ALLOCATION_REPLAYS = 100000, SYSTEM_CALL_REPLAYS = 20000, BITS_REPLAYS = 20000, BITS_REPLAYS_MOST = 100000 };
enum { SYSTEM_CALL_BATCH = 100, SYSTEM_CALL_REPLAYS_LEAST = 1000, SYSTEM_CALL_SECONDS = 5 };
enum {
  REPEATS = 500,
  SEALED_REPEATS = 50,
  SHAPE_REPLAYS = 500,
  MEMORY_REPLAYS = 200000,
  WARM_REPLAYS = 2000,
  PAGE_BYTES = 4096,
  SECONDS_MOST = 300
};
enum { TOKENS = 10000, TOKENS_LEAST = 100, REPLAYS_A_TOKEN = MEMORY_REPLAYS / TOKENS };
enum { TEXTS = 4, TEXT_TOKENS_MOST = TOKENS / TEXTS };

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

/* What the proof replays; open_subject opens it. */
extern struct subject subject;

/* Ends the proof's process with a verdict. */
__attribute__((noreturn, format(printf, 3, 4))) void conclude(const struct proof *proof, enum outcome outcome,
                                                              const char *format, ...);
/* FAILED, with the call's text, if the status is an error. */
void check(const struct proof *proof, rondo_status status, const char *what);
#define CHECK(call) check(proof, (call), #call)

void open_subject(const struct proof *proof, uint32_t host_threads, rondo_wait_mode wait_mode);
void close_subject(const struct proof *proof);
/* Sleeping, if threads have to share a busy core: there threads that yield wait longer for each other. */
rondo_wait_mode usual_wait_mode(const struct proof *proof);
double now_s(void);

/* Looks at every output, as a caller does, and adds it up in the byte at `user`: output_sum. */
bool read_outputs(void *user, const struct subject *s, rondo_slot slot);
extern unsigned char output_sum;

/* Decoders of one sequence and of several, which have kernels of their own. */
enum { DECODERS = 2 };
extern struct decoder decoders[DECODERS];
/* Opens decoder `index` in the subject's runtime. A repeat may have up to `repeat_steps` tokens; 0: no repeats. */
struct decoder *open_decoder(const struct proof *proof, int index, uint32_t repeat_steps);

/* The proofs. */
void replay_allocates_nothing(const struct proof *proof);
void any_shape_allocates_nothing(const struct proof *proof);
void decoding_allocates_nothing(const struct proof *proof);
void decoded_tokens_stay_the_same(const struct proof *proof);
void replay_makes_no_system_call(const struct proof *proof);
void answers_ask_for_nothing(const struct proof *proof);
void resident_replay_is_a_store(const struct proof *proof);
void ranks_ask_for_nothing(const struct proof *proof);
void nccl_ranks_ask_for_nothing(const struct proof *proof);
void memory_stays_flat(const struct proof *proof);
void bits_stay_the_same(const struct proof *proof);
