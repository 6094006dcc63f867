/* test_upload.c - constants and states moved by the CUDA backend: how many calls that costs, and what is left to wait
 * for when one of them fails. */
#include <string.h>

#include "driver_support.h"

TestSuite(upload, .init = driver_setup, .timeout = 60);

enum { PLANES = 6, VIEW_BYTES = PLANES * 3 * 4 };
static const int64_t shape[] = {3, 4, 5, 6}, offset[] = {1, 1, 1, 1}, extent[] = {2, 3, 3, 4}; /* 2 times 3 planes */

struct subject {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_tensor state, view;
};

static void subject_open(struct subject *s) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  REQUIRE_OK(rondo_state(s->graph, "state", RONDO_U8, 4, shape, &s->state));
  REQUIRE_OK(rondo_view(s->graph, s->state, offset, extent, &s->view));
  rondo_options options = options_for(s->graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &s->runtime));
  REQUIRE_OK(rondo_instantiate(s->runtime, s->graph, NULL, &s->exec));
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_close(&s->runtime));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  require_clean("after close");
}

Test(upload, of_a_view_of_rank_4_waits_once) {
  struct subject s = {0};
  unsigned char data[VIEW_BYTES], back[VIEW_BYTES] = {0};
  for (int i = 0; i < VIEW_BYTES; i++) data[i] = (unsigned char)(i + 1);
  subject_open(&s);
  uint64_t copies = fake->calls("cuMemcpy2DAsync"), waits = fake->calls("cuStreamSynchronize");
  REQUIRE_OK(rondo_upload(s.exec, s.view, data, sizeof data));
  cr_assert_eq(fake->calls("cuMemcpy2DAsync"), copies + PLANES);
  cr_assert_eq(fake->calls("cuStreamSynchronize"), waits + 1);
  REQUIRE_OK(rondo_download(s.exec, s.view, back, sizeof back));
  cr_assert_eq(fake->calls("cuMemcpy2DAsync"), copies + UINT64_C(2) * PLANES);
  cr_assert_eq(fake->calls("cuStreamSynchronize"), waits + 2);
  cr_assert_arr_eq(back, data, sizeof data);
  subject_close(&s);
}

Test(upload, that_fails_halfway_waits_for_what_was_begun) {
  struct subject s = {0};
  unsigned char data[VIEW_BYTES] = {0};
  subject_open(&s);
  bool failed = true;
  int halfway = 0;
  for (uint64_t n = 1; failed; n++) {
    uint64_t copies = fake->calls("cuMemcpy2DAsync"), waits = fake->calls("cuStreamSynchronize");
    fake->fail_call(n, CU_INVALID_VALUE);
    rondo_status status = rondo_download(s.exec, s.view, data, sizeof data);
    failed = fake->failed_call() != NULL;
    bool is_copy = failed && !strcmp(fake->failed_call(), "cuMemcpy2DAsync");
    fake->fail_call(0, 0);
    if (!is_copy || fake->calls("cuMemcpy2DAsync") < copies + 2) continue;
    cr_assert_eq(status, RONDO_DEVICE_ERROR);
    cr_assert(strstr(rondo_error_text(), "download: cuMemcpy2DAsync"), "%s", rondo_error_text());
    cr_assert_eq(fake->calls("cuStreamSynchronize"), waits + 1, "call %d fails", (int)n);
    halfway++;
  }
  cr_assert_eq(halfway, PLANES - 1);
  subject_close(&s);
}
