/* quantise - converts the layers of a language model to NVFP4 with a text for calibration. Rounding each weight to the
 * nearest number costs SmolLM2-135M a third of its perplexity; here a weight makes up for the errors of those before it
 * (gptq.c), layer by layer (layer.c). The result is a GGUF file for the chat sample. All runs on the host's processors.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../chat/tokenizer.h"
#include "../sample.h"
#include "layer.h"
#include "nvfp4_file.h"

enum { SEQUENCE = 512, MOST_TOKENS = 8192, MOST_BYTES = 16 * MOST_TOKENS }; /* English has four bytes a token */

static const char help[] =
    "usage: quantise MODEL.gguf TEXT QUANTISED.gguf\n\n"
    "Writes a copy of a Llama-like model with the matrices of its layers in NVFP4, which the chat sample\n"
    "reads. They are rounded so that the model changes least on TEXT (GPTQ): some 5000 tokens of several\n"
    "kinds, 20 KB of English. Only the first 8192 tokens are used. The time grows with their number:\n"
    "SmolLM2-135M takes half a minute on two processors.\n\n"
    "Progress goes to standard error: for each layer the relative errors of the results of its products\n"
    "(q, k and v; output; gate and up; down). The exit status is 2 after an error.\n";

struct paths {
  const char *model, *text, *out;
};

static struct paths parse(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0) {
      fputs(help, stdout);
      exit(SAMPLE_OK);
    }
    if (strncmp(argv[i], "--", 2) == 0) give_up("unknown option %s; see %s --help", argv[i], argv[0]);
  }
  if (argc != 4)
    give_up("%d file%s given, expected a model, a text and a name for the result; see %s --help", argc - 1,
            argc == 2 ? " is" : "s are", argv[0]);
  return (struct paths){argv[1], argv[2], argv[3]};
}

/* ---- The text ---------------------------------------------------------------------------------------------------- */

static char *read_text(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) give_up("%s: %s", path, strerror(errno));
  char *text = malloc(MOST_BYTES);
  if (!text) give_up("no memory for a text");
  *bytes = fread(text, 1, MOST_BYTES, file);
  if (ferror(file)) give_up("%s: %s", path, strerror(errno));
  fclose(file);
  return text;
}

static struct tokens read_tokens(const struct gguf *file, const char *path) {
  struct tokenizer tokenizer;
  struct tokens tokens = {0};
  char message[GGUF_MESSAGE_BYTES];
  size_t bytes;
  char *text = read_text(path, &bytes);
  if (!tokenizer_open(file, &tokenizer, message)) give_up("%s", message);
  if (!tokenizer_encode(&tokenizer, text, bytes, SPECIALS_ARE_TEXT, &tokens)) give_up("no memory for a text");
  if (tokens.count == 0) give_up("%s: the text has no tokens", path);
  if (tokens.count > MOST_TOKENS) tokens.count = MOST_TOKENS;
  tokenizer_close(&tokenizer);
  free(text);
  return tokens;
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

/* Blocks of NVFP4 in a file have 64 columns. A head's 8 columns are the products' smallest step. */
static void require_shape(const struct gguf *file, const rondo_graph_llama_desc *desc) {
  if (desc->hidden % GGUF_NVFP4_ELEMENTS != 0 || desc->feed_forward % GGUF_NVFP4_ELEMENTS != 0)
    give_up("%s: its matrices have %lld and %lld columns, expected multiples of %d", file->path,
            (long long)desc->hidden, (long long)desc->feed_forward, GGUF_NVFP4_ELEMENTS);
  if (desc->hidden / desc->query_heads % 2 != 0 || desc->query_heads % desc->kv_heads != 0)
    give_up("%s: %lld columns, %lld heads and %lld KV heads do not divide evenly", file->path, (long long)desc->hidden,
            (long long)desc->query_heads, (long long)desc->kv_heads);
  for (uint64_t i = 0; i < file->tensor_count; i++)
    if (file->tensors[i].type == GGUF_TYPE_NVFP4)
      give_up("%s: tensor %s is in NVFP4 already", file->path, gguf_quote(file->tensors[i].name).text);
}

/* One factor that suits all matrices of the model, the embedding too if it becomes NVFP4 later. A power of two: so the
 * weights are exact in bf16. */
static float factor_of(const struct gguf *file, rondo_graph_llama_desc desc) {
  int exponent;
  desc.weights = desc.embedding = RONDO_NVFP4;
  float mantissa = frexpf(llama_file_nvfp4_scale(file, &desc), &exponent);
  return ldexpf(1, mantissa > 0.5f ? exponent : exponent - 1);
}

static void round_layers(const struct gguf *file, const rondo_graph_llama_desc *desc, struct activations *activations,
                         struct nvfp4_file *out) {
  uint64_t begin = clock_ns();
  for (int32_t i = 0; i < desc->layers; i++) {
    struct rounded_matrix rounded[LAYER_MATRICES];
    struct layer_matrices layer = llama_file_layer(file, desc, i);
    layer_round(activations, file, &layer, out->factor, rounded);
    fprintf(stderr, "layer %d of %d, %.0f s: errors", i + 1, desc->layers, (double)(clock_ns() - begin) / 1e9);
    for (int j = 0; j < LAYER_MATRICES; j++) {
      fprintf(stderr, " %.1f%%", 100 * rounded[j].error);
      nvfp4_file_set(out, rounded[j].matrix, rounded[j].codes, rounded[j].scales);
      free(rounded[j].codes);
      free(rounded[j].scales);
    }
    fputc('\n', stderr);
  }
}

int main(int argc, char **argv) {
  const struct paths paths = parse(argc, argv);
  if (!__builtin_cpu_supports("avx2")) give_up("the processor has no AVX2, which products.c needs");
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES];
  if (!gguf_open(paths.model, &file, message)) give_up("%s", message);
  int64_t trained;
  rondo_graph_llama_desc desc = llama_file_describe(&file, 0, &trained);
  llama_file_require_tensors(&file, &desc);
  require_shape(&file, &desc);
  struct tokens tokens = read_tokens(&file, paths.text);
  struct activations activations;
  struct nvfp4_file out = nvfp4_file_begin(&file, factor_of(&file, desc));
  activations_begin(&activations, &file, &desc, tokens.ids, (int64_t)tokens.count,
                    trained < SEQUENCE ? trained : SEQUENCE);
  round_layers(&file, &desc, &activations, &out);
  nvfp4_file_write(&out, paths.out);
  activations_end(&activations);
  nvfp4_file_free(&out);
  tokens_free(&tokens);
  gguf_close(&file);
  return SAMPLE_OK;
}
