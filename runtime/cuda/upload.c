/* upload.c - uploads from ordinary memory. The driver copies what is not pinned into pinned memory of its own first,
 * with the one thread that called: on an H200 that makes 7 to 16 GB/s of a bus that moves 55. Here a few threads fill
 * staging of the device's piece by piece (filling.h), and the calling thread alone calls the driver: what a call that
 * fails means, and who captures meanwhile, stays as it is elsewhere. Whatever pieces are filled go in one copy: pieces
 * are small, so that the first is there soon, and copies large, each of which costs the bus 2 us. Tensors that are
 * neighbours on the device are so in the staging, and go in the same copies.
 *
 * Copies have a stream of their own, in which no replay can be in front of them. An upload returns when its last copy
 * is in it: the caller's memory is the caller's again, and the next upload's pieces are filled while the bus has this
 * one's. Lanes come behind by an event.
 *
 * Staging is taken at open, where the device pool is large enough for it to pay, and kept until close: to pin memory
 * takes 0.4 ms a megabyte. Without it, while another thread uses it, and where rows lie apart the driver does it all,
 * as with what is pinned already and large. */
#include <stdio.h>
#include <string.h>

#include "cuda_device.h"

enum { TEXT_BYTES = 512, BUSY_COPIES = 2, ALIGNMENT = 256 };
static const uint64_t staging_bytes = 16 << 20, piece_bytes = 32 << 10, least_copy_bytes = 128 << 10,
                      most_copy_bytes = 4 << 20, busy_bytes = 1 << 20, least_pool_bytes = 64 << 20,
                      least_direct_bytes = 1 << 20;

/* ---- Staging ----------------------------------------------------------------------------------------------------- */

static cu_result staging_take(struct device *device) {
  struct staging *staging = &device->staging;
  const struct driver *driver = &device->driver;
  void *memory = NULL;
  cu_result result = driver->cuMemHostAlloc(&memory, staging_bytes, CU_HOST_ALLOC_PORTABLE);
  if (result == CU_SUCCESS) {
    staging->memory = memory;
    result = driver->cuStreamCreateWithPriority(&staging->stream, CU_STREAM_NON_BLOCKING, 0);
  }
  for (uint32_t i = 0; i < STAGING_COPIES && result == CU_SUCCESS; i++)
    result = driver->cuEventCreate(&staging->copied[i], CU_EVENT_DISABLE_TIMING);
  return result;
}

rondo_status staging_open(struct device *device, uint64_t device_bytes) {
  if (device_bytes < least_pool_bytes) return RONDO_OK;
  cu_result result = staging_take(device);
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
  if (staging->stream) device->driver.cuStreamDestroy(staging->stream);
  if (staging->memory) device->driver.cuMemFreeHost(staging->memory);
  memset(staging->copied, 0, sizeof staging->copied);
  staging->stream = NULL;
  staging->memory = NULL;
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

/* What is being uploaded: neighbours in a row go as one. */
struct sending {
  const struct device_uploads *uploads;
  uint32_t next, end;   /* that are not pieces yet */
  uint64_t next_bytes;  /* of the next that are */
  uint64_t ready;       /* pieces before it are filled, and go in one copy */
  const char *function; /* called last */
};

static cu_address address_of(const unsigned char *memory) { return (uintptr_t)memory; }

/* With what lies between it and the next one, if that is its neighbour. */
static uint64_t bytes_of(const struct sending *sending, const struct device_upload *upload) {
  if (sending->next + 1 == sending->end) return upload->rows.bytes;
  const struct device_upload behind = sending->uploads->at(sending->uploads, sending->next + 1);
  return behind.destination == upload->destination + upload->room_bytes ? upload->room_bytes : upload->rows.bytes;
}

static const struct staged_piece *staged(const struct staging *staging, uint64_t piece) {
  return &staging->pieces[piece % PLACES];
}

/* Behind the piece before it, in the staging, where none lies around the end of the ring, and on the device. */
static bool follows(const struct staging *staging, uint64_t piece) {
  const struct staged_piece *one = staged(staging, piece), *before = staged(staging, piece - 1);
  return one->begin == before->end && one->destination == before->destination + (before->end - before->begin);
}

/* False: the ring is full. */
static bool add_piece(struct staging *staging, struct sending *sending) {
  const struct device_upload upload = sending->uploads->at(sending->uploads, sending->next);
  const uint64_t done = sending->next_bytes, row = upload.rows.bytes, all = bytes_of(sending, &upload);
  const uint64_t bytes = all - done < piece_bytes ? all - done : piece_bytes;
  const uint64_t zeros = done + bytes > row ? done + bytes - row : 0, piece = staging->filling.added;
  const cu_address destination = address_of(upload.destination) + done;
  uint64_t begin = staging->filled_to;
  if (begin % staging_bytes + ALIGNMENT + bytes > staging_bytes) begin += -begin % staging_bytes;
  begin += (destination - begin) % ALIGNMENT; /* lines of the one are lines of the other */
  if (piece - staging->freed == PLACES || begin + bytes - staging->freed_to > staging_bytes) return false;
  if (bytes) {
    staging->pieces[piece % PLACES] = (struct staged_piece){destination, begin, begin + bytes};
    filling_add(&staging->filling, &(struct place){.source = upload.source + done,
                                                   .memory = staging->memory + begin % staging_bytes,
                                                   .bytes = bytes - zeros,
                                                   .zeros = zeros});
    staging->filled_to = begin + bytes;
  }
  sending->next_bytes = done + bytes;
  if (sending->next_bytes == all) sending->next++, sending->next_bytes = 0;
  return true;
}

static void add_pieces(struct staging *staging, struct sending *sending) {
  while (sending->next < sending->end && add_piece(staging, sending)) continue;
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
    if (result != CU_SUCCESS) break;
    staging->freed = staging->ends[staging->ended % STAGING_COPIES];
    staging->freed_to = staged(staging, staging->freed - 1)->end;
    staging->ended++;
  }
  return result == CU_NOT_READY ? CU_SUCCESS : result;
}

