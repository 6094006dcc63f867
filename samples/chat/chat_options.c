/* chat_options.c - the command line of the chat sample (chat_options.h). */
#include "chat_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../sample.h"
#include "template.h"

static const char help[] =
    "usage: chat [OPTION VALUE]...\n\n"
    "A conversation with SmolLM2-135M-Instruct. A message is a line, or a text that is pasted into a terminal. /new\n"
    "begins a new conversation, /help lists the other commands. Ctrl-C drops a message that is being processed, or\n"
    "ends an answer. At the prompt Ctrl-C and Ctrl-D end the program. Answers go to standard output; of the control\n"
    "codes they have only newline and tab. All other text goes to standard error.\n\n"
    "If the context is full, the oldest messages and their answers are dropped. The exit status is 2 after an error,\n"
    "if a message is too long for the context, if an answer is cut because the context is full, and if Ctrl-C\n"
    "interrupts --prompt. It is 0 if --tokens cuts an answer.\n\n"
    "  --prompt TEXT             answer this message and end\n"
    "  --system TEXT             the system message\n"
    "  --tokens N                the most tokens of an answer (512)\n"
    "  --context N               the most tokens of a conversation (2048, or the trained context if that is less)\n"
    "  --temperature X           0: always the most probable token (0)\n"
    "  --top-k N, --top-p X      with a temperature: draw from the N most probable tokens (40), and of these from the\n"
    "                            fewest whose probabilities reach X together (0.95)\n"
    "  --seed N                  the seed of the draws (0)\n"
    "  --repeat-penalty X        above 1: tokens among the last 64 become less likely (1)\n"
    "  --draft N                 the most tokens that are guessed from the text so far and checked at once, up to "
    "127;\n"
    "                            0: none (15 with weights in bf16, else none)\n"
    "  --weights bf16|e4m3|nvfp4 type of the layers' weights, converted from the file's (nvfp4 for a file that has "
    "them\n"
    "                            in NVFP4, as quantise writes it, else bf16)\n"
    "  --embedding bf16|nvfp4    type of the embedding, which is also the output matrix (bf16)\n"
    "  --statistics none|end|each\n"
    "                            show times and memory: never, after the conversation, or after each answer too (end)\n"
    "  --backend auto|host|cuda  default auto: a GPU if there is one\n"
    "  --model FILE.gguf         (.model/SmolLM2-135M-Instruct.Q4_1.gguf, which ./bootstrap model fetches)\n";

static double number_parse(const char *option, const char *text, double low, double high) {
  char *end;
  errno = 0;
  double value = strtod(text, &end);
  if (errno || end == text || *end || !(value >= low && value <= high))
    give_up("%s is '%s', expected a number from %g to %g", option, text, low, high);
  return value;
}

static enum chat_statistics statistics_parse(const char *name) {
  static const char *const known[] = {[STATISTICS_NONE] = "none", [STATISTICS_END] = "end", [STATISTICS_EACH] = "each"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(name, known[i]) == 0) return (enum chat_statistics)i;
  give_up("--statistics is '%s', expected none, end or each", name);
}

static void option_parse(void *user, const char *option, const char *value) {
  struct chat_options *options = user;
  struct llama_options *llama = &options->llama;
  if (strcmp(option, "--prompt") == 0)
    options->prompt = value;
  else if (strcmp(option, "--system") == 0)
    options->system = value;
  else if (strcmp(option, "--tokens") == 0)
    options->tokens = integer_parse(option, value, 1, INT32_MAX);
  else if (strcmp(option, "--context") == 0)
    llama->context = integer_parse(option, value, 1, INT32_MAX);
  else if (strcmp(option, "--temperature") == 0)
    llama->temperature = (float)number_parse(option, value, 0, 100);
  else if (strcmp(option, "--top-k") == 0)
    llama->top_k = (int32_t)integer_parse(option, value, 0, INT32_MAX);
  else if (strcmp(option, "--top-p") == 0)
    llama->top_p = (float)number_parse(option, value, 0, 1);
  else if (strcmp(option, "--seed") == 0)
    llama->seed = (int32_t)integer_parse(option, value, INT32_MIN, INT32_MAX);
  else if (strcmp(option, "--repeat-penalty") == 0)
    llama->repeat_penalty = (float)number_parse(option, value, 1, 100);
  else if (strcmp(option, "--draft") == 0)
    llama->draft = (int32_t)integer_parse(option, value, 0, LLAMA_MOST_DRAFT);
  else if (strcmp(option, "--weights") == 0)
    llama->weights = weights_parse(option, value, true);
  else if (strcmp(option, "--embedding") == 0)
    llama->embedding = weights_parse(option, value, false);
  else if (strcmp(option, "--statistics") == 0)
    options->statistics = statistics_parse(value);
  else if (strcmp(option, "--backend") == 0)
    llama->backend = backend_parse(value);
  else if (strcmp(option, "--model") == 0)
    options->model = value;
  else
    give_up("unknown option %s; see --help", option);
}

struct chat_options chat_options_parse(int argc, char **argv) {
  struct chat_options options = {
      .model = ".model/SmolLM2-135M-Instruct.Q4_1.gguf",
      .system = template_default_system,
      .tokens = 512,
      .statistics = STATISTICS_END,
      .llama = {.embedding = RONDO_BF16, .top_k = 40, .top_p = 0.95f, .draft = LLAMA_BEST_DRAFT},
  };
  options_each(argc, argv, help, option_parse, &options);
  return options;
}
