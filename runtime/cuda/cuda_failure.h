/* cuda_failure.h - what happens when a driver call fails, and the guards around driver calls.
 *
 * The context is pushed around each call, so that any thread may make it and the caller's context stays current. */
#pragma once

#include "cuda_device.h"

/* Makes the device's context current; RONDO_DEVICE_LOST once the device is lost. */
rondo_status device_enter(struct device *device, const char *phase);
void device_leave(struct device *device);

/* A driver call failed: sets text and status. After a fatal error the device is lost from now on. The sentence begins
 * with the format, "instantiate: task 'a': cuGraphAddNode". */
rondo_status device_failed(struct device *device, cu_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool device_is_fatal(cu_result result);

bool device_lost(const struct device *device);
/* RONDO_DEVICE_LOST, with the first cause. */
rondo_status device_lost_status(const struct device *device, const char *phase);
/* Gives the device up. The first cause stays. */
rondo_status device_lose(struct device *device, const char *cause);
/* Asks the driver about the first lane; any lane will do, since a fatal error is fatal for all. */
rondo_status cuda_check(const struct device *device, const char *phase);
rondo_status cuda_health(struct device *device);

/* Between the two, captures of other threads do not refuse the calls of this thread. device_relax returns the mode to
 * restore. */
int device_relax(const struct device *device);
void device_restore(const struct device *device, int mode);
/* cuStreamQuery and cuStreamSynchronize between the two. The context is current. */
cu_result device_query(const struct device *device, struct cu_stream *stream);
cu_result device_synchronize(const struct device *device, struct cu_stream *stream);
