/* test_serve_pages.c - the pages of the serve sample: a shared page has exactly the tokens that its new user needs, no
 * page has two contents, and none is lost, over random texts that begin alike. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../samples/serve/pages.h"
#include "../support.h"

enum { PAGES = 24, ROWS = 4, LONGEST = 40, USERS = 8, STEPS = 20000 };

struct user {
  int32_t text[LONGEST], prompt, rows, list[LONGEST];
  bool active;
};

/* What the caches would hold: for each page the text up to its end. */
struct cache {
  struct pages pages;
  int32_t texts[PAGES][LONGEST], lengths[PAGES];
  struct user users[USERS];
};

static int32_t held(const struct cache *cache) {
  bool has[PAGES] = {false};
  int32_t count = 0;
  for (int u = 0; u < USERS; u++)
    for (int32_t i = 0; cache->users[u].active && i < pages_for(&cache->pages, cache->users[u].rows); i++)
      has[cache->users[u].list[i]] = true;
  for (int i = 0; i < PAGES; i++) count += has[i];
  cr_assert(!has[0], "the spare page was given away");
  return count;
}

static int32_t reused_total, ordered_total;

/* What the first ones get while nobody has a page: the pages from 1 on, unless they share others. */
static void check_order(const struct user *user, int32_t shared, int32_t count) {
  for (int32_t i = 0; i < shared; i++)
    if (user->list[i] != i + 1) return;
  for (int32_t i = shared; i < count; i++) cr_assert_eq(user->list[i], i + 1);
  ordered_total++;
}

static void take(struct cache *cache, struct user *user, struct random *random) {
  /* Two symbols: texts often begin alike. */
  user->prompt = 1 + (int32_t)random_between(random, 0, LONGEST - 9);
  user->rows = user->prompt + 1 + (int32_t)random_between(random, 0, 6);
  for (int32_t i = 0; i < user->prompt; i++) user->text[i] = i % ROWS ? i : (int32_t)random_between(random, 0, 1);
  const int32_t before = cache->pages.unused_count;
  const bool nobody = pages_used(&cache->pages) == 0;
  const int32_t shared = pages_take(&cache->pages, user->text, user->prompt, user->rows, user->list);
  if (shared < 0) {
    cr_assert_eq(cache->pages.unused_count, before);
    cr_assert_gt(pages_for(&cache->pages, user->rows), before - (LONGEST / ROWS), "refused with room");
    return;
  }
  user->active = true;
  reused_total += shared;
  if (nobody && cache->pages.in_order) check_order(user, shared, pages_for(&cache->pages, user->rows));
  cr_assert_lt(shared * ROWS, user->prompt);
  for (int32_t i = 0; i < shared; i++) {
    cr_assert_eq(cache->lengths[user->list[i]], (i + 1) * ROWS);
    cr_assert_arr_eq(cache->texts[user->list[i]], user->text, (size_t)((i + 1) * ROWS) * sizeof *user->text);
  }
  for (int32_t i = shared; i < pages_for(&cache->pages, user->rows); i++) {
    const int32_t page = user->list[i];
    cache->lengths[page] = (i + 1) * ROWS;
    memcpy(cache->texts[page], user->text, (size_t)((i + 1) * ROWS) * sizeof *user->text);
  }
}

static void deal(int users, bool in_order) {
  static struct cache cache;
  struct random random = {7};
  memset(&cache, 0, sizeof cache);
  cr_assert(pages_open(&cache.pages, PAGES, ROWS));
  cache.pages.in_order = in_order;
  for (int step = 0; step < STEPS; step++) {
    struct user *user = &cache.users[random_between(&random, 0, users - 1)];
    if (!user->active)
      take(&cache, user, &random);
    else if (random_between(&random, 0, 1))
      pages_share(&cache.pages, user->text, (int32_t)random_between(&random, 0, user->prompt), user->list);
    else {
      pages_give(&cache.pages, user->list, pages_for(&cache.pages, user->rows));
      user->active = false;
    }
    cr_assert_eq(pages_used(&cache.pages), held(&cache), "step %d", step);
  }
  cr_assert_gt(reused_total, 1000, "hardly anything was shared");
  pages_close(&cache.pages);
}

Test(serve_pages, a_shared_page_has_the_tokens_of_its_text) { deal(USERS, false); }

Test(serve_pages, one_user_has_pages_in_order) {
  deal(2, true);
  cr_assert_gt(ordered_total, 100, "%d lists were in order", ordered_total);
}

Test(serve_pages, a_text_that_is_all_there_still_gets_a_page_for_its_last_token) {
  struct pages pages;
  int32_t text[2 * ROWS] = {1, 2, 3, 4, 5, 6, 7, 8}, list[4], other[4];
  cr_assert(pages_open(&pages, 8, ROWS));
  cr_assert_eq(pages_take(&pages, text, 2 * ROWS, 2 * ROWS + 1, list), 0);
  pages_share(&pages, text, 2 * ROWS, list);
  cr_assert_eq(pages_take(&pages, text, 2 * ROWS, 2 * ROWS + 1, other), 1);
  cr_assert_eq(other[0], list[0]);
  cr_assert_neq(other[1], list[1]);
  pages_close(&pages);
}

Test(serve_pages, one_page_too_few_takes_none) {
  struct pages pages;
  int32_t text[ROWS] = {0}, list[4];
  cr_assert(pages_open(&pages, 4, ROWS));
  cr_assert_eq(pages_take(&pages, text, ROWS, 3 * ROWS + 1, list), -1);
  cr_assert_eq(pages_used(&pages), 0);
  cr_assert_eq(pages_take(&pages, text, ROWS, 3 * ROWS, list), 0);
  cr_assert_eq(pages_used(&pages), 3);
  pages_give(&pages, list, 3);
  pages_close(&pages);
}
