/* test_ops.c - the table of operations: every row is whole. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/copy/transfer.h"
#include "../../runtime/join.h"

Test(ops, every_row_is_whole_and_has_a_name_of_its_own) {
  uint32_t count = 0;
  for (; op_table[count]; count++) {
    const struct op *op = op_table[count];
    cr_assert(op->name && op->name[0]);
    cr_assert(op->select && (op->step || (op->host_items && op->host_run)), "%s", op->name);
    cr_assert(op->check || op == &op_transfer || op == &op_join, "%s", op->name);
    cr_assert_lt(op->once_operands, 1u << OP_MAX_OPERANDS, "%s", op->name);
    for (uint32_t other = 0; other < count; other++) cr_assert_str_neq(op_table[other]->name, op->name);
  }
  cr_assert_geq(count, 11);
}
