/* test_quantise.c - the quantise sample as a person runs it, on the small model: the file that it writes, and the chat
 * sample with that file, damaged too. tests/samples/test_llama_model.c measures SmolLM2. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../samples/chat/dequantize.h"
#include "../support.h"
#include "run_chat.h"

TestSuite(quantise, .fini = shell_remove_folder, .timeout = 300);

static const char *const matrices[] = {"blk.0.attn_k",   "blk.0.attn_output", "blk.0.attn_q", "blk.0.attn_v",
                                       "blk.0.ffn_down", "blk.0.ffn_gate",    "blk.0.ffn_up"};
enum { MATRICES = sizeof matrices / sizeof *matrices };

static const char text[] = "the hello's 12 aaaaaaa then hell, oh there\n\nhe tells the others; er, the 12 th letter";

static struct ran quantise(const char *words) {
  char line[2048];
  snprintf(line, sizeof line, "cd %s && %s/samples/quantise %s", shell_folder(), shell_root(), words);
  return shell_run(line);
}

/* Writes small.gguf and text into the test's folder, and quantised.gguf from them. */
static struct ran quantise_small_model(struct gguf_writer *writer) {
  write_small_model(writer);
  shell_write("text", text);
  return quantise("small.gguf text quantised.gguf");
}

static const char *path_of(const char *name) {
  static char paths[2][512];
  static int next;
  next = 1 - next;
  snprintf(paths[next], sizeof paths[next], "%s/%s", shell_folder(), name);
  return paths[next];
}

static struct gguf open_file(const char *name) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES];
  cr_assert(gguf_open(path_of(name), &file, message), "%s", message);
  return file;
}

static const struct gguf_tensor *find(const struct gguf *file, const char *matrix, const char *kind) {
  char name[64];
  snprintf(name, sizeof name, "%s.%s", matrix, kind);
  const struct gguf_tensor *tensor = gguf_tensor(file, name);
  cr_assert_not_null(tensor, "no tensor %s", name);
  return tensor;
}

static struct ran chat_with(const char *name, const char *words) {
  char all[1024];
  snprintf(all, sizeof all, "--backend host --prompt hello --tokens 8 --model %s %s", path_of(name), words);
  return run_chat(all, "");
}

