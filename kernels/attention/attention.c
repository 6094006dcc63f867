/* attention.c - rondo_add_attention, and the check of an attention task. */
#include "attention.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

rondo_status rondo_add_attention(rondo_graph *graph, const rondo_attention_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_attention: the description is NULL");
  const rondo_access kv_access = desc->new_k.graph ? RONDO_READ_WRITE : RONDO_READ;
  struct op_argument arguments[] = {
      [ATTENTION_Q] = {"q", desc->q, RONDO_READ, 0},
      [ATTENTION_K] = {"k", desc->k, kv_access, 0},
      [ATTENTION_V] = {"v", desc->v, kv_access, 0},
      [ATTENTION_KV_LENGTHS] = {"kv_lengths", desc->kv_lengths, RONDO_READ, 0},
      [ATTENTION_O] = {"o", desc->o, RONDO_WRITE, 0},
      [ATTENTION_LSE] = {"lse", desc->lse, RONDO_WRITE, 0},
      [ATTENTION_KV_PAGES] = {"kv_pages", desc->kv_pages, RONDO_READ, 0},
      [ATTENTION_NEW_K] = {"new_k", desc->new_k, RONDO_READ, 0},
      [ATTENTION_NEW_V] = {"new_v", desc->new_v, RONDO_READ, 0},
      [ATTENTION_POSITION] = {"position", desc->position, RONDO_READ, 0},
      [ATTENTION_ROPE_FREQUENCIES] = {"rope_frequencies", desc->rope_frequencies, RONDO_READ, 0},
      [ATTENTION_ROW_OFFSETS] = {"row_offsets", desc->row_offsets, RONDO_READ, 0},
  };
  struct attention_attributes attributes = {.layout = (int32_t)desc->layout,
                                            .causal = desc->causal != 0,
                                            .splits = desc->splits,
                                            .scale = desc->scale,
                                            .window = desc->window,
                                            .soft_cap = desc->soft_cap,
                                            .q_scale = desc->q_scale,
                                            .k_scale = desc->k_scale,
                                            .v_scale = desc->v_scale,
                                            .rope_base = desc->rope_base,
                                            .rope_pairing = (int32_t)desc->rope_pairing};
  return graph_add(graph, &op_attention, desc->name, arguments, sizeof arguments / sizeof arguments[0], &attributes,
                   sizeof attributes);
}

/* ---- Check ----------------------------------------------------------------------------------------------------- */

static bool paged(const struct op_task *task) { return task->operands[ATTENTION_KV_PAGES].present; }
static bool packed(const struct op_task *task) { return task->operands[ATTENTION_ROW_OFFSETS].present; }

/* Before all that asks how many items there are. */
static rondo_status offsets_check(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  const struct op_operand *offsets = &task->operands[ATTENTION_ROW_OFFSETS], *q = &task->operands[ATTENTION_Q];
  if (!offsets->present) return RONDO_OK;
  if (offsets->dtype != RONDO_I32 || offsets->rank != 1 || offsets->shape[0] < 2)
    return op_unexpected("row_offsets", offsets, "[items + 1] i32 of one item or more");
  if (q->present && q->rank == 4 && q->shape[0] != 1)
    return op_refuse("q has batch %" PRId64 ", expected 1 beside row_offsets", q->shape[0]);
  if (!attributes->causal || !task->operands[ATTENTION_NEW_K].present)
    return op_refuse("row_offsets is present without %s", attributes->causal ? "new_k and new_v" : "causal");
  return RONDO_OK;
}

