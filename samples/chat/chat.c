/* chat - a conversation with a small language model: a prompt takes a replay for every 16 of its tokens, an answer one
 * replay a token, which the graph feeds back to itself. While a token is printed the next one is on its way. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../sample.h"
#include "chat_options.h"
#include "figures.h"
#include "template.h"
#include "terminal.h"
#include "utf8.h"

struct chat {
  struct chat_options options;
  struct tokenizer tokenizer;
  struct template template;
  struct llama llama;
  struct figures figures;
  /* Of the conversation so far, what the model has not taken yet: the end of the last answer. */
  struct tokens pending;
};

/* ---- An answer --------------------------------------------------------------------------------------------------- */

static void say(const char *text, size_t bytes) {
  if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0) give_up("standard output: %s", strerror(errno));
}

static void print_token(const struct chat *chat, struct utf8_stream *stream, int32_t token) {
  if (!tokenizer_prints(&chat->tokenizer, token)) return;
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

/* From the prompt's next token on; returns the last one, which no replay has taken yet. */
static int32_t answer(struct chat *chat, int32_t token) {
  struct utf8_stream stream = {0};
  int64_t left = chat->options.tokens;
  uint64_t begin = clock_ns();
  bool goes_on = true;
  while (goes_on) {
    uint64_t replayed = clock_ns();
    bool ends = template_ends(&chat->template, token);
    goes_on = !ends && --left > 0 && llama_room(&chat->llama) > 0 && !terminal_interrupted();
    if (goes_on) llama_begin_token(&chat->llama);
    if (!ends) print_token(chat, &stream, token);
    if (!goes_on) break;
    token = llama_end_token(&chat->llama);
    figures_add(&chat->figures, clock_ns() - replayed);
  }
  chat->figures.answering_ns += clock_ns() - begin;
  end_text(&stream);
  if (!template_ends(&chat->template, token) && llama_room(&chat->llama) == 0)
    fprintf(stderr, "the context is full: %lld tokens\n", (long long)chat->llama.desc.context);
  return token;
}

/* ---- A message --------------------------------------------------------------------------------------------------- */

/* What the model takes before it answers: the rest of the last answer, or the system's message, and the user's. */
static struct tokens tokens_of_message(const struct chat *chat, const char *text) {
  struct tokens tokens = {0};
  bool fine = true, begins = chat->llama.position == 0;
  if (begins) fine = template_begin(&chat->template, &tokens);
  if (begins && *chat->options.system)
    fine = fine && template_message(&chat->template, "system", chat->options.system, &tokens);
  for (size_t i = 0; i < chat->pending.count; i++) fine = fine && tokens_push(&tokens, chat->pending.ids[i]);
  if (!fine || !template_message(&chat->template, "user", text, &tokens) || !template_answer(&chat->template, &tokens))
    give_up("no memory for the message");
  return tokens;
}

/* A chunk at a time, after each of which Ctrl-C may end it. false: it did, or there is no room, and the model is as
 * before. */
static bool take(struct chat *chat, const struct tokens *tokens, int32_t *next) {
  uint64_t begin = clock_ns();
  int64_t before = chat->llama.position, room = llama_room(&chat->llama);
  size_t done = 0;
  if ((int64_t)tokens->count > room) {
    fprintf(stderr, "that takes %zu tokens, the context has room for %lld more%s\n", tokens->count, (long long)room,
            chat->options.prompt ? "" : "; /new forgets the conversation");
    return false;
  }
  while (done < tokens->count && !terminal_interrupted()) {
    size_t left = tokens->count - done, rows = left < LLAMA_CHUNK ? left : LLAMA_CHUNK;
    *next = llama_prefill(&chat->llama, tokens->ids + done, rows);
    done += rows;
  }
  if (done < tokens->count) {
    llama_rewind(&chat->llama, before);
    fprintf(stderr, "interrupted after %zu of %zu tokens; the message is forgotten\n", done, tokens->count);
    return false;
  }
  chat->figures.first_token_ns = clock_ns() - begin;
  chat->figures.prompt_tokens = tokens->count;
  return true;
}

/* false: the message was not taken, and there is no answer. */
static bool reply(struct chat *chat, const char *text) {
  struct tokens tokens = tokens_of_message(chat, text);
  int32_t token = -1;
  bool taken = take(chat, &tokens, &token);
  tokens_free(&tokens);
  if (!taken) return false;
  int32_t last = answer(chat, token);
  chat->pending.count = 0;
  if (!template_answered(&chat->template, last, &chat->pending)) give_up("no memory for the conversation");
  return true;
}

static void forget(struct chat *chat) {
  llama_forget(&chat->llama);
  chat->pending.count = 0;
}

static void converse(struct chat *chat) {
  char *line = NULL;
  size_t capacity = 0;
  bool asks = isatty(STDIN_FILENO);
  if (asks)
    fputs("A line is a message; /new forgets the conversation. Ctrl-C takes back a message that is on its way in,\n"
          "ends an answer, and at the prompt the program, as Ctrl-D does.\n",
          stderr);
  for (;;) {
    if (asks) fputs("> ", stderr);
    if (!terminal_line(&line, &capacity)) break;
    if (strcmp(line, "/new") == 0)
      forget(chat);
    else if (*line)
      reply(chat, line);
    terminal_forget_interrupt(); /* it ended that reply, not the next one */
  }
  if (asks) fputc('\n', stderr);
  free(line);
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

static void open_chat(struct chat *chat) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES];
  uint64_t begin = clock_ns();
  if (!gguf_open(chat->options.model, &file, message)) give_up("%s", message);
  if (!tokenizer_open(&file, &chat->tokenizer, message)) give_up("%s", message);
  if (!template_find(&chat->tokenizer, &chat->template))
    give_up("%s: it has no <|im_start|> and <|im_end|>", file.path);
  llama_open(&file, &chat->options.llama, &chat->llama);
  if (chat->llama.desc.vocabulary < chat->tokenizer.vocabulary.token_count)
    give_up("%s: its embedding has %lld rows for %d tokens", file.path, (long long)chat->llama.desc.vocabulary,
            chat->tokenizer.vocabulary.token_count);
  gguf_close(&file);
  chat->figures.opened_ns = clock_ns() - begin;
}

static void close_chat(struct chat *chat) {
  llama_close(&chat->llama);
  tokenizer_close(&chat->tokenizer);
  tokens_free(&chat->pending);
  figures_free(&chat->figures);
}

int main(int argc, char **argv) {
  struct chat chat = {.options = chat_options_parse(argc, argv)};
  open_chat(&chat);
  terminal_catch_interrupts(); /* there is something to end but the program */
  bool fine = true;
  if (chat.options.prompt)
    fine = reply(&chat, chat.options.prompt);
  else
    converse(&chat);
  figures_print(&chat.figures, chat.llama.runtime);
  close_chat(&chat);
  return fine ? SAMPLE_OK : SAMPLE_UNUSABLE;
}
