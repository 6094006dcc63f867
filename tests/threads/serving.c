/* serving.c - the replaying thread of the serve sample beside a thread that does what the HTTP thread does with it:
 * submits, reads tokens while they come, cancels, sleeps until there are news, and stops it while requests run. For
 * ThreadSanitizer; and no news and no wake-up are lost. */
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "../samples/small_engine.h"
#include "check.h"

enum { RECORDS = 12, REQUESTS = 60, NEWS_MS = 60000 };

static struct small_engine small;
static struct small_answer alone[SMALL_KINDS];

struct client {
  struct small_request record;
  int32_t kind, seen; /* tokens */
  bool submitted;
};
static struct client clients[RECORDS];

static uint32_t random_below(uint32_t count) {
  static uint32_t state = 1;
  state = state * 1664525 + 1013904223; /* Numerical Recipes' generator */
  return (state >> 8) % count;
}

static void *replay(void *engine) {
  while (engine_round(engine)) continue;
  return NULL;
}

static void submit(struct client *client) {
  *client = (struct client){.kind = (int32_t)random_below(SMALL_KINDS), .submitted = true};
  small_request_fill(&client->record, client->kind, 1 + (int32_t)random_below(SMALL_ANSWER_MOST));
  struct request *request = &client->record.request;
  if (random_below(8) == 0) request->deadline_ns = request->submitted_ns + random_below(2000000);
  engine_submit(&small.engine, request);
}

/* True if the request has ended. */
static bool look(struct client *client) {
  struct request *request = &client->record.request;
  const int end = atomic_load(&request->end), count = atomic_load(&request->answered);
  const char *complaint = small_request_complaint(&client->record, &alone[client->kind]);
  check(!complaint, complaint);
  check(count >= client->seen, "an answer became shorter");
  client->seen = count;
  if (end == END_NONE && random_below(2000) == 0) atomic_store(&request->cancelled, true);
  return end != END_NONE;
}

/* Until the answer is longer, without a look at the engine. */
static bool look_closely(struct client *client) {
  const int32_t seen = client->seen;
  bool ended = false;
  for (int i = 0; i < 3000 && !ended && client->seen == seen; i++) ended = look(client);
  return ended;
}

/* As the HTTP thread: it looked at all that was new, and sleeps until there is more. */
static void sleep_until_news(uint64_t seen) {
  uint64_t count;
  struct pollfd news = {.fd = small.engine.news, .events = POLLIN};
  atomic_store(&small.engine.news_wanted, true);
  if (atomic_load(&small.engine.news_count) == seen) check(poll(&news, 1, NEWS_MS) == 1, "no news");
  atomic_store(&small.engine.news_wanted, false);
  if (news.revents) check(read(small.engine.news, &count, sizeof count) == sizeof count, "news that are none");
}

/* Until so many were submitted, the last of which may run still. */
static void talk(void) {
  int32_t submitted = 0, running = 0;
  while (submitted < REQUESTS) {
    const uint64_t seen = atomic_load(&small.engine.news_count);
    for (int i = 0; i < RECORDS; i++)
      if (clients[i].submitted && (random_below(8) ? look : look_closely)(&clients[i])) {
        clients[i].submitted = false;
        running--;
      }
    /* Now and then all end, and the engine sleeps. */
    const bool rests = submitted % 25 == 24 && running > 0;
    for (int i = 0; i < RECORDS && submitted < REQUESTS && !rests; i++)
      if (!clients[i].submitted && random_below(4) == 0) {
        if (running == 0) nanosleep(&(struct timespec){.tv_nsec = random_below(2000000)}, NULL);
        submit(&clients[i]);
        submitted++;
        running++;
        if (submitted % 25 == 24) break;
      }
    if (running > 0) sleep_until_news(seen);
  }
}

static void serve(const struct model_options *options) {
  small_engine_open(&small, options, RECORDS, options->spins);
  memset(clients, 0, sizeof clients);
  check(pthread_create(&small.engine.thread, NULL, replay, &small.engine) == 0, "no thread");
  talk();
  check(engine_stop(&small.engine), "the engine does not end");
  for (int i = 0; i < RECORDS; i++) check(!clients[i].submitted || look(&clients[i]), "a request did not end");
  check(small.engine.metrics.requests_ended == REQUESTS, "not every request ended once");
  model_close(&small.model);
  printf("requests in %d lane%s, %s: ok\n", options->lanes, options->lanes == 1 ? "" : "s",
         options->spins ? "spinning" : "sleeping");
}

int main(void) {
  small_answers_alone(alone);
  serve(&(struct model_options){.sequences = 5, .lanes = 1, .pages = 14, .threads = 2});
  serve(&(struct model_options){.sequences = 4, .lanes = 2, .threads = 2});
  serve(&(struct model_options){.sequences = 4, .lanes = 1, .threads = 1, .spins = true});
  return 0;
}
