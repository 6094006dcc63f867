/* terminal.c - see terminal.h. Between a look for Ctrl-C and the wait for a line none may be lost: SIGINT is blocked
 * but for the wait itself. (The library's threads take no signals.) */
#include "terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "../sample.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

/* Whatever is written goes on where it was: only ppoll ends. */
void terminal_catch_interrupts(void) {
  struct sigaction before, action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGINT, &action, NULL);
}

bool terminal_interrupted(void) { return interrupted; }
void terminal_forget_interrupt(void) { interrupted = 0; }

static bool wait_for_input(void) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  while (!interrupted && ppoll(&input, 1, NULL, &before) < 0 && errno == EINTR) continue;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return !interrupted;
}

static void put(char **line, size_t *capacity, size_t at, char byte) {
  if (at == *capacity) {
    *capacity = 2 * *capacity + 256;
    char *longer = realloc(*line, *capacity);
    if (!longer) give_up("no memory for a line");
    *line = longer;
  }
  (*line)[at] = byte;
}

/* Byte by byte: what a stream holds back of a line, no poll could see. */
bool terminal_line(char **line, size_t *capacity) {
  size_t length = 0;
  char byte = '\0';
  while (wait_for_input() && read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') put(line, capacity, length++, byte);
  put(line, capacity, length, '\0');
  return byte == '\n' || (length > 0 && !interrupted);
}
