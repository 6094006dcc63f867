/* heartbeat.h - keeps an idle GPU awake: see heartbeat.c. */
#pragma once

#include "cuda_device.h"

rondo_status cuda_keep_warm(struct device *device, bool on);

/* The calling thread has launched a replay: beats come from its core, and none is due now. */
void heartbeat_follow(struct device *device);
