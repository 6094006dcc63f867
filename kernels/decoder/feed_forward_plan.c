/* feed_forward_plan.c - the plans of all kernels of the feed forward: how feed_forward.cu shares rows and k, the
 * kernels that know their sizes, and the groups of feed_forward_stream.cu. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "decoder_choose.h"

enum {
  BYTES_OF_TWO = 2,
  BANKS = 128,
  MOST_PITCH = 64,
  FEW = 4,
  WARPS = FEED_FORWARD_THREADS / 32,
  CHUNK_COLUMNS = 64, /* of weights, in a slot */
  SUMS_OF_TILE = 64,
  MOST_SUMS = 32768
};

#define VARIANT(chips, parameters, name, threads, W, split, operands, slots)                                           \
  {KERNEL_ENTRY(chips, parameters, name, threads), W, split},
static const struct decoder_variant variants[] = {FEED_FORWARD_KERNELS(VARIANT)};
#define RANKS_VARIANT(chips, parameters, name, threads, W, split, operands, slots, held)                               \
  {KERNEL_ENTRY(chips, parameters, name, threads), W, held},
static const struct decoder_variant ranks_variants[] = {FEED_FORWARD_RANKS_KERNELS(RANKS_VARIANT)};

/* ---- Shares ------------------------------------------------------------------------------------------------------ */

/* Cuts of k, so that the warp with the most chunks has the fewest. If warps have several tiles, each has as many. A
 * number of cuts that leaves one of them empty is skipped: fewer cuts do the same. */
static int64_t cuts_of(int64_t tiles, int64_t chunks, int64_t rows) {
  int64_t best = 1, least = INT64_MAX;
  for (int64_t cuts = 1; cuts <= smaller(WARPS, chunks); cuts++) {
    const int64_t rounds = divide_up(tiles, WARPS / cuts), most = rounds * divide_up(chunks, cuts);
    if ((rounds > 1 && WARPS % cuts) || cuts * tiles * rows * SUMS_OF_TILE > MOST_SUMS) continue;
    if (divide_up(chunks, divide_up(chunks, cuts)) != cuts) continue;
    if (most < least) best = cuts, least = most;
  }
  return best;
}

/* Deals tiles of a product with `columns` columns to blocks, and chunks of k to warps. of_cut: chunks of a cut; 0: as
 * many as suit. */
static struct feed_forward_product product_deal(const struct decoder_shape *shape, int64_t columns, int64_t tiles,
                                                int64_t chunks, int64_t of_cut) {
  const bool is_nvfp4 = shape->weights == RONDO_NVFP4;
  const int64_t of_block = divide_up(tiles, LAYER_HALF_CLUSTER);
  const int64_t cut_chunks = of_cut ? of_cut : divide_up(chunks, cuts_of(of_block, chunks, shape->rows));
  const int64_t cuts = divide_up(chunks, cut_chunks);
  return (struct feed_forward_product){
      .row_bytes = (uint32_t)(is_nvfp4 ? columns / 2 : columns * BYTES_OF_TWO),
      .scale_row_bytes = (uint32_t)(is_nvfp4 ? columns / DECODER_SCALE_GROUP : 0),
      .all_tiles = (uint32_t)tiles,
      .tiles = (uint32_t)of_block,
      .cuts = (uint32_t)cuts,
      .cut_chunks = (uint32_t)cut_chunks,
      .reciprocal = (uint32_t)divide_up(1 << 16, cuts),
      .step = of_block <= WARPS / cuts ? 1 << 16 : (uint32_t)(WARPS / cuts),
  };
}

/* ---- Places in shared memory ------------------------------------------------------------------------------------- */

static int64_t pitch_of(int64_t columns) { return divide_up(columns * BYTES_OF_TWO, BANKS) * BANKS + MOST_PITCH; }

static int64_t sums_bytes(const struct feed_forward_product *product, int64_t rows) {
  return (int64_t)product->cuts * product->tiles * rows * LAYER_HALF_TILE * (int64_t)sizeof(float);
}

/* Behind the squares of one row lie what kernels over ranks keep: the number of the sum, and a word of each warp.
 * Returns the bytes of shared memory, but for the ring, which is behind them. */
