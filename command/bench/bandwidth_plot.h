/* bandwidth_plot.h - a picture of results: how near to the read rate each product comes, over how much it moves. */
#ifndef RONDO_BANDWIDTH_PLOT_H
#define RONDO_BANDWIDTH_PLOT_H

#include "kernel_results.h"

/* Writes an SVG of the products with the fewest vectors: a line for each pair of types, one for reading alone, a dash
 * at what each must reach. false, with a sentence: the file was not written whole. */
bool bandwidth_plot_write(const char *path, const struct kernel_results *results, const struct kernel_results *rivals);

#endif
