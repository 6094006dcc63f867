/* staging.c - uploads from ordinary memory. The driver copies memory that is not pinned into pinned memory of its own
 * first, with the calling thread alone: on an H200 that makes 7 to 16 GB/s of a bus that moves 55. Here helper threads
 * fill a ring of pinned memory, the staging, piece by piece, and the calling thread sends filled pieces in few large
 * copies: pieces are small, so that the first is filled soon, and copies are large, since each costs the bus 2 us.
 * Tensors that are neighbours on the device are neighbours in the staging, and go in the same copies. Only the calling
 * thread calls the driver.
 *
 * Copies have a stream of their own, in which no replay precedes them. An upload returns when its last copy is in that
 * stream. The program's memory is free then, and the next upload's pieces are filled while the bus moves this one's.
 * Lanes wait for an event after the last copy. The driver does the upload alone if there is no staging, if another
 * thread uses the staging, if rows lie apart, and if the source is pinned and large.
 *
 * The ring. Pieces have numbers that only grow; piece i stands in pieces[i % PIECES]. One thread at a time uploads,
 * under the lock; it alone moves `added`, `sent` and `freed`. It and the helpers move `claimed`. Always
 *
 *     freed <= sent <= added <= freed + PIECES,   claimed <= added,   filled_to - freed_to <= staging_bytes.
 *
 * 1. No two threads fill the same piece: a thread claims a range by exchanging `claimed`, which only grows.
 * 2. A filler sees the piece that was added: the uploader writes it before it adds (release), and the filler looks at
 * `added` (acquire) before it claims. The entry is written again for piece i + PIECES only, so after piece i was freed,
 * and before that it was copied, and before that filled: after the filler's last look at it.
 * 3. A copy reads whole pieces: the uploader sends a piece only after it has seen it filled (acquire), and its bytes of
 * the staging are used again only after the event of its copy.
 * 4. On return nobody reads the sources: after success all pieces are sent, so filled; after a failure the uploader
 * waits for the pieces that others have claimed, and fills the rest.
 * 5. No upload is left without the helper that it counts on: a helper that leaves stores its state and then looks for
 * an upload, and an upload stores that it has begun and then looks at the states, both in one total order (seq_cst).
 * One of the two sees the other; if both do, one exchange of the state decides. */
#include "staging.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../clock.h"
#include "../cores.h"
#include "../own_thread.h"
#include "cuda_failure.h"
#include "turns.h"

enum { TEXT_BYTES = 512, BUSY_COPIES = 2, ALIGNMENT = 256, PIECES = 1024, COPIES = 16 };
enum { HELPERS_MOST = 8, SHARES = 2 * HELPERS_MOST, CLAIMED_MOST = 4 };
enum { YIELDS_BEFORE_SLEEP = 1000, SLEEP_NS = 20 * 1000, LINGER_NS = 1000 * 1000 };
static const uint64_t staging_bytes = 16 << 20, piece_bytes = 32 << 10, least_copy_bytes = 128 << 10,
                      most_copy_bytes = 4 << 20, busy_bytes = 1 << 20, least_pool_bytes = 64 << 20,
                      least_direct_bytes = 1 << 20, bytes_a_helper = 1 << 20, most_burst_bytes = 16 << 20;

struct piece {
  const unsigned char *source;
  uint64_t bytes, zeros;   /* of the source, and after them */
  uint64_t begin, end;     /* in the staging: positions that only grow */
  cu_address destination;  /* on the device */
  _Atomic uint64_t filled; /* the number of the last piece here that was filled, plus one */
};

enum helper_state { HELPER_NONE, HELPER_WORKS, HELPER_HAS_LEFT /* and is to be joined */ };
struct helper {
  struct staging *staging;
  pthread_t thread;
  atomic_int state;
};