static int64_t lay_out(const struct decoder_shape *shape, bool is_split, int64_t most_groups,
                       struct feed_forward_parameters *p) {
  const int64_t rows = shape->rows, b_columns = is_split ? 2 * rows : rows;
  int64_t at = FEED_FORWARD_BARRIERS;
  p->pitch = (uint32_t)pitch_of(shape->hidden);
  p->received_pitch = (uint32_t)pitch_of(most_groups * CHUNK_COLUMNS);
  const int64_t words = larger(rows * p->units, EXCHANGE_GATHER_NUMBERS / FEED_FORWARD_UNIT + 1 + WARPS);
  p->squares = decoder_take(&at, words * (int64_t)sizeof(float), BANKS);
  p->received = decoder_take(&at, b_columns * p->received_pitch, BANKS);
  p->activations = decoder_take(&at, b_columns * p->pitch, BANKS);
  const int64_t sums = larger(sums_bytes(&p->gate_up, rows), sums_bytes(&p->down, rows));
  p->sums = decoder_take(&at, larger(shape->hidden * BYTES_OF_TWO, sums), BANKS);
  p->ring = (uint32_t)at;
  return at;
}

/* ---- The ring ---------------------------------------------------------------------------------------------------- */

/* A launch of more than half of the multiprocessors takes so much that no two blocks share one: some would have two,
 * and others none (two ranks' share of Llama 1B: 460 us a token without its exchanges, not 409). */
static int64_t alone_bytes(int64_t clusters, const struct chip *chip) {
  const bool is_wide = 2 * clusters * LAYER_HALF_CLUSTER > chip->multiprocessors;
  return is_wide ? chip->shared_bytes / 2 + 1 : 0;
}

/* Deals `groups` to `parts` clusters, deep ones or not; k is cut as if all clusters had as many. Returns the bytes of
 * shared memory. */
static int64_t groups_deal(const struct decoder_shape *shape, bool is_split, int64_t parts, int64_t groups,
                           bool are_deep, struct feed_forward_parameters *p) {
  const int64_t most_groups =
      larger(divide_up(groups, parts), divide_up(shape->columns / CHUNK_COLUMNS, shape->out_parts));
  p->gate_up = product_deal(shape, shape->hidden, most_groups * (CHUNK_COLUMNS / 8), shape->hidden / CHUNK_COLUMNS,
                            are_deep ? FEED_FORWARD_HELD_CHUNKS : 0);
  p->down = product_deal(shape, shape->columns, shape->hidden / LAYER_HALF_TILE, most_groups, 0);
  p->groups = (uint32_t)groups;
  p->parts = (uint32_t)parts;
  return lay_out(shape, is_split, most_groups, p) +
         (int64_t)WARPS * (are_deep ? FEED_FORWARD_DEEP_BYTES : FEED_FORWARD_RING_BYTES(shape->weights));
}

bool feed_forward_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  const bool is_split = shape->rows <= FEW;
  const int64_t units = shape->hidden / FEED_FORWARD_UNIT, groups = shape->columns / CHUNK_COLUMNS;
  plan->kernel = DECODER_KERNEL(variants, shape, chip, is_split);
  /* The reciprocal of units is exact for as many units. */
  if (!plan->kernel || shape->out_parts > groups || units * units * shape->rows > 1 << 16) return false;
  struct feed_forward_parameters *p = &plan->told.ring;
  p->half.scale = shape->weights == RONDO_NVFP4 ? 256 : 1;
  p->hidden = (uint32_t)shape->hidden;
  p->inverse_hidden = 1.0f / (float)shape->hidden;
  p->units = (uint32_t)units;
  p->unit_reciprocal = (uint32_t)divide_up(1 << 16, units);
  plan->clusters = shape->out_parts;
  const int64_t bytes = groups_deal(shape, is_split, shape->out_parts, groups, false, p);
  plan->shared_bytes = larger(bytes, alone_bytes(plan->clusters, chip));
  return true;
}

/* ---- Over ranks -------------------------------------------------------------------------------------------------- */

