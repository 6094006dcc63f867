/* small_engine.h - the engine of the serve sample with the small model of gguf_writer.h, and requests for it. The
 * engine has no thread of its own here. The test calls engine_round, and its thread replays. */
#pragma once

#include "../../samples/serve/engine.h"
#include "gguf_writer.h"

struct small_engine {
  struct model model;
  struct engine engine;
  bool ends[SMALL_TOKENS]; /* one token in 64 ends an answer */
};

/* model->backend is the host's if it is 0. */
void small_engine_open(struct small_engine *small, const struct model_options *model, int32_t requests, bool spins);
void small_engine_close(struct small_engine *small);

/* A record of a request, with room for what it points to. */
struct small_request {
  struct request request;
  int32_t tokens[SMALL_CONTEXT];
  float logprobs[SMALL_CONTEXT];
};

enum { SMALL_KINDS = 36, SMALL_PROMPT_MOST = 192 };
/* A request that is equal for equal numbers, from 0 to SMALL_KINDS: its prompt, its seed and how it draws. Prompts of a
 * third of the kinds begin alike, for one, two or three pages; the second page is the same after different first ones.
 */
void small_request_fill(struct small_request *record, int32_t kind, int32_t max_tokens);

/* What a request of each kind is answered alone in an engine of one sequence and one lane, with log-probabilities,
 * where no page is shared. Other requests of a kind must have the same bits. */
enum { SMALL_ANSWER_MOST = 40 };
struct small_answer {
  int32_t count, end;
  int32_t tokens[SMALL_ANSWER_MOST];
  float logprobs[SMALL_ANSWER_MOST];
};
void small_answers_alone(struct small_answer answers[SMALL_KINDS]);
/* What is wrong with the tokens that a request has so far, and with its end if it has one; NULL: nothing. */
const char *small_request_complaint(const struct small_request *record, const struct small_answer *alone);
