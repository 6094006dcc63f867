/* test_npy.c - the samples' .npy reader: each way in which a file can be wrong is refused with its own sentence, and a
 * file that was written is read back. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../samples/npy.h"

/* A file with a name of its own, gone at the end of the test. */
struct file {
  char path[64];
};

static struct file file_with(const void *bytes, size_t count) {
  struct file file = {"/tmp/rondo_npy_XXXXXX"};
  int descriptor = mkstemp(file.path);
  cr_assert(descriptor >= 0);
  cr_assert_eq(write(descriptor, bytes, count), (ssize_t)count);
  cr_assert_eq(close(descriptor), 0);
  return file;
}

/* Format `version` with this header text and data_bytes bytes 0, 1, 2 ... */
static struct file npy_with(unsigned version, const char *text, size_t data_bytes) {
  static unsigned char bytes[1 << 17];
  size_t length = strlen(text), start = version == 1 ? 10 : 12;
  cr_assert(start + length + data_bytes <= sizeof bytes);
  memcpy(bytes, "\x93NUMPY", 6);
  bytes[6] = (unsigned char)version;
  bytes[7] = 0;
  for (size_t i = 8; i < start; i++) bytes[i] = (unsigned char)(length >> (8 * (i - 8)));
  memcpy(bytes + start, text, length);
  for (size_t i = 0; i < data_bytes; i++) bytes[start + length + i] = (unsigned char)i;
  return file_with(bytes, start + length + data_bytes);
}

static void expect_refusal(struct file file, const char *fragment) {
  struct npy array;
  char message[NPY_MESSAGE_BYTES] = "";
  bool read = npy_read(file.path, &array, message);
  unlink(file.path);
  cr_assert_not(read, "read, though '%s' was expected", fragment);
  cr_assert_not_null(strstr(message, fragment), "'%s' does not say '%s'", message, fragment);
  cr_assert_not_null(strstr(message, file.path), "'%s' does not name the file", message);
  cr_assert_null(array.data);
}

static struct npy expect_array(struct file file) {
  struct npy array;
  char message[NPY_MESSAGE_BYTES] = "";
  bool read = npy_read(file.path, &array, message);
  unlink(file.path);
  cr_assert(read, "%s", message);
  return array;
}

#define HEADER(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }   \n"

Test(npy, reads_all_three_versions) {
  for (unsigned version = 1; version <= 3; version++) {
    struct npy array = expect_array(npy_with(version, HEADER("|u1", "False", "(2, 3)"), 6));
    cr_assert_eq(array.type, NPY_U8);
    cr_assert_eq(array.rank, 2);
    cr_assert(array.shape[0] == 2 && array.shape[1] == 3 && array.bytes == 6);
    for (int64_t i = 0; i < 6; i++) cr_assert_eq(npy_element(&array, i), (double)i);
    npy_free(&array);
  }
}

Test(npy, reads_any_order_and_spacing_of_the_keys) {
  struct npy array = expect_array(npy_with(1, "{ \"shape\" :(4 ,),\"fortran_order\":False , 'descr':'<f2'}", 8));
  cr_assert(array.type == NPY_F16 && array.rank == 1 && array.shape[0] == 4);
  npy_free(&array);
}

Test(npy, reads_scalars_and_empty_arrays) {
  struct npy scalar = expect_array(npy_with(1, HEADER("<f8", "False", "()"), 8));
  cr_assert(scalar.rank == 0 && npy_count(&scalar) == 1 && scalar.bytes == 8);
  npy_free(&scalar);
  struct npy empty = expect_array(npy_with(1, HEADER("<f4", "False", "(3, 0, 9223372036854775807)"), 0));
  cr_assert(empty.bytes == 0 && empty.data == NULL && npy_count(&empty) == 0);
  npy_free(&empty);
  /* Sizes whose product is for no integer, beside one of 0: the sanitizers look on. */
  empty = expect_array(npy_with(1, HEADER("<f4", "False", "(4294967296, 4294967296, 0)"), 0));
  cr_assert(empty.rank == 3 && empty.bytes == 0 && empty.data == NULL && npy_count(&empty) == 0);
  struct file file = file_with("", 0);
  char message[NPY_MESSAGE_BYTES];
  cr_assert(npy_write(file.path, &empty, message), "%s", message);
  npy_free(&empty);
  empty = expect_array(file);
  cr_assert(empty.shape[1] == INT64_C(4294967296) && empty.shape[2] == 0 && npy_count(&empty) == 0);
  npy_free(&empty);
}

