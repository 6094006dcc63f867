/* fake_clock.h - the samples' clock in tests: it moves only when it is read, or a test sets it. */
#pragma once

#include <stdint.h>

extern uint64_t fake_clock_ns;           /* each reading adds a microsecond */
extern void (*fake_clock_reading)(void); /* called before each reading; NULL: nothing */
