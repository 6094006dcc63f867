/* layer_form.h - the question of a ready-made graph before it describes a decoder layer: as two layer halves, or as a
 * task for each product?
 *
 * graphs/ asks and kernels/ answers, so that no size of a kernel stands in a graph. A graph is described without a
 * chip: the answer follows from the layer's sizes and types, and is the same on every chip and on the host. */
#pragma once

#include <rondo.h>
#include <stdbool.h>

/* One layer, in a step that takes one token of each sequence, or a prompt. */
struct layer_sizes {
  int64_t rows;      /* tokens */
  bool one_sequence; /* a prompt's; else a token of each sequence */
  bool as_tokens;    /* of one sequence: with the bits of tokens that come one by one, if some kernels can */
  int64_t hidden, query_heads, kv_heads, head_dimension, feed_forward;
  rondo_dtype dtype, weights; /* of the residual stream; of the matrices */
};

/* The form in which the layer is fastest. A half's parts are as many as its kernel has clusters. */
struct layer_form {
  bool in_halves;     /* false: five tasks, and the rest is zero */
  int64_t chain_rows; /* of halves: more rows are as many at a time, in chains of halves that run side by side */
  int64_t attention_parts, feed_forward_parts;
  bool last_part_is_late; /* the feed forward's last cluster finds room only after attention has ended */
  bool gives_parts;       /* kernels of both halves give and take parts over ranks (struct layer_exchange) */
  bool as_tokens;         /* rows have the bits of tokens that come one by one */
};

/* kernels/decoder/layer_form.c */
struct layer_form layer_form_of(const struct layer_sizes *layer);

/* Of a layer of products with more vectors than gemv takes: do norms begin in one product and end in the next, beside a
 * residual stream in f32? */
bool norms_suit_products(const struct layer_sizes *layer); /* kernels/gemm/gemm.c */
int64_t norm_groups_of(int64_t columns);                   /* there too: sums of squares of a row of the stream */

/* Of an NVFP4 head with up to 16 vectors: is the product with their norm faster than the norm as a task before it? */
bool norm_suits_nvfp4_head(int64_t hidden, bool one_order); /* kernels/gemv/gemv_choose.c */

/* The exchange of a half or of a product. A product ends with it. A half begins with it: its x_parts, if it has some,
 * are one rank's terms of a sum over all ranks.
 *
 * If a half `gives`, then the next task that waits for ranks is the half that takes its out and out_parts, and no other
 * task reads these. So where each rank has a device of its own, the kernels do not write them (exchange_gather.h). */
struct layer_exchange {
  const rondo_tensor *states; /* of rondo_exchange_state, one of each rank */
  uint32_t rank, ranks;
  uint32_t before;   /* sums of earlier halves in the graph */
  bool gives, takes; /* takes: the half before gives */
};

/* rondo_add_feed_forward of up to 128 rows, if x is in f32, which leaves less work to a late last part. as_tokens: of
 * up to 8 rows, each has the bits that it has alone, if a kernel can. exchange: or NULL. */
rondo_status feed_forward_add(rondo_graph *graph, const rondo_feed_forward_desc *desc, bool last_part_is_late,
                              bool as_tokens, const struct layer_exchange *exchange);

/* rondo_add_gemv, out being the sum of all ranks' products and the residual. */
rondo_status summed_product_add(rondo_graph *graph, const rondo_gemv_desc *desc, const struct layer_exchange *exchange);

/* rondo_add_attention_block of up to 128 rows, if x is in f32. exchange: or NULL. */
rondo_status attention_block_add(rondo_graph *graph, const rondo_attention_block_desc *desc,
                                 const struct layer_exchange *exchange);

/* The same of rows that are tokens of one sequence, one after the other: the first one has
 * the position, x is in f32, and K and V are [1, capacity, ..] or, with kv_pages [1, pages of the sequence], pages as
 * in rondo_attention_desc. as_tokens: of up to 8 rows, each has the bits that it has alone, if a kernel can. */
rondo_status prompt_attention_add(rondo_graph *graph, const rondo_attention_block_desc *desc, rondo_tensor kv_pages,
                                  bool as_tokens);

/* out = position + more, of i32 [1]; more is not 0. */
rondo_status position_add(rondo_graph *graph, const char *name, rondo_tensor position, int32_t more, rondo_tensor out);

/* rondo_add_sample of rows that follow each other in one sequence: step is that of the first. */
rondo_status sample_rows_add(rondo_graph *graph, const rondo_sample_desc *desc);
