/* pages.c - pages of KV caches (pages.h). A page's content is found by the content before it and its tokens, which are
 * compared, so that equal hashes do no harm. Contents are numbers and not pages: a page that gets other tokens has
 * another number, and what followed its old content is never found again. */
#include "pages.h"

#include <stdlib.h>
#include <string.h>

static int32_t index_of(const struct pages *pages, const struct page *page) { return (int32_t)(page - pages->pages); }

static int32_t *tokens_of(const struct pages *pages, const struct page *page) {
  return pages->tokens + (page - pages->pages) * pages->rows;
}

/* ---- Users ------------------------------------------------------------------------------------------------------- */

static void user_add(struct pages *pages, struct page *page) {
  if (page->users++) return;
  TAILQ_REMOVE(&pages->unused, page, unused);
  pages->unused_count--;
}

/* Pages without content are taken first. */
static void unused_add(struct pages *pages, struct page *page) {
  if (page->content)
    TAILQ_INSERT_TAIL(&pages->unused, page, unused);
  else
    TAILQ_INSERT_HEAD(&pages->unused, page, unused);
  pages->unused_count++;
}

/* ---- Contents ---------------------------------------------------------------------------------------------------- */

/* FNV-1a over 32-bit words. */
static uint32_t hash_of(const struct pages *pages, uint64_t parent, const int32_t *tokens) {
  uint64_t hash = 14695981039346656037u ^ parent;
  for (int32_t i = 0; i < pages->rows; i++) hash = (hash ^ (uint32_t)tokens[i]) * 1099511628211u;
  return (uint32_t)(hash ^ hash >> 32);
}

/* NULL if there is none. */
static struct page *content_find(const struct pages *pages, uint64_t parent, const int32_t *tokens) {
  const uint32_t hash = hash_of(pages, parent, tokens);
  struct page *page = LIST_FIRST(&pages->buckets[hash & pages->bucket_mask]);
  while (page && (page->hash != hash || page->parent != parent ||
                  memcmp(tokens_of(pages, page), tokens, (size_t)pages->rows * sizeof *tokens) != 0))
    page = LIST_NEXT(page, alike);
  return page;
}

static void content_add(struct pages *pages, struct page *page, uint64_t parent, const int32_t *tokens) {
  page->content = ++pages->contents;
  page->parent = parent;
  page->hash = hash_of(pages, parent, tokens);
  memcpy(tokens_of(pages, page), tokens, (size_t)pages->rows * sizeof *tokens);
  LIST_INSERT_HEAD(&pages->buckets[page->hash & pages->bucket_mask], page, alike);
}

static void content_remove(struct page *page) {
  if (page->content) LIST_REMOVE(page, alike);
  page->content = 0;
}

/* ---- Interface --------------------------------------------------------------------------------------------------- */

bool pages_open(struct pages *pages, int32_t count, int32_t rows) {
  uint32_t buckets = 1;
  while (buckets < (uint32_t)count) buckets *= 2;
  *pages = (struct pages){.count = count,
                          .rows = rows,
                          .pages = calloc((size_t)count, sizeof *pages->pages),
                          .tokens = calloc((size_t)count * (size_t)rows, sizeof *pages->tokens),
                          .buckets = calloc(buckets, sizeof *pages->buckets), /* all empty */
                          .bucket_mask = buckets - 1};
  if (!pages->pages || !pages->tokens || !pages->buckets) {
    pages_close(pages);
    return false;
  }
  TAILQ_INIT(&pages->unused);
  for (int32_t i = count - 1; i > 0; i--) unused_add(pages, &pages->pages[i]);
  return true;
}

void pages_close(struct pages *pages) {
  free(pages->pages);
  free(pages->tokens);
  free(pages->buckets);
  *pages = (struct pages){0};
}

int32_t pages_take(struct pages *pages, const int32_t *prompt, int32_t prompt_count, int32_t rows, int32_t *list) {
  const int32_t total = pages_for(pages, rows), whole = (prompt_count - 1) / pages->rows;
  int32_t shared = 0, idle = 0;
  uint64_t parent = 0;
  for (; shared < whole; shared++) {
    const struct page *page = content_find(pages, parent, prompt + (int64_t)shared * pages->rows);
    if (!page) break;
    parent = page->content;
    idle += page->users == 0;
    list[shared] = index_of(pages, page);
  }
  if (total - shared > pages->unused_count - idle) return -1;
  bool in_order = pages->in_order && pages_used(pages) == 0;
  for (int32_t i = 0; i < shared; i++) {
    in_order = in_order && list[i] == i + 1;
    user_add(pages, &pages->pages[list[i]]);
  }
  for (int32_t i = shared; i < total; i++) {
    struct page *page = in_order ? &pages->pages[i + 1] : TAILQ_FIRST(&pages->unused);
    list[i] = index_of(pages, page);
    user_add(pages, page);
    content_remove(page);
  }
  return shared;
}

int32_t pages_take_filled(struct pages *pages, const int32_t *prompt, int32_t prompt_count, int32_t done,
                          int32_t *list) {
  const int32_t whole = (prompt_count - 1) / pages->rows;
  int32_t found = 0;
  uint64_t parent = 0;
  for (; found < whole; found++) {
    struct page *page = content_find(pages, parent, prompt + (int64_t)found * pages->rows);
    if (!page) break;
    parent = page->content;
    if ((found + 1) * pages->rows <= done || list[found] == index_of(pages, page)) continue;
    user_add(pages, page);
    pages_give(pages, &list[found], 1);
    list[found] = index_of(pages, page);
  }
  return found;
}

void pages_share(struct pages *pages, const int32_t *tokens, int32_t count, const int32_t *list) {
  uint64_t parent = 0;
  for (int32_t i = 0; i < count / pages->rows; i++, tokens += pages->rows) {
    struct page *page = &pages->pages[list[i]], *same = page->content ? page : content_find(pages, parent, tokens);
    if (!same) content_add(pages, same = page, parent, tokens);
    parent = same->content;
  }
}

void pages_give(struct pages *pages, const int32_t *list, int32_t count) {
  /* The last first: a text's first pages stay longest. */
  for (int32_t i = count - 1; i >= 0; i--)
    if (!--pages->pages[list[i]].users) unused_add(pages, &pages->pages[list[i]]);
}
