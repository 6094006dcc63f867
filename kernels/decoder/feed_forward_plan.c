/* feed_forward_plan.c - how the kernels of feed_forward.cu share rows and k, and the launches of all feed forwards but
 * the stream's. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "decoder_choose.h"

enum {
  BYTES_OF_TWO = 2,
  ALIGNMENT = 16,
  BANKS = 128,
  MOST_PITCH = 64,
  FEW = 4,
  WARPS = FEED_FORWARD_THREADS / 32,
  CHUNK_COLUMNS = 64, /* of weights, in a slot */
  SUMS_OF_TILE = 64,
  MOST_SUMS = 32768
};

struct variant {
  struct op_kernel kernel;
  rondo_dtype weights;
  bool split; /* a token is two columns of operand B */
  int64_t slots;
};

#define VARIANT(chips, parameters, name, threads, W, split, operands, slots)                                           \
  {KERNEL_ENTRY(chips, parameters, name, threads), W, split, slots},
static const struct variant variants[] = {FEED_FORWARD_KERNELS(VARIANT)};

bool feed_forward_lies_well(const struct op_task *task) { return decoder_operands_are_dense(task); }

bool feed_forward_reads_early(const struct op_call *call) {
  static const uint32_t operands[] = {DECODER_NORM, FEED_FORWARD_GATE_UP, FEED_FORWARD_GATE_UP_SCALES,
                                      FEED_FORWARD_DOWN, FEED_FORWARD_DOWN_SCALES};
  return decoder_are_settled(call, operands, sizeof operands / sizeof *operands);
}

/* ---- Shares ------------------------------------------------------------------------------------------------------ */

static int64_t slot_bytes(rondo_dtype weights) { return weights == RONDO_NVFP4 ? 768 : 2048; }

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

/* Tiles of a product with `columns` columns to blocks, and chunks of k to warps. */
static struct feed_forward_product product_deal(const struct decoder_shape *shape, int64_t columns, int64_t tiles,
                                                int64_t chunks) {
  const bool is_nvfp4 = shape->weights == RONDO_NVFP4;
  const int64_t of_block = divide_up(tiles, FEED_FORWARD_CLUSTER);
  const int64_t cut_chunks = divide_up(chunks, cuts_of(of_block, chunks, shape->rows));
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

static int64_t take(uint32_t *at, int64_t *bytes, int64_t alignment, int64_t size) {
  *bytes = divide_up(*bytes, alignment) * alignment;
  *at = (uint32_t)*bytes;
  return *bytes += size;
}

static int64_t pitch_of(int64_t columns) { return divide_up(columns * BYTES_OF_TWO, BANKS) * BANKS + MOST_PITCH; }

static int64_t sums_bytes(const struct feed_forward_product *product, int64_t rows) {
  return (int64_t)product->cuts * product->tiles * rows * FEED_FORWARD_TILE * (int64_t)sizeof(float);
}

static int64_t lay_out(const struct decoder_shape *shape, const struct variant *variant, int64_t most_groups,
                       struct feed_forward_parameters *p) {
  const int64_t rows = shape->rows, b_columns = rows * (variant->split ? 2 : 1);
  int64_t bytes = FEED_FORWARD_BARRIERS;
  p->pitch = (uint32_t)pitch_of(shape->hidden);
  p->received_pitch = (uint32_t)pitch_of(most_groups * CHUNK_COLUMNS);
  take(&p->squares, &bytes, ALIGNMENT, rows * p->units * (int64_t)sizeof(float));
  take(&p->received, &bytes, BANKS, b_columns * p->received_pitch);
  take(&p->activations, &bytes, BANKS, b_columns * p->pitch);
  take(&p->sums, &bytes, BANKS,
       larger(shape->hidden * BYTES_OF_TWO, larger(sums_bytes(&p->gate_up, rows), sums_bytes(&p->down, rows))));
  return take(&p->ring, &bytes, BANKS, WARPS * variant->slots * slot_bytes(variant->weights));
}

/* ---- Plan and launch --------------------------------------------------------------------------------------------- */

static const struct variant *variant_for(const struct decoder_shape *shape, uint32_t chip) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
    if (variants[i].kernel.chips & chip && variants[i].weights == shape->weights &&
        variants[i].split == (shape->rows <= FEW))
      return &variants[i];
  return NULL;
}

