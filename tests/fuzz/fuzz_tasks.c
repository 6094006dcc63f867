/* fuzz_tasks.c - tasks of every operation but a model's parts, with operands right and wrong, and tasks of the user's
 * own. */
#include "fuzz_tasks.h"

#include <stdlib.h>

/* ---- The operations ---------------------------------------------------------------------------------------------- */

void add_copy(struct build *b) {
  const struct record *r = &b->records[b->tensor_count ? below(b, b->tensor_count) : 0];
  struct record source = *r;
  if (!b->tensor_count || !source.known) return add_tensor(b);
  rondo_copy_desc desc = {.name = any_name(b), .src = {b->graph, (uint32_t)(r - b->records), b->serial}};
  desc.dst = operand(b, RONDO_WRITE, source.dtype, source.rank, source.shape);
  ADDED(b, rondo_add_copy(b->graph, &desc), {desc.src, RONDO_READ}, {desc.dst, RONDO_WRITE});
}

void add_append(struct build *b) {
  struct shape dst = {.rank = 1 + below(b, 4)}, src;
  uint32_t dimension = below(b, dst.rank), mode = next(b);
  rondo_dtype dtype = any_dtype(b);
  for (uint32_t i = 0; i < dst.rank; i++) dst.of[i] = size_up_to(b, dst.rank < 3 ? 48 : 8);
  src = dst;
  src.of[dimension] = mode >= 240 ? any_size(b) : size_up_to(b, dst.of[dimension] > 0 ? dst.of[dimension] : 0);
  rondo_append_desc d = {.name = any_name(b), .dimension = mode >= 250 ? next(b) : dimension};
  d.src = operand_of(b, RONDO_READ, dtype, src);
  d.dst = operand_of(b, RONDO_READ_WRITE, dtype, dst);
  d.position = operand_of(b, RONDO_READ, RONDO_I32, vector(false, 0, mode & 1 ? dst.of[0] : 1));
  ADDED(b, rondo_add_append(b->graph, &d), {d.src, RONDO_READ}, {d.dst, RONDO_READ_WRITE}, {d.position, RONDO_READ});
}

void add_qr(struct build *b) {
  int64_t m = size_up_to(b, 33), n = size_up_to(b, 33), batch = size_up_to(b, 3), k = m < n ? m : n;
  bool batched = next(b) & 1, row_major = next(b) & 1;
  rondo_dtype dtype = next(b) & 1 ? RONDO_F32 : RONDO_F64;
  uint32_t form = below(b, 4);
  rondo_qr_desc d = {.name = any_name(b), .layout = row_major ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR};
  d.a = operand_of(b, form == 3 ? RONDO_READ_WRITE : RONDO_READ, dtype, matrix(batched, batch, m, n, !row_major));
  if (form == 0 || form == 3) {
    d.h = form == 3 ? d.a : operand_of(b, RONDO_WRITE, dtype, matrix(batched, batch, m, n, !row_major));
    d.tau = operand_of(b, RONDO_WRITE, dtype, vector(batched, batch, k));
  } else {
    if (next(b) % 8 || form == 2) d.r = operand_of(b, RONDO_WRITE, dtype, matrix(batched, batch, k, n, !row_major));
    if (form == 2) d.q = operand_of(b, RONDO_WRITE, dtype, matrix(batched, batch, m, k, !row_major));
  }
  if (next(b) >= 250) d.h = odd_tensor(b);
  ADDED(b, rondo_add_qr(b->graph, &d), {d.a, RONDO_READ}, {d.h, RONDO_WRITE}, {d.tau, RONDO_WRITE}, {d.r, RONDO_WRITE},
        {d.q, RONDO_WRITE});
}

