/* images.h - the compiled device code inside the library: one fatbin for each .cu file (see images.S). Empty when Rondo
 * was built without nvcc. */
#ifndef RONDO_IMAGES_H
#define RONDO_IMAGES_H

#include <stdint.h>

struct device_image {
  const char *name; /* the .cu file, for messages */
  const void *begin;
  const void *end;
};

extern const struct device_image device_images[];
extern const uint32_t device_image_count;

#endif