static rondo_status attributes_check(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  if (attributes->layout != RONDO_BHSD && attributes->layout != RONDO_BSHD)
    return op_refuse("layout is %" PRId32 ", expected RONDO_BHSD or RONDO_BSHD", attributes->layout);
  if (attributes->splits < 0 || attributes->splits > ATTENTION_MAX_SPLITS)
    return op_refuse("splits is %" PRId32 ", expected 0 (Rondo chooses) to %d", attributes->splits,
                     ATTENTION_MAX_SPLITS);
  OP_TRY(op_expect_finite("scale", attributes->scale));
  if (attributes->window < 0) return op_refuse("window is %" PRId32 ", expected 0 (none) or more", attributes->window);
  if (attributes->window && !attributes->causal)
    return op_refuse("window is %" PRId32 " without causal: it ends at the last column that a causal row sees",
                     attributes->window);
  /* Kernels multiply it by log2(e). */
  if (!(attributes->soft_cap >= 0.0f && attributes->soft_cap <= FLT_MAX / 2))
    return op_refuse("soft_cap is %g, expected 0 (none) or a number above it, at most %g", (double)attributes->soft_cap,
                     (double)FLT_MAX / 2);
  return RONDO_OK;
}

/* q and k: present, of rank 4, of a head dimension and a type that go together. */
static rondo_status heads_check(const struct op_task *task, uint32_t index, const char *name) {
  const struct op_operand *operand = &task->operands[index], *q = &task->operands[ATTENTION_Q];
  const bool is_q = index == ATTENTION_Q, pool = paged(task) && !is_q, is_e4m3 = operand->dtype == RONDO_E4M3;
  if (!operand->present) return op_refuse("%s is absent, expected a tensor", name);
  if (operand->rank != 4)
    return op_refuse("%s has rank %" PRIu32 ", expected 4: %s, heads, %s, head dimension (BSHD: the middle two "
                     "exchanged)",
                     name, operand->rank, pool ? "pages" : "batch", pool ? "page rows" : "sequence");
  if (!is_e4m3 && operand->dtype != RONDO_F16 && operand->dtype != RONDO_BF16)
    return op_refuse("%s is %s, expected f16, bf16 or e4m3", name, rondo_dtype_name(operand->dtype));
  if (!is_e4m3 && operand->dtype != q->dtype)
    return op_refuse("%s is %s, expected q's type, %s%s", name, rondo_dtype_name(operand->dtype),
                     rondo_dtype_name(q->dtype), q->dtype == RONDO_E4M3 ? "" : ", or e4m3");
  int64_t dimension = operand->shape[3];
  if (dimension != 32 && dimension != 64 && dimension != 128 && dimension != 256)
    return op_refuse("%s has head dimension %" PRId64 ", expected 32, 64, 128 or 256", name, dimension);
  if (dimension != q->shape[3])
    return op_refuse("%s has head dimension %" PRId64 ", q has %" PRId64, name, dimension, q->shape[3]);
  const int64_t batch = is_q ? q->shape[0] : attention_items(task);
  if (!pool && operand->shape[0] != batch)
    return op_refuse("%s has batch %" PRId64 ", %s %" PRId64, name, operand->shape[0],
                     packed(task) ? "row_offsets give" : "q has", batch);
  return RONDO_OK;
}

/* v is as k, and o as q, but in 16 bits. */
static rondo_status like_check(const struct op_task *task) {
  const struct op_operand *q = &task->operands[ATTENTION_Q], *k = &task->operands[ATTENTION_K],
                          *o = &task->operands[ATTENTION_O];
  const rondo_dtype of_16_bits = o->dtype == RONDO_BF16 ? RONDO_BF16 : RONDO_F16;
  OP_TRY(op_expect("v", &task->operands[ATTENTION_V], k->dtype, 4, k->shape));
  if (q->dtype == RONDO_E4M3 && o->present && o->dtype != of_16_bits)
    return op_refuse("o is %s, expected f16 or bf16", rondo_dtype_name(o->dtype));
  return op_expect("o", o, q->dtype == RONDO_E4M3 ? of_16_bits : q->dtype, 4, q->shape);
}

static rondo_status scale_check(const struct op_task *task, uint32_t index, const char *name, float scale) {
  if (!isfinite(scale)) return op_refuse("%s_scale is %f, expected a finite number", name, (double)scale);
  if (scale != 0.0f && task->operands[index].dtype != RONDO_E4M3)
    return op_refuse("%s_scale is %g, but %s is %s: only e4m3 has one", name, (double)scale, name,
                     rondo_dtype_name(task->operands[index].dtype));
  return RONDO_OK;
}

