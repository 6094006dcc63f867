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

/* A summary of those accesses of a group that a task may still have to wait for. */
struct access_group {
  struct box around;            /* all boxes */
  struct box common;            /* the largest `low` and the lowest `high`: what all boxes share, if they do */
  struct chain_heights heights; /* a task with these heights follows all accesses */
  uint32_t losses;              /* of the chains, when the heights were computed */
  uint32_t least;               /* elements of the smallest box */
  bool is_stale;                /* the heights must be computed again */
  bool is_open;                 /* the height of some access is not known */
};

struct access_list {
  struct access *items;
  struct access_group *groups[ACCESS_LEVELS]; /* NULL: one group holds all of the level below */
  uint32_t *buckets;                          /* by box, if there are groups: the last access put there */
  uint32_t bucket_count;                      /* a power of two */
  uint32_t count, alive_count;                /* of items; of those without NO_UNIT */
  bool has_only_boxes;                        /* each access has all elements of its box */
};

/* The memory of all lists, one after the other. It is enough for this number of accesses, however they are spread. */
struct access_room {
  struct access *items;
  struct access_group *groups;
  uint32_t *buckets;
};
struct access_room access_room_cut(struct cutter *cutter, uint64_t access_count);

/* An empty list with room for `most` accesses. */
struct access_list access_list_lay(struct access_room *room, uint32_t most);

void access_list_put(struct access_list *list, const struct tensor *tensor, uint32_t index, uint32_t task,
                     struct chains *chains);

/* Drops the accesses whose elements are all the tensor's too. Returns whether there was one. `found` has room for all
 * accesses. */
bool access_list_drop(struct access_list *list, const rondo_graph *graph, const struct tensor *tensor, uint32_t *found);

/* Writes the accesses that share an element with the tensor into `found`, from the last to the first, and returns how
 * many they are. With chains it omits those that are known to come before the current unit, and adds each one that it
 * finds to the unit's predecessors. With `except` it omits those whose box lies in that box. */
uint32_t access_list_find(const struct access_list *list, const rondo_graph *graph, const struct tensor *tensor,
                          struct chains *chains, const struct box *except, uint32_t *found);

/* Does each access share an element with the tensor? May be false where boxes alone cannot tell. */
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
