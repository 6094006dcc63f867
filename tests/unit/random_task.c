/* random_task.c - see random_task.h. Sizes are spread over orders of magnitude; half of the larger ones are the
 * multiples that kernels like. One tensor in twelve is a view, whose rows have gaps or begin in the middle of 16
 * bytes. */
#include "random_task.h"

#include <string.h>

#define ADD(name) static rondo_status name(rondo_graph *graph, struct random *random)

/* ---- Sizes and tensors ------------------------------------------------------------------------------------------- */

static bool one_of(struct random *random, int64_t cases) { return random_between(random, 1, cases) == 1; }

static int64_t size(struct random *random, int64_t most) {
  int64_t limit = 1;
  while (limit < most && !one_of(random, 8)) limit *= 2;
  if (limit > most) limit = most;
  const int64_t any = random_between(random, 1, limit);
  return any >= 64 && one_of(random, 2) ? any / 64 * 64 : any;
}

static rondo_tensor of(rondo_graph *graph, struct random *random, rondo_dtype dtype, uint32_t rank, int64_t a,
                       int64_t b, int64_t c, int64_t d) {
  const int64_t shape[4] = {a, b, c, d}, aligned[] = {0, 16, 32, 64}, any[] = {0, 1, 3, 8};
  int64_t whole[4], origin[4] = {0};
  rondo_tensor tensor, view;
  memcpy(whole, shape, sizeof shape);
  if (one_of(random, 12)) {
    const bool small = rondo_dtype_bits(dtype) < 8 || one_of(random, 2);
    origin[rank - 1] = small ? RANDOM_OF(random, aligned) : RANDOM_OF(random, any);
    whole[rank - 1] += origin[rank - 1] + (small ? RANDOM_OF(random, aligned) : RANDOM_OF(random, any));
  }
  if (rondo_state(graph, NULL, dtype, rank, whole, &tensor) != RONDO_OK) return (rondo_tensor){0};
  if (!memcmp(whole, shape, sizeof shape)) return tensor;
  return rondo_view(graph, tensor, origin, shape, &view) == RONDO_OK ? view : tensor;
}
#define OF(dtype, ...) of(graph, random, (dtype), __VA_ARGS__)

/* A tensor in half of the cases. */
#define MAY(dtype, ...) (one_of(random, 2) ? OF(dtype, __VA_ARGS__) : (rondo_tensor){0})

static const rondo_dtype halves[] = {RONDO_F16, RONDO_BF16}, reals[] = {RONDO_F32, RONDO_F64},
                         numbers[] = {RONDO_F32, RONDO_F16, RONDO_BF16};

/* ---- Memory and single rows -------------------------------------------------------------------------------------- */

ADD(copy) {
  static const rondo_dtype types[] = {RONDO_U8, RONDO_F16, RONDO_F32, RONDO_F64, RONDO_NVFP4};
  const rondo_dtype type = RANDOM_OF(random, types);
  const int64_t a = size(random, 4096), b = size(random, 4096), c = 32 * size(random, 64);
  return rondo_add_copy(graph, &(rondo_copy_desc){.src = OF(type, 3, a, b, c, 0), .dst = OF(type, 3, a, b, c, 0)});
}

ADD(append) {
  const rondo_dtype type = RANDOM_OF(random, numbers);
  const int64_t batch = size(random, 64), heads = size(random, 64), most = size(random, 8192), d = size(random, 256);
  return rondo_add_append(graph,
                          &(rondo_append_desc){.src = OF(type, 4, batch, heads, random_between(random, 1, most), d),
                                               .dst = OF(type, 4, batch, heads, most, d),
                                               .position = OF(RONDO_I32, 1, one_of(random, 2) ? 1 : batch, 0, 0, 0),
                                               .dimension = 2});
}

