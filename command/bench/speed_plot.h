/* speed_plot.h - a picture of attention results: the speed of Rondo and of rivals over the length of prompts. */
#pragma once

#include "softmax_results.h"

/* Writes an SVG of the prompts with as many query heads as KV heads, and as many queries as KV rows. It has a panel for
 * each head dimension of 64 and 128, causal and not. A panel has a line for Rondo and for each rival: solid after a
 * pause, dashed under sustained load. Returns false after a sentence on stderr if the file was not written
 * completely. */
bool speed_plot_write(const char *path, const struct softmax_results *results, const struct softmax_results *rivals);
