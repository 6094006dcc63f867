/* report.h - helpers of the reports: a file that is written whole or returned as an error, names that any XML or DOT
 * reader accepts, bytes in readable units, and groups of tasks by the beginnings of their names. */
#pragma once

#include <stdio.h>

#include "../plan.h"
#include "../traffic.h"

struct report {
  FILE *file;
  const char *path, *function;
};

rondo_status report_open(struct report *report, const char *path, const char *function);
rondo_status report_close(const struct report *report);
/* The same, of a graph with its plan. */
rondo_status report_open_plan(struct report *report, rondo_graph *graph, const char *path, const char *function,
                              const struct plan **plan);

/* Widths are in hundredths of the font's size: of the letters' widths no more than an upper estimate is known. */
enum { REPORT_NAME_WHOLE = INT32_MAX };

/* As text or attribute of XML, and so as an HTML-like label of DOT. What is no UTF-8, or no character that XML has,
 * becomes a replacement character; what is too wide ends with an ellipsis. */
void report_name(FILE *file, const char *name, int32_t width);
int32_t report_name_width(const char *name);

/* "17 B", "12.3 MiB". */
enum { BYTES_TEXT = 24 };
const char *report_bytes(uint64_t bytes, char text[BYTES_TEXT]);

/* How much of a name tells its group: "layer3" of "layer3.query.scale", "layers.3" of "layers.3.query"; 0: none. */
size_t report_group_length(const char *name);
const char *report_short_name(const char *name); /* the part after the group and its dot */

/* report_groups.c: tasks by the beginnings of their names, and groups that are alike: as many tasks, with the same ends
 * of names, operations and bytes, in the same order. */
struct report_groups {
  void *memory;
  uint64_t memory_bytes;
  uint32_t count;
  struct report_group {
    const char *name; /* of a task: the first name_length bytes are the group's */
    size_t name_length;
    uint32_t first_member, member_count;
    uint64_t hash;
    uint32_t alike;       /* the first group that is alike, perhaps itself */
    uint32_t alike_count; /* of that one: how many there are, it included */
    uint32_t last_alike;  /* of that one: the last */
  } * groups;
  uint32_t *group_of;  /* by task; NO_GROUP */
  uint32_t *number_of; /* by task: which of its group's members it is */
  uint32_t *members;   /* tasks, group by group, in their order */
};
enum { NO_GROUP = UINT32_MAX };
rondo_status report_groups_make(const rondo_graph *graph, struct report_groups *groups);
void report_groups_drop(const rondo_graph *graph, struct report_groups *groups);
