/* dequantize.h - rows of a GGUF file's tensors, converted to fp32. */
#pragma once

#include "gguf.h"

/* Writes the shape[0] elements of row `row`, from 0 to gguf_rows - 1. */
void dequantize_row(const struct gguf_tensor *tensor, int64_t row, float *out);

/* The e2m1 codes of the 16 elements from 16 * block on, in a row of an NVFP4 tensor. Returns their e4m3 scale factor.
 */
uint8_t nvfp4_block(const struct gguf_tensor *tensor, int64_t row, int64_t block, uint8_t codes[16]);
