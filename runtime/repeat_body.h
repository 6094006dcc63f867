/* repeat_body.h - the loop of a repeat: see repeat_body.c. */
#pragma once

#include "exec.h"

/* Of an exec with its nodes: how many steps the loop's body has, and which states are kept. */
void repeat_body_fill(rondo_exec *exec);
/* The kept states, REPEAT_KEPT at most. */
void repeat_body_keep(const rondo_exec *exec, struct repeat_kept *kept);
