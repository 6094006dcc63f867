/* llama_ranks.c - see llama_ranks.h. */
#include "llama_ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- A rank's part of the weights -------------------------------------------------------------------------------- */

struct range {
  int64_t first, count;
};

/* Of each of `ranks` equal parts of a range. */
static struct range part_of(int64_t first, int64_t count, int rank, int ranks) {
  return (struct range){first + count / ranks * rank, count / ranks};
}

/* Some rows of a matrix, one range behind the other, and of each the same columns. */
static struct matrix matrix_part(rondo_dtype dtype, const struct matrix *whole, int64_t columns,
                                 const struct range *rows, int ranges, struct range taken) {
  enum { GROUP = 16 /* nvfp4 codes of a scale */ };
  const size_t bits = rondo_dtype_bits(dtype), row_bytes = (size_t)taken.count * bits / 8;
  const size_t scale_bytes = dtype == RONDO_NVFP4 ? (size_t)taken.count / GROUP : sizeof(float);
  int64_t count = 0, to = 0;
  for (int i = 0; i < ranges; i++) count += rows[i].count;
  struct matrix part = {.codes = malloc((size_t)count * row_bytes), .scales = malloc((size_t)count * scale_bytes)};
  cr_assert(part.codes && part.scales);
  for (int i = 0; i < ranges; i++)
    for (int64_t row = rows[i].first; row < rows[i].first + rows[i].count; row++, to++) {
      const size_t first = (size_t)(row * columns + taken.first);
      const size_t scale = dtype == RONDO_NVFP4 ? first / GROUP : (size_t)row * sizeof(float);
      memcpy((char *)part.codes + (size_t)to * row_bytes, (const char *)whole->codes + first * bits / 8, row_bytes);
      memcpy((char *)part.scales + (size_t)to * scale_bytes, (const char *)whole->scales + scale, scale_bytes);
    }
  return part;
}

/* What rondo_graph_llama_desc says of ranks. Embedding and norms are the whole model's. */
static struct llama llama_part(const struct llama *l, int rank, int ranks) {
  const rondo_graph_llama_desc *desc = &l->desc;
  const int64_t query = desc->query_heads * desc->head_dimension, kv = desc->kv_heads * desc->head_dimension;
  const rondo_dtype of_weights = desc->weights == RONDO_NVFP4 ? RONDO_NVFP4 : desc->dtype;
  const struct range all_hidden = {0, desc->hidden}, vocabulary = part_of(0, VOCABULARY, rank, ranks);
  const struct range heads[] = {part_of(0, query, rank, ranks), part_of(query, kv, rank, ranks),
                                part_of(query + kv, kv, rank, ranks)};
  const struct range gated = part_of(0, desc->feed_forward, rank, ranks);
  const struct range gates = part_of(0, 2 * desc->feed_forward, rank, ranks);
  struct llama part = *l;
  part.head =
      matrix_part(desc->embedding ? desc->embedding : of_weights, &l->head, desc->hidden, &vocabulary, 1, all_hidden);
  for (int i = 0; i < LAYERS; i++) {
    part.qkv[i] = matrix_part(desc->weights, &l->qkv[i], desc->hidden, heads, 3, all_hidden);
    part.output[i] = matrix_part(desc->weights, &l->output[i], query, &all_hidden, 1, heads[0]);
    part.gate_up[i] = matrix_part(desc->weights, &l->gate_up[i], desc->hidden, &gates, 1, all_hidden);
    part.down[i] = matrix_part(desc->weights, &l->down[i], desc->feed_forward, &all_hidden, 1, gated);
  }
  return part;
}

static void part_free(struct llama *part) {
  free(part->head.codes), free(part->head.scales);
  for (int i = 0; i < LAYERS; i++) {
    struct matrix *parts[] = {&part->qkv[i], &part->output[i], &part->gate_up[i], &part->down[i]};
    for (int p = 0; p < 4; p++) free(parts[p]->codes), free(parts[p]->scales);
  }
}

/* ---- The group --------------------------------------------------------------------------------------------------- */

/* The states for the largest exchange of all graphs, each in a graph of its own. */
static void exchanges_describe(struct llama_ranks *r, rondo_backend backend, const rondo_graph_llama_desc *descs,
                               int graphs) {
  uint64_t most = 0, bytes;
  for (int g = 0; g < graphs; g++) {
    rondo_graph_llama_desc desc = descs[g];
    desc.ranks = (uint32_t)r->count;
    REQUIRE_OK(rondo_graph_llama_exchange_bytes(&desc, &bytes));
    most = bytes > most ? bytes : most;
  }
  for (int i = 0; i < r->count; i++) {
    trial_describe(&r->exchanges[i], backend);
    REQUIRE_OK(rondo_exchange_state(r->exchanges[i].graph, NULL, (uint32_t)r->count, most, &r->states[i]));
  }
}

