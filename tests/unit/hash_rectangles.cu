/* hash_rectangles.cu - the task of hash_rectangles.h as a user's kernel: one thread, arguments by address and by value.
 */
#include "hash_rectangles.h"

extern "C" __global__ void hash_rectangles_kernel(uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d, hash_shape shape,
                                                  uint64_t seed) {
  uint32_t *const data[HASH_OPERANDS] = {a, b, c, d};
  hash_rectangles(data, &shape, seed);
}
