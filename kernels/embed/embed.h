/* embed.h - rondo_add_embed: the operation, its kernel and the kernel's parameters. An embedding copies rows of a table
 * by ids that the device reads. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  EMBED_THREADS = 128,
  EMBED_ELEMENTS = 8 /* of a thread */,
  EMBED_SCALE_GROUP = 16 /* values of an nvfp4 scale factor */
};

/* rondo_embed. Strides are counted in elements. */
struct embed_parameters {
  const void *table;
  const uint8_t *table_scales;
  const int32_t *ids;
  void *out;
  int64_t table_stride, scale_stride, out_stride;
  uint32_t rows, width; /* of the table */
  uint32_t row_parts;   /* threads for a row */
  uint32_t parts;       /* threads for all rows */
  uint32_t table_dtype, out_dtype;
  uint32_t table_is_aligned, out_is_aligned; /* 1: all rows begin at multiples of a thread's vector */
  float scale;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define EMBED_KERNELS(KERNEL) KERNEL(EVERY_CHIP, embed_parameters, rondo_embed, EMBED_THREADS, embed)

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

enum { EMBED_TABLE, EMBED_TABLE_SCALES, EMBED_IDS, EMBED_OUT, EMBED_OPERANDS }; /* operands */

struct embed_attributes {
  float scale;
};

extern const struct op op_embed;
OP_FUNCTIONS(embed);
int64_t embed_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);
#endif
