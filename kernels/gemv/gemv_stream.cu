/* gemv_stream.cu - 1 to 16 vectors with large NVFP4 matrices: each warp streams its weights through a ring of its own.
 *
 * When: see gemv_stream_plan.c. Bound by issue slots: a piece of 16 x 256 weights with sixteen vectors takes some 400
 * instructions, of which 290 decode and multiply.
 *
 * The product is that of gemv_quads.cuh with one quad a row and operand B in registers. The weights come through
 * shared memory: a warp asks with cp.async for its next pieces, `Stages` - 1 tiles ahead. Bytes in flight cost no
 * registers and do not wait for arithmetic. A warp reads only what it asked for itself. So there is no producer and no
 * barrier with one: a warp waits for its own copies, and then for __syncwarp.
 *
 * A piece is 16 rows of the warp's part of k, and lies in shared memory row by row. A lane has 32 x Slices elements of
 * a row, one after the other, so one load brings its scales. Chunks of 16 bytes are exchanged within groups of
 * `Slices`, so that eight lanes find theirs in different banks. The order of k is free, as long as operand B has the
 * same.
 *
 * The parts' sums of a tile meet while the next tile is multiplied. A warp that has its sums arrives at a barrier, goes
 * on, and waits only when it has the sums of the next tile. So a warp waits for another only if that is a whole tile
 * late. Warps take turns in adding the parts' sums, two vectors each.
 *
 * Clusters split k where it is too long for the vectors of one block, or where one block cannot finish results: in
 * NVFP4, or beside NVFP4 vectors, whose kernels an epilogue would slow down. A block then takes its tiles once for each
 * chunk of k, and the ring goes on while vectors are converted. Shared memory keeps the sums of all tiles; those of the
 * cluster's blocks meet once, at the end. All sums have a fixed order. */
#include "gemv_clusters.cuh"
#include "gemv_copies.cuh"
#include "gemv_stream.h"
#include "gemv_vectors.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* ---- Shared memory ---------------------------------------------------------------------------------------------- */

/* The scales of Slices slices, in pairs: of slice s in the low half of pairs[s]. */
template <int Slices> DEVICE void load_scales_of_lane(uint32_t address, uint32_t (&pairs)[Slices]) {
  static_assert(Slices == 2 || Slices == 4, "");
  if constexpr (Slices == 2) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(pairs[0]) : "r"(address));
  } else {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(pairs[0]), "=r"(pairs[2]) : "r"(address));
    pairs[3] = pairs[2] >> 16;
  }
  pairs[1] = pairs[0] >> 16;
}

