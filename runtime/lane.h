/* lane.h - see lane.c. */
#ifndef RONDO_LANE_H
#define RONDO_LANE_H

#include "runtime.h"

/* What any backend refuses. */
rondo_status lanes_check(const rondo_options *options);

/* For a backend's open: the lanes' names and wishes into a cleared info, or one lane without any. */
void lanes_describe(const rondo_options *options, struct device_info *info);

rondo_status lane_exists(const rondo_runtime *runtime, uint32_t lane, const char *phase);

#endif
