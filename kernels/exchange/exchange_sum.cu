/* exchange_sum.cu - the sum of dense vectors over all ranks, in one step: what each layer of a decoder ends with.
 *
 * Bound by latency: the loads of the vector and the counter, one way over the link, one look, and the end of the
 * kernel. So a thread has one vector of 16 bytes if there are blocks for that, keeps its own vector in registers, and
 * the number of ranks is a constant. */
#include "exchange_words.cuh"

template <int N, int Ranks> struct sum_of {
  const exchange_parameters &p;
  uint32_t turns;

  DEVICE unsigned char *place(uint32_t to, uint32_t from, uint32_t vector) const {
    return slot_of(p, to, from, turns >> (to == p.rank ? from : to)) + (uint64_t)vector * EXCHANGE_VECTOR_BYTES;
  }

  DEVICE uint4 own(uint32_t vector) const { return ((const uint4 *)p.in.data)[vector]; }

  DEVICE void send(uint32_t vector, const uint4 &data) const {
    unrolled_for (uint32_t r = 1; r < Ranks; r++)
      if (Ranks < EXCHANGE_RANKS_MOST || r < p.ranks) push(place(other_rank(p, r), p.rank, vector), data);
  }

  /* The looks at up to four ranks' vectors are in flight together. */
  DEVICE void finish(uint32_t vector, const uint4 &data) const {
    enum { LOOKS = Ranks < 4 ? Ranks : 4 };
    float sums[N], residual[N];
    const int64_t number = (int64_t)vector * N;
    if (p.residual.data) load_numbers(p.residual.dtype, true, p.residual.data, number, N, residual);
    unrolled_for (uint32_t first = 0; first < Ranks; first += LOOKS) {
      uint4 words[LOOKS];
      unrolled_for (uint32_t r = first; r < first + LOOKS; r++)
        if (p.to >> r & 1) words[r - first] = look(place(p.rank, r, vector));
      unrolled_for (uint32_t r = first; r < first + LOOKS; r++) {
        if (Ranks == EXCHANGE_RANKS_MOST && r >= p.ranks) continue;
        float numbers[N];
        const uint4 come = r == p.rank ? data : pull(p, r, place(p.rank, r, vector), words[r - first]);
        numbers_of_vector<N>(p.dtype, come, numbers);
        unrolled_for (int k = 0; k < N; k++) sums[k] = r ? sums[k] + numbers[k] : numbers[k];
      }
    }
    if (p.residual.data)
      unrolled_for (int k = 0; k < N; k++) sums[k] += residual[k];
    store_numbers(p.out.dtype, true, p.out.data, number, N, sums);
  }

  /* All is sent before the first wait. */
  DEVICE void all() const {
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    if (first >= p.vectors) return;
    const uint4 data = own(first);
    send(first, data);
    for (uint32_t i = first + step; i < p.vectors; i += step) send(i, own(i));
    finish(first, data);
    for (uint32_t i = first + step; i < p.vectors; i += step) finish(i, own(i));
  }
};

template <int N, int Ranks> DEVICE void sum_vectors(const exchange_parameters &p) {
  sum_of<N, Ranks>{p, turns_of(p, p.to)}.all();
}

template <int N> DEVICE void sum_ranks(const exchange_parameters &p) {
  if (p.ranks == 2)
    sum_vectors<N, 2>(p);
  else if (p.ranks == 4)
    sum_vectors<N, 4>(p);
  else
    sum_vectors<N, EXCHANGE_RANKS_MOST>(p);
}

DEVICE void exchange_sum(const exchange_parameters &p) {
  if (p.dtype == RONDO_F32)
    sum_ranks<4>(p);
  else
    sum_ranks<8>(p);
  __syncthreads(); /* one thread that lets them start does so for its block */
  let_successors_start();
  count_exchange(p, p.to);
}

EXCHANGE_SUM_KERNELS(DEFINE_EXCHANGE_KERNEL)
