/* dequantize.h - rows of a GGUF file's tensors, converted to fp32. */
#pragma once

#include "gguf.h"

/* Writes the shape[0] elements of row `row`, from 0 to gguf_rows - 1. */
void dequantize_row(const struct gguf_tensor *tensor, int64_t row, float *out);