ADD(quantize) {
  const int64_t rows = size(random, 1 << 20), groups = size(random, 1024);
  return rondo_add_quantize_nvfp4(
      graph, &(rondo_quantize_nvfp4_desc){.x = OF(RANDOM_OF(random, numbers), 2, rows, 16 * groups, 0, 0),
                                          .codes = OF(RONDO_NVFP4, 2, rows, 16 * groups, 0, 0),
                                          .scales = OF(RONDO_E4M3, 2, rows, groups, 0, 0)});
}

ADD(embed) {
  const int64_t rows = size(random, 1 << 17), width = 16 * size(random, 512), count = size(random, 4096);
  const bool packed = one_of(random, 4);
  return rondo_add_embed(
      graph, &(rondo_embed_desc){.table = OF(packed ? RONDO_NVFP4 : RANDOM_OF(random, numbers), 2, rows, width, 0, 0),
                                 .table_scales = packed ? OF(RONDO_E4M3, 2, rows, width / 16, 0, 0) : (rondo_tensor){0},
                                 .ids = OF(RONDO_I32, 1, count, 0, 0, 0),
                                 .out = OF(RANDOM_OF(random, numbers), 2, count, width, 0, 0)});
}

ADD(rms_norm) {
  const int64_t rows = size(random, 1 << 20), k = size(random, 1 << 15);
  const rondo_dtype type = RANDOM_OF(random, numbers);
  return rondo_add_rms_norm(graph, &(rondo_rms_norm_desc){.x = OF(type, 2, rows, k, 0, 0),
                                                          .norm = MAY(RANDOM_OF(random, numbers), 1, k, 0, 0, 0),
                                                          .out = OF(RANDOM_OF(random, numbers), 2, rows, k, 0, 0),
                                                          .epsilon = 1e-5f,
                                                          .x_parts = MAY(RONDO_F32, 3, size(random, 16), rows, k, 0)});
}

ADD(rope) {
  const int64_t batch = size(random, 64), heads = size(random, 64), rows = size(random, 4096),
                d = 2 * random_between(random, 1, 128);
  const rondo_dtype type = RANDOM_OF(random, numbers);
  return rondo_add_rope(graph,
                        &(rondo_rope_desc){.layout = one_of(random, 2) ? RONDO_BSHD : RONDO_BHSD,
                                           .pairing = one_of(random, 2) ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED,
                                           .x = OF(type, 4, batch, heads, rows, d),
                                           .out = OF(type, 4, batch, heads, rows, d),
                                           .position = OF(RONDO_I32, 1, one_of(random, 2) ? 1 : batch, 0, 0, 0),
                                           .frequencies = MAY(RONDO_F32, 1, d / 2, 0, 0, 0)});
}

ADD(silu_mul) {
  const int64_t rows = size(random, 1 << 16), columns = size(random, 1 << 15);
  const rondo_dtype type = RANDOM_OF(random, numbers);
  return rondo_add_silu_mul(graph, &(rondo_silu_mul_desc){.gate = OF(type, 2, rows, columns, 0, 0),
                                                          .up = OF(type, 2, rows, columns, 0, 0),
                                                          .out = OF(type, 2, rows, columns, 0, 0)});
}

ADD(add) {
  const int64_t rows = size(random, 1 << 16), columns = size(random, 1 << 15);
  const rondo_dtype type = RANDOM_OF(random, numbers);
  return rondo_add_add(graph, &(rondo_add_desc){.a = OF(type, 2, rows, columns, 0, 0),
                                                .b = OF(type, 2, rows, columns, 0, 0),
                                                .out = OF(type, 2, rows, columns, 0, 0)});
}

ADD(argmax) {
  const int64_t rows = size(random, 1 << 16);
  return rondo_add_argmax(
      graph, &(rondo_argmax_desc){.x = OF(RANDOM_OF(random, numbers), 2, rows, size(random, 1 << 20), 0, 0),
                                  .out = OF(RONDO_I32, 1, rows, 0, 0, 0)});
}