static void require_sentence(struct ran ran, const char *sentence) {
  REQUIRE_CODE(ran, 2);
  cr_assert_str_empty(ran.out);
  cr_assert_not_null(strstr(ran.error, sentence), "'%s' does not say '%s'", ran.error, sentence);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static void require_close(const struct gguf_tensor *before, const struct gguf_tensor *after) {
  float *old = malloc((size_t)before->shape[0] * sizeof *old), *new = malloc((size_t)before->shape[0] * sizeof *new);
  double size = 0, error = 0;
  cr_assert(old && new && before->shape[0] == after->shape[0] && gguf_rows(before) == gguf_rows(after));
  for (int64_t row = 0; row < gguf_rows(before); row++) {
    dequantize_row(before, row, old);
    dequantize_row(after, row, new);
    for (int64_t i = 0; i < before->shape[0]; i++) {
      cr_assert_leq(fabs((double)old[i]), 0.5); /* as the small model's are */
      cr_assert_leq(fabs((double)new[i]), 1);
      size += (double)old[i] * (double)old[i];
      error += ((double)old[i] - (double)new[i]) * ((double)old[i] - (double)new[i]);
    }
  }
  cr_assert_lt(error, 0.1 * size); /* rows of a wrong order would have 2 */
  free(old);
  free(new);
}

Test(quantise, writes_the_layers_in_nvfp4_and_all_else_as_it_was) {
  struct gguf_writer writer = {0};
  gguf_write_u32(&writer, "general.file_type", 0);
  struct ran ran = quantise_small_model(&writer);
  REQUIRE_CODE(ran, 0);
  cr_assert_str_empty(ran.out);
  cr_assert_not_null(strstr(ran.error, "layer 1 of 1, "), "%s", ran.error);
  struct gguf before = open_file("small.gguf"), after = open_file("quantised.gguf");
  cr_assert_eq(after.tensor_count, before.tensor_count + MATRICES);
  cr_assert_eq(after.entry_count, before.entry_count);
  int64_t type;
  char message[GGUF_MESSAGE_BYTES];
  cr_assert(gguf_integer(&after, "general.file_type", &type, message) && type == 39);
  int exponent;
  cr_assert_eq(frexpf(find(&after, matrices[0], "weight")->factor, &exponent), 0.5f);
  for (int i = 0; i < MATRICES; i++) {
    const struct gguf_tensor *tensor = find(&after, matrices[i], "weight");
    cr_assert_eq(tensor->type, GGUF_TYPE_NVFP4);
    cr_assert_eq(tensor->factor, find(&after, matrices[0], "weight")->factor);
    require_close(find(&before, matrices[i], "weight"), tensor);
  }
  for (uint64_t i = 0; i < before.tensor_count; i++) {
    const struct gguf_tensor *tensor = &before.tensors[i], *same = NULL;
    for (uint64_t j = 0; j < after.tensor_count; j++)
      if (after.tensors[j].name.length == tensor->name.length &&
          memcmp(after.tensors[j].name.bytes, tensor->name.bytes, tensor->name.length) == 0)
        same = &after.tensors[j];
    cr_assert_not_null(same);
    if (same->type == GGUF_TYPE_NVFP4) continue;
    cr_assert(same->bytes == tensor->bytes && memcmp(same->data, tensor->data, tensor->bytes) == 0);
  }
  gguf_close(&before);
  gguf_close(&after);
}

/* Also with another alignment, and no file_type. */
Test(quantise, writes_what_the_chat_takes_in_each_type) {
  static const char *const words[] = {"", "--weights nvfp4", "--weights bf16", "--weights e4m3", "--embedding nvfp4"};
  struct gguf_writer writer = {.alignment = 64};
  REQUIRE_CODE(quantise_small_model(&writer), 0);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    struct ran ran = chat_with("quantised.gguf", words[i]);
    REQUIRE_CODE(ran, 0);
    cr_assert_gt(strlen(ran.out), 1, "with '%s'", words[i]);
  }
}

Test(quantise, help_exits_0) {
  struct ran ran = quantise("--help");
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.out, "usage: quantise MODEL.gguf TEXT QUANTISED.gguf"));
}

Test(quantise, says_what_is_wrong_with_its_files) {
  static const struct {
    const char *words, *sentence;
  } cases[] = {
      {"", "0 files are given, expected a model, a text and a name"},
      {"small.gguf", "1 file is given"},
      {"small.gguf text", "2 files are given"},
      {"--fast small.gguf text out.gguf", "unknown option --fast"},
      {"none.gguf text out.gguf", "none.gguf: No such file or directory"},
      {"text text out.gguf", "it is not a GGUF file"},
      {"small.gguf none out.gguf", "none: No such file or directory"},
      {"small.gguf empty out.gguf", "empty: the text has no tokens"},
      {"small.gguf text none/out.gguf", "none/out.gguf.part: No such file or directory"},
      {"quantised.gguf text out.gguf", "tensor blk.0.attn_k.weight is in NVFP4 already"},
  };
  struct gguf_writer writer = {0};
  REQUIRE_CODE(quantise_small_model(&writer), 0);
  shell_write("empty", "");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    require_sentence(quantise(cases[i].words), cases[i].sentence);
    cr_assert(access(path_of("out.gguf"), F_OK) != 0 && access(path_of("out.gguf.part"), F_OK) != 0);
  }
}

/* A full device: there is then neither a part of a file nor a loss of the old one. */
Test(quantise, says_that_a_file_cannot_be_written) {
  struct gguf_writer writer = {0};
  REQUIRE_CODE(quantise_small_model(&writer), 0);
  cr_assert_eq(symlink("/dev/full", path_of("full.gguf.part")), 0);
  require_sentence(quantise("small.gguf text full.gguf"), "full.gguf: No space left on device");
  cr_assert_neq(access(path_of("full.gguf"), F_OK), 0);
}

