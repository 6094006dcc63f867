/* test_upload_order.c - the order of uploads on the CUDA backend: an upload waits for nothing, and everything that may
 * read its tensor comes after it; and lists of many tensors. */
#include <stdlib.h>
#include <string.h>

#include "driver_support.h"

TestSuite(upload_order, .init = driver_setup, .timeout = 60);

/* What asks for the device's health lets a piece of work run, of any stream: of so many one is not all. */
enum {
  OWNERS = 1,
  OTHERS = 0,
  POOL_BYTES = 64 << 20,
  MOST_ON_THEIR_WAY = 16,
  SMALL_BYTES = 32 << 10 /* a piece, and a copy */
};

/* Two lanes of which nothing runs but what is waited for. */
struct lanes {
  rondo_graph *graph, *borrowing, *others; /* others: of the exec `other`, where a test has it */
  rondo_runtime *runtime;
  rondo_exec *owner, *borrower, *other;
  rondo_tensor weights, borrowed, output;
  rondo_slot slot;
  unsigned char *data, *back;
};

static void lanes_open(struct lanes *l) {
  static const rondo_lane lanes[2];
  const rondo_options options = {.backend = RONDO_BACKEND_CUDA,
                                 .device_bytes = POOL_BYTES,
                                 .pinned_bytes = 4 << 20,
                                 .host_bytes = 1 << 20,
                                 .lanes = lanes,
                                 .lane_count = 2};
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_open(&options, &l->runtime));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &l->graph));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &l->borrowing));
  REQUIRE_OK(rondo_constant(l->graph, "weights", RONDO_U8, 1, (int64_t[]){SMALL_BYTES}, &l->weights));
  REQUIRE_OK(rondo_borrow(l->borrowing, l->weights, &l->borrowed));
  REQUIRE_OK(rondo_output(l->borrowing, "output", RONDO_U8, 1, (int64_t[]){SMALL_BYTES}, &l->output));
  REQUIRE_OK(rondo_add_copy(l->borrowing, &(rondo_copy_desc){.src = l->borrowed, .dst = l->output}));
  REQUIRE_OK(rondo_instantiate(l->runtime, l->graph, &(rondo_exec_options){.lane = OWNERS}, &l->owner));
  l->data = malloc(SMALL_BYTES);
  l->back = malloc(SMALL_BYTES);
  cr_assert(l->data && l->back);
}

static void lanes_close(struct lanes *l) {
  if (l->borrower) REQUIRE_OK(rondo_close_exec(&l->borrower));
  if (l->owner) REQUIRE_OK(rondo_close_exec(&l->owner));
  if (l->other) REQUIRE_OK(rondo_close_exec(&l->other));
  REQUIRE_OK(rondo_close(&l->runtime));
  if (l->others) REQUIRE_OK(rondo_graph_destroy(&l->others));
  REQUIRE_OK(rondo_graph_destroy(&l->borrowing));
  REQUIRE_OK(rondo_graph_destroy(&l->graph));
  free(l->data);
  free(l->back);
  require_clean("after close");
}

/* Nothing waits for anything. */
static void send(struct lanes *l, int value) {
  memset(l->data, value, SMALL_BYTES);
  uint64_t waits = fake->calls("cuStreamSynchronize");
  REQUIRE_OK(rondo_upload(l->owner, l->weights, l->data, SMALL_BYTES));
  cr_assert_eq(fake->calls("cuStreamSynchronize"), waits);
  memset(l->data, 0, SMALL_BYTES); /* the caller's again */
}

static void require_filled(const unsigned char *bytes, unsigned char value) {
  cr_assert(bytes[0] == value && !memcmp(bytes, bytes + 1, SMALL_BYTES - 1), "%d, expected %d", bytes[0], value);
}

static void require_downloaded(const struct lanes *l, rondo_exec *exec, rondo_tensor tensor, unsigned char value) {
  memset(l->back, value + 1, SMALL_BYTES);
  REQUIRE_OK(rondo_download(exec, tensor, l->back, SMALL_BYTES));
  require_filled(l->back, value);
}

/* Each has one copy, the last one last; none has run. */
static void send_many(struct lanes *l, int last) {
  set_mode(FAKE_NEVER);
  for (int i = 1; i <= MOST_ON_THEIR_WAY; i++) send(l, last + i - MOST_ON_THEIR_WAY);
  set_mode(FAKE_DEFERRED);
}

