/* llama_run.c - an answer's tokens without the host in between (llama_model.h). A run is a repeat of the decode graph,
 * a token a replay, until the newest tokens stand earlier in the text too; or of the verify graph, as long as they do.
 * A replay of the latter takes about as long as two of the former. So drafts behind short matches are left alone once
 * fewer than two tokens a replay were right, until a run has more. */
#include <stdlib.h>
#include <string.h>

#include "../sample.h"
#include "llama_model.h"

enum { SHORTEST = 2, LONGEST = 8 /* tokens of a match, in rondo_add_prompt_lookup */ };

void llama_run_describe(struct llama *llama) {
  rondo_graph_llama_desc desc = llama->desc;
  llama->shortest = SHORTEST;
  if (!desc.draft) return;
  desc.verify = 1, desc.lender = &llama->decode.tensors;
  llama_step_describe(&llama->verify, &desc);
}

void llama_run_begin(struct llama *llama, int64_t most) {
  const bool verifies = llama->matched >= llama->shortest;
  const struct llama_step *step = verifies ? &llama->verify : &llama->decode;
  const int64_t left = llama->desc.context - llama->position, limit = llama->position + (most < left ? most : left);
  int32_t values[1 + LONGEST] = {-1}; /* of `matched`, that end the run */
  uint32_t count = 1;
  for (int32_t i = verifies ? 0 : llama->shortest; i <= (verifies ? llama->shortest - 1 : LONGEST); i++)
    values[count++] = i;
  *(int32_t *)rondo_data(step->slot, step->tensors.limit) = (int32_t)limit;
  TRY(rondo_repeat(step->slot,
                   &(rondo_repeat_options){
                       .count = LLAMA_RUN, .until = step->tensors.matched, .values = values, .value_count = count}));
  llama->running = llama->last = step, llama->taken = 0, llama->run_begin = llama->position;
}

/* Learns from a run how long a match has to be. */
static void end_run(struct llama *llama) {
  const bool pays = llama->position - llama->run_begin >= 2 * (int64_t)llama->taken;
  TRY(rondo_wait(llama->running->slot, RONDO_FOREVER));
  if (llama->running == &llama->verify && pays && llama->shortest > SHORTEST) llama->shortest--;
  if (llama->running == &llama->verify && !pays && llama->shortest < LONGEST) llama->shortest++;
  llama->running = NULL;
}

size_t llama_run_take(struct llama *llama, const int32_t **tokens) {
  const struct llama_step *step = llama->running;
  const size_t most = step == &llama->verify ? 1 + (size_t)llama->desc.draft : 1;
  size_t count = 0;
  uint32_t done;
  TRY(rondo_repeat_wait(step->slot, llama->taken + 1, RONDO_FOREVER, &done));
  if (done <= llama->taken) return end_run(llama), 0;
  const int32_t *next = rondo_repeat_data(step->slot, step->tensors.next, llama->taken);
  llama->matched = *(const int32_t *)rondo_repeat_data(step->slot, step->tensors.matched, llama->taken++);
  while (count < most && next[count] >= 0) count++;
  memcpy(llama->tokens + llama->position + 1, next, count * sizeof *next);
  llama->position += (int64_t)count;
  if (step == &llama->verify) llama->verified++, llama->drafted += count;
  *tokens = next;
  return count;
}

void llama_run_stop(struct llama *llama) { TRY(rondo_repeat_stop(llama->running->slot)); }

/* A graph without an exec: runs were found to be of no use after it was described. */
void llama_run_forget(struct llama *llama) {
  if (llama->runs || !llama->verify.graph) return;
  TRY(rondo_graph_destroy(&llama->verify.graph));
  free(llama->verify.tensors.layers);
}
