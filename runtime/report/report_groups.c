/* report_groups.c - tasks by the beginnings of their names, such as "layer3.", and which of these groups are alike: see
 * report.h. */
#include <assert.h>
#include <string.h>

#include "../cutter.h"
#include "report.h"

struct work {
  uint32_t *table; /* of groups, by the hash of their names or of what they are; NO_GROUP: free */
  uint64_t table_size;
};

static void cut_all(struct cutter *cutter, uint32_t task_count, struct report_groups *groups, struct work *work) {
  work->table_size = UINT64_C(2) * task_count + 1;
  groups->groups = cut(cutter, task_count * sizeof *groups->groups);
  groups->group_of = cut(cutter, task_count * sizeof *groups->group_of);
  groups->number_of = cut(cutter, task_count * sizeof *groups->number_of);
  groups->members = cut(cutter, task_count * sizeof *groups->members);
  work->table = cut(cutter, work->table_size * sizeof *work->table);
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
  return hash;
}

static const uint64_t hash_begin = UINT64_C(0xcbf29ce484222325);

/* The group of that name, made where there is none. */
static uint32_t find_group(struct report_groups *groups, const struct work *work, const char *name, size_t length) {
  assert(work->table_size > 0);
  uint64_t slot = hash_bytes(hash_begin, name, length) % work->table_size;
  for (;; slot = (slot + 1) % work->table_size) {
    uint32_t g = work->table[slot];
    if (g == NO_GROUP) break;
    if (groups->groups[g].name_length == length && !memcmp(groups->groups[g].name, name, length)) return g;
  }
  work->table[slot] = groups->count;
  groups->groups[groups->count] = (struct report_group){.name = name, .name_length = length, .hash = hash_begin};
  return groups->count++;
}

/* A task without its group's name. */
static uint64_t hash_task(const rondo_graph *graph, const struct task *task, size_t name_length, uint64_t hash) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task op_task = graph_op_task(graph, task, operands);
  struct traffic traffic = traffic_of(&op_task);
  hash = hash_bytes(hash, task->name + name_length, strlen(task->name + name_length) + 1);
  hash = hash_bytes(hash, &task->op, sizeof task->op);
  hash = hash_bytes(hash, &traffic.read_bytes, sizeof traffic.read_bytes);
  return hash_bytes(hash, &traffic.written_bytes, sizeof traffic.written_bytes);
}

static void put_tasks(const rondo_graph *graph, struct report_groups *groups, const struct work *work) {
  for (uint32_t t = 0; t < graph->task_count; t++) {
    const struct task *task = &graph->tasks[t];
    size_t length = report_group_length(task->name);
    groups->group_of[t] = length ? find_group(groups, work, task->name, length) : NO_GROUP;
    if (!length) continue;
    struct report_group *group = &groups->groups[groups->group_of[t]];
    groups->number_of[t] = group->member_count++;
    group->hash = hash_task(graph, task, length, group->hash);
  }
  for (uint32_t g = 0, used = 0; g < groups->count; used += groups->groups[g++].member_count)
    groups->groups[g].first_member = used;
  for (uint32_t t = 0; t < graph->task_count; t++)
    if (groups->group_of[t] != NO_GROUP)
      groups->members[groups->groups[groups->group_of[t]].first_member + groups->number_of[t]] = t;
}

static bool are_alike(const struct report_group *a, const struct report_group *b) {
  return a->hash == b->hash && a->member_count == b->member_count;
}

static void find_alike(struct report_groups *groups, const struct work *work) {
  assert(work->table_size > 0);
  for (uint64_t i = 0; i < work->table_size; i++) work->table[i] = NO_GROUP;
  for (uint32_t g = 0; g < groups->count; g++) {
    struct report_group *group = &groups->groups[g];
    uint64_t slot = group->hash % work->table_size;
    while (work->table[slot] != NO_GROUP && !are_alike(&groups->groups[work->table[slot]], group))
      slot = (slot + 1) % work->table_size;
    if (work->table[slot] == NO_GROUP) work->table[slot] = g;
    struct report_group *first = &groups->groups[work->table[slot]];
    group->alike = work->table[slot];
    first->alike_count++;
    first->last_alike = g;
  }
}

rondo_status report_groups_make(const rondo_graph *graph, struct report_groups *groups) {
  struct work work;
  struct cutter cutter = {0};
  *groups = (struct report_groups){0};
  cut_all(&cutter, graph->task_count, groups, &work);
  groups->memory_bytes = cutter.used;
  rondo_status status = memory_take_for_now(graph->source, cutter.used, "a report", &groups->memory);
  if (status != RONDO_OK) return status;
  cutter = (struct cutter){groups->memory, 0};
  cut_all(&cutter, graph->task_count, groups, &work);
  for (uint64_t i = 0; i < work.table_size; i++) work.table[i] = NO_GROUP;
  put_tasks(graph, groups, &work);
  find_alike(groups, &work);
  return RONDO_OK;
}

void report_groups_drop(const rondo_graph *graph, struct report_groups *groups) {
  memory_give(graph->source, groups->memory, groups->memory_bytes);
}
