/* fuzz_describe.c - turns an input's bytes into arguments and tensors, and checks every call that takes them. */
#include "fuzz_describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool trace;
rondo_tensor foreign_tensor, stale_tensor;

/* ---- What must hold ---------------------------------------------------------------------------------------------- */

static const char marker[] = "rondo_runtime_info: the runtime is NULL";

void broken(const char *what) {
  fprintf(stderr, "fuzz_builder: %s; the last error: %s\n", what, rondo_error_text());
  abort();
}

void mark(void) { require(rondo_runtime_info(NULL, NULL) != RONDO_OK, "no runtime was accepted"); }

bool judge(rondo_status status, const char *call) {
  bool said = strcmp(rondo_error_text(), marker) != 0;
  bool impossible = status >= RONDO_NO_DEVICE && status != RONDO_IO_ERROR;
  if (trace) fprintf(stderr, "%s: %.100s %s\n", rondo_status_name(status), call, said ? rondo_error_text() : "");
  if (said == (status != RONDO_OK) && !impossible) return status == RONDO_OK;
  fprintf(stderr, "%s gave %s\n", call, rondo_status_name(status));
  require(!impossible, "a status that cannot be");
  require(false, said ? "success left a sentence" : "a failure left none");
  return false;
}

/* ---- Bytes to arguments ------------------------------------------------------------------------------------------ */

uint32_t next(struct build *b) { return b->at < b->end ? *b->at++ : 0; }
uint32_t below(struct build *b, uint32_t count) { return next(b) % count; }

int64_t any_size(struct build *b) {
  static const int64_t usual[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 0, 48, 64, 65, 96, 128};
  static const int64_t odd[] = {-1,
                                INT64_MIN,
                                INT64_MAX,
                                INT64_C(1) << 31,
                                (INT64_C(1) << 31) + 1,
                                INT32_MAX,
                                65536,
                                INT64_C(1) << 32,
                                INT64_C(1) << 62,
                                46341,
                                1000000,
                                -2147483648,
                                4096,
                                1 << 20,
                                INT64_MAX / 2 + 1};
  uint32_t byte = next(b);
  return byte >= 250 ? odd[below(b, 15)] : usual[byte % 20];
}

int64_t size_up_to(struct build *b, int64_t most) {
  int64_t size = any_size(b);
  return size < 0 || size > 128 || size <= most ? size : size % (most + 1);
}

rondo_dtype any_dtype(struct build *b) {
  return (rondo_dtype)(next(b) >= 252 ? (int)next(b) - 99 : 1 + (int)below(b, 8));
}

float any_float(struct build *b) {
  static const float values[] = {0, 1, 0.125f, -1, 1e30f, 1e-40f, __builtin_inff(), __builtin_nanf("")};
  return values[below(b, 8)];
}

int32_t any_int(struct build *b) {
  static const int32_t values[] = {0, 1, 2, 3, 7, 16, 64, 1024, -1, INT32_MIN, INT32_MAX, 65536};
  return values[next(b) < 192 ? below(b, 4) : below(b, 12)];
}

