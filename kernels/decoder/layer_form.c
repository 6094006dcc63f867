/* layer_form.c - the form of a decoder layer, for graphs that ask (runtime/layer_form.h): a table of measured cases.
 *
 * A layer is faster in halves if both halves are kernels, or if the feed forward is one and saves more than attention
 * loses as steps. All other layers are faster as five tasks than as halves of the same products (figures: README.md).
 */
#include "../../runtime/layer_form.h"

#include "../common/size_range.h"
#include "attention_block_wide.h"
#include "attention_many_tokens.h"
#include "attention_several_tokens.h"
#include "decoder.h"
#include "feed_forward.h"
#include "feed_forward_known.h"
#include "feed_forward_many_tokens.h"

enum {
  SMALL_HIDDEN = 1024, /* to here the weights of a half fit in the shared memory of its clusters */
  CHAINED_ROWS = 48,   /* in chains of at most DECODER_MOST_ROWS, which run side by side */
  ONE_CHAIN_ROWS = 80, /* so many sequences of known sizes are one chain; more are chains of up to */
  LARGE_CHAIN_ROWS = 64,
  PROMPT_ROWS = 256, /* of a prompt in halves */
  LARGE_PARTS = 15   /* clusters of eight blocks that an H200 runs at once */
};

/* A case of layers in halves. */
struct measured {
  bool one_sequence;
  int64_t head_dimension;
  struct size_range rows, hidden;
  rondo_dtype weights;     /* 0: bf16 and NVFP4 */
  bool attention_is_steps; /* and leaves one part */
  bool last_part_is_late;  /* next to the 128 blocks of attention_block_wide.cu */
};

/* A token of each sequence, or a prompt's rows. */
#define TOKENS(heads_of) .head_dimension = heads_of
#define PROMPT(heads_of) .one_sequence = true, .head_dimension = heads_of

static const struct measured cases[] = {
    {TOKENS(128), .rows = {1, 1}, .hidden = {1, SMALL_HIDDEN}},
    {TOKENS(64), .rows = {1, CHAINED_ROWS}, .hidden = {1, SMALL_HIDDEN}},
    {TOKENS(64), .rows = {1, 1}, .hidden = {SMALL_HIDDEN + 1, ATTENTION_BLOCK_WIDE_HIDDEN}, .last_part_is_late = true},
    {TOKENS(64), .rows = {2, DECODER_MOST_ROWS}, .hidden = {SMALL_HIDDEN + 1, ATTENTION_BLOCK_WIDE_HIDDEN},
     .weights = RONDO_BF16, .attention_is_steps = true},
    {PROMPT(64), .rows = {8, DECODER_MOST_ROWS}, .hidden = {1, SMALL_HIDDEN}, .attention_is_steps = true},
    {PROMPT(64), .rows = {DECODER_MOST_ROWS + 1, CHAINED_ROWS}, .hidden = {1, SMALL_HIDDEN}, .weights = RONDO_NVFP4,
     .attention_is_steps = true},
    {PROMPT(64), .rows = {2, DECODER_MOST_ROWS}, .hidden = {SMALL_HIDDEN + 1, ATTENTION_BLOCK_WIDE_HIDDEN - 1},
     .weights = RONDO_BF16, .attention_is_steps = true},
    /* More rows are products of many rows: ../gemm. */
    {PROMPT(64), .rows = {2, 8}, .hidden = {ATTENTION_BLOCK_WIDE_HIDDEN, ATTENTION_BLOCK_WIDE_HIDDEN},
     .weights = RONDO_BF16, .attention_is_steps = true},
};

static const struct measured *case_of(const struct layer_sizes *layer) {
  if (layer->dtype != RONDO_BF16 || (layer->weights != RONDO_BF16 && layer->weights != RONDO_NVFP4)) return NULL;
  if (layer->kv_heads > FEED_FORWARD_MOST_PARTS) return NULL; /* attention leaves a part of each */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (layer->one_sequence == cases[i].one_sequence && layer->head_dimension == cases[i].head_dimension &&
        is_in_range(layer->rows, cases[i].rows) && is_in_range(layer->hidden, cases[i].hidden) &&
        (cases[i].weights == 0 || cases[i].weights == layer->weights))
      return &cases[i];
  return NULL;
}

/* Does attention_block_wide.cu take it? */
static bool is_wide(const struct layer_sizes *layer) {
  const int64_t group = layer->query_heads / layer->kv_heads, pairs = layer->query_heads / ATTENTION_BLOCK_WIDE_GROUP;
  return layer->rows == 1 && layer->hidden == ATTENTION_BLOCK_WIDE_HIDDEN &&
         layer->head_dimension == ATTENTION_BLOCK_WIDE_DIMENSION && group % ATTENTION_BLOCK_WIDE_GROUP == 0 &&
         pairs <= FEED_FORWARD_MOST_PARTS;
}

