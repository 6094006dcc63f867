/* conformance.h - what the files of conformance share: the driver and what is open on it, verdicts, and single steps.
 */
#pragma once

#include "../../kernels/copy/copy.h"
#include "../../runtime/cuda/driver.h"

/* Results that Rondo has no use for. */
enum {
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  ILLEGAL_STATE = 401,
  OUT_OF_RESOURCES = 701,
  NOT_SUPPORTED = 801,
  CAPTURE_WRONG_THREAD = 908,
  LIST_END = -1,
};
enum { CAPTURE_NONE = 0, CAPTURE_INVALIDATED = 2 }; /* and CU_CAPTURE_ACTIVE */

/* Device memory in pieces, large enough that a copy by a single block takes longer than a launch; then counts, and the
 * states of bells. */
enum { PIECE_BYTES = 1 << 18, PIECES = 16, COUNTS_BYTES = 96 };

enum need { NOTHING, KERNELS, OVERLAP, PARTS, MAPS, LOOPS, LOOPS_OVERLAP, PEERS };

/* A file's behaviours, in the order they run in; the last has no name. */
struct behaviour {
  const char *name;
  void (*run)(void);
  enum need need;
};
#define NAMED(function) #function, function
extern const struct behaviour basic_behaviours[], graph_behaviours[], capture_behaviours[], lane_behaviours[],
    map_behaviours[];

/* ---- What is open, in conformance.c ------------------------------------------------------------------------------ */

extern struct driver driver;
extern struct cu_context *context;
extern struct cu_library *copy_library;
extern struct cu_kernel *copy_kernel, *done_kernel, *repeat_kernel, *bell_kernel; /* NULL: no device code */
extern cu_address device_memory;                                                  /* the pieces, and a counter */
extern unsigned char *host_memory;                                                /* pinned: a piece, and a word */

/* Of the behaviour that runs; made before it and destroyed after it. */
extern struct cu_stream *stream;
extern struct cu_graph *graph;
extern struct cu_graph_exec *exec;

/* ---- Verdicts, in conformance_support.c -------------------------------------------------------------------------- */

extern struct verdict {
  bool failed;
  char expected[400], answers[400];
} verdict;

/* The behaviour's first failure is its verdict. */
__attribute__((format(printf, 1, 2))) void fail(const char *format, ...);
/* What the driver answered where it may answer several things. */
__attribute__((format(printf, 1, 2))) void answer(const char *format, ...);
/* These fail, and return false, if it is anything else. */
bool expect(const char *what, cu_result got, int expected);
bool expect_number(const char *what, uint64_t got, uint64_t expected);
bool is_one_of(cu_result result, const int *list);
bool expect_one_of(const char *what, cu_result got, const int *list);
#define ONE_OF(...) ((const int[]){__VA_ARGS__, LIST_END})

/* A step without which the rest of a behaviour means nothing. */
#define REQUIRE(call)                                                                                                  \
  if (!expect(#call, driver.call, CU_SUCCESS)) return
#define REQUIRE_TRUE(condition)                                                                                        \
  if (!(condition)) return

/* ---- Graphs and memory, in conformance_support.c ----------------------------------------------------------------- */

cu_address piece(uint32_t index);
/* Byte `index` of what a number puts in a piece. upload puts it there, holds compares: false, and a verdict, if not. */
unsigned char pattern(uint32_t seed, uint32_t index);
bool upload(uint32_t index, uint32_t seed);
bool holds(uint32_t index, uint32_t seed);

/* What a node waits for: full edges, or programmatic ones. */
struct after {
  struct cu_graph_node *nodes[2];
  size_t count;
  bool programmatic;
};
extern const struct cu_edge programmatic_edge;

struct cu_node_parameters empty_node(void);
struct cu_node_parameters kernel_node(struct cu_kernel *kernel, uint32_t threads, void **arguments);
struct copy_parameters copy_of(uint32_t from, uint32_t to, uint32_t pieces);

/* NULL, and a verdict, if the driver refuses. */
struct cu_graph_node *add(struct cu_node_parameters *parameters, const struct after *after);
struct cu_graph_node *add_empty(const struct after *after);
/* One block, so that it takes its time. */
struct cu_graph_node *add_copy(uint32_t from, uint32_t to, uint32_t pieces, const struct after *after);

cu_result instantiate(void);
bool instantiated(void);
bool launched(void);
bool synchronized(void);
size_t node_count(void);
int capture_status(void);

/* As the body of a thread, to its end. */
void on_another_thread(void *(*function)(void *));
