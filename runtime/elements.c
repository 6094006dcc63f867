/* elements.c - see elements.h. The elements of a view are a lattice: blocks of blocks of elements. Each level has a
 * count and a stride. Levels that are dense together are one level, so a row of elements is a level of stride 1.
 *
 * Example: a root [4, 12] with two views. `a` has rows 0 to 2 of columns 1 to 4. It begins at element 1; its levels,
 * count x stride, are 3 x 12 and 4 x 1. `b` is a view of the reshape [4, 2, 6]: columns 3 and 9 of rows 1 and 2. It
 * begins at element 15 and has one level, 4 x 6. Both have the elements marked *.
 *
 *     column   0  1  2  3  4  5  6  7  8  9 10 11
 *     row 0    .  a  a  a  a  .  .  .  .  .  .  .
 *     row 1    .  a  a  *  a  .  .  .  .  b  .  .
 *     row 2    .  a  a  *  a  .  .  .  .  b  .  .
 *     row 3    .  .  .  .  .  .  .  .  .  .  .  .
 *
 * First the boxes are compared. `a` fills its box, but the box of `b` is columns 3 to 9, which has more elements than
 * `b`. So the lattices are compared, from the outermost level inwards. `distance` is the number of elements from the
 * first of `a` to the first of `b`, here 14.
 *
 * 1. The outer strides are 12 and 6, and 6 divides 12. So `b` is cut into groups of 12 elements; its levels are then
 *    2 x 12 and 2 x 6.
 * 2. The outer strides are equal now. Block j of `b` can meet blocks j + 1 and j + 2 of `a` only, since
 *    14 = 1 * 12 + 2. For each of the two, the inner levels are compared:
 *
 *        block 1 of a    13 14 15 16                   4 x 1
 *        block 0 of b          15 .. .. .. .. .. 21    2 x 6, distance 14 - 12 = 2
 *
 * 3. If neither stride divides the other, each block of one is compared with all of the other, until the pattern
 *    repeats. */
#include "elements.h"

#include <assert.h>
#include <string.h>

/* ---- Lattices ---------------------------------------------------------------------------------------------------- */

/* Levels from the outermost to the innermost. A block ends before the stride of the level around it. While a lattice is
 * cut into groups its outermost level is two. */
enum { LEVELS_MOST = RONDO_MAX_RANK + 1 };
struct lattice {
  uint32_t levels;
  struct level {
    int64_t count, stride;
  } level[LEVELS_MOST];
};

static struct lattice lattice_of(const struct tensor *tensor) {
  struct lattice lattice = {0};
  for (uint32_t i = 0; i < tensor->rank; i++) {
    struct level level = {tensor->shape[i], tensor->stride[i]};
    struct level *outer = lattice.levels ? &lattice.level[lattice.levels - 1] : NULL;
    if (level.count == 1) continue;
    if (outer && outer->stride == level.count * level.stride)
      *outer = (struct level){outer->count * level.count, level.stride};
    else
      lattice.level[lattice.levels++] = level;
  }
  return lattice;
}

/* ---- The box ----------------------------------------------------------------------------------------------------- */

/* Each level, from the innermost outwards, lies along the outermost dimension of the root whose stride divides the
 * level's. If it reaches beyond that dimension, the box has the whole dimension, and the level goes on in the next one
 * outwards. */
void elements_find_box(struct tensor *tensor, const struct tensor *root) {
  struct box *box = &tensor->box;
  int64_t elements = 1, rest = tensor->first;
  *box = (struct box){.high = {1, 1, 1, 1}};
  tensor->is_box = true;
  if (!tensor_elements(tensor)) {
    box->high[0] = 0;
    return;
  }
  for (uint32_t d = 0; d < root->rank; rest %= root->stride[d++]) {
    box->low[d] = (uint32_t)(rest / root->stride[d]);
    box->high[d] = box->low[d] + 1;
  }
  struct lattice lattice = lattice_of(tensor);
  for (uint32_t i = lattice.levels; i-- > 0;) {
    uint32_t d = 0;
    while (lattice.level[i].stride % root->stride[d]) d++;
    for (int64_t steps = (lattice.level[i].count - 1) * (lattice.level[i].stride / root->stride[d]); steps; d--) {
      int64_t last = box->high[d] - 1 + steps;
      steps = d ? last / root->shape[d] : 0;
      if (steps) box->low[d] = 0;
      box->high[d] = (uint32_t)(last < root->shape[d] ? last + 1 : root->shape[d]);
    }
  }
  for (uint32_t d = 0; d < root->rank; d++) elements *= box->high[d] - box->low[d];
  tensor->is_box = elements == tensor_elements(tensor);
}

/* ---- Two tensors ------------------------------------------------------------------------------------------------- */

static int64_t last_of(const struct lattice *lattice) {
  int64_t last = 0;
  for (uint32_t i = 0; i < lattice->levels; i++) last += (lattice->level[i].count - 1) * lattice->level[i].stride;
  return last;
}

static struct lattice block_of(const struct lattice *lattice) {
  struct lattice block = {.levels = lattice->levels - 1};
  memcpy(block.level, lattice->level + 1, block.levels * sizeof *block.level);
  return block;
}

