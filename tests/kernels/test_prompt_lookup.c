/* test_prompt_lookup.c - accepted drafts and the next ones, against a plain search: random tokens of small alphabets,
 * so that matches of all lengths come, beside cases by hand. Faults that would show: a token accepted behind a wrong
 * draft, a stop or the limit; a match that is not the longest or not the latest; drafts from beyond the end. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../support.h"

enum { MOST_CAPACITY = 5000, MOST_TOKENS = 128, STOPS = 16, LONGEST = 8, SHORTEST = 2, REPLAYS = 60 };

struct lookup {
  rondo_tensor chosen, tokens, position, last, history, stops, limit, accepted, matched;
  int rows, count, capacity; /* count: of tokens */
  bool has_last, has_stops, has_limit;
};

struct numbers {
  int32_t chosen[MOST_TOKENS], tokens[MOST_TOKENS], position, last, history[MOST_CAPACITY], stops[STOPS], limit;
  int32_t accepted[MOST_TOKENS], matched;
};

static void list(rondo_graph *graph, tensor_kind kind, const char *name, int64_t count, rondo_tensor *tensor) {
  REQUIRE_OK(kind(graph, name, RONDO_I32, 1, &count, tensor));
}

static void describe(struct trial *trial, struct lookup *l) {
  rondo_graph *g = trial->graph;
  list(g, rondo_input, "chosen", l->rows, &l->chosen), list(g, rondo_state, "tokens", l->count, &l->tokens);
  list(g, rondo_state, "position", 1, &l->position), list(g, rondo_state, "history", l->capacity, &l->history);
  list(g, rondo_output, "accepted", l->rows, &l->accepted), list(g, rondo_output, "matched", 1, &l->matched);
  if (l->has_last) list(g, rondo_input, "last", 1, &l->last);
  if (l->has_stops) list(g, rondo_input, "stops", STOPS, &l->stops);
  if (l->has_limit) list(g, rondo_input, "limit", 1, &l->limit);
  REQUIRE_OK(rondo_add_prompt_lookup(g, &(rondo_prompt_lookup_desc){.name = "lookup",
                                                                    .chosen = l->chosen,
                                                                    .tokens = l->tokens,
                                                                    .position = l->position,
                                                                    .last = l->last,
                                                                    .history = l->history,
                                                                    .stops = l->stops,
                                                                    .limit = l->limit,
                                                                    .accepted = l->accepted,
                                                                    .matched = l->matched}));
}

static bool has(const int32_t *list, int count, int32_t token) {
  for (int i = 0; i < count; i++)
    if (list[i] == token) return true;
  return false;
}

/* The header's text, from the front to the back: accepted tokens one by one, and for every length, the longest first,
 * every place, the latest first. */
static void expect(const struct lookup *l, struct numbers *n) {
  const int at = n->position + (l->has_last ? n->last : 0), limit = l->has_limit && n->limit ? n->limit : INT32_MAX;
  int count = 0, from = -1, length = LONGEST;
  bool goes_on = true;
  for (int i = 0; i < l->rows; i++) {
    n->accepted[i] = goes_on ? n->chosen[i] : -1;
    if (goes_on) n->history[at + ++count] = n->chosen[i];
    goes_on = goes_on && i + 1 < l->rows && n->chosen[i] == n->tokens[i + 1] && at + count < limit &&
              !(l->has_stops && has(n->stops, STOPS, n->chosen[i]));
  }
  n->position = at + count;
  n->tokens[0] = n->history[n->position];
  for (; length >= SHORTEST && from < 0; length--)
    for (int end = n->position - 1; end >= length - 1 && from < 0; end--)
      if (memcmp(&n->history[end - length + 1], &n->history[n->position - length + 1],
                 (size_t)length * sizeof(int32_t)) == 0)
        from = end + 1;
  n->matched = from < 0 ? 0 : length + 1;
  int32_t text[MOST_CAPACITY + MOST_TOKENS];
  memcpy(text, n->history, (size_t)(n->position + 1) * sizeof *text);
  for (int i = 1; i < l->count; i++) /* a draft is part of the text that the next ones repeat */
    n->tokens[i] = text[n->position + i] = from < 0 ? n->tokens[0] : text[from + i - 1];
  if (n->position >= limit || (l->has_stops && has(n->stops, STOPS, n->tokens[0]))) n->matched = -1;
}

