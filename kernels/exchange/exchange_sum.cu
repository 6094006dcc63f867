/* exchange_sum.cu - the sum of dense vectors over all ranks, in one step: what each layer of a decoder ends with.
 *
 * Bound by latency: the loads of the vector and the counter, one way over the link, one look, and the end of the
 * kernel. So a thread has one vector of 16 bytes if there are blocks for that, keeps its own vector in registers, and
 * the number of ranks is a constant. */
#include "exchange_words.cuh"

template <int N, int Ranks> DEVICE void sum_vectors(const exchange_parameters &p) {
  const uint32_t turns = turns_of(p, p.to);
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < p.vectors; i += gridDim.x * blockDim.x) {
    const uint64_t at = (uint64_t)i * EXCHANGE_VECTOR_BYTES;
    const uint4 own = ((const uint4 *)p.in.data)[i];
    unrolled_for (uint32_t r = 1; r < Ranks; r++) {
      const uint32_t to = other_rank(p, r);
      if (Ranks < EXCHANGE_RANKS_MOST || r < p.ranks) push(slot_of(p, to, p.rank, turns >> to) + at, own);
    }
    float residual[N];
    if (p.residual.data) load_numbers(p.residual.dtype, true, p.residual.data, (int64_t)i * N, N, residual);
    const auto place = [&](uint32_t r) { return slot_of(p, p.rank, r, turns >> r) + at; };
    float sums[N];
    enum { LOOKS = Ranks < 4 ? Ranks : 4 /* in flight together */ };
    unrolled_for (uint32_t first = 0; first < Ranks; first += LOOKS) {
      uint4 words[LOOKS];
      unrolled_for (uint32_t r = first; r < first + LOOKS; r++)
        if (p.to >> r & 1) words[r - first] = look(place(r));
      unrolled_for (uint32_t r = first; r < first + LOOKS; r++) {
        if (Ranks == EXCHANGE_RANKS_MOST && r >= p.ranks) continue;
        float numbers[N];
        const uint4 data = r == p.rank ? own : pull(p, r, place(r), words[r - first]);
        numbers_of_vector<N>(p.dtype, data, numbers);
        unrolled_for (int k = 0; k < N; k++) sums[k] = r ? sums[k] + numbers[k] : numbers[k];
      }
    }
    if (p.residual.data)
      unrolled_for (int k = 0; k < N; k++) sums[k] += residual[k];
    store_numbers(p.out.dtype, true, p.out.data, (int64_t)i * N, N, sums);
  }
  let_successors_start();
  __syncthreads();
  count_exchange(p, p.to);
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
}

EXCHANGE_SUM_KERNELS(DEFINE_EXCHANGE_KERNEL)
