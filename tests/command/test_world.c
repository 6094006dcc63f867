/* test_world.c - how the processes that one command started find each other (samples/world.h), with processes that the
 * test forks: the variables of each command, messages, a port that is taken, strangers, and variables that do not fit.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../samples/world.h"

TestSuite(world, .timeout = 60);

enum { RANKS = 3, UNUSABLE = 2, WRONG = 9 };

static const char *const variables[][3] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};
enum { COMMANDS = sizeof variables / sizeof *variables };

/* The machine that runs the tests may have been started by one of them. */
static void forget_variables(void) {
  for (int i = 0; i < COMMANDS; i++)
    for (int v = 0; v < 3; v++) unsetenv(variables[i][v]);
  unsetenv("MASTER_ADDR"), unsetenv("MASTER_PORT"), unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

static void set_number(const char *name, int number) {
  char text[16];
  snprintf(text, sizeof text, "%d", number);
  setenv(name, text, 1);
}

/* Listens at a free port, which is then that of the ranks unless it stays open. */
static int take_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t bytes = sizeof address;
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  cr_assert(file >= 0 && !bind(file, (struct sockaddr *)&address, bytes) && !listen(file, 4));
  cr_assert_eq(getsockname(file, (struct sockaddr *)&address, &bytes), 0);
  set_number("MASTER_PORT", ntohs(address.sin_port));
  return file;
}

static void set_free_port(void) { close(take_port()); }

/* Forks a rank, which ends with what `run` returns. */
static pid_t begin_rank(int rank, int ranks, const char *const names[3], int (*run)(int rank)) {
  const pid_t child = fork();
  cr_assert(child >= 0);
  if (child) return child;
  set_number(names[0], rank);
  set_number(names[1], ranks);
  if (names[2]) set_number(names[2], rank);
  _exit(run(rank));
}

static int end_of(pid_t child) {
  int status = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Rank 0 begins last, so that the others have to try again. */
static void require_ranks(const char *const names[3], int (*run)(int rank)) {
  pid_t children[RANKS];
  for (int r = RANKS; r-- > 0;) {
    children[r] = begin_rank(r, RANKS, names, run);
    if (r == 1) usleep(20000);
  }
  for (int r = 0; r < RANKS; r++) cr_assert_eq(end_of(children[r]), 0, "rank %d by %s", r, names[0]);
}

/* All get what rank 0 has, and learn how many have something else. */
static int talk(int rank) {
  struct world world = world_open();
  char text[64] = "";
  int fails = world.rank != rank || world.ranks != RANKS || world.local_rank != rank;
  if (rank == 0) snprintf(text, sizeof text, "from rank 0");
  world_share(&world, text, sizeof text);
  fails |= strcmp(text, "from rank 0") != 0;
  fails |= world_differing(&world, text, sizeof text) != 0;
  if (rank) text[20] = (char)rank;
  fails |= world_differing(&world, text, sizeof text) != RANKS - 1;
  if (rank == 1) text[20] = 0;
  fails |= world_differing(&world, text, sizeof text) != RANKS - 2;
  world_close(&world);
  return fails ? WRONG : 0;
}

Test(world, without_variables_a_process_is_alone) {
  forget_variables();
  struct world world = world_open();
  cr_assert(world.ranks == 1 && world.rank == 0 && world.local_rank == 0 && !world.sockets);
  world_close(&world);
}

Test(world, the_variables_of_each_command_are_known) {
  for (int i = 0; i < COMMANDS; i++) {
    forget_variables();
    set_free_port();
    require_ranks(variables[i], talk);
  }
}

Test(world, without_a_local_number_it_is_the_rank) {
  static const char *const names[3] = {"PMI_RANK", "PMI_SIZE", NULL};
  forget_variables();
  set_free_port();
  require_ranks(names, talk);
}

Test(world, rank_0_is_found_by_name) {
  struct addrinfo *localhost;
  if (getaddrinfo("localhost", NULL, NULL, &localhost)) cr_skip_test("this machine has no /etc/hosts with localhost");
  freeaddrinfo(localhost);
  forget_variables();
  set_free_port();
  setenv("MASTER_ADDR", "localhost", 1);
  require_ranks(variables[0], talk);
}

/* torchrun's own store listens at MASTER_PORT. */
Test(world, beside_torchrun_the_next_port_is_taken) {
  forget_variables();
  const int store = take_port();
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  require_ranks(variables[0], talk);
  close(store);
}

/* Says something else than a rank does, until rank 0 has heard it. */
static int disturb(int unused) {
  (void)unused;
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)atoi(getenv("MASTER_PORT")))};
  for (int i = 0; i < 200; i++, usleep(10000)) {
    const int file = socket(AF_INET, SOCK_STREAM, 0);
    if (!connect(file, (struct sockaddr *)&address, sizeof address)) {
      char closed;
      if (send(file, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL) != 18) return WRONG;
      return recv(file, &closed, 1, 0) <= 0 ? 0 : WRONG;
    }
    close(file);
  }
  return WRONG;
}

Test(world, a_stranger_is_no_rank) {
  forget_variables();
  set_free_port();
  const pid_t rank_0 = begin_rank(0, RANKS, variables[0], talk);
  const pid_t stranger = begin_rank(7, RANKS, variables[0], disturb);
  cr_assert_eq(end_of(stranger), 0);
  const pid_t rank_1 = begin_rank(1, RANKS, variables[0], talk), rank_2 = begin_rank(2, RANKS, variables[0], talk);
  cr_assert(!end_of(rank_0) && !end_of(rank_1) && !end_of(rank_2));
}

static int open_alone(int unused) {
  (void)unused;
  if (!freopen("/dev/null", "w", stderr)) return WRONG;
  world_open();
  return 0;
}

Test(world, two_processes_with_one_number_are_refused) {
  forget_variables();
  set_free_port();
  const pid_t rank_0 = begin_rank(0, RANKS, variables[0], open_alone);
  const pid_t one = begin_rank(1, RANKS, variables[0], open_alone),
              two = begin_rank(1, RANKS, variables[0], open_alone);
  cr_assert_eq(end_of(rank_0), UNUSABLE);
  end_of(one), end_of(two);
}

Test(world, variables_that_do_not_fit_are_refused) {
  static const char *const wrong[][2] = {{"RANK", "3"},        {"RANK", "-1"},         {"RANK", "one"},
                                         {"WORLD_SIZE", "0"},  {"WORLD_SIZE", "2x"},   {"LOCAL_RANK", "3"},
                                         {"MASTER_PORT", "0"}, {"MASTER_PORT", "http"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    forget_variables();
    set_free_port();
    const pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
      set_number("RANK", 1), set_number("WORLD_SIZE", RANKS), set_number("LOCAL_RANK", 1);
      setenv(wrong[i][0], wrong[i][1], 1);
      _exit(open_alone(1));
    }
    cr_assert_eq(end_of(child), UNUSABLE, "%s=%s", wrong[i][0], wrong[i][1]);
  }
}
