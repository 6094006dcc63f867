/* test_llama_model.c - the chat sample's model answers as the numpy reference does (tests/model/reference.py, which
 * computes in fp32 with the file's own weights): the same tokens wherever the reference's two best are further apart
 * than bf16 can tell, the same logits to within that, and the same perplexity of a page of English. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/chat/llama_model.h"
#include "../support.h"
#include "model.h"

enum { STEPS = 64, PROMPTS = 5, ALL_STEPS = PROMPTS * STEPS, MOST_TOKENS = 512 };

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* The next line "tokens 1 2 3" of a file: how many, 0 at the end. */
static size_t read_tokens(FILE *file, int32_t tokens[MOST_TOKENS]) {
  char *line = NULL;
  size_t capacity = 0, count = 0;
  while (count == 0 && getline(&line, &capacity, file) > 0) {
    if (strncmp(line, "tokens ", 7) != 0) continue;
    for (char *at = line + 7, *end; count < MOST_TOKENS; at = end) {
      tokens[count] = (int32_t)strtol(at, &end, 10);
      if (end == at) break;
      count++;
    }
  }
  free(line);
  return count;
}

struct step {
  int prompt, best, second;
  double best_logit, second_logit;
};

struct expected {
  struct step steps[ALL_STEPS];
  double perplexity;
};

static struct expected *read_expected(void) {
  struct expected *expected = calloc(1, sizeof *expected);
  FILE *file = require_data("expected.txt");
  char line[256];
  size_t count = 0;
  while (fgets(line, sizeof line, file)) {
    struct step step;
    if (count < ALL_STEPS && sscanf(line, "step %d %d %lf %d %lf", &step.prompt, &step.best, &step.best_logit,
                                    &step.second, &step.second_logit) == 5)
      expected->steps[count++] = step;
    else
      sscanf(line, "perplexity %lf", &expected->perplexity);
  }
  fclose(file);
  cr_assert(count == ALL_STEPS && expected->perplexity > 0);
  return expected;
}

/* ---- Logits ------------------------------------------------------------------------------------------------------ */

/* What differs from the reference, at worst. */
struct difference {
  double logit, margin; /* of a token that is another one */
  int other_tokens;
};

static void compare_step(const struct llama *llama, const struct step *step, int32_t token,
                         struct difference *difference) {
  const float *logits = llama_logits(llama);
  difference->logit = fmax(difference->logit, fabs((double)logits[step->best] - step->best_logit));
  difference->logit = fmax(difference->logit, fabs((double)logits[step->second] - step->second_logit));
  if (token == step->best) return;
  difference->other_tokens++;
  difference->margin = fmax(difference->margin, step->best_logit - step->second_logit);
}

static int32_t next_token(struct llama *llama, int32_t token) {
  llama_force(llama, token);
  llama_begin_token(llama);
  return llama_end_token(llama);
}

/* Each prompt, and then the reference's tokens, whatever the model would have said. */
static struct difference compare_prompts(struct llama *llama, const struct expected *expected, int step_count) {
  struct difference difference = {0};
  FILE *prompts = require_data("prompts.txt");
  int32_t tokens[MOST_TOKENS];
  for (int prompt = 0; prompt < PROMPTS; prompt++) {
    size_t count = read_tokens(prompts, tokens);
    cr_assert_gt(count, 0);
    llama_forget(llama);
    int32_t token = llama_prefill(llama, tokens, count);
    const struct step *steps = expected->steps + (ptrdiff_t)prompt * STEPS;
    compare_step(llama, &steps[0], token, &difference);
    for (int i = 1; i < step_count; i++)
      compare_step(llama, &steps[i], next_token(llama, steps[i - 1].best), &difference);
  }
  fclose(prompts);
  return difference;
}

static double surprise(const float *logits, int64_t count, int32_t token) {
  double largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, (double)logits[i]);
  for (int64_t i = 0; i < count; i++) sum += exp((double)logits[i] - largest);
  return largest + log(sum) - (double)logits[token];
}

static double perplexity(struct llama *llama) {
  FILE *text = require_data("text.txt");
  int32_t tokens[MOST_TOKENS];
  size_t count = read_tokens(text, tokens);
  fclose(text);
  double sum = 0;
  llama_forget(llama);
  for (size_t i = 0; i + 1 < count; i++) {
    next_token(llama, tokens[i]);
    sum += surprise(llama_logits(llama), llama->desc.vocabulary, tokens[i + 1]);
  }
  return exp(sum / (double)(count - 1));
}

static struct llama open_model(rondo_backend backend, rondo_dtype weights) {
  struct gguf file = require_model();
  struct llama llama;
  llama_open(&file,
             &(struct llama_options){
                 .backend = backend, .weights = weights, .embedding = RONDO_BF16, .context = 512, .with_logits = true},
             &llama);
  gguf_close(&file);
  return llama;
}

struct tolerance {
  int steps; /* of each prompt that are compared */
  double logit;
  double perplexity; /* of itself; 0: it is not asked for */
};

/* A token may be another one where two logits that are off by so much may change places. */
static void check_weights(rondo_backend backend, rondo_dtype weights, struct tolerance tolerance) {
  skip_under_sanitizers();
  struct llama llama = open_model(backend, weights);
  struct expected *expected = read_expected();
  struct difference difference = compare_prompts(&llama, expected, tolerance.steps);
  cr_log_info("%s: logits differ by %.3f, %d tokens are others, at margins up to %.3f", rondo_dtype_name(weights),
              difference.logit, difference.other_tokens, difference.margin);
  cr_assert_leq(difference.logit, tolerance.logit);
  cr_assert_leq(difference.margin, 2 * tolerance.logit);
  if (tolerance.perplexity > 0) {
    double found = perplexity(&llama);
    cr_log_info("%s: perplexity %.3f, expected %.3f", rondo_dtype_name(weights), found, expected->perplexity);
    cr_assert_leq(fabs(found / expected->perplexity - 1), tolerance.perplexity);
  }
  llama_close(&llama);
  free(expected);
}

static void check_bf16(rondo_backend backend) {
  check_weights(backend, RONDO_BF16, (struct tolerance){.steps = 64, .logit = 1, .perplexity = 0.01});
}
BOTH_BACKENDS(llama_model, answers_as_the_reference_does_in_bf16, check_bf16)

static void check_e4m3(rondo_backend backend) {
  check_weights(backend, RONDO_E4M3, (struct tolerance){.steps = 8, .logit = 3});
}
BOTH_BACKENDS(llama_model, answers_nearly_so_in_e4m3, check_e4m3)

static void check_nvfp4(rondo_backend backend) {
  check_weights(backend, RONDO_NVFP4, (struct tolerance){.steps = 4, .logit = 9, .perplexity = 0.4});
}
BOTH_BACKENDS(llama_model, answers_recognisably_in_nvfp4, check_nvfp4)
