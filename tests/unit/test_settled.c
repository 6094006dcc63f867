/* test_settled.c - settled operands (runtime/op.h): what a task's kernels may read before their predecessors have
 * ended is there when the replay begins, and no earlier task writes it. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../runtime/exec.h"
#include "lone_task.h"

enum { ROWS = 4, COLUMNS = 64, BLOCKS = COLUMNS / 16 };

static const int64_t shape[] = {ROWS, COLUMNS};

/* A graph whose task "before" is a kernel of Rondo's that others can be told to come after. */
struct scene {
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_task before;
};

typedef rondo_status (*tensor_kind)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                    rondo_tensor *);

static rondo_tensor tensor(const struct scene *scene, tensor_kind add, const char *name) {
  rondo_tensor made;
  REQUIRE_OK(add(scene->graph, name, RONDO_F16, 2, shape, &made));
  return made;
}

static rondo_tensor first_row(const struct scene *scene, rondo_tensor of) {
  rondo_tensor view;
  REQUIRE_OK(rondo_view(scene->graph, of, (int64_t[]){0, 0}, (int64_t[]){1, COLUMNS}, &view));
  return view;
}

static rondo_task last_task(const struct scene *scene) {
  rondo_task task;
  REQUIRE_OK(rondo_last_task(scene->graph, &task));
  return task;
}

static rondo_task copy(const struct scene *scene, const char *name, rondo_tensor src, rondo_tensor dst) {
  REQUIRE_OK(rondo_add_copy(scene->graph, &(rondo_copy_desc){.name = name, .src = src, .dst = dst}));
  return last_task(scene);
}

/* A copy to an output of its own, after "before". */
static void read_behind(const struct scene *scene, const char *name, rondo_tensor src) {
  rondo_task task = copy(scene, name, src, tensor(scene, rondo_output, name));
  REQUIRE_OK(rondo_after(scene->graph, task, scene->before));
}

static struct scene scene_describe(void) {
  struct scene scene = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &scene.graph));
  scene.before = copy(&scene, "before", tensor(&scene, rondo_input, "x"), tensor(&scene, rondo_output, "y"));
  return scene;
}

