/* answer.c - the tokens of an answer as the JSON of a response (answer.h). Text goes through three places: the decoder
 * holds the bytes of a character that is not whole, `held` what may be the beginning of a stop string, and `ready` what
 * the next event or the object has. */
#include "answer.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

void answer_begin(struct answer *answer, const struct tokenizer *tokenizer, const struct question *question,
                  enum body_kind kind, const char *model, uint64_t number) {
  *answer = (struct answer){.tokenizer = tokenizer,
                            .question = question,
                            .kind = kind,
                            .model = model,
                            .number = number,
                            .created = time(NULL),
                            .decoder = {.controls_pass = true}};
}

void answer_free(struct answer *answer) {
  buffer_free(&answer->held);
  buffer_free(&answer->ready);
  buffer_free(&answer->head);
  for (int i = 0; i < ANSWER_LISTS; i++) buffer_free(&answer->lists[i]);
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* A logarithm of a probability, with -9999 for those that JSON has no number for, as OpenAI's servers do. */
static void put_logprob(struct buffer *out, float logprob) {
  int64_t millionths = logprob > -9999 ? (int64_t)(-1e6 * (double)logprob + 0.5) : INT64_C(9999000000);
  if (millionths < 0) millionths = 0;
  buffer_print(out, "%s%" PRId64 ".%06" PRId64, millionths > 0 ? "-" : "", millionths / 1000000, millionths % 1000000);
}

static struct buffer *next_element(struct buffer *list) {
  if (list->count > 0) buffer_put(list, ",", 1);
  return list;
}

static void put_bytes(struct buffer *out, struct gguf_text text) {
  for (size_t i = 0; i < text.length; i++) buffer_print(out, "%s%u", i > 0 ? "," : "", (uint8_t)text.bytes[i]);
}

/* A chat has one list of objects; a completion has the lists tokens, token_logprobs and text_offset, in characters. */
static void list_token(struct answer *answer, struct gguf_text text, float logprob) {
  struct buffer *lists = answer->lists;
  if (answer->kind == BODY_CHAT) {
    buffer_add(next_element(&lists[0]), "{\"token\":");
    buffer_put_json(&lists[0], text.bytes, text.length);
    buffer_add(&lists[0], ",\"logprob\":");
    put_logprob(&lists[0], logprob);
    buffer_add(&lists[0], ",\"bytes\":[");
    put_bytes(&lists[0], text);
    buffer_add(&lists[0], "],\"top_logprobs\":[]}");
  } else {
    buffer_put_json(next_element(&lists[0]), text.bytes, text.length);
    put_logprob(next_element(&lists[1]), logprob);
    buffer_print(next_element(&lists[2]), "%" PRId64, answer->character_count);
  }
}

static void count_decoded(struct answer *answer, size_t bytes) {
  const char *from = answer->held.bytes + answer->held.count;
  for (size_t i = 0; i < bytes; i++) answer->character_count += ((uint8_t)from[i] & 0xc0) != 0x80;
  answer->held.count += bytes;
}

static void take_token(struct answer *answer, const struct request *request) {
  int32_t index = answer->read++, token = request->answer[index];
  struct gguf_text text = {"", 0};
  if (tokenizer_prints(answer->tokenizer, token)) text = tokenizer_bytes(answer->tokenizer, token);
  if (answer->question->with_logprobs) list_token(answer, text, request->logprobs[index]);
  char *room = buffer_room(&answer->held, 3 * (text.length + 1));
  if (room) count_decoded(answer, utf8_pass(&answer->decoder, text.bytes, text.length, room));
}

static void end_text(struct answer *answer) {
  char *room = buffer_room(&answer->held, 3);
  if (room) count_decoded(answer, utf8_end(&answer->decoder, room));
}

/* ---- Stop strings ------------------------------------------------------------------------------------------------ */

enum found { FOUND_NONE, FOUND_BEGINNING, FOUND_WHOLE };

/* Which part of a stop string is here? Its beginning counts if the text may go on. */
static enum found stop_at(const struct question *question, const char *text, size_t bytes, bool goes_on) {
  enum found found = FOUND_NONE;
  for (int32_t i = 0; i < question->stop_count; i++) {
    size_t stop_bytes = question->stop_bytes[i];
    bool whole = bytes >= stop_bytes;
    if ((!whole && !goes_on) || memcmp(text, question->stops[i], whole ? stop_bytes : bytes) != 0) continue;
    if (whole) return FOUND_WHOLE;
    found = FOUND_BEGINNING;
  }
  return found;
}

/* Of several stop strings the one that begins first counts, and so a whole one waits for what began before it. */
static void let_out(struct answer *answer, bool goes_on) {
  struct buffer *held = &answer->held;
  enum found found = FOUND_NONE;
  size_t at = 0;
  while (at < held->count && !found) {
    found = stop_at(answer->question, held->bytes + at, held->count - at, goes_on);
    if (!found) at++;
  }
  answer->stopped = found == FOUND_WHOLE;
  buffer_put(&answer->ready, held->bytes, at);
  buffer_drop(held, at);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* All objects of an answer begin with the same bytes. */
static void put_head(struct answer *answer, struct buffer *out) {
  struct buffer *head = &answer->head;
  bool is_chat = answer->kind == BODY_CHAT;
  const char *object = !is_chat                   ? "text_completion"
                       : answer->question->stream ? "chat.completion.chunk"
                                                  : "chat.completion";
  if (head->count == 0) {
    buffer_print(head, "{\"id\":\"%s-%" PRId64 "-%" PRIu64 "\",", is_chat ? "chatcmpl" : "cmpl", answer->created,
                 answer->number);
    buffer_print(head, "\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", object, answer->created);
    buffer_put_json(head, answer->model, strlen(answer->model));
    buffer_add(head, ",\"choices\":[");
  }
  buffer_put(out, head->bytes, head->count);
}

static void put_list(struct buffer *out, const char *name, const struct buffer *list) {
  buffer_print(out, "\"%s\":[", name);
  buffer_put(out, list->bytes, list->count);
  buffer_add(out, "]");
}

static void put_logprobs(const struct answer *answer, struct buffer *out) {
  const struct buffer *lists = answer->lists;
  if (!answer->question->with_logprobs || (answer->question->stream && lists[0].count == 0)) {
    buffer_add(out, "null");
    return;
  }
  buffer_add(out, "{");
  if (answer->kind == BODY_CHAT) {
    put_list(out, "content", &lists[0]);
  } else {
    put_list(out, "tokens", &lists[0]);
    buffer_add(out, ",");
    put_list(out, "token_logprobs", &lists[1]);
    buffer_add(out, ",");
    put_list(out, "text_offset", &lists[2]);
    buffer_add(out, ",\"top_logprobs\":null");
  }
  buffer_add(out, "}");
}

/* The role and the text that is ready; of a stream nothing in the last event, which has no text. */
static void put_message(struct answer *answer, const char *reason, struct buffer *out) {
  bool streams = answer->question->stream;
  buffer_add(out, streams ? "\"delta\":{" : "\"message\":{");
  if (!answer->begun) buffer_add(out, "\"role\":\"assistant\",");
  if (!streams || !answer->begun || !reason) {
    buffer_add(out, "\"content\":");
    buffer_put_json(out, answer->ready.bytes, answer->ready.count);
  }
  buffer_add(out, "}");
}

/* The text and the logprobs that are ready. Nothing of them is ready afterwards. */
static void put_choice(struct answer *answer, const char *reason, struct buffer *out) {
  buffer_add(out, "{\"index\":0,");
  if (answer->kind == BODY_CHAT) {
    put_message(answer, reason, out);
  } else {
    buffer_add(out, "\"text\":");
    buffer_put_json(out, answer->ready.bytes, answer->ready.count);
  }
  buffer_add(out, ",\"logprobs\":");
  put_logprobs(answer, out);
  if (reason)
    buffer_print(out, ",\"finish_reason\":\"%s\"}]", reason);
  else
    buffer_add(out, ",\"finish_reason\":null}]");
  buffer_drop(&answer->ready, answer->ready.count);
  for (int i = 0; i < ANSWER_LISTS; i++) buffer_drop(&answer->lists[i], answer->lists[i].count);
  answer->begun = true;
}

static void put_event(struct answer *answer, const char *reason, struct buffer *out) {
  buffer_add(out, "data: ");
  put_head(answer, out);
  put_choice(answer, reason, out);
  buffer_add(out, answer->question->with_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

static void put_usage(const struct answer *answer, const struct request *request, struct buffer *out) {
  int64_t prompt = request->prompt_count, answered = answer->read;
  buffer_print(out,
               ",\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64
               ",\"prompt_tokens_details\":{\"cached_tokens\":%d}}}",
               prompt, answered, prompt + answered, request->reused);
}

static void put_end(struct answer *answer, const struct request *request, const char *reason, struct buffer *out) {
  answer->status = 200;
  if (!answer->question->stream) {
    put_head(answer, out);
    put_choice(answer, reason, out);
    put_usage(answer, request, out);
    return;
  }
  put_event(answer, reason, out);
  if (answer->question->with_usage) {
    buffer_add(out, "data: ");
    put_head(answer, out);
    buffer_add(out, "]");
    put_usage(answer, request, out);
    buffer_add(out, "\n\n");
  }
  buffer_add(out, "data: [DONE]\n\n");
}

static void put_failure(struct answer *answer, int end, struct buffer *out) {
  bool streams = answer->question->stream;
  answer->status = end == END_DEADLINE ? 504 : 503;
  if (streams) buffer_add(out, "data: ");
  error_write(out, answer->status,
              end == END_DEADLINE ? "the deadline passed before the answer ended"
              : end == END_LOST   ? "the device is lost"
                                  : "the request was cancelled",
              NULL);
  if (streams) buffer_add(out, "\n\n");
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static bool has_failed(const struct answer *answer) {
  bool failed = answer->held.failed || answer->ready.failed || answer->head.failed;
  for (int i = 0; i < ANSWER_LISTS; i++) failed = failed || answer->lists[i].failed;
  return failed;
}

static void put_ready(struct answer *answer, struct buffer *out) {
  if (answer->question->stream && (answer->ready.count > 0 || answer->lists[0].count > 0)) put_event(answer, NULL, out);
}

void answer_read(struct answer *answer, const struct request *request, struct buffer *out) {
  if (answer->ended) return;
  int end = atomic_load_explicit(&request->end, memory_order_acquire); /* first: if it is set, `answered` is final */
  int answered = atomic_load_explicit(&request->answered, memory_order_acquire);
  while (answer->read < answered && !answer->stopped) {
    take_token(answer, request);
    let_out(answer, true);
    put_ready(answer, out);
  }
  bool fine = end == END_STOP || end == END_LENGTH;
  if (fine && !answer->stopped) {
    end_text(answer);
    let_out(answer, false);
    put_ready(answer, out);
  }
  answer->ended = answer->stopped || end != END_NONE;
  if (answer->stopped || fine)
    put_end(answer, request, answer->stopped || end == END_STOP ? "stop" : "length", out);
  else if (answer->ended)
    put_failure(answer, end, out);
  if (has_failed(answer)) buffer_fail(out);
}

void error_write(struct buffer *out, int status, const char *message, const char *field) {
  const char *type = status == 429 ? "requests" : status < 500 ? "invalid_request_error" : "server_error";
  bool has_field = field && *field;
  buffer_add(out, "{\"error\":{\"message\":");
  buffer_put_json(out, message, strlen(message));
  buffer_print(out, ",\"type\":\"%s\",\"param\":", type);
  if (has_field)
    buffer_put_json(out, field, strlen(field));
  else
    buffer_add(out, "null");
  const char *code = status == 429                ? "\"rate_limit_exceeded\""
                     : status == 404 && has_field ? "\"model_not_found\""
                     : status == 413 && has_field ? "\"context_length_exceeded\""
                                                  : "null";
  buffer_print(out, ",\"code\":%s}}", code);
}
