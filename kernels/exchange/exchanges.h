/* exchanges.h - rondo_add_all_reduce and its siblings: the operations, their kernels and their parameters.
 *
 * Each rank has a state, to which all ranks of the group write. It has a row for each rank that data comes from:
 *
 *   counters   EXCHANGE_BLOCKS_MOST words, all with the number of exchanges that the two ranks have had with each other
 *   2 slots    which take turns by that number
 *
 * A rank stores its data into slots of other ranks, and reads what others stored into its own. A word of a slot is the
 * complement of a word of the data, and zero says "not there yet". README.md has why two slots are enough.
 *
 * After the slots a row has room for the sums of layer halves (exchange_gather.h). */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"
#include "exchange_gather.h"
#include "exchange_rows.h"

enum {
  EXCHANGE_RANKS_MOST = 8,
  EXCHANGE_BLOCKS_MOST = 128,
  EXCHANGE_THREADS = 256, /* the most of a block that may share a device with those of another rank */
  EXCHANGE_MOST_THREADS = 512,
  EXCHANGE_OUTER = 3, /* outer dimensions at most */
  EXCHANGE_VECTOR_BYTES = 16,
  EXCHANGE_HEAD_BYTES = EXCHANGE_BLOCKS_MOST * 4, /* of a row: the counters */
  EXCHANGE_SLOT_MULTIPLE = 256,
};

/* One operand. A rank's part of it has the shape of `extent` and `row`. */
struct exchange_side {
  void *data; /* NULL: there is none */
  int64_t stride[EXCHANGE_OUTER];
  int64_t step; /* from the part of one rank to that of the next; 0: there is one part alone */
  uint32_t dtype;
  uint32_t is_whole; /* 1: vectors lie within rows, at multiples of 16 bytes; only the last one may be cut */
};

/* Of both kernels. Strides are counted in elements. */
struct exchange_parameters {
  struct exchange_side in, out, residual;
  unsigned char *here[EXCHANGE_RANKS_MOST];  /* the row of rank r in this rank's state */
  unsigned char *there[EXCHANGE_RANKS_MOST]; /* the row of this rank in the state of rank r */
  uint64_t *fault;                           /* runtime/fault.h */
  uint64_t fault_number, timeout_ns;
  uint64_t slot_bytes;
  int64_t term;                    /* from one term to the next */
  uint32_t terms;                  /* of `in` for each rank's number; more than 1: f32, and their sum goes */
  uint32_t extent[EXCHANGE_OUTER]; /* outermost first; 1 for a dimension that does not exist */
  uint32_t row, count;             /* elements of a row, and of a part */
  uint32_t vectors;                /* of 16 bytes on the way, of a part */
  uint32_t chunk;                  /* vectors that a rank sums in two steps; 0: each rank sums all */
  uint32_t dtype;                  /* on the way: in's */
  uint32_t rank, ranks;
  uint32_t to, from; /* bit r: rank r gets data, data comes from rank r */
  uint32_t sums;     /* 1: parts are added; 0: each goes to its place */
  uint32_t keeps;    /* 1: this rank's own part is among them */
  uint32_t widens;   /* 1: in two steps the sums go as f32 */
  uint32_t early;    /* 1: successors start early (op_call.lets_successors_start) */
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define EXCHANGE_KERNELS(KERNEL) KERNEL(EVERY_CHIP, exchange_parameters, rondo_exchange, EXCHANGE_THREADS, exchange)
#define EXCHANGE_SUM_KERNELS(KERNEL)                                                                                   \
  KERNEL(EVERY_CHIP, exchange_parameters, rondo_exchange_sum, EXCHANGE_MOST_THREADS, exchange_sum)

/* Numbers in a vector. */
static inline uint32_t exchange_numbers(uint32_t bits) { return EXCHANGE_VECTOR_BYTES * 8 / bits; }

#ifndef __CUDACC__
#include "../../runtime/kernels.h"

/* Operands: the states are EXCHANGE_STATES + rank, as far as the task touches them. */
enum { EXCHANGE_IN, EXCHANGE_RESIDUAL, EXCHANGE_OUT, EXCHANGE_STATES };
enum { EXCHANGE_OPERANDS = EXCHANGE_STATES + EXCHANGE_RANKS_MOST };

enum exchange_kind {
  EXCHANGE_ALL_REDUCE,
  EXCHANGE_ALL_GATHER,
  EXCHANGE_REDUCE_SCATTER,
  EXCHANGE_BROADCAST,
  EXCHANGE_SEND,
  EXCHANGE_RECEIVE,
};

struct exchange_attributes {
  uint32_t kind; /* enum exchange_kind */
  uint32_t rank, ranks, peer, dimension;
  uint64_t timeout_ns; /* 0: the default of the backend */
};

/* Which other ranks get data and from which it comes, as bits. */
uint32_t exchange_receivers(const struct exchange_attributes *attributes);
uint32_t exchange_senders(const struct exchange_attributes *attributes);

/* exchange_plan.c: how a sum goes, by its size and the number of ranks alone: all ranks choose alike. */
struct exchange_choice {
  const char *name, *why;
  uint32_t blocks, threads;
  uint32_t chunk; /* of exchange_parameters */
};
struct exchange_choice exchange_choose(const struct exchange_attributes *attributes, uint32_t vectors);
const struct exchange_choice *exchange_choices(size_t *count);

/* Adds the states to a task's arguments, from `arguments` on, and borrows those that are not the graph's own. Those
 * that are not `touched`, as bits, stay absent. */
rondo_status exchange_states_borrow(rondo_graph *graph, const rondo_tensor *states, uint32_t rank, uint32_t ranks,
                                    uint32_t touched, struct op_argument *arguments);

/* The task as its kernels and the host see it, but for `done`. */
struct exchange_parameters exchange_parameters_of(const struct op_call *call, const struct exchange_choice *choice);
/* A step that is a task of rondo_add_all_reduce, by the states that the task has from operand `states` on. In, out and
 * the residual are left to the caller. */
void exchange_sum_step(const struct op_call *call, uint32_t states, uint32_t rank, uint32_t ranks, struct op_step *sum);
/* Where the room for parts is, for a kernel that takes or gives them; operands from `states` on are the ranks' states.
 */
struct exchange_gather exchange_gather_of(const struct op_call *call, uint32_t states, uint32_t rank, uint32_t ranks);
/* What a kernel is told of which `blocks` compute `vectors` times 16 bytes, and others add them up over ranks. */
struct exchange_rows exchange_rows_of(const struct op_call *sum, int64_t blocks, int64_t vectors);
/* Vectors of a part. */
uint32_t exchange_vectors(const struct op_task *task);

rondo_status exchange_check(const struct op_task *task);
int64_t exchange_host_items(const struct op_task *task);
void exchange_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status exchange_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
int64_t exchange_touched_elements(const struct op_task *task, uint32_t operand, rondo_access read_or_write);

extern const struct op op_all_reduce, op_all_gather, op_reduce_scatter, op_broadcast, op_send, op_receive;
#endif
