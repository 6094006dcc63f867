/* editor.c - messages typed at a terminal (editor.h). Debian's libedit does not support bracketed paste, by which a
 * terminal marks pasted text (https://invisible-island.net/xterm/xterm-paste64.html). This file removes all text
 * between the marks from libedit's input. libedit reads one key instead, which is bound to a function that inserts the
 * text.
 *
 * libedit decodes bytes by the locale; this file always decodes UTF-8. It waits for bytes with terminal.h, which loses
 * no Ctrl-C. */
#include "editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "../sample.h"
#include "terminal.h"
#include "utf8.h"

enum { HISTORY_LINES = 1000, MARK = 6 };

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";
static const wchar_t paste_begins[MARK + 1] = L"\033[200~", paste_ends[MARK + 1] = L"\033[201~";
static const wchar_t paste_key = L'\0'; /* never inserted as text; after ^V another key would be */

static EditLine *edit;
static HistoryW *past; /* the history of messages */
static FILE *screen;
static struct termios modes; /* the terminal's modes before the program */
static bool marks_pastes;    /* bracketed paste is on */
static volatile sig_atomic_t looks_wrong;

/* The read part of a paste that is not in the message yet. text is NULL if there is none. */
static struct pasted {
  wchar_t *text;
  size_t count, capacity;
} pasted;

/* ---- The terminal's modes ---------------------------------------------------------------------------------------- */

/* Sends a sequence to the terminal. A signal handler may call it. */
static void tell(const char *sequence) {
  if (marks_pastes && write(fileno(screen), sequence, strlen(sequence)) < 0) return; /* the terminal has gone */
}

/* Is the program in the background? The terminal then belongs to another program, and setting its modes would stop this
 * one. (If it is the terminal of another session, there is no background.) */
static bool is_in_background(void) {
  pid_t front = tcgetpgrp(STDIN_FILENO);
  return front >= 0 && front != getpgrp();
}

/* Gives the terminal back to the shell while the program is stopped, or at its end. After `bg` the program is stopped
 * again when it sets the terminal's modes. */
