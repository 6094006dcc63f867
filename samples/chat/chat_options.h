/* chat_options.h - the command line of the chat sample. */
#pragma once

#include "llama_model.h"

enum chat_statistics { STATISTICS_NONE, STATISTICS_END, STATISTICS_EACH };

struct chat_options {
  const char *model;               /* --model FILE */
  const char *prompt;              /* --prompt TEXT; NULL: a conversation */
  const char *system;              /* --system TEXT */
  int64_t tokens;                  /* --tokens N: the most tokens of an answer */
  enum chat_statistics statistics; /* --statistics none|end|each */
  struct llama_options llama;
};

/* Reads the command line. Ends the program after --help, or with a sentence if an option is wrong. */
struct chat_options chat_options_parse(int argc, char **argv);
