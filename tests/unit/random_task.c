/* random_task.c - see random_task.h. Sizes are spread over orders of magnitude; half of the larger ones are the
 * multiples that kernels like. One tensor in twelve is a view, whose rows have gaps or begin in the middle of 16
 * bytes. In calls and initialisers, whose order C leaves open, at most one argument draws. */
#include "random_task.h"

#include <string.h>

#include "../../runtime/layer_form.h"

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
  rondo_copy_desc desc = {0};
  desc.src = OF(type, 3, a, b, c, 0);
  desc.dst = OF(type, 3, a, b, c, 0);
  return rondo_add_copy(graph, &desc);
}

ADD(append) {
  const rondo_dtype type = RANDOM_OF(random, numbers);
  const int64_t batch = size(random, 64), heads = size(random, 64), most = size(random, 8192), d = size(random, 256);
  rondo_append_desc desc = {.dimension = 2};
  desc.src = OF(type, 4, batch, heads, random_between(random, 1, most), d);
  desc.dst = OF(type, 4, batch, heads, most, d);
  desc.position = OF(RONDO_I32, 1, one_of(random, 2) ? 1 : batch, 0, 0, 0);
  return rondo_add_append(graph, &desc);
}

ADD(quantize) {
  const int64_t rows = size(random, 1 << 20), groups = size(random, 1024);
  const bool is_e4m3 = one_of(random, 2);
  const rondo_tensor x = OF(RANDOM_OF(random, numbers), 2, rows, 16 * groups, 0, 0);
  const rondo_tensor codes = OF(is_e4m3 ? RONDO_E4M3 : RONDO_NVFP4, 2, rows, 16 * groups, 0, 0);
  const rondo_tensor scales = is_e4m3 ? OF(RONDO_F32, 1, rows, 0, 0, 0) : OF(RONDO_E4M3, 2, rows, groups, 0, 0);
  if (is_e4m3) return rondo_add_quantize_e4m3(graph, &(rondo_quantize_e4m3_desc){NULL, x, codes, scales});
  return rondo_add_quantize_nvfp4(graph, &(rondo_quantize_nvfp4_desc){.x = x, .codes = codes, .scales = scales});
}

ADD(embed) {
  const int64_t rows = size(random, 1 << 17), width = 16 * size(random, 512), count = size(random, 4096);
  const bool packed = one_of(random, 4);
  rondo_embed_desc desc = {0};
  desc.table = OF(packed ? RONDO_NVFP4 : RANDOM_OF(random, numbers), 2, rows, width, 0, 0);
  if (packed) desc.table_scales = OF(RONDO_E4M3, 2, rows, width / 16, 0, 0);
  desc.ids = OF(RONDO_I32, 1, count, 0, 0, 0);
  desc.out = OF(RANDOM_OF(random, numbers), 2, count, width, 0, 0);
  return rondo_add_embed(graph, &desc);
}

ADD(rms_norm) {
  const int64_t rows = size(random, 1 << 20), k = size(random, 1 << 15);
  rondo_rms_norm_desc desc = {.epsilon = 1e-5f};
  desc.x = OF(RANDOM_OF(random, numbers), 2, rows, k, 0, 0);
  desc.norm = MAY(RANDOM_OF(random, numbers), 1, k, 0, 0, 0);
  desc.out = OF(RANDOM_OF(random, numbers), 2, rows, k, 0, 0);
  desc.x_parts = MAY(RONDO_F32, 3, size(random, 16), rows, k, 0);
  return rondo_add_rms_norm(graph, &desc);
}

