/* options.c - see options.h. */
#include "options.h"

#include <string.h>

#include "../sample.h"

static const char help[] =
    "usage: serve [OPTION VALUE]...\n\n"
    "Serves a language model over HTTP, as OpenAI's clients expect it: /v1/chat/completions, /v1/completions,\n"
    "/v1/models, /tokenize, /health, /ready, /metrics, and a page to talk with the model at /. SIGTERM and Ctrl-C end\n"
    "it: answers that run are finished first. The exit status is 0 then, 1 if the device is lost, 2 after an error at\n"
    "the start.\n\n"
    "  --listen ADDRESS:PORT     where clients connect (127.0.0.1:8080); port 0: any free one\n"
    "  --unix PATH               a socket file in its place\n"
    "  --api-key-file FILE       a key on each line; requests need one of them (none)\n"
    "  --model FILE.gguf         (.model/SmolLM2-135M-Instruct.Q4_1.gguf, which ./bootstrap model fetches)\n"
    "  --name NAME               of the model, for clients (the file's name)\n"
    "  --weights bf16|e4m3|nvfp4 type of the layers' weights, converted from the file's (the file's if that is nvfp4,\n"
    "                            else bf16)\n"
    "  --backend auto|host|cuda  default auto: a GPU if there is one\n"
    "  --context N               the most tokens of a request, prompt and answer (2048, or the trained context if "
    "that\n"
    "                            is less)\n"
    "  --sequences N             requests that run at a time, 1 to 256 (16)\n"
    "  --pages N                 pages of 64 tokens of the KV caches (enough for all sequences)\n"
    "  --queue N                 requests that may wait; further ones are refused (64)\n"
    "  --max-tokens N            of an answer whose request does not say it (512)\n"
    "  --deadline SECONDS        of a request, its time in the queue included; 0: none (600)\n"
    "  --grace SECONDS           after SIGTERM, until running answers are cut (30)\n"
    "  --idle SECONDS            until a connection on which nothing moves is closed (60)\n"
    "  --answers alike|fast      fast, or over 16 sequences: the last bits of an answer may depend on others (alike)\n"
    "  --lanes 1|2               2: prompts are read in a lane of their own (1)\n"
    "  --prefill-multiprocessors N  of that lane, for it alone; 0: it shares those of answers (40 on a GPU)\n"
    "  --wait spin|sleep         spin: a core for replays and one for HTTP, and no system call between tokens "
    "(sleep)\n";

/* Is it the second word? */
static bool second_word(const char *option, const char *value, const char *first, const char *second) {
  const bool is_second = strcmp(value, second) == 0;
  if (!is_second && strcmp(value, first) != 0) give_up("%s is '%s', expected %s or %s", option, value, first, second);
  return is_second;
}

/* "127.0.0.1:8080" or "[::1]:8080" */
static void listen_parse(struct serve_options *options, const char *text) {
  const char *colon = strrchr(text, ':');
  const bool brackets = colon && *text == '[' && colon[-1] == ']';
  const size_t length = colon ? (size_t)(colon - text) - (brackets ? 2 : 0) : 0;
  if (!length || length >= sizeof options->address) give_up("--listen is '%s', expected ADDRESS:PORT", text);
  options->port = (uint16_t)integer_parse("--listen's port", colon + 1, 0, UINT16_MAX);
  memcpy(options->address, text + brackets, length);
  options->address[length] = 0;
}

static void option_parse(void *user, const char *option, const char *value) {
  struct serve_options *options = user;
  const struct {
    const char *name;
    int32_t *to, low, high;
  } counts[] = {{"--sequences", &options->model.sequences, 1, SEQUENCES_MOST},
                {"--pages", &options->model.pages, 1, INT32_MAX / PAGE_ROWS - 1},
                {"--queue", &options->queue, 0, 1 << 16},
                {"--max-tokens", &options->max_tokens, 1, INT32_MAX},
                {"--deadline", &options->deadline_s, 0, INT32_MAX},
                {"--grace", &options->grace_s, 0, INT32_MAX},
                {"--idle", &options->idle_s, 1, 86400},
                {"--lanes", &options->model.lanes, 1, 2},
                {"--prefill-multiprocessors", &options->model.prefill_multiprocessors, 0, 1024}};
  const struct {
    const char *name, **to;
  } texts[] = {{"--unix", &options->unix_path},
               {"--api-key-file", &options->key_file},
               {"--model", &options->file},
               {"--name", &options->name}};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    if (strcmp(option, counts[i].name) == 0) {
      *counts[i].to = (int32_t)integer_parse(option, value, counts[i].low, counts[i].high);
      return;
    }
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (strcmp(option, texts[i].name) == 0) {
      *texts[i].to = value;
      return;
    }
  if (strcmp(option, "--context") == 0)
    options->model.context = integer_parse(option, value, 2, INT32_MAX);
  else if (strcmp(option, "--listen") == 0)
    listen_parse(options, value);
  else if (strcmp(option, "--weights") == 0)
    options->model.weights = weights_parse(option, value, true);
  else if (strcmp(option, "--backend") == 0)
    options->model.backend = backend_parse(value);
  else if (strcmp(option, "--answers") == 0)
    options->model.any_order = second_word(option, value, "alike", "fast");
  else if (strcmp(option, "--wait") == 0)
    options->model.spins = second_word(option, value, "sleep", "spin");
  else
    give_up("unknown option %s; see --help", option);
}

struct serve_options serve_options_parse(int argc, char **argv) {
  struct serve_options options = {.file = ".model/SmolLM2-135M-Instruct.Q4_1.gguf",
                                  .address = "127.0.0.1",
                                  .port = 8080,
                                  .queue = 64,
                                  .max_tokens = 512,
                                  .deadline_s = 600,
                                  .grace_s = 30,
                                  .idle_s = 60,
                                  .model = {.sequences = 16, .lanes = 1, .prefill_multiprocessors = -1}};
  options_each(argc, argv, help, option_parse, &options);
  const char *slash = strrchr(options.file, '/');
  if (!options.name) options.name = slash ? slash + 1 : options.file;
  return options;
}
