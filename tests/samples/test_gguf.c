/* test_gguf.c - the chat sample's GGUF reader: each way in which a file can be wrong is refused with a sentence of its
 * own, and a file that was written is read back. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../samples/chat/dequantize.h"
#include "../support.h"
#include "gguf_writer.h"

static struct gguf expect_file(struct gguf_buffer bytes) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES] = "";
  cr_assert(gguf_parse("made.gguf", bytes.bytes, bytes.count, &file, message), "%s", message);
  return file;
}

static void expect_refusal(struct gguf_buffer bytes, const char *fragment) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES] = "";
  bool read = gguf_parse("made.gguf", bytes.bytes, bytes.count, &file, message);
  free(bytes.bytes);
  cr_assert_not(read, "read, though '%s' was expected", fragment);
  cr_assert_not_null(strstr(message, fragment), "'%s' does not say '%s'", message, fragment);
  cr_assert_not_null(strstr(message, "made.gguf"), "'%s' does not name the file", message);
  cr_assert(file.entries == NULL && file.tensors == NULL);
}

/* A file of one tensor. */
static struct gguf_buffer one_tensor(uint32_t type, uint32_t rank, const int64_t *shape, size_t bytes) {
  static const uint8_t zeros[4096];
  struct gguf_writer writer = {0};
  gguf_write_tensor(&writer, "weight", type, rank, shape, zeros, bytes);
  return gguf_write_end(&writer);
}

Test(gguf, reads_back_every_kind_of_metadata) {
  struct gguf_writer writer = {0};
  static const int64_t negative = -5;
  static const double third = 1.0 / 3;
  static const uint8_t yes = 1, small = 0xfe;
  static const float floats[3] = {1.5f, -2.5f, 0.25f};
  gguf_write_string(&writer, "name", "a model");
  gguf_write_u32(&writer, "count", 30);
  gguf_write_value(&writer, "negative", GGUF_I64, &negative, 8);
  gguf_write_value(&writer, "third", GGUF_F64, &third, 8);
  gguf_write_value(&writer, "yes", GGUF_BOOL, &yes, 1);
  gguf_write_value(&writer, "small", GGUF_I8, &small, 1);
  gguf_write_array(&writer, "floats", GGUF_F32, 3, floats, sizeof floats);
  gguf_write_strings(&writer, "words", 3, (const char *const[]){"one", "", "three"});
  struct gguf_buffer bytes = gguf_write_end(&writer);
  struct gguf file = expect_file(bytes);
  char message[GGUF_MESSAGE_BYTES] = "";

  struct gguf_text text;
  cr_assert(gguf_string(&file, "name", &text, message), "%s", message);
  cr_assert(text.length == 7 && memcmp(text.bytes, "a model", 7) == 0);
  int64_t count;
  cr_assert(gguf_integer(&file, "count", &count, message) && count == 30, "%s", message);
  double number;
  cr_assert(gguf_number(&file, "negative", &number, message) && number == -5, "%s", message);
  cr_assert(gguf_number(&file, "third", &number, message) && number == third, "%s", message);
  cr_assert(gguf_number(&file, "small", &number, message) && number == -2, "%s", message);
  cr_assert_eq(gguf_element(gguf_find(&file, "yes"), 0), 1.0);
  struct gguf_entry array;
  cr_assert(gguf_array(&file, "floats", GGUF_F32, &array, message) && array.count == 3, "%s", message);
  for (uint64_t i = 0; i < 3; i++) cr_assert_eq(gguf_element(&array, i), (double)floats[i]);
  cr_assert(gguf_array(&file, "words", GGUF_STRING, &array, message) && array.count == 3, "%s", message);
  const uint8_t *at = array.data;
  cr_assert_eq(gguf_next_string(&at).length, 3);
  cr_assert_eq(gguf_next_string(&at).length, 0);
  text = gguf_next_string(&at);
  cr_assert(text.length == 5 && memcmp(text.bytes, "three", 5) == 0);
  gguf_close(&file);
  free(bytes.bytes);
}

