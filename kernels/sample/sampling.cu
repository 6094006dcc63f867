/* sampling.cu - draws a column of each row. A row has one block, or a cluster of eight blocks. They keep the row in
 * shared memory if there is room, since each search below passes over the row again.
 *
 * The kernel assigns the numbers to bins, the most probable numbers to the first bin. A bin covers a 24th of an octave;
 * an octave is a factor of two. The kernel counts the numbers of each bin and sums their probabilities. Then it
 * searches for up to three numbers:
 *
 *   - the number at which the running count reaches top_k;
 *   - the number at which the running sum reaches the share top_p;
 *   - the number at which the running sum reaches the random share of the draw: the result.
 *
 * Each search has these steps:
 *
 *   1. The running sums of the bins tell the bin of the number.
 *   2. If the bins up to this one have few numbers, the first block sorts all of them; else it sorts this bin alone.
 *   3. If the bin has more than SAMPLE_LISTED numbers, it is divided into smaller bins, and the search continues
 *      there.
 *   4. If such a smaller bin still has too many, thousands of columns are equally probable. The kernel then halves the
 *      range of keys until one is left. This is slow: each step is a pass over the row.
 *
 * All sums are of integers (sample_number.h). All state is in shared memory, and so the next replay finds nothing to
 * clear. The loops are not unrolled, since most code runs once. */
#include "../common/cluster.cuh"
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/ptx.cuh"
#include "sample_number.h"
#include "sampling.h"

/* A request of the first block to all blocks: to list the keys of some bins, or to halve the keys of one bin. */
enum { ASK_LIST, ASK_HALVES };

struct request {
  uint32_t ask, by_count;
  uint32_t first_bin, last_bin;      /* the bins to list; ASK_HALVES: the bin whose keys are halved */
  uint64_t count_before, sum_before; /* of numbers and probabilities, before first_bin */
  uint64_t needed;                   /* the count or sum to reach, from the first bin of the row on */
};
enum { REQUEST_WORDS = sizeof(request) / 8 };

/* Static shared memory of each block. */
struct sampler_shared {
  uint64_t warps[32]; /* each warp's value, in a reduction or scan */
  uint32_t warp_counts[32];
  uint64_t exchanged[2][SAMPLE_CLUSTER]; /* each block's value in a reduction; reductions alternate between the two */
  request asked;
  uint64_t found, sum_to_found; /* the key of the number, and the sum of probabilities up to it */
  uint32_t listed;
};

struct bin_place {
  uint32_t bin;
  float octaves;
};

