/* test_decoder_refused.c - the descriptions of layer halves that are refused, each with its sentence. */
#include <criterion/criterion.h>
#include <math.h>

#include "../support.h"

enum { ROWS = 4, HIDDEN = 96, KV_HEADS = 2, D = 32, CAPACITY = 10, COLUMNS = 64, NARROW = 24 };
enum { QUERY_COLUMNS = 4 * D, THREE_HEADS = 3 * D, QKV_ROWS = QUERY_COLUMNS + 2 * KV_HEADS * D };
enum { GATE_UP_ROWS = 2 * COLUMNS, NARROW_ROWS = 2 * NARROW };

#define SHAPE(...) (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

static rondo_tensor tensor(rondo_graph *graph, rondo_dtype dtype, const int64_t *shape, size_t rank) {
  rondo_tensor made;
  REQUIRE_OK(rondo_state(graph, NULL, dtype, (uint32_t)rank, shape, &made));
  return made;
}

static rondo_attention_block_desc attention_block(rondo_graph *g) {
  return (rondo_attention_block_desc){
      .x = tensor(g, RONDO_BF16, SHAPE(ROWS, HIDDEN)),
      .x_parts = tensor(g, RONDO_F32, SHAPE(3, ROWS, HIDDEN)),
      .norm = tensor(g, RONDO_BF16, SHAPE(HIDDEN)),
      .norm_epsilon = 1e-5f,
      .qkv = tensor(g, RONDO_BF16, SHAPE(QKV_ROWS, HIDDEN)),
      .output = tensor(g, RONDO_BF16, SHAPE(HIDDEN, QUERY_COLUMNS)),
      .k = tensor(g, RONDO_BF16, SHAPE(ROWS, CAPACITY, KV_HEADS, D)),
      .v = tensor(g, RONDO_BF16, SHAPE(ROWS, CAPACITY, KV_HEADS, D)),
      .position = tensor(g, RONDO_I32, SHAPE(ROWS)),
      .rope_base = 10000.0f,
      .out = tensor(g, RONDO_BF16, SHAPE(ROWS, HIDDEN)),
      .out_parts = tensor(g, RONDO_F32, SHAPE(2, ROWS, HIDDEN)),
  };
}

static rondo_feed_forward_desc feed_forward(rondo_graph *g) {
  return (rondo_feed_forward_desc){
      .x = tensor(g, RONDO_F16, SHAPE(ROWS, HIDDEN)),
      .gate_up = tensor(g, RONDO_NVFP4, SHAPE(GATE_UP_ROWS, HIDDEN)),
      .gate_up_scales = tensor(g, RONDO_E4M3, SHAPE(GATE_UP_ROWS, HIDDEN / 16)),
      .down = tensor(g, RONDO_NVFP4, SHAPE(HIDDEN, COLUMNS)),
      .down_scales = tensor(g, RONDO_E4M3, SHAPE(HIDDEN, COLUMNS / 16)),
      .out = tensor(g, RONDO_F16, SHAPE(ROWS, HIDDEN)),
      .out_parts = tensor(g, RONDO_F32, SHAPE(8, ROWS, HIDDEN)),
  };
}

