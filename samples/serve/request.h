/* request.h - what the HTTP thread and the replaying thread share about a request. The HTTP thread fills a record in
 * and submits it (engine.h). From then on it may only set `cancelled`, and read what `answered` and `end` publish. When
 * `end` is set, the replaying thread has forgotten the record, which is the HTTP thread's again. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum request_end {
  END_NONE,      /* waits or runs */
  END_STOP,      /* the model drew a token that ends an answer; it is not part of the answer */
  END_LENGTH,    /* max_tokens, or the context is full */
  END_CANCELLED, /* as the HTTP thread asked */
  END_DEADLINE,  /* the deadline passed, in the queue or later */
  END_LOST       /* the device is lost: the process must end */
};

struct request {
  /* Set before the record is submitted. Times are of clock_ns. */
  int32_t *prompt;                  /* room for the context: the answer follows it */
  int32_t prompt_count, max_tokens; /* at least 1 each, together at most the context, with pages for all of them */
  float temperature, top_p;         /* temperature 0: the likeliest token */
  int32_t seed;
  bool with_logprobs;
  uint64_t submitted_ns, deadline_ns; /* deadline 0: none */

  struct request *before; /* of the engine, until it takes the record in: the one submitted before */
  atomic_bool cancelled;

  /* The answer: tokens and log-probabilities below `answered` are final. */
  int32_t *answer; /* prompt + prompt_count */
  float *logprobs; /* room for the context; set if with_logprobs */
  atomic_int answered;
  int32_t reused; /* tokens of the prompt that were in the cache; final once a token is answered */
  atomic_int end; /* enum request_end; set after the last token is published */
};
