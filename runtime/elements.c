/* elements.c - see elements.h. */
#include "elements.h"

#include <assert.h>
#include <string.h>

/* ---- Where they lie ---------------------------------------------------------------------------------------------- */

/* Blocks of blocks of elements, from the outermost to the innermost; a block reaches no further than the stride around
 * it. The outermost is two levels while it is cut into groups. */
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

/* From the innermost level to the outermost, each is laid along the outermost dimension of the root whose stride
 * divides its own. What it does not find room for there makes that dimension whole and goes on in the next. */
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

/* Blocks of both begin every `stride` elements: block i of a can meet block j of b where i - j is one of two numbers.
 */
static bool overlap_in_step(const struct lattice *a, const struct lattice *b, int64_t distance) {
  int64_t stride = a->level[0].stride;
  struct lattice a_block = block_of(a), b_block = block_of(b);
  for (int64_t shift = floor_of(distance, stride); shift <= floor_of(distance, stride) + 1; shift++) {
    if (shift >= a->level[0].count || -shift >= b->level[0].count) continue;
    if (overlap(&a_block, &b_block, distance - shift * stride)) return true;
  }
  return false;
}

/* b's blocks, of which several fit into one of a's strides, are cut into groups as long as that; some may be left. */
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

/* Each of a's blocks with all of b. Where b's stride divides the way between two of them they meet the same, or less
 * where b begins or ends within one: as only the first and the last can be. */
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

/* Has b, which begins `distance` elements behind a, an element of a's? */
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

/* ---- One by one -------------------------------------------------------------------------------------------------- */

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
