/* replies.c - see replies.h. */
#include "replies.h"

#include <inttypes.h>
#include <string.h>

#include "answer.h"

extern const char page_html[], page_html_end[]; /* page.S */

static enum MHD_Result send_whole(struct MHD_Connection *connection, int status, const char *type, const char *header,
                                  const char *value, struct buffer *body) {
  struct MHD_Response *response =
      body->failed ? NULL : MHD_create_response_from_buffer(body->count, body->bytes, MHD_RESPMEM_MUST_COPY);
  buffer_free(body);
  if (!response) return MHD_NO; /* no memory: the connection is closed */
  enum MHD_Result result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
  if (result == MHD_YES && header) result = MHD_add_response_header(response, header, value);
  if (result == MHD_YES) result = MHD_queue_response(connection, (unsigned)status, response);
  MHD_destroy_response(response);
  return result;
}

enum MHD_Result reply(struct MHD_Connection *connection, int status, const char *type, struct buffer *body) {
  return send_whole(connection, status, type, NULL, NULL, body);
}

enum MHD_Result reply_error(struct service *service, struct MHD_Connection *connection, int status, const char *header,
                            const char *value, const char *message, const char *field) {
  struct buffer body = {0};
  if (status == MHD_HTTP_TOO_MANY_REQUESTS)
    service->refused_count++;
  else
    service->bad_count++;
  error_write(&body, status, message, field);
  return send_whole(connection, status, "application/json", header, value, &body);
}

enum MHD_Result reply_page(struct service *service, struct MHD_Connection *connection) {
  struct buffer body = {0};
  (void)service;
  buffer_put(&body, page_html, (size_t)(page_html_end - page_html));
  return reply(connection, MHD_HTTP_OK, "text/html; charset=utf-8", &body);
}

enum MHD_Result reply_models(struct service *service, struct MHD_Connection *connection) {
  struct buffer body = {0};
  buffer_print(&body, "{\"object\":\"list\",\"data\":[{\"id\":");
  buffer_put_json(&body, service->options->name, strlen(service->options->name));
  buffer_print(&body,
               ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"rondo\",\"max_model_len\":%" PRId64 "}]}",
               service->opened, service->engine->model->desc.context);
  return reply(connection, MHD_HTTP_OK, "application/json", &body);
}

enum MHD_Result reply_health(struct service *service, struct MHD_Connection *connection) {
  struct buffer body = {0};
  const bool lost = atomic_load(&service->engine->lost), alive = !lost && service_is_alive(service);
  buffer_print(&body, "{\"status\":\"%s\"}", lost ? "the device is lost" : alive ? "ok" : "replays do not move");
  return reply(connection, alive ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, "application/json", &body);
}

enum MHD_Result reply_ready(struct service *service, struct MHD_Connection *connection) {
  struct buffer body = {0};
  const bool ready = !service->stopping && !atomic_load(&service->engine->lost);
  buffer_print(&body, "{\"status\":\"%s\"}", ready ? "ok" : "stopping");
  return reply(connection, ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, "application/json", &body);
}

/* ---- Metrics ----------------------------------------------------------------------------------------------------- */

static void put_histogram(struct buffer *body, const char *name, const char *meaning,
                          const struct histogram *histogram) {
  uint64_t sum = 0, ten_us = 10;
  buffer_print(body, "# HELP rondo_serve_%s_seconds %s\n# TYPE rondo_serve_%s_seconds histogram\n", name, meaning,
               name);
  for (int i = 0; i < HISTOGRAM_BUCKETS; i++, ten_us *= 2) {
    sum += atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
    if (i < HISTOGRAM_BUCKETS - 1)
      buffer_print(body, "rondo_serve_%s_seconds_bucket{le=\"%" PRIu64 ".%05" PRIu64 "\"} %" PRIu64 "\n", name,
                   ten_us / 100000, ten_us % 100000, sum);
  }
  const uint64_t us = atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed) / 1000;
  buffer_print(body,
               "rondo_serve_%s_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\nrondo_serve_%s_seconds_sum %" PRIu64
               ".%06" PRIu64 "\nrondo_serve_%s_seconds_count %" PRIu64 "\n",
               name, sum, name, us / 1000000, us % 1000000, name, sum);
}

static void put_numbers(struct buffer *body, const struct service *service) {
  const struct engine_metrics *metrics = &service->engine->metrics;
  const struct {
    const char *name, *type, *meaning;
    uint64_t value;
  } numbers[] = {
      {"active_requests", "gauge", "Requests that have pages.", (uint64_t)atomic_load(&metrics->active)},
      {"waiting_requests", "gauge", "Requests in the queue.", (uint64_t)atomic_load(&metrics->waiting)},
      {"pages_used", "gauge", "KV pages of active requests.", (uint64_t)atomic_load(&metrics->pages_used)},
      {"pages", "gauge", "KV pages.", (uint64_t)atomic_load(&metrics->pages)},
      {"requests_total", "counter", "Requests for answers that were taken.", service->request_count},
      {"ended_total", "counter", "Requests that ended, for any reason.", atomic_load(&metrics->requests_ended)},
      {"cancelled_total", "counter", "Requests whose client left, or that a stop string ended.",
       atomic_load(&metrics->cancelled)},
      {"expired_total", "counter", "Requests that reached their deadline.", atomic_load(&metrics->expired)},
      {"refused_total", "counter", "Requests refused since the queue was full.", service->refused_count},
      {"bad_total", "counter", "Requests answered with another error.", service->bad_count},
      {"prompt_tokens_total", "counter", "Tokens of prompts.", atomic_load(&metrics->prompt_tokens)},
      {"reused_tokens_total", "counter", "Tokens of prompts that were in shared pages.",
       atomic_load(&metrics->reused_tokens)},
      {"answered_tokens_total", "counter", "Tokens of answers.", atomic_load(&metrics->answered_tokens)}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    buffer_print(body, "# HELP rondo_serve_%s %s\n# TYPE rondo_serve_%s %s\nrondo_serve_%s %" PRIu64 "\n",
                 numbers[i].name, numbers[i].meaning, numbers[i].name, numbers[i].type, numbers[i].name,
                 numbers[i].value);
}

enum MHD_Result reply_metrics(struct service *service, struct MHD_Connection *connection) {
  const struct engine_metrics *metrics = &service->engine->metrics;
  struct buffer body = {0};
  put_numbers(&body, service);
  put_histogram(&body, "first_token", "From a request to its first token.", &metrics->first_token);
  put_histogram(&body, "between_tokens", "Between two tokens of an answer.", &metrics->between_tokens);
  put_histogram(&body, "queue", "From a request to its pages.", &metrics->queued);
  put_histogram(&body, "decode_step", "A replay of decode.", &metrics->decode_step);
  put_histogram(&body, "prefill_step", "A replay of prefill.", &metrics->prefill_step);
  return reply(connection, MHD_HTTP_OK, "text/plain; version=0.0.4", &body);
}