/* Some programs write every array in Fortran order. */
Test(npy, reads_fortran_order_where_it_is_the_same) {
  static const char *const shapes[] = {"(6,)", "(1, 6)", "(6, 1)", "(1, 1, 6, 1)"};
  static const uint32_t ranks[] = {1, 2, 2, 4};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    char text[128];
    snprintf(text, sizeof text, HEADER("|u1", "True", "%s"), shapes[s]);
    struct npy array = expect_array(npy_with(1, text, 6));
    cr_assert(array.rank == ranks[s] && npy_count(&array) == 6);
    for (int64_t i = 0; i < 6; i++) cr_assert_eq(npy_element(&array, i), (double)i);
    npy_free(&array);
  }
  struct npy scalar = expect_array(npy_with(1, HEADER("<f8", "True", "()"), 8));
  npy_free(&scalar);
  struct npy empty = expect_array(npy_with(1, HEADER("<f8", "True", "(3, 0, 2)"), 0));
  npy_free(&empty);
  expect_refusal(npy_with(1, HEADER("|u1", "True", "(2, 3)"), 6), "Fortran order: save numpy.ascontiguousarray of it");
  expect_refusal(npy_with(1, "{'shape': (2, 1, 3), 'fortran_order': True, 'descr': '|u1'}", 6), "Fortran order");
}

Test(npy, refuses_what_is_not_npy) {
  expect_refusal(file_with("", 0), "is not a .npy file");
  expect_refusal(file_with("PK\x03\x04 an archive of arrays", 24), "is not a .npy file");
  expect_refusal((struct file){"/nonexistent/array.npy"}, "No such file");
  expect_refusal((struct file){"/"}, "");
  expect_refusal(npy_with(4, HEADER("<f4", "False", "(1,)"), 4), "unknown .npy version");
}

Test(npy, refuses_a_file_cut_anywhere) {
  unsigned char bytes[256];
  struct file whole = npy_with(1, HEADER("<f4", "False", "(2, 3)"), 24);
  FILE *stream = fopen(whole.path, "rb");
  size_t count = fread(bytes, 1, sizeof bytes, stream);
  fclose(stream);
  unlink(whole.path);
  cr_assert(count > 24 && count < sizeof bytes);
  for (size_t kept = 0; kept < count; kept++) expect_refusal(file_with(bytes, kept), "");
  struct npy array = expect_array(file_with(bytes, count));
  npy_free(&array);
}

Test(npy, refuses_data_of_another_size) {
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(2, 3)"), 23), "needs 24 bytes of data, it has 23");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(2, 3)"), 25), "needs 24 bytes of data, it has 25");
}

Test(npy, refuses_other_types_and_orders) {
  expect_refusal(npy_with(1, HEADER(">f4", "False", "(1,)"), 4), "big-endian");
  expect_refusal(npy_with(1, HEADER("<c8", "False", "(1,)"), 8), "element type is not one of");
  expect_refusal(npy_with(1, HEADER("|O", "False", "(1,)"), 8), "element type is not one of");
  expect_refusal(npy_with(1, HEADER("", "False", "(1,)"), 4), "element type is not one of");
  expect_refusal(npy_with(1, HEADER("<f4<f4<f4<f4<f4<f4", "False", "(1,)"), 4), "not the name of a plain type");
  expect_refusal(npy_with(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4),
                 "not the name of a plain type");
  expect_refusal(npy_with(1, HEADER("<f4", "0", "(1,)"), 4), "neither True nor False");
}

