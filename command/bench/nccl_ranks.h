/* nccl_ranks.h - ranks of one process that exchange by NCCL, each with a GPU of its own: for benches and proofs. */
#pragma once

#include <rondo_nccl.h>
#include <stdbool.h>

enum { NCCL_TEXT_BYTES = 512 };

/* A communicator for each of the first GPUs. False: *why says why not. */
bool nccl_ranks_open(uint32_t ranks, struct ncclComm **communicators, const char **why);
void nccl_ranks_close(uint32_t ranks, struct ncclComm **communicators);

/* rondo_instantiate of each rank in a thread of its own, since NCCL may wait for all. An error's text is in `text`. */
rondo_status nccl_ranks_instantiate(uint32_t ranks, rondo_runtime *const *runtimes, rondo_graph *const *graphs,
                                    rondo_exec **execs, char text[NCCL_TEXT_BYTES]);
