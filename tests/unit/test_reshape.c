/* test_reshape.c - tensors in other shapes: which shapes are accepted, which elements they have, and where those lie.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/elements.h"
#include "random_graph.h"

static rondo_graph *new_graph(void) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 16, .tasks = 4}, &graph));
  return graph;
}

Test(reshape, wrong_shapes_are_refused_with_what_was_expected) {
  rondo_graph *graph = new_graph(), *other = new_graph();
  rondo_tensor t, codes, view, r;
  REQUIRE_OK(rondo_state(graph, "t", RONDO_F32, 2, (int64_t[]){4, 6}, &t));
  REQUIRE_OK(rondo_state(graph, "codes", RONDO_NVFP4, 2, (int64_t[]){3, 6}, &codes));
  REQUIRE_OK(rondo_view(graph, t, (int64_t[]){0, 0}, (int64_t[]){4, 4}, &view));
  REQUIRE_ERROR(rondo_reshape(graph, t, 1, (int64_t[]){25}, &r), RONDO_INVALID_ARGUMENT,
                "describe: reshape of 't': [25] f32 has 25 elements, expected the 24 of [4, 6] f32");
  REQUIRE_ERROR(rondo_reshape(graph, view, 1, (int64_t[]){16}, &r), RONDO_INVALID_ARGUMENT,
                "describe: reshape of 't': the view, [4, 4] f32, is not dense, and no strides make its elements [16] "
                "f32: expected a shape that keeps its rows apart");
  REQUIRE_ERROR(rondo_reshape(graph, view, 2, (int64_t[]){2, 8}, &r), RONDO_INVALID_ARGUMENT, "is not dense");
  REQUIRE_ERROR(rondo_reshape(graph, codes, 2, (int64_t[]){6, 3}, &r), RONDO_INVALID_ARGUMENT, "expected even");
  REQUIRE_ERROR(rondo_reshape(graph, t, 5, (int64_t[]){4, 6, 1, 1, 1}, &r), RONDO_INVALID_ARGUMENT, "rank 5");
  REQUIRE_ERROR(rondo_reshape(graph, t, 0, NULL, &r), RONDO_INVALID_ARGUMENT, "rank 0");
  REQUIRE_ERROR(rondo_reshape(graph, t, 1, NULL, &r), RONDO_INVALID_ARGUMENT, "the shape is NULL");
  REQUIRE_ERROR(rondo_reshape(graph, t, 2, (int64_t[]){-4, -6}, &r), RONDO_INVALID_ARGUMENT, "dimension 0 is -4");
  REQUIRE_ERROR(rondo_reshape(graph, t, 1, (int64_t[]){24}, NULL), RONDO_INVALID_ARGUMENT, "address is NULL");
  REQUIRE_ERROR(rondo_reshape(other, t, 1, (int64_t[]){24}, &r), RONDO_INVALID_ARGUMENT, "another graph");
  REQUIRE_ERROR(rondo_reshape(graph, (rondo_tensor){0}, 1, (int64_t[]){24}, &r), RONDO_INVALID_ARGUMENT,
                "rondo_reshape: the tensor is absent");
  REQUIRE_ERROR(rondo_view(graph, (rondo_tensor){0}, (int64_t[]){0}, (int64_t[]){1}, &r), RONDO_INVALID_ARGUMENT,
                "rondo_view: the tensor is absent");
  REQUIRE_ERROR(rondo_reshape(NULL, t, 1, (int64_t[]){24}, &r), RONDO_INVALID_ARGUMENT, "graph is NULL");
  cr_assert_eq(graph->tensor_count, 3, "a refused reshape leaves nothing behind");
  REQUIRE_OK(rondo_reshape(graph, view, 3, (int64_t[]){4, 2, 2}, &r));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&other));
}

Test(reshape, a_view_between_other_columns_becomes_heads) {
  rondo_graph *graph = new_graph();
  rondo_tensor qkv, q, heads;
  REQUIRE_OK(rondo_temporary(graph, "qkv", RONDO_F16, 2, (int64_t[]){4, INT64_C(48) * 128}, &qkv));
  REQUIRE_OK(rondo_view(graph, qkv, (int64_t[]){0, INT64_C(8) * 128}, (int64_t[]){4, INT64_C(32) * 128}, &q));
  REQUIRE_OK(rondo_reshape(graph, q, 4, (int64_t[]){4, 32, 1, 128}, &heads));
  const struct tensor *tensor = &graph->tensors[heads.index];
  const int64_t strides[] = {INT64_C(48) * 128, 128, 128, 1};
  for (int i = 0; i < 4; i++) cr_assert_eq(tensor->stride[i], strides[i]);
  cr_assert_eq(tensor_offset_bytes(tensor), UINT64_C(8) * 128 * 2);
  cr_assert(tensor->is_box, "its dependencies are as exact as the view's");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* ---- Random ones, against their elements ------------------------------------------------------------------------- */

