/* notices.h - waits until the notices of replays that are done have been written (notice.h). */
#pragma once

#include "exec.h"

/* All notices of the exec. RONDO_OK, RONDO_TIMEOUT or RONDO_DEVICE_LOST. */
rondo_status notices_wait(const rondo_exec *exec, uint64_t timeout_ns);

/* Sets the file of a slot that is not in flight; -1: none. The old file may be closed afterwards. */
rondo_status slot_notify(const rondo_exec *exec, struct slot *slot, int file);
