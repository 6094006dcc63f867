/* report_profile.c - the results of rondo_profile, as a table and as a trace for Perfetto. Numbers are written as
 * integers, since some locales have a comma for the decimal point. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../text.h"
#include "report.h"

static rondo_status open_report(struct report *report, const rondo_task_profile *tasks,
                                const rondo_profile_totals *totals, const char *path, const char *function) {
  if (!totals || (!tasks && totals->task_count))
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the %s NULL", function, totals ? "tasks are" : "totals are");
  for (uint32_t i = 0; i < totals->task_count; i++)
    if (!tasks[i].operation)
      return status_set(RONDO_INVALID_ARGUMENT, "%s: the operation of task %u is NULL", function, i);
  return report_open(report, path, function);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

enum { NUMBER_TEXT = 32 };

/* A number of thousandths, with `digits` digits after the point. */
static const char *decimal(uint64_t thousandths, int digits, char text[NUMBER_TEXT]) {
  static const uint64_t units[] = {1000, 100, 10, 1};
  uint64_t unit = units[digits], rounded = (thousandths + unit / 2) / unit;
  uint64_t one = 1000 / unit;
  if (digits)
    snprintf(text, NUMBER_TEXT, "%" PRIu64 ".%0*" PRIu64, rounded / one, digits, rounded % one);
  else
    snprintf(text, NUMBER_TEXT, "%" PRIu64, rounded);
  return text;
}

/* Products of two numbers of 64 bits: rates in whole numbers, which no thread's floating-point state changes. */
typedef unsigned __int128 wide;
static const uint64_t ns_a_second = 1000000000;

/* Thousandths of a part in a whole. */
static uint64_t per_mille(wide part, wide whole) {
  return whole > 0 ? (uint64_t)((1000 * part + whole / 2) / whole) : 0;
}

static uint64_t bytes_per_second(const rondo_task_profile *task) {
  return task->time_ns ? (uint64_t)((wide)(task->bytes + task->bus_bytes) * ns_a_second / task->time_ns) : 0;
}