/* The description with one field changed. */
#define REFUSED(kind, sentence, field, ...)                                                                            \
  do {                                                                                                                 \
    rondo_##kind##_desc changed = good;                                                                                \
    changed.field = __VA_ARGS__;                                                                                       \
    REQUIRE_ERROR(rondo_add_##kind(trial.graph, &changed), RONDO_INVALID_ARGUMENT, sentence);                          \
  } while (0)
#define NONE                                                                                                           \
  (rondo_tensor) { 0 }
#define OF(dtype, ...) tensor(trial.graph, dtype, SHAPE(__VA_ARGS__))

Test(decoder, refuses_streams_that_do_not_fit) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  const rondo_feed_forward_desc good = feed_forward(trial.graph);
  REQUIRE_ERROR(rondo_add_feed_forward(trial.graph, NULL), RONDO_INVALID_ARGUMENT,
                "rondo_add_feed_forward: the description is NULL");
  REFUSED(feed_forward, "x is absent, expected [rows, hidden] f32, f16 or bf16", x, NONE);
  REFUSED(feed_forward, "x is [4, 96] e4m3, expected [rows, hidden] f32, f16 or bf16", x, OF(RONDO_E4M3, ROWS, HIDDEN));
  REFUSED(feed_forward, "x is [96] f16, expected [rows, hidden] f32, f16 or bf16", x, OF(RONDO_F16, HIDDEN));
  REFUSED(feed_forward, "x has 17 rows, expected 1 to 16", x, OF(RONDO_F16, 17, HIDDEN));
  REFUSED(feed_forward, "x has 0 rows, expected 1 to 16", x, OF(RONDO_F16, 0, HIDDEN));
  REFUSED(feed_forward, "x_parts is [2, 4, 95] f32, expected [2, 4, 96] f32", x_parts,
          OF(RONDO_F32, 2, ROWS, HIDDEN - 1));
  REFUSED(feed_forward, "x_parts is [0, 4, 96] f32, expected [1, 4, 96] f32", x_parts, OF(RONDO_F32, 0, ROWS, HIDDEN));
  REFUSED(feed_forward, "x_parts is [4, 96] f32, expected [1, 4, 96] f32", x_parts, OF(RONDO_F32, ROWS, HIDDEN));
  REFUSED(feed_forward, "out is absent, expected [4, 96] f16", out, NONE);
  REFUSED(feed_forward, "out is [4, 96] bf16, expected [4, 96] f16", out, OF(RONDO_BF16, ROWS, HIDDEN));
  REFUSED(feed_forward, "x and out", out, good.x);
  REFUSED(feed_forward, "out_parts is absent, expected [1, 4, 96] f32", out_parts, NONE);
  REFUSED(feed_forward, "out_parts is [8, 4, 96] f16, expected [8, 4, 96] f32", out_parts,
          OF(RONDO_F16, 8, ROWS, HIDDEN));
  REFUSED(feed_forward, "x_parts and out_parts", x_parts, good.out_parts);
  REFUSED(feed_forward, "norm is present, expected none where norm_epsilon is 0", norm, OF(RONDO_F16, HIDDEN));
  REFUSED(feed_forward, "norm_epsilon is -1, expected a finite number that is not negative", norm_epsilon, -1);
  REFUSED(feed_forward, "norm_epsilon is ", norm_epsilon, NAN);
  REFUSED(feed_forward, "scale is inf, expected a finite number", scale, INFINITY);
  REQUIRE_OK(rondo_add_feed_forward(trial.graph, &good));
  trial_end(&trial);
}

Test(decoder, refuses_weights_of_a_feed_forward_that_do_not_fit) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  const rondo_feed_forward_desc good = feed_forward(trial.graph);
  REFUSED(feed_forward, "gate_up is absent, expected [rows, 96] f16, e4m3 or nvfp4", gate_up, NONE);
  REFUSED(feed_forward, "gate_up is [128, 96] bf16, expected [rows, 96] f16, e4m3 or nvfp4", gate_up,
          OF(RONDO_BF16, GATE_UP_ROWS, HIDDEN));
  REFUSED(feed_forward, "gate_up has 127 rows, expected an even number of at least 2", gate_up,
          OF(RONDO_NVFP4, GATE_UP_ROWS - 1, HIDDEN));
  REFUSED(feed_forward, "gate_up is [128, 80] nvfp4, expected [128, 96] nvfp4", gate_up,
          OF(RONDO_NVFP4, GATE_UP_ROWS, HIDDEN - 16));
  REFUSED(feed_forward, "gate_up_scales is absent, expected [128, 6] e4m3", gate_up_scales, NONE);
  REFUSED(feed_forward, "gate_up_scales is [128, 6] f32, expected [128, 6] e4m3", gate_up_scales,
          OF(RONDO_F32, GATE_UP_ROWS, HIDDEN / 16));
  REFUSED(feed_forward, "down is [96, 64] e4m3, expected [96, 64] nvfp4", down, OF(RONDO_E4M3, HIDDEN, COLUMNS));
  REFUSED(feed_forward, "down is [96, 32] nvfp4, expected [96, 64] nvfp4", down, OF(RONDO_NVFP4, HIDDEN, 32));
  REFUSED(feed_forward, "down_scales is [64] f32, expected [96, 4] e4m3", down_scales, OF(RONDO_F32, COLUMNS));
  rondo_feed_forward_desc narrow = good;
  narrow.gate_up = OF(RONDO_NVFP4, NARROW_ROWS, HIDDEN),
  narrow.gate_up_scales = OF(RONDO_E4M3, NARROW_ROWS, HIDDEN / 16);
  narrow.down = OF(RONDO_NVFP4, HIDDEN, NARROW);
  REQUIRE_ERROR(rondo_add_feed_forward(trial.graph, &narrow), RONDO_INVALID_ARGUMENT,
                "down has rows of 24, expected a multiple of 16 in nvfp4");
  trial_end(&trial);
}

