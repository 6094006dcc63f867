/* bench_exchange.c - rondo bench exchange: times exchanges between ranks, each one of a chain in one graph. Every rank
 * has a GPU of its own as far as there are as many. A replay of a long chain and one of a short chain of the same
 * exchanges differ by the exchanges alone. With --engine nccl each exchange is a rondo_add_nccl. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../json_lines.h"
#include "bench.h"
#include "exchange_plot.h"
#include "nccl_ranks.h"
#include "timing.h"

enum { SHORT_CHAIN = 50, LONG_CHAIN = 550, HOST_CHAIN = 8, RIVALS_MOST = 256, NAME_BYTES = JSON_TEXT_BYTES };

struct options {
  rondo_backend backend;
  int64_t samples;
  int32_t ranks, engine;
  const char *json, *rivals, *plot;
};

enum { OWN_ENGINE, NCCL_ENGINE };
static const struct choice engines[] = {{"own", OWN_ENGINE}, {"nccl", NCCL_ENGINE}, {NULL, 0}};

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

typedef rondo_status (*exchange_function)(rondo_graph *graph, const rondo_exchange_desc *desc);

/* limit: the most of Rondo's time over NCCL's, for two ranks with a GPU each; 0: none. */
struct exchange_case {
  const char *name;
  exchange_function add;
  rondo_nccl_call call; /* the same of NCCL */
  int64_t bytes;        /* of the largest operand, in bf16 */
  double limit;
  int64_t terms; /* of all_reduce: `in` is f32 [terms, ..], as a decoder's layer half leaves it, and so is out */
};

static const struct exchange_case cases[] = {
    {"all_reduce", rondo_add_all_reduce, RONDO_NCCL_ALL_REDUCE, 4096, 0.33, 0},
    {"all_reduce", rondo_add_all_reduce, RONDO_NCCL_ALL_REDUCE, 8192, 0.33, 0},
    {"all_reduce", rondo_add_all_reduce, RONDO_NCCL_ALL_REDUCE, 16384, 0, 0},
    {"all_reduce", rondo_add_all_reduce, RONDO_NCCL_ALL_REDUCE, 65536, 0, 0},
    {"all_reduce", rondo_add_all_reduce, RONDO_NCCL_ALL_REDUCE, 262144, 0.35, 0},
    {"all_reduce", rondo_add_all_reduce, RONDO_NCCL_ALL_REDUCE, 1048576, 0.45, 0},
    {"all_reduce", rondo_add_all_reduce, RONDO_NCCL_ALL_REDUCE, 4194304, 0, 0},
    {"all_reduce and terms", rondo_add_all_reduce, RONDO_NCCL_ALL_REDUCE, 8192, 0, 8},
    {"all_gather", rondo_add_all_gather, RONDO_NCCL_ALL_GATHER, 8192, 0, 0},
    {"all_gather", rondo_add_all_gather, RONDO_NCCL_ALL_GATHER, 1048576, 0, 0},
    {"reduce_scatter", rondo_add_reduce_scatter, RONDO_NCCL_REDUCE_SCATTER, 8192, 0, 0},
    {"reduce_scatter", rondo_add_reduce_scatter, RONDO_NCCL_REDUCE_SCATTER, 1048576, 0, 0},
    {"broadcast", rondo_add_broadcast, RONDO_NCCL_BROADCAST, 8192, 0, 0},
    {"broadcast", rondo_add_broadcast, RONDO_NCCL_BROADCAST, 1048576, 0, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

/* As exchange_rivals.py writes it. */
static void case_name(const struct exchange_case *c, uint32_t ranks, char name[NAME_BYTES]) {
  snprintf(name, NAME_BYTES, "%s of %d bytes, %u ranks", c->name, (int)c->bytes, ranks);
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------- */

struct ranks {
  uint32_t count;
  rondo_graph *lending[RONDO_MAX_RANKS], *graphs[RONDO_MAX_RANKS];
  rondo_tensor exchange[RONDO_MAX_RANKS];
  rondo_runtime *runtimes[RONDO_MAX_RANKS];
  rondo_exec *lenders[RONDO_MAX_RANKS], *execs[RONDO_MAX_RANKS];
  rondo_slot slots[RONDO_MAX_RANKS];
  struct ncclComm **communicators; /* NULL: Rondo's own exchanges */
};

/* Exchanges of the same operands: the own state alone orders them. */
static void chain_add(struct ranks *ranks, uint32_t rank, const struct exchange_case *c, int length) {
  rondo_graph *graph = ranks->graphs[rank];
  rondo_tensor in = {0}, out = {0};
  const int64_t whole = c->bytes / 2, part = whole / ranks->count;
  const bool is_source = rank == 0;
  if (c->terms) {
    TRY(rondo_state(graph, "in", RONDO_F32, 2, (int64_t[]){c->terms, c->bytes / 4}, &in));
    TRY(rondo_state(graph, "out", RONDO_F32, 1, (int64_t[]){c->bytes / 4}, &out));
  }
  if (!c->terms && (c->add != rondo_add_broadcast || is_source))
    TRY(rondo_state(graph, "in", RONDO_BF16, 1, c->add == rondo_add_all_gather ? &part : &whole, &in));
  if (!c->terms && (c->add != rondo_add_broadcast || !is_source))
    TRY(rondo_state(graph, "out", RONDO_BF16, 1, c->add == rondo_add_reduce_scatter ? &part : &whole, &out));
  for (int i = 0; i < length && ranks->communicators; i++)
    TRY(rondo_add_nccl(
        graph, &(rondo_nccl_desc){.call = c->call, .communicator = ranks->communicators[rank], .in = in, .out = out}));
  for (int i = 0; i < length && !ranks->communicators; i++)
    TRY(c->add(graph, &(rondo_exchange_desc){.in = in,
                                             .out = out,
                                             .exchange = ranks->exchange,
                                             .rank = rank,
                                             .ranks = ranks->count,
                                             .timeout_ns = UINT64_C(10) * 1000 * 1000 * 1000}));
}

static void ranks_open(struct ranks *ranks, const struct options *options, int32_t devices,
                       const struct exchange_case *c, int length) {
  rondo_options each[RONDO_MAX_RANKS];
  for (uint32_t r = 0; r < ranks->count; r++) {
    TRY(rondo_graph_create(NULL, NULL, &ranks->lending[r]));
    TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tasks = LONG_CHAIN}, &ranks->graphs[r]));
    TRY(rondo_exchange_state(ranks->lending[r], NULL, ranks->count, (uint64_t)c->bytes, &ranks->exchange[r]));
  }
  for (uint32_t r = 0; r < ranks->count; r++) {
    rondo_plan plan;
    chain_add(ranks, r, c, length);
    TRY(rondo_plan_graphs((rondo_graph *[]){ranks->lending[r], ranks->graphs[r]}, 2, &plan));
    each[r] = (rondo_options){.backend = options->backend,
                              .device = (int32_t)r % devices,
                              .device_bytes = plan.device_bytes,
                              .pinned_bytes = plan.pinned_bytes_per_slot,
                              .host_bytes = plan.host_bytes,
                              .wait_mode = options->backend == RONDO_BACKEND_CUDA ? RONDO_WAIT_SPIN : RONDO_WAIT_BLOCK,
                              .host_threads = 1};
  }
  TRY(rondo_open_group(each, ranks->count, ranks->runtimes));
  for (uint32_t r = 0; r < ranks->count; r++)
    TRY(rondo_instantiate(ranks->runtimes[r], ranks->lending[r], NULL, &ranks->lenders[r]));
  char text[NCCL_TEXT_BYTES];
  if (nccl_ranks_instantiate(ranks->count, ranks->runtimes, ranks->graphs, ranks->execs, text) != RONDO_OK)
    fprintf(stderr, "%s\n", text), exit(EXIT_FAILED);
  for (uint32_t r = 0; r < ranks->count; r++) TRY(rondo_acquire(ranks->execs[r], &ranks->slots[r]));
}

