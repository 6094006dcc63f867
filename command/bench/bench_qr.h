/* bench_qr.h - times batched QR, what applies it, and triangular inverses in graphs of many launches. A graph's
 * launches take turns with copies of A and the outputs between whose uses 400 MB pass, unless they are to be warm. */
#ifndef RONDO_BENCH_QR_H
#define RONDO_BENCH_QR_H

#include "bench_device.h"
#include "qr_results.h"

struct qr_memory {
  struct bench_device *device;
  cu_address operands, scratch;
  double copy_rate; /* bytes read and written in a microsecond */
};

struct qr_options {
  bool is_warm, is_programmatic;
  uint32_t samples;
};

/* Room for every case, until the device is closed; and the rate of copying 1 GB. */
void qr_memory_take(struct bench_device *device, uint32_t samples, struct qr_memory *memory);

/* Times a case. false, with a sentence on stderr: a sampled matrix misses LAPACK's ratios, and nothing was timed. */
bool qr_measure(const struct qr_memory *memory, const struct qr_case *shape, const struct qr_options *options,
                struct qr_result *result);

#endif
