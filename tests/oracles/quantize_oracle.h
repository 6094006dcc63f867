/* quantize_oracle.h - the bytes of a block of 16 values in NVFP4, by a search for the nearest code, and of a row in
 * e4m3. */
#pragma once

#include "../support.h"

/* The codes and the scale of 16 values, divided by the global scale first. */
void oracle_block(const double *x, float global_scale, uint8_t *codes, uint8_t *scale);

/* The e4m3 codes of a row, and its scale. */
void oracle_row(const double *x, int64_t k, uint8_t *codes, float *scale);