bool feed_forward_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  const struct variant *variant = variant_for(shape, launch_chip(chip));
  const int64_t units = shape->hidden / FEED_FORWARD_UNIT, groups = shape->columns / CHUNK_COLUMNS;
  /* The reciprocal of units is exact for as many units. */
  if (!variant || shape->out_parts > groups || units * units * shape->rows > 1 << 16) return false;
  const int64_t most_groups = divide_up(groups, shape->out_parts);
  struct feed_forward_parameters *p = &plan->told.ring;
  p->gate_up = product_deal(shape, shape->hidden, most_groups * (CHUNK_COLUMNS / 8), shape->hidden / CHUNK_COLUMNS);
  p->down = product_deal(shape, shape->columns, shape->hidden / FEED_FORWARD_TILE, most_groups);
  p->groups = (uint32_t)groups;
  p->parts = (uint32_t)shape->out_parts;
  p->units = (uint32_t)units;
  p->unit_reciprocal = (uint32_t)divide_up(1 << 16, units);
  plan->kernel = &variant->kernel, plan->clusters = shape->out_parts;
  plan->shared_bytes = lay_out(shape, variant, most_groups, p);
  return true;
}

rondo_status feed_forward_launch(const struct op_call *call, const struct chip *chip, const struct decoder_shape *shape,
                                 struct decoder_plan *plan, struct op_launches *launches) {
  (void)chip;
  const struct decoder_attributes *attributes = op_attributes(call->task);
  struct feed_forward_parameters *p = &plan->told.ring;
  p->gate_up.weights = call->data[FEED_FORWARD_GATE_UP];
  p->gate_up.scales = call->data[FEED_FORWARD_GATE_UP_SCALES];
  p->down.weights = call->data[FEED_FORWARD_DOWN];
  p->down.scales = call->data[FEED_FORWARD_DOWN_SCALES];
  p->hidden = (uint32_t)shape->hidden;
  p->rows = (uint32_t)shape->rows;
  p->early = feed_forward_reads_early(call);
  p->x = call->data[DECODER_X];
  p->norm = call->data[DECODER_NORM];
  p->x_parts = call->data[DECODER_X_PARTS];
  p->out = call->data[DECODER_OUT];
  p->out_parts = call->data[DECODER_OUT_PARTS];
  p->part_count = (uint32_t)shape->x_parts;
  p->epsilon = attributes->norm_epsilon;
  p->inverse_hidden = 1.0f / (float)shape->hidden;
  p->scale = attributes->scale * (shape->weights == RONDO_NVFP4 ? 256.0f : 1.0f);
  return decoder_launch_add(plan, launches);
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
    plan->kernel = &variant->kernel, plan->clusters = FEED_FORWARD_KNOWN_PARTS;
    return true;
  }
  return false;
}

rondo_status feed_forward_known_launch(const struct op_call *call, const struct chip *chip,
                                       const struct decoder_shape *shape, struct decoder_plan *plan,
                                       struct op_launches *launches) {
  (void)chip;
  const struct decoder_attributes *attributes = op_attributes(call->task);
  plan->told.known = (struct feed_forward_known_parameters){
      .gate_up = call->data[FEED_FORWARD_GATE_UP],
      .gate_up_scales = call->data[FEED_FORWARD_GATE_UP_SCALES],
      .down = call->data[FEED_FORWARD_DOWN],
      .down_scales = call->data[FEED_FORWARD_DOWN_SCALES],
      .x = call->data[DECODER_X],
      .norm = call->data[DECODER_NORM],
      .x_parts = call->data[DECODER_X_PARTS],
      .out = call->data[DECODER_OUT],
      .out_parts = call->data[DECODER_OUT_PARTS],
      .part_count = (uint32_t)shape->x_parts,
      .rows = (uint32_t)shape->rows,
      .early = feed_forward_reads_early(call),
      .epsilon = attributes->norm_epsilon,
      .scale = attributes->scale,
  };
  return decoder_launch_add(plan, launches);
}
