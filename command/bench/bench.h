/* bench.h - the measurements of `rondo bench`. */
#ifndef RONDO_BENCH_H
#define RONDO_BENCH_H

int bench_kernels(int count, char **words);
int bench_lanes(int count, char **words);
int bench_llama(int count, char **words);
int bench_plan(int count, char **words);
int bench_replay(int count, char **words);
int bench_upload(int count, char **words);
int bench_wait(int count, char **words);

#endif
