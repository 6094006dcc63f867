/* metrics.h - what the service measures. Any thread may read while one other adds. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { HISTOGRAM_BUCKETS = 20 };

/* Times in buckets: up to 100 us, and each further bucket to twice the one before; the last has all longer ones. */
struct histogram {
  atomic_ulong counts[HISTOGRAM_BUCKETS];
  atomic_ulong sum_ns;
};

/* Of the replaying thread. */
struct engine_metrics {
  atomic_ulong heartbeat; /* moves with each step, and as long as there is nothing to do */
  atomic_int busy;        /* 1: there are requests, so that the heartbeat has to move */
  atomic_int active, waiting, pages_used, pages;
  atomic_ulong prompt_tokens, reused_tokens, answered_tokens, requests_ended, cancelled, expired;
  struct histogram first_token;    /* from submission */
  struct histogram between_tokens; /* of one answer */
  struct histogram queued;         /* from submission to the first step */
  struct histogram decode_step, prefill_step;
};

static inline void metric_add(atomic_ulong *metric, uint64_t value) {
  atomic_fetch_add_explicit(metric, value, memory_order_relaxed);
}

static inline void histogram_add(struct histogram *histogram, uint64_t ns) {
  int bucket = 0;
  for (uint64_t most = 100000; bucket < HISTOGRAM_BUCKETS - 1 && ns > most; most *= 2) bucket++;
  metric_add(&histogram->counts[bucket], 1);
  metric_add(&histogram->sum_ns, ns);
}
