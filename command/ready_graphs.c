/* ready_graphs.c - the ready-made graphs and their fields (ready_graphs.h). A field has its name of rondo_graphs.h. The
 * library checks whether the values fit together. */
#include "ready_graphs.h"

#include <string.h>

#include "../runtime/status.h"

/* The types that a field accepts, in the order of its help. */
#define TYPES(name, ...) static const struct choice name[] = {__VA_ARGS__, {NULL, 0}}
#define F64                                                                                                            \
  { "f64", RONDO_F64 }
#define F32                                                                                                            \
  { "f32", RONDO_F32 }
#define F16                                                                                                            \
  { "f16", RONDO_F16 }
#define BF16                                                                                                           \
  { "bf16", RONDO_BF16 }
#define E4M3                                                                                                           \
  { "e4m3", RONDO_E4M3 }
#define NVFP4                                                                                                          \
  { "nvfp4", RONDO_NVFP4 }
TYPES(halves, F16, BF16);
TYPES(singles, F32, F64);
TYPES(numbers, F32, F16, BF16);
TYPES(weight_types, NVFP4, E4M3, F16, BF16);
TYPES(vector_types, F16, BF16, E4M3, NVFP4);
TYPES(result_types, F32, F16, BF16, NVFP4);
TYPES(embedding_types, F16, BF16, NVFP4);

static const struct choice layouts[] = {
    {"column_major", RONDO_COLUMN_MAJOR}, {"row_major", RONDO_ROW_MAJOR}, {NULL, 0}};
static const struct choice head_layouts[] = {{"bhsd", RONDO_BHSD}, {"bshd", RONDO_BSHD}, {NULL, 0}};
static const struct choice scale_layouts[] = {
    {"by_row", RONDO_SCALES_BY_ROW}, {"128x4", RONDO_SCALES_128X4}, {NULL, 0}};
static const struct choice pairings[] = {
    {"interleaved", RONDO_ROPE_INTERLEAVED}, {"halves", RONDO_ROPE_HALVES}, {NULL, 0}};
static const struct choice forms[] = {
    {"h_tau", RONDO_QR_H_TAU}, {"r", RONDO_QR_R}, {"thin_q", RONDO_QR_THIN_Q}, {NULL, 0}};

#define FIELD(graph, field, kind_of, text)                                                                             \
  .name = #field, .help = (text), .kind = (kind_of), .offset = offsetof(rondo_graph_##graph##_desc, field)
#define NAME(graph)                                                                                                    \
  { FIELD(graph, name, VALUE_TEXT, "prefix of the names of tensors and tasks") }
#define SIZE(graph, field, text)                                                                                       \
  { FIELD(graph, field, VALUE_INT64, text) }
#define COUNT(graph, field, text)                                                                                      \
  { FIELD(graph, field, VALUE_INT32, text) }
#define REAL(graph, field, text)                                                                                       \
  { FIELD(graph, field, VALUE_FLOAT, text) }
#define TYPE(graph, field, list, text)                                                                                 \
  { FIELD(graph, field, VALUE_CHOICE, text), .choices = (list), .value_name = "TYPE" }
#define ONE_OF(graph, field, list, text)                                                                               \
  { FIELD(graph, field, VALUE_CHOICE, text), .choices = (list) }

static const struct argument attention_fields[] = {
    NAME(attention),
    TYPE(attention, dtype, halves, "f16 or bf16"),
    ONE_OF(attention, layout, head_layouts, "order of dimensions: b batch, h heads, s sequence, d head dimension"),
    SIZE(attention, batch, "items"),
    SIZE(attention, query_heads, "a multiple of kv_heads"),
    SIZE(attention, kv_heads, "heads of K and V"),
    SIZE(attention, query_length, "queries of each head"),
    SIZE(attention, kv_length, "rows of K and V"),
    SIZE(attention, head_dimension, "32, 64, 128 or 256"),
    REAL(attention, scale, "factor of Q K^T; 0: 1 / sqrt(head_dimension)"),
    COUNT(attention, causal, "1: later rows are masked"),
    COUNT(attention, splits, "parts of the KV rows; 0: Rondo chooses"),
    COUNT(attention, kv_is_state, "1: K and V are states: they keep their content between replays"),
    COUNT(attention, with_lengths, "1: the number of KV rows is an input"),
    COUNT(attention, with_lse, "1: log-sum-exp is an output too"),
};

