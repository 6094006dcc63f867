/* attention_wgmma.c - which attentions go to the kernels of attention_wgmma.cu and attention_wgmma_e4m3.cu, to which,
 * how tiles are dealt, and the launch.
 *
 * Three warpgroups (high tiles) beat two at head dimension 64 where few of their rows are wasted. Pairs of blocks that
 * share copies of K and V beat single ones where they do not have to be started for a few tiles. Pairs that share query
 * tiles, and take half of the KV tiles each, beat single ones where the longest query tile takes longest. */
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_choose.h"

/* Blocks that share copies have a share each: rows of narrow heads, else columns. */
#define BOX_ROWS(dimension, tile, cluster)                                                                             \
  ((dimension) == ATTENTION_WGMMA_LEAST_DIMENSION ? (tile) / (cluster) : (tile))
#define BOX_COLUMNS(dimension, cluster)                                                                                \
  ((dimension) == ATTENTION_WGMMA_LEAST_DIMENSION ? (dimension) : (dimension) / (cluster))
#define SHARES(mask, blocks) ((blocks) / ATTENTION_WGMMA_PARTS(ATTENTION_WGMMA_##mask, blocks))
#define IS_E4M3(element)     ((element) == RONDO_E4M3)
/* Of V in e4m3, each of two warps copies half of a KV tile. */
#define VARIANT(chips, parameters, name, threads, element, dimension, mask_of_kernel, warpgroups, tile_rows, kv_slots, \
                query_slots, blocks, early)                                                                            \
  {.kernel = KERNEL_ENTRY(chips, parameters, name, threads),                                                           \
   .dtype = (element),                                                                                                 \
   .head_dimension = (dimension),                                                                                      \
   .mask = ATTENTION_WGMMA_##mask_of_kernel,                                                                           \
   .rows = INT64_C(64) * (warpgroups),                                                                                 \
   .tile = (tile_rows),                                                                                                \
   .cluster = (blocks),                                                                                                \
   .at_once = ATTENTION_WGMMA_AT_ONCE(warpgroups),                                                                     \
   .parts = ATTENTION_WGMMA_PARTS(ATTENTION_WGMMA_##mask_of_kernel, blocks),                                           \
   .shared_bytes = IS_E4M3(element)                                                                                    \
                       ? ATTENTION_E4M3_SHARED_BYTES(dimension, warpgroups, tile_rows, kv_slots, query_slots)          \
                       : ATTENTION_WGMMA_SHARED_BYTES(dimension, ATTENTION_WGMMA_##mask_of_kernel, warpgroups,         \
                                                      tile_rows, kv_slots, query_slots, blocks),                       \
   .key_box_rows = BOX_ROWS(dimension, tile_rows, SHARES(mask_of_kernel, blocks)),                                     \
   .value_box_rows =                                                                                                   \
       IS_E4M3(element) ? (tile_rows) / 2 : BOX_ROWS(dimension, tile_rows, SHARES(mask_of_kernel, blocks)),            \
   .box_columns = BOX_COLUMNS(dimension, SHARES(mask_of_kernel, blocks))},
static const struct attention_wgmma_variant variants[] = {ATTENTION_WGMMA_KERNELS(VARIANT)
                                                              ATTENTION_E4M3_KERNELS(VARIANT)};

enum {
  SHORT_CAPACITY = 1024,     /* KV rows: fewer need no splits */
  KV_ROWS_OF_A_ROW = 4,      /* with new rows: KV rows of the capacity for each row of a query head */
  TOGETHER_BYTES = 36 << 20, /* of K and V of a group of heads, which stay in L2 */
  PACKED_ITEM_ROWS = 16      /* with fewer rows an item, most rows of tiles are wasted: other kernels fold heads too */
};

/* The time of a variant on an H200 with all multiprocessors at work: for each KV tile of a query tile, for each query
 * tile, and for the launch. */
static const struct speed {
  int64_t head_dimension, rows, cluster;
  int64_t tile_ns, query_ns, launch_ns;
} speeds[] = {
    {64, 128, 1, 960, 900, 0},     {64, 64, 2, 960, 2000, 0},      {64, 192, 1, 1240, 1460, 0},
    {128, 128, 1, 1310, 2050, 0},  {128, 128, 2, 1275, 2040, 600}, {256, 128, 1, 636, 2270, 0},
    {256, 128, 2, 618, 2180, 600},
};

static const struct speed *speed_of(const struct attention_wgmma_variant *variant) {
  const struct speed *speed = speeds;
  while (speed->head_dimension != variant->head_dimension || speed->rows != variant->rows ||
         speed->cluster != variant->cluster)
    speed++;
  return speed;
}

/* The most KV rows that a query row sees. */
static int64_t most_seen(const struct attention_shape *shape) {
  return shape->window ? smaller(shape->window, shape->capacity) : shape->capacity;
}

/* Are there query tiles for a third of the chip, or so few KV tiles that splits would not help? New rows end anywhere
 * in the capacity. Splits do not help where they end early, as most prompts do. So a chunk at the end of the capacity
 * may take longer here than in splits; KV_ROWS_OF_A_ROW limits by how much. */
static bool has_tiles(const struct attention_problem *problem) {
  const struct attention_shape *shape = &problem->shape;
  const int64_t rows = shape->batch * shape->query_heads * shape->query_length, seen = most_seen(shape);
  return seen <= SHORT_CAPACITY || rows * 3 >= (int64_t)problem->chip.multiprocessors * 128 ||
         (shape->has_ends && seen <= KV_ROWS_OF_A_ROW * rows);
}

/* In e4m3 the scale must be a normal number. */
static bool is_possible(const struct attention_problem *problem) {
  const struct attention_shape *shape = &problem->shape;
  if (shape->packed && shape->query_length < PACKED_ITEM_ROWS * shape->items) return false;
  const float scale_log2 = shape->scale * 1.44269504f;
  const bool has_scale = problem->q == RONDO_E4M3 ? isnormal(scale_log2) : isfinite(scale_log2);
  return problem->has_maps && scale_log2 > 0.0f && has_scale && has_tiles(problem);
}

/* Clusters that run at once. */
static int64_t most_clusters(const struct attention_problem *problem, const struct attention_wgmma_variant *variant) {
  return problem->chip.multiprocessors * variant->at_once / variant->cluster;
}

/* Query positions of a head that a cluster takes. */
static int64_t cluster_rows(const struct attention_wgmma_variant *variant) {
  return variant->rows * variant->cluster / variant->parts;
}

/* KV tiles that the rows of a query tile see, at full lengths; of two parts the larger. */
static int64_t kv_tiles(const struct attention_shape *shape, const struct attention_wgmma_variant *variant,
                        int64_t row_tile) {
  const int64_t first = row_tile * variant->rows, offset = shape->capacity - shape->query_length;
  int64_t limit = shape->capacity, begin = 0;
  if (shape->causal) limit = smaller(first + variant->rows + offset, limit);
  if (shape->window) begin = larger(first + 1 + offset - shape->window, 0);
  return larger(divide_up(limit - begin, variant->tile * variant->parts), 1);
}

/* Without a mask, query tiles take equally long and come in whole rounds. Others are dealt so that all blocks have the
 * same work. */
static int64_t shape_ns(const struct attention_problem *problem, const struct attention_shape *shape,
                        const struct attention_wgmma_variant *variant) {
  const struct speed *speed = speed_of(variant);
  const int64_t heads = shape->batch * shape->query_heads, clusters = most_clusters(problem, variant);
  const int64_t row_tiles = divide_up(shape->query_length, cluster_rows(variant));
  const int64_t longest_ns = kv_tiles(shape, variant, row_tiles - 1) * speed->tile_ns + speed->query_ns;
  if (!shape->causal) return divide_up(heads * row_tiles, clusters) * longest_ns + speed->launch_ns;
  int64_t head_ns = 0;
  for (int64_t i = 0; i < row_tiles; i++) head_ns += kv_tiles(shape, variant, i) * speed->tile_ns + speed->query_ns;
  return larger(divide_up(heads * head_ns, clusters), longest_ns) + speed->launch_ns;
}

/* New rows end anywhere in the capacity: the mean of both ends. */
static int64_t estimate_ns(const struct attention_problem *problem, const struct attention_wgmma_variant *variant) {
  const int64_t last_ns = shape_ns(problem, &problem->shape, variant);
  if (!problem->shape.has_ends) return last_ns;
  struct attention_shape first = problem->shape;
  first.capacity = smaller(first.capacity, first.query_length);
  return (shape_ns(problem, &first, variant) + last_ns) / 2;
}

/* General kernels place KV tiles so that the last ends with a query tile's last visible row. This is better wherever
 * query tiles and KV tiles would not end together under a causal mask. Where new rows end is not known here:
 * causal kernels, which have less code, are 2% faster if they end with a KV tile, else as fast within 1%. */
static enum attention_wgmma_mask mask_of(const struct attention_problem *problem) {
  const struct attention_shape *shape = &problem->shape;
  const bool together = shape->has_ends || (shape->capacity - shape->query_length) % 128 == 0;
  if (shape->window || shape->soft_cap > 0.0f || shape->packed) return ATTENTION_WGMMA_GENERAL;
  if (!shape->causal) return ATTENTION_WGMMA_ALL;
  return together || problem->q == RONDO_E4M3 ? ATTENTION_WGMMA_CAUSAL : ATTENTION_WGMMA_GENERAL;
}

static const struct attention_wgmma_variant *variant_of(const struct attention_problem *problem) {
  const struct attention_wgmma_variant *best = NULL;
  const enum attention_wgmma_mask mask = mask_of(problem);
  const int64_t dimension = larger(problem->shape.head_dimension, ATTENTION_WGMMA_LEAST_DIMENSION);
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct attention_wgmma_variant *v = &variants[i];
    if (!(v->kernel.chips & launch_chip(&problem->chip)) || v->dtype != problem->q || v->mask != mask ||
        v->head_dimension != dimension || v->shared_bytes > problem->chip.shared_bytes ||
        v->cluster > problem->chip.multiprocessors)
      continue;
    if (!best || estimate_ns(problem, v) < estimate_ns(problem, best)) best = v;
  }
  return best;
}

