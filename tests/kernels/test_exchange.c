/* test_exchange.c - every exchange between ranks against sums of their own order: all types, sizes, views that differ
 * from rank to rank, residuals and terms. One graph has all of them, so that exchanges of different kinds and sizes
 * take turns in one state. All ranks have the same bits, and so do all replays. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/frame.h"
#include "../oracles/ranks.h"

enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, SEND, KINDS };
static const char *const kind_names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "send"};
static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};

TestSuite(exchange, .timeout = 300);

/* One exchange. A rank without an operand has a frame without bytes. */
struct exchange {
  enum kind kind;
  rondo_dtype in_type, out_type;
  uint32_t rank, dimension, peer, to; /* of send: from peer to `to` */
  int64_t shape[RONDO_MAX_RANK];      /* of a rank's part */
  int64_t terms;                      /* 0: in has no such dimension */
  bool has_residual, is_in_place;
  bool source_keeps; /* of broadcast: it has `out` too */
  struct frame in[RONDO_MAX_RANKS], out[RONDO_MAX_RANKS], residual[RONDO_MAX_RANKS];
};

static bool sums(const struct exchange *e) { return e->kind == ALL_REDUCE || e->kind == REDUCE_SCATTER; }

static int64_t part_count(const struct exchange *e) {
  int64_t count = 1;
  for (uint32_t i = 0; i < e->rank; i++) count *= e->shape[i];
  return count;
}

/* Views that begin at any element, and some that begin at a multiple of 16 bytes and some dense. */
static struct frame frame_of(struct ranks *ranks, uint32_t r, const char *name, rondo_dtype type, uint32_t rank,
                             const int64_t *shape, struct random *random) {
  const int64_t room = random_between(random, 0, 3), unit = random_between(random, 0, 1) ? 8 : 1;
  return frame_add(&ranks->trials[r], name, type, rank, shape, room > 1 ? 0 : room, unit);
}

static void frames_add(struct exchange *e, struct ranks *ranks, uint32_t r, struct random *random) {
  int64_t in[RONDO_MAX_RANK], out[RONDO_MAX_RANK];
  memcpy(in, e->shape, sizeof in);
  memcpy(out, e->shape, sizeof out);
  if (e->kind == ALL_GATHER) out[e->dimension] *= ranks->count;
  if (e->kind == REDUCE_SCATTER) in[e->dimension] *= ranks->count;
  uint32_t in_rank = e->rank;
  if (e->terms) memmove(in + 1, in, e->rank * sizeof *in), in[0] = e->terms, in_rank++;
  const bool sends = e->kind < BROADCAST || r == e->peer;
  const bool receives =
      e->kind < BROADCAST || r == e->to || (e->kind == BROADCAST && (r != e->peer || e->source_keeps));
  if (sends) e->in[r] = frame_of(ranks, r, "in", e->in_type, in_rank, in, random);
  if (e->has_residual) e->residual[r] = frame_of(ranks, r, "residual", e->out_type, e->rank, out, random);
  if (receives)
    e->out[r] = e->is_in_place ? e->residual[r] : frame_of(ranks, r, "out", e->out_type, e->rank, out, random);
}

static void exchange_add(struct exchange *e, struct ranks *ranks, struct random *random) {
  static rondo_status (*const functions[])(rondo_graph *, const rondo_exchange_desc *) = {
      rondo_add_all_reduce, rondo_add_all_gather, rondo_add_reduce_scatter, rondo_add_broadcast, rondo_add_send};
  for (uint32_t r = 0; r < ranks->count; r++) {
    frames_add(e, ranks, r, random);
    const bool is_idle = e->kind == SEND && r != e->peer && r != e->to;
    const bool is_receiver = e->kind == SEND && r == e->to;
    const rondo_exchange_desc desc = {.name = kind_names[e->kind],
                                      .in = e->in[r].view,
                                      .out = e->out[r].view,
                                      .residual = e->residual[r].view,
                                      .exchange = ranks->exchange,
                                      .rank = r,
                                      .ranks = ranks->count,
                                      .dimension = e->dimension,
                                      .peer = e->kind == SEND && r == e->peer ? e->to : e->peer,
                                      .timeout_ns = UINT64_C(60) * 1000 * 1000 * 1000};
    if (is_idle) continue;
    REQUIRE_OK((is_receiver ? rondo_add_receive : functions[e->kind])(ranks->trials[r].graph, &desc));
  }
}

