/* test_notify.c - notices: a thread that sleeps in poll or epoll is woken by each replay's end, finds it done, and
 * gets no write after the slot was released. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../../runtime/exec.h"
#include "../support.h"

enum { COUNT = 512, SLOTS = 3, PATIENCE_MS = 20000 };

struct subject {
  rondo_runtime *runtime;
  rondo_tensor in, out;
  rondo_exec *exec;
  rondo_slot slots[SLOTS];
};

static struct subject subject_open(rondo_backend backend) {
  struct subject s = {0};
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_I32, 1, (int64_t[]){COUNT}, &s.in));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_I32, 1, (int64_t[]){COUNT}, &s.out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = s.in, .dst = s.out}));
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = backend, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .host_threads = 2},
      &s.runtime));
  REQUIRE_OK(rondo_instantiate(s.runtime, graph, &(rondo_exec_options){.slots = SLOTS}, &s.exec));
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_acquire(s.exec, &s.slots[i]));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return s;
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_close(&s->runtime));
}

static int file_open(void) {
  int file = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  cr_assert_geq(file, 0);
  return file;
}

/* What was written since, at once; 0 if nothing was. */
static uint64_t count_of(int file) {
  uint64_t count = 0;
  return read(file, &count, sizeof count) == sizeof count ? count : 0;
}

static void start(const struct subject *s, int slot, int32_t value) {
  int32_t *in = rondo_data(s->slots[slot], s->in);
  for (int i = 0; i < COUNT; i++) in[i] = value + i;
  REQUIRE_OK(rondo_replay(s->slots[slot]));
}

static void require_value(const struct subject *s, int slot, int32_t value) {
  const int32_t *out = rondo_data(s->slots[slot], s->out);
  for (int i = 0; i < COUNT; i++) cr_assert_eq(out[i], value + i);
}

static void poll_wakes(rondo_backend backend) {
  struct subject s = subject_open(backend);
  int file = file_open();
  REQUIRE_OK(rondo_notify(s.slots[0], file));
  for (int32_t replay = 0; replay < 300; replay++) {
    struct pollfd wanted = {.fd = file, .events = POLLIN};
    start(&s, 0, replay);
    cr_assert_eq(poll(&wanted, 1, PATIENCE_MS), 1, "nobody woke replay %d's sleeper", replay);
    REQUIRE_OK(rondo_poll(s.slots[0]));
    require_value(&s, 0, replay);
    cr_assert_eq(count_of(file), 1);
  }
  REQUIRE_OK(rondo_notify(s.slots[0], -1));
  start(&s, 0, 1);
  REQUIRE_OK(rondo_wait(s.slots[0], RONDO_FOREVER));
  start(&s, 1, 1); /* another slot */
  REQUIRE_OK(rondo_wait(s.slots[1], RONDO_FOREVER));
  subject_close(&s);
  cr_assert_eq(count_of(file), 0);
  close(file);
}

static void epoll_tells_slots_apart(rondo_backend backend) {
  struct subject s = subject_open(backend);
  int files[SLOTS], set = epoll_create1(EPOLL_CLOEXEC), done = 0;
  bool seen[SLOTS] = {false};
  cr_assert_geq(set, 0);
  for (int i = 0; i < SLOTS; i++) {
    files[i] = file_open();
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
    cr_assert_eq(epoll_ctl(set, EPOLL_CTL_ADD, files[i], &event), 0);
    REQUIRE_OK(rondo_notify(s.slots[i], files[i]));
    start(&s, i, 100 * i);
  }
  while (done < SLOTS) {
    struct epoll_event event;
    cr_assert_eq(epoll_wait(set, &event, 1, PATIENCE_MS), 1);
    int slot = (int)event.data.u32;
    cr_assert_not(seen[slot]);
    seen[slot] = true;
    REQUIRE_OK(rondo_poll(s.slots[slot]));
    require_value(&s, slot, 100 * slot);
    cr_assert_eq(count_of(files[slot]), 1);
    done++;
  }
  subject_close(&s);
  for (int i = 0; i < SLOTS; i++) close(files[i]);
  close(set);
}

/* The end of a replay can be seen a little before the write: who releases the slot then must be able to close the file,
 * and to open another under the same number. */
static void nothing_is_written_late(rondo_backend backend) {
  struct subject s = subject_open(backend);
  for (int32_t round = 0; round < 2000; round++) {
    int file = file_open();
    REQUIRE_OK(rondo_notify(s.slots[0], file));
    int32_t replays = 1 + round % 3;
    for (int32_t replay = 0; replay < replays; replay++) {
      start(&s, 0, round);
      REQUIRE_OK(rondo_wait(s.slots[0], RONDO_FOREVER));
    }
    if (round % 4 == 3)
      REQUIRE_OK(rondo_notify(s.slots[0], -1));
    else
      REQUIRE_OK(rondo_release(s.slots[0]));
    cr_assert_eq(count_of(file), (uint64_t)replays, "round %d", round);
    close(file);
    if (round % 4 != 3) REQUIRE_OK(rondo_acquire(s.exec, &s.slots[0]));
    int other = file_open(); /* most likely the same number */
    start(&s, 0, round);     /* the next holder has not asked to be told */
    REQUIRE_OK(rondo_wait(s.slots[0], RONDO_FOREVER));
    cr_assert_eq(count_of(other), 0, "round %d", round);
    close(other);
  }
  subject_close(&s);
}

