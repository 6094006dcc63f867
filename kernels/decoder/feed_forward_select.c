/* feed_forward_select.c - whether the kernels of feed_forward.cu suit a task, and how they are dealt its rows and k. It
 * follows from the shapes alone, so that a task has the same bits wherever it stands. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "decoder.h"
#include "feed_forward.h"

enum { BYTES_OF_TWO = 2, ALIGNMENT = 16, BANKS = 128, MOST_PITCH = 64, FEW = 4, CHUNK_16 = 32, CHUNK_NVFP4 = 64 };

struct variant {
  struct op_kernel kernel;
  rondo_dtype weights, dtype;
  bool split; /* a token is two columns of operand B */
  int64_t parts, first, second;
};

#define VARIANT(chips, parameters, name, threads, what, W, V, split, operands, parts, first, second)                   \
  {KERNEL_ENTRY(chips, parameters, name, threads), W, V, split, parts, first, second},
static const struct variant variants[] = {FEED_FORWARD_KERNELS(VARIANT)};

/* A task as a kernel is told it, and what it needs. */
struct deal {
  struct feed_forward_parameters parameters;
  uint64_t shared_bytes;
};

static int64_t chunk_elements(rondo_dtype weights) { return weights == RONDO_NVFP4 ? CHUNK_NVFP4 : CHUNK_16; }
static int64_t slot_bytes(rondo_dtype weights) { return weights == RONDO_NVFP4 ? 768 : 1024; }
static int64_t up_to(int64_t value, int64_t multiple) { return divide_up(value, multiple) * multiple; }

