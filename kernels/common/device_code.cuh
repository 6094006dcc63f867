/* device_code.cuh - two words of all device code.
 *
 * DEVICE marks a function that is a part of the kernels that call it.
 *
 * unroll<4, 2>([&](int i, int j) { ... }) is two nested loops, both unrolled: otherwise the index of a register would
 * not be a constant. `return` goes on to the next step. */
#ifndef RONDO_DEVICE_CODE_CUH
#define RONDO_DEVICE_CODE_CUH

#define DEVICE __device__ __forceinline__

template <int Count, typename Function> DEVICE void unroll(Function step) {
#pragma unroll
  for (int i = 0; i < Count; i++) step(i);
}
template <int Count, int Inner, typename Function> DEVICE void unroll(Function step) {
  unroll<Count>([&](int i) { unroll<Inner>([&](int j) { step(i, j); }); });
}
template <int Count, int Middle, int Inner, typename Function> DEVICE void unroll(Function step) {
  unroll<Count>([&](int i) { unroll<Middle, Inner>([&](int j, int k) { step(i, j, k); }); });
}

#endif
