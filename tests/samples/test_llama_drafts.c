/* test_llama_drafts.c - answers of the chat sample's model with drafted tokens: about texts that repeat themselves
 * (tests/model/repeating.txt), the answers are those without drafts. On the host that is so to the last token. On a GPU
 * another kernel takes a token with its drafts, and so a token may be another one where the best two are as close as
 * tests/model/README.md says; from there on the answers differ. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/chat/llama_model.h"
#include "../../samples/chat/template.h"
#include "../../samples/sample.h"
#include "../support.h"
#include "model.h"

enum { MOST_TEXTS = 8, MOST_BYTES = 4096, ANSWER = 160, ANSWER_ON_HOST = 64 /* whose tokens take longer */ };

struct answer {
  int32_t tokens[ANSWER];
  int count, replays, verified, runs; /* replays with drafts; runs of either kind */
  uint64_t ns;                        /* of all but the first token */
};

/* The texts, which lines of four dashes divide. */
static size_t read_texts(char texts[MOST_TEXTS][MOST_BYTES]) {
  FILE *file = require_data("repeating.txt");
  char line[MOST_BYTES];
  size_t count = 0;
  for (*texts[0] = '\0'; fgets(line, sizeof line, file);) {
    if (strcmp(line, "----\n") == 0) {
      cr_assert_lt(++count, MOST_TEXTS);
      *texts[count] = '\0';
      continue;
    }
    cr_assert_lt(strlen(texts[count]) + strlen(line), MOST_BYTES);
    strcat(texts[count], line);
  }
  fclose(file);
  return count + 1;
}

static struct tokens ask(const struct template *template, const char *text) {
  struct tokens tokens = {0};
  cr_assert(template_begin(template, &tokens) &&
            template_message(template, "system", template_default_system, strlen(template_default_system), &tokens) &&
            template_message(template, "user", text, strlen(text), &tokens) && template_answer(template, &tokens));
  return tokens;
}

/* Takes a run's tokens. */
static void take_run(struct llama *llama, int room, struct answer *answer) {
  const int32_t *tokens;
  answer->runs++;
  llama_run_begin(llama, room - answer->count);
  const bool verifies = llama->running == &llama->verify;
  for (size_t count; (count = llama_run_take(llama, &tokens)) > 0;) {
    cr_assert_leq(answer->count + (int)count, room);
    memcpy(answer->tokens + answer->count, tokens, count * sizeof *tokens);
    answer->count += (int)count;
    answer->replays++, answer->verified += verifies;
  }
}

static struct answer answer_to(struct llama *llama, const struct template *template, const struct tokens *prompt,
                               int room) {
  struct answer answer = {0};
  llama_rewind(llama, 0);
  answer.tokens[answer.count++] = llama_prefill(llama, prompt->ids, prompt->count);
  const uint64_t begin = clock_ns();
  while (answer.count < room && !template_ends(template, answer.tokens[answer.count - 1])) {
    if (llama->runs) {
      take_run(llama, room, &answer);
      continue;
    }
    llama_begin_token(llama);
    answer.tokens[answer.count++] = llama_end_token(llama), answer.replays++;
  }
  answer.ns = clock_ns() - begin;
  return answer;
}

/* How much likelier decode finds its own token than the other, after the tokens that both answers have. */
static float margin(struct llama *llama, const struct tokens *prompt, const struct answer *plain, int at,
                    int32_t other) {
  llama_rewind(llama, 0);
  llama_prefill(llama, prompt->ids, prompt->count);
  for (int i = 0; i < at; i++) {
    llama_force(llama, plain->tokens[i]);
    llama_begin_token(llama);
    llama_end_token(llama);
  }
  const float *logits = llama_logits(llama);
  return logits[plain->tokens[at]] - logits[other];
}

static struct llama open_llama(struct gguf *file, const struct template *template, rondo_backend backend,
                               int32_t draft) {
  struct llama_options options = {.backend = backend,
                                  .weights = RONDO_BF16,
                                  .embedding = RONDO_BF16,
                                  .context = 1024,
                                  .with_logits = !draft,
                                  .draft = draft};
  struct llama llama;
  options.stops[options.stop_count++] = template->end;
  llama_open(file, &options, &llama);
  return llama;
}

static void compare(struct llama *plain, struct llama *drafted, const struct template *template, const char *text,
                    bool to_the_last, int *tokens, uint64_t ns[2]) {
  struct tokens prompt = ask(template, text);
  const int room = to_the_last ? ANSWER_ON_HOST : ANSWER;
  const struct answer a = answer_to(plain, template, &prompt, room), b = answer_to(drafted, template, &prompt, room);
  int same = 0;
  while (same < a.count && same < b.count && a.tokens[same] == b.tokens[same]) same++;
  cr_log_info(
      "%d tokens in %.0f ms; with drafts %d in %.0f ms, %d runs of %d replays, of which %d with drafts; the first "
      "%d are the same",
      a.count, (double)a.ns / 1e6, b.count, (double)b.ns / 1e6, b.runs, b.replays, b.verified, same);
  *tokens += b.count - b.replays;
  ns[0] += a.ns / (uint64_t)a.count, ns[1] += b.ns / (uint64_t)b.count;
  if (to_the_last) cr_expect(same == a.count && same == b.count, "token %d is another one", same);
  if (!to_the_last && same < a.count && same < b.count)
    cr_expect_leq(margin(plain, &prompt, &a, same, b.tokens[same]), 0.2f);
  tokens_free(&prompt);
}

static void check_texts(rondo_backend backend, int32_t draft) {
  static char texts[MOST_TEXTS][MOST_BYTES];
  struct gguf file = require_model();
  struct tokenizer tokenizer;
  struct template template;
  char message[GGUF_MESSAGE_BYTES];
  const size_t count = read_texts(texts);
  int saved = 0;
  uint64_t ns[2] = {0};
  cr_assert(tokenizer_open(&file, &tokenizer, message), "%s", message);
  cr_assert(template_find(&tokenizer, &template));
  struct llama plain = open_llama(&file, &template, backend, 0), drafted = open_llama(&file, &template, backend, draft);
  gguf_close(&file);
  cr_assert(!plain.runs && drafted.runs);
  /* On the host every second text: what a graph of drafts may do wrong, it does with any. */
  const size_t step = backend == RONDO_BACKEND_HOST ? 2 : 1;
  for (size_t i = 0; i < count; i += step)
    compare(&plain, &drafted, &template, texts[i], backend == RONDO_BACKEND_HOST, &saved, ns);
  cr_log_info("a token takes %.2f of the time without drafts", (double)ns[1] / (double)ns[0]);
  cr_expect_gt(saved, 0, "no draft was right");
  llama_close(&drafted), llama_close(&plain);
  tokenizer_close(&tokenizer);
}

Test(llama_drafts, change_no_answer_on_the_host, .timeout = 600) {
  skip_under_sanitizers();
  check_texts(RONDO_BACKEND_HOST, 15);
}

Test(llama_drafts, change_no_answer_on_a_gpu_cuda, .timeout = 600) {
  require_backend(RONDO_BACKEND_CUDA);
  check_texts(RONDO_BACKEND_CUDA, 15);
}
