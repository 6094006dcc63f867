/* server.h - the HTTP thread. */
#pragma once

#include "service.h"

/* Opens the socket. Ends the program with a sentence if that cannot be done. */
void server_open(struct service *service, const struct serve_options *options, const struct template *template);
/* Serves until SIGTERM, SIGINT or the loss of the device. Returns the program's exit status. */
int server_run(struct service *service, struct engine *engine);
