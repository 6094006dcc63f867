/* test_chat_files.c - files that the chat sample would compute otherwise than they say: it refuses them, each with its
 * sentence. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../samples/chat/gguf.h"
#include "run_chat.h"

TestSuite(chat_files, .fini = shell_remove_folder, .timeout = 300);

static void require_refusal(struct ran ran, const char *sentence) {
  REQUIRE_CODE(ran, 2);
  cr_assert_str_empty(ran.out);
  cr_assert_not_null(strstr(ran.error, sentence), "'%s' does not say '%s'", ran.error, sentence);
}

/* Each of these would be computed as the small model is, which is another one's. */
Test(chat_files, refuses_a_file_that_asks_for_what_it_does_not_compute) {
  static const struct {
    const char *key, *text; /* NULL: the number */
    uint32_t number;
    const char *sentence;
  } keys[] = {
      {"llama.rope.scaling.type", "yarn", 0, "scaling.type is yarn, expected none: scaled positions are not supported"},
      {"llama.rope.scaling.factor", NULL, 8, "scaling.factor is 8, expected 1: scaled positions are not supported"},
      {"llama.rope.scaling.attn_factor", NULL, 2,
       "scaling.attn_factor is 2, expected 1: scaled positions are not supported"},
      {"llama.rope.scale_linear", NULL, 2, "rope.scale_linear is 2, expected 1: scaled positions are not supported"},
      {"llama.rope.dimension_count", NULL, 16,
       "dimension_count is 16, expected 32: the rotary embedding must apply to whole heads"},
      {"llama.attention.key_length", NULL, 64, "key_length is 64, expected 32: the heads must divide"},
      {"llama.attention.value_length", NULL, 64, "value_length is 64, expected 32: the heads must divide"},
      {"llama.attention.scale", NULL, 1, "attention.scale is 1, expected 0.176777: other scales than"},
      {"llama.attention.sliding_window", NULL, 64,
       "sliding_window is 64, expected 0: sliding windows are not supported"},
      {"llama.logit_scale", NULL, 2, "llama.logit_scale is 2, expected 1: this factor is not supported"},
      {"llama.embedding_scale", NULL, 2, "llama.embedding_scale is 2, expected 1: this factor is not supported"},
      {"llama.residual_scale", NULL, 2, "llama.residual_scale is 2, expected 1: this factor is not supported"},
      {"llama.attention.causal", NULL, 0,
       "llama.attention.causal is false, expected true: attention without a causal mask"},
      {"llama.expert_count", NULL, 8, "llama.expert_count is 8, expected 0: mixtures of experts"},
  };
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    struct gguf_writer writer = {0};
    if (keys[i].text)
      gguf_write_string(&writer, keys[i].key, keys[i].text);
    else
      gguf_write_u32(&writer, keys[i].key, keys[i].number);
    require_refusal(run_small_model(&writer, ""), keys[i].sentence);
  }
}

/* A model without them would say something else. */
Test(chat_files, refuses_tensors_that_nothing_reads) {
  static const char *const tensors[] = {
      "blk.0.attn_q.bias",       "blk.0.ffn_gate_exps.weight", "rope_freqs.weight", /* of models that are others */
      "blk.1.attn_norm.weight",                                                     /* the model has one layer */
      "blk.00.attn_norm.weight", "blk.foo.attn_norm.weight",   "attn_norm.weight",
      "blk.0.token_embd.weight", "blk.0.output.weight",
  };
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    static const float values[64];
    struct gguf_writer writer = {0};
    gguf_write_tensor(&writer, tensors[i], GGUF_TYPE_F32, 1, (int64_t[]){64}, values, sizeof values);
    char sentence[128];
    snprintf(sentence, sizeof sentence, "it has the tensor %s, which is not supported", tensors[i]);
    require_refusal(run_small_model(&writer, ""), sentence);
  }
}

/* A model as large as these keys say does not fit into any memory. */
Test(chat_files, compares_the_keys_with_the_tensors_before_it_takes_memory) {
  static const struct {
    const char *key;
    uint32_t number;
    const char *sentence;
  } keys[] = {
      {"llama.block_count", INT32_MAX, "it has no tensor blk.1.attn_norm.weight"},
      {"llama.feed_forward_length", 1 << 30, "tensor blk.0.ffn_gate.weight is 128 x 64, expected 1073741824 x 64"},
      {"llama.embedding_length", 1 << 30, "tensor blk.0.attn_norm.weight is 1 x 64, expected 1 x 1073741824"},
  };
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    struct gguf_writer writer = {0};
    gguf_write_u32(&writer, keys[i].key, keys[i].number);
    writer.without = keys[i].key;
    require_refusal(run_small_model(&writer, ""), keys[i].sentence);
  }
}

/* A terminal would take some bytes for commands: these clear it. */
Test(chat_files, shows_what_the_file_says_as_text) {
  struct gguf_writer writer = {0};
  gguf_write_string(&writer, "llama.rope.scaling.type", "\x1b[2J");
  require_refusal(run_small_model(&writer, ""), "scaling.type is ?[2J, expected none");
  gguf_write_tensor(&writer, "\x1b[2J", GGUF_TYPE_F32, 1, (int64_t[]){1}, (float[]){0}, sizeof(float));
  require_refusal(run_small_model(&writer, ""), "it has the tensor ?[2J, which is not supported");
}

