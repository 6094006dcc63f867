/* marks.h - special tokens of a file: the one that begins a conversation, and those that end an answer. */
#pragma once

#include "vocabulary.h"

/* Sets the vocabulary's begin, and `ends` of its tokens. An answer ends with a token that the file's keys name as the
 * end of a text, turn or message, and with control tokens of well-known texts, as in llama.cpp. (The tokens of its list
 * that fill gaps in code do not end an answer here.) Returns false with a sentence in message if a key is wrong, or
 * requires an unsupported feature. */
bool marks_read(const struct gguf *file, struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]);
