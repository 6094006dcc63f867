/* fuzz_describe.h - the program that an input's bytes are, and what the harness knows of the graph that it describes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rondo_graphs.h>

enum kind { INPUT, OUTPUT, CONSTANT, STATE, TEMPORARY, UNKNOWN };
enum {
  MAX_TENSORS = 96,
  MAX_TASKS = 48,
  MAX_ELEMENTS = 16384, /* of a tensor in a graph that is to run */
  MAX_DIMENSION = 65536,
  MAX_USERS = 48,
  MAX_LAYERS = 16, /* more do not fit in MAX_TENSORS */
};

/* What the harness knows of a tensor, view or reshape. `known`: its geometry too, not only its kind. `limit`: most i32
 * that are filled in lie below it; 0: they may be anything. */
struct record {
  bool known;
  enum kind kind;
  uint32_t limit;
  rondo_dtype dtype;
  uint32_t root, rank;
  int64_t shape[RONDO_MAX_RANK], stride[RONDO_MAX_RANK];
  int64_t first; /* element of the root */
};

/* The user's own work: reads and writes each byte of its rectangles, and none beside them. */
struct user {
  uint32_t count, salt;
  struct {
    struct record record;
    rondo_access access;
    uint32_t value_bytes; /* no tensor */
  } arguments[RONDO_MAX_ARGUMENTS];
};

/* The last rondo_graph_llama that the graph has, and the description of another one that borrows from it. */
struct llama {
  bool is_there;
  rondo_graph_llama_desc borrower;
  rondo_graph_llama_tensors tensors;
  rondo_llama_layer layers[MAX_LAYERS];
};

struct build {
  const uint8_t *at, *end;
  rondo_graph *graph;
  uint64_t serial; /* of its tensors */
  bool shadow;     /* temporaries are states, which share no bytes */
  bool exact;      /* nothing is read that was not written: results are determined */
  bool huge;       /* only to be planned */
  bool no_host;    /* a task cannot run on the host */
  uint32_t tensor_count, task_count, user_count, report_count;
  struct record records[MAX_TENSORS];
  struct user users[MAX_USERS];
  struct llama llama;
  const struct build *lender;                 /* whose constants and states the graph borrows; NULL: nobody's */
  rondo_exec *lender_exec;                    /* NULL: it has none */
  uint8_t defined[MAX_TENSORS][MAX_ELEMENTS]; /* elements of a root that have a value */
};

extern bool trace; /* tells of each call */
/* Handles that are wrong: of another graph, and of one that is no more. */
extern rondo_tensor foreign_tensor, stale_tensor;

/* What must hold, and an abort if it does not. */
_Noreturn void broken(const char *what);
static inline void require(bool condition, const char *what) {
  if (!condition) broken(what);
}
/* Leaves a known sentence, so that judge can tell whether the call said something. */
void mark(void);
bool judge(rondo_status status, const char *call);
#define CALL(call) (mark(), judge((call), #call))

/* Bytes to arguments: likely ones, and now and then a wrong one. */
uint32_t next(struct build *b);
uint32_t below(struct build *b, uint32_t count);
int64_t any_size(struct build *b);
int64_t size_up_to(struct build *b, int64_t most);
rondo_dtype any_dtype(struct build *b);
float any_float(struct build *b);
int32_t any_int(struct build *b);
const char *any_name(struct build *b);
/* A handle that is likely wrong. */
rondo_tensor odd_tensor(struct build *b);
/* An operand of this shape: one that is there, or a new one, dense or a view, or now and then a wrong one. */
rondo_tensor operand(struct build *b, rondo_access access, rondo_dtype dtype, uint32_t rank, const int64_t *shape);

/* A shape of `rank` with the batch first, or without it. */
struct shape {
  uint32_t rank;
  int64_t of[RONDO_MAX_RANK];
};
struct shape matrix(bool batched, int64_t batch, int64_t rows, int64_t columns, bool turned);
struct shape vector(bool batched, int64_t batch, int64_t count);
struct shape heads(bool bshd, int64_t batch, int64_t count, int64_t length, int64_t width);
rondo_tensor operand_of(struct build *b, rondo_access access, rondo_dtype dtype, struct shape shape);
/* i32 to be read, which lie below `limit` if they are new and it is one. */
rondo_tensor indices(struct build *b, struct shape shape, int64_t limit);

uint64_t bits_of(const struct record *r);
int64_t elements_of(const struct record *r);

/* The tables are as long as the harness thinks: a failed call has added nothing. */
void check_counts(const struct build *b);

/* The steps of a program that make a tensor, a view or a reshape. */
void add_tensor(struct build *b);
void add_view(struct build *b);
void add_reshape(struct build *b);

struct use {
  rondo_tensor tensor;
  rondo_access access;
};

/* After a rondo_add_*: the counts, and which values the task read and wrote. */
bool added(struct build *b, bool accepted, uint32_t count, const struct use *uses);
#define ADDED(b, call, ...)                                                                                            \
  added(b, CALL(call), sizeof((struct use[]){__VA_ARGS__}) / sizeof(struct use), (struct use[]){__VA_ARGS__})
