/* exchange.c - one HTTP request and its response (exchange.h). A connection whose answer has nothing new is suspended;
 * exchange_advance resumes it. */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../sample.h"
#include "replies.h"

enum { OUT_BYTES_MOST = 1 << 18, DISCARDED_BYTES_MOST = 1 << 24, BLOCK_BYTES = 1 << 14, CUT_SECONDS = 1 };
enum { BODIES_BYTES_MOST = 1 << 26 }; /* of all clients, so that many who never end theirs do not take the memory */
static const uint64_t comment_after_ns = 5000000000, reading_most_ns = 5000000;

struct route {
  const char *path, *method;
  bool is_open; /* needs no key */
  enum body_kind kind;
  enum MHD_Result (*reply)(struct service *service, struct MHD_Connection *connection); /* NULL: it has a body */
};

static const struct route routes[] = {
    {.path = "/", .method = "GET", .is_open = true, .reply = reply_page},
    {.path = "/health", .method = "GET", .is_open = true, .reply = reply_health},
    {.path = "/ready", .method = "GET", .is_open = true, .reply = reply_ready},
    {.path = "/metrics", .method = "GET", .reply = reply_metrics},
    {.path = "/v1/models", .method = "GET", .reply = reply_models},
    {.path = "/v1/chat/completions", .method = "POST", .kind = BODY_CHAT},
    {.path = "/v1/completions", .method = "POST", .kind = BODY_COMPLETION},
    {.path = "/tokenize", .method = "POST", .kind = BODY_TOKENIZE},
};

static enum MHD_Result refuse(struct exchange *exchange, int status, const char *message, const char *field) {
  const char *header = NULL, *value = NULL;
  if (status == MHD_HTTP_TOO_MANY_REQUESTS || exchange->body_has_no_room)
    header = MHD_HTTP_HEADER_RETRY_AFTER, value = "1";
  if (status == MHD_HTTP_UNAUTHORIZED) header = MHD_HTTP_HEADER_WWW_AUTHENTICATE, value = "Bearer";
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
    header = MHD_HTTP_HEADER_ALLOW, value = exchange->route->reply ? "GET, HEAD" : "POST";
  return reply_error(exchange->service, exchange->connection, status, header, value, message, field);
}

/* ---- Records ----------------------------------------------------------------------------------------------------- */

static void suspend(struct exchange *exchange) {
  exchange->suspended = true;
  MHD_suspend_connection(exchange->connection);
}

static void resume(struct exchange *exchange) {
  if (!exchange->suspended) return;
  exchange->suspended = false;
  MHD_resume_connection(exchange->connection);
}

void exchange_cancel(struct exchange *exchange) {
  if (exchange->request) atomic_store(&exchange->request->cancelled, true);
}

void exchange_cut(struct exchange *exchange) {
  exchange->cut = true;
  exchange_cancel(exchange);
  exchange->out.count = 0;
  MHD_set_connection_option(exchange->connection, MHD_CONNECTION_OPTION_TIMEOUT, CUT_SECONDS);
  resume(exchange);
}