/* Panel, update, apply and extract: reflectors v of m x n, a matrix c of m x nc. */
void add_qr_part(struct build *b) {
  int64_t m = size_up_to(b, 33), n = size_up_to(b, 33), columns = size_up_to(b, 33), batch = size_up_to(b, 3),
          k = m < n ? m : n;
  bool batched = next(b) & 1, turned = next(b) & 1;
  rondo_layout layout = turned ? RONDO_COLUMN_MAJOR : RONDO_ROW_MAJOR;
  rondo_dtype dtype = next(b) & 1 ? RONDO_F32 : RONDO_F64;
  uint32_t part = below(b, 4);
  const char *name = any_name(b);
  if (part == 3) {
    rondo_qr_extract_desc d = {
        name, layout, operand_of(b, RONDO_READ, dtype, matrix(batched, batch, m, n, turned)), {0}, {0}};
    if (next(b) % 4) d.r = operand_of(b, RONDO_WRITE, dtype, matrix(batched, batch, k, n, turned));
    if (next(b) % 4) d.q = operand_of(b, RONDO_WRITE, dtype, matrix(batched, batch, m, k, turned));
    ADDED(b, rondo_add_qr_extract(b->graph, &d), {d.h, RONDO_READ}, {d.r, RONDO_WRITE}, {d.q, RONDO_WRITE});
    return;
  }
  rondo_tensor v = operand_of(b, part ? RONDO_READ : RONDO_READ_WRITE, dtype, matrix(batched, batch, m, n, turned));
  rondo_tensor tau = operand_of(b, part ? RONDO_READ : RONDO_WRITE, dtype, vector(batched, batch, k));
  if (part == 0) {
    rondo_qr_panel_desc d = {name, layout, v, tau};
    ADDED(b, rondo_add_qr_panel(b->graph, &d), {v, RONDO_READ_WRITE}, {tau, RONDO_WRITE});
    return;
  }
  rondo_tensor c = operand_of(b, RONDO_READ_WRITE, dtype, matrix(batched, batch, m, columns, turned));
  rondo_qr_update_desc update = {name, layout, v, tau, c};
  rondo_qr_apply_desc apply = {name, layout, any_int(b), v, tau, c};
  if (part == 1)
    ADDED(b, rondo_add_qr_update(b->graph, &update), {v, RONDO_READ}, {tau, RONDO_READ}, {c, RONDO_READ_WRITE});
  else
    ADDED(b, rondo_add_qr_apply(b->graph, &apply), {v, RONDO_READ}, {tau, RONDO_READ}, {c, RONDO_READ_WRITE});
}

void add_triangular_inverse(struct build *b) {
  int64_t n = next(b) & 1 ? 16 : size_up_to(b, 64), batch = size_up_to(b, 3);
  rondo_dtype dtype = next(b) & 1 ? RONDO_F32 : RONDO_F64;
  struct shape shape = matrix(next(b) % 8, batch, n, n, false);
  rondo_triangular_inverse_desc d = {.name = any_name(b)};
  bool in_place = next(b) & 1;
  d.a = operand_of(b, in_place ? RONDO_READ_WRITE : RONDO_READ, dtype, shape);
  d.out = in_place ? d.a : operand_of(b, RONDO_WRITE, dtype, shape);
  ADDED(b, rondo_add_triangular_inverse(b->graph, &d), {d.a, RONDO_READ}, {d.out, RONDO_WRITE});
}

void add_least_squares(struct build *b) {
  int64_t n = size_up_to(b, 20);
  bool is_tall = next(b) % 8;
  int64_t m = size_up_to(b, 20);
  if (is_tall && m >= 0 && m <= 20 && n <= 20) m += n;
  int64_t sides = size_up_to(b, 20), batch = size_up_to(b, 3);
  bool batched = next(b) & 1, turned = next(b) & 1;
  rondo_dtype dtype = next(b) & 1 ? RONDO_F32 : RONDO_F64;
  rondo_least_squares_desc d = {.name = any_name(b), .layout = turned ? RONDO_COLUMN_MAJOR : RONDO_ROW_MAJOR};
  d.a = operand_of(b, RONDO_READ, dtype, matrix(batched, batch, m, n, turned));
  d.b = operand_of(b, RONDO_READ, dtype, matrix(batched, batch, m, sides, turned));
  d.x = operand_of(b, RONDO_WRITE, dtype, matrix(batched, batch, n, sides, turned));
  if (next(b) & 1) d.residual = operand_of(b, RONDO_WRITE, dtype, vector(batched, batch, sides));
  if (next(b) & 1) d.info = operand_of(b, RONDO_WRITE, RONDO_I32, vector(false, 0, batched ? batch : 1));
  ADDED(b, rondo_add_least_squares(b->graph, &d), {d.a, RONDO_READ}, {d.b, RONDO_READ}, {d.x, RONDO_WRITE},
        {d.residual, RONDO_WRITE}, {d.info, RONDO_WRITE});
}

