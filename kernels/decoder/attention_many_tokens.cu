/* attention_many_tokens.cu - the attention half of a layer for 17 to 128 tokens of one sequence, sm_90a
 * (attention_many_tokens.h). Exchanges bound it.
 *
 * A cluster has a KV head and 64 tokens, its tile. Before the wait a block moves its rows of all weights to shared
 * memory. Three blocks make the heads of q, one K and one V; in the second tile two more make K and V of the first,
 * since another cluster's cannot be read. The blocks of q attend, with a tile of keys to each warpgroup at a time, and
 * copy what they attended to all blocks, which share the rows of the output. A token's bits depend on its position and
 * on nothing that comes after it. */
#include "../model/rope.cuh"
#include "attention_many_tokens.h"
#include "many_tokens.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))
/* A line of the list. */
template <int Hidden, int KvHeads, int Group> struct sizes {
  static constexpr uint32_t cluster = LAYER_HALF_CLUSTER, hidden = Hidden, kv_heads = KvHeads, group = Group;
  static constexpr uint32_t dimension = ATTENTION_MANY_TOKENS_DIMENSION, columns = KvHeads * Group * dimension;
  static constexpr uint32_t tile = ATTENTION_MANY_TOKENS_TILE, tiles = ATTENTION_MANY_TOKENS_MOST / tile;
  static constexpr uint32_t own_tokens = tile / cluster, results = Hidden / cluster;
  static constexpr uint32_t panels = Hidden / PANEL_COLUMNS, second_panel_bytes = results * PANEL_ROW_BYTES;
  static constexpr uint32_t panel_bytes = tile * PANEL_ROW_BYTES;
  static constexpr uint32_t warpgroups = ATTENTION_MANY_TOKENS_THREADS / 128;
  static_assert(Group + 2 * tiles <= cluster && own_tokens == 8 && Hidden % PANEL_COLUMNS == 0 && results == 72, "");
  static_assert(2 * warpgroups < panels, "each warpgroup has a stage of K and of V in the place of weights");
};

/* What a block makes of its tile: a head of q, of K or of V. */
enum role { QUERY, KEY, VALUE, NONE };

template <typename Size> struct memory {
  /* After the first product: q and, of each warpgroup, K and V of the cache, then its sums; or what is sent. */
  alignas(1024) unsigned char first[Size::panels][Size::panel_bytes];
  /* After that of all blocks: what was attended, a panel of each head. */
  alignas(1024) unsigned char x[Size::panels][Size::panel_bytes];
  alignas(1024) unsigned char second[Size::group][Size::second_panel_bytes];
  alignas(1024) unsigned char k[Size::tiles][Size::panel_bytes], v[Size::tiles][Size::panel_bytes];
  union {
    alignas(128) unsigned char table[Size::tile][ATTENTION_MANY_TOKENS_PITCH]; /* cosines and sines */
    float2 stats[Size::warpgroups][Size::tile];                                /* maxima and sums */
  };
  uint64_t x_here[Size::panels], k_here[Size::tiles], v_here[Size::tiles], attended_here[Size::group];
};
enum { Q_PANEL, SENT_PANEL, STAGE_PANELS = SENT_PANEL };
enum { BARRIER_OF_FIRST = 1, BARRIER_OF_TABLE = 5 }; /* one of each warpgroup */

struct block_place {
  const uint32_t warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32 % 4; /* warp: of the warpgroup */
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t rank = blockIdx.x % LAYER_HALF_CLUSTER, cluster = blockIdx.x / LAYER_HALF_CLUSTER;
  uint32_t kv_head, tile; /* of the cluster */
  enum role role;         /* of the block, */
  uint32_t of_tile;       /* and the tile that it multiplies */
};

