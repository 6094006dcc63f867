/* test_append.c - rondo_add_append against plain C, byte by byte: every type, rank, stride and dimension, at positions
 * inside and outside. Rows that fit are written, and no byte beside them. The kernel's parameters are walked through
 * in plain C too, so that a wrong stride or vector size shows without a GPU. Faults that would show: a row at the
 * wrong position, a write beyond the capacity, a stride of another dimension. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/append/append.h"
#include "../../runtime/graph.h"
#include "../support.h"

enum { APPENDS = 150, REPLAYS = 4 };

struct appended {
  rondo_dtype dtype;
  uint32_t rank, dimension;
  int64_t extent[RONDO_MAX_RANK], capacity, position_count;
  int64_t src_shape[RONDO_MAX_RANK], src_offset[RONDO_MAX_RANK];
  int64_t dst_shape[RONDO_MAX_RANK], dst_offset[RONDO_MAX_RANK];
  rondo_tensor src, dst, position;
  int32_t positions[16];
  unsigned char *src_bytes, *dst_bytes;
  uint64_t src_size, dst_size;
};

static unsigned char *random_bytes(struct random *random, uint64_t bytes) {
  unsigned char *data = aligned_alloc(256, (bytes + 256) / 256 * 256);
  for (uint64_t i = 0; i < bytes; i++) data[i] = (unsigned char)random_bits(random);
  return data;
}

static struct appended draw(struct random *random) {
  static const rondo_dtype dtypes[] = {RONDO_F64,  RONDO_F32,   RONDO_F16, RONDO_BF16,
                                       RONDO_E4M3, RONDO_NVFP4, RONDO_I32, RONDO_U8};
  struct appended a = {.dtype = dtypes[random_between(random, 0, 7)]};
  bool is_nvfp4 = a.dtype == RONDO_NVFP4;
  a.rank = (uint32_t)random_between(random, is_nvfp4 ? 2 : 1, 4);
  a.dimension = (uint32_t)random_between(random, 0, a.rank - (is_nvfp4 ? 2 : 1));
  a.capacity = random_between(random, 1, 12);
  for (uint32_t i = 0; i < a.rank; i++) {
    int64_t unit = i == a.rank - 1 ? (random_between(random, 0, 1) ? 16 : is_nvfp4 ? 2 : 1) : 1;
    bool dense = random_between(random, 0, 2) == 0;
    a.extent[i] = i == a.dimension ? random_between(random, random_between(random, 0, 5) ? 1 : 0, a.capacity)
                                   : unit * random_between(random, random_between(random, 0, 19) ? 1 : 0, 9);
    a.src_offset[i] = dense ? 0 : unit * random_between(random, 0, 3);
    a.dst_offset[i] = dense ? 0 : unit * random_between(random, 0, 3);
    a.src_shape[i] = a.extent[i] + (dense ? 0 : a.src_offset[i] + unit * random_between(random, 0, 3));
    a.dst_shape[i] = (i == a.dimension ? a.capacity : a.extent[i]) +
                     (dense ? 0 : a.dst_offset[i] + unit * random_between(random, 0, 3));
  }
  a.position_count = a.dimension && random_between(random, 0, 1) ? a.extent[0] : 1;
  return a;
}

static void add(struct appended *a, struct trial *trial, struct random *random) {
  rondo_tensor src, dst;
  int64_t room[RONDO_MAX_RANK];
  memcpy(room, a->extent, sizeof room);
  room[a->dimension] = a->capacity;
  REQUIRE_OK(rondo_state(trial->graph, "src", a->dtype, a->rank, a->src_shape, &a->src));
  REQUIRE_OK(rondo_state(trial->graph, "dst", a->dtype, a->rank, a->dst_shape, &a->dst));
  REQUIRE_OK(rondo_input(trial->graph, "position", RONDO_I32, 1, &a->position_count, &a->position));
  REQUIRE_OK(rondo_view(trial->graph, a->src, a->src_offset, a->extent, &src));
  REQUIRE_OK(rondo_view(trial->graph, a->dst, a->dst_offset, room, &dst));
  REQUIRE_OK(rondo_add_append(
      trial->graph, &(rondo_append_desc){.src = src, .dst = dst, .position = a->position, .dimension = a->dimension}));
  REQUIRE_OK(rondo_tensor_bytes(a->src, &a->src_size));
  REQUIRE_OK(rondo_tensor_bytes(a->dst, &a->dst_size));
  a->src_bytes = random_bytes(random, a->src_size);
  a->dst_bytes = random_bytes(random, a->dst_size);
}

static void draw_positions(struct appended *a, struct random *random) {
  static const int32_t far[] = {INT32_MIN, INT32_MAX, INT32_MAX - 1, -1000000, 1 << 20};
  for (int64_t i = 0; i < a->position_count; i++) {
    int64_t room = a->capacity - a->extent[a->dimension];
    switch (random_between(random, 0, 5)) {
    case 0:
      a->positions[i] = far[random_between(random, 0, 4)];
      break;
    case 1:
      a->positions[i] = (int32_t)(room + random_between(random, 0, 2)); /* the last that fits, and beyond */
      break;
    case 2:
      a->positions[i] = (int32_t)(a->capacity + random_between(random, -1, 1));
      break;
    case 3:
      a->positions[i] = (int32_t)-random_between(random, 1, a->extent[a->dimension] + 1);
      break;
    default:
      a->positions[i] = (int32_t)random_between(random, 0, room);
    }
  }
}

