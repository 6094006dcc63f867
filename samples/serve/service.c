/* service.c - see service.h. */
#include "service.h"

#include <stdlib.h>

#include "../sample.h"

static const uint64_t heartbeat_most_ns = 5000000000; /* longer than any step */
static const uint64_t look_most_ns = 2000000000;      /* longer than any round of the HTTP thread */

int32_t service_record_count(const struct serve_options *options) {
  return 2 * (options->model.sequences + options->queue);
}

void service_open(struct service *service, struct engine *engine) {
  const size_t context = (size_t)engine->model->desc.context;
  const size_t count = (size_t)service_record_count(service->options);
  service->engine = engine;
  service->records = calloc(count, sizeof *service->records);
  service->unused = calloc(count, sizeof *service->unused);
  service->orphans = calloc(count, sizeof *service->orphans);
  if (!service->records || !service->unused || !service->orphans) give_up("no memory for %zu requests", count);
  service->record_count = (int32_t)count;
  for (size_t i = 0; i < count; i++) {
    struct request *record = &service->records[i];
    record->prompt = calloc(context, sizeof *record->prompt);
    record->logprobs = calloc(context, sizeof *record->logprobs);
    if (!record->prompt || !record->logprobs) give_up("no memory for %zu requests", count);
    service_return(service, record);
  }
}

void service_close(struct service *service) {
  for (int32_t i = 0; i < service->record_count; i++) {
    free(service->records[i].prompt);
    free(service->records[i].logprobs);
  }
  free(service->records);
  free(service->unused);
  free(service->orphans);
}

struct request *service_take(struct service *service) {
  const int32_t asked = service->record_count - service->unused_count - service->orphan_count;
  const bool has_room = service->unused_count > 0 && asked < service->record_count / 2;
  return has_room ? service->unused[--service->unused_count] : NULL;
}

void service_return(struct service *service, struct request *request) {
  service->unused[service->unused_count++] = request;
}

void service_abandon(struct service *service, struct request *request) {
  atomic_store(&request->cancelled, true);
  service->orphans[service->orphan_count++] = request;
}

void service_collect(struct service *service) {
  int32_t kept = 0;
  for (int32_t i = 0; i < service->orphan_count; i++)
    if (atomic_load(&service->orphans[i]->end) == END_NONE)
      service->orphans[kept++] = service->orphans[i];
    else
      service_return(service, service->orphans[i]);
  service->orphan_count = kept;
}

bool service_is_alive(struct service *service) {
  const struct engine_metrics *metrics = &service->engine->metrics;
  const uint64_t now = clock_ns(), heartbeat = atomic_load(&metrics->heartbeat);
  const bool was_stopped = now > service->looked_ns + look_most_ns; /* and the replays with it, as by SIGSTOP */
  service->looked_ns = now;
  if (heartbeat != service->heartbeat || !atomic_load(&metrics->busy) || was_stopped) {
    service->heartbeat = heartbeat;
    service->heartbeat_ns = now;
  }
  return now - service->heartbeat_ns < heartbeat_most_ns;
}
