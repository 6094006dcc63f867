/* bandwidth_plot.h - a picture of products: the share of the read rate that each reaches, over the bytes that it
 * moves. */
#pragma once

#include "kernel_results.h"

/* Writes an SVG of the products with the fewest vectors: a line for each pair of types, one for reading alone, and a
 * dash at the share that each must reach. Returns false after a sentence on stderr if the file was not written
 * completely. */
bool bandwidth_plot_write(const char *path, const struct kernel_results *results, const struct kernel_results *rivals);