/* Half a byte at a time, and the row said in the words of the header. Returns how many rows were left out. */
static uint64_t oracle_append(struct appended *a) {
  int64_t nibbles = rondo_dtype_bits(a->dtype) / 4, e[4] = {1, 1, 1, 1}, at[4], left_out = 0;
  for (uint32_t i = 0; i < a->rank; i++) e[i] = a->extent[i];
  for (at[0] = 0; at[0] < e[0]; at[0]++)
    for (at[1] = 0; at[1] < e[1]; at[1]++)
      for (at[2] = 0; at[2] < e[2]; at[2]++)
        for (at[3] = 0; at[3] < e[3]; at[3]++) {
          int64_t from = 0, into = 0;
          int64_t row = at[a->dimension] + a->positions[a->position_count > 1 ? at[0] : 0];
          if (row < 0 || row >= a->capacity) {
            left_out++;
            continue;
          }
          for (uint32_t i = 0; i < a->rank; i++) {
            from = from * a->src_shape[i] + a->src_offset[i] + at[i];
            into = into * a->dst_shape[i] + a->dst_offset[i] + (i == a->dimension ? row : at[i]);
          }
          for (int64_t y = 0; y < nibbles; y++) {
            int64_t f = from * nibbles + y, t = into * nibbles + y;
            unsigned value = (unsigned)a->src_bytes[f / 2] >> (f % 2 * 4) & 15u;
            unsigned char *byte = &a->dst_bytes[t / 2];
            *byte = (unsigned char)(t % 2 ? (*byte & 15u) | value << 4 : (*byte & 240u) | value);
          }
        }
  return (uint64_t)left_out;
}

static void appends_rows_that_fit(rondo_backend backend) {
  static struct appended appends[APPENDS];
  struct random random = {17};
  struct trial trial;
  uint64_t left_out = 0;
  trial_describe(&trial, backend);
  for (int i = 0; i < APPENDS; i++) {
    appends[i] = draw(&random);
    add(&appends[i], &trial, &random);
  }
  trial_instantiate(&trial);
  for (int i = 0; i < APPENDS; i++) {
    trial_set(&trial, appends[i].src, appends[i].src_bytes);
    trial_set(&trial, appends[i].dst, appends[i].dst_bytes);
  }
  for (int replay = 0; replay < REPLAYS; replay++) {
    for (int i = 0; i < APPENDS; i++) {
      draw_positions(&appends[i], &random);
      trial_set(&trial, appends[i].position, appends[i].positions);
    }
    trial_replay(&trial);
    for (int i = 0; i < APPENDS; i++) {
      struct appended *a = &appends[i];
      unsigned char *got = malloc(a->dst_size + 1);
      trial_get(&trial, a->dst, got);
      left_out += oracle_append(a);
      cr_assert(memcmp(got, a->dst_bytes, a->dst_size) == 0, "append %d, %s of rank %u along %u, replay %d", i,
                rondo_dtype_name(a->dtype), a->rank, a->dimension, replay);
      free(got);
    }
  }
  cr_assert_gt(left_out, 10000);
  for (int i = 0; i < APPENDS; i++) free(appends[i].src_bytes), free(appends[i].dst_bytes);
  trial_end(&trial);
}
BOTH_BACKENDS(append, writes_the_rows_that_fit_and_nothing_beside_them, appends_rows_that_fit)

