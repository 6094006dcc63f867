/* test_gemv_select.c - what rondo.h says of the order of sums, of the kernels that are launched: within a class of
 * counts a product has one kernel, which cuts k in one way. The plans' own tests ask each of them alone; here is which
 * of them is asked first, too. */
#include <criterion/criterion.h>
#include <string.h>

#include "../oracles/gemv_launch.h"

/* Shapes of language models, and others that more than one plan would take. */
static const struct {
  int64_t m, k;
} shapes[] = {
    {576, 576},     {1536, 576},   {576, 1536},   {49152, 576},   {33793, 960},  {17005, 480},  {151936, 896},
    {128256, 1024}, {3072, 2048},  {28672, 2048}, {100000, 1024}, {4096, 4096},  {14336, 4096}, {128256, 4096},
    {32768, 7168},  {16384, 8192}, {4096, 11008}, {5120, 13824},  {4096, 14336}, {7168, 16384}, {523, 32768},
    {17, 4224},     {1, 65536},    {7, 32},       {1000, 1008},   {50257, 768},  {262144, 640},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const struct { int64_t first, last; } classes[] = {{3, 4}, {5, 8}, {9, 16}};

struct chosen {
  struct op_launch launch;
  struct gemv_parameters parameters;
};

static struct chosen chosen_of(struct described what) {
  struct chosen chosen = {.launch = launch_of(what)};
  memcpy(&chosen.parameters, chosen.launch.parameters, sizeof chosen.parameters);
  return chosen;
}

/* The kernel has the order inside of a part; how many parts there are, and of clusters and chunks, is in these. */
static void check_same(const struct described *what, const struct chosen *one, const struct chosen *other) {
  cr_assert(!strcmp(one->launch.kernel, other->launch.kernel) && one->parameters.parts == other->parameters.parts &&
                one->parameters.chunks == other->parameters.chunks,
            "%d x %d, vectors of type %d: %d have %s, %u x %u, %u have %s, %u x %u", (int)what->m, (int)what->k,
            (int)what->vectors, (int)what->count, one->launch.kernel, one->parameters.parts, one->parameters.chunks,
            other->parameters.count, other->launch.kernel, other->parameters.parts, other->parameters.chunks);
}

static void check_counts(struct described what, int64_t first, int64_t last) {
  what.count = last;
  const struct chosen expected = chosen_of(what);
  for (what.count = first; what.count < last; what.count++) {
    const struct chosen chosen = chosen_of(what);
    check_same(&what, &chosen, &expected);
  }
}

static const rondo_dtype types[] = {RONDO_NVFP4, RONDO_F16, RONDO_BF16};

Test(gemv_select, three_and_four_five_to_eight_and_more_vectors_have_one_order_each) {
  for (int i = 0; i < SHAPES; i++)
    for (int type = 0; type < 3; type++)
      for (int finishes = 0; finishes < 2; finishes++)
        for (int class = 0; class < 3; class ++) {
          const struct described what = {
              .vectors = types[type], .m = shapes[i].m, .k = shapes[i].k, .silu_mul = finishes && shapes[i].m % 2 == 0};
          check_counts(what, classes[class].first, classes[class].last);
        }
}

Test(gemv_select, with_one_order_all_counts_have_the_same) {
  for (int i = 0; i < SHAPES; i++)
    for (int type = 0; type < 3; type++) {
      const struct described what = {.vectors = types[type], .m = shapes[i].m, .k = shapes[i].k, .one_order = 1};
      check_counts(what, 1, 8);
      check_counts(what, 9, 16);
    }
}

/* ---- Early weights ----------------------------------------------------------------------------------------------- */

static uint32_t early_of(struct described what) {
  struct gemv_parameters parameters;
  struct op_launch launch = launch_of(what);
  memcpy(&parameters, launch.parameters, sizeof parameters);
  return parameters.early;
}

Test(gemv_select, small_matrices_let_one_successor_start_whoever_writes_their_weights) {
  cr_expect_eq(early_of((struct described){.vectors = RONDO_BF16, .m = 576, .k = 576}),
               GEMV_READS_EARLY | GEMV_STARTS_ONE);
  cr_expect_eq(early_of((struct described){.vectors = RONDO_BF16, .m = 576, .k = 576, .written = true}),
               GEMV_STARTS_ONE);
  /* A ring, and tiles that take turns. */
  cr_expect_eq(early_of((struct described){.vectors = RONDO_BF16}), GEMV_READS_EARLY);
  cr_expect_eq(early_of((struct described){.vectors = RONDO_F16, .count = 16, .one_order = 1}), GEMV_READS_EARLY);
}
