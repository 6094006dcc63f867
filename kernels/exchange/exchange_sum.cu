/* exchange_sum.cu - the sum of dense vectors over all ranks, in one step: what each layer of a decoder ends with.
 *
 * Bound by latency: the loads of the vector and the counter, one way over the link, one look, and the end of the
 * kernel. So a thread has one vector of 16 bytes if there are blocks for that, keeps its own vector in registers, and
 * the number of ranks is a constant. */
#include "exchange_words.cuh"

template <int N, int Ranks> struct sum_of {
  const exchange_parameters &p;
  uint32_t counts[Ranks];

  /* Of up to eight ranks the last may not be there; and nothing goes to itself. */
  DEVICE bool is_other(uint32_t r) const { return (Ranks < EXCHANGE_RANKS_MOST || r < p.ranks) && r != p.rank; }

  DEVICE unsigned char *place(unsigned char *row, uint32_t r, uint32_t vector) const {
    return slot_of(p, row, counts[r]) + (uint64_t)vector * EXCHANGE_VECTOR_BYTES;
  }

  /* The loads of eight terms are in flight together; terms are added in their order. */
  DEVICE uint4 own(uint32_t vector) const {
    enum { AT_ONCE = 8 };
    const uint4 *in = (const uint4 *)p.in.data + vector;
    if (N == 8 || p.terms == 1) return *in;
    float4 sum = make_float4(-0.0f, -0.0f, -0.0f, -0.0f); /* changes no number */
    rolled_for (uint32_t t = 0; t < p.terms; t += AT_ONCE) {
      float4 terms[AT_ONCE];
      unrolled_for (uint32_t i = 0; i < AT_ONCE; i++) {
        terms[i] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
        if (t + i < p.terms) terms[i] = *(const float4 *)((const float *)in + (t + i) * p.term);
      }
      unrolled_for (uint32_t i = 0; i < AT_ONCE; i++)
        sum = make_float4(sum.x + terms[i].x, sum.y + terms[i].y, sum.z + terms[i].z, sum.w + terms[i].w);
    }
    return make_uint4(__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z), __float_as_uint(sum.w));
  }

  DEVICE void send(uint32_t vector, const uint4 &data) const {
    unrolled_for (uint32_t r = 0; r < Ranks; r++)
      if (is_other(r)) push(place(p.there[r], r, vector), data);
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
        if (is_other(r)) words[r - first] = look(place(p.here[r], r, vector));
      unrolled_for (uint32_t r = first; r < first + LOOKS; r++) {
        if (Ranks == EXCHANGE_RANKS_MOST && r >= p.ranks) continue;
        float numbers[N];
        const uint4 come = r == p.rank ? data : pull(p, r, place(p.here[r], r, vector), words[r - first]);
        numbers_of_vector<N>(p.dtype, come, numbers);
        unrolled_for (int k = 0; k < N; k++) sums[k] = r ? sums[k] + numbers[k] : numbers[k];
      }
    }
    if (p.residual.data)
      unrolled_for (int k = 0; k < N; k++) sums[k] += residual[k];
    store_numbers(p.out.dtype, true, p.out.data, number, N, sums);
  }

  /* The loads of the first vector and of the counters are in flight together. All is sent before the first wait. The
   * counters move on meanwhile. */
  DEVICE void all() {
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    uint4 data = make_uint4(0, 0, 0, 0);
    if (first < p.vectors) data = own(first);
    unrolled_for (uint32_t r = 0; r < Ranks; r++)
      counts[r] = count_of(p, Ranks < EXCHANGE_RANKS_MOST ? r : min(r, p.ranks - 1));
    if (first < p.vectors) send(first, data);
    for (uint32_t i = first + step; i < p.vectors; i += step) send(i, own(i));
    __syncthreads();
    let_successors_start_early(p);
    unrolled_for (uint32_t r = 0; r < Ranks; r++)
      if (is_other(r)) count_exchange(p, r, counts[r]);
    if (first < p.vectors) finish(first, data);
    for (uint32_t i = first + step; i < p.vectors; i += step) finish(i, own(i));
  }
};

/* Of two ranks. Each instruction runs for the first time in a launch, some six cycles after the one before, so the way
 * is short where the sum's type stays and nothing is added. A sum of two is the same in either order. */
template <rondo_dtype Type> struct sum_of_two {
  static constexpr int N = Type == RONDO_F32 ? 4 : 8;
  const exchange_parameters &p;
  const uint32_t other;

  DEVICE uint4 own(uint32_t vector) const { return sum_of<N, 2>{p}.own(vector); }

  DEVICE void finish(unsigned char *from, uint32_t vector, const uint4 &data) const {
    float sums[N], numbers[N], residual[N];
    const int64_t number = (int64_t)vector * N;
    if (p.residual.data) load_numbers(p.residual.dtype, true, p.residual.data, number, N, residual);
    const uint4 come = pull(p, other, from + (uint64_t)vector * EXCHANGE_VECTOR_BYTES);
    numbers_of_vector<N>(Type, data, sums);
    numbers_of_vector<N>(Type, come, numbers);
    unrolled_for (int k = 0; k < N; k++) sums[k] += numbers[k];
    if (p.residual.data)
      unrolled_for (int k = 0; k < N; k++) sums[k] += residual[k];
    if (p.out.dtype == Type)
      ((uint4 *)p.out.data)[vector] = vector_of_numbers<N>(Type, sums);
    else
      store_numbers(p.out.dtype, true, p.out.data, number, N, sums);
  }

  /* As sum_of does. */
  DEVICE void all() const {
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    uint4 data = make_uint4(0, 0, 0, 0);
    if (first < p.vectors) data = own(first);
    const uint32_t count = count_of(p, other);
    unsigned char *to = slot_of(p, p.there[other], count), *from = slot_of(p, p.here[other], count);
    if (first < p.vectors) push(to + (uint64_t)first * EXCHANGE_VECTOR_BYTES, data);
    for (uint32_t i = first + step; i < p.vectors; i += step) push(to + (uint64_t)i * EXCHANGE_VECTOR_BYTES, own(i));
    __syncthreads();
    let_successors_start_early(p);
    count_exchange(p, other, count);
    if (first < p.vectors) finish(from, first, data);
    for (uint32_t i = first + step; i < p.vectors; i += step) finish(from, i, own(i));
  }
};

template <int N, int Ranks> DEVICE void sum_vectors(const exchange_parameters &p) { sum_of<N, Ranks>{p}.all(); }

template <int N> DEVICE void sum_ranks(const exchange_parameters &p) {
  if (p.ranks == 4)
    sum_vectors<N, 4>(p);
  else
    sum_vectors<N, EXCHANGE_RANKS_MOST>(p);
}

DEVICE void exchange_sum(const exchange_parameters &p) {
  const bool has_two = p.ranks == 2;
  if (has_two && p.dtype == RONDO_BF16)
    sum_of_two<RONDO_BF16>{p, 1 - p.rank}.all();
  else if (has_two && p.dtype == RONDO_F32)
    sum_of_two<RONDO_F32>{p, 1 - p.rank}.all();
  else if (has_two)
    sum_of_two<RONDO_F16>{p, 1 - p.rank}.all();
  else if (p.dtype == RONDO_F32)
    sum_ranks<4>(p);
  else
    sum_ranks<8>(p);
  __syncthreads(); /* one thread that lets them start does so for its block */
  let_successors_start();
}

EXCHANGE_SUM_KERNELS(DEFINE_EXCHANGE_KERNEL)
