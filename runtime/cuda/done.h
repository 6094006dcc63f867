/* done.h - the last node of every graph: what the host and the kernel in kernels/common/done.cu tell each other. */
#ifndef RONDO_CUDA_DONE_H
#define RONDO_CUDA_DONE_H

#include <stdint.h>

/* rondo_done: *replay_count, in device memory, is incremented, and the new value stored to *completion, in pinned
 * memory. The count is kept on the device because reading it over the bus would cost more than a microsecond. */
struct done_parameters {
  uint64_t *replay_count;
  uint64_t *completion;
};

#endif
