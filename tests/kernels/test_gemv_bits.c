/* test_gemv_bits.c - products with vectors have the same bits in every replay and in every slot. A vector has the same
 * bits beside any number of others if the description asks for one order, and otherwise beside numbers of the same
 * class. Faults that would show: a sum whose order depends on timing or neighbours. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/gemv_oracle.h"

enum { VECTORS = 16, PRODUCTS = 9, HEAD_ROWS = 49152 };

/* Products of one matrix with the first vectors of the same sixteen. */
struct products {
  struct problem all; /* with all sixteen; its operands are the others' too */
  int count;
  int64_t vectors[PRODUCTS];
  rondo_tensor out[PRODUCTS];
  float *results[PRODUCTS];
};

struct shape {
  int64_t m, k;
};

static size_t result_bytes(const struct products *p, int i) {
  return (size_t)(p->vectors[i] * p->all.m) * sizeof(float);
}

/* Numbers of f16 or bf16 between 1/8 and 2, of either sign; bytes that are no NaN of e4m3. */
static void fill(struct operand *o, struct random *random) {
  for (size_t i = 0; i < bytes_of(o); i += 8) {
    uint64_t bits = random_bits(random);
    if (o->dtype == RONDO_F16) bits = (bits & UINT64_C(0x8fff8fff8fff8fff)) | UINT64_C(0x3000300030003000);
    if (o->dtype == RONDO_BF16) bits = (bits & UINT64_C(0x81ff81ff81ff81ff)) | UINT64_C(0x3e003e003e003e00);
    if (o->dtype == RONDO_E4M3) bits = (bits & UINT64_C(0x8f8f8f8f8f8f8f8f)) | UINT64_C(0x2020202020202020);
    memcpy((char *)o->data + i, &bits, bytes_of(o) - i < 8 ? bytes_of(o) - i : 8);
  }
}

static void fill_vectors(struct products *p, uint64_t seed) {
  struct random random = {.state = seed};
  fill(&p->all.vectors, &random);
  if (p->all.vector_scales.data) fill(&p->all.vector_scales, &random);
}

static void products_begin(struct products *p, struct trial *trial, rondo_backend backend, struct pair pair,
                           struct shape shape, const int64_t *vectors, int count, bool one_order) {
  struct random random = {.state = 11};
  *p = (struct products){.all = {.weights_dtype = pair.weights,
                                 .vectors_dtype = pair.vectors,
                                 .out_dtype = RONDO_F32,
                                 .m = shape.m,
                                 .k = shape.k,
                                 .count = VECTORS,
                                 .scale = 0.3f,
                                 .norm_epsilon = pair.vectors == RONDO_BF16 && shape.m != HEAD_ROWS ? 1e-5f : 0,
                                 .one_order = one_order},
                         .count = count};
  trial_describe(trial, backend);
  problem_add(trial, &p->all);
  fill(&p->all.weights, &random);
  if (p->all.weight_scales.data) fill(&p->all.weight_scales, &random);
  fill_vectors(p, 12);
  for (int i = 0; i < count; i++) {
    int64_t first[] = {0, 0}, extent[] = {vectors[i], shape.k}, scale_extent[] = {vectors[i], shape.k / 16};
    rondo_gemv_desc desc = {.weights = p->all.weights.whole,
                            .weight_scales = p->all.weight_scales.whole,
                            .scale = p->all.scale,
                            .norm_epsilon = p->all.norm_epsilon,
                            .one_order = one_order};
    REQUIRE_OK(rondo_view(trial->graph, p->all.vectors.whole, first, extent, &desc.vectors));
    if (p->all.vector_scales.data)
      REQUIRE_OK(rondo_view(trial->graph, p->all.vector_scales.whole, first, scale_extent, &desc.vector_scales));
    REQUIRE_OK(rondo_output(trial->graph, "out", RONDO_F32, 2, (int64_t[]){vectors[i], shape.m}, &p->out[i]));
    desc.out = p->out[i];
    REQUIRE_OK(rondo_add_gemv(trial->graph, &desc));
    p->vectors[i] = vectors[i];
    p->results[i] = malloc(result_bytes(p, i));
  }
}

static void set_vectors(struct trial *trial, struct products *p, uint64_t seed) {
  fill_vectors(p, seed);
  trial_set(trial, p->all.vectors.whole, p->all.vectors.data);
  if (p->all.vector_scales.data) trial_set(trial, p->all.vector_scales.whole, p->all.vector_scales.data);
}

static void products_end(struct products *p, struct trial *trial) {
  for (int i = 0; i < p->count; i++) free(p->results[i]);
  problem_end(&p->all);
  trial_end(trial);
}

static const struct shape small_shapes[] = {{37, 4096}, {576, 576}, {64, 16384}, {61, 1040}, {4800, 288}};
enum { SMALL_SHAPES = sizeof small_shapes / sizeof small_shapes[0] };
static const struct shape large_shape = {4096, 4096};

