/* test_upload_all.c - uploads of lists: every tensor gets its own content and nothing beside it changes, in any order
 * of the list; one bad entry leaves all as they were. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

enum { TENSORS = 200, POOL = 128 << 20, LEFT_OUT = 17 };

struct subject {
  rondo_runtime *runtime;
  rondo_graph *graph, *borrowing;
  rondo_exec *exec;
  rondo_tensor tensors[TENSORS], borrowed;
  int64_t bytes[TENSORS], most;
  unsigned char *data, *back;
  rondo_content contents[TENSORS];
};

/* From a byte to 512 KB, most of them of no round size. */
static void subject_open(struct subject *s, rondo_backend backend) {
  struct random random = {11};
  int64_t all = 0;
  REQUIRE_OK(
      rondo_open(&(rondo_options){.backend = backend, .device_bytes = POOL, .pinned_bytes = 1 << 20, .host_threads = 2},
                 &s->runtime));
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = TENSORS + 16}, &s->graph));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->borrowing));
  for (int i = 0; i < TENSORS; i++) {
    s->bytes[i] = (int64_t)(random_bits(&random) & ((UINT64_C(1) << random_bits(&random) % 20) - 1)) + 1;
    if (i % 8 == 0) s->bytes[i] = (s->bytes[i] + 255) / 256 * 256;
    s->most = s->bytes[i] > s->most ? s->bytes[i] : s->most;
    REQUIRE_OK((i % 2 ? rondo_state : rondo_constant)(s->graph, "some", RONDO_U8, 1, &s->bytes[i], &s->tensors[i]));
    all += s->bytes[i];
  }
  REQUIRE_OK(rondo_borrow(s->borrowing, s->tensors[0], &s->borrowed));
  s->data = malloc((size_t)all);
  s->back = malloc((size_t)s->most);
  cr_assert(s->data && s->back);
  for (int64_t i = 0; i < all; i++) s->data[i] = (unsigned char)random_bits(&random);
  for (int i = 0; i < TENSORS; i++, all -= s->bytes[i - 1])
    s->contents[i] = (rondo_content){s->tensors[i], s->data + all - s->bytes[i], (uint64_t)s->bytes[i]};
}

static void subject_close(struct subject *s) {
  if (s->exec) REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->borrowing));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  REQUIRE_OK(rondo_close(&s->runtime));
  free(s->data);
  free(s->back);
}

static void require_content(struct subject *s, const rondo_content *content, bool is_set) {
  REQUIRE_OK(rondo_download(s->exec, content->tensor, s->back, content->bytes));
  for (uint64_t i = 0; i < content->bytes; i++)
    cr_assert_eq(s->back[i], is_set ? ((const unsigned char *)content->data)[i] : 0, "byte %" PRIu64 " of %" PRIu64, i,
                 content->bytes);
}

static void shuffle(rondo_content *contents, struct random *random) {
  for (size_t i = TENSORS - 1; i > 0; i--) {
    size_t other = random_bits(random) % (i + 1);
    rondo_content content = contents[i];
    contents[i] = contents[other];
    contents[other] = content;
  }
}

/* As described, then in disorder. */
static void any_order(rondo_backend backend) {
  struct random random = {3};
  for (int is_shuffled = 0; is_shuffled < 2; is_shuffled++) {
    struct subject s = {0};
    subject_open(&s, backend);
    REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
    if (is_shuffled) shuffle(s.contents, &random);
    const rondo_content left_out = s.contents[LEFT_OUT];
    s.contents[LEFT_OUT] = s.contents[LEFT_OUT + 1];
    REQUIRE_OK(rondo_upload_all(s.exec, s.contents, TENSORS));
    for (int i = 0; i < TENSORS; i++) require_content(&s, &s.contents[i], true);
    require_content(&s, &left_out, false);
    subject_close(&s);
  }
}
BOTH_BACKENDS(upload_all, in_any_order_sets_each_and_nothing_else, any_order)