/* Closing the exec with a notice on its way. */
enum { CUDA_ROUNDS = 20 }; /* each opens a context */

static void closing_waits_for_the_write(rondo_backend backend) {
  const uint32_t rounds = backend == RONDO_BACKEND_HOST ? rounds_here(200) : CUDA_ROUNDS;
  for (uint32_t round = 0; round < rounds; round++) {
    struct subject s = subject_open(backend);
    int file = file_open();
    REQUIRE_OK(rondo_notify(s.slots[0], file));
    start(&s, 0, 1);
    REQUIRE_OK(rondo_close_exec(&s.exec));
    cr_assert_eq(count_of(file), 1, "round %d", round);
    close(file);
    REQUIRE_OK(rondo_close(&s.runtime));
  }
}

/* The end of a replay can be seen before its notice is written; that is no reason to lose the device. On the host the
 * notice was late in about half of the rounds, on a GPU in each of them. */
static void closing_in_no_time_loses_nothing(rondo_backend backend) {
  const uint32_t rounds = backend == RONDO_BACKEND_HOST ? rounds_here(300) : CUDA_ROUNDS;
  for (uint32_t round = 0; round < rounds; round++) {
    struct subject s = subject_open(backend);
    int file = file_open();
    REQUIRE_OK(rondo_notify(s.slots[0], file));
    start(&s, 0, 1);
    REQUIRE_OK(rondo_wait(s.slots[0], RONDO_FOREVER));
    REQUIRE_OK(rondo_close_exec_within(&s.exec, 0));
    cr_assert_eq(count_of(file), 1, "round %d", round);
    close(file);
    REQUIRE_OK(rondo_close(&s.runtime));
  }
}

/* A write that takes long: the count of those on their way is held up. */
static void *write_later(void *argument) {
  struct notice *notice = argument;
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  notice_send(notice);
  return NULL;
}

Test(notify, closing_in_no_time_waits_for_a_write_that_takes_long) {
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  int file = file_open();
  pthread_t writer;
  REQUIRE_OK(rondo_notify(s.slots[1], file));
  start(&s, 1, 1);
  REQUIRE_OK(rondo_wait(s.slots[1], RONDO_FOREVER));
  notice_expect(&s.exec->slots.items[s.slots[1].index].notice);
  cr_assert_eq(pthread_create(&writer, NULL, write_later, &s.exec->slots.items[s.slots[1].index].notice), 0);
  REQUIRE_OK(rondo_close_exec_within(&s.exec, 0));
  pthread_join(writer, NULL);
  cr_assert_eq(count_of(file), 2);
  REQUIRE_OK(rondo_close(&s.runtime));
  close(file);
}

/* A file that blocks, and that nobody reads, holds nobody up: not the lane, not who releases, not who closes. */
static void a_full_file_holds_nobody_up(rondo_backend backend) {
  struct subject s = subject_open(backend);
  int file = eventfd(0, EFD_CLOEXEC);
  const uint64_t most = UINT64_MAX - 1;
  uint64_t count = 0;
  cr_assert_geq(file, 0);
  cr_assert_eq(write(file, &most, sizeof most), sizeof most);
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_notify(s.slots[i], file));
  for (int32_t replay = 0; replay < 20; replay++) {
    struct pollfd wanted = {.fd = file, .events = POLLIN};
    start(&s, replay % 2, replay);
    cr_assert_eq(poll(&wanted, 1, 0), 1, "who sleeps on it is awake");
    REQUIRE_OK(rondo_wait(s.slots[replay % 2], RONDO_FOREVER));
    require_value(&s, replay % 2, replay);
  }
  REQUIRE_OK(rondo_release(s.slots[0]));
  REQUIRE_OK(rondo_close_exec_within(&s.exec, 0));
  cr_assert_eq(read(file, &count, sizeof count), sizeof count);
  cr_assert_eq(count, most);
  REQUIRE_OK(rondo_close(&s.runtime));
  close(file);
}