static void draw_tensors(struct random_graph *g, struct random *random, bool is_resident, uint32_t count) {
  static const rondo_dtype dtypes[] = {RONDO_F32, RONDO_F64, RONDO_F16, RONDO_U8, RONDO_NVFP4};
  rondo_dtype dtype = dtypes[random_between(random, 0, 4)];
  uint32_t rank = (uint32_t)random_between(random, 1, RONDO_MAX_RANK);
  int64_t shape[RONDO_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++) shape[i] = random_between(random, 1, rank == 1 ? 200 : rank == 2 ? 16 : 6);
  if (dtype == RONDO_NVFP4) shape[rank - 1] *= 2;
  random_graph_begin(g, random, 64, 4);
  random_graph_root(g, is_resident ? TENSOR_STATE : TENSOR_TEMPORARY, dtype, rank, shape);
  for (uint32_t i = 0; i < count; i++) random_graph_tensor(g);
}

Test(reshape, has_exactly_the_elements_of_its_tensor) {
  struct random random = {51};
  uint32_t pairs = 0, overlaps = 0, others = 0;
  const uint32_t rounds = rounds_here(1200);
  for (uint32_t round = 0; round < rounds; round++) {
    struct random_graph g;
    draw_tensors(&g, &random, false, 30);
    for (uint32_t i = 0; i < g.tensor_count; i++) {
      const struct tensor *a = &g.graph->tensors[i];
      const struct area *area = &g.areas[i];
      others += !a->is_box;
      for (uint32_t e = 0; e < area->count; e++) cr_assert_eq(elements_at(a, e), area->elements[e]);
      for (uint32_t e = 0, at = 0; at < g.areas[0].count; at++) {
        while (e < area->count && area->elements[e] < at) e++;
        bool is_there = e < area->count && area->elements[e] == at;
        int64_t run = elements_run(a, at);
        cr_assert_eq(run > 0, is_there);
        for (int64_t x = 0; x < run; x++) cr_assert_eq(area->elements[e + x], at + x);
      }
      for (uint32_t j = 0; j < g.tensor_count; j++) {
        bool expected = random_graph_overlap(&g, i, j);
        if (elements_overlap(a, &g.graph->tensors[j]) != expected) cr_assert_fail("tensors %u and %u", i, j);
        bool is_same = area->count == g.areas[j].count && expected &&
                       !memcmp(area->elements, g.areas[j].elements, area->count * sizeof *area->elements);
        if (area->count && elements_equal(a, &g.graph->tensors[j]) && !is_same) cr_assert_fail("%u is not %u", i, j);
        if (i == j) cr_assert(elements_equal(a, a));
        pairs += !a->is_box;
        overlaps += !a->is_box && expected;
      }
    }
    random_graph_end(&g);
  }
  cr_assert(others > rounds && overlaps > 4 * rounds && pairs - overlaps > 4 * rounds,
            "%u others, %u of %u pairs overlap", others, overlaps, pairs);
}

/* Between an element of the root, in `content`, and one of a dense copy; of nvfp4 half a byte. */
static void move_element(uint32_t bits, unsigned char *to, uint32_t to_index, const unsigned char *from,
                         uint32_t from_index) {
  if (bits >= 8) {
    size_t bytes = bits / 8;
    memcpy(to + to_index * bytes, from + from_index * bytes, bytes);
    return;
  }
  unsigned value = (unsigned)from[from_index / 2] >> (from_index % 2 * 4) & 15u, shift = to_index % 2 * 4;
  to[to_index / 2] = (unsigned char)((to[to_index / 2] & ~(15u << shift)) | value << shift);
}