void exchange_advance(struct exchange *exchange, uint64_t now) {
  if (exchange->cut) return;
  struct request *request = exchange->request;
  const size_t before = exchange->out.count;
  if (request && !exchange->answer.ended) {
    answer_read(&exchange->answer, request, &exchange->out);
    if (exchange->answer.stopped) atomic_store(&request->cancelled, true);
  }
  /* Not before the answer has read all: the request may end just after answer_read. */
  if (request && exchange->answer.ended && atomic_load(&request->end) != END_NONE) {
    service_return(exchange->service, request);
    exchange->request = NULL;
  }
  const bool quiet = exchange->question.stream && !exchange->answer.ended && exchange->out.count == before &&
                     now - exchange->sent_ns > comment_after_ns;
  if (quiet && service_is_alive(exchange->service)) buffer_print(&exchange->out, ": the answer goes on\n\n");
  if (exchange->out.count != before) exchange->sent_ns = now;
  if (exchange->out.failed || (exchange->question.stream && exchange->out.count > OUT_BYTES_MOST))
    exchange_cut(exchange);
  else if (exchange->answer.ended || (exchange->question.stream && exchange->out.count > 0))
    resume(exchange);
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

static ssize_t stream_read(void *user, uint64_t position, char *block, size_t bytes) {
  struct exchange *exchange = user;
  struct buffer *out = &exchange->out;
  (void)position;
  if (exchange->cut) return MHD_CONTENT_READER_END_WITH_ERROR;
  if (!out->count && exchange->answer.ended) return MHD_CONTENT_READER_END_OF_STREAM;
  if (!out->count) {
    suspend(exchange);
    return 0;
  }
  const size_t count = out->count < bytes ? out->count : bytes;
  memcpy(block, out->bytes, count);
  buffer_drop(out, count);
  return (ssize_t)count;
}

static enum MHD_Result stream_begin(struct exchange *exchange) {
  struct MHD_Response *response =
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, stream_read, exchange, NULL);
  if (!response) return MHD_NO;
  enum MHD_Result result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
  if (result == MHD_YES) result = MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
  if (result == MHD_YES) result = MHD_queue_response(exchange->connection, MHD_HTTP_OK, response);
  MHD_destroy_response(response);
  return result;
}

