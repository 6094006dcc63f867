/* fake_device.h - the subject on the fake driver (tests/driver), if that is the libcuda.so.1 that the loader finds. */
#pragma once

#include <stdbool.h>

/* To be called before the CUDA backend is opened. False if the driver is a real one, or there is none. On the fake,
 * work then runs in the call that launches it, and the subject's kernels are C functions of ours. */
bool fake_device_prepare(void);

/* What was done to the fake that a real driver would not forgive; NULL: nothing. */
const char *fake_device_complaint(void);
