/* upload.c - large uploads from ordinary memory. The driver copies what is not pinned into pinned memory of its own
 * first, with the one thread that called: on an H200 that makes 7 to 16 GB/s of a bus that moves 55. Here a few threads
 * fill pieces of staging of the device's, and the calling thread alone calls the driver, in the lane's stream: what a
 * call that fails means, and who captures meanwhile, stays as it is elsewhere. Whatever pieces are filled go in one
 * copy, two of them on their way: pieces are small, so that the first is there soon, and copies large, each of which
 * costs the bus 2 us.
 *
 * Staging is taken at open, where the device pool is large enough for it to pay, and kept until close: to pin memory
 * takes 0.4 ms a megabyte, and a model is hundreds of uploads. Threads live as long as an upload. Without staging,
 * without threads, and while another thread uses the staging the driver does it all, as with what is pinned already. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../own_thread.h"
#include "cuda_device.h"

enum { PIECE_BYTES = 256 << 10, STAGING_PIECES = 64, LEAST_HELPERS = 3, MOST_HELPERS = 8 };
enum { YIELDS_BEFORE_SLEEP = 1000, SLEEP_NS = 20 * 1000, TEXT_BYTES = 512 };
static const uint64_t least_pool_bytes = 64 << 20, least_upload_bytes = 2 << 20, bytes_a_helper = 4 << 20;

/* ---- Staging ----------------------------------------------------------------------------------------------------- */

rondo_status staging_open(struct device *device, uint64_t device_bytes) {
  struct staging *staging = &device->staging;
  const struct driver *driver = &device->driver;
  if (device_bytes < least_pool_bytes) return RONDO_OK;
  void *memory = NULL;
  cu_result result = driver->cuMemHostAlloc(&memory, (size_t)STAGING_PIECES * PIECE_BYTES, CU_HOST_ALLOC_PORTABLE);
  if (result == CU_SUCCESS) staging->memory = memory;
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
  if (staging->memory) device->driver.cuMemFreeHost(staging->memory);
  memset(staging->copied, 0, sizeof staging->copied);
  staging->memory = NULL;
}

/* ---- Filling ----------------------------------------------------------------------------------------------------- */

/* An upload: piece i goes through place i % STAGING_PIECES, which is free once the piece before has left it. */
struct upload {
  const unsigned char *source;
  unsigned char *staging;
  uint64_t bytes, piece_count;
  _Alignas(64) _Atomic uint64_t claimed;                /* pieces that somebody fills or has filled */
  _Alignas(64) _Atomic uint64_t freed;                  /* pieces whose places are free again */
  _Alignas(64) _Atomic uint64_t filled[STAGING_PIECES]; /* a place's last piece, plus one */
};

/* From the upload's begin to this piece. */
static uint64_t bytes_before(const struct upload *upload, uint64_t piece) {
  return piece < upload->piece_count ? piece * PIECE_BYTES : upload->bytes;
}

static unsigned char *place_of(const struct upload *upload, uint64_t piece) {
  return upload->staging + piece % STAGING_PIECES * PIECE_BYTES;
}

static bool is_filled(const struct upload *upload, uint64_t piece) {
  return atomic_load_explicit(&upload->filled[piece % STAGING_PIECES], memory_order_acquire) == piece + 1;
}

/* The next piece, by whoever comes first; false: there is none, or no place for it yet. */
static bool fill_one(struct upload *upload) {
  uint64_t piece = atomic_load_explicit(&upload->claimed, memory_order_relaxed);
  if (piece >= upload->piece_count) return false;
  if (piece >= atomic_load_explicit(&upload->freed, memory_order_acquire) + STAGING_PIECES) return false;
  if (!atomic_compare_exchange_strong(&upload->claimed, &piece, piece + 1)) return true;
  uint64_t begin = bytes_before(upload, piece), end = bytes_before(upload, piece + 1);
  memcpy(place_of(upload, piece), upload->source + begin, end - begin);
  atomic_store_explicit(&upload->filled[piece % STAGING_PIECES], piece + 1, memory_order_release);
  return true;
}

