/* recent.cu - the kernel of two operations on recent tokens: a penalty, which makes columns less likely whose ids were
 * drawn recently and accesses these columns only; and prompt lookup (prompt_lookup.cuh).
 *
 * A penalty is bound by the time to the first instruction and by two dependent loads: the id, then its column. A row
 * has one block, an id one thread. */
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "prompt_lookup.cuh"

DEVICE float setting(const float *settings, uint32_t many, float absent) {
  return settings ? settings[many ? blockIdx.x : 0] : absent;
}

/* Rounds as the host does: product and difference are not fused. */
DEVICE float penalized(float value, float times, float repetition, float frequency, float presence) {
  value = value > 0 ? __fdiv_rn(value, repetition) : __fmul_rn(value, repetition);
  return __fsub_rn(__fsub_rn(value, __fmul_rn(times, frequency)), presence);
}

DEVICE void penalize_row(const penalty_parameters &p) {
  __shared__ int32_t ids[PENALTY_MOST_IDS];
  const int64_t row = blockIdx.x;
  const float repetition = setting(p.repetition, p.many_repetitions, 1);
  const float frequency = setting(p.frequency, p.many_frequencies, 0);
  const float presence = setting(p.presence, p.many_presences, 0);
  for (uint32_t i = threadIdx.x; i < p.length; i += PENALTY_THREADS) ids[i] = p.ids[row * p.ids_stride + i];
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < p.length; i += PENALTY_THREADS) {
    const int32_t id = ids[i];
    uint32_t earlier = 0, times = 0;
    for (uint32_t j = 0; j < p.length; j++) {
      earlier += j < i && ids[j] == id;
      times += ids[j] == id;
    }
    /* The thread of an id's first occurrence changes the column; others skip it. */
    if (earlier || id < 0 || uint32_t(id) >= p.n) continue;
    const int64_t element = row * p.stride + id;
    const float value = load_number(p.dtype, p.x, element);
    store_number(p.dtype, p.x, element, penalized(value, float(times), repetition, frequency, presence));
  }
}

DEVICE void look_at_recent(const recent_parameters &p) {
  if (p.is_lookup)
    look_up(p.lookup);
  else
    penalize_row(p.penalty);
}

RECENT_KERNELS(DEFINE_SHORT_KERNEL)
