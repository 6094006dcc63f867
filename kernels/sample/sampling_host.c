/* sampling_host.c - draws a column of each row on the host. An item is a row.
 *
 * find() searches for the key at which a running count or sum reaches a number. It determines the key's digits of 8
 * bits, the highest first. One pass over the row adds up, for each value of the next digit, the keys with the digits
 * found so far. */
#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "sample_number.h"
#include "sampling.h"
#include "setting.h"

enum { PIECE = 1024, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };

struct row {
  rondo_dtype dtype;
  const void *data;
  int64_t begin, n;
  float largest, factor; /* arguments of sample_octaves */
};

int64_t sample_host_items(const struct op_task *task) { return task->operands[SAMPLE_X].shape[0]; }

static uint64_t largest_key(const struct row *row) {
  uint64_t largest = 0;
  float values[PIECE];
  for (int64_t column = 0; column < row->n; column += PIECE) {
    int64_t length = smaller(row->n - column, PIECE);
    rows_load(row->dtype, row->data, row->begin + column, length, values);
    for (int64_t i = 0; i < length; i++) {
      uint64_t key = sample_key(values[i], (uint32_t)(column + i));
      largest = key > largest ? key : largest;
    }
  }
  return largest;
}

/* For each key whose digits above `shift` + 8 bits are those of `prefix`: adds 1 or its probability to the sum of its
 * digit at `shift`. */
static void sum_digits(const struct row *row, bool by_count, uint64_t prefix, int shift, uint64_t *sums) {
  float values[PIECE];
  for (int64_t column = 0; column < row->n; column += PIECE) {
    int64_t length = smaller(row->n - column, PIECE);
    rows_load(row->dtype, row->data, row->begin + column, length, values);
    for (int64_t i = 0; i < length; i++) {
      uint64_t key = sample_key(values[i], (uint32_t)(column + i));
      if (shift + DIGIT_BITS < 64 && key >> (shift + DIGIT_BITS) != prefix >> (shift + DIGIT_BITS)) continue;
      float octaves = sample_octaves(row->largest, row->factor, values[i]);
      if (octaves >= SAMPLE_OCTAVES) continue;
      sums[key >> shift & (DIGITS - 1)] += by_count ? 1 : sample_probability(octaves);
    }
  }
}

/* The key at which the count or sum reaches `needed`, from the largest key down; 0 if it does not reach it. */
static uint64_t find(const struct row *row, bool by_count, uint64_t needed) {
  uint64_t prefix = 0;
  for (int shift = 64 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
    uint64_t sums[DIGITS] = {0};
    int digit = DIGITS - 1;
    sum_digits(row, by_count, prefix, shift, sums);
    for (; digit >= 0 && sums[digit] < needed; digit--) needed -= sums[digit];
    if (digit < 0) return 0;
    prefix |= (uint64_t)digit << shift;
  }
  return prefix;
}

/* The sum of probabilities of all keys that are at least `key`. */
static uint64_t sum_down_to(const struct row *row, uint64_t key) {
  uint64_t sum = 0;
  float values[PIECE];
  for (int64_t column = 0; column < row->n; column += PIECE) {
    int64_t length = smaller(row->n - column, PIECE);
    rows_load(row->dtype, row->data, row->begin + column, length, values);
    for (int64_t i = 0; i < length; i++)
      if (sample_key(values[i], (uint32_t)(column + i)) >= key)
        sum += sample_probability(sample_octaves(row->largest, row->factor, values[i]));
  }
  return sum;
}

static uint64_t draw(const struct op_call *call, int64_t index, struct row *row) {
  uint64_t largest = largest_key(row), sum, last;
  float temperature = setting_real(call, SAMPLE_TEMPERATURE, index, 1),
        top_p = setting_real(call, SAMPLE_TOP_P, index, 1);
  int32_t top_k = setting_whole(call, SAMPLE_TOP_K, index, 0);
  row->largest = sample_value_of_key(largest), row->factor = sample_factor(temperature);
  if (!sample_is_drawn(row->largest, temperature, row->factor)) return largest;
  last = top_k > 0 ? find(row, true, (uint64_t)top_k) : 0;
  sum = sum_down_to(row, last);
  if (!(top_p >= 1)) sum = sum_down_to(row, find(row, false, sample_needed(top_p, sum)));
  const struct sample_attributes *attributes = op_attributes(call->task);
  const uint32_t step =
      (uint32_t)setting_whole(call, SAMPLE_STEP, index, 0) + (attributes->steps_follow ? (uint32_t)index : 0);
  uint64_t random = sample_random((uint32_t)setting_whole(call, SAMPLE_SEED, index, 0), step);
  return find(row, false, sample_drawn(random, sum));
}

void sample_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_operand *x = &call->task->operands[SAMPLE_X];
  int32_t *out = call->data[SAMPLE_OUT];
  for (int64_t i = first; i < last; i++) {
    struct row row = {x->dtype, call->data[SAMPLE_X], i * x->stride[0], x->shape[1], 0, 0};
    out[i] = (int32_t)sample_column_of_key(draw(call, i, &row));
  }
}