/* The time of the block with the most work under the causal mask, as attention_wgmma_tiles.cuh deals tiles. */
static int64_t most_work_ns(const struct attention_shape *shape, const struct attention_wgmma_plan *plan,
                            int64_t heads) {
  const struct speed *speed = speed_of(plan->variant);
  const int64_t blocks = plan->blocks, group_tiles = plan->heads_together * plan->row_tiles;
  int64_t most = 0;
  for (int64_t block = 0; block < blocks; block++) {
    int64_t work = 0, turn = 0;
    for (int64_t first = 0; first < heads; first += plan->heads_together) {
      const int64_t together = smaller(plan->heads_together, heads - first);
      for (int64_t begin = 0; begin < group_tiles; begin += blocks, turn++) {
        const int64_t index = begin + (turn % 2 ? blocks - 1 - block : block);
        if (index >= together * plan->row_tiles) continue;
        const int64_t row_tile = plan->row_tiles - 1 - index / together;
        work += kv_tiles(shape, plan->variant, row_tile) * speed->tile_ns + speed->query_ns;
      }
    }
    most = larger(most, work);
  }
  return most;
}

static void deal(const struct attention_problem *problem, int64_t heads_together, struct attention_wgmma_plan *plan) {
  const int64_t cluster = plan->variant->cluster;
  const int64_t clusters = smaller(most_clusters(problem, plan->variant), heads_together * plan->row_tiles);
  plan->heads_together = heads_together;
  plan->rounds = divide_up(heads_together * plan->row_tiles, clusters);
  plan->blocks = clusters * cluster;
}

