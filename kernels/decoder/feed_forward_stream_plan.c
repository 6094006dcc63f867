/* feed_forward_stream_plan.c - shares and places for the kernel of feed_forward_stream.cu, and its launch. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "decoder_choose.h"

enum { BANKS = 128, TILE_ROWS = 16, FLOATS_OF_WARP = 32 };

FEED_FORWARD_STREAM_KERNELS(KERNEL_CONSTANT)

static void take(uint32_t *at, int64_t *bytes, int64_t size) {
  *at = (uint32_t)*bytes;
  *bytes += divide_up(size, BANKS) * BANKS;
}

/* Groups of the last cluster. A late one takes half of the others' number, as long as none of the others takes more
 * than with equal shares. */
static int64_t last_groups(int64_t groups, int64_t parts, bool is_late) {
  const int64_t most = divide_up(groups, parts);
  return is_late ? larger(groups - (parts - 1) * most, most / 2) : groups / parts;
}

bool feed_forward_stream_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  const int64_t groups = shape->columns / FEED_FORWARD_STREAM_GROUP, of_cluster = divide_up(groups, shape->out_parts);
  if (!(rondo_feed_forward_stream.chips & launch_chip(chip)) || shape->out_parts > groups ||
      of_cluster > FEED_FORWARD_STREAM_GROUPS)
    return false;
  struct feed_forward_stream_parameters *p = &plan->told.stream;
  p->groups = (uint32_t)groups;
  p->parts = (uint32_t)shape->out_parts;
  p->last_groups = (uint32_t)last_groups(groups, shape->out_parts, shape->last_part_is_late);
  plan->kernel = &rondo_feed_forward_stream, plan->clusters = shape->out_parts;
  int64_t *bytes = &plan->shared_bytes;
  *bytes = FEED_FORWARD_STREAM_FIXED;
  /* Each block has a tile of 16 rows of each group; each warp leaves sums of it. */
  take(&p->sums, bytes, of_cluster * FEED_FORWARD_STREAM_WARPS * FLOATS_OF_WARP * (int64_t)sizeof(float));
  take(&p->scales, bytes,
       of_cluster * TILE_ROWS * (FEED_FORWARD_STREAM_HIDDEN / DECODER_SCALE_GROUP + FEED_FORWARD_STREAM_SCALE_PADDING));
  take(&p->second_scales, bytes,
       shape->hidden / FEED_FORWARD_STREAM_CLUSTER * of_cluster * (FEED_FORWARD_STREAM_GROUP / DECODER_SCALE_GROUP));
  take(&p->ring, bytes, (int64_t)FEED_FORWARD_STREAM_WARPS * FEED_FORWARD_STREAM_SLOTS * FEED_FORWARD_STREAM_SLOT);
  return true;
}

rondo_status feed_forward_stream_launch(const struct op_call *call, const struct chip *chip,
                                        const struct decoder_shape *shape, struct decoder_plan *plan,
                                        struct op_launches *launches) {
  (void)chip;
  const struct decoder_attributes *attributes = op_attributes(call->task);
  struct feed_forward_stream_parameters *p = &plan->told.stream;
  p->gate_up = call->data[FEED_FORWARD_GATE_UP];
  p->gate_up_scales = call->data[FEED_FORWARD_GATE_UP_SCALES];
  p->down = call->data[FEED_FORWARD_DOWN];
  p->down_scales = call->data[FEED_FORWARD_DOWN_SCALES];
  p->hidden = (uint32_t)shape->hidden;
  p->columns = (uint32_t)shape->columns;
  p->early = feed_forward_reads_early(call);
  p->x = call->data[DECODER_X];
  p->norm = call->data[DECODER_NORM];
  p->x_parts = call->data[DECODER_X_PARTS];
  p->out = call->data[DECODER_OUT];
  p->out_parts = call->data[DECODER_OUT_PARTS];
  p->part_count = (uint32_t)shape->x_parts;
  p->epsilon = attributes->norm_epsilon;
  p->inverse_hidden = 1.0f / (float)shape->hidden;
  p->scale = attributes->scale;
  return decoder_launch_add(plan, launches);
}
