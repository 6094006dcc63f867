/* service.h - what the HTTP thread owns: connections and the records of requests. */
#pragma once

#include <microhttpd.h>

#include "engine.h"
#include "options.h"

struct template;
struct exchange;
struct client;

struct service {
  const struct serve_options *options;
  const struct template *template;
  struct engine *engine;
  struct MHD_Daemon *daemon;
  int listener, events, signals; /* files: the socket, an epoll instance, a signalfd */
  char **keys;                   /* NULL: requests need none; else NULL at the end */
  struct request *records;
  struct request **unused; /* records without a request */
  int32_t record_count, unused_count;
  struct request **orphans; /* cancelled, and their clients are gone; the engine still has them */
  int32_t orphan_count;
  struct client *clients;     /* all connections, in a list */
  uint64_t clients_looked_ns; /* the last time that all were looked at */
  struct exchange *exchanges; /* with a record, in a list */
  uint64_t body_bytes;        /* of all bodies that have not been read */
  struct exchange *unread;    /* whose bodies wait for their turn, the shortest first */
  uint64_t reading_ns;        /* spent with bodies in this round */
  uint64_t request_count, refused_count, bad_count;
  uint64_t news_seen;
  uint64_t heartbeat, heartbeat_ns, looked_ns; /* the last one seen, when it moved, and when it was looked at */
  int64_t opened;                              /* seconds since 1970 */
  bool stopping;
  uint64_t cut_ns; /* when stopping: the time to cancel answers; a second later connections are cut */
};

/* Twice as many as may run and wait: one whose client left is in use until the next step. */
int32_t service_record_count(const struct serve_options *options);
/* Allocates the records. Ends the program with a sentence if there is no memory. */
void service_open(struct service *service, struct engine *engine);
void service_close(struct service *service);

/* A record; NULL if as many requests run and wait as may. */
struct request *service_take(struct service *service);
/* Of a request that has ended, or was never submitted. */
void service_return(struct service *service, struct request *request);
/* Cancels a request that nobody waits for. service_collect returns its record when the engine has ended it. */
void service_abandon(struct service *service, struct request *request);
void service_collect(struct service *service);

/* Does the replaying thread still move? True if it has nothing to do. */
bool service_is_alive(struct service *service);
