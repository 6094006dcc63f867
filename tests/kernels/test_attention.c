/* test_attention.c - the kernels that rondo_add_attention launches on each kind of chip, with the cut of the KV rows
 * and the parameters, and the descriptions that it refuses. Needs no GPU. Faults that would show: a kernel for another
 * size or type, a grid that leaves rows out, shared memory beyond the chip's, a refusal that is missing or says
 * something else. The numbers are checked in test_attention_numbers.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../kernels/attention/attention.h"
#include "../../kernels/attention/attention_portable.h"
#include "../support.h"

static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16};
static const int64_t dimensions[] = {32, 64, 128, 256};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- The choice of kernels ------------------------------------------------------------------------------------ */

static struct op_operand heads(rondo_dtype dtype, int64_t batch, int64_t head_count, int64_t length,
                               int64_t dimension) {
  return (struct op_operand){.present = true,
                             .dtype = dtype,
                             .rank = 4,
                             .shape = {batch, head_count, length, dimension},
                             .stride = {head_count * length * dimension, length * dimension, dimension, 1}};
}

/* One task at a time: they share their operands. */
static struct op_task task_of(rondo_dtype dtype, int64_t batch, int64_t query_heads, int64_t kv_heads,
                              int64_t query_length, int64_t capacity, int64_t dimension, int32_t splits) {
  static struct op_operand operands[OP_MAX_OPERANDS];
  memset(operands, 0, sizeof operands);
  struct op_task task = {
      .op = &op_attention, .name = "attention", .operand_count = ATTENTION_OPERANDS, .operands = operands};
  task.operands[ATTENTION_Q] = task.operands[ATTENTION_O] = heads(dtype, batch, query_heads, query_length, dimension);
  task.operands[ATTENTION_K] = task.operands[ATTENTION_V] = heads(dtype, batch, kv_heads, capacity, dimension);
  struct attention_attributes attributes = {.layout = RONDO_BHSD, .splits = splits};
  memcpy(task.attributes, &attributes, sizeof attributes);
  return task;
}

static const struct chip chips[] = {{80, 108, 166912}, {90, 132, 232448}, {100, 148, 232448}};

Test(attention, every_chip_has_a_kernel_and_the_same_cut) {
  for (size_t t = 0; t < COUNT(dtypes); t++)
    for (size_t n = 0; n < COUNT(dimensions); n++)
      for (size_t c = 0; c < COUNT(chips); c++) {
        struct op_task task = task_of(dtypes[t], 2, 8, 2, 5, 4096, dimensions[n], 0); /* too many rows to decode */
        struct op_call call = {.task = &task, .data = op_nowhere};
        struct op_launches launches;
        char kernel[64];
        snprintf(kernel, sizeof kernel, "rondo_attention_%s_%d", t ? "bf16" : "f16", (int)dimensions[n]);
        REQUIRE_OK(attention_select(&call, &chips[c], &launches));
        cr_assert_eq(launches.count, 2);
        cr_expect_str_eq(launches.items[0].kernel, kernel);
        cr_expect_str_eq(launches.items[1].kernel, "rondo_attention_combine");
        cr_expect_eq(launches.items[0].grid[0], 4 * 16); /* 4 KV heads, splits of 256 rows */
        cr_expect_eq(launches.items[1].grid[0], 80 / 4);
        cr_expect_leq(launches.items[0].shared_bytes, (uint32_t)chips[c].shared_bytes);
      }
}

static bool has_wide_kernel(int64_t dimension) { return dimension == 64 || dimension == 128; }

