/* done.cu - the last node of every graph: publishes the replay's number where the host waits for it.
 *
 * One thread. The graph's edges order all other nodes before it; the release at system scope passes their writes, to
 * pinned memory too, on to the host that acquires the value. */
#include "../../runtime/cuda/done.h"

extern "C" __global__ void __launch_bounds__(1) rondo_done(const __grid_constant__ done_parameters p) {
  uint64_t count = *p.replay_count + 1;
  *p.replay_count = count;
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p.completion), "l"(count) : "memory");
}