/* The host takes a long time, and one way whatever the shape: there each pair of types has one of them. */
static bool is_tested(rondo_backend backend, int pair, int shape) {
  return backend == RONDO_BACKEND_CUDA || pair % SMALL_SHAPES == shape;
}

/* ---- With any count ---------------------------------------------------------------------------------------------- */

/* The vectors of each product have the bits that those of product `like[i]` have, which has more of them. */
static void check_counts(rondo_backend backend, struct pair pair, struct shape shape, const int64_t *vectors,
                         const int *like, int count, bool one_order) {
  struct products p;
  struct trial trial;
  products_begin(&p, &trial, backend, pair, shape, vectors, count, one_order);
  trial_instantiate(&trial);
  problem_set(&trial, &p.all);
  trial_replay(&trial);
  for (int i = 0; i < count; i++) trial_get(&trial, p.out[i], p.results[i]);
  for (int i = 0; i < count; i++)
    for (int64_t v = 0; v < vectors[i]; v++)
      cr_assert(!memcmp(p.results[i] + v * shape.m, p.results[like[i]] + v * shape.m, (size_t)shape.m * sizeof(float)),
                "%s x %s, %d x %d: vector %d of %d differs from that of %d", rondo_dtype_name(pair.weights),
                rondo_dtype_name(pair.vectors), (int)shape.m, (int)shape.k, (int)v, (int)vectors[i],
                (int)vectors[like[i]]);
  products_end(&p, &trial);
}

static void check_every_shape(rondo_backend backend, const int64_t *vectors, const int *like, int count,
                              bool one_order) {
  for (int pair = 0; pair < PAIRS; pair++) {
    for (int s = 0; s < SMALL_SHAPES; s++)
      if (is_tested(backend, pair, s))
        check_counts(backend, pairs[pair], small_shapes[s], vectors, like, count, one_order);
    if (backend == RONDO_BACKEND_CUDA || (one_order && pairs[pair].vectors == RONDO_NVFP4))
      check_counts(backend, pairs[pair], large_shape, vectors, like, count, one_order);
  }
}

static void check_one_order(rondo_backend backend) {
  static const int64_t vectors[] = {1, 2, 5, 8, 9, 16};
  static const int like[] = {5, 5, 5, 5, 5, 5};
  check_every_shape(backend, vectors, like, 6, true);
}
BOTH_BACKENDS(gemv_bits, with_one_order_a_vector_has_the_same_bits_in_any_company, check_one_order)

static void check_classes(rondo_backend backend) {
  static const int64_t vectors[] = {2, 3, 4, 5, 7, 8, 9, 15, 16};
  static const int like[] = {2, 2, 2, 5, 5, 5, 8, 8, 8};
  check_every_shape(backend, vectors, like, 9, false);
}
BOTH_BACKENDS(gemv_bits, two_to_four_five_to_eight_and_more_vectors_have_the_same_bits_each, check_classes)

/* The rows of a model's head have one order of sums (gemv_head_plan.c). The host, with one order for all, has few. */
static void check_head(rondo_backend backend) {
  static const int64_t vectors[] = {1, 2, 8, 9, 16};
  static const int like[] = {4, 4, 4, 4, 4};
  for (int pair = 0; pair < PAIRS; pair++)
    if (rondo_dtype_bits(pairs[pair].weights) < 16)
      check_counts(backend, pairs[pair], (struct shape){backend == RONDO_BACKEND_CUDA ? HEAD_ROWS : 333, 416}, vectors,
                   like, 5, false);
}
BOTH_BACKENDS(gemv_bits, a_vector_beside_a_head_has_the_same_bits_in_any_company, check_head)

/* ---- In every replay --------------------------------------------------------------------------------------------- */

static const int64_t of_each_class[] = {1, 3, 5, 9};
enum { CLASSES = 4, SETS = 3 };

/* Of two sets of vectors in turn, so that whatever one replay leaves behind is wrong for the next: a thousand replays;
 * on the host, where the same loop runs over the same numbers, as many as take a moment. */
