/* gemv_stream_vectors.cuh - how the warps of gemv_stream.cu take their parts of the vectors, as operand B. */
#pragma once

#include "gemv_stream_pieces.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

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
    if constexpr (S::Few > 0)
      if (p.count <= S::Few) return load_few(p, at, to[0]);
    unrolled_for (int a = 0; a < (S::one_by_one ? 1 : S::Columns); a++) load(p, at, a, element, to[a]);
  }
  /* RMS norm except for the common factor, as in normalise_by: the numbers 8 x chunk_of(s, i) of a part that begins
   * with `part_element`. Tensor cores square: a quad has row g of operand A and column g of B, both the same numbers.
   * Lane g / 2 of it gets the sum. */
  template <rondo_dtype Type, int Rows, int Eights, typename Chunk>
  static DEVICE float normalise_as(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t part_element,
                                   words (&of)[Rows][Eights], const Chunk &chunk_of) {
    const uint32_t none[2] = {};
    float c[2][4] = {}; /* two, since each product waits for the one before it */
    unrolled_for (int s = 0; s < Rows; s++)
      unrolled_for (int i = 0; i < Eights; i++)
        unrolled_for (int j = 0; j < 2; j++) {
          const uint32_t *pairs = &of[s][i].word[2 * j];
          multiply_accumulate<Type == RONDO_BF16>(c[j], pairs, none, pairs);
        }
    const bool kept = asks_for_norm<S>(p);
    unrolled_for (int s = 0; s < Rows; s++)
      unrolled_for (int i = 0; i < Eights; i++) {
        if (!p.norm) continue;
        const uint32_t chunk = chunk_of(s, i), element = part_element + 8 * chunk;
        words norm = words();
        if (S::keeps_norm && kept)
          norm = norm_of_part(at, chunk);
        else if (element < p.k)
          norm = load_vector((const unsigned char *)p.norm + (uint64_t)element * 2);
        unrolled_for (int j = 0; j < 4; j++) of[s][i].word[j] = product_of_pairs<Type>(of[s][i].word[j], norm.word[j]);
      }
    return at.g % 2 ? c[0][1] + c[1][1] : c[0][0] + c[1][0];
  }
  template <int Rows, int Eights, typename Chunk>
  static DEVICE float normalise(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t part_element,
                                words (&of)[Rows][Eights], const Chunk &chunk_of) {
    return p.vector_dtype == RONDO_BF16 ? normalise_as<RONDO_BF16>(p, at, part_element, of, chunk_of)
                                        : normalise_as<RONDO_F16>(p, at, part_element, of, chunk_of);
  }
  /* The part's squares go to shared memory. */
  static DEVICE void normalise_column(const gemv_stream_parameters &p, const stream_thread<S> &at, int a,
                                      uint32_t element, uint32_t chunk, bool stores, raw &of) {
    const float sum = normalise(p, at, element - at.t * (32 * S::Slices), of.loaded,
                                [&](int s, int i) { return at.t * (4 * S::Slices) + (uint32_t)(4 * s + i); });
    const uint32_t mine = at.squares_of(at.g + 8 * a);
    if (at.t == at.g / 2 && stores) store_number(mine, chunk ? load_number(mine) + sum : sum);
  }
  DEVICE void convert(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t element, uint32_t chunk,
                      uint32_t stage, raw (&loaded)[S::Columns]) {
    if constexpr (S::Few > 0)
      if (p.count <= S::Few) return convert_few(p, at, stage, loaded[0]);
    unrolled_for (int a = 0; a < S::Columns; a++) {
      if (S::one_by_one && a) load(p, at, a, element, loaded[a]);
      exchange(at, stage, loaded[a]);
      if constexpr (S::has_norm)
        if (p.norm_epsilon > 0) normalise_column(p, at, a, element, chunk, at.position.group == 0, loaded[a]);
      const float own = convert_vector<S::W, S::V, S::Slices>(p, loaded[a], b[a]);
      if (S::keeps_corrections && at.t == 0) store_number(at.kept_of(at.g + 8 * a), own);
      if constexpr (S::has_correction && !S::keeps_corrections)
        unrolled_for (int i = 0; i < 2; i++) corrections[i] = __shfl_sync(0xffffffffu, own, 8 * at.t + 4 * i);
    }
  }

  /* Up to four vectors leave half of the lanes without one. So each has eight lanes, which load and convert every
   * eighth 16 bytes of its part, and then exchange them in a free stage: number i of a part lies at i ^ (the lane of a
   * quad that needs it, and 4 in odd vectors), where eight lanes meet in no bank. Columns from 4 on repeat those
   * before. */
  static DEVICE void load_few(const gemv_stream_parameters &p, const stream_thread<S> &at, raw &to) {
    const uint32_t element = at.part_element + at.lane % 8 * 8;
    const vector_address<S::V> from(p, min(at.lane / 8, p.count - 1), element);
    unrolled_for (int j = 0; j < 2 * S::Slices; j++) {
      to.loaded[j / 2][j % 2] = words();
      if (element + 64 * j < p.k) to.loaded[j / 2][j % 2] = from.load(64 * j);
    }
  }
  DEVICE void convert_few(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t stage,
                          const raw &loaded) {
    const uint32_t vector = at.lane / 8, lane = at.lane % 8;
    words few[2 * S::Slices][1];
    unrolled_for (int j = 0; j < 2 * S::Slices; j++) few[j][0] = loaded.loaded[j / 2][j % 2];
    if (p.norm_epsilon > 0) {
      float sum = normalise(p, at, at.part_element, few, [&](int j, int) { return 8 * (uint32_t)j + lane; });
      sum += __shfl_xor_sync(0xffffffffu, sum, 4);
      if (lane == vector && at.position.group == 0) store_number(at.squares_of(vector), sum);
    }
    uint32_t converted[2 * S::Slices][4];
    float factor = 1 / nvfp4_factor;
    if (p.vector_dtype == RONDO_BF16)
      factor *= convert_bf16<S::W, 8>(few, converted);
    else
      reorder<S::W, false>(few, converted);
    unrolled_for (int i = 0; i < 2; i++) corrections[i] = __shfl_sync(0xffffffffu, factor, 16 * at.t + 8 * i);
    constexpr uint32_t vector_bytes = 256 * S::Slices;
    const uint32_t to = stage + vector * vector_bytes + (lane ^ vector % 2 * 4) * 16;
    unrolled_for (int j = 0; j < 2 * S::Slices; j++)
      store_shared_words((to ^ (uint32_t)(2 * j / S::Slices) * 16) + 128 * j, converted[j]);
    __syncwarp();
    const uint32_t from = stage + at.g % 4 * vector_bytes + at.t * (vector_bytes / 4) + (at.t | at.g % 2 * 4) * 16;
    unrolled_for (int s = 0; s < S::Slices; s++)
      unrolled_for (int i = 0; i < 4; i++) {
        const words four = load_shared_words((from ^ (uint32_t)((4 * s + i) % 8) * 16) + s / 2 * 128);
        unrolled_for (int w = 0; w < 4; w++) b[0][s][4 * i + w] = four.word[w];
      }
    __syncwarp();
  }

  /* Where operand `a`'s sixteen bytes number i of a slice lie in between: the first slice's in the place of sums of the
   * warp that converts it, the second's in its free stage. */
  static DEVICE uint32_t shared_words(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t a, int s,
                                      int i) {
    static_assert(!S::shares_vectors || (S::Slices == 2 && S::Sums::slot_bytes == 1024), "two slices have room");
    const uint32_t sums = at.sums + (8 * a + at.position.part) * S::Sums::slot_bytes + i / 2 * S::Sums::buffer_bytes;
    const uint32_t warp = a * p.parts + at.position.part;
    const uint32_t stage = at.memory + p.first_stage + ((warp + 1) * S::Stages - 1) * S::Piece::bytes;
    return (s == 0 ? sums + i % 2 * 512 : stage + i * 512) + at.lane * 16;
  }
  /* The operand of the warp's group: converted here, and for the other group. */
  static DEVICE void convert_own(const gemv_stream_parameters &p, const stream_thread<S> &at, uint32_t element,
                                 uint32_t stage, raw &loaded) {
    const uint32_t a = at.position.group, vector = at.g + 8 * a;
    exchange(at, stage, loaded);
    if constexpr (S::has_norm)
      if (p.norm_epsilon > 0) normalise_column(p, at, (int)a, element, 0, true, loaded);
    uint32_t mine[S::Slices][16];
    const float own = convert_vector<S::W, S::V, S::Slices>(p, loaded, mine);
    unrolled_for (int s = 0; s < S::Slices; s++)
      unrolled_for (int i = 0; i < 4; i++) store_shared_words(shared_words(p, at, a, s, i), &mine[s][4 * i]);
    if (at.t == 0)
      unrolled_for (uint32_t group = 0; group < 2; group++)
        store_number(at.kept + ((group * p.parts + at.position.part) * 16 + vector) * STREAM_NUMBER, own);
  }
  DEVICE void take_both(const gemv_stream_parameters &p, const stream_thread<S> &at) {
    unrolled_for (int a = 0; a < S::Columns; a++)
      unrolled_for (int s = 0; s < S::Slices; s++)
        unrolled_for (int i = 0; i < 4; i++) {
          const words four = load_shared_words(shared_words(p, at, a, s, i));
          unrolled_for (int j = 0; j < 4; j++) b[a][s][4 * i + j] = four.word[j];
        }
  }
};

/* With RMS norm, the factors of the sums: between two barriers of the block. */
template <typename S> DEVICE void set_factors(const gemv_stream_parameters &p, const stream_thread<S> &at) {
  if (p.norm_epsilon > 0 && threadIdx.x < 16) {
    const uint32_t of_vector = at.squares + threadIdx.x * STREAM_NUMBER;
    const float factor = rms_factor(p, sum_of_parts(of_vector, 16 * STREAM_NUMBER, p.parts));
    store_number(at.factors + threadIdx.x * STREAM_NUMBER, factor * p.scale * S::same_correction);
  }
}

#endif
