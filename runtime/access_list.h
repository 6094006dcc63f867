/* access_list.h - the reads and writes of one tensor that a later task may still have to wait for. */
#pragma once

#include "chains.h"
#include "graph.h"

enum { NO_UNIT = UINT32_MAX };

struct access {
  struct box box;  /* the tensor's */
  uint32_t tensor; /* whose elements they are */
  uint32_t task;   /* NO_UNIT: no task has to wait for it any more */
  uint32_t next;   /* of the same bucket */
};

/* Accesses lie in groups, and groups in groups of groups, in the order of their tasks and with a box around each.
 * Successive tasks mostly touch neighbours, or follow the same tasks. So a search skips nearly all accesses by a look
 * at a group. */
enum { ACCESS_GROUP = 64, ACCESS_LEVELS = 2 };

/* Of what is alive in it. */
struct access_group {
  struct box around;
  struct box common; /* the largest `low` and the lowest `high`: where all overlap, what they have in common */
  struct chain_heights heights; /* a task with these heights follows all of the group */
  uint32_t losses;              /* of the chains, when the heights were found */
  uint32_t least;               /* elements of a box */
  bool is_stale;                /* the heights are to be found */
  bool is_open;                 /* of some access no height is known */
};

struct access_list {
  struct access *items;
  struct access_group *groups[ACCESS_LEVELS]; /* NULL: there cannot become more than a group below */
  uint32_t *buckets;                          /* by box, where there are groups: the last put there */
  uint32_t bucket_count;                      /* a power of two */
  uint32_t count, alive_count;
  bool has_only_boxes; /* no access of elements that are not all of their box */
};

/* The memory of all lists, one after the other. It is enough for this number of accesses, however they are spread. */
struct access_room {
  struct access *items;
  struct access_group *groups;
  uint32_t *buckets;
};
struct access_room access_room_cut(struct cutter *cutter, uint64_t access_count);

/* An empty list that can become as long as `most`. */
struct access_list access_list_lay(struct access_room *room, uint32_t most);

void access_list_put(struct access_list *list, const struct tensor *tensor, uint32_t index, uint32_t task,
                     struct chains *chains);

/* Drops all accesses that have no element beside the tensor's. Says whether there was one. `found` has room for all. */
bool access_list_drop(struct access_list *list, const rondo_graph *graph, const struct tensor *tensor, uint32_t *found);

/* Into `found`, from the last to the first: the accesses that have an element of the tensor. Returns how many. With
 * chains: those that do not come before what is at hand by what is known of it and by those found before; they are
 * added to it. With a box: not all that lie in it. */
uint32_t access_list_find(const struct access_list *list, const rondo_graph *graph, const struct tensor *tensor,
                          struct chains *chains, const struct box *except, uint32_t *found);

/* Have all accesses an element of the tensor? False where that is more than a look. */
bool access_list_all_overlap(const struct access_list *list, const struct tensor *tensor);

static inline uint64_t box_elements(const struct box *box) {
  uint64_t elements = 1;
  for (int d = 0; d < RONDO_MAX_RANK; d++) elements *= box->high[d] - box->low[d];
  return elements;
}

static inline bool box_covers(const struct box *whole, const struct box *part) {
  bool inside = true;
  for (int i = 0; i < RONDO_MAX_RANK; i++) inside &= whole->low[i] <= part->low[i];
  for (int i = 0; i < RONDO_MAX_RANK; i++) inside &= part->high[i] <= whole->high[i];
  return inside;
}
