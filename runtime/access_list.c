/* access_list.c - see access_list.h. Accesses are kept in groups of 64 with a box around each group, so a search passes
 * over whole groups. */
#include "access_list.h"

#include <string.h>

#include "elements.h"

enum { NO_ACCESS = UINT32_MAX };

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

static uint32_t groups_of(uint32_t count) { return (count + ACCESS_GROUP - 1) / ACCESS_GROUP; }

/* A list has groups from 65 accesses on: at most one for 32 of them, and groups of groups at most one for 32 of those.
 */
struct access_room access_room_cut(struct cutter *cutter, uint64_t access_count) {
  uint64_t groups = access_count / 32, groups_of_groups = groups / 32;
  return (struct access_room){cut(cutter, access_count * sizeof(struct access)),
                              cut(cutter, (groups + groups_of_groups) * sizeof(struct access_group)),
                              cut(cutter, access_count * sizeof(uint32_t))};
}

struct access_list access_list_lay(struct access_room *room, uint32_t most) {
  struct access_list list = {.items = room->items, .has_only_boxes = true};
  room->items += most;
  if (most > ACCESS_GROUP) {
    list.bucket_count = UINT32_C(1) << (31 - __builtin_clz(most));
    list.buckets = room->buckets;
    room->buckets += list.bucket_count;
    memset(list.buckets, 0xff, list.bucket_count * sizeof *list.buckets);
  }
  for (int level = 0; level < ACCESS_LEVELS && most > ACCESS_GROUP; level++) {
    most = groups_of(most);
    list.groups[level] = room->groups;
    room->groups += most;
  }
  return list;
}

/* Level 0 is that of the accesses, level n that of groups[n - 1]. */
static uint32_t count_at(const struct access_list *list, int level) {
  uint32_t count = list->count;
  while (level-- > 0) count = groups_of(count);
  return count;
}

static int top_of(const struct access_list *list) {
  int level = 0;
  while (level < ACCESS_LEVELS && list->groups[level]) level++;
  return level;
}

/* What a group has below it, from `first` up to, but not including, what is returned. */
static uint32_t end_of_group(const struct access_list *list, int level, uint32_t index, uint32_t *first) {
  uint32_t count = count_at(list, level - 1);
  *first = index * ACCESS_GROUP;
  return count - *first < ACCESS_GROUP ? count : *first + ACCESS_GROUP;
}

static void group_grow(struct access_group *group, const struct box *around, const struct box *common, uint32_t least) {
  for (int d = 0; d < RONDO_MAX_RANK; d++) {
    if (around->low[d] < group->around.low[d]) group->around.low[d] = around->low[d];
    if (around->high[d] > group->around.high[d]) group->around.high[d] = around->high[d];
    if (common->low[d] > group->common.low[d]) group->common.low[d] = common->low[d];
    if (common->high[d] < group->common.high[d]) group->common.high[d] = common->high[d];
  }
  if (least < group->least) group->least = least;
}

/* Nothing overlaps it, and nothing covers a part of it. */
static struct access_group empty_group(const struct chains *chains) {
  struct access_group group = {.least = UINT32_MAX, .losses = chains ? chains->losses : 0, .is_stale = !chains};
  for (int d = 0; d < RONDO_MAX_RANK; d++) group.around.low[d] = group.common.high[d] = UINT32_MAX;
  return group;
}

/* Anew, of what is alive. */
static void group_shrink(struct access_list *list, int level, uint32_t index) {
  uint32_t i, end = end_of_group(list, level, index, &i);
  struct access_group group = empty_group(NULL);
  for (; i < end; i++) {
    const struct access_group *part = level > 1 ? &list->groups[level - 2][i] : NULL;
    const struct box *box = &list->items[i].box;
    if (part)
      group_grow(&group, &part->around, &part->common, part->least);
    else if (list->items[i].task != NO_UNIT)
      group_grow(&group, box, box, (uint32_t)box_elements(box));
  }
  list->groups[level - 1][index] = group;
}

/* ---- What comes before the task at hand -------------------------------------------------------------------------- */

/* Where some height was not known, another look soon would find no more. */
static bool is_fresh(const struct access_group *group, const struct chains *chains) {
  enum { LOSSES_TO_WAIT = 64 };
  return !group->is_stale && chains->losses - group->losses <= (group->is_open ? LOSSES_TO_WAIT : 0);
}

