/* attention_many_tokens.cu - the attention half of a layer for up to 128 tokens of one sequence, sm_90a
 * (attention_many_tokens.h). Exchanges bound it.
 *
 * A cluster has a KV head and eight blocks for each tile of 64 tokens. Before the wait a block moves its rows of all
 * weights to shared memory. Each block sends eight tokens, times the norm, to those that multiply them. The factors of
 * the rows follow, and multiply the sums. Three blocks make a tile's heads of q, one K and one V. The others make K or
 * V once more, so that each sends it to at most two blocks of q. These attend, with a tile of keys to each warpgroup at
 * a time, and copy what they attended to the tile's blocks, which share the rows of the output. A token's bits depend
 * on its position and on nothing that comes after it.
 *
 * Clusters of sixteen start only after the feed forward before, whose blocks take most multiprocessors; but K and V of
 * the first tile need not be made for the second one from x, whose sum takes longest. */
#include "../model/rope.cuh"
#include "attention_many_tokens.h"
#include "many_tokens.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))
/* A line of the list. */
template <int Hidden, int KvHeads, int Group, int Tiles> struct sizes {
  static constexpr uint32_t tile_blocks = LAYER_HALF_CLUSTER, hidden = Hidden, kv_heads = KvHeads, group = Group;
  static constexpr uint32_t dimension = ATTENTION_MANY_TOKENS_DIMENSION, columns = KvHeads * Group * dimension;
  static constexpr uint32_t tile = ATTENTION_MANY_TOKENS_TILE, tiles = Tiles;
  static constexpr uint32_t cluster = Tiles * tile_blocks, results = Hidden / tile_blocks;
  static constexpr uint32_t panels = Hidden / PANEL_COLUMNS, second_panel_bytes = results * PANEL_ROW_BYTES;
  static constexpr uint32_t panel_bytes = tile * PANEL_ROW_BYTES;
  static constexpr uint32_t warpgroups = ATTENTION_MANY_TOKENS_THREADS / 128;
  static_assert(Tiles <= 2 && Group == 3 && tile == 8 * tile_blocks && Hidden % PANEL_COLUMNS == 0 && results == 72,
                "");
  static_assert(2 * warpgroups < panels, "each warpgroup has a stage of K and of V in the place of weights");
};

/* What a block makes. */
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
  token_factors factors;
  uint64_t x_here[Size::panels], k_here[Size::tiles], v_here[Size::tiles], attended_here[Size::group];
};
enum { Q_PANEL, SENT_PANEL, STAGE_PANELS = SENT_PANEL };
enum { BARRIER_OF_FIRST = 1, BARRIER_OF_TABLE = 5 }; /* one of each warpgroup */

struct kv_head_tile_place {
  const uint32_t warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32 % 4; /* warp: of the warpgroup */
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t rank = blockIdx.x % LAYER_HALF_CLUSTER; /* in the tile */
  const uint32_t kv_head, tile;
  enum role role;
  uint32_t of_tile;  /* that the block multiplies */
  uint32_t receiver; /* of K or V: the first of two heads of q, in the order of tiles */

  const uint32_t tiles;

  /*  tile       ranks: 0, 1, 2   3          4          5                6                7
   *  one alone         q         K to 0, 1  V to 0, 1  K to 2           V to 2           none
   *  0 of two          q         K to 0, 1  V to 0, 1  K to 2, 3        V to 2, 3        V of tile 1 to 5
   *  1 of two          q         K to 3, 4  V to 3, 4  K of 0 to 4, 5   V of 0 to 4, 5   K to 5 */
  DEVICE explicit kv_head_tile_place(uint32_t tiles)
      : kv_head(blockIdx.x / (tiles * LAYER_HALF_CLUSTER)), tile(blockIdx.x / LAYER_HALF_CLUSTER % tiles),
        tiles(tiles) {
    role = rank < 3 ? QUERY : rank == 7 && tiles == 1 ? NONE : rank % 2 && (rank < 7 || tile) ? KEY : VALUE;
    of_tile = rank < 5 ? tile : rank == 7 ? tiles - 1 : 0;
    receiver = rank < 5 ? 3 * tile : rank == 7 ? 5 : 2 + 2 * tile;
  }

