/* test_chat_interrupts.c - what each Ctrl-C ends in the chat sample. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support.h"
#include "model.h"
#include "run_chat.h"

TestSuite(chat_interrupts, .fini = shell_remove_folder, .timeout = 300);

/* A chat beside the test, by the paths of its streams; text is what a test waits for. */
struct beside {
  pid_t process;
  char in[256], out[256], error[256];
  const char *text;
  bool ignores_interrupts;
};

/* Its input; output and error are files. */
static struct beside chat_beside(const char *in) {
  struct beside chat = {0};
  snprintf(chat.in, sizeof chat.in, "%s", in);
  snprintf(chat.out, sizeof chat.out, "%s", shell_write("out", ""));
  snprintf(chat.error, sizeof chat.error, "%s", shell_write("error", ""));
  return chat;
}

static void become_chat(const struct beside *chat, const char *const *words) {
  char path[4096], *arguments[16] = {path, "--backend", "host"};
  snprintf(path, sizeof path, "%s/samples/chat", shell_root());
  for (size_t i = 0; words[i]; i++) arguments[3 + i] = (char *)(uintptr_t)words[i];
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && dup2(open(chat->in, O_RDONLY), STDIN_FILENO) >= 0 &&
      dup2(open(chat->out, O_WRONLY), STDOUT_FILENO) >= 0 && dup2(open(chat->error, O_WRONLY), STDERR_FILENO) >= 0)
    execv(path, arguments);
  _exit(127);
}

/* SIGINT is as at a terminal, whatever this test began with, or ignored, and that from the first moment on:
 * the process never has a handler of another program. */
static void begin_chat(struct beside *chat, const char *const *words) {
  signal(SIGINT, chat->ignores_interrupts ? SIG_IGN : SIG_DFL);
  chat->process = fork();
  if (chat->process == 0) become_chat(chat, words);
  cr_assert_gt(chat->process, 0);
}

/* A pipe by its name, which waits for nobody: the test has both its ends. */
static int open_fifo(const char *name, char path[256]) {
  snprintf(path, 256, "%s/%s", shell_folder(), name);
  cr_assert_eq(mkfifo(path, 0600), 0);
  return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

/* One that is full: who writes to it waits until it is read. */
static int open_full_fifo(const char *name, char path[256], size_t *filled) {
  static const char page[4096];
  int fifo = open_fifo(name, path);
  *filled = 0;
  for (ssize_t written; (written = write(fifo, page, sizeof page)) > 0;) *filled += (size_t)written;
  return fifo;
}

static void need_model(void) {
  skip_under_sanitizers();
  struct gguf file = require_model();
  gguf_close(&file);
}

static const char *proc_file(const struct beside *chat, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)chat->process, name);
  return shell_read(path);
}

static bool reads_the_model(const struct beside *chat) { return strstr(proc_file(chat, "maps"), ".gguf") != NULL; }

static bool catches_interrupts(const struct beside *chat) {
  const char *caught = strstr(proc_file(chat, "status"), "SigCgt:");
  return caught && (strtoull(caught + 7, NULL, 16) >> (SIGINT - 1) & 1);
}

static bool is_opening(const struct beside *chat) { return reads_the_model(chat) || catches_interrupts(chat); }
static bool has_said(const struct beside *chat) { return strstr(shell_read(chat->out), chat->text) != NULL; }

/* For tests that ask what follows: a kernel may keep it to itself. */
static void need_system_calls(void) {
  if (!*shell_read("/proc/self/syscall")) cr_skip_test("/proc/PID/syscall is not there");
}

/* A signal that was sent to it has reached it. */
static bool was_reached(const struct beside *chat) {
  const char *pending = strstr(proc_file(chat, "status"), "ShdPnd:");
  return pending && (strtoull(pending + 7, NULL, 16) >> (SIGINT - 1) & 1) == 0;
}

/* Of its first thread: the system call in which it waits, by number, and that call's first argument. */
static bool waits_in(const struct beside *chat, long call, unsigned long argument) {
  long number;
  unsigned long first;
  return sscanf(proc_file(chat, "syscall"), "%ld %lx", &number, &first) == 2 && number == call && first == argument;
}

static bool waits_for_a_line(const struct beside *chat) {
  return strtol(proc_file(chat, "syscall"), NULL, 10) == SYS_ppoll;
}
static bool waits_to_say(const struct beside *chat) { return waits_in(chat, SYS_write, STDOUT_FILENO); }
static bool waits_to_ask(const struct beside *chat) { return waits_in(chat, SYS_write, STDERR_FILENO); }

static bool has_ended(const struct beside *chat) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)chat->process, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == chat->process;
}

