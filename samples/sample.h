/* sample.h - what the samples share and Rondo does not provide: the command line, files, and the clock. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <rondo.h>

#include "npy.h"

enum { SAMPLE_OK = 0, SAMPLE_WRONG = 1, SAMPLE_UNUSABLE = 2 }; /* exit codes: fine, check failed, usage or input */
enum { SAMPLE_MAX_PATHS = 4 };

struct options {
  rondo_backend backend;               /* --backend auto|host|cuda */
  uint32_t replays;                    /* --replays N */
  const char *out;                     /* --out FILE.npy, or NULL */
  const char *paths[SAMPLE_MAX_PATHS]; /* what remains */
};

/* Reads the command line; prints `help` for --help and ends the program. Exactly path_count paths are expected;
 * options_parse_any takes none as well. */
struct options options_parse(int argc, char **argv, const char *help, uint32_t path_count);
struct options options_parse_any(int argc, char **argv, const char *help, uint32_t path_count);

/* What --backend says; gives up on another word. */
rondo_backend backend_parse(const char *name);

/* Ends the program with a sentence. */
_Noreturn void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the program with the library's own sentence unless the call succeeded. */
void require_ok(rondo_status status, const char *call);
#define TRY(call) require_ok((call), #call)

/* Reads an array of a type and rank, or gives up. */
struct npy read_array(const char *path, enum npy_type type, uint32_t rank);
/* Numbers of either float32 or float64, of so many dimensions. */
struct npy read_numbers(const char *path, uint32_t least_rank, uint32_t most_rank);
/* The library's name of such an array's type, and half a unit in the last place of a number near 1. */
rondo_dtype dtype_of(const struct npy *array);
double epsilon_of(const struct npy *array);
/* Writes one where --out says, if it does. */
void write_array(const struct options *options, const struct npy *array);

/* Opens a runtime whose pools are exactly what the graph needs. */
rondo_runtime *open_quietly(rondo_graph *graph, const struct options *options, uint32_t slots);
/* The same, and says on what the graph runs and why. */
rondo_runtime *open_for(rondo_graph *graph, const struct options *options, uint32_t slots);

/* Replays the slot as often as asked; prints the median time from rondo_replay to the end of rondo_wait, and whether
 * the output had the same bits each time: the result. */
bool replay_timed(rondo_slot slot, const struct options *options, rondo_tensor output);

uint64_t clock_ns(void);
/* For qsort of such times: the shortest first. */
int compare_times(const void *a, const void *b);

/* Prints a check's figure beside its bound; false if it is beyond, or not a number. */
bool check(const char *what, double figure, double bound);

#endif
