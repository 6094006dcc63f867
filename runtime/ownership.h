/* ownership.h - the owners of constants and states: which exec owns them, which borrow them, and which may be closed.
 */
#pragma once

#include "exec.h"

/* Finds the owner of each constant and state, and puts the exec among the group's. Errors: an owner that is not open,
 * or that is open twice; a state that another lane's exec writes, or that this exec writes and another lane's touches,
 * unless the program says that it keeps them in order. The group's lock is held, for both. */
rondo_status ownership_attach(rondo_exec *exec, const rondo_graph *graph, const rondo_exec_options *options);
void ownership_detach(rondo_exec *exec);
/* The lost device of the exec may still touch what it borrowed from other ranks. The lock is held. */
void ownership_abandon(rondo_exec *exec);

/* From now on no exec borrows from this one, and no call sets or reads its constants and states. RONDO_INVALID_STATE
 * while one does. */
rondo_status ownership_close(rondo_exec *exec, const char *function);
/* The exec stays open after all. */
void ownership_reopen(rondo_exec *exec);

/* RONDO_INVALID_STATE if another thread closes the exec. The group's lock is held, as for all below. */
rondo_status check_not_closing(const rondo_exec *exec, const char *function);

bool borrows_from(const rondo_exec *exec, const rondo_exec *owner);
/* Besides warm replays. */
bool was_replayed(const rondo_exec *exec);

/* The number of the runtime's execs, and the names of their first tasks: "'a', 'b'". */
enum { EXEC_NAMES_BYTES = 256 };
uint32_t ownership_name_execs(const rondo_runtime *runtime, char text[EXEC_NAMES_BYTES]);