void add_gemm_softmax(struct build *b) {
  int64_t m = size_up_to(b, 33), n = size_up_to(b, 33), k = size_up_to(b, 64), batch = size_up_to(b, 3);
  bool batched = next(b) & 1, rowmax = next(b) & 1;
  rondo_dtype dtype = next(b) & 1 ? RONDO_F16 : RONDO_BF16;
  static const rondo_dtype results[] = {RONDO_F16, RONDO_BF16, RONDO_F32, RONDO_F32};
  rondo_tensor left = operand_of(b, RONDO_READ, dtype, matrix(batched, batch, m, k, false));
  rondo_tensor right = operand_of(b, RONDO_READ, dtype, matrix(batched, batch, n, k, false));
  if (rowmax) {
    rondo_gemm_rowmax_desc d = {any_name(b),  left,
                                right,        operand_of(b, RONDO_WRITE, RONDO_F32, vector(batched, batch, m)),
                                any_float(b), any_int(b)};
    ADDED(b, rondo_add_gemm_rowmax(b->graph, &d), {left, RONDO_READ}, {right, RONDO_READ}, {d.max, RONDO_WRITE});
  } else {
    rondo_dtype result = results[below(b, 4)];
    rondo_gemm_softmax_desc d = {any_name(b),  left,
                                 right,        operand_of(b, RONDO_WRITE, result, matrix(batched, batch, m, n, false)),
                                 any_float(b), any_int(b)};
    ADDED(b, rondo_add_gemm_softmax(b->graph, &d), {left, RONDO_READ}, {right, RONDO_READ}, {d.p, RONDO_WRITE});
  }
}

void add_attention(struct build *b) {
  int64_t batch = size_up_to(b, 3), kv_heads = size_up_to(b, 3), queries = size_up_to(b, 9), rows = size_up_to(b, 33);
  int64_t group = 1 + below(b, 3), width = next(b) >= 240 ? any_size(b) : INT64_C(32) << below(b, 2);
  if (kv_heads < 0 || kv_heads > 128) group = 1;
  bool bshd = next(b) & 1;
  const uint32_t kind = next(b);
  rondo_dtype dtype = kind & 1 ? RONDO_F16 : RONDO_BF16;
  rondo_attention_desc d = {.name = any_name(b), .layout = bshd ? RONDO_BSHD : RONDO_BHSD};
  struct shape kv = heads(bshd, batch, kv_heads, rows, width);
  if (kind >= 192) { /* all that an attention may have besides */
    const struct shape table = {2, {batch, size_up_to(b, 4)}};
    kv = heads(bshd, size_up_to(b, 5), kv_heads, INT64_C(8) << below(b, 4), width);
    d.kv_pages = operand_of(b, RONDO_READ, RONDO_I32, table);
    d.window = any_int(b);
    d.soft_cap = any_float(b);
    if (kind & 2) d.q_scale = any_float(b);
    if (kind & 4) d.k_scale = any_float(b), d.v_scale = any_float(b);
  }
  const rondo_dtype q_dtype = kind >= 192 && kind & 2 ? RONDO_E4M3 : dtype;
  const rondo_dtype kv_dtype = kind >= 192 && kind & 4 ? RONDO_E4M3 : dtype;
  d.q = operand_of(b, RONDO_READ, q_dtype, heads(bshd, batch, kv_heads * group, queries, width));
  d.k = operand_of(b, RONDO_READ, kv_dtype, kv);
  d.v = operand_of(b, RONDO_READ, kv_dtype, kv);
  d.o = operand_of(b, RONDO_WRITE, dtype, heads(bshd, batch, kv_heads * group, queries, width));
  if (next(b) & 1) d.kv_lengths = operand_of(b, RONDO_READ, RONDO_I32, vector(false, 0, batch));
  if (next(b) & 1) d.lse = operand_of(b, RONDO_WRITE, RONDO_F32, (struct shape){3, {batch, kv_heads * group, queries}});
  d.scale = any_float(b);
  d.causal = any_int(b);
  d.splits = any_int(b);
  ADDED(b, rondo_add_attention(b->graph, &d), {d.q, RONDO_READ}, {d.k, RONDO_READ}, {d.v, RONDO_READ},
        {d.kv_lengths, RONDO_READ}, {d.o, RONDO_WRITE}, {d.lse, RONDO_WRITE}, {d.kv_pages, RONDO_READ});
}

