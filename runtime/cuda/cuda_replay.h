/* cuda_replay.h - launches an executable graph. The promises stand in struct device_ops. */
#ifndef RONDO_CUDA_REPLAY_H
#define RONDO_CUDA_REPLAY_H

#include "cuda_device.h"

rondo_status cuda_exec_launch(struct device_exec *exec, void *const *stream);

#endif
