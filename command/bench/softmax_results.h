/* softmax_results.h - results of timing attention and the fused softmax: lines of a table and of JSON, the figures to
 * reach, and reading results from a file. It uses no device. */
#pragma once

#include "../json_lines.h"
#include "softmax_case.h"
#include "timing.h"

enum { SOFTMAX_RESULTS_MOST = 512, SOFTMAX_NAME_BYTES = 64, SOFTMAX_DEVICE_BYTES = 96 };

/* A result of Rondo or of a rival. A rival's has a case, a state, a time and a name; its other fields do not count. */
struct softmax_result {
  struct softmax_case shape;
  enum softmax_state state;
  double us;
  double read_us;                  /* decode: of only reading the same bytes; else 0 */
  bool is_portable;                /* the kernels of a chip without wgmma */
  char kernel[SOFTMAX_NAME_BYTES]; /* or the rival's name */
};

struct softmax_results {
  char device[SOFTMAX_DEVICE_BYTES];
  size_t count;
  struct softmax_result items[SOFTMAX_RESULTS_MOST];
};

void softmax_results_add(struct softmax_results *results, const struct softmax_result *result);
/* Adds an object of a file, if it has the time of a case. */
void softmax_results_take(struct softmax_results *results, const struct json_object *object);

/* The fastest rival in the same state. NULL if there is none. For portable kernels only FlashAttention-2 counts, which
 * is portable too. */
const struct softmax_result *softmax_best_rival(const struct softmax_results *rivals,
                                                const struct softmax_result *result);
/* The most time that results->items[index] may take. It follows from the results before it, and from the rivals. 0:
 * there is no figure to reach. */
double softmax_must_us(const struct softmax_results *results, size_t index, const struct softmax_results *rivals);

/* Writes a line of the table and of the JSON. Counts a missed figure. */
void softmax_result_report(struct report *report, const struct softmax_results *results, size_t index,
                           const struct softmax_results *rivals);