DEVICE void store_shared_four(uint32_t address, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

/* A thread that has waited at the barrier can read all that the warp's lanes wrote before. */
DEVICE void arrive_together(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* ---- Pieces ----------------------------------------------------------------------------------------------------- */

template <int Slices> struct stream_piece {
  static constexpr uint32_t rows = 16, elements = 128 * Slices; /* of a row */
  static constexpr uint32_t chunks_of_row = elements / 32, rows_of_copy = 32 / chunks_of_row;
  static constexpr uint32_t copies = rows / rows_of_copy;
  static constexpr uint32_t weight_bytes = rows * elements / 2, bytes = weight_bytes + rows * elements / 16;
  /* All lanes copy scales, two a row: with fewer lanes there would be a branch. */
  static constexpr uint32_t scale_copy_bytes = elements / 32;

  /* Chunk i of 16 bytes lies where chunk exchanged(i) would. */
  static DEVICE uint32_t exchanged(uint32_t chunk) { return chunk ^ (chunk >> 3 & (Slices - 1)); }
};

/* The addresses from which this lane copies, if a tile begins with row 0. After the end of k it copies the row's first
 * elements once more: vectors are zero there, and a NaN of the row makes the result NaN anyway. */
template <typename Piece> struct stream_source {
  const unsigned char *weights, *scales;

  DEVICE void set_part(const gemv_stream_parameters &p, uint32_t group_row, uint32_t part_element) {
    const uint32_t lane = threadIdx.x % 32, element = part_element + lane % Piece::chunks_of_row * 32;
    const uint32_t of_scales = part_element + lane % 2 * (Piece::elements / 2);
    weights = weights_from(p, group_row + lane / Piece::chunks_of_row, element < p.k ? element / 32 : 0);
    scales =
        offset(p.weight_scales + blockIdx.y * p.weight_scale_batch, group_row + lane / 2, p.weight_scale_strides.row) +
        (of_scales < p.k ? of_scales / 16 : 0);
    weights = computed_now(weights), scales = computed_now(scales);
  }

  /* The piece of a tile that begins with `row`, to this lane's part of a stage. */
  DEVICE void copy_piece(const gemv_stream_parameters &p, uint32_t to, uint32_t scales_to, uint32_t row) const {
    const unsigned char *from = offset(weights, row, p.weight_row);
    const unsigned char *scales_from = offset(scales, row, p.weight_scale_strides.row);
    unrolled_for (uint32_t i = 0; i < Piece::copies; i++)
      copy_16(to + 512 * i, offset(from, i * Piece::rows_of_copy, p.weight_row));
    if constexpr (Piece::scale_copy_bytes == 16)
      copy_16(scales_to, scales_from);
    else
      copy_8(scales_to, scales_from);
  }
};

/* ---- Sums ------------------------------------------------------------------------------------------------------- */

/* A warp's sums of a tile are in a slot: of one group slot `part`, of two slots 8 x group + part; those of no warp are
 * zero. A lane of the product has four sums, of two vectors in two rows, which lie together: those of lane 4 g + t, of
 * vectors 2 x pair and 2 x pair + 1, at offset_of(g) ^ 16 x pair. Neither who stores (eight lanes: two g, four pairs)
 * nor who loads (sixteen lanes: all g, halves of their sums, one pair) meets another in a bank. */
template <int Columns> struct stream_sums {
  static constexpr uint32_t slot_bytes = GEMV_STREAM_SLOT_BYTES * Columns, buffer_bytes = 16 * slot_bytes;
  static DEVICE uint32_t offset_of(uint32_t g) {
    return Columns == 2 ? g * 128 + ((g & 1) << 2 | g >> 1) * 16 : g * 64 + (g >> 1) * 16;
  }
};

/* ---- A kernel's constants --------------------------------------------------------------------------------------- */

/* On sm_100a, where decoding takes other registers, these kernels have none to spare. */
#if __CUDA_ARCH__ >= 1000
constexpr bool has_registers = false;
#else
constexpr bool has_registers = true;
#endif
/* Before the loop over tiles, and not in each. */
DEVICE uint32_t known_ahead(uint32_t value) { return has_registers ? computed_here(value) : value; }

template <rondo_dtype VectorType, int ColumnsOfB, int SlicesOfPart, int StagesOfRing, int ClusterBlocks>
struct stream_shape {
  static constexpr rondo_dtype W = RONDO_NVFP4, V = VectorType;
  static constexpr int Columns = ColumnsOfB, Slices = SlicesOfPart, Stages = StagesOfRing, Cluster = ClusterBlocks;
  using Piece = stream_piece<Slices>;
  using Sums = stream_sums<Columns>;
  static constexpr bool has_correction = V != RONDO_NVFP4;
  static constexpr float same_correction = has_correction ? 1 : 1 / nvfp4_factor; /* of all parts */
  /* In clusters there are no registers for raw vectors of both operands. */
  static constexpr bool one_by_one = Columns == 2 && has_correction && Cluster > 1;
  /* What a tile's sums become waits in fewer registers there, too. */
  static constexpr bool has_few_registers = one_by_one;
  static constexpr bool keeps_corrections = has_correction && (Columns == 2 || !has_registers);
  static constexpr bool has_norm = V != RONDO_NVFP4, has_epilogue = V != RONDO_NVFP4;
};

/* ---- A thread --------------------------------------------------------------------------------------------------- */

/* Shared memory, and as gemv_stream_plan.c has it:
 *   sums     [2][16][slot_bytes]          of this tile and the one before
 *   meeting  16 bytes
 *   factors  [16]                         floats: a vector's factor of its sums
 *   squares  [parts][16]                  floats, with RMS norm
 *   kept     [warps][16]                  floats: the factors of a warp's own sums, before these meet others
 *   held     [tiles of a block][count][tile rows]  floats, with clusters
 *   rings    [warps][Stages][piece]       from p.first_stage on */
enum : uint32_t {
  STREAM_NUMBER = sizeof(float),
  STREAM_FACTORS = 16,
  STREAM_SQUARES = STREAM_FACTORS + 16 * STREAM_NUMBER,
  STREAM_KEPT = STREAM_SQUARES + GEMV_MOST_PARTS * 16 * STREAM_NUMBER,
  STREAM_HELD = STREAM_KEPT + 16 * 16 * STREAM_NUMBER,
};
static_assert(STREAM_HELD == GEMV_STREAM_FIXED_BYTES, "what gemv_stream_plan.c counts with");

template <typename S> struct stream_thread {
  const uint32_t memory;
  const warp_position position;
  const uint32_t rank, first_tile, tile_step, lane, warp, warps, g, t;
  const uint32_t rows, last_row, group_row, chunk_elements, part_element;
  const uint32_t sums, meeting, factors, squares, kept, held, ring;

  DEVICE stream_thread(const gemv_stream_parameters &p, const void *shared)
      : memory(computed_here(shared_address(shared))), position(position_of_warp(p)), rank(blockIdx.x % S::Cluster),
        first_tile(blockIdx.x / S::Cluster), tile_step(gridDim.x / S::Cluster), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32), warps(blockDim.x / 32), g(lane / 4), t(lane % 4), rows(p.groups * S::Piece::rows),
        last_row(p.m - rows), group_row(position.group * S::Piece::rows),
        chunk_elements(S::Cluster * p.parts * S::Piece::elements),
        part_element((rank * p.parts + position.part) * S::Piece::elements), sums(memory),
        meeting(sums + 2 * S::Sums::buffer_bytes), factors(meeting + STREAM_FACTORS), squares(meeting + STREAM_SQUARES),
        kept(meeting + STREAM_KEPT), held(meeting + STREAM_HELD),
        ring(memory + p.first_stage + warp * (S::Stages * S::Piece::bytes)) {}
  /* A vector of operand `a`'s column g, in this warp. */
  DEVICE uint32_t kept_of(int vector) const { return kept + (warp * 16 + vector) * STREAM_NUMBER; }
};

/* Everything that is not copied begins so. */
template <typename S> DEVICE void set_shared_memory(const gemv_stream_parameters &p, const stream_thread<S> &at) {
  if (threadIdx.x == 0) barrier_init(at.meeting, at.warps);
  if (threadIdx.x < 16) store_number(at.factors + threadIdx.x * STREAM_NUMBER, p.scale * S::same_correction);
  if (at.warps < 16)
    for (uint32_t to = at.sums + threadIdx.x * 16; to < at.meeting; to += blockDim.x * 16)
      store_shared_four(to, 0, 0, 0, 0);
  if (S::Cluster > 1)
    for (uint32_t to = at.held + threadIdx.x * 16; to < at.memory + p.first_stage; to += blockDim.x * 16)
      store_shared_four(to, 0, 0, 0, 0);
}

/* ---- The ring --------------------------------------------------------------------------------------------------- */

/* The asking side of a warp's ring: the next piece's tile and chunk of k. */
template <typename S> struct stream_asker {
  using Piece = typename S::Piece;
  stream_source<Piece> source;
  uint32_t row, chunk;

  DEVICE stream_asker(const gemv_stream_parameters &p, const stream_thread<S> &at)
      : row(at.first_tile * at.rows), chunk(0) {
    source.set_part(p, at.group_row, at.part_element);
  }
  /* Addresses of this lane in a stage, from the stage's first byte. */
  static DEVICE uint32_t to(const stream_thread<S> &at) { return Piece::exchanged(at.lane) * 16; }
  static DEVICE uint32_t scales_to(const stream_thread<S> &at) {
    return Piece::weight_bytes + at.lane * Piece::scale_copy_bytes;
  }
  DEVICE void ask(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t own_to, uint32_t own_scales_to,
                  uint32_t row_step) {
    if (row < p.m) {
      source.copy_piece(p, own_to, own_scales_to, min(row, at.last_row));
      row += row_step;
      if constexpr (S::Cluster > 1)
        if (row >= p.m && ++chunk < p.chunks) {
          row = at.first_tile * at.rows;
          source.set_part(p, at.group_row, at.part_element + chunk * at.chunk_elements);
        }
    }
    cp_async_commit();
  }
  DEVICE void fill(const gemv_stream_parameters &p, const stream_thread<S> &at) {
    rolled_for (uint32_t i = 0; i < S::Stages - 1; i++)
      ask(p, at, at.ring + i * Piece::bytes + to(at), at.ring + i * Piece::bytes + scales_to(at),
          at.tile_step * at.rows);
  }
};

/* ---- Vectors ---------------------------------------------------------------------------------------------------- */

/* The vectors of a warp's part as operand B, and the factors of the result's columns 2 t and 2 t + 1. */
template <typename S> struct stream_vectors {
  using raw = raw_vector<S::W, S::V, S::Slices>;
  uint32_t b[S::Columns][S::Slices][16];
  float corrections[2];

  /* A lane needs 64 bytes of its vector at a time. Lanes that load 16 of them each would touch a line each, so a quad
   * loads one lane's after the other's; `exchange` gives each lane its own. */
  static DEVICE void load(const gemv_stream_parameters &p, const stream_thread<S> &at, int a, uint32_t element,
                          raw &to) {
    if constexpr (S::V == RONDO_NVFP4) {
      load_raw<S::W, S::V, S::Slices, 32>(p, at.g + 8 * a, element, to);
    } else {
      const uint32_t part_element = element - at.t * (32 * S::Slices);
      const vector_address<S::V> from(p, min(at.g + 8 * a, p.count - 1), part_element + at.t * 8);
      unrolled_for (int s = 0; s < S::Slices; s++)
        unrolled_for (int lane = 0; lane < 4; lane++) {
          const int further = lane * (32 * S::Slices) + 32 * s;
          to.loaded[s][lane] = words();
          if (part_element + further < p.k) to.loaded[s][lane] = from.load(further);
        }
    }
  }
  /* Of lane t of quad g, its sixteen bytes number i lie at (512 (g / 2) + 64 (g % 2) + 128 t) + 16 (i ^ t): eight lanes
   * that store or load meet in no bank. */
  static DEVICE void exchange(const stream_thread<S> &at, uint32_t stage, raw &of) {
    if constexpr (S::V != RONDO_NVFP4) {
      const uint32_t others = stage + (at.g / 2 * 512 + at.g % 2 * 64 + at.t * 16), own = others + at.t * 128;
      unrolled_for (int s = 0; s < S::Slices; s++) {
        unrolled_for (int i = 0; i < 4; i++) store_shared_words((others ^ i * 16) + i * 128, of.loaded[s][i].word);
        __syncwarp();
        unrolled_for (int i = 0; i < 4; i++) of.loaded[s][i] = load_shared_words(own ^ i * 16);
        __syncwarp();
      }
    }
  }
  static DEVICE void load_first(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t element,
                                raw (&to)[S::Columns]) {
    unrolled_for (int a = 0; a < (S::one_by_one ? 1 : S::Columns); a++) load(p, at, a, element, to[a]);
  }
  /* RMS norm; the part's squares go to shared memory. */
  static DEVICE void normalise_column(const gemv_stream_parameters &p, const stream_thread<S> &at, int a,
                                      uint32_t element, uint32_t chunk, raw &of) {
    float sum = normalise<false, 32>(p, element, of);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const uint32_t mine = at.squares + (at.position.part * 16 + at.g + 8 * a) * STREAM_NUMBER;
    if (at.t == 0 && at.position.group == 0) store_number(mine, chunk ? load_number(mine) + sum : sum);
  }
  DEVICE void convert(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t element, uint32_t chunk,
                      uint32_t stage, raw (&loaded)[S::Columns]) {
    unrolled_for (int a = 0; a < S::Columns; a++) {
      if (S::one_by_one && a) load(p, at, a, element, loaded[a]);
      exchange(at, stage, loaded[a]);
      if constexpr (S::has_norm)
        if (p.norm_epsilon > 0) normalise_column(p, at, a, element, chunk, loaded[a]);
      const float own = convert_vector<S::W, S::V, S::Slices>(p, loaded[a], b[a]);
      if (S::keeps_corrections && at.t == 0) store_number(at.kept_of(at.g + 8 * a), own);
      if constexpr (S::has_correction && !S::keeps_corrections)
        unrolled_for (int i = 0; i < 2; i++) corrections[i] = __shfl_sync(0xffffffffu, own, 8 * at.t + 4 * i);
    }
  }
};

/* By all threads of a block: with RMS norm, the factors of the sums. */
template <typename S> DEVICE void set_factors(const gemv_stream_parameters &p, const stream_thread<S> &at) {
  if (!(p.norm_epsilon > 0)) return;
  __syncthreads();
  if (threadIdx.x < 16) {
    const uint32_t of_vector = at.squares + threadIdx.x * STREAM_NUMBER;
    const float factor = rms_factor(p, sum_of_parts(of_vector, 16 * STREAM_NUMBER, p.parts));
    store_number(at.factors + threadIdx.x * STREAM_NUMBER, factor * p.scale * S::same_correction);
  }
  __syncthreads();
}

/* ---- Products --------------------------------------------------------------------------------------------------- */

/* A piece in a stage of the warp's ring; this lane's first chunk is at `chunk`. */
template <typename S>
DEVICE void multiply_piece(const stream_thread<S> &at, uint32_t stage, uint32_t chunk, const stream_vectors<S> &x,
                           float (&c)[S::Columns][4]) {
  uint32_t scales[2][S::Slices];
  unrolled_for (int h = 0; h < 2; h++)
    load_scales_of_lane<S::Slices>(stage + at.lane * (2 * S::Slices) + (S::Piece::weight_bytes + h * (64 * S::Slices)),
                                   scales[h]);
  unrolled_for (int s = 0; s < S::Slices; s++) {
    words loaded[2];
    uint32_t scale[2];
    unrolled_for (int h = 0; h < 2; h++) {
      loaded[h] = load_shared_words((chunk ^ s * 16) + h * (512 * S::Slices));
      scale[h] = bits_of(block_scales(scales[h][s]));
    }
    unrolled_for (int w = 0; w < 4; w++) {
      uint32_t a[2][4];
      unrolled_for (int h = 0; h < 2; h++) decode_eight<S::W, false>(loaded[h], w, scale[h], a[h]);
      unrolled_for (int n = 0; n < S::Columns; n++) {
        multiply_accumulate<false>(c[n], a[0], a[1], &x.b[n][s][4 * w]);
        multiply_accumulate<false>(c[n], a[0] + 2, a[1] + 2, &x.b[n][s][4 * w + 2]);
      }
    }
  }
}

/* This lane's vectors 2 t and 2 t + 1, rows g and g + 8, to the warp's slot. */
template <typename S>
DEVICE void store_sums(const stream_thread<S> &at, uint32_t to, stream_vectors<S> &x, float (&c)[S::Columns][4]) {
  unrolled_for (int n = 0; n < S::Columns; n++) {
    if constexpr (S::keeps_corrections) {
      const float2 both = load_shared_two(at.kept_of(8 * n + 2 * at.t));
      x.corrections[0] = both.x, x.corrections[1] = both.y;
    }
    if constexpr (S::has_correction)
      unrolled_for (int i = 0; i < 4; i++) c[n][i] *= x.corrections[i % 2];
    store_shared_four(to ^ n * 64, c[n][0], c[n][1], c[n][2], c[n][3]);
  }
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

/* The sums of the tile before, which meet while a tile is multiplied. A warp adds up a pair of vectors in a group's
 * rows, and then the pair `warps` pairs further. Warps without a pair wait too: no warp arrives for a tile before it
 * has seen the sums of the one before, so each sees every phase of the barrier, and two buffers of sums suffice. */
template <typename S> struct stream_results {
  using Sums = typename S::Sums;
  const uint32_t pairs, turns, others;
  uint32_t turn, parity;

  static DEVICE uint32_t others_of(const stream_thread<S> &at) {
    return at.sums + at.lane / 16 * Sums::slot_bytes + Sums::offset_of(at.lane % 8) + (at.lane & 8);
  }
  DEVICE stream_results(const gemv_stream_parameters &p, const stream_thread<S> &at)
      : pairs((p.count + 1) / 2), turns(S::has_few_registers ? p.groups * pairs : known_ahead(p.groups * pairs)),
        others(others_of(at)), turn(at.warp), parity(0) {}
  /* The parts' sums of two vectors, from each lane's half of the parts, in this lane's row: the lower half of the warp
   * gets the first vector's whole sum, the upper half the second's. */
  static DEVICE float sum_of_pair(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t from) {
    float first = 0, second = 0;
    unrolled_for (int i = 0; i < 4; i++) {
      const float2 part = load_shared_two(from + 2 * i * Sums::slot_bytes);
      first += part.x, second += part.y;
    }
    if (p.groups == 1)
      unrolled_for (int i = 4; i < 8; i++) {
        const float2 part = load_shared_two(from + 2 * i * Sums::slot_bytes);
        first += part.x, second += part.y;
      }
    return (at.lane / 16 ? second : first) + __shfl_xor_sync(0xffffffffu, at.lane / 16 ? first : second, 16);
  }
  /* `row` is the tile's first row; in a cluster the sums go to held_tile. */
  DEVICE void finish(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t row, uint32_t held_tile) {
    barrier_wait(at.meeting, parity ^ 1);
    const uint32_t first = S::has_few_registers ? others_of(at) : others;
    rolled_for (; turn < turns; turn += at.warps) {
      const uint32_t group = turn >= pairs, pair = turn - (group ? pairs : 0);
      const uint32_t from = (first ^ pair * 16) + (parity ^ 1) * Sums::buffer_bytes + group * (8 * Sums::slot_bytes);
      const float sum = sum_of_pair(p, at, from);
      const uint32_t vector = 2 * pair + at.lane / 16, row_in_tile = group * S::Piece::rows + at.lane % 16;
      if constexpr (S::Cluster > 1) {
        const uint32_t to = held_tile + (vector * at.rows + row_in_tile) * STREAM_NUMBER;
        if (vector < p.count) store_number(to, load_number(to) + sum);
      } else {
        const uint32_t own_row = min(row, at.last_row) + row_in_tile;
        const float factor = load_number(at.factors + vector * STREAM_NUMBER);
        const bool is_mine = vector < p.count && own_row >= row;
        if (S::has_epilogue && p.finishing)
          finish_row_of_lane(p, vector, own_row, is_mine, sum * factor);
        else if (is_mine)
          store_number(p.out_dtype, p.out, blockIdx.y * p.out_batch + vector * p.out_row + own_row, sum * factor);
      }
    }
    turn -= turns;
  }
};

/* What the loop over tiles needs of this lane's addresses: not before there are registers, and not in each tile. */
template <typename S> struct tile_addresses {
  const uint32_t to, scales_to, row_step, held_step, chunk, sums;

  DEVICE tile_addresses(const gemv_stream_parameters &p, const stream_thread<S> &at)
      : to(known_ahead(stream_asker<S>::to(at))), scales_to(stream_asker<S>::scales_to(at)),
        row_step(known_ahead(at.tile_step * at.rows)),
        held_step(S::Cluster > 1 ? known_ahead(p.count * at.rows * STREAM_NUMBER) : 0),
        chunk(known_ahead(S::Piece::exchanged(at.lane * S::Slices) * 16)),
        sums(computed_here(at.sums +
                           (p.groups == 2 ? at.position.group * 8 + at.position.part : at.position.part) *
                               S::Sums::slot_bytes +
                           (S::Sums::offset_of(at.g) ^ at.t * 16))) {}
};

/* Successors may start after the wait only. Where there is room for two blocks, those of two successors would otherwise
 * share one multiprocessor while another has none (H200, 4 x 7168 x 2048, four vectors: 17.2 us after another product,
 * and so 11.9). */
DEVICE void wait_and_let_start() {
  only_wait_for_predecessors();
  let_successors_start();
}

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

template <typename S> DEVICE void gemv_stream(const gemv_stream_parameters &p) {
  using Piece = typename S::Piece;
  extern __shared__ __align__(1024) unsigned char stream_memory[];
  const stream_thread<S> at(p, stream_memory);
  stream_asker<S> asker(p, at);
  if (p.early) asker.fill(p, at);
  set_shared_memory(p, at);
  __syncthreads();
  wait_and_let_start();

  stream_results<S> results(p, at);
  uint32_t stage = at.ring, stage_before = at.ring + (S::Stages - 1) * Piece::bytes;
  constexpr uint32_t none = 0xffffffffu;
  uint32_t row = none, held_before = 0; /* of the tile before: its first row, and where its sums are held */
  const uint32_t chunks = S::Cluster > 1 ? p.chunks : 1;
  rolled_for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    stream_vectors<S> x;
    {
      const uint32_t element = at.part_element + chunk * at.chunk_elements + at.t * (32 * S::Slices);
      typename stream_vectors<S>::raw raw[S::Columns];
      x.load_first(p, at, element, raw);
      if (!p.early && chunk == 0) {
        KEEP_ORDER(p, 2);
        asker.fill(p, at);
      }
      x.convert(p, at, element, chunk, stage_before, raw);
    }
    if constexpr (S::has_norm && S::Cluster == 1) set_factors(p, at);
    const tile_addresses<S> own(p, at);
    uint32_t held_tile = at.held;
    rolled_for (uint32_t next_row = at.first_tile * at.rows; next_row < p.m; next_row += own.row_step) {
      cp_async_wait<S::Stages - 2>();
      __syncwarp();
      /* What every lane read of the stage before is in its sums, and those it has stored: before the barrier above. */
      asker.ask(p, at, stage_before + own.to, stage_before + own.scales_to, own.row_step);
      float c[S::Columns][4] = {};
      multiply_piece(at, stage, stage + own.chunk, x, c);
      if (row != none) results.finish(p, at, row, held_before);
      store_sums(at, own.sums + results.parity * S::Sums::buffer_bytes, x, c);
      arrive_together(at.meeting);
      results.parity ^= 1;
      stage_before = stage;
      stage += Piece::bytes;
      if (stage == at.ring + S::Stages * Piece::bytes) stage = at.ring;
      row = next_row;
      if constexpr (S::Cluster > 1) {
        held_before = held_tile;
        held_tile += own.held_step;
      }
    }
  }
  results.finish(p, at, row, held_before);
  if constexpr (S::Cluster > 1)
    finish_cluster<S::Cluster>(p, {at.first_tile, at.tile_step, at.rank}, at.rows, at.held, at.squares, 16,
                               S::same_correction);
}

#define STREAM_CLUSTER_1
#define STREAM_CLUSTER_2 __cluster_dims__(2, 1, 1)
#define DEFINE(chips, parameters, name, threads, V, columns, slices, stages, cluster)                                  \
  extern "C" __global__ void STREAM_CLUSTER_##cluster __launch_bounds__(threads, 1)                                    \
      name(const __grid_constant__ parameters p) {                                                                     \
    gemv_stream<stream_shape<V, columns, slices, stages, cluster>>(p);                                                 \
    publish(p.done);                                                                                                   \
  }
GEMV_STREAM_KERNELS(DEFINE)

#endif
