/* first_fit.h - places buffers one after the other, in a given order: each buffer gets the lowest offset at which no
 * placed buffer is in conflict with it. The caller gives working memory of first_fit_work_bytes. */
#pragma once

#include "bits.h"

enum { FIRST_FIT_BATCH = 512 /* rows of conflicts that first_fit asks for at a time */ };

/* Fills `rows` with one row of bits for each buffer of the batch: the buffers in conflict with it. A row has
 * bit_row_words(count) words and is not cleared before the call. */
typedef void (*conflict_rows)(void *context, const uint32_t *batch, uint32_t batch_count, uint64_t *rows);

uint64_t first_fit_work_bytes(uint32_t count);

/* Asks for conflicts a batch at a time, so the whole matrix need not fit in memory. Writes the offsets and returns the
 * peak. */
uint64_t first_fit(uint32_t count, const uint64_t *bytes, const uint32_t *order, conflict_rows rows, void *context,
                   uint64_t *offsets, void *work) __attribute__((nonnull(7)));

/* Indices 0 .. count - 1 by descending key, ties by index. */
void first_fit_order(uint32_t count, const uint64_t *keys, uint32_t *order);
