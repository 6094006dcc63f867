/* first_fit.c - see first_fit.h: for hundreds of buffers, or hundreds of thousands.
 *
 * A buffer goes into the lowest gap between the placed buffers that it conflicts with. To find the gap, these are
 * visited by ascending offset. If they are few, they are collected from the buffer's row and sorted. If they are many,
 * all placed buffers are visited in the order of their offsets. Two lists keep that order: a long one, and a short one
 * of at most a batch, so that an insertion never moves many entries. After each batch the short list is merged into the
 * long one. */
#include "first_fit.h"

#include <string.h>

#include "cutter.h"
#include "heap.h"

static bool comes_after(const void *keys, uint32_t a, uint32_t b) {
  uint64_t left = ((const uint64_t *)keys)[a], right = ((const uint64_t *)keys)[b];
  return left != right ? left < right : a > b;
}

void first_fit_order(uint32_t count, const uint64_t *keys, uint32_t *order) {
  for (uint32_t i = 0; i < count; i++) order[i] = i;
  heap_sort((struct heap){order, count, comes_after, keys});
}

struct placed {
  uint64_t begin, end;
  uint32_t buffer;
};

struct packing {
  struct placed *lying, *spare; /* by offset; the spare one is what the next merge fills */
  struct placed *recent;        /* by offset: those of the current batch */
  uint32_t lying_count, recent_count;
  uint32_t *found; /* those in conflict with one buffer */
  uint64_t *mask;  /* the placed buffers */
  uint64_t *rows;
};

static struct packing cut_packing(struct cutter *cutter, uint32_t count) {
  struct packing packing = {0};
  packing.lying = cut(cutter, count * sizeof *packing.lying);
  packing.spare = cut(cutter, count * sizeof *packing.spare);
  packing.recent = cut(cutter, FIRST_FIT_BATCH * sizeof *packing.recent);
  packing.found = cut(cutter, count * sizeof *packing.found);
  packing.mask = cut(cutter, bit_matrix_bytes(1, count));
  packing.rows = cut(cutter, bit_matrix_bytes(count < FIRST_FIT_BATCH ? count : FIRST_FIT_BATCH, count));
  return packing;
}

uint64_t first_fit_work_bytes(uint32_t count) {
  struct cutter cutter = {0};
  cut_packing(&cutter, count);
  return cutter.used;
}

static bool lies_higher(const void *offsets, uint32_t a, uint32_t b) {
  return ((const uint64_t *)offsets)[a] > ((const uint64_t *)offsets)[b];
}

/* Passes one placed buffer, by ascending offset. Is the gap below it wide enough? Else *end is where the next begins.
 */
static bool gap_before(uint64_t next_begin, uint64_t next_end, uint64_t bytes, uint64_t *end) {
  if (next_begin >= *end && next_begin - *end >= bytes) return true;
  if (next_end > *end) *end = next_end;
  return false;
}

static uint64_t fit_among_few(struct packing *packing, const uint64_t *row, uint32_t words, uint64_t bytes,
                              const uint64_t *all_bytes, const uint64_t *offsets) {
  uint32_t count = 0;
  uint64_t end = 0;
  for (uint32_t w = 0; w < words; w++)
    for (uint64_t bits = row[w] & packing->mask[w]; bits; bits &= bits - 1)
      packing->found[count++] = w * 64 + (uint32_t)__builtin_ctzll(bits);
  heap_sort((struct heap){packing->found, count, lies_higher, offsets});
  for (uint32_t i = 0; i < count; i++) {
    uint32_t b = packing->found[i];
    if (gap_before(offsets[b], offsets[b] + all_bytes[b], bytes, &end)) break;
  }
  return end;
}

static uint64_t fit_among_many(const struct packing *packing, const uint64_t *row, uint64_t bytes) {
  const struct placed *a = packing->lying, *a_end = a + packing->lying_count;
  const struct placed *b = packing->recent, *b_end = b + packing->recent_count;
  uint64_t end = 0;
  while (a < a_end || b < b_end) {
    const struct placed *next = b == b_end || (a < a_end && a->begin <= b->begin) ? a++ : b++;
    if (bit_get(row, next->buffer) && gap_before(next->begin, next->end, bytes, &end)) break;
  }
  return end;
}

static void put(struct packing *packing, struct placed placed) {
  uint32_t i = packing->recent_count++;
  for (; i > 0 && packing->recent[i - 1].begin > placed.begin; i--) packing->recent[i] = packing->recent[i - 1];
  packing->recent[i] = placed;
  bit_put(packing->mask, placed.buffer);
}

static void merge_recent(struct packing *packing) {
  struct placed *into = packing->spare, *a = packing->lying, *b = packing->recent;
  struct placed *a_end = a + packing->lying_count, *b_end = b + packing->recent_count;
  while (a < a_end || b < b_end) *into++ = b == b_end || (a < a_end && a->begin <= b->begin) ? *a++ : *b++;
  packing->spare = packing->lying;
  packing->lying = into - (packing->lying_count + packing->recent_count);
  packing->lying_count += packing->recent_count;
  packing->recent_count = 0;
}

uint64_t first_fit(uint32_t count, const uint64_t *bytes, const uint32_t *order, conflict_rows rows, void *context,
                   uint64_t *offsets, void *work) {
  enum { FEW = 16 }; /* at most one in FEW of the placed buffers: sorting them costs less than visiting all */
  struct packing packing = cut_packing(&(struct cutter){work, 0}, count);
  uint32_t words = bit_row_words(count);
  memset(packing.mask, 0, bit_matrix_bytes(1, count));
  uint64_t peak = 0;
  for (uint32_t begin = 0; begin < count; begin += FIRST_FIT_BATCH) {
    uint32_t batch = count - begin < FIRST_FIT_BATCH ? count - begin : FIRST_FIT_BATCH;
    rows(context, order + begin, batch, packing.rows);
    for (uint32_t i = 0; i < batch; i++) {
      uint32_t b = order[begin + i];
      const uint64_t *row = packing.rows + (uint64_t)i * words;
      offsets[b] = 0;
      if (!bytes[b]) continue;
      uint32_t in_conflict = 0;
      for (uint32_t w = 0; w < words; w++) in_conflict += (uint32_t)__builtin_popcountll(row[w] & packing.mask[w]);
      bool is_few = in_conflict <= (packing.lying_count + packing.recent_count) / FEW;
      offsets[b] = is_few ? fit_among_few(&packing, row, words, bytes[b], bytes, offsets)
                          : fit_among_many(&packing, row, bytes[b]);
      put(&packing, (struct placed){offsets[b], offsets[b] + bytes[b], b});
      if (offsets[b] + bytes[b] > peak) peak = offsets[b] + bytes[b];
    }
    merge_recent(&packing);
  }
  return peak;
}
