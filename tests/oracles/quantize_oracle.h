/* quantize_oracle.h - the bytes of a block of 16 values in NVFP4, by a search for the nearest code. */
#pragma once

#include "../support.h"

/* The codes and the scale of 16 values, divided by the global scale first. */
void oracle_block(const double *x, float global_scale, uint8_t *codes, uint8_t *scale);