template <int Blocks> struct sampler {
  const sample_parameters &p;
  sampler_shared &s;
  uint64_t *keys;                            /* SAMPLE_LISTED */
  uint64_t *bin_sums;                        /* running sums of probabilities, from the first bin to each bin */
  uint32_t *bin_counts;                      /* running counts of numbers */
  uint32_t *counts, *low_parts, *high_parts; /* of this block, by bin: numbers; sums of sample_part's low 12 bits, and
                                                of its other bits */
  float *held;                               /* this block's numbers, if p.is_held */
  uint32_t rank, row, first_column, last_column;
  uint32_t exchanges;
  float largest, factor;
  /* The bin that is divided into smaller bins, or -1; and the count and the sum before it. */
  int32_t divided;
  uint64_t count_before, sum_before;
  uint32_t list_share;            /* a thread's number of keys in the first block's sorted list */
  uint64_t list_sum, list_before; /* sums of probabilities: of these keys, and of all keys before them */
  bool is_listed;                 /* the list begins with the largest number; later searches need no other keys */

  DEVICE sampler(const sample_parameters &p, sampler_shared &s, unsigned char *dynamic)
      : p(p), s(s), exchanges(0), divided(-1), count_before(0), sum_before(0), list_share(0), list_sum(0),
        list_before(0), is_listed(false) {
    keys = (uint64_t *)dynamic, bin_sums = keys + SAMPLE_LISTED, bin_counts = (uint32_t *)(bin_sums + SAMPLE_BINS);
    counts = bin_counts + SAMPLE_BINS, low_parts = counts + SAMPLE_BINS, high_parts = low_parts + SAMPLE_BINS;
    held = (float *)(high_parts + SAMPLE_BINS);
    rank = blockIdx.x % Blocks, row = blockIdx.x / Blocks;
    first_column = min(rank * p.columns, p.n), last_column = min(first_column + p.columns, p.n);
  }

  /* ---- Blocks and clusters ------------------------------------------------------------------------------------- */

  DEVICE void meet() {
    if constexpr (Blocks > 1)
      meet_cluster();
    else
      __syncthreads();
  }

  /* Stores the value at the same address of another block's shared memory. */
  DEVICE void store(uint64_t *place, uint32_t block, uint64_t value) {
    if constexpr (Blocks > 1)
      store_in_block(address_in_block(shared_address(place), block), value);
    else
      *place = value;
  }

  /* A reduction over all threads of all blocks. All threads get the result. A block may start the next reduction while
   * others still read this one's values: the two use different rows of s.exchanged. */
  template <typename Join> DEVICE uint64_t reduce(uint64_t value, const Join &join) {
    unrolled_for (int step = 16; step; step /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (threadIdx.x % 32 == 0) s.warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = s.warps[threadIdx.x % 32];
    unrolled_for (int step = 16; step; step /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, step));
    if constexpr (Blocks == 1) {
      __syncthreads();
      return value;
    }
    uint64_t *const all = s.exchanged[exchanges++ % 2];
    if (threadIdx.x < Blocks) store(&all[rank], threadIdx.x, value);
    meet();
    value = all[0];
    unrolled_for (int i = 1; i < Blocks; i++) value = join(value, all[i]);
    return value;
  }

  /* Running sums over the threads of this block, each thread's own value included. */
  DEVICE void scan(uint64_t &value, uint32_t &count) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unrolled_for (int step = 1; step < 32; step *= 2) {
      const uint64_t before = __shfl_up_sync(0xffffffffu, value, step);
      const uint32_t count_before = __shfl_up_sync(0xffffffffu, count, step);
      if (lane >= step) value += before, count += count_before;
    }
    if (lane == 31) s.warps[warp] = value, s.warp_counts[warp] = count;
    __syncthreads();
    uint64_t before = lane < warp ? s.warps[lane] : 0;
    uint32_t count_before = lane < warp ? s.warp_counts[lane] : 0;
    unrolled_for (int step = 16; step; step /= 2) before += __shfl_xor_sync(0xffffffffu, before, step);
    count_before = __reduce_add_sync(0xffffffffu, count_before);
    value += before, count += count_before;
    __syncthreads();
  }

  /* ---- The row ------------------------------------------------------------------------------------------------- */

  /* The largest key of the row. Keeps the row's numbers in shared memory if there is room. */
  DEVICE uint64_t largest_key() {
    const uint32_t first = 8 * threadIdx.x;
    uint32_t at = first_column + first;
    float best = -INFINITY;
    const bool has_columns = at < last_column;
#pragma unroll 2
    for (uint32_t column = at; column < last_column; column += 8 * SAMPLE_THREADS) {
      const uint32_t count = min(last_column - column, 8u);
      float values[8];
      load_numbers(p.dtype, p.is_aligned, p.x, row * p.stride + column, count, values);
      if (p.is_held) store_numbers(RONDO_F32, true, held, column - first_column, 8, values);
      unrolled_for (uint32_t i = 0; i < 8; i++)
        if (i < count && sample_is_larger(values[i], best)) best = values[i], at = column + i;
    }
    if constexpr (Blocks > 1) {
      let_successors_start();
      wait_for_cluster();
    }
    return reduce(has_columns ? sample_key(best, at) : 0, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  }

  /* Calls take(value, column) for this block's columns. */
  template <typename Take> DEVICE void each(const Take &take) {
    const uint32_t count = last_column - first_column;
    rolled_for (uint32_t i = threadIdx.x; i < count; i += SAMPLE_THREADS)
      take(p.is_held ? held[i] : load_number(p.dtype, p.x, row * p.stride + first_column + i), first_column + i);
  }

  /* The bin of a number. It is SAMPLE_BINS if the probability is 0, or if another bin is divided. */
  DEVICE bin_place place_of(float value) const {
    const float t = sample_octaves(largest, factor, value);
    if (!(t < (float)SAMPLE_OCTAVES)) return {SAMPLE_BINS, t};
    const sample_whole octave = sample_cut(t);
    const float within = (t - octave.value) * SAMPLE_BINS_OF_OCTAVE;
    const sample_whole part = sample_cut(fminf(within, SAMPLE_BINS_OF_OCTAVE - 0.5f));
    const int32_t bin = octave.whole * SAMPLE_BINS_OF_OCTAVE + part.whole;
    if (divided < 0) return {(uint32_t)bin, t};
    if (bin != divided) return {SAMPLE_BINS, t};
    return {(uint32_t)min(sample_cut((within - part.value) * SAMPLE_BINS).whole, SAMPLE_BINS - 1), t};
  }

  DEVICE uint64_t probability_of(uint64_t key) const {
    return sample_probability(sample_octaves(largest, factor, sample_value_of_key(key)));
  }

  /* Computes bin_counts, and with `sums` also bin_sums, in all blocks. */
  DEVICE void fill_bins(bool sums) {
    counts[threadIdx.x] = low_parts[threadIdx.x] = high_parts[threadIdx.x] = 0;
    __syncthreads();
    each([&](float value, uint32_t) {
      const bin_place at = place_of(value);
      if (at.bin == SAMPLE_BINS) return;
      atomicAdd(&counts[at.bin], 1u);
      if (!sums) return;
      const uint32_t part = sample_part(at.octaves, sample_cut(at.octaves));
      atomicAdd(&low_parts[at.bin], part & 0xfffu);
      atomicAdd(&high_parts[at.bin], part >> 12);
    });
    meet();
    /* Each block adds up its share of the bins for all blocks. Of the threads of a bin, each reads one block's
     * counts. */
    constexpr uint32_t share = SAMPLE_BINS / Blocks;
    static_assert(share * Blocks == SAMPLE_THREADS, "a thread for each part of a bin");
    const uint32_t bin = rank * share + threadIdx.x / Blocks;
    const int32_t unit = sample_unit((divided < 0 ? (int32_t)bin : divided) / SAMPLE_BINS_OF_OCTAVE);
    const uint32_t block = threadIdx.x % Blocks;
    uint32_t count = load_part(&counts[bin], block);
    uint64_t sum = sums ? load_part(&low_parts[bin], block) + ((uint64_t)load_part(&high_parts[bin], block) << 12) : 0;
    unrolled_for (int step = Blocks / 2; step; step /= 2) {
      count += __shfl_xor_sync(0xffffffffu, count, step);
      sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    store(&bin_sums[bin], block, sum << unit);
    store(&keys[bin], block, count);
    meet();
    count = (uint32_t)keys[threadIdx.x], sum = bin_sums[threadIdx.x];
    scan(sum, count);
    bin_counts[threadIdx.x] = count, bin_sums[threadIdx.x] = sum;
    __syncthreads();
  }

  DEVICE uint32_t load_part(const uint32_t *place, uint32_t block) {
    if constexpr (Blocks == 1) return *place;
    return load_from_block(address_in_block(shared_address(place), block));
  }

  /* ---- The number at which a count or sum reaches `needed` ------------------------------------------------------ */

  /* A thread has a bin. The thread whose bin reaches `needed` writes the request; there is always one. */
  DEVICE void ask(bool by_count, uint64_t needed, bool is_last) {
    const uint32_t bin = threadIdx.x;
    const uint64_t count = count_before + bin_counts[bin], before = count_before + (bin ? bin_counts[bin - 1] : 0);
    const uint64_t sum = sum_before + bin_sums[bin], sum_to_bin = sum_before + (bin ? bin_sums[bin - 1] : 0);
    if ((by_count ? before : sum_to_bin) >= needed || (by_count ? count : sum) < needed) return;
    s.listed = 0;
    if (!is_last && divided < 0 && count <= SAMPLE_TOGETHER) {
      s.asked = {ASK_LIST, by_count, 0, bin, 0, 0, needed};
    } else {
      const uint32_t how = count - before <= SAMPLE_LISTED ? ASK_LIST : ASK_HALVES;
      s.asked = {how, by_count, bin, bin, before, sum_to_bin, needed};
    }
  }

  /* Sends the first block's request to all blocks. */
  DEVICE void tell() {
    if constexpr (Blocks > 1) {
      __syncthreads();
      const uint32_t word = threadIdx.x % REQUEST_WORDS, block = 1 + threadIdx.x / REQUEST_WORDS;
      if (rank == 0 && block < Blocks) store((uint64_t *)&s.asked + word, block, ((uint64_t *)&s.asked)[word]);
    }
    meet();
  }

  /* Sends the keys of the requested bins to the first block. */
  DEVICE void list_keys() {
    each([&](float value, uint32_t column) {
      const uint32_t bin = place_of(value).bin;
      if (bin < s.asked.first_bin || bin > s.asked.last_bin) return;
      if constexpr (Blocks > 1)
        store(&keys[add_in_block(address_in_block(shared_address(&s.listed), 0), 1)], 0, sample_key(value, column));
      else
        keys[atomicAdd(&s.listed, 1)] = sample_key(value, column);
    });
    meet();
  }

  /* Sorts the first block's list of a few keys, the largest first. Several threads compare a key with all others; the
   * number of larger keys is its index. */
  DEVICE void sort_few() {
    uint32_t threads = 32; /* of a key */
    while (s.listed * threads > SAMPLE_THREADS) threads /= 2;
    const uint32_t own = threadIdx.x / threads;
    const uint64_t key = own < s.listed ? keys[own] : 0;
    uint32_t larger = 0;
    for (uint32_t i = threadIdx.x % threads; i < s.listed; i += threads) larger += keys[i] > key;
    for (uint32_t step = threads / 2; step; step /= 2) larger += __shfl_xor_sync(0xffffffffu, larger, step);
    __syncthreads();
    if (own < s.listed && threadIdx.x % threads == 0) keys[larger] = key;
    __syncthreads();
  }

  /* The same for many keys, by a bitonic network (Batcher, Sorting networks and their applications, 1968). Zeros fill
   * the list up to a power of two. */
  DEVICE void sort_many() {
    uint32_t size = 2;
    while (size < s.listed) size *= 2;
    for (uint32_t i = s.listed + threadIdx.x; i < size; i += SAMPLE_THREADS) keys[i] = 0;
    __syncthreads();
    for (uint32_t sorted = 2; sorted <= size; sorted *= 2)
      for (uint32_t stride = sorted / 2; stride; stride /= 2) {
        if (stride >= 32 && sorted > 64)
          __syncthreads();
        else
          __syncwarp(); /* the 32 lanes of a warp have 64 contiguous keys, the same as in the step before */
        for (uint32_t i = threadIdx.x; i < size / 2; i += SAMPLE_THREADS) {
          const uint32_t low = 2 * i - (i & (stride - 1)), high = low + stride;
          const uint64_t a = keys[low], b = keys[high];
          if ((a < b) == ((low & sorted) == 0)) keys[low] = b, keys[high] = a;
        }
      }
    __syncthreads();
  }

  /* In the first block: the sum of the sorted list before this thread's keys. A thread has one key, or several
   * consecutive keys of a long list. */
  DEVICE void sum_list() {
    uint64_t sum = 0;
    uint32_t none = 0;
    list_share = s.listed <= SAMPLE_THREADS ? 1 : SAMPLE_LISTED / SAMPLE_THREADS;
    const uint32_t first = threadIdx.x * list_share;
    for (uint32_t i = first; i < min(first + list_share, s.listed); i++) sum += probability_of(keys[i]);
    list_sum = sum;
    scan(sum, none);
    list_before = s.asked.sum_before + sum - list_sum;
  }

  /* In the first block: finds the number in the sorted list. */
  DEVICE void find_in_list() {
    const uint32_t first = threadIdx.x * list_share;
    uint64_t sum = list_before;
    for (uint32_t i = first; i < min(first + list_share, s.listed); i++) {
      const uint64_t before = sum;
      sum += list_share == 1 ? list_sum : probability_of(keys[i]);
      if (s.asked.by_count ? s.asked.count_before + i + 1 == s.asked.needed
                           : before < s.asked.needed && sum >= s.asked.needed)
        s.found = keys[i], s.sum_to_found = sum;
    }
    __syncthreads();
  }

  /* The count or sum over those keys of the bin that are at least `key`, of all blocks. */
  DEVICE uint64_t sum_from(uint64_t key, bool by_count) {
    uint64_t sum = 0;
    each([&](float value, uint32_t column) {
      if (sample_key(value, column) < key || place_of(value).bin != s.asked.first_bin) return;
      sum += by_count ? 1 : sample_probability(sample_octaves(largest, factor, value));
    });
    return reduce(sum, [](uint64_t a, uint64_t b) { return a + b; });
  }

  /* In all blocks: finds the largest key for which sum_from(key) reaches the needed count or sum. */
  DEVICE void find_by_halves() {
    const uint64_t needed = s.asked.needed - (s.asked.by_count ? s.asked.count_before : s.asked.sum_before);
    uint64_t low = 0, high = ~0ull;
    while (low < high) {
      const uint64_t middle = high - (high - low) / 2;
      if (sum_from(middle, s.asked.by_count) >= needed)
        low = middle;
      else
        high = middle - 1;
    }
    const uint64_t sum = s.asked.sum_before + sum_from(low, false);
    __syncthreads();
    if (threadIdx.x == 0) s.found = low, s.sum_to_found = sum;
    __syncthreads();
  }

  /* In all blocks: divides a bin with too many numbers into smaller bins, and searches there. */
  DEVICE void divide_bin() {
    const bool by_count = s.asked.by_count;
    const uint64_t needed = s.asked.needed;
    divided = s.asked.first_bin, count_before = s.asked.count_before, sum_before = s.asked.sum_before;
    fill_bins(true);
    ask(by_count, needed, true);
    meet();
  }

  /* Called by all blocks: gives the first block the number at which the count or sum reaches `needed`, and the sum of
   * probabilities up to it. `is_known`: all blocks know `needed`; else only the first does. */
  DEVICE void find(bool by_count, uint64_t needed, bool is_known, bool is_last) {
    if (is_listed) {
      if (rank) return;
      __syncthreads();
      if (threadIdx.x == 0) s.asked.by_count = by_count, s.asked.needed = needed;
      __syncthreads();
      find_in_list();
      return;
    }
    if (is_known || rank == 0) ask(by_count, needed, is_last);
    if (is_known)
      meet();
    else
      tell();
    if (s.asked.ask == ASK_HALVES) divide_bin();
    is_listed = s.asked.ask == ASK_LIST && s.asked.first_bin == 0 && divided < 0;
    if (s.asked.ask == ASK_HALVES) {
      find_by_halves();
    } else {
      list_keys();
      if (rank == 0) {
        if (s.listed <= SAMPLE_COMPARED)
          sort_few();
        else
          sort_many();
        sum_list();
        find_in_list();
      }
    }
    if (divided < 0 || is_last) return;
    divided = -1, count_before = sum_before = 0;
    fill_bins(true);
  }

  /* ---- A draw -------------------------------------------------------------------------------------------------- */

  /* The key of the column that is drawn; only the first block has it. */
  DEVICE uint64_t draw() {
    if constexpr (Blocks > 1) arrive_at_cluster();
    const float temperature = p.temperature ? p.temperature[p.many_temperatures ? row : 0] : 1.0f;
    const float top_p = p.top_p ? p.top_p[p.many_ps ? row : 0] : 1.0f;
    const int32_t top_k = p.top_k ? p.top_k[p.many_ks ? row : 0] : 0;
    const uint32_t seed = p.seed[p.many_seeds ? row : 0],
                   step = p.step[p.many_steps == 1 ? row : 0] + (p.many_steps == 2 ? row : 0);
    const uint64_t key = largest_key();
    largest = sample_value_of_key(key), factor = sample_factor(temperature);
    if (!sample_is_drawn(largest, temperature, factor)) return key;
    const bool limits_k = top_k > 0 && (uint32_t)top_k < p.n, limits_p = !(top_p >= 1);
    fill_bins(!limits_k || top_k > SAMPLE_COUNTED);
    if (limits_k && top_k <= SAMPLE_COUNTED && is_beyond_list(top_k)) fill_bins(true);
    uint64_t sum = bin_sums[SAMPLE_BINS - 1];
    if (limits_k) {
      find(true, min((uint32_t)top_k, bin_counts[SAMPLE_BINS - 1]), true, false);
      sum = s.sum_to_found;
    }
    if (limits_p) {
      find(false, sample_needed(top_p, sum), !limits_k, false);
      sum = s.sum_to_found;
    }
    find(false, sample_drawn(sample_random(seed, step), sum), !limits_k && !limits_p, true);
    return s.found;
  }

  /* Do the bins that reach this count have too many numbers to be listed together? */
  DEVICE bool is_beyond_list(uint32_t count) {
    const uint32_t bin = threadIdx.x, up_to = bin_counts[bin], before = bin ? bin_counts[bin - 1] : 0;
    return __syncthreads_or(before < count && up_to > SAMPLE_TOGETHER && up_to >= count);
  }
};

template <int Blocks> DEVICE void sample_row(const sample_parameters &p) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ sampler_shared shared;
  sampler<Blocks> sampler(p, shared, dynamic);
  const uint64_t key = sampler.draw();
  if (sampler.rank == 0 && threadIdx.x == 0) p.out[sampler.row] = (int32_t)sample_column_of_key(key);
}

SAMPLE_KERNELS(DEFINE_KERNEL)

#if __CUDA_ARCH__ >= 900
#define DEFINE_CLUSTER(chips, parameters, name, threads, blocks, ...)                                                  \
  DEFINE_CLUSTER_KERNEL(only_wait_for_predecessors(), SAMPLE_CLUSTER, parameters, name, threads, blocks, __VA_ARGS__)
SAMPLE_CLUSTER_KERNELS(DEFINE_CLUSTER)
#endif
