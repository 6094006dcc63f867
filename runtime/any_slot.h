/* any_slot.h - the slots of an exec, counted while other threads use them. */
#pragma once

#include "exec.h"

/* The numbers of free slots and of slots in flight. */
void slots_count(const rondo_exec *exec, uint32_t *free_count, uint32_t *in_flight_count);