const char *any_name(struct build *b) {
  static const char *const names[] = {
      NULL,
      "",
      "x",
      "%s%n%d",
      "a\"<>&\\\n\x01\xff",
      "tensor",
      "a name of more than sixty-three bytes, which is cut: 0123456789012345678901234567890123456789"};
  return names[below(b, 7)];
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

uint64_t bits_of(const struct record *r) { return rondo_dtype_bits(r->dtype); }

int64_t elements_of(const struct record *r) {
  int64_t count = 1;
  for (uint32_t i = 0; i < r->rank; i++) count *= r->shape[i];
  return count;
}

void check_counts(const struct build *b) {
  uint64_t bytes;
  rondo_task last;
  require(rondo_tensor_bytes((rondo_tensor){b->graph, b->tensor_count, b->serial}, &bytes) == RONDO_INVALID_ARGUMENT,
          "there are more tensors than were added");
  if (b->tensor_count)
    require(rondo_tensor_bytes((rondo_tensor){b->graph, b->tensor_count - 1, b->serial}, &bytes) == RONDO_OK,
            "a tensor is gone");
  if (rondo_last_task(b->graph, &last) == RONDO_OK)
    require(last + 1 == b->task_count, "there are more tasks, or fewer, than were added");
  else
    require(b->task_count == 0, "tasks are gone");
}

static bool create(struct build *b, enum kind kind, rondo_dtype dtype, uint32_t rank, const int64_t *shape,
                   rondo_tensor *tensor) {
  static rondo_status (*const functions[])(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                           rondo_tensor *) = {rondo_input, rondo_output, rondo_constant, rondo_state,
                                                              rondo_temporary};
  const char *name = any_name(b);
  enum kind made = b->shadow && kind == TEMPORARY ? STATE : kind;
  if (!CALL(functions[made](b->graph, name, dtype, rank, shape, tensor))) return check_counts(b), false;
  require(tensor->graph == b->graph && tensor->index == b->tensor_count, "a strange handle");
  struct record *r = &b->records[b->tensor_count];
  *r = (struct record){.known = true, .kind = kind, .dtype = dtype, .root = b->tensor_count, .rank = rank};
  int64_t stride = 1;
  for (uint32_t i = rank; i-- > 0; stride *= shape[i]) {
    r->shape[i] = shape[i];
    r->stride[i] = stride;
    b->huge |= shape[i] > MAX_DIMENSION;
  }
  b->huge |= elements_of(r) > MAX_ELEMENTS;
  if (trace)
    fprintf(stderr, "  tensor %u: kind %d %s rank %u [%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "]\n",
            b->tensor_count, (int)kind, rondo_dtype_name(dtype), rank, r->shape[0], r->shape[1], r->shape[2],
            r->shape[3]);
  memset(b->defined[b->tensor_count], kind != OUTPUT && kind != TEMPORARY, MAX_ELEMENTS);
  b->tensor_count++;
  return true;
}

static bool create_view(struct build *b, rondo_tensor of, const int64_t *offset, const int64_t *extent,
                        rondo_tensor *view) {
  if (!CALL(rondo_view(b->graph, of, offset, extent, view))) return check_counts(b), false;
  require(of.graph == b->graph && of.index < b->tensor_count, "a view of no tensor");
  struct record *r = &b->records[b->tensor_count++];
  *r = b->records[of.index];
  for (uint32_t i = 0; i < r->rank; i++) {
    r->first += offset[i] * r->stride[i];
    r->shape[i] = extent[i];
  }
  if (trace) fprintf(stderr, "  tensor %u: view of %u\n", b->tensor_count - 1, of.index);
  return true;
}

rondo_tensor odd_tensor(struct build *b) {
  switch (below(b, 6)) {
  case 0:
    return (rondo_tensor){0};
  case 1:
    return foreign_tensor;
  case 2:
    return stale_tensor;
  case 3:
    return (rondo_tensor){b->graph, b->tensor_count + next(b) * 0x1010101, b->serial};
  default:
    return (rondo_tensor){b->graph, b->tensor_count ? below(b, b->tensor_count) : 0, b->serial};
  }
}

static bool fits(const struct record *r, rondo_access access, rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  if (!r->known || r->dtype != dtype || r->rank != rank || memcmp(r->shape, shape, rank * sizeof *shape) != 0)
    return false;
  return !(access & RONDO_WRITE) || (r->kind != CONSTANT && r->kind != INPUT);
}

rondo_tensor operand(struct build *b, rondo_access access, rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  static const enum kind readable[] = {INPUT, CONSTANT, STATE, INPUT},
                         writable[] = {TEMPORARY, OUTPUT, STATE, TEMPORARY};
  uint32_t how = next(b);
  if (how >= 250) return odd_tensor(b);
  if (how >= 96)
    for (uint32_t i = b->tensor_count; i-- > 0;)
      if (fits(&b->records[i], access, dtype, rank, shape) && (how & 1 || next(b) & 1))
        return (rondo_tensor){b->graph, i, b->serial};
  enum kind kind = (access & RONDO_READ ? readable : writable)[how / 2 % 4];
  if (access == RONDO_READ_WRITE && kind == CONSTANT) kind = STATE;
  rondo_tensor tensor = {0}, view = {0};
  int64_t padded[RONDO_MAX_RANK] = {0}, offset[RONDO_MAX_RANK] = {0};
  if (how % 4 != 3) return create(b, kind, dtype, rank, shape, &tensor) ? tensor : (rondo_tensor){0};
  for (uint32_t i = 0; i < rank; i++) {
    offset[i] = 2 * (int64_t)below(b, 3);
    padded[i] = shape[i] < MAX_ELEMENTS ? shape[i] + offset[i] + 2 * (int64_t)below(b, 2) : shape[i];
  }
  if (!create(b, kind, dtype, rank, padded, &tensor)) return (rondo_tensor){0};
  return create_view(b, tensor, offset, shape, &view) ? view : (rondo_tensor){0};
}

