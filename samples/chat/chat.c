/* chat - a conversation with a small language model. One replay processes up to 256 tokens of a prompt. An answer's
 * tokens come in runs (llama_run.c), many replays in one launch, or one in each replay. The device computes the next
 * tokens while the host prints one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../sample.h"
#include "chat_options.h"
#include "conversation.h"
#include "editor.h"
#include "figures.h"
#include "terminal.h"
#include "utf8.h"

struct chat {
  struct chat_options options;
  struct tokenizer tokenizer;
  struct template template;
  struct llama llama;
  struct conversation conversation;
  struct figures figures;
};

/* ---- An answer --------------------------------------------------------------------------------------------------- */

static void say(const char *text, size_t bytes) {
  if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0) give_up("standard output: %s", strerror(errno));
}

static void print_token(const struct chat *chat, struct utf8_stream *stream, int32_t token) {
  if (!tokenizer_prints(&chat->tokenizer, token) || template_ends(&chat->template, token)) return;
  struct gguf_text text = tokenizer_bytes(&chat->tokenizer, token);
  char *out = malloc(3 * (text.length + 1));
  if (!out) give_up("no memory for a token's text");
  say(out, utf8_pass(stream, text.bytes, text.length, out));
  free(out);
}

static void end_text(struct utf8_stream *stream) {
  char out[4];
  size_t bytes = utf8_end(stream, out);
  out[bytes] = '\n';
  say(out, bytes + 1);
}

enum outcome { ANSWERED, INTERRUPTED, NO_ROOM };

/* An answer under way. */
struct saying {
  struct utf8_stream stream;
  int32_t token; /* the newest; -1: Ctrl-C came before there was one */
  bool is_printed;
  int64_t left; /* how many may follow it */
  enum outcome outcome;
};

static void print_newest(const struct chat *chat, struct saying *saying) {
  if (!saying->is_printed && saying->token >= 0) print_token(chat, &saying->stream, saying->token);
  saying->is_printed = true;
}

static void take_token(const struct chat *chat, struct saying *saying, int32_t token) {
  print_newest(chat, saying);
  saying->token = token, saying->is_printed = false, saying->left--;
}

static bool goes_on(const struct chat *chat, const struct saying *saying) {
  return !template_ends(&chat->template, saying->token) && saying->left > 0;
}

/* Prints the tokens of a run as they come. Ctrl-C lets it end. */
static void take_run(struct chat *chat, struct saying *saying) {
  struct llama *llama = &chat->llama;
  const int32_t *tokens;
  uint64_t begin = clock_ns();
  bool is_first = true, is_stopped = false;
  for (size_t count; (count = llama_run_take(llama, &tokens)) > 0;) {
    const uint64_t now = clock_ns();
    for (size_t i = 0; i < count; i++, is_first = false) {
      if (!is_first) conversation_add(&chat->conversation, saying->token);
      take_token(chat, saying, tokens[i]);
      print_newest(chat, saying);
      figures_add(&chat->figures, (now - begin) / count);
    }
    begin = now;
    if (is_stopped || !terminal_interrupted()) continue;
    is_stopped = true;
    llama_run_stop(llama);
  }
  if (is_stopped && goes_on(chat, saying)) saying->outcome = INTERRUPTED;
}

/* Processes the newest token, and gets the next one or, in a run, the next ones. */
static void go_on(struct chat *chat, struct saying *saying) {
  struct conversation *conversation = &chat->conversation;
  const uint64_t begin = clock_ns();
  if (!conversation_begin(conversation, saying->token, saying->left)) {
    saying->outcome = NO_ROOM;
    return;
  }
  print_newest(chat, saying); /* while the device computes the next token */
  if (chat->llama.running) {
    take_run(chat, saying);
    return;
  }
  take_token(chat, saying, conversation_end(conversation));
  figures_add(&chat->figures, clock_ns() - begin);
  if (saying->token < 0) saying->outcome = INTERRUPTED;
}

/* Prints an answer, which begins with this token. */
static enum outcome answer(struct chat *chat, int32_t token) {
  struct saying saying = {.token = token, .left = chat->options.tokens - 1};
  uint64_t begin = clock_ns();
  figures_begin_answer(&chat->figures);
  while (goes_on(chat, &saying)) {
    if (terminal_interrupted()) saying.outcome = INTERRUPTED;
    if (saying.outcome != ANSWERED) break;
    go_on(chat, &saying);
  }
  print_newest(chat, &saying);
  figures_end_answer(&chat->figures, clock_ns() - begin);
  end_text(&saying.stream);
  conversation_answered(&chat->conversation, saying.token);
  return saying.outcome;
}

/* ---- A message --------------------------------------------------------------------------------------------------- */

static void say_what_would_help(const struct llama *llama) {
  if (llama->desc.context < llama->trained)
    fprintf(stderr, "; --context N gives more, up to %lld\n", (long long)llama->trained);
  else
    fprintf(stderr, ", and the model was trained for no more\n");
}

static void say_what_is_forgotten(struct conversation *conversation) {
  if (conversation->forgotten == 1)
    fputs("the context was full: the oldest message and its answer are dropped\n", stderr);
  else if (conversation->forgotten > 1)
    fprintf(stderr, "the context was full: the oldest %zu messages and their answers are dropped\n",
            conversation->forgotten);
  conversation->forgotten = 0;
}

static enum outcome refuse(const struct chat *chat, enum conversation_taken taken, size_t count) {
  if (taken == MESSAGE_INTERRUPTED) {
    fprintf(stderr, "interrupted while %zu tokens were processed; the message is dropped\n", count);
    return INTERRUPTED;
  }
  fprintf(stderr, "the message takes %zu tokens, the context has room for %lld", count,
          (long long)chat->llama.desc.context);
  say_what_would_help(&chat->llama);
  return NO_ROOM;
}

