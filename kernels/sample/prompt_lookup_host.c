/* prompt_lookup_host.c - accepts drafted tokens and drafts the next ones, on the host: one item. */
#include "prompt_lookup.h"
#include "recent.h"

int64_t prompt_lookup_host_items(const struct op_task *task) {
  (void)task;
  return 1;
}

static bool is_stop(const struct op_call *call, int32_t token) {
  const int32_t *stops = call->data[LOOKUP_STOPS];
  for (int64_t i = 0; i < call->task->operands[LOOKUP_STOPS].shape[0]; i++)
    if (stops[i] == token) return true;
  return false;
}

/* How many tokens are accepted after position `base`. */
static int64_t accepted_count(const struct op_call *call, int64_t base, int64_t limit) {
  const int32_t *chosen = call->data[LOOKUP_CHOSEN], *tokens = call->data[LOOKUP_TOKENS];
  const int64_t rows = call->task->operands[LOOKUP_CHOSEN].shape[0];
  int64_t count = 1;
  while (count < rows && chosen[count - 1] == tokens[count] && !is_stop(call, chosen[count - 1]) &&
         base + count + 1 <= limit)
    count++;
  return count;
}

/* How many tokens up to `at` equal the last ones of the history. */
static int64_t match_length(const int32_t *history, int64_t at, int64_t end) {
  int64_t length = 0;
  while (length < LOOKUP_LONGEST && length <= at && history[at - length] == history[end - length]) length++;
  return length;
}

/* Drafts the tokens after history[end]. Returns the length of the match. */
static int64_t draft(const int32_t *history, int64_t end, int32_t *drafts, int64_t count) {
  int64_t longest = LOOKUP_SHORTEST - 1, found = -1;
  for (int64_t at = end - 1; at >= 0 && longest < LOOKUP_LONGEST; at--) {
    const int64_t length = match_length(history, at, end);
    if (length > longest) longest = length, found = at;
  }
  for (int64_t i = 0; i < count; i++) drafts[i] = history[found < 0 ? end : found + 1 + i % (end - found)];
  return found < 0 ? 0 : longest;
}

void prompt_lookup_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_operand *operands = call->task->operands;
  const int64_t rows = operands[LOOKUP_CHOSEN].shape[0], capacity = operands[LOOKUP_HISTORY].shape[0];
  const int32_t *chosen = call->data[LOOKUP_CHOSEN], *row = call->data[LOOKUP_LAST], *limits = call->data[LOOKUP_LIMIT];
  int32_t *tokens = call->data[LOOKUP_TOKENS], *position = call->data[LOOKUP_POSITION];
  int32_t *history = call->data[LOOKUP_HISTORY], *accepted = call->data[LOOKUP_ACCEPTED];
  if (first == last) return;
  const int64_t base = (int64_t)*position + (row ? *row : 0), limit = limits && *limits ? *limits : INT64_MAX;
  const int64_t count = accepted_count(call, base, limit), end = base + count;
  for (int64_t i = 0; i < rows; i++) accepted[i] = i < count ? chosen[i] : -1;
  for (int64_t i = 0; i < count; i++)
    if (base + 1 + i >= 0 && base + 1 + i < capacity) history[base + 1 + i] = chosen[i];
  const int64_t drafts = operands[LOOKUP_TOKENS].shape[0] - 1;
  int64_t matched = 0;
  *position = (int32_t)end;
  tokens[0] = chosen[count - 1];
  if (end >= 0 && end < capacity)
    matched = draft(history, end, tokens + 1, drafts);
  else
    for (int64_t i = 0; i < drafts; i++) tokens[1 + i] = tokens[0];
  const bool ends = end >= limit || is_stop(call, tokens[0]);
  *(int32_t *)call->data[LOOKUP_MATCHED] = ends ? -1 : (int32_t)matched;
}
