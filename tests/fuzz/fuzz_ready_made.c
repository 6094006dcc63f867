/* fuzz_ready_made.c - whole ready-made graphs, and a Llama that borrows from another. */
#include <string.h>

#include "fuzz_tasks.h"

static void adopt(struct build *b, rondo_tensor tensor, enum kind kind) {
  if (!tensor.graph) return;
  require(tensor.graph == b->graph && tensor.index < b->tensor_count, "a ready-made graph gave a strange tensor");
  b->records[tensor.index].kind = kind;
}

static void ready_made_added(struct build *b, bool accepted) {
  uint64_t bytes;
  rondo_task last;
  if (!accepted) return check_counts(b);
  for (; rondo_tensor_bytes((rondo_tensor){b->graph, b->tensor_count, b->serial}, &bytes) == RONDO_OK;
       b->tensor_count++) {
    b->records[b->tensor_count] = (struct record){.kind = UNKNOWN, .root = b->tensor_count};
    b->huge |= bytes > UINT64_C(8) * MAX_ELEMENTS;
  }
  if (rondo_last_task(b->graph, &last) == RONDO_OK) b->task_count = last + 1;
  check_counts(b);
}

void add_ready_made(struct build *b) {
  uint32_t which = below(b, 4);
  int64_t s[6];
  for (int i = 0; i < 6; i++) {
    s[i] = size_up_to(b, i < 3 ? 3 : 33);
    b->huge |= s[i] > MAX_DIMENSION;
  }
  const char *name = any_name(b);
  rondo_dtype t1 = next(b) & 1 ? RONDO_F16 : any_dtype(b), t2 = any_dtype(b),
              t3 = next(b) & 1 ? RONDO_F32 : any_dtype(b);
  if (which == 0) {
    rondo_graph_qr_tensors t = {0};
    rondo_graph_qr_desc d = {name, t3,   (rondo_layout)below(b, 2),  s[3],
                             s[4], s[0], (rondo_qr_form)below(b, 4), any_int(b)};
    ready_made_added(b, CALL(rondo_graph_qr(b->graph, &d, &t)));
    adopt(b, t.a, INPUT), adopt(b, t.h, OUTPUT), adopt(b, t.tau, OUTPUT), adopt(b, t.r, OUTPUT), adopt(b, t.q, OUTPUT);
  } else if (which == 1) {
    rondo_graph_gemm_softmax_tensors t = {0};
    rondo_graph_gemm_softmax_desc d = {name, t1, t3, s[0], s[3], s[4], s[5], any_float(b), any_int(b), next(b) & 1};
    ready_made_added(b, CALL(rondo_graph_gemm_softmax(b->graph, &d, &t)));
    adopt(b, t.a, INPUT), adopt(b, t.b, d.b_constant ? CONSTANT : INPUT), adopt(b, t.p, OUTPUT);
  } else if (which == 2) {
    rondo_graph_attention_tensors t = {0};
    rondo_graph_attention_desc d = {name,         t1,          (rondo_head_layout)below(b, 2),
                                    s[0],         s[1],        s[2],
                                    s[3],         s[4],        INT64_C(32) << below(b, 2),
                                    any_float(b), any_int(b),  any_int(b),
                                    next(b) & 1,  next(b) & 1, next(b) & 1};
    if (next(b) & 1) d.query_heads = d.kv_heads;
    ready_made_added(b, CALL(rondo_graph_attention(b->graph, &d, &t)));
    enum kind kv = d.kv_is_state ? STATE : INPUT;
    adopt(b, t.q, INPUT), adopt(b, t.k, kv), adopt(b, t.v, kv), adopt(b, t.kv_lengths, INPUT), adopt(b, t.o, OUTPUT),
        adopt(b, t.lse, OUTPUT);
  } else {
    static const rondo_dtype common[] = {RONDO_NVFP4, RONDO_E4M3, RONDO_F16, RONDO_BF16};
    rondo_graph_gemv_tensors t = {0};
    rondo_graph_gemv_desc d = {.name = name,
                               .weights = common[below(b, 4)],
                               .vectors = next(b) & 1 ? RONDO_NVFP4 : t1,
                               .out = t3,
                               .m = s[3],
                               .k = next(b) & 1 ? 32 : s[4],
                               .batch = s[0],
                               .count = any_int(b),
                               .scale = any_float(b),
                               .row_scales = next(b) & 1,
                               .quantize_from = next(b) & 1   ? RONDO_F32
                                                : next(b) & 1 ? t2
                                                              : 0,
                               .quantize_scale = any_float(b)};
    uint32_t more = next(b);
    d.weight_scale_layout = more & 1 ? RONDO_SCALES_128X4 : RONDO_SCALES_BY_ROW;
    d.silu_mul = more >> 1 & 1, d.one_order = more >> 2 & 1;
    if (more & 8) d.norm_epsilon = any_float(b);
    if (more & 16) d.bias = t2;
    if (more & 32) d.residual = t2;
    if (more & 64) d.out = RONDO_NVFP4, d.out_global_scale = any_float(b);
    ready_made_added(b, CALL(rondo_graph_gemv(b->graph, &d, &t)));
    adopt(b, t.weights, CONSTANT), adopt(b, t.weight_scales, CONSTANT), adopt(b, t.vectors, INPUT),
        adopt(b, t.vector_scales, INPUT), adopt(b, t.out, OUTPUT), adopt(b, t.norm, CONSTANT),
        adopt(b, t.bias, CONSTANT), adopt(b, t.residual, INPUT), adopt(b, t.out_scales, OUTPUT);
  }
}

