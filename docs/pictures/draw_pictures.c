/* draw_pictures.c - the pictures in this folder: one attention block, a transformer of four layers and one of thirty,
 * and a blocked QR, each as a graph (.dot) and as a memory plan (.svg). `ninja pictures` runs it, and Graphviz where
 * that is installed. The sizes are those of a small language model that answers sixteen people at once. */
#include <rondo_graphs.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  PEOPLE = 16,
  HIDDEN = 576,
  HEADS = 9,
  KV_HEADS = 3,
  HEAD = 64,
  INNER = 1536,
  CONTEXT = 1024,
  WORDS = 49152,
  NAME_BYTES = 64,
};

static void try(rondo_status status, const char *call) {
  if (status == RONDO_OK) return;
  fprintf(stderr, "%s: %s\n", call, rondo_error_text());
  exit(1);
}
#define TRY(call) try((call), #call)

/* What a transformer is made of while it is described. */
struct model {
  rondo_graph *graph;
  rondo_tensor positions, lengths;
  char prefix[24];
};

static void no_work(void *user, void *const *data) { (void)user, (void)data; }

/* Work between the products, which the user brings. */
static void add_kernel(const struct model *model, const char *name, const rondo_argument *arguments, uint32_t count) {
  char text[NAME_BYTES];
  snprintf(text, sizeof text, "%s%s", model->prefix, name);
  TRY(rondo_add_kernel(
      model->graph,
      &(rondo_kernel_desc){.name = text, .host = no_work, .arguments = arguments, .argument_count = count}));
}
#define ADD(model, name, ...)                                                                                          \
  add_kernel((model), (name), (rondo_argument[]){__VA_ARGS__},                                                         \
             sizeof((rondo_argument[]){__VA_ARGS__}) / sizeof(rondo_argument))
#define READS(t)                                                                                                       \
  { .tensor = (t), .access = RONDO_READ }
#define WRITES(t)                                                                                                      \
  { .tensor = (t), .access = RONDO_WRITE }
#define UPDATES(t)                                                                                                     \
  { .tensor = (t), .access = RONDO_READ_WRITE }

typedef rondo_status (*tensor_function)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                        rondo_tensor *);

static rondo_tensor add_tensor(const struct model *model, tensor_function add, const char *name, uint32_t rank,
                               const int64_t *shape) {
  char text[NAME_BYTES];
  rondo_tensor tensor;
  snprintf(text, sizeof text, "%s%s", model->prefix, name);
  TRY(add(model->graph, text, RONDO_BF16, rank, shape, &tensor));
  return tensor;
}
#define TENSOR(model, add, name, ...)                                                                                  \
  add_tensor((model), (add), (name), sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static rondo_tensor product(const struct model *model, const char *name, rondo_tensor in, int64_t m, int64_t k) {
  char text[NAME_BYTES];
  rondo_tensor weights, out;
  snprintf(text, sizeof text, "%s weights", name);
  weights = TENSOR(model, rondo_constant, text, m, k);
  snprintf(text, sizeof text, "%s out", name);
  out = TENSOR(model, rondo_temporary, text, PEOPLE, m);
  snprintf(text, sizeof text, "%s%s", model->prefix, name);
  TRY(rondo_add_gemv(model->graph, &(rondo_gemv_desc){.name = text, .weights = weights, .vectors = in, .out = out}));
  return out;
}

/* Reads hidden states, gives back what is to be added to them. */
static rondo_tensor attention(const struct model *model, rondo_tensor in) {
  char text[NAME_BYTES];
  rondo_tensor qkv = product(model, "qkv", in, INT64_C(1) * (HEADS + 2 * KV_HEADS) * HEAD, HIDDEN);
  rondo_tensor q = TENSOR(model, rondo_temporary, "q", PEOPLE, HEADS, 1, HEAD);
  rondo_tensor k = TENSOR(model, rondo_state, "k cache", PEOPLE, KV_HEADS, CONTEXT, HEAD);
  rondo_tensor v = TENSOR(model, rondo_state, "v cache", PEOPLE, KV_HEADS, CONTEXT, HEAD);
  rondo_tensor o = TENSOR(model, rondo_temporary, "o", PEOPLE, HEADS, 1, HEAD);
  rondo_tensor merged = TENSOR(model, rondo_temporary, "merged", PEOPLE, HIDDEN);
  ADD(model, "rope", READS(qkv), READS(model->positions), WRITES(q), UPDATES(k), UPDATES(v));
  snprintf(text, sizeof text, "%sattention", model->prefix);
  TRY(rondo_add_attention(
      model->graph,
      &(rondo_attention_desc){.name = text, .q = q, .k = k, .v = v, .o = o, .kv_lengths = model->lengths}));
  ADD(model, "merge", READS(o), WRITES(merged));
  return product(model, "output", merged, HIDDEN, HIDDEN);
}

static rondo_tensor feed_forward(const struct model *model, rondo_tensor in) {
  rondo_tensor gate_up = product(model, "gate_up", in, INT64_C(2) * INNER, HIDDEN);
  rondo_tensor gated = TENSOR(model, rondo_temporary, "gated", PEOPLE, INNER);
  ADD(model, "silu", READS(gate_up), WRITES(gated));
  return product(model, "down", gated, HIDDEN, INNER);
}

/* hidden += more; the result is its norm. */
static rondo_tensor add_and_norm(const struct model *model, const char *name, rondo_tensor hidden, rondo_tensor more) {
  char text[NAME_BYTES];
  snprintf(text, sizeof text, "%s out", name);
  rondo_tensor normed = TENSOR(model, rondo_temporary, text, PEOPLE, HIDDEN);
  ADD(model, name, UPDATES(hidden), READS(more), WRITES(normed));
  return normed;
}

static void begin(struct model *model) {
  TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8192, .tasks = 1024}, &model->graph));
  TRY(rondo_input(model->graph, "positions", RONDO_I32, 1, (int64_t[]){PEOPLE}, &model->positions));
  TRY(rondo_input(model->graph, "lengths", RONDO_I32, 1, (int64_t[]){PEOPLE}, &model->lengths));
  model->prefix[0] = 0;
}

