/* nccl_fake.h - how tests steer the fake NCCL, a libnccl.so.2 whose calls enqueue work on the fake driver's streams.
 *
 * It stands for one rank of a communicator. Number i of another rank's operand is that of this rank's plus STEP for
 * each rank above it. What this rank receives is FROM for each rank below the sender's number plus one, plus i. Numbers
 * are i32. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { NCCL_STEP = 1000, NCCL_FROM = 5000 };

struct nccl_fake_settings {
  int32_t version; /* 22809 */
  int32_t ranks, rank;
  const char *failing; /* the name of a function that fails */
  int32_t result;      /* with this result */
  const char *last_error;
  int32_t host_callbacks; /* 1: each call enqueues one too */
};

struct nccl_fake {
  struct nccl_fake_settings settings;
  char calls[2048];  /* a line each: "ncclAllReduce 40 of type 2" */
  char ran[2048];    /* the functions whose work ran, in its order: a line each */
  uint32_t sent[64]; /* what was sent last */
  uint64_t capture;  /* the number of the last capture; a task with that number fails, as NCCL does */
  int32_t is_group;  /* not 0: inside of a group, whose calls are one task; 1: before the first */
  int32_t mode;      /* the thread's for captures, in the last call that enqueued work */
};

/* Exported by the fake under this name. */
typedef struct nccl_fake *(*nccl_fake_function)(void);