/* Some text of a few different tokens, and choices that often agree with the drafts. */
static void fill(const struct lookup *l, struct numbers *n, struct random *random) {
  int32_t alphabet = (int32_t)random_between(random, 1, 6);
  alphabet *= (int32_t)random_between(random, 1, 9);
  const int most = l->capacity - l->rows - 1;
  n->last = (int32_t)random_between(random, 0, most / 3);
  n->position = (int32_t)random_between(random, 0, most - (l->has_last ? n->last : 0));
  for (int i = 0; i < l->capacity; i++) n->history[i] = (int32_t)random_between(random, 0, alphabet);
  for (int i = 0; i < l->count; i++) n->tokens[i] = (int32_t)random_between(random, 0, alphabet);
  for (int i = 0; i < l->rows; i++)
    n->chosen[i] = i + 1 < l->count && random_between(random, 0, 12) ? n->tokens[i + 1] : alphabet / 2;
  for (int i = 0; i < STOPS; i++) n->stops[i] = i % 3 ? -1 : (int32_t)random_between(random, alphabet / 2, 50);
  n->limit = random_between(random, 0, 2) ? n->position + (int32_t)random_between(random, -1, INT64_C(2) * l->rows) : 0;
  if (n->limit < 0) n->limit = 0;
}

static void require_list(struct trial *trial, rondo_tensor tensor, const int32_t *expected, int count, int replay,
                         const char *what) {
  int32_t got[MOST_CAPACITY];
  trial_get(trial, tensor, got);
  for (int i = 0; i < count; i++)
    cr_assert_eq(got[i], expected[i], "replay %d, %s: [%d] is %d, expected %d", replay, what, i, (int)got[i],
                 (int)expected[i]);
}

static void compare(struct trial *trial, const struct lookup *l, const struct numbers *n, int replay) {
  require_list(trial, l->accepted, n->accepted, l->rows, replay, "accepted");
  require_list(trial, l->matched, &n->matched, 1, replay, "matched");
  require_list(trial, l->position, &n->position, 1, replay, "position");
  require_list(trial, l->history, n->history, l->capacity, replay, "history");
  require_list(trial, l->tokens, n->tokens, l->count, replay, "tokens");
}

static void look_up(rondo_backend backend) {
  static const struct lookup sizes[] = {
      {.rows = 16, .count = 16, .capacity = 300, .has_stops = true, .has_limit = true},
      {.rows = 4, .count = 4, .capacity = 40},
      {.rows = 1, .count = 8, .capacity = 100, .has_last = true},
      {.rows = 1, .count = 32, .capacity = 5000, .has_stops = true},
      {.rows = 128, .count = 128, .capacity = 5000, .has_limit = true},
      {.rows = 1, .count = 1, .capacity = 3}};
  static struct numbers n;
  int seen[LONGEST + 2] = {0}, accepted = 0;
  struct random random = {43};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct lookup l = sizes[i];
    struct trial trial;
    trial_describe(&trial, backend);
    describe(&trial, &l);
    trial_instantiate(&trial);
    for (int replay = 0; replay < REPLAYS; replay++) {
      fill(&l, &n, &random);
      trial_set(&trial, l.chosen, n.chosen), trial_set(&trial, l.tokens, n.tokens);
      trial_set(&trial, l.position, &n.position), trial_set(&trial, l.history, n.history);
      if (l.has_last) trial_set(&trial, l.last, &n.last);
      if (l.has_stops) trial_set(&trial, l.stops, n.stops);
      if (l.has_limit) trial_set(&trial, l.limit, &n.limit);
      trial_replay(&trial);
      expect(&l, &n);
      compare(&trial, &l, &n, replay);
      seen[n.matched + 1]++, accepted += l.rows > 1 && n.accepted[1] >= 0;
    }
    trial_end(&trial);
  }
  for (int length = -1; length <= LONGEST; length++)
    cr_assert(length == 1 || seen[length + 1] > 0, "no match of %d in this test", length);
  cr_assert_gt(accepted, REPLAYS / 2);
}
BOTH_BACKENDS(prompt_lookup, accepts_and_drafts_as_a_plain_search_does, look_up)

