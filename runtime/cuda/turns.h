/* turns.h - the order of threads that put work into a lane: see turns.c. */
#pragma once

#include "cuda_device.h"

/* Takes a resident exec off the device. The calling thread has entered its lane, or knows that the exec is not closed.
 * Returns at once: work that is put into the lane from now on waits for the end of the graph. */
void exec_take_off(struct device_exec *exec);

/* Around calls that put work into the lane's stream. A resident exec that is on the device is taken off, so the work
 * does not wait for its host. Threads do not wait for each other. */
void lane_enter(struct lane *lane);
void lane_leave(struct lane *lane);

/* The same for one thread alone. */
void lane_enter_alone(struct lane *lane);
/* False: the device is lost, or other threads were in the lane for so long. */
bool lane_enter_alone_within(struct lane *lane, const struct device *device, uint64_t ns);
void lane_leave_alone(struct lane *lane);

/* Between the two, no resident exec stays on the device: not in this lane, or in none. Each replay then ends its own
 * turn. For waits for a stream, and for calls of the driver that may wait for all of the device. */
void lane_hold(struct lane *lane);
void lane_release(struct lane *lane);
void device_hold(struct device *device);
void device_release(struct device *device);
