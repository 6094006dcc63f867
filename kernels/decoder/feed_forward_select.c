/* feed_forward_select.c - whether the kernels of feed_forward_one.cu or feed_forward.cu suit a task, and how the latter
 * are dealt its rows and k. It follows from the shapes alone, so that a task has the same bits wherever it stands. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "decoder.h"
#include "feed_forward_one.h"

enum {
  BYTES_OF_TWO = 2,
  ALIGNMENT = 16,
  BANKS = 128,
  MOST_PITCH = 64,
  FEW = 4,
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

/* A task as a kernel is told it, and what it needs. */
struct deal {
  struct feed_forward_parameters parameters;
  uint64_t shared_bytes;
};

static int64_t slot_bytes(rondo_dtype weights) { return weights == RONDO_NVFP4 ? 768 : 2048; }
static int64_t up_to(int64_t value, int64_t multiple) { return divide_up(value, multiple) * multiple; }

/* The fewest chunks for the warp that has most. Where warps have several tiles, none may be left over. Cuts that would
 * leave one of them nothing are fewer cuts, which the loop comes by anyway. */
static int64_t cuts_of(int64_t tiles, int64_t chunks, int64_t warps, int64_t rows) {
  int64_t best = 1, least = INT64_MAX;
  for (int64_t cuts = 1; cuts <= smaller(warps, chunks); cuts++) {
    const int64_t rounds = divide_up(tiles, warps / cuts), most = rounds * divide_up(chunks, cuts);
    if ((rounds > 1 && warps % cuts) || cuts * tiles * rows * SUMS_OF_TILE > MOST_SUMS) continue;
    if (divide_up(chunks, divide_up(chunks, cuts)) != cuts) continue;
    if (most < least) best = cuts, least = most;
  }
  return best;
}

/* Tiles of a product to blocks, and chunks of k to warps. */
static struct feed_forward_product product_deal(const struct op_call *call, uint32_t matrix, int64_t tiles,
                                                int64_t chunks, int64_t warps, int64_t rows) {
  const struct op_operand *weights = &call->task->operands[matrix];
  const int64_t columns = weights->shape[1], of_block = divide_up(tiles, FEED_FORWARD_CLUSTER);
  const int64_t cut_chunks = divide_up(chunks, cuts_of(of_block, chunks, warps, rows));
  struct feed_forward_product product = {.weights = call->data[matrix],
                                         .scales = call->data[matrix + 1],
                                         .row_bytes = (uint32_t)(columns * BYTES_OF_TWO),
                                         .all_tiles = (uint32_t)tiles,
                                         .tiles = (uint32_t)of_block,
                                         .cuts = (uint32_t)divide_up(chunks, cut_chunks),
                                         .cut_chunks = (uint32_t)cut_chunks};
  if (weights->dtype == RONDO_NVFP4) {
    product.row_bytes = (uint32_t)(columns / 2);
    product.scale_row_bytes = (uint32_t)(columns / DECODER_SCALE_BLOCK);
  }
  product.reciprocal = (uint32_t)divide_up(1 << 16, product.cuts);
  product.step = of_block <= warps / product.cuts ? 1 << 16 : (uint32_t)(warps / product.cuts);
  return product;
}

static int64_t take(uint32_t *at, int64_t *bytes, int64_t alignment, int64_t size) {
  *bytes = up_to(*bytes, alignment);
  *at = (uint32_t)*bytes;
  return *bytes += size;
}

static int64_t sums_bytes(const struct feed_forward_product *product, int64_t rows) {
  return (int64_t)product->cuts * product->tiles * rows * FEED_FORWARD_TILE * (int64_t)sizeof(float);
}

/* Whether no task in front writes the weights and the norm. */
static bool reads_early(const struct op_call *call) {
  uint32_t needed = 0;
  for (uint32_t i = FEED_FORWARD_GATE_UP; i < FEED_FORWARD_OPERANDS; i++)
    if (call->task->operands[i].present) needed |= 1u << i;
  if (call->task->operands[DECODER_NORM].present) needed |= 1u << DECODER_NORM;
  return (call->settled_operands & needed) == needed;
}

