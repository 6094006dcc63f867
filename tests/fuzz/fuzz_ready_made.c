/* fuzz_ready_made.c - whole ready-made graphs. */
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