static void moves_and_nothing_beside_it(rondo_backend backend) {
  struct random random = {52};
  rondo_runtime *runtime = NULL;
  uint32_t reshapes = 0;
  REQUIRE_OK(
      rondo_open(&(rondo_options){.backend = backend, .device_bytes = 1 << 20, .pinned_bytes = 1 << 16}, &runtime));
  for (int round = 0; round < 60; round++) {
    static unsigned char content[16384], data[16384], got[16384];
    struct random_graph g;
    rondo_exec *exec = NULL;
    draw_tensors(&g, &random, true, 12);
    uint32_t bits = rondo_dtype_bits(g.graph->tensors[0].dtype);
    REQUIRE_OK(rondo_instantiate(runtime, g.graph, NULL, &exec));
    memset(content, 0, sizeof content);
    for (uint32_t t = 0; t < g.tensor_count; t++) {
      const struct area *area = &g.areas[t];
      uint64_t bytes = (uint64_t)area->count * bits / 8;
      for (uint64_t i = 0; i < bytes; i++) data[i] = (unsigned char)random_bits(&random);
      REQUIRE_OK(rondo_upload(exec, g.handles[t], data, bytes));
      for (uint32_t e = 0; e < area->count; e++) move_element(bits, content, area->elements[e], data, e);
      for (uint32_t u = 0; u < g.tensor_count; u++) {
        bytes = (uint64_t)g.areas[u].count * bits / 8;
        REQUIRE_OK(rondo_download(exec, g.handles[u], got, bytes));
        memset(data, 0, bytes);
        for (uint32_t e = 0; e < g.areas[u].count; e++) move_element(bits, data, e, content, g.areas[u].elements[e]);
        cr_assert(memcmp(got, data, bytes) == 0, "tensor %u after an upload of %u", u, t);
      }
    }
    reshapes += g.reshape_count;
    REQUIRE_OK(rondo_close_exec(&exec));
    random_graph_end(&g);
  }
  cr_assert_gt(reshapes, 100);
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(reshape, moves_and_nothing_beside_it, moves_and_nothing_beside_it)

/* ---- Through tasks ----------------------------------------------------------------------------------------------- */

/* The first and the second half of each head, as rotary embeddings take them, are written apart and read together. */
Test(reshape, halves_of_heads_are_told_apart) {
  for (int missing = 0; missing < 2; missing++) {
    rondo_graph *graph = new_graph();
    rondo_tensor rows, heads, halves[2], out;
    REQUIRE_OK(rondo_temporary(graph, "rows", RONDO_F32, 2, (int64_t[]){3, 32}, &rows));
    REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 2, (int64_t[]){3, 32}, &out));
    REQUIRE_OK(rondo_reshape(graph, rows, 3, (int64_t[]){3, 4, 8}, &heads));
    for (int i = 0; i < 2; i++) {
      int64_t offset[] = {0, 0, INT64_C(4) * i}, extent[] = {3, i && missing ? 3 : 4, 4};
      rondo_tensor constant;
      REQUIRE_OK(rondo_view(graph, heads, offset, extent, &halves[i]));
      REQUIRE_OK(rondo_constant(graph, NULL, RONDO_F32, 3, extent, &constant));
      REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = constant, .dst = halves[i]}));
    }
    REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = rows, .dst = out}));
    rondo_plan plan;
    if (missing) {
      REQUIRE_ERROR(rondo_plan_graph(graph, &plan), RONDO_INVALID_ARGUMENT,
                    "plan: task 2 'copy' reads element [0, 28] of temporary 'rows', which no earlier task writes");
    } else {
      REQUIRE_OK(rondo_plan_graph(graph, &plan));
      cr_assert_eq(plan.edge_count, 2, "the two halves do not wait for each other");
    }
    REQUIRE_ERROR(rondo_add_copy(graph, &(rondo_copy_desc){.src = heads, .dst = heads}), RONDO_INVALID_ARGUMENT,
                  "src and dst overlap");
    if (!missing) REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = halves[0], .dst = halves[1]}));
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

static void no_work(void *user, void *const *data) {
  (void)user;
  (void)data;
}

static void add_touch(rondo_graph *graph, rondo_tensor tensor, rondo_access access) {
  rondo_argument argument = {.tensor = tensor, .access = access};
  REQUIRE_OK(
      rondo_add_kernel(graph, &(rondo_kernel_desc){.host = no_work, .arguments = &argument, .argument_count = 1}));
}

/* One element of every `columns`. */
static rondo_tensor column_of(rondo_graph *graph, rondo_tensor tensor, int64_t elements, int64_t columns,
                              int64_t column) {
  rondo_tensor rows, view;
  REQUIRE_OK(rondo_reshape(graph, tensor, 2, (int64_t[]){elements / columns, columns}, &rows));
  REQUIRE_OK(rondo_view(graph, rows, (int64_t[]){0, column}, (int64_t[]){elements / columns, 1}, &view));
  return view;
}