static void find_heights(const struct access_list *list, int level, uint32_t index, struct chains *chains) {
  struct access_group *group = &list->groups[level - 1][index];
  uint32_t i, end = end_of_group(list, level, index, &i), chain, height;
  if (is_fresh(group, chains)) return;
  group->heights = (struct chain_heights){0};
  group->losses = chains->losses;
  group->is_stale = group->is_open = false;
  for (; i < end && !group->is_open; i++) {
    if (level > 1) {
      find_heights(list, level - 1, i, chains);
      group->is_open = list->groups[level - 2][i].is_open;
      chain_heights_rise(&group->heights, &list->groups[level - 2][i].heights);
    } else if (list->items[i].task != NO_UNIT) {
      group->is_open = !chains_find(chains, list->items[i].task, &chain, &height);
      if (!group->is_open && height > group->heights.of[chain]) group->heights.of[chain] = height;
    }
  }
}

static bool group_comes_before(const struct access_list *list, int level, uint32_t index, struct chains *chains) {
  find_heights(list, level, index, chains);
  const struct access_group *group = &list->groups[level - 1][index];
  return !group->is_open && chain_heights_reach(&chains->now, &group->heights);
}

/* ---- Putting ----------------------------------------------------------------------------------------------------- */

static uint32_t *bucket_of(const struct access_list *list, const struct box *box) {
  uint64_t hash = 0;
  for (int d = 0; d < RONDO_MAX_RANK; d++)
    hash = (hash ^ ((uint64_t)box->low[d] << 32 | box->high[d])) * UINT64_C(0x9e3779b97f4a7c15);
  return &list->buckets[hash >> 32 & (list->bucket_count - 1)];
}

static void put_in_bucket(struct access_list *list, uint32_t number) {
  uint32_t *bucket = bucket_of(list, &list->items[number].box);
  list->items[number].next = *bucket;
  *bucket = number;
}

void access_list_put(struct access_list *list, const struct tensor *tensor, uint32_t index, uint32_t task,
                     struct chains *chains) {
  uint32_t number = list->count++, span = ACCESS_GROUP, chain, height;
  struct access *access = &list->items[number];
  *access = (struct access){tensor->box, index, task, NO_ACCESS};
  list->alive_count++;
  list->has_only_boxes &= tensor->is_box;
  if (!list->buckets) return;
  put_in_bucket(list, number);
  for (int level = 0; level < ACCESS_LEVELS && list->groups[level]; level++, span *= ACCESS_GROUP) {
    struct access_group *group = &list->groups[level][number / span];
    if (number % span == 0) *group = empty_group(chains);
    group_grow(group, &access->box, &access->box, (uint32_t)box_elements(&access->box));
    if (!is_fresh(group, chains) || group->is_open) continue;
    group->is_open = !chains_find(chains, task, &chain, &height);
    if (!group->is_open && height > group->heights.of[chain]) group->heights.of[chain] = height;
  }
}

/* ---- Finding ----------------------------------------------------------------------------------------------------- */

struct search {
  const struct access_list *list;
  const rondo_graph *graph;
  const struct tensor *tensor;
  struct chains *chains;
  const struct box *except;
  uint32_t *found, found_count;
};

static void find_items(struct search *search, uint32_t begin, uint32_t end) {
  const struct access_list *list = search->list;
  bool has_only_boxes = list->has_only_boxes && search->tensor->is_box;
  for (uint32_t i = end; i-- > begin;) {
    const struct access *access = &list->items[i];
    if (access->task == NO_UNIT || !boxes_overlap(&access->box, &search->tensor->box)) continue;
    if (search->except && box_covers(search->except, &access->box)) continue;
    if (!has_only_boxes && !elements_overlap(search->tensor, &search->graph->tensors[access->tensor])) continue;
    if (search->chains && chains_have(search->chains, access->task)) continue;
    if (search->chains) chains_add(search->chains, access->task);
    search->found[search->found_count++] = i;
  }
}

static void find_below(struct search *search, int level, uint32_t begin, uint32_t end) {
  if (level == 0) {
    find_items(search, begin, end);
    return;
  }
  for (uint32_t i = end; i-- > begin;) {
    const struct access_group *group = &search->list->groups[level - 1][i];
    if (!boxes_overlap(&group->around, &search->tensor->box)) continue;
    if (search->except && box_covers(search->except, &group->around)) continue;
    if (search->chains && group_comes_before(search->list, level, i, search->chains)) continue;
    uint32_t first, last = end_of_group(search->list, level, i, &first);
    find_below(search, level - 1, first, last);
  }
}

