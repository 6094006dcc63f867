/* pages.h - who has which pages of the KV caches. A whole page of a prompt is shared by all sequences that begin with
 * the same tokens; pages that nobody uses keep their content until they are needed for other tokens. One thread at a
 * time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct page {
  int32_t users;            /* sequences that have it */
  TAILQ_ENTRY(page) unused; /* in the list of pages without users */
  LIST_ENTRY(page) alike;   /* with the same hash */
  uint64_t content;         /* number of the content, which is never used twice; 0: not to be shared */
  uint64_t parent;          /* the content of the page before it in its text; 0: it is the first */
  uint32_t hash;
};

TAILQ_HEAD(page_queue, page);
LIST_HEAD(page_list, page);

struct pages {
  int32_t count, rows;      /* pages, and tokens in one */
  int32_t unused_count;     /* pages without users, with content or not */
  struct page_queue unused; /* those, the longest unused first */
  bool in_order;            /* while nobody has a page, they are dealt out from page 1 on; set after pages_open */
  uint64_t contents;        /* numbers given so far */
  struct page *pages;
  int32_t *tokens;           /* [count, rows] of pages with content */
  struct page_list *buckets; /* pages with content, by their hashes */
  uint32_t bucket_mask;
};

/* Page 0 belongs to nobody: sequences without a request write there. False if there is no memory. */
bool pages_open(struct pages *pages, int32_t count, int32_t rows);
void pages_close(struct pages *pages);

/* Pages for `rows` rows, of which the first are a prompt. The list begins with pages that have the prompt's first
 * tokens already, but never its last token, which has to be processed to know what follows. Returns the number of those
 * pages; -1, and takes none, if there are too few. */
int32_t pages_take(struct pages *pages, const int32_t *prompt, int32_t prompt_count, int32_t rows, int32_t *list);
/* Once more for a prompt of which `done` tokens are in the caches: pages that others have filled since replace those of
 * the list. Returns how many pages at the prompt's beginning can be used, 0 if none. */
int32_t pages_take_filled(struct pages *pages, const int32_t *prompt, int32_t prompt_count, int32_t done,
                          int32_t *list);
/* Says that the caches have these tokens in the pages of the list: whole pages can be shared from now on. */
void pages_share(struct pages *pages, const int32_t *tokens, int32_t count, const int32_t *list);
void pages_give(struct pages *pages, const int32_t *list, int32_t count);

static inline int32_t pages_for(const struct pages *pages, int32_t rows) {
  return (int32_t)(((int64_t)rows + pages->rows - 1) / pages->rows);
}
static inline int32_t pages_used(const struct pages *pages) { return pages->count - 1 - pages->unused_count; }