/* Positions that a program set wrongly: nothing beyond the history is read or written. */
static void outside(rondo_backend backend) {
  static const int32_t positions[] = {-5, -1, 7, 8, 1000, INT32_MAX - 1, INT32_MIN};
  struct lookup l = {.rows = 4, .count = 4, .capacity = 8};
  struct trial trial;
  trial_describe(&trial, backend);
  describe(&trial, &l);
  trial_instantiate(&trial);
  for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
    const int32_t chosen[] = {1, 2, 3, 4}, tokens[] = {9, 5, 5, 5}, history[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    int32_t expected[8] = {1, 1, 1, 1, 1, 1, 1, 1}, position = positions[i] + 1;
    trial_set(&trial, l.chosen, chosen), trial_set(&trial, l.tokens, tokens);
    trial_set(&trial, l.position, &positions[i]), trial_set(&trial, l.history, history);
    trial_replay(&trial);
    if (position >= 0 && position < 8) expected[position] = 1;
    require_list(&trial, l.history, expected, 8, (int)i, "history");
    require_list(&trial, l.position, &position, 1, (int)i, "position");
    require_list(&trial, l.accepted, (const int32_t[]){1, -1, -1, -1}, 4, (int)i, "accepted");
    if (position < 0 || position >= 8)
      require_list(&trial, l.tokens, (const int32_t[]){1, 1, 1, 1}, 4, (int)i, "tokens");
  }
  trial_end(&trial);
}
BOTH_BACKENDS(prompt_lookup, positions_outside_touch_nothing, outside)

Test(prompt_lookup, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor one, four, many, reals, stops, history, accepted;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  list(g, rondo_state, "one", 1, &one), list(g, rondo_state, "four", 4, &four);
  list(g, rondo_state, "many", 129, &many), list(g, rondo_state, "stops", 17, &stops);
  list(g, rondo_state, "history", 100, &history), list(g, rondo_output, "accepted", 4, &accepted);
  REQUIRE_OK(rondo_state(g, "reals", RONDO_F32, 1, (int64_t[]){4}, &reals));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_prompt_lookup(g, &(rondo_prompt_lookup_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REQUIRE_ERROR(rondo_add_prompt_lookup(g, NULL), RONDO_INVALID_ARGUMENT,
                "rondo_add_prompt_lookup: the description is NULL");
  REFUSED("tokens is absent, expected i32 [1 to 128]", .chosen = one);
  REFUSED("tokens is [129] i32, expected", .tokens = many);
  REFUSED("chosen is [100] i32, expected i32 [1] or, as tokens, [4]", .tokens = four, .chosen = history);
  REFUSED("chosen is [4] f32, expected", .tokens = four, .chosen = reals);
  REFUSED("position is absent, expected [1] i32", .tokens = four, .chosen = one);
  REFUSED("last is there, expected none with 4 rows", .tokens = four, .chosen = four, .position = one, .last = one);
  REFUSED("history is absent, expected i32 [1 or more]", .tokens = four, .chosen = four, .position = one);
#define FITS .tokens = four, .chosen = four, .position = one, .history = history
  REFUSED("stops is [17] i32, expected i32 [up to 16]", FITS, .stops = stops);
  REFUSED("limit is [4] i32, expected [1] i32", FITS, .limit = four);
  REFUSED("accepted is absent, expected [4] i32", FITS);
  REFUSED("matched is absent, expected [1] i32", FITS, .accepted = accepted);
#undef FITS
#undef REFUSED
  trial_end(&trial);
}
