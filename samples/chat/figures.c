/* figures.c - the statistics of the chat sample (figures.h). */
#include "figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sample.h"

void figures_add(struct figures *figures, uint64_t token_ns) {
  if (figures->count == figures->capacity) {
    size_t capacity = figures->capacity ? 2 * figures->capacity : 1024;
    uint64_t *token_times = realloc(figures->token_ns, capacity * sizeof *token_times);
    if (!token_times) return;
    figures->token_ns = token_times;
    figures->capacity = capacity;
  }
  figures->token_ns[figures->count++] = token_ns;
}

void figures_begin_answer(struct figures *figures) { figures->answer_begin = figures->count; }

void figures_end_answer(struct figures *figures, uint64_t answer_ns) {
  figures->answer_ns = answer_ns;
  figures->answering_ns += answer_ns;
}

void figures_print_answer(const struct figures *figures, int64_t taken, int64_t context) {
  size_t count = figures->count - figures->answer_begin;
  fprintf(stderr, "[%zu tokens, the first of the answer %.1f ms after it; ", figures->prompt_tokens,
          (double)figures->first_token_ns / 1e6);
  if (count > 0)
    fprintf(stderr, "%zu more, %.1f in a second; ", count, (double)count / ((double)figures->answer_ns / 1e9));
  fprintf(stderr, "%lld of %lld tokens of context]\n", (long long)taken, (long long)context);
}

/* The percentile: the smallest time that at least this share of the sorted times does not exceed. */
static double percentile_us(const struct figures *figures, double share) {
  size_t place = (size_t)ceil(share * (double)figures->count) - 1;
  return (double)figures->token_ns[place] / 1e3;
}

static void print_pool(const char *name, const rondo_pool_info *pool) {
  fprintf(stderr, "%-10s %.2f MB of %.2f MB used at most\n", name, (double)pool->high_water_bytes / 1e6,
          (double)pool->capacity_bytes / 1e6);
}

void figures_print(struct figures *figures, rondo_runtime *runtime) {
  rondo_info info;
  TRY(rondo_runtime_info(runtime, &info));
  fprintf(stderr, "runs on    %s\nbecause    %s\n", info.device_name, info.reason);
  fprintf(stderr, "opened     in %.0f ms\n", (double)figures->opened_ns / 1e6);
  if (figures->prompt_tokens > 0)
    fprintf(stderr, "prompt     %zu tokens, the first of the answer %.1f ms after it\n", figures->prompt_tokens,
            (double)figures->first_token_ns / 1e6);
  if (figures->count > 0) {
    qsort(figures->token_ns, figures->count, sizeof *figures->token_ns, compare_times);
    fprintf(stderr, "answer     %zu tokens after the first, %.1f in a second\n", figures->count,
            (double)figures->count / ((double)figures->answering_ns / 1e9));
    fprintf(stderr, "a token    p50 %.1f us, p99 %.1f us, p99.9 %.1f us\n", percentile_us(figures, 0.5),
            percentile_us(figures, 0.99), percentile_us(figures, 0.999));
  }
  print_pool("device", &info.device);
  print_pool("pinned", &info.pinned);
  print_pool("host", &info.host);
}

void figures_free(struct figures *figures) {
  free(figures->token_ns);
  memset(figures, 0, sizeof *figures);
}
