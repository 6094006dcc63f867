/* attention_wgmma_queries.cuh - the slots of Q as a warpgroup sees them that multiplies with what is in them, of 16
 * bits or of e4m3: with the rows comes the query tile that they are of. */
#ifndef RONDO_ATTENTION_WGMMA_QUERIES_CUH
#define RONDO_ATTENTION_WGMMA_QUERIES_CUH

#include "../common/wgmma.cuh"
#include "attention_wgmma_copies.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900

/* This warpgroup's 64 rows of a query tile. */
template <typename Size> struct query_ring {
  uint32_t full, empty, tiles;
  uint64_t first;
  bool leads;
  uint32_t taken = 0;

  __device__ __forceinline__ uint32_t slot() const { return taken & (Size::query_slots - 1); }
  /* Whether there is another tile. Who arrives at the empty barrier is who reads. */
  __device__ __forceinline__ bool wait(query_tile &tile) {
    barrier_wait(full + 8 * Size::warpgroups * slot(), taken / Size::query_slots & 1);
    const uint32_t from = tiles + 32 * Size::warpgroups * slot();
    uint4 words = make_uint4(0, 0, 0, 0);
    uint32_t number = 0;
    if (leads) {
      words = load_shared_16(from);
      number = load_shared(from + 16);
    }
    tile.batch = __shfl_sync(0xffffffffu, words.x, 0);
    tile.head = __shfl_sync(0xffffffffu, words.y, 0);
    tile.row_begin = (int)__shfl_sync(0xffffffffu, words.z, 0);
    tile.length = (int)__shfl_sync(0xffffffffu, words.w, 0);
    tile.number = __shfl_sync(0xffffffffu, number, 0);
    if (tile.batch != NO_TILE) return true;
    release();
    return false;
  }
  __device__ __forceinline__ uint64_t descriptor() const {
    return operand_layout | uniform((uint32_t)first + slot() * (Size::warpgroups * Size::query_bytes / 16));
  }
  __device__ __forceinline__ void release() {
    if (leads) barrier_arrive(empty + 8 * Size::warpgroups * slot());
    taken++;
  }
};

#endif
#endif
