/* transfer.cu - dst := src for up to eight dense tensors.
 *
 * A block moves 4 KB of one of them, each of its 256 threads one vector of 16 bytes, and the first few a byte of what
 * is left at a tensor's end; both loads are in flight before either is stored, and all blocks run at once. So the whole
 * takes one trip over the bus and what the bus needs for the bytes, which bounds it. */
#include "../common/launch.cuh"
#include "transfer.h"

/* The last segment that has begun; empty ones, which begin where the next does, are passed over. */
__device__ __forceinline__ uint32_t segment_of(const transfer_parameters &p, uint32_t block) {
  uint32_t segment = 0;
#pragma unroll
  for (int i = 1; i < TRANSFER_TENSORS; i++) segment += block >= p.segments[i].first_block;
  return segment;
}

__device__ __forceinline__ void transfer(const transfer_parameters &p) {
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
