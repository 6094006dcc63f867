/* model.h - SmolLM2-135M-Instruct, for tests that need it. ./bootstrap model fetches it. */
#pragma once

#include <stdio.h>

#include "../../samples/chat/gguf.h"

/* Ends the test as skipped, with a reason, if the file is not there. */
struct gguf require_model(void);
/* The same with the layers in NVFP4, by the quantise sample. ninja quantise makes it. */
struct gguf require_quantised_model(void);
/* A file of tests/model; skips likewise, which is for a bundle. */
FILE *require_data(const char *name);
