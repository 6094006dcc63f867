/* feed_forward_many_tokens.cu - the feed forward half of a layer for 2 to 128 tokens, if the compiler knows all sizes,
 * sm_90a (feed_forward_many_tokens.h). Exchanges bound it: both products together take 1700 cycles.
 *
 * A cluster has 64 tokens and 256 gated columns. Before the wait a block moves its rows of all weights to shared
 * memory. Then each block copies eight tokens, times the norm, to all blocks, and the factors of their rows after them;
 * multiplies the tokens by its rows of gate and up, and the sums by the factors; copies its gated columns to all
 * blocks; and multiplies those of the cluster by its rows of the second matrix. A token's bits depend neither on its
 * position among the tokens nor on the others. */
#include "feed_forward_many_tokens.h"
#include "many_tokens.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))
/* A line of the list in feed_forward_known.h. */
template <int Hidden, int Columns> struct sizes {
  static constexpr uint32_t cluster = LAYER_HALF_CLUSTER, hidden = Hidden, columns = Columns;
  static constexpr uint32_t tokens = FEED_FORWARD_MANY_TOKENS_TILE, own_tokens = tokens / cluster;
  static constexpr uint32_t own = FEED_FORWARD_MANY_TOKENS_COLUMNS, slice = own * cluster; /* gated columns */
  static constexpr uint32_t results = Hidden / cluster;                                    /* columns of a block */
  static constexpr uint32_t warps = FEED_FORWARD_MANY_TOKENS_THREADS / 32;
  /* Panels of 64 columns, with 128 bytes a row. */
  static constexpr uint32_t panels = Hidden / 64, slice_panels = slice / 64;
  static constexpr uint32_t panel_bytes = 64 * 128, second_panel_bytes = results * 128;
  static constexpr uint32_t gated_row_bytes = own * 2, gated_bytes = tokens * gated_row_bytes;
  static_assert(own_tokens == 8 && warps == 16 && own == 32, "two warps have a token, a lane eight gated columns");
  static_assert(Hidden % 64 == 0 && results == 72 && Columns % slice == 0, "");
};

template <typename Size> struct memory {
  alignas(1024) unsigned char first[Size::panels][Size::panel_bytes];
  alignas(1024) unsigned char second[Size::slice_panels][Size::second_panel_bytes];
  alignas(1024) unsigned char x[Size::panels][Size::panel_bytes];
  alignas(1024) unsigned char gated[Size::cluster][Size::gated_bytes];
  token_factors factors;
  uint64_t x_here[Size::panels], gated_here[Size::cluster];
};

struct slice_place {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t rank = blockIdx.x % LAYER_HALF_CLUSTER, cluster = blockIdx.x / LAYER_HALF_CLUSTER;
  uint32_t slice, first_token;

  DEVICE explicit slice_place(uint32_t slices) {
    slice = cluster % slices, first_token = cluster / slices * FEED_FORWARD_MANY_TOKENS_TILE;
  }
};

/* ---- Before the wait --------------------------------------------------------------------------------------------- */

template <typename Size> DEVICE void set_up(memory<Size> &m) {
  if (threadIdx.x == 0) {
    unroll<Size::panels>([&](int i) { begin(m.x_here[i], Size::panel_bytes); });
    begin(m.factors.here, sizeof m.factors.factor);
    unroll<Size::cluster>([&](int i) { begin(m.gated_here[i], Size::gated_bytes); });
    barriers_are_initialised();
  }
  __syncwarp();
  only_arrive_at_cluster();
}

/* The row of gate and up in row n of the first operand: of the accumulators 8 j + 2 t and the next one a lane then has
 * gate and up of column 8 t + j. */
DEVICE uint32_t gate_up_row(uint32_t n) { return 2 * (n / 2 % 4 * 8 + n / 8) + n % 2; }