static const struct argument gemm_softmax_fields[] = {
    NAME(gemm_softmax),
    TYPE(gemm_softmax, dtype, halves, "type of A and B: f16 or bf16"),
    TYPE(gemm_softmax, p_dtype, numbers, "type of P: f32, f16 or bf16"),
    SIZE(gemm_softmax, batch, "matrices"),
    SIZE(gemm_softmax, m, "rows of A"),
    SIZE(gemm_softmax, n, "rows of B"),
    SIZE(gemm_softmax, k, "columns of both"),
    REAL(gemm_softmax, scale, "factor of A B^T; 0: 1"),
    COUNT(gemm_softmax, causal, "1: later columns are masked"),
    COUNT(gemm_softmax, b_constant, "1: B is a constant: it is uploaded once"),
};

static const struct argument gemv_fields[] = {
    NAME(gemv),
    TYPE(gemv, weights, weight_types, "nvfp4, e4m3, f16 or bf16"),
    TYPE(gemv, vectors, vector_types, "type of the product's vectors: f16, bf16, nvfp4; e4m3 beside e4m3 weights"),
    TYPE(gemv, out, result_types, "f32, f16, bf16 or nvfp4"),
    SIZE(gemv, m, "rows of the weights"),
    SIZE(gemv, k, "columns of the weights"),
    SIZE(gemv, batch, "matrices; 0: one matrix, without a batch dimension"),
    COUNT(gemv, count, "vectors of each matrix, 1 to 16, in f16, bf16 and e4m3 without a norm to 65536; 0: 1"),
    REAL(gemv, scale, "factor of the product; 0: 1"),
    COUNT(gemv, row_scales, "1: e4m3 weights have a factor for each row"),
    TYPE(gemv, quantize_from, numbers, "type of the input that becomes nvfp4 vectors: f32, f16 or bf16"),
    REAL(gemv, quantize_scale, "factor of all nvfp4 vectors; 0: 1"),
    ONE_OF(gemv, weight_scale_layout, scale_layouts, "layout of the scale factors of nvfp4 weights"),
    ONE_OF(gemv, vector_scale_layout, scale_layouts, "layout of the scale factors of nvfp4 vectors"),
    COUNT(gemv, one_order, "1: the same bits with any number of vectors up to 16, and with any above"),
    REAL(gemv, norm_epsilon, "greater than 0: RMS norm of the vectors"),
    TYPE(gemv, bias, numbers, "f32, f16 or bf16; not given: no bias"),
    COUNT(gemv, silu_mul, "1: rows are gate and up alternately; the result is silu(gate) * up"),
    TYPE(gemv, residual, numbers, "f32, f16 or bf16; not given: no residual"),
    REAL(gemv, out_global_scale, "factor of nvfp4 results; 0: 1"),
};