static rondo_status scales_check(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  OP_TRY(scale_check(task, ATTENTION_Q, "q", attributes->q_scale));
  OP_TRY(scale_check(task, ATTENTION_K, "k", attributes->k_scale));
  OP_TRY(scale_check(task, ATTENTION_V, "v", attributes->v_scale));
  /* Of a factor of 0, hidden scores of -infinity would become NaN. Kernels multiply it by log2(e). */
  const float scale = attention_score_scale(task);
  if (!(fabsf(scale) <= FLT_MAX / 2) || scale == 0.0f)
    return op_refuse(
        "scale, q_scale and k_scale give %g, expected a finite product other than 0, at most %g in magnitude",
        (double)scale, (double)FLT_MAX / 2);
  /* Kernels take products times scale / soft_cap. */
  const float cap = attributes->soft_cap;
  if (cap != 0.0f && !isnormal(scale / cap))
    return op_refuse("soft_cap is %g, too %s for scores that are multiplied by %g", (double)cap,
                     fabsf(scale) > cap ? "small" : "large", (double)scale);
  return RONDO_OK;
}

static rondo_status pages_check(const struct op_task *task) {
  const struct op_operand *pages = &task->operands[ATTENTION_KV_PAGES];
  if (!pages->present) return RONDO_OK;
  if (pages->dtype != RONDO_I32) return op_refuse("kv_pages is %s, expected i32", rondo_dtype_name(pages->dtype));
  if (pages->rank != 2)
    return op_refuse("kv_pages has rank %" PRIu32 ", expected 2: batch, pages of an item", pages->rank);
  const int64_t items = attention_items(task);
  if (pages->shape[0] != items)
    return op_refuse("kv_pages has batch %" PRId64 ", %s %" PRId64, pages->shape[0],
                     packed(task) ? "row_offsets give" : "q has", items);
  const int64_t page_rows = task->operands[ATTENTION_K].shape[attention_position_axis(task)];
  if (page_rows < ATTENTION_LEAST_PAGE_ROWS || (page_rows & (page_rows - 1)))
    return op_refuse("k has pages of %" PRId64 " row%s, expected a power of two of at least %d", page_rows,
                     PLURAL(page_rows), ATTENTION_LEAST_PAGE_ROWS);
  if (pages->shape[1] > ATTENTION_MOST_CAPACITY / page_rows)
    return op_refuse("kv_pages has %" PRId64 " pages of %" PRId64 " rows for an item, expected at most %d rows",
                     pages->shape[1], page_rows, ATTENTION_MOST_CAPACITY);
  return RONDO_OK;
}

static rondo_status optional_check(const struct op_task *task) {
  const struct op_operand *lengths = &task->operands[ATTENTION_KV_LENGTHS], *lse = &task->operands[ATTENTION_LSE];
  const int64_t *q = task->operands[ATTENTION_Q].shape, items = attention_items(task);
  if (lengths->present) OP_TRY(op_expect("kv_lengths", lengths, RONDO_I32, 1, &items));
  if (!lse->present) return RONDO_OK;
  return op_expect("lse", lse, RONDO_F32, 3,
                   (int64_t[]){q[0], q[attention_head_axis(task)], q[attention_position_axis(task)]});
}

rondo_status attention_task_check(const struct op_task *task) {
  OP_TRY(attributes_check(task));
  OP_TRY(offsets_check(task));
  OP_TRY(heads_check(task, ATTENTION_Q, "q"));
  OP_TRY(heads_check(task, ATTENTION_K, "k"));
  OP_TRY(pages_check(task));
  OP_TRY(like_check(task));
  int64_t query_heads = task->operands[ATTENTION_Q].shape[attention_head_axis(task)];
  int64_t kv_heads = task->operands[ATTENTION_K].shape[attention_head_axis(task)];
  if (kv_heads ? query_heads % kv_heads : query_heads)
    return op_refuse("k has %" PRId64 " head%s, q has %" PRId64 ": query heads must be a multiple", kv_heads,
                     PLURAL(kv_heads), query_heads);
  OP_TRY(scales_check(task));
  OP_TRY(optional_check(task));
  return attention_append_check(task);
}
