/* device_code.cuh - four words of all device code.
 *
 * DEVICE marks a function that is a part of the kernels that call it.
 *
 * unrolled_for is a loop that the compiler unrolls wholly; rolled_for is one that it does not unroll.
 *
 * unroll<4, 2>([&](int i, int j) { ... }) is two nested loops, both unrolled: otherwise the index of a register would
 * not be a constant. `return` goes on to the next step. */
#pragma once

#define DEVICE __device__ __forceinline__
#define unrolled_for _Pragma("unroll") for
#define rolled_for _Pragma("unroll 1") for

template <int Count, typename Function> DEVICE void unroll(Function step) {
  unrolled_for (int i = 0; i < Count; i++) step(i);
}
template <int Count, int Inner, typename Function> DEVICE void unroll(Function step) {
  unroll<Count>([&](int i) { unroll<Inner>([&](int j) { step(i, j); }); });
}
template <int Count, int Middle, int Inner, typename Function> DEVICE void unroll(Function step) {
  unroll<Count>([&](int i) { unroll<Middle, Inner>([&](int j, int k) { step(i, j, k); }); });
}
