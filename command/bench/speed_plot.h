/* speed_plot.h - a picture of results: how fast attention of long prompts is, over their length, ours and rivals'. */
#ifndef RONDO_SPEED_PLOT_H
#define RONDO_SPEED_PLOT_H

#include "softmax_results.h"

/* Writes an SVG of the prompts with as many heads and queries as there are of K and V: a panel for each head dimension
 * of 64 and 128, causal and not; in it lines for ours and for each rival, whole behind a pause and dashed under
 * sustained load. false, with a sentence: the file was not written whole. */
bool speed_plot_write(const char *path, const struct softmax_results *results, const struct softmax_results *rivals);

#endif
