/* bits.h - square bit matrices: rows of 64-bit words, for reachability and conflicts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct bit_matrix {
  uint64_t *words;
  uint32_t row_words;
};

static inline uint32_t bit_row_words(uint32_t columns) { return (columns + 63) / 64; }

static inline uint64_t bit_matrix_bytes(uint32_t rows, uint32_t columns) {
  return (uint64_t)rows * bit_row_words(columns) * sizeof(uint64_t);
}

static inline uint64_t *bit_row(const struct bit_matrix *matrix, uint32_t row) {
  return matrix->words + (uint64_t)row * matrix->row_words;
}

static inline bool bit_get(const uint64_t *row, uint32_t bit) { return (row[bit / 64] >> (bit % 64)) & 1u; }
static inline void bit_put(uint64_t *row, uint32_t bit) { row[bit / 64] |= UINT64_C(1) << (bit % 64); }
static inline void bit_drop(uint64_t *row, uint32_t bit) { row[bit / 64] &= ~(UINT64_C(1) << (bit % 64)); }

static inline void bits_or(uint64_t *into, const uint64_t *from, uint32_t words) {
  for (uint32_t i = 0; i < words; i++) into[i] |= from[i];
}

/* Are all bits from `begin` up to, but not including, `end` set? */
static inline bool bits_are_set(const uint64_t *row, uint32_t begin, uint32_t end) {
  for (uint32_t bit = begin; bit < end; bit = (bit | 63) + 1) {
    uint64_t mask = ~UINT64_C(0) << (bit % 64);
    if (end - bit / 64 * 64 < 64) mask &= ~(~UINT64_C(0) << (end % 64));
    if (~row[bit / 64] & mask) return false;
  }
  return true;
}

/* for (uint32_t bit = bits_next(row, words, 0); bit < words * 64; bit = bits_next(row, words, bit + 1)) */
static inline uint32_t bits_next(const uint64_t *row, uint32_t words, uint32_t from) {
  uint32_t word = from / 64;
  if (word >= words) return words * 64;
  uint64_t rest = row[word] >> (from % 64) << (from % 64);
  while (!rest) {
    if (++word == words) return words * 64;
    rest = row[word];
  }
  return word * 64 + (uint32_t)__builtin_ctzll(rest);
}
