/* qr_plot.h - a picture of results: how fast a thousand square QR factorisations are, over their size. */
#ifndef RONDO_QR_PLOT_H
#define RONDO_QR_PLOT_H

#include "qr_results.h"

/* Writes an SVG of the square matrices, a thousand of them, cold: GFLOP/s over n, by their logarithm, with those of
 * the bound, and below the fraction of the bound; in both a line for ours in f32 and in f64, and for each rival. false,
 * with a sentence: the file was not written whole. */
bool qr_plot_write(const char *path, const struct qr_results *results, const struct qr_results *rivals);

#endif
