/* test_array_samples.c - the samples that read .npy files, run as a person runs them: arrays of each type, with and
 * without a batch, results against fp64, and a sentence for each file that does not fit. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/npy.h"
#include "../support.h"
#include "shell.h"

TestSuite(array_samples, .fini = shell_remove_folder, .timeout = 240);

static const char *path_of(const char *name) {
  static char paths[4][256];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", shell_folder(), name);
  return path;
}

/* Random numbers, in a file and here. */
static double *array_new(const char *name, enum npy_type type, uint32_t rank, const int64_t *shape) {
  struct npy array = {.type = type, .rank = rank};
  struct random random = {7};
  char message[NPY_MESSAGE_BYTES];
  memcpy(array.shape, shape, rank * sizeof *shape);
  int64_t count = npy_count(&array);
  double *numbers = calloc((size_t)count + 1, sizeof *numbers);
  array.data = calloc((size_t)count + 1, sizeof *numbers);
  for (int64_t i = 0; i < count; i++) {
    float number = (float)random_normal(&random);
    numbers[i] = type == NPY_F64 ? number + 1e-9 * random_normal(&random) : number;
    if (type == NPY_F64)
      ((double *)array.data)[i] = numbers[i];
    else if (type == NPY_F32)
      ((float *)array.data)[i] = number;
    else
      ((uint16_t *)array.data)[i] = oracle_to_f16(numbers[i]);
  }
  cr_assert(npy_write(path_of(name), &array, message), "%s", message);
  free(array.data);
  return numbers;
}

static struct npy result(const char *name, enum npy_type type, uint32_t rank, const int64_t *shape) {
  struct npy array;
  char message[NPY_MESSAGE_BYTES];
  cr_assert(npy_read(path_of(name), &array, message), "%s", message);
  cr_assert(array.type == type && array.rank == rank && !memcmp(array.shape, shape, rank * sizeof *shape),
            "%u dimensions, [%lld, %lld, %lld], %s", array.rank, (long long)array.shape[0], (long long)array.shape[1],
            (long long)array.shape[2], npy_type_name(array.type));
  return array;
}

static struct ran run(const char *sample, const char *words) {
  char line[2048];
  snprintf(line, sizeof line, "cd %s && %s/samples/%s --backend host --replays 2 %s", shell_folder(), shell_root(),
           sample, words);
  return shell_run(line);
}

/* What the header alone says, with no data after it. */
static void hostile(const char *name, const char *descr, const char *shape) {
  char text[160];
  snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
  unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)strlen(text), 0};
  FILE *file = fopen(path_of(name), "wb");
  cr_assert(file && fwrite(start, 1, sizeof start, file) == sizeof start && fputs(text, file) >= 0);
  fclose(file);
}

static double within(enum npy_type type) { return type == NPY_F64 ? 1e-12 : 1e-4; }

/* ---- orthogonalize ----------------------------------------------------------------------------------------------- */

/* Q'Q is the identity, and what of A lies outside of Q's columns is nothing. */
static void require_orthogonalized(enum npy_type type, uint32_t rank) {
  enum { HEADS = 3, M = 9, N = 4 };
  const int64_t all[] = {HEADS, M, N}, heads = rank == 3 ? HEADS : 1;
  double *a = array_new("a.npy", type, rank, all + 3 - rank);
  struct ran ran = run("orthogonalize", "--out q.npy a.npy");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, ": ok\n"), 6, "%s", ran.out);
  struct npy q = result("q.npy", type, rank, all + 3 - rank);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t j = 0; j < N; j++) {
      double left[M];
      for (int64_t row = 0; row < M; row++) left[row] = a[(h * M + row) * N + j];
      for (int64_t i = 0; i < N; i++) {
        double dot = 0, along = 0;
        for (int64_t row = 0; row < M; row++) {
          dot += npy_element(&q, (h * M + row) * N + i) * npy_element(&q, (h * M + row) * N + j);
          along += npy_element(&q, (h * M + row) * N + i) * a[(h * M + row) * N + j];
        }
        cr_assert_lt(fabs(dot - (i == j)), within(type));
        for (int64_t row = 0; row < M; row++) left[row] -= along * npy_element(&q, (h * M + row) * N + i);
      }
      for (int64_t row = 0; row < M; row++) cr_assert_lt(fabs(left[row]), within(type));
    }
  npy_free(&q);
  free(a);
}

