/* kernel_case.h - the products that rondo bench kernels times: the table, the figures to reach, the choice by words of
 * the command line, and the bytes that a product moves. It uses no device. */
#pragma once

#include <rondo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One product W x, as rondo_add_gemv or rondo_add_gemm takes it. */
struct kernel_case {
  rondo_dtype weights, vectors, out;
  int64_t m, k, batch, count;
};

/* The figures that a product must reach on an H200, cold, in a graph. 0: no such figure. A product must reach all
 * figures that can be computed. */
struct kernel_must {
  double us;
  double read;   /* this fraction of the rate at which the same bytes are only read */
  double rival;  /* this factor faster than the rival with the same types */
  double single; /* at most this factor of the time of one vector */
};

/* The order of the table: pairs of types, then shapes, then 1, 2, 4, 8 and 16 vectors. One vector precedes
 * several. */
enum { KERNEL_CASES_MOST = 512 };
size_t kernel_cases(struct kernel_case cases[KERNEL_CASES_MOST]);
/* Products with 32 to 4096 vectors, as rondo_add_gemm takes them: types of weights, then shapes, then numbers of
 * vectors. */
size_t kernel_gemm_cases(struct kernel_case cases[KERNEL_CASES_MOST]);
/* rondo_add_gemm makes a product with more vectors than this. */
enum { KERNEL_MOST_VECTORS = 16 };
struct kernel_must kernel_case_must(const struct kernel_case *shape);

bool kernel_case_equal(const struct kernel_case *a, const struct kernel_case *b);
/* "nvfp4:bf16 4096x7168 batch=8 count=16". */
enum { KERNEL_LABEL_BYTES = 96 };
void kernel_case_label(const struct kernel_case *shape, char label[KERNEL_LABEL_BYTES]);
/* Has the label all of the words, which spaces or commas separate? Only whole words count: the label above has "nvfp4"
 * and "nvfp4:bf16", but not "count=1". NULL: true. */
bool kernel_label_wanted(const char *label, const char *words);

/* The bytes of all matrices; and those of the scale factors of an nvfp4 tensor, 0 for other types. */
uint64_t kernel_weight_bytes(const struct kernel_case *shape);
uint64_t kernel_weight_scale_bytes(const struct kernel_case *shape);
/* The bytes that a product must read and write, each once. */
uint64_t kernel_case_bytes(const struct kernel_case *shape);
double kernel_case_flops(const struct kernel_case *shape);
