/* test_choices.c - a family's page has the same table of choices as its code: the same names and reasons, in the same
 * order. A page has at most 150 lines; trials go to docs/lab. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../../kernels/attention/attention_choose.h"
#include "../../kernels/decoder/decoder_choose.h"
#include "../../kernels/exchange/exchanges.h"
#include "../../kernels/gemm/gemm_choose.h"
#include "../../kernels/gemm_softmax/gemm_softmax_choose.h"
#include "../../kernels/gemv/gemv_plan.h"
#include "../../kernels/least_squares/least_squares_choose.h"
#include "../../kernels/qr/qr_choose.h"
#include "../support.h"

enum { MOST_ROWS = 64, LINE_BYTES = 2048, MOST_LINES = 150 };

struct row {
  const char *name, *why;
};

/* One family: its folder in kernels/, and a function that fills in the rows of its table and returns their count. */
struct family {
  const char *folder;
  size_t (*rows)(struct row *rows);
};

/* Defines FAMILY_rows from the family's struct of a choice and the function that returns its table. */
#define ROWS_OF(family, choice, table)                                                                                 \
  static size_t family##_rows(struct row *rows) {                                                                      \
    size_t count;                                                                                                      \
    const struct choice *choices = table(&count);                                                                      \
    cr_assert_leq(count, MOST_ROWS);                                                                                   \
    for (size_t i = 0; i < count; i++) rows[i] = (struct row){choices[i].name, choices[i].why};                        \
    return count;                                                                                                      \
  }

ROWS_OF(attention, attention_choice, attention_choices)
ROWS_OF(decoder, decoder_choice, decoder_choices)
ROWS_OF(exchange, exchange_choice, exchange_choices)
ROWS_OF(gemm, gemm_choice, gemm_choices)
ROWS_OF(gemm_softmax, gemm_softmax_choice, gemm_softmax_choices)
ROWS_OF(gemv, gemv_choice, gemv_choices)
ROWS_OF(least_squares, least_squares_choice, least_squares_choices)
ROWS_OF(qr, qr_choice, qr_choices)

static const struct family families[] = {
    {"attention", attention_rows},         {"decoder", decoder_rows},
    {"exchange", exchange_rows},           {"gemm", gemm_rows},
    {"gemm_softmax", gemm_softmax_rows},   {"gemv", gemv_rows},
    {"least_squares", least_squares_rows}, {"qr", qr_rows},
};
enum { FAMILIES = sizeof families / sizeof *families };

/* The last cell of a line of a table, without the spaces around it. */
static char *last_cell(char *line) {
  char *end = strrchr(line, '|');
  cr_assert(end && end > line + 1, "no table: %s", line);
  for (*end = '\0'; end > line && end[-1] == ' '; end--) end[-1] = '\0';
  char *begin = strrchr(line, '|');
  cr_assert(begin, "one cell: %s", line);
  return begin + 1 + strspn(begin + 1, " ");
}

/* The rows of the first table after "## Which kernel runs" whose first cell is a name in backquotes. */
static size_t rows_of_page(FILE *page, struct row *rows, char (*lines)[LINE_BYTES]) {
  size_t count = 0;
  bool is_there = false;
  while (count < MOST_ROWS && fgets(lines[count], LINE_BYTES, page)) {
    char *line = lines[count];
    if (!strncmp(line, "## ", 3)) {
      if (is_there) break;
      is_there = !strcmp(line, "## Which kernel runs\n");
    }
    if (!is_there || strncmp(line, "| `", 3) != 0) {
      if (count) break;
      continue;
    }
    rows[count].why = last_cell(line);
    rows[count].name = strtok(line + 3, "`");
    count++;
  }
  return count;
}

static size_t lines_of(FILE *file) {
  size_t count = 0;
  rewind(file);
  for (int byte = getc(file); byte != EOF; byte = getc(file)) count += byte == '\n';
  return count;
}

static void compare(const struct family *family) {
  static char lines[MOST_ROWS][LINE_BYTES];
  struct row of_code[MOST_ROWS], of_page[MOST_ROWS];
  char path[64];
  snprintf(path, sizeof path, "kernels/%s/README.md", family->folder);
  FILE *page = fopen(path, "r");
  if (!page) cr_skip_test("%s is not here: pages are in the repository alone", path);
  const size_t of_table = rows_of_page(page, of_page, lines), count = family->rows(of_code);
  const size_t height = lines_of(page);
  fclose(page);
  cr_expect_leq(height, MOST_LINES, "%s has %zu lines, at most %d may be: trials go to docs/lab", path, height,
                MOST_LINES);
  cr_expect_eq(of_table, count, "%s has %zu rows, the code %zu", path, of_table, count);
  for (size_t i = 0; i < count && i < of_table; i++) {
    cr_expect_str_eq(of_page[i].name, of_code[i].name, "%s, row %zu", path, i);
    cr_expect_str_eq(of_page[i].why, of_code[i].why, "%s, `%s`", path, of_code[i].name);
  }
}

Test(choices, each_familys_page_has_the_table_of_its_code) {
  for (size_t i = 0; i < FAMILIES; i++) compare(&families[i]);
}

Test(choices, names_of_a_family_differ_and_each_has_a_reason) {
  struct row rows[MOST_ROWS];
  for (size_t f = 0; f < FAMILIES; f++) {
    const size_t count = families[f].rows(rows);
    cr_expect_gt(count, 1, "%s", families[f].folder);
    for (size_t i = 0; i < count; i++) {
      cr_expect(rows[i].why && strlen(rows[i].why) > 10, "%s: %s", families[f].folder, rows[i].name);
      for (size_t j = 0; j < i; j++) cr_expect_str_neq(rows[i].name, rows[j].name, "%s", families[f].folder);
    }
  }
}