template <typename Size> DEVICE block_place place_of_block() {
  block_place at;
  at.kv_head = at.cluster % Size::kv_heads, at.tile = at.cluster / Size::kv_heads, at.of_tile = at.tile;
  const uint32_t after = at.rank - Size::group; /* K, V, then those of the first tile */
  at.role = at.rank < Size::group ? QUERY : after % 2 ? VALUE : KEY;
  if (at.rank >= Size::group + 2) at.of_tile = 0;
  if (at.rank >= Size::group + 2 * (at.tile + 1)) at.role = NONE;
  return at;
}

/* ---- Before the wait --------------------------------------------------------------------------------------------- */

template <typename Size> DEVICE void set_up(memory<Size> &m, const block_place &at) {
  if (threadIdx.x == 0) {
    const auto begin = [](uint64_t &barrier, uint32_t bytes) {
      barrier_init(shared_address(&barrier), 1);
      barrier_expect(shared_address(&barrier), bytes);
    };
    unroll<Size::panels>([&](int i) { begin(m.x_here[i], Size::panel_bytes); });
    unroll<Size::tiles>([&](int i) { begin(m.k_here[i], Size::panel_bytes), begin(m.v_here[i], Size::panel_bytes); });
    unroll<Size::group>([&](int i) { begin(m.attended_here[i], Size::panel_bytes); });
    barriers_are_initialised();
  }
  __syncwarp();
  arrive_at_cluster();
}

template <typename Size>
DEVICE void load_weights(const layer_half_parameters &half, const memory<Size> &m, const block_place &at) {
  const uint32_t heads = Size::kv_heads * Size::group;
  const uint32_t head = at.role == QUERY ? at.kv_head * Size::group + at.rank
                                         : heads + (at.role == VALUE ? Size::kv_heads : 0) + at.kv_head;
  const unsigned char *first = (const unsigned char *)half.first.weights + head * Size::dimension * (Size::hidden * 2),
                      *second =
                          (const unsigned char *)half.second.weights +
                          (at.rank * Size::results * Size::columns + at.kv_head * Size::group * Size::dimension) * 2;
  const uint32_t sixteen = threadIdx.x % 8, n = threadIdx.x / 8; /* eight threads have 128 bytes */
  static_assert(ATTENTION_MANY_TOKENS_THREADS / 8 == Size::dimension, "a row of eight threads");
  if (at.role != NONE)
    unroll<Size::panels>([&](uint32_t panel) {
      copy_early_16(shared_address(m.first[panel]) + swizzled(n, sixteen),
                    first + n * (Size::hidden * 2) + panel * PANEL_ROW_BYTES + sixteen * 16);
    });
  rolled_for (uint32_t row = n; row < Size::results; row += ATTENTION_MANY_TOKENS_THREADS / 8)
    unroll<Size::group>([&](uint32_t panel) {
      copy_early_16(shared_address(m.second[panel]) + swizzled(row, sixteen),
                    second + row * (Size::columns * 2) + panel * PANEL_ROW_BYTES + sixteen * 16);
    });
  cp_async_commit();
}

/* The tiles' normalised rows to the blocks that multiply them: each block copies eight rows of each panel. */
DEVICE void box_copy_to(uint16_t blocks, uint32_t to, const void *map, uint32_t column, uint32_t row,
                        uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
               "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
               : "memory");
}
template <typename Size>
DEVICE void ask_tokens(const attention_many_tokens_parameters &p, const memory<Size> &m, const block_place &at) {
  constexpr uint32_t tile_blocks = (1u << (Size::group + 2)) - 1, first_blocks = 3u << (Size::group + 2);
  const uint32_t panel = threadIdx.x / 32, row = at.rank * Size::own_tokens;
  if (panel >= Size::panels || !elected()) return;
  const uint32_t to = shared_address(m.x[panel]) + at.rank * ATOM_BYTES, barrier = shared_address(&m.x_here[panel]);
  box_copy_to(tile_blocks, to, &p.normed, panel * PANEL_COLUMNS, at.tile * Size::tile + row, barrier);
  if (at.tile) box_copy_to(first_blocks, to, &p.normed, panel * PANEL_COLUMNS, row, barrier);
}