ADD(rope) {
  const int64_t batch = size(random, 64), heads = size(random, 64), rows = size(random, 4096),
                d = 2 * random_between(random, 1, 128);
  const rondo_dtype type = RANDOM_OF(random, numbers);
  rondo_rope_desc desc = {0};
  desc.layout = one_of(random, 2) ? RONDO_BSHD : RONDO_BHSD;
  desc.pairing = one_of(random, 2) ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
  desc.x = OF(type, 4, batch, heads, rows, d);
  desc.out = OF(type, 4, batch, heads, rows, d);
  desc.position = OF(RONDO_I32, 1, one_of(random, 2) ? 1 : batch, 0, 0, 0);
  desc.frequencies = MAY(RONDO_F32, 1, d / 2, 0, 0, 0);
  return rondo_add_rope(graph, &desc);
}

ADD(silu_mul) {
  const int64_t rows = size(random, 1 << 16), columns = size(random, 1 << 15);
  const rondo_dtype type = RANDOM_OF(random, numbers);
  rondo_silu_mul_desc desc = {0};
  desc.gate = OF(type, 2, rows, columns, 0, 0);
  desc.up = OF(type, 2, rows, columns, 0, 0);
  desc.out = OF(type, 2, rows, columns, 0, 0);
  return rondo_add_silu_mul(graph, &desc);
}

ADD(add) {
  const int64_t rows = size(random, 1 << 16), columns = size(random, 1 << 15);
  const rondo_dtype type = RANDOM_OF(random, numbers);
  rondo_add_desc desc = {0};
  desc.a = OF(type, 2, rows, columns, 0, 0);
  desc.b = OF(type, 2, rows, columns, 0, 0);
  desc.out = OF(type, 2, rows, columns, 0, 0);
  return rondo_add_add(graph, &desc);
}

ADD(argmax) {
  const int64_t rows = size(random, 1 << 16), columns = size(random, 1 << 20);
  rondo_argmax_desc desc = {0};
  desc.x = OF(RANDOM_OF(random, numbers), 2, rows, columns, 0, 0);
  desc.out = OF(RONDO_I32, 1, rows, 0, 0, 0);
  return rondo_add_argmax(graph, &desc);
}

ADD(sample) {
  const int64_t rows = size(random, 1024), columns = size(random, 1 << 20);
  rondo_sample_desc desc = {0};
  desc.x = OF(RANDOM_OF(random, numbers), 2, rows, columns, 0, 0);
  desc.out = OF(RONDO_I32, 1, rows, 0, 0, 0);
  desc.temperature = MAY(RONDO_F32, 1, rows, 0, 0, 0);
  desc.top_k = MAY(RONDO_I32, 1, 1, 0, 0, 0);
  desc.top_p = MAY(RONDO_F32, 1, rows, 0, 0, 0);
  desc.seed = OF(RONDO_I32, 1, rows, 0, 0, 0);
  desc.step = OF(RONDO_I32, 1, 1, 0, 0, 0);
  return rondo_add_sample(graph, &desc);
}

ADD(penalty) {
  const int64_t rows = size(random, 1024), columns = size(random, 1 << 18);
  rondo_penalty_desc desc = {0};
  desc.x = OF(RANDOM_OF(random, numbers), 2, rows, columns, 0, 0);
  desc.ids = OF(RONDO_I32, 2, rows, random_between(random, 1, 1024), 0, 0);
  desc.repetition = MAY(RONDO_F32, 1, rows, 0, 0, 0);
  desc.frequency = MAY(RONDO_F32, 1, 1, 0, 0, 0);
  return rondo_add_penalty(graph, &desc);
}

ADD(prompt_lookup) {
  const int64_t tokens = random_between(random, 1, 128), rows = one_of(random, 2) ? 1 : tokens;
  rondo_prompt_lookup_desc desc = {0};
  desc.chosen = OF(RONDO_I32, 1, rows, 0, 0, 0);
  desc.tokens = OF(RONDO_I32, 1, tokens, 0, 0, 0);
  desc.position = OF(RONDO_I32, 1, 1, 0, 0, 0);
  desc.history = OF(RONDO_I32, 1, size(random, 1 << 17), 0, 0, 0);
  desc.stops = MAY(RONDO_I32, 1, random_between(random, 1, 16), 0, 0, 0);
  desc.accepted = OF(RONDO_I32, 1, rows, 0, 0, 0);
  desc.matched = OF(RONDO_I32, 1, 1, 0, 0, 0);
  return rondo_add_prompt_lookup(graph, &desc);
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
  static const int64_t known[] = {512,  576,  896,  960,   1024,  2048,  3072, 4096,
                                  4864, 7168, 8192, 14336, 16384, 28672, 49152};
  return one_of(random, 2) ? RANDOM_OF(random, known) : size(random, most);
}