static int64_t floor_of(int64_t value, int64_t divisor) { return value / divisor - (value % divisor < 0); }

static bool overlap(const struct lattice *a, const struct lattice *b, int64_t distance);

/* Both have the same outer stride: block i of a can meet block j of b only if i - j is one of two numbers. */
static bool overlap_in_step(const struct lattice *a, const struct lattice *b, int64_t distance) {
  int64_t stride = a->level[0].stride;
  struct lattice a_block = block_of(a), b_block = block_of(b);
  for (int64_t shift = floor_of(distance, stride); shift <= floor_of(distance, stride) + 1; shift++) {
    if (shift >= a->level[0].count || -shift >= b->level[0].count) continue;
    if (overlap(&a_block, &b_block, distance - shift * stride)) return true;
  }
  return false;
}

/* b's stride divides a's: b's blocks become groups as long as a's stride, and perhaps a rest. */
static bool overlap_in_groups(const struct lattice *a, const struct lattice *b, int64_t distance) {
  int64_t stride = a->level[0].stride, per_group = stride / b->level[0].stride;
  assert(per_group);
  int64_t groups = b->level[0].count / per_group, rest = b->level[0].count % per_group;
  struct lattice grouped = {.levels = b->levels + 1}, left = *b;
  memcpy(grouped.level + 1, b->level, b->levels * sizeof *b->level);
  grouped.level[0] = (struct level){groups, stride};
  grouped.level[1].count = per_group;
  left.level[0].count = rest;
  if (overlap(a, &grouped, distance)) return true;
  return rest && overlap(a, &left, distance + groups * stride);
}

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Compares each block of a with all of b. Two blocks of a whose distance b's stride divides meet b alike, unless b
 * begins or ends within one of them, which only the first and the last block can be. So the blocks up to the first
 * repetition are enough. */
static bool overlap_block_by_block(const struct lattice *a, const struct lattice *b, int64_t distance) {
  int64_t stride = a->level[0].stride, b_stride = b->levels ? b->level[0].stride : stride;
  int64_t first = floor_of(distance, stride), last = floor_of(distance + last_of(b), stride);
  struct lattice block = block_of(a);
  if (first < 0) first = 0;
  if (last >= a->level[0].count) last = a->level[0].count - 1;
  int64_t again = first + b_stride / common_divisor(stride, b_stride);
  for (int64_t i = first; i <= last && i <= again; i++)
    if (overlap(&block, b, distance - i * stride)) return true;
  return false;
}

/* Do a and b share an element? b begins `distance` elements after a. */
static bool overlap(const struct lattice *a, const struct lattice *b, int64_t distance) {
  int64_t a_stride = a->levels ? a->level[0].stride : 0, b_stride = b->levels ? b->level[0].stride : 0;
  int64_t b_last = last_of(b);
  if (distance > last_of(a) || distance + b_last < 0) return false;
  if (!a_stride && !b_stride) return true;
  if (a_stride < b_stride) return overlap(b, a, -distance);
  assert(a_stride > 0);
  if (a_stride == b_stride) return overlap_in_step(a, b, distance);
  if (b_stride && b_last >= a_stride && a_stride % b_stride == 0) return overlap_in_groups(a, b, distance);
  return overlap_block_by_block(a, b, distance);
}

bool elements_overlap(const struct tensor *a, const struct tensor *b) {
  if (a->root != b->root || !tensor_elements(a) || !tensor_elements(b) || !boxes_overlap(&a->box, &b->box))
    return false;
  if (a->is_box && b->is_box) return true;
  struct lattice a_lattice = lattice_of(a), b_lattice = lattice_of(b);
  return overlap(&a_lattice, &b_lattice, b->first - a->first);
}

bool elements_equal(const struct tensor *a, const struct tensor *b) {
  if (a->root != b->root || a->is_box != b->is_box || memcmp(&a->box, &b->box, sizeof a->box) != 0) return false;
  if (a->is_box) return true;
  struct lattice a_lattice = lattice_of(a), b_lattice = lattice_of(b);
  return a->first == b->first && a_lattice.levels == b_lattice.levels &&
         memcmp(a_lattice.level, b_lattice.level, sizeof a_lattice.level) == 0;
}

/* ---- Single elements --------------------------------------------------------------------------------------------- */

int64_t elements_at(const struct tensor *tensor, int64_t index) {
  int64_t at = tensor->first;
  for (uint32_t i = tensor->rank; i-- > 0; index /= tensor->shape[i])
    at += index % tensor->shape[i] * tensor->stride[i];
  return at;
}

int64_t elements_run(const struct tensor *tensor, int64_t at) {
  struct lattice lattice = lattice_of(tensor);
  int64_t rest = at - tensor->first, run = 1;
  for (uint32_t i = 0; i < lattice.levels && rest >= 0; i++) {
    const struct level *level = &lattice.level[i];
    if (rest / level->stride >= level->count) return 0;
    if (level->stride == 1) run = level->count - rest;
    rest %= level->stride;
  }
  return rest == 0 ? run : 0;
}
