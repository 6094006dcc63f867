/* upload.c - uploads from ordinary memory. The driver copies what is not pinned into pinned memory of its own first,
 * with the one thread that called: on an H200 that makes 7 to 16 GB/s of a bus that moves 55. Here a few threads fill
 * staging of the device's piece by piece (filling.h), and the calling thread alone calls the driver, in the lane's
 * stream: what a call that fails means, and who captures meanwhile, stays as it is elsewhere. Whatever pieces are
 * filled go in one copy: pieces are small, so that the first is there soon, and copies large, each of which costs the
 * bus 2 us.
 *
 * An upload returns when its last copy is in the stream: the caller's memory is the caller's again, and the next
 * upload's pieces are filled while the bus has this one's. What the lane gets later comes behind it; who has no place
 * in the lane's order settles first.
 *
 * Staging is taken at open, where the device pool is large enough for it to pay, and kept until close: to pin memory
 * takes 0.4 ms a megabyte. Without it, while another thread uses it, while it has what another lane was sent, and where
 * rows lie apart the driver does it all, as with what is pinned already. */
#include <stdio.h>
#include <string.h>

#include "cuda_device.h"

enum { TEXT_BYTES = 512, BUSY_COPIES = 2, BUSY_PIECES = 32, COPY_PIECES = PLACES / 4 };
static const uint64_t least_pool_bytes = 64 << 20;

/* ---- Staging ----------------------------------------------------------------------------------------------------- */

rondo_status staging_open(struct device *device, uint64_t device_bytes) {
  struct staging *staging = &device->staging;
  const struct driver *driver = &device->driver;
  if (device_bytes < least_pool_bytes) return RONDO_OK;
  void *memory = NULL;
  cu_result result = driver->cuMemHostAlloc(&memory, filling_bytes, CU_HOST_ALLOC_PORTABLE);
  if (result == CU_SUCCESS) staging->filling.memory = memory;
  for (uint32_t i = 0; i < STAGING_COPIES && result == CU_SUCCESS; i++)
    result = driver->cuEventCreate(&staging->copied[i], CU_EVENT_DISABLE_TIMING);
  if (result == CU_SUCCESS) return RONDO_OK;
  char before[TEXT_BYTES];
  snprintf(before, sizeof before, "%s", rondo_error_text());
  rondo_status status = device_failed(device, result, "open: staging for uploads");
  if (status == RONDO_DEVICE_LOST) return status;
  status_text("%s", before); /* no call has failed */
  staging_close(device);
  return RONDO_OK;
}

void staging_close(struct device *device) {
  struct staging *staging = &device->staging;
  for (uint32_t i = 0; i < STAGING_COPIES; i++)
    if (staging->copied[i]) device->driver.cuEventDestroy(staging->copied[i]);
  if (staging->filling.memory) device->driver.cuMemFreeHost(staging->filling.memory);
  memset(staging->copied, 0, sizeof staging->copied);
  staging->filling.memory = NULL;
}

/* ---- Copies ------------------------------------------------------------------------------------------------------ */

static bool is_empty(const struct staging *staging) { return staging->ended == staging->begun; }

/* Of the copies on their way those that have ended: their places are free. Of a device that somebody gave up as lost
 * nothing is waited for. */
static cu_result end_copies(struct device *device) {
  struct staging *staging = &device->staging;
  cu_result result = device_lost(device) ? CU_LAUNCH_FAILED : CU_SUCCESS;
  while (!is_empty(staging) && result == CU_SUCCESS) {
    result = device->driver.cuEventQuery(staging->copied[staging->ended % STAGING_COPIES]);
    if (result == CU_SUCCESS) staging->freed = staging->ends[staging->ended++ % STAGING_COPIES];
  }
  return result == CU_NOT_READY ? CU_SUCCESS : result;
}

/* An upload: pieces from `first` to before `end`. */
struct upload {
  struct cu_stream *stream;
  cu_address destination;
  const unsigned char *source;
  uint64_t bytes, first, end;
  const char *function; /* called last */
};

