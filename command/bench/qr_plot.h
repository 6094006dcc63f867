/* qr_plot.h - a picture of QR results: the speed of 1000 square factorisations over their size. */
#pragma once

#include "qr_results.h"

/* Writes an SVG of 1000 square matrices, cold. The upper panel has GFLOP/s over n, both logarithmic, and the bound. The
 * lower panel has the fraction of the bound. Both have a line for Rondo in f32 and in f64, and for each rival. Returns
 * false after a sentence on stderr if the file was not written completely. */
bool qr_plot_write(const char *path, const struct qr_results *results, const struct qr_results *rivals);
