/* test_op.c - the helpers of operations (runtime/op.h): which operands they refuse, in which words, and which rows they
 * call aligned. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../runtime/op.h"
#include "../support.h"

static const rondo_status invalid = RONDO_INVALID_ARGUMENT;

static struct op_operand dense(rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  struct op_operand operand = {.present = true, .dtype = dtype, .rank = rank};
  int64_t stride = 1;
  for (uint32_t i = rank; i-- > 0; stride *= shape[i]) operand.shape[i] = shape[i], operand.stride[i] = stride;
  return operand;
}

static const int64_t matrix[] = {3, 8};

Test(op, an_operand_of_another_type_rank_or_shape_is_refused) {
  const struct op_operand x = dense(RONDO_F16, 2, matrix), absent = {0};
  REQUIRE_OK(op_expect("x", &x, RONDO_F16, 2, matrix));
  REQUIRE_ERROR(op_expect("x", &x, RONDO_BF16, 2, matrix), invalid, "x is [3, 8] f16, expected [3, 8] bf16");
  REQUIRE_ERROR(op_expect("x", &x, RONDO_F16, 1, matrix), invalid, "x is [3, 8] f16, expected [3] f16");
  REQUIRE_ERROR(op_expect("x", &x, RONDO_F16, 2, (int64_t[]){2, 8}), invalid, "expected [2, 8] f16");
  REQUIRE_ERROR(op_expect("x", &x, RONDO_F16, 2, (int64_t[]){3, 7}), invalid, "expected [3, 7] f16");
  REQUIRE_ERROR(op_expect("x", &absent, RONDO_F16, 2, matrix), invalid, "x is absent, expected [3, 8] f16");
}

Test(op, a_list_has_one_number_or_one_for_each) {
  const struct op_operand one = dense(RONDO_I32, 1, (int64_t[]){1}), four = dense(RONDO_I32, 1, (int64_t[]){4}),
                          five = dense(RONDO_I32, 1, (int64_t[]){5}), row = dense(RONDO_I32, 2, (int64_t[]){4, 1}),
                          absent = {0};
  REQUIRE_OK(op_expect_list("p", &one, RONDO_I32, 4));
  REQUIRE_OK(op_expect_list("p", &four, RONDO_I32, 4));
  REQUIRE_OK(op_expect_list("p", &one, RONDO_I32, 1));
  REQUIRE_ERROR(op_expect_list("p", &five, RONDO_I32, 4), invalid, "p is [5] i32, expected [1] or [4] i32");
  REQUIRE_ERROR(op_expect_list("p", &four, RONDO_I32, 1), invalid, "p is [4] i32, expected [1] i32");
  REQUIRE_ERROR(op_expect_list("p", &four, RONDO_F32, 4), invalid, "p is [4] i32, expected [1] or [4] f32");
  REQUIRE_ERROR(op_expect_list("p", &row, RONDO_I32, 4), invalid, "p is [4, 1] i32, expected [1] or [4] i32");
  REQUIRE_ERROR(op_expect_list("p", &absent, RONDO_I32, 4), invalid, "p is absent, expected [1] or [4] i32");
}

Test(op, rows_are_aligned_if_the_first_and_all_steps_to_others_are) {
  struct op_operand rows = dense(RONDO_F16, 3, (int64_t[]){2, 2, 8}); /* rows of 16 bytes */
  cr_assert(op_rows_aligned(&rows, 16));
  cr_assert_not(op_rows_aligned(&rows, 32));
  rows.offset_bytes = 8;
  cr_assert(op_rows_aligned(&rows, 8));
  cr_assert_not(op_rows_aligned(&rows, 16), "the first row");
  rows.offset_bytes = 0, rows.stride[1] = 12;
  cr_assert_not(op_rows_aligned(&rows, 16), "the step to a row");
  rows.stride[1] = 8, rows.stride[0] = 20;
  cr_assert(op_rows_aligned(&rows, 8));
  cr_assert_not(op_rows_aligned(&rows, 16), "the step to a matrix");
  rows.shape[0] = 1;
  cr_assert(op_rows_aligned(&rows, 16), "one matrix has no step to another");
}

Test(op, rows_of_four_bits_are_aligned_by_bits) {
  struct op_operand rows = dense(RONDO_NVFP4, 2, (int64_t[]){2, 32}); /* rows of 16 bytes */
  cr_assert(op_rows_aligned(&rows, 16));
  rows.stride[0] = 48;
  cr_assert(op_rows_aligned(&rows, 8));
  cr_assert_not(op_rows_aligned(&rows, 16));
}
