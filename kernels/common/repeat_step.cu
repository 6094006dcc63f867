/* repeat_step.cu - the kernel of one block that ends each step of a repeat: the last kernel in the body of the graph's
 * loop.
 *
 * It copies the outputs to the step's place, tells the host that the step is done, and decides whether it was the last.
 * The driver itself has the code of cudaGraphSetConditional, so nothing is linked to this file. */
#include "launch.cuh"
#include "repeat_step.h"

enum { CONTROL_WORDS = sizeof(repeat_control) / sizeof(uint32_t) };

/* The host may write at the same time. */
DEVICE uint32_t load_control_word(const repeat_control *control, uint32_t index) {
  uint32_t word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];"
               : "=r"(word)
               : "l"(reinterpret_cast<const uint32_t *>(control) + index)
               : "memory");
  return word;
}

DEVICE bool is_end(const repeat_control &control) {
  if (control.stop || control.done + 1 >= control.count) return true;
  if (!control.until) return false;
  const int32_t value = *control.until;
  bool found = !control.value_count && value != 0;
  for (uint32_t i = 0; i < control.value_count; i++) found |= value == control.values[i];
  return found;
}

/* Control and outputs lie in pinned memory. Their loads are in flight together, since each takes a microsecond. */
DEVICE void end_step(const repeat &repeat, repeat_control &control) {
  const uint64_t vectors = repeat.place_bytes / sizeof(uint4);
  const uint4 *outputs = reinterpret_cast<const uint4 *>(repeat.outputs);
  uint4 first = {};
  if (threadIdx.x < vectors) first = outputs[threadIdx.x];
  if (threadIdx.x < CONTROL_WORDS)
    reinterpret_cast<uint32_t *>(&control)[threadIdx.x] = load_control_word(repeat.control, threadIdx.x);
  __syncthreads();
  if (control.done >= control.count) __trap(); /* the loop went on after its last step, where no places are */
  uint4 *place = reinterpret_cast<uint4 *>(repeat.places + control.done * repeat.place_bytes);
  if (threadIdx.x < vectors) place[threadIdx.x] = first;
#pragma unroll 4
  for (uint64_t i = threadIdx.x + blockDim.x; i < vectors; i += blockDim.x) place[i] = outputs[i];
}

/* The last statement, as publish in launch.cuh. After the last step the loop ends, and so does the replay for the host:
 * all words of completion count one replay. */
DEVICE void publish(const repeat_parameters &p, const repeat_control &control) {
  __syncthreads();
  if (threadIdx.x) return;
  const bool is_last = is_end(control);
  if (is_last) cudaGraphSetConditional(p.condition, 0);
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(&p.repeat.control->done), "r"(control.done + 1) : "memory");
  for (uint32_t i = 0; is_last && i < p.word_count; i++) {
    const uint64_t number = p.done.counts[i] + 1;
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p.done.words + i), "l"(number) : "memory");
    p.done.counts[i] = number;
  }
}

#define DEFINE(chips, parameters, name, threads, constant)                                                             \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ parameters p) {                   \
    wait_for_predecessors();                                                                                           \
    __shared__ repeat_control control;                                                                                 \
    end_step(p.repeat, control);                                                                                       \
    publish(p, control);                                                                                               \
  }
REPEAT_KERNELS(DEFINE)
