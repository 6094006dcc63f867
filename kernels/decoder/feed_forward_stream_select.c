/* feed_forward_stream_select.c - whether the kernels of feed_forward_stream.cu suit a task. It follows from the shapes
 * alone, so that a task has the same bits wherever it stands. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "decoder.h"
#include "feed_forward_stream.h"

enum { BANKS = 128, HIDDEN_STEP = 256 /* whose scales are 16 bytes */ };

FEED_FORWARD_STREAM_KERNELS(KERNEL_CONSTANT)

static int64_t take(uint32_t *at, int64_t *bytes, int64_t size) {
  *at = (uint32_t)*bytes;
  *bytes += divide_up(size, BANKS) * BANKS;
  return *bytes;
}

/* Groups of the last cluster. A late one takes half of the others' number, as long as none of the others takes more
 * than with equal shares. */
static int64_t last_groups(int64_t groups, int64_t parts, bool is_late) {
  const int64_t most = divide_up(groups, parts);
  return is_late ? larger(groups - (parts - 1) * most, most / 2) : groups / parts;
}

static struct feed_forward_stream_parameters
parameters_make(const struct op_call *call, const struct feed_forward_shape *shape, int64_t *shared_bytes) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  const struct decoder_shape *decoder = &shape->decoder;
  const uint32_t early = 1u << FEED_FORWARD_GATE_UP | 1u << FEED_FORWARD_DOWN | 1u << FEED_FORWARD_GATE_UP_SCALES |
                         1u << FEED_FORWARD_DOWN_SCALES |
                         (call->task->operands[DECODER_NORM].present ? 1u << DECODER_NORM : 0);
  const int64_t groups = shape->columns / FEED_FORWARD_STREAM_GROUP, of_cluster = divide_up(groups, decoder->out_parts);
  struct feed_forward_stream_parameters p = {
      .gate_up = call->data[FEED_FORWARD_GATE_UP],
      .gate_up_scales = call->data[FEED_FORWARD_GATE_UP_SCALES],
      .down = call->data[FEED_FORWARD_DOWN],
      .down_scales = call->data[FEED_FORWARD_DOWN_SCALES],
      .hidden = (uint32_t)decoder->hidden,
      .columns = (uint32_t)shape->columns,
      .groups = (uint32_t)groups,
      .parts = (uint32_t)decoder->out_parts,
      .last_groups = (uint32_t)last_groups(groups, decoder->out_parts, attributes->last_part_is_late),
      .early = (call->settled_operands & early) == early,
      .x = call->data[DECODER_X],
      .norm = call->data[DECODER_NORM],
      .x_parts = call->data[DECODER_X_PARTS],
      .out = call->data[DECODER_OUT],
      .out_parts = call->data[DECODER_OUT_PARTS],
      .part_count = (uint32_t)decoder->x_parts,
      .epsilon = attributes->norm_epsilon,
      .inverse_hidden = 1.0f / (float)decoder->hidden,
      .scale = attributes->scale,
  };
  *shared_bytes = FEED_FORWARD_STREAM_FIXED;
  /* Each block has a tile of 16 rows of each group, whose sums each warp leaves. */
  take(&p.sums, shared_bytes, of_cluster * FEED_FORWARD_STREAM_WARPS * 32 * (int64_t)sizeof(float));
  take(&p.scales, shared_bytes,
       of_cluster * 16 * (FEED_FORWARD_STREAM_HIDDEN / DECODER_SCALE_BLOCK + FEED_FORWARD_STREAM_SCALE_PADDING));
  take(&p.second_scales, shared_bytes,
       decoder->hidden / FEED_FORWARD_STREAM_CLUSTER * of_cluster * (FEED_FORWARD_STREAM_GROUP / DECODER_SCALE_BLOCK));
  take(&p.ring, shared_bytes,
       (int64_t)FEED_FORWARD_STREAM_WARPS * FEED_FORWARD_STREAM_SLOTS * FEED_FORWARD_STREAM_SLOT);
  return p;
}

static bool shape_suits(const struct op_task *task, const struct feed_forward_shape *shape) {
  const struct decoder_shape *decoder = &shape->decoder;
  const int64_t groups = shape->columns / FEED_FORWARD_STREAM_GROUP;
  return decoder->dtype == RONDO_BF16 && decoder_operands_are_dense(task) && decoder->rows == 1 &&
         decoder->weights == RONDO_NVFP4 && decoder->dense_weights && decoder->hidden % HIDDEN_STEP == 0 &&
         decoder->hidden > 0 && decoder->hidden <= FEED_FORWARD_STREAM_HIDDEN &&
         shape->columns % FEED_FORWARD_STREAM_GROUP == 0 && decoder->x_parts <= FEED_FORWARD_STREAM_PARTS &&
         decoder->out_parts <= smaller(groups, FEED_FORWARD_STREAM_PARTS) &&
         divide_up(groups, decoder->out_parts) <= FEED_FORWARD_STREAM_GROUPS;
}

bool feed_forward_stream_launch(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct feed_forward_shape shape = feed_forward_shape_of(call->task);
  launches->count = 0;
  if (!shape_suits(call->task, &shape)) return false;
  int64_t shared_bytes;
  const struct feed_forward_stream_parameters parameters = parameters_make(call, &shape, &shared_bytes);
  if (!(rondo_feed_forward_stream.chips & launch_chip(chip)) || shared_bytes > chip->shared_bytes) return false;
  launch_add(launches, &rondo_feed_forward_stream, shape.decoder.out_parts * FEED_FORWARD_STREAM_CLUSTER,
             FEED_FORWARD_STREAM_THREADS, (uint64_t)shared_bytes, &parameters, sizeof parameters);
  return true;
}