/* Of the bandwidth that a copy has: by the bytes of the device's memory alone. */
static uint64_t reached_per_mille(const rondo_task_profile *task, const rondo_profile_totals *totals) {
  if (!task->time_ns) return 0;
  return per_mille((wide)task->bytes * ns_a_second, (wide)task->time_ns * totals->bytes_per_second);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static void write_totals(FILE *file, const rondo_profile_totals *totals) {
  char a[NUMBER_TEXT], b[NUMBER_TEXT], bytes[BYTES_TEXT];
  text_write(file, totals->device_name, "");
  fputs(": ", file);
  if (totals->bytes_per_second)
    fprintf(file, "a copy of %s moves %s GB/s, read and written\n", report_bytes(totals->copy_bytes, bytes),
            decimal(totals->bytes_per_second / 1000000, 1, a));
  else if (totals->copy_bytes)
    fprintf(file, "the bandwidth was not seen: a copy of %s took no longer than the launch\n",
            report_bytes(totals->copy_bytes, bytes));
  else
    fputs("the bandwidth was not measured: there was no memory for a large copy\n", file);
  fprintf(file, "a whole replay takes %s us, of which a launch of next to nothing takes %s us\n",
          decimal(totals->replay_ns, 3, a), decimal(totals->launch_ns, 3, b));
  fprintf(file, "%u %s %s us one after the other, %s us along the longest path of edges\n\n", totals->task_count,
          totals->task_count == 1 ? "task or copy takes" : "tasks and copies take", decimal(totals->tasks_ns, 3, a),
          decimal(totals->path_ns, 3, b));
}

/* Operations and tasks, which end a line. */
static void write_names(FILE *file, const rondo_task_profile *task) {
  const size_t operation_width = 18;
  text_write(file, task->operation, "");
  for (size_t width = strlen(task->operation); width < operation_width; width++) fputc(' ', file);
  fputs("  ", file);
  text_write(file, task->name, "");
  fputc('\n', file);
}

static void write_task(FILE *file, uint32_t rank, const rondo_task_profile *task, const rondo_profile_totals *totals) {
  char time[NUMBER_TEXT], share[NUMBER_TEXT], bytes[BYTES_TEXT], bus[BYTES_TEXT], rate[NUMBER_TEXT],
      reached[NUMBER_TEXT];
  decimal(per_mille((wide)task->time_ns * 100, totals->tasks_ns), 1, share);
  snprintf(rate, sizeof rate, "-");
  snprintf(reached, sizeof reached, "-");
  if (task->time_ns) decimal(bytes_per_second(task) / 1000000, 1, rate);
  if (task->time_ns && totals->bytes_per_second) decimal(100 * reached_per_mille(task, totals), 1, reached);
  fprintf(file, "%5u  %12s  %6s  %10s  %10s  %8s  %8s  ", rank, decimal(task->time_ns, 3, time), share,
          report_bytes(task->bytes, bytes), task->bus_bytes ? report_bytes(task->bus_bytes, bus) : "-", rate, reached);
  write_names(file, task);
}

/* An entry of the list by which tasks are ranked. */
struct rank {
  uint64_t time_ns;
  uint32_t task; /* of an operation: the first */
  uint32_t count;
};

static int compare_ranks(const void *left, const void *right) {
  const struct rank *a = left, *b = right;
  if (a->time_ns != b->time_ns) return a->time_ns > b->time_ns ? -1 : 1;
  return a->task < b->task ? -1 : 1;
}

/* All tasks of an operation together, those that take longest first. */
static void write_operations(FILE *file, const rondo_task_profile *tasks, const rondo_profile_totals *totals,
                             struct rank *ranks) {
  uint32_t used = 0;
  for (uint32_t i = 0; i < totals->task_count; i++) {
    uint32_t o = 0;
    while (o < used && strcmp(tasks[ranks[o].task].operation, tasks[i].operation) != 0) o++;
    if (o == used) ranks[used++] = (struct rank){0, i, 0};
    ranks[o].time_ns += tasks[i].time_ns;
    ranks[o].count++;
  }
  if (used) qsort(ranks, used, sizeof *ranks, compare_ranks);
  fprintf(file, "%5s  %12s  %6s  %s\n", "tasks", "time (us)", "%", "operation");
  for (uint32_t o = 0; o < used; o++) {
    char time[NUMBER_TEXT], share[NUMBER_TEXT];
    fprintf(file, "%5u  %12s  %6s  ", ranks[o].count, decimal(ranks[o].time_ns, 3, time),
            decimal(per_mille((wide)ranks[o].time_ns * 100, totals->tasks_ns), 1, share));
    text_write(file, tasks[ranks[o].task].operation, "");
    fputc('\n', file);
  }
  fputc('\n', file);
}

static void write_tasks(FILE *file, const rondo_task_profile *tasks, const rondo_profile_totals *totals,
                        struct rank *ranks) {
  for (uint32_t i = 0; i < totals->task_count; i++) ranks[i] = (struct rank){tasks[i].time_ns, i, 1};
  if (totals->task_count) qsort(ranks, totals->task_count, sizeof *ranks, compare_ranks);
  fprintf(file, "%5s  %12s  %6s  %10s  %10s  %8s  %8s  %-18s  %s\n", "rank", "time (us)", "%", "memory", "bus", "GB/s",
          "% copy's", "operation", "task");
  for (uint32_t i = 0; i < totals->task_count; i++) write_task(file, i + 1, &tasks[ranks[i].task], totals);
}

rondo_status rondo_write_profile(const rondo_task_profile *tasks, const rondo_profile_totals *totals,
                                 const char *path) {
  struct report report;
  struct memory_source anywhere = {0};
  void *memory = NULL;
  rondo_status status = open_report(&report, tasks, totals, path, "rondo_write_profile");
  if (status != RONDO_OK) return status;
  uint64_t bytes = (totals->task_count + UINT64_C(1)) * sizeof(struct rank);
  status = memory_take(anywhere, bytes, "a report", &memory);
  if (status != RONDO_OK) {
    fclose(report.file);
    return status_set(status, "rondo_write_profile: %s", rondo_error_text());
  }
  write_totals(report.file, totals);
  write_operations(report.file, tasks, totals, memory);
  write_tasks(report.file, tasks, totals, memory);
  memory_give(anywhere, memory, bytes);
  return report_close(&report);
}

/* ---- The trace ----------------------------------------------------------------------------------------------------
 * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: complete events ("X") and names
 * ("M"); times are microseconds. */

static const char json_escaped[] = "\"\\";

enum { REPLAY_ROW = 1, CHAIN_ROW = 2, FIRST_EDGE_ROW = 3, EDGE_ROWS = 128 };

static void write_row_name(FILE *file, int row, const char *name, int number) {
  fprintf(file, "{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s", row, name);
  if (number) fprintf(file, " (%d)", number);
  fprintf(file,
          "\"}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}},\n",
          row, row);
}

static void write_event(FILE *file, int row, const char *name, const char *category, uint64_t begin_ns,
                        uint64_t time_ns) {
  char begin[NUMBER_TEXT], time[NUMBER_TEXT];
  fprintf(file, "{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"name\":\"", row);
  text_write(file, *name ? name : " ", json_escaped);
  fputs("\",\"cat\":\"", file);
  text_write(file, category, json_escaped);
  fprintf(file, "\",\"ts\":%s,\"dur\":%s", decimal(begin_ns, 3, begin), decimal(time_ns, 3, time));
}

static void write_task_event(FILE *file, int row, uint64_t begin_ns, const rondo_task_profile *task,
                             const rondo_profile_totals *totals) {
  char rate[NUMBER_TEXT], reached[NUMBER_TEXT];
  write_event(file, row, task->name, task->operation, begin_ns, task->time_ns);
  fputs(",\"args\":{\"operation\":\"", file);
  text_write(file, task->operation, json_escaped);
  fprintf(file,
          "\",\"bytes\":%" PRIu64 ",\"bus_bytes\":%" PRIu64 ",\"GB/s\":%s,"
          "\"%% of a copy's bandwidth\":%s}},\n",
          task->bytes, task->bus_bytes, decimal(bytes_per_second(task) / 1000000, 3, rate),
          decimal(100 * reached_per_mille(task, totals), 1, reached));
}

static void write_by_edges(FILE *file, const rondo_task_profile *tasks, const rondo_profile_totals *totals) {
  uint64_t free_from_ns[EDGE_ROWS] = {0};
  int used = 0;
  for (uint32_t i = 0; i < totals->task_count; i++) {
    int row = 0, soonest = 0;
    while (row < used && free_from_ns[row] > tasks[i].begin_ns) {
      if (free_from_ns[row] < free_from_ns[soonest]) soonest = row;
      row++;
    }
    if (row == EDGE_ROWS) row = soonest; /* the most rows side by side */
    if (row == used) write_row_name(file, FIRST_EDGE_ROW + used++, "tasks, as early as their edges allow", row + 1);
    uint64_t begin_ns = tasks[i].begin_ns > free_from_ns[row] ? tasks[i].begin_ns : free_from_ns[row];
    free_from_ns[row] = begin_ns + tasks[i].time_ns;
    write_task_event(file, FIRST_EDGE_ROW + row, begin_ns, &tasks[i], totals);
  }
}

rondo_status rondo_write_trace(const rondo_task_profile *tasks, const rondo_profile_totals *totals, const char *path) {
  struct report report;
  rondo_status status = open_report(&report, tasks, totals, path, "rondo_write_trace");
  if (status != RONDO_OK) return status;
  FILE *file = report.file;
  fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{"
        "\"name\":\"Rondo: ",
        file);
  text_write(file, totals->device_name, json_escaped);
  fputs("\"}},\n", file);
  write_row_name(file, REPLAY_ROW, "a whole replay, as the host sees it", 0);
  write_row_name(file, CHAIN_ROW, "tasks, one after the other", 0);
  uint64_t begin_ns = 0;
  for (uint32_t i = 0; i < totals->task_count; i++) {
    write_task_event(file, CHAIN_ROW, begin_ns, &tasks[i], totals);
    begin_ns += tasks[i].time_ns;
  }
  write_by_edges(file, tasks, totals);
  write_event(file, REPLAY_ROW, "replay", "replay", 0, totals->replay_ns);
  fprintf(file, ",\"args\":{\"launch_ns\":%" PRIu64 ",\"tasks_ns\":%" PRIu64 ",\"path_ns\":%" PRIu64 "}}\n]}\n",
          totals->launch_ns, totals->tasks_ns, totals->path_ns);
  return report_close(&report);
}