Test(gguf, says_which_key_is_missing_or_of_another_type) {
  struct gguf_writer writer = {0};
  static const int32_t minus_one = -1;
  gguf_write_string(&writer, "name", "a model");
  gguf_write_value(&writer, "minus one", GGUF_I32, &minus_one, 4);
  struct gguf_buffer bytes = gguf_write_end(&writer);
  struct gguf file = expect_file(bytes);
  char message[GGUF_MESSAGE_BYTES] = "";
  int64_t count;
  double number;
  struct gguf_entry array;
  struct gguf_text text;
  cr_assert_not(gguf_integer(&file, "llama.block_count", &count, message));
  cr_assert_str_eq(message, "made.gguf: it has no llama.block_count");
  cr_assert_not(gguf_integer(&file, "name", &count, message));
  cr_assert_str_eq(message, "made.gguf: name is of type string, expected a number");
  cr_assert_not(gguf_integer(&file, "minus one", &count, message));
  cr_assert_not_null(strstr(message, "minus one is -1"), "%s", message);
  cr_assert_not(gguf_number(&file, "name", &number, message));
  cr_assert_not(gguf_string(&file, "minus one", &text, message));
  cr_assert_str_eq(message, "made.gguf: minus one is of type i32, expected a string");
  cr_assert_not(gguf_array(&file, "name", GGUF_F32, &array, message));
  cr_assert_str_eq(message, "made.gguf: name is of type string, expected array of f32");
  cr_assert_null(gguf_find(&file, "nam"));
  cr_assert_null(gguf_find(&file, "name "));
  cr_assert_null(gguf_tensor(&file, "name"));
  gguf_close(&file);
  free(bytes.bytes);
}

Test(gguf, finds_tensors_of_every_rank_and_their_rows) {
  struct gguf_writer writer = {.alignment = 64};
  float values[24];
  for (int i = 0; i < 24; i++) values[i] = (float)i / 4;
  static const int64_t shapes[5][4] = {{0}, {24}, {4, 6}, {4, 3, 2}, {2, 3, 2, 2}};
  static const char *const names[] = {"", "vector", "matrix", "cube", "four"};
  for (uint32_t rank = 4; rank >= 1; rank--)
    gguf_write_tensor(&writer, names[rank], GGUF_TYPE_F32, rank, shapes[rank], values, sizeof values);
  struct gguf_buffer bytes = gguf_write_end(&writer);
  struct gguf file = expect_file(bytes);
  for (uint32_t rank = 1; rank <= 4; rank++) {
    const struct gguf_tensor *tensor = gguf_tensor(&file, names[rank]);
    cr_assert_not_null(tensor);
    cr_assert(tensor->rank == rank && tensor->bytes == sizeof values);
    cr_assert_eq((tensor->data - bytes.bytes) % 64, 0);
    cr_assert_eq(gguf_rows(tensor), 24 / shapes[rank][0]);
    float row[24];
    for (int64_t i = 0; i < gguf_rows(tensor); i++) {
      dequantize_row(tensor, i, row);
      cr_assert_eq(memcmp(row, values + i * tensor->shape[0], (size_t)tensor->shape[0] * sizeof *row), 0);
    }
  }
  gguf_close(&file);
  free(bytes.bytes);
}

Test(gguf, refuses_a_file_cut_anywhere) {
  struct gguf_writer writer = {0};
  static const uint8_t zeros[68];
  gguf_write_string(&writer, "name", "a model");
  gguf_write_strings(&writer, "words", 2, (const char *const[]){"one", "two"});
  gguf_write_tensor(&writer, "weight", GGUF_TYPE_Q8_0, 2, (int64_t[]){32, 2}, zeros, sizeof zeros);
  struct gguf_buffer whole = gguf_write_end(&writer);
  for (size_t kept = 0; kept < whole.count; kept++) {
    struct gguf_buffer part = {.bytes = malloc(kept + 1), .count = kept};
    memcpy(part.bytes, whole.bytes, kept);
    expect_refusal(part, "");
  }
  struct gguf file = expect_file(whole);
  gguf_close(&file);
  free(whole.bytes);
}

Test(gguf, refuses_what_is_not_gguf) {
  struct gguf file;
  char message[GGUF_MESSAGE_BYTES] = "";
  cr_assert_not(gguf_open("/nonexistent/model.gguf", &file, message));
  cr_assert_str_eq(message, "/nonexistent/model.gguf: No such file or directory");
  cr_assert_not(gguf_open("/", &file, message));
  cr_assert_not_null(strstr(message, "not a regular file"), "%s", message);
  expect_refusal((struct gguf_buffer){.bytes = (uint8_t *)strdup("PK\3\4 no model"), .count = 13}, "not a GGUF file");
  struct gguf_writer writer = {.version = 2};
  expect_refusal(gguf_write_end(&writer), "version 2, expected 3");
}