struct shape matrix(bool batched, int64_t batch, int64_t rows, int64_t columns, bool turned) {
  struct shape shape = {.rank = batched ? 3 : 2};
  int64_t *at = shape.of;
  if (batched) *at++ = batch;
  at[0] = turned ? columns : rows;
  at[1] = turned ? rows : columns;
  return shape;
}

struct shape vector(bool batched, int64_t batch, int64_t count) {
  return batched ? (struct shape){2, {batch, count}} : (struct shape){1, {count}};
}

struct shape heads(bool bshd, int64_t batch, int64_t count, int64_t length, int64_t width) {
  return (struct shape){4, {batch, bshd ? length : count, bshd ? count : length, width}};
}

rondo_tensor operand_of(struct build *b, rondo_access access, rondo_dtype dtype, struct shape shape) {
  return operand(b, access, dtype, shape.rank, shape.of);
}

rondo_tensor indices(struct build *b, struct shape shape, int64_t limit) {
  uint32_t before = b->tensor_count;
  rondo_tensor tensor = operand_of(b, RONDO_READ, RONDO_I32, shape);
  for (uint32_t i = before; i < b->tensor_count; i++)
    if (limit > 0 && limit <= INT32_MAX) b->records[i].limit = (uint32_t)limit;
  return tensor;
}

void add_tensor(struct build *b) {
  int64_t shape[RONDO_MAX_RANK];
  uint32_t rank = next(b) >= 250 ? below(b, 7) : 1 + below(b, 4);
  for (uint32_t i = 0; i < RONDO_MAX_RANK; i++) shape[i] = size_up_to(b, rank < 2 ? 128 : rank < 3 ? 48 : 8);
  uint32_t absent = next(b);
  rondo_tensor tensor;
  if (absent >= 250)
    require(!CALL(rondo_input(absent & 1 ? b->graph : NULL, NULL, RONDO_F32, 1, absent & 1 ? NULL : shape, &tensor)),
            "NULL");
  if (absent == 249) require(!CALL(rondo_state(b->graph, NULL, RONDO_F32, 1, shape, NULL)), "NULL");
  enum kind kind = (enum kind)below(b, 5);
  create(b, kind, any_dtype(b), rank, shape, &tensor);
}

void add_view(struct build *b) {
  rondo_tensor of = next(b) >= 240
                        ? odd_tensor(b)
                        : (rondo_tensor){b->graph, b->tensor_count ? below(b, b->tensor_count) : 0, b->serial};
  int64_t offset[RONDO_MAX_RANK], extent[RONDO_MAX_RANK];
  const struct record *r = &b->records[of.graph == b->graph && of.index < b->tensor_count ? of.index : 0];
  for (uint32_t i = 0; i < RONDO_MAX_RANK; i++) {
    int64_t whole = r->known && r->shape[i] > 0 ? r->shape[i] : 0;
    bool odd = next(b) >= 250;
    offset[i] = odd ? any_size(b) : (int64_t)next(b) % (whole + 1) & ~(int64_t)1;
    extent[i] = odd ? any_size(b) : (whole - offset[i]) / (1 + below(b, 3));
    if (r->dtype == RONDO_NVFP4 && !odd) extent[i] &= ~(int64_t)1;
  }
  rondo_tensor view;
  if (next(b) >= 252) require(!CALL(rondo_view(b->graph, of, next(b) & 1 ? NULL : offset, NULL, &view)), "NULL");
  create_view(b, of, offset, extent, &view);
}

/* Where the element with this number lies. */
static int64_t allocation_of(const struct record *r, int64_t element) {
  int64_t at = r->first;
  for (uint32_t i = r->rank; i-- > 0; element /= r->shape[i]) at += element % r->shape[i] * r->stride[i];
  return at;
}

