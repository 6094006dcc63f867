/* softmax_case.h - the attention and the fused softmax that rondo bench kernels times: the table, the labels, the
 * figures to reach, and the work of a case. It uses no device. */
#pragma once

#include <rondo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum softmax_kind {
  SOFTMAX_PREFILL, /* attention of many tokens */
  SOFTMAX_SINGLE,  /* attention of one short sequence, which has too few tiles for a whole device */
  SOFTMAX_DECODE,  /* attention of one token for each sequence, with kv_lengths on the device */
  SOFTMAX_GEMM,    /* rondo_add_gemm_softmax: softmax of scale A B^T, A [queries, dimension], B [keys, dimension] */
  SOFTMAX_ROWMAX,  /* rondo_add_gemm_rowmax of the same */
};

enum softmax_e4m3 { SOFTMAX_E4M3_NONE, SOFTMAX_E4M3_KV /* K and V */, SOFTMAX_E4M3_ALL /* Q, K and V */ };

/* Tensors that are not e4m3 are bf16, or f16, except that a row maximum is f32. The last two kinds have one batch and
 * one head. */
struct softmax_case {
  enum softmax_kind kind;
  int64_t batch, heads, kv_heads, queries, keys, dimension;
  bool causal;
  int64_t window, page_rows; /* 0: none */
  int64_t deviation;         /* standard deviation of the scores; 0: 1 */
  int64_t soft_cap;          /* of the scores; 0: none */
  enum softmax_e4m3 e4m3;
  bool f16; /* instead of bf16 */
};

/* The state of the device before a timed launch. */
enum softmax_state {
  SOFTMAX_COLD,      /* no cache holds the operands */
  SOFTMAX_WARM,      /* the previous launch had the same operands */
  SOFTMAX_PAUSE,     /* after a pause: at the highest clock */
  SOFTMAX_SUSTAINED, /* after 0.2 s of load: at the clock that the power limit allows */
  SOFTMAX_STATES
};

/* The figures that a case must reach on an H200, in a graph. 0: no such figure. */
struct softmax_must {
  double us;
  double rival; /* this factor faster than the best rival in the same state */
  double plain; /* this fraction of the plain case's rate (softmax_case_plain) */
};

enum { SOFTMAX_CASES_MOST = 64 };
size_t softmax_cases(struct softmax_case cases[SOFTMAX_CASES_MOST]);
struct softmax_must softmax_case_must(const struct softmax_case *shape);
/* The one or two states in which the case is timed. Returns their number. */
size_t softmax_case_states(const struct softmax_case *shape, bool is_warm, enum softmax_state states[2]);

bool softmax_case_equal(const struct softmax_case *a, const struct softmax_case *b);
/* The plain case: as many query heads as KV heads, as many queries as KV rows, all in bf16, without window, pages and
 * cap. */
struct softmax_case softmax_case_plain(const struct softmax_case *shape);
bool softmax_kind_is_attention(enum softmax_kind kind);

/* "prefill causal 4096x4096 hd=128 heads=16 kv_heads=4 batch=4 window=1024" or
 * "gemm_softmax 4096x4096 k=64 deviation=8". */
enum { SOFTMAX_LABEL_BYTES = 128 };
void softmax_case_label(const struct softmax_case *shape, char label[SOFTMAX_LABEL_BYTES]);
const char *softmax_kind_name(enum softmax_kind kind);
const char *softmax_state_name(enum softmax_state state);
const char *softmax_e4m3_name(enum softmax_e4m3 e4m3);

/* The factor that gives the scores of normally distributed numbers the case's standard deviation. */
float softmax_case_scale(const struct softmax_case *shape);
/* The additions and multiplications of the products. With a mask only the pairs inside the mask count: about half of
 * them if there are as many queries as keys and no window. */
double softmax_case_flops(const struct softmax_case *shape);
/* The bytes of all operands, each once. */
uint64_t softmax_case_bytes(const struct softmax_case *shape);
