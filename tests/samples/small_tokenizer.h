/* small_tokenizer.h - the tokenizer of the small vocabulary (gguf_writer.h). It aborts if it cannot be opened. */
#pragma once

#include "../../samples/chat/tokenizer.h"
#include "gguf_writer.h"

struct tokenizer open_small_tokenizer(void);
/* With what the caller has written before. */
struct tokenizer open_written_tokenizer(struct gguf_writer *writer);