/* ---- q, K and V -------------------------------------------------------------------------------------------------- */

/* The tile times the block's rows of q, K or V. */
template <typename Size> DEVICE void multiply_tokens(const memory<Size> &m, float (&sum)[32]) {
  const uint64_t x = operand_descriptor(shared_address(m.x), 0), w = operand_descriptor(shared_address(m.first), 0);
  unroll<Size::panels>([&](uint32_t panel) {
    barrier_wait_cluster(shared_address(&m.x_here[panel]), 0);
    wgmma_fence();
    unroll<4>([&](uint32_t step) {
      const uint32_t further = panel * Size::panel_bytes + step * 32;
      warpgroup_product<__nv_bfloat16, 64>::shared(sum, operand_further(x, further), operand_further(w, further),
                                                   panel + step > 0);
    });
    wgmma_commit();
  });
  wgmma_wait<0>();
  pin(sum);
}

/* Cosines and sines of the rows that the block multiplies: a lane has a pair. */
template <typename Size>
DEVICE void make_table(const attention_many_tokens_parameters &p, memory<Size> &m, const block_place &at,
                       float frequency, int32_t position) {
  constexpr uint32_t warps = 4 * (Size::warpgroups - 1);
  if (p.frequencies) frequency = p.frequencies[at.lane];
  rolled_for (uint32_t row = threadIdx.x / 32 - 4; row < Size::tile; row += warps) {
    const rotation by = rotation_of((float)(position + (int32_t)(at.of_tile * Size::tile + row)) * frequency);
    store_two_numbers(shared_address(m.table[row]) + at.lane * 8, {by.cosine, by.sine});
  }
}

/* Pairs of halves are 32 columns apart, others are neighbours. */
template <typename Size>
DEVICE void rotate(const memory<Size> &m, const block_place &at, bool halves, float (&sum)[32]) {
  unroll<2>([&](int row) {
    const uint32_t table = shared_address(m.table[at.warp * 16 + 8 * row + at.g]);
    if (halves)
      unroll<4>([&](int j) {
        const float4 by = load_shared_four(table + (8 * j + 2 * at.t) * 8);
        rotate_pair({by.y, by.x}, sum[4 * j + 2 * row], sum[4 * j + 2 * row + 16]);
        rotate_pair({by.w, by.z}, sum[4 * j + 2 * row + 1], sum[4 * j + 2 * row + 17]);
      });
    else
      unroll<8>([&](int j) {
        const float2 by = load_shared_two(table + (4 * j + at.t) * 8);
        rotate_pair({by.y, by.x}, sum[4 * j + 2 * row], sum[4 * j + 2 * row + 1]);
      });
  });
}

/* The sums, rounded, to a panel: the warp's 16 rows. */
DEVICE void store_panel(uint32_t panel, const block_place &at, const float (&sum)[32]) {
  const uint32_t row = at.warp * 16 + at.lane % 16;
  unroll<4>([&](uint32_t i) {
    stmatrix_x4(panel + swizzled(row, 2 * i + at.lane / 16), pack(sum[8 * i], sum[8 * i + 1]),
                pack(sum[8 * i + 2], sum[8 * i + 3]), pack(sum[8 * i + 4], sum[8 * i + 5]),
                pack(sum[8 * i + 6], sum[8 * i + 7]));
  });
  writes_reach_products();
  warps_meet(BARRIER_OF_FIRST, 128);
}

/* The element where a row of a cache begins; none: -1. */
DEVICE int64_t cache_row(const attention_many_tokens_parameters &p, int32_t row, uint32_t page_stride,
                         uint32_t row_stride) {
  if (row < 0 || (uint32_t)row >= p.capacity) return -1;
  uint32_t page = 0;
  if (p.pages) page = (uint32_t)p.pages[row >> p.page_shift], row &= (1 << p.page_shift) - 1;
  if (page >= p.pool_pages) return -1;
  return (int64_t)page * page_stride + (int64_t)row * row_stride;
}

