/* images.h - the device code of the library, loaded for one device. The context is current for all functions. */
#pragma once

#include "cuda_device.h"

/* Loads one image, which every graph may need. All images are for the same chips, so RONDO_NO_DEVICE means that there
 * is no code for this chip. */
rondo_status images_load_first(struct device *device);
void images_unload(struct device *device);

/* Images of the user's, whose exec is being closed. cuLibraryUnload waits for all kernels of the context, except in
 * lanes with multiprocessors of their own: on an H200 1.48 s beside a kernel of 1.5 s. Such a kernel may hang, and may
 * be one of another runtime. So a closed exec's images wait in a list. They are unloaded before the next exec loads an
 * image of the user's, which waits as long, or with the runtime. An image for which the list has no room is unloaded at
 * once if no lane has work; else the driver keeps it until the process ends. */
void images_leave(struct device *device, struct cu_library **libraries, uint32_t count);
void images_unload_left(struct device *device);

/* Those of an exec that was not instantiated after all. Instantiation waits for kernels anyway. */
void images_unload_own(struct device *device, struct cu_library **libraries, uint32_t count);

/* Looks a kernel up, and loads its image the first time. CU_NOT_FOUND if no image has the kernel. *function is the
 * driver's function that failed. The caller holds the device's lock, or opens the device. */
cu_result images_find_kernel(struct device *device, const char *name, struct cu_kernel **kernel, const char **function);
