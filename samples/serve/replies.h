/* replies.h - responses that need no model: errors, the list of models, health and metrics. */
#pragma once

#include "buffer.h"
#include "service.h"

/* Each queues a whole response. */
enum MHD_Result reply(struct MHD_Connection *connection, int status, const char *type, struct buffer *body);
/* With a further header of the response, or NULL. */
enum MHD_Result reply_error(struct service *service, struct MHD_Connection *connection, int status, const char *header,
                            const char *value, const char *message, const char *field);
enum MHD_Result reply_page(struct service *service, struct MHD_Connection *connection);
enum MHD_Result reply_models(struct service *service, struct MHD_Connection *connection);
enum MHD_Result reply_health(struct service *service, struct MHD_Connection *connection);
enum MHD_Result reply_ready(struct service *service, struct MHD_Connection *connection);
enum MHD_Result reply_metrics(struct service *service, struct MHD_Connection *connection);