/* A panel of K or V to the cache: eight threads have a row. */
template <typename Size>
DEVICE void append(const attention_many_tokens_parameters &p, const block_place &at, uint32_t panel, int32_t position) {
  const bool is_key = at.role == KEY;
  unsigned char *cache = (unsigned char *)(is_key ? p.k : p.v) + at.kv_head * (is_key ? p.k_head : p.v_head) * 2;
  const uint32_t sixteen = threadIdx.x % 8;
  unroll<4>([&](uint32_t i) {
    const uint32_t row = threadIdx.x / 8 + 16 * i, token = at.tile * Size::tile + row;
    const int64_t to = token < p.half.rows ? cache_row(p, position + (int32_t)token, is_key ? p.k_page : p.v_page,
                                                       is_key ? p.k_position : p.v_position)
                                           : -1;
    if (to >= 0) *(uint4 *)(cache + to * 2 + sixteen * 16) = load_four_words(panel + swizzled(row, sixteen));
  });
}

/* ---- Attention --------------------------------------------------------------------------------------------------- */

constexpr float lowest = -1e30f; /* below each score */

/* A warpgroup's sums for a head's 64 rows, in the layout of wgmma.cuh. */
struct attending {
  float o[32], most[2], sum[2];
  const int32_t position; /* of the lane's first row; the second is eight behind */

  /* The scores of 64 keys. */
  static DEVICE void score(float (&s)[32], uint32_t q, uint32_t k) {
    const uint64_t of_q = operand_descriptor(q, 0), of_k = operand_descriptor(k, 0);
    wgmma_fence();
    unroll<4>([&](uint32_t i) {
      warpgroup_product<__nv_bfloat16, 64>::shared(s, operand_further(of_q, 32 * i), operand_further(of_k, 32 * i),
                                                   i > 0);
    });
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);
  }

  /* Of keys from position `first` to before `end`. */
  DEVICE void weigh(float (&s)[32], uint32_t (&weights)[16], int32_t first, int32_t end, uint32_t t, float scale_log2) {
    unroll<2>([&](int row) {
      const int32_t own = first + 2 * (int32_t)t, visible = min(position + 8 * row + 1, end) - own;
      float largest = lowest;
      unroll<8, 2>([&](int j, int b) {
        float &x = s[4 * j + 2 * row + b];
        x = 8 * j + b < visible && 8 * j + b >= -own ? x * scale_log2 : -INFINITY;
        largest = fmaxf(largest, x);
      });
      largest = fmaxf(quad_max(largest), most[row]);
      const float factor = exp2_approximate(most[row] - largest);
      most[row] = largest, sum[row] *= factor;
      unroll<8>([&](int j) {
        const float low = exp2_approximate(s[4 * j + 2 * row] - largest),
                    high = exp2_approximate(s[4 * j + 2 * row + 1] - largest);
        sum[row] += low + high;
        weights[2 * j + row] = pack(low, high);
        o[4 * j + 2 * row] *= factor, o[4 * j + 2 * row + 1] *= factor;
      });
    });
  }

  DEVICE void add(uint32_t (&weights)[16], uint32_t v) {
    const uint64_t of_v = operand_descriptor(v, 0);
    pin(o), pin(weights);
    wgmma_fence();
    unroll<4>([&](uint32_t i) {
      warpgroup_product<__nv_bfloat16, 64>::registers(o, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2],
                                                      weights[4 * i + 3],
                                                      operand_further(of_v, i * 16 * PANEL_ROW_BYTES));
    });
    wgmma_commit();
    wgmma_wait<0>();
    pin(o), pin(weights);
  }
};

