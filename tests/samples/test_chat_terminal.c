/* test_chat_terminal.c - the chat sample at a pseudo-terminal: long lines, pastes, commands, the history, and the
 * state in which it leaves the terminal. The oracle is the same conversation over a pipe, whose lines nothing edits. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "../../samples/chat/template.h"
#include "run_chat.h"

TestSuite(chat_terminal, .fini = shell_remove_folder, .timeout = 300);

enum { MOST_SHOWN = 1 << 19 };
static const char begins[] = "\033[?2004h"; /* the terminal is told to mark pastes: it is the editor's from here on */
static const char ends[] = "\033[?2004l";

/* A chat, the other end of its terminal, and all that it has shown. */
struct typed {
  pid_t process;
  int screen, terminal; /* terminal: the chat's own end, kept open */
  struct termios modes; /* before */
  char out[256];
  size_t count;
};
static char shown[MOST_SHOWN];

static int open_terminal(struct typed *typed) {
  typed->screen = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  const char *name =
      typed->screen >= 0 && grantpt(typed->screen) == 0 && unlockpt(typed->screen) == 0 ? ptsname(typed->screen) : NULL;
  typed->terminal = name ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
  if (typed->terminal < 0) cr_skip_test("there are no pseudo-terminals here: %s", strerror(errno));
  cr_assert_eq(ioctl(typed->screen, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = 80}), 0);
  return tcgetattr(typed->terminal, &typed->modes);
}

static void become(const struct typed *typed, char *const *arguments) {
  setenv("TERM", "xterm", 1);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && setsid() >= 0 && dup2(typed->terminal, STDIN_FILENO) >= 0 &&
      ioctl(STDIN_FILENO, TIOCSCTTY, 0) == 0 && dup2(open(typed->out, O_WRONLY), STDOUT_FILENO) >= 0 &&
      dup2(typed->terminal, STDERR_FILENO) >= 0)
    execv(arguments[0], arguments);
  _exit(127);
}

/* SIGINT is as at a terminal, whatever this test began with. */
static struct typed begin_program(char *const *arguments) {
  struct typed typed = {0};
  cr_assert_eq(open_terminal(&typed), 0);
  snprintf(typed.out, sizeof typed.out, "%s", shell_write("typed-out", ""));
  signal(SIGINT, SIG_DFL);
  typed.process = fork();
  if (typed.process == 0) become(&typed, arguments);
  cr_assert_gt(typed.process, 0);
  return typed;
}

static struct typed begin_chat(const char *model, const char *const *words) {
  char path[4096], *arguments[16] = {path, "--backend", "host", "--model", (char *)(uintptr_t)model, "--system", ""};
  snprintf(path, sizeof path, "%s/samples/chat", shell_root());
  for (size_t i = 0; words[i]; i++) arguments[7 + i] = (char *)(uintptr_t)words[i];
  return begin_program(arguments);
}

static void look(struct typed *typed) {
  for (ssize_t got; (got = read(typed->screen, shown + typed->count, sizeof shown - 1 - typed->count)) > 0;)
    typed->count += (size_t)got;
  cr_assert_lt(typed->count, sizeof shown - 1);
  shown[typed->count] = '\0';
}

static bool has_ended(const struct typed *typed) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)typed->process, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == typed->process;
}

/* As long as the suite's timeout lets it. */
static void wait_until_shown(struct typed *typed, const char *text, int times) {
  for (look(typed); shell_occurrences(shown, text) < times; look(typed)) {
    cr_assert_not(has_ended(typed), "it has ended:\n%s", shown);
    usleep(1000);
  }
}

/* A terminal that is full waits until it is read. */
static void type(struct typed *typed, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(typed->screen, bytes, count);
    cr_assert(written > 0 || errno == EAGAIN, "%s", strerror(errno));
    if (written > 0) {
      bytes += written;
      count -= (size_t)written;
    }
    look(typed);
  }
}

static void type_text(struct typed *typed, const char *text) { type(typed, text, strlen(text)); }

static void require_modes_of_before(const struct typed *typed) {
  struct termios modes;
  cr_assert_eq(tcgetattr(typed->terminal, &modes), 0);
  cr_assert(modes.c_lflag == typed->modes.c_lflag && modes.c_iflag == typed->modes.c_iflag &&
            modes.c_oflag == typed->modes.c_oflag);
  cr_assert_eq(shell_occurrences(shown, ends), shell_occurrences(shown, begins));
}

