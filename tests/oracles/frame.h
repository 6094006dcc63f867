/* frame.h - an operand under test as a view in the middle of a larger tensor. The elements around the view are NaN, so
 * that a result shows if a kernel reads them, and frame_get fails if a kernel writes them. */
#pragma once

#include "../support.h"

struct frame {
  rondo_dtype dtype;
  uint32_t rank;
  int64_t extent[RONDO_MAX_RANK], offset[RONDO_MAX_RANK], whole[RONDO_MAX_RANK];
  rondo_tensor tensor, view;
  unsigned char *bytes;
  uint64_t size;
};

/* Adds a state with NaN in all elements, and the view of it. `room` is the distance of the view from each end of the
 * state, in units of 1, in the last dimension of `unit`. With room 0 the view is the whole state. */
struct frame frame_add(struct trial *trial, const char *name, rondo_dtype dtype, uint32_t rank, const int64_t *extent,
                       int64_t room, int64_t unit);

/* The number of elements of the view. */
int64_t frame_count(const struct frame *f);

/* The index in the state of element i of the view. */
int64_t frame_place(const struct frame *f, int64_t i);

/* Element i of the view. */
double frame_read(const struct frame *f, int64_t i);

/* Sets element i of the view, rounded to its type. */
void frame_write(struct frame *f, int64_t i, double value);

/* Fills the view with normal numbers times `size`. */
void frame_fill(struct frame *f, struct random *random, double size);

/* Uploads the state. */
void frame_set(struct trial *trial, const struct frame *f);

/* A copy of the frame with the bytes after a replay. The test fails if a byte around the view changed; `what` names
 * the operand in the message. */
struct frame frame_get(struct trial *trial, const struct frame *f, const char *what);

/* Half a unit in the last place of a result of this size. */
double frame_half_unit(rondo_dtype dtype, double value);

/* The value, rounded to the type. */
double frame_rounded(rondo_dtype dtype, double value);

/* Whether both are the same number, or both NaN. */
bool frame_same(double a, double b);
