/* allocator.h - the default allocator of host memory: mimalloc. */
#pragma once

#include <rondo.h>

rondo_allocator allocator_default(void);