/* Tiles of a product to blocks, and where there are more warps than these, chunks of k to warps. */
static struct feed_forward_product product_deal(const struct op_call *call, uint32_t matrix, int64_t tiles,
                                                int64_t chunks, int64_t warps) {
  const struct op_operand *weights = &call->task->operands[matrix];
  const int64_t columns = weights->shape[1], of_block = divide_up(tiles, FEED_FORWARD_CLUSTER);
  const int64_t cuts = of_block < warps ? smaller(warps / of_block, chunks) : 1, cut_chunks = divide_up(chunks, cuts);
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

static struct deal deal_make(const struct op_call *call, const struct feed_forward_shape *shape,
                             const struct variant *variant) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  const struct op_operand *operands = call->task->operands;
  const struct decoder_shape *decoder = &shape->decoder;
  const int64_t elements = chunk_elements(variant->weights), warps = FEED_FORWARD_THREADS / 32;
  const int64_t groups = shape->columns / elements, most_groups = divide_up(groups, decoder->out_parts);
  const int64_t units = decoder->hidden / FEED_FORWARD_UNIT, b_columns = decoder->rows * (variant->split ? 2 : 1);
  const uint32_t early = 1u << FEED_FORWARD_GATE_UP | 1u << FEED_FORWARD_DOWN |
                         (operands[FEED_FORWARD_GATE_UP_SCALES].present ? 1u << FEED_FORWARD_GATE_UP_SCALES : 0) |
                         (operands[FEED_FORWARD_DOWN_SCALES].present ? 1u << FEED_FORWARD_DOWN_SCALES : 0) |
                         (operands[DECODER_NORM].present ? 1u << DECODER_NORM : 0);
  struct deal deal = {.parameters = {
                          .gate_up = product_deal(call, FEED_FORWARD_GATE_UP, most_groups * (elements / 8),
                                                  decoder->hidden / elements, warps),
                          .down = product_deal(call, FEED_FORWARD_DOWN, decoder->hidden / FEED_FORWARD_TILE,
                                               most_groups, warps),
                          .hidden = (uint32_t)decoder->hidden,
                          .rows = (uint32_t)decoder->rows,
                          .early = (call->settled_operands & early) == early,
                          .groups = (uint32_t)groups,
                          .parts = (uint32_t)decoder->out_parts,
                          .units = (uint32_t)units,
                          .padded_units = (uint32_t)up_to(units, 4),
                          .unit_reciprocal = (uint32_t)divide_up(1 << 16, units),
                          .pitch = (uint32_t)(up_to(decoder->hidden * BYTES_OF_TWO, BANKS) + MOST_PITCH),
                          .received_pitch = (uint32_t)(up_to(most_groups * elements * BYTES_OF_TWO, BANKS) + MOST_PITCH),
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
  /* One token's squares lie there one by one. */
  const int64_t squares = larger(decoder->rows * p->padded_units, decoder->hidden / 2) * (int64_t)sizeof(float);
  take(&p->squares, &bytes, ALIGNMENT, squares);
  take(&p->norm_at, &bytes, ALIGNMENT, decoder->hidden * BYTES_OF_TWO);
  take(&p->received, &bytes, BANKS, b_columns * p->received_pitch);
  take(&p->activations, &bytes, BANKS, b_columns * p->pitch);
  take(&p->sums, &bytes, BANKS, sums_bytes(&p->gate_up, decoder->rows));
  take(&p->second_sums, &bytes, BANKS, sums_bytes(&p->down, decoder->rows));
  deal.shared_bytes = (uint64_t)take(&p->ring, &bytes, BANKS,
                                     warps * (variant->first + variant->second) * slot_bytes(variant->weights));
  return deal;
}

/* One token: each warp has one tile and all its chunks at once, a warp is left for the norm's factor, and the threads
 * are enough for what is gated and for the results. */
static bool suits_one(const struct feed_forward_parameters *p, const struct variant *variant) {
  const uint32_t warps = FEED_FORWARD_THREADS / 32;
  return p->rows == 1 && p->units <= warps && p->gate_up.tiles * p->gate_up.cuts < warps &&
         p->down.tiles * p->down.cuts <= warps && p->gate_up.cut_chunks <= variant->first &&
         p->down.cut_chunks <= variant->second && p->gate_up.cuts <= FEED_FORWARD_MOST_CUTS &&
         p->down.cuts <= FEED_FORWARD_MOST_CUTS &&
         p->gate_up.tiles * 8 * FEED_FORWARD_CLUSTER <= FEED_FORWARD_THREADS;
}

static bool variant_suits(const struct variant *variant, const struct feed_forward_shape *shape, const struct deal *deal,
                          const struct chip *chip) {
  const struct decoder_shape *decoder = &shape->decoder;
  if (!(variant->kernel.chips & launch_chip(chip)) || variant->weights != decoder->weights ||
      variant->dtype != decoder->dtype || decoder->x_parts > variant->parts)
    return false;
  if (deal->shared_bytes > (uint64_t)chip->shared_bytes) return false;
  if (variant->second) return suits_one(&deal->parameters, variant);
  return variant->split == (decoder->rows <= FEW);
}

/* Rows follow each other, from multiples of 16 bytes on. */
static bool is_dense(const struct op_operand *operand) {
  int64_t step = 1;
  for (uint32_t i = operand->rank; i-- > 0; step *= operand->shape[i])
    if (operand->shape[i] != 1 && operand->stride[i] != step) return false;
  return op_rows_aligned(operand, ALIGNMENT);
}

static bool shape_suits(const struct op_task *task, const struct feed_forward_shape *shape) {
  const struct decoder_shape *decoder = &shape->decoder;
  const int64_t elements = chunk_elements(decoder->weights);
  for (uint32_t i = DECODER_X; i < DECODER_OPERANDS; i++)
    if (task->operands[i].present && !is_dense(&task->operands[i])) return false;
  const int64_t units = decoder->hidden / FEED_FORWARD_UNIT;
  if (units * units * decoder->rows > 1 << 16) return false; /* the reciprocal is good so far */
  return decoder->dense_weights && decoder->hidden % FEED_FORWARD_UNIT == 0 && units > 0 && shape->columns % elements == 0 &&
         shape->columns > 0 && decoder->out_parts <= smaller(shape->columns / elements, FEED_FORWARD_MOST_PARTS);
}

bool feed_forward_launch(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct feed_forward_shape shape = feed_forward_shape_of(call->task);
  launches->count = 0;
  if (!shape_suits(call->task, &shape)) return false;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct deal deal = deal_make(call, &shape, &variants[i]);
    if (!variant_suits(&variants[i], &shape, &deal, chip)) continue;
    launch_add(launches, &variants[i].kernel, shape.decoder.out_parts * FEED_FORWARD_CLUSTER, FEED_FORWARD_THREADS,
               deal.shared_bytes, &deal.parameters, sizeof deal.parameters);
    return true;
  }
  return false;
}