static void borrow_elsewhere(struct lanes *l) {
  REQUIRE_OK(rondo_instantiate(l->runtime, l->borrowing, &(rondo_exec_options){.lane = OTHERS}, &l->borrower));
  REQUIRE_OK(rondo_acquire(l->borrower, &l->slot));
}

static void require_seen_elsewhere(const struct lanes *l, unsigned char value) {
  REQUIRE_OK(rondo_replay(l->slot));
  REQUIRE_OK(rondo_wait(l->slot, RONDO_FOREVER));
  require_filled(rondo_data(l->slot, l->output), value);
}

/* An exec of the other lane with a constant of its own. */
static void open_others(struct lanes *l, rondo_tensor *constant) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &l->others));
  REQUIRE_OK(rondo_constant(l->others, "others", RONDO_U8, 1, (int64_t[]){SMALL_BYTES}, constant));
  REQUIRE_OK(rondo_instantiate(l->runtime, l->others, &(rondo_exec_options){.lane = OTHERS}, &l->other));
}

/* The whole goes through staging, whose stream has nothing to do with the lane's; a view whose rows lie apart goes by
 * the driver, and is the later one of the list. */
Test(upload_order, of_a_list_is_that_of_the_list) {
  enum { SIDE = 64, WIDTH = 16 };
  struct lanes l = {0};
  rondo_tensor square, left;
  unsigned char whole[SIDE * SIDE], part[SIDE * WIDTH], back[SIDE * SIDE];
  lanes_open(&l);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &l.others));
  REQUIRE_OK(rondo_state(l.others, "square", RONDO_U8, 2, (int64_t[]){SIDE, SIDE}, &square));
  REQUIRE_OK(rondo_view(l.others, square, (int64_t[]){0, 0}, (int64_t[]){SIDE, WIDTH}, &left));
  REQUIRE_OK(rondo_instantiate(l.runtime, l.others, &(rondo_exec_options){.lane = OTHERS}, &l.other));
  memset(whole, 1, sizeof whole);
  memset(part, 2, sizeof part);
  set_mode(FAKE_DEFERRED);
  const rondo_content list[] = {{square, whole, sizeof whole}, {left, part, sizeof part}};
  REQUIRE_OK(rondo_upload_all(l.other, list, 2));
  REQUIRE_OK(rondo_download(l.other, square, back, sizeof back));
  for (int i = 0; i < SIDE * SIDE; i++) cr_assert_eq(back[i], i % SIDE < WIDTH ? 2 : 1, "element %d", i);
  lanes_close(&l);
}

Test(upload_order, returns_before_it_has_come_and_a_download_sees_it) {
  struct lanes l = {0};
  lanes_open(&l);
  set_mode(FAKE_NEVER);
  for (int value = 1; value < 17; value++) send(&l, value); /* as many as can be on their way */
  set_mode(FAKE_DEFERRED);
  for (int value = 17; value < 100; value++) send(&l, value); /* and more */
  require_downloaded(&l, l.owner, l.weights, 99);
  lanes_close(&l);
}

/* Of another exec: neither those before it nor those that came between two uploads. */
Test(upload_order, waits_for_no_replay_of_its_lane) {
  struct lanes l = {0};
  lanes_open(&l);
  REQUIRE_OK(rondo_instantiate(l.runtime, l.borrowing, &(rondo_exec_options){.lane = OTHERS}, &l.borrower));
  rondo_tensor input, output;
  rondo_slot slots[2];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &l.others));
  REQUIRE_OK(rondo_input(l.others, "input", RONDO_U8, 1, (int64_t[]){64}, &input));
  REQUIRE_OK(rondo_output(l.others, "output", RONDO_U8, 1, (int64_t[]){64}, &output));
  add_copy(l.others, "copy", input, output);
  REQUIRE_OK(rondo_instantiate(l.runtime, l.others, &(rondo_exec_options){.lane = OWNERS, .slots = 2}, &l.other));
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_acquire(l.other, &slots[i]));
  set_mode(FAKE_NEVER);
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(rondo_replay(slots[i]));
    send(&l, 7 + i);
  }
  set_mode(FAKE_DEFERRED);
  cr_assert_eq(rondo_poll(slots[0]), RONDO_BUSY, "nothing has run");
  REQUIRE_OK(rondo_acquire(l.borrower, &l.slot));
  require_seen_elsewhere(&l, 8);
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(rondo_wait(slots[i], RONDO_FOREVER));
    REQUIRE_OK(rondo_release(slots[i]));
  }
  require_downloaded(&l, l.owner, l.weights, 8);
  lanes_close(&l);
}

