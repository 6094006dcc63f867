/* cuda_loops.h - the graphs that run several replays in one launch: a repeat's, and that of a resident exec. */
#pragma once

#include "cuda_nodes.h"

/* Both build and instantiate the graph of the exec, before the graph of a replay. */
rondo_status build_repeat(struct build *build);
rondo_status build_resident(struct build *build);