/* Rows of megabytes, and so many that threads go round. */
static void large(rondo_backend backend) {
#define SHAPE(dtype_, rank_, dimension_, capacity_, positions_)                                                        \
  .dtype = (dtype_), .rank = (rank_), .dimension = (dimension_), .capacity = (capacity_), .position_count = (positions_)
  static const struct appended shapes[] = {
      {SHAPE(RONDO_U8, 2, 0, 4, 1), .extent = {2, 1500001}, .src_shape = {2, 1500001}, .dst_shape = {4, 1500001}},
      {SHAPE(RONDO_BF16, 4, 1, 3001, 2), .extent = {2, 3000, 8, 64}, .src_shape = {2, 3000, 24, 64},
       .src_offset = {0, 0, 8, 0}, .dst_shape = {2, 3001, 8, 64}},
      {SHAPE(RONDO_F32, 3, 2, 1001, 3), .extent = {3, 500, 700}, .src_shape = {3, 500, 700},
       .dst_shape = {3, 500, 1001}},
  };
#undef SHAPE
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    struct appended a = shapes[i];
    struct random random = {18 + i};
    struct trial trial;
    trial_describe(&trial, backend);
    add(&a, &trial, &random);
    trial_instantiate(&trial);
    trial_set(&trial, a.src, a.src_bytes);
    trial_set(&trial, a.dst, a.dst_bytes);
    for (int32_t item = 0; item < a.position_count; item++) a.positions[item] = 1 + item;
    trial_set(&trial, a.position, a.positions);
    trial_replay(&trial);
    unsigned char *got = malloc(a.dst_size);
    trial_get(&trial, a.dst, got);
    oracle_append(&a);
    cr_assert(memcmp(got, a.dst_bytes, a.dst_size) == 0, "shape %zu", i);
    free(got), free(a.src_bytes), free(a.dst_bytes);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(append, writes_large_rows_and_many, large)

/* ---- The kernel's parameters ------------------------------------------------------------------------------------- */

static void follow(const struct append_parameters *p) {
  for (uint32_t index = 0; index < p->total; index++) {
    int64_t at[APPEND_OUTER], from = index % p->piece, to = from;
    uint32_t piece = index / p->piece;
    for (int i = APPEND_OUTER; i-- > 0; piece /= p->extent[i]) at[i] = piece % p->extent[i];
    int64_t position = p->positions[p->per_item ? at[0] : 0], row = position + at[p->dimension];
    if (row < 0 || row >= p->capacity) continue;
    for (int i = 0; i < APPEND_OUTER; i++) {
      from += at[i] * p->src_stride[i];
      to += (i == (int)p->dimension ? row : at[i]) * p->dst_stride[i];
    }
    const unsigned char *source = (const unsigned char *)p->src + from * p->vector_bytes;
    unsigned char *target = (unsigned char *)p->dst + to * p->vector_bytes;
    cr_assert(((uintptr_t)source | (uintptr_t)target) % p->vector_bytes == 0, "a vector is not aligned");
    memcpy(target, source, p->vector_bytes);
  }
}

Test(append, kernels_are_told_the_same_as_the_host) {
  static const struct chip chip = {90, 132, 232448};
  struct random random = {19};
  uint32_t wide = 0;
  for (int i = 0; i < 600; i++) {
    struct appended a = draw(&random);
    struct trial trial;
    struct op_operand operands[OP_MAX_OPERANDS];
    struct op_launches launches;
    trial_describe(&trial, RONDO_BACKEND_HOST);
    add(&a, &trial, &random);
    draw_positions(&a, &random);
    const rondo_graph *graph = trial.graph;
    struct op_task task = graph_op_task(graph, &graph->tasks[0], operands);
    void *data[] = {a.src_bytes + operands[APPEND_SRC].offset_bytes, a.dst_bytes + operands[APPEND_DST].offset_bytes,
                    a.positions};
    unsigned char *expected = malloc(a.dst_size + 1), *before = malloc(a.dst_size + 1);
    memcpy(before, a.dst_bytes, a.dst_size);
    oracle_append(&a);
    memcpy(expected, a.dst_bytes, a.dst_size);
    memcpy(a.dst_bytes, before, a.dst_size);
    REQUIRE_OK(op_append.select(&(struct op_call){.task = &task, .data = data}, &chip, &launches));
    cr_assert_eq(launches.count, op_elements(&operands[APPEND_SRC]) > 0);
    if (launches.count) {
      struct append_parameters parameters;
      memcpy(&parameters, launches.items[0].parameters, sizeof parameters);
      follow(&parameters);
      wide += parameters.vector_bytes == 16;
    }
    cr_assert(memcmp(a.dst_bytes, expected, a.dst_size) == 0, "append %d", i);
    free(expected), free(before), free(a.src_bytes), free(a.dst_bytes);
    trial_end(&trial);
  }
  cr_assert_gt(wide, 100);
}

/* ---- Bad ones ---------------------------------------------------------------------------------------------------- */

Test(append, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor cache, rows, wide, other, many, at, at_each, odd, codes, code_rows;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  REQUIRE_OK(rondo_state(g, "cache", RONDO_F16, 4, (int64_t[]){2, 3, 8, 32}, &cache));
  REQUIRE_OK(rondo_input(g, "rows", RONDO_F16, 4, (int64_t[]){2, 3, 1, 32}, &rows));
  REQUIRE_OK(rondo_input(g, "wide", RONDO_F16, 4, (int64_t[]){2, 3, 1, 64}, &wide));
  REQUIRE_OK(rondo_input(g, "other", RONDO_BF16, 4, (int64_t[]){2, 3, 1, 32}, &other));
  REQUIRE_OK(rondo_input(g, "many", RONDO_F16, 4, (int64_t[]){2, 3, 9, 32}, &many));
  REQUIRE_OK(rondo_input(g, "at", RONDO_I32, 1, (int64_t[]){1}, &at));
  REQUIRE_OK(rondo_input(g, "at_each", RONDO_I32, 1, (int64_t[]){2}, &at_each));
  REQUIRE_OK(rondo_input(g, "odd", RONDO_I32, 1, (int64_t[]){3}, &odd));
  REQUIRE_OK(rondo_state(g, "codes", RONDO_NVFP4, 2, (int64_t[]){2, 32}, &codes));
  REQUIRE_OK(rondo_input(g, "code_rows", RONDO_NVFP4, 2, (int64_t[]){2, 2}, &code_rows));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_append(g, &(rondo_append_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REQUIRE_ERROR(rondo_add_append(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_append: the description is NULL");
  REFUSED("dst is absent, expected a tensor", "k", rows, {0}, at, 2);
  REFUSED("src is absent, expected the dtype and shape of dst", "k", {0}, cache, at, 2);
  REFUSED(
      "is [2, 3, 1, 64] f16, expected the dtype and shape of dst, [2, 3, 8, 32] f16, where only dimension 2 may differ",
      "k", wide, cache, at, 2);
  REFUSED("is [2, 3, 1, 32] bf16, expected the dtype and shape of dst", "k", other, cache, at, 2);
  REFUSED("src has 9 rows, expected at most the 8 of dst", "k", many, cache, at, 2);
  REFUSED("dimension is 4, expected less than dst's rank, 4", "k", rows, cache, at, 4);
  REFUSED("expected less: an nvfp4 value is half a byte", "k", code_rows, codes, at, 1);
  REFUSED("is [3] i32, expected [1] or [2] i32", "k", rows, cache, odd, 2);
  REFUSED("position is absent, expected [1] or [2] i32", "k", rows, cache, {0}, 2);
  REFUSED("is [2] i32, expected [1] i32", "k", cache, cache, at_each, 0);
  REFUSED("overlap", "k", cache, cache, at, 0);
#undef REFUSED
  REQUIRE_OK(rondo_add_append(g, &(rondo_append_desc){"k", rows, cache, at, 2}));
  REQUIRE_OK(rondo_add_append(g, &(rondo_append_desc){"k", rows, cache, at_each, 2}));
  trial_end(&trial);
}

Test(append, keeps_what_it_does_not_write_and_so_wants_it_written) {
  struct trial trial;
  rondo_tensor row, at, out;
  rondo_plan plan;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  REQUIRE_OK(rondo_input(trial.graph, "row", RONDO_F32, 2, (int64_t[]){1, 4}, &row));
  REQUIRE_OK(rondo_input(trial.graph, "at", RONDO_I32, 1, (int64_t[]){1}, &at));
  REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_F32, 2, (int64_t[]){3, 4}, &out));
  REQUIRE_OK(rondo_add_append(trial.graph, &(rondo_append_desc){"append", row, out, at, 0}));
  REQUIRE_ERROR(rondo_plan_graph(trial.graph, &plan), RONDO_INVALID_ARGUMENT,
                "task 0 'append' reads output 'out', which no earlier task writes");
  trial_end(&trial);
}