Test(attention, many_rows_have_blocks_of_128_and_few_of_64) {
  static const struct {
    int64_t batch, query_heads, kv_heads, query_length, block_rows;
  } cases[] = {{1, 8, 8, 1, 64},    {1, 8, 8, 2048, 64},  {1, 12, 12, 2048, 128},
               {64, 32, 8, 1, 64},  {64, 8, 8, 64, 64},   {64, 8, 8, 65, 128},
               {64, 32, 8, 16, 64}, {64, 32, 8, 17, 128}, {4, 16, 16, 4096, 128}};
  /* Chips without kernels of their own; a newer one than any translates the portable code. */
  static const struct chip others[] = {{80, 108, 166912}, {110, 20, 232448}};
  for (size_t n = 0; n < COUNT(dimensions); n++)
    for (size_t i = 0; i < COUNT(cases); i++)
      for (size_t c = 0; c < COUNT(others); c++) {
        struct op_task task = task_of(RONDO_BF16, cases[i].batch, cases[i].query_heads, cases[i].kv_heads,
                                      cases[i].query_length, 4096, dimensions[n], 1);
        struct op_call call = {.task = &task, .data = op_nowhere};
        struct op_launches launches;
        char kernel[64];
        bool many = cases[i].block_rows == 128 && has_wide_kernel(dimensions[n]);
        int64_t blocks = cases[i].batch * cases[i].kv_heads;
        blocks *=
            (cases[i].query_length * cases[i].query_heads / cases[i].kv_heads + (many ? 127 : 63)) / (many ? 128 : 64);
        snprintf(kernel, sizeof kernel, "rondo_attention_bf16_%d%s", (int)dimensions[n], many ? "_wide" : "");
        REQUIRE_OK(attention_select(&call, &others[c], &launches));
        cr_expect_str_eq(launches.items[0].kernel, kernel);
        cr_expect_eq(launches.items[0].grid[0], blocks);
        /* Two of them to a multiprocessor, which takes 1 KiB for itself of each. */
        if (many) cr_expect_leq(2 * (launches.items[0].shared_bytes + 2048), (uint32_t)others[c].shared_bytes + 1024);
      }
}

/* The wide kernel of head dimension 64 has tiles of 128 KV rows. */
Test(attention, splits_of_half_a_wide_tile_have_blocks_of_64) {
  for (size_t n = 0; n < COUNT(dimensions); n++)
    for (int32_t splits = 1; splits < 9; splits++) {
      struct op_task task = task_of(RONDO_F16, 8, 8, 8, 130, 512, dimensions[n], splits);
      struct attention_shape shape = attention_shape_of(&task);
      const bool whole = shape.splits == 1 || shape.split_rows % 128 == 0, wide = shape.block_rows == 128;
      if (splits > 1) cr_expect_eq(wide, whole && has_wide_kernel(dimensions[n]), "%d splits", splits);
    }
}

Test(attention, cuts_are_of_whole_tiles_and_cover_the_capacity) {
  static const int64_t capacities[] = {0, 1, 64, 65, 511, 512, 513, 4096, 100000};
  static const int32_t splits[] = {0, 1, 2, 5, 32, 256};
  for (size_t i = 0; i < COUNT(capacities); i++)
    for (size_t s = 0; s < COUNT(splits); s++) {
      struct op_task task = task_of(RONDO_F16, 1, 4, 1, 1, capacities[i], 64, splits[s]);
      struct attention_shape shape = attention_shape_of(&task);
      cr_expect_geq(shape.splits, 1);
      cr_expect_eq(shape.split_rows % 64, 0);
      cr_expect_geq(shape.splits * shape.split_rows, capacities[i]);
      cr_expect(shape.splits == 1 || (shape.splits - 1) * shape.split_rows < capacities[i]); /* none is empty */
      if (splits[s]) cr_expect_leq(shape.splits, splits[s]);
      if (!splits[s] && shape.splits > 1) cr_expect_geq(shape.split_rows, 256);
      uint64_t expected = shape.splits > 1 ? (uint64_t)shape.splits * 4 * (64 + 1) * sizeof(float) : 0;
      cr_expect_eq(attention_scratch_bytes(&task), expected);
    }
}

/* On a chip without kernels of its own. */
static struct attention_general_parameters general_parameters_of(const struct op_task *task, const char *kernel,
                                                                 uint32_t blocks) {
  const struct op_call call = {.task = task, .data = op_nowhere};
  struct op_launches launches;
  struct attention_general_parameters parameters;
  REQUIRE_OK(attention_select(&call, &chips[0], &launches));
  cr_expect_str_eq(launches.items[0].kernel, kernel);
  cr_expect_eq(launches.items[0].grid[0], blocks);
  cr_assert_eq(launches.items[0].parameter_bytes, sizeof parameters);
  memcpy(&parameters, launches.items[0].parameters, sizeof parameters);
  return parameters;
}