static rondo_options options_of(struct llama_ranks *r, int rank, rondo_backend backend) {
  static int32_t devices; /* all that there are */
  rondo_graph *graphs[MOST_GRAPHS + 1] = {r->exchanges[rank].graph};
  struct machine *m = &r->machines[rank];
  const int skipped = r->count == 1; /* no exchange */
  rondo_plan plan;
  for (int g = 0; g < m->count; g++) graphs[1 + g] = m->trials[g].graph;
  REQUIRE_OK(rondo_plan_graphs(graphs + skipped, (uint32_t)(m->count + 1 - skipped), &plan));
  for (rondo_runtime *runtime; backend == RONDO_BACKEND_CUDA && devices <= rank; devices++) {
    if (rondo_open(&(rondo_options){.backend = backend, .device = devices}, &runtime) != RONDO_OK) break;
    REQUIRE_OK(rondo_close(&runtime));
  }
  return (rondo_options){.backend = backend,
                         .device = devices ? rank % devices : 0,
                         .device_bytes = plan.device_bytes,
                         .pinned_bytes = plan.pinned_bytes_per_slot + r->repeat_steps * plan.pinned_bytes_per_step,
                         .host_bytes = plan.host_bytes};
}

void llama_ranks_start(struct llama_ranks *r, rondo_backend backend, const struct llama *l,
                       const rondo_graph_llama_desc *descs, int graphs, int ranks) {
  rondo_options options[MOST_RANKS] = {{0}};
  rondo_runtime *runtimes[MOST_RANKS];
  *r = (struct llama_ranks){.count = ranks, .repeat_steps = r->repeat_steps};
  if (ranks > 1) exchanges_describe(r, backend, descs, graphs);
  for (int i = 0; i < ranks; i++) {
    for (int g = 0; g < graphs; g++) {
      rondo_graph_llama_desc desc = descs[g];
      desc.rank = (uint32_t)i, desc.ranks = (uint32_t)ranks, desc.exchange = r->states;
      machine_add(&r->machines[i], backend, desc);
    }
    options[i] = options_of(r, i, backend);
  }
  REQUIRE_OK(rondo_open_group(options, (uint32_t)ranks, runtimes));
  for (int i = 0; i < ranks && ranks > 1; i++) {
    r->exchanges[i].runtime = runtimes[i];
    REQUIRE_OK(rondo_instantiate(runtimes[i], r->exchanges[i].graph, NULL, &r->exchanges[i].exec));
  }
  for (int i = 0; i < ranks; i++) {
    struct llama part = llama_part(l, i, ranks);
    r->machines[i].repeat_steps = r->repeat_steps;
    machine_start_in(&r->machines[i], runtimes[i], &part);
    part_free(&part);
  }
}

static rondo_tensor member_of(const rondo_graph_llama_tensors *tensors, size_t member) {
  rondo_tensor tensor;
  memcpy(&tensor, (const char *)tensors + member, sizeof tensor);
  return tensor;
}

void llama_ranks_set(struct llama_ranks *r, int graph, size_t member, const void *data) {
  for (int i = 0; i < r->count; i++)
    trial_set(&r->machines[i].trials[graph], member_of(&r->machines[i].tensors[graph], member), data);
}

void llama_ranks_replay(struct llama_ranks *r, int graph) {
  rondo_slot slots[MOST_RANKS];
  for (int i = 0; i < r->count; i++) slots[i] = r->machines[i].trials[graph].slot;
  REQUIRE_OK(rondo_replay_all(slots, (uint32_t)r->count));
  REQUIRE_OK(rondo_wait_all(slots, (uint32_t)r->count, RONDO_FOREVER));
}

const void *llama_ranks_output(struct llama_ranks *r, int graph, size_t member) {
  const void *first = NULL;
  uint64_t bytes;
  for (int i = 0; i < r->count; i++) {
    const rondo_tensor tensor = member_of(&r->machines[i].tensors[graph], member);
    const void *output = trial_output(&r->machines[i].trials[graph], tensor);
    REQUIRE_OK(rondo_tensor_bytes(tensor, &bytes));
    if (i == 0) first = output;
    cr_assert(!memcmp(first, output, bytes), "rank %d has other bits than rank 0", i);
  }
  return first;
}

void llama_ranks_end(struct llama_ranks *r) {
  rondo_runtime *runtimes[MOST_RANKS];
  for (int i = 0; i < r->count; i++) {
    runtimes[i] = r->machines[i].trials[0].runtime;
    machine_end_graphs(&r->machines[i]);
  }
  for (int i = 0; i < r->count; i++) {
    if (r->count > 1) {
      REQUIRE_OK(rondo_close_exec(&r->exchanges[i].exec));
      REQUIRE_OK(rondo_graph_destroy(&r->exchanges[i].graph));
    }
    REQUIRE_OK(rondo_close(&runtimes[i]));
  }
}
