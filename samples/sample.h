/* sample.h - the common code of the samples: the command line, files, opening a runtime, timing and checks. */
#pragma once

#include <rondo.h>

#include "npy.h"

enum { SAMPLE_OK = 0, SAMPLE_WRONG = 1, SAMPLE_UNUSABLE = 2 }; /* exit codes: fine, check failed, usage or input */
enum { SAMPLE_MAX_PATHS = 4 };

struct options {
  rondo_backend backend;               /* --backend auto|host|cuda */
  uint32_t replays;                    /* --replays N */
  const char *out;                     /* --out FILE.npy, or NULL */
  const char *paths[SAMPLE_MAX_PATHS]; /* the other arguments */
};

/* Reads the command line, which must have path_count paths; options_parse_any also accepts none. For --help it prints
 * `help` and ends the program. */
struct options options_parse(int argc, char **argv, const char *help, uint32_t path_count);
struct options options_parse_any(int argc, char **argv, const char *help, uint32_t path_count);

/* Calls `take` with each option of a command line of options and their values. For --help it prints `help` and ends the
 * program, and if a value is missing. */
void options_each(int argc, char **argv, const char *help,
                  void (*take)(void *user, const char *option, const char *value), void *user);

/* The value of --backend. Ends the program on another word. */
rondo_backend backend_parse(const char *name);

/* The value of an option for a type of weights: bf16, nvfp4 or, if it may be, e4m3. Ends the program on another word.
 */
rondo_dtype weights_parse(const char *option, const char *name, bool may_be_e4m3);

/* The value of an option. Ends the program if it is no integer in this range. */
int64_t integer_parse(const char *option, const char *text, int64_t low, int64_t high);

/* Ends the program with a sentence on stderr and SAMPLE_UNUSABLE. */
_Noreturn void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the program with the library's error text if the call failed. */
void require_ok(rondo_status status, const char *call);
#define TRY(call) require_ok((call), #call)

/* Reads an array of this type and rank, or ends the program. */
struct npy read_array(const char *path, enum npy_type type, uint32_t rank);
/* Reads an array of float32 or float64 with a rank in this range, or ends the program. */
struct npy read_numbers(const char *path, uint32_t least_rank, uint32_t most_rank);
/* The rondo_dtype of such an array; and half a unit in the last place of a number near 1. */
rondo_dtype dtype_of(const struct npy *array);
double epsilon_of(const struct npy *array);
/* Writes an array to the file of --out, if that is given. */
void write_array(const struct options *options, const struct npy *array);

/* Opens a runtime whose pools have exactly the bytes that the graph needs. */
rondo_runtime *open_quietly(rondo_graph *graph, const struct options *options, uint32_t slots);
/* The same, and prints the device and the reason for it. */
rondo_runtime *open_for(rondo_graph *graph, const struct options *options, uint32_t slots);

/* Replays the slot options->replays times. Prints the median time from rondo_replay to the end of rondo_wait. Returns
 * and prints whether the output had the same bits each time. */
bool replay_timed(rondo_slot slot, const struct options *options, rondo_tensor output);

uint64_t clock_ns(void);
/* Compares two times, for qsort. */
int compare_times(const void *a, const void *b);

/* Prints a check's figure and its bound. False if the figure exceeds the bound, or is NaN. */
bool check(const char *what, double figure, double bound);