/* In place of the small model's own; the library would take a zero for its own default. */
Test(chat_files, refuses_a_base_and_an_epsilon_that_are_not_positive) {
  static const char *const keys[] = {"llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"};
  static const float values[] = {0, -1, NAN, INFINITY};
  for (size_t i = 0; i < 2 * sizeof values / sizeof *values; i++) {
    const char *key = keys[i % 2];
    struct gguf_writer writer = {0};
    gguf_write_value(&writer, key, GGUF_F32, &values[i / 2], sizeof values[i / 2]);
    writer.without = key;
    require_refusal(run_small_model(&writer, ""), ", expected a positive number");
  }
}

static void require_answer(struct gguf_writer *writer, const char *answer) {
  struct ran ran = run_small_model(writer, "--tokens 100");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, answer);
}

/* The small model's answer, which no key of these tests changes. */
static const char *small_answer(void) {
  static char answer[SHELL_TEXT_BYTES];
  struct gguf_writer writer = {0};
  struct ran ran = run_small_model(&writer, "--tokens 100");
  REQUIRE_CODE(ran, 0);
  cr_assert_gt(strlen(ran.out), 16);
  snprintf(answer, sizeof answer, "%s", ran.out);
  return answer;
}

/* The same keys where they ask for nothing. */
Test(chat_files, takes_a_file_that_says_what_it_computes) {
  static const float zero = 0, one = 1, root = 0.17677669f; /* of a head's 32 columns, its inverse */
  const char *answer = small_answer();
  struct gguf_writer writer = {0};
  gguf_write_string(&writer, "llama.rope.scaling.type", "none");
  gguf_write_value(&writer, "llama.rope.scaling.factor", GGUF_F32, &one, sizeof one);
  gguf_write_u32(&writer, "llama.rope.dimension_count", 32);
  gguf_write_u32(&writer, "llama.attention.key_length", 32);
  gguf_write_u32(&writer, "llama.attention.value_length", 32);
  gguf_write_value(&writer, "llama.attention.causal", GGUF_BOOL, "\1", 1);
  gguf_write_value(&writer, "llama.attention.scale", GGUF_F32, &root, sizeof root);
  gguf_write_value(&writer, "llama.logit_scale", GGUF_F32, &one, sizeof one);
  gguf_write_u32(&writer, "llama.expert_count", 0);
  require_answer(&writer, answer);
  gguf_write_string(&writer, "llama.rope.scaling.type", "linear");
  gguf_write_value(&writer, "llama.rope.scaling.factor", GGUF_F32, &zero, sizeof zero);
  gguf_write_value(&writer, "llama.attention.scale", GGUF_F32, &zero, sizeof zero);
  gguf_write_u32(&writer, "llama.attention.sliding_window", 0);
  require_answer(&writer, answer);
}

/* The small model's base is the default: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. */
Test(chat_files, takes_a_file_without_its_optional_keys) {
  const char *answer = small_answer();
  struct gguf_writer writer = {.without = "llama.rope.freq_base"};
  require_answer(&writer, answer);
  writer.without = "llama.attention.head_count_kv"; /* as many as queries have: the small model has fewer */
  require_refusal(run_small_model(&writer, ""), "tensor blk.0.attn_k.weight is 32 x 64, expected 64 x 64");
}

/* A conversation is no longer than that, whoever asks. */
Test(chat_files, takes_a_model_that_was_trained_for_few_tokens) {
  struct gguf_writer writer = {0};
  char sentence[64];
  struct ran ran = run_small_model(&writer, "");
  REQUIRE_CODE(ran, 2);
  snprintf(sentence, sizeof sentence, "the context is full: %d tokens, and", SMALL_CONTEXT);
  cr_assert_not_null(strstr(ran.error, sentence), "%s", ran.error);
  require_refusal(run_small_model(&writer, "--context 257"),
                  "the model was trained for 256 tokens, less than the context of 257");
}

/* The model would answer something, or nothing: no logit is larger than NaN. */
Test(chat_files, refuses_a_weight_that_is_no_number) {
  static const float weights[] = {NAN, INFINITY, FLT_MAX};
  static const char *const sentences[] = {"column 5 is nan", "column 5 is inf", "column 5 is 3.40282e+38"};
  for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
    char sentence[128];
    float norm[64] = {[5] = weights[i]};
    struct gguf_writer writer = {0};
    gguf_write_tensor(&writer, "blk.0.ffn_norm.weight", GGUF_TYPE_F32, 1, (int64_t[]){64}, norm, sizeof norm);
    writer.without = "blk.0.ffn_norm.weight";
    snprintf(sentence, sizeof sentence, "tensor blk.0.ffn_norm.weight: row 0, %s, which bf16 cannot express",
             sentences[i]);
    require_refusal(run_small_model(&writer, ""), sentence);
  }
}
