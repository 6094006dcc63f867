/* kernel_case.c - the table of products, labels and bytes (kernel_case.h). */
#include "kernel_case.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NVFP4_BLOCK = 16 };

/* ---- The table --------------------------------------------------------------------------------------------------- */

static const struct {
  rondo_dtype weights, vectors, out;
} types[] = {{RONDO_NVFP4, RONDO_NVFP4, RONDO_F16},
             {RONDO_NVFP4, RONDO_BF16, RONDO_BF16},
             {RONDO_E4M3, RONDO_BF16, RONDO_BF16},
             {RONDO_BF16, RONDO_BF16, RONDO_BF16}};
enum { TYPES = sizeof types / sizeof *types };

/* The last three columns are figures to reach for one vector: microseconds, or the factor beside them. The first three
 * shapes are those of a competition for NVFP4 x NVFP4. The others are those of a large decoder, of its vocabulary, and
 * of a small model. */
static const struct {
  int64_t m, k, batch;
  struct kernel_must must[TYPES];
} shapes[] = {
    {7168, 16384, 1, {{.us = 18.4}, {.us = 22}, {.rival = 1.3}, {.rival = 1.05}}},
    {4096, 7168, 8, {{.us = 33.5}, {.us = 38}, {.us = 0}, {.rival = 1.0}}},
    {7168, 2048, 4, {{.us = 10.8}, {.us = 12.6}, {.us = 0}, {.rival = 1.1}}},
    {4096, 4096, 1, {{.us = 4.6}, {.us = 6.3}, {.rival = 1.4}, {.rival = 1.4}}},
    {14336, 4096, 1, {{.us = 10.8}, {.us = 12.5}, {.rival = 1.3}, {.rival = 1.05}}},
    {4096, 14336, 1, {{.us = 10.8}, {.us = 12.5}, {.rival = 1.3}, {.rival = 1.05}}},
    {128256, 4096, 1, {{.read = 0.95}, {.read = 0.9}, {.rival = 1.2}, {.rival = 1.0}}},
    {576, 576, 1, {{.us = 2.2}, {.us = 2.4}, {.us = 0}, {.us = 2.4}}},
    {1536, 576, 1, {{.us = 2.4}, {.us = 2.6}, {.us = 0}, {.us = 2.6}}},
    {576, 1536, 1, {{.us = 2.6}, {.us = 2.8}, {.us = 0}, {.us = 2.8}}},
    {49152, 576, 1, {{.us = 7}, {.us = 7.5}, {.us = 0}, {.us = 15.5}}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const struct {
  int64_t count;
  double single;
} counts[] = {{1, 0}, {2, 1.3}, {4, 1.3}, {8, 1.4}, {16, 2}};
enum { COUNTS = sizeof counts / sizeof *counts };

_Static_assert(TYPES *SHAPES *COUNTS <= KERNEL_CASES_MOST, "the table has room for all cases");

static struct kernel_case case_at(size_t t, size_t s, size_t c) {
  return (struct kernel_case){types[t].weights, types[t].vectors, types[t].out,   shapes[s].m,
                              shapes[s].k,      shapes[s].batch,  counts[c].count};
}

size_t kernel_cases(struct kernel_case cases[KERNEL_CASES_MOST]) {
  size_t count = 0;
  for (size_t t = 0; t < TYPES; t++)
    for (size_t s = 0; s < SHAPES; s++)
      for (size_t c = 0; c < COUNTS; c++) cases[count++] = case_at(t, s, c);
  return count;
}

/* Those of SmolLM2 and of Llama's models of 1B and 8B parameters, in bf16. */
static const struct {
  int64_t m, k;
} gemm_shapes[] = {{3072, 2048}, {2048, 2048},  {16384, 2048}, {2048, 8192},
                   {6144, 4096}, {28672, 4096}, {4096, 14336}, {3072, 576}};
/* The last column is the least speed beside cuBLAS, of bf16. */
static const struct {
  int64_t count;
  double rival;
} gemm_counts[] = {{32, 0}, {64, 0.97}, {128, 0.97}, {256, 0.97}, {512, 0.97}, {1024, 1}, {2048, 1}, {4096, 1}};
static const struct {
  rondo_dtype weights, vectors;
} gemm_types[] = {{RONDO_BF16, RONDO_BF16}, {RONDO_NVFP4, RONDO_BF16}, {RONDO_E4M3, RONDO_E4M3}};
enum { GEMM_TYPES = sizeof gemm_types / sizeof *gemm_types };
enum { GEMM_SHAPES = sizeof gemm_shapes / sizeof *gemm_shapes, GEMM_COUNTS = sizeof gemm_counts / sizeof *gemm_counts };

static struct kernel_case gemm_case_at(size_t t, size_t s, size_t c) {
  return (struct kernel_case){gemm_types[t].weights, gemm_types[t].vectors, RONDO_BF16,
                              gemm_shapes[s].m,      gemm_shapes[s].k,      1,
                              gemm_counts[c].count};
}

size_t kernel_gemm_cases(struct kernel_case cases[KERNEL_CASES_MOST]) {
  size_t count = 0;
  for (size_t t = 0; t < GEMM_TYPES; t++)
    for (size_t s = 0; s < GEMM_SHAPES; s++)
      for (size_t c = 0; c < GEMM_COUNTS; c++) cases[count++] = gemm_case_at(t, s, c);
  return count;
}

static struct kernel_must gemm_case_must(const struct kernel_case *shape) {
  for (size_t s = 0; s < GEMM_SHAPES; s++)
    for (size_t c = 0; c < GEMM_COUNTS; c++) {
      struct kernel_case known = gemm_case_at(0, s, c);
      if (kernel_case_equal(&known, shape)) return (struct kernel_must){.rival = gemm_counts[c].rival};
    }
  return (struct kernel_must){0};
}

struct kernel_must kernel_case_must(const struct kernel_case *shape) {
  if (shape->count > KERNEL_MOST_VECTORS) return gemm_case_must(shape);
  for (size_t t = 0; t < TYPES; t++)
    for (size_t s = 0; s < SHAPES; s++)
      for (size_t c = 0; c < COUNTS; c++) {
        struct kernel_case known = case_at(t, s, c);
        if (!kernel_case_equal(&known, shape)) continue;
        return c ? (struct kernel_must){.single = counts[c].single} : shapes[s].must[t];
      }
  return (struct kernel_must){0};
}

bool kernel_case_equal(const struct kernel_case *a, const struct kernel_case *b) {
  return a->weights == b->weights && a->vectors == b->vectors && a->out == b->out && a->m == b->m && a->k == b->k &&
         a->batch == b->batch && a->count == b->count;
}

/* ---- Labels ------------------------------------------------------------------------------------------------------ */

void kernel_case_label(const struct kernel_case *shape, char label[KERNEL_LABEL_BYTES]) {
  char batch[32] = "";
  if (shape->batch > 1) snprintf(batch, sizeof batch, " batch=%" PRId64, shape->batch);
  snprintf(label, KERNEL_LABEL_BYTES, "%s:%s %" PRId64 "x%" PRId64 "%s count=%" PRId64,
           rondo_dtype_name(shape->weights), rondo_dtype_name(shape->vectors), shape->m, shape->k, batch, shape->count);
}

/* Is the word in the label, with no letter or digit before or after it? */
static bool has_word(const char *label, const char *word, size_t length) {
  for (const char *at = label; *at; at++) {
    bool begins = at == label || !isalnum((unsigned char)at[-1]);
    if (begins && !strncmp(at, word, length) && !isalnum((unsigned char)at[length])) return true;
  }
  return false;
}

bool kernel_label_wanted(const char *label, const char *words) {
  const char *between = " ,";
  for (const char *at = words ? words : ""; *at;) {
    size_t length = strcspn(at, between);
    if (length && !has_word(label, at, length)) return false;
    at += length;
    at += strspn(at, between);
  }
  return true;
}

/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

static uint64_t matrix_bytes(rondo_dtype dtype, int64_t batch, int64_t rows, int64_t columns) {
  return (uint64_t)(batch * rows * columns) * rondo_dtype_bits(dtype) / 8;
}

static uint64_t scale_bytes(rondo_dtype dtype, int64_t batch, int64_t rows, int64_t columns) {
  return dtype == RONDO_NVFP4 ? matrix_bytes(RONDO_E4M3, batch, rows, columns / NVFP4_BLOCK) : 0;
}

uint64_t kernel_weight_bytes(const struct kernel_case *shape) {
  return matrix_bytes(shape->weights, shape->batch, shape->m, shape->k);
}

uint64_t kernel_weight_scale_bytes(const struct kernel_case *shape) {
  return scale_bytes(shape->weights, shape->batch, shape->m, shape->k);
}

uint64_t kernel_case_bytes(const struct kernel_case *shape) {
  return kernel_weight_bytes(shape) + kernel_weight_scale_bytes(shape) +
         matrix_bytes(shape->vectors, shape->batch, shape->count, shape->k) +
         scale_bytes(shape->vectors, shape->batch, shape->count, shape->k) +
         matrix_bytes(shape->out, shape->batch, shape->count, shape->m);
}

double kernel_case_flops(const struct kernel_case *shape) {
  return 2.0 * (double)shape->batch * (double)shape->count * (double)shape->m * (double)shape->k;
}
