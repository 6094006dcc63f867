/* test_views.c - uploads and downloads of views, against a model that knows elements and no bytes, strides or rows. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "../../runtime/exec.h"
#include "../../runtime/planner.h"
#include "../../runtime/program.h"
#include "../support.h"

enum { VIEWS = 8, SIDE = 7, ELEMENTS = SIDE * SIDE * SIDE * SIDE, BYTES = 8 * ELEMENTS };

static const rondo_dtype dtypes[] = {RONDO_F64,  RONDO_F32,   RONDO_F16, RONDO_BF16,
                                     RONDO_E4M3, RONDO_NVFP4, RONDO_I32, RONDO_U8};

/* ---- The model: elements at four coordinates --------------------------------------------------------------------- */

struct area {
  int64_t offset[RONDO_MAX_RANK], extent[RONDO_MAX_RANK]; /* in the tensor; missing dimensions come first, as 1 */
};

static uint64_t content[SIDE][SIDE][SIDE][SIDE];

static uint64_t element_get(const unsigned char *dense, uint32_t bits, int64_t index) {
  uint64_t value = 0;
  if (bits == 4) return dense[index / 2] >> (index % 2 * 4) & 15;
  memcpy(&value, dense + index * (bits / 8), bits / 8);
  return value;
}

static void element_set(unsigned char *dense, uint32_t bits, int64_t index, uint64_t value) {
  if (bits == 4)
    dense[index / 2] = (unsigned char)(index % 2 ? (dense[index / 2] & 15) | value << 4 : value);
  else
    memcpy(dense + index * (bits / 8), &value, bits / 8);
}

/* Between the content and dense data, in the order of the box's coordinates. */
static void move(const struct area *box, uint32_t bits, unsigned char *dense, bool into_content) {
  int64_t i = 0, c[4];
  for (c[0] = box->offset[0]; c[0] < box->offset[0] + box->extent[0]; c[0]++)
    for (c[1] = box->offset[1]; c[1] < box->offset[1] + box->extent[1]; c[1]++)
      for (c[2] = box->offset[2]; c[2] < box->offset[2] + box->extent[2]; c[2]++)
        for (c[3] = box->offset[3]; c[3] < box->offset[3] + box->extent[3]; c[3]++, i++) {
          uint64_t *element = &content[c[0]][c[1]][c[2]][c[3]];
          if (into_content)
            *element = element_get(dense, bits, i);
          else
            element_set(dense, bits, i, *element);
        }
}

static uint64_t box_bytes(const struct area *box, uint32_t bits) {
  return (uint64_t)(box->extent[0] * box->extent[1] * box->extent[2] * box->extent[3]) * bits / 8;
}

/* ---- Random views ------------------------------------------------------------------------------------------------ */

struct subject {
  rondo_graph *graph;
  uint32_t rank, bits;
  rondo_tensor tensors[1 + VIEWS]; /* the whole, and views of it and of each other */
  struct area boxes[1 + VIEWS];
};

/* Of something from 0 to size long: even where nvfp4 wants it. */
static int64_t pick(struct random *random, int64_t low, int64_t size, bool even) {
  int64_t value = random_between(random, low, size);
  return even ? value / 2 * 2 : value;
}

static void describe(struct subject *s, rondo_dtype dtype, uint32_t rank, bool is_state, struct random *random) {
  int64_t shape[RONDO_MAX_RANK], offset[RONDO_MAX_RANK];
  uint32_t missing = RONDO_MAX_RANK - rank;
  *s = (struct subject){.rank = rank, .bits = rondo_dtype_bits(dtype)};
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 16, .tasks = 4}, &s->graph));
  for (uint32_t d = 0; d < RONDO_MAX_RANK; d++) {
    bool even = dtype == RONDO_NVFP4 && d == RONDO_MAX_RANK - 1;
    s->boxes[0].extent[d] = d < missing ? 1 : pick(random, even ? 2 : 1, SIDE, even);
  }
  memcpy(shape, s->boxes[0].extent + missing, rank * sizeof *shape);
  REQUIRE_OK((is_state ? rondo_state : rondo_constant)(s->graph, "t", dtype, rank, shape, &s->tensors[0]));
  for (int v = 1; v <= VIEWS; v++) {
    int64_t parent = random_between(random, 0, v - 1);
    struct area *box = &s->boxes[v], *of = &s->boxes[parent];
    *box = *of;
    for (uint32_t d = missing; d < RONDO_MAX_RANK; d++) {
      bool even = dtype == RONDO_NVFP4 && d == RONDO_MAX_RANK - 1;
      if (random_between(random, 0, 2) == 0) continue; /* whole in this dimension: rows that lie together */
      int64_t first = pick(random, 0, of->extent[d], even);
      box->offset[d] += first;
      box->extent[d] = pick(random, 0, of->extent[d] - first, even);
      if (!box->extent[d] && random_between(random, 0, 3)) { /* few empty ones */
        box->offset[d] = of->offset[d];
        box->extent[d] = of->extent[d];
      }
    }
    for (uint32_t d = 0; d < rank; d++) {
      offset[d] = box->offset[missing + d] - of->offset[missing + d];
      shape[d] = box->extent[missing + d];
    }
    REQUIRE_OK(rondo_view(s->graph, s->tensors[parent], offset, shape, &s->tensors[v]));
  }
}