/* ---- Llama ------------------------------------------------------------------------------------------------------- */

static int64_t mostly(struct build *b, int64_t usual) { return next(b) >= 250 ? any_size(b) : usual; }

/* Small, so that a step of it takes no longer than other tasks; or a real model's, which is only planned. */
static void llama_sizes(struct build *b, rondo_graph_llama_desc *d) {
  static const struct {
    int64_t hidden, query_heads, kv_heads, feed_forward, vocabulary;
  } real[] = {{576, 9, 3, 1536, 49152}, {2048, 32, 8, 8192, 128256}};
  static const int64_t widths[] = {64, 32, 0, 64, 128};
  uint32_t width = below(b, 5), group = 1 + below(b, 3);
  d->layers = next(b) >= 250 ? any_int(b) : 1 + (int32_t)below(b, 2);
  d->kv_heads = mostly(b, 1 + below(b, 2));
  d->query_heads = mostly(b, d->kv_heads > 0 && d->kv_heads <= 128 ? d->kv_heads * group : group);
  d->head_dimension = mostly(b, widths[width]);
  bool few_heads = d->query_heads > 0 && d->query_heads <= 6;
  d->hidden = mostly(b, d->head_dimension || !few_heads ? 16 + 16 * below(b, 4) : 32 * d->query_heads);
  d->feed_forward = mostly(b, 16 + 16 * below(b, 4));
  d->vocabulary = mostly(b, 1 + below(b, 65));
  d->context = mostly(b, 1 + below(b, 33));
  d->sequences = next(b) >= 240 ? any_int(b) : (int32_t)below(b, 4);
  uint32_t model = next(b);
  if (model < 240) return;
  d->hidden = real[model % 2].hidden, d->feed_forward = real[model % 2].feed_forward;
  d->query_heads = real[model % 2].query_heads, d->kv_heads = real[model % 2].kv_heads, d->head_dimension = 64;
  d->vocabulary = real[model % 2].vocabulary;
}

static void llama_types(struct build *b, rondo_graph_llama_desc *d) {
  d->dtype = next(b) & 1 ? RONDO_BF16 : RONDO_F16;
  const rondo_dtype types[] = {d->dtype, RONDO_NVFP4, RONDO_E4M3, d->dtype};
  d->weights = types[below(b, 4)];
  uint32_t embedding = next(b);
  d->embedding = embedding >= 250 ? any_dtype(b) : embedding & 1 ? 0 : types[embedding >> 1 & 1];
  if (next(b) >= 250) d->dtype = any_dtype(b);
  if (next(b) >= 250) d->weights = any_dtype(b);
}

