/* test_copy.c - rondo_add_copy against plain C, byte by byte: every type, rank and stride. No byte outside of the
 * rectangle changes. Faults that would show: a vector of bytes over the end of a row, a stride of another dimension. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

struct rectangle {
  rondo_dtype dtype;
  uint32_t rank;
  int64_t extent[RONDO_MAX_RANK];
  int64_t src_shape[RONDO_MAX_RANK], src_offset[RONDO_MAX_RANK];
  int64_t dst_shape[RONDO_MAX_RANK], dst_offset[RONDO_MAX_RANK];
};

/* One copy of the graph and its data. src and dst are states, so that what surrounds the rectangles can be seen. */
struct copied {
  struct rectangle rectangle;
  rondo_tensor src, dst;
  unsigned char *src_bytes, *dst_bytes;
  uint64_t src_size, dst_size;
};

static unsigned char *random_bytes(struct random *random, uint64_t bytes) {
  unsigned char *data = malloc(bytes + 1);
  for (uint64_t i = 0; i < bytes; i++) data[i] = (unsigned char)random_bits(random);
  return data;
}

static void copied_add(struct copied *c, struct trial *trial, struct random *random) {
  const struct rectangle *r = &c->rectangle;
  rondo_tensor src, dst;
  REQUIRE_OK(rondo_state(trial->graph, "src", r->dtype, r->rank, r->src_shape, &c->src));
  REQUIRE_OK(rondo_state(trial->graph, "dst", r->dtype, r->rank, r->dst_shape, &c->dst));
  REQUIRE_OK(rondo_view(trial->graph, c->src, r->src_offset, r->extent, &src));
  REQUIRE_OK(rondo_view(trial->graph, c->dst, r->dst_offset, r->extent, &dst));
  REQUIRE_OK(rondo_add_copy(trial->graph, &(rondo_copy_desc){.src = src, .dst = dst}));
  REQUIRE_OK(rondo_tensor_bytes(c->src, &c->src_size));
  REQUIRE_OK(rondo_tensor_bytes(c->dst, &c->dst_size));
  c->src_bytes = random_bytes(random, c->src_size);
  c->dst_bytes = random_bytes(random, c->dst_size);
}

/* The copy itself, half byte by half byte. */
static void oracle_copy(struct copied *c) {
  const struct rectangle *r = &c->rectangle;
  uint32_t nibbles = rondo_dtype_bits(r->dtype) / 4;
  int64_t e[RONDO_MAX_RANK] = {1, 1, 1, 1}, s[RONDO_MAX_RANK] = {1, 1, 1, 1}, d[RONDO_MAX_RANK] = {1, 1, 1, 1};
  int64_t so[RONDO_MAX_RANK] = {0}, d0[RONDO_MAX_RANK] = {0};
  for (uint32_t i = 0; i < r->rank; i++) {
    uint32_t to = RONDO_MAX_RANK - r->rank + i;
    e[to] = r->extent[i], s[to] = r->src_shape[i], d[to] = r->dst_shape[i];
    so[to] = r->src_offset[i], d0[to] = r->dst_offset[i];
  }
  for (int64_t a = 0; a < e[0]; a++)
    for (int64_t b = 0; b < e[1]; b++)
      for (int64_t x = 0; x < e[2]; x++)
        for (int64_t y = 0; y < e[3] * nibbles; y++) {
          int64_t from = (((a + so[0]) * s[1] + b + so[1]) * s[2] + x + so[2]) * s[3] * nibbles + so[3] * nibbles + y;
          int64_t into = (((a + d0[0]) * d[1] + b + d0[1]) * d[2] + x + d0[2]) * d[3] * nibbles + d0[3] * nibbles + y;
          unsigned value = (unsigned)c->src_bytes[from / 2] >> (from % 2 * 4) & 15u;
          unsigned char *byte = &c->dst_bytes[into / 2];
          *byte = (unsigned char)(into % 2 ? (*byte & 15u) | value << 4 : (*byte & 240u) | value);
        }
}

static struct rectangle random_rectangle(struct random *random) {
  static const rondo_dtype dtypes[] = {RONDO_F64,  RONDO_F32,   RONDO_F16, RONDO_BF16,
                                       RONDO_E4M3, RONDO_NVFP4, RONDO_I32, RONDO_U8};
  struct rectangle r = {.dtype = dtypes[random_between(random, 0, 7)]};
  r.rank = (uint32_t)random_between(random, 1, 4);
  for (uint32_t i = 0; i < r.rank; i++) {
    int64_t even = r.dtype == RONDO_NVFP4 && i == r.rank - 1 ? 2 : 1;
    bool dense = random_between(random, 0, 2) == 0;
    r.extent[i] = even * random_between(random, random_between(random, 0, 9) == 0 ? 0 : 1, r.rank == 1 ? 5000 : 13);
    r.src_offset[i] = dense ? 0 : even * random_between(random, 0, 3);
    r.dst_offset[i] = dense ? 0 : even * random_between(random, 0, 3);
    r.src_shape[i] = r.extent[i] + (dense ? 0 : r.src_offset[i] + even * random_between(random, 0, 3));
    r.dst_shape[i] = r.extent[i] + (dense ? 0 : r.dst_offset[i] + even * random_between(random, 0, 3));
  }
  return r;
}