static void ranks_close(struct ranks *ranks) {
  for (uint32_t r = 0; r < ranks->count; r++) {
    TRY(rondo_release(ranks->slots[r]));
    TRY(rondo_close_exec(&ranks->execs[r]));
  }
  for (uint32_t r = 0; r < ranks->count; r++) {
    TRY(rondo_close_exec(&ranks->lenders[r]));
    TRY(rondo_close(&ranks->runtimes[r]));
    TRY(rondo_graph_destroy(&ranks->graphs[r]));
    TRY(rondo_graph_destroy(&ranks->lending[r]));
  }
}

/* ---- Measurements ------------------------------------------------------------------------------------------------ */

static struct ncclComm *communicators[RONDO_MAX_RANKS];

static double chain_us(struct ranks *ranks, const struct options *options, int32_t devices,
                       const struct exchange_case *c, int length) {
  struct samples samples = samples_take((size_t)options->samples);
  ranks_open(ranks, options, devices, c, length);
  for (int64_t i = -3; i < options->samples; i++) {
    const uint64_t begin = timing_now_ns();
    TRY(rondo_replay_all(ranks->slots, ranks->count));
    TRY(rondo_wait_all(ranks->slots, ranks->count, RONDO_FOREVER));
    if (i >= 0) samples_add(&samples, timing_now_ns() - begin);
  }
  ranks_close(ranks);
  const double us = samples_us(&samples, 50);
  samples_free(&samples);
  return us;
}

struct rivals {
  size_t count;
  struct {
    char name[NAME_BYTES];
    double us;
  } items[RIVALS_MOST];
};

static void rival_take(void *user, const struct json_object *object) {
  struct rivals *rivals = user;
  const char *name = json_object_text(object, "name");
  if (!name[0] || rivals->count == RIVALS_MOST) return;
  snprintf(rivals->items[rivals->count].name, NAME_BYTES, "%s", name);
  rivals->items[rivals->count++].us = json_object_number(object, "us");
}

