/* many_tokens.h - what the kernels of both layer halves of many tokens have in common. */
#pragma once

#include "layer_half.h"

enum { MANY_TOKENS_PARTS_AT_ONCE = 3 /* of x: as many are loaded together, and their number is a multiple */ };
