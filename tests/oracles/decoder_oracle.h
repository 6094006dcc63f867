/* decoder_oracle.h - the results of a layer half against sums in fp64. */
#ifndef RONDO_TEST_DECODER_ORACLE_H
#define RONDO_TEST_DECODER_ORACLE_H

#include "decoder_half.h"

/* Checks out, the parts and the caches. `what` begins the messages. */
void half_check(const struct half *h, const char *what);

#endif
