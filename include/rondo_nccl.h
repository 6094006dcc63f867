/* rondo_nccl.h - exchanges with other processes' ranks, by NCCL. Conventions and errors are those of rondo.h. */
#if defined(__cplusplus) && __cplusplus >= 201402L && defined(__has_include) && !defined(RONDO_NCCL_CXX_H)
#if __has_include("rondo_nccl_cxx.h")
#include "rondo_nccl_cxx.h" /* installed: the same text, with a default for each field of a descriptor */
#endif
#endif
#ifndef RONDO_NCCL_H
#define RONDO_NCCL_H

#include "rondo.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ncclComm; /* an ncclComm_t points to one */

typedef enum rondo_nccl_call {
  RONDO_NCCL_ALL_REDUCE = 0, /* out = the sum of the ranks' in */
  RONDO_NCCL_ALL_GATHER,     /* out = the ranks' in, one after the other along dimension 0 */
  RONDO_NCCL_REDUCE_SCATTER, /* out = this rank's part of the sum, along dimension 0 */
  RONDO_NCCL_BROADCAST,      /* out = in of rank `from`, which alone has `in` and may leave out absent */
  RONDO_NCCL_SEND_RECEIVE    /* rank `to` gets in, out is what rank `from` sends; either may be absent */
} rondo_nccl_call;

/* A call of NCCL, captured as the work of rondo_add_capture.
 *   communicator  the program's, a blocking one for the runtime's device. The program destroys it after the execs
 *   in, out       dense. Sums are of f64, f32, f16, bf16, i32 or u8. all_reduce and broadcast take one tensor as both
 *
 *   - Rondo opens libnccl.so.2, 2.13 or newer. If the program has loaded one, Rondo uses that.
 *   - A graph's calls run in the order of adding; all ranks need the same order. NCCL waits without a time limit.
 *   - rondo_instantiate may wait for that of other ranks, so each rank needs its own thread. There is no warm-up.
 * Errors: RONDO_UNSUPPORTED without such a libnccl, by rondo_profile, and by rondo_instantiate on the host or if NCCL
 * enqueues host callbacks, as it does for ranks that only a network connects; RONDO_DEVICE_ERROR if NCCL refuses. */
typedef struct rondo_nccl_desc {
  const char *name;
  rondo_nccl_call call;
  struct ncclComm *communicator;
  rondo_tensor in, out;
  uint32_t to, from;
} rondo_nccl_desc;
RONDO_API rondo_status rondo_add_nccl(rondo_graph *graph, const rondo_nccl_desc *desc);

#ifdef __cplusplus
}
#endif
#endif
