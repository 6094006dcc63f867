/* test_serve_soak.c - thousands of short requests in the serve sample's engine, with random lengths, cancels and
 * deadlines. Each ends exactly once, its tokens are those of a request alone and never change, its record is then left
 * alone, and its pages are back. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support.h"
#include "fake_clock.h"
#include "small_engine.h"

TestSuite(serve_soak, .timeout = 300);

enum { RECORDS = 24, ROUNDS_MOST = 200000 };

static struct small_answer alone[SMALL_KINDS];

struct client {
  struct small_request record, before; /* as the client saw it last */
  int32_t kind;
  bool submitted;
};

struct soak {
  struct small_engine small;
  struct client clients[RECORDS];
  struct random random;
  int32_t submitted, ended, ends[END_LOST + 1];
};

static bool happens(struct soak *soak, int64_t of) { return random_between(&soak->random, 1, of) == 1; }

static void submit(struct soak *soak, struct client *client) {
  client->kind = (int32_t)random_between(&soak->random, 0, SMALL_KINDS - 1);
  small_request_fill(&client->record, client->kind, (int32_t)random_between(&soak->random, 1, SMALL_ANSWER_MOST));
  if (happens(soak, 8))
    client->record.request.deadline_ns = fake_clock_ns + (uint64_t)random_between(&soak->random, 0, 100000);
  if (happens(soak, 20)) client->record.request.cancelled = true;
  client->before = client->record;
  client->submitted = true;
  engine_submit(&soak->small.engine, &client->record.request);
  soak->submitted++;
}

static void look(struct soak *soak, struct client *client) {
  struct request *request = &client->record.request, *before = &client->before.request;
  const int end = atomic_load(&request->end), count = atomic_load(&request->answered);
  const char *complaint = small_request_complaint(&client->record, &alone[client->kind]);
  cr_assert_null(complaint, "request %d of kind %d %s", soak->submitted, client->kind, complaint);
  cr_assert_geq(count, atomic_load(&before->answered));
  cr_assert_arr_eq(request->answer, client->before.tokens + before->prompt_count,
                   (size_t)before->answered * sizeof *request->answer);
  cr_assert_arr_eq(client->record.tokens, client->before.tokens, (size_t)before->prompt_count * sizeof(int32_t));
  cr_assert(end != END_DEADLINE || (request->deadline_ns && request->deadline_ns < fake_clock_ns));
  cr_assert(end != END_CANCELLED || request->cancelled);
  client->before = client->record;
  if (end == END_NONE) {
    if (happens(soak, 60)) atomic_store(&request->cancelled, true);
    return;
  }
  soak->ends[end]++;
  soak->ended++;
  client->submitted = false;
  client->before = client->record;
}

/* A record without a request is the client's alone. */
static void expect_untouched(const struct client *client) {
  cr_assert_arr_eq(&client->record, &client->before, sizeof client->record);
}

static void visit(struct soak *soak, int32_t requests) {
  for (int i = 0; i < RECORDS; i++) {
    struct client *client = &soak->clients[i];
    if (client->submitted)
      look(soak, client);
    else
      expect_untouched(client);
    if (!client->submitted && soak->submitted < requests && happens(soak, 6)) submit(soak, client);
  }
}

/* Each page has as many users as sequences have it in their lists, and the others are unused. */
static void check_pages(const struct engine *engine) {
  int32_t users[256] = {0}, used = 0;
  cr_assert_lt(engine->pages.count, 256);
  for (int i = 0; i < SEQUENCES_MOST; i++)
    for (int32_t j = 0; engine->sequences[i].request && j < engine->sequences[i].row.page_count; j++)
      users[engine->sequences[i].pages[j]]++;
  for (int32_t page = 1; page < engine->pages.count; page++) {
    cr_assert_eq(engine->pages.pages[page].users, users[page], "page %d", page);
    used += users[page] > 0;
  }
  cr_assert_eq(users[0], 0, "a sequence has the spare page");
  cr_assert_eq(pages_used(&engine->pages), used);
}

static void soak_engine(int32_t sequences, int32_t lanes, int32_t pages, int32_t requests) {
  static struct soak soak;
  soak = (struct soak){.random = {(uint64_t)sequences}};
  small_engine_open(&soak.small, &(struct model_options){.sequences = sequences, .lanes = lanes, .pages = pages},
                    RECORDS, true);
  for (int32_t round = 0; soak.ended < requests; round++) {
    cr_assert_lt(round, ROUNDS_MOST, "%d of %d requests ended", soak.ended, soak.submitted);
    visit(&soak, requests);
    cr_assert(engine_round(&soak.small.engine));
    check_pages(&soak.small.engine);
  }
  cr_assert(engine_round(&soak.small.engine));
  visit(&soak, requests);
  const struct engine_metrics *metrics = &soak.small.engine.metrics;
  cr_assert_eq(metrics->requests_ended, (uint64_t)requests);
  cr_assert_eq(metrics->cancelled, (uint64_t)soak.ends[END_CANCELLED]);
  cr_assert_eq(metrics->expired, (uint64_t)soak.ends[END_DEADLINE]);
  cr_assert_gt(metrics->reused_tokens, 0);
  cr_assert_eq(pages_used(&soak.small.engine.pages), 0);
  for (int end = END_STOP; end < END_LOST; end++)
    cr_assert_gt(soak.ends[end], requests / 100, "few ends of kind %d", end);
  small_engine_close(&soak.small);
}

Test(serve_soak, each_request_ends_once) {
  const int32_t requests = (int32_t)rounds_here(700);
  small_answers_alone(alone);
  soak_engine(5, 1, 12, requests);
  soak_engine(7, 2, 0, requests);
}
