/* support.h - what all tests share: a graph on one backend from description to result, random numbers, and
 * conversions. A failure inside ends the test with the library's own error text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rondo.h>

/* Ends the test as skipped, with a reason, if the backend cannot be used here. Call it first. */
void require_backend(rondo_backend backend);

/* The devices that this process can use, at most as many as ranks may be. */
int32_t device_count(rondo_backend backend);

/* Whether tests share this process. The first that uses the CUDA backend then leaves a runtime open, and with it the
 * GPU's context. */
extern bool keeps_backend;

/* One promise as two tests, one a backend. */
#define BOTH_BACKENDS(suite, name, function)                                                                           \
  Test(suite, name##_host) { function(RONDO_BACKEND_HOST); }                                                           \
  Test(suite, name##_cuda) {                                                                                           \
    require_backend(RONDO_BACKEND_CUDA);                                                                               \
    function(RONDO_BACKEND_CUDA);                                                                                      \
  }

/* Asserts that a call succeeds; on failure prints the call's text. */
void require_ok(rondo_status status, const char *what);
#define REQUIRE_OK(call) require_ok((call), #call)
/* Asserts a status, and that the error text contains `fragment`. */
void require_error(rondo_status got, rondo_status expected, const char *fragment, const char *what);
#define REQUIRE_ERROR(call, expected, fragment) require_error((call), (expected), (fragment), #call)

/* rondo_input, rondo_constant, rondo_state and the other functions that add a tensor. */
typedef rondo_status (*tensor_kind)(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                    const int64_t *shape, rondo_tensor *tensor);

/* A graph that is described, then run. */
struct trial {
  rondo_backend backend;
  uint32_t host_threads; /* of rondo_options; set after trial_describe */
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_slot slot;
};

void trial_describe(struct trial *trial, rondo_backend backend); /* an empty graph, no runtime yet */
/* Pools of exactly the planned size, one slot. If the environment has RONDO_TEST_MULTIPROCESSORS, the graph runs in a
 * lane of that many multiprocessors. */
void trial_instantiate(struct trial *trial);
void trial_set(struct trial *trial, rondo_tensor tensor, const void *data); /* input, constant or state; dense */
void trial_replay(struct trial *trial);                                     /* replays and waits */
void trial_get(struct trial *trial, rondo_tensor tensor, void *data);       /* output or state; dense */
const void *trial_output(struct trial *trial, rondo_tensor tensor);
void trial_end(struct trial *trial);

/* An allocator's two functions: memory that the system promises, also where it has less; NULL if it does not. */
void *promised_memory(void *user, size_t bytes, size_t alignment);
void release_promised(void *user, void *memory, size_t bytes);

/* A fixed, portable generator: the same numbers everywhere. */
struct random {
  uint64_t state;
};
uint64_t random_bits(struct random *random);
double random_uniform(struct random *random); /* [0, 1) */
double random_normal(struct random *random);
int64_t random_between(struct random *random, int64_t low, int64_t high); /* both included */
/* An element of an array. */
#define RANDOM_OF(random, array) ((array)[random_between((random), 0, (int64_t)(sizeof(array) / sizeof *(array)) - 1)])

/* For a test that may share no process, for what it leaves or measures: Test(suite, name, OWN_PROCESS). */
#define IN_A_PROCESS_OF_ITS_OWN "in a process of its own"
#define OWN_PROCESS             .description = IN_A_PROCESS_OF_ITS_OWN

/* For the rows of a test's own operations: any task is right, and has one item of work. */
struct op_task;
rondo_status accept_any_task(const struct op_task *task);
int64_t one_item(const struct op_task *task);

bool is_under_valgrind(void);
/* Ends the test as skipped under valgrind, which cannot do what the test needs. */
void skip_under_valgrind(const char *reason);
/* For what takes long under sanitizers, and shows them nothing that other tests do not: arithmetic at large sizes, and
 * the bits of what other tests run too. */
void skip_under_sanitizers(void);
/* The number of a test's rounds: a fifth of `rounds` under valgrind and AddressSanitizer, where code takes 2 to 50
 * times as long. */
uint32_t rounds_here(uint32_t rounds);

/* For an oracle's innermost loop. The sanitizers are there for the library: of the test's own arithmetic on its own
 * memory they would find nothing and take most of a test's time. */
#define ORACLE_LOOP __attribute__((no_sanitize("address", "undefined")))

/* Independent of kernels/common/number.h, for oracles: through the compiler's own types and tables. */
double oracle_f16(uint16_t bits);
double oracle_bf16(uint16_t bits);
double oracle_e4m3(uint8_t bits);
double oracle_e2m1(uint8_t code);     /* low nibble */
uint16_t oracle_to_f16(double value); /* nearest even */
uint16_t oracle_to_bf16(double value);
uint8_t oracle_to_e4m3(double value); /* nearest even, 448 at most */
double oracle_read(rondo_dtype dtype, const void *data, int64_t index);
void oracle_write(rondo_dtype dtype, void *data, int64_t index, double value); /* f64 f32 f16 bf16 e4m3 */
