/* driver.c - see driver.h. libcuda.so.1 comes by dlopen, and each function by cuGetProcAddress_v2 with the version of
 * its signature in abi.h. Each step that fails gives a reason that a user can act on. */
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef cu_result (*get_proc_address)(const char *symbol, void **function, int version, uint64_t flags, int *status);

static const char library_name[] = "libcuda.so.1";

enum need { MANDATORY, OPTIONAL };

static const struct entry_point {
  const char *name;
  int version;
  enum need need;
  size_t offset; /* in struct driver */
} entry_points[] = {
#define ENTRY_POINT(name, version, need, ...) {#name, version, need, offsetof(struct driver, name)},
#include "entry_points.h"
};

void driver_describe(const struct driver *driver, cu_result result, char *text, size_t bytes) {
  const char *name = NULL, *sentence = NULL;
  if (driver->cuGetErrorName && driver->cuGetErrorName(result, &name) != CU_SUCCESS) name = NULL;
  if (driver->cuGetErrorString && driver->cuGetErrorString(result, &sentence) != CU_SUCCESS) sentence = NULL;
  if (name)
    snprintf(text, bytes, "%s%s%s", name, sentence ? ": " : "", sentence ? sentence : "");
  else
    snprintf(text, bytes, "CUDA error %d", (int)result);
}

/* The driver branch in which a CUDA version first shipped: users know that number. 0 for one not known here. */
static int branch_of(int version) {
  static const int branches[][2] = {{12000, 525}, {12010, 530}, {12020, 535}, {12030, 545}, {12040, 550},
                                    {12050, 555}, {12060, 560}, {12080, 570}, {12090, 575}};
  for (size_t i = 0; i < sizeof branches / sizeof *branches; i++)
    if (branches[i][0] == version) return branches[i][1];
  return 0;
}

static rondo_status too_old(int version) {
  int branch = branch_of(version), major = version / 1000, minor = version % 1000 / 10;
  if (branch)
    return status_set(RONDO_NO_DEVICE, "driver %d (CUDA %d.%d) is older than 580 (CUDA 13.0)", branch, major, minor);
  return status_set(RONDO_NO_DEVICE, "the driver's CUDA %d.%d is older than CUDA 13.0 (driver 580)", major, minor);
}

static rondo_status entry_point_find(struct driver *driver, get_proc_address find, const struct entry_point *entry) {
  /* A missing symbol is a success with a status and no pointer; the toolkit's stub fails and leaves the pointer as it
   * was. So all three are looked at. */
  void *function = NULL;
  int status = CU_SYMBOL_NOT_FOUND;
  cu_result result = find(entry->name, &function, entry->version, 0, &status);
  if (result == CU_STUB_LIBRARY) return status_set(RONDO_NO_DEVICE, "libcuda.so.1 is the toolkit's stub");
  if (result == CU_SUCCESS && status == CU_SYMBOL_FOUND && function) {
    /* ISO C knows no conversion from an object's address to a function's. */
    memcpy((char *)driver + entry->offset, &function, sizeof function);
    return RONDO_OK;
  }
  if (entry->need == OPTIONAL) return RONDO_OK;
  return status_set(RONDO_NO_DEVICE, "libcuda.so.1 has no %s of CUDA %d.%d", entry->name, entry->version / 1000,
                    entry->version % 1000 / 10);
}

static rondo_status version_check(struct driver *driver) {
  cu_result result = driver->cuDriverGetVersion(&driver->version);
  if (result == CU_STUB_LIBRARY) return status_set(RONDO_NO_DEVICE, "libcuda.so.1 is the toolkit's stub");
  if (result != CU_SUCCESS) return status_set(RONDO_NO_DEVICE, "cuDriverGetVersion: CUDA error %d", (int)result);
  return driver->version < DRIVER_OLDEST_VERSION ? too_old(driver->version) : RONDO_OK;
}

static rondo_status driver_start(struct driver *driver) {
  cu_result result = driver->cuInit(0);
  if (result == CU_SUCCESS) return RONDO_OK;
  if (result == CU_NO_DEVICE) return status_set(RONDO_NO_DEVICE, "no CUDA device");
  if (result == CU_STUB_LIBRARY) return status_set(RONDO_NO_DEVICE, "libcuda.so.1 is the toolkit's stub");
  char text[160];
  driver_describe(driver, result, text, sizeof text);
  return status_set(result == CU_OUT_OF_MEMORY ? RONDO_OUT_OF_MEMORY : RONDO_NO_DEVICE, "cuInit: %s", text);
}

/* Most machines without a GPU have no such file: few words. One that is there and cannot be loaded, because of itself
 * or of a library that it needs, has the loader's words, in the program's language as those of the system for ENOENT
 * are. */
static rondo_status not_loaded(const char *why) {
  char missing[128];
  snprintf(missing, sizeof missing, "%s", strerror(ENOENT));
  size_t why_length = why ? strlen(why) : 0, length = strlen(missing);
  bool is_missing = why && !strncmp(why, library_name, sizeof library_name - 1) && why_length >= length &&
                    !strcmp(why + why_length - length, missing);
  if (!why || is_missing) return status_set(RONDO_NO_DEVICE, "no %s", library_name);
  return status_set(RONDO_NO_DEVICE, "%s", why);
}

rondo_status driver_load(struct driver *driver) {
  memset(driver, 0, sizeof *driver);
  /* The bare libcuda.so is a developer's link, maybe to the stub. Never closed: the driver has threads and exit
   * handlers of its own, and dlopen counts. */
  void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (!library) return not_loaded(dlerror());
  void *symbol = dlsym(library, "cuGetProcAddress_v2");
  if (!symbol)
    return status_set(RONDO_NO_DEVICE, "libcuda.so.1 has no cuGetProcAddress_v2: the driver is older than 580");
  get_proc_address find;
  memcpy(&find, &symbol, sizeof find);
  for (size_t i = 0; i < sizeof entry_points / sizeof *entry_points; i++) {
    rondo_status status = entry_point_find(driver, find, &entry_points[i]);
    /* The version is asked for first of all: an old driver should be told by its age, not by what it lacks. */
    if (status == RONDO_OK && entry_points[i].offset == offsetof(struct driver, cuDriverGetVersion))
      status = version_check(driver);
    if (status != RONDO_OK) return status;
  }
  return driver_start(driver);
}