/* The scales of rows of nvfp4, by row or blocked. */
static rondo_tensor scales_of(struct build *b, bool batched, int64_t batch, int64_t rows, int64_t k,
                              rondo_scale_layout *layout) {
  *layout = next(b) >= 192 ? RONDO_SCALES_128X4 : RONDO_SCALES_BY_ROW;
  int64_t blocks = k / 16;
  if (*layout == RONDO_SCALES_128X4 && rows <= INT32_MAX)
    rows = (rows + 127) / 128 * 128, blocks = (blocks + 3) / 4 * 4;
  return operand_of(b, RONDO_READ, RONDO_E4M3, matrix(batched, batch, rows, blocks, false));
}

/* What a product does besides, each with one bit. */
struct extras {
  bool norm, bias, silu_mul, residual, in_place, quantised;
};
static struct extras any_extras(struct build *b) {
  uint32_t bits = next(b);
  if (bits < 128) return (struct extras){0};
  return (struct extras){bits & 1, bits & 2, bits & 4, bits & 8, bits & 16, bits & 32};
}

void add_gemv(struct build *b) {
  static const rondo_dtype weights[] = {RONDO_F16, RONDO_BF16, RONDO_E4M3, RONDO_NVFP4, RONDO_NVFP4};
  static const rondo_dtype results[] = {RONDO_F32, RONDO_F16, RONDO_BF16, RONDO_F32};
  int64_t m = size_up_to(b, 33), k = next(b) & 1 ? 32 : size_up_to(b, 64), batch = size_up_to(b, 3),
          count = size_up_to(b, 16);
  bool batched = next(b) & 1;
  rondo_dtype type = weights[below(b, 5)], other = next(b) & 1 ? RONDO_F16 : RONDO_BF16;
  rondo_dtype in = type == RONDO_NVFP4 && next(b) & 1          ? RONDO_NVFP4
                   : type == RONDO_NVFP4 || type == RONDO_E4M3 ? other
                                                               : type;
  rondo_gemv_desc d = {.name = any_name(b), .scale = any_float(b)};
  struct extras extras = any_extras(b);
  if (extras.quantised && m > 16) m = extras.silu_mul ? 32 : m / 16 * 16;
  d.weights = operand_of(b, RONDO_READ, type, matrix(batched, batch, m, k, false));
  if (type == RONDO_NVFP4) d.weight_scales = scales_of(b, batched, batch, m, k, &d.weight_scale_layout);
  if (type == RONDO_E4M3 && next(b) & 1)
    d.weight_scales = operand_of(b, RONDO_READ, RONDO_F32, vector(batched, batch, m));
  d.vectors = operand_of(b, RONDO_READ, in, matrix(batched, batch, count, k, false));
  if (in == RONDO_NVFP4) d.vector_scales = scales_of(b, batched, batch, count, k, &d.vector_scale_layout);
  rondo_dtype result = extras.quantised ? RONDO_NVFP4 : results[below(b, 4)], added_dtype = results[below(b, 4)];
  int64_t columns = extras.silu_mul ? m / 2 : m;
  if (extras.norm) {
    d.norm_epsilon = any_float(b);
    if (next(b) & 1) d.norm = operand_of(b, RONDO_READ, in, vector(false, 0, k));
  }
  if (extras.bias) d.bias = operand_of(b, RONDO_READ, added_dtype, vector(batched && next(b) & 1, batch, m));
  d.silu_mul = extras.silu_mul;
  d.one_order = next(b) >= 250 ? any_int(b) : (int32_t)(next(b) & 1);
  d.out = operand_of(b, extras.in_place ? RONDO_READ_WRITE : RONDO_WRITE, result,
                     matrix(batched, batch, count, columns, false));
  if (extras.in_place)
    d.residual = d.out;
  else if (extras.residual)
    d.residual = operand_of(b, RONDO_READ, added_dtype, matrix(batched, batch, count, columns, false));
  if (extras.quantised) {
    d.out_scales = operand_of(b, RONDO_WRITE, RONDO_E4M3, matrix(batched, batch, count, columns / 16, false));
    d.out_global_scale = any_float(b);
  }
  ADDED(b, rondo_add_gemv(b->graph, &d), {d.weights, RONDO_READ}, {d.weight_scales, RONDO_READ},
        {d.vectors, RONDO_READ}, {d.vector_scales, RONDO_READ}, {d.out, RONDO_WRITE}, {d.norm, RONDO_READ},
        {d.bias, RONDO_READ}, {d.residual, RONDO_READ}, {d.out_scales, RONDO_WRITE});
}

