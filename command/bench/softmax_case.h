/* softmax_case.h - the attention and the fused softmax that rondo bench kernels times, and what they must reach: the
 * table, labels, and how much work a case is. No device. */
#ifndef RONDO_SOFTMAX_CASE_H
#define RONDO_SOFTMAX_CASE_H

#include <rondo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum softmax_kind {
  SOFTMAX_PREFILL, /* attention of many tokens */
  SOFTMAX_SINGLE,  /* of one short sequence: too few tiles for a whole device */
  SOFTMAX_DECODE,  /* of one token a sequence, kv_lengths on the device */
  SOFTMAX_GEMM,    /* rondo_add_gemm_softmax: softmax of scale A B^T, A [queries, dimension], B [keys, dimension] */
  SOFTMAX_ROWMAX,  /* rondo_add_gemm_rowmax, likewise */
};

enum softmax_e4m3 { SOFTMAX_E4M3_NONE, SOFTMAX_E4M3_KV /* K and V */, SOFTMAX_E4M3_ALL /* Q, K and V */ };

/* Numbers that are not e4m3 are bf16, or f16. The last two kinds have one batch and one head; a rowmax is f32. */
struct softmax_case {
  enum softmax_kind kind;
  int64_t batch, heads, kv_heads, queries, keys, dimension;
  bool causal;
  int64_t window, page_rows; /* 0: none */
  int64_t deviation;         /* of the scores, a whole number; 0: 1 */
  int64_t soft_cap;          /* of the scores, a whole number; 0: none */
  enum softmax_e4m3 e4m3;
  bool f16; /* in place of bf16 */
};

/* How the device was before a launch was timed. */
enum softmax_state {
  SOFTMAX_COLD,      /* operands that no cache holds */
  SOFTMAX_WARM,      /* the same operands again */
  SOFTMAX_PAUSE,     /* behind a pause: at its highest clock */
  SOFTMAX_SUSTAINED, /* under load for a while: at the clock that its power allows */
  SOFTMAX_STATES
};

/* What a case must reach on an H200, in a graph; 0: no such demand. */
struct softmax_must {
  double us;
  double rival; /* so many times as fast as the best rival in the same state */
  double plain; /* this fraction of the rate of the case with as many heads and queries as there are of K and V */
};

enum { SOFTMAX_CASES_MOST = 64 };
size_t softmax_cases(struct softmax_case cases[SOFTMAX_CASES_MOST]);
struct softmax_must softmax_case_must(const struct softmax_case *shape);
/* The states it is timed in, of which there are one or two. */
size_t softmax_case_states(const struct softmax_case *shape, bool is_warm, enum softmax_state states[2]);

bool softmax_case_equal(const struct softmax_case *a, const struct softmax_case *b);
/* The case with as many heads and queries as there are of K and V, all in bf16, without window, pages and cap. */
struct softmax_case softmax_case_plain(const struct softmax_case *shape);
bool softmax_kind_is_attention(enum softmax_kind kind);

/* "prefill causal 4096x4096 hd=128 heads=16 kv_heads=4 batch=4 window=1024", "gemm_softmax 4096x4096 k=64 deviation=8".
 */
enum { SOFTMAX_LABEL_BYTES = 128 };
void softmax_case_label(const struct softmax_case *shape, char label[SOFTMAX_LABEL_BYTES]);
const char *softmax_kind_name(enum softmax_kind kind);
const char *softmax_state_name(enum softmax_state state);
const char *softmax_e4m3_name(enum softmax_e4m3 e4m3);

/* What products are multiplied by so that scores of normal numbers have the case's deviation. */
float softmax_case_scale(const struct softmax_case *shape);
/* Additions and multiplications of the products; of causal ones only those of pairs that see each other, half of them
 * if there are as many queries as keys and no window. */
double softmax_case_flops(const struct softmax_case *shape);
/* Each operand once. */
uint64_t softmax_case_bytes(const struct softmax_case *shape);

#endif
