/* driver_support.h - what the tests on the fake driver share: the fake itself, kernels that it runs, graphs for it and
 * for the host. */
#pragma once

#include <criterion/criterion.h>

#include "../../runtime/cuda/abi.h"
#include "../support.h"
#include "fake_driver.h"

extern const struct fake_driver *fake;

/* The init function of the suites: finds the fake, in the place of libcuda.so.1, and registers the kernels below. */
void driver_setup(void);

/* After everything is closed: nothing lives, no context is left pushed, nothing was done wrong. */
void require_clean(const char *when);
void require_no_violation(const char *when);
void set_mode(enum fake_mode mode);
void set_seed(uint64_t seed);

/* out = 31 a + 17 b + salt, of `count` 32-bit numbers: five parameters a, b, out, count, salt. The order in which a
 * chain of these runs shows in its result. */
extern const char mix_image[];
extern const size_t mix_image_bytes;
enum { MIX_ARGUMENTS = 5 };
void mix_host(void *user, void *const *data);
/* Adds the task; a and b may be the same. */
rondo_task add_mix(rondo_graph *graph, const char *name, rondo_tensor a, rondo_tensor b, rondo_tensor out,
                   uint32_t count, uint32_t salt);
rondo_task add_copy(rondo_graph *graph, const char *name, rondo_tensor src, rondo_tensor dst);
/* Four tasks side by side mix x and the state. Three more join them to the next state, and the last copies it to y. */
void add_mixed_state(rondo_graph *graph, rondo_tensor x, rondo_tensor state, rondo_tensor y, uint32_t count);
rondo_tensor add_vector(tensor_kind add, rondo_graph *graph, const char *name, uint32_t count);

/* A runtime with pools for one exec of the graph, with as many slots. */
rondo_options options_for(rondo_graph *graph, rondo_backend backend, uint32_t slots);

/* Options with small pools and these lanes; a runtime with them; closing it, after which nothing lives. */
rondo_options options_with_lanes(const rondo_lane *lanes, uint32_t count);
rondo_runtime *open_lanes(const rondo_lane *lanes, uint32_t count);
void close_clean(rondo_runtime *runtime);