/* Its exit status, as a shell's; the terminal is what it was before. */
static int end_of(struct typed *typed) {
  int status;
  while (!has_ended(typed)) {
    look(typed);
    usleep(1000);
  }
  look(typed);
  cr_assert_eq(waitpid(typed->process, &status, 0), typed->process);
  require_modes_of_before(typed);
  close(typed->terminal);
  close(typed->screen);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Of each answer: the tokens of its message, the last answer's end among them. */
static size_t figures_of(const char *text, size_t *tokens, size_t most) {
  size_t count = 0;
  for (const char *at = text; count < most && (at = strstr(at, " tokens, the first")); at++) {
    const char *bracket = at;
    while (bracket > text && *bracket != '[' && *bracket != '\n') bracket--;
    count += sscanf(bracket, "[%zu tokens", &tokens[count]) == 1;
  }
  return count;
}

static const char *const each[] = {"--statistics", "each", NULL};

/* What the same messages take when they come through a pipe. */
static size_t figures_of_a_pipe(const char *model, const char *input, size_t *tokens, size_t most) {
  char words[512];
  snprintf(words, sizeof words, "--backend host --system '' --statistics each --model %s", model);
  return figures_of(run_chat(words, input).error, tokens, most);
}

/* It says "a", or goes on and on, and has room for long messages. */
static const char *write_roomy_model(int32_t second) {
  struct gguf_writer writer = {0};
  gguf_write_u32(&writer, "llama.context_length", 32768);
  writer.without = "llama.context_length";
  return write_saying_model(&writer, (const int32_t[]){'a', second}, 2);
}

static const char *const roomy[] = {"--statistics", "each", "--context", "32768", NULL};

static size_t tokens_of(const char *model, const char *text, size_t bytes) {
  struct gguf file;
  struct tokenizer tokenizer;
  struct template template;
  struct tokens tokens = {0};
  char message[GGUF_MESSAGE_BYTES] = "";
  cr_assert(gguf_open(model, &file, message) && tokenizer_open(&file, &tokenizer, message), "%s", message);
  cr_assert(template_find(&tokenizer, &template) && template_message(&template, "user", text, bytes, &tokens) &&
            template_answer(&template, &tokens));
  size_t count = tokens.count;
  tokens_free(&tokens);
  tokenizer_close(&tokenizer);
  gguf_close(&file);
  return count;
}

/* A terminal in its usual mode ends a line at 4095 bytes and forgets the rest. The first line is typed while the model
 * is on its way, the second one after it; how many tokens they are is told by their refusal. */
Test(chat_terminal, takes_lines_of_ten_thousand_bytes) {
  enum { BYTES = 10000 };
  static char line[BYTES + 1];
  char refusal[64];
  struct gguf_writer writer = {0};
  const char *model = write_small_model(&writer);
  struct typed typed = begin_chat(model, each);
  wait_until_shown(&typed, begins, 1);
  memset(line, 'x', BYTES);
  line[BYTES] = '\r';
  type(&typed, line, sizeof line);
  type(&typed, line, sizeof line);
  snprintf(refusal, sizeof refusal, "the message takes %zu tokens, ", tokens_of(model, line, BYTES));
  wait_until_shown(&typed, refusal, 2);
  type_text(&typed, "/quit\r");
  cr_assert_eq(end_of(&typed), 2);
}

/* Terminals send newlines as Enter, or as they are. An escape within it would be a command to the editor. */
Test(chat_terminal, takes_what_is_pasted_as_one_message) {
  enum { LINES = 300 };
  static const char *const newlines[] = {"\r", "\n", "\r\n"};
  static char pasted[16 * LINES], expected[16 * LINES];
  const char *model = write_roomy_model(SMALL_END);
  struct typed typed = begin_chat(model, roomy);
  wait_until_shown(&typed, "> ", 1);
  expected[0] = '\0';
  for (int i = 0; i < LINES; i++) snprintf(expected + strlen(expected), 16, "%sline\t%d", i ? "\n" : "", i);
  for (int kind = 0; kind < 3; kind++) {
    pasted[0] = '\0';
    for (int i = 0; i < LINES; i++) snprintf(pasted + strlen(pasted), 16, "line\t%d%s", i, newlines[kind]);
    type_text(&typed, "\033[200~");
    type_text(&typed, pasted);
    type_text(&typed, "\033\001\033[201~\r");
    wait_until_shown(&typed, "tokens of context]", kind + 1);
    type_text(&typed, "/new\r");
  }
  type_text(&typed, "/quit\r");
  cr_assert_eq(end_of(&typed), 0);
  size_t tokens[8] = {0};
  cr_assert_eq(figures_of(shown, tokens, 8), 3, "%s", shown);
  for (int kind = 0; kind < 3; kind++)
    cr_assert_eq(tokens[kind], tokens_of(model, expected, strlen(expected)), "%d: %zu", kind, tokens[kind]);
  cr_assert_str_eq(shell_read(typed.out), "a\na\na\n");
}

/* libedit reads on after each of these: a search, a key to take as it is, the keys after an escape, the same with a
 * number. What is found stays in the message. */
Test(chat_terminal, takes_a_paste_in_the_middle_of_a_key) {
  static const struct {
    const char *keys, *message;
  } lines[] = {{"\022hel", "one\ntwohello"}, {"\026", "one\ntwo"},  {"\033", "one\ntwo"},
               {"\033[", "one\ntwo"},        {"\0332", "one\ntwo"}, {"\033x", "one\ntwo"}};
  enum { LINES = sizeof lines / sizeof *lines };
  const char *model = write_roomy_model(SMALL_END);
  struct typed typed = begin_chat(model, roomy);
  wait_until_shown(&typed, "> ", 1);
  type_text(&typed, "hello\r");
  wait_until_shown(&typed, "tokens of context]", 1);
  for (int i = 0; i < LINES; i++) {
    type_text(&typed, "/new\r");
    type_text(&typed, lines[i].keys);
    type_text(&typed, "\033[200~one\rtwo\033[201~\r");
    wait_until_shown(&typed, "tokens of context]", i + 2);
  }
  type_text(&typed, "/quit\r");
  cr_assert_eq(end_of(&typed), 0);
  size_t tokens[2 + LINES] = {0};
  cr_assert_eq(figures_of(shown, tokens, 2 + LINES), 1 + LINES, "%s", shown);
  for (int i = 0; i < LINES; i++)
    cr_assert_eq(tokens[1 + i], tokens_of(model, lines[i].message, strlen(lines[i].message)), "%d: %zu", i,
                 tokens[1 + i]);
}

/* Backspace, a line from before, and a letter of two bytes that the locale may not know. */
static void check_editing(void) {
  size_t tokens[8] = {0}, expected[8] = {0};
  const char *model = write_roomy_model(SMALL_END);
  struct typed typed = begin_chat(model, each);
  wait_until_shown(&typed, "> ", 1);
  type_text(&typed, "hellx\177o\r");
  wait_until_shown(&typed, "tokens of context]", 1);
  type_text(&typed, "a\xc3\xa9\xc3\xa9\177 \xf0\x9f\x8e\x89\r");
  wait_until_shown(&typed, "tokens of context]", 2);
  type_text(&typed, "\033[A\033[A\r");
  wait_until_shown(&typed, "tokens of context]", 3);
  type_text(&typed, "/quit\r");
  cr_assert_eq(end_of(&typed), 0);
  cr_assert_eq(figures_of(shown, tokens, 8), 3);
  cr_assert_eq(figures_of_a_pipe(model, "hello\na\xc3\xa9 \xf0\x9f\x8e\x89\nhello\n", expected, 8), 3);
  for (int i = 0; i < 3; i++) cr_assert_eq(tokens[i], expected[i], "message %d", i);
}

Test(chat_terminal, edits_a_line_and_keeps_a_history) { check_editing(); }

Test(chat_terminal, takes_utf8_where_no_locale_has_it) {
  setenv("LC_ALL", "C", 1);
  setenv("LOCPATH", "/nonexistent", 1);
  check_editing();
}

Test(chat_terminal, obeys_commands) {
  const char *model = write_roomy_model(SMALL_END);
  struct typed typed = begin_chat(model, each);
  wait_until_shown(&typed, "> ", 1);
  type_text(&typed, "/help\r");
  wait_until_shown(&typed, "/new    forgets the conversation\r\n", 1);
  type_text(&typed, "/nwe\r");
  wait_until_shown(&typed, "unknown command /nwe; /help lists the commands\r\n", 1);
  type_text(&typed, "/quit\r");
  cr_assert_eq(end_of(&typed), 0);
  cr_assert_str_empty(shell_read(typed.out));
}

/* One ends the answer, which would go on and on, the other, at the prompt, the program. */
/* An answer of 2048 tokens would be over in 0.1 s, perhaps before the key is pressed. */
Test(chat_terminal, ends_one_thing_with_each_ctrl_c) {
  const char *const words[] = {"--tokens", "1000000000", "--context", "32768", NULL};
  struct typed typed = begin_chat(write_roomy_model('b'), words);
  wait_until_shown(&typed, "> ", 1);
  type_text(&typed, "hello\r");
  while (strlen(shell_read(typed.out)) < 8) usleep(1000);
  type_text(&typed, "\003");
  wait_until_shown(&typed, "> ", 2);
  type_text(&typed, "some words\003");
  cr_assert_eq(end_of(&typed), 0);
}

Test(chat_terminal, ends_at_ctrl_d) {
  struct typed typed = begin_chat(write_roomy_model(SMALL_END), each);
  wait_until_shown(&typed, "> ", 1);
  type_text(&typed, "\004");
  cr_assert_eq(end_of(&typed), 0);
}

/* The shell behind it would not show what is typed. */
Test(chat_terminal, leaves_the_terminal_as_it_was_when_a_signal_ends_it) {
  static const int signals[] = {SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    struct typed typed = begin_chat(write_roomy_model(SMALL_END), each);
    wait_until_shown(&typed, "> ", 1);
    cr_assert_eq(kill(typed.process, signals[i]), 0);
    cr_assert_eq(end_of(&typed), 128 + signals[i]);
  }
}

/* A chat that a shell runs which edits nothing; some of a message, and Ctrl-Z. */
static struct typed stop_a_chat(void) {
  char line[512];
  setenv("LC_ALL", "C", 1);
  setenv("PS1", "shell: ", 1);
  snprintf(line, sizeof line, "%s/samples/chat --backend host --statistics none --model %s\n", shell_root(),
           write_roomy_model(SMALL_END));
  struct typed typed = begin_program((char *const[]){"/bin/sh", "-i", NULL});
  wait_until_shown(&typed, "shell: ", 1);
  type_text(&typed, line);
  wait_until_shown(&typed, "> ", 1);
  type_text(&typed, "/he");
  wait_until_shown(&typed, "> /he", 1);
  type_text(&typed, "\032");
  wait_until_shown(&typed, "shell: ", 2);
  require_modes_of_before(&typed);
  return typed;
}

/* The shell would not show what is typed either. Behind fg the message goes on where it was. */
Test(chat_terminal, lends_the_terminal_while_it_is_stopped) {
  struct typed typed = stop_a_chat();
  type_text(&typed, "fg\n");
  wait_until_shown(&typed, "> /he", 2);
  type_text(&typed, "lp\r");
  wait_until_shown(&typed, "/new    forgets the conversation\r\n", 1);
  type_text(&typed, "/quit\r");
  wait_until_shown(&typed, "shell: ", 3);
  type_text(&typed, "exit\n");
  cr_assert_eq(end_of(&typed), 0);
}

/* As bash's kill does, which lets what is stopped go on: a chat that wanted its terminal back first would be stopped
 * once more. The shell sees that it has ended when it has something to do. */
Test(chat_terminal, ends_where_it_is_stopped) {
  int chat = 0;
  struct typed typed = stop_a_chat();
  type_text(&typed, "jobs -p\n");
  wait_until_shown(&typed, "shell: ", 3);
  cr_assert(sscanf(shell_read(typed.out), "%d", &chat) == 1 && chat > 1, "%s", shown);
  cr_assert(kill(chat, SIGTERM) == 0 && kill(chat, SIGCONT) == 0);
  for (; kill(chat, 0) == 0; usleep(10000)) type_text(&typed, "jobs\n");
  require_modes_of_before(&typed);
  type_text(&typed, "exit\n");
  cr_assert_eq(end_of(&typed), 0);
}
