/* kernel_case.h - what rondo bench kernels times, and what it must reach: the table of products, which of them a word
 * on the command line picks, and how many bytes one moves. No device. */
#ifndef RONDO_KERNEL_CASE_H
#define RONDO_KERNEL_CASE_H

#include <rondo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One product W x, as rondo_add_gemv takes it. */
struct kernel_case {
  rondo_dtype weights, vectors, out;
  int64_t m, k, batch, count;
};

/* What a product must reach on an H200, cold, in a graph; 0: no such demand. The demands that can be told add up. */
struct kernel_must {
  double us;
  double read;   /* this fraction of the rate at which the same bytes are only read */
  double rival;  /* so many times as fast as the rival with the same types */
  double single; /* this many times the time of one vector at most */
};

/* Pairs of types, the outermost order of the table. Within one: shapes, and of a shape 1, 2, 4, 8 and 16 vectors, so
 * that one vector comes before several. */
enum { KERNEL_CASES_MOST = 512 };
size_t kernel_cases(struct kernel_case cases[KERNEL_CASES_MOST]);
struct kernel_must kernel_case_must(const struct kernel_case *shape);

bool kernel_case_equal(const struct kernel_case *a, const struct kernel_case *b);
/* "nvfp4:bf16 4096x7168 batch=8 count=16". */
enum { KERNEL_LABEL_BYTES = 96 };
void kernel_case_label(const struct kernel_case *shape, char label[KERNEL_LABEL_BYTES]);
/* Are all the words, between spaces or commas, in the label, each as a whole? "nvfp4" and "nvfp4:bf16" are in the one
 * above, "count=1" is not. NULL: any label. */
bool kernel_label_wanted(const char *label, const char *words);

/* Of all matrices; of the scales of an nvfp4 tensor, 0 for other types. */
uint64_t kernel_weight_bytes(const struct kernel_case *shape);
uint64_t kernel_weight_scale_bytes(const struct kernel_case *shape);
/* What a product must read and write, each byte once. */
uint64_t kernel_case_bytes(const struct kernel_case *shape);

#endif