static int64_t multiple_of(int64_t value, int64_t of_what) { return (value + of_what - 1) / of_what * of_what; }

ADD(gemv) {
  rondo_gemv_desc desc = {.scale = 2};
  desc.one_order = one_of(random, 4);
  desc.silu_mul = one_of(random, 4);
  rondo_dtype vectors;
  const rondo_dtype weights = draw_types(random, false, &vectors);
  const int64_t batch = one_of(random, 2) ? 1 : size(random, 256),
                count = one_of(random, 2) ? 1 : random_between(random, 1, 16);
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
  rondo_gemm_desc desc = {.scale = 2};
  desc.one_order = one_of(random, 4);
  desc.silu_mul = one_of(random, 4);
  rondo_dtype vectors;
  const rondo_dtype weights = draw_types(random, true, &vectors);
  const int64_t batch = one_of(random, 2) ? 1 : size(random, 64),
                count = one_of(random, 4) ? random_between(random, 17, 32) : size(random, 8192);
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
  rondo_gemm_softmax_desc desc = {0};
  desc.a = OF(type, 3, batch, m, k, 0);
  desc.b = OF(type, 3, batch, n, k, 0);
  desc.p = OF(RANDOM_OF(random, numbers), 3, batch, m, n, 0);
  desc.causal = one_of(random, 4);
  return rondo_add_gemm_softmax(graph, &desc);
}