Test(gguf, refuses_damaged_metadata) {
  static const uint8_t zeros[16];
  static const uint64_t huge = UINT64_MAX;
  struct gguf_writer writer = {0};
  gguf_write_value(&writer, "key", 13, zeros, 16);
  expect_refusal(gguf_write_end(&writer), "key key: unknown type 13");
  gguf_write_array(&writer, "key", GGUF_ARRAY, 1, zeros, 16);
  expect_refusal(gguf_write_end(&writer), "key key: arrays of arrays");
  gguf_write_array(&writer, "key", GGUF_U64, UINT64_MAX / 8, zeros, 16);
  expect_refusal(gguf_write_end(&writer), "values of type u64 are more than the file has");
  gguf_write_array(&writer, "key", GGUF_STRING, UINT64_MAX, zeros, 16);
  expect_refusal(gguf_write_end(&writer), "the file ends within a string");
  gguf_write_value(&writer, "key", GGUF_STRING, &huge, 8);
  expect_refusal(gguf_write_end(&writer), "a string is 18446744073709551615 bytes long");
  gguf_write_u32(&writer, "key", 1);
  gguf_write_u32(&writer, "key", 2);
  expect_refusal(gguf_write_end(&writer), "the file has the key key twice");
  writer.entry_count = UINT64_MAX;
  expect_refusal(gguf_write_end(&writer), "are more than the file has");
  writer.tensor_count = UINT64_MAX / 2;
  expect_refusal(gguf_write_end(&writer), "are more than the file has");
}

