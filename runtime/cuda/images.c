/* images.c - see images.h. The driver keeps the machine code of each loaded image in host memory. So an image is loaded
 * when a graph first asks for one of its kernels. */
#include "images.h"

#include <string.h>

#include "../kernels.h"
#include "cuda_failure.h"

static uint32_t image_of(const char *kernel) {
  for (uint32_t i = 0; i < device_image_count; i++)
    for (const char *name = device_images[i].kernels; *name; name += strlen(name) + 1)
      if (!strcmp(name, kernel)) return i;
  return device_image_count;
}

cu_result images_find_kernel(struct device *device, const char *name, struct cu_kernel **kernel,
                             const char **function) {
  uint32_t image = image_of(name);
  if (image == device_image_count) return CU_NOT_FOUND;
  struct cu_library **library = &device->libraries[image];
  *function = "cuLibraryLoadData";
  cu_result result = CU_SUCCESS;
  if (!*library)
    result = device->driver.cuLibraryLoadData(library, device_images[image].begin, NULL, NULL, 0, NULL, NULL, 0);
  if (result != CU_SUCCESS) return *library = NULL, result;
  *function = "cuLibraryGetKernel";
  return device->driver.cuLibraryGetKernel(kernel, *library, name);
}

rondo_status images_load_first(struct device *device) {
  struct cu_kernel *kernel;
  const char *function = "";
  cu_result result = images_find_kernel(device, op_point_kernel.name, &kernel, &function);
  if (result == CU_SUCCESS) return RONDO_OK;
  rondo_status status =
      device_failed(device, result, "open: %s of %s for sm_%d", function, op_point_kernel.name, device->chip.version);
  return status == RONDO_UNSUPPORTED ? status_set(RONDO_NO_DEVICE, "%s", rondo_error_text()) : status;
}

void images_unload(struct device *device) {
  images_unload_left(device);
  for (uint32_t i = device_image_count; i-- > 0;)
    if (device->libraries[i]) device->driver.cuLibraryUnload(device->libraries[i]);
}

/* ---- Left by closed execs ---------------------------------------------------------------------------------------- */

void images_unload_left(struct device *device) {
  for (uint32_t i = 0; i < LEFT_LIBRARIES; i++) {
    struct cu_library *library = atomic_exchange(&device->left[i], NULL);
    if (library) device->driver.cuLibraryUnload(library);
  }
}

static bool leave(struct device *device, struct cu_library *library) {
  for (uint32_t i = 0; i < LEFT_LIBRARIES; i++) {
    struct cu_library *none = NULL;
    if (atomic_compare_exchange_strong(&device->left[i], &none, library)) return true;
  }
  return false;
}

static bool are_lanes_idle(const struct device *device) {
  for (uint32_t i = 0; i < device->lane_count; i++)
    if (device_query(device, device->lanes[i].stream) != CU_SUCCESS) return false;
  return true;
}

void images_leave(struct device *device, struct cu_library **libraries, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (!leave(device, libraries[i]) && are_lanes_idle(device)) device->driver.cuLibraryUnload(libraries[i]);
}

void images_unload_own(struct device *device, struct cu_library **libraries, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) device->driver.cuLibraryUnload(libraries[i]);
}