void add_quantize(struct build *b) {
  static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  struct shape x = {.rank = 1 + below(b, 4)}, scales;
  for (uint32_t i = 0; i < x.rank; i++) x.of[i] = size_up_to(b, 4);
  x.of[x.rank - 1] = next(b) >= 240 ? size_up_to(b, 33) : 16 * (int64_t)below(b, 4);
  scales = x;
  scales.of[x.rank - 1] /= 16;
  rondo_quantize_nvfp4_desc d = {.name = any_name(b), .global_scale = any_float(b)};
  rondo_dtype type = types[below(b, 3)];
  d.x = operand_of(b, RONDO_READ, type, x);
  d.codes = operand_of(b, RONDO_WRITE, RONDO_NVFP4, x);
  d.scales = operand_of(b, RONDO_WRITE, RONDO_E4M3, scales);
  ADDED(b, rondo_add_quantize_nvfp4(b->graph, &d), {d.x, RONDO_READ}, {d.codes, RONDO_WRITE}, {d.scales, RONDO_WRITE});
}

void add_quantize_e4m3(struct build *b) {
  static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  struct shape x = {.rank = 1 + below(b, 4)}, scales;
  for (uint32_t i = 0; i < x.rank; i++) x.of[i] = size_up_to(b, i + 1 < x.rank ? 4 : 48);
  scales = x;
  scales.rank = x.rank > 1 ? x.rank - 1 : 1;
  rondo_quantize_e4m3_desc d = {.name = any_name(b)};
  d.x = operand_of(b, RONDO_READ, types[below(b, 3)], x);
  d.codes = operand_of(b, RONDO_WRITE, RONDO_E4M3, x);
  d.scales = operand_of(b, RONDO_WRITE, RONDO_F32, scales);
  ADDED(b, rondo_add_quantize_e4m3(b->graph, &d), {d.x, RONDO_READ}, {d.codes, RONDO_WRITE}, {d.scales, RONDO_WRITE});
}

/* ---- The user's own work ----------------------------------------------------------------------------------------- */

/* Reads a rectangle into the hash, or writes it from the hash; where it is also read, upon what was there. */
static void walk(const struct record *r, uint8_t *first, bool write, bool upon, uint64_t *hash) {
  int64_t shape[4] = {1, 1, 1, 1}, stride[4] = {0};
  if (elements_of(r) == 0) return;
  for (uint32_t i = 0; i < r->rank; i++) {
    shape[4 - r->rank + i] = r->shape[i];
    stride[4 - r->rank + i] = r->stride[i];
  }
  size_t row_bytes = (size_t)shape[3] * bits_of(r) / 8;
  for (int64_t i = 0; i < shape[0]; i++)
    for (int64_t j = 0; j < shape[1]; j++)
      for (int64_t k = 0; k < shape[2]; k++) {
        uint8_t *row = first + (size_t)(i * stride[0] + j * stride[1] + k * stride[2]) * bits_of(r) / 8;
        for (size_t at = 0; at < row_bytes; at++) {
          *hash = (*hash ^ (write ? at : row[at])) * UINT64_C(1099511628211);
          if (write) row[at] = (uint8_t)((upon ? row[at] : 0) ^ *hash >> 24);
        }
      }
}

