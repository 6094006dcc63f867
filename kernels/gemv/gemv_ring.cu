/* gemv_ring.cu - products with NVFP4 matrices of several waves: weights travel through a ring in shared memory.
 *
 * When: see gemv_ring_plan.c. Rows have no gaps and hold multiples of 16 bytes of scales, by row; one vector in 16 bits
 * may have an RMS norm; only slices of the last part may be missing in k; a block has more warps than vectors. Bound by
 * memory, if enough warps multiply: the time of a tile from its barrier to its last product is latency. So eight to 16
 * warps are faster than more stages. Stages have 30 to 75 KB: a copy costs its warp some 50 ns, and a tile costs the
 * warps some hundred cycles.
 *
 * A block owns block_rows consecutive rows of one matrix, and takes them tile by tile. One thread asks for whole tiles
 * with bulk copies (PTX ISA, cp.async.bulk) into the stages of a ring; `parts` x `groups` warps multiply the tiles that
 * have arrived. Bytes in flight cost no registers and do not wait for arithmetic. Kernels that load straight to
 * registers lose time by both in matrices of several waves. */
#include "gemv_bulk.cuh"
#include "gemv_finish.cuh"
#include "gemv_ring_products.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* ---- The ring --------------------------------------------------------------------------------------------------- */

/* A stage, and the parity of its phase. */
struct ring_position {
  uint32_t stage, parity;
};
DEVICE void advance(const gemv_ring_parameters &p, ring_position &at) {
  if (++at.stage < p.stages) return;
  at.stage = 0;
  at.parity ^= 1;
}
DEVICE uint32_t full_barrier(uint32_t ring, uint32_t stage) { return ring + 16 * stage; }
DEVICE uint32_t empty_barrier(uint32_t ring, uint32_t stage) { return ring + 16 * stage + 8; }

/* The warp that copies: a tile is one copy of weights and one of scales, since a copy costs the warp that asks for it
 * some 50 ns. All its lanes count along, so that what copies are told is the same in all of them. */
struct producer {
  const unsigned char *weights, *scales; /* of the next tile */
  uint32_t tile_rows, rows_left;
  uint64_t policy;

  DEVICE producer(const gemv_ring_parameters &p, uint32_t first_row, uint32_t rows)
      : weights(weights_from(p, first_row, 0)), scales(weight_scales_from(p, first_row, 0)),
        tile_rows(p.groups * p.group_rows), rows_left(rows), policy(read_once_policy()) {}

  DEVICE void copy_tile(const gemv_ring_parameters &p, uint32_t ring, uint32_t stage) {
    const uint32_t rows = min(tile_rows, rows_left), full = full_barrier(ring, stage);
    const uint32_t weight_bytes = rows * p.weight_row, scale_bytes = rows * p.weight_scale_strides.row;
    const uint32_t to = ring + p.first_stage + stage * p.stage_bytes;
    if (elected()) {
      bulk_copy(to, weights, weight_bytes, full, policy);
      bulk_copy(to + tile_rows * p.weight_row, scales, scale_bytes, full, policy);
      /* Last: until it arrives the phase cannot end, whatever has come, and the copies are under way earlier. */
      barrier_expect(full, weight_bytes + scale_bytes);
    }
    weights += weight_bytes;
    scales += scale_bytes;
    rows_left -= rows;
  }
  DEVICE void fill(const gemv_ring_parameters &p, uint32_t ring, uint32_t first, uint32_t end) {
    for (uint32_t stage = first; stage < end && rows_left; stage++) copy_tile(p, ring, stage);
  }
  /* The other stages, and each again as soon as it is empty. */
  DEVICE void fill_further(const gemv_ring_parameters &p, uint32_t ring) {
    fill(p, ring, p.early_stages, p.stages);
    for (ring_position at = {0, 0}; rows_left; advance(p, at)) {
      barrier_wait(empty_barrier(ring, at.stage), at.parity);
      copy_tile(p, ring, at.stage);
    }
  }
};

/* ---- Sums and results ------------------------------------------------------------------------------------------- */

/* Results are finished in pieces of 32 rows of a vector, by the warps in turn. */
struct piece_of_results {
  uint32_t vector, row;
};
template <int Vectors> DEVICE piece_of_results piece_of(uint32_t i, uint32_t rows) {
  const uint32_t pieces = (rows + 31) / 32;
  if (Vectors == 1) return {0, i * 32};
  if (pieces == 1) return {i, 0};
  return {i / pieces, i % pieces * 32};
}

