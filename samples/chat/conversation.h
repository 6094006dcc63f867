/* conversation.h - a conversation as a list of tokens. The model has processed the first of them; it processes the
 * others before it answers. If the context is full, the oldest messages are dropped with their answers. The system
 * message stays. */
#pragma once

#include "llama_model.h"
#include "template.h"

struct conversation {
  const struct template *template;
  struct llama *llama;
  const char *system; /* the system message, which may be empty */
  struct tokens tokens;
  size_t *turns; /* the index of each user message's first token, the oldest message first */
  size_t turn_count, turn_capacity;
  size_t kept;      /* tokens before the first message, which are never dropped */
  size_t forgotten; /* dropped messages; the caller reports them and sets it to 0 */
  bool replays;     /* the next token is a replay of decode; otherwise all tokens are processed again */
};

enum conversation_taken { MESSAGE_TAKEN, MESSAGE_INTERRUPTED, MESSAGE_TOO_LONG };

/* Adds the user's message. *next is the answer's first token, *count the number of processed tokens. After Ctrl-C, or
 * if the context has no room for the message alone, the conversation is unchanged. */
enum conversation_taken conversation_ask(struct conversation *conversation, const char *text, size_t bytes,
                                         int32_t *next, size_t *count);

/* Begins to process the newest token of the answer, which may be followed by `most` more. False if the context has no
 * room for it, even without all older messages. A model with runs then begins one, whose tokens are llama_run_take's;
 * the caller adds all of them except the newest. Else, and if `replays` is false, conversation_end waits for the next
 * token; -1 after Ctrl-C. */
bool conversation_begin(struct conversation *conversation, int32_t token, int64_t most);
int32_t conversation_end(struct conversation *conversation);
void conversation_add(struct conversation *conversation, int32_t token);

/* Ends an answer. `last` is its last token, which the model has not processed; -1 if there is none. */
void conversation_answered(struct conversation *conversation, int32_t last);

void conversation_forget(struct conversation *conversation);
void conversation_free(struct conversation *conversation);