Test(upload_order, has_come_for_who_borrows_in_another_lane_later) {
  struct lanes l = {0};
  lanes_open(&l);
  send_many(&l, 77);
  borrow_elsewhere(&l);
  require_seen_elsewhere(&l, 77);
  lanes_close(&l);
}

Test(upload_order, has_come_for_who_borrows_in_another_lane_already) {
  struct lanes l = {0};
  lanes_open(&l);
  borrow_elsewhere(&l);
  for (unsigned char value = 20; value < 100; value += 20) {
    send_many(&l, value);
    require_seen_elsewhere(&l, value);
  }
  lanes_close(&l);
}

/* What was closed leaves nothing that could still arrive in memory that is another's by then: what is behind it on the
 * way has come, and the new exec's zeros are zeros. */
Test(upload_order, into_what_is_closed_does_not_come_later) {
  struct lanes l = {0};
  rondo_exec *next = NULL;
  rondo_tensor others;
  lanes_open(&l);
  open_others(&l, &others);
  send_many(&l, 77);
  REQUIRE_OK(rondo_close_exec(&l.owner));
  REQUIRE_OK(rondo_instantiate(l.runtime, l.graph, &(rondo_exec_options){.lane = OTHERS}, &next));
  memset(l.data, 5, SMALL_BYTES);
  REQUIRE_OK(rondo_upload(l.other, others, l.data, SMALL_BYTES));
  require_downloaded(&l, l.other, others, 5);
  require_downloaded(&l, next, l.weights, 0);
  REQUIRE_OK(rondo_close_exec(&next));
  lanes_close(&l);
}

/* A runtime is closed with copies on their way, and so is one that was given up. */
Test(upload_order, is_waited_for_by_close) {
  for (int is_lost = 0; is_lost < 2; is_lost++) {
    struct lanes l = {0};
    driver_setup();
    lanes_open(&l);
    send_many(&l, 77);
    if (is_lost) {
      fake->fail_call(1, CU_ILLEGAL_ADDRESS);
      cr_assert_eq(rondo_download(l.owner, l.weights, l.back, SMALL_BYTES), RONDO_DEVICE_LOST);
      fake->fail_call(0, 0);
      rondo_close_exec(&l.owner);
      rondo_close(&l.runtime);
      REQUIRE_OK(rondo_graph_destroy(&l.borrowing));
      REQUIRE_OK(rondo_graph_destroy(&l.graph));
      free(l.data);
      free(l.back);
      require_no_violation("after close");
    } else {
      lanes_close(&l);
    }
  }
}

/* What one lane was sent may still be on its way when another is sent something, by the same staging. */
Test(upload_order, of_two_lanes_in_turns_comes_to_each) {
  struct lanes l = {0};
  rondo_tensor others;
  lanes_open(&l);
  open_others(&l, &others);
  set_mode(FAKE_NEVER);
  for (int value = 1; value < 4; value++) {
    send(&l, value);
    memset(l.data, 100 + value, SMALL_BYTES);
    REQUIRE_OK(rondo_upload(l.other, others, l.data, SMALL_BYTES));
  }
  set_mode(FAKE_DEFERRED);
  require_downloaded(&l, l.other, others, 103);
  require_downloaded(&l, l.owner, l.weights, 3);
  lanes_close(&l);
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* Tensors of a graph of its own, in a runtime with staging. */
struct list {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_content *contents;
  uint32_t count;
  unsigned char *data, *back;
};

/* Of `bytes` each, or a byte to three times as many. */
static void list_open(struct list *l, uint32_t count, int64_t bytes, bool of_any_size) {
  rondo_plan plan;
  l->count = count;
  l->contents = calloc(count, sizeof *l->contents);
  l->data = malloc((size_t)(3 * bytes) + count);
  l->back = malloc((size_t)(3 * bytes));
  cr_assert(l->contents && l->data && l->back);
  for (int64_t i = 0; i < 3 * bytes + count; i++)
    l->data[i] = (unsigned char)(1 + (i * 7 + i / 251) % 255); /* no zeros */
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = count}, &l->graph));
  for (uint32_t i = 0; i < count; i++) {
    int64_t size = of_any_size ? 1 + (int64_t)i * 7919 % (2 * bytes) : bytes;
    REQUIRE_OK(rondo_constant(l->graph, NULL, RONDO_U8, 1, &size, &l->contents[i].tensor));
    l->contents[i].data = l->data + i; /* other bytes for each */
    l->contents[i].bytes = (uint64_t)size;
  }
  REQUIRE_OK(rondo_plan_graph(l->graph, &plan));
  const rondo_options options = {.backend = RONDO_BACKEND_CUDA,
                                 .device_bytes = plan.device_bytes > POOL_BYTES ? plan.device_bytes : POOL_BYTES,
                                 .pinned_bytes = plan.pinned_bytes_per_slot,
                                 .host_bytes = plan.host_bytes};
  REQUIRE_OK(rondo_open(&options, &l->runtime));
  REQUIRE_OK(rondo_instantiate(l->runtime, l->graph, NULL, &l->exec));
}

