/* marks.h - the marks that a file puts around texts: the token at the beginning of a conversation, and the tokens that
 * end an answer. */
#ifndef MARKS_H
#define MARKS_H

#include "vocabulary.h"

/* Fills in the vocabulary's begin, and its tokens' ends: the tokens that the file's keys name as the end of a text, of
 * a turn or of a message, and control tokens of the texts that models end with, as in llama.cpp. (Its list has tokens
 * to fill a gap in code too, which end no answer here.) false, with a sentence in message: a key is wrong, or asks for
 * what is not done here. */
bool marks_read(const struct gguf *file, struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]);

#endif
