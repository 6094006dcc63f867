/* parallel.h - loops on all processors of this process. */
#pragma once

#include <stdint.h>

/* Calls work(context, index) once for each index from 0 to count - 1, in any order and on several threads. Returns
 * after the last call. */
void in_parallel(int64_t count, void (*work)(void *context, int64_t index), void *context);
