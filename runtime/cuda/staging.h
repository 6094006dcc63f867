/* staging.h - uploads from ordinary memory through pinned memory of the device's own: see staging.c. */
#pragma once

#include "cuda_device.h"

/* The bytes of a struct staging, which the device has all zeros. */
uint64_t staging_struct_bytes(void);
/* Its lock, and the cores of its helpers. */
void staging_init(struct device *device);
/* Takes pinned memory if the device pool is large enough for it to pay. A device without staging leaves uploads to the
 * driver: only the loss of the device is an error. The context is current, here and in staging_close. */
rondo_status staging_open(struct device *device, uint64_t device_bytes);
void staging_close(struct device *device);
/* Waits until the helpers have ended; then the lock may be destroyed. */
void staging_join(struct device *device);
void staging_destroy(struct device *device);

/* Puts uploads into the staging's stream, from the `first` on as many as can go through staging. On return no thread
 * reads their sources. *next is the first of the others, which are for the driver. */
rondo_status staging_upload(struct device *device, const struct device_uploads *uploads, uint32_t first,
                            uint32_t *next);
/* Orders all later work of the lane after the uploads so far. */
rondo_status staging_await(struct device *device, uint32_t lane);
