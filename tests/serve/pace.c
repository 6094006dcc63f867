/* pace.c - measures the times between tokens of a server of samples/serve, where load.py's own work would take longer
 * than a token: requests with prompts of one length, as streams, over the loopback device.
 *
 *     out/release/serve/pace PORT [--clients 16] [--requests 200] [--prompt 1024] [--answer 128] [--level 75]
 *
 * Clients that ask again at once measure the capacity; then as many requests come at random (Poisson), at --level
 * percent of it. Each prompt is asked twice, the second time after the others, and must have the same text. Lengths of
 * answers are from half of --answer to one and a half; with --clients 1 exactly --answer. */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_TOKEN = 300, TOKENS = 40000, EVENTS = 64 };

static struct {
  long port, clients, requests, prompt, answer, level;
} asked = {.clients = 16, .requests = 200, .prompt = 1024, .answer = 128, .level = 75};

static _Noreturn void fail(const char *what) {
  fprintf(stderr, "pace: %s: %s\n", what, strerror(errno));
  exit(2);
}

static void *take(size_t bytes) {
  void *room = calloc(1, bytes + 1);
  if (!room) fail("memory");
  return room;
}

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t mixed(uint64_t x) { /* splitmix64 */
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

struct times {
  double *us;
  size_t count, room;
};

static void times_add(struct times *times, uint64_t ns) {
  if (times->count == times->room) {
    times->room = 2 * times->room + 1024;
    times->us = realloc(times->us, times->room * sizeof *times->us);
    if (!times->us) fail("memory");
  }
  times->us[times->count++] = (double)ns * 1e-3;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void times_print(const char *name, struct times *times) {
  static const double shares[] = {0.5, 0.9, 0.99, 0.999};
  if (!times->count) return;
  qsort(times->us, times->count, sizeof *times->us, compare);
  printf("  %-14s", name);
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
    printf("  p%g %.1f", 100 * shares[i], times->us[(size_t)(shares[i] * (double)times->count)]);
  printf("  most %.1f us, %zu\n", times->us[times->count - 1], times->count);
}

/* ---- A request --------------------------------------------------------------------------------------------------- */

enum { IN_LINE_OF_CHUNK = -1, IN_HEADERS = -2 };

struct request {
  int file; /* -1: none */
  long number;
  uint64_t planned_ns, last_ns;
  long tokens;
  char *in; /* the body so far */
  size_t in_count, in_room;
  long chunk; /* bytes left, or one of these */
  char line[32];
  size_t line_count, matched;
};

static struct times between, first;
static long failed, different, tokens_in_all;
static uint64_t *texts; /* a hash of each question's text; 0: unknown */

/* The prompt is of random tokens. */
static size_t message_write(char *out, long question, long wanted, uint64_t random) {
  char *body = take((size_t)asked.prompt * 8 + 256);
  size_t at = (size_t)sprintf(body, "{\"stream\":true,\"temperature\":%ld,\"seed\":%ld,\"max_tokens\":%ld,\"prompt\":[",
                              question % 2, question, wanted);
  for (long i = 0; i < asked.prompt; i++)
    at += (size_t)sprintf(body + at, i ? ",%d" : "%d",
                          FIRST_TOKEN + (int)(mixed(random + (uint64_t)i) % (TOKENS - FIRST_TOKEN)));
  at += (size_t)sprintf(body + at, "]}");
  const int bytes = sprintf(out,
                            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                            at, body);
  free(body);
  return (size_t)bytes;
}

static void request_begin(struct request *request, int events, long number, uint64_t planned_ns) {
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)asked.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const long question = number % ((asked.requests + 1) / 2);
  const uint64_t random = mixed((uint64_t)question + 1);
  const long wanted = asked.clients == 1 ? asked.answer : asked.answer / 2 + (long)(random % (uint64_t)asked.answer);
  char *out = take((size_t)asked.prompt * 8 + 512);
  const size_t bytes = message_write(out, question, wanted, random);
  *request = (struct request){
      .file = socket(AF_INET, SOCK_STREAM, 0), .number = question, .planned_ns = planned_ns, .chunk = IN_HEADERS};
  if (request->file < 0 || connect(request->file, (const struct sockaddr *)&address, sizeof address)) fail("connect");
  for (size_t sent = 0; sent < bytes;) {
    const ssize_t more = write(request->file, out + sent, bytes - sent);
    if (more <= 0) fail("write");
    sent += (size_t)more;
  }
  free(out);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = request};
  if (epoll_ctl(events, EPOLL_CTL_ADD, request->file, &event)) fail("epoll_ctl");
}

/* A byte of the body. The event of a token has "finish_reason":null. */
static void body_take(struct request *request, char byte, uint64_t now) {
  static const char pattern[] = "\"finish_reason\":null";
  if (request->in_count == request->in_room) {
    request->in_room = 2 * request->in_room + 65536;
    request->in = realloc(request->in, request->in_room);
    if (!request->in) fail("memory");
  }
  request->in[request->in_count++] = byte;
  if (byte == pattern[request->matched])
    request->matched++;
  else
    request->matched = byte == '"';
  if (request->matched < sizeof pattern - 1) return;
  request->matched = 0;
  times_add(request->tokens ? &between : &first, now - (request->tokens ? request->last_ns : request->planned_ns));
  request->tokens++;
  request->last_ns = now;
}