ADD(sample) {
  const int64_t rows = size(random, 1024);
  const rondo_sample_desc desc = {.x = OF(RANDOM_OF(random, numbers), 2, rows, size(random, 1 << 20), 0, 0),
                                  .out = OF(RONDO_I32, 1, rows, 0, 0, 0),
                                  .temperature = MAY(RONDO_F32, 1, rows, 0, 0, 0),
                                  .top_k = MAY(RONDO_I32, 1, 1, 0, 0, 0),
                                  .top_p = MAY(RONDO_F32, 1, rows, 0, 0, 0),
                                  .seed = OF(RONDO_I32, 1, rows, 0, 0, 0),
                                  .step = OF(RONDO_I32, 1, 1, 0, 0, 0)};
  return rondo_add_sample(graph, &desc);
}

ADD(penalty) {
  const int64_t rows = size(random, 1024);
  return rondo_add_penalty(
      graph, &(rondo_penalty_desc){.x = OF(RANDOM_OF(random, numbers), 2, rows, size(random, 1 << 18), 0, 0),
                                   .ids = OF(RONDO_I32, 2, rows, random_between(random, 1, 1024), 0, 0),
                                   .repetition = MAY(RONDO_F32, 1, rows, 0, 0, 0),
                                   .frequency = MAY(RONDO_F32, 1, 1, 0, 0, 0)});
}

