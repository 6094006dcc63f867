/* body.h - the bodies of requests: JSON as OpenAI's clients send it, checked and turned into a question. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../chat/template.h"

enum { STOPS_MOST = 4, STOP_BYTES_MOST = 128, BODY_MESSAGE_BYTES = 256, BODY_FIELD_BYTES = 64 };

enum body_kind { BODY_CHAT, BODY_COMPLETION, BODY_TOKENIZE };

struct question {
  struct tokens prompt;
  bool stream, with_usage; /* with_usage: stream_options.include_usage */
  bool with_logprobs;
  int64_t max_tokens; /* 0: the body does not say */
  float temperature, top_p;
  int32_t seed;
  bool seeded; /* false: the body has no seed */
  int32_t stop_count;
  uint32_t stop_bytes[STOPS_MOST];
  char stops[STOPS_MOST][STOP_BYTES_MOST];
};

/* What is wrong with a body, for a JSON error: a sentence with the field, what it is and what was expected. */
struct body_fault {
  int status; /* 400, 404 (another model), 413 (more tokens than `most_tokens`), or 500 for lack of memory */
  char message[BODY_MESSAGE_BYTES];
  char field[BODY_FIELD_BYTES]; /* "messages[2].role"; empty if it is the whole body */
};

struct body_rules {
  const struct template *template;
  const char *model;   /* the name that a body may give; any other is a fault with status 404 */
  int64_t most_tokens; /* of the prompt */
  size_t most_memory;  /* of the JSON's values; 0: 128 MiB, more than any body of 1 MiB takes */
};

/* Reads a body. False with *fault on an error; *question is empty then. question_free releases the prompt. */
bool body_read(const struct body_rules *rules, enum body_kind kind, const char *bytes, size_t count,
               struct question *question, struct body_fault *fault);
void question_free(struct question *question);
