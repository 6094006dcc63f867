/* send.cuh - sends words and numbers to another block of a cluster, whose barrier counts their bytes (PTX ISA,
 * st.async). A block waits for its own bytes only; the cluster does not meet. A barrier handles one packet at a time:
 * sixteen bytes take as long as four. */
#pragma once

#include "cluster.cuh"
#include "device_code.cuh"

DEVICE void send_word(uint32_t to, uint32_t value, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(value),
               "r"(barrier)
               : "memory");
}

DEVICE void send_four_words(uint32_t to, const uint32_t (&word)[4], uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]), "r"(barrier)
      : "memory");
}

DEVICE void send_four_words(uint32_t to, const uint4 &words, uint32_t barrier) {
  send_four_words(to, {words.x, words.y, words.z, words.w}, barrier);
}

DEVICE void send_two(uint32_t to, float2 value, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "f"(value.x), "f"(value.y), "r"(barrier)
               : "memory");
}
DEVICE void send_four(uint32_t to, float4 value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
      : "memory");
}

/* Words of four lanes to all blocks of a cluster of eight, two a lane; `to`: sixteen bytes in this block, `barrier`
 * too. */
DEVICE void send_of_four_lanes(uint32_t word, uint32_t to, uint32_t barrier) {
  uint32_t words[4];
  unrolled_for (uint32_t i = 0; i < 4; i++) words[i] = __shfl_sync(0xffffffffu, word, i, 4);
  unrolled_for (uint32_t i = 0; i < 8; i += 4) {
    const uint32_t block = threadIdx.x % 4 + i;
    send_four_words(address_in_block(to, block), words, address_in_block(barrier, block));
  }
}
