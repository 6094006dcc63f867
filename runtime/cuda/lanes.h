/* lanes.h - the lanes of a GPU: see lanes.c. */
#pragma once

#include "cuda_device.h"

/* Makes the lanes that the options ask for, and writes into info what each lane got. The context is current. */
rondo_status lanes_open(struct device *device, const rondo_options *options, struct device_info *info);
void lanes_close(struct device *device);

/* One more stream on the multiprocessors of the lane. */
cu_result lane_stream(const struct device *device, const struct lane *lane, int priority, struct cu_stream **stream);
