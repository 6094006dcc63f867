/* exchanges.cu - all exchanges of any sizes and views, in one step or two.
 *
 * A thread has the same vectors on all ranks, in both steps, so that a block waits for the same block of other ranks
 * alone. A step is bound by the way over the link, about a microsecond, and from some 500 KB on by the link's
 * bandwidth: each thread first sends all it has, then waits. */
#include "../common/rectangle.cuh"
#include "exchange_words.cuh"

/* The exchange of vectors of N numbers: 4 of f32 or 8 of 16 bits. */
template <int N> struct exchange_of {
  const exchange_parameters &p;
  uint32_t turns, first, step;

  DEVICE int64_t place_of(const exchange_side &side, uint32_t index) const {
    if (p.row == p.count) return index;
    const uint32_t row = index / p.row;
    int64_t place = index - row * p.row;
    row_indices(row, p.extent, [&](int i, uint32_t outer) { place += outer * side.stride[i]; });
    return place;
  }

  DEVICE uint32_t count_of(uint32_t vector) const { return min(p.count - vector * N, (uint32_t)N); }

  /* Numbers of a vector of a side, from `begin` on; zeros after the end. */
  DEVICE void load(const exchange_side &side, int64_t begin, uint32_t vector, float (&numbers)[N]) const {
    const uint32_t count = count_of(vector);
    if (side.is_whole && count == N)
      return load_numbers(side.dtype, true, side.data, begin + place_of(side, vector * N), N, numbers);
    rolled_for (uint32_t i = 0; i < N; i++) {
      const float number = i < count ? load_number(side.dtype, side.data, begin + place_of(side, vector * N + i)) : 0;
      unrolled_for (int k = 0; k + 1 < N; k++) numbers[k] = numbers[k + 1]; /* an index would not be a constant */
      numbers[N - 1] = number;
    }
  }

  DEVICE void store(const exchange_side &side, uint32_t vector, float (&numbers)[N]) const {
    const uint32_t count = count_of(vector);
    if (side.is_whole && count == N)
      return store_numbers(side.dtype, true, side.data, place_of(side, vector * N), N, numbers);
    rolled_for (uint32_t i = 0; i < count; i++) {
      store_number(side.dtype, side.data, place_of(side, vector * N + i), numbers[0]);
      unrolled_for (int k = 0; k + 1 < N; k++) numbers[k] = numbers[k + 1];
    }
  }

  /* This rank's vector of the part of `rank`, as words. */
  DEVICE uint4 own(uint32_t rank, uint32_t vector) const {
    const int64_t begin = rank * p.in.step;
    if (p.terms == 1 && p.in.is_whole && count_of(vector) == N) {
      const int64_t place = begin + place_of(p.in, vector * N);
      return *(const uint4 *)((const unsigned char *)p.in.data + place * (EXCHANGE_VECTOR_BYTES / N));
    }
    if (N == 8 || p.terms == 1) return raw(begin, vector);
    float sum[N] = {}, term[N] = {};
    load(p.in, begin, vector, sum);
    for (uint32_t t = 1; t < p.terms; t++) {
      load(p.in, begin + t * p.term, vector, term);
      unrolled_for (int i = 0; i < N; i++) sum[i] += term[i];
    }
    return vector_of_numbers<N>(p.dtype, sum);
  }

  /* Number by number, with their bits as they are. */
  DEVICE uint4 raw(int64_t begin, uint32_t vector) const {
    uint4 words = make_uint4(0, 0, 0, 0);
    const uint32_t count = count_of(vector);
    rolled_for (uint32_t i = 0; i < N; i++) {
      const int64_t place = begin + (i < count ? place_of(p.in, vector * N + i) : 0);
      const uint32_t last = i >= count ? 0
                            : N == 4   ? ((const uint32_t *)p.in.data)[place]
                                       : ((const uint16_t *)p.in.data)[place];
      words = shifted(words, last);
    }
    return words;
  }

  /* All numbers move to the one before, `last` to the end. */
  static DEVICE uint4 shifted(const uint4 &words, uint32_t last) {
    if constexpr (N == 4) return make_uint4(words.y, words.z, words.w, last);
    return make_uint4(__funnelshift_r(words.x, words.y, 16), __funnelshift_r(words.y, words.z, 16),
                      __funnelshift_r(words.z, words.w, 16), __funnelshift_r(words.w, last, 16));
  }

  /* The vector of another rank to its place in out. */
  DEVICE void keep(uint32_t rank, uint32_t vector, uint4 data) const {
    const int64_t begin = rank * p.out.step;
    const uint32_t count = count_of(vector);
    if (p.out.is_whole && count == N) {
      const int64_t place = begin + place_of(p.out, vector * N);
      *(uint4 *)((unsigned char *)p.out.data + place * (EXCHANGE_VECTOR_BYTES / N)) = data;
      return;
    }
    rolled_for (uint32_t i = 0; i < count; i++) {
      const int64_t place = begin + place_of(p.out, vector * N + i);
      if constexpr (N == 4)
        ((uint32_t *)p.out.data)[place] = data.x;
      else
        ((uint16_t *)p.out.data)[place] = (uint16_t)data.x;
      data = shifted(data, 0);
    }
  }

  DEVICE void send(uint32_t to, uint32_t index, const uint4 &data) const {
    push(slot_of(p, p.there[to], turns >> to) + (uint64_t)index * EXCHANGE_VECTOR_BYTES, data);
  }

  DEVICE uint4 receive(uint32_t from, uint32_t index) const {
    return pull(p, from, slot_of(p, p.here[from], turns >> from) + (uint64_t)index * EXCHANGE_VECTOR_BYTES);
  }

  /* The sum over the ranks, in their order, of the vectors number `index` of their slots; `data` is this rank's. */
  DEVICE void sum(uint32_t index, const uint4 &data, float (&sums)[N]) const {
    rolled_for (uint32_t r = 0; r < p.ranks; r++) {
      float numbers[N];
      numbers_of_vector<N>(p.dtype, r == p.rank ? data : receive(r, index), numbers);
      unrolled_for (int i = 0; i < N; i++) sums[i] = r ? sums[i] + numbers[i] : numbers[i];
    }
  }

  DEVICE void finish(uint32_t vector, float (&sums)[N]) const {
    if (p.residual.data) {
      float residual[N] = {};
      load(p.residual, 0, vector, residual);
      unrolled_for (int i = 0; i < N; i++) sums[i] += residual[i];
    }
    store(p.out, vector, sums);
  }

  DEVICE void one_step() const {
    if (p.to)
      for (uint32_t i = first; i < p.vectors; i += step) {
        uint4 data = p.in.step ? make_uint4(0, 0, 0, 0) : own(0, i);
        rolled_for (uint32_t r = 1; r < p.ranks; r++) {
          const uint32_t to = other_rank(p, r);
          if (!(p.to >> to & 1)) continue;
          if (p.in.step) data = own(to, i);
          send(to, i, data);
        }
      }
    if (!p.from && !p.keeps) return;
    for (uint32_t i = first; i < p.vectors; i += step) {
      const uint4 data = p.keeps ? own(p.rank, i) : make_uint4(0, 0, 0, 0);
      if (p.sums) {
        float sums[N];
        sum(i, data, sums);
        finish(i, sums);
        continue;
      }
      if (p.keeps) keep(p.rank, i, as_sent(data)); /* all ranks have the same bits */
      rolled_for (uint32_t r = 0; r < p.ranks; r++)
        if (p.from >> r & 1) keep(r, i, receive(r, i));
    }
  }

  /* Of a chunk's sums: as numbers of in's type, or as f32, two vectors for one. */
  DEVICE void send_sums(uint32_t i, float (&sums)[N]) const {
    uint4 data = vector_of_numbers<N>(p.dtype, sums), more = data;
    uint32_t at = p.chunk + i;
    if constexpr (N == 8) {
      if (p.widens) {
        data = make_uint4(__float_as_uint(sums[0]), __float_as_uint(sums[1]), __float_as_uint(sums[2]),
                          __float_as_uint(sums[3]));
        more = make_uint4(__float_as_uint(sums[4]), __float_as_uint(sums[5]), __float_as_uint(sums[6]),
                          __float_as_uint(sums[7]));
        at += i;
      } else {
        numbers_of_vector<N>(p.dtype, data, sums); /* as the other ranks get them */
      }
    }
    rolled_for (uint32_t r = 1; r < p.ranks; r++) {
      send(other_rank(p, r), at, data);
      if (p.widens) send(other_rank(p, r), at + 1, more);
    }
  }

  DEVICE void receive_sums(uint32_t from, uint32_t i, float (&sums)[N]) const {
    if (N == 4 || !p.widens) return numbers_of_vector<N>(p.dtype, receive(from, p.chunk + i), sums);
    if constexpr (N == 8) {
      float half[4];
      numbers_of_vector<4>(RONDO_F32, receive(from, p.chunk + 2 * i), half);
      unrolled_for (int k = 0; k < 4; k++) sums[k] = half[k];
      numbers_of_vector<4>(RONDO_F32, receive(from, p.chunk + 2 * i + 1), half);
      unrolled_for (int k = 0; k < 4; k++) sums[4 + k] = half[k];
    }
  }

  DEVICE void two_steps() const {
    rolled_for (uint32_t r = 1; r < p.ranks; r++) {
      const uint32_t to = other_rank(p, r), begin = to * p.chunk;
      for (uint32_t i = first; i < p.chunk && begin + i < p.vectors; i += step) send(to, i, own(0, begin + i));
    }
    const uint32_t mine = p.rank * p.chunk;
    for (uint32_t i = first; i < p.chunk && mine + i < p.vectors; i += step) {
      float sums[N];
      sum(i, own(0, mine + i), sums);
      send_sums(i, sums);
      finish(mine + i, sums);
    }
    rolled_for (uint32_t r = 1; r < p.ranks; r++) {
      const uint32_t from = other_rank(p, r), begin = from * p.chunk;
      for (uint32_t i = first; i < p.chunk && begin + i < p.vectors; i += step) {
        float sums[N];
        receive_sums(from, i, sums);
        finish(begin + i, sums);
      }
    }
  }
};