/* A rank's attention has fewer blocks than the chip has multiprocessors. So clusters of the feed forward that share
 * none with them are deep: they have more slots, weights in registers, and so more weights before x arrives. They are a
 * launch of their own, the first one, since it finds room there alone; the others then find room beside attention
 * alone. */
static int64_t deep_clusters(const struct decoder_plan *plan, const struct decoder_shape *shape,
                             const struct chip *chip) {
  const struct exchange_gather *e = &plan->told.ring.exchange;
  const int64_t deep = shape->out_parts - shape->x_parts; /* attention's clusters leave a part each */
  const bool fit = shape->out_parts * LAYER_HALF_CLUSTER <= chip->multiprocessors;
  const bool divides = shape->hidden == (int64_t)WARPS * FEED_FORWARD_HELD_CHUNKS * CHUNK_COLUMNS;
  return e->gives && e->parts && fit && divides && shape->x_parts && deep > 0 ? deep : 0;
}

/* The groups of all clusters beside attention. When x arrives, a warp of a deep cluster has MORE chunks than a warp
 * here. So a cluster here gets fewer groups, and all warps then have as much left to load. */
static int64_t shallow_groups(const struct decoder_shape *shape, int64_t deep) {
  enum {
    MORE = FEED_FORWARD_DEEP_SLOTS + FEED_FORWARD_HELD * FEED_FORWARD_HELD_CHUNKS - FEED_FORWARD_SLOTS, /* chunks */
    GROUP = 3 /* chunks of a warp: two of gate and up, one of down */
  };
  const int64_t groups = shape->columns / CHUNK_COLUMNS, of_cluster = (groups - deep * MORE / GROUP) / shape->out_parts;
  return smaller((shape->out_parts - deep) * larger(of_cluster, 1), groups - deep);
}

/* A launch of clusters `first_part` to `end_part`, which have groups from `first_group` on. */
static void launch_deal(const struct decoder_shape *shape, const struct chip *chip, int64_t first_part,
                        int64_t end_part, int64_t first_group, int64_t groups, bool is_deep,
                        struct decoder_plan *plan) {
  struct feed_forward_parameters *p = &plan->told.ring;
  p->first_part = (uint32_t)first_part, p->first_group = (uint32_t)first_group;
  plan->kernel = DECODER_KERNEL(ranks_variants, shape, chip, is_deep ? FEED_FORWARD_HELD : 0);
  plan->clusters = end_part - first_part;
  plan->shared_bytes =
      larger(groups_deal(shape, true, plan->clusters, groups, is_deep, p), alone_bytes(shape->out_parts, chip));
}

bool feed_forward_gather(const struct op_call *call, const struct decoder_shape *shape, const struct chip *chip,
                         struct decoder_plan *plan) {
  const int64_t parts = shape->out_parts, groups = shape->columns / CHUNK_COLUMNS;
  if (!DECODER_KERNEL(ranks_variants, shape, chip, 0)) return false;
  plan->told.ring.exchange = decoder_gather_of(call);
  const int64_t deep = deep_clusters(plan, shape, chip), before = shallow_groups(shape, deep);
  if (deep) launch_deal(shape, chip, parts - deep, parts, before, groups - before, true, plan);
  if (!deep || plan->shared_bytes > chip->shared_bytes) launch_deal(shape, chip, 0, parts, 0, groups, false, plan);
  return true;
}

bool feed_forward_follow(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  struct feed_forward_parameters *p = &plan->told.ring;
  if (!p->first_part) return false;
  p->follows = 1;
  launch_deal(shape, chip, 0, p->first_part, 0, p->first_group, false, plan);
  return true;
}

/* ---- Sizes known to the compiler --------------------------------------------------------------------------------- */

struct known_variant {
  struct op_kernel kernel;
  rondo_dtype weights;
  int64_t hidden, columns, most_rows;
};

#define KNOWN_TOKEN(chips, parameters, name, threads, W, hidden, columns, first_cuts, second_cuts)                     \
  {KERNEL_ENTRY(chips, parameters, name, threads), W, hidden, columns, 1},
#define KNOWN_TOKENS(chips, parameters, name, threads, operands, W, hidden, columns, first_cuts, second_cuts)          \
  {KERNEL_ENTRY(chips, parameters, name, threads), W, hidden, columns, INT64_C(8) * (operands)},
