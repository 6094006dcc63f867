/* fuzz_run.h - a graph that is described, planned and run on the host backend. */
#pragma once

#include <stddef.h>

#include "fuzz_describe.h"

enum {
  DEVICE_BYTES = 2 << 20,
  PINNED_BYTES = 1 << 20,
  HOST_BYTES = 16 << 20,
  SNAPSHOT_BYTES = DEVICE_BYTES + PINNED_BYTES,
};

/* The bytes of a tensor: those of the input, or numbers near one of the tensor's type. */
struct filler {
  const uint8_t *data;
  size_t size;
  bool tame;
};

extern rondo_runtime *runtime; /* its pools have the sizes above */
extern uint8_t snapshots[2][SNAPSHOT_BYTES];

/* Plans and, where it can be, instantiates; tells whether there is an exec. */
bool instantiate(struct build *b, uint32_t slot_count, rondo_exec **exec);
/* The same of what borrows, with one slot, beside the exec of its lender. */
bool instantiate_borrower(struct build *b, rondo_exec **exec);
/* The calls of a slot in any order. */
void misuse(struct build *b, rondo_exec *exec, uint32_t slot_count);
/* Runs what was built in each slot, twice; leaves one replay's results in snapshots[0]. */
size_t run(struct build *b, rondo_exec *exec, uint32_t slot_count, const struct filler *filler);
/* Nothing is in use in the pools; `empty`: nor on the host. */
void check_pools(bool empty);
