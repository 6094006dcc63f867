/* test_softmax_choice.c - the descriptions that rondo_add_gemm_rowmax and rondo_add_gemm_softmax refuse, each with its
 * sentence, and the kernels that they launch on each kind of chip. Needs no GPU. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../../kernels/gemm_softmax/gemm_softmax.h"
#include "../support.h"
#include <rondo_graphs.h>

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static rondo_tensor tensor_of(rondo_graph *graph, rondo_dtype dtype, uint32_t rank, int64_t d0, int64_t d1,
                              int64_t d2) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(graph, "t", dtype, rank, (int64_t[]){d0, d1, d2}, &tensor));
  return tensor;
}

static rondo_status rowmax_add(rondo_graph *graph, rondo_tensor a, rondo_tensor b, rondo_tensor max) {
  return rondo_add_gemm_rowmax(graph, &(rondo_gemm_rowmax_desc){.a = a, .b = b, .max = max});
}

static rondo_status softmax_add(rondo_graph *graph, rondo_tensor a, rondo_tensor b, rondo_tensor p) {
  return rondo_add_gemm_softmax(graph, &(rondo_gemm_softmax_desc){.a = a, .b = b, .p = p});
}

Test(softmax, gemm_softmax_refuses_what_does_not_fit_together) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_tensor absent = {0}, a = tensor_of(g, RONDO_F16, 3, 2, 8, 16), b = tensor_of(g, RONDO_F16, 3, 2, 9, 16);
  rondo_tensor p = tensor_of(g, RONDO_F32, 3, 2, 8, 9), max = tensor_of(g, RONDO_F32, 2, 2, 8, 0);
  rondo_tensor f32 = tensor_of(g, RONDO_F32, 3, 2, 8, 16), bf16 = tensor_of(g, RONDO_BF16, 3, 2, 9, 16);
  const rondo_status invalid = RONDO_INVALID_ARGUMENT;

  REQUIRE_ERROR(rondo_add_gemm_rowmax(g, NULL), invalid, "the description is NULL");
  REQUIRE_ERROR(rondo_add_gemm_softmax(g, NULL), invalid, "the description is NULL");
  REQUIRE_ERROR(softmax_add(g, absent, b, p), invalid, "a is absent");
  REQUIRE_ERROR(softmax_add(g, a, absent, p), invalid, "b is absent");
  REQUIRE_ERROR(softmax_add(g, a, b, absent), invalid, "p is absent");
  REQUIRE_ERROR(rowmax_add(g, a, b, absent), invalid, "max is absent");
  REQUIRE_ERROR(softmax_add(g, f32, b, p), invalid,
                "a is [2, 8, 16] f32, expected [m, k] or [batch, m, k] f16 or bf16");
  REQUIRE_ERROR(softmax_add(g, a, bf16, p), invalid, "b is [2, 9, 16] bf16, expected [2, n, 16] f16");
  REQUIRE_ERROR(softmax_add(g, tensor_of(g, RONDO_F16, 1, 8, 0, 0), b, p), invalid, "a is [8] f16, expected [m, k]");
  REQUIRE_ERROR(softmax_add(g, a, tensor_of(g, RONDO_F16, 2, 9, 16, 0), p), invalid,
                "b is [9, 16] f16, expected [2, n, 16]");
  REQUIRE_ERROR(softmax_add(g, a, b, tensor_of(g, RONDO_F32, 2, 8, 9, 0)), invalid,
                "p is [8, 9] f32, expected [2, 8, 9]");
  REQUIRE_ERROR(rowmax_add(g, a, b, p), invalid, "max is [2, 8, 9] f32, expected [2, 8] f32");
  REQUIRE_ERROR(softmax_add(g, a, tensor_of(g, RONDO_F16, 3, 2, 9, 17), p), invalid,
                "b is [2, 9, 17] f16, expected [2, n, 16]");
  REQUIRE_ERROR(softmax_add(g, a, tensor_of(g, RONDO_F16, 3, 3, 9, 16), p), invalid,
                "b is [3, 9, 16] f16, expected [2, n, 16]");
  REQUIRE_ERROR(softmax_add(g, a, b, tensor_of(g, RONDO_F32, 3, 3, 8, 9)), invalid,
                "p is [3, 8, 9] f32, expected [2, 8, 9]");
  REQUIRE_ERROR(softmax_add(g, a, b, tensor_of(g, RONDO_F32, 3, 2, 7, 9)), invalid,
                "p is [2, 7, 9] f32, expected [2, 8, 9]");
  REQUIRE_ERROR(softmax_add(g, a, b, tensor_of(g, RONDO_F32, 3, 2, 8, 8)), invalid,
                "p is [2, 8, 8] f32, expected [2, 8, 9]");
  REQUIRE_ERROR(softmax_add(g, a, b, tensor_of(g, RONDO_F64, 3, 2, 8, 9)), invalid,
                "p is [2, 8, 9] f64, expected [m, n] or [batch, m, n] f16, bf16 or f32");
  REQUIRE_ERROR(rowmax_add(g, a, b, tensor_of(g, RONDO_F32, 2, 2, 9, 0)), invalid,
                "max is [2, 9] f32, expected [2, 8]");
  REQUIRE_ERROR(rowmax_add(g, a, b, tensor_of(g, RONDO_F16, 2, 2, 8, 0)), invalid,
                "max is [2, 8] f16, expected [2, 8] f32");
  REQUIRE_ERROR(rondo_add_gemm_softmax(g, &(rondo_gemm_softmax_desc){.a = a, .b = b, .p = p, .scale = NAN}), invalid,
                "scale is nan");
  REQUIRE_ERROR(rondo_add_gemm_rowmax(g, &(rondo_gemm_rowmax_desc){.a = a, .b = b, .max = max, .scale = INFINITY}),
                invalid, "scale is inf");
  REQUIRE_OK(rowmax_add(g, a, b, max));
  REQUIRE_OK(softmax_add(g, a, b, p));

  rondo_graph_gemm_softmax_tensors tensors;
  rondo_graph_gemm_softmax_desc desc = {.dtype = RONDO_F16, .p_dtype = RONDO_F16, .batch = 1, .m = 2, .n = 3, .k = 4};
  REQUIRE_ERROR(rondo_graph_gemm_softmax(g, NULL, &tensors), invalid, "the description is NULL");
  REQUIRE_ERROR(rondo_graph_gemm_softmax(g, &desc, NULL), invalid, "the tensors' address is NULL");
  desc.dtype = RONDO_F32;
  REQUIRE_ERROR(rondo_graph_gemm_softmax(g, &desc, &tensors), invalid,
                "a is [1, 2, 4] f32, expected [m, k] or [batch, m, k] f16 or bf16 (a: input 'gemm_softmax a')");
  desc.dtype = RONDO_F16, desc.p_dtype = RONDO_E4M3;
  REQUIRE_ERROR(rondo_graph_gemm_softmax(g, &desc, &tensors), invalid,
                "p is [1, 2, 3] e4m3, expected [m, n] or [batch, m, n] f16, bf16 or f32");
  desc.p_dtype = RONDO_F16, desc.n = -1;
  REQUIRE_ERROR(rondo_graph_gemm_softmax(g, &desc, &tensors), invalid, "tensor 'gemm_softmax b': dimension 1 is -1");
  trial_end(&trial);
}

/* ---- Choice of kernel -------------------------------------------------------------------------------------------- */

