/* bench_qr.h - times batched QR, its application, and triangular inverses, in graphs of many launches. The launches
 * cycle through copies of A and of the outputs. Cold: 400 MB of other copies pass between two uses of a copy. */
#pragma once

#include "bench_device.h"
#include "qr_results.h"

struct qr_memory {
  struct bench_device *device;
  cu_address operands, scratch;
  double copy_rate; /* bytes read plus bytes written, for each microsecond */
};

struct qr_options {
  bool is_warm, is_programmatic;
  uint32_t samples;
};

/* Allocates memory for every case, until the device is closed, and measures the rate of copying 1 GB. */
void qr_memory_take(struct bench_device *device, uint32_t samples, struct qr_memory *memory);

/* Times a case. If a sampled matrix fails LAPACK's checks, it returns false after a sentence on stderr, and does not
 * time the case. */
bool qr_measure(const struct qr_memory *memory, const struct qr_case *shape, const struct qr_options *options,
                struct qr_result *result);
