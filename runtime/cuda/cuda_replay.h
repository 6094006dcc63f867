/* cuda_replay.h - launches an executable graph. The promises stand in struct device_ops. */
#pragma once

#include "cuda_device.h"

rondo_status cuda_exec_launch(struct device_exec *exec, void *const *stream);
rondo_status cuda_exec_repeat(struct device_exec *exec);
rondo_status cuda_exec_ring(struct device_exec *exec);