static uint64_t bytes_before(const struct upload *upload, uint64_t piece) {
  return piece < upload->end ? (piece - upload->first) * PIECE_BYTES : upload->bytes;
}

static void add_pieces(struct filling *filling, uint64_t freed, const struct upload *upload) {
  uint64_t piece = atomic_load_explicit(&filling->added, memory_order_relaxed);
  for (; piece < upload->end && piece < freed + PLACES; piece++) {
    uint64_t begin = bytes_before(upload, piece);
    filling_add(filling, upload->source + begin, bytes_before(upload, piece + 1) - begin);
  }
}

/* Behind the filled pieces in a row that go in one copy now; `sent`: none do. While the bus has enough to do a copy
 * waits until it has all that can be in it. */
static uint64_t run_end(const struct staging *staging, const struct upload *upload) {
  uint64_t begin = staging->sent, end = begin, most = begin + COPY_PIECES - begin % COPY_PIECES;
  uint64_t under_way = staging->begun - staging->ended;
  if (under_way == STAGING_COPIES) return begin;
  if (most > upload->end) most = upload->end;
  while (end < most && filling_is_filled(&staging->filling, end)) end++;
  bool is_whole = end == most;
  bool is_busy = under_way >= BUSY_COPIES && begin - staging->freed >= BUSY_PIECES;
  return is_whole || !is_busy ? end : begin;
}

static cu_result copy_run(struct device *device, struct upload *upload, uint64_t end) {
  struct staging *staging = &device->staging;
  uint64_t begin = bytes_before(upload, staging->sent);
  upload->function = "cuMemcpyHtoDAsync";
  cu_result result =
      device->driver.cuMemcpyHtoDAsync(upload->destination + begin, filling_place(&staging->filling, staging->sent),
                                       bytes_before(upload, end) - begin, upload->stream);
  if (result != CU_SUCCESS) return result;
  upload->function = "cuEventRecord";
  result = device->driver.cuEventRecord(staging->copied[staging->begun % STAGING_COPIES], upload->stream);
  if (result != CU_SUCCESS) return result;
  staging->ends[staging->begun++ % STAGING_COPIES] = staging->sent = end;
  return CU_SUCCESS;
}

/* Sends what is filled, frees what was copied, and fills where neither is to be done. */
static cu_result send_all(struct device *device, struct upload *upload) {
  struct staging *staging = &device->staging;
  struct filling *filling = &staging->filling;
  cu_result result = CU_SUCCESS;
  add_pieces(filling, staging->freed, upload);
  filling_begin(filling, upload->bytes);
  for (uint32_t idle = 0; staging->sent < upload->end && result == CU_SUCCESS;) {
    upload->function = "cuEventQuery";
    result = end_copies(device);
    if (result != CU_SUCCESS) break;
    add_pieces(filling, staging->freed, upload);
    uint64_t end = run_end(staging, upload);
    if (end > staging->sent)
      result = copy_run(device, upload, end);
    else if (!filling_recruit(filling) && !filling_fill_some(filling)) {
      filling_rest(idle++);
      continue;
    }
    idle = 0;
  }
  /* After a failure: nobody reads the caller's memory any more. */
  while (filling_fill_some(filling)) {}
  for (uint64_t piece = staging->sent; piece < atomic_load_explicit(&filling->added, memory_order_relaxed); piece++)
    for (uint32_t idle = 0; !filling_is_filled(filling, piece); idle++) filling_rest(idle);
  filling_end(filling);
  return result;
}

static rondo_status upload_failed(struct device *device, const struct upload *upload, cu_result result) {
  struct staging *staging = &device->staging;
  rondo_status status = device_failed(device, result, "upload: %s", upload->function);
  /* Places must not be filled again while a copy may read them. */
  cu_result ended = device_lost(device) ? CU_SUCCESS : device_synchronize(device, upload->stream);
  if (ended != CU_SUCCESS) {
    status = device_failed(device, ended, "upload: cuStreamSynchronize after a failure");
    if (status != RONDO_DEVICE_LOST) status = device_lose(device, rondo_error_text());
  }
  staging->sent = staging->freed = atomic_load_explicit(&staging->filling.added, memory_order_relaxed);
  staging->ended = staging->begun;
  return status;
}