/* What it does besides, and what another one over its weights may do otherwise. */
static void llama_options(struct build *b, rondo_graph_llama_desc *d) {
  uint32_t bits = next(b), prefill = next(b);
  d->one_order = bits & 1, d->feed_back = bits >> 1 & 1, d->with_logits = bits >> 2 & 1;
  d->with_sampling = bits >> 3 & 1, d->penalized = bits >= 250 ? any_int(b) : (int32_t)(bits >> 4 & 3);
  d->draft = bits >> 6 < 3 ? 0 : bits >= 250 ? any_int(b) : 1 + (int32_t)(prefill >> 4);
  if (d->draft && bits < 250) d->feed_back = 1, d->penalized = 0, d->sequences = 1;
  d->tokens = prefill >= 250 ? any_int(b) : prefill & 1 ? 1 + (int32_t)below(b, 16) : 0;
  d->packed = prefill >= 250 ? any_int(b) : (prefill & 0xe1) == 0xe1;
  d->sequence = prefill >= 250                                  ? any_int(b)
                : prefill & 1 && !d->packed && d->sequences > 0 ? (int32_t)(prefill >> 1) % d->sequences
                                                                : 0;
  d->verify = prefill >= 250 ? any_int(b) : d->draft && !d->tokens && prefill & 2;
}

static rondo_graph_llama_desc any_llama(struct build *b) {
  rondo_graph_llama_desc d = {.name = any_name(b)};
  llama_sizes(b, &d);
  llama_types(b, &d);
  llama_options(b, &d);
  uint32_t bits = next(b);
  d.tied_embedding = bits & 1, d.rope_frequencies = bits >> 1 & 1;
  if ((bits & 0x60) == 0x60) d.page_rows = 16 << (bits >> 7), d.pages = 1 + (bits >> 4 & 1);
  d.rope_pairing = bits >= 250 ? (rondo_rope_pairing)any_int(b) : (rondo_rope_pairing)(bits >> 2 & 1);
  if (bits & 8) d.rope_base = any_float(b), d.epsilon = any_float(b), d.nvfp4_scale = any_float(b);
  return d;
}

/* One that fits, or that differs in what it may not. */
static rondo_graph_llama_desc any_borrower(struct build *b, rondo_graph_llama_desc d) {
  d.name = any_name(b);
  llama_options(b, &d);
  switch (next(b)) {
  case 1:
    d.layers ^= 3;
    break;
  case 2:
    llama_sizes(b, &d);
    break;
  case 3:
    llama_types(b, &d);
    break;
  case 4:
    d.tied_embedding ^= 1;
    break;
  case 5:
    d.rope_frequencies ^= 1;
    break;
  default:
    break;
  }
  return d;
}

/* A tensor's content is what `fill` makes of its type. What is borrowed is filled in where it belongs. */
static void adopt_as(struct build *b, rondo_tensor tensor, enum kind kind, rondo_dtype dtype, int64_t limit) {
  if (!tensor.graph || (b->lender && (kind == CONSTANT || kind == STATE))) return;
  adopt(b, tensor, kind);
  b->records[tensor.index].dtype = dtype;
  if (limit > 0 && limit <= INT32_MAX) b->records[tensor.index].limit = (uint32_t)limit;
}

static void adopt_layer(struct build *b, const rondo_graph_llama_desc *d, const rondo_llama_layer *layer) {
  const rondo_dtype scales = d->weights == RONDO_NVFP4 ? RONDO_E4M3 : RONDO_F32;
  adopt_as(b, layer->attention_norm, CONSTANT, d->dtype, 0);
  adopt_as(b, layer->feed_forward_norm, CONSTANT, d->dtype, 0);
  const rondo_tensor weights[] = {layer->qkv, layer->output, layer->gate_up, layer->down};
  const rondo_tensor of_scales[] = {layer->qkv_scales, layer->output_scales, layer->gate_up_scales, layer->down_scales};
  for (int i = 0; i < 4; i++) {
    adopt_as(b, weights[i], CONSTANT, d->weights, 0);
    adopt_as(b, of_scales[i], CONSTANT, scales, 0);
  }
  adopt_as(b, layer->k, STATE, d->dtype, 0);
  adopt_as(b, layer->v, STATE, d->dtype, 0);
}