static const struct argument llama_fields[] = {
    NAME(llama),
    COUNT(llama, layers, "decoder layers"),
    SIZE(llama, hidden, "columns of the residual stream"),
    SIZE(llama, query_heads, "a multiple of kv_heads"),
    SIZE(llama, kv_heads, "heads of K and V"),
    SIZE(llama, head_dimension, "32, 64, 128 or 256; 0: hidden / query_heads"),
    SIZE(llama, feed_forward, "rows of gate, and of up"),
    SIZE(llama, vocabulary, "rows of the embedding"),
    SIZE(llama, context, "the most tokens of a sequence"),
    REAL(llama, rope_base, "base of the rotary embedding; 0: 10000"),
    ONE_OF(llama, rope_pairing, pairings, "pairs of elements that the rotary embedding rotates"),
    COUNT(llama, rope_frequencies, "1: the frequencies are a constant; 0: they follow from rope_base"),
    REAL(llama, epsilon, "epsilon of RMS norms; 0: 1e-5"),
    TYPE(llama, dtype, halves, "type of activations and KV caches: f16 or bf16"),
    TYPE(llama, weights, weight_types, "type of the layers' weights: dtype, e4m3 or nvfp4"),
    TYPE(llama, embedding, embedding_types, "dtype or nvfp4; not given: nvfp4 if weights is, else dtype"),
    REAL(llama, nvfp4_scale, "factor of all nvfp4 weights; 0: 1"),
    COUNT(llama, tied_embedding, "1: the embedding is the head (the output matrix) too"),
    COUNT(llama, one_order, "1: products have the same bits with any number of sequences up to 16, and with any above"),
    COUNT(llama, sequences, "1 to 256; 0: 1"),
    COUNT(llama, tokens, "prefill: 1 to 8192 tokens of one sequence; 0: decode"),
    COUNT(llama, sequence, "prefill: the sequence's index"),
    COUNT(llama, packed, "prefill: 1: rows of all sequences, by offsets"),
    COUNT(llama, every_row, "prefill: 1: each row has a next token and logits"),
    COUNT(llama, feed_back, "1: the graph feeds back the token and increments the position"),
    COUNT(llama, with_logits, "1: logits are an output too"),
    COUNT(llama, with_sampling, "1: the next token is drawn"),
    COUNT(llama, penalized, "recent tokens that penalties apply to, up to 1024; 0: no penalties"),
    COUNT(llama, draft, "drafted tokens; 0: none"),
    COUNT(llama, verify, "with draft: 1: rows are the token and its drafts"),
    SIZE(llama, page_rows, "rows of a page of the KV caches; 0: no pages"),
    SIZE(llama, pages, "of a layer's K, and of its V"),
};

static const struct argument qr_fields[] = {
    NAME(qr),
    TYPE(qr, dtype, singles, "f32 or f64"),
    ONE_OF(qr, layout, layouts, "layout of each matrix"),
    SIZE(qr, m, "rows"),
    SIZE(qr, n, "columns"),
    SIZE(qr, batch, "matrices"),
    ONE_OF(qr, form, forms, "result: H and tau, R alone, or thin Q and R"),
    COUNT(qr, panel_width, "columns of a panel; 0: Rondo chooses"),
};

static rondo_status add_attention(rondo_graph *graph, const union ready_desc *desc, union ready_tensors *tensors) {
  return rondo_graph_attention(graph, &desc->attention, &tensors->attention);
}
static rondo_status add_gemm_softmax(rondo_graph *graph, const union ready_desc *desc, union ready_tensors *tensors) {
  return rondo_graph_gemm_softmax(graph, &desc->gemm_softmax, &tensors->gemm_softmax);
}
static rondo_status add_gemv(rondo_graph *graph, const union ready_desc *desc, union ready_tensors *tensors) {
  return rondo_graph_gemv(graph, &desc->gemv, &tensors->gemv);
}
static rondo_status add_llama(rondo_graph *graph, const union ready_desc *desc, union ready_tensors *tensors) {
  rondo_graph_llama_tensors made = {.layers = tensors->llama.layers};
  if (desc->llama.layers > READY_LAYERS_MOST)
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_graph_llama: layers is %d, expected at most %d in this command",
                      (int)desc->llama.layers, READY_LAYERS_MOST);
  rondo_status status = rondo_graph_llama(graph, &desc->llama, &made);
  if (status == RONDO_OK) memcpy(tensors->llama.ends, &made, sizeof tensors->llama.ends);
  return status;
}
static rondo_status add_qr(rondo_graph *graph, const union ready_desc *desc, union ready_tensors *tensors) {
  return rondo_graph_qr(graph, &desc->qr, &tensors->qr);
}

const char ready_graph_names[] = "attention, gemm_softmax, gemv, llama, qr or smollm2";

