/* frame.c - see frame.h. */
#include "frame.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct frame frame_add(struct trial *trial, const char *name, rondo_dtype dtype, uint32_t rank, const int64_t *extent,
                       int64_t room, int64_t unit) {
  struct frame f = {.dtype = dtype, .rank = rank};
  for (uint32_t i = 0; i < rank; i++) {
    int64_t step = room * (i == rank - 1 ? unit : 1);
    f.extent[i] = extent[i], f.offset[i] = step, f.whole[i] = extent[i] + 2 * step;
  }
  REQUIRE_OK(rondo_state(trial->graph, name, dtype, rank, f.whole, &f.tensor));
  REQUIRE_OK(rondo_view(trial->graph, f.tensor, f.offset, f.extent, &f.view));
  REQUIRE_OK(rondo_tensor_bytes(f.tensor, &f.size));
  f.bytes = malloc(f.size + 1);
  memset(f.bytes, 0xff, f.size);
  return f;
}

int64_t frame_count(const struct frame *f) {
  int64_t count = 1;
  for (uint32_t i = 0; i < f->rank; i++) count *= f->extent[i];
  return count;
}

int64_t frame_place(const struct frame *f, int64_t i) {
  int64_t place = 0, step = 1;
  for (uint32_t d = f->rank; d-- > 0; step *= f->whole[d], i /= f->extent[d])
    place += (f->offset[d] + i % f->extent[d]) * step;
  return place;
}

double frame_read(const struct frame *f, int64_t i) { return oracle_read(f->dtype, f->bytes, frame_place(f, i)); }

void frame_write(struct frame *f, int64_t i, double value) {
  oracle_write(f->dtype, f->bytes, frame_place(f, i), value);
}

void frame_fill(struct frame *f, struct random *random, double size) {
  for (int64_t i = 0; i < frame_count(f); i++) frame_write(f, i, size * random_normal(random));
}

void frame_set(struct trial *trial, const struct frame *f) { trial_set(trial, f->tensor, f->bytes); }

struct frame frame_get(struct trial *trial, const struct frame *f, const char *what) {
  struct frame got = *f;
  size_t unit = rondo_dtype_bits(f->dtype) / 8;
  unsigned char *expected = malloc(f->size + 1);
  got.bytes = malloc(f->size + 1);
  trial_get(trial, f->tensor, got.bytes);
  memcpy(expected, f->bytes, f->size);
  for (int64_t i = 0; i < frame_count(f); i++) {
    size_t place = (size_t)frame_place(f, i) * unit;
    memcpy(expected + place, got.bytes + place, unit);
  }
  cr_assert(memcmp(got.bytes, expected, f->size) == 0, "%s: something beside the result was written", what);
  free(expected);
  return got;
}

double frame_half_unit(rondo_dtype dtype, double value) {
  switch (dtype) {
  case RONDO_F16:
    return fmax(fabs(value) * 0x1p-11, 0x1p-25);
  case RONDO_BF16:
    return fmax(fabs(value) * 0x1p-8, 0x1p-134);
  default:
    return fmax(fabs(value) * 0x1p-24, 0x1p-150);
  }
}

double frame_rounded(rondo_dtype dtype, double value) {
  unsigned char bytes[8];
  oracle_write(dtype, bytes, 0, value);
  return oracle_read(dtype, bytes, 0);
}

bool frame_same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }
