/* test_graph_attention.c - the ready-made graph of an attention, prefill and decode, against double precision, and the
 * sizes that it refuses. */
#include <criterion/criterion.h>
#include <math.h>

#include "../oracles/attention_run.h"
#include <rondo_graphs.h>

static void ready_made(rondo_backend backend) {
  for (int decode_step = 0; decode_step < 2; decode_step++) {
    static const int32_t some[] = {300, 17};
    struct attention a = {.dtype = RONDO_BF16,
                          .layout = decode_step ? RONDO_BSHD : RONDO_BHSD,
                          .batch = 2,
                          .query_heads = 6,
                          .kv_heads = 2,
                          .query_length = decode_step ? 1 : 70,
                          .capacity = 300,
                          .dimension = 64,
                          .causal = 1,
                          .splits = decode_step ? 3 : 0,
                          .lengths = decode_step ? some : NULL,
                          .lse_wanted = decode_step};
    struct trial trial;
    struct random random = {19};
    rondo_graph_attention_tensors tensors;
    trial_describe(&trial, backend);
    REQUIRE_OK(rondo_graph_attention(trial.graph,
                                     &(rondo_graph_attention_desc){.dtype = a.dtype,
                                                                   .layout = a.layout,
                                                                   .batch = a.batch,
                                                                   .query_heads = a.query_heads,
                                                                   .kv_heads = a.kv_heads,
                                                                   .query_length = a.query_length,
                                                                   .kv_length = a.capacity,
                                                                   .head_dimension = a.dimension,
                                                                   .causal = 1,
                                                                   .splits = a.splits,
                                                                   .kv_is_state = decode_step,
                                                                   .with_lengths = decode_step,
                                                                   .with_lse = decode_step},
                                     &tensors));
    cr_expect((tensors.lse.graph != NULL) == decode_step && (tensors.kv_lengths.graph != NULL) == decode_step);
    a.q = tensors.q, a.k = tensors.k, a.v = tensors.v, a.o = tensors.o, a.lse = tensors.lse;
    trial_instantiate(&trial);
    attention_fill(&a, &random);
    trial_set(&trial, a.q, a.q_memory);
    trial_set(&trial, a.k, a.k_memory);
    trial_set(&trial, a.v, a.v_memory);
    if (decode_step) trial_set(&trial, tensors.kv_lengths, some);
    trial_replay(&trial);
    attention_get(&a, &trial);
    attention_check(&a);
    attention_free(&a);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(graph_attention, prefill_and_decode_agree_with_double_precision, ready_made)

Test(graph_attention, refuses_bad_sizes_before_it_adds_anything) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  const rondo_graph_attention_desc good = {.dtype = RONDO_F16,
                                           .batch = 1,
                                           .query_heads = 4,
                                           .kv_heads = 2,
                                           .query_length = 3,
                                           .kv_length = 5,
                                           .head_dimension = 64};
  rondo_graph_attention_tensors tensors;
  rondo_task task;
  rondo_plan before, after;
  REQUIRE_OK(rondo_plan_graph(trial.graph, &before));
#define REFUSED(fragment, field, value)                                                                                \
  do {                                                                                                                 \
    rondo_graph_attention_desc desc = good;                                                                            \
    desc.field = value;                                                                                                \
    REQUIRE_ERROR(rondo_graph_attention(trial.graph, &desc, &tensors), RONDO_INVALID_ARGUMENT, fragment);              \
  } while (0)
  REFUSED("rondo_graph_attention: task 0 'attention': q is f32, expected f16, bf16 or e4m3 (q: input 'attention q')",
          dtype, RONDO_F32);
  REFUSED("rondo_graph_attention: task 0 'attention': layout is 2, expected RONDO_BHSD or RONDO_BSHD", layout,
          (rondo_head_layout)2);
  REFUSED("q has head dimension 80, expected 32, 64, 128 or 256", head_dimension, 80);
  REFUSED("k has 3 heads, q has 4: query heads must be a multiple (k: input 'attention k')", kv_heads, 3);
  REFUSED("rondo_graph_attention: tensor 'attention k': dimension 2 is -1", kv_length, -1);
  REFUSED("splits is 1000", splits, 1000);
  REFUSED("scale is inf", scale, INFINITY);
#undef REFUSED
  REQUIRE_ERROR(rondo_graph_attention(trial.graph, NULL, &tensors), RONDO_INVALID_ARGUMENT, "the description is NULL");
  REQUIRE_ERROR(rondo_graph_attention(trial.graph, &good, NULL), RONDO_INVALID_ARGUMENT,
                "the tensors' address is NULL");
  REQUIRE_ERROR(rondo_last_task(trial.graph, &task), RONDO_INVALID_STATE, "no task");
  REQUIRE_OK(rondo_plan_graph(trial.graph, &after));
  cr_expect_eq(after.pinned_bytes_per_slot, before.pinned_bytes_per_slot);
  trial_end(&trial);
}