/* As their makers call them, beside what is read. */
Test(gguf, names_the_types_that_it_does_not_read) {
  static const struct {
    uint32_t type;
    const char *sentence;
  } types[] = {
      {6, "tensor weight is of type Q5_0, expected F32, F16, BF16, Q8_0, Q4_0, Q4_1 and NVFP4"},
      {12, "tensor weight is of type Q4_K, expected "},
      {14, "tensor weight is of type Q6_K, expected "},
      {20, "tensor weight is of type IQ4_NL, expected "},
      {39, "tensor weight is of type MXFP4, expected "},
      {4, "tensor weight is of the unknown type 4, expected "}, /* ggml had it once */
      {UINT32_MAX, "tensor weight is of the unknown type 4294967295, expected "},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    expect_refusal(one_tensor(types[i].type, 1, (int64_t[]){256}, 210), types[i].sentence);
}

/* Whatever of it says so: the key or the name. */
Test(gguf, refuses_a_part_of_a_model) {
  static const uint16_t counts[] = {3, 1};
  static const char sentence[] =
      "it is one of 3 parts of a model, expected one file: make it with llama-gguf-split --merge";
  for (int i = 0; i < 2; i++) {
    struct gguf_writer writer = {0};
    struct gguf file;
    char message[GGUF_MESSAGE_BYTES] = "";
    gguf_write_value(&writer, "split.count", GGUF_U16, &counts[i], sizeof counts[i]);
    struct gguf_buffer bytes = gguf_write_end(&writer);
    cr_assert_eq(gguf_parse("made.gguf", bytes.bytes, bytes.count, &file, message), i == 1);
    if (i == 0) cr_assert_not_null(strstr(message, sentence), "%s", message);
    gguf_close(&file);
    free(bytes.bytes);
  }
  static const char *const names[] = {"/a-folder/model-00001-of-00003.gguf", "model-00001-of-00001.gguf",
                                      "model-00001-of-00003.gguf.old", "of-00003.gguf"};
  for (int i = 0; i < 4; i++) {
    struct gguf_buffer bytes = one_tensor(GGUF_TYPE_F32, 1, (int64_t[]){1}, 4);
    struct gguf file;
    char message[GGUF_MESSAGE_BYTES] = "";
    cr_assert_eq(gguf_parse(names[i], bytes.bytes, bytes.count, &file, message), i != 0, "%s", names[i]);
    if (i == 0) cr_assert_not_null(strstr(message, sentence), "%s", message);
    gguf_close(&file);
    free(bytes.bytes);
  }
}

Test(gguf, refuses_damaged_tensors) {
  expect_refusal(one_tensor(GGUF_TYPE_F32, 0, (int64_t[]){32}, 4), "tensor weight has 0 dimensions");
  expect_refusal(one_tensor(GGUF_TYPE_F32, 5, (int64_t[]){1, 1, 1, 1, 1}, 4), "tensor weight has 5 dimensions");
  expect_refusal(one_tensor(GGUF_TYPE_F32, 2, (int64_t[]){0, 1}, 4), "dimension 0 is not from 1");
  expect_refusal(one_tensor(GGUF_TYPE_F32, 2, (int64_t[]){1, -1}, 4), "dimension 1 is not from 1");
  expect_refusal(one_tensor(GGUF_TYPE_F32, 2, (int64_t[]){INT64_MAX, 2}, 4), "more elements than any file");
  expect_refusal(one_tensor(GGUF_TYPE_Q4_1, 1, (int64_t[]){48}, 40),
                 "rows of 48 elements are not a multiple of Q4_1's 32");
  expect_refusal(one_tensor(GGUF_TYPE_Q8_0, 1, (int64_t[]){64}, 67), "68 bytes at offset 0 of the data, which has 67");
  struct gguf_writer writer = {.alignment = 3};
  expect_refusal(gguf_write_end(&writer), "general.alignment is 3");
  writer.alignment = 0;
  gguf_write_tensor(&writer, "weight", GGUF_TYPE_F32, 1, (int64_t[]){1}, "1234", 4);
  gguf_write_tensor(&writer, "weight", GGUF_TYPE_F32, 1, (int64_t[]){1}, "1234", 4);
  expect_refusal(gguf_write_end(&writer), "the file has the tensor weight twice");
  gguf_write_tensor(&writer, "weight", GGUF_TYPE_F32, 1, (int64_t[]){1}, "1234", 4);
  struct gguf_buffer shifted = gguf_write_end(&writer);
  shifted.bytes[24 + 8 + 6 + 4 + 8 + 4] = 4; /* after the header: the tensor's offset */
  expect_refusal(shifted, "its offset 4 is not a multiple of 32");
}

/* ---- Rows as fp32 ------------------------------------------------------------------------------------------------ */

/* One row of two blocks of a type, of random bytes but for factors and minima, against what ggml's formats mean. */
static void check_blocks(uint32_t type, size_t block_bytes, double (*element)(const uint8_t *block, int i)) {
  struct random random = {type + 1};
  uint8_t blocks[2 * 34];
  for (size_t i = 0; i < 2 * block_bytes; i++) blocks[i] = (uint8_t)random_bits(&random);
  for (size_t b = 0; b < 2; b++) {
    uint16_t factor = oracle_to_f16(random_normal(&random)), minimum = oracle_to_f16(random_normal(&random));
    memcpy(blocks + b * block_bytes, &factor, 2);
    if (type == GGUF_TYPE_Q4_1) memcpy(blocks + b * block_bytes + 2, &minimum, 2);
  }
  struct gguf_writer writer = {0};
  gguf_write_tensor(&writer, "weight", type, 1, (int64_t[]){64}, blocks, 2 * block_bytes);
  struct gguf_buffer bytes = gguf_write_end(&writer);
  struct gguf file = expect_file(bytes);
  float row[64];
  dequantize_row(gguf_tensor(&file, "weight"), 0, row);
  for (int i = 0; i < 64; i++)
    cr_assert_eq(row[i], (float)element(blocks + (size_t)(i / 32) * block_bytes, i % 32), "element %d of type %u", i,
                 type);
  gguf_close(&file);
  free(bytes.bytes);
}

static double f16_at(const uint8_t *bytes) { return oracle_f16((uint16_t)(bytes[0] | bytes[1] << 8)); }
static double q4_0(const uint8_t *block, int i) {
  return f16_at(block) * ((i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4) - 8);
}
static double q4_1(const uint8_t *block, int i) {
  return f16_at(block) * (i < 16 ? block[4 + i] & 15 : block[4 + i - 16] >> 4) + f16_at(block + 2);
}
static double q8_0(const uint8_t *block, int i) { return f16_at(block) * (int8_t)block[2 + i]; }

Test(gguf, dequantises_blocks_as_ggml_means_them) {
  check_blocks(GGUF_TYPE_Q4_0, 18, q4_0);
  check_blocks(GGUF_TYPE_Q4_1, 20, q4_1);
  check_blocks(GGUF_TYPE_Q8_0, 34, q8_0);
}

/* A row of 128 elements, two blocks, with all codes and with scales of all sizes. */
Test(gguf, dequantises_nvfp4_with_the_factor_beside_it) {
  static const float factors[] = {0.375f, 1};
  struct random random = {40};
  uint8_t blocks[2][36];
  for (int i = 0; i < 72; i++) blocks[i / 36][i % 36] = (uint8_t)random_bits(&random);
  for (int b = 0; b < 2; b++)
    for (int s = 0; s < 4; s++) blocks[b][s] = (uint8_t)random_between(&random, 0, 0x7e);
  for (int f = 0; f < 2; f++) {
    struct gguf_writer writer = {0};
    gguf_write_tensor(&writer, "a.weight", GGUF_TYPE_NVFP4, 1, (int64_t[]){128}, blocks, sizeof blocks);
    if (f == 0) gguf_write_tensor(&writer, "a.scale", GGUF_TYPE_F32, 1, (int64_t[]){1}, &factors[0], 4);
    struct gguf_buffer bytes = gguf_write_end(&writer);
    struct gguf file = expect_file(bytes);
    float row[128];
    dequantize_row(gguf_tensor(&file, "a.weight"), 0, row);
    for (int i = 0; i < 128; i++) {
      const uint8_t *block = blocks[i / 64];
      uint8_t byte = block[4 + i % 64 / 16 * 8 + i % 8], code = i % 16 < 8 ? byte & 15 : byte >> 4;
      double expected = (double)factors[f] * oracle_e4m3(block[i % 64 / 16]) * oracle_e2m1(code);
      cr_assert_eq(row[i], (float)expected, "element %d", i);
    }
    gguf_close(&file);
    free(bytes.bytes);
  }
}

Test(gguf, refuses_a_factor_that_is_none) {
  static const uint8_t blocks[36];
  static const float zeros[2];
  static const struct {
    uint32_t type;
    int64_t count;
    size_t bytes;
    const char *sentence;
  } cases[] = {
      {GGUF_TYPE_F32, 2, 8, "tensor a.scale is not one number of type F32"},
      {GGUF_TYPE_F16, 1, 2, "tensor a.scale is not one number of type F32"},
      {GGUF_TYPE_F32, 1, 4, "tensor a.scale is 0, expected 1.17549e-38 to 8.30767e+34"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gguf_writer writer = {0};
    gguf_write_tensor(&writer, "a.weight", GGUF_TYPE_NVFP4, 1, (int64_t[]){64}, blocks, sizeof blocks);
    gguf_write_tensor(&writer, "a.scale", cases[i].type, 1, &cases[i].count, zeros, cases[i].bytes);
    expect_refusal(gguf_write_end(&writer), cases[i].sentence);
  }
}

static void check_every_16_bits(uint32_t type, double (*value)(uint16_t bits)) {
  enum { COUNT = 65536 };
  uint16_t *bits = malloc(COUNT * sizeof *bits);
  float *row = malloc(COUNT * sizeof *row);
  for (uint32_t i = 0; i < COUNT; i++) bits[i] = (uint16_t)i;
  struct gguf_writer writer = {0};
  gguf_write_tensor(&writer, "weight", type, 1, (int64_t[]){COUNT}, bits, COUNT * sizeof *bits);
  struct gguf_buffer bytes = gguf_write_end(&writer);
  struct gguf file = expect_file(bytes);
  dequantize_row(gguf_tensor(&file, "weight"), 0, row);
  for (uint32_t i = 0; i < COUNT; i++) {
    double expected = value((uint16_t)i);
    cr_assert(isnan(expected) ? isnan(row[i]) : row[i] == (float)expected && !signbit(row[i]) == !signbit(expected),
              "bits %04x of type %u are %g", i, type, (double)row[i]);
  }
  gguf_close(&file);
  free(bytes.bytes);
  free(bits);
  free(row);
}

Test(gguf, widens_every_number_of_16_bits) {
  check_every_16_bits(GGUF_TYPE_F16, oracle_f16);
  check_every_16_bits(GGUF_TYPE_BF16, oracle_bf16);
}