static void require_all(struct list *l) {
  for (uint32_t i = 0; i < l->count; i++) {
    const rondo_content *content = &l->contents[i];
    REQUIRE_OK(rondo_download(l->exec, content->tensor, l->back, content->bytes));
    cr_assert(!memcmp(l->back, content->data, content->bytes), "tensor %u of %ju bytes", i, (uintmax_t)content->bytes);
  }
}

static void list_close(struct list *l) {
  REQUIRE_OK(rondo_close_exec(&l->exec));
  REQUIRE_OK(rondo_close(&l->runtime));
  REQUIRE_OK(rondo_graph_destroy(&l->graph));
  free(l->contents);
  free(l->data);
  free(l->back);
  require_clean("after close");
}

/* Neighbours go in one copy; what lies apart goes in one each. */
Test(upload_order, of_a_list_takes_a_copy_for_neighbours) {
  struct list l = {0};
  list_open(&l, 40, 3001, false);
  uint64_t copies = fake->calls("cuMemcpyHtoDAsync");
  REQUIRE_OK(rondo_upload_all(l.exec, l.contents, l.count));
  cr_assert_eq(fake->calls("cuMemcpyHtoDAsync"), copies + 1);
  const rondo_content apart[] = {l.contents[9], l.contents[3], l.contents[7], l.contents[7]};
  copies = fake->calls("cuMemcpyHtoDAsync");
  REQUIRE_OK(rondo_upload_all(l.exec, apart, 4));
  cr_assert_eq(fake->calls("cuMemcpyHtoDAsync"), copies + 4);
  require_all(&l);
  list_close(&l);
}

/* Between two of them are zeros, whatever the staging held there. */
Test(upload_order, of_a_list_leaves_zeros_between_neighbours) {
  enum { BYTES = 300, ROOM = 512 };
  struct list l = {0};
  list_open(&l, 200, BYTES, false);
  for (int round = 0; round < 300; round++)
    REQUIRE_OK(rondo_upload_all(l.exec, l.contents, l.count)); /* all of it used */
  require_all(&l);
  const unsigned char *place = fake->find(l.data, BYTES), *next = fake->find(l.data + 1, BYTES);
  cr_assert(place && next && next == place + ROOM);
  for (int i = BYTES; i < ROOM; i++) cr_assert_eq(place[i], 0, "byte %d", i);
  list_close(&l);
}

/* More than the staging holds, of bytes and of pieces, so that pieces lie around its end; also while others capture. */
Test(upload_order, of_a_list_of_any_length_comes_whole_whenever_copies_run) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED, FAKE_THREAD};
  static const struct {
    uint32_t count;
    int64_t bytes;
  } sizes[] = {{400, 70000}, {3000, 100}};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
      struct list l = {0};
      driver_setup();
      list_open(&l, sizes[j].count, sizes[j].bytes, true);
      struct fake_settings settings = fake->settings();
      settings.mode = modes[i];
      settings.captured_elsewhere = i == 1;
      fake->configure(&settings);
      for (int round = 0; round < 2; round++) {
        REQUIRE_OK(rondo_upload_all(l.exec, l.contents, l.count));
        require_all(&l);
        for (uint32_t k = 0; k < l.count / 2; k++) { /* and backwards */
          rondo_content content = l.contents[k];
          l.contents[k] = l.contents[l.count - 1 - k];
          l.contents[l.count - 1 - k] = content;
        }
      }
      list_close(&l);
    }
}