Test(npy, refuses_hostile_shapes) {
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(-1, 2)"), 8), "a size that is not");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(1e3,)"), 8), "no closing parenthesis");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(9223372036854775808,)"), 8), "a size that is not");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(99999999999999999999999999,)"), 8), "a size that is not");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(9223372036854775807,)"), 8), "more elements than any file");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(4294967296, 4294967296)"), 8), "more elements than any file");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(1099511627776,)"), 8), "needs 4398046511104 bytes");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(1, 1, 1, 1, 1)"), 4), "more than 4 dimensions");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "[1]"), 4), "not a tuple");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(1 2)"), 8), "no closing parenthesis");
}

Test(npy, refuses_malformed_headers) {
  expect_refusal(npy_with(1, "", 0), "is not a dictionary");
  expect_refusal(npy_with(1, "[]", 0), "is not a dictionary");
  expect_refusal(npy_with(1, "{}", 0), "lacks");
  expect_refusal(npy_with(1, "{'descr': '<f4', 'shape': (1,), }", 4), "lacks");
  expect_refusal(npy_with(1, "{'descr': '<f4", 0), "not the name of a plain type");
  expect_refusal(npy_with(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,", 4), "shape");
  expect_refusal(npy_with(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", 4), "cut off");
  expect_refusal(npy_with(1, "{'descr': '<f4', 'descr': '<f4', }", 4), "repeated key");
  expect_refusal(npy_with(1, "{'color': 'red', }", 4), "unknown or repeated key");
  expect_refusal(npy_with(1, HEADER("<f4", "False", "(1,)") "x", 4), "something follows");
  static char long_header[70000];
  memset(long_header, ' ', sizeof long_header - 1);
  expect_refusal(npy_with(2, long_header, 0), "longer than 65536");
  expect_refusal(file_with("\x93NUMPY\x02\x00\xff\xff\xff\xff{", 13), "longer than 65536");
  expect_refusal(file_with("\x93NUMPY\x01\x00\xff\x7f{", 11), "cut off");
}

Test(npy, reads_back_what_it_wrote) {
  static const float values[24] = {1.5f, -2, 0.25f, [23] = 1e30f};
  struct npy written = {.type = NPY_F32, .data = (void *)values};
  static const int64_t shapes[5][4] = {{0}, {24}, {4, 6}, {2, 3, 4}, {1, 2, 3, 4}};
  for (uint32_t rank = 1; rank <= 4; rank++) {
    written.rank = rank;
    memcpy(written.shape, shapes[rank], sizeof written.shape);
    struct file file = file_with("", 0);
    char message[NPY_MESSAGE_BYTES];
    cr_assert(npy_write(file.path, &written, message), "%s", message);
    struct npy read = expect_array(file);
    cr_assert(read.type == NPY_F32 && read.rank == rank && read.bytes == sizeof values);
    cr_assert_eq(memcmp(read.shape, written.shape, sizeof(int64_t) * rank), 0);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) cr_assert_eq(((const float *)read.data)[i], values[i]);
    npy_free(&read);
  }
}

Test(npy, says_that_it_cannot_write) {
  char message[NPY_MESSAGE_BYTES] = "";
  cr_assert_not(npy_write("/nonexistent/array.npy", &(struct npy){.type = NPY_F32}, message));
  cr_assert_not_null(strstr(message, "No such file"));
}

Test(npy, reads_fp16_as_numbers) {
  static const uint16_t bits[] = {0x0000, 0x8000, 0x3c00, 0xc000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00};
  static const double values[] = {0, -0.0, 1, -2, 0x1p-24, 0x1.ff8p-15, 0x1p-14, 65504, INFINITY, -INFINITY};
  struct npy array = {.type = NPY_F16, .rank = 1, .shape = {10}, .data = (void *)bits};
  for (int64_t i = 0; i < 10; i++) {
    cr_assert_eq(npy_element(&array, i), values[i]);
    cr_assert_eq(signbit(npy_element(&array, i)), signbit(values[i]));
  }
  static const uint16_t nan_bits = 0x7e01;
  array.data = (void *)&nan_bits;
  cr_assert(isnan(npy_element(&array, 0)));
}