/* Heads of about as many KV heads as stay in L2. With some fewer the rounds of a group may come out even, and so the
 * work; groups are alike, and looking at those of some thousand tiles is enough. */
static void deal_evenly(const struct attention_problem *problem, struct attention_wgmma_plan *plan) {
  enum { TRIALS = 40, PARTS = 64, SOME_TILES = 4096 };
  const struct attention_shape *shape = &problem->shape;
  const int64_t number_bytes = rondo_dtype_bits(problem->q) / 8;
  const int64_t kv_head_bytes = most_seen(shape) * plan->variant->head_dimension * number_bytes * 2;
  const int64_t heads = shape->batch * shape->query_heads;
  const int64_t limit = smaller(larger(TOGETHER_BYTES / kv_head_bytes, 1) * shape->group, heads);
  const int64_t some_heads = smaller(heads, larger(SOME_TILES / plan->row_tiles, 1));
  int64_t least = INT64_MAX, best = limit, last = 0;
  for (int64_t i = 0; i < TRIALS; i++) {
    const int64_t trial = limit - limit * i / PARTS;
    if (trial == last) continue;
    last = trial;
    deal(problem, trial, plan);
    const int64_t work = most_work_ns(shape, plan, some_heads);
    if (work >= least) continue;
    least = work;
    best = trial;
  }
  deal(problem, best, plan);
}

bool attention_wgmma_plan_of(const struct attention_problem *problem, struct attention_plan *whole) {
  const struct attention_shape *shape = &problem->shape;
  struct attention_wgmma_plan *plan = &whole->wgmma;
  plan->variant = is_possible(problem) ? variant_of(problem) : NULL;
  if (!plan->variant) return false;
  const int64_t heads = shape->batch * shape->query_heads;
  plan->row_tiles = divide_up(shape->query_length, cluster_rows(plan->variant));
  if (shape->packed) {
    plan->row_tiles = shape->query_length / plan->variant->rows + shape->items; /* attention_items.cuh */
    deal(problem, heads, plan);
  } else if (shape->causal)
    deal_evenly(problem, plan);
  else
    deal(problem, heads, plan);
  return plan->rounds * divide_up(heads, plan->heads_together) <= ATTENTION_WGMMA_MOST_TILES;
}

