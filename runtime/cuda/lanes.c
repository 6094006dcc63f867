/* lanes.c - see lanes.h. A lane is a stream and, if it wants multiprocessors of its own, a green context.
 *
 * A green context is the device's primary context with a part of its multiprocessors. Memory, kernels and events are
 * the same, and a kernel node that names the green context runs on its multiprocessors. The driver splits the device
 * into equal groups, makes a context of any number of them, and does not split a part again. So the device is split
 * once, into the smallest groups. Each lane takes the groups that it needs, and the last context has the rest.
 *
 * Measured on an H200, whose 132 multiprocessors make 15 groups of 8 and a rest of 12: beside kernels that fill all
 * other multiprocessors, a replay on 8 of its own takes as long as alone. */
#include "lanes.h"

#include <string.h>

#include "cuda_failure.h"

enum { GROUPS_MOST = 128 };

struct split {
  struct cu_resource groups[GROUPS_MOST + 1]; /* and after them the rest, which is in no group */
  uint32_t count;                             /* of groups */
  uint32_t taken;
  bool has_remainder;
};

static bool can_split(const struct driver *driver) {
  return driver->cuDeviceGetDevResource && driver->cuDevSmResourceSplitByCount && driver->cuDevResourceGenerateDesc &&
         driver->cuGreenCtxCreate && driver->cuGreenCtxDestroy && driver->cuCtxFromGreenCtx &&
         driver->cuGreenCtxStreamCreate;
}

static rondo_status split_failed(struct device *device, cu_result result, const char *function) {
  rondo_status status = device_failed(device, result, "open: %s", function);
  if (result != CU_NOT_SUPPORTED) return status;
  return status_set(RONDO_UNSUPPORTED, "open: the driver cannot split this device into lanes: %s", rondo_error_text());
}

static rondo_status split_device(struct device *device, struct split *split) {
  const struct driver *driver = &device->driver;
  struct cu_resource all;
  memset(&all, 0, sizeof all);
  memset(split, 0, sizeof *split);
  if (!can_split(driver))
    return status_set(RONDO_UNSUPPORTED,
                      "open: a lane asks for multiprocessors of its own, and this driver has no green contexts");
  cu_result result = driver->cuDeviceGetDevResource(device->ordinal, &all, CU_RESOURCE_MULTIPROCESSORS);
  if (result != CU_SUCCESS) return split_failed(device, result, "cuDeviceGetDevResource");
  struct cu_resource remainder;
  memset(&remainder, 0, sizeof remainder);
  uint32_t least = all.multiprocessors.least ? all.multiprocessors.least : 1;
  unsigned count = all.multiprocessors.count / least < GROUPS_MOST ? all.multiprocessors.count / least : GROUPS_MOST;
  result = driver->cuDevSmResourceSplitByCount(split->groups, &count, &all, &remainder, 0, least);
  if (result != CU_SUCCESS) return split_failed(device, result, "cuDevSmResourceSplitByCount");
  split->count = count;
  split->has_remainder = remainder.type == CU_RESOURCE_MULTIPROCESSORS && remainder.multiprocessors.count;
  split->groups[count] = remainder;
  return RONDO_OK;
}

/* A green context of the next `count` resources of the split. */
static rondo_status take_part(struct device *device, struct split *split, uint32_t count, struct lane *lane) {
  const struct driver *driver = &device->driver;
  struct cu_resource *resources = &split->groups[split->taken];
  struct cu_resource_description *description = NULL;
  cu_result result = driver->cuDevResourceGenerateDesc(&description, resources, count);
  if (result != CU_SUCCESS) return split_failed(device, result, "cuDevResourceGenerateDesc");
  result = driver->cuGreenCtxCreate(&lane->green, description, device->ordinal, CU_GREEN_DEFAULT_STREAM);
  if (result != CU_SUCCESS) return split_failed(device, result, "cuGreenCtxCreate");
  result = driver->cuCtxFromGreenCtx(&lane->context, lane->green);
  if (result != CU_SUCCESS) return split_failed(device, result, "cuCtxFromGreenCtx");
  lane->chip.multiprocessors = 0;
  for (uint32_t i = 0; i < count; i++) lane->chip.multiprocessors += (int32_t)resources[i].multiprocessors.count;
  split->taken += count;
  return RONDO_OK;
}

static rondo_status take_own(struct device *device, struct split *split, const rondo_lane *wanted, uint32_t index) {
  uint32_t each = split->count ? split->groups[0].multiprocessors.count : 1;
  uint32_t groups = ((uint32_t)wanted->multiprocessors + each - 1) / each, left = split->count - split->taken;
  if (groups > left)
    return status_set(
        RONDO_INVALID_ARGUMENT,
        "open: lane %u '%s' asks for %d multiprocessors; of the device's %d, %u can be split off, %u at a "
        "time, and %u of those are left",
        index, wanted->name ? wanted->name : "", wanted->multiprocessors, device->chip.multiprocessors,
        split->count * each, each, left * each);
  return take_part(device, split, groups, &device->lanes[index]);
}