template <typename Size>
DEVICE void load_weights(const layer_half_parameters &half, const memory<Size> &m, const slice_place &at) {
  const unsigned char *first = (const unsigned char *)half.first.weights +
                               (uint64_t)(2 * (at.slice * Size::slice + at.rank * Size::own)) * (Size::hidden * 2),
                      *second = (const unsigned char *)half.second.weights +
                                ((uint64_t)at.rank * Size::results * Size::columns + at.slice * Size::slice) * 2;
  const uint32_t sixteen = threadIdx.x % 8, first_to = shared_address(m.first), second_to = shared_address(m.second);
  /* Eight threads have 128 bytes. */
  rolled_for (uint32_t n = threadIdx.x / 8; n < 64; n += FEED_FORWARD_MANY_TOKENS_THREADS / 8) {
    const unsigned char *from = first + gate_up_row(n) * (Size::hidden * 2) + sixteen * 16;
    unroll<Size::panels>([&](uint32_t panel) {
      copy_early_16(first_to + panel * Size::panel_bytes + swizzled(n, sixteen), from + panel * 128);
    });
  }
  rolled_for (uint32_t n = threadIdx.x / 8; n < Size::results; n += FEED_FORWARD_MANY_TOKENS_THREADS / 8) {
    const unsigned char *from = second + n * (Size::columns * 2) + sixteen * 16;
    unroll<Size::slice_panels>([&](uint32_t panel) {
      copy_early_16(second_to + panel * Size::second_panel_bytes + swizzled(n, sixteen), from + panel * 128);
    });
  }
  cp_async_commit();
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* Rows of 64 bytes have a swizzle of their own: the sixteen's index is xored with the row's, divided by two. */
constexpr uint64_t gated_layout = (uint64_t)(512 >> 4) << 32 | 2ull << 62;

/* A lane's eight gated columns of two tokens, times the scale of the second product, to all blocks. */
template <typename Size>
DEVICE void send_gated(const memory<Size> &m, const slice_place &at, unsigned char *exchange, const float (&sum)[32],
                       float scale) {
  barrier_wait(shared_address(&m.factors.here), 0);
  unroll<2>([&](uint32_t half) {
    const uint32_t token = at.warp * 16 + half * 8 + at.g;
    const float factor = m.factors.factor[token];
    float value[8];
    unroll<8>([&](int j) {
      value[j] = silu(sum[4 * j + 2 * half] * factor) * (sum[4 * j + 2 * half + 1] * (factor * scale));
    });
    *(uint4 *)(exchange + token * Size::gated_row_bytes + ((at.t ^ token / 2 % 4) << 4)) = {
        pack(value[0], value[1]), pack(value[2], value[3]), pack(value[4], value[5]), pack(value[6], value[7])};
  });
  writes_reach_copies();
  __syncwarp();
  constexpr uint32_t of_warp = 16 * Size::gated_row_bytes;
  if (elected())
    copy_to_blocks(0xff, shared_address(m.gated[at.rank]) + at.warp * of_warp, exchange + at.warp * of_warp, of_warp,
                   shared_address(&m.gated_here[at.rank]));
}

/* The cluster's gated columns times the block's rows of the second matrix. */
template <typename Size> DEVICE void multiply_gated(const memory<Size> &m, float (&sum)[Size::results / 2]) {
  const uint64_t gated = (shared_address(m.gated) & 0x3ffff) >> 4 | gated_layout,
                 w = operand_descriptor(shared_address(m.second), 0);
  unroll<Size::cluster>([&](uint32_t block) {
    barrier_wait(shared_address(&m.gated_here[block]), 0);
    wgmma_fence();
    unroll<2>([&](uint32_t step) {
      warpgroup_product<__nv_bfloat16, Size::results>::shared(
          sum, operand_further(gated, block * Size::gated_bytes + step * 32),
          operand_further(w, block / 2 * Size::second_panel_bytes + block % 2 * 64 + step * 32), block + step > 0);
    });
    wgmma_commit();
  });
  wgmma_wait<0>();
  pin(sum);
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

template <typename Size> DEVICE void feed_forward(const feed_forward_many_tokens_parameters &p) {
  static_assert(sizeof(memory<Size>) == FEED_FORWARD_MANY_TOKENS_BYTES(Size::hidden), "");
  extern __shared__ __align__(1024) unsigned char shared[];
  memory<Size> &m = *(memory<Size> *)shared;
  const slice_place at(Size::columns / Size::slice);
  set_up<Size>(m);
  lane_norm<Size::hidden> norm;
  const auto load = [&] { load_weights<Size>(p.half, m, at), norm.load(p.half); };
  if (p.half.early) load();
  keep_early(p.half.always_zero, norm.all());
  norm.unpack();
  const uint32_t exchange = blockIdx.x * FEED_FORWARD_MANY_TOKENS_EXCHANGE(Size::hidden);
  const half_place<Size::hidden> own(at.first_token, at.rank, exchange);
  wait_for_cluster();
  only_wait_for_predecessors();
  let_successors_start(); /* one kernel ahead: more would take the places of another chain */
  if (__builtin_expect(!p.half.early, 0)) load(), norm.unpack();

  send_tokens<Size::hidden>(p.half, own, at.rank, at.slice == 0, p.half.scale, norm, p.exchange, m.factors, 0xff, m.x,
                            m.x_here);
  if (at.warp < 4) {
    float sum[32];
    multiply_panels<Size::panels, 64>(m.x_here, m.x, m.first, sum);
    send_gated<Size>(m, at, p.exchange + exchange + Size::panels * ATOM_BYTES, sum, p.half.scale);
    float result[Size::results / 2];
    multiply_gated<Size>(m, result);
    store_results<Size::hidden>(
        result, p.half.out_parts + (at.slice * p.half.rows + at.first_token) * Size::hidden + at.rank * Size::results,
        p.half.rows - at.first_token);
  }
}

#define DEFINE(chips, parameters, name, threads, hidden, columns)                                                      \
  DEFINE_CLUSTER_KERNEL((void)0, LAYER_HALF_CLUSTER, parameters, name, threads, 1, feed_forward<sizes<hidden, columns>>)
FEED_FORWARD_MANY_TOKENS_KERNELS(DEFINE)
#endif
