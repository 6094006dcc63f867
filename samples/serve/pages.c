/* pages.c - pages of KV caches (pages.h). A page's content is found by the content before it and its tokens, which are
 * compared, so that equal hashes do no harm. Contents are numbers and not pages: a page that gets other tokens has
 * another number, and what followed its old content is never found again. */
#include "pages.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

static int32_t *tokens_of(const struct pages *pages, int32_t page) {
  return pages->tokens + (int64_t)page * pages->rows;
}

/* ---- Pages without users ----------------------------------------------------------------------------------------- */

static void unused_remove(struct pages *pages, int32_t at) {
  const struct page *page = &pages->pages[at];
  *(page->before == NONE ? &pages->first_unused : &pages->pages[page->before].after) = page->after;
  *(page->after == NONE ? &pages->last_unused : &pages->pages[page->after].before) = page->before;
  pages->unused--;
}

/* Pages without content are taken first. */
static void unused_add(struct pages *pages, int32_t at) {
  struct page *page = &pages->pages[at];
  const bool first = !page->content;
  page->before = first ? NONE : pages->last_unused;
  page->after = first ? pages->first_unused : NONE;
  *(page->before == NONE ? &pages->first_unused : &pages->pages[page->before].after) = at;
  *(page->after == NONE ? &pages->last_unused : &pages->pages[page->after].before) = at;
  pages->unused++;
}

/* ---- Contents ---------------------------------------------------------------------------------------------------- */

/* FNV-1a over 32-bit words. */
static uint32_t hash_of(const struct pages *pages, uint64_t parent, const int32_t *tokens) {
  uint64_t hash = 14695981039346656037u ^ parent;
  for (int32_t i = 0; i < pages->rows; i++) hash = (hash ^ (uint32_t)tokens[i]) * 1099511628211u;
  return (uint32_t)(hash ^ hash >> 32);
}

static int32_t content_find(const struct pages *pages, uint64_t parent, const int32_t *tokens) {
  const uint32_t hash = hash_of(pages, parent, tokens);
  int32_t at = pages->buckets[hash & pages->bucket_mask];
  for (; at != NONE; at = pages->pages[at].next) {
    const struct page *page = &pages->pages[at];
    if (page->hash == hash && page->parent == parent &&
        memcmp(tokens_of(pages, at), tokens, (size_t)pages->rows * sizeof *tokens) == 0)
      break;
  }
  return at;
}

static void content_add(struct pages *pages, int32_t at, uint64_t parent, const int32_t *tokens) {
  struct page *page = &pages->pages[at];
  page->content = ++pages->contents;
  page->parent = parent;
  page->hash = hash_of(pages, parent, tokens);
  memcpy(tokens_of(pages, at), tokens, (size_t)pages->rows * sizeof *tokens);
  int32_t *bucket = &pages->buckets[page->hash & pages->bucket_mask];
  page->next = *bucket;
  *bucket = at;
}

static void content_remove(struct pages *pages, int32_t at) {
  struct page *page = &pages->pages[at];
  if (!page->content) return;
  int32_t *link = &pages->buckets[page->hash & pages->bucket_mask];
  while (*link != at) link = &pages->pages[*link].next;
  *link = page->next;
  page->content = 0;
}

/* ---- Interface --------------------------------------------------------------------------------------------------- */

bool pages_open(struct pages *pages, int32_t count, int32_t rows) {
  uint32_t buckets = 1;
  while (buckets < (uint32_t)count) buckets *= 2;
  *pages = (struct pages){.count = count,
                          .rows = rows,
                          .first_unused = NONE,
                          .last_unused = NONE,
                          .pages = calloc((size_t)count, sizeof *pages->pages),
                          .tokens = calloc((size_t)count * (size_t)rows, sizeof *pages->tokens),
                          .buckets = malloc(buckets * sizeof *pages->buckets),
                          .bucket_mask = buckets - 1};
  if (!pages->pages || !pages->tokens || !pages->buckets) {
    pages_close(pages);
    return false;
  }
  for (uint32_t i = 0; i < buckets; i++) pages->buckets[i] = NONE;
  for (int32_t i = count - 1; i > 0; i--) unused_add(pages, i);
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
    const int32_t at = content_find(pages, parent, prompt + (int64_t)shared * pages->rows);
    if (at == NONE) break;
    parent = pages->pages[at].content;
    idle += pages->pages[at].users == 0;
    list[shared] = at;
  }
  if (total - shared > pages->unused - idle) return -1;
  bool in_order = pages->in_order && pages_used(pages) == 0;
  for (int32_t i = 0; i < shared; i++) {
    in_order = in_order && list[i] == i + 1;
    if (!pages->pages[list[i]].users++) unused_remove(pages, list[i]);
  }
  for (int32_t i = shared; i < total; i++) {
    list[i] = in_order ? i + 1 : pages->first_unused;
    unused_remove(pages, list[i]);
    content_remove(pages, list[i]);
    pages->pages[list[i]].users = 1;
  }
  return shared;
}

int32_t pages_take_filled(struct pages *pages, const int32_t *prompt, int32_t prompt_count, int32_t done,
                          int32_t *list) {
  const int32_t whole = (prompt_count - 1) / pages->rows;
  int32_t found = 0;
  uint64_t parent = 0;
  for (; found < whole; found++) {
    const int32_t at = content_find(pages, parent, prompt + (int64_t)found * pages->rows);
    if (at == NONE) break;
    parent = pages->pages[at].content;
    if ((found + 1) * pages->rows <= done || list[found] == at) continue;
    if (!pages->pages[at].users++) unused_remove(pages, at);
    pages_give(pages, &list[found], 1);
    list[found] = at;
  }
  return found;
}

void pages_share(struct pages *pages, const int32_t *tokens, int32_t count, const int32_t *list) {
  uint64_t parent = 0;
  for (int32_t i = 0; i < count / pages->rows; i++, tokens += pages->rows) {
    const struct page *page = &pages->pages[list[i]];
    if (!page->content) {
      const int32_t same = content_find(pages, parent, tokens);
      if (same == NONE)
        content_add(pages, list[i], parent, tokens);
      else
        page = &pages->pages[same];
    }
    parent = page->content;
  }
}

void pages_give(struct pages *pages, const int32_t *list, int32_t count) {
  /* The last first: a text's first pages stay longest. */
  for (int32_t i = count - 1; i >= 0; i--)
    if (!--pages->pages[list[i]].users) unused_add(pages, list[i]);
}
