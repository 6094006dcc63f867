/* kernel_groups.h - the groups of cases of rondo bench kernels: how each measures, and what its cases are called. */
#pragma once

#include "bench.h"
#include "bench_gemv.h"
#include "bench_qr.h"
#include "bench_softmax.h"
#include "kernel_results.h"

enum edges { EDGES_PLAIN, EDGES_PROGRAMMATIC };

struct bench_options {
  const char *only, *json, *rivals, *from, *plot;
  int32_t edges, samples, deviation;
  bool is_warm, has_one_order, is_portable;
};

struct bench {
  struct bench_options options;
  struct report report;
  struct kernel_results results, rivals;
  struct softmax_results softmax_results, softmax_rivals;
  struct qr_results qr_results, qr_rivals;
  struct bench_device device;
  /* A group opens the device when it needs it. */
  struct gemv_memory memory;
  struct softmax_memory softmax_memory;
  uint32_t wrong; /* cases */
};

/* The longest label of a case. */
enum { LABEL_BYTES = SOFTMAX_LABEL_BYTES };

/* The options of a group. */
enum { KNOWS_ONLY = 1, KNOWS_WARM = 2, KNOWS_EDGES = 4, KNOWS_ALIKE = 8, KNOWS_PORTABLE = 16, KNOWS_DEVIATION = 32 };

struct group {
  const char *name;
  void (*measure)(struct bench *bench);
  unsigned knows;
  bool (*label)(size_t index, char label[LABEL_BYTES]); /* false: there is no case of this index */
};
enum { GROUPS = 9 };
extern const struct group groups[GROUPS];

/* The label of a case, and whether --only picks it. */
bool is_wanted(const struct bench *bench, const struct kernel_case *shape, char label[KERNEL_LABEL_BYTES]);
bool is_softmax_wanted(const struct bench *bench, const struct softmax_case *shape, char label[SOFTMAX_LABEL_BYTES]);
bool is_qr_wanted(const struct bench *bench, const struct qr_case *shape, char label[QR_LABEL_BYTES]);
