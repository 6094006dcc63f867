/* bench.h - the measurements of `rondo bench`. */
#pragma once

int bench_exchange(int count, char **words);
int bench_kernels(int count, char **words);
int bench_lanes(int count, char **words);
int bench_llama(int count, char **words);
int bench_plan(int count, char **words);
int bench_replay(int count, char **words);
int bench_upload(int count, char **words);
int bench_wait(int count, char **words);
