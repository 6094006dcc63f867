/* graph_llama_draft.c - drafted tokens in the ready-made Llama graph:
 *
 *     decode    token -> .. -> next -> lookup                    one row; lookup drafts what follows
 *     verify    token and drafts -> .. -> next -> lookup         as many rows; lookup also accepts
 *     prefill   prompt -> history;  prompt -> .. -> next -> lookup
 *
 * All of them leave the token, its drafts, the position and the history, so any of them can be the next replay. */
#include <inttypes.h>

#include "graph_llama.h"

rondo_status llama_draft_check(const rondo_graph_llama_desc *desc) {
  if (!desc->draft) return RONDO_OK;
  if (!desc->feed_back)
    return status_set(RONDO_INVALID_ARGUMENT, "draft is %" PRId32 ", expected 0 without feed_back", desc->draft);
  if (desc->sequences == 1 && !desc->page_rows && !desc->penalized && desc->ranks == 1) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "draft is %" PRId32 ", expected 0 with %s", desc->draft,
                    desc->sequences > 1 ? "several sequences"
                    : desc->page_rows   ? "page_rows"
                    : desc->penalized   ? "penalized"
                                        : "several ranks");
}

/* The rows of padding enter the history too, and later tokens overwrite them. */
static rondo_status prompt_append(const struct llama_builder *b) {
  char name[NAME_BYTES];
  return rondo_add_append(b->graph, &(rondo_append_desc){.name = llama_name(b, name, "history"),
                                                         .src = b->made->prompt,
                                                         .dst = b->made->history,
                                                         .position = b->position});
}

rondo_status llama_draft_add(const struct llama_builder *b) {
  rondo_graph_llama_tensors *made = b->made;
  const int64_t capacity = b->desc.context + LLAMA_MOST_TOKENS;
  char name[NAME_BYTES];
  rondo_status status =
      llama_resident_add(b, rondo_state, llama_name(b, name, "history"), RONDO_I32, 1, &capacity,
                         b->desc.lender ? b->desc.lender->history : (rondo_tensor){0}, &made->history);
  if (status != RONDO_OK) return status;
  if (made->prompt.graph) return prompt_append(b);
  status = llama_list_add(b, rondo_input, "stops", RONDO_I32, LLAMA_MOST_STOPS, &made->stops);
  return status == RONDO_OK ? llama_list_add(b, rondo_input, "limit", RONDO_I32, 1, &made->limit) : status;
}

rondo_status llama_lookup_add(const struct llama_builder *b, rondo_tensor chosen) {
  rondo_graph_llama_tensors *made = b->made;
  char name[NAME_BYTES];
  rondo_status status = llama_list_add(b, rondo_output, "matched", RONDO_I32, 1, &made->matched);
  if (status != RONDO_OK) return status;
  return rondo_add_prompt_lookup(b->graph, &(rondo_prompt_lookup_desc){.name = llama_name(b, name, "lookup"),
                                                                       .chosen = chosen,
                                                                       .tokens = made->token,
                                                                       .position = made->position,
                                                                       .last = made->last,
                                                                       .history = made->history,
                                                                       .stops = made->stops,
                                                                       .limit = made->limit,
                                                                       .accepted = made->next,
                                                                       .matched = made->matched});
}