static void on_leave(int signal_number) {
  struct termios own;
  bool has_terminal = !is_in_background() && tcgetattr(STDIN_FILENO, &own) == 0;
  if (has_terminal) {
    tell(paste_off);
    tcsetattr(STDIN_FILENO, TCSANOW, &modes);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
  if (has_terminal) {
    tcsetattr(STDIN_FILENO, TCSANOW, &own);
    tell(paste_on);
  }
  sigaction(signal_number, &(struct sigaction){.sa_handler = on_leave, .sa_flags = SA_RESTART | SA_NODEFER}, NULL);
  looks_wrong = 1;
  terminal_signal();
}

static void on_resize(int signal_number) {
  (void)signal_number;
  looks_wrong = 1;
  terminal_signal();
}

static void catch_signals(void) {
  static const int leave[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGTSTP};
  struct sigaction before, action = {.sa_handler = on_leave, .sa_flags = SA_RESTART | SA_NODEFER};
  for (size_t i = 0; i < sizeof leave / sizeof *leave; i++)
    if (sigaction(leave[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(leave[i], &action, NULL);
  action = (struct sigaction){.sa_handler = on_resize, .sa_flags = SA_RESTART};
  sigaction(SIGWINCH, &action, NULL);
}

static void close_editor(void) {
  if (is_in_background()) return;
  tell(paste_off);
  el_end(edit);
  history_wend(past);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &modes);
  fclose(screen);
}

/* ---- Characters -------------------------------------------------------------------------------------------------- */

/* Waits for a byte of standard input. */
static bool read_byte(char *byte) {
  for (enum terminal_event event; (event = terminal_wait()) != TERMINAL_INPUT;) {
    if (event == TERMINAL_INTERRUPT) return false;
    if (!looks_wrong) continue;
    looks_wrong = 0;
    el_resize(edit);
    el_wset(edit, EL_REFRESH);
  }
  return read(STDIN_FILENO, byte, 1) == 1;
}

/* Reads a character. Bytes that are not UTF-8 give U+FFFD. */
static bool decode(wchar_t *out) {
  static char held[4];
  static size_t count;
  struct utf8_sequence sequence = {UTF8_CUT, 0};
  while (count == 0 || (sequence = utf8_at(held, count)).state == UTF8_CUT) {
    if (!read_byte(&held[count])) return false;
    count++;
  }
  *out = sequence.state == UTF8_WHOLE ? (wchar_t)utf8_code(held, sequence.length) : 0xfffd;
  count -= sequence.length;
  memmove(held, held + sequence.length, count);
  return true;
}

/* ---- Pastes ------------------------------------------------------------------------------------------------------ */

static void paste_put(wchar_t character) {
  if (pasted.count == pasted.capacity) {
    pasted.capacity = 2 * pasted.capacity + 1024;
    pasted.text = realloc(pasted.text, pasted.capacity * sizeof *pasted.text);
    if (!pasted.text) give_up("no memory for the pasted text");
  }
  pasted.text[pasted.count++] = character;
}

static void paste_forget(void) {
  free(pasted.text);
  pasted = (struct pasted){0};
}

/* Line ends in a paste arrive as Enter (carriage return), as newline, or as both: each becomes one newline. Control
 * codes other than tab are dropped. */
static void paste_clean(wchar_t before, wchar_t character) {
  bool is_control = character < 0x20 || (character >= 0x7f && character < 0xa0);
  if (character == L'\r' || (character == L'\n' && before != L'\r'))
    paste_put(L'\n');
  else if (!is_control || character == L'\t')
    paste_put(character);
}

/* Reads a paste up to the end mark. The mark's first byte, ESC, is dropped like all control codes. Its other bytes are
 * stored as text, and removed when the mark is complete. */
static bool paste_read(void) {
  wchar_t last[MARK] = {0};
  do {
    wmemmove(last, last + 1, MARK - 1);
    if (!decode(&last[MARK - 1])) {
      paste_forget();
      return false;
    }
    paste_clean(last[MARK - 2], last[MARK - 1]);
  } while (wmemcmp(last, paste_ends, MARK) != 0);
  pasted.count -= pasted.count < MARK - 1 ? pasted.count : MARK - 1; /* the rest of the mark */
  paste_put(L'\0');
  return true;
}

/* The function of paste_key: inserts the paste into the message. */
static unsigned char paste(EditLine *unused, wint_t key) {
  (void)unused;
  (void)key;
  if (!pasted.text) return CC_NORM; /* the user typed the key */
  el_winsertstr(edit, pasted.text);
  paste_forget();
  return CC_REFRESH;
}

/* libedit's function for a character: returns 1, or 0 at the end. It holds bytes back that may begin the first mark. It
 * returns paste_key again and again until libedit calls paste, since the key may first end something else: a search, or
 * the keys after an escape. */
static int read_character(EditLine *unused, wchar_t *out) {
  static wchar_t held[MARK];
  static size_t count;
  (void)unused;
  while (!pasted.text && (count == 0 || wmemcmp(held, paste_begins, count) == 0)) {
    if (count == MARK) {
      count = 0;
      if (!paste_read()) return 0;
    } else if (!decode(&held[count++])) {
      return 0;
    }
  }
  *out = pasted.text ? paste_key : held[0];
  if (!pasted.text) wmemmove(held, held + 1, --count);
  return 1;
}

/* ---- The editor -------------------------------------------------------------------------------------------------- */

static wchar_t *prompt(EditLine *unused) {
  static wchar_t text[] = L"> ";
  (void)unused;
  return text;
}

/* The locale determines the width of characters on the screen. Without a UTF-8 locale libedit shows them as numbers. */
static void use_utf8(void) {
  setlocale(LC_CTYPE, "");
  if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

/* Opens the terminal of standard input for writing, independent of the other streams. */
static FILE *open_screen(void) {
  int flags = fcntl(STDIN_FILENO, F_GETFL);
  const char *name = ttyname(STDIN_FILENO);
  int descriptor = flags >= 0 && (flags & O_ACCMODE) == O_RDWR ? dup(STDIN_FILENO)
                   : name                                      ? open(name, O_WRONLY | O_NOCTTY | O_CLOEXEC)
                                                               : -1;
  return descriptor < 0 ? NULL : fdopen(descriptor, "w");
}

static void bind_keys(void) {
  el_wset(edit, EL_ADDFN, L"paste", L"inserts a pasted text", paste);
  el_wset(edit, EL_BIND, L"^@", L"paste", NULL);
  el_wset(edit, EL_BIND, L"\033x", L"ed-ignore", NULL); /* by default it opens libedit's command line */
  el_wset(edit, EL_BIND, L"\033X", L"ed-ignore", NULL);
  el_wset(edit, EL_BIND, L"\t", L"ed-insert", NULL);
  el_wset(edit, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
  for (wchar_t letter = 0xa0; letter <= 0xff;
       letter++) /* without it, keys with Meta if the locale lacks these letters */
    el_wset(edit, EL_BIND, (wchar_t[]){letter, L'\0'}, L"ed-insert", NULL);
}

/* Sets the modes between messages (-x) and during editing (-d): no canonical mode, and no conversion of newlines. */
static void set_modes(void) {
  el_wset(edit, EL_SETTY, L"-x", L"-icanon", L"-echo", L"-icrnl", NULL);
  el_wset(edit, EL_SETTY, L"-d", L"-icrnl", L"-inlcr", NULL);
}

bool editor_open(void) {
  HistEventW event;
  if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &modes) != 0) return false;
  screen = open_screen();
  if (!screen) return false;
  const char *terminal = getenv("TERM");
  marks_pastes = terminal && *terminal && strcmp(terminal, "dumb") != 0;
  use_utf8();
  edit = el_init("chat", stdin, screen, stderr);
  past = history_winit();
  if (!edit || !past) give_up("no memory for the editor");
  history_w(past, &event, H_SETSIZE, HISTORY_LINES);
  history_w(past, &event, H_SETUNIQUE, 1);
  el_wset(edit, EL_HIST, history_w, past);
  el_wset(edit, EL_EDITOR, L"emacs");
  el_wset(edit, EL_PROMPT, prompt);
  el_wset(edit, EL_GETCFN, read_character);
  bind_keys();
  catch_signals();
  atexit(close_editor);
  set_modes();
  tell(paste_on);
  return true;
}

bool editor_line(struct line *line) {
  HistEventW event;
  int count = 0;
  const wchar_t *text = el_wgets(edit, &count);
  line->length = 0;
  if (!text) return false;
  for (int i = 0; i < count; i++) {
    char bytes[4];
    line_put(line, bytes, utf8_put((uint32_t)text[i], bytes));
  }
  if (text[0] != L'\n') history_w(past, &event, H_ENTER, text);
  line_end(line);
  return true;
}