static enum MHD_Result reply_tokens(struct exchange *exchange) {
  struct buffer body = {0};
  buffer_print(&body, "{\"count\":%zu,\"tokens\":[", exchange->question.prompt.count);
  for (size_t i = 0; i < exchange->question.prompt.count; i++)
    buffer_print(&body, i ? ",%d" : "%d", exchange->question.prompt.ids[i]);
  buffer_print(&body, "]}");
  return reply(exchange->connection, MHD_HTTP_OK, "application/json", &body);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* For a request without a seed: hardly ever one that another request had. */
static int32_t seed_of(uint64_t number) {
  const uint64_t mixed = (number + clock_ns()) * 0x9e3779b97f4a7c15u;
  return (int32_t)(mixed >> 32);
}

static void record_fill(struct exchange *exchange, struct request *request, int32_t max_tokens) {
  const struct question *question = &exchange->question;
  const struct service *service = exchange->service;
  int32_t *prompt = request->prompt;
  float *logprobs = request->logprobs;
  const uint64_t now = clock_ns();
  *request = (struct request){
      .prompt = prompt,
      .prompt_count = (int32_t)question->prompt.count,
      .max_tokens = max_tokens,
      .temperature = question->temperature,
      .top_p = question->top_p,
      .seed = question->seeded ? question->seed : seed_of(service->request_count),
      .with_logprobs = question->with_logprobs,
      .submitted_ns = now,
      .deadline_ns = service->options->deadline_s ? now + (uint64_t)service->options->deadline_s * 1000000000 : 0,
      .answer = prompt + question->prompt.count,
      .logprobs = logprobs};
  memcpy(prompt, question->prompt.ids, question->prompt.count * sizeof *prompt);
}

static enum MHD_Result submit(struct exchange *exchange) {
  struct service *service = exchange->service;
  const struct question *question = &exchange->question;
  const struct pages *pages = &service->engine->pages;
  const int64_t prompt = (int64_t)question->prompt.count, room = service->engine->model->desc.context - prompt;
  const int64_t room_in_pages = (int64_t)(pages->count - 1) * pages->rows - prompt;
  int64_t max_tokens = question->max_tokens ? question->max_tokens : service->options->max_tokens;
  if (max_tokens > room) max_tokens = room;
  if (!question->max_tokens && room_in_pages > 0 && max_tokens > room_in_pages) max_tokens = room_in_pages;
  if (exchange->client->left) return MHD_NO; /* nobody would tell us again, and the answer would run to its end */
  if (service->stopping || atomic_load(&service->engine->lost))
    return refuse(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is stopping", NULL);
  if (max_tokens > room_in_pages)
    return refuse(exchange, MHD_HTTP_BAD_REQUEST, "prompt and max_tokens need more pages than the server has",
                  "max_tokens");
  struct request *request = exchange->request = service_take(service);
  if (!request) return refuse(exchange, MHD_HTTP_TOO_MANY_REQUESTS, "the queue is full: try again later", NULL);
  record_fill(exchange, request, (int32_t)max_tokens);
  answer_begin(&exchange->answer, service->template->tokenizer, question, exchange->route->kind, service->options->name,
               service->request_count++);
  exchange->sent_ns = request->submitted_ns;
  exchange->next = service->exchanges;
  if (exchange->next) exchange->next->link = &exchange->next;
  exchange->link = &service->exchanges;
  service->exchanges = exchange;
  engine_submit(service->engine, request);
  if (question->stream) return stream_begin(exchange);
  suspend(exchange);
  return MHD_YES;
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

static void body_free(struct exchange *exchange) {
  exchange->service->body_bytes -= exchange->body.count;
  buffer_free(&exchange->body);
}

static void body_put(struct exchange *exchange, const char *data, size_t bytes) {
  struct service *service = exchange->service;
  const size_t before = exchange->body.count;
  exchange->body_has_no_room |= service->body_bytes + bytes > BODIES_BYTES_MOST;
  if (exchange->body_has_no_room) {
    body_free(exchange);
  } else {
    buffer_put(&exchange->body, data, bytes);
    service->body_bytes += exchange->body.count - before; /* less than before if there is no memory */
  }
}

/* A body can take a tenth of a second, in which no token is sent. So bodies are read for some milliseconds of a round,
 * and then one in each further round. The shortest goes first: whoever sends many long ones delays no short one. */
static bool body_waits(struct exchange *exchange) {
  struct service *service = exchange->service;
  if (exchange->waited || (!service->unread && service->reading_ns < reading_most_ns)) return false;
  struct exchange **link = &service->unread;
  while (*link && (*link)->body.count <= exchange->body.count) link = &(*link)->unread_next;
  exchange->unread_next = *link;
  *link = exchange;
  exchange->waited = true;
  MHD_suspend_connection(exchange->connection); /* not `suspended`: only bodies_go_on resumes it */
  return true;
}

void bodies_go_on(struct service *service) {
  struct exchange *exchange = service->unread;
  service->reading_ns = 0;
  if (!exchange) return;
  service->unread = exchange->unread_next;
  MHD_resume_connection(exchange->connection);
}

/* Compares all bytes of all keys, so that the time does not tell how much of a key is right. */
static bool is_authorised(const struct exchange *exchange) {
  const char *given = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
  static const char scheme[] = "Bearer ";
  bool found = false;
  if (!exchange->service->keys || exchange->route->is_open) return true;
  if (!given || strncasecmp(given, scheme, sizeof scheme - 1) != 0) return false;
  given += sizeof scheme - 1;
  const size_t length = strlen(given);
  for (char **key = exchange->service->keys; *key; key++) {
    const size_t key_length = strlen(*key);
    unsigned difference = (unsigned)(key_length ^ length);
    for (size_t i = 0; i < key_length; i++) difference |= (unsigned char)((*key)[i] ^ given[i < length ? i : length]);
    found |= difference == 0;
  }
  return found;
}

static bool is_json(const struct exchange *exchange) {
  static const char json[] = "application/json";
  const char *type = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
  if (!type || strncasecmp(type, json, sizeof json - 1) != 0) return false;
  const char end = type[sizeof json - 1];
  return end == 0 || end == ';' || end == ' ' || end == '\t';
}

static enum MHD_Result body_take(struct exchange *exchange) {
  struct service *service = exchange->service;
  struct body_fault fault;
  const struct body_rules rules = {.template = service->template,
                                   .model = service->options->name,
                                   .most_tokens = service->engine->model->desc.context - 1};
  if (!is_json(exchange))
    return refuse(exchange, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "Content-Type is not application/json", NULL);
  if (exchange->body_too_long)
    return refuse(exchange, MHD_HTTP_CONTENT_TOO_LARGE, "the body has more than 1 MiB", NULL);
  if (exchange->body_has_no_room)
    return refuse(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, "too many bodies at once: try again later", NULL);
  if (exchange->body.failed) return refuse(exchange, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory for the body", NULL);
  if (body_waits(exchange)) return MHD_YES;
  if (exchange->waited && exchange->cut) return MHD_NO;
  const uint64_t begin = clock_ns();
  const bool fine =
      body_read(&rules, exchange->route->kind, exchange->body.bytes, exchange->body.count, &exchange->question, &fault);
  service->reading_ns += clock_ns() - begin;
  body_free(exchange);
  if (!fine) return refuse(exchange, fault.status, fault.message, fault.field);
  return exchange->route->kind == BODY_TOKENIZE ? reply_tokens(exchange) : submit(exchange);
}

/* The whole request is there. */
static enum MHD_Result dispatch(struct exchange *exchange, const char *method) {
  const struct route *route = exchange->route;
  exchange->is_whole = true;
  if (!route) return refuse(exchange, MHD_HTTP_NOT_FOUND, "there is nothing at this path", NULL);
  const bool fits = strcmp(method, route->method) == 0 || (route->reply && strcmp(method, "HEAD") == 0);
  if (!fits) return refuse(exchange, MHD_HTTP_METHOD_NOT_ALLOWED, "the method does not fit this path", NULL);
  if (!is_authorised(exchange)) return refuse(exchange, MHD_HTTP_UNAUTHORIZED, "the key is missing or wrong", NULL);
  return route->reply ? route->reply(exchange->service, exchange->connection) : body_take(exchange);
}

/* What the headers say of the body's length. */
struct lengths {
  int count;
  bool is_number;
  unsigned long long bytes;
};

static enum MHD_Result length_read(void *user, enum MHD_ValueKind kind, const char *name, const char *value) {
  struct lengths *lengths = user;
  (void)kind;
  if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) != 0) return MHD_YES;
  lengths->count++;
  lengths->is_number = value && *value && strspn(value, "0123456789") == strlen(value);
  lengths->bytes = lengths->is_number ? strtoull(value, NULL, 10) : 0;
  return MHD_YES;
}

/* What can be told from the headers is refused before the body comes, and the connection is closed then. */
static enum MHD_Result headers_check(struct exchange *exchange, const char *version) {
  struct lengths lengths = {.is_number = true};
  const bool has_host = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
  MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, length_read, &lengths);
  if (!has_host && strcmp(version, MHD_HTTP_VERSION_1_1) == 0)
    return refuse(exchange, MHD_HTTP_BAD_REQUEST, "the header Host is missing", NULL);
  if (lengths.count > 1 || !lengths.is_number)
    return refuse(exchange, MHD_HTTP_BAD_REQUEST, "Content-Length is not one number", NULL);
  if (lengths.bytes > BODY_BYTES_MOST)
    return refuse(exchange, MHD_HTTP_CONTENT_TOO_LARGE, "the body has more than 1 MiB", NULL);
  return MHD_YES;
}

static enum MHD_Result begin(struct service *service, struct MHD_Connection *connection, const char *url,
                             const char *version, void **state) {
  static const char scheme[] = "http://";
  struct exchange *exchange = calloc(1, sizeof *exchange);
  struct client *client = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
  if (!client || !exchange) {
    free(exchange);
    return MHD_NO;
  }
  *exchange = (struct exchange){.service = service, .client = client, .connection = connection};
  *state = client->exchange = exchange;
  if (strncasecmp(url, scheme, sizeof scheme - 1) == 0) { /* a request to a proxy: the path follows the host */
    url = strchr(url + sizeof scheme - 1, '/');
    if (!url) url = "/";
  }
  for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
    if (strcmp(url, routes[i].path) == 0) exchange->route = &routes[i];
  exchange->takes_body = exchange->route && !exchange->route->reply && is_authorised(exchange);
  return headers_check(exchange, version);
}

static enum MHD_Result upload_take(struct exchange *exchange, const char *data, size_t bytes) {
  exchange->body_bytes += bytes;
  exchange->body_too_long = exchange->body_bytes > BODY_BYTES_MOST;
  if (exchange->body_too_long)
    body_free(exchange);
  else if (exchange->takes_body) /* what is refused anyway costs no memory */
    body_put(exchange, data, bytes);
  return exchange->body_bytes > DISCARDED_BYTES_MOST ? MHD_NO : MHD_YES;
}

enum MHD_Result exchange_handle(void *service, struct MHD_Connection *connection, const char *url, const char *method,
                                const char *version, const char *data, size_t *data_bytes, void **state) {
  struct exchange *exchange = *state;
  if (!exchange) return begin(service, connection, url, version, state);
  if (*data_bytes) {
    const size_t bytes = *data_bytes;
    *data_bytes = 0;
    return upload_take(exchange, data, bytes);
  }
  if (!exchange->link) return dispatch(exchange, method);
  if (exchange->cut) return MHD_NO;
  return reply(connection, exchange->answer.status, "application/json", &exchange->out);
}

/* ---- Connections ------------------------------------------------------------------------------------------------- */

/* libmicrohttpd does not look at a connection that is suspended, and misses an end that comes together with data. So
 * each socket is watched for the end of its client here too. */
void client_change(void *user, struct MHD_Connection *connection, void **state,
                   enum MHD_ConnectionNotificationCode code) {
  struct service *service = user;
  struct client *client = *state;
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    if (!client) return;
    *client->link = client->next;
    if (client->next) client->next->link = client->link;
    free(client);
    return;
  }
  client = *state = malloc(sizeof *client);
  if (!client) return; /* begin refuses its requests */
  *client = (struct client){.next = service->clients,
                            .link = &service->clients,
                            .connection = connection,
                            .file = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
                            .since_ns = clock_ns()};
  if (client->next) client->next->link = &client->next;
  service->clients = client;
  struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = client};
  epoll_ctl(service->events, EPOLL_CTL_ADD, client->file, &event); /* closing the file ends it */
}

