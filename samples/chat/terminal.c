/* terminal.c - input and Ctrl-C (terminal.h). Signals are blocked except during the wait for input, so that none is
 * lost between the check for a signal and the wait. The library's threads receive no signals. */
#include "terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted, signalled;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

/* SA_RESTART: a signal does not interrupt writes. Only ppoll ends. */
void terminal_catch_interrupts(void) {
  struct sigaction before, action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGINT, &action, NULL);
}

bool terminal_interrupted(void) { return interrupted; }
void terminal_forget_interrupt(void) { interrupted = 0; }
void terminal_signal(void) { signalled = 1; }

enum terminal_event terminal_wait(void) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  bool ended = signalled || (!interrupted && ppoll(&input, 1, NULL, &before) < 0 && errno == EINTR);
  signalled = 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return interrupted ? TERMINAL_INTERRUPT : ended ? TERMINAL_SIGNAL : TERMINAL_INPUT;
}

static bool wait_for_input(void) {
  enum terminal_event event = TERMINAL_SIGNAL;
  while (event == TERMINAL_SIGNAL) event = terminal_wait();
  return event == TERMINAL_INPUT;
}

/* Reads byte by byte without a stream: poll would not see bytes in a stream's buffer. */
bool terminal_line(struct line *line) {
  char byte = '\0';
  line->length = 0;
  while (wait_for_input() && read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') line_put(line, &byte, 1);
  bool is_last = byte != '\n';
  bool has_some = line->length > 0;
  line_end(line);
  return !is_last || (has_some && !interrupted);
}
