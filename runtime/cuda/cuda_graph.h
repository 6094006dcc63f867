/* cuda_graph.h - makes an executable graph of a program, and destroys it. The promises stand in struct device_ops. */
#pragma once

#include "cuda_device.h"

struct device_exec_bytes cuda_exec_bytes(const struct device_program *program);
rondo_status cuda_exec_create(struct device *device, const struct device_program *program, struct device_exec **exec);
bool cuda_exec_destroy(struct device_exec *exec);
