/* repeat_step.cu - the kernel of one block that ends each step of a repeat, by parts in a loop's body of several steps
 * (repeat_control.h).
 *
 * It copies the outputs to the step's place, tells the host that the step is done, and decides whether it was the last.
 * The driver itself has the code of cudaGraphSetConditional, so nothing is linked to this file. */
#include "repeat_step.h"
#include "settled.cuh"

/* Without the kept states. */
enum { CONTROL_WORDS = offsetof(repeat_control, kept) / sizeof(uint32_t) };

/* The host may write at the same time. */
DEVICE uint32_t load_live(const uint32_t *from) {
  uint32_t word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

DEVICE bool is_end(const repeat_control &control, uint32_t done) {
  if (control.stop || control.has_ended || done >= control.count) return true;
  if (!control.until) return false;
  const int32_t value = *control.until;
  bool found = !control.value_count && value != 0;
  for (uint32_t i = 0; i < control.value_count; i++) found |= value == control.values[i];
  return found;
}

/* ---- Kept states ------------------------------------------------------------------------------------------------- */

DEVICE void keep(const repeat_parameters &p) {
  uint32_t *to = p.repeat.control->kept;
  for (uint32_t k = 0; k < REPEAT_KEPT; to += p.kept[k++].count)
    for (uint32_t i = threadIdx.x; i < p.kept[k].count; i += blockDim.x) to[i] = p.kept[k].words[i];
}

DEVICE void give_back(const repeat_parameters &p) {
  const uint32_t *from = p.repeat.control->kept;
  for (uint32_t k = 0; k < REPEAT_KEPT; from += p.kept[k++].count)
    for (uint32_t i = threadIdx.x; i < p.kept[k].count; i += blockDim.x) p.kept[k].words[i] = load_live(from + i);
}

/* ---- The parts --------------------------------------------------------------------------------------------------- */

DEVICE void begin(const repeat_parameters &p) {
  keep(p);
  if (threadIdx.x == 0) p.repeat.control->has_ended = 0;
}

/* The control is as it was when this kernel was launched. Kernels of the next step fetch states early, so they start
 * when these are given back. */
DEVICE void decide(const repeat_parameters &p, const repeat_control &control) {
  if (control.stop || control.has_ended) {
    give_back(p);
    if (threadIdx.x == 0) p.repeat.control->has_ended = 1;
    __threadfence_system();
    __syncthreads();
  }
  let_successors_start();
}

/* Control and outputs lie in pinned memory. Their loads are in flight together, since each takes a microsecond. Returns
 * the steps that are done. */
DEVICE uint32_t tell(const repeat_parameters &p, repeat_control &control) {
  const repeat &repeat = p.repeat;
  const uint64_t vectors = repeat.place_bytes / sizeof(uint4);
  const uint4 *outputs = reinterpret_cast<const uint4 *>(repeat.outputs);
  uint4 first = {};
  if (threadIdx.x < vectors) first = outputs[threadIdx.x];
  if (threadIdx.x < CONTROL_WORDS)
    reinterpret_cast<uint32_t *>(&control)[threadIdx.x] =
        load_live(reinterpret_cast<const uint32_t *>(repeat.control) + threadIdx.x);
  __syncthreads();
  if (control.has_ended && !(p.work & REPEAT_ENDS)) return control.done;
  if (control.done >= control.count) __trap(); /* the loop went on after its last step, where no places are */
  uint4 *place = reinterpret_cast<uint4 *>(repeat.places + control.done * repeat.place_bytes);
  if (threadIdx.x < vectors) place[threadIdx.x] = first;
#pragma unroll 4
  for (uint64_t i = threadIdx.x + blockDim.x; i < vectors; i += blockDim.x) place[i] = outputs[i];
  keep(p);
  return control.done + 1;
}

DEVICE uint32_t run(const repeat_parameters &p, repeat_control &control) {
  if (p.work & REPEAT_BEGINS) begin(p);
  if (p.work & REPEAT_DECIDES) decide(p, control);
  return p.work & REPEAT_TELLS ? tell(p, control) : 0;
}

/* The last statement, as publish in launch.cuh. After the last step the loops end, and so does the replay for the host:
 * all words of completion count one replay. */
DEVICE void publish(const repeat_parameters &p, const repeat_control &control, uint32_t done) {
  if (!(p.work & REPEAT_TELLS)) return;
  __syncthreads();
  if (threadIdx.x) return;
  const bool is_last = p.work & REPEAT_ENDS && is_end(control, done);
  if (p.work & REPEAT_ENDS && (is_last || control.count - done < p.steps)) cudaGraphSetConditional(p.loop, 0);
  if (is_last && p.rest) cudaGraphSetConditional(p.rest, 0);
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(&p.repeat.control->done), "r"(done) : "memory");
  for (uint32_t i = 0; is_last && i < p.word_count; i++) {
    const uint64_t number = p.done.counts[i] + 1;
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p.done.words + i), "l"(number) : "memory");
    p.done.counts[i] = number;
  }
}

/* What decides has the control before it waits: it stands between a step and the next. */
#define DEFINE(chips, parameters, name, threads, constant)                                                             \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    __shared__ repeat_control control;                                                                                 \
    if (p.work & REPEAT_DECIDES) {                                                                                     \
      if (threadIdx.x < CONTROL_WORDS)                                                                                 \
        reinterpret_cast<uint32_t *>(&control)[threadIdx.x] =                                                          \
            load_settled(reinterpret_cast<const uint32_t *>(p.repeat.control) + threadIdx.x);                          \
      __syncthreads();                                                                                                 \
    }                                                                                                                  \
    only_wait_for_predecessors();                                                                                      \
    const uint32_t done = run(p, control);                                                                             \
    publish(p, control, done);                                                                                         \
  }
REPEAT_KERNELS(DEFINE)
