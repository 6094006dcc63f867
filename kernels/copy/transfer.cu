/* transfer.cu - copies up to eight dense tensors. Bound by the bus: one round trip, plus the transfer of the bytes.
 *
 * A block moves 4 KB of one tensor. Each of its 256 threads moves one vector of 16 bytes. At a tensor's end the first
 * threads also move one byte each of the last, incomplete vector. A thread issues both loads before it stores either,
 * and all blocks run at once. */
#include "../common/launch.cuh"
#include "transfer.h"

/* The segment of a block: the last one whose first block is not after it. An empty segment has the same first block as
 * the next segment, and so no block finds it. */
DEVICE uint32_t segment_of(const transfer_parameters &p, uint32_t block) {
  uint32_t segment = 0;
  unrolled_for (int i = 1; i < TRANSFER_TENSORS; i++) segment += block >= p.segments[i].first_block;
  return segment;
}

DEVICE void transfer(const transfer_parameters &p) {
  const transfer_segment &segment = p.segments[segment_of(p, blockIdx.x)];
  const uint32_t begin = (blockIdx.x - segment.first_block) * COPY_BLOCK_BYTES;
  const uint32_t bytes = min(segment.bytes - begin, (uint32_t)COPY_BLOCK_BYTES);
  const char *src = (const char *)segment.src + begin;
  char *dst = (char *)segment.dst + begin;

  const uint32_t vectors = bytes / COPY_VECTOR_BYTES, rest = bytes % COPY_VECTOR_BYTES;
  const uint32_t vector_at = threadIdx.x * COPY_VECTOR_BYTES;
  const uint32_t byte_at = vectors * COPY_VECTOR_BYTES + threadIdx.x;
  uint4 vector = {};
  char byte = 0;
  if (threadIdx.x < vectors) vector = *(const uint4 *)(src + vector_at);
  if (threadIdx.x < rest) byte = src[byte_at];
  if (threadIdx.x < vectors) *(uint4 *)(dst + vector_at) = vector;
  if (threadIdx.x < rest) dst[byte_at] = byte;
}

TRANSFER_KERNELS(DEFINE_SHORT_KERNEL)
