/* json_memory.h - memory for jansson while it reads one body, freed at once. jansson 2.14 aborts if it gets none within
 * a number; here its reading ends at a jump instead. For one thread, and one body at a time. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* Until json_memory_end, jansson takes its memory here: `most` bytes at most, in all. */
void json_memory_begin(size_t most);
/* Frees everything that jansson took, and gives jansson its own functions back. */
void json_memory_end(void);
/* json_loadb for a body. NULL if it is no JSON, or *lacks_memory. */
json_t *json_memory_read(const char *bytes, size_t count, json_error_t *error, bool *lacks_memory);