/* Number `index` of the sum over all ranks, as fp32 in the order that is promised. `begin` is the first of a part. */
static float sum_at(const struct exchange *e, uint32_t ranks, int64_t index, double *exact, double *size) {
  float sum = 0;
  const int64_t count = frame_count(&e->in[0]) / (e->terms ? e->terms : 1);
  *exact = *size = 0;
  for (uint32_t r = 0; r < ranks; r++) {
    float own = 0;
    for (int64_t t = 0; t < (e->terms ? e->terms : 1); t++) {
      const double number = frame_read(&e->in[r], t * count + index);
      own = t ? own + (float)number : (float)number;
      *exact += number, *size += fabs(number);
    }
    sum = r ? sum + own : own;
  }
  return sum;
}

/* The element of `longer`, which has all parts, for element `index` of the part of a rank. */
static int64_t index_of_part(const struct exchange *e, uint32_t ranks, uint32_t rank, int64_t index) {
  int64_t at = 0, step = 1;
  for (uint32_t d = e->rank; d-- > 0; index /= e->shape[d]) {
    const int64_t extent = d == e->dimension ? e->shape[d] * ranks : e->shape[d];
    at += (index % e->shape[d] + (d == e->dimension ? rank * e->shape[d] : 0)) * step;
    step *= extent;
  }
  return at;
}

static void check_sums(const struct exchange *e, const struct frame *got, uint32_t ranks, uint32_t r,
                       const char *what) {
  for (int64_t i = 0; i < part_count(e); i++) {
    double exact, size;
    const int64_t place = e->kind == REDUCE_SCATTER ? index_of_part(e, ranks, r, i) : i;
    float sum = sum_at(e, ranks, place, &exact, &size);
    if (e->has_residual) {
      const float residual = (float)frame_read(&e->residual[r], i);
      sum = residual + sum;
      exact += (double)residual, size += fabs((double)residual);
    }
    const double value = frame_read(got, i), expected = frame_rounded(e->out_type, (double)sum);
    const double terms = ranks * (double)(e->terms ? e->terms : 1) + 1;
    cr_assert(frame_same(value, expected), "%s, rank %u, number %d: %g, expected %g", what, r, (int)i, value, expected);
    cr_assert(fabs(value - exact) <= terms * 0x1p-24 * size + 1.01 * frame_half_unit(e->out_type, exact) + 0x1p-140,
              "%s, rank %u, number %d: %g, exactly %g", what, r, (int)i, value, exact);
  }
}

static void check_moves(const struct exchange *e, const struct frame *got, uint32_t ranks, uint32_t r,
                        const char *what) {
  for (uint32_t from = 0; from < ranks; from++) {
    if (!e->in[from].bytes) continue;
    for (int64_t i = 0; i < part_count(e); i++) {
      const int64_t place = e->kind == ALL_GATHER ? index_of_part(e, ranks, from, i) : i;
      const double value = frame_read(got, place), expected = frame_read(&e->in[from], i);
      cr_assert(frame_same(value, expected), "%s, rank %u from %u, number %d: %g, expected %g", what, r, from, (int)i,
                value, expected);
    }
  }
}

static void check(const struct exchange *e, struct ranks *ranks, int index) {
  char what[96];
  for (uint32_t r = 0; r < ranks->count; r++) {
    if (!e->out[r].bytes) continue;
    snprintf(what, sizeof what, "exchange %d of %u ranks, %s, %d elements of %s to %s", index, ranks->count,
             kind_names[e->kind], (int)part_count(e), rondo_dtype_name(e->in_type), rondo_dtype_name(e->out_type));
    struct frame got = frame_get(&ranks->trials[r], &e->out[r], what);
    (sums(e) ? check_sums : check_moves)(e, &got, ranks->count, r, what);
    free(got.bytes);
  }
}

