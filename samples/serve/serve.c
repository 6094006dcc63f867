/* serve.c - serves a language model over HTTP. One thread replays, and one speaks HTTP (README.md). */
#include <stdio.h>
#include <stdlib.h>

#include "../chat/template.h"
#include "../sample.h"
#include "server.h"

/* A model may have more rows than the tokenizer has tokens, and may draw one of them. */
static bool *ends_of(const struct template *template, const struct model *model) {
  const int32_t known = template->tokenizer->vocabulary.token_count, count = (int32_t)model->desc.vocabulary;
  if (count < known) give_up("the model has %d tokens, fewer than the %d of its tokenizer", count, known);
  bool *ends = calloc((size_t)count, sizeof *ends);
  if (!ends) give_up("no memory for %d tokens", count);
  for (int32_t i = 0; i < count; i++) ends[i] = template_ends(template, i);
  return ends;
}

static void say_ready(const struct serve_options *options, const struct model *model, uint64_t begin_ns) {
  fprintf(stderr, "ready after %.2f s: %s on %s, %d sequences of %lld tokens, %lld pages",
          (double)(clock_ns() - begin_ns) * 1e-9, options->name, model->info.device_name, options->model.sequences,
          (long long)model->desc.context, (long long)model->desc.pages - 1);
  const bool tells_lanes = model->lanes > 1 && model->info.backend == RONDO_BACKEND_CUDA;
  for (int32_t lane = 0; lane < model->lanes && tells_lanes; lane++) {
    rondo_lane_grant grant;
    TRY(rondo_lane_info(model->runtime, (uint32_t)lane, &grant));
    fprintf(stderr, ", %s on %d multiprocessors", grant.name, grant.multiprocessors);
  }
  fputc('\n', stderr);
}

int main(int argc, char **argv) {
  static struct service server;
  static struct engine engine;
  static struct model model;
  struct serve_options options = serve_options_parse(argc, argv);
  struct gguf file;
  struct tokenizer tokenizer;
  struct template template;
  char message[GGUF_MESSAGE_BYTES];
  const uint64_t begin = clock_ns();
  if (!gguf_open(options.file, &file, message)) give_up("%s", message);
  if (!tokenizer_open(&file, &tokenizer, message)) give_up("%s", message);
  if (!template_find(&tokenizer, &template)) give_up("%s: no <|im_start|> and <|im_end|>", options.file);
  server_open(&server, &options, &template);
  model_open(&file, &options.model, &model);
  gguf_close(&file);
  bool *ends = ends_of(&template, &model);
  engine_start(
      &engine, &model,
      &(struct engine_options){.requests = service_record_count(&options), .ends = ends, .spins = options.model.spins});
  say_ready(&options, &model, begin);
  const int status = server_run(&server, &engine);
  model_close(&model);
  tokenizer_close(&tokenizer);
  free(ends);
  return status;
}