/* Behind the filled pieces in a row that go in one copy now; `sent`: none do. A copy waits until it has all that can be
 * in it, or, where the bus has too little to do, is worth what any copy costs. */
static uint64_t run_end(const struct staging *staging, struct sending *sending) {
  const uint64_t begin = staging->sent, added = staging->filling.added, under_way = staging->begun - staging->ended;
  const bool more_come = sending->next < sending->end && added - staging->freed < PLACES;
  uint64_t end = sending->ready > begin ? sending->ready : begin, bytes = 0;
  bool goes_on = true;
  for (;; end++) {
    bytes = end > begin ? staged(staging, end - 1)->end - staged(staging, begin)->begin : 0;
    goes_on = end < added ? end == begin || follows(staging, end) : more_come;
    if (bytes >= most_copy_bytes || !goes_on || end == added || !filling_is_filled(&staging->filling, end)) break;
  }
  sending->ready = end;
  bool is_whole = bytes >= most_copy_bytes || !goes_on;
  bool is_busy = under_way >= BUSY_COPIES && staged(staging, begin - 1)->end - staging->freed_to >= busy_bytes;
  bool is_due = is_whole || (!is_busy && bytes >= least_copy_bytes);
  return is_due && under_way < STAGING_COPIES ? end : begin;
}

static cu_result copy_run(struct device *device, struct sending *sending, uint64_t end) {
  struct staging *staging = &device->staging;
  const struct driver *driver = &device->driver;
  const struct staged_piece *first = staged(staging, staging->sent);
  sending->function = "cuMemcpyHtoDAsync";
  cu_result result = driver->cuMemcpyHtoDAsync(first->destination, staging->memory + first->begin % staging_bytes,
                                               staged(staging, end - 1)->end - first->begin, staging->stream);
  if (result != CU_SUCCESS) return result;
  sending->function = "cuEventRecord";
  result = driver->cuEventRecord(staging->copied[staging->begun % STAGING_COPIES], staging->stream);
  if (result != CU_SUCCESS) return result;
  staging->ends[staging->begun % STAGING_COPIES] = staging->sent = end;
  staging->begun++;
  return CU_SUCCESS;
}

