/* replay.c - launching an executable graph: into its lane, or into a stream of the caller's. */
#include "cuda_device.h"

/* By a thread of the driver's, behind the replay in the lane's order. */
static void send_notice(void *exec) { notice_send(&((struct device_exec *)exec)->notice); }

/* The replay runs: that nobody will be told of its end cannot be taken back. */
static rondo_status launch_notice(struct device_exec *exec) {
  struct device *device = exec->device;
  notice_expect(&exec->notice);
  cu_result result = device->driver.cuLaunchHostFunc(exec->lane->stream, send_notice, exec);
  if (result == CU_SUCCESS) return RONDO_OK;
  rondo_status status = device_failed(device, result, "replay: launched, and then cuLaunchHostFunc");
  return status == RONDO_DEVICE_LOST ? status : device_lose(device, rondo_error_text());
}

rondo_status cuda_exec_notify(struct device_exec *exec, int file, uint64_t timeout_ns) {
  return notice_change(&exec->notice, file, timeout_ns, &cuda_device_ops, exec->device);
}

rondo_status cuda_exec_launch(struct device_exec *exec) {
  struct device *device = exec->device;
  rondo_status status = device_enter(device, "replay");
  if (status != RONDO_OK) return status;
  cu_result result = device->driver.cuGraphLaunch(exec->graph_exec, exec->lane->stream);
  if (result != CU_SUCCESS) status = device_failed(device, result, "replay: cuGraphLaunch");
  if (status == RONDO_OK && exec->notice.is_wanted) status = launch_notice(exec);
  device_leave(device);
  if (atomic_load_explicit(&device->heartbeat.users, memory_order_relaxed)) heartbeat_follow(device);
  return status;
}

/* Behind what the lane holds, before what it will hold. A call that fails after the launch leaves that order broken,
 * and a replay on its way that the caller takes for refused: nothing after it can be trusted. */
static rondo_status launch_between(struct device_exec *exec, struct cu_stream *stream) {
  struct device *device = exec->device;
  const struct driver *driver = &device->driver;
  struct cu_stream *own = exec->lane->stream;
  cu_result result = driver->cuEventRecord(exec->event, own);
  if (result == CU_SUCCESS) result = driver->cuStreamWaitEvent(stream, exec->event, 0);
  if (result != CU_SUCCESS)
    return device_failed(device, result, "replay: the caller's stream cannot wait for the lane");
  result = driver->cuGraphLaunch(exec->graph_exec, stream);
  if (result != CU_SUCCESS) return device_failed(device, result, "replay: cuGraphLaunch in the caller's stream");
  result = driver->cuEventRecord(exec->event, stream);
  if (result == CU_SUCCESS) result = driver->cuStreamWaitEvent(own, exec->event, 0);
  if (result == CU_SUCCESS) return RONDO_OK;
  rondo_status status =
      device_failed(device, result, "replay: launched, and the lane cannot wait for the caller's stream");
  return status == RONDO_DEVICE_LOST ? status : device_lose(device, rondo_error_text());
}

rondo_status cuda_exec_launch_on(struct device_exec *exec, void *stream) {
  struct device *device = exec->device;
  rondo_status status = device_enter(device, "replay");
  if (status != RONDO_OK) return status;
  int capturing = 0;
  cu_result result = device->driver.cuStreamGetCaptureInfo(stream, &capturing, NULL, NULL, NULL, NULL, NULL);
  if (result != CU_SUCCESS)
    status = device_failed(device, result, "replay in the caller's stream: cuStreamGetCaptureInfo");
  else if (capturing)
    status = status_set(RONDO_INVALID_STATE, "rondo_replay_on: the stream captures");
  else
    status = launch_between(exec, stream);
  if (status == RONDO_OK && exec->notice.is_wanted) status = launch_notice(exec);
  device_leave(device);
  if (atomic_load_explicit(&device->heartbeat.users, memory_order_relaxed)) heartbeat_follow(device);
  return status;
}
