/* hash_rectangles.h - a task for tests of the runtime, the same on the host and on the device. It hashes every element
 * of the rectangles that it reads, and writes numbers made of the hash to every element of those that it writes. One
 * wrong byte changes all that follows. Elements have 32 bits. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define HASH_FUNCTION __device__ static inline
#else
#define HASH_FUNCTION static inline
#endif

enum { HASH_OPERANDS = 4 };

/* By value, 64 bytes at most each. */
struct hash_shape {
  struct {
    uint8_t access, rows, columns, stride; /* access: 1 read, 2 write, 3 both, 0 absent */
  } operands[HASH_OPERANDS];
};

HASH_FUNCTION uint64_t hash_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ (hash >> 29);
}

HASH_FUNCTION void hash_rectangles(uint32_t *const *data, const struct hash_shape *shape, uint64_t hash) {
  for (int i = 0; i < HASH_OPERANDS; i++)
    if (data[i] && shape->operands[i].access & 1)
      for (uint32_t y = 0; y < shape->operands[i].rows; y++)
        for (uint32_t x = 0; x < shape->operands[i].columns; x++)
          hash = hash_mix(hash, data[i][y * shape->operands[i].stride + x]);
  for (int i = 0; i < HASH_OPERANDS; i++)
    if (data[i] && shape->operands[i].access & 2)
      for (uint32_t y = 0; y < shape->operands[i].rows; y++)
        for (uint32_t x = 0; x < shape->operands[i].columns; x++)
          data[i][y * shape->operands[i].stride + x] = (uint32_t)hash_mix(hash, y * 1000u + x);
}
