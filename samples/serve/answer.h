/* answer.h - the tokens of an answer as the JSON of a response: events of a stream, or one object. Text leaves as whole
 * UTF-8 characters. It ends before the first stop string: what could be the beginning of one is held back. */
#pragma once

#include "../chat/utf8.h"
#include "body.h"
#include "buffer.h"
#include "request.h"

enum { ANSWER_LISTS = 3 };

struct answer {
  const struct tokenizer *tokenizer;
  const struct question *question;
  enum body_kind kind; /* BODY_CHAT or BODY_COMPLETION */
  const char *model;
  uint64_t number; /* of the request, for its id */
  int64_t created; /* seconds since 1970 */

  int32_t read;               /* tokens of the record that were taken */
  struct utf8_stream decoder; /* holds the bytes of a character that is not whole */
  int64_t character_count;    /* decoded */
  struct buffer held;         /* text that may be the beginning of a stop string */
  /* What the next event has, or the object: text; and the elements of the lists that logprobs are. */
  struct buffer ready, lists[ANSWER_LISTS];
  struct buffer head; /* what each object begins with */
  bool begun;         /* an event is written */
  bool stopped;       /* at a stop string: the request is to be cancelled, and its finish reason is "stop" */
  bool ended;         /* the object or the last event is written: no more follow */
  int status;         /* HTTP's, of the object: 200, 503 after END_LOST and END_CANCELLED, 504 after END_DEADLINE */
};

/* The tokenizer, the question and the name of the model outlive the answer. */
void answer_begin(struct answer *answer, const struct tokenizer *tokenizer, const struct question *question,
                  enum body_kind kind, const char *model, uint64_t number);
void answer_free(struct answer *answer);

/* Takes the tokens of the record that are new. With question->stream, appends their events to *out ("data: {...}\n\n").
 * After the last token, or a stop string, also the event with the finish reason, usage if it is asked for, and "data:
 * [DONE]\n\n". An answer that ends for another reason than stop or length ends with one error event instead. Without
 * stream, appends one object at the end, and nothing before. Without memory *out fails. */
void answer_read(struct answer *answer, const struct request *request, struct buffer *out);

/* {"error": {"message": ..., "type": ..., "param": ..., "code": ...}} as OpenAI's servers send it. The field may be
 * NULL or empty. */
void error_write(struct buffer *out, int status, const char *message, const char *field);