Test(attention, pages_windows_caps_and_e4m3_have_a_kernel_that_takes_them_all) {
  for (size_t t = 0; t < COUNT(dtypes); t++)
    for (size_t n = 0; n < COUNT(dimensions); n++) {
      char kernel[64];
      snprintf(kernel, sizeof kernel, "rondo_attention_general_%s_%d", t ? "bf16" : "f16", (int)dimensions[n]);
      /* Never in blocks of 128 rows, however many there are. */
      struct op_task task = task_of(dtypes[t], 12, 8, 8, 640, 32, dimensions[n], 1);
      task.operands[ATTENTION_Q].dtype = task.operands[ATTENTION_K].dtype = task.operands[ATTENTION_V].dtype =
          RONDO_E4M3;
      task.operands[ATTENTION_K].shape[0] = task.operands[ATTENTION_V].shape[0] = 50; /* pages of 32 rows */
      task.operands[ATTENTION_KV_PAGES] =
          (struct op_operand){.present = true, .dtype = RONDO_I32, .rank = 2, .shape = {12, 20}, .stride = {23, 1}};
      struct attention_attributes attributes = {.causal = 1,
                                                .splits = 1,
                                                .scale = 0.5f,
                                                .window = 639,
                                                .soft_cap = 4.0f,
                                                .q_scale = 2.0f,
                                                .k_scale = 3.0f,
                                                .v_scale = 7.0f};
      memcpy(task.attributes, &attributes, sizeof attributes);
      struct attention_general_parameters parameters = general_parameters_of(&task, kernel, 12 * 8 * 10);
      cr_expect_eq(parameters.plain.capacity, 640);
      cr_expect_eq(parameters.pages_stride, 23);
      cr_expect_eq(parameters.pool_pages, 50);
      cr_expect_eq(parameters.page_shift, 5);
      cr_expect_eq(parameters.window, 639);
      cr_expect(parameters.q_e4m3 && parameters.kv_e4m3 && parameters.capped);
      cr_expect_float_eq((double)parameters.cap_scale, 0.5 * 2.0 * 3.0 / 4.0, 1e-6);
      cr_expect_float_eq((double)parameters.plain.scale_log2, 4.0 * 1.44269504, 1e-6);
      cr_expect_float_eq((double)parameters.v_scale, 7.0, 1e-6);
      cr_expect_eq(parameters.plain.bf16, t);
    }
}

Test(attention, a_window_of_all_columns_is_none) {
  struct op_task task = task_of(RONDO_F16, 1, 2, 2, 64, 640, 64, 1);
  struct attention_attributes attributes = {.causal = 1, .splits = 1, .window = 640};
  memcpy(task.attributes, &attributes, sizeof attributes);
  cr_expect(attention_shape_of(&task).plain);
  attributes.window = 639;
  memcpy(task.attributes, &attributes, sizeof attributes);
  cr_expect_eq(general_parameters_of(&task, "rondo_attention_general_f16_64", 2).window, 639);
}

Test(attention, items_that_share_pages_are_cut_into_a_grid_at_most) {
  struct op_task task = task_of(RONDO_F16, (int64_t)1 << 24, 1, 1, 1, 16, 32, 256);
  task.operands[ATTENTION_K].shape[0] = task.operands[ATTENTION_V].shape[0] = 1;
  task.operands[ATTENTION_KV_PAGES] = (struct op_operand){
      .present = true, .dtype = RONDO_I32, .rank = 2, .shape = {(int64_t)1 << 24, 2048}, .stride = {0, 1}};
  struct attention_shape shape = attention_shape_of(&task);
  cr_expect_leq(shape.splits, INT32_MAX >> 24);
  cr_expect_geq(shape.splits * shape.split_rows, INT64_C(2048) * 16);
}

Test(attention, choice_knows_alignment_and_refuses_a_chip_that_is_too_small) {
  struct op_task task = task_of(RONDO_BF16, 1, 2, 2, 64, 64, 256, 1);
  struct op_call call = {.task = &task, .data = op_nowhere};
  struct op_launches launches;
  struct attention_parameters parameters;
  struct chip small = {75, 40, 65536};
  REQUIRE_ERROR(attention_select(&call, &small, &launches), RONDO_UNSUPPORTED, "shared memory");
  REQUIRE_OK(attention_select(&call, &chips[2], &launches));
  cr_assert_eq(launches.count, 1);
  cr_assert_eq(launches.items[0].parameter_bytes, sizeof parameters);
  memcpy(&parameters, launches.items[0].parameters, sizeof parameters);
  cr_expect(parameters.aligned);
  for (int i = 0; i < 2; i++) {
    struct op_operand operands[ATTENTION_OPERANDS];
    struct op_task moved = task;
    moved.operands = memcpy(operands, task.operands, sizeof operands);
    if (i)
      moved.operands[ATTENTION_V].stride[2] += 1;
    else
      moved.operands[ATTENTION_K].offset_bytes = 8;
    call.task = &moved;
    REQUIRE_OK(attention_select(&call, &chips[2], &launches));
    memcpy(&parameters, launches.items[0].parameters, sizeof parameters);
    cr_expect_not(parameters.aligned);
  }
}

