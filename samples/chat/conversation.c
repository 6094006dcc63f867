/* conversation.c - a conversation as a list of tokens (conversation.h). The keys in the caches are rotated by their
 * positions, and so the remaining messages are processed again after older ones were dropped. To make this rare, half
 * of the context is freed each time. */
#include "conversation.h"

#include <stdlib.h>
#include <string.h>

#include "../sample.h"
#include "terminal.h"

static void require_memory(bool fine) {
  if (!fine) give_up("no memory for the conversation");
}

static void begin_turn(struct conversation *conversation) {
  if (conversation->turn_count == conversation->turn_capacity) {
    size_t capacity = 2 * conversation->turn_capacity + 16;
    size_t *turns = realloc(conversation->turns, capacity * sizeof *turns);
    require_memory(turns);
    conversation->turns = turns;
    conversation->turn_capacity = capacity;
  }
  conversation->turns[conversation->turn_count++] = conversation->tokens.count;
}

static void rewind_to(struct conversation *conversation, size_t count) {
  conversation->tokens.count = count;
  if (conversation->llama->position > (int64_t)count) llama_rewind(conversation->llama, (int64_t)count);
}

/* ---- Room -------------------------------------------------------------------------------------------------------- */

static size_t context_of(const struct conversation *conversation) { return (size_t)conversation->llama->desc.context; }

/* Drops the tokens of the oldest turns, which follow the tokens that are kept. */
static void forget_turns(struct conversation *conversation, size_t turns) {
  struct tokens *tokens = &conversation->tokens;
  size_t begin = conversation->turns[turns], gone = begin - conversation->kept;
  if (conversation->llama->position > (int64_t)conversation->kept)
    llama_rewind(conversation->llama, (int64_t)conversation->kept);
  memmove(tokens->ids + conversation->kept, tokens->ids + begin, (tokens->count - begin) * sizeof *tokens->ids);
  tokens->count -= gone;
  conversation->turn_count -= turns;
  memmove(conversation->turns, conversation->turns + turns, conversation->turn_count * sizeof *conversation->turns);
  for (size_t i = 0; i < conversation->turn_count; i++) conversation->turns[i] -= gone;
  conversation->forgotten += turns;
}

/* Makes room for `more` tokens. False if the last turn leaves no room for them; nothing is dropped then. */
static bool make_room(struct conversation *conversation, size_t more) {
  size_t count = conversation->tokens.count + more, context = context_of(conversation);
  size_t last = conversation->turn_count - 1, turns = 0;
  if (count <= context) return true;
  if (count - (conversation->turns[last] - conversation->kept) > context) return false;
  while (turns < last && count - (conversation->turns[turns] - conversation->kept) > context / 2) turns++;
  forget_turns(conversation, turns);
  return true;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/* Processes all new tokens, one chunk after the other. Ctrl-C can end it after each chunk. */
static bool take_all(struct conversation *conversation, int32_t *next) {
  const struct tokens *tokens = &conversation->tokens;
  while ((size_t)conversation->llama->position < tokens->count) {
    size_t done = (size_t)conversation->llama->position, left = tokens->count - done;
    if (terminal_interrupted()) return false;
    *next = llama_prefill(conversation->llama, tokens->ids + done, llama_chunk(conversation->llama, left));
  }
  return true;
}

static void begin_conversation(struct conversation *conversation) {
  const struct template *template = conversation->template;
  require_memory(template_begin(template, &conversation->tokens));
  if (*conversation->system)
    require_memory(template_message(template, "system", conversation->system, strlen(conversation->system),
                                    &conversation->tokens));
  conversation->kept = conversation->tokens.count;
}

static void take_back(struct conversation *conversation) {
  size_t begin = conversation->turns[--conversation->turn_count];
  if (conversation->turn_count == 0)
    conversation_forget(conversation);
  else
    rewind_to(conversation, begin);
}

enum conversation_taken conversation_ask(struct conversation *conversation, const char *text, size_t bytes,
                                         int32_t *next, size_t *count) {
  const struct template *template = conversation->template;
  if (conversation->turn_count == 0) begin_conversation(conversation);
  begin_turn(conversation);
  require_memory(template_message(template, "user", text, bytes, &conversation->tokens) &&
                 template_answer(template, &conversation->tokens));
  bool fits = make_room(conversation, 0);
  *count = conversation->tokens.count - (size_t)conversation->llama->position;
  if (fits && take_all(conversation, next)) return MESSAGE_TAKEN;
  if (!fits)
    *count = conversation->tokens.count - conversation->turns[conversation->turn_count - 1] + conversation->kept;
  take_back(conversation);
  return fits ? MESSAGE_INTERRUPTED : MESSAGE_TOO_LONG;
}

void conversation_add(struct conversation *conversation, int32_t token) {
  require_memory(tokens_push(&conversation->tokens, token));
}

bool conversation_begin(struct conversation *conversation, int32_t token, int64_t most) {
  if (!make_room(conversation, 1)) return false;
  conversation_add(conversation, token);
  conversation->replays = conversation->llama->position + 1 == (int64_t)conversation->tokens.count;
  if (conversation->replays && conversation->llama->runs)
    llama_run_begin(conversation->llama, most);
  else if (conversation->replays)
    llama_begin_token(conversation->llama);
  return true;
}

int32_t conversation_end(struct conversation *conversation) {
  int32_t next = -1;
  if (conversation->replays) return llama_end_token(conversation->llama);
  return take_all(conversation, &next) ? next : -1;
}

void conversation_answered(struct conversation *conversation, int32_t last) {
  require_memory(template_answered(conversation->template, last, &conversation->tokens));
}

void conversation_forget(struct conversation *conversation) {
  conversation->turn_count = 0;
  rewind_to(conversation, 0);
}

void conversation_free(struct conversation *conversation) {
  tokens_free(&conversation->tokens);
  free(conversation->turns);
}
