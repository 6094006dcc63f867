/* decoder_oracle.h - the results of a layer half against sums in fp64. */
#pragma once

#include "decoder_half.h"

/* Checks out, the parts and the caches. `what` begins the messages. */
void half_check(const struct half *h, const char *what);