static rondo_runtime *runtime_open(void) {
  rondo_runtime *runtime;
  rondo_options options = {
      .backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .host_bytes = 1 << 20};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

static void scene_instantiate(struct scene *scene) {
  scene->runtime = runtime_open();
  REQUIRE_OK(rondo_instantiate(scene->runtime, scene->graph, NULL, &scene->exec));
}

static void scene_end(struct scene *scene) {
  REQUIRE_OK(rondo_close_exec(&scene->exec));
  REQUIRE_OK(rondo_close(&scene->runtime));
  REQUIRE_OK(rondo_graph_destroy(&scene->graph));
}

/* Of the task of that name, its operand that lies in the tensor, or in the one that this is a view of. */
static bool is_settled(const rondo_exec *exec, const char *task, rondo_tensor of) {
  for (uint32_t n = 0; n < exec->program.node_count; n++) {
    const struct op_call *call = &exec->program.nodes[n].call;
    const struct operand_source *places = exec->program.sources + (call->data - exec->program.data);
    if (strcmp(exec->program.names[n], task) != 0) continue;
    for (uint32_t i = 0; i < call->task->operand_count; i++)
      if (places[i].tensor == exec->tensors[of.index].root) return call->settled_operands >> i & 1;
  }
  cr_assert_fail("no task '%s' touches the tensor", task);
  return false;
}

/* ---- What is there when the replay begins ------------------------------------------------------------------------ */

Test(settled, constants_are_settled) {
  struct scene scene = scene_describe();
  rondo_tensor weights = tensor(&scene, rondo_constant, "weights");
  read_behind(&scene, "whole", weights);
  copy(&scene, "row", first_row(&scene, weights), first_row(&scene, tensor(&scene, rondo_temporary, "t")));
  REQUIRE_OK(rondo_after(scene.graph, last_task(&scene), scene.before));
  scene_instantiate(&scene);
  cr_expect(is_settled(scene.exec, "whole", weights));
  cr_expect(is_settled(scene.exec, "row", weights));
  scene_end(&scene);
}

Test(settled, inputs_are_settled_if_nothing_copies_them) {
  struct scene scene = scene_describe();
  rondo_tensor in_place = tensor(&scene, rondo_input, "in place"), moved = tensor(&scene, rondo_input, "moved");
  read_behind(&scene, "one", in_place);
  read_behind(&scene, "first of two", moved);
  read_behind(&scene, "second of two", moved);
  scene_instantiate(&scene);
  cr_expect(is_settled(scene.exec, "one", in_place));
  cr_expect_not(is_settled(scene.exec, "first of two", moved));
  cr_expect_not(is_settled(scene.exec, "second of two", moved));
  scene_end(&scene);
}

Test(settled, states_are_settled_if_no_earlier_task_writes_a_part_of_them) {
  struct scene scene = scene_describe();
  rondo_tensor unwritten = tensor(&scene, rondo_state, "unwritten"), before = tensor(&scene, rondo_state, "before"),
               after = tensor(&scene, rondo_state, "after"), beside = tensor(&scene, rondo_state, "beside"), rest;
  REQUIRE_OK(rondo_view(scene.graph, beside, (int64_t[]){1, 0}, (int64_t[]){ROWS - 1, COLUMNS}, &rest));
  read_behind(&scene, "unwritten", unwritten);
  copy(&scene, "write before", tensor(&scene, rondo_constant, "c"), before);
  read_behind(&scene, "before", before);
  read_behind(&scene, "after", after);
  copy(&scene, "write after", tensor(&scene, rondo_constant, "d"), after);
  read_behind(&scene, "behind both", after);
  copy(&scene, "write beside", first_row(&scene, tensor(&scene, rondo_constant, "e")), first_row(&scene, beside));
  rondo_tensor target;
  REQUIRE_OK(rondo_temporary(scene.graph, "t", RONDO_F16, 2, (int64_t[]){ROWS - 1, COLUMNS}, &target));
  copy(&scene, "beside", rest, target);
  REQUIRE_OK(rondo_after(scene.graph, last_task(&scene), scene.before));
  scene_instantiate(&scene);
  cr_expect(is_settled(scene.exec, "unwritten", unwritten));
  cr_expect_not(is_settled(scene.exec, "before", before));
  cr_expect(is_settled(scene.exec, "after", after));
  cr_expect_not(is_settled(scene.exec, "behind both", after));
  cr_expect_not(is_settled(scene.exec, "beside", beside));
  scene_end(&scene);
}

/* What a task reads and writes itself, it may read early: only who stands before it matters. */
static void attention_block(const struct scene *scene, const char *name, rondo_tensor k, rondo_tensor v) {
  const int64_t row[] = {1, COLUMNS}, parts[] = {1, 1, COLUMNS};
  rondo_attention_block_desc desc = {.name = name, .k = k, .v = v};
  REQUIRE_OK(rondo_input(scene->graph, "x", RONDO_F16, 2, row, &desc.x));
  REQUIRE_OK(rondo_constant(scene->graph, "qkv", RONDO_F16, 2, (int64_t[]){3 * (int64_t)COLUMNS, COLUMNS}, &desc.qkv));
  REQUIRE_OK(rondo_constant(scene->graph, "output", RONDO_F16, 2, (int64_t[]){COLUMNS, COLUMNS}, &desc.output));
  REQUIRE_OK(rondo_constant(scene->graph, "position", RONDO_I32, 1, (int64_t[]){1}, &desc.position));
  REQUIRE_OK(rondo_output(scene->graph, "out", RONDO_F16, 2, row, &desc.out));
  REQUIRE_OK(rondo_output(scene->graph, "out_parts", RONDO_F32, 3, parts, &desc.out_parts));
  REQUIRE_OK(rondo_add_attention_block(scene->graph, &desc));
  REQUIRE_OK(rondo_after(scene->graph, last_task(scene), scene->before));
}

Test(settled, what_a_task_reads_and_writes_is_settled_until_it_has_written_it) {
  struct scene scene = scene_describe();
  rondo_tensor k, v;
  REQUIRE_OK(rondo_state(scene.graph, "k", RONDO_F16, 4, (int64_t[]){1, ROWS, 1, COLUMNS}, &k));
  REQUIRE_OK(rondo_state(scene.graph, "v", RONDO_F16, 4, (int64_t[]){1, ROWS, 1, COLUMNS}, &v));
  attention_block(&scene, "first", k, v);
  attention_block(&scene, "second", k, v);
  scene_instantiate(&scene);
  cr_expect(is_settled(scene.exec, "first", k));
  cr_expect(is_settled(scene.exec, "first", v));
  cr_expect_not(is_settled(scene.exec, "second", k));
  cr_expect_not(is_settled(scene.exec, "second", v));
  scene_end(&scene);
}

/* Replays of a lane follow each other, so that only the graph's own tasks matter; the user's kernels are among them. */
Test(settled, what_is_borrowed_is_settled_unless_the_borrower_has_written_it) {
  struct scene lender = scene_describe(), borrower = scene_describe();
  rondo_tensor read = tensor(&lender, rondo_state, "read"), written = tensor(&lender, rondo_state, "written");
  rondo_tensor weights = tensor(&lender, rondo_constant, "weights"), there[3];
  copy(&lender, "write", weights, read);
  read_behind(&lender, "read", read);
  read_behind(&lender, "written", written);
  REQUIRE_OK(rondo_borrow(borrower.graph, read, &there[0]));
  REQUIRE_OK(rondo_borrow(borrower.graph, written, &there[1]));
  REQUIRE_OK(rondo_borrow(borrower.graph, weights, &there[2]));
  rondo_argument argument = {.tensor = there[1], .access = RONDO_WRITE};
  REQUIRE_OK(rondo_add_kernel(borrower.graph,
                              &(rondo_kernel_desc){.host = nothing, .arguments = &argument, .argument_count = 1}));
  read_behind(&borrower, "read", there[0]);
  read_behind(&borrower, "written", there[1]);
  read_behind(&borrower, "weights", there[2]);
  scene_instantiate(&lender);
  REQUIRE_OK(rondo_instantiate(lender.runtime, borrower.graph, NULL, &borrower.exec));
  cr_expect_not(is_settled(lender.exec, "read", read));
  cr_expect(is_settled(lender.exec, "written", written));
  cr_expect(is_settled(borrower.exec, "read", there[0]));
  cr_expect_not(is_settled(borrower.exec, "written", there[1]));
  cr_expect(is_settled(borrower.exec, "weights", there[2]));
  REQUIRE_OK(rondo_close_exec(&borrower.exec));
  REQUIRE_OK(rondo_graph_destroy(&borrower.graph));
  scene_end(&lender);
}

Test(settled, what_another_task_makes_is_not_settled) {
  struct scene scene = scene_describe();
  rondo_tensor x = tensor(&scene, rondo_input, "vectors"), y = tensor(&scene, rondo_output, "products");
  rondo_tensor codes, scales, again = tensor(&scene, rondo_output, "again");
  REQUIRE_OK(rondo_temporary(scene.graph, "codes", RONDO_NVFP4, 2, shape, &codes));
  REQUIRE_OK(rondo_temporary(scene.graph, "scales", RONDO_E4M3, 2, (int64_t[]){ROWS, BLOCKS}, &scales));
  REQUIRE_OK(rondo_add_quantize_nvfp4(
      scene.graph,
      &(rondo_quantize_nvfp4_desc){.x = tensor(&scene, rondo_constant, "weights"), .codes = codes, .scales = scales}));
  rondo_tensor some;
  REQUIRE_OK(rondo_view(scene.graph, y, (int64_t[]){0, 0}, (int64_t[]){ROWS, ROWS}, &some));
  REQUIRE_OK(rondo_add_gemv(
      scene.graph,
      &(rondo_gemv_desc){.name = "product", .weights = codes, .weight_scales = scales, .vectors = x, .out = some}));
  copy(&scene, "rest", tensor(&scene, rondo_constant, "rest"), again);
  copy(&scene, "result", again, y);
  REQUIRE_OK(rondo_after(scene.graph, last_task(&scene), scene.before));
  scene_instantiate(&scene);
  cr_expect_not(is_settled(scene.exec, "product", codes));
  cr_expect_not(is_settled(scene.exec, "product", scales));
  cr_expect_not(is_settled(scene.exec, "result", again));
  cr_expect_not(is_settled(scene.exec, "result", y));
  scene_end(&scene);
}

/* ---- Whom the task follows --------------------------------------------------------------------------------------- */

Test(settled, nothing_is_settled_for_a_task_that_follows_none_of_rondos_kernels) {
  struct scene scene = scene_describe();
  rondo_tensor weights = tensor(&scene, rondo_constant, "weights");
  copy(&scene, "first", weights, tensor(&scene, rondo_output, "a"));
  REQUIRE_OK(rondo_add_kernel(scene.graph, &(rondo_kernel_desc){.name = "the user's", .host = nothing}));
  rondo_task users = last_task(&scene);
  copy(&scene, "behind the user's", weights, tensor(&scene, rondo_output, "b"));
  REQUIRE_OK(rondo_after(scene.graph, last_task(&scene), users));
  read_behind(&scene, "behind both", weights);
  REQUIRE_OK(rondo_after(scene.graph, last_task(&scene), users));
  scene_instantiate(&scene);
  cr_expect_not(is_settled(scene.exec, "first", weights));
  cr_expect_not(is_settled(scene.exec, "behind the user's", weights));
  cr_expect(is_settled(scene.exec, "behind both", weights));
  scene_end(&scene);
}

static void product(const struct scene *scene, const char *name, rondo_tensor weights, rondo_tensor vectors,
                    int64_t count) {
  rondo_tensor out;
  REQUIRE_OK(rondo_output(scene->graph, name, RONDO_F16, 2, (int64_t[]){count, ROWS}, &out));
  REQUIRE_OK(rondo_add_gemv(scene->graph,
                            &(rondo_gemv_desc){.name = name, .weights = weights, .vectors = vectors, .out = out}));
}

/* The copy that moves an input is a kernel too, and so is the join before the second task that waits for many. */
Test(settled, constants_are_settled_after_a_node_that_the_plan_adds) {
  enum { WRITERS = 16 };
  struct scene scene = scene_describe();
  rondo_tensor weights = tensor(&scene, rondo_constant, "weights"), moved = tensor(&scene, rondo_input, "moved"), rows;
  REQUIRE_OK(rondo_temporary(scene.graph, "rows", RONDO_F16, 2, (int64_t[]){WRITERS, COLUMNS}, &rows));
  for (int64_t i = 0; i < WRITERS; i++) {
    rondo_argument argument = {.access = RONDO_WRITE};
    REQUIRE_OK(rondo_view(scene.graph, rows, (int64_t[]){i, 0}, (int64_t[]){1, COLUMNS}, &argument.tensor));
    REQUIRE_OK(rondo_add_kernel(scene.graph,
                                &(rondo_kernel_desc){.host = nothing, .arguments = &argument, .argument_count = 1}));
  }
  product(&scene, "of a moved input", weights, moved, ROWS);
  product(&scene, "of it again", weights, moved, ROWS);
  product(&scene, "behind many", weights, rows, WRITERS);
  product(&scene, "behind a join", weights, rows, WRITERS);
  scene_instantiate(&scene);
  cr_expect(is_settled(scene.exec, "of a moved input", weights));
  cr_expect(is_settled(scene.exec, "of it again", weights));
  cr_expect_not(is_settled(scene.exec, "behind many", weights));
  cr_expect(is_settled(scene.exec, "behind a join", weights));
  cr_expect_not(is_settled(scene.exec, "behind a join", rows));
  scene_end(&scene);
}
