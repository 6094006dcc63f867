/* server.c - the HTTP thread (server.h): one epoll instance for the sockets of libmicrohttpd, the engine's news,
 * signals, and clients that leave. */
#include "server.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../sample.h"
#include "exchange.h"

enum { EVENTS_MOST = 64, LOOK_MS = 200, FILES_OF_OTHERS = 64, BACKLOG = 1024 };
enum { CONNECTION_BYTES = 1 << 15 };           /* for a connection's headers */
static const uint64_t leaving_ns = 1000000000; /* for last events, after the time to leave */

/* ---- Socket ------------------------------------------------------------------------------------------------------ */

static int listen_unix(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (!*path) give_up("--unix is empty, expected a path");
  if (strlen(path) >= sizeof address.sun_path) give_up("--unix is longer than %zu bytes", sizeof address.sun_path - 1);
  memcpy(address.sun_path, path, strlen(path));
  const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool in_use = connect(file, (struct sockaddr *)&address, sizeof address) == 0;
  if (in_use) give_up("%s: another server listens there", path);
  struct stat found;
  const bool is_left = errno == ECONNREFUSED && stat(path, &found) == 0 && S_ISSOCK(found.st_mode);
  if (is_left) unlink(path); /* by a server that was killed */
  close(file);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, BACKLOG))
    give_up("%s: %s", path, strerror(errno));
  fprintf(stderr, "listening on %s\n", path);
  return listener;
}

static int listen_address(const char *host, uint16_t port) {
  char port_text[8];
  struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found;
  snprintf(port_text, sizeof port_text, "%u", port);
  const int unknown = getaddrinfo(host, port_text, &hints, &found);
  if (unknown) give_up("--listen: %s: %s", host, gai_strerror(unknown));
  const int listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
  if (listener >= 0) setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listener < 0 || bind(listener, found->ai_addr, found->ai_addrlen) || listen(listener, BACKLOG))
    give_up("--listen: %s:%u: %s", host, port, strerror(errno));
  freeaddrinfo(found);
  struct sockaddr_storage bound;
  socklen_t bytes = sizeof bound;
  getsockname(listener, (struct sockaddr *)&bound, &bytes);
  getnameinfo((struct sockaddr *)&bound, bytes, NULL, 0, port_text, sizeof port_text, NI_NUMERICSERV);
  fprintf(stderr, strchr(host, ':') ? "listening on http://[%s]:%s/\n" : "listening on http://%s:%s/\n", host,
          port_text);
  return listener;
}

/* ---- Begin ------------------------------------------------------------------------------------------------------- */

/* Only what a header can have. Of a file in UTF-16 the first key would be one letter, up to its zero. */
static bool is_key(const char *line, size_t bytes) {
  while (bytes && line[bytes - 1] > ' ' && line[bytes - 1] <= '~') bytes--;
  return !bytes;
}

static char **keys_read(const char *path) {
  FILE *file = fopen(path, "r");
  char **keys = NULL, *line = NULL;
  size_t room = 0, count = 0;
  ssize_t bytes;
  if (!file) give_up("--api-key-file: %s: %s", path, strerror(errno));
  for (int number = 1; (bytes = getline(&line, &room, file)) >= 0; number++) {
    while (bytes && (line[bytes - 1] == '\r' || line[bytes - 1] == '\n')) line[--bytes] = 0;
    if (!bytes) continue;
    if (!is_key(line, (size_t)bytes))
      give_up("--api-key-file: line %d of %s is no key: it has a blank, or a byte that is not ASCII", number, path);
    keys = realloc(keys, (count + 2) * sizeof *keys);
    if (!keys || !(keys[count++] = strdup(line))) give_up("no memory for keys");
  }
  if (ferror(file)) give_up("--api-key-file: %s: %s", path, strerror(errno));
  if (!count) give_up("--api-key-file: %s has no key", path);
  free(line);
  fclose(file);
  keys[count] = NULL;
  return keys;
}

static void watch_file(const struct service *service, int file, void *user) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = user};
  if (epoll_ctl(service->events, EPOLL_CTL_ADD, file, &event)) give_up("epoll_ctl: %s", strerror(errno));
}

/* Signals come through a file. This is called before any thread starts, so that none is interrupted by them. */
static int signals_open(void) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  signal(SIGPIPE, SIG_IGN);
  const int file = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (file < 0) give_up("signalfd: %s", strerror(errno));
  return file;
}

void server_open(struct service *service, const struct serve_options *options, const struct template *template) {
  *service = (struct service){.options = options, .template = template, .opened = time(NULL)};
  service->signals = signals_open();
  service->events = epoll_create1(EPOLL_CLOEXEC);
  if (service->events < 0) give_up("epoll_create1: %s", strerror(errno));
  if (options->key_file) service->keys = keys_read(options->key_file);
  service->listener =
      options->unix_path ? listen_unix(options->unix_path) : listen_address(options->address, options->port);
}

/* No path has escapes, and an escaped zero would end one early. */
static size_t leave_escapes(void *user, struct MHD_Connection *connection, char *text) {
  (void)user, (void)connection;
  return strlen(text);
}