ADD(prompt_lookup) {
  const int64_t tokens = random_between(random, 1, 128), rows = one_of(random, 2) ? 1 : tokens;
  return rondo_add_prompt_lookup(
      graph, &(rondo_prompt_lookup_desc){.chosen = OF(RONDO_I32, 1, rows, 0, 0, 0),
                                         .tokens = OF(RONDO_I32, 1, tokens, 0, 0, 0),
                                         .position = OF(RONDO_I32, 1, 1, 0, 0, 0),
                                         .history = OF(RONDO_I32, 1, size(random, 1 << 17), 0, 0, 0),
                                         .stops = MAY(RONDO_I32, 1, random_between(random, 1, 16), 0, 0, 0),
                                         .accepted = OF(RONDO_I32, 1, rows, 0, 0, 0),
                                         .matched = OF(RONDO_I32, 1, 1, 0, 0, 0)});
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* Weights with their scales, and the types of vectors that they go with. */
static rondo_dtype draw_types(struct random *random, bool of_gemm, rondo_dtype *vectors) {
  static const rondo_dtype types[] = {RONDO_F16, RONDO_BF16, RONDO_E4M3, RONDO_NVFP4};
  const rondo_dtype weights = RANDOM_OF(random, types);
  *vectors = weights == RONDO_NVFP4 || weights == RONDO_E4M3 ? RANDOM_OF(random, halves) : weights;
  if (of_gemm && weights == RONDO_E4M3) *vectors = RONDO_E4M3;
  if (!of_gemm && weights == RONDO_NVFP4 && one_of(random, 2)) *vectors = RONDO_NVFP4;
  return weights;
}

/* Rows and columns of a language model's weights. */
static int64_t of_model(struct random *random, int64_t most) {
  static const int64_t known[] = {512, 896, 1024, 2048, 3072, 4096, 4864, 7168, 8192, 14336, 16384, 28672};
  return one_of(random, 2) ? RANDOM_OF(random, known) : size(random, most);
}

static int64_t multiple_of(int64_t value, int64_t of_what) { return (value + of_what - 1) / of_what * of_what; }

ADD(gemv) {
  rondo_gemv_desc desc = {.scale = 2, .one_order = one_of(random, 4), .silu_mul = one_of(random, 4)};
  rondo_dtype vectors;
  const rondo_dtype weights = draw_types(random, false, &vectors);
  const int64_t batch = one_of(random, 2) ? 1 : size(random, 256), count = random_between(random, 1, 16);
  const int64_t k = multiple_of(of_model(random, 1 << 15), weights == RONDO_NVFP4 ? 16 : 1);
  const bool quantised = one_of(random, 8);
  const int64_t m = multiple_of(of_model(random, 1 << 15), quantised ? 32 : desc.silu_mul ? 2 : 1);
  const int64_t columns = desc.silu_mul ? m / 2 : m;
  desc.weights = OF(weights, 3, batch, m, k, 0);
  desc.vectors = OF(vectors, 3, batch, count, k, 0);
  if (weights == RONDO_NVFP4) desc.weight_scales = OF(RONDO_E4M3, 3, batch, m, k / 16, 0);
  if (weights == RONDO_E4M3) desc.weight_scales = MAY(RONDO_F32, 2, batch, m, 0, 0);
  if (vectors == RONDO_NVFP4) desc.vector_scales = OF(RONDO_E4M3, 3, batch, count, k / 16, 0);
  if (vectors != RONDO_NVFP4 && one_of(random, 4)) {
    desc.norm_epsilon = 1e-5f;
    desc.norm = MAY(vectors, 1, k, 0, 0, 0);
  }
  desc.out = OF(quantised ? RONDO_NVFP4 : RANDOM_OF(random, numbers), 3, batch, count, columns, 0);
  if (quantised) desc.out_scales = OF(RONDO_E4M3, 3, batch, count, columns / 16, 0);
  if (one_of(random, 4)) desc.bias = OF(RANDOM_OF(random, numbers), 1, m, 0, 0, 0);
  if (one_of(random, 4)) desc.residual = OF(RANDOM_OF(random, numbers), 3, batch, count, columns, 0);
  return rondo_add_gemv(graph, &desc);
}

ADD(gemm) {
  rondo_gemm_desc desc = {.scale = 2, .one_order = one_of(random, 4), .silu_mul = one_of(random, 4)};
  rondo_dtype vectors;
  const rondo_dtype weights = draw_types(random, true, &vectors);
  const int64_t batch = one_of(random, 2) ? 1 : size(random, 64), count = size(random, 8192);
  const int64_t k = multiple_of(of_model(random, 1 << 14), weights == RONDO_NVFP4 ? 16 : 1);
  const int64_t m = multiple_of(of_model(random, 1 << 15), desc.silu_mul ? 2 : 1), columns = desc.silu_mul ? m / 2 : m;
  desc.weights = OF(weights, 3, batch, m, k, 0);
  desc.vectors = OF(vectors, 3, batch, count, k, 0);
  if (weights == RONDO_NVFP4) desc.weight_scales = OF(RONDO_E4M3, 3, batch, m, k / 16, 0);
  if (weights == RONDO_E4M3) desc.weight_scales = MAY(RONDO_F32, 2, batch, m, 0, 0);
  if (vectors == RONDO_E4M3) desc.vector_scales = MAY(RONDO_F32, 2, batch, count, 0, 0);
  desc.out = OF(one_of(random, 2) && vectors != RONDO_E4M3 ? vectors : RANDOM_OF(random, numbers), 3, batch, count,
                columns, 0);
  if (one_of(random, 4)) desc.bias = OF(RANDOM_OF(random, numbers), 1, m, 0, 0, 0);
  if (one_of(random, 4)) desc.residual = OF(RANDOM_OF(random, numbers), 3, batch, count, columns, 0);
  return rondo_add_gemm(graph, &desc);
}

ADD(gemm_softmax) {
  const rondo_dtype type = RANDOM_OF(random, halves);
  static const int64_t depths[] = {64, 128, 512};
  const int64_t batch = size(random, 64), m = size(random, 8192),
                n = one_of(random, 4) ? 128 * size(random, 32) : size(random, 8192),
                k = one_of(random, 2) ? RANDOM_OF(random, depths) : size(random, 2048);
  return rondo_add_gemm_softmax(graph,
                                &(rondo_gemm_softmax_desc){.a = OF(type, 3, batch, m, k, 0),
                                                           .b = OF(type, 3, batch, n, k, 0),
                                                           .p = OF(RANDOM_OF(random, numbers), 3, batch, m, n, 0),
                                                           .causal = one_of(random, 4)});
}

ADD(gemm_rowmax) {
  const rondo_dtype type = RANDOM_OF(random, halves);
  static const int64_t depths[] = {64, 128, 512};
  const int64_t batch = size(random, 64), m = size(random, 8192),
                n = one_of(random, 4) ? 128 * size(random, 32) : size(random, 8192),
                k = one_of(random, 2) ? RANDOM_OF(random, depths) : size(random, 2048);
  return rondo_add_gemm_rowmax(graph, &(rondo_gemm_rowmax_desc){.a = OF(type, 3, batch, m, k, 0),
                                                                .b = OF(type, 3, batch, n, k, 0),
                                                                .max = OF(RONDO_F32, 2, batch, m, 0, 0),
                                                                .causal = one_of(random, 4)});
}

/* ---- Attention and layer halves ---------------------------------------------------------------------------------- */

#define HEADS(type, batch, heads, rows) (bshd ? OF(type, 4, batch, rows, heads, d) : OF(type, 4, batch, heads, rows, d))

/* One in four: new rows, a rotary embedding, pages; the rest is plain. */
ADD(attention) {
  static const int64_t dimensions[] = {32, 64, 128, 256}, groups[] = {1, 1, 3, 4, 8};
  const bool bshd = one_of(random, 2), new_rows = one_of(random, 4), paged = one_of(random, 4);
  const int64_t d = RANDOM_OF(random, dimensions), batch = size(random, 64), kv_heads = size(random, 32),
                heads = kv_heads * RANDOM_OF(random, groups), rows = one_of(random, 3) ? 1 : size(random, 4096),
                capacity = size(random, 16384), page = INT64_C(16) << random_between(random, 0, 6);
  const rondo_dtype type = RANDOM_OF(random, halves);
  const rondo_dtype kv = !new_rows && one_of(random, 4) ? RONDO_E4M3 : type,
                    q = kv != type && one_of(random, 2) ? kv : type;
  rondo_attention_desc desc = {.layout = bshd ? RONDO_BSHD : RONDO_BHSD,
                               .causal = one_of(random, 2),
                               .splits = one_of(random, 4) ? (int32_t)random_between(random, 1, 256) : 0,
                               .soft_cap = one_of(random, 6) ? 30.0f : 0.0f};
  if (desc.causal && one_of(random, 4)) desc.window = (int32_t)size(random, 4096);
  desc.q = HEADS(q, batch, heads, rows), desc.o = HEADS(type, batch, heads, rows);
  desc.k = paged ? HEADS(kv, size(random, 64), kv_heads, page) : HEADS(kv, batch, kv_heads, capacity);
  desc.v = paged ? HEADS(kv, size(random, 64), kv_heads, page) : HEADS(kv, batch, kv_heads, capacity);
  if (paged) desc.kv_pages = OF(RONDO_I32, 2, batch, size(random, 256), 0, 0);
  desc.lse = MAY(RONDO_F32, 3, batch, heads, rows, 0);
  if (new_rows) {
    desc.new_k = HEADS(type, batch, kv_heads, rows), desc.new_v = HEADS(type, batch, kv_heads, rows);
    desc.position = OF(RONDO_I32, 1, one_of(random, 2) ? 1 : batch, 0, 0, 0);
    desc.rope_base = one_of(random, 2) ? 10000.0f : 0.0f;
  } else if (one_of(random, 2)) {
    desc.kv_lengths = OF(RONDO_I32, 1, batch, 0, 0, 0);
  }
  return rondo_add_attention(graph, &desc);
}

/* Sizes of models that have kernels, or any. */
static int64_t hidden_of(struct random *random) {
  static const int64_t known[] = {576, 896, 960, 1024, 1536, 2048, 2048};
  return one_of(random, 4) ? 16 * size(random, 256) : RANDOM_OF(random, known);
}

ADD(attention_block) {
  static const int64_t dimensions[] = {64, 64, 64, 128, 32}, groups[] = {1, 2, 3, 4, 8};
  const rondo_dtype weights = one_of(random, 2) ? RONDO_BF16 : RONDO_NVFP4,
                    stream = one_of(random, 8) ? RONDO_BF16 : RONDO_F32;
  const int64_t rows = random_between(random, 1, one_of(random, 2) ? 1 : 16), d = RANDOM_OF(random, dimensions),
                kv_heads = random_between(random, 1, 16), heads = kv_heads * RANDOM_OF(random, groups),
                hidden = hidden_of(random), of_qkv = (heads + 2 * kv_heads) * d, capacity = size(random, 8192);
  rondo_attention_block_desc desc = {
      .x = OF(stream, 2, rows, hidden, 0, 0),
      .x_parts = MAY(RONDO_F32, 3, size(random, 8), rows, hidden, 0),
      .norm = MAY(RONDO_BF16, 1, hidden, 0, 0, 0),
      .norm_epsilon = 1e-5f,
      .qkv = OF(weights, 2, of_qkv, hidden, 0, 0),
      .output = OF(weights, 2, hidden, heads * d, 0, 0),
      .k = OF(RONDO_BF16, 4, rows, capacity, kv_heads, d),
      .v = OF(RONDO_BF16, 4, rows, capacity, kv_heads, d),
      .position = OF(RONDO_I32, 1, rows, 0, 0, 0),
      .rope_base = one_of(random, 4) ? 0.0f : 10000.0f,
      .rope_pairing = RONDO_ROPE_HALVES,
      .out = OF(stream, 2, rows, hidden, 0, 0),
      .out_parts = OF(RONDO_F32, 3, one_of(random, 2) ? 8 : random_between(random, 1, 16), rows, hidden, 0)};
  if (weights == RONDO_NVFP4) {
    desc.qkv_scales = OF(RONDO_E4M3, 2, of_qkv, hidden / 16, 0, 0);
    desc.output_scales = OF(RONDO_E4M3, 2, hidden, heads * d / 16, 0, 0);
  }
  return rondo_add_attention_block(graph, &desc);
}

ADD(feed_forward) {
  static const int64_t known[] = {1536, 4864, 8192, 6144, 5632};
  const rondo_dtype weights = one_of(random, 2) ? RONDO_BF16 : RONDO_NVFP4,
                    stream = one_of(random, 8) ? RONDO_BF16 : RONDO_F32;
  const int64_t rows = random_between(random, 1, one_of(random, 2) ? 1 : 16), hidden = hidden_of(random),
                columns = one_of(random, 4) ? 16 * size(random, 512) : RANDOM_OF(random, known);
  rondo_feed_forward_desc desc = {
      .x = OF(stream, 2, rows, hidden, 0, 0),
      .x_parts = MAY(RONDO_F32, 3, size(random, 8), rows, hidden, 0),
      .norm = MAY(RONDO_BF16, 1, hidden, 0, 0, 0),
      .norm_epsilon = 1e-5f,
      .gate_up = OF(weights, 2, 2 * columns, hidden, 0, 0),
      .down = OF(weights, 2, hidden, columns, 0, 0),
      .out = OF(stream, 2, rows, hidden, 0, 0),
      .out_parts = OF(RONDO_F32, 3, one_of(random, 2) ? 8 : random_between(random, 1, 16), rows, hidden, 0)};
  if (weights == RONDO_NVFP4) {
    desc.gate_up_scales = OF(RONDO_E4M3, 2, 2 * columns, hidden / 16, 0, 0);
    desc.down_scales = OF(RONDO_E4M3, 2, hidden, columns / 16, 0, 0);
  }
  return rondo_add_feed_forward(graph, &desc);
}

/* ---- QR ---------------------------------------------------------------------------------------------------------- */

#define MATRIX(type, rows, columns)                                                                                    \
  (layout == RONDO_ROW_MAJOR ? OF(type, 3, batch, rows, columns, 0) : OF(type, 3, batch, columns, rows, 0))
#define LAYOUT      const rondo_layout layout = one_of(random, 2) ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR
#define LEAST(a, b) ((a) < (b) ? (a) : (b))

ADD(qr) {
  LAYOUT;
  const int64_t batch = size(random, 4096), m = size(random, 2500), n = size(random, 600), k = LEAST(m, n);
  const rondo_dtype type = RANDOM_OF(random, reals), narrow = RANDOM_OF(random, halves);
  rondo_qr_desc desc = {.layout = layout, .a = MATRIX(type, m, n)};
  if (one_of(random, 2)) {
    const bool is_narrow = m <= 128 && n <= 128 && type == RONDO_F32 && one_of(random, 2);
    if (is_narrow) desc.a = MATRIX(narrow, m, n);
    desc.h = MATRIX(type, m, n), desc.tau = OF(type, 2, batch, k, 0, 0);
  } else {
    desc.r = MATRIX(type, k, n);
    if (one_of(random, 2)) desc.q = MATRIX(type, m, k);
  }
  return rondo_add_qr(graph, &desc);
}

ADD(qr_part) {
  LAYOUT;
  const int64_t batch = size(random, 1024), m = size(random, 2500), n = size(random, 128), k = LEAST(m, n),
                part = random_between(random, 0, 3);
  const rondo_dtype type = RANDOM_OF(random, reals);
  const rondo_tensor v = MATRIX(type, m, n), tau = OF(type, 2, batch, k, 0, 0), c = MATRIX(type, m, size(random, 1024));
  if (part == 0) return rondo_add_qr_panel(graph, &(rondo_qr_panel_desc){NULL, layout, v, tau});
  if (part == 1) return rondo_add_qr_update(graph, &(rondo_qr_update_desc){NULL, layout, v, tau, c});
  if (part == 2)
    return rondo_add_qr_extract(
        graph, &(rondo_qr_extract_desc){.layout = layout, .h = v, .r = MATRIX(type, k, n), .q = MATRIX(type, m, k)});
  return rondo_add_qr_apply(graph, &(rondo_qr_apply_desc){NULL, layout, one_of(random, 2), v, tau, c});
}

ADD(least_squares) {
  LAYOUT;
  const int64_t batch = size(random, 2048), m = size(random, 1 << 14), n = random_between(random, 1, LEAST(m, 300)),
                sides = size(random, 100);
  const rondo_dtype type = RANDOM_OF(random, reals);
  return rondo_add_least_squares(graph, &(rondo_least_squares_desc){.layout = layout,
                                                                    .a = MATRIX(type, m, n),
                                                                    .b = MATRIX(type, m, sides),
                                                                    .x = MATRIX(type, n, sides),
                                                                    .residual = MAY(type, 2, batch, sides, 0, 0),
                                                                    .info = MAY(RONDO_I32, 1, batch, 0, 0, 0)});
}

ADD(triangular_inverse) {
  const int64_t batch = size(random, 1 << 16), n = random_between(random, 16, 128);
  const rondo_dtype type = RANDOM_OF(random, reals);
  return rondo_add_triangular_inverse(
      graph, &(rondo_triangular_inverse_desc){.a = OF(type, 3, batch, n, n, 0), .out = OF(type, 3, batch, n, n, 0)});
}

#define TASK(kind)                                                                                                     \
  { #kind, kind }
const struct random_task random_tasks[] = {
    TASK(copy),
    TASK(append),
    TASK(quantize),
    TASK(embed),
    TASK(rms_norm),
    TASK(rope),
    TASK(silu_mul),
    TASK(add),
    TASK(argmax),
    TASK(sample),
    TASK(penalty),
    TASK(prompt_lookup),
    TASK(gemv),
    TASK(gemm),
    TASK(gemm_softmax),
    TASK(gemm_rowmax),
    TASK(attention),
    TASK(attention_block),
    TASK(feed_forward),
    TASK(qr),
    TASK(qr_part),
    TASK(least_squares),
    TASK(triangular_inverse),
};
const size_t random_task_count = sizeof random_tasks / sizeof *random_tasks;