ADD(gemm_rowmax) {
  const rondo_dtype type = RANDOM_OF(random, halves);
  static const int64_t depths[] = {64, 128, 512};
  const int64_t batch = size(random, 64), m = size(random, 8192),
                n = one_of(random, 4) ? 128 * size(random, 32) : size(random, 8192),
                k = one_of(random, 2) ? RANDOM_OF(random, depths) : size(random, 2048);
  rondo_gemm_rowmax_desc desc = {0};
  desc.a = OF(type, 3, batch, m, k, 0);
  desc.b = OF(type, 3, batch, n, k, 0);
  desc.max = OF(RONDO_F32, 2, batch, m, 0, 0);
  desc.causal = one_of(random, 4);
  return rondo_add_gemm_rowmax(graph, &desc);
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
  rondo_attention_desc desc = {.layout = bshd ? RONDO_BSHD : RONDO_BHSD};
  desc.causal = one_of(random, 2);
  desc.splits = one_of(random, 4) ? (int32_t)random_between(random, 1, 256) : 0;
  desc.soft_cap = one_of(random, 6) ? 30.0f : 0.0f;
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

/* In three of four cases a model's sizes. */
struct model {
  int64_t hidden, columns, kv_heads, group, dimension;
};

static struct model draw_model(struct random *random) {
  static const struct model known[] = {{576, 1536, 3, 3, 64},   {576, 1536, 3, 3, 64},   {576, 1536, 3, 3, 64},
                                       {896, 4864, 2, 7, 64},   {960, 2560, 5, 3, 64},   {1024, 3072, 8, 2, 64},
                                       {1536, 8960, 2, 6, 128}, {2048, 5632, 4, 8, 64},  {2048, 8192, 8, 4, 64},
                                       {2048, 6144, 8, 2, 64},  {2560, 9728, 8, 4, 128}, {3072, 8192, 8, 3, 128},
                                       {4096, 14336, 8, 4, 128}};
  static const int64_t dimensions[] = {64, 64, 64, 128, 32}, groups[] = {1, 2, 3, 4, 8};
  if (!one_of(random, 4)) return RANDOM_OF(random, known);
  struct model any = {.hidden = 16 * size(random, 256)};
  any.columns = 16 * size(random, 512);
  any.kv_heads = random_between(random, 1, 16);
  any.group = RANDOM_OF(random, groups);
  any.dimension = RANDOM_OF(random, dimensions);
  return any;
}

/* A layer half, which a program adds with up to 16 rows. A ready-made graph adds it with up to 128, and of tokens of
 * one sequence. */
struct half {
  struct model model;
  int64_t rows, x_parts, out_parts;
  rondo_dtype weights, stream;
  bool of_graph, one_sequence, as_tokens;
  rondo_tensor x, parts, norm, out, results;
};

static struct half draw_half(struct random *random) {
  static const int64_t most_rows[] = {1, 1, 8, 16, 128};
  struct half half = {.model = draw_model(random)};
  half.of_graph = !one_of(random, 3);
  half.one_sequence = half.of_graph && !one_of(random, 3);
  half.as_tokens = half.one_sequence && one_of(random, 2);
  half.rows = random_between(random, 1, RANDOM_OF(random, most_rows));
  if (!half.of_graph && half.rows > 16) half.rows = 16;
  const int64_t of_kernels[] = {8, half.model.kv_heads, half.model.kv_heads * half.model.group / 2,
                                half.model.columns / 256};
  half.out_parts = one_of(random, 4) ? random_between(random, 1, 16) : RANDOM_OF(random, of_kernels);
  if (half.out_parts < 1) half.out_parts = 1;
  half.x_parts = one_of(random, 3) ? size(random, 8) : 3 * random_between(random, 0, 3);
  half.weights = one_of(random, 2) ? RONDO_BF16 : RONDO_NVFP4;
  half.stream = one_of(random, 8) ? RONDO_BF16 : RONDO_F32;
  return half;
}

static void add_operands(rondo_graph *graph, struct random *random, struct half *half) {
  half->x = OF(half->stream, 2, half->rows, half->model.hidden, 0, 0);
  if (half->x_parts) half->parts = OF(RONDO_F32, 3, half->x_parts, half->rows, half->model.hidden, 0);
  half->norm = MAY(RONDO_BF16, 1, half->model.hidden, 0, 0, 0);
  half->out = OF(half->stream, 2, half->rows, half->model.hidden, 0, 0);
  half->results = OF(RONDO_F32, 3, half->out_parts, half->rows, half->model.hidden, 0);
}
#define OPERANDS .x = half.x, .x_parts = half.parts, .norm = half.norm, .out = half.out, .out_parts = half.results

#define WEIGHTS(rows, columns) OF(half.weights, 2, rows, columns, 0, 0)
#define SCALES(rows, columns)                                                                                          \
  (half.weights == RONDO_NVFP4 ? OF(RONDO_E4M3, 2, rows, (columns) / 16, 0, 0) : (rondo_tensor){0})

ADD(attention_block) {
  struct half half = draw_half(random);
  add_operands(graph, random, &half);
  const int64_t d = half.model.dimension, heads = half.model.kv_heads * half.model.group,
                of_qkv = (heads + 2 * half.model.kv_heads) * d;
  const bool paged = half.one_sequence && one_of(random, 4);
  const int64_t sequences = half.one_sequence ? 1 : half.rows, caches = paged ? 64 : sequences,
                capacity = paged ? 64 : size(random, 8192);
  rondo_attention_block_desc desc = {OPERANDS, .norm_epsilon = 1e-5f, .rope_pairing = RONDO_ROPE_HALVES};
  desc.qkv = WEIGHTS(of_qkv, half.model.hidden);
  desc.qkv_scales = SCALES(of_qkv, half.model.hidden);
  desc.output = WEIGHTS(half.model.hidden, heads * d);
  desc.output_scales = SCALES(half.model.hidden, heads * d);
  desc.k = OF(RONDO_BF16, 4, caches, capacity, half.model.kv_heads, d);
  desc.v = OF(RONDO_BF16, 4, caches, capacity, half.model.kv_heads, d);
  desc.position = OF(RONDO_I32, 1, sequences, 0, 0, 0);
  desc.rope_base = one_of(random, 4) ? 0.0f : 10000.0f;
  const rondo_tensor pages = paged ? OF(RONDO_I32, 2, 1, size(random, 64), 0, 0) : (rondo_tensor){0};
  if (half.one_sequence) return prompt_attention_add(graph, &desc, pages, half.as_tokens);
  return half.of_graph ? attention_block_add(graph, &desc, NULL) : rondo_add_attention_block(graph, &desc);
}

ADD(feed_forward) {
  struct half half = draw_half(random);
  add_operands(graph, random, &half);
  rondo_feed_forward_desc desc = {OPERANDS, .norm_epsilon = 1e-5f};
  desc.gate_up = WEIGHTS(2 * half.model.columns, half.model.hidden);
  desc.gate_up_scales = SCALES(2 * half.model.columns, half.model.hidden);
  desc.down = WEIGHTS(half.model.hidden, half.model.columns);
  desc.down_scales = SCALES(half.model.hidden, half.model.columns);
  if (!half.of_graph) return rondo_add_feed_forward(graph, &desc);
  return feed_forward_add(graph, &desc, one_of(random, 2), half.as_tokens, NULL);
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
  const int64_t batch = size(random, 1024), m = size(random, one_of(random, 4) ? 1 << 17 : 2500), n = size(random, 128),
                k = LEAST(m, n), part = random_between(random, 0, 3);
  const rondo_dtype type = RANDOM_OF(random, reals);
  const rondo_tensor v = MATRIX(type, m, n), tau = OF(type, 2, batch, k, 0, 0), c = MATRIX(type, m, size(random, 1024));
  rondo_qr_extract_desc extract = {.layout = layout, .h = v};
  if (part == 0) return rondo_add_qr_panel(graph, &(rondo_qr_panel_desc){NULL, layout, v, tau});
  if (part == 1) return rondo_add_qr_update(graph, &(rondo_qr_update_desc){NULL, layout, v, tau, c});
  if (part == 2) {
    extract.r = MATRIX(type, k, n);
    extract.q = MATRIX(type, m, k);
    return rondo_add_qr_extract(graph, &extract);
  }
  return rondo_add_qr_apply(graph, &(rondo_qr_apply_desc){NULL, layout, one_of(random, 2), v, tau, c});
}

ADD(least_squares) {
  LAYOUT;
  const int64_t batch = size(random, 2048), m = size(random, 1 << 14), n = random_between(random, 1, LEAST(m, 300)),
                sides = size(random, 100);
  const rondo_dtype type = RANDOM_OF(random, reals);
  rondo_least_squares_desc desc = {.layout = layout};
  desc.a = MATRIX(type, m, n);
  desc.b = MATRIX(type, m, sides);
  desc.x = MATRIX(type, n, sides);
  desc.residual = MAY(type, 2, batch, sides, 0, 0);
  desc.info = MAY(RONDO_I32, 1, batch, 0, 0, 0);
  return rondo_add_least_squares(graph, &desc);
}

ADD(triangular_inverse) {
  const int64_t batch = size(random, 1 << 16), n = random_between(random, 16, 128);
  const rondo_dtype type = RANDOM_OF(random, reals);
  rondo_triangular_inverse_desc desc = {0};
  desc.a = OF(type, 3, batch, n, n, 0);
  desc.out = OF(type, 3, batch, n, n, 0);
  return rondo_add_triangular_inverse(graph, &desc);
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
