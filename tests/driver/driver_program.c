/* driver_program.c - see driver_program.h. */
#include "driver_program.h"

static void add_thousand(void *const *arguments) {
  const uint32_t *in = arguments[0];
  uint32_t *out = arguments[1];
  for (int i = 0; i < COUNT; i++) out[i] = in[i] + 1000;
}

static int library_call(void *user, void *stream, void *const *data) {
  (void)user;
  const struct fake_work inner = {.type = CU_NODE_EMPTY};
  const struct fake_work work[] = {{CU_NODE_KERNEL, add_thousand, {data[0], data[1]}, NULL},
                                   {.type = CU_NODE_GRAPH, .child = &inner}};
  return fake->enqueue(stream, work, 2);
}

void program_describe(struct program *program) {
  rondo_graph *graph = program->graph;
  program->x = add_vector(rondo_input, graph, "x", COUNT);
  program->y = add_vector(rondo_output, graph, "y", COUNT);
  program->state = add_vector(rondo_state, graph, "state", COUNT);
  rondo_tensor a = add_vector(rondo_temporary, graph, "a", COUNT), b = add_vector(rondo_temporary, graph, "b", COUNT);
  rondo_argument arguments[] = {{.tensor = program->x, .access = RONDO_READ}, {.tensor = a, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_capture(
      graph, &(rondo_capture_desc){.name = "library", .arguments = arguments, .argument_count = 2}, library_call));
  uint32_t count = COUNT, salt = 1;
  rondo_argument mixed[] = {{.tensor = program->state, .access = RONDO_READ},
                            {.tensor = a, .access = RONDO_READ},
                            {.tensor = b, .access = RONDO_WRITE},
                            {.value = &count, .bytes = 4},
                            {.value = &salt, .bytes = 4}};
  REQUIRE_OK(rondo_add_kernel(graph, &(rondo_kernel_desc){.name = "mix",
                                                          .image = mix_image,
                                                          .image_bytes = mix_image_bytes,
                                                          .function = "mix",
                                                          .shared_bytes = 64 * 1024,
                                                          .arguments = mixed,
                                                          .argument_count = MIX_ARGUMENTS}));
  add_copy(graph, "keep", b, program->state);
  add_copy(graph, "show", b, program->y);
}

void program_begin(struct program *program) {
  *program = (struct program){0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &program->graph));
  program_describe(program);
  rondo_options options = options_for(program->graph, RONDO_BACKEND_CUDA, SLOTS);
  REQUIRE_OK(rondo_open(&options, &program->runtime));
  REQUIRE_OK(
      rondo_instantiate(program->runtime, program->graph, &(rondo_exec_options){.slots = SLOTS}, &program->exec));
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_acquire(program->exec, &program->slots[s]));
}

void program_end(struct program *program) {
  REQUIRE_OK(rondo_close_exec(&program->exec));
  REQUIRE_OK(rondo_close(&program->runtime));
  REQUIRE_OK(rondo_graph_destroy(&program->graph));
}