/* ---- Damaged files ----------------------------------------------------------------------------------------------- */

/* The bytes of the small model's quantised file. */
static struct gguf_buffer quantised_bytes(void) {
  struct gguf_writer writer = {0};
  REQUIRE_CODE(quantise_small_model(&writer), 0);
  FILE *file = fopen(path_of("quantised.gguf"), "rb");
  struct gguf_buffer buffer = {.bytes = malloc(1 << 20)};
  cr_assert(file && buffer.bytes);
  buffer.count = fread(buffer.bytes, 1, 1 << 20, file);
  fclose(file);
  return buffer;
}

static void write_bytes(const char *name, const uint8_t *bytes, size_t count) {
  FILE *file = fopen(path_of(name), "wb");
  cr_assert(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
}

Test(quantise, a_truncated_file_is_refused_wherever_it_ends) {
  struct gguf_buffer whole = quantised_bytes();
  for (size_t count = 0; count < whole.count; count += count < 2000 || count + 5 > whole.count ? 1 : 97) {
    struct gguf file;
    char message[GGUF_MESSAGE_BYTES] = "";
    cr_assert_not(gguf_parse("part.gguf", whole.bytes, count, &file, message), "%zu of %zu bytes", count, whole.count);
    cr_assert_not_null(strstr(message, "part.gguf, byte "), "%s", message);
  }
  write_bytes("part.gguf", whole.bytes, whole.count - 1);
  require_sentence(chat_with("part.gguf", ""), "of the data, which has ");
  free(whole.bytes);
}

/* Writes the file with other bytes at the beginning of a tensor's data. */
static void damage(const struct gguf_buffer *whole, const char *matrix, const char *kind, const void *bytes,
                   size_t count) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES];
  cr_assert(gguf_parse("whole.gguf", whole->bytes, whole->count, &file, message), "%s", message);
  uint8_t *copy = malloc(whole->count);
  cr_assert_not_null(copy);
  memcpy(copy, whole->bytes, whole->count);
  memcpy(copy + (find(&file, matrix, kind)->data - whole->bytes), bytes, count);
  write_bytes("damaged.gguf", copy, whole->count);
  gguf_close(&file);
  free(copy);
}

Test(quantise, a_file_with_wrong_scales_is_refused) {
  struct gguf_buffer whole = quantised_bytes();
  const float factors[] = {0, -1, NAN, INFINITY, 1e-40f, 0x1p117f};
  for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
    damage(&whole, "blk.0.ffn_up", "scale", &factors[i], sizeof factors[i]);
    require_sentence(chat_with("damaged.gguf", ""), "tensor blk.0.ffn_up.scale is ");
  }
  const uint8_t scales[] = {0x7f, 0x80, 0xb8, 0xff};
  for (size_t i = 0; i < sizeof scales; i++) {
    damage(&whole, "blk.0.ffn_up", "weight", &scales[i], 1);
    require_sentence(chat_with("damaged.gguf", ""),
                     "tensor blk.0.ffn_up.weight: row 0, column 0 is nan, which nvfp4 cannot express");
    require_sentence(chat_with("damaged.gguf", "--weights bf16"), "row 0, column 0 is nan, which bf16 cannot express");
  }
  free(whole.bytes);
}

/* The graph has one factor for all; in other types each matrix has its own. */
Test(quantise, a_file_with_several_factors_is_taken_in_other_types_only) {
  const float factor = 1;
  struct gguf_buffer whole = quantised_bytes();
  damage(&whole, "blk.0.ffn_up", "scale", &factor, sizeof factor);
  require_sentence(chat_with("damaged.gguf", ""),
                   "tensors blk.0.attn_q.weight and blk.0.ffn_up.weight have the factors");
  REQUIRE_CODE(chat_with("damaged.gguf", "--weights bf16"), 0);
  free(whole.bytes);
}