static rondo_graph *attention_block(void) {
  struct model model;
  begin(&model);
  rondo_tensor in = TENSOR(&model, rondo_input, "hidden", PEOPLE, HIDDEN);
  rondo_tensor out = TENSOR(&model, rondo_output, "result", PEOPLE, HIDDEN);
  rondo_tensor more = attention(&model, in);
  ADD(&model, "add", READS(in), READS(more), WRITES(out));
  return model.graph;
}

static rondo_graph *transformer(int layers) {
  struct model model;
  begin(&model);
  rondo_tensor words = TENSOR(&model, rondo_constant, "embedding", WORDS, HIDDEN);
  rondo_tensor hidden = TENSOR(&model, rondo_temporary, "hidden", PEOPLE, HIDDEN), more, tokens;
  TRY(rondo_input(model.graph, "tokens", RONDO_I32, 1, (int64_t[]){PEOPLE}, &tokens));
  ADD(&model, "embed", READS(tokens), READS(words), WRITES(hidden));
  more = TENSOR(&model, rondo_temporary, "nothing", PEOPLE, HIDDEN);
  ADD(&model, "clear", WRITES(more));
  for (int layer = 0; layer < layers; layer++) {
    snprintf(model.prefix, sizeof model.prefix, "layer%d.", layer);
    more = attention(&model, add_and_norm(&model, "first norm", hidden, more));
    more = feed_forward(&model, add_and_norm(&model, "second norm", hidden, more));
  }
  model.prefix[0] = 0;
  rondo_tensor result = TENSOR(&model, rondo_output, "result", PEOPLE, HIDDEN);
  ADD(&model, "last norm", READS(hidden), READS(more), WRITES(result));
  return model.graph;
}

static rondo_graph *blocked_qr(void) {
  rondo_graph *graph;
  rondo_graph_qr_tensors tensors;
  TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 4096, .tasks = 1024}, &graph));
  TRY(rondo_graph_qr(graph,
                     &(rondo_graph_qr_desc){.dtype = RONDO_F32,
                                            .layout = RONDO_COLUMN_MAJOR,
                                            .m = 512,
                                            .n = 256,
                                            .batch = 1,
                                            .form = RONDO_QR_THIN_Q,
                                            .panel_width = 32},
                     &tensors));
  return graph;
}

static void draw(const char *folder, const char *name, rondo_graph *graph) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s_graph.dot", folder, name);
  TRY(rondo_write_dot(graph, path));
  snprintf(path, sizeof path, "%s/%s_plan.svg", folder, name);
  TRY(rondo_write_plan_svg(graph, path));
  TRY(rondo_graph_destroy(&graph));
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: draw_pictures FOLDER\n"), 2;
  draw(argv[1], "attention", attention_block());
  draw(argv[1], "transformer_4", transformer(4));
  draw(argv[1], "transformer_30", transformer(30));
  draw(argv[1], "blocked_qr", blocked_qr());
  return 0;
}
