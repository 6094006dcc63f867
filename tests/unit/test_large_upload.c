/* test_large_upload.c - uploads that go through staging in pieces: every byte at its place and none beside it, from
 * two threads at once, and beside replays of the lane. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

/* As in runtime/cuda/staging.c: pieces, what is asked of the driver first, the most of a copy, and all of the staging.
 */
enum { PIECE = 32 << 10, DIRECT = 1 << 20, COPY = 4 << 20, STAGING = 16 << 20 };
enum { ROOM = 24 << 20, MARGIN = 3, FILL = 0x5a };
static const int64_t sizes[] = {0,
                                1,
                                PIECE - 1,
                                PIECE,
                                PIECE + 1,
                                9 * (int64_t)PIECE - 1,
                                9 * (int64_t)PIECE + 1,
                                DIRECT - 1,
                                DIRECT,
                                DIRECT + 1,
                                COPY - 1,
                                COPY,
                                COPY + 1,
                                STAGING - 1,
                                STAGING,
                                STAGING + PIECE + 1,
                                ROOM - 2 * (int64_t)MARGIN};
enum { SIZES = sizeof sizes / sizeof *sizes };

struct subject {
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_tensor state, parts[SIZES];
  unsigned char *source, *back;
};

static void subject_open(struct subject *s, rondo_runtime *runtime, uint32_t lane, uint64_t seed) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  REQUIRE_OK(rondo_state(s->graph, "state", RONDO_U8, 1, (int64_t[]){ROOM}, &s->state));
  for (int i = 0; i < SIZES; i++)
    if (sizes[i]) REQUIRE_OK(rondo_view(s->graph, s->state, (int64_t[]){MARGIN}, (int64_t[]){sizes[i]}, &s->parts[i]));
  REQUIRE_OK(rondo_instantiate(runtime, s->graph, &(rondo_exec_options){.lane = lane}, &s->exec));
  s->source = malloc(ROOM);
  s->back = malloc(ROOM);
  cr_assert(s->source && s->back);
  struct random random = {seed};
  for (size_t i = 0; i < ROOM; i += sizeof(uint64_t)) {
    uint64_t bits = random_bits(&random);
    memcpy(s->source + i, &bits, sizeof bits);
  }
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  free(s->source);
  free(s->back);
}

static bool all_are(const unsigned char *bytes, size_t count, int value) {
  return count == 0 || (bytes[0] == value && !memcmp(bytes, bytes + 1, count - 1));
}

/* The sizes [first], [first + step] and so on. */
static void upload_sizes(struct subject *s, int first, int step) {
  for (int i = first; i < SIZES; i += step) {
    size_t bytes = (size_t)sizes[i];
    memset(s->back, FILL, ROOM);
    REQUIRE_OK(rondo_upload(s->exec, s->state, s->back, ROOM));
    if (bytes) REQUIRE_OK(rondo_upload(s->exec, s->parts[i], s->source + 1, bytes)); /* at an odd address */
    REQUIRE_OK(rondo_download(s->exec, s->state, s->back, ROOM));
    cr_assert(!memcmp(s->back + MARGIN, s->source + 1, bytes), "%zu bytes", bytes);
    cr_assert(all_are(s->back, MARGIN, FILL), "before %zu bytes", bytes);
    cr_assert(all_are(s->back + MARGIN + bytes, ROOM - MARGIN - bytes, FILL), "behind %zu bytes", bytes);
  }
}

static rondo_runtime *open_lanes(rondo_backend backend) {
  static const rondo_lane lanes[2];
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = backend,
                                         .device_bytes = 256 << 20,
                                         .pinned_bytes = 1 << 20,
                                         .host_threads = 2,
                                         .lanes = lanes,
                                         .lane_count = 2},
                        &runtime));
  return runtime;
}