/* The time of NCCL, or 0. */
static double rival_us(const struct rivals *rivals, const char *name) {
  for (size_t i = 0; i < rivals->count; i++)
    if (!strcmp(rivals->items[i].name, name)) return rivals->items[i].us;
  return 0;
}

static void measure(struct report *report, const struct options *options, int32_t devices, const struct rivals *rivals,
                    const struct exchange_case *c, struct exchange_plot *plot) {
  struct ranks ranks = {.count = (uint32_t)options->ranks,
                        .communicators = options->engine == NCCL_ENGINE ? communicators : NULL};
  char name[NAME_BYTES];
  case_name(c, ranks.count, name);
  /* On the host an exchange takes so long that the launch is nothing beside a few. */
  const bool is_host = options->backend == RONDO_BACKEND_HOST;
  const int less = is_host ? 0 : SHORT_CHAIN, more = is_host ? HOST_CHAIN : LONG_CHAIN;
  const double small = less ? chain_us(&ranks, options, devices, c, less) : 0;
  const double us = (chain_us(&ranks, options, devices, c, more) - small) / (more - less);
  const double nccl_us = rival_us(rivals, name);
  if (nccl_us > 0)
    report_ratio(report, name, us, nccl_us, "us",
                 ranks.count == 2 && devices >= 2 && !ranks.communicators ? c->limit : 0);
  else
    report_figure(report, name, us, "us", 0);
  if (c->add == rondo_add_all_reduce && !c->terms && plot->count < EXCHANGE_POINTS_MOST)
    plot->points[plot->count++] = (struct exchange_point){c->bytes, us, nccl_us};
}

static const struct argument arguments[] = {
    BACKEND_ARGUMENT(struct options),
    {.name = "ranks",
     .help = "default one for each GPU, at least 2; more ranks than GPUs share these",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, ranks),
     .least = 2,
     .most = RONDO_MAX_RANKS},
    {.name = "engine",
     .help = "whose exchanges: own, Rondo's (the default), or nccl, for which each rank has a GPU",
     .kind = VALUE_CHOICE,
     .offset = offsetof(struct options, engine),
     .choices = engines},
    {.name = "samples",
     .help = "replays of each chain, whose median is taken; default 25",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, samples),
     .least = 1,
     .most = 1e6},
    {.name = "rivals",
     .help = "show the times in a file of command/bench/rivals.py beside Rondo's",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, rivals),
     .value_name = "FILE"},
    {.name = "plot",
     .help = "draw an SVG: the time of all_reduce over the bytes",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, plot),
     .value_name = "FILE"},
    JSON_ARGUMENT(struct options),
};

int bench_exchange(int count, char **words) {
  static const struct grammar grammar = {
      .program = "rondo bench exchange",
      .about = "Times exchanges between ranks, bf16 of 4 KB to 4 MB, each as one of a chain in a graph.\n",
      .status = BENCH_STATUS,
      .options = ARGUMENT_TABLE(arguments)};
  static struct rivals rivals;
  static struct exchange_plot plot;
  struct options options = {.samples = 25};
  struct report report = {0};
  rondo_runtime *runtime;
  rondo_info info;
  const int done = arguments_read(&grammar, count, words, &options, NULL);
  if (done != ARGUMENTS_READ) return done;
  if (options.plot && options.engine == NCCL_ENGINE)
    return command_failed("bench exchange: --plot goes with Rondo's own exchanges");
  if (options.rivals && !json_lines_read(options.rivals, rival_take, &rivals)) return EXIT_FAILED;
  TRY(rondo_open(&(rondo_options){.backend = options.backend}, &runtime));
  TRY(rondo_runtime_info(runtime, &info));
  options.backend = info.backend;
  const int32_t devices = info.backend == RONDO_BACKEND_CUDA ? cuda_device_count(RONDO_MAX_RANKS) : 1;
  if (!options.ranks) options.ranks = devices < 2 ? 2 : devices;
  snprintf(plot.title, sizeof plot.title, "all_reduce of bf16 between %d ranks, each one of a chain in a graph",
           options.ranks);
  snprintf(plot.device, sizeof plot.device, "%s", info.device_name);
  report_begin(&report, options.json);
  report_machine(&report, &info);
  report_heading(&report, devices < options.ranks ? "ranks share a device" : "each rank has a device",
                 info.multiprocessors);
  TRY(rondo_close(&runtime));
  const char *why = "NCCL needs a GPU for each rank";
  const bool by_nccl = options.engine == NCCL_ENGINE;
  if (by_nccl && (devices < options.ranks || !nccl_ranks_open((uint32_t)options.ranks, communicators, &why)))
    return fprintf(stderr, "rondo bench exchange: %s\n", why), EXIT_FAILED;
  for (int i = 0; i < CASES; i++)
    if (!by_nccl || !cases[i].terms) measure(&report, &options, devices, &rivals, &cases[i], &plot);
  if (by_nccl) nccl_ranks_close((uint32_t)options.ranks, communicators);
  if (options.plot && !exchange_plot_write(options.plot, &plot)) return EXIT_FAILED;
  return report_end(&report);
}
