/* rebind.h - new addresses for a node of an executable graph. The promises stand in struct device_ops. */
#pragma once

#include "cuda_device.h"

rondo_status cuda_exec_rebind(struct device_exec *exec, const struct device_program *program, uint32_t node);