  /* A bit for each block of the cluster that multiplies the tile's tokens. */
  DEVICE uint16_t multiplying() const { return tiles == 1 ? 0x007f : tile ? 0x9f80 : 0x607f; }
};

/* ---- Before the wait --------------------------------------------------------------------------------------------- */

template <typename Size> DEVICE void set_up(memory<Size> &m) {
  if (threadIdx.x == 0) {
    unroll<Size::panels>([&](int i) { begin(m.x_here[i], Size::panel_bytes); });
    begin(m.factors.here, sizeof m.factors.factor);
    unroll<Size::tiles>([&](int i) { begin(m.k_here[i], Size::panel_bytes), begin(m.v_here[i], Size::panel_bytes); });
    unroll<Size::group>([&](int i) { begin(m.attended_here[i], Size::panel_bytes); });
    barriers_are_initialised();
  }
  __syncwarp();
  only_arrive_at_cluster();
}

template <typename Size>
DEVICE void load_weights(const layer_half_parameters &half, const memory<Size> &m, const kv_head_tile_place &at) {
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

/* ---- q, K and V -------------------------------------------------------------------------------------------------- */

/* Cosines and sines of the rows that the block multiplies: a lane has a pair. */
template <typename Size>
DEVICE void make_table(const attention_many_tokens_parameters &p, memory<Size> &m, const kv_head_tile_place &at,
                       int32_t position) {
  constexpr uint32_t warps = 4 * (Size::warpgroups - 1);
  /* Radians a position of pair `lane`. */
  const float frequency = p.frequencies ? p.frequencies[at.lane] : (float)exp2((double)at.lane * p.frequency_step);
  const uint32_t first = threadIdx.x / 32 - 4;
#pragma unroll 3
  for (uint32_t i = 0; i < (Size::tile + warps - 1) / warps; i++) {
    const uint32_t row = first + i * warps;
    const rotation by =
        rotation_of((float)(position + (int32_t)(at.of_tile * Size::tile + token_of_row(row))) * frequency);
    if (row < Size::tile) store_two_numbers(shared_address(m.table[row]) + at.lane * 8, {by.cosine, by.sine});
  }
}

/* Pairs of halves are 32 columns apart, others are neighbours. */
template <typename Size>
DEVICE void rotate(const memory<Size> &m, const kv_head_tile_place &at, bool halves, float (&sum)[32]) {
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
DEVICE void store_panel(uint32_t panel, const kv_head_tile_place &at, const float (&sum)[32]) {
  const uint32_t row = at.warp * 16 + at.lane % 16;
  unroll<4>([&](uint32_t i) {
    stmatrix_x4(panel + swizzled(row, 2 * i + at.lane / 16), pack(sum[8 * i], sum[8 * i + 1]),
                pack(sum[8 * i + 2], sum[8 * i + 3]), pack(sum[8 * i + 4], sum[8 * i + 5]),
                pack(sum[8 * i + 6], sum[8 * i + 7]));
  });
  writes_reach_products();
  warps_meet(BARRIER_OF_FIRST, 128);
}

/* The element where a row of a cache begins, if there is one: a tensor has at most 2^31 of them. */
constexpr uint32_t no_row = 0xffffffff;
DEVICE uint32_t cache_row(const attention_many_tokens_parameters &p, int32_t row, uint32_t page_stride,
                          uint32_t row_stride) {
  if (row < 0 || (uint32_t)row >= p.capacity) return no_row;
  if (!p.pages) return row * row_stride;
  const uint32_t page = (uint32_t)p.pages[row >> p.page_shift];
  if (page >= p.pool_pages) return no_row;
  return page * page_stride + (row & ((1u << p.page_shift) - 1)) * row_stride;
}

/* A panel of K or V to the cache: eight threads have a row. */
template <typename Size>
DEVICE void append(const attention_many_tokens_parameters &p, const kv_head_tile_place &at, uint32_t panel,
                   int32_t position) {
  const bool is_key = at.role == KEY;
  unsigned char *cache = (unsigned char *)(is_key ? p.k : p.v) + at.kv_head * (is_key ? p.k_head : p.v_head) * 2;
  const uint32_t sixteen = threadIdx.x % 8;
  unroll<4>([&](uint32_t i) {
    const uint32_t row = threadIdx.x / 8 + 16 * i, token = at.tile * Size::tile + token_of_row(row);
    const uint32_t to = token < p.half.rows ? cache_row(p, position + (int32_t)token, is_key ? p.k_page : p.v_page,
                                                        is_key ? p.k_position : p.v_position)
                                            : no_row;
    if (to != no_row)
      *(uint4 *)(cache + (uint64_t)to * 2 + sixteen * 16) = load_four_words(panel + swizzled(row, sixteen));
  });
}

/* ---- Attention --------------------------------------------------------------------------------------------------- */

constexpr float lowest = -1e30f; /* below each score */

/* A warpgroup's sums for a head's 64 rows, in the layout of wgmma.cuh. */
struct attending {
  float o[32], most[2], sum[2];
  const int32_t position; /* of the lane's first row; the second is the next token */

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

  /* Of 64 keys from position `first` on, those that a row sees, before `end`. New ones are in the order of a tile's
   * rows. All old ones are seen, but for the last tile's. */
  template <bool New> DEVICE void mask(float (&s)[32], int32_t first, int32_t end, uint32_t t) const {
    unroll<2>([&](int row) {
      const int32_t own = first + (New ? 16 : 2) * (int32_t)t, visible = min(position + row + 1, end) - own;
      unroll<8, 2>([&](int j, int b) {
        const int32_t key = New ? j + 8 * b : 8 * j + b;
        if (key >= visible || key < -own) s[4 * j + 2 * row + b] = -INFINITY;
      });
    });
  }

  DEVICE void weigh(float (&s)[32], uint32_t (&weights)[16], float scale_log2) {
    unroll<2>([&](int row) {
      float largest = lowest;
      unroll<8>([&](int j) { largest = fmaxf(largest, fmaxf(s[4 * j + 2 * row], s[4 * j + 2 * row + 1])); });
      largest = fmaxf(quad_max(largest), most[row]);
      const float factor = exp2_approximate((most[row] - largest) * scale_log2), reference = largest * scale_log2;
      most[row] = largest, sum[row] *= factor;
      unroll<8>([&](int j) {
        const float low = exp2_approximate(fmaf(s[4 * j + 2 * row], scale_log2, -reference)),
                    high = exp2_approximate(fmaf(s[4 * j + 2 * row + 1], scale_log2, -reference));
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
    const uint32_t from = of_cache < end ? cache_row(p, of_cache, page_stride, row_stride) : no_row;
    const unsigned char *there = (const unsigned char *)cache + (from == no_row ? 0 : (uint64_t)from * 2);
    cp_async_16(to + swizzled(row, sixteen), there + sixteen * 16, from == no_row ? 0 : 16);
  });
  cp_async_commit();
}

/* The warpgroup's tiles of the rows before the prompt's. K of the next tile comes while V is multiplied, and V while
 * the next scores are made. */
template <typename Size>
DEVICE void attend_cache(const attention_many_tokens_parameters &p, const memory<Size> &m, const kv_head_tile_place &at,
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
    if (first + (int32_t)Size::tile > length) head.mask<false>(s, first, length, at.t);
    head.weigh(s, weights, p.scale_log2);
    wait();
    head.add(weights, v);
    warps_meet(BARRIER_OF_FIRST + at.warpgroup, 128);
    ask_v(first + step);
  }
  cp_async_wait<0>();
}

/* The place of eight of a row's sums, so that rows lie in different banks. */
DEVICE uint32_t eight_at(uint32_t row, uint32_t eight) { return row * 256 + ((eight ^ row % 8) << 5); }

/* The sums of the first warpgroups, joined, as the block's 64 rows of a head, times the scale of the second product. */
template <typename Size>
DEVICE void join(const memory<Size> &m, uint32_t warpgroups, float scale, unsigned char *exchange) {
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
  const float by = sum > 0 ? scale / sum : 0.0f;
  *(uint4 *)(exchange + swizzled(row, eight)) = {pack(o[0] * by, o[1] * by), pack(o[2] * by, o[3] * by),
                                                 pack(o[4] * by, o[5] * by), pack(o[6] * by, o[7] * by)};
  writes_reach_copies();
}

/* All that the block's queries see. A warpgroup takes every fourth tile of 64 keys, the new ones last. */
template <typename Size>
DEVICE void attend(const attention_many_tokens_parameters &p, memory<Size> &m, const kv_head_tile_place &at,
                   int32_t position, unsigned char *exchange) {
  attending head = {
      {}, {lowest, lowest}, {}, position + (int32_t)(at.tile * Size::tile + token_of_row(at.warp * 16 + at.g))};
  const int32_t length = max(min(position, (int32_t)p.capacity), 0);
  const uint32_t before = ((uint32_t)length + Size::tile - 1) / Size::tile, all = before + at.tile + 1;
  attend_cache<Size>(p, m, at, length, head);
  rolled_for (uint32_t tile = 0; tile <= at.tile; tile++) {
    if ((before + tile) % Size::warpgroups != at.warpgroup) continue;
    float s[32];
    uint32_t weights[16];
    barrier_wait(shared_address(&m.k_here[tile]), 0);
    head.score(s, shared_address(m.first[Q_PANEL]), shared_address(m.k[tile]));
    head.mask<true>(s, position + (int32_t)(tile * Size::tile), (int32_t)p.capacity, at.t);
    head.weigh(s, weights, p.scale_log2);
    barrier_wait(shared_address(&m.v_here[tile]), 0);
    head.add(weights, shared_address(m.v[tile]));
  }
  if (at.warpgroup < all) {
    const uint32_t to = shared_address(m.first[STAGE_PANELS + 2 * at.warpgroup]);
    unroll<2>([&](int row) {
      const uint32_t of = at.warp * 16 + 8 * row + at.g;
      const float sum = quad_sum(head.sum[row]);
      if (at.t == 0) m.stats[at.warpgroup][of] = {head.most[row] * p.scale_log2, sum};
      unroll<8>([&](int j) {
        store_two_numbers(to + eight_at(of, j) + at.t * 8, {head.o[4 * j + 2 * row], head.o[4 * j + 2 * row + 1]});
      });
    });
  }
  __syncthreads();
  join<Size>(m, min(all, Size::warpgroups), p.half.scale, exchange);
}

/* K or V to two blocks of q: a block sends some 14 bytes a cycle. */
template <typename Size>
DEVICE void send_panel(const memory<Size> &m, const kv_head_tile_place &at, const unsigned char *to,
                       const uint64_t *barrier) {
  const uint32_t head = at.receiver + at.warp, block = head + head / Size::group * (Size::tile_blocks - Size::group);
  if (at.warp < 2 && head < Size::tiles * Size::group && elected())
    copy_to_block(address_in_block(shared_address(to), block), shared_address(m.first[SENT_PANEL]), Size::panel_bytes,
                  address_in_block(shared_address(barrier), block));
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* The block's head of q, K or V, to where it is needed. */
template <typename Size>
DEVICE void make_head(const attention_many_tokens_parameters &p, const memory<Size> &m, const kv_head_tile_place &at,
                      int32_t position) {
  float sum[32];
  multiply_panels<Size::panels, 64>(m.x_here, m.x, m.first, sum);
  warps_meet(BARRIER_OF_TABLE, ATTENTION_MANY_TOKENS_THREADS); /* and all of the weights have been read */
  barrier_wait(shared_address(&m.factors.here), 0);
  unroll<2>([&](int row) {
    const float factor = m.factors.factor[at.warp * 16 + 8 * row + at.g];
    unroll<8, 2>([&](int j, int b) { sum[4 * j + 2 * row + b] *= factor; });
  });
  if (p.has_rope && at.role != VALUE) rotate<Size>(m, at, p.rope_is_halves, sum);
  store_panel(shared_address(m.first[at.role == QUERY ? Q_PANEL : SENT_PANEL]), at, sum);
  if (at.role == KEY) send_panel<Size>(m, at, m.k[at.of_tile], &m.k_here[at.of_tile]);
  if (at.role == VALUE) send_panel<Size>(m, at, m.v[at.of_tile], &m.v_here[at.of_tile]);
  if (at.role != QUERY && at.rank < Size::group + 2) append<Size>(p, at, shared_address(m.first[SENT_PANEL]), position);
}

template <typename Size> DEVICE void attention(const attention_many_tokens_parameters &p) {
  static_assert(sizeof(memory<Size>) <= ATTENTION_MANY_TOKENS_BYTES(Size::hidden, Size::group), "");
  extern __shared__ __align__(1024) unsigned char shared[];
  memory<Size> &m = *(memory<Size> *)shared;
  const kv_head_tile_place at(Size::tiles);
  set_up<Size>(m);
  lane_norm<Size::hidden> norm;
  const auto load = [&] { load_weights<Size>(p.half, m, at), norm.load(p.half); };
  if (p.half.early) load();
  keep_early(p.half.always_zero, norm.all());
  norm.unpack();
  const uint32_t exchange = blockIdx.x * ATTENTION_MANY_TOKENS_EXCHANGE(Size::hidden);
  const half_place<Size::hidden> own(at.tile * Size::tile, at.rank, exchange);
  wait_for_cluster();
  only_wait_for_predecessors();
  if (__builtin_expect(!p.half.early, 0)) load(), norm.unpack();
  const int32_t position = p.position[0];
  unsigned char *attended = p.exchange + exchange + Size::panels * ATOM_BYTES;
  send_tokens<Size::hidden>(p.half, own, at.rank, at.kv_head == 0, p.half.scale, norm, p.exchange, m.factors,
                            at.multiplying(), m.x, m.x_here);
  /* One kernel ahead: more would take the places of another chain. Not before: its copies of weights would delay x. */
  let_successors_start();
  if (at.role != NONE) {
    if (at.warpgroup == 0) make_head<Size>(p, m, at, position);
    if (at.warpgroup != 0) {
      if (p.has_rope && at.role != VALUE) make_table<Size>(p, m, at, position);
      warps_arrive(BARRIER_OF_TABLE, ATTENTION_MANY_TOKENS_THREADS);
    }
  }
  __syncwarp();
  only_arrive_at_cluster(); /* x has been read */
  if (at.role == QUERY) {
    __syncthreads();
    attend<Size>(p, m, at, position, attended);
  }
  __syncwarp();
  wait_for_cluster();
  if constexpr (Size::tiles > 1) only_arrive_at_cluster(); /* K and V have come */
  if (at.role == QUERY && elected()) {
    constexpr uint32_t of_warp = 4 * PANEL_ROW_BYTES;
    const uint32_t place = threadIdx.x / 32 * of_warp;
    copy_to_blocks((uint16_t)(0xff << at.tile * Size::tile_blocks), shared_address(m.x[at.rank]) + place,
                   attended + place, of_warp, shared_address(&m.attended_here[at.rank]));
  }
  if (at.warpgroup == 0) {
    float result[Size::results / 2];
    multiply_panels<Size::group, Size::results>(m.attended_here, m.x, m.second, result);
    store_results<Size::hidden>(result,
                                p.half.out_parts + (at.kv_head * p.half.rows + at.tile * Size::tile) * Size::hidden +
                                    at.rank * Size::results,
                                p.half.rows - at.tile * Size::tile);
  }
  /* A block stays until the other tile has what this block sent it. */
  if constexpr (Size::tiles > 1) {
    __syncwarp();
    wait_for_cluster();
  }
}

#define DEFINE(chips, parameters, name, threads, ...)                                                                  \
  DEFINE_CLUSTER_KERNEL((void)0, (sizes<__VA_ARGS__>::cluster), parameters, name, threads, 1,                          \
                        attention<sizes<__VA_ARGS__>>)
ATTENTION_MANY_TOKENS_KERNELS(DEFINE)
#endif