/* Ranks between which data goes one way alone: the other way goes one word, when an exchange begins. */
DEVICE void say_hello(const exchange_parameters &p, uint32_t turns) {
  if (blockIdx.x == 0 && threadIdx.x < p.ranks && (p.from & ~p.to) >> threadIdx.x & 1)
    push(slot_of(p, p.there[threadIdx.x], turns >> threadIdx.x), make_uint4(0, 0, 0, 0));
}

DEVICE void hear_hello(const exchange_parameters &p, uint32_t turns) {
  if (blockIdx.x == 0 && threadIdx.x < p.ranks && (p.to & ~p.from) >> threadIdx.x & 1)
    pull(p, threadIdx.x, slot_of(p, p.here[threadIdx.x], turns >> threadIdx.x));
}

template <int N> DEVICE void exchange_vectors(const exchange_parameters &p, uint32_t turns) {
  const exchange_of<N> exchange = {p, turns, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x};
  if (p.chunk)
    exchange.two_steps();
  else
    exchange.one_step();
}

DEVICE void exchange(const exchange_parameters &p) {
  const uint32_t others = p.to | p.from;
  uint32_t counts[EXCHANGE_RANKS_MOST], turns = 0;
  unrolled_for (uint32_t r = 0; r < EXCHANGE_RANKS_MOST; r++) counts[r] = others >> r & 1 ? count_of(p, r) : 0;
  unrolled_for (uint32_t r = 0; r < EXCHANGE_RANKS_MOST; r++) turns |= (counts[r] & 1) << r;
  say_hello(p, turns);
  __syncthreads();
  unrolled_for (uint32_t r = 0; r < EXCHANGE_RANKS_MOST; r++)
    if (others >> r & 1) count_exchange(p, r, counts[r]);
  let_successors_start_early(p);
  if (p.dtype == RONDO_F32)
    exchange_vectors<4>(p, turns);
  else
    exchange_vectors<8>(p, turns);
  hear_hello(p, turns);
  __syncthreads(); /* one thread that lets them start does so for its block */
  let_successors_start();
}

EXCHANGE_KERNELS(DEFINE_EXCHANGE_KERNEL)
