/* test_refusals.c - wrong arguments of the calls that every program makes, and of descriptions whose operands only make
 * sense together: each is refused with a sentence that names it, and the next right call works. Arguments of one
 * operation or subject alone stand with its other tests. */
#include <criterion/criterion.h>
#include <math.h>
#include <rondo_graphs.h>
#include <string.h>

#include "../support.h"

static const rondo_status invalid = RONDO_INVALID_ARGUMENT, state = RONDO_INVALID_STATE;

static rondo_tensor of(rondo_graph *graph, rondo_dtype dtype, uint32_t rank, int64_t a, int64_t b) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(graph, NULL, dtype, rank, (int64_t[]){a, b}, &tensor));
  return tensor;
}

Test(refusals, options_of_a_runtime) {
  rondo_runtime *runtime = NULL;
  const rondo_options right = {.backend = RONDO_BACKEND_HOST, .host_bytes = 1 << 20};
  rondo_options options = right;
  REQUIRE_ERROR(rondo_open_abi(RONDO_ABI_VERSION + 1, &right, &runtime), invalid, "the program was compiled for ABI");
  REQUIRE_ERROR(rondo_open(NULL, &runtime), invalid, "open: the options is NULL");
  REQUIRE_ERROR(rondo_open(&right, NULL), invalid, "open: the runtime's address is NULL");
  options.backend = (rondo_backend)7;
  REQUIRE_ERROR(rondo_open(&options, &runtime), invalid, "backend is 7, expected one of rondo_backend");
  options = right, options.wait_mode = 9;
  REQUIRE_ERROR(rondo_open(&options, &runtime), invalid, "wait_mode is 9, expected one of rondo_wait_mode");
  options = right, options.host_threads = 1025;
  REQUIRE_ERROR(rondo_open(&options, &runtime), invalid, "1025 host threads, expected at most 1024");
  cr_assert_null(runtime, "a refused call opens nothing");
  REQUIRE_OK(rondo_open(&right, &runtime));
  REQUIRE_ERROR(rondo_runtime_info(runtime, NULL), invalid, "rondo_runtime_info: info is NULL");
  REQUIRE_ERROR(rondo_lane_info(runtime, 0, NULL), invalid, "rondo_lane_info: the grant is NULL");
  REQUIRE_OK(rondo_close(&runtime));
}