static void copies_every_rectangle(rondo_backend backend) {
  enum { COPIES = 200 };
  static struct copied copies[COPIES];
  static const struct rectangle large[] = {
      {RONDO_F32, 1, {1200003}, {1200003}, {0}, {1200003}, {0}},
      {RONDO_U8, 2, {700, 3001}, {700, 3001}, {0}, {701, 3010}, {1, 3}},
      {RONDO_F16, 3, {70000, 2, 8}, {70000, 2, 8}, {0}, {70000, 3, 8}, {0, 1, 0}},
      {RONDO_NVFP4, 2, {1000, 64}, {1000, 128}, {0, 64}, {1000, 64}, {0, 0}},
  };
  struct random random = {7};
  struct trial trial;
  trial_describe(&trial, backend);
  for (int i = 0; i < COPIES; i++) {
    copies[i].rectangle = i < 4 ? large[i] : random_rectangle(&random);
    copied_add(&copies[i], &trial, &random);
  }
  trial_instantiate(&trial);
  for (int i = 0; i < COPIES; i++) {
    trial_set(&trial, copies[i].src, copies[i].src_bytes);
    trial_set(&trial, copies[i].dst, copies[i].dst_bytes);
  }
  trial_replay(&trial);
  for (int i = 0; i < COPIES; i++) {
    unsigned char *got = malloc(copies[i].dst_size + 1);
    trial_get(&trial, copies[i].dst, got);
    oracle_copy(&copies[i]);
    cr_assert(memcmp(got, copies[i].dst_bytes, copies[i].dst_size) == 0, "copy %d, %s of rank %u", i,
              rondo_dtype_name(copies[i].rectangle.dtype), copies[i].rectangle.rank);
    free(got);
    free(copies[i].src_bytes);
    free(copies[i].dst_bytes);
  }
  trial_end(&trial);
}

BOTH_BACKENDS(copy, moves_every_rectangle_and_nothing_beside_it, copies_every_rectangle)

/* Inputs and outputs of every size class that the choice of blocks knows, through pinned memory and back. */
static void inputs_come_out(rondo_backend backend) {
  static const int64_t sizes[] = {1, 15, 16, 1000, 4096, 16384, 65537, 262144, 1 << 20, (1 << 22) + 5, 0};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  rondo_tensor in[SIZES], out[SIZES];
  struct random random = {8};
  struct trial trial;
  trial_describe(&trial, backend);
  for (int i = 0; i < SIZES; i++) {
    REQUIRE_OK(rondo_input(trial.graph, "in", RONDO_U8, 1, &sizes[i], &in[i]));
    REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_U8, 1, &sizes[i], &out[i]));
    REQUIRE_OK(rondo_add_copy(trial.graph, &(rondo_copy_desc){.src = in[i], .dst = out[i]}));
  }
  trial_instantiate(&trial);
  for (int replay = 0; replay < 3; replay++) {
    unsigned char *data[SIZES];
    for (int i = 0; i < SIZES; i++) {
      data[i] = random_bytes(&random, (uint64_t)sizes[i]);
      trial_set(&trial, in[i], data[i]);
    }
    trial_replay(&trial);
    for (int i = 0; i < SIZES; i++) {
      const void *got = trial_output(&trial, out[i]);
      cr_assert(memcmp(got, data[i], (size_t)sizes[i]) == 0, "%d bytes, replay %d", (int)sizes[i], replay);
      free(data[i]);
    }
  }
  trial_end(&trial);
}

BOTH_BACKENDS(copy, what_goes_in_comes_out, inputs_come_out)

Test(copy, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor a, b, c, d;
  int64_t shape[] = {4, 6}, other[] = {4, 7};
  trial_describe(&trial, RONDO_BACKEND_HOST);
  REQUIRE_OK(rondo_input(trial.graph, "a", RONDO_F32, 2, shape, &a));
  REQUIRE_OK(rondo_output(trial.graph, "b", RONDO_F32, 2, other, &b));
  REQUIRE_OK(rondo_output(trial.graph, "c", RONDO_I32, 2, shape, &c));
  REQUIRE_OK(rondo_output(trial.graph, "d", RONDO_F32, 1, shape, &d));
  REQUIRE_ERROR(rondo_add_copy(trial.graph, NULL), RONDO_INVALID_ARGUMENT, "NULL");
  REQUIRE_ERROR(rondo_add_copy(trial.graph, &(rondo_copy_desc){.src = a}), RONDO_INVALID_ARGUMENT, "dst is absent");
  REQUIRE_ERROR(rondo_add_copy(trial.graph, &(rondo_copy_desc){.dst = b}), RONDO_INVALID_ARGUMENT, "src is absent");
  REQUIRE_ERROR(rondo_add_copy(trial.graph, &(rondo_copy_desc){"move", a, b}), RONDO_INVALID_ARGUMENT,
                "'move': dst is [4, 7] f32, expected [4, 6] f32");
  REQUIRE_ERROR(rondo_add_copy(trial.graph, &(rondo_copy_desc){"move", a, c}), RONDO_INVALID_ARGUMENT, "i32");
  REQUIRE_ERROR(rondo_add_copy(trial.graph, &(rondo_copy_desc){"move", a, d}), RONDO_INVALID_ARGUMENT, "[4] f32");
  REQUIRE_ERROR(rondo_add_copy(trial.graph, &(rondo_copy_desc){"move", a, a}), RONDO_INVALID_ARGUMENT, "overlap");
  trial_end(&trial);
}
