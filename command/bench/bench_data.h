/* bench_data.h - the parameters of the kernel that fills memory with random numbers (bench_data.cu). */
#pragma once

enum { BENCH_FILL_THREADS = 256, BENCH_READ_THREADS_MOST = 512 };

/* The numbers that bench_fill writes. BENCH_NORMAL: bf16, normally distributed around 0 with variance 1. The others
 * have the same distribution in their types. */
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