Test(array_samples, orthogonalize_takes_either_type_with_and_without_a_batch) {
  for (uint32_t rank = 2; rank <= 3; rank++) {
    require_orthogonalized(NPY_F32, rank);
    require_orthogonalized(NPY_F64, rank);
  }
}

Test(array_samples, orthogonalize_takes_what_is_wide_or_empty) {
  free(array_new("a.npy", NPY_F64, 2, (int64_t[]){3, 7}));
  REQUIRE_CODE(run("orthogonalize", "a.npy --out q.npy"), 0);
  struct npy q = result("q.npy", NPY_F64, 2, (int64_t[]){3, 3});
  npy_free(&q);
  free(array_new("a.npy", NPY_F32, 3, (int64_t[]){2, 0, 5}));
  REQUIRE_CODE(run("orthogonalize", "a.npy"), 0);
}

/* ---- fit --------------------------------------------------------------------------------------------------------- */

/* What is left of b is orthogonal to every column of A, which no other x does. */
static void require_fitted(enum npy_type type, uint32_t rank, bool has_sides) {
  enum { BATCH = 3, M = 9, N = 4, SIDES = 2 };
  const uint32_t skipped = 3 - rank, b_rank = rank - !has_sides;
  const int64_t a_shape[] = {BATCH, M, N}, b_shape[] = {BATCH, M, SIDES}, x_shape[] = {BATCH, N, SIDES};
  const int64_t batch = rank == 3 ? BATCH : 1, sides = has_sides ? SIDES : 1;
  double *a = array_new("a.npy", type, rank, a_shape + skipped);
  double *b = array_new("b.npy", type, b_rank, b_shape + skipped);
  struct ran ran = run("fit", "a.npy --out x.npy b.npy");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, ": ok\n"), 2, "%s", ran.out);
  struct npy x = result("x.npy", type, b_rank, x_shape + skipped);
  for (int64_t i = 0; i < batch; i++)
    for (int64_t side = 0; side < sides; side++) {
      double left[M];
      for (int64_t row = 0; row < M; row++) {
        left[row] = b[(i * M + row) * sides + side];
        for (int64_t j = 0; j < N; j++)
          left[row] -= a[(i * M + row) * N + j] * npy_element(&x, (i * N + j) * sides + side);
      }
      for (int64_t j = 0; j < N; j++) {
        double dot = 0;
        for (int64_t row = 0; row < M; row++) dot += a[(i * M + row) * N + j] * left[row];
        cr_assert_lt(fabs(dot), within(type), "matrix %lld, side %lld, column %lld", (long long)i, (long long)side,
                     (long long)j);
      }
    }
  npy_free(&x);
  free(a);
  free(b);
}

Test(array_samples, fit_takes_files_of_either_type_with_and_without_a_batch) {
  for (uint32_t rank = 2; rank <= 3; rank++)
    for (int has_sides = 0; has_sides < 2; has_sides++) {
      require_fitted(NPY_F32, rank, has_sides);
      require_fitted(NPY_F64, rank, has_sides);
    }
}

/* A column of zeros: NaN, told, and no failure; the matrix beside it is solved. */
Test(array_samples, fit_tells_which_matrices_have_not_full_rank) {
  const double a[] = {1, 0, 0, 1, 1, 1, 1, 0, 2, 0, 3, 0}, b[] = {1, 2, 3, 1, 2, 3};
  char message[NPY_MESSAGE_BYTES];
  struct npy a_array = {.type = NPY_F64, .rank = 3, .shape = {2, 3, 2}, .data = (void *)(uintptr_t)a};
  struct npy b_array = {.type = NPY_F64, .rank = 2, .shape = {2, 3}, .data = (void *)(uintptr_t)b};
  cr_assert(npy_write(path_of("a.npy"), &a_array, message) && npy_write(path_of("b.npy"), &b_array, message));
  struct ran ran = run("fit", "a.npy b.npy --out x.npy");
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.out, "singular   1 of 2, whose x is NaN; the first is 1, by its column 2\n"), "%s",
                     ran.out);
  struct npy x = result("x.npy", NPY_F64, 2, (int64_t[]){2, 2});
  cr_assert_lt(fabs(npy_element(&x, 0) - 1), 1e-12);
  cr_assert_lt(fabs(npy_element(&x, 1) - 2), 1e-12);
  cr_assert(isnan(npy_element(&x, 2)) && isnan(npy_element(&x, 3)));
  npy_free(&x);
}