static struct op_operand operand_of(rondo_dtype dtype, int64_t rows, int64_t columns, int64_t stride, uint64_t offset) {
  return (struct op_operand){.present = true,
                             .dtype = dtype,
                             .rank = 2,
                             .shape = {rows, columns},
                             .stride = {stride, 1},
                             .offset_bytes = offset};
}

static const struct chip h200 = {.version = 90, .multiprocessors = 132, .shared_bytes = 232448};

static const struct op_launch *selected(struct op_operand *operands, struct gemm_softmax_attributes attributes,
                                        struct chip chip, struct op_launches *launches) {
  struct op_task task = {.op = &op_gemm_softmax, .operand_count = 3, .operands = operands};
  struct op_call call = {.task = &task, .data = (void *[3]){0}};
  memcpy(task.attributes, &attributes, sizeof attributes);
  REQUIRE_OK(op_gemm_softmax.select(&call, &chip, launches));
  return &launches->items[0];
}

static struct op_launch launch_of(struct op_operand a, struct op_operand b, struct op_operand p,
                                  struct gemm_softmax_parameters *parameters) {
  struct op_launches launches;
  const struct op_launch *launch =
      selected((struct op_operand[]){a, b, p}, (struct gemm_softmax_attributes){0}, h200, &launches);
  cr_assert(launches.count == 1);
  memcpy(parameters, launch->parameters, sizeof *parameters);
  return *launch;
}

