/* npy.h - NumPy's .npy files (numpy.lib.format, versions 1.0, 2.0 and 3.0) for the samples: little-endian arrays in C
 * order with up to four dimensions. Fortran order is accepted if it is the same order. The reader rejects every other
 * or damaged file with a reason. NumPy has no bf16; files store its bits as NPY_U16. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum npy_type { NPY_F64, NPY_F32, NPY_F16, NPY_I32, NPY_U16, NPY_U8, NPY_I8, NPY_TYPE_COUNT };
enum { NPY_MAX_RANK = 4, NPY_MESSAGE_BYTES = 256 };

struct npy {
  enum npy_type type;
  uint32_t rank;
  int64_t shape[NPY_MAX_RANK];
  uint64_t bytes; /* of data */
  void *data;     /* NULL if there are no elements */
};

/* Reads a file; npy_free releases the data. On failure *array is all zero, and message has the reason. */
bool npy_read(const char *path, struct npy *array, char message[NPY_MESSAGE_BYTES]);
/* Writes format 1.0. Uses type, rank, shape and data. */
bool npy_write(const char *path, const struct npy *array, char message[NPY_MESSAGE_BYTES]);
void npy_free(struct npy *array);

int64_t npy_count(const struct npy *array);                 /* elements; below 2^63 in an array that was read */
double npy_element(const struct npy *array, int64_t index); /* in C order */
const char *npy_type_name(enum npy_type type);              /* NumPy's: "float16" */