/* A lane of a warp's first piece asks for its row's residual long before, if the result is not half as long. */
DEVICE bool has_own_residual(const gemv_ring_parameters &p) { return p.epilogue.residual && !p.epilogue.silu_mul; }
template <int Vectors>
DEVICE uint32_t ask_for_residual(const gemv_ring_parameters &p, uint32_t first_row, uint32_t rows) {
  uint32_t bits = 0;
  if (!p.finishing || !has_own_residual(p)) return bits;
  const piece_of_results piece = piece_of<Vectors>(threadIdx.x / 32, rows);
  const uint32_t row = piece.row + threadIdx.x % 32;
  if (row >= rows || piece.vector >= p.count) return bits;
  const int64_t element =
      blockIdx.y * p.epilogue.residual_batch + piece.vector * p.epilogue.residual_row + first_row + row;
  if (p.epilogue.residual_dtype == RONDO_F32)
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(bits) : "l"((const uint32_t *)p.epilogue.residual + element));
  else
    asm volatile("ld.global.u16 %0, [%1];" : "=r"(bits) : "l"((const uint16_t *)p.epilogue.residual + element));
  return bits;
}
DEVICE float number_of(uint32_t dtype, uint32_t bits) {
  if (dtype == RONDO_F32) return __uint_as_float(bits);
  return dtype == RONDO_BF16 ? __uint_as_float(bits << 16) : __low2float(half2_of(bits));
}

/* The results of all rows of the block, of the parts' sums in `met`. */
template <int Vectors>
DEVICE void finish_block(const gemv_ring_parameters &p, uint32_t first_row, uint32_t rows, uint32_t squares,
                         uint32_t met, uint32_t consumers, uint32_t residual) {
  const float norm = p.norm_epsilon > 0 ? quick_rms_factor(p, sum_of_parts(squares, NUMBER, p.parts)) : 1.0f;
  const float scale = norm * p.scale;
  const uint32_t vectors = Vectors == 1 ? 1 : p.count;
  warps_meet(1, consumers * 32); /* those that multiply */
  for (uint32_t i = threadIdx.x / 32;; i += consumers) {
    const piece_of_results piece = piece_of<Vectors>(i, rows);
    if (Vectors == 1 ? piece.row >= rows : piece.vector >= vectors) break;
    const tile_rows done = {blockIdx.y, first_row + piece.row, min(32u, rows - piece.row), 0};
    const auto sum_of = [&](uint32_t vector, uint32_t row) {
      const uint32_t at = Vectors == 1 ? piece.row + row : vector * p.pitch + piece.row + row;
      return sum_of_parts(met + at * NUMBER, vectors * p.pitch * NUMBER, p.parts);
    };
    if (p.finishing)
      finish_columns(
          p, done, piece.vector, [&](uint32_t row) { return sum_of(piece.vector, row) * scale; },
          [&](const gemv_parameters &, uint32_t, int64_t element) {
            return has_own_residual(p) && i == threadIdx.x / 32
                       ? number_of(p.epilogue.residual_dtype, residual)
                       : load_number(p.epilogue.residual_dtype, p.epilogue.residual, element);
          });
    else /* of a block with more warps than vectors, thread `32 vector + lane` takes this one and no other */
      finish_rows<false, true>(p, done, piece.vector * 32 + threadIdx.x % 32, sum_of, [=](uint32_t) { return norm; });
  }
}

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

/* By one thread. */
DEVICE void set_barriers(const gemv_ring_parameters &p, uint32_t ring, uint32_t consumers) {
  if (!elected()) return;
  for (uint32_t stage = 0; stage < p.stages; stage++) {
    barrier_init(full_barrier(ring, stage), 1);
    barrier_init(empty_barrier(ring, stage), consumers);
  }
  barriers_are_initialised();
}