struct staging {
  unsigned char *memory;           /* NULL: there is none */
  struct cu_stream *stream;        /* of the copies, and nothing else */
  pthread_mutex_t lock;            /* around all below, except as the head of this file says */
  uint64_t filled_to, freed_to;    /* positions: the end of the last piece, and of the last that was copied */
  uint64_t sent, freed;            /* pieces that are in a copy, and whose copies have ended */
  _Atomic uint64_t begun, ended;   /* copies; those between the two are in progress */
  struct cu_event *copied[COPIES]; /* the event after each of these, and the piece after its last */
  uint64_t ends[COPIES];
  struct cores cores; /* where helpers run */
  struct helper helpers[HELPERS_MOST];
  uint32_t helpers_wanted, helpers_seen; /* by this upload, and how many of those it has looked at */
  uint64_t burst_bytes, ended_ns;        /* of uploads in quick succession */
  atomic_bool is_uploading;
  _Alignas(64) _Atomic uint64_t added;
  _Alignas(64) _Atomic uint64_t claimed; /* pieces that a thread fills or has filled */
  _Alignas(64) struct piece pieces[PIECES];
};

uint64_t staging_struct_bytes(void) { return sizeof(struct staging); }

void staging_init(struct device *device) {
  pthread_mutex_init(&device->staging->lock, NULL);
  cores_find(&device->staging->cores);
}

void staging_destroy(struct device *device) { pthread_mutex_destroy(&device->staging->lock); }

static cu_result staging_take(struct device *device) {
  struct staging *staging = device->staging;
  const struct driver *driver = &device->driver;
  void *memory = NULL;
  cu_result result = driver->cuMemHostAlloc(&memory, staging_bytes, CU_HOST_ALLOC_PORTABLE);
  if (result == CU_SUCCESS) {
    staging->memory = memory;
    result = driver->cuStreamCreateWithPriority(&staging->stream, CU_STREAM_NON_BLOCKING, 0);
  }
  for (uint32_t i = 0; i < COPIES && result == CU_SUCCESS; i++)
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
  struct staging *staging = device->staging;
  for (uint32_t i = 0; i < COPIES; i++)
    if (staging->copied[i]) device->driver.cuEventDestroy(staging->copied[i]);
  if (staging->stream) device->driver.cuStreamDestroy(staging->stream);
  if (staging->memory) device->driver.cuMemFreeHost(staging->memory);
  memset(staging->copied, 0, sizeof staging->copied);
  staging->stream = NULL;
  staging->memory = NULL;
}

/* ---- Filling ----------------------------------------------------------------------------------------------------- */

static struct piece *piece_at(struct staging *staging, uint64_t piece) { return &staging->pieces[piece % PIECES]; }

static bool is_filled(struct staging *staging, uint64_t piece) {
  return atomic_load_explicit(&piece_at(staging, piece)->filled, memory_order_acquire) == piece + 1;
}

/* Fills the first unclaimed pieces: one of few, several of many. False: there is none. */
static bool fill_some(struct staging *staging) {
  uint64_t number = atomic_load_explicit(&staging->claimed, memory_order_relaxed), end;
  do {
    uint64_t added = atomic_load_explicit(&staging->added, memory_order_acquire);
    if (number >= added) return false;
    uint64_t share = (added - number) / SHARES;
    end = number + (share < 1 ? 1 : share > CLAIMED_MOST ? CLAIMED_MOST : share);
  } while (!atomic_compare_exchange_weak(&staging->claimed, &number, end));
  for (; number < end; number++) {
    struct piece *piece = piece_at(staging, number);
    unsigned char *memory = staging->memory + piece->begin % staging_bytes;
    memcpy(memory, piece->source, piece->bytes);
    memset(memory + piece->bytes, 0, piece->zeros);
    atomic_store_explicit(&piece->filled, number + 1, memory_order_release);
  }
  return true;
}