static void adopt_llama(struct build *b, const rondo_graph_llama_desc *d, const rondo_graph_llama_tensors *t) {
  const rondo_dtype embedding = d->embedding ? d->embedding : d->weights == RONDO_NVFP4 ? RONDO_NVFP4 : d->dtype;
  const enum kind place = d->feed_back ? STATE : INPUT;
  adopt_as(b, t->embedding, CONSTANT, embedding, 0), adopt_as(b, t->embedding_scales, CONSTANT, RONDO_E4M3, 0);
  adopt_as(b, t->head, CONSTANT, embedding, 0), adopt_as(b, t->head_scales, CONSTANT, RONDO_E4M3, 0);
  adopt_as(b, t->norm, CONSTANT, d->dtype, 0), adopt_as(b, t->frequencies, CONSTANT, RONDO_F32, 0);
  adopt_as(b, t->token, place, RONDO_I32, d->vocabulary), adopt_as(b, t->position, place, RONDO_I32, d->context);
  adopt_as(b, t->prompt, INPUT, RONDO_I32, d->vocabulary), adopt_as(b, t->last, INPUT, RONDO_I32, d->tokens);
  adopt_as(b, t->history, STATE, RONDO_I32, d->vocabulary), adopt_as(b, t->stops, INPUT, RONDO_I32, d->vocabulary);
  adopt_as(b, t->limit, INPUT, RONDO_I32, d->context), adopt_as(b, t->matched, OUTPUT, RONDO_I32, 0);
  adopt_as(b, t->advance, INPUT, RONDO_I32, 3), adopt_as(b, t->temperature, INPUT, RONDO_F32, 0);
  adopt_as(b, t->top_k, INPUT, RONDO_I32, d->vocabulary), adopt_as(b, t->top_p, INPUT, RONDO_F32, 0);
  adopt_as(b, t->seed, INPUT, RONDO_I32, 0), adopt_as(b, t->next, OUTPUT, RONDO_I32, 0);
  adopt_as(b, t->logits, OUTPUT, RONDO_F32, 0);
  adopt_as(b, t->row_offsets, INPUT, RONDO_I32, (int64_t)d->tokens + 2);
  adopt_as(b, t->kv_pages, INPUT, RONDO_I32, d->pages);
  if (d->page_rows) b->exact = false; /* sequences may write to the same pages */
  for (int32_t i = 0; i < d->layers; i++) adopt_layer(b, d, &t->layers[i]);
}

/* However many layers are asked for, no more come to be than there is room for. */
static bool llama(struct build *b, const rondo_graph_llama_desc *d, struct llama *made) {
  *made = (struct llama){.tensors = {.layers = made->layers}};
  made->is_there = CALL(rondo_graph_llama(b->graph, d, &made->tensors));
  require(made->tensors.layers == made->layers && made->is_there == (made->tensors.next.graph != NULL),
          "the layers' address has changed, or there are tensors of a failed call");
  ready_made_added(b, made->is_there);
  if (made->is_there) adopt_llama(b, d, &made->tensors);
  return made->is_there;
}

void add_llama(struct build *b) {
  struct llama made;
  rondo_graph_llama_desc d = any_llama(b), borrower = any_borrower(b, d);
  bool lends = next(b) >= 240;
  if (lends) d.lender = &b->llama.tensors;
  if (!llama(b, &d, &made)) return;
  require(!lends, "a graph borrowed from itself, or from nothing");
  b->llama = made;
  b->llama.borrower = borrower;
  b->llama.tensors.layers = b->llama.layers;
}

void add_borrower(struct build *b) {
  struct llama made;
  rondo_graph_llama_desc d = b->lender->llama.borrower;
  d.lender = &b->lender->llama.tensors;
  llama(b, &d, &made);
}