/* Where there is nothing to do, for the `idle`th time in a row: the bus may be slow, or another lane has it. */
static void rest(uint32_t idle) {
  if (idle < YIELDS_BEFORE_SLEEP)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

static void *help(void *argument) {
  struct upload *upload = argument;
  uint32_t idle = 0;
  own_thread_spread();
  while (atomic_load_explicit(&upload->claimed, memory_order_relaxed) < upload->piece_count)
    if (fill_one(upload))
      idle = 0;
    else
      rest(idle++);
  return NULL;
}

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

/* The pieces from `first` on that are filled and lie in a row, in one copy. Returns the piece behind them. */
static uint64_t filled_run(const struct upload *upload, uint64_t first) {
  uint64_t piece = first;
  do piece++;
  while (piece < upload->piece_count && piece % STAGING_PIECES && is_filled(upload, piece));
  return piece;
}

static cu_result copy_run(struct device *device, struct cu_stream *stream, cu_address destination,
                          const struct upload *upload, uint64_t first, uint64_t end, struct cu_event *copied,
                          const char **function) {
  uint64_t begin = bytes_before(upload, first);
  *function = "cuMemcpyHtoDAsync";
  cu_result result = device->driver.cuMemcpyHtoDAsync(destination + begin, place_of(upload, first),
                                                      bytes_before(upload, end) - begin, stream);
  if (result != CU_SUCCESS) return result;
  *function = "cuEventRecord";
  return device->driver.cuEventRecord(copied, stream);
}

/* Sends what is filled, frees what was copied, and fills where neither is to be done. */
static cu_result send_all(struct device *device, struct cu_stream *stream, cu_address destination,
                          struct upload *upload, const char **function) {
  uint64_t sent = 0, copies = 0, ended = 0, ends[STAGING_COPIES];
  uint32_t idle = 0;
  struct cu_event **copied = device->staging.copied;
  cu_result result = CU_SUCCESS;
  while (sent < upload->piece_count && result == CU_SUCCESS) {
    if (ended < copies) {
      *function = "cuEventQuery";
      result = device->driver.cuEventQuery(copied[ended % STAGING_COPIES]);
      if (result == CU_SUCCESS)
        atomic_store_explicit(&upload->freed, ends[ended++ % STAGING_COPIES], memory_order_release);
      else if (result == CU_NOT_READY)
        result = CU_SUCCESS;
      if (result != CU_SUCCESS) return result;
    }
    if (copies < ended + STAGING_COPIES && is_filled(upload, sent)) {
      uint64_t end = filled_run(upload, sent), copy = copies++ % STAGING_COPIES;
      ends[copy] = end;
      result = copy_run(device, stream, destination, upload, sent, end, copied[copy], function);
      sent = end;
    } else if (!fill_one(upload)) {
      rest(idle++);
      continue;
    }
    idle = 0;
  }
  return result;
}

/* With the staging in hand. What the lane holds is waited for first, so that no thread spins behind a replay. False:
 * there are no threads, and nothing was done. */
static bool upload_staged(struct device *device, struct cu_stream *stream, cu_address destination,
                          const unsigned char *source, uint64_t bytes, cu_result *result, const char **function) {
  struct upload upload = {.source = source, .staging = device->staging.memory, .bytes = bytes};
  pthread_t helpers[MOST_HELPERS];
  uint64_t cores = own_thread_cores(), count = 0, wanted = LEAST_HELPERS + bytes / bytes_a_helper;
  upload.piece_count = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
  if (wanted > MOST_HELPERS) wanted = MOST_HELPERS;
  if (wanted > cores - 1) wanted = cores - 1;
  *function = "cuStreamSynchronize";
  *result = device_synchronize(device, stream);
  if (*result != CU_SUCCESS) return true;
  while (count < wanted && !own_thread_start(&helpers[count], help, &upload)) count++;
  if (count == 0) return false;
  int mode = device_relax(device);
  *result = send_all(device, stream, destination, &upload, function);
  device_restore(device, mode);
  atomic_store(&upload.claimed, upload.piece_count);
  for (uint64_t i = 0; i < count; i++) pthread_join(helpers[i], NULL);
  /* Also for what was sent before a call that failed: the staging is another thread's as soon as it is given back. */
  cu_result waited = device_synchronize(device, stream);
  if (*result == CU_SUCCESS) {
    *function = "cuStreamSynchronize";
    *result = waited;
  }
  return true;
}

static bool is_pinned(const struct device *device, const void *memory) {
  cu_address address;
  int mode = device_relax(device);
  cu_result result = device->driver.cuMemHostGetDevicePointer(&address, (void *)(uintptr_t)memory, 0);
  device_restore(device, mode);
  return result == CU_SUCCESS;
}

cu_result upload_run(struct device *device, struct cu_stream *stream, cu_address destination,
                     const unsigned char *source, uint64_t bytes, const char **function) {
  struct staging *staging = &device->staging;
  if (bytes >= least_upload_bytes && staging->memory && !is_pinned(device, source) &&
      pthread_mutex_trylock(&staging->lock) == 0) {
    cu_result result;
    bool is_done = upload_staged(device, stream, destination, source, bytes, &result, function);
    pthread_mutex_unlock(&staging->lock);
    if (is_done) return result;
  }
  *function = "cuMemcpyHtoDAsync";
  return device->driver.cuMemcpyHtoDAsync(destination, source, bytes, stream);
}