static void user_function(void *user, void *const *data) {
  const struct user *u = user;
  uint64_t hash = UINT64_C(14695981039346656037) + u->salt;
  for (uint32_t i = 0; i < u->count; i++) {
    for (uint32_t v = 0; v < u->arguments[i].value_bytes; v++)
      hash = (hash ^ ((uint8_t *)data[i])[v]) * UINT64_C(1099511628211);
    if (!u->arguments[i].value_bytes && u->arguments[i].access & RONDO_READ)
      walk(&u->arguments[i].record, data[i], false, false, &hash);
  }
  for (uint32_t i = 0; i < u->count; i++)
    if (!u->arguments[i].value_bytes && u->arguments[i].access & RONDO_WRITE)
      walk(&u->arguments[i].record, data[i], true, u->arguments[i].access & RONDO_READ, &hash);
}

int user_capture(void *user, void *stream, void *const *data) {
  (void)user, (void)stream, (void)data;
  abort(); /* the host backend has no stream */
}

static void user_argument(struct build *b, struct user *user, uint32_t i, rondo_argument *argument) {
  static const uint8_t value[64] = "a value passed by value";
  *argument = (rondo_argument){.access = next(b) >= 250 ? (rondo_access)next(b) : (rondo_access)(1 + below(b, 3))};
  if (next(b) >= 224) {
    argument->value = next(b) >= 240 ? NULL : value;
    argument->bytes = next(b) >= 240 ? next(b) : 1 + below(b, 64);
    user->arguments[i].value_bytes = argument->bytes;
    return;
  }
  struct record *r = &b->records[b->tensor_count ? below(b, b->tensor_count) : 0];
  argument->tensor = (rondo_tensor){b->graph, (uint32_t)(r - b->records), b->serial};
  if (!b->tensor_count || !r->known || next(b) >= 250) argument->tensor = odd_tensor(b);
  if (argument->tensor.graph == b->graph && argument->tensor.index < b->tensor_count) {
    user->arguments[i].record = b->records[argument->tensor.index];
    if (!user->arguments[i].record.known) argument->tensor = (rondo_tensor){0};
  }
  user->arguments[i].access = argument->access;
}

void add_user(struct build *b) {
  if (b->user_count == MAX_USERS) return;
  struct user *user = &b->users[b->user_count++];
  rondo_argument arguments[RONDO_MAX_ARGUMENTS + 1];
  struct use uses[RONDO_MAX_ARGUMENTS];
  *user = (struct user){.count = next(b) >= 250 ? 16 : below(b, 5), .salt = b->user_count};
  for (uint32_t i = 0; i < user->count; i++) {
    user_argument(b, user, i, &arguments[i]);
    uses[i] = (struct use){arguments[i].tensor, arguments[i].access};
  }
  uint32_t odd = next(b), count = odd == 255 ? 17 : user->count;
  bool accepted, has_host = odd < 240;
  if (odd & 1) {
    rondo_capture_desc d = {any_name(b), odd == 250 ? NULL : arguments, count, has_host ? user_function : NULL, user};
    accepted = CALL(rondo_add_capture(b->graph, &d, odd & 2 ? user_capture : NULL));
  } else {
    rondo_kernel_desc d = {.name = any_name(b),
                           .arguments = odd == 250 ? NULL : arguments,
                           .argument_count = count,
                           .host = has_host ? user_function : NULL,
                           .user = user};
    if (odd & 2) d.image = "not an image", d.image_bytes = below(b, 13), d.function = any_name(b);
    for (int i = 0; i < 3 && odd & 4; i++) d.grid[i] = (uint32_t)any_size(b), d.block[i] = (uint32_t)any_size(b);
    accepted = CALL(rondo_add_kernel(b->graph, &d));
  }
  if (added(b, accepted, user->count, uses) && !has_host) b->no_host = true;
}