static struct deal deal_make(const struct op_call *call, const struct feed_forward_shape *shape,
                             const struct variant *variant) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  const struct decoder_shape *decoder = &shape->decoder;
  const int64_t warps = FEED_FORWARD_THREADS / 32;
  const int64_t groups = shape->columns / CHUNK_COLUMNS, most_groups = divide_up(groups, decoder->out_parts);
  const int64_t units = decoder->hidden / FEED_FORWARD_UNIT, b_columns = decoder->rows * (variant->split ? 2 : 1);
  struct deal deal = {
      .parameters = {
          .gate_up = product_deal(call, FEED_FORWARD_GATE_UP, most_groups * (CHUNK_COLUMNS / 8),
                                  decoder->hidden / CHUNK_COLUMNS, warps, decoder->rows),
          .down = product_deal(call, FEED_FORWARD_DOWN, decoder->hidden / FEED_FORWARD_TILE, most_groups, warps,
                               decoder->rows),
          .hidden = (uint32_t)decoder->hidden,
          .rows = (uint32_t)decoder->rows,
          .early = reads_early(call),
          .groups = (uint32_t)groups,
          .parts = (uint32_t)decoder->out_parts,
          .units = (uint32_t)units,
          .unit_reciprocal = (uint32_t)divide_up(1 << 16, units),
          .pitch = (uint32_t)(up_to(decoder->hidden * BYTES_OF_TWO, BANKS) + MOST_PITCH),
          .received_pitch = (uint32_t)(up_to(most_groups * CHUNK_COLUMNS * BYTES_OF_TWO, BANKS) + MOST_PITCH),
          .x = call->data[DECODER_X],
          .norm = call->data[DECODER_NORM],
          .x_parts = call->data[DECODER_X_PARTS],
          .out = call->data[DECODER_OUT],
          .out_parts = call->data[DECODER_OUT_PARTS],
          .part_count = (uint32_t)decoder->x_parts,
          .epsilon = attributes->norm_epsilon,
          .inverse_hidden = 1.0f / (float)decoder->hidden,
          .scale = attributes->scale * (variant->weights == RONDO_NVFP4 ? 256.0f : 1.0f),
      }};
  struct feed_forward_parameters *p = &deal.parameters;
  int64_t bytes = FEED_FORWARD_BARRIERS;
  take(&p->squares, &bytes, ALIGNMENT, decoder->rows * units * (int64_t)sizeof(float));
  take(&p->received, &bytes, BANKS, b_columns * p->received_pitch);
  take(&p->activations, &bytes, BANKS, b_columns * p->pitch);
  take(&p->sums, &bytes, BANKS,
       larger(decoder->hidden * BYTES_OF_TWO,
              larger(sums_bytes(&p->gate_up, decoder->rows), sums_bytes(&p->down, decoder->rows))));
  deal.shared_bytes = (uint64_t)take(&p->ring, &bytes, BANKS, warps * variant->slots * slot_bytes(variant->weights));
  return deal;
}

static bool variant_suits(const struct variant *variant, const struct feed_forward_shape *shape,
                          const struct deal *deal, const struct chip *chip) {
  const struct decoder_shape *decoder = &shape->decoder;
  return variant->kernel.chips & launch_chip(chip) && variant->weights == decoder->weights &&
         variant->split == (decoder->rows <= FEW) && deal->shared_bytes <= (uint64_t)chip->shared_bytes;
}

static bool shape_suits(const struct op_task *task, const struct feed_forward_shape *shape) {
  const struct decoder_shape *decoder = &shape->decoder;
  const int64_t units = decoder->hidden / FEED_FORWARD_UNIT;
  if (units * units * decoder->rows > 1 << 16) return false; /* the reciprocal is good so far */
  return decoder->dtype == RONDO_BF16 && decoder_operands_are_dense(task) && decoder->dense_weights &&
         decoder->hidden % FEED_FORWARD_UNIT == 0 && units > 0 && shape->columns % CHUNK_COLUMNS == 0 &&
         shape->columns > 0 && decoder->x_parts <= FEED_FORWARD_MOST_PARTS &&
         decoder->out_parts <= smaller(shape->columns / CHUNK_COLUMNS, FEED_FORWARD_MOST_PARTS);
}

