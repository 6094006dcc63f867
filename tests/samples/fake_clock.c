/* fake_clock.c - see fake_clock.h. */
#include "fake_clock.h"

#include <stddef.h>

#include "../../samples/sample.h"

uint64_t fake_clock_ns = 1000000000;
void (*fake_clock_reading)(void);

uint64_t clock_ns(void) {
  if (fake_clock_reading) fake_clock_reading();
  return fake_clock_ns += 1000;
}