/* As long as the suite's timeout lets it. */
static void wait_until(bool (*is_so)(const struct beside *chat), const struct beside *chat) {
  while (!is_so(chat)) {
    cr_assert(is_so == has_ended || !has_ended(chat), "it has ended:\n%s", shell_read(chat->error));
    usleep(1000);
  }
}

static void interrupt(const struct beside *chat) { cr_assert_eq(kill(chat->process, SIGINT), 0); }

/* The exit status, which is a shell's: 128 and the signal that it died of. */
static int code_of(const struct beside *chat) {
  int status;
  wait_until(has_ended, chat);
  cr_assert_eq(waitpid(chat->process, &status, 0), chat->process);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static struct ran end_of(const struct beside *chat) {
  static char out[SHELL_TEXT_BYTES];
  int code = code_of(chat);
  snprintf(out, sizeof out, "%s", shell_read(chat->out));
  return (struct ran){code, out, shell_read(chat->error)};
}

/* What is written to a full pipe until the chat has ended. */
static const char *read_to_end(const struct beside *chat, int fifo, size_t filled) {
  static char text[1 << 18];
  size_t count = 0;
  for (bool ended = false; !ended; usleep(1000)) {
    ended = has_ended(chat);
    for (ssize_t got; (got = read(fifo, text + count, sizeof text - 1 - count)) > 0;) count += (size_t)got;
  }
  cr_assert_geq(count, filled);
  text[count] = '\0';
  return text + filled;
}

/* Of all answers; 0 where there is no such figure. */
static int answered_tokens(struct ran ran) {
  const char *figure = strstr(ran.error, "answer     ");
  return figure ? atoi(figure + 11) : 0;
}

/* It would repeat itself until the context is full. */
static const char long_answer[] = "List a thousand animals.", many_tokens[] = "1900";
enum { MANY_TOKENS = 1900 };

/* Nearly as many tokens. */
static const char *long_message(void) {
  static char text[4 * MANY_TOKENS];
  for (size_t at = 0; at + 400 < sizeof text; at++) text[at] = "the "[at % 4];
  return text;
}

/* It is stopped to see that it is not too late for that. */
Test(chat_interrupts, dies_of_an_interrupt_before_the_model_is_there) {
  need_model();
  struct beside chat;
  for (bool is_early = false; !is_early;) {
    chat = chat_beside("/dev/null");
    begin_chat(&chat, (const char *const[]){"--prompt", "hello", NULL});
    wait_until(is_opening, &chat);
    cr_assert_eq(kill(chat.process, SIGSTOP), 0);
    cr_assert_eq(waitpid(chat.process, NULL, WUNTRACED), chat.process);
    is_early = !catches_interrupts(&chat);
    cr_assert_eq(kill(chat.process, is_early ? SIGINT : SIGKILL), 0);
    if (!is_early) cr_assert_eq(waitpid(chat.process, NULL, 0), chat.process);
  }
  cr_assert_eq(kill(chat.process, SIGCONT), 0);
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 128 + SIGINT);
  cr_assert(strlen(ran.out) == 0 && strlen(ran.error) == 0, "%s", ran.error);
}

/* A script would take the answer for whole. */
Test(chat_interrupts, ends_its_answer_when_it_is_interrupted) {
  need_model();
  struct beside chat = chat_beside("/dev/null");
  begin_chat(&chat, (const char *const[]){"--tokens", many_tokens, "--prompt", long_answer, NULL});
  chat.text = "1. ";
  wait_until(has_said, &chat);
  interrupt(&chat);
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 2);
  cr_assert_not_null(strstr(ran.error, "interrupted; the answer is cut\n"), "%s", ran.error);
  cr_assert(answered_tokens(ran) > 1 && answered_tokens(ran) < MANY_TOKENS / 2, "%s", ran.error);
  cr_assert_eq(ran.out[strlen(ran.out) - 1], '\n');
}

/* The first message is interrupted on its way into the model, where it takes a second or more: what comes next is
 * answered as if it were the first. */
Test(chat_interrupts, forgets_a_message_that_is_interrupted) {
  need_model();
  char path[256];
  int input = open_fifo("in", path), left = 1;
  struct beside chat = chat_beside(path);
  begin_chat(&chat, (const char *const[]){NULL});
  wait_until(catches_interrupts, &chat);
  cr_assert_gt(dprintf(input, "%s\n", long_message()), 0);
  while (left > 0) cr_assert_eq(ioctl(input, FIONREAD, &left), 0);
  interrupt(&chat);
  cr_assert_gt(dprintf(input, "What is the capital of Japan?\n"), 0);
  close(input);
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "The capital of Japan is Tokyo.\n");
  cr_assert_eq(shell_occurrences(ran.error, "the message is dropped"), 1, "%s", ran.error);
  cr_assert_not_null(strstr(ran.error, "prompt     37 tokens"), "%s", ran.error);
}