/* Tensor maps where all operands can have them, three coordinates whatever their rank; else the portable kernels. */
Test(softmax, gemm_softmax_select_takes_warpgroups_on_sm_90_where_operands_can_be_mapped) {
  struct op_operand operands[] = {operand_of(RONDO_BF16, 4096, 56, 64, 0), operand_of(RONDO_BF16, 4092, 56, 64, 32),
                                  operand_of(RONDO_F32, 4096, 4092, 4096, 16)};
  const struct gemm_softmax_attributes plain = {0};
  struct op_launches launches;
  const struct op_launch *launch = selected(operands, plain, h200, &launches);
  cr_assert(strcmp(launch->kernel, "rondo_gemm_softmax_resident") == 0, "%s", launch->kernel);
  cr_assert(launch->map_count == 3 && launch->grid[0] % 8 == 0);
  for (uint32_t i = 0; i < 3; i++) cr_assert_eq(launch->maps[i].rank, 3);
  cr_assert(launch->maps[2].box[0] == 32 && launch->maps[2].box[1] == 64 && launch->maps[2].size[0] == 4092);
  cr_assert(launch->maps[1].box[0] == 64 && launch->maps[1].box[1] == 256 && launch->maps[1].size[0] == 56);

  struct chip chip = h200;
  chip.version = 80;
  selected(operands, plain, chip, &launches);
  cr_assert(strcmp(launches.items[0].kernel, "rondo_gemm_softmax_128") == 0);
  chip.version = 90, chip.shared_bytes = 100000; /* too little of it */
  selected(operands, plain, chip, &launches);
  cr_assert(strcmp(launches.items[0].kernel, "rondo_gemm_softmax_128") == 0);
  for (int i = 0; i < 3; i++) { /* one that begins at no multiple of 16 bytes */
    operands[i].offset_bytes += 8;
    selected(operands, plain, h200, &launches);
    cr_assert(strcmp(launches.items[0].kernel, "rondo_gemm_softmax_128") == 0, "operand %d", i);
    operands[i].offset_bytes -= 8;
  }
  operands[1].shape[0] = operands[2].shape[1] = 4091; /* rows that end inside of 16 bytes */
  selected(operands, plain, h200, &launches);
  cr_assert(strcmp(launches.items[0].kernel, "rondo_gemm_softmax_128") == 0);
  operands[1].shape[0] = operands[2].shape[1] = 4092;
  const struct gemm_softmax_attributes immense = {.scale = 3e38f}; /* which times log2(e) is no number */
  selected(operands, immense, h200, &launches);
  cr_assert(strcmp(launches.items[0].kernel, "rondo_gemm_softmax_128") == 0);
}

/* B's rows are dealt by groups of 128, where its view has them and all columns count. */
Test(softmax, gemm_softmax_select_deals_rows_of_b_where_a_map_can) {
  struct op_operand operands[] = {operand_of(RONDO_F16, 500, 104, 104, 0), operand_of(RONDO_F16, 2176, 104, 112, 0),
                                  operand_of(RONDO_BF16, 500, 2176, 2176, 0)};
  const struct gemm_softmax_attributes plain = {0};
  struct op_launches launches;
  const struct op_launch *launch = selected(operands, plain, h200, &launches);
  cr_assert(strcmp(launch->kernel, "rondo_gemm_softmax_staggered_k128") == 0, "%s", launch->kernel);
  cr_assert(launch->map_count == 3 && launch->maps[1].rank == 4);
  static const uint64_t sizes[] = {104, 16, 8, 17}, strides[] = {2, 224, 3584, 28672};
  static const uint32_t box[] = {64, 16, 1, 4};
  for (int i = 0; i < 4; i++) {
    cr_assert_eq(launch->maps[1].size[i], sizes[i], "dimension %d", i);
    cr_assert_eq(launch->maps[1].stride_bytes[i], strides[i], "dimension %d", i);
    cr_assert_eq(launch->maps[1].box[i], box[i], "dimension %d", i);
  }
  selected(operands, (struct gemm_softmax_attributes){.causal = true}, h200, &launches);
  cr_assert(strcmp(launches.items[0].kernel, "rondo_gemm_softmax_resident") == 0);
  operands[1].shape[0] = operands[2].shape[1] = 2168;
  selected(operands, plain, h200, &launches);
  cr_assert(strcmp(launches.items[0].kernel, "rondo_gemm_softmax_resident") == 0);
}

Test(softmax, gemm_softmax_select_knows_alignment_and_width) {
  struct gemm_softmax_parameters q;
  struct op_operand a = operand_of(RONDO_BF16, 100, 24, 24, 0), b = operand_of(RONDO_BF16, 65, 24, 32, 64);
  struct op_launch launch = launch_of(a, b, operand_of(RONDO_F16, 100, 65, 66, 4), &q);
  cr_assert(strcmp(launch.kernel, "rondo_gemm_softmax_128") == 0 && launch.grid[0] == 2);
  cr_assert(q.is_softmax && q.is_bf16 && q.vectors && q.pairs && q.row_tiles == 2 && q.scale == 1.0f &&
            q.output == GEMM_SOFTMAX_F16);
  launch_of(operand_of(RONDO_BF16, 100, 24, 28, 0), b, operand_of(RONDO_F16, 100, 65, 66, 2), &q);
  cr_assert(!q.vectors && !q.pairs);
  launch_of(a, operand_of(RONDO_BF16, 65, 24, 32, 8), operand_of(RONDO_F32, 100, 65, 65, 0), &q);
  cr_assert(!q.vectors && !q.pairs);
  b.shape[0] = 64;
  launch = launch_of(a, b, operand_of(RONDO_F32, 100, 64, 64, 8), &q);
  cr_assert(strcmp(launch.kernel, "rondo_gemm_softmax_64") == 0 && q.vectors && q.pairs);
}