/* One file for all slots: as many as have ended, whichever. */
static void one_file_serves_all_slots(rondo_backend backend) {
  struct subject s = subject_open(backend);
  int file = file_open();
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_notify(s.slots[i], file));
  for (int32_t round = 0; round < 100; round++) {
    uint64_t ended = 0;
    for (int i = 0; i < SLOTS; i++) start(&s, i, 10 * round + i);
    while (ended < SLOTS) {
      struct pollfd wanted = {.fd = file, .events = POLLIN};
      cr_assert_eq(poll(&wanted, 1, PATIENCE_MS), 1);
      ended += count_of(file);
      uint64_t done = 0;
      for (int i = 0; i < SLOTS; i++) done += rondo_poll(s.slots[i]) == RONDO_OK;
      cr_assert_geq(done, ended, "no more are told of than have ended");
    }
    cr_assert_eq(ended, SLOTS);
    for (int i = 0; i < SLOTS; i++) require_value(&s, i, 10 * round + i);
  }
  REQUIRE_OK(rondo_release(s.slots[0])); /* the others go on */
  start(&s, 1, 1);
  REQUIRE_OK(rondo_wait(s.slots[1], RONDO_FOREVER));
  subject_close(&s);
  cr_assert_eq(count_of(file), 1);
  close(file);
}

BOTH_BACKENDS(notify, poll_wakes_when_a_replay_is_done, poll_wakes)
BOTH_BACKENDS(notify, epoll_tells_which_slot_is_done, epoll_tells_slots_apart)
BOTH_BACKENDS(notify, nothing_is_written_after_the_slot_was_released, nothing_is_written_late)
BOTH_BACKENDS(notify, closing_the_exec_waits_for_the_write, closing_waits_for_the_write)
BOTH_BACKENDS(notify, closing_in_no_time_loses_no_device_whose_replays_are_done, closing_in_no_time_loses_nothing)
BOTH_BACKENDS(notify, a_full_file_holds_nobody_up, a_full_file_holds_nobody_up)
BOTH_BACKENDS(notify, one_file_tells_of_all_slots, one_file_serves_all_slots)

static void require_refused(const struct subject *s, int file) {
  char text[64];
  snprintf(text, sizeof text, "slot 0: file %d is not an eventfd", file);
  REQUIRE_ERROR(rondo_notify(s->slots[0], file), RONDO_INVALID_ARGUMENT, text);
}

Test(notify, a_file_that_is_not_open_is_refused) {
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  int file = file_open();
  close(file);
  require_refused(&s, file);
  require_refused(&s, -2);
  require_refused(&s, INT32_MAX);
  require_refused(&s, INT32_MIN);
  REQUIRE_OK(rondo_notify(s.slots[0], -1));
  REQUIRE_OK(rondo_release(s.slots[0]));
  REQUIRE_ERROR(rondo_notify(s.slots[0], -1), RONDO_INVALID_STATE, "was released");
  subject_close(&s);
}

Test(notify, a_file_that_is_no_eventfd_is_refused_and_not_written_to) {
  enum { PIPE, PIPE_END, SOCKET, SOCKET_END, PLAIN, FIRST_OTHER };
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  sigset_t signals;
  sigemptyset(&signals);
  int files[] = {[PIPE] = -1,
                 [PIPE_END] = -1,
                 [SOCKET] = -1,
                 [SOCKET_END] = -1,
                 [PLAIN] = memfd_create("plain", MFD_CLOEXEC),
                 [FIRST_OTHER] = open("/dev/null", O_WRONLY | O_CLOEXEC),
                 open("/", O_RDONLY | O_CLOEXEC),
                 epoll_create1(EPOLL_CLOEXEC),
                 timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC),
                 signalfd(-1, &signals, SFD_CLOEXEC),
                 inotify_init1(IN_CLOEXEC)};
  cr_assert_eq(pipe2(files + PIPE, O_NONBLOCK | O_CLOEXEC), 0);
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, files + SOCKET), 0);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    if (files[i] < 0 && i >= FIRST_OTHER) continue; /* a kernel without it */
    require_refused(&s, files[i]);
  }
  start(&s, 0, 1);
  REQUIRE_OK(rondo_wait(s.slots[0], RONDO_FOREVER));
  subject_close(&s);
  char byte;
  cr_assert_eq(read(files[PIPE], &byte, 1), -1, "a pipe was written to");
  cr_assert_eq(read(files[SOCKET_END], &byte, 1), -1, "a socket was written to");
  cr_assert_eq(lseek(files[PLAIN], 0, SEEK_END), 0, "a file was written to");
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) close(files[i]);
}

Test(notify, an_eventfd_of_any_kind_is_taken_and_keeps_its_count) {
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  const uint64_t full = UINT64_MAX - 1;
  for (int flags = 0; flags < 4; flags++) {
    int file = eventfd(3, (flags & 1 ? EFD_NONBLOCK : 0) | (flags & 2 ? EFD_SEMAPHORE : 0));
    uint64_t count = 0;
    REQUIRE_OK(rondo_notify(s.slots[0], file));
    cr_assert_eq(read(file, &count, sizeof count), sizeof count);
    cr_assert_eq(count, flags & 2 ? 1 : 3);
    close(file);
    file = eventfd(0, flags & 1 ? EFD_NONBLOCK : 0);
    cr_assert_eq(write(file, &full, sizeof full), sizeof full);
    REQUIRE_OK(rondo_notify(s.slots[0], file)); /* a full one too, and nobody waits for its reader */
    REQUIRE_OK(rondo_notify(s.slots[0], -1));
    close(file);
  }
  subject_close(&s);
}