uint32_t access_list_find(const struct access_list *list, const rondo_graph *graph, const struct tensor *tensor,
                          struct chains *chains, const struct box *except, uint32_t *found) {
  struct search search = {list, graph, tensor, chains, except, found, 0};
  int top = top_of(list);
  find_below(&search, top, 0, count_at(list, top));
  return search.found_count;
}

bool access_list_all_overlap(const struct access_list *list, const struct tensor *tensor) {
  if (!list->has_only_boxes || !tensor->is_box) return false;
  int top = top_of(list);
  bool all = true;
  for (uint32_t i = 0; i < count_at(list, top) && all; i++) {
    if (!top && list->items[i].task == NO_UNIT) continue;
    const struct box *common = top ? &list->groups[top - 1][i].common : &list->items[i].box;
    for (int d = 0; d < RONDO_MAX_RANK; d++)
      all &= common->low[d] < tensor->box.high[d] && common->high[d] > tensor->box.low[d];
  }
  return all;
}

/* ---- Dropping ---------------------------------------------------------------------------------------------------- */

static bool is_droppable(const struct search *search, const struct access *access) {
  return access->task != NO_UNIT && box_covers(&search->tensor->box, &access->box) &&
         (search->tensor->is_box || elements_equal(search->tensor, &search->graph->tensors[access->tensor]));
}

/* Those whose box is the tensor's, or has as many elements. Takes what is dead out of the bucket. */
static void drop_equal(struct search *search) {
  struct access *items = search->list->items;
  for (uint32_t *next = bucket_of(search->list, &search->tensor->box); *next != NO_ACCESS;) {
    struct access *access = &items[*next];
    if (is_droppable(search, access)) {
      search->found[search->found_count++] = *next;
      access->task = NO_UNIT;
    }
    if (access->task == NO_UNIT)
      *next = access->next;
    else
      next = &access->next;
  }
}

/* Where there are groups, only those of smaller boxes. */
static void drop_covered(struct search *search, int level, uint32_t begin, uint32_t end) {
  const struct access_list *list = search->list;
  const struct box *box = &search->tensor->box;
  for (uint32_t i = end; i-- > begin;) {
    if (level == 0) {
      if (!is_droppable(search, &list->items[i])) continue;
      search->found[search->found_count++] = i;
      list->items[i].task = NO_UNIT;
      continue;
    }
    const struct access_group *group = &list->groups[level - 1][i];
    bool may_cover = group->least < box_elements(box) && boxes_overlap(&group->around, box);
    for (int d = 0; d < RONDO_MAX_RANK; d++)
      may_cover &= box->low[d] <= group->common.low[d] && group->common.high[d] <= box->high[d];
    if (!may_cover) continue;
    uint32_t first, last = end_of_group(list, level, i, &first);
    drop_covered(search, level - 1, first, last);
  }
}

/* So that a look at all is never a look at more than twice what is alive. */
static void close_gaps(struct access_list *list) {
  uint32_t count = list->count;
  list->count = 0;
  for (uint32_t i = 0; i < count; i++)
    if (list->items[i].task != NO_UNIT) list->items[list->count++] = list->items[i];
  if (!list->buckets) return;
  memset(list->buckets, 0xff, list->bucket_count * sizeof *list->buckets);
  for (uint32_t i = 0; i < list->count; i++) put_in_bucket(list, i);
  for (int level = 1; level <= top_of(list); level++)
    for (uint32_t i = 0; i < count_at(list, level); i++) group_shrink(list, level, i);
}

bool access_list_drop(struct access_list *list, const rondo_graph *graph, const struct tensor *tensor,
                      uint32_t *found) {
  struct search search = {.list = list, .graph = graph, .tensor = tensor, .found = found};
  int top = top_of(list);
  if (list->buckets) drop_equal(&search);
  if (!list->buckets || tensor->is_box) drop_covered(&search, top, 0, count_at(list, top));
  list->alive_count -= search.found_count;
  for (int level = 1; level <= top; level++)
    for (uint32_t f = 0; f < search.found_count; f++) {
      uint32_t group = found[f] /= ACCESS_GROUP;
      if (f == 0 || group != found[f - 1]) group_shrink(list, level, group);
    }
  if (2 * list->alive_count < list->count) close_gaps(list);
  return search.found_count > 0;
}
