/* speed_plot.h - pictures of TFLOP/s: of attention over the length of prompts, of products over the number of vectors.
 */
#pragma once

#include "kernel_results.h"
#include "softmax_results.h"

/* Writes an SVG of the prompts with as many query heads as KV heads, and as many queries as KV rows. It has a panel for
 * each head dimension of 64 and 128, causal and not. A panel has a line for Rondo and for each rival: solid after a
 * pause, dashed under sustained load. Returns false after a sentence on stderr if the file was not written
 * completely. */
bool speed_plot_attention(const char *path, const struct softmax_results *results,
                          const struct softmax_results *rivals);

/* The same of products: a panel for each matrix, and a line for each pair of types, dashed for the rivals. */
bool speed_plot_products(const char *path, const struct kernel_results *results, const struct kernel_results *rivals);