static void daemon_start(struct service *service) {
  struct rlimit files = {.rlim_cur = 1024};
  getrlimit(RLIMIT_NOFILE, &files);
  const bool is_enough = files.rlim_cur > 2 * (rlim_t)FILES_OF_OTHERS;
  const unsigned connections = is_enough ? (unsigned)files.rlim_cur - FILES_OF_OTHERS : FILES_OF_OTHERS;
  service->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, exchange_handle, service,
                                     MHD_OPTION_LISTEN_SOCKET, service->listener, MHD_OPTION_NOTIFY_COMPLETED,
                                     exchange_complete, service, MHD_OPTION_NOTIFY_CONNECTION, client_change, service,
                                     MHD_OPTION_UNESCAPE_CALLBACK, leave_escapes, NULL, MHD_OPTION_CONNECTION_LIMIT,
                                     connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)service->options->idle_s,
                                     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_END);
  if (!service->daemon) give_up("libmicrohttpd cannot serve this socket: %s", strerror(errno));
  watch_file(service, MHD_get_daemon_info(service->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, service->daemon);
  watch_file(service, service->signals, &service->signals);
  watch_file(service, service->engine->news, &service->engine->news);
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

static void stop_begin(struct service *service, uint64_t cut_ns) {
  if (!service->stopping) {
    const int listener = MHD_quiesce_daemon(service->daemon);
    if (listener >= 0) close(listener);
    if (service->options->unix_path) unlink(service->options->unix_path);
  }
  service->stopping = true;
  service->cut_ns = cut_ns;
}

/* The first signal lets answers end, the second one cancels them. */
static void signal_take(struct service *service, uint64_t now) {
  struct signalfd_siginfo info;
  while (read(service->signals, &info, sizeof info) == sizeof info)
    stop_begin(service, service->stopping ? now : now + (uint64_t)service->options->grace_s * 1000000000);
}

static void events_take(struct service *service, int timeout_ms) {
  struct epoll_event events[EVENTS_MOST];
  uint64_t count;
  const int ready = epoll_wait(service->events, events, EVENTS_MOST, timeout_ms);
  for (int i = 0; i < ready; i++) {
    void *source = events[i].data.ptr;
    if (source == service->daemon) continue; /* MHD_run follows */
    if (source == &service->signals)
      signal_take(service, clock_ns());
    else if (source == &service->engine->news)
      while (read(service->engine->news, &count, sizeof count) > 0) continue;
    else
      client_left(source);
  }
}

/* How long the next round may sleep. The engine writes its file only while news are wanted. */
static int timeout_of(struct service *service) {
  MHD_UNSIGNED_LONG_LONG most = LOOK_MS;
  atomic_store(&service->engine->news_wanted, false);
  if (service->unread || (service->options->model.spins && service->exchanges)) return 0;
  if (MHD_get_timeout(service->daemon, &most) != MHD_YES || most > LOOK_MS) most = LOOK_MS;
  if (most) atomic_store(&service->engine->news_wanted, true);
  return atomic_load(&service->engine->news_count) == service->news_seen ? (int)most : 0;
}

static void round_take(struct service *service) {
  events_take(service, timeout_of(service));
  const uint64_t now = clock_ns();
  service->news_seen = atomic_load(&service->engine->news_count);
  service_collect(service);
  for (struct exchange *exchange = service->exchanges; exchange; exchange = exchange->next)
    if (service->stopping && now > service->cut_ns + leaving_ns)
      exchange_cut(exchange);
    else {
      if (service->stopping && now > service->cut_ns) exchange_cancel(exchange);
      exchange_advance(exchange, now);
    }
  clients_look(service, now);
  service_is_alive(service);
  bodies_go_on(service);
  MHD_run(service->daemon);
}

/* ---- End --------------------------------------------------------------------------------------------------------- */

static void server_close(struct service *service) {
  /* libmicrohttpd ends the process if a connection is suspended. */
  for (struct exchange *exchange = service->exchanges; exchange; exchange = exchange->next) exchange_cut(exchange);
  while (service->unread) bodies_go_on(service);
  MHD_stop_daemon(service->daemon);
  close(service->events);
  close(service->signals);
  service_close(service);
  for (char **key = service->keys; key && *key; key++) free(*key);
  free(service->keys);
}

/* Where replays never end, nothing can be closed. */
_Noreturn static void leave(const char *why) {
  fprintf(stderr, "serve: %s\n", why);
  _exit(SAMPLE_WRONG);
}

int server_run(struct service *service, struct engine *engine) {
  service_open(service, engine);
  daemon_start(service);
  while (!service->stopping ||
         ((service->exchanges || service->unread) && clock_ns() < service->cut_ns + leaving_ns + leaving_ns / 2)) {
    round_take(service);
    const uint64_t now = clock_ns();
    if (atomic_load(&engine->lost) && (!service->stopping || now < service->cut_ns))
      stop_begin(service, now - leaving_ns / 2);
  }
  if (atomic_load(&engine->lost)) leave(engine->lost_text);
  if (!engine_stop(engine)) leave("a replay does not end");
  server_close(service);
  return SAMPLE_OK;
}