/* Vectors in 16 bits would wait behind weights on their way from memory: only one stage is asked for before them.
 *
 * Shared memory: a full and an empty barrier of each stage; with RMS norm, floats squares [parts]; floats met
 * [parts][count][pitch], the sums of the block's rows; from first_stage on the stages, each weights [tile
 * rows][weight_row] and scales [tile rows][weight_scale_row]; from own_memory on [warps][own_bytes] for vectors, and as
 * many zeros.
 *
 * The arrival that releases a stage depends on all values loaded from it (`always_zero`), so these have come. Without
 * this the stage was filled again while the loads were under way, although the arrival releases: with weights in L2, up
 * to 54 launches of 60 had sums of the next tile's bytes (H200, 7 plans of 96). */
template <typename Product> DEVICE void gemv_ring(const gemv_ring_parameters &p) {
  extern __shared__ __align__(128) unsigned char ring_memory[];
  const uint32_t ring = computed_here(shared_address(ring_memory)), consumers = p.parts * p.groups;
  const uint32_t first_row = blockIdx.x * p.block_rows, rows = computed_here(min(p.block_rows, p.m - first_row));
  /* From one lane, so that ptxas knows that all lanes have the same. */
  const bool produces = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) == consumers;
  producer weights(p, first_row, rows);
  if (produces) {
    set_barriers(p, ring, consumers);
    if (p.early) weights.fill(p, ring, 0, p.early_stages);
  }
  Product product;
  const warp_position position = position_of_warp(p);
  const uint32_t own = ring + p.own_memory + threadIdx.x / 32 * p.own_bytes;
  if (!produces && p.early & GEMV_NORM_EARLY) product.ask_for_norm(p, position.part, own);
  wait_for_predecessors();
  if (produces && !p.early) weights.fill(p, ring, 0, p.early_stages);
  const uint32_t squares = ring + 16 * p.stages;
  uint32_t residual = 0;
  if (!produces) {
    if (!(p.early & GEMV_NORM_EARLY)) product.ask_for_norm(p, position.part, own);
    product.take_vectors(p, position.part, squares, own);
    residual = ask_for_residual<Product::vectors>(p, first_row, rows);
  }
  __syncthreads();
  if (produces) weights.fill_further(p, ring);
  if (threadIdx.x >= consumers * 32) return;

  const uint32_t met = squares + GEMV_MOST_PARTS * NUMBER;
  const uint32_t rows_of_tile = p.groups * p.group_rows, group_row = position.group * p.group_rows;
  const uint32_t vectors = Product::vectors == 1 ? 1 : p.count;
  uint32_t sums = met + (position.part * vectors * p.pitch + group_row) * NUMBER;
  ring_position at = {0, 0};
  rolled_for (uint32_t tile = 0;;) {
    /* A warp without rows of the tile waits too, and releases it. So a stage is filled again only after every warp has
     * seen it filled. The phase of a barrier is one bit: a warp that misses a phase takes the next but one for it. */
    barrier_wait(full_barrier(ring, at.stage), at.parity);
    const auto release = [&](uint32_t loaded) {
      __syncwarp();
      if (threadIdx.x % 32 == (loaded & p.always_zero)) barrier_arrive(empty_barrier(ring, at.stage));
    };
    const uint32_t end = min(p.group_rows, rows - tile - min(rows - tile, group_row));
    const uint32_t stage = ring + p.first_stage + at.stage * p.stage_bytes;
    uint32_t weights_at = stage + group_row * p.weight_row;
    uint32_t scales_at = stage + rows_of_tile * p.weight_row + group_row * p.weight_scale_strides.row;
    if (end == 0) release(0);
    rolled_for (uint32_t row = 0; row < end; row += Product::rows) {
      product.multiply(p, weights_at, scales_at, sums + row * NUMBER, [&](uint32_t loaded) {
        if (row + Product::rows >= end) release(loaded);
      });
      weights_at += Product::rows * p.weight_row;
      scales_at += Product::rows * p.weight_scale_strides.row;
    }
    tile += rows_of_tile;
    if (tile >= rows) break;
    advance(p, at);
    sums += rows_of_tile * NUMBER;
  }
  finish_block<Product::vectors>(p, first_row, rows, squares, met, consumers, residual);
}

#define DEFINE(chips, parameters, name, threads, blocks, vectors, most, rows, part, beyond, ...)                       \
  DEFINE_EARLY_KERNEL(chips, parameters, name, threads, blocks, gemv_ring<__VA_ARGS__>)
GEMV_RING_KERNELS(DEFINE)

#endif
