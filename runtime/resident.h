/* resident.h - constants and states of an exec: what lives across replays, its own and what it borrows. */
#ifndef RONDO_RESIDENT_H
#define RONDO_RESIDENT_H

#include "exec.h"

/* Finds whose each constant and state is and puts the exec among the runtime's. Errors: an owner that is not open, or
 * open twice; a state that another lane's exec writes, or that this one writes and another lane's touches, unless the
 * program says that it keeps them in order. The runtime's lock is held, for both. */
rondo_status residents_attach(rondo_exec *exec, const rondo_graph *graph, const rondo_exec_options *options);
void residents_detach(rondo_exec *exec);

/* From now on nobody borrows from the exec, sets or reads what it holds. RONDO_INVALID_STATE while somebody does. */
rondo_status residents_close(rondo_exec *exec, const char *function);

/* It is not closed after all. */
void residents_reopen(rondo_exec *exec);

/* RONDO_INVALID_STATE if somebody closes it. The runtime's lock is held. */
rondo_status check_not_closing(const rondo_exec *exec, const char *function);

/* How many execs the runtime has, and their first tasks: "'a', 'b'". The runtime's lock is held. */
enum { RESIDENTS_TEXT = 256 };
uint32_t residents_execs(const rondo_runtime *runtime, char text[RESIDENTS_TEXT]);

/* False if a warm replay would write a borrowed state that may hold something. If true exec->warm_replays becomes 1. */
bool residents_allow_warming(rondo_exec *exec);
/* Zeros into all constants and states of the exec's own, and into what its warm replays wrote of others'. */
rondo_status residents_zero(rondo_exec *exec);

#endif