static enum outcome reply(struct chat *chat, const char *text, size_t bytes) {
  int32_t token = -1;
  uint64_t begin = clock_ns();
  size_t count;
  enum conversation_taken taken = conversation_ask(&chat->conversation, text, bytes, &token, &count);
  if (taken != MESSAGE_TAKEN) return refuse(chat, taken, count);
  chat->figures.first_token_ns = clock_ns() - begin;
  chat->figures.prompt_tokens = count;
  enum outcome outcome = answer(chat, token);
  say_what_is_forgotten(&chat->conversation);
  if (chat->options.statistics == STATISTICS_EACH)
    figures_print_answer(&chat->figures, chat->llama.position, chat->llama.desc.context);
  if (outcome == INTERRUPTED) fputs("interrupted; the answer is cut\n", stderr);
  if (outcome == NO_ROOM) {
    fprintf(stderr, "the context is full: %lld tokens", (long long)chat->llama.desc.context);
    say_what_would_help(&chat->llama);
  }
  return outcome;
}

/* ---- A conversation ---------------------------------------------------------------------------------------------- */

static const char commands[] = "/new    forgets the conversation\n"
                               "/help   says this\n"
                               "/quit   ends the program, as Ctrl-D and Ctrl-C do here\n";

/* A line of a slash and one word may be a mistyped command: it is not sent as a message. */
static bool looks_like_a_command(const struct line *line) {
  return line->length > 1 && line->text[0] == '/' &&
         strspn(line->text + 1, "abcdefghijklmnopqrstuvwxyz") == line->length - 1;
}

/* Executes a command. False if it ends the program. */
static bool obey(struct chat *chat, const struct line *line) {
  if (line_is(line, "/new"))
    conversation_forget(&chat->conversation);
  else if (line_is(line, "/help"))
    fputs(commands, stderr);
  else if (!line_is(line, "/quit"))
    fprintf(stderr, "unknown command %s; /help lists the commands\n", line->text);
  return !line_is(line, "/quit");
}

/* Returns false if a message was not answered, or its answer was cut, since the context had no room. */
static bool converse(struct chat *chat, bool edits) {
  struct line line = {0};
  bool asks = isatty(STDIN_FILENO), goes_on = true, fine = true;
  if (asks)
    fputs(
        "Each line is a message; /help lists the commands. Ctrl-C drops a message that is being processed, or ends an\n"
        "answer. At the prompt Ctrl-C and Ctrl-D end the program.\n",
        stderr);
  while (goes_on) {
    if (asks && !edits) fputs("> ", stderr);
    if (!(edits ? editor_line(&line) : terminal_line(&line))) break;
    if (looks_like_a_command(&line))
      goes_on = obey(chat, &line);
    else if (line.length > 0)
      fine &= reply(chat, line.text, line.length) != NO_ROOM;
    terminal_forget_interrupt(); /* an interrupt of this answer must not end the next one */
  }
  if (asks && goes_on) fputc('\n', stderr);
  line_free(&line);
  return fine;
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

/* Runs end at these tokens. */
static void list_stops(struct chat *chat) {
  struct llama_options *options = &chat->options.llama;
  for (int32_t i = 0; i < chat->tokenizer.vocabulary.token_count && options->stop_count < LLAMA_MOST_STOPS; i++)
    if (template_ends(&chat->template, i)) options->stops[options->stop_count++] = i;
}

static void open_chat(struct chat *chat) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES];
  uint64_t begin = clock_ns();
  if (!gguf_open(chat->options.model, &file, message)) give_up("%s", message);
  if (!tokenizer_open(&file, &chat->tokenizer, message)) give_up("%s", message);
  if (!template_find(&chat->tokenizer, &chat->template))
    give_up("%s: its vocabulary lacks <|im_start|> or <|im_end|>", file.path);
  list_stops(chat);
  llama_open(&file, &chat->options.llama, &chat->llama);
  if (chat->llama.desc.vocabulary < chat->tokenizer.vocabulary.token_count)
    give_up("%s: its embedding has %lld rows, expected %d, one for each token", file.path,
            (long long)chat->llama.desc.vocabulary, chat->tokenizer.vocabulary.token_count);
  gguf_close(&file);
  chat->conversation =
      (struct conversation){.template = &chat->template, .llama = &chat->llama, .system = chat->options.system};
  chat->figures.opened_ns = clock_ns() - begin;
}

static void close_chat(struct chat *chat) {
  conversation_free(&chat->conversation);
  llama_close(&chat->llama);
  tokenizer_close(&chat->tokenizer);
  figures_free(&chat->figures);
}

int main(int argc, char **argv) {
  struct chat chat = {.options = chat_options_parse(argc, argv)};
  const char *prompt = chat.options.prompt;
  bool edits = !prompt && editor_open(); /* before the model is loaded, so that text typed meanwhile is not lost */
  open_chat(&chat);
  terminal_catch_interrupts(); /* from now on Ctrl-C ends a message or an answer, not the program */
  bool fine = prompt ? reply(&chat, prompt, strlen(prompt)) == ANSWERED : converse(&chat, edits);
  if (chat.options.statistics != STATISTICS_NONE && chat.llama.verified > 0)
    fprintf(stderr, "drafts     %llu of the tokens in %llu replays\n", (unsigned long long)chat.llama.drafted,
            (unsigned long long)chat.llama.verified);
  if (chat.options.statistics != STATISTICS_NONE) figures_print(&chat.figures, chat.llama.runtime);
  close_chat(&chat);
  return fine ? SAMPLE_OK : SAMPLE_UNUSABLE;
}