/* ---- Bad descriptions ----------------------------------------------------------------------------------------- */

static rondo_tensor tensor_of(rondo_graph *graph, rondo_dtype dtype, uint32_t rank, int64_t w, int64_t x, int64_t y,
                              int64_t z) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_temporary(graph, NULL, dtype, rank, (int64_t[]){w, x, y, z}, &tensor));
  return tensor;
}

Test(attention, refuses_operands_that_do_not_fit_together) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_tensor q = tensor_of(g, RONDO_F16, 4, 2, 12, 7, 64), o = tensor_of(g, RONDO_F16, 4, 2, 12, 7, 64);
  rondo_tensor k = tensor_of(g, RONDO_F16, 4, 2, 4, 9, 64), v = tensor_of(g, RONDO_F16, 4, 2, 4, 9, 64);
  rondo_tensor five = tensor_of(g, RONDO_F16, 4, 2, 5, 9, 64), longer = tensor_of(g, RONDO_F16, 4, 2, 4, 10, 64);
  rondo_tensor bf16 = tensor_of(g, RONDO_BF16, 4, 2, 4, 9, 64), f32 = tensor_of(g, RONDO_F32, 4, 2, 12, 7, 64);
  rondo_tensor wide = tensor_of(g, RONDO_F16, 4, 2, 4, 9, 128), odd = tensor_of(g, RONDO_F16, 4, 2, 12, 7, 96);
  rondo_tensor flat = tensor_of(g, RONDO_F16, 3, 2, 12, 64, 0), batch = tensor_of(g, RONDO_F16, 4, 3, 4, 9, 64);
  rondo_tensor short_o = tensor_of(g, RONDO_F16, 4, 2, 12, 6, 64), heads_o = tensor_of(g, RONDO_F16, 4, 2, 4, 7, 64);
  rondo_tensor lse = tensor_of(g, RONDO_F32, 3, 2, 12, 7, 0), lse_f16 = tensor_of(g, RONDO_F16, 3, 2, 12, 7, 0);
  rondo_tensor lse_7 = tensor_of(g, RONDO_F32, 3, 2, 7, 12, 0);
  rondo_tensor lengths = tensor_of(g, RONDO_I32, 1, 2, 0, 0, 0), three = tensor_of(g, RONDO_I32, 1, 3, 0, 0, 0);
  rondo_tensor lengths_f32 = tensor_of(g, RONDO_F32, 1, 2, 0, 0, 0);
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_attention(g, &(rondo_attention_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REFUSED("q is absent", .k = k, .v = v, .o = o);
  REFUSED("k is absent", .q = q, .v = v, .o = o);
  REFUSED("v is absent", .q = q, .k = k, .o = o);
  REFUSED("o is absent", .q = q, .k = k, .v = v);
  REFUSED("k has 5 heads, q has 12: query heads must be a multiple", .q = q, .k = five, .v = five, .o = o);
  REFUSED("v is [2, 5, 9, 64] f16, expected [2, 4, 9, 64] f16", .q = q, .k = k, .v = five, .o = o);
  REFUSED("v is [2, 4, 10, 64] f16, expected [2, 4, 9, 64] f16", .q = q, .k = k, .v = longer, .o = o);
  REFUSED("k is bf16, expected q's type, f16, or e4m3", .q = q, .k = bf16, .v = v, .o = o);
  REFUSED("q is f32, expected f16, bf16 or e4m3", .q = f32, .k = k, .v = v, .o = o);
  REFUSED("o is [2, 12, 7, 64] f32, expected [2, 12, 7, 64] f16", .q = q, .k = k, .v = v, .o = f32);
  REFUSED("v is [2, 4, 9, 128] f16, expected [2, 4, 9, 64] f16", .q = q, .k = k, .v = wide, .o = o);
  REFUSED("q has head dimension 96, expected 32, 64, 128 or 256", .q = odd, .k = k, .v = v, .o = o);
  REFUSED("q has rank 3, expected 4", .q = flat, .k = k, .v = v, .o = o);
  REFUSED("k has batch 3, q has 2", .q = q, .k = batch, .v = v, .o = o);
  REFUSED("o is [2, 12, 6, 64] f16, expected [2, 12, 7, 64] f16", .q = q, .k = k, .v = v, .o = short_o);
  REFUSED("o is [2, 4, 7, 64] f16, expected [2, 12, 7, 64] f16", .q = q, .k = k, .v = v, .o = heads_o);
  REFUSED("lse is [2, 12, 7] f16, expected [2, 12, 7] f32", .q = q, .k = k, .v = v, .o = o, .lse = lse_f16);
  REFUSED("lse is [2, 7, 12] f32, expected [2, 12, 7] f32", .q = q, .k = k, .v = v, .o = o, .lse = lse_7);
  REFUSED("kv_lengths is [2] f32, expected [2] i32", .q = q, .k = k, .v = v, .o = o, .kv_lengths = lengths_f32);
  REFUSED("kv_lengths is [3] i32, expected [2] i32", .q = q, .k = k, .v = v, .o = o, .kv_lengths = three);
  REFUSED("layout is 7, expected RONDO_BHSD or RONDO_BSHD", .layout = (rondo_head_layout)7, .q = q, .k = k, .v = v,
          .o = o);
  REFUSED("k has 9 heads, q has 7", .layout = RONDO_BSHD, .q = q, .k = k, .v = v, .o = o);
  REFUSED("splits is -1, expected 0", .q = q, .k = k, .v = v, .o = o, .splits = -1);
  REFUSED("splits is 257, expected 0", .q = q, .k = k, .v = v, .o = o, .splits = 257);
  REFUSED("scale is nan", .q = q, .k = k, .v = v, .o = o, .scale = NAN);
  REFUSED("overlap", .q = q, .k = k, .v = v, .o = q);
#undef REFUSED
  REQUIRE_ERROR(rondo_add_attention(g, NULL), RONDO_INVALID_ARGUMENT, "the description is NULL");
  REQUIRE_ERROR(rondo_add_attention(NULL, &(rondo_attention_desc){.q = q}), RONDO_INVALID_ARGUMENT, "graph");
  REQUIRE_OK(rondo_add_attention(
      g, &(rondo_attention_desc){.q = q, .k = k, .v = v, .o = o, .kv_lengths = lengths, .lse = lse, .splits = 256}));
  trial_end(&trial);
}

Test(attention, refuses_pages_windows_caps_and_scales_that_do_not_fit) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_tensor q = tensor_of(g, RONDO_F16, 4, 2, 12, 7, 64), o = tensor_of(g, RONDO_F16, 4, 2, 12, 7, 64);
  rondo_tensor k = tensor_of(g, RONDO_F16, 4, 5, 4, 32, 64), v = tensor_of(g, RONDO_F16, 4, 5, 4, 32, 64);
  rondo_tensor six = tensor_of(g, RONDO_F16, 4, 6, 4, 32, 64), longer = tensor_of(g, RONDO_F16, 4, 5, 4, 64, 64);
  rondo_tensor of_8 = tensor_of(g, RONDO_F16, 4, 5, 4, 8, 64), of_48 = tensor_of(g, RONDO_F16, 4, 5, 4, 48, 64);
  rondo_tensor flat = tensor_of(g, RONDO_F16, 3, 5, 4, 64, 0), none = tensor_of(g, RONDO_F16, 4, 5, 4, 0, 64);
  rondo_tensor table = tensor_of(g, RONDO_I32, 2, 2, 9, 0, 0), three = tensor_of(g, RONDO_I32, 2, 3, 9, 0, 0);
  rondo_tensor rank_1 = tensor_of(g, RONDO_I32, 1, 18, 0, 0, 0), floats = tensor_of(g, RONDO_F32, 2, 2, 9, 0, 0);
  rondo_tensor endless = tensor_of(g, RONDO_I32, 2, 2, (1 << 21) + 1, 0, 0);
  rondo_tensor kc = tensor_of(g, RONDO_E4M3, 4, 2, 4, 9, 64), vc = tensor_of(g, RONDO_E4M3, 4, 2, 4, 9, 64);
  rondo_tensor k2 = tensor_of(g, RONDO_F16, 4, 2, 4, 9, 64), v2 = tensor_of(g, RONDO_F16, 4, 2, 4, 9, 64);
  rondo_tensor qc = tensor_of(g, RONDO_E4M3, 4, 2, 12, 7, 64), oc = tensor_of(g, RONDO_E4M3, 4, 2, 12, 7, 64);
  rondo_tensor bf16 = tensor_of(g, RONDO_BF16, 4, 2, 12, 7, 64);
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_attention(g, &(rondo_attention_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
#define PAGED .q = q, .v = v, .o = o
  REFUSED("k has batch 5, q has 2", PAGED, .k = k);
  REFUSED("kv_pages is f32, expected i32", PAGED, .k = k, .kv_pages = floats);
  REFUSED("kv_pages has rank 1, expected 2: batch, pages of an item", PAGED, .k = k, .kv_pages = rank_1);
  REFUSED("kv_pages has batch 3, q has 2", PAGED, .k = k, .kv_pages = three);
  REFUSED("k has pages of 8 rows, expected a power of two of at least 16", PAGED, .k = of_8, .kv_pages = table);
  REFUSED("k has pages of 48 rows, expected a power of two", PAGED, .k = of_48, .kv_pages = table);
  REFUSED("k has pages of 0 rows, expected a power of two", PAGED, .k = none, .kv_pages = table);
  REFUSED("kv_pages has 2097153 pages of 32 rows for an item, expected at most 67108864 rows", PAGED, .k = k,
          .kv_pages = endless);
  REFUSED("v is [5, 4, 32, 64] f16, expected [6, 4, 32, 64] f16", PAGED, .k = six, .kv_pages = table);
  REFUSED("v is [5, 4, 32, 64] f16, expected [5, 4, 64, 64] f16", PAGED, .k = longer, .kv_pages = table);
  REFUSED("k has rank 3, expected 4: pages, heads, page rows", PAGED, .k = flat, .kv_pages = table);
#undef PAGED
#define PLAIN .q = q, .k = k2, .v = v2, .o = o
  REFUSED("window is -1, expected 0 (none) or more", PLAIN, .window = -1, .causal = 1);
  REFUSED("window is 5 without causal", PLAIN, .window = 5);
  REFUSED("soft_cap is -1, expected 0 (none) or a number above it", PLAIN, .soft_cap = -1.0f);
  REFUSED("soft_cap is inf", PLAIN, .soft_cap = INFINITY);
  REFUSED("soft_cap is nan", PLAIN, .soft_cap = NAN);
  REFUSED("soft_cap is 3e+38, expected 0 (none) or a number above it, at most 1.70141e+38", PLAIN, .soft_cap = 3e38f);
  REFUSED("too small for scores that are multiplied by 0.125", PLAIN, .soft_cap = 1e-44f);
  REFUSED("too large for scores that are multiplied by 0.125", PLAIN, .soft_cap = 1e38f);
  REFUSED("scale, q_scale and k_scale give -3e+38, expected a finite product other than 0, at most 1.70141e+38", PLAIN,
          .scale = -3e38f);
  REFUSED("q_scale is 2, but q is f16: only e4m3 has one", PLAIN, .q_scale = 2.0f);
  REFUSED("k_scale is 2, but k is f16: only e4m3 has one", PLAIN, .k_scale = 2.0f);
  REFUSED("v_scale is 2, but v is f16: only e4m3 has one", PLAIN, .v_scale = 2.0f);
#undef PLAIN
  REFUSED("v is [2, 4, 9, 64] f16, expected [2, 4, 9, 64] e4m3", .q = q, .k = kc, .v = v2, .o = o);
  REFUSED("v is [2, 4, 9, 64] e4m3, expected [2, 4, 9, 64] f16", .q = q, .k = k2, .v = vc, .o = o);
  REFUSED("k is f16, expected q's type, e4m3", .q = qc, .k = k2, .v = v2, .o = o);
  REFUSED("o is e4m3, expected f16 or bf16", .q = qc, .k = kc, .v = vc, .o = oc);
  REFUSED("o is [2, 12, 7, 64] bf16, expected [2, 12, 7, 64] f16", .q = q, .k = kc, .v = vc, .o = bf16);
#define CODES .q = qc, .k = kc, .v = vc, .o = o
  REFUSED("v_scale is inf, expected a finite number", CODES, .v_scale = INFINITY);
  REFUSED("q_scale is nan, expected a finite number", CODES, .q_scale = NAN);
  REFUSED("scale, q_scale and k_scale give inf, expected a finite product", CODES, .q_scale = 1e30f, .k_scale = 1e30f);
  REFUSED("scale, q_scale and k_scale give 0, expected", CODES, .q_scale = 1e-30f, .k_scale = 1e-30f);
#undef CODES
#undef REFUSED
  REQUIRE_OK(rondo_add_attention(g, &(rondo_attention_desc){.q = q, .k = k, .v = v, .o = o, .kv_pages = table}));
  REQUIRE_OK(rondo_add_attention(
      g, &(rondo_attention_desc){.q = qc, .k = kc, .v = vc, .o = bf16, .q_scale = 2.0f, .k_scale = 0.5f}));
  trial_end(&trial);
}