/* Other numbers in each round: those of the round before may still be in a slot. */
static void set(struct exchange *e, struct ranks *ranks, struct random *random) {
  for (uint32_t r = 0; r < ranks->count; r++) {
    const double size = exp2((double)random_between(random, -2, 2));
    if (e->in[r].bytes) frame_fill(&e->in[r], random, size), frame_set(&ranks->trials[r], &e->in[r]);
    if (e->residual[r].bytes) frame_fill(&e->residual[r], random, size), frame_set(&ranks->trials[r], &e->residual[r]);
    if (e->out[r].bytes && !e->is_in_place) frame_set(&ranks->trials[r], &e->out[r]);
  }
}

static void drop(struct exchange *e, uint32_t ranks) {
  for (uint32_t r = 0; r < ranks; r++) {
    if (!e->is_in_place) free(e->out[r].bytes);
    free(e->in[r].bytes), free(e->residual[r].bytes);
  }
}

static struct exchange random_exchange(struct random *random, uint32_t ranks, int64_t most) {
  struct exchange e = {.kind = (enum kind)random_between(random, 0, ranks > 1 ? SEND : BROADCAST)};
  e.in_type = RANDOM_OF(random, types);
  e.rank = (uint32_t)random_between(random, 1, 3);
  e.peer = (uint32_t)random_between(random, 0, ranks - 1);
  e.out_type = e.kind == ALL_REDUCE || e.kind == REDUCE_SCATTER ? RANDOM_OF(random, types) : e.in_type;
  int64_t left = random_between(random, 0, 3) ? most / 100 : most;
  for (uint32_t i = e.rank; i-- > 0;) {
    e.shape[i] = random_between(random, 1, i ? (int64_t)sqrt((double)left) + 1 : left < 1 ? 1 : left);
    if (random_between(random, 0, 1)) e.shape[i] = (e.shape[i] + 7) / 8 * 8;
    left = left / e.shape[i] + 1;
  }
  e.dimension = (uint32_t)random_between(random, 0, e.rank - 1);
  e.to = e.kind == SEND ? (e.peer + (uint32_t)random_between(random, 1, ranks - 1)) % ranks : UINT32_MAX;
  e.has_residual = e.kind == ALL_REDUCE && random_between(random, 0, 1);
  e.is_in_place = e.has_residual && random_between(random, 0, 1);
  e.source_keeps = random_between(random, 0, 1);
  if (e.kind == ALL_REDUCE && random_between(random, 0, 2) == 0)
    e.terms = random_between(random, 1, 5), e.in_type = RONDO_F32;
  return e;
}

static void exchange_ranks(rondo_backend backend, uint32_t ranks_count) {
  enum { COUNT = 40 };
  static struct exchange all[COUNT];
  struct random random = {100 + ranks_count};
  struct ranks ranks;
  const int64_t most = 20000 / ranks_count; /* ranks may share a GPU: there is room for all of their blocks */
  ranks_describe(&ranks, backend, ranks_count, (uint64_t)most * 4 * 4 * RONDO_MAX_RANKS);
  for (int i = 0; i < COUNT; i++) {
    all[i] = random_exchange(&random, ranks_count, most);
    exchange_add(&all[i], &ranks, &random);
  }
  ranks_instantiate(&ranks);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < COUNT; i++) set(&all[i], &ranks, &random);
    if (round)
      ranks_replay_apart(&ranks, &random);
    else
      ranks_replay(&ranks);
    for (int i = 0; i < COUNT; i++) check(&all[i], &ranks, i);
  }
  ranks_end(&ranks);
  for (int i = 0; i < COUNT; i++) drop(&all[i], ranks_count);
}

static void one_rank(rondo_backend backend) { exchange_ranks(backend, 1); }
static void two_ranks(rondo_backend backend) { exchange_ranks(backend, 2); }
static void three_ranks(rondo_backend backend) { exchange_ranks(backend, 3); }
static void four_ranks(rondo_backend backend) { exchange_ranks(backend, 4); }
static void eight_ranks(rondo_backend backend) { exchange_ranks(backend, 8); }
BOTH_BACKENDS(exchange, of_one_rank, one_rank)
BOTH_BACKENDS(exchange, of_two_ranks, two_ranks)
BOTH_BACKENDS(exchange, of_three_ranks, three_ranks)
BOTH_BACKENDS(exchange, of_four_ranks, four_ranks)
BOTH_BACKENDS(exchange, of_eight_ranks, eight_ranks)