/* Parts of one tensor have no room around them. */
static void views(rondo_backend backend) {
  enum { COLUMNS = 1000, ROWS = 100 };
  struct subject s = {0};
  rondo_tensor matrix, front, behind, columns;
  subject_open(&s, backend);
  REQUIRE_OK(rondo_state(s.graph, "matrix", RONDO_U8, 2, (int64_t[]){ROWS, COLUMNS}, &matrix));
  REQUIRE_OK(rondo_view(s.graph, matrix, (int64_t[]){0, 0}, (int64_t[]){1, 100}, &front));
  REQUIRE_OK(rondo_view(s.graph, matrix, (int64_t[]){0, 256}, (int64_t[]){1, 400}, &behind));
  REQUIRE_OK(rondo_view(s.graph, matrix, (int64_t[]){1, 3}, (int64_t[]){ROWS - 1, 5}, &columns));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
  unsigned char all[ROWS][COLUMNS], back[ROWS][COLUMNS], part[ROWS * COLUMNS];
  memset(all, 1, sizeof all);
  memset(part, 2, sizeof part);
  const rondo_content contents[] = {{matrix, all, sizeof all},
                                    {front, part, 100},
                                    {behind, part, 400},
                                    {columns, part, UINT64_C(5) * (ROWS - 1)},
                                    {s.tensors[2], s.contents[2].data, s.contents[2].bytes}};
  REQUIRE_OK(rondo_upload_all(s.exec, contents, sizeof contents / sizeof *contents));
  REQUIRE_OK(rondo_download(s.exec, matrix, back, sizeof back));
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++) {
      bool is_set = i ? j >= 3 && j < 8 : j < 100 || (j >= 256 && j < 656);
      cr_assert_eq(back[i][j], is_set ? 2 : 1, "row %d, column %d", i, j);
    }
  require_content(&s, &s.contents[2], true);
  subject_close(&s);
}
BOTH_BACKENDS(upload_all, of_views_sets_them_in_order, views)

static void require_refused(struct subject *s, rondo_content content, rondo_status expected, const char *text) {
  const rondo_content before = s->contents[TENSORS / 2];
  s->contents[TENSORS / 2] = content;
  cr_assert_eq(rondo_upload_all(s->exec, s->contents, TENSORS), expected, "%s", text);
  cr_assert(strstr(rondo_error_text(), "rondo_upload_all: ") && strstr(rondo_error_text(), text), "%s: %s", text,
            rondo_error_text());
  s->contents[TENSORS / 2] = before;
  for (int i = 0; i < TENSORS; i++) require_content(s, &s->contents[i], false);
}

static void refused(rondo_backend backend) {
  struct subject s = {0};
  rondo_exec *borrower = NULL;
  subject_open(&s, backend);
  cr_assert_eq(rondo_upload_all(NULL, s.contents, TENSORS), RONDO_INVALID_ARGUMENT);
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.borrowing, NULL, &borrower));
  REQUIRE_OK(rondo_upload_all(s.exec, s.contents, 0));
  REQUIRE_OK(rondo_upload_all(s.exec, NULL, 0));
  cr_assert_eq(rondo_upload_all(s.exec, NULL, 3), RONDO_INVALID_ARGUMENT);
  cr_assert(strstr(rondo_error_text(), "NULL"), "%s", rondo_error_text());
  rondo_content content = s.contents[5];
  require_refused(&s, (rondo_content){content.tensor, content.data, content.bytes + 1}, RONDO_INVALID_ARGUMENT,
                  "bytes, not");
  require_refused(&s, (rondo_content){content.tensor, NULL, content.bytes}, RONDO_INVALID_ARGUMENT, "NULL");
  require_refused(&s, (rondo_content){.data = content.data, .bytes = 1}, RONDO_INVALID_ARGUMENT, "absent");
  require_refused(&s, (rondo_content){s.borrowed, content.data, content.bytes}, RONDO_INVALID_ARGUMENT,
                  "another graph");
  cr_assert_eq(rondo_upload_all(borrower, &(rondo_content){s.borrowed, s.contents[0].data, s.contents[0].bytes}, 1),
               RONDO_INVALID_ARGUMENT);
  cr_assert(strstr(rondo_error_text(), "borrowed"), "%s", rondo_error_text());
  REQUIRE_OK(rondo_close_exec(&borrower));
  subject_close(&s);
}
BOTH_BACKENDS(upload_all, with_one_that_is_wrong_changes_none, refused)