static void check_all(struct subject *s, rondo_exec *exec, int last) {
  static unsigned char got[BYTES + 1], expected[BYTES];
  for (int v = 0; v <= VIEWS; v++) {
    uint64_t bytes = box_bytes(&s->boxes[v], s->bits);
    got[bytes] = 0x5a;
    REQUIRE_OK(rondo_download(exec, s->tensors[v], got, bytes));
    move(&s->boxes[v], s->bits, expected, false);
    cr_assert(memcmp(got, expected, bytes) == 0, "rank %u, %u bits: view %d after an upload of view %d", s->rank,
              s->bits, v, last);
    cr_assert_eq(got[bytes], 0x5a);
  }
}

static void run(struct subject *s, rondo_runtime *runtime, struct random *random) {
  static unsigned char data[BYTES];
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, s->graph, NULL, &exec));
  memset(content, 0, sizeof content);
  for (int v = 0; v <= VIEWS; v++) {
    uint64_t bytes = box_bytes(&s->boxes[v], s->bits);
    for (uint64_t i = 0; i < bytes; i++) data[i] = (unsigned char)random_bits(random);
    REQUIRE_OK(rondo_upload(exec, s->tensors[v], bytes ? data : NULL, bytes));
    move(&s->boxes[v], s->bits, data, true);
    check_all(s, exec, v);
  }
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
}

static void views_of_all_ranks_and_types_are_moved_and_nothing_beside_them(rondo_backend backend) {
  struct random random = {7};
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(
      rondo_open(&(rondo_options){.backend = backend, .device_bytes = 1 << 20, .pinned_bytes = 1 << 16}, &runtime));
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
    for (uint32_t rank = 1; rank <= RONDO_MAX_RANK; rank++)
      for (int trial = 0; trial < 6; trial++) {
        struct subject s;
        describe(&s, dtypes[d], rank, trial % 2, &random);
        run(&s, runtime, &random);
      }
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(views, of_all_ranks_and_types_are_moved_and_nothing_beside_them,
              views_of_all_ranks_and_types_are_moved_and_nothing_beside_them)

Test(views, that_are_moved_with_wrong_bytes_are_refused_with_the_right_ones) {
  static unsigned char data[64];
  rondo_runtime *runtime = NULL;
  rondo_graph *graph = NULL;
  rondo_tensor whole, view, empty, late;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 16, .pinned_bytes = 4096},
                        &runtime));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "t", RONDO_F16, 2, (int64_t[]){4, 8}, &whole));
  REQUIRE_OK(rondo_view(graph, whole, (int64_t[]){1, 2}, (int64_t[]){3, 5}, &view));
  REQUIRE_OK(rondo_view(graph, whole, (int64_t[]){4, 2}, (int64_t[]){0, 5}, &empty));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_ERROR(rondo_upload(exec, view, data, 64), RONDO_INVALID_ARGUMENT,
                "rondo_upload: the view of tensor 't' has 30 bytes, not 64");
  REQUIRE_ERROR(rondo_download(exec, view, data, 31), RONDO_INVALID_ARGUMENT,
                "rondo_download: the view of tensor 't' has 30 bytes, not 31");
  REQUIRE_ERROR(rondo_upload(exec, empty, data, 1), RONDO_INVALID_ARGUMENT,
                "the view of tensor 't' has 0 bytes, not 1");
  REQUIRE_ERROR(rondo_upload(exec, view, NULL, 30), RONDO_INVALID_ARGUMENT, "tensor 't': the data is NULL");
  REQUIRE_OK(rondo_upload(exec, empty, NULL, 0));
  REQUIRE_OK(rondo_view(graph, whole, (int64_t[]){0, 0}, (int64_t[]){1, 8}, &late));
  REQUIRE_ERROR(rondo_upload(exec, late, data, 16), RONDO_INVALID_ARGUMENT,
                "tensor 3 was added to the graph after rondo_instantiate, when there were 3");
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}