/* Sends what is filled, frees what was copied, and fills where neither is to be done. */
static cu_result send_all(struct device *device, struct sending *sending, uint64_t bytes) {
  struct staging *staging = &device->staging;
  struct filling *filling = &staging->filling;
  cu_result result = CU_SUCCESS;
  add_pieces(staging, sending);
  filling_begin(filling, bytes);
  for (uint32_t idle = 0; sending->next < sending->end || staging->sent < filling->added;) {
    sending->function = "cuEventQuery";
    result = end_copies(device);
    if (result != CU_SUCCESS) break;
    add_pieces(staging, sending);
    uint64_t end = run_end(staging, sending);
    if (end > staging->sent) {
      result = copy_run(device, sending, end);
      if (result != CU_SUCCESS) break;
    } else if (!filling_recruit(filling) && !filling_fill_some(filling)) {
      filling_rest(idle++);
      continue;
    }
    idle = 0;
  }
  /* After a failure: nobody reads the caller's memory any more. */
  while (filling_fill_some(filling)) {}
  for (uint64_t piece = staging->sent; piece < filling->added; piece++)
    for (uint32_t idle = 0; !filling_is_filled(filling, piece); idle++) filling_rest(idle);
  filling_end(filling);
  return result;
}

static rondo_status send_failed(struct device *device, const struct sending *sending, cu_result result) {
  struct staging *staging = &device->staging;
  rondo_status status = device_lost(device) ? device_lost_status(device, "upload")
                                            : device_failed(device, result, "upload: %s", sending->function);
  /* Places must not be filled again while a copy may read them. */
  cu_result ended = device_lost(device) ? CU_SUCCESS : device_synchronize(device, staging->stream);
  if (ended != CU_SUCCESS) {
    status = device_failed(device, ended, "upload: cuStreamSynchronize after a failure");
    if (status != RONDO_DEVICE_LOST) status = device_lose(device, rondo_error_text());
  }
  staging->sent = staging->freed = staging->filling.added;
  staging->freed_to = staging->filled_to;
  staging->ended = staging->begun;
  return status;
}

/* ---- Uploads ----------------------------------------------------------------------------------------------------- */

/* What is pinned the driver moves as fast; of little it is not asked. */
static bool is_for_staging(const struct device *device, const struct device_upload *upload) {
  const struct device_rows *rows = &upload->rows;
  cu_address address;
  if (rows->count[0] != 1 || rows->count[1] != 1 || rows->count[2] != 1) return false;
  if (rows->bytes < least_direct_bytes) return true;
  void *source = (void *)(uintptr_t)upload->source;
  return device->driver.cuMemHostGetDevicePointer(&address, source, 0) != CU_SUCCESS;
}

rondo_status upload_staged(struct device *device, const struct device_uploads *uploads, uint32_t first,
                           uint32_t *next) {
  struct staging *staging = &device->staging;
  *next = first;
  if (!staging->memory) return RONDO_OK;
  rondo_status status = device_enter(device, "upload");
  if (status != RONDO_OK) return status;
  int mode = device_relax(device);
  if (!pthread_mutex_trylock(&staging->lock)) {
    uint64_t bytes = 0;
    for (; *next < uploads->count; ++*next) {
      const struct device_upload upload = uploads->at(uploads, *next);
      if (!is_for_staging(device, &upload)) break;
      bytes += upload.rows.bytes;
    }
    struct sending sending = {.uploads = uploads, .next = first, .end = *next};
    cu_result result = send_all(device, &sending, bytes);
    if (result != CU_SUCCESS) status = send_failed(device, &sending, result);
    pthread_mutex_unlock(&staging->lock);
  }
  device_restore(device, mode);
  device_leave(device);
  return status;
}

/* The last copy's event may have been recorded again behind a later one: then the lane waits for that. */
rondo_status cuda_await_uploads(struct device *device, uint32_t lane) {
  struct staging *staging = &device->staging;
  const uint64_t begun = staging->begun;
  if (begun == staging->ended) return RONDO_OK;
  rondo_status status = device_enter(device, "upload");
  if (status != RONDO_OK) return status;
  struct cu_event *last = staging->copied[(begun - 1) % STAGING_COPIES];
  cu_result result = device->driver.cuStreamWaitEvent(device->lanes[lane].stream, last, 0);
  if (result != CU_SUCCESS) result = device_synchronize(device, staging->stream); /* then the host waits */
  if (result != CU_SUCCESS) status = device_failed(device, result, "upload: cuStreamSynchronize");
  device_leave(device);
  return status;
}
