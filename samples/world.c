/* world.c - see world.h. */
#include "world.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 4096, HELLO = 0x6f6e6452, PATIENCE_MS = 60000, HELLO_MS = 5000 };
enum { RETRY_NS = 50 * 1000 * 1000 };
enum { UNUSABLE = 2 }; /* SAMPLE_UNUSABLE of sample.h */

static _Noreturn void __attribute__((format(printf, 1, 2))) refuse(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(UNUSABLE);
}

/* ---- The environment --------------------------------------------------------------------------------------------- */

/* How commands tell a process its number, the count of processes, and its number on its machine. */
static const struct {
  const char *rank, *ranks, *local_rank;
} launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"}, /* torchrun */
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}, /* MPICH and Intel MPI */
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

static int32_t number_of(const char *name, const char *text, long low, long high) {
  char *end;
  errno = 0;
  const long value = strtol(text, &end, 10);
  if (errno || end == text || *end || value < low || value > high)
    refuse("%s is '%s', expected an integer from %ld to %ld", name, text, low, high);
  return (int32_t)value;
}

static struct world read_environment(void) {
  struct world world = {.ranks = 1};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const char *rank = getenv(launchers[i].rank), *ranks = getenv(launchers[i].ranks);
    const char *local_rank = getenv(launchers[i].local_rank);
    if (!rank || !ranks) continue;
    world.ranks = number_of(launchers[i].ranks, ranks, 1, RANKS_MOST);
    world.rank = number_of(launchers[i].rank, rank, 0, world.ranks - 1);
    world.local_rank = local_rank ? number_of(launchers[i].local_rank, local_rank, 0, world.ranks - 1) : world.rank;
    break;
  }
  return world;
}

/* torchrun itself listens at MASTER_PORT; the next port is then free. */
static struct addrinfo *find_rank_0(bool to_listen) {
  const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"),
             *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
  int32_t number = port ? number_of("MASTER_PORT", port, 1, 65534) : 29500;
  number += store && strcmp(store, "True") == 0;
  char service[16];
  snprintf(service, sizeof service, "%d", number);
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = to_listen ? AI_PASSIVE : 0};
  struct addrinfo *found;
  /* On many machines rank 0's own name means 127.0.1.1, so with a name it listens everywhere. */
  const char *name = to_listen && host ? NULL : host ? host : "127.0.0.1";
  if (to_listen && !name) hints.ai_family = AF_INET;
  const int error = getaddrinfo(name, service, &hints, &found);
  if (error) refuse("MASTER_ADDR is '%s': %s", host ? host : "127.0.0.1", gai_strerror(error));
  return found;
}

/* ---- Connections ------------------------------------------------------------------------------------------------- */

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* False: the other side is gone. */
static bool move(int file, void *data, size_t bytes, bool sends) {
  for (size_t done = 0; done < bytes;) {
    char *at = (char *)data + done;
    const ssize_t moved = sends ? send(file, at, bytes - done, MSG_NOSIGNAL) : recv(file, at, bytes - done, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    done += (size_t)moved;
  }
  return true;
}

static void move_or_end(int file, void *data, size_t bytes, bool sends, int32_t rank) {
  if (!move(file, data, bytes, sends)) refuse("rank %d has ended before this one", (int)rank);
}

static int listen_for_ranks(void) {
  struct addrinfo *here = find_rank_0(true);
  const int on = 1, file = socket(here->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file >= 0) setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (file < 0 || bind(file, here->ai_addr, here->ai_addrlen) != 0 || listen(file, RANKS_MOST) != 0)
    refuse("rank 0 cannot listen at MASTER_PORT: %s", strerror(errno));
  freeaddrinfo(here);
  return file;
}

/* The rank that has come, or -1: it was no rank. */
static int32_t accept_rank(const struct world *world, int listener, int *file) {
  int32_t hello[2] = {0};
  const struct timeval limit = {.tv_sec = HELLO_MS / 1000};
  *file = accept(listener, NULL, NULL);
  if (*file < 0) return -1;
  setsockopt(*file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (move(*file, hello, sizeof hello, false) && hello[0] == HELLO && hello[1] > 0 && hello[1] < world->ranks) {
    const struct timeval none = {0};
    setsockopt(*file, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    return hello[1];
  }
  close(*file);
  return -1;
}

static void accept_ranks(struct world *world) {
  const int listener = listen_for_ranks();
  const int64_t end = now_ms() + PATIENCE_MS;
  for (int32_t r = 0; r < world->ranks; r++) world->sockets[r] = -1;
  for (int32_t come = 1; come < world->ranks;) {
    const int64_t left = end - now_ms();
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    if (left <= 0) refuse("only %d of %d ranks have come within a minute", (int)come, (int)world->ranks);
    if (poll(&waiting, 1, (int)left) <= 0) continue;
    int file;
    const int32_t rank = accept_rank(world, listener, &file);
    if (rank < 0) continue;
    if (world->sockets[rank] >= 0) refuse("two processes say that they are rank %d", (int)rank);
    world->sockets[rank] = file;
    come++;
  }
  close(listener);
}

static void connect_to_rank_0(struct world *world) {
  const int32_t hello[2] = {HELLO, world->rank};
  const int64_t end = now_ms() + PATIENCE_MS;
  for (;;) {
    struct addrinfo *found = find_rank_0(false);
    for (struct addrinfo *at = found; at; at = at->ai_next) {
      const int file = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      world->sockets[0] = file;
      if (file >= 0 && connect(file, at->ai_addr, at->ai_addrlen) == 0 &&
          move(file, (void *)hello, sizeof hello, true)) {
        freeaddrinfo(found);
        return;
      }
      if (file >= 0) close(file);
    }
    freeaddrinfo(found);
    if (now_ms() > end) refuse("rank 0 does not answer at MASTER_ADDR and MASTER_PORT");
    nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
  }
}

struct world world_open(void) {
  struct world world = read_environment();
  if (world.ranks == 1) return world;
  world.sockets = malloc((size_t)(world.rank ? 1 : world.ranks) * sizeof *world.sockets);
  if (!world.sockets) refuse("no memory for %d ranks", (int)world.ranks);
  if (world.rank)
    connect_to_rank_0(&world);
  else
    accept_ranks(&world);
  return world;
}

void world_close(struct world *world) {
  for (int32_t r = world->rank ? 0 : 1; world->sockets && r < (world->rank ? 1 : world->ranks); r++)
    close(world->sockets[r]);
  free(world->sockets);
  *world = (struct world){.ranks = 1};
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

void world_share(const struct world *world, void *data, size_t bytes) {
  if (world->rank) move_or_end(world->sockets[0], data, bytes, false, 0);
  for (int32_t r = 1; !world->rank && r < world->ranks; r++) move_or_end(world->sockets[r], data, bytes, true, r);
}

uint32_t world_differing(const struct world *world, const void *data, size_t bytes) {
  uint32_t differing = 0;
  if (world->rank) move_or_end(world->sockets[0], (void *)data, bytes, true, 0);
  void *other = world->rank ? NULL : malloc(bytes + 1);
  if (!world->rank && !other) refuse("no memory for %zu bytes", bytes);
  for (int32_t r = 1; !world->rank && r < world->ranks; r++) {
    move_or_end(world->sockets[r], other, bytes, false, r);
    differing += memcmp(other, data, bytes) != 0;
  }
  free(other);
  world_share(world, &differing, sizeof differing);
  return differing;
}
