/* bench_data.h - what bench_data.cu and its caller tell each other. */
#ifndef RONDO_BENCH_DATA_H
#define RONDO_BENCH_DATA_H

enum { BENCH_FILL_THREADS = 256, BENCH_READ_THREADS_MOST = 512 };

/* What the numbers are, for bench_fill; BENCH_NORMAL: bf16, normally distributed around 0 with variance 1, and
 * the others the same in their types. */
enum bench_data {
  BENCH_CODES,
  BENCH_E4M3,
  BENCH_SCALES,
  BENCH_BF16,
  BENCH_F16,
  BENCH_NORMAL,
  BENCH_NORMAL_F16,
  BENCH_NORMAL_E4M3,
  BENCH_NORMAL_F32,
  BENCH_NORMAL_F64
};

#endif