/* ---- Large ones: where the rows of 16 GB lie, without the 16 GB -------------------------------------------------- */

static struct exec_tensor lay_out(rondo_dtype dtype, uint32_t rank, const int64_t *shape, const int64_t *offset,
                                  const int64_t *extent) {
  rondo_graph *graph = NULL;
  rondo_tensor whole, view;
  const struct plan *plan;
  struct exec_tensor tensors[2];
  uint32_t no_edges[1];
  char names[NAME_BYTES];
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 2, .tasks = 1}, &graph));
  REQUIRE_OK(rondo_constant(graph, "large", dtype, rank, shape, &whole));
  REQUIRE_OK(rondo_view(graph, whole, offset, extent, &view));
  REQUIRE_OK(plan_of(graph, &plan));
  rondo_exec *exec = &(rondo_exec){.tensors = tensors, .program.predecessors = no_edges, .tensor_names = names};
  program_fill(exec, graph, plan);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return tensors[1];
}

static void require_rows(struct exec_tensor got, uint64_t offset_bytes, struct device_rows expected) {
  cr_assert_eq(got.offset_bytes, offset_bytes, "at %" PRIu64, got.offset_bytes);
  cr_assert_eq(got.rows.bytes, expected.bytes, "%" PRIu64 " bytes a row", got.rows.bytes);
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(got.rows.count[i], expected.count[i], "level %d: %" PRIu64 " rows", i, got.rows.count[i]);
    if (expected.count[i] > 1) cr_assert_eq(got.rows.pitch_bytes[i], expected.pitch_bytes[i], "level %d", i);
  }
  cr_assert_eq(got.bytes, expected.bytes * expected.count[0] * expected.count[1] * expected.count[2]);
}

Test(views, of_tensors_beyond_4_gb_are_laid_out_in_64_bits) {
  const uint64_t G = UINT64_C(1) << 30;
  require_rows(lay_out(RONDO_F64, 1, (int64_t[]){INT64_C(1) << 31}, (int64_t[]){0}, (int64_t[]){INT64_C(1) << 31}), 0,
               (struct device_rows){16 * G, {1, 1, 1}, {0}});
  require_rows(
      lay_out(RONDO_F64, 1, (int64_t[]){INT64_C(1) << 31}, (int64_t[]){(INT64_C(1) << 31) - 3}, (int64_t[]){3}),
      16 * G - 24, (struct device_rows){24, {1, 1, 1}, {0}});
  require_rows(lay_out(RONDO_F64, 2, (int64_t[]){2, 1 << 30}, (int64_t[]){0, 1}, (int64_t[]){2, (1 << 30) - 1}), 8,
               (struct device_rows){8 * G - 8, {2, 1, 1}, {8 * G}});
  require_rows(lay_out(RONDO_F64, 4, (int64_t[]){2, 4, 1 << 14, 1 << 14}, (int64_t[]){1, 1, 1, 1},
                       (int64_t[]){1, 3, 16383, 16383}),
               8 * G + 2 * G + 131072 + 8, (struct device_rows){UINT64_C(16383) * 8, {16383, 3, 1}, {131072, 2 * G}});
  require_rows(lay_out(RONDO_NVFP4, 2, (int64_t[]){1 << 3, 1 << 28}, (int64_t[]){7, 2}, (int64_t[]){1, 1 << 20}),
               7 * (G / 8) + 1, (struct device_rows){1 << 19, {1, 1, 1}, {0}});
  require_rows(
      lay_out(RONDO_U8, 3, (int64_t[]){1 << 15, 1 << 15, 2}, (int64_t[]){0, 0, 1}, (int64_t[]){1 << 15, 1 << 15, 1}), 1,
      (struct device_rows){1, {1 << 15, 1 << 15, 1}, {2, 1 << 16}});
}
