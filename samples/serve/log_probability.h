/* log_probability.h - the logarithm of a drawn token's probability. */
#pragma once

#include <stdint.h>

/* Of a token among `count` logits, at temperature 1. */
float log_probability(const float *logits, int64_t count, int32_t token);
