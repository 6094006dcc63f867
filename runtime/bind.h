/* bind.h - buffers of the program in place of a tensor's own memory, in the replays of one slot. */
#pragma once

#include "exec.h"

/* Ends all bindings of a slot that is not in flight. If one fails, the bindings before it have ended. */
rondo_status exec_unbind(rondo_exec *exec, struct slot *slot);
