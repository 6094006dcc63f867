/* softmax_results.h - what the timing of attention and of the fused softmax found: lines of a table and of JSON, what
 * each must reach, and the same read back from a file. No device. */
#ifndef RONDO_SOFTMAX_RESULTS_H
#define RONDO_SOFTMAX_RESULTS_H

#include "../json_lines.h"
#include "softmax_case.h"
#include "timing.h"

enum { SOFTMAX_RESULTS_MOST = 512, SOFTMAX_NAME_BYTES = 64, SOFTMAX_DEVICE_BYTES = 96 };

/* Ours, or a rival's, of which only the case, the state, the time and the name count. */
struct softmax_result {
  struct softmax_case shape;
  enum softmax_state state;
  double us;
  double read_us;                  /* decode: the same bytes, only read; else 0 */
  bool is_portable;                /* the kernels of a chip without wgmma */
  char kernel[SOFTMAX_NAME_BYTES]; /* a rival: its name */
};

struct softmax_results {
  char device[SOFTMAX_DEVICE_BYTES];
  size_t count;
  struct softmax_result items[SOFTMAX_RESULTS_MOST];
};

void softmax_results_add(struct softmax_results *results, const struct softmax_result *result);
/* Adds a line of a file, if it has a time of a case. */
void softmax_results_take(struct softmax_results *results, const struct json_object *object);

/* The fastest rival in the same state; NULL: there is none. Beside portable kernels FlashAttention-2 alone counts,
 * which is as portable. */
const struct softmax_result *softmax_best_rival(const struct softmax_results *rivals,
                                                const struct softmax_result *result);
/* The most that results->items[index] may take, by what is known so far: the results before it, and the rivals. 0:
 * nothing is asked of it. */
double softmax_must_us(const struct softmax_results *results, size_t index, const struct softmax_results *rivals);

/* A line of the table and of the JSON; counts what is missed. */
void softmax_result_report(struct report *report, const struct softmax_results *results, size_t index,
                           const struct softmax_results *rivals);

#endif