/* Hundreds of millions of blocks: nobody waits until each has been looked at. */
Test(reshape, of_the_largest_tensors_is_planned_at_once, .timeout = 10) {
  const int64_t elements = INT64_C(2147483640);
  rondo_graph *graph = new_graph();
  rondo_tensor state, temporary, halves[2];
  rondo_plan plan;
  REQUIRE_OK(rondo_state(graph, "state", RONDO_U8, 1, &elements, &state));
  add_touch(graph, column_of(graph, state, elements, 4, 0), RONDO_WRITE);
  add_touch(graph, column_of(graph, state, elements, 6, 1), RONDO_WRITE);
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_eq(plan.edge_count, 0, "even elements and odd ones");
  add_touch(graph, column_of(graph, state, elements, 6, 4), RONDO_WRITE);
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_eq(plan.edge_count, 1);
  REQUIRE_OK(rondo_graph_destroy(&graph));

  graph = new_graph();
  REQUIRE_OK(rondo_temporary(graph, "temporary", RONDO_U8, 1, &elements, &temporary));
  for (int i = 0; i < 2; i++) {
    halves[i] = column_of(graph, temporary, elements, 2, i);
    add_touch(graph, halves[i], RONDO_WRITE);
  }
  add_touch(graph, temporary, RONDO_READ_WRITE);
  add_touch(graph, halves[1], RONDO_READ);
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_eq(plan.edge_count, 3, "each half, the whole, a half");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* Each leaves out the fourth column: one write with the whole as its box, and two with as many elements as the whole.
 */
Test(reshape, pieces_that_leave_a_gap_are_not_the_whole) {
  for (int two = 0; two < 2; two++) {
    rondo_graph *graph = new_graph();
    rondo_tensor whole, rows, piece;
    rondo_plan plan;
    REQUIRE_OK(rondo_temporary(graph, "whole", RONDO_F32, 2, (int64_t[]){4, 6}, &whole));
    REQUIRE_OK(rondo_reshape(graph, whole, 2, (int64_t[]){6, 4}, &rows));
    for (int i = 0; i <= two; i++) {
      REQUIRE_OK(rondo_view(graph, rows, (int64_t[]){0, i}, (int64_t[]){6, two ? 2 : 3}, &piece));
      add_touch(graph, piece, RONDO_WRITE);
    }
    add_touch(graph, whole, RONDO_READ);
    REQUIRE_ERROR(rondo_plan_graph(graph, &plan), RONDO_INVALID_ARGUMENT, "reads element [0, 3] of temporary 'whole'");
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

Test(reshape, of_what_is_borrowed_is_the_lenders_memory) {
  rondo_graph *lender = new_graph(), *graph = new_graph();
  rondo_tensor cache, items, lent, other, out;
  rondo_runtime *runtime = NULL;
  rondo_exec *owner = NULL, *exec = NULL;
  rondo_slot slot;
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 16, .pinned_bytes = 1 << 14}, &runtime));
  REQUIRE_OK(rondo_state(lender, "cache", RONDO_U8, 2, (int64_t[]){4, 6}, &cache));
  REQUIRE_OK(rondo_reshape(lender, cache, 2, (int64_t[]){8, 3}, &items));
  REQUIRE_OK(rondo_view(lender, items, (int64_t[]){1, 1}, (int64_t[]){6, 2}, &items));
  REQUIRE_OK(rondo_borrow(graph, items, &lent));
  REQUIRE_OK(rondo_reshape(graph, lent, 3, (int64_t[]){3, 2, 2}, &other));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_U8, 3, (int64_t[]){3, 2, 2}, &out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = other, .dst = out}));
  REQUIRE_OK(rondo_instantiate(runtime, lender, NULL, &owner));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  unsigned char all[24];
  for (int i = 0; i < 24; i++) all[i] = (unsigned char)i;
  REQUIRE_OK(rondo_upload(owner, cache, all, 24));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  const unsigned char *got = rondo_data(slot, out);
  cr_assert_not_null(got);
  for (int i = 0; i < 12; i++) cr_assert_eq(got[i], 3 * (i / 2 + 1) + 1 + i % 2, "element %d is %d", i, got[i]);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close_exec(&owner));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&lender));
  REQUIRE_OK(rondo_close(&runtime));
}
