/* resident.h - resident execs: see resident.c. */
#pragma once

#include "cuda_device.h"

/* The device counts the exec, and beats for it. The last one ends the beats. */
rondo_status resident_begin(struct device_exec *exec);
/* The exec is at rest. */
void resident_end(struct device_exec *exec);

/* A replay: rings, and launches the graph unless it is on the device. */
rondo_status resident_ring(struct device_exec *exec);
