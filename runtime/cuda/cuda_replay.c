/* cuda_replay.c - see cuda_replay.h. A launch goes into the lane's stream, or into a stream of the caller's, in order
 * with the lane. */
#include "cuda_replay.h"

#include "../own_thread.h"
#include "cuda_failure.h"
#include "heartbeat.h"
#include "resident.h"
#include "turns.h"

/* ---- Notices ----------------------------------------------------------------------------------------------------- */

/* The notice is looked at and counted before the launch: once the end of the replay can be seen, another thread may
 * hold the slot. */
static struct notice *notice_begin(const struct device_exec *exec) {
  struct notice *notice = exec->notice;
  if (!notice || !notice->is_wanted) return NULL;
  notice_expect(notice);
  return notice;
}

/* A thread of the driver's calls it, after the replay in the order of the lane. */
static void send_notice(void *notice) { notice_send(notice); }

/* The first call of a device may start the driver's thread for all of them. Until it has returned, any call may be the
 * first. */
static cu_result launch_send(struct device *device, const struct lane *lane, struct notice *notice) {
  if (atomic_load_explicit(&device->has_noticed, memory_order_acquire))
    return device->driver.cuLaunchHostFunc(lane->stream, send_notice, notice);
  sigset_t signals;
  own_thread_block_signals(&signals);
  cu_result result = device->driver.cuLaunchHostFunc(lane->stream, send_notice, notice);
  own_thread_restore_signals(&signals);
  if (result == CU_SUCCESS) atomic_store_explicit(&device->has_noticed, true, memory_order_release);
  return result;
}

/* `launched`: the status of the replay's launch. A replay that was refused sends no notice. A replay that runs cannot
 * be taken back, so if its notice fails, the device is lost. */
static rondo_status notice_launch(struct device *device, struct lane *lane, struct notice *notice,
                                  rondo_status launched) {
  if (!notice) return launched;
  if (launched != RONDO_OK) {
    notice_cancel(notice);
    return launched;
  }
  cu_result result = launch_send(device, lane, notice);
  if (result == CU_SUCCESS) return RONDO_OK;
  notice_cancel(notice); /* none will come: the slot can be released once its replay is done */
  rondo_status status = device_failed(device, result, "replay: cuLaunchHostFunc after the launch");
  return status == RONDO_DEVICE_LOST ? status : device_lose(device, rondo_error_text());
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static rondo_status launch_in_lane(struct device_exec *exec, struct cu_graph_exec *graph_exec) {
  struct device *device = exec->device;
  struct lane *lane = exec->lane;
  rondo_status status = device_enter(device, "replay");
  if (status != RONDO_OK) return status;
  struct notice *notice = notice_begin(exec);
  lane_enter(lane);
  cu_result result = device->driver.cuGraphLaunch(graph_exec, lane->stream);
  lane_leave(lane);
  if (result != CU_SUCCESS) status = device_failed(device, result, "replay: cuGraphLaunch");
  status = notice_launch(device, lane, notice, status);
  device_leave(device);
  return status;
}

/* After all work of the lane so far, before all later work. If a call fails after the launch, that order is broken and
 * a replay runs that the caller takes for refused: so the device is lost. */
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
      device_failed(device, result, "replay: after the launch the lane cannot wait for the caller's stream");
  return status == RONDO_DEVICE_LOST ? status : device_lose(device, rondo_error_text());
}

static rondo_status launch_in_stream(struct device_exec *exec, struct cu_stream *stream) {
  struct device *device = exec->device;
  rondo_status status = device_enter(device, "replay");
  if (status != RONDO_OK) return status;
  int capturing = 0;
  cu_result result = device->driver.cuStreamGetCaptureInfo(stream, &capturing, NULL, NULL, NULL, NULL, NULL);
  if (result != CU_SUCCESS)
    status = device_failed(device, result, "replay in the caller's stream: cuStreamGetCaptureInfo");
  else if (capturing)
    status = status_set(RONDO_INVALID_STATE, "rondo_replay_on: the stream is being captured");
  if (status == RONDO_OK) {
    struct lane *lane = exec->lane;
    struct notice *notice = notice_begin(exec);
    lane_enter_alone(lane);
    status = launch_between(exec, stream);
    lane_leave_alone(lane);
    status = notice_launch(device, lane, notice, status);
  }
  device_leave(device);
  return status;
}

/* The next beats come from this core. */
static rondo_status launched(struct device *device, rondo_status status) {
  if (atomic_load_explicit(&device->heartbeat.users, memory_order_relaxed)) heartbeat_follow(device);
  return status;
}

rondo_status cuda_exec_launch(struct device_exec *exec, void *const *stream) {
  return launched(exec->device, stream ? launch_in_stream(exec, *stream) : launch_in_lane(exec, exec->graph_exec));
}

rondo_status cuda_exec_ring(struct device_exec *exec) { return launched(exec->device, resident_ring(exec)); }

rondo_status cuda_exec_repeat(struct device_exec *exec) {
  return launched(exec->device, launch_in_lane(exec, exec->repeat_exec));
}