/* The record of the same elements in another shape, which the library accepted. */
static void reshape(struct record *r, const struct record *from, uint32_t rank, const int64_t *shape) {
  int64_t inner = 1, elements = elements_of(from);
  *r = *from;
  r->rank = rank;
  for (uint32_t i = rank; i-- > 0; inner *= shape[i]) {
    r->shape[i] = shape[i];
    r->stride[i] = elements && shape[i] > 1 ? allocation_of(from, inner) - from->first : 1;
  }
  for (int64_t i = 0; i < elements && elements <= MAX_ELEMENTS; i++)
    require(allocation_of(r, i) == allocation_of(from, i), "a reshape has other elements");
}

void add_reshape(struct build *b) {
  rondo_tensor of = next(b) >= 240
                        ? odd_tensor(b)
                        : (rondo_tensor){b->graph, b->tensor_count ? below(b, b->tensor_count) : 0, b->serial};
  const struct record *from = &b->records[of.graph == b->graph && of.index < b->tensor_count ? of.index : 0];
  int64_t shape[RONDO_MAX_RANK] = {1, 1, 1, 1}, rest = from->known ? elements_of(from) : 1;
  uint32_t rank = next(b) >= 250 ? below(b, 7) : 1 + below(b, 4);
  for (uint32_t i = 0; i < RONDO_MAX_RANK; i++) {
    int64_t size = size_up_to(b, 16);
    if (i + 1 == rank)
      size = rest;
    else if (size > 0 && rest % size && next(b) < 250)
      size = 1;
    shape[i] = size;
    if (size > 0) rest /= size;
  }
  rondo_tensor tensor;
  if (next(b) >= 252) require(!CALL(rondo_reshape(b->graph, of, rank, NULL, &tensor)), "NULL");
  if (!CALL(rondo_reshape(b->graph, of, rank, shape, &tensor))) return check_counts(b);
  require(of.graph == b->graph && of.index < b->tensor_count, "a reshape of no tensor");
  require(tensor.graph == b->graph && tensor.index == b->tensor_count, "a strange handle");
  struct record *r = &b->records[b->tensor_count++];
  *r = *from;
  if (from->known) reshape(r, from, rank, shape);
  if (trace) fprintf(stderr, "  tensor %u: reshape of %u\n", tensor.index, of.index);
}

/* ---- Which elements have a value --------------------------------------------------------------------------------- */

/* Sets the rectangle's elements, or tells whether all are set. */
static bool elements_defined(struct build *b, const struct record *r, bool set) {
  if (elements_of(r) == 0 || elements_of(&b->records[r->root]) > MAX_ELEMENTS) return true;
  int64_t shape[4] = {1, 1, 1, 1}, stride[4] = {0}, base = r->first;
  for (uint32_t i = 0; i < r->rank; i++) {
    shape[i] = r->shape[i];
    stride[i] = r->stride[i];
  }
  for (int64_t i = 0; i < shape[0]; i++)
    for (int64_t j = 0; j < shape[1]; j++)
      for (int64_t k = 0; k < shape[2]; k++)
        for (int64_t l = 0; l < shape[3]; l++) {
          uint8_t *element = &b->defined[r->root][base + i * stride[0] + j * stride[1] + k * stride[2] + l * stride[3]];
          if (set) *element = 1;
          if (!*element) return false;
        }
  return true;
}

bool added(struct build *b, bool accepted, uint32_t count, const struct use *uses) {
  b->task_count += accepted;
  check_counts(b);
  for (uint32_t i = 0; i < count && trace; i++)
    if (uses[i].tensor.graph)
      fprintf(stderr, "  %s tensor %u\n", uses[i].access & RONDO_WRITE ? "writes" : "reads", uses[i].tensor.index);
  if (!accepted) return false;
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < count; i++) {
      if (!uses[i].tensor.graph) continue;
      require(uses[i].tensor.graph == b->graph && uses[i].tensor.index < b->tensor_count,
              "a wrong tensor was accepted");
      const struct record *r = &b->records[uses[i].tensor.index];
      if (!r->known) b->exact = false;
      if (!r->known || !(uses[i].access & (pass ? RONDO_WRITE : RONDO_READ))) continue;
      if (pass) require(r->kind != CONSTANT, "a constant is written");
      if (!elements_defined(b, r, pass)) b->exact = false;
    }
  return true;
}
