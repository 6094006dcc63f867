/* prove_answers.c - an answer of 2000 tokens in one repeat, each token read as it comes: one launch, no allocation, no
 * system call, and the tokens of replays one by one (on the host the first 250). That the counters and the seal can
 * fail is shown by replay_allocates_nothing and replay_makes_no_system_call. */
#include <unistd.h>

#include "allocations.h"
#include "forbidden.h"
#include "proof.h"

enum { ANSWER = 2000, ANSWERS_MOST = 5, COMPARED_ON_HOST = 250 };

static int32_t answers[ANSWERS_MOST][ANSWER];

/* No token is -1, so that all are looked at and none ends the answer. */
static rondo_status answer(const struct decoder *decoder, int32_t *tokens) {
  const int32_t never = -1;
  *(int32_t *)rondo_data(decoder->slot, decoder->tensors.advance) = 1;
  rondo_status status = rondo_repeat(
      decoder->slot,
      &(rondo_repeat_options){.count = ANSWER, .until = decoder->tensors.next, .values = &never, .value_count = 1});
  for (uint32_t i = 0, done; i < ANSWER && status == RONDO_OK; i++) {
    status = rondo_repeat_wait(decoder->slot, i + 1, RONDO_FOREVER, &done);
    const int32_t *token = rondo_repeat_data(decoder->slot, decoder->tensors.next, i);
    if (status == RONDO_OK && (done <= i || !token)) return RONDO_INTERNAL;
    if (status == RONDO_OK) tokens[i] = *token;
  }
  return status == RONDO_OK ? rondo_wait(decoder->slot, RONDO_FOREVER) : status;
}

/* On the host there is one answer, of which the beginning has to do. */
static int compared(const struct proof *proof) {
  return proof->backend == RONDO_BACKEND_HOST ? COMPARED_ON_HOST : ANSWER;
}

static void compare(const struct proof *proof, struct decoder *decoder, int count) {
  const int tokens = compared(proof);
  int changes = 0;
  CHECK(decoder_restart(decoder));
  for (int a = 0; a < count; a++)
    for (int i = 0; i < tokens; i++) {
      CHECK(decoder_replay(decoder, 1));
      if (answers[a][i] != *decoder_tokens(decoder))
        conclude(proof, FAILED, "answer %d: token %d is not that of replays one by one", a, i);
      changes += i > 0 && answers[a][i] != answers[a][i - 1];
    }
  if (!changes) conclude(proof, FAILED, "all tokens are the same: nothing is fed back");
}

/* One after the other in one context. */
static rondo_status answer_all(const struct decoder *decoder, int count) {
  rondo_status status = RONDO_OK;
  for (int a = 0; a < count && status == RONDO_OK; a++) status = answer(decoder, answers[a]);
  return status;
}

void answers_ask_for_nothing(const struct proof *proof) {
  char text[1024];
  open_subject(proof, sysconf(_SC_NPROCESSORS_ONLN) > 2 ? 2 : 1, RONDO_WAIT_SPIN);
  struct decoder *decoder = open_decoder(proof, 0, ANSWER);
  const int count = decoder->context / ANSWER < ANSWERS_MOST ? decoder->context / ANSWER : ANSWERS_MOST;
  const double begin = now_s();
  forbidden_count();
  allocations_count();
  rondo_status status = answer_all(decoder, count);
  const struct allocations calls = allocations_stop();
  const uint64_t forbidden = forbidden_stop(), launches = forbidden_launches();
  const double us = (now_s() - begin) * 1e6 / ANSWER / count;
  check(proof, status, "answer");
  allocations_describe(text, sizeof text);
  if (calls.ours) conclude(proof, FAILED, "%ju allocations in %d answers: %s", calls.ours, count, text);
  forbidden_describe(text, sizeof text);
  if (forbidden || (proof->backend == RONDO_BACKEND_CUDA && launches != (uint64_t)count))
    conclude(proof, FAILED, "%ju launches and %ju forbidden calls in %d answers: %s", launches, forbidden, count, text);
  compare(proof, decoder, count);
  CHECK(decoder_restart(decoder));
  if (!seal(&proof->verdict->breach)) conclude(proof, SKIPPED, "this system has no seccomp filters");
  check(proof, answer_all(decoder, count), "answer under seccomp");
  conclude(
      proof, PROVEN,
      "%d answers of %d tokens, 0 allocations, 0 forbidden calls, the first %d tokens of each those of replays; as "
      "many answers under seccomp; %.1f us a token",
      count, ANSWER, compared(proof), us);
}
