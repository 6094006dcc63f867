/* exchange.h - one HTTP request and its response. */
#pragma once

#include "answer.h"
#include "service.h"

enum { BODY_BYTES_MOST = 1 << 20 };

/* A connection. */
struct client {
  struct client *next, **link; /* in service->clients */
  struct MHD_Connection *connection;
  int file;
  uint64_t since_ns;         /* when it came, or its last response ended */
  struct exchange *exchange; /* NULL between two requests */
  bool left;                 /* it has closed its side */
};

struct exchange {
  struct service *service;
  struct client *client;
  struct MHD_Connection *connection;
  struct exchange *next, **link; /* in service->exchanges, if there is a record */
  struct exchange *unread_next;  /* in service->unread */
  const struct route *route;
  struct buffer body;
  struct question question;
  struct answer answer;
  struct buffer out;       /* of a stream: what has not been sent; else the object */
  struct request *request; /* NULL: none, or it is given back */
  uint64_t sent_ns;        /* of a stream: the last time that something was sent */
  uint64_t body_bytes;
  bool takes_body, body_too_long, body_has_no_room, is_whole, waited, suspended, cut;
};

/* For MHD_start_daemon. */
enum MHD_Result exchange_handle(void *service, struct MHD_Connection *connection, const char *url, const char *method,
                                const char *version, const char *data, size_t *data_bytes, void **exchange);
void exchange_complete(void *service, struct MHD_Connection *connection, void **exchange,
                       enum MHD_RequestTerminationCode code);

void client_change(void *service, struct MHD_Connection *connection, void **client,
                   enum MHD_ConnectionNotificationCode code);

/* A client has closed its side: what it asked for is cancelled. */
void client_left(struct client *client);
/* Ends connections whose request has not come whole for so long that it would never. */
void clients_look(struct service *service, uint64_t now);
/* Begins a round: the shortest body that waits has its turn. */
void bodies_go_on(struct service *service);
/* After news of the engine: what is new goes to the client. */
void exchange_advance(struct exchange *exchange, uint64_t now);
/* The answer ends with an error. */
void exchange_cancel(struct exchange *exchange);
/* The client is gone, or must go: cancels the request, and ends the connection. */
void exchange_cut(struct exchange *exchange);