const struct ready_graph ready_graphs[] = {
    {.name = "attention",
     .about = "softmax(Q K^T) V: prefill, or decode against a KV cache",
     .fields = ARGUMENT_TABLE(attention_fields),
     .desc_bytes = sizeof(rondo_graph_attention_desc),
     .preset.attention = {.dtype = RONDO_F16,
                          .batch = 1,
                          .query_heads = 32,
                          .kv_heads = 8,
                          .query_length = 1,
                          .kv_length = 4096,
                          .head_dimension = 128,
                          .kv_is_state = 1},
     .add = add_attention},
    {.name = "gemm_softmax",
     .about = "softmax over the rows of A B^T",
     .fields = ARGUMENT_TABLE(gemm_softmax_fields),
     .desc_bytes = sizeof(rondo_graph_gemm_softmax_desc),
     .preset.gemm_softmax = {.dtype = RONDO_F16, .p_dtype = RONDO_F16, .batch = 1, .m = 1024, .n = 1024, .k = 64},
     .add = add_gemm_softmax},
    {.name = "gemv",
     .about = "W x for 1 to 16 vectors, in f16, bf16 and e4m3 for 1 to 65536",
     .fields = ARGUMENT_TABLE(gemv_fields),
     .desc_bytes = sizeof(rondo_graph_gemv_desc),
     .preset.gemv = {.weights = RONDO_NVFP4, .vectors = RONDO_BF16, .out = RONDO_F32, .m = 4096, .k = 4096},
     .add = add_gemv},
    {.name = "llama",
     .about = "a step of a decoder with the sizes of Llama 3.2 1B",
     .fields = ARGUMENT_TABLE(llama_fields),
     .desc_bytes = offsetof(rondo_graph_llama_desc, lender),
     .preset.llama = {.layers = 16,
                      .hidden = 2048,
                      .query_heads = 32,
                      .kv_heads = 8,
                      .feed_forward = 8192,
                      .vocabulary = 128256,
                      .context = 4096,
                      .rope_pairing = RONDO_ROPE_HALVES,
                      .rope_frequencies = 1,
                      .dtype = RONDO_BF16,
                      .weights = RONDO_BF16,
                      .tied_embedding = 1,
                      .sequences = 1,
                      .feed_back = 1},
     .add = add_llama},
    {.name = "qr",
     .about = "QR of a batch of matrices",
     .fields = ARGUMENT_TABLE(qr_fields),
     .desc_bytes = sizeof(rondo_graph_qr_desc),
     .preset.qr =
         {.dtype = RONDO_F32, .layout = RONDO_ROW_MAJOR, .m = 64, .n = 16, .batch = 1000, .form = RONDO_QR_THIN_Q},
     .add = add_qr},
    {.name = "smollm2",
     .about = "a step of a decoder with the sizes of SmolLM2 135M",
     .fields = ARGUMENT_TABLE(llama_fields),
     .desc_bytes = offsetof(rondo_graph_llama_desc, lender),
     .preset.llama = {.layers = 30,
                      .hidden = 576,
                      .query_heads = 9,
                      .kv_heads = 3,
                      .feed_forward = 1536,
                      .vocabulary = 49152,
                      .context = 2048,
                      .rope_base = 100000.0f,
                      .rope_pairing = RONDO_ROPE_HALVES,
                      .dtype = RONDO_BF16,
                      .weights = RONDO_BF16,
                      .tied_embedding = 1,
                      .sequences = 1,
                      .feed_back = 1},
     .add = add_llama},
};
const size_t ready_graph_count = sizeof ready_graphs / sizeof *ready_graphs;

const struct ready_graph *ready_graph_called(const char *name) {
  for (size_t i = 0; i < ready_graph_count; i++)
    if (!strcmp(ready_graphs[i].name, name)) return &ready_graphs[i];
  return NULL;
}

rondo_status ready_graph_describe(const struct ready_graph *ready, const union ready_desc *desc, rondo_graph **graph,
                                  union ready_tensors *tensors) {
  rondo_status status = rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 65536, .tasks = 16384}, graph);
  if (status != RONDO_OK) return status;
  memset(tensors, 0, sizeof *tensors);
  status = ready->add(*graph, desc, tensors);
  if (status != RONDO_OK) rondo_graph_destroy(graph);
  return status;
}
