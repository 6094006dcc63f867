/* proof.c - see proof.h. */
#include "proof.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "fake_device.h"

struct subject subject;
unsigned char output_sum;

void conclude(const struct proof *proof, enum outcome outcome, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(proof->verdict->text, sizeof proof->verdict->text, format, arguments);
  va_end(arguments);
  proof->verdict->outcome = outcome;
  _exit(0);
}

void check(const struct proof *proof, rondo_status status, const char *what) {
  if (status == RONDO_OK) return;
  conclude(proof, FAILED, "%s: %s: %s", what, rondo_status_name(status), rondo_error_text());
}

void open_subject(const struct proof *proof, uint32_t host_threads, rondo_wait_mode wait_mode) {
  proof->verdict->is_fake = proof->backend == RONDO_BACKEND_CUDA && fake_device_prepare();
  rondo_status status = subject_open(&subject, proof->ending, proof->backend, host_threads, wait_mode);
  if (status == RONDO_NO_DEVICE) conclude(proof, SKIPPED, "%s", rondo_error_text());
  check(proof, status, "opening the subject");
  if (proof->backend == RONDO_BACKEND_CUDA && !subject_ends_as_meant(&subject))
    conclude(proof, FAILED, "completion is not published where it was meant to be");
}

void close_subject(const struct proof *proof) {
  CHECK(subject_close(&subject));
  const char *complaint = fake_device_complaint();
  if (complaint) conclude(proof, FAILED, "a real driver would not forgive: %s", complaint);
}

rondo_wait_mode usual_wait_mode(const struct proof *proof) {
  bool is_narrow = proof->backend == RONDO_BACKEND_HOST && sysconf(_SC_NPROCESSORS_ONLN) <= 2;
  return is_narrow ? RONDO_WAIT_BLOCK : RONDO_WAIT_SPIN_YIELD;
}

double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

bool read_outputs(void *user, const struct subject *s, rondo_slot slot) {
  volatile unsigned char *sum = user;
  for (int i = 0; i < OUTPUTS; i++) {
    const unsigned char *data = rondo_data(slot, s->outputs[i]);
    for (uint64_t at = 0; at < s->output_bytes[i]; at += 64) *sum ^= data[at];
  }
  return true;
}

static const int32_t sequence_counts[DECODERS] = {1, DECODER_SEQUENCES_MOST};
struct decoder decoders[DECODERS];

struct decoder *open_decoder(const struct proof *proof, int index, uint32_t repeat_steps) {
  if (proof->verdict->is_fake) conclude(proof, SKIPPED, "the fake driver has not all its kernels");
  CHECK(decoder_open(&decoders[index], subject.runtime, proof->backend, sequence_counts[index], repeat_steps));
  if (!decoder_is_in_halves(&decoders[index])) conclude(proof, FAILED, "a half of a decoder's layer is no kernel");
  return &decoders[index];
}