/* For a thread with nothing to do, the `idle`th time in a row: the bus may be slow. */
static void rest(uint32_t idle) {
  if (idle < YIELDS_BEFORE_SLEEP)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

/* ---- Helpers ----------------------------------------------------------------------------------------------------- */

/* Helpers start as bytes come and end by themselves a moment after the last upload: a model is hundreds of uploads in
 * quick succession, and the start of eight threads takes 0.16 ms, in which the bus moves 9 MB. */

/* See 5 at the head of this file. */
static bool leaves(struct helper *self) {
  int state = HELPER_HAS_LEFT;
  atomic_store(&self->state, HELPER_HAS_LEFT);
  return !atomic_load(&self->staging->is_uploading) ||
         !atomic_compare_exchange_strong(&self->state, &state, HELPER_WORKS);
}

static void *help(void *argument) {
  struct helper *self = argument;
  struct staging *staging = self->staging;
  uint32_t idle = 0;
  own_thread_begin(&staging->cores);
  for (uint64_t since_ns = now_ns();;) {
    bool is_busy = fill_some(staging);
    idle = is_busy ? 0 : idle + 1;
    if (is_busy) continue;
    if (atomic_load_explicit(&staging->is_uploading, memory_order_relaxed))
      since_ns = 0;
    else if (!since_ns)
      since_ns = now_ns();
    else if (now_ns() - since_ns > LINGER_NS && leaves(self))
      return NULL;
    rest(idle);
  }
}

/* False: it works already, or no thread can be made. */
static bool start(struct staging *staging, struct helper *helper) {
  int state = HELPER_HAS_LEFT;
  if (atomic_compare_exchange_strong(&helper->state, &state, HELPER_NONE)) pthread_join(helper->thread, NULL);
  if (atomic_load(&helper->state) != HELPER_NONE) return false;
  helper->staging = staging;
  atomic_store(&helper->state, HELPER_WORKS);
  if (!own_thread_start(&helper->thread, help, helper)) return true;
  atomic_store(&helper->state, HELPER_NONE);
  return false;
}

/* A pause takes a byte a nanosecond off the burst, so a few bytes between replays never ask for helpers. */
static void helpers_begin(struct staging *staging, uint64_t bytes) {
  uint64_t pause_ns = now_ns() - staging->ended_ns;
  staging->burst_bytes -= pause_ns < staging->burst_bytes ? pause_ns : staging->burst_bytes;
  staging->burst_bytes += bytes;
  if (staging->burst_bytes > most_burst_bytes) staging->burst_bytes = most_burst_bytes;
  atomic_store(&staging->is_uploading, true);
  uint64_t wanted = staging->burst_bytes / bytes_a_helper, threads = cores_threads(&staging->cores);
  if (wanted > HELPERS_MOST) wanted = HELPERS_MOST;
  if (wanted > threads - 1) wanted = threads - 1;
  staging->helpers_wanted = (uint32_t)wanted;
  staging->helpers_seen = 0;
}

/* Starts one more helper if the burst can do with it; false: there are enough. */
static bool helpers_recruit(struct staging *staging) {
  while (staging->helpers_seen < staging->helpers_wanted)
    if (start(staging, &staging->helpers[staging->helpers_seen++])) return true;
  return false;
}

static void helpers_end(struct staging *staging) {
  staging->ended_ns = now_ns();
  atomic_store(&staging->is_uploading, false);
}

void staging_join(struct device *device) {
  for (uint32_t i = 0; i < HELPERS_MOST; i++) {
    struct helper *helper = &device->staging->helpers[i];
    if (atomic_load(&helper->state) == HELPER_NONE) continue;
    pthread_join(helper->thread, NULL);
    atomic_store(&helper->state, HELPER_NONE);
  }
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

/* The uploads in progress. Neighbours on the device go as one. */
struct sending {
  const struct device_uploads *uploads;
  uint32_t next, end;   /* uploads that are not pieces yet */
  uint64_t next_bytes;  /* bytes of the next upload that are */
  uint64_t ready;       /* the pieces before this one are filled, and go in one copy */
  const char *function; /* of the driver, called last */
};

static cu_address address_of(const unsigned char *memory) { return (uintptr_t)memory; }

/* The bytes of an upload, and of the gap up to the next one if that is its neighbour. */
static uint64_t bytes_of(const struct sending *sending, const struct device_upload *upload) {
  if (sending->next + 1 == sending->end) return upload->rows.bytes;
  const struct device_upload after = sending->uploads->at(sending->uploads, sending->next + 1);
  return after.destination == upload->destination + upload->room_bytes ? upload->room_bytes : upload->rows.bytes;
}

/* Does the piece follow the one before it, in the staging and on the device? No piece lies across the end of the ring.
 */
static bool follows(struct staging *staging, uint64_t piece) {
  const struct piece *one = piece_at(staging, piece), *before = piece_at(staging, piece - 1);
  return one->begin == before->end && one->destination == before->destination + (before->end - before->begin);
}

/* False: the ring is full. */
static bool add_piece(struct staging *staging, struct sending *sending) {
  const struct device_upload upload = sending->uploads->at(sending->uploads, sending->next);
  const uint64_t done = sending->next_bytes, row = upload.rows.bytes, all = bytes_of(sending, &upload);
  const uint64_t bytes = all - done < piece_bytes ? all - done : piece_bytes;
  const uint64_t zeros = done + bytes > row ? done + bytes - row : 0, piece = staging->added;
  const cu_address destination = address_of(upload.destination) + done;
  uint64_t begin = staging->filled_to;
  if (begin % staging_bytes + ALIGNMENT + bytes > staging_bytes) begin += -begin % staging_bytes;
  begin += (destination - begin) % ALIGNMENT; /* cache lines of one are cache lines of the other */
  if (piece - staging->freed == PIECES || begin + bytes - staging->freed_to > staging_bytes) return false;
  if (bytes) {
    struct piece *entry = piece_at(staging, piece);
    entry->source = upload.source + done;
    entry->bytes = bytes - zeros;
    entry->zeros = zeros;
    entry->begin = begin;
    entry->end = begin + bytes;
    entry->destination = destination;
    atomic_store_explicit(&staging->added, piece + 1, memory_order_release);
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

/* Frees the pieces of copies that have ended. A device that was given up as lost is not waited for. */
static cu_result end_copies(struct device *device) {
  struct staging *staging = device->staging;
  cu_result result = device_lost(device) ? CU_LAUNCH_FAILED : CU_SUCCESS;
  while (!is_empty(staging) && result == CU_SUCCESS) {
    result = device->driver.cuEventQuery(staging->copied[staging->ended % COPIES]);
    if (result != CU_SUCCESS) break;
    staging->freed = staging->ends[staging->ended % COPIES];
    staging->freed_to = piece_at(staging, staging->freed - 1)->end;
    staging->ended++;
  }
  return result == CU_NOT_READY ? CU_SUCCESS : result;
}

/* The end of the filled pieces that go in one copy now; `sent`: none. A copy waits until nothing more can be in it. If
 * the bus has too little to do, least_copy_bytes are enough. */
static uint64_t run_end(struct staging *staging, struct sending *sending) {
  const uint64_t begin = staging->sent, added = staging->added, under_way = staging->begun - staging->ended;
  const bool more_come = sending->next < sending->end && added - staging->freed < PIECES;
  uint64_t end = sending->ready > begin ? sending->ready : begin, bytes = 0;
  bool goes_on = true;
  for (;; end++) {
    bytes = end > begin ? piece_at(staging, end - 1)->end - piece_at(staging, begin)->begin : 0;
    goes_on = end < added ? end == begin || follows(staging, end) : more_come;
    if (bytes >= most_copy_bytes || !goes_on || end == added || !is_filled(staging, end)) break;
  }
  sending->ready = end;
  bool is_whole = bytes >= most_copy_bytes || !goes_on;
  bool is_busy = under_way >= BUSY_COPIES && piece_at(staging, begin - 1)->end - staging->freed_to >= busy_bytes;
  bool is_due = is_whole || (!is_busy && bytes >= least_copy_bytes);
  return is_due && under_way < COPIES ? end : begin;
}

static cu_result copy_run(struct device *device, struct sending *sending, uint64_t end) {
  struct staging *staging = device->staging;
  const struct driver *driver = &device->driver;
  const struct piece *first = piece_at(staging, staging->sent);
  sending->function = "cuMemcpyHtoDAsync";
  cu_result result = driver->cuMemcpyHtoDAsync(first->destination, staging->memory + first->begin % staging_bytes,
                                               piece_at(staging, end - 1)->end - first->begin, staging->stream);
  if (result != CU_SUCCESS) return result;
  sending->function = "cuEventRecord";
  result = driver->cuEventRecord(staging->copied[staging->begun % COPIES], staging->stream);
  if (result != CU_SUCCESS) return result;
  staging->ends[staging->begun % COPIES] = staging->sent = end;
  staging->begun++;
  return CU_SUCCESS;
}

/* Sends filled pieces and frees copied ones. If there is neither, this thread fills. */
static cu_result send_all(struct device *device, struct sending *sending, uint64_t bytes) {
  struct staging *staging = device->staging;
  cu_result result = CU_SUCCESS;
  add_pieces(staging, sending);
  helpers_begin(staging, bytes);
  for (uint32_t idle = 0; sending->next < sending->end || staging->sent < staging->added;) {
    sending->function = "cuEventQuery";
    result = end_copies(device);
    if (result != CU_SUCCESS) break;
    add_pieces(staging, sending);
    uint64_t end = run_end(staging, sending);
    if (end > staging->sent) {
      result = copy_run(device, sending, end);
      if (result != CU_SUCCESS) break;
    } else if (!helpers_recruit(staging) && !fill_some(staging)) {
      rest(idle++);
      continue;
    }
    idle = 0;
  }
  /* See 4 at the head of this file. */
  while (fill_some(staging)) {}
  for (uint64_t piece = staging->sent; piece < staging->added; piece++)
    for (uint32_t idle = 0; !is_filled(staging, piece); idle++) rest(idle);
  helpers_end(staging);
  return result;
}

static rondo_status send_failed(struct device *device, const struct sending *sending, cu_result result) {
  struct staging *staging = device->staging;
  rondo_status status = device_lost(device) ? device_lost_status(device, "upload")
                                            : device_failed(device, result, "upload: %s", sending->function);
  /* Pieces must not be filled again while a copy may read them. */
  cu_result ended = device_lost(device) ? CU_SUCCESS : device_synchronize(device, staging->stream);
  if (ended != CU_SUCCESS) {
    status = device_failed(device, ended, "upload: cuStreamSynchronize after a failure");
    if (status != RONDO_DEVICE_LOST) status = device_lose(device, rondo_error_text());
  }
  staging->sent = staging->freed = staging->added;
  staging->freed_to = staging->filled_to;
  staging->ended = staging->begun;
  return status;
}

/* ---- Uploads ----------------------------------------------------------------------------------------------------- */

/* The driver moves pinned memory as fast. Whether small memory is pinned is not asked. Of memory that the driver does
 * not know this question is no error, which compute-sanitizer would report. */
static bool is_for_staging(const struct device *device, const struct device_upload *upload) {
  const struct device_rows *rows = &upload->rows;
  unsigned type = 0;
  if (rows->count[0] != 1 || rows->count[1] != 1 || rows->count[2] != 1) return false;
  if (rows->bytes < least_direct_bytes) return true;
  const cu_address source = (uintptr_t)upload->source;
  return device->driver.cuPointerGetAttributes(1, (int[]){CU_POINTER_MEMORY_TYPE}, (void *[]){&type}, source) !=
             CU_SUCCESS ||
         type != CU_MEMORY_HOST;
}

rondo_status staging_upload(struct device *device, const struct device_uploads *uploads, uint32_t first,
                            uint32_t *next) {
  struct staging *staging = device->staging;
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

/* The event of the last copy may have been recorded again, after a later copy. Then the lane waits for that copy. */
rondo_status staging_await(struct device *device, uint32_t lane) {
  struct staging *staging = device->staging;
  const uint64_t begun = staging->begun;
  if (begun == staging->ended) return RONDO_OK;
  rondo_status status = device_enter(device, "upload");
  if (status != RONDO_OK) return status;
  struct cu_event *last = staging->copied[(begun - 1) % COPIES];
  const char *function = "cuStreamWaitEvent";
  lane_enter(&device->lanes[lane]);
  cu_result result = device->driver.cuStreamWaitEvent(device->lanes[lane].stream, last, 0);
  lane_leave(&device->lanes[lane]);
  if (result != CU_SUCCESS && !device_is_fatal(result)) { /* then the host waits */
    function = "cuStreamSynchronize";
    result = device_synchronize(device, staging->stream);
  }
  if (result != CU_SUCCESS) status = device_failed(device, result, "upload: %s", function);
  device_leave(device);
  return status;
}