Test(decoder, refuses_an_attention_that_does_not_fit) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  const rondo_attention_block_desc good = attention_block(trial.graph);
  REQUIRE_ERROR(rondo_add_attention_block(trial.graph, NULL), RONDO_INVALID_ARGUMENT,
                "rondo_add_attention_block: the description is NULL");
  REFUSED(attention_block, "norm is [95] bf16, expected [96] bf16", norm, OF(RONDO_BF16, HIDDEN - 1));
  REFUSED(attention_block, "qkv is [256, 96] f16, expected [rows, 96] bf16, e4m3 or nvfp4", qkv,
          OF(RONDO_F16, 256, HIDDEN));
  REFUSED(attention_block, "qkv is [255, 96] bf16, expected [256, 96] bf16", qkv, OF(RONDO_BF16, 255, HIDDEN));
  REFUSED(attention_block, "qkv_scales is present, expected none with qkv in bf16", qkv_scales, OF(RONDO_F32, 256));
  REFUSED(attention_block, "output is absent, expected [hidden, query heads * d]", output, NONE);
  REFUSED(attention_block, "output has rows of 96, expected a multiple of 64: k has 2 heads of 32", output,
          OF(RONDO_BF16, HIDDEN, THREE_HEADS));
  REFUSED(attention_block, "output is [95, 128] bf16, expected [96, 128] bf16", output,
          OF(RONDO_BF16, HIDDEN - 1, QUERY_COLUMNS));
  REFUSED(attention_block, "k is [4, 10, 2, 32] f16, expected [4, capacity, KV heads, head dimension] bf16", k,
          OF(RONDO_F16, ROWS, CAPACITY, KV_HEADS, D));
  REFUSED(attention_block, "k is [3, 10, 2, 32] bf16, expected [4, capacity", k,
          OF(RONDO_BF16, 3, CAPACITY, KV_HEADS, D));
  REFUSED(attention_block, "k has head dimension 48, expected 32, 64, 128 or 256", k,
          OF(RONDO_BF16, ROWS, CAPACITY, KV_HEADS, 48));
  REFUSED(attention_block, "v is [4, 11, 2, 32] bf16, expected [4, 10, 2, 32] bf16", v,
          OF(RONDO_BF16, ROWS, CAPACITY + 1, KV_HEADS, D));
  REFUSED(attention_block, "k and v", v, good.k);
  REFUSED(attention_block, "position is absent, expected [1] or [4] i32", position, NONE);
  REFUSED(attention_block, "position is [2] i32, expected [1] or [4] i32", position, OF(RONDO_I32, 2));
  REFUSED(attention_block, "rope_base is -1, expected a finite number that is not negative", rope_base, -1);
  REFUSED(attention_block, "rope_pairing is 2", rope_pairing, (rondo_rope_pairing)2);
  REFUSED(attention_block, "rope_frequencies is [32] f32, expected [16] f32", rope_frequencies, OF(RONDO_F32, D));
  REQUIRE_OK(rondo_add_attention_block(trial.graph, &good));
  trial_end(&trial);
}
