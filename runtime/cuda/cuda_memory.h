/* cuda_memory.h - device memory: uploads, downloads, zeros, memory besides the pools, and waits for a lane. The
 * functions are those of struct device_ops, where their promises stand. */
#pragma once

#include "cuda_device.h"

rondo_status cuda_upload(struct device *device, uint32_t lane, const struct device_uploads *uploads);
rondo_status cuda_download(struct device *device, uint32_t lane, void *destination, const void *source,
                           struct device_rows rows);
rondo_status cuda_zero(struct device *device, uint32_t lane, void *destination, uint64_t bytes);
rondo_status cuda_memory_take(struct device *device, struct device_memory *memory);
void cuda_memory_give(struct device *device, const struct device_memory *memory);
rondo_status cuda_drain(struct device *device, uint32_t lane);
uint64_t cuda_free_bytes(struct device *device);

/* Free bytes of the device; 0 if the driver does not say. The context is current. */
rondo_status device_free_memory(struct device *device, uint64_t *bytes);
