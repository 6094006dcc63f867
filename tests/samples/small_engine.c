/* small_engine.c - see small_engine.h. */
#include "small_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/sample.h"

static const int32_t ending = 5; /* tokens that leave this remainder by 64 end an answer */

static void open_model(struct model *model, const struct model_options *options) {
  struct gguf_writer writer = {.layers = 2}; /* keys of the second one depend on all tokens before */
  gguf_write_small_vocabulary(&writer);
  gguf_write_small_model(&writer);
  struct gguf_buffer bytes = gguf_write_end(&writer);
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES];
  struct model_options host = *options;
  if (!host.backend) host.backend = RONDO_BACKEND_HOST;
  if (!gguf_parse("small.gguf", bytes.bytes, bytes.count, &file, message)) {
    fprintf(stderr, "%s\n", message);
    abort();
  }
  model_open(&file, &host, model);
  gguf_close(&file);
  free(bytes.bytes);
}

void small_engine_open(struct small_engine *small, const struct model_options *model, int32_t requests, bool spins) {
  for (int32_t i = 0; i < SMALL_TOKENS; i++) small->ends[i] = i % 64 == ending;
  open_model(&small->model, model);
  engine_open(&small->engine, &small->model,
              &(struct engine_options){.requests = requests, .ends = small->ends, .spins = spins});
}

void small_engine_close(struct small_engine *small) {
  engine_close(&small->engine);
  model_close(&small->model);
}

void small_request_fill(struct small_request *record, int32_t kind, int32_t max_tokens) {
  static const int32_t lengths[] = {
      1, 2, 31, 32, 33, 63, 64, 65, 90, 96, 97, 127, 128, 129, 150, 160, 161, 180, 190, 191, SMALL_PROMPT_MOST};
  const int32_t count = lengths[(size_t)kind % (sizeof lengths / sizeof *lengths)];
  const int32_t family = kind % 3, alike = 64 * (1 + family);
  for (int32_t i = 0; i < count; i++) {
    const int32_t start = i < 64 ? family * 31 : i < alike ? 3 : kind * 17; /* the second page has the same tokens */
    record->tokens[i] = (i * 7 + start) % SMALL_START;
  }
  memset(record->tokens + count, -1, (size_t)(SMALL_CONTEXT - count) * sizeof *record->tokens);
  record->request = (struct request){.prompt = record->tokens,
                                     .prompt_count = count,
                                     .max_tokens = max_tokens,
                                     .temperature = kind % 4 == 0 ? 0 : 0.5F * (float)(kind % 4),
                                     .top_p = kind % 5 == 0 ? 0.7F : 1,
                                     .seed = kind * 1000003,
                                     .with_logprobs = kind % 2 == 0,
                                     .submitted_ns = clock_ns(),
                                     .answer = record->tokens + count,
                                     .logprobs = record->logprobs};
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static void forget_pages(struct pages *pages) {
  const int32_t count = pages->count, rows = pages->rows;
  pages_close(pages);
  if (!pages_open(pages, count, rows)) abort();
}

void small_answers_alone(struct small_answer answers[SMALL_KINDS]) {
  static struct small_engine small;
  static struct small_request record;
  small_engine_open(&small, &(struct model_options){.sequences = 1, .lanes = 1, .threads = 1}, 1, true);
  for (int32_t kind = 0; kind < SMALL_KINDS; kind++) {
    forget_pages(&small.engine.pages);
    small_request_fill(&record, kind, SMALL_ANSWER_MOST);
    record.request.with_logprobs = true;
    engine_submit(&small.engine, &record.request);
    while (record.request.end == END_NONE) engine_round(&small.engine);
    struct small_answer *answer = &answers[kind];
    *answer = (struct small_answer){.count = record.request.answered, .end = record.request.end};
    memcpy(answer->tokens, record.request.answer, (size_t)answer->count * sizeof *answer->tokens);
    memcpy(answer->logprobs, record.logprobs, (size_t)answer->count * sizeof *answer->logprobs);
  }
  small_engine_close(&small);
}

const char *small_request_complaint(const struct small_request *record, const struct small_answer *alone) {
  const struct request *request = &record->request;
  const int end = atomic_load(&request->end), count = atomic_load(&request->answered); /* in this order */
  if (count > alone->count) return "has more tokens than alone";
  if (count > request->max_tokens) return "has more tokens than max_tokens";
  if (memcmp(request->answer, alone->tokens, (size_t)count * sizeof *alone->tokens) != 0) return "has other tokens";
  if (request->with_logprobs && memcmp(record->logprobs, alone->logprobs, (size_t)count * sizeof(float)) != 0)
    return "has other log-probabilities";
  if (end == END_STOP && (alone->end != END_STOP || count < alone->count)) return "stopped early";
  if (end == END_LENGTH && count < request->max_tokens) return "ended before max_tokens";
  return NULL;
}
