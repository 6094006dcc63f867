/* images_none.c - the table of device code of a library built without nvcc: empty. */
#include "../runtime/kernels.h"

const struct device_image device_images[1] = {{0}};
const uint32_t device_image_count = 0;
