/* encode.h - the tensor maps that a launch describes (runtime/op.h), made by the driver. */
#pragma once

#include "../op.h"
#include "driver.h"

/* Fills in the maps in the launch's parameters. After a failure *failed is the map's index. The context is
 * current. */
cu_result encode_maps(const struct driver *driver, struct op_launch *launch, uint32_t *failed);