/* ---- Uploads ----------------------------------------------------------------------------------------------------- */

static bool is_pinned(const struct device *device, const void *memory) {
  cu_address address;
  cu_result result = device->driver.cuMemHostGetDevicePointer(&address, (void *)(uintptr_t)memory, 0);
  return result == CU_SUCCESS;
}

/* The staging, if the stream can have it now. What the lane holds is waited for first, by nobody who has the staging;
 * only a replay that comes between two uploads, while the first is on its way, is in front of the second's copies. */
static cu_result take_staging(struct device *device, struct upload *upload, bool *is_taken) {
  struct staging *staging = &device->staging;
  *is_taken = false;
  for (bool has_waited = false;; has_waited = true) {
    if (pthread_mutex_trylock(&staging->lock)) return CU_SUCCESS;
    upload->function = "cuEventQuery";
    cu_result result = end_copies(device);
    bool is_idle = is_empty(staging);
    *is_taken = result == CU_SUCCESS && (is_idle ? has_waited : staging->stream == upload->stream);
    if (*is_taken) return CU_SUCCESS;
    pthread_mutex_unlock(&staging->lock);
    if (result != CU_SUCCESS || !is_idle) return result;
    upload->function = "cuStreamSynchronize";
    result = device->driver.cuStreamSynchronize(upload->stream);
    if (result != CU_SUCCESS) return result;
  }
}

static rondo_status upload_through_staging(struct device *device, struct upload *upload, bool *is_done) {
  struct staging *staging = &device->staging;
  bool is_taken;
  cu_result result = take_staging(device, upload, &is_taken);
  *is_done = is_taken || result != CU_SUCCESS;
  if (!is_taken) return result == CU_SUCCESS ? RONDO_OK : device_failed(device, result, "upload: %s", upload->function);
  staging->stream = upload->stream;
  upload->first = staging->sent;
  upload->end = upload->first + (upload->bytes + PIECE_BYTES - 1) / PIECE_BYTES;
  result = send_all(device, upload);
  rondo_status status = result == CU_SUCCESS ? RONDO_OK : upload_failed(device, upload, result);
  pthread_mutex_unlock(&staging->lock);
  return status;
}

rondo_status upload_staged(struct device *device, struct cu_stream *stream, cu_address destination,
                           const unsigned char *source, uint64_t bytes, bool *is_done) {
  *is_done = false;
  if (!device->staging.filling.memory) return RONDO_OK;
  rondo_status status = device_enter(device, "upload");
  if (status != RONDO_OK) {
    *is_done = true;
    return status;
  }
  int mode = device_relax(device);
  struct upload upload = {.stream = stream, .destination = destination, .source = source, .bytes = bytes};
  if (!is_pinned(device, source)) status = upload_through_staging(device, &upload, is_done);
  device_restore(device, mode);
  device_leave(device);
  return status;
}

rondo_status cuda_settle(struct device *device) {
  struct staging *staging = &device->staging;
  if (!staging->filling.memory) return RONDO_OK;
  rondo_status status = device_enter(device, "settle");
  if (status != RONDO_OK) return status;
  int mode = device_relax(device);
  cu_result result = CU_SUCCESS;
  pthread_mutex_lock(&staging->lock);
  for (uint32_t idle = 0; !is_empty(staging) && result == CU_SUCCESS; idle++) {
    result = end_copies(device);
    if (!is_empty(staging)) filling_rest(idle);
  }
  pthread_mutex_unlock(&staging->lock);
  if (result != CU_SUCCESS) status = device_failed(device, result, "settle: cuEventQuery");
  device_restore(device, mode);
  device_leave(device);
  return status;
}