/* ---- The launch -------------------------------------------------------------------------------------------------- */

static struct attention_wgmma_parameters parameters_of(const struct op_call *call, const struct attention_shape *shape,
                                                       const struct attention_wgmma_plan *plan) {
  const int64_t *lse_stride = call->task->operands[ATTENTION_LSE].stride;
  const bool is_capped = shape->soft_cap > 0.0f;
  const struct attention_stride o_stride = {shape->packed ? 0 : shape->o_stride.batch, shape->o_stride.head,
                                            shape->o_stride.position};
  return (struct attention_wgmma_parameters){
      .o = call->data[ATTENTION_O],
      .lse = call->data[ATTENTION_LSE],
      .kv_lengths = call->data[ATTENTION_KV_LENGTHS],
      .position = call->data[ATTENTION_POSITION],
      .o_stride = o_stride,
      .lse_batch_stride = shape->packed ? 0 : lse_stride[0],
      .lse_head_stride = lse_stride[1],
      .query_heads = (uint32_t)shape->query_heads,
      .group = (uint32_t)shape->group,
      .heads = (uint32_t)(shape->batch * shape->query_heads),
      .row_tiles = (uint32_t)plan->row_tiles,
      .heads_together = (uint32_t)plan->heads_together,
      .rounds = (uint32_t)plan->rounds,
      .query_length = (int32_t)shape->query_length,
      .capacity = (int32_t)shape->capacity,
      .most_length = (int32_t)shape->most_length,
      .head_dimension = (int32_t)shape->head_dimension,
      .scale_log2 = (is_capped ? shape->soft_cap : shape->scale) * 1.44269504f,
      .cap_scale = is_capped ? shape->scale / shape->soft_cap : 0.0f,
      .window = shape->window ? (int32_t)shape->window : ATTENTION_WGMMA_NO_WINDOW,
      .causal_length = shape->packed   ? ATTENTION_WGMMA_PACKED_LENGTH
                       : shape->causal ? (int32_t)shape->query_length
                                       : 0,
      .starts = call->data[ATTENTION_ROW_OFFSETS],
      .items = (uint32_t)shape->items,
      .batch_bits = shape->packed ? 0 : ATTENTION_WGMMA_ANY_BATCH,
      .v_scale = shape->v_scale,
      .bf16 = call->task->operands[ATTENTION_O].dtype == RONDO_BF16,
  };
}

/* Whichever of both layouts the operand has. */
static void map(struct op_launch *launch, size_t offset, const struct op_call *call, uint32_t index, int64_t rows,
                int64_t columns) {
  const struct attention_attributes *attributes = op_attributes(call->task);
  struct op_operand operand = call->task->operands[index];
  if (attributes->layout == RONDO_BSHD) {
    const int64_t positions = operand.shape[1], stride = operand.stride[1];
    operand.shape[1] = operand.shape[2];
    operand.stride[1] = operand.stride[2];
    operand.shape[2] = positions;
    operand.stride[2] = stride;
  }
  launch_map(launch, offset, &operand, call->data[index], (const uint32_t[]){1, 1, (uint32_t)rows, (uint32_t)columns});
}

void attention_wgmma_launch(const struct op_call *call, const struct attention_shape *shape,
                            const struct attention_plan *plan, struct op_launches *launches) {
  const struct attention_wgmma_variant *variant = plan->wgmma.variant;
  const struct attention_wgmma_parameters parameters = parameters_of(call, shape, &plan->wgmma);
  struct op_launch *launch = launch_add(launches, &variant->kernel, plan->wgmma.blocks, variant->kernel.threads,
                                        (uint64_t)variant->shared_bytes, &parameters, sizeof parameters);
  map(launch, offsetof(struct attention_wgmma_parameters, q), call, ATTENTION_Q, ATTENTION_WGMMA_QUERY_BOX,
      variant->head_dimension);
  map(launch, offsetof(struct attention_wgmma_parameters, k), call, ATTENTION_K, variant->key_box_rows,
      variant->box_columns);
  map(launch, offsetof(struct attention_wgmma_parameters, v), call, ATTENTION_V, variant->value_box_rows,
      variant->box_columns);
}