/* libmicrohttpd closes connections on which nothing moves for --idle seconds. One that sends a byte now and then would
 * stay for ever. A request may begin that long after the last one, and may take as long again. */
void clients_look(struct service *service, uint64_t now) {
  static const uint64_t second_ns = 1000000000;
  const uint64_t most_ns = 2 * (uint64_t)service->options->idle_s * second_ns;
  if (now - service->clients_looked_ns < second_ns) return;
  service->clients_looked_ns = now;
  for (const struct client *client = service->clients; client; client = client->next) {
    const bool is_coming = !client->exchange || !client->exchange->is_whole;
    if (is_coming && now > client->since_ns + most_ns) shutdown(client->file, SHUT_RDWR);
  }
}

void client_left(struct client *client) {
  client->left = true;
  if (client->exchange)
    exchange_cut(client->exchange);
  else
    MHD_set_connection_option(client->connection, MHD_CONNECTION_OPTION_TIMEOUT, CUT_SECONDS);
}

void exchange_complete(void *user, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode code) {
  struct exchange *exchange = *state;
  struct service *service = user;
  (void)connection, (void)code;
  if (!exchange) return;
  *state = NULL;
  exchange->client->exchange = NULL;
  exchange->client->since_ns = clock_ns();
  if (exchange->link) {
    *exchange->link = exchange->next;
    if (exchange->next) exchange->next->link = exchange->link;
    answer_free(&exchange->answer);
  }
  if (exchange->request) service_abandon(service, exchange->request);
  body_free(exchange);
  buffer_free(&exchange->out);
  question_free(&exchange->question);
  free(exchange);
}