/* 64 rows of the cache of K or V from row `first` on. Rows from `end` on are zeros: this launch may write them. */
DEVICE void ask_cache(const attention_many_tokens_parameters &p, const void *cache, uint32_t page_stride,
                      uint32_t row_stride, uint32_t to, int32_t first, int32_t end) {
  const uint32_t sixteen = threadIdx.x % 8;
  unroll<4>([&](uint32_t i) {
    const uint32_t row = threadIdx.x % 128 / 8 + 16 * i;
    const int32_t of_cache = first + (int32_t)row;
    const int64_t from = of_cache < end ? cache_row(p, of_cache, page_stride, row_stride) : -1;
    cp_async_16(to + swizzled(row, sixteen), (const unsigned char *)cache + (from < 0 ? 0 : from * 2 + sixteen * 16),
                from < 0 ? 0 : 16);
  });
  cp_async_commit();
}

/* The warpgroup's tiles of the rows before the prompt's. K of the next tile comes while V is multiplied, and V while
 * the next scores are made. */
template <typename Size>
DEVICE void attend_cache(const attention_many_tokens_parameters &p, const memory<Size> &m, const block_place &at,
                         int32_t length, attending &head) {
  const uint32_t q = shared_address(m.first[Q_PANEL]), k = shared_address(m.first[STAGE_PANELS + 2 * at.warpgroup]),
                 v = shared_address(m.first[STAGE_PANELS + 2 * at.warpgroup + 1]);
  constexpr int32_t step = Size::warpgroups * Size::tile;
  const uint16_t *of_k = (const uint16_t *)p.k + at.kv_head * p.k_head,
                 *of_v = (const uint16_t *)p.v + at.kv_head * p.v_head;
  const auto ask_k = [&](int32_t first) { ask_cache(p, of_k, p.k_page, p.k_position, k, first, length); };
  const auto ask_v = [&](int32_t first) { ask_cache(p, of_v, p.v_page, p.v_position, v, first, length); };
  const auto wait = [&] {
    cp_async_wait<1>();
    writes_reach_products();
    warps_meet(BARRIER_OF_FIRST + at.warpgroup, 128);
  };
  int32_t first = (int32_t)(at.warpgroup * Size::tile);
  if (first >= length) return;
  ask_k(first), ask_v(first);
  rolled_for (; first < length; first += step) {
    float s[32];
    uint32_t weights[16];
    wait();
    head.score(s, q, k);
    warps_meet(BARRIER_OF_FIRST + at.warpgroup, 128);
    ask_k(first + step);
    head.weigh(s, weights, first, length, at.t, p.scale_log2);
    wait();
    head.add(weights, v);
    warps_meet(BARRIER_OF_FIRST + at.warpgroup, 128);
    ask_v(first + step);
  }
  cp_async_wait<0>();
}

/* The place of eight of a row's sums, so that rows lie in different banks. */
DEVICE uint32_t eight_at(uint32_t row, uint32_t eight) { return row * 256 + ((eight ^ row % 8) << 5); }

