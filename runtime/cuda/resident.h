/* resident.h - resident execs: see resident.c. */
#pragma once

#include "cuda_device.h"

/* A close waits so long for the exec's graph, and for threads in its lane; then the device is lost. */
static const uint64_t resident_patience_ns = UINT64_C(120) * 1000 * 1000 * 1000;

/* The device counts the exec, and beats for it. The last one ends the beats. */
rondo_status resident_begin(struct device_exec *exec);
/* The exec is at rest. */
void resident_end(struct device_exec *exec);

/* A replay: rings, and launches the graph unless it is on the device. */
rondo_status resident_ring(struct device_exec *exec);
