/* allocator.h - the default allocator of host memory: mimalloc. */
#ifndef RONDO_ALLOCATOR_H
#define RONDO_ALLOCATOR_H

#include <rondo.h>

rondo_allocator allocator_default(void);

#endif