/* The sums of the first warpgroups, joined, as the block's 64 rows of a head. */
template <typename Size> DEVICE void join(const memory<Size> &m, uint32_t warpgroups, unsigned char *exchange) {
  const uint32_t row = threadIdx.x / 8, eight = threadIdx.x % 8;
  float most = lowest, sum = 0, o[8] = {};
  rolled_for (uint32_t w = 0; w < warpgroups; w++) most = fmaxf(most, m.stats[w][row].x);
  rolled_for (uint32_t w = 0; w < warpgroups; w++) {
    const uint32_t from = shared_address(m.first[STAGE_PANELS + 2 * w]) + eight_at(row, eight);
    const float4 low = load_shared_four(from), high = load_shared_four(from + 16);
    const float factor = exp2_approximate(m.stats[w][row].x - most);
    sum = fmaf(factor, m.stats[w][row].y, sum);
    const float part[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    unroll<8>([&](int i) { o[i] = fmaf(factor, part[i], o[i]); });
  }
  const float by = sum > 0 ? 1.0f / sum : 0.0f;
  *(uint4 *)(exchange + swizzled(row, eight)) = {pack(o[0] * by, o[1] * by), pack(o[2] * by, o[3] * by),
                                                 pack(o[4] * by, o[5] * by), pack(o[6] * by, o[7] * by)};
  writes_reach_copies();
}

/* All that the block's queries see. A warpgroup takes every fourth tile of 64 keys: those of the cache come first. */
template <typename Size>
DEVICE void attend(const attention_many_tokens_parameters &p, memory<Size> &m, const block_place &at, int32_t position,
                   unsigned char *exchange) {
  attending head = {{}, {lowest, lowest}, {}, position + (int32_t)(at.tile * Size::tile + at.warp * 16 + at.g)};
  const int32_t length = max(min(position, (int32_t)p.capacity), 0);
  const uint32_t before = ((uint32_t)length + Size::tile - 1) / Size::tile, all = before + at.tile + 1;
  attend_cache<Size>(p, m, at, length, head);
  unroll<Size::tiles>([&](uint32_t tile) {
    if (tile > at.tile || (before + tile) % Size::warpgroups != at.warpgroup) return;
    float s[32];
    uint32_t weights[16];
    barrier_wait_cluster(shared_address(&m.k_here[tile]), 0);
    head.score(s, shared_address(m.first[Q_PANEL]), shared_address(m.k[tile]));
    head.weigh(s, weights, position + (int32_t)(tile * Size::tile), (int32_t)p.capacity, at.t, p.scale_log2);
    barrier_wait_cluster(shared_address(&m.v_here[tile]), 0);
    head.add(weights, shared_address(m.v[tile]));
  });
  if (at.warpgroup < all) {
    const uint32_t to = shared_address(m.first[STAGE_PANELS + 2 * at.warpgroup]);
    unroll<2>([&](int row) {
      const uint32_t of = at.warp * 16 + 8 * row + at.g;
      const float sum = quad_sum(head.sum[row]);
      if (at.t == 0) m.stats[at.warpgroup][of] = {head.most[row], sum};
      unroll<8>([&](int j) {
        store_two_numbers(to + eight_at(of, j) + at.t * 8, {head.o[4 * j + 2 * row], head.o[4 * j + 2 * row + 1]});
      });
    });
  }
  __syncthreads();
  join<Size>(m, min(all, Size::warpgroups), exchange);
}

/* K or V to the blocks of q. */
template <typename Size>
DEVICE void send_panel(const memory<Size> &m, const block_place &at, const unsigned char *to, const uint64_t *barrier) {
  if (at.warp < Size::group && elected())
    copy_to_block(address_in_block(shared_address(to), at.warp), shared_address(m.first[SENT_PANEL]), Size::panel_bytes,
                  address_in_block(shared_address(barrier), at.warp));
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* What was attended times the block's rows of the output. */
template <typename Size> DEVICE void multiply_attended(const memory<Size> &m, float (&sum)[Size::results / 2]) {
  const uint64_t attended = operand_descriptor(shared_address(m.x), 0),
                 w = operand_descriptor(shared_address(m.second), 0);
  unroll<Size::group>([&](uint32_t head) {
    barrier_wait_cluster(shared_address(&m.attended_here[head]), 0);
    wgmma_fence();
    unroll<4>([&](uint32_t step) {
      warpgroup_product<__nv_bfloat16, Size::results>::shared(
          sum, operand_further(attended, head * Size::panel_bytes + step * 32),
          operand_further(w, head * Size::second_panel_bytes + step * 32), head + step > 0);
    });
    wgmma_commit();
  });
  wgmma_wait<0>();
  pin(sum);
}

template <typename Size>
DEVICE void store_results(const layer_half_parameters &half, const block_place &at,
                          const float (&sum)[Size::results / 2]) {
  unroll<2>([&](uint32_t row) {
    const uint32_t token = at.tile * Size::tile + at.warp * 16 + row * 8 + at.g;
    float *to = half.out_parts + (at.kv_head * half.rows + token) * Size::hidden + at.rank * Size::results + 2 * at.t;
    if (token < half.rows)
      unroll<Size::results / 8>([&](int j) {
        *(float2 *)(to + 8 * j) = {sum[4 * j + 2 * row] * half.scale, sum[4 * j + 2 * row + 1] * half.scale};
      });
  });
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* The block's head of q, K or V, to where it is needed. */
template <typename Size>
DEVICE void make_head(const attention_many_tokens_parameters &p, const memory<Size> &m, const block_place &at,
                      int32_t position) {
  float sum[32];
  multiply_tokens<Size>(m, sum);
  unroll<32>([&](int i) { sum[i] *= p.half.scale; });
  warps_meet(BARRIER_OF_TABLE, ATTENTION_MANY_TOKENS_THREADS); /* and all of the weights have been read */
  if (p.has_rope && at.role != VALUE) rotate<Size>(m, at, p.rope_is_halves, sum);
  store_panel(shared_address(m.first[at.role == QUERY ? Q_PANEL : SENT_PANEL]), at, sum);
  if (at.role == KEY) send_panel<Size>(m, at, m.k[at.of_tile], &m.k_here[at.of_tile]);
  if (at.role == VALUE) send_panel<Size>(m, at, m.v[at.of_tile], &m.v_here[at.of_tile]);
  if (at.role != QUERY && at.rank < Size::group + 2) append<Size>(p, at, shared_address(m.first[SENT_PANEL]), position);
}

template <typename Size> DEVICE void attention(const attention_many_tokens_parameters &p) {
  static_assert(sizeof(memory<Size>) == ATTENTION_MANY_TOKENS_BYTES(Size::hidden, Size::group), "");
  extern __shared__ __align__(1024) unsigned char shared[];
  memory<Size> &m = *(memory<Size> *)shared;
  const block_place at = place_of_block<Size>();
  set_up<Size>(m, at);
  if (p.half.early) load_weights<Size>(p.half, m, at);
  /* Radians a position of pair `lane`. */
  float frequency = p.has_rope && !p.frequencies ? (float)exp2((double)at.lane * p.frequency_step) : 0.0f;
  asm volatile("" : "+f"(frequency));
  wait_for_cluster();
  only_wait_for_predecessors();
  ask_tokens<Size>(p, m, at);
  if (__builtin_expect(!p.half.early, 0)) load_weights<Size>(p.half, m, at);
  const int32_t position = p.position[0];
  cp_async_wait<0>();
  writes_reach_products();
  __syncthreads();

  if (at.role != NONE) {
    if (at.warpgroup == 0) make_head<Size>(p, m, at, position);
    if (at.warpgroup != 0) {
      if (p.has_rope && at.role != VALUE) make_table<Size>(p, m, at, frequency, position);
      warps_arrive(BARRIER_OF_TABLE, ATTENTION_MANY_TOKENS_THREADS);
    }
  }
  __syncwarp();
  arrive_at_cluster(); /* x has been read */
  unsigned char *exchange = p.exchange + blockIdx.x * ATTENTION_MANY_TOKENS_EXCHANGE;
  if (at.role == QUERY) {
    __syncthreads();
    attend<Size>(p, m, at, position, exchange);
  }
  __syncwarp();
  wait_for_cluster();
  if (at.role == QUERY && elected()) {
    constexpr uint32_t of_warp = 4 * PANEL_ROW_BYTES;
    const uint32_t place = threadIdx.x / 32 * of_warp;
    copy_to_blocks(0xff, shared_address(m.x[at.rank]) + place, exchange + place, of_warp,
                   shared_address(&m.attended_here[at.rank]));
  }
  if (at.warpgroup != 0) return;
  float result[Size::results / 2];
  multiply_attended<Size>(m, result);
  store_results<Size>(p.half, at, result);
}

#define DEFINE(chips, parameters, name, threads, ...)                                                                  \
  DEFINE_CLUSTER_KERNEL(let_successors_start(), LAYER_HALF_CLUSTER, parameters, name, threads, 1,                      \
                        attention<sizes<__VA_ARGS__>>)
ATTENTION_MANY_TOKENS_KERNELS(DEFINE)
#endif