Test(array_samples, fit_without_files_fits_sensors) {
  struct ran ran = run("fit", "--out x.npy");
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.out, "singular   1 of 4096, whose x is NaN; the first is 17, by its column 2\n"), "%s",
                     ran.out);
  struct npy x = result("x.npy", NPY_F32, 2, (int64_t[]){4096, 4});
  npy_free(&x);
}

/* ---- What does not fit ------------------------------------------------------------------------------------------- */

Test(array_samples, what_does_not_fit_is_a_sentence) {
  free(array_new("cube.npy", NPY_F32, 4, (int64_t[]){1, 2, 3, 4}));
  free(array_new("line.npy", NPY_F32, 1, (int64_t[]){5}));
  free(array_new("half.npy", NPY_F16, 2, (int64_t[]){4, 4}));
  free(array_new("a.npy", NPY_F32, 2, (int64_t[]){5, 3}));
  free(array_new("wide.npy", NPY_F32, 2, (int64_t[]){3, 5}));
  free(array_new("double.npy", NPY_F64, 1, (int64_t[]){5}));
  free(array_new("short.npy", NPY_F32, 1, (int64_t[]){3}));
  hostile("huge.npy", "<f4", "(4294967296, 4294967296, 0)");
  hostile("huge_half.npy", "<f2", "(4294967296, 0)");
  hostile("huge_heads.npy", "<f2", "(4294967296, 4294967296, 4294967296, 0)");
  static const struct {
    const char *sample, *words, *says;
  } lines[] = {
      {"orthogonalize", "", "1 of 1 files is missing"},
      {"orthogonalize", "cube.npy", "cube.npy: has 4 dimensions, expected 2 to 3"},
      {"orthogonalize", "line.npy", "line.npy: has 1 dimension, expected 2 to 3"},
      {"orthogonalize", "half.npy", "half.npy: holds float16, expected float32 or float64"},
      {"orthogonalize", "huge.npy", "the product of the dimensions, without zeros, is more than 2^31"},
      {"fit", "a.npy", "1 of 2 files is missing"},
      {"fit", "a.npy line.npy a.npy", "unexpected file 'a.npy'"},
      {"fit", "a.npy double.npy", "double.npy: holds float64, expected float32 as in a.npy"},
      {"fit", "a.npy short.npy", "short.npy: dimension 0 is 3, expected 5 as in a.npy"},
      {"fit", "a.npy cube.npy", "cube.npy: has 4 dimensions, expected 1 to 2"},
      {"fit", "wide.npy short.npy", "a is [3, 5] f32"},
      {"fit", "huge.npy huge.npy", "is more than 2^31"},
      {"matvec", "huge_half.npy huge_half.npy", "WEIGHTS or VECTORS has no elements"},
      {"pipeline", "huge_half.npy huge_half.npy", "WEIGHTS or VECTORS has no elements"},
      {"parallel", "huge_half.npy huge_half.npy", "WEIGHTS or VECTORS has no elements"},
      {"attend", "huge_heads.npy huge_heads.npy huge_heads.npy", "the array has no elements"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct ran ran = run(lines[i].sample, lines[i].words);
    REQUIRE_CODE(ran, 2);
    cr_assert_not_null(strstr(ran.error, lines[i].says), "%s %s: %s", lines[i].sample, lines[i].words, ran.error);
  }
}

Test(array_samples, help_exits_0_and_names_the_types) {
  static const char *const samples[] = {"orthogonalize", "fit", "attend", "matvec", "pipeline", "parallel", "rms_norm"};
  for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
    struct ran ran = run(samples[i], "--help");
    REQUIRE_CODE(ran, 0);
    cr_assert_not_null(strstr(ran.out, "usage: "), "%s", ran.out);
    cr_assert_not_null(strstr(ran.out, i < 2 ? "float32 or float64" : "float16"), "%s", ran.out);
  }
}

Test(array_samples, matvec_says_once_where_it_runs) {
  free(array_new("weights.npy", NPY_F16, 2, (int64_t[]){32, 64}));
  free(array_new("vectors.npy", NPY_F16, 2, (int64_t[]){2, 64}));
  struct ran ran = run("matvec", "weights.npy vectors.npy");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "runs on"), 1, "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, "\nmemory"), 1, "%s", ran.out);
}