/* A cluster has a KV head, or in attention_block_wide.cu a pair of query heads of one. */
static int64_t attention_parts(const struct layer_sizes *layer) {
  return is_wide(layer) ? layer->query_heads / ATTENTION_BLOCK_WIDE_GROUP : layer->kv_heads;
}

/* Have both halves kernels that give and take parts: attention_block_wide.cu and feed_forward.cu in bf16? */
static bool gives_parts(const struct layer_sizes *layer) {
  return is_wide(layer) && layer->weights == RONDO_BF16 &&
         layer->query_heads / layer->kv_heads <= ATTENTION_BLOCK_MOST_GROUP &&
         layer->feed_forward % FEED_FORWARD_UNIT == 0 &&
         layer->feed_forward >= INT64_C(1) * LARGE_PARTS * FEED_FORWARD_UNIT;
}

static struct decoder_shape shape_of(const struct layer_sizes *layer) {
  return (struct decoder_shape){.rows = layer->rows,
                                .hidden = layer->hidden,
                                .kv_heads = layer->kv_heads,
                                .group = layer->query_heads / layer->kv_heads,
                                .columns = layer->feed_forward,
                                .one_sequence = layer->one_sequence};
}

/* Several rows in bf16: kernels know the sizes, and one takes the feed forward of up to 128 rows. */
static bool has_many_tokens(const struct layer_sizes *layer) {
  struct decoder_shape shape = shape_of(layer);
  shape.out_parts = FEED_FORWARD_MANY_TOKENS_PARTS(layer->feed_forward);
  return layer->dtype == RONDO_BF16 && layer->weights == RONDO_BF16 &&
         layer->head_dimension == ATTENTION_MANY_TOKENS_DIMENSION && feed_forward_many_tokens_scratch(&shape);
}

/* In halves, which are kernels. */
static struct layer_form many_form_of(const struct layer_sizes *layer, int64_t chain_rows) {
  return (struct layer_form){.in_halves = true,
                             .chain_rows = chain_rows,
                             .attention_parts = layer->kv_heads,
                             .feed_forward_parts = FEED_FORWARD_MANY_TOKENS_PARTS(layer->feed_forward)};
}

/* Tokens in a chain of a prompt in halves. */
static int64_t prompt_chain_rows(const struct layer_sizes *layer) {
  return layer->rows <= DECODER_MOST_TOKENS ? DECODER_MOST_TOKENS : (int64_t)ATTENTION_MANY_TOKENS_TILE;
}

/* Are both halves of a prompt kernels? */
static bool takes_prompt(const struct layer_sizes *layer) {
  struct decoder_shape shape = shape_of(layer);
  shape.rows = prompt_chain_rows(layer);
  return has_many_tokens(layer) && layer->rows <= PROMPT_ROWS && attention_many_tokens_scratch(&shape);
}

/* Kernels in which a row has a token's bits: attention_several_tokens, and the feed forwards whose sizes are known. */
static struct layer_form tokens_form_of(const struct layer_sizes *layer) {
  return (struct layer_form){.in_halves = true,
                             .chain_rows = ATTENTION_SEVERAL_TOKENS_TOKENS,
                             .attention_parts = layer->kv_heads,
                             .feed_forward_parts = FEED_FORWARD_KNOWN_PARTS,
                             .as_tokens = true};
}

/* Tokens of many sequences: all clusters of attention of up to 80 run at once. */
static bool are_many_sequences(const struct layer_sizes *layer) {
  return has_many_tokens(layer) && layer->rows > DECODER_MOST_ROWS && layer->rows <= DECODER_MOST_TOKENS;
}

struct layer_form layer_form_of(const struct layer_sizes *layer) {
  if (layer->as_tokens && takes_prompt(layer)) return tokens_form_of(layer);
  /* More than 128 tokens of a prompt are chains that wait for each other's K and V alone: while one is in a layer, the
   * one before is ahead of it. */
  if (layer->one_sequence && takes_prompt(layer)) return many_form_of(layer, prompt_chain_rows(layer));
  if (!layer->one_sequence && are_many_sequences(layer))
    return many_form_of(layer, layer->rows <= ONE_CHAIN_ROWS ? ONE_CHAIN_ROWS : LARGE_CHAIN_ROWS);
  const struct measured *measured = case_of(layer);
  if (!measured) return (struct layer_form){0};
  return (struct layer_form){.in_halves = true,
                             .chain_rows = DECODER_MOST_ROWS,
                             .attention_parts = measured->attention_is_steps ? 1 : attention_parts(layer),
                             .feed_forward_parts =
                                 layer->hidden <= SMALL_HIDDEN ? FEED_FORWARD_KNOWN_PARTS : LARGE_PARTS,
                             .last_part_is_late = measured->last_part_is_late,
                             .gives_parts = gives_parts(layer)};
}
