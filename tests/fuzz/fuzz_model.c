/* fuzz_model.c - tasks of a language model's parts, with operands right and wrong: those that are no products, layer
 * halves, and attention that writes its KV cache. */
#include "fuzz_tasks.h"

static rondo_dtype any_number(struct build *b) {
  static const rondo_dtype numbers[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  uint32_t byte = next(b);
  return byte >= 250 ? any_dtype(b) : numbers[byte % 3];
}

/* Now and then beyond the 256 or 1024 numbers that the host takes at once. */
static int64_t row_length(struct build *b) {
  uint32_t byte = next(b);
  return byte >= 240 ? 1020 + byte % 8 : byte >= 224 ? 250 + byte % 16 : size_up_to(b, 65);
}

static struct shape any_rows(struct build *b) {
  struct shape shape = {.rank = 1 + below(b, 4)};
  for (uint32_t i = 0; i + 1 < shape.rank; i++) shape.of[i] = size_up_to(b, 4);
  shape.of[shape.rank - 1] = row_length(b);
  return shape;
}

/* A result, or what is to be changed in place. */
static rondo_tensor result_or(struct build *b, rondo_tensor x, rondo_dtype dtype, struct shape shape) {
  return next(b) % 4 ? operand_of(b, RONDO_WRITE, dtype, shape) : x;
}

/* ---- What is no product ------------------------------------------------------------------------------------------ */

void add_embed(struct build *b) {
  int64_t rows = size_up_to(b, 33), width = next(b) & 1 ? 16 * (int64_t)below(b, 20) : row_length(b);
  int64_t count = size_up_to(b, 9);
  rondo_dtype dtype = next(b) % 3 ? any_number(b) : RONDO_NVFP4;
  rondo_embed_desc d = {.name = any_name(b), .scale = any_float(b)};
  d.table = operand_of(b, RONDO_READ, dtype, matrix(false, 0, rows, width, false));
  if (dtype == RONDO_NVFP4)
    d.table_scales = operand_of(b, RONDO_READ, RONDO_E4M3, matrix(false, 0, rows, width / 16, false));
  d.ids = indices(b, vector(false, 0, count), rows);
  d.out = operand_of(b, RONDO_WRITE, any_number(b), matrix(false, 0, count, width, false));
  if (next(b) >= 250) d.table_scales = odd_tensor(b);
  ADDED(b, rondo_add_embed(b->graph, &d), {d.table, RONDO_READ}, {d.table_scales, RONDO_READ}, {d.ids, RONDO_READ},
        {d.out, RONDO_WRITE});
}

void add_rms_norm(struct build *b) {
  struct shape shape = any_rows(b), parts = {.rank = shape.rank + 1, .of = {size_up_to(b, 4)}};
  for (uint32_t i = 0; i + 1 < RONDO_MAX_RANK; i++) parts.of[i + 1] = shape.of[i];
  if (shape.rank == RONDO_MAX_RANK) parts.rank = RONDO_MAX_RANK;
  rondo_dtype dtype = any_number(b);
  rondo_rms_norm_desc d = {.name = any_name(b), .epsilon = any_float(b)};
  d.x = operand_of(b, RONDO_READ, dtype, shape);
  if (next(b) & 1) d.norm = operand_of(b, RONDO_READ, any_number(b), vector(false, 0, shape.of[shape.rank - 1]));
  if (next(b) & 1) d.x_parts = operand_of(b, RONDO_READ, RONDO_F32, parts);
  d.out = result_or(b, d.x, any_number(b), shape);
  ADDED(b, rondo_add_rms_norm(b->graph, &d), {d.x, RONDO_READ}, {d.norm, RONDO_READ}, {d.x_parts, RONDO_READ},
        {d.out, RONDO_WRITE});
}

void add_rope(struct build *b) {
  int64_t batch = size_up_to(b, 3), count = size_up_to(b, 3), length = size_up_to(b, 9);
  int64_t width = next(b) >= 240 ? any_size(b) : 2 * (int64_t)below(b, 40);
  rondo_dtype dtype = any_number(b);
  uint32_t bits = next(b);
  rondo_rope_desc d = {.name = any_name(b), .base = any_float(b)};
  d.layout = bits & 1 ? RONDO_BSHD : RONDO_BHSD;
  d.pairing = bits & 2 ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
  if (bits >= 248) d.layout = (rondo_head_layout)any_int(b), d.pairing = (rondo_rope_pairing)any_int(b);
  d.x = operand_of(b, RONDO_READ, dtype, heads(bits & 1, batch, count, length, width));
  d.position = indices(b, vector(false, 0, bits & 4 ? batch : 1), 64);
  if (bits & 8) d.frequencies = operand_of(b, RONDO_READ, RONDO_F32, vector(false, 0, width / 2));
  d.out = result_or(b, d.x, dtype, heads(bits & 1, batch, count, length, width));
  ADDED(b, rondo_add_rope(b->graph, &d), {d.x, RONDO_READ}, {d.position, RONDO_READ}, {d.frequencies, RONDO_READ},
        {d.out, RONDO_WRITE});
}

/* silu(gate) * up, or a sum. */
void add_elementwise(struct build *b) {
  struct shape shape = any_rows(b);
  bool sum = next(b) & 1;
  rondo_dtype dtype = sum && next(b) & 1 ? RONDO_I32 : any_number(b);
  const char *name = any_name(b);
  rondo_tensor left = operand_of(b, RONDO_READ, dtype, shape), right = operand_of(b, RONDO_READ, dtype, shape);
  rondo_tensor out = result_or(b, next(b) & 1 ? left : right, dtype, shape);
  rondo_silu_mul_desc silu_mul = {name, left, right, out};
  rondo_add_desc add = {name, left, right, out};
  if (sum)
    ADDED(b, rondo_add_add(b->graph, &add), {left, RONDO_READ}, {right, RONDO_READ}, {out, RONDO_WRITE});
  else
    ADDED(b, rondo_add_silu_mul(b->graph, &silu_mul), {left, RONDO_READ}, {right, RONDO_READ}, {out, RONDO_WRITE});
}

void add_argmax(struct build *b) {
  int64_t count = size_up_to(b, 9), n = row_length(b);
  rondo_argmax_desc d = {.name = any_name(b)};
  d.x = operand_of(b, RONDO_READ, any_number(b), matrix(false, 0, count, n, false));
  d.out = operand_of(b, RONDO_WRITE, RONDO_I32, vector(false, 0, count));
  ADDED(b, rondo_add_argmax(b->graph, &d), {d.x, RONDO_READ}, {d.out, RONDO_WRITE});
}

void add_penalty(struct build *b) {
  int64_t count = size_up_to(b, 9), n = row_length(b), length = size_up_to(b, 9);
  uint32_t bits = next(b), many = next(b);
  rondo_penalty_desc d = {.name = any_name(b)};
  d.x = operand_of(b, RONDO_READ_WRITE, any_number(b), matrix(false, 0, count, n, false));
  d.ids = indices(b, matrix(false, 0, count, length, false), n);
  if (bits & 1) d.repetition = operand_of(b, RONDO_READ, RONDO_F32, vector(false, 0, many & 1 ? count : 1));
  if (bits & 2) d.frequency = operand_of(b, RONDO_READ, RONDO_F32, vector(false, 0, many & 2 ? count : 1));
  if (bits & 4) d.presence = operand_of(b, RONDO_READ, RONDO_F32, vector(false, 0, many & 4 ? count : 1));
  ADDED(b, rondo_add_penalty(b->graph, &d), {d.x, RONDO_READ_WRITE}, {d.ids, RONDO_READ}, {d.repetition, RONDO_READ},
        {d.frequency, RONDO_READ}, {d.presence, RONDO_READ});
}

void add_prompt_lookup(struct build *b) {
  const uint32_t bits = next(b);
  const int64_t tokens = size_up_to(b, 17), rows = bits & 1 ? tokens : 1, limit = 1 + below(b, 5);
  rondo_prompt_lookup_desc d = {.name = any_name(b)};
  d.chosen = indices(b, vector(false, 0, rows), limit);
  d.tokens = operand_of(b, RONDO_READ_WRITE, RONDO_I32, vector(false, 0, tokens));
  d.position = operand_of(b, RONDO_READ_WRITE, RONDO_I32, vector(false, 0, 1));
  d.history = operand_of(b, RONDO_READ_WRITE, RONDO_I32, vector(false, 0, row_length(b)));
  d.accepted = operand_of(b, RONDO_WRITE, RONDO_I32, vector(false, 0, rows));
  d.matched = operand_of(b, RONDO_WRITE, RONDO_I32, vector(false, 0, 1));
  if (bits & 2) d.last = operand_of(b, RONDO_READ, RONDO_I32, vector(false, 0, 1));
  if (bits & 4) d.stops = indices(b, vector(false, 0, size_up_to(b, 17)), limit);
  if (bits & 8) d.limit = operand_of(b, RONDO_READ, RONDO_I32, vector(false, 0, 1));
  ADDED(b, rondo_add_prompt_lookup(b->graph, &d), {d.chosen, RONDO_READ}, {d.tokens, RONDO_READ_WRITE},
        {d.position, RONDO_READ_WRITE}, {d.last, RONDO_READ}, {d.history, RONDO_READ_WRITE}, {d.stops, RONDO_READ},
        {d.limit, RONDO_READ}, {d.accepted, RONDO_WRITE}, {d.matched, RONDO_WRITE});
}

void add_sample(struct build *b) {
  int64_t count = size_up_to(b, 9), n = row_length(b);
  uint32_t bits = next(b), many = next(b);
  rondo_sample_desc d = {.name = any_name(b)};
  d.x = operand_of(b, RONDO_READ, any_number(b), matrix(false, 0, count, n, false));
  d.out = operand_of(b, RONDO_WRITE, RONDO_I32, vector(false, 0, count));
  if (bits & 1) d.temperature = operand_of(b, RONDO_READ, RONDO_F32, vector(false, 0, many & 1 ? count : 1));
  if (bits & 2) d.top_k = indices(b, vector(false, 0, many & 2 ? count : 1), n);
  if (bits & 4) d.top_p = operand_of(b, RONDO_READ, RONDO_F32, vector(false, 0, many & 4 ? count : 1));
  if (bits < 250)
    d.seed = indices(b, vector(false, 0, many & 8 ? count : 1), 0),
    d.step = indices(b, vector(false, 0, many & 16 ? count : 1), 0);
  ADDED(b, rondo_add_sample(b->graph, &d), {d.x, RONDO_READ}, {d.out, RONDO_WRITE}, {d.temperature, RONDO_READ},
        {d.top_k, RONDO_READ}, {d.top_p, RONDO_READ}, {d.seed, RONDO_READ}, {d.step, RONDO_READ});
}

/* ---- The halves of a decoder's layer ----------------------------------------------------------------------------- */

/* What both take and leave. */
struct stream {
  int64_t rows, hidden;
  rondo_dtype dtype, weights;
  float norm_epsilon, scale;
  rondo_tensor x, x_parts, norm, out, out_parts;
};

/* Small, or as usual models have it, for which chips have kernels: too large to be run here, but planned. */
static int64_t model_size(struct build *b, const int64_t usual[4]) {
  uint32_t byte = next(b);
  return byte >= 224 ? size_up_to(b, 65) : byte >= 192 ? usual[byte % 4] : INT64_C(16) << byte % 3;
}

static struct stream any_stream(struct build *b) {
  static const int64_t hidden[] = {576, 1024, 2048, 64};
  struct stream s = {.rows = size_up_to(b, next(b) % 4 ? 4 : 17)};
  s.hidden = model_size(b, hidden);
  s.dtype = next(b) & 1 ? RONDO_F16 : RONDO_BF16;
  const rondo_dtype weights[] = {s.dtype, RONDO_NVFP4, RONDO_E4M3, any_dtype(b)};
  s.weights = weights[next(b) >= 240 ? 3 : below(b, 3)];
  uint32_t bits = next(b);
  const struct shape rows = matrix(false, 0, s.rows, s.hidden, false);
  s.x = operand_of(b, RONDO_READ, s.dtype, rows);
  if (bits & 1)
    s.x_parts = operand_of(b, RONDO_READ, RONDO_F32, matrix(true, size_up_to(b, 17), s.rows, s.hidden, false));
  if (bits & 2) s.norm = operand_of(b, RONDO_READ, s.dtype, vector(false, 0, s.hidden));
  if (bits & 6) s.norm_epsilon = any_float(b);
  if (bits & 8) s.scale = any_float(b);
  s.out = operand_of(b, RONDO_WRITE, s.dtype, rows);
  s.out_parts = operand_of(b, RONDO_WRITE, RONDO_F32, matrix(true, size_up_to(b, 17), s.rows, s.hidden, false));
  return s;
}

static rondo_tensor weights_of(struct build *b, const struct stream *s, int64_t rows, int64_t columns,
                               rondo_tensor *scales) {
  const bool scaled = s->weights == RONDO_NVFP4 || (s->weights == RONDO_E4M3 && next(b) & 1);
  rondo_tensor weights = operand_of(b, RONDO_READ, s->weights, matrix(false, 0, rows, columns, false));
  if (scaled && s->weights == RONDO_NVFP4)
    *scales = operand_of(b, RONDO_READ, RONDO_E4M3, matrix(false, 0, rows, columns / 16, false));
  else if (scaled)
    *scales = operand_of(b, RONDO_READ, RONDO_F32, vector(false, 0, rows));
  if (next(b) >= 250) *scales = odd_tensor(b);
  return weights;
}

void add_attention_block(struct build *b) {
  struct stream s = any_stream(b);
  int64_t kv_heads = next(b) >= 224 ? 8 : size_up_to(b, 3), capacity = size_up_to(b, 33);
  int64_t width = next(b) >= 240 ? any_size(b) : INT64_C(32) << below(b, 2), group = 1 + below(b, 4);
  const bool is_small = kv_heads >= 0 && kv_heads <= 8 && width >= 0 && width <= 128;
  const int64_t q_columns = is_small ? kv_heads * group * width : any_size(b);
  const int64_t qkv_rows = is_small ? q_columns + 2 * kv_heads * width : any_size(b);
  const struct shape cache = heads(true, s.rows, kv_heads, capacity, width);
  uint32_t bits = next(b);
  rondo_attention_block_desc d = {.name = any_name(b),
                                  .x = s.x,
                                  .x_parts = s.x_parts,
                                  .norm = s.norm,
                                  .norm_epsilon = s.norm_epsilon,
                                  .scale = s.scale,
                                  .out = s.out,
                                  .out_parts = s.out_parts};
  d.qkv = weights_of(b, &s, qkv_rows, s.hidden, &d.qkv_scales);
  d.output = weights_of(b, &s, s.hidden, q_columns, &d.output_scales);
  d.k = operand_of(b, RONDO_READ_WRITE, s.dtype, cache);
  d.v = operand_of(b, RONDO_READ_WRITE, s.dtype, cache);
  d.position = indices(b, vector(false, 0, bits & 1 ? s.rows : 1), capacity);
  if (bits & 2) d.rope_frequencies = operand_of(b, RONDO_READ, RONDO_F32, vector(false, 0, width / 2));
  if (bits & 4) d.rope_base = any_float(b);
  d.rope_pairing = bits >= 250 ? (rondo_rope_pairing)any_int(b) : (rondo_rope_pairing)(bits >> 3 & 1);
  ADDED(b, rondo_add_attention_block(b->graph, &d), {d.x, RONDO_READ}, {d.x_parts, RONDO_READ}, {d.norm, RONDO_READ},
        {d.qkv, RONDO_READ}, {d.qkv_scales, RONDO_READ}, {d.output, RONDO_READ}, {d.output_scales, RONDO_READ},
        {d.k, RONDO_READ_WRITE}, {d.v, RONDO_READ_WRITE}, {d.position, RONDO_READ}, {d.rope_frequencies, RONDO_READ},
        {d.out, RONDO_WRITE}, {d.out_parts, RONDO_WRITE});
}

void add_feed_forward(struct build *b) {
  static const int64_t usual[] = {1536, 1024, 2048, 64};
  struct stream s = any_stream(b);
  int64_t columns = model_size(b, usual);
  rondo_feed_forward_desc d = {.name = any_name(b),
                               .x = s.x,
                               .x_parts = s.x_parts,
                               .norm = s.norm,
                               .norm_epsilon = s.norm_epsilon,
                               .scale = s.scale,
                               .out = s.out,
                               .out_parts = s.out_parts};
  d.gate_up =
      weights_of(b, &s, columns > 0 && columns <= 2048 ? 2 * columns : any_size(b), s.hidden, &d.gate_up_scales);
  d.down = weights_of(b, &s, s.hidden, columns, &d.down_scales);
  ADDED(b, rondo_add_feed_forward(b->graph, &d), {d.x, RONDO_READ}, {d.x_parts, RONDO_READ}, {d.norm, RONDO_READ},
        {d.gate_up, RONDO_READ}, {d.gate_up_scales, RONDO_READ}, {d.down, RONDO_READ}, {d.down_scales, RONDO_READ},
        {d.out, RONDO_WRITE}, {d.out_parts, RONDO_WRITE});
}

/* ---- Attention that writes its KV cache -------------------------------------------------------------------------- */

void add_attention_append(struct build *b) {
  int64_t batch = size_up_to(b, 3), kv_heads = size_up_to(b, 3), queries = size_up_to(b, 9), rows = size_up_to(b, 33);
  int64_t group = 1 + below(b, 3), width = next(b) >= 240 ? any_size(b) : INT64_C(32) << below(b, 2);
  if (kv_heads < 0 || kv_heads > 128) group = 1;
  const uint32_t bits = next(b), more = next(b), seldom = more & 0xd8;
  const bool bshd = bits & 1;
  const rondo_dtype dtype = bits & 2 ? RONDO_F16 : RONDO_BF16;
  const rondo_dtype q_dtype = seldom == 0x80 ? RONDO_E4M3 : dtype, kv_dtype = seldom == 0x40 ? RONDO_E4M3 : dtype;
  if (seldom == 0xc8) queries = INT64_C(64) << 2 * (queries & 3); /* a prompt's: other kernels */
  const bool is_packed = seldom == 0x50;
  const struct shape q = heads(bshd, is_packed ? 1 : batch, kv_heads * group, queries, width);
  const struct shape new_rows = heads(bshd, is_packed ? 1 : batch, kv_heads, queries, width);
  struct shape kv = heads(bshd, batch, kv_heads, rows, width);
  rondo_attention_desc d = {.name = any_name(b), .layout = bshd ? RONDO_BSHD : RONDO_BHSD, .causal = bits >> 2 & 1};
  if (bits & 8) { /* of what two items write the order is not said */
    const int64_t pages = size_up_to(b, 5);
    kv = heads(bshd, pages, kv_heads, INT64_C(16) << below(b, 2), width);
    d.kv_pages = indices(b, matrix(false, 0, batch, size_up_to(b, 4), false), pages);
    if (batch > 1) b->exact = false;
  }
  const bool appends = more % 8;
  d.q = operand_of(b, RONDO_READ, q_dtype, q);
  d.k = operand_of(b, appends ? RONDO_READ_WRITE : RONDO_READ, kv_dtype, kv);
  d.v = operand_of(b, appends ? RONDO_READ_WRITE : RONDO_READ, kv_dtype, kv);
  d.o = operand_of(b, RONDO_WRITE, dtype, q);
  if (appends)
    d.new_k = operand_of(b, RONDO_READ, dtype, new_rows), d.new_v = operand_of(b, RONDO_READ, dtype, new_rows);
  d.position = indices(b, vector(false, 0, bits & 16 ? batch : 1), rows);
  if (is_packed) d.row_offsets = indices(b, vector(false, 0, batch + 1), queries + 2);
  if (seldom == 0xc0) d.kv_lengths = operand_of(b, RONDO_READ, RONDO_I32, vector(false, 0, batch));
  if (bits & 32) d.rope_frequencies = operand_of(b, RONDO_READ, RONDO_F32, vector(false, 0, width / 2));
  if (bits & 64) d.rope_base = any_float(b);
  d.rope_pairing = more >= 250 ? (rondo_rope_pairing)any_int(b) : (rondo_rope_pairing)(bits >> 7);
  if (more & 32) d.window = any_int(b), d.soft_cap = any_float(b);
  d.scale = any_float(b);
  d.splits = any_int(b);
  const rondo_access kv_access = appends ? RONDO_READ_WRITE : RONDO_READ;
  ADDED(b, rondo_add_attention(b->graph, &d), {d.q, RONDO_READ}, {d.k, kv_access}, {d.v, kv_access},
        {d.new_k, RONDO_READ}, {d.new_v, RONDO_READ}, {d.position, RONDO_READ}, {d.rope_frequencies, RONDO_READ},
        {d.kv_pages, RONDO_READ}, {d.kv_lengths, RONDO_READ}, {d.row_offsets, RONDO_READ}, {d.o, RONDO_WRITE});
}