/* What is left is one context of all the lanes without multiprocessors of their own. */
static rondo_status share_rest(struct device *device, struct split *split, const rondo_options *options) {
  const struct lane *first = NULL;
  for (uint32_t i = 0; i < options->lane_count; i++) {
    struct lane *lane = &device->lanes[i];
    if (options->lanes[i].multiprocessors) continue;
    uint32_t left = split->count - split->taken + split->has_remainder;
    if (!first && !left)
      return status_set(
          RONDO_INVALID_ARGUMENT,
          "open: lane %u '%s' shares what the other lanes leave of %d multiprocessors, and they leave none", i,
          options->lanes[i].name ? options->lanes[i].name : "", device->chip.multiprocessors);
    rondo_status status = first ? RONDO_OK : take_part(device, split, left, lane);
    if (status != RONDO_OK) return status;
    if (first) *lane = *first;
    first = lane;
  }
  return RONDO_OK;
}

static rondo_status split_between(struct device *device, const rondo_options *options) {
  struct split split;
  rondo_status status = split_device(device, &split);
  for (uint32_t i = 0; i < options->lane_count && status == RONDO_OK; i++)
    if (options->lanes[i].multiprocessors) status = take_own(device, &split, &options->lanes[i], i);
  return status == RONDO_OK ? share_rest(device, &split, options) : status;
}

/* Non-blocking: legacy default stream work of other code in this process must neither wait for us nor break our
 * captures. A graph's nodes have the priority of the stream that it is launched into. */
cu_result lane_stream(const struct device *device, const struct lane *lane, int priority, struct cu_stream **stream) {
  const struct driver *driver = &device->driver;
  return lane->green ? driver->cuGreenCtxStreamCreate(stream, lane->green, CU_STREAM_NON_BLOCKING, priority)
                     : driver->cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, priority);
}

static rondo_status make_streams(struct device *device, const rondo_options *options, struct device_info *info) {
  int least = 0, greatest = 0;
  cu_result result = device->driver.cuCtxGetStreamPriorityRange(&least, &greatest);
  if (result != CU_SUCCESS) return device_failed(device, result, "open: cuCtxGetStreamPriorityRange");
  for (uint32_t i = 0; i < device->lane_count && result == CU_SUCCESS; i++) {
    struct lane *lane = &device->lanes[i];
    int most = least - greatest; /* the driver's smaller numbers go first */
    info->lanes[i].priority =
        options->lane_count && options->lanes[i].priority < most ? options->lanes[i].priority : most;
    int number = least - info->lanes[i].priority;
    result = lane_stream(device, lane, number, &lane->stream);
    if (result == CU_SUCCESS) result = lane_stream(device, lane, number, &lane->capture_stream);
    info->lanes[i].stream = lane->stream;
    info->lanes[i].chip = lane->chip;
  }
  return result == CU_SUCCESS
             ? RONDO_OK
             : device_failed(device, result, "open: %s",
                             device->lanes[0].green ? "cuGreenCtxStreamCreate" : "cuStreamCreateWithPriority");
}

rondo_status lanes_open(struct device *device, const rondo_options *options, struct device_info *info) {
  bool is_split = false;
  device->lane_count = info->lane_count;
  for (uint32_t i = 0; i < device->lane_count; i++)
    device->lanes[i] = (struct lane){.context = device->context, .chip = device->chip};
  for (uint32_t i = 0; i < options->lane_count; i++) is_split = is_split || options->lanes[i].multiprocessors;
  rondo_status status = is_split ? split_between(device, options) : RONDO_OK;
  return status == RONDO_OK ? make_streams(device, options, info) : status;
}

void lanes_close(struct device *device) {
  const struct driver *driver = &device->driver;
  for (uint32_t i = device->lane_count; i-- > 0;) {
    if (device->lanes[i].capture_stream) driver->cuStreamDestroy(device->lanes[i].capture_stream);
    if (device->lanes[i].stream) driver->cuStreamDestroy(device->lanes[i].stream);
  }
  for (uint32_t i = device->lane_count; i-- > 0;) {
    bool is_shared = false; /* and destroyed with the first that has it */
    for (uint32_t j = 0; j < i; j++) is_shared = is_shared || device->lanes[j].green == device->lanes[i].green;
    if (device->lanes[i].green && !is_shared) driver->cuGreenCtxDestroy(device->lanes[i].green);
  }
}
