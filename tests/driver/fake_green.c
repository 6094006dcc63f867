/* fake_green.c - parts of the device: its multiprocessors in groups, and contexts of some of them. The numbers are
 * those of an H200: 132 multiprocessors make 15 groups of 8 and a rest of 12. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { GROUP = 8, REMAINDER_BIT = 63, INVALID_CONFIGURATION = 915 };

/* Behind a resource's type: where it is from. */
struct origin {
  uint64_t is_part; /* 0: the whole device */
  uint64_t groups;
};

static struct origin origin_of(const struct cu_resource *resource) {
  struct origin origin;
  memcpy(&origin, resource->reserved, sizeof origin);
  return origin;
}

static struct cu_resource resource_of(uint32_t count, struct origin origin) {
  struct cu_resource resource;
  memset(&resource, 0, sizeof resource);
  resource.type = count ? CU_RESOURCE_MULTIPROCESSORS : CU_RESOURCE_NONE;
  resource.multiprocessors.count = count;
  resource.multiprocessors.least = resource.multiprocessors.alignment = GROUP;
  memcpy(resource.reserved, &origin, sizeof origin);
  return resource;
}

cu_result fake_cuDeviceGetDevResource(cu_device device, struct cu_resource *resource, int type) {
  CALL(cuDeviceGetDevResource);
  if (!device_exists(device) || type != CU_RESOURCE_MULTIPROCESSORS) return CU_INVALID_VALUE;
  *resource = resource_of((uint32_t)fake.settings.multiprocessors, (struct origin){0});
  return CU_SUCCESS;
}

/* A device of several processing clusters loses a group to what is left in each. */
static uint32_t groups_most(uint32_t all, uint32_t each) {
  return each == GROUP && all > GROUP ? all / GROUP - 1 : all / each;
}

cu_result fake_cuDevSmResourceSplitByCount(struct cu_resource *groups, unsigned *count, const struct cu_resource *input,
                                           struct cu_resource *remaining, unsigned flags, unsigned least) {
  CALL(cuDevSmResourceSplitByCount);
  uint32_t all = input->multiprocessors.count, each = (least + GROUP - 1) / GROUP * GROUP;
  if (input->type != CU_RESOURCE_MULTIPROCESSORS || flags) return CU_INVALID_VALUE;
  if (origin_of(input).is_part || least > all) return (cu_result)INVALID_CONFIGURATION;
  if (each < GROUP) each = GROUP;
  if (each > all) each = all;
  uint32_t most = *count == 1 ? 1 : groups_most(all, each);
  if (!groups || *count > most) *count = most;
  if (!groups) return CU_SUCCESS;
  for (uint32_t i = 0; i < *count; i++)
    groups[i] = resource_of(each, (struct origin){.is_part = 1, .groups = UINT64_C(1) << i});
  struct origin rest = {.is_part = 1, .groups = UINT64_C(1) << REMAINDER_BIT};
  if (remaining) *remaining = resource_of(all - *count * each, rest);
  return CU_SUCCESS;
}

struct description {
  uint64_t groups;
  uint32_t multiprocessors;
};

cu_result fake_cuDevResourceGenerateDesc(struct cu_resource_description **handle, struct cu_resource *resources,
                                         unsigned count) {
  CALL(cuDevResourceGenerateDesc);
  struct description *description = calloc(1, sizeof *description);
  if (!description) abort();
  if (!count) violation("cuDevResourceGenerateDesc of no resources: a real driver crashes");
  for (uint32_t i = 0; i < count; i++) {
    uint64_t groups = origin_of(&resources[i]).groups;
    if (resources[i].type != CU_RESOURCE_MULTIPROCESSORS || !groups || groups & description->groups)
      violation("cuDevResourceGenerateDesc: resource %u is no part of a split, or is named twice", i);
    description->groups |= groups;
    description->multiprocessors += resources[i].multiprocessors.count;
  }
  *handle = object_create(DESCRIPTION, description);
  return CU_SUCCESS;
}

static bool overlaps_another(const struct gpu *gpu, uint64_t groups) {
  for (const struct stream *stream = fake.streams; stream; stream = stream->next)
    if (stream->gpu == gpu && stream->green && stream->green->groups & groups) return true;
  return false;
}

cu_result fake_cuGreenCtxCreate(struct cu_green_context **handle, struct cu_resource_description *description_handle,
                                cu_device device, unsigned flags) {
  CALL(cuGreenCtxCreate);
  if (!device_exists(device) || flags != CU_GREEN_DEFAULT_STREAM) return CU_INVALID_VALUE;
  const struct description *description = object_body(description_handle, DESCRIPTION, "cuGreenCtxCreate");
  if (!description) return CU_INVALID_HANDLE;
  /* A real driver lets them share; Rondo promises otherwise. */
  if (overlaps_another(&fake.gpus[device], description->groups))
    violation("cuGreenCtxCreate: another has some of the multiprocessors");
  struct green *green = calloc(1, sizeof *green);
  if (!green) abort();
  primary_retain(&fake.gpus[device]);
  *green = (struct green){.handle = object_create(GREEN, green),
                          .gpu = &fake.gpus[device],
                          .groups = description->groups,
                          .multiprocessors = (int32_t)description->multiprocessors};
  *handle = green->handle;
  return CU_SUCCESS;
}

cu_result fake_cuGreenCtxDestroy(struct cu_green_context *handle) {
  ENDING_CALL(cuGreenCtxDestroy);
  struct green *green = object_body(handle, GREEN, "cuGreenCtxDestroy");
  if (!green) return CU_INVALID_HANDLE;
  for (const struct stream *stream = fake.streams; stream; stream = stream->next)
    if (stream->green == green) violation("cuGreenCtxDestroy while it has a stream");
  if (green->context) object_end(green->context);
  object_end(handle);
  primary_release(green->gpu);
  free(green);
  return call.later;
}

cu_result fake_cuCtxFromGreenCtx(struct cu_context **context, struct cu_green_context *handle) {
  CALL(cuCtxFromGreenCtx);
  struct green *green = object_body(handle, GREEN, "cuCtxFromGreenCtx");
  if (!green) return CU_INVALID_HANDLE;
  if (!green->context) green->context = object_create(CONTEXT, green);
  *context = green->context;
  return CU_SUCCESS;
}

cu_result fake_cuGreenCtxStreamCreate(struct cu_stream **stream, struct cu_green_context *handle, unsigned flags,
                                      int priority) {
  CALL(cuGreenCtxStreamCreate);
  struct green *green = object_body(handle, GREEN, "cuGreenCtxStreamCreate");
  if (!green) return CU_INVALID_HANDLE;
  if (flags != CU_STREAM_NON_BLOCKING) return CU_INVALID_VALUE;
  *stream = stream_new(green->gpu, green, priority)->handle;
  return CU_SUCCESS;
}

int32_t context_multiprocessors(const void *context, const char *function) {
  const struct gpu *gpu = gpu_of_context(context, function);
  if (!gpu || gpu->context == context) return gpu ? fake.settings.multiprocessors : 0;
  return ((const struct green *)object_body(context, CONTEXT, function))->multiprocessors;
}