/* In the order of most_rows for each type and size: the first that suits is taken. */
static const struct known_variant known_variants[] = {FEED_FORWARD_ONE_TOKEN_KERNELS(KNOWN_TOKEN)
                                                          FEED_FORWARD_SEVERAL_TOKENS_KERNELS(KNOWN_TOKENS)};

bool feed_forward_known_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  for (size_t i = 0; i < sizeof known_variants / sizeof *known_variants; i++) {
    const struct known_variant *variant = &known_variants[i];
    if (!(variant->kernel.chips & launch_chip(chip)) || variant->weights != shape->weights ||
        shape->rows > variant->most_rows || shape->hidden != variant->hidden || shape->columns != variant->columns)
      continue;
    plan->kernel = &variant->kernel, plan->clusters = FEED_FORWARD_KNOWN_PARTS, plan->told.half.scale = 1;
    return true;
  }
  return false;
}

/* Up to 8 rows with the bits of tokens: the kernel of bf16 with columns for the rows and for what rounding left. */
bool feed_forward_tokens_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  struct decoder_shape columns = *shape;
  columns.rows = DECODER_MOST_ROWS;
  plan->told.known.with_rests = 1;
  return feed_forward_known_plan(&columns, chip, plan);
}

/* ---- The stream -------------------------------------------------------------------------------------------------- */

FEED_FORWARD_STREAM_KERNELS(KERNEL_CONSTANT)

/* Groups of the last cluster. A late one takes half of the others' number, unless one of the others would then take
 * more than with equal shares. */
static int64_t last_groups(int64_t groups, int64_t parts, bool is_late) {
  const int64_t most = divide_up(groups, parts);
  return is_late ? larger(groups - (parts - 1) * most, most / 2) : groups / parts;
}

bool feed_forward_stream_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  enum { TILE_ROWS = 16, FLOATS_OF_WARP = 32 };
  const int64_t groups = shape->columns / FEED_FORWARD_STREAM_GROUP, of_cluster = divide_up(groups, shape->out_parts);
  if (!(rondo_feed_forward_stream.chips & launch_chip(chip)) || shape->out_parts > groups ||
      of_cluster > FEED_FORWARD_STREAM_GROUPS)
    return false;
  struct feed_forward_stream_parameters *p = &plan->told.stream;
  p->columns = (uint32_t)shape->columns;
  p->hidden = (uint32_t)shape->hidden;
  p->inverse_hidden = 1.0f / (float)shape->hidden;
  p->groups = (uint32_t)groups;
  p->parts = (uint32_t)shape->out_parts;
  p->last_groups = (uint32_t)last_groups(groups, shape->out_parts, shape->last_part_is_late);
  plan->kernel = &rondo_feed_forward_stream, plan->clusters = shape->out_parts, plan->told.half.scale = 1;
  /* Each block has a tile of 16 rows of each group; each warp leaves sums of it. */
  const int64_t sums = INT64_C(1) * FEED_FORWARD_STREAM_WARPS * FLOATS_OF_WARP * (int64_t)sizeof(float);
  const int64_t scales = FEED_FORWARD_STREAM_HIDDEN / DECODER_SCALE_GROUP + FEED_FORWARD_STREAM_SCALE_PADDING;
  const int64_t second = shape->hidden / LAYER_HALF_CLUSTER * (FEED_FORWARD_STREAM_GROUP / DECODER_SCALE_GROUP);
  const int64_t ring = (int64_t)FEED_FORWARD_STREAM_WARPS * FEED_FORWARD_STREAM_SLOTS * FEED_FORWARD_STREAM_SLOT;
  int64_t at = FEED_FORWARD_STREAM_FIXED;
  p->sums = decoder_take(&at, of_cluster * sums, BANKS);
  p->scales = decoder_take(&at, of_cluster * TILE_ROWS * scales, BANKS);
  p->second_scales = decoder_take(&at, of_cluster * second, BANKS);
  p->ring = decoder_take(&at, ring, BANKS);
  plan->shared_bytes = at;
  return true;
}
