/* warm_up.h - makes a new exec ready: zeros in its constants and states, and one warm replay of each slot. */
#pragma once

#include "exec.h"

/* Every lazy cost of a first launch is paid here, and the content that the warm replays wrote is zeroed again. If the
 * program wants no warm-up, a borrowed state may already hold something or a task waits for other ranks, the first
 * replay pays the rest. */
rondo_status exec_make_ready(rondo_exec *exec, bool without_warm_up);

/* Zeros into the exec's own constants and states, and into the borrowed states that its warm replays wrote. */
rondo_status exec_zero(rondo_exec *exec);