/* ---- Sizes known to the compiler -------------------------------------------------------------------------------- */

struct known_variant {
  struct op_kernel kernel;
  rondo_dtype weights;
  int64_t hidden, columns, most_rows;
};

#define KNOWN_ONE(chips, parameters, name, threads, W, hidden, columns, first_cuts, second_cuts)                       \
  {KERNEL_ENTRY(chips, parameters, name, threads), W, hidden, columns, 1},
#define KNOWN_ROWS(chips, parameters, name, threads, operands, W, hidden, columns, first_cuts, second_cuts)            \
  {KERNEL_ENTRY(chips, parameters, name, threads), W, hidden, columns, INT64_C(8) * (operands)},
/* In the order of most_rows for each pair of types: the first that suits is taken. */
static const struct known_variant known_variants[] = {FEED_FORWARD_ONE_KERNELS(KNOWN_ONE)
                                                          FEED_FORWARD_ROWS_KERNELS(KNOWN_ROWS)};

static bool known_suits(const struct known_variant *variant, const struct feed_forward_shape *shape,
                        const struct chip *chip) {
  const struct decoder_shape *decoder = &shape->decoder;
  return variant->kernel.chips & launch_chip(chip) && variant->weights == decoder->weights &&
         decoder->rows <= variant->most_rows && decoder->hidden == variant->hidden &&
         shape->columns == variant->columns && decoder->out_parts == FEED_FORWARD_ONE_PARTS &&
         decoder->x_parts <= FEED_FORWARD_ONE_X_PARTS;
}

static bool known_launch(const struct op_call *call, const struct feed_forward_shape *shape, const struct chip *chip,
                         struct op_launches *launches) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  const struct feed_forward_one_parameters parameters = {
      .gate_up = call->data[FEED_FORWARD_GATE_UP],
      .gate_up_scales = call->data[FEED_FORWARD_GATE_UP_SCALES],
      .down = call->data[FEED_FORWARD_DOWN],
      .down_scales = call->data[FEED_FORWARD_DOWN_SCALES],
      .x = call->data[DECODER_X],
      .norm = call->data[DECODER_NORM],
      .x_parts = call->data[DECODER_X_PARTS],
      .out = call->data[DECODER_OUT],
      .out_parts = call->data[DECODER_OUT_PARTS],
      .part_count = (uint32_t)shape->decoder.x_parts,
      .rows = (uint32_t)shape->decoder.rows,
      .early = reads_early(call),
      .epsilon = attributes->norm_epsilon,
      .scale = attributes->scale,
  };
  for (size_t i = 0; i < sizeof known_variants / sizeof *known_variants; i++) {
    const struct known_variant *variant = &known_variants[i];
    if (!known_suits(variant, shape, chip)) continue;
    launch_add(launches, &variant->kernel, (int64_t)FEED_FORWARD_ONE_PARTS * FEED_FORWARD_CLUSTER,
               variant->kernel.threads, 0, &parameters, sizeof parameters);
    return true;
  }
  return false;
}

bool feed_forward_launch(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct feed_forward_shape shape = feed_forward_shape_of(call->task);
  launches->count = 0;
  if (!shape_suits(call->task, &shape)) return false;
  if (known_launch(call, &shape, chip, launches)) return true;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct deal deal = deal_make(call, &shape, &variants[i]);
    if (!variant_suits(&variants[i], &shape, &deal, chip)) continue;
    launch_add(launches, &variants[i].kernel, shape.decoder.out_parts * FEED_FORWARD_CLUSTER, FEED_FORWARD_THREADS,
               deal.shared_bytes, &deal.parameters, sizeof deal.parameters);
    return true;
  }
  return false;
}