Test(refusals, graphs_tensors_and_views) {
  rondo_graph *graph = NULL;
  rondo_tensor tensor, view;
  rondo_task task;
  const int64_t shape[] = {4, 32}, origin[] = {0, 0}, odd[] = {0, 1}, part[] = {4, 16}, odd_part[] = {4, 15};
  REQUIRE_ERROR(rondo_graph_create(NULL, NULL, NULL), invalid, "rondo_graph_create: the graph's address is NULL");
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 3, .tasks = 2}, &graph));
  REQUIRE_ERROR(rondo_state(graph, "t", RONDO_NVFP4, 2, shape, NULL), invalid, "the tensor's address is NULL");
  REQUIRE_OK(rondo_state(graph, "t", RONDO_NVFP4, 2, shape, &tensor));
  REQUIRE_ERROR(rondo_view(graph, tensor, NULL, part, &view), invalid, "rondo_view: the offset is NULL");
  REQUIRE_ERROR(rondo_view(graph, tensor, origin, NULL, &view), invalid, "rondo_view: the extent is NULL");
  REQUIRE_ERROR(rondo_view(graph, tensor, odd, part, &view), invalid, "nvfp4 needs an even offset and extent");
  REQUIRE_ERROR(rondo_view(graph, tensor, origin, odd_part, &view), invalid, "not 0 and 15");
  REQUIRE_OK(rondo_view(graph, tensor, origin, part, &view));
  REQUIRE_ERROR(rondo_reshape(graph, tensor, 1, (int64_t[]){128}, NULL), invalid, "the tensor's address is NULL");
  REQUIRE_OK(rondo_reshape(graph, tensor, 1, (int64_t[]){128}, &view));
  REQUIRE_ERROR(rondo_view(graph, tensor, origin, part, &view), RONDO_OUT_OF_MEMORY,
                "the graph is full, with 3 tensors");
  REQUIRE_ERROR(rondo_last_task(graph, NULL), invalid, "rondo_last_task: the task's address is NULL");
  REQUIRE_ERROR(rondo_last_task(graph, &task), state, "rondo_last_task: the graph has no task");
  REQUIRE_ERROR(rondo_after(graph, 0, 0), invalid, "rondo_after: task 0 does not exist: the graph has 0");
  REQUIRE_ERROR(rondo_write_dot(graph, NULL), invalid, "rondo_write_dot: the path is NULL");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(refusals, outputs_of_qr_that_do_not_go_together) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  const rondo_tensor a = of(graph, RONDO_F32, 2, 8, 4), h = of(graph, RONDO_F32, 2, 8, 4),
                     tau = of(graph, RONDO_F32, 1, 4, 0), r = of(graph, RONDO_F32, 2, 4, 4),
                     q = of(graph, RONDO_F32, 2, 8, 4);
  const struct {
    rondo_qr_desc desc;
    const char *sentence;
  } cases[] = {
      {{.a = a, .h = h}, "tau is absent: h and tau come together"},
      {{.a = a, .tau = tau}, "h is absent: h and tau come together"},
      {{.a = a, .h = h, .tau = tau, .r = r}, "r is present beside h and tau"},
      {{.a = a, .h = h, .tau = tau, .q = q}, "q is present beside h and tau"},
      {{.a = a}, "h is absent, and so are r and q: expected h and tau, or r, or q and r"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rondo_qr_desc desc = cases[i].desc;
    desc.layout = RONDO_ROW_MAJOR;
    REQUIRE_ERROR(rondo_add_qr(graph, &desc), invalid, cases[i].sentence);
  }
  REQUIRE_ERROR(rondo_add_qr_extract(graph, &(rondo_qr_extract_desc){.layout = RONDO_ROW_MAJOR, .h = h}), invalid,
                "r is absent, and so is q: expected either");
  REQUIRE_ERROR(rondo_add_qr(graph, NULL), invalid, "rondo_add_qr: the description is NULL");
  REQUIRE_OK(rondo_add_qr(graph, &(rondo_qr_desc){.layout = RONDO_ROW_MAJOR, .a = a, .q = q}));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(refusals, ready_made_graphs_without_a_description_or_room_for_tensors) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
#define REFUSES(name)                                                                                                  \
  do {                                                                                                                 \
    rondo_graph_##name##_tensors tensors;                                                                              \
    REQUIRE_ERROR(rondo_graph_##name(graph, NULL, &tensors), invalid,                                                  \
                  "rondo_graph_" #name ": the description is NULL");                                                   \
    REQUIRE_ERROR(rondo_graph_##name(graph, &(rondo_graph_##name##_desc){0}, NULL), invalid,                           \
                  "rondo_graph_" #name ": the tensors' address is NULL");                                              \
  } while (0)
  REFUSES(attention);
  REFUSES(gemm_softmax);
  REFUSES(gemv);
  REFUSES(llama);
  REFUSES(qr);
  REQUIRE_ERROR(rondo_graph_llama_exchange_bytes(NULL, &(uint64_t){0}), invalid, "the description is NULL");
  REQUIRE_ERROR(rondo_graph_llama_exchange_bytes(&(rondo_graph_llama_desc){0}, NULL), invalid,
                "the bytes' address is NULL");
  rondo_tensor tensor;
  REQUIRE_ERROR(rondo_exchange_state(graph, NULL, 2, UINT64_C(1) << 32, &tensor), invalid,
                "4294967296 bytes, expected at most 2^31");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* A sum of i32, which a repeat can look at. */
static void describe_sum(struct trial *trial, rondo_tensor *sum) {
  trial_describe(trial, RONDO_BACKEND_HOST);
  const rondo_tensor one = of(trial->graph, RONDO_I32, 1, 1, 0);
  REQUIRE_OK(rondo_state(trial->graph, "sum", RONDO_I32, 1, (int64_t[]){1}, sum));
  REQUIRE_OK(rondo_add_add(trial->graph, &(rondo_add_desc){.a = *sum, .b = one, .out = *sum}));
}

Test(refusals, calls_of_an_exec_and_its_slots) {
  struct trial trial;
  rondo_tensor sum;
  describe_sum(&trial, &sum);
  trial_instantiate(&trial);
  rondo_exec *exec = trial.exec;
  const rondo_slot slot = trial.slot, beyond = {.exec = exec, .index = 5, .serial = slot.serial}, nowhere = {0};
  rondo_task_profile profile;
  rondo_profile_totals totals = {0};
  REQUIRE_ERROR(rondo_instantiate(trial.runtime, trial.graph, NULL, NULL), invalid, "the exec's address is NULL");
  REQUIRE_ERROR(rondo_exec_info(exec, NULL), invalid, "rondo_exec_info: the usage's address is NULL");
  REQUIRE_ERROR(rondo_upload(exec, (rondo_tensor){0}, "", 1), invalid, "rondo_upload: the tensor is absent");
  REQUIRE_ERROR(rondo_upload_all(exec, NULL, 2), invalid, "rondo_upload_all: the contents are NULL, expected 2");
  REQUIRE_ERROR(rondo_replay(nowhere), invalid, "rondo_replay: the slot's exec is NULL");
  REQUIRE_ERROR(rondo_wait(beyond, 0), invalid, "rondo_wait: slot 5 does not exist: the exec has 1");
  REQUIRE_ERROR(rondo_replay_on(slot, NULL), RONDO_UNSUPPORTED, "the host backend has no streams");
  REQUIRE_ERROR(rondo_profile(slot, NULL, NULL, 1, &totals), invalid, "rondo_profile: the tasks are NULL");
  REQUIRE_ERROR(rondo_profile(slot, NULL, &profile, 1, NULL), invalid, "rondo_profile: the totals are NULL");
  REQUIRE_ERROR(rondo_profile(slot, &(rondo_profile_options){.copy_bytes = 6}, &profile, 1, &totals), invalid,
                "copy_bytes is 6, expected a multiple of 4");
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_ERROR(rondo_replay(slot), state, "slot 0 was released: call rondo_acquire again");
  REQUIRE_OK(rondo_acquire(exec, &trial.slot));
  trial_replay(&trial);
  trial_end(&trial);
}