/* A byte of the response: headers, and a body in chunks. */
static void byte_take(struct request *request, char byte, uint64_t now) {
  if (request->chunk > 0) {
    body_take(request, byte, now);
    if (--request->chunk == 0) request->chunk = IN_LINE_OF_CHUNK;
    return;
  }
  if (byte != '\n') {
    if (byte != '\r' && request->line_count < sizeof request->line - 1) request->line[request->line_count++] = byte;
    return;
  }
  request->line[request->line_count] = 0;
  if (request->chunk == IN_HEADERS && request->line_count == 0)
    request->chunk = IN_LINE_OF_CHUNK;
  else if (request->chunk == IN_LINE_OF_CHUNK && request->line_count > 0)
    request->chunk = strtol(request->line, NULL, 16);
  request->line_count = 0;
}

static uint64_t text_of(const struct request *request) {
  uint64_t hash = 1469598103934665603u; /* FNV-1a */
  static const char name[] = "\"text\":\"";
  const char *end = request->in + request->in_count;
  for (const char *at = request->in; (at = memmem(at, (size_t)(end - at), name, sizeof name - 1));)
    for (at += sizeof name - 1; at < end && strncmp(at, "\",\"log", 6) != 0; at++)
      hash = (hash ^ (uint8_t)*at) * 1099511628211u;
  return hash;
}

static void request_end(struct request *request) {
  const uint64_t text = request->in_count ? text_of(request) : 0;
  if (!request->in_count || !memmem(request->in, request->in_count, "[DONE]", 6)) {
    failed++;
  } else {
    if (texts[request->number] && texts[request->number] != text) different++;
    texts[request->number] = text;
  }
  tokens_in_all += request->tokens;
  close(request->file);
  free(request->in);
  request->file = -1;
}

/* True: it has ended. */
static bool request_read(struct request *request) {
  static char bytes[1 << 16];
  const ssize_t count = recv(request->file, bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0 && errno == EAGAIN) return false;
  const uint64_t now = now_ns();
  for (ssize_t i = 0; i < count; i++) byte_take(request, bytes[i], now);
  if (count > 0) return false;
  request_end(request);
  return true;
}

/* ---- A load ------------------------------------------------------------------------------------------------------ */

struct load {
  double rate; /* requests a second; 0: --clients ask again at once */
  struct request *requests;
  long room, begun, ended;
  uint64_t next_ns;
  int events;
};

static void load_begin_requests(struct load *load) {
  for (long i = 0; i < load->room && load->begun < asked.requests; i++) {
    if (load->requests[i].file >= 0) continue;
    const uint64_t now = now_ns();
    if (load->rate > 0 && now < load->next_ns) return;
    request_begin(&load->requests[i], load->events, load->begun++, load->rate > 0 ? load->next_ns : now);
    const double uniform = ((double)(mixed((uint64_t)load->begun) >> 11) + 1) * 0x1p-53;
    if (load->rate > 0) load->next_ns += (uint64_t)(-log(uniform) / load->rate * 1e9);
  }
}

static void report(const struct load *load, double seconds) {
  if (load->rate > 0)
    printf("%.2f requests a second came", load->rate);
  else
    printf("%ld clients: %.2f requests a second", asked.clients, (double)asked.requests / seconds);
  printf(", %.0f tokens a second, %.2f s, %ld failed, %ld texts differ\n", (double)tokens_in_all / seconds, seconds,
         failed, different);
  times_print("between tokens", &between);
  times_print("first token", &first);
  fflush(stdout);
}

/* Returns how many requests were answered in a second. */
static double run(double rate) {
  struct load load = {.rate = rate, .room = rate > 0 ? asked.requests : asked.clients, .events = epoll_create1(0)};
  load.requests = take((size_t)load.room * sizeof *load.requests);
  for (long i = 0; i < load.room; i++) load.requests[i].file = -1;
  between.count = first.count = 0, tokens_in_all = 0;
  const uint64_t begin = load.next_ns = now_ns();
  while (load.ended < asked.requests) {
    struct epoll_event ready[EVENTS];
    load_begin_requests(&load);
    const int count = epoll_wait(load.events, ready, EVENTS, 0); /* does not sleep */
    for (int i = 0; i < count; i++) load.ended += request_read(ready[i].data.ptr);
  }
  const double seconds = (double)(now_ns() - begin) * 1e-9;
  close(load.events);
  free(load.requests);
  report(&load, seconds);
  return (double)asked.requests / seconds;
}

int main(int argc, char **argv) {
  const struct {
    const char *name;
    long *to;
  } options[] = {{"--clients", &asked.clients},
                 {"--requests", &asked.requests},
                 {"--prompt", &asked.prompt},
                 {"--answer", &asked.answer},
                 {"--level", &asked.level}};
  if (argc > 1) asked.port = strtol(argv[1], NULL, 10);
  for (int i = 2; i + 1 < argc; i += 2)
    for (size_t k = 0; k < sizeof options / sizeof *options; k++)
      if (strcmp(argv[i], options[k].name) == 0) *options[k].to = strtol(argv[i + 1], NULL, 10);
  if (asked.port <= 0 || argc % 2 != 0) {
    fprintf(stderr, "usage: pace PORT [--clients N] [--requests N] [--prompt N] [--answer N] [--level PERCENT]\n");
    return 2;
  }
  texts = take((size_t)asked.requests * sizeof *texts);
  const double capacity = run(0);
  if (asked.level > 0) run(capacity * (double)asked.level / 100);
  return failed || different ? 1 : 0;
}
