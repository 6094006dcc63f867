/* world.h - the processes that one command started, such as torchrun, mpirun or srun: which of them this one is, and
 * small messages between rank 0 and the others by TCP. No MPI library is needed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct world {
  int32_t ranks; /* 1: started alone */
  int32_t rank;
  int32_t local_rank; /* on this machine */
  int *sockets;       /* of rank 0: one to each rank; of another: one to rank 0 */
};

/* Reads the environment, and connects the ranks at MASTER_ADDR (default 127.0.0.1) and MASTER_PORT (29500). Ends the
 * program with a sentence if a rank does not come within a minute. */
struct world world_open(void);
/* Gives all ranks what rank 0 has in `data`. */
void world_share(const struct world *world, void *data, size_t bytes);
/* How many ranks have other bytes than rank 0. All ranks get the same answer, so none ends before the others. */
uint32_t world_differing(const struct world *world, const void *data, size_t bytes);
void world_close(struct world *world);