static void every_size(rondo_backend backend) {
  struct subject s = {0};
  rondo_runtime *runtime = open_lanes(backend);
  subject_open(&s, runtime, 0, 1);
  upload_sizes(&s, 0, 1);
  subject_close(&s);
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(large_upload, of_any_size_sets_its_bytes_and_no_others, every_size)

static void *upload_beside(void *subject) {
  upload_sizes(subject, 0, 2);
  return NULL;
}

static void two_threads(rondo_backend backend) {
  struct subject s[2] = {0};
  pthread_t thread;
  rondo_runtime *runtime = open_lanes(backend);
  for (uint32_t i = 0; i < 2; i++) subject_open(&s[i], runtime, i, 7 + i);
  cr_assert_eq(pthread_create(&thread, NULL, upload_beside, &s[1]), 0);
  upload_sizes(&s[0], 1, 2);
  cr_assert_eq(pthread_join(thread, NULL), 0);
  for (uint32_t i = 0; i < 2; i++) subject_close(&s[i]);
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(large_upload, by_two_threads_in_two_lanes_mixes_nothing_up, two_threads)

/* state := weights, time after time. */
struct taker {
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_tensor weights, state;
  rondo_slot slot;
};

static void taker_open(struct taker *t, rondo_runtime *runtime) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &t->graph));
  REQUIRE_OK(rondo_constant(t->graph, "weights", RONDO_U8, 1, (int64_t[]){ROOM}, &t->weights));
  REQUIRE_OK(rondo_state(t->graph, "state", RONDO_U8, 1, (int64_t[]){ROOM}, &t->state));
  REQUIRE_OK(rondo_add_copy(t->graph, &(rondo_copy_desc){.src = t->weights, .dst = t->state}));
  REQUIRE_OK(rondo_instantiate(runtime, t->graph, &(rondo_exec_options){.constants_begin_as_zeros = true}, &t->exec));
  REQUIRE_OK(rondo_acquire(t->exec, &t->slot));
}

static void taker_close(struct taker *t) {
  REQUIRE_OK(rondo_release(t->slot));
  REQUIRE_OK(rondo_close_exec(&t->exec));
  REQUIRE_OK(rondo_graph_destroy(&t->graph));
}

static void between_replays(rondo_backend backend) {
  struct taker t[2] = {0};
  unsigned char *data = malloc(ROOM), *back = malloc(ROOM);
  rondo_runtime *runtime = open_lanes(backend);
  for (int i = 0; i < 2; i++) taker_open(&t[i], runtime);
  for (int round = 1; round < 9; round++) {
    memset(data, round, ROOM);
    REQUIRE_OK(rondo_replay(t[0].slot)); /* in flight */
    REQUIRE_OK(rondo_upload(t[1].exec, t[1].weights, data, ROOM));
    memset(data, FILL, ROOM); /* the caller's again */
    REQUIRE_OK(rondo_replay(t[1].slot));
    for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_wait(t[i].slot, RONDO_FOREVER));
    REQUIRE_OK(rondo_download(t[1].exec, t[1].state, back, ROOM));
    cr_assert(all_are(back, ROOM, round), "round %d", round);
  }
  for (int i = 0; i < 2; i++) taker_close(&t[i]);
  REQUIRE_OK(rondo_close(&runtime));
  free(data);
  free(back);
}
BOTH_BACKENDS(large_upload, is_seen_by_the_next_replay_and_by_none_before, between_replays)

/* ---- Many, one right after the other ---------------------------------------------------------------------------- */

enum { PARTS = 400 };

/* Sizes from a byte to 512 KB, so that the staging is around more than once, and threads come while it goes on. */
static void many(rondo_backend backend) {
  rondo_runtime *runtime = open_lanes(backend);
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_tensor parts[PARTS];
  struct random random = {41};
  size_t bytes[PARTS], most = 0;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (int i = 0; i < PARTS; i++) {
    bytes[i] = (size_t)(random_bits(&random) & ((UINT64_C(1) << random_bits(&random) % 20) - 1)) + 1;
    most = bytes[i] > most ? bytes[i] : most;
    REQUIRE_OK(rondo_state(graph, "part", RONDO_U8, 1, (int64_t[]){(int64_t)bytes[i]}, &parts[i]));
  }
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  unsigned char *data = malloc(most), *back = malloc(most);
  cr_assert(data && back);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < PARTS; i++) {
      memset(data, i % 251 + round, bytes[i]);
      REQUIRE_OK(rondo_upload(exec, parts[i], data, bytes[i]));
    }
    for (int i = 0; i < PARTS; i++) {
      REQUIRE_OK(rondo_download(exec, parts[i], back, bytes[i]));
      cr_assert(all_are(back, bytes[i], i % 251 + round), "part %d of %zu bytes, round %d", i, bytes[i], round);
    }
  }
  free(data);
  free(back);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(large_upload, of_many_in_a_row_mixes_nothing_up, many)