/* One ends the first answer and nothing of the second; at the prompt one ends the program. */
Test(chat_interrupts, ends_one_thing_with_each_interrupt) {
  need_model();
  need_system_calls();
  char path[256];
  int input = open_fifo("in", path);
  cr_assert_gt(dprintf(input, "%s\nWhat is the capital of Japan?\n", long_answer), 0);
  struct beside chat = chat_beside(path);
  begin_chat(&chat, (const char *const[]){"--tokens", many_tokens, NULL});
  chat.text = "1. ";
  wait_until(has_said, &chat);
  interrupt(&chat);
  chat.text = "The capital of Japan is Tokyo.\n";
  wait_until(has_said, &chat);
  wait_until(waits_for_a_line, &chat);
  interrupt(&chat);
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 0);
  cr_assert(answered_tokens(ran) > 8 && answered_tokens(ran) < MANY_TOKENS / 2, "%s", ran.error);
  close(input);
}

/* Without a conversation there is no answer then, which a script has to notice. */
Test(chat_interrupts, says_that_a_prompt_was_interrupted) {
  need_model();
  struct beside chat;
  struct ran ran;
  do { /* once more if the answer has begun */
    chat = chat_beside("/dev/null");
    begin_chat(&chat, (const char *const[]){"--tokens", "1", "--prompt", long_message(), NULL});
    wait_until(catches_interrupts, &chat);
    interrupt(&chat);
    ran = end_of(&chat);
  } while (strlen(ran.out) > 0);
  REQUIRE_CODE(ran, 2);
  cr_assert_not_null(strstr(ran.error, "the message is dropped"), "%s", ran.error);
}

/* It comes after the last look for one and before the wait for a line: the program has something to say there, which it
 * cannot until it is read. */
Test(chat_interrupts, loses_no_interrupt_before_a_line) {
  need_system_calls();
  struct gguf_writer writer = {0};
  const char *model = write_small_model(&writer);
  size_t filled;
  int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0 || access(ptsname(terminal), R_OK) != 0)
    cr_skip_test("there are no pseudo-terminals here: %s", strerror(errno));
  struct beside chat = chat_beside(ptsname(terminal));
  int error = open_full_fifo("full", chat.error, &filled);
  begin_chat(&chat, (const char *const[]){"--model", model, NULL});
  wait_until(waits_to_ask, &chat);
  interrupt(&chat);
  wait_until(was_reached, &chat);
  const char *said = read_to_end(&chat, error, filled);
  cr_assert_eq(code_of(&chat), 0);
  cr_assert_not_null(strstr(said, "Ctrl-C drops a message"), "%s", said);
  close(error);
  close(terminal);
}

/* A write that waits goes on where it was. */
Test(chat_interrupts, loses_nothing_of_an_answer_that_is_interrupted) {
  need_system_calls();
  struct gguf_writer writer = {0};
  const char *model = write_small_model(&writer);
  const char *const words[] = {"--model", model, "--tokens", "2", "--prompt", "hello", NULL};
  size_t filled;
  struct beside whole = chat_beside("/dev/null");
  begin_chat(&whole, words);
  struct ran ran = end_of(&whole);
  REQUIRE_CODE(ran, 0);
  cr_assert_gt(strlen(ran.out), 2);
  struct beside chat = chat_beside("/dev/null");
  int out = open_full_fifo("full", chat.out, &filled);
  begin_chat(&chat, words);
  wait_until(waits_to_say, &chat);
  interrupt(&chat);
  wait_until(was_reached, &chat);
  cr_assert_str_eq(read_to_end(&chat, out, filled), ran.out);
  cr_assert_eq(code_of(&chat), 0);
  close(out);
}

/* As of a shell's job in the background. */
Test(chat_interrupts, ignores_interrupts_that_were_ignored_before) {
  need_system_calls();
  struct gguf_writer writer = {0};
  const char *model = write_small_model(&writer);
  char path[256];
  int input = open_fifo("in", path);
  struct beside chat = chat_beside(path);
  chat.ignores_interrupts = true;
  begin_chat(&chat, (const char *const[]){"--tokens", "20", "--model", model, NULL});
  wait_until(waits_for_a_line, &chat);
  cr_assert_not(catches_interrupts(&chat));
  interrupt(&chat);
  cr_assert_gt(dprintf(input, "hello\n"), 0);
  chat.text = "\n";
  wait_until(has_said, &chat);
  close(input);
  struct ran ran = end_of(&chat);
  REQUIRE_CODE(ran, 0);
}
