/* options.h - the command line of the serve sample. */
#pragma once

#include "batch_model.h"

struct serve_options {
  const char *file; /* of the model */
  const char *name; /* of the model, for clients */
  char address[64];
  uint16_t port;
  const char *unix_path; /* NULL: address and port */
  const char *key_file;  /* NULL: no keys */
  int32_t queue;         /* requests that may wait */
  int32_t max_tokens;    /* of an answer whose request has no number */
  int32_t deadline_s, grace_s, idle_s;
  struct model_options model;
};

/* Ends the program with a sentence if something is wrong. */
struct serve_options serve_options_parse(int argc, char **argv);