static void check_replays(rondo_backend backend, struct pair pair, struct shape shape) {
  struct products p, other;
  struct trial trial;
  products_begin(&p, &trial, backend, pair, shape, of_each_class, CLASSES, false);
  other = p;
  for (int i = 0; i < CLASSES; i++) other.results[i] = malloc(result_bytes(&p, i));
  trial_instantiate(&trial);
  problem_set(&trial, &p.all);
  int64_t replays = backend == RONDO_BACKEND_CUDA ? 1000 : 4 + 1000000 / (shape.m * shape.k);
  for (int64_t replay = 0; replay < replays; replay++) {
    float **first = replay % 2 ? other.results : p.results;
    set_vectors(&trial, &p, 100 + (uint64_t)replay % 2);
    trial_replay(&trial);
    for (int i = 0; i < CLASSES; i++) {
      const void *out = trial_output(&trial, p.out[i]);
      if (replay < 2) memcpy(first[i], out, result_bytes(&p, i));
      cr_assert(!memcmp(first[i], out, result_bytes(&p, i)), "%s x %s, %d x %d, %d vectors: replay %d differs",
                rondo_dtype_name(pair.weights), rondo_dtype_name(pair.vectors), (int)shape.m, (int)shape.k,
                (int)p.vectors[i], (int)replay);
    }
  }
  cr_assert(memcmp(p.results[0], other.results[0], result_bytes(&p, 0)), "both sets give the same");
  for (int i = 0; i < CLASSES; i++) free(other.results[i]);
  products_end(&p, &trial);
}

static void check_every_replay(rondo_backend backend) {
  for (int pair = 0; pair < PAIRS; pair++)
    for (int s = 0; s < SMALL_SHAPES; s++)
      if (is_tested(backend, pair, s)) check_replays(backend, pairs[pair], small_shapes[s]);
  for (int pair = 0; pair < PAIRS && backend == RONDO_BACKEND_CUDA; pair++)
    check_replays(backend, pairs[pair], large_shape);
}
BOTH_BACKENDS(gemv_bits, every_replay_gives_the_same_bits, check_every_replay)

/* ---- In every slot ----------------------------------------------------------------------------------------------- */

static void instantiate_slots(struct trial *trial, rondo_slot *slots) {
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(trial->graph, &plan));
  rondo_options options = {.backend = trial->backend,
                           .device_bytes = plan.device_bytes,
                           .pinned_bytes = plan.pinned_bytes_per_slot * SETS,
                           .host_bytes = plan.host_bytes};
  REQUIRE_OK(rondo_open(&options, &trial->runtime));
  REQUIRE_OK(rondo_instantiate(trial->runtime, trial->graph, &(rondo_exec_options){.slots = SETS}, &trial->exec));
  for (int s = 0; s < SETS; s++) REQUIRE_OK(rondo_acquire(trial->exec, &slots[s]));
  trial->slot = slots[0];
}

/* Each set of vectors alone in one slot, then every one in every slot, all in flight. */
static void check_slots(rondo_backend backend, struct pair pair, struct shape shape) {
  struct products p;
  struct trial trial;
  rondo_slot slots[SETS];
  void *expected[SETS][CLASSES];
  products_begin(&p, &trial, backend, pair, shape, of_each_class, CLASSES, false);
  instantiate_slots(&trial, slots);
  problem_set(&trial, &p.all);
  for (int set = 0; set < SETS; set++) {
    set_vectors(&trial, &p, 200 + (uint64_t)set);
    trial_replay(&trial);
    for (int i = 0; i < CLASSES; i++) {
      expected[set][i] = malloc(result_bytes(&p, i));
      memcpy(expected[set][i], trial_output(&trial, p.out[i]), result_bytes(&p, i));
    }
  }
  for (int round = 0; round < SETS; round++) {
    for (int s = 0; s < SETS; s++) {
      trial.slot = slots[s];
      set_vectors(&trial, &p, 200 + (uint64_t)(s + round) % SETS);
    }
    for (int s = 0; s < SETS; s++) REQUIRE_OK(rondo_replay(slots[s]));
    for (int s = 0; s < SETS; s++) {
      REQUIRE_OK(rondo_wait(slots[s], RONDO_FOREVER));
      trial.slot = slots[s];
      for (int i = 0; i < CLASSES; i++)
        cr_assert(!memcmp(expected[(s + round) % SETS][i], trial_output(&trial, p.out[i]), result_bytes(&p, i)),
                  "%s x %s, %d x %d, %d vectors: slot %d differs", rondo_dtype_name(pair.weights),
                  rondo_dtype_name(pair.vectors), (int)shape.m, (int)shape.k, (int)p.vectors[i], s);
    }
  }
  for (int s = 1; s < SETS; s++) REQUIRE_OK(rondo_release(slots[s]));
  trial.slot = slots[0];
  for (int set = 0; set < SETS; set++)
    for (int i = 0; i < CLASSES; i++) free(expected[set][i]);
  products_end(&p, &trial);
}

static void check_every_slot(rondo_backend backend) {
  for (int pair = 0; pair < PAIRS; pair++)
    for (int s = 0; s < SMALL_SHAPES; s++)
      if (is_tested(backend, pair, s)) check_slots(backend, pairs[pair], small_shapes[s]);
  for (int pair = 0; pair < PAIRS && backend == RONDO_BACKEND_CUDA; pair++)
    check_slots(backend, pairs[pair], large_shape);
}
BOTH_BACKENDS(gemv_bits, every_slot_gives_the_same_bits, check_every_slot)
