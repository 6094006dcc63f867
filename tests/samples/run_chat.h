/* run_chat.h - runs the chat sample, for its tests. */
#pragma once

#include "../command/shell.h"
#include "gguf_writer.h"

/* "chat WORDS" with this on its standard input. */
struct ran run_chat(const char *words, const char *input);
/* A file of the small model and of what a test has written before: its path, which stays. */
const char *write_small_model(struct gguf_writer *writer);
/* Of the small model that says these tokens. */
const char *write_saying_model(struct gguf_writer *writer, const int32_t *tokens, int32_t count);
/* The same, asked for an answer on the host. */
struct ran run_small_model(struct gguf_writer *writer, const char *words);
struct ran run_saying_model(struct gguf_writer *writer, const int32_t *tokens, int32_t count, const char *words);
