/* conversation.h - a conversation as tokens: the model has taken the first of them, and takes the others before it
 * answers. When the context is full, the oldest messages are dropped, each with its answer; the system's message
 * stays. */
#ifndef CONVERSATION_H
#define CONVERSATION_H

#include "llama_model.h"
#include "template.h"

struct conversation {
  const struct template *template;
  struct llama *llama;
  const char *system; /* its message, which may be empty */
  struct tokens tokens;
  size_t *turns; /* where each of the user's messages begins, the oldest first */
  size_t turn_count, turn_capacity;
  size_t kept;      /* tokens before the first message, which stay */
  size_t forgotten; /* messages that went, until somebody says so and sets it to 0 */
  bool replays;     /* the token under way is a replay of the model's; else all tokens have to be taken once more */
};

enum conversation_taken { MESSAGE_TAKEN, MESSAGE_INTERRUPTED, MESSAGE_TOO_LONG };

/* Takes the user's message and returns the answer's first token in *next, and in *count how many tokens it took. Ctrl-C
 * ends it; then, and where the context has no room for the message alone, all is as if it had never been. */
enum conversation_taken conversation_ask(struct conversation *conversation, const char *text, size_t bytes,
                                         int32_t *next, size_t *count);

/* Begins to take a token of the answer, the one made last; false: there is no room for it, though all else has gone.
 * Then waits for the next one; -1: Ctrl-C came. */
bool conversation_begin(struct conversation *conversation, int32_t token);
int32_t conversation_end(struct conversation *conversation);

/* Behind an answer, whose last token the model has not taken, -1 where there is none. */
void conversation_answered(struct conversation *conversation, int32_t last);

void conversation_forget(struct conversation *conversation);
void conversation_free(struct conversation *conversation);

#endif
