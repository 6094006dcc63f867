/* engine.c - the replaying thread (engine.h). A round takes new requests in, begins a chunk of a prompt, and replays
 * one decode step of all sequences that answer. A chunk is as long as measured times allow, so that answers keep their
 * pace. */
#include "engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "../sample.h"
#include "log_probability.h"

/* A chunk between decode steps may take this share of a step's time. The shortest one always may, and any that takes
 * hardly longer: on a GPU few rows take as long as the weights. */
static const double chunk_share = 0.5, hardly_longer = 1.1;
static const uint64_t look_ns = 1000000000; /* a step that takes longer leaves the heartbeat where it is */
/* What comes or leaves during a chunk waits for its end. On a host the longest could take more than the 5 s after which
 * replays count as stuck. */
static const uint64_t chunk_most_ns = 1000000000;

static int32_t sequence_count(const struct engine *engine) {
  return engine->model->decodes[0][engine->model->decode_count - 1].rows;
}

static bool answers(const struct sequence *sequence) {
  return sequence->request && sequence->row.position >= sequence->request->prompt_count;
}

static bool reads(const struct sequence *sequence) {
  return sequence->request && sequence->row.position < sequence->request->prompt_count;
}

/* ---- The ends of requests ---------------------------------------------------------------------------------------- */

static void request_end(struct engine *engine, struct request *request, enum request_end end) {
  struct engine_metrics *metrics = &engine->metrics;
  metric_add(&metrics->requests_ended, 1);
  if (end == END_CANCELLED) metric_add(&metrics->cancelled, 1);
  if (end == END_DEADLINE) metric_add(&metrics->expired, 1);
  atomic_store(&request->end, (int)end);
  atomic_fetch_add(&engine->news_count, 1);
}

static void sequence_end(struct engine *engine, struct sequence *sequence, enum request_end end) {
  pages_give(&engine->pages, sequence->pages, sequence->row.page_count);
  request_end(engine, sequence->request, end);
  sequence->request = NULL;
}

/* Why a request must end now; END_NONE if it need not. */
static enum request_end interruption(const struct engine *engine, const struct request *request, uint64_t now) {
  if (atomic_load(&engine->stopping) || atomic_load(&request->cancelled)) return END_CANCELLED;
  return request->deadline_ns && now > request->deadline_ns ? END_DEADLINE : END_NONE;
}

static void interrupt_all(struct engine *engine, uint64_t now) {
  int32_t kept = 0;
  for (int32_t i = 0; i < engine->waiting_count; i++) {
    struct request *request = engine->waiting[i];
    const enum request_end end = interruption(engine, request, now);
    if (end == END_NONE)
      engine->waiting[kept++] = request;
    else
      request_end(engine, request, end);
  }
  engine->waiting_count = kept;
  for (int32_t i = 0; i < sequence_count(engine); i++) {
    struct sequence *sequence = &engine->sequences[i];
    if (!sequence->request || (engine->chunk && engine->chunk_owner == i)) continue; /* its pages are being written */
    const enum request_end end = interruption(engine, sequence->request, now);
    if (end != END_NONE) sequence_end(engine, sequence, end);
  }
}

/* ---- Admission --------------------------------------------------------------------------------------------------- */

static bool admit(struct engine *engine, struct sequence *sequence, struct request *request, uint64_t now) {
  const int32_t rows = request->prompt_count + request->max_tokens;
  const int32_t shared = pages_take(&engine->pages, request->prompt, request->prompt_count, rows, sequence->pages);
  if (shared < 0) return false;
  request->reused = shared * PAGE_ROWS;
  sequence->request = request;
  sequence->row = (struct model_row){.position = request->reused,
                                     .page_count = pages_for(&engine->pages, rows),
                                     .pages = sequence->pages,
                                     .temperature = request->temperature,
                                     .top_p = request->top_p,
                                     .seed = request->seed};
  histogram_add(&engine->metrics.queued, now - request->submitted_ns);
  metric_add(&engine->metrics.prompt_tokens, (uint64_t)request->prompt_count);
  metric_add(&engine->metrics.reused_tokens, (uint64_t)request->reused);
  return true;
}

/* What the HTTP thread submitted waits now, the oldest first. */
static void submitted_take(struct engine *engine) {
  struct request *newest = atomic_exchange(&engine->submitted, NULL);
  for (const struct request *request = newest; request; request = request->before) engine->waiting_count++;
  for (int32_t at = engine->waiting_count; newest; newest = newest->before) engine->waiting[--at] = newest;
}

/* Requests are admitted in the order of their arrival: a long one is never overtaken, and so never starves. */
static void admit_all(struct engine *engine) {
  submitted_take(engine);
  const uint64_t now = clock_ns(); /* later than any of them was submitted */
  interrupt_all(engine, now);
  int32_t admitted = 0;
  for (int32_t i = 0; i < sequence_count(engine) && admitted < engine->waiting_count; i++)
    if (!engine->sequences[i].request) {
      if (!admit(engine, &engine->sequences[i], engine->waiting[admitted], now)) break;
      admitted++;
    }
  engine->waiting_count -= admitted;
  memmove(engine->waiting, engine->waiting + admitted, (size_t)engine->waiting_count * sizeof *engine->waiting);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static rondo_status step_wait(const struct llama_step *step) {
  rondo_status status;
  while ((status = rondo_wait(step->slot, look_ns)) == RONDO_TIMEOUT) continue;
  return status;
}

static uint64_t smoothed(uint64_t old, uint64_t measured) { return old ? (7 * old + measured) / 8 : measured; }

/* The sequence has a new token, of this row of a step. */
static void take_token(struct engine *engine, struct sequence *sequence, const struct llama_step *step, int32_t row,
                       uint64_t now) {
  struct request *request = sequence->request;
  const int32_t token = model_next(step, row), count = atomic_load(&request->answered);
  if (engine->options.ends[token]) {
    sequence_end(engine, sequence, END_STOP);
    return;
  }
  histogram_add(count ? &engine->metrics.between_tokens : &engine->metrics.first_token,
                now - (count ? sequence->answered_ns : request->submitted_ns));
  metric_add(&engine->metrics.answered_tokens, 1);
  if (request->with_logprobs) {
    const int64_t vocabulary = engine->model->desc.vocabulary;
    request->logprobs[count] = log_probability(model_logits(step, row, vocabulary), vocabulary, token);
  }
  request->answer[count] = sequence->row.token = token;
  sequence->answered_ns = now;
  atomic_store(&request->answered, count + 1);
  atomic_fetch_add(&engine->news_count, 1);
  if (count + 1 == request->max_tokens) sequence_end(engine, sequence, END_LENGTH);
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

/* Chunks longer than this kind take as long for each row, until they are measured. */
static void longer_guess(struct engine *engine, int32_t lane, int32_t kind) {
  const struct llama_step *chunks = engine->model->chunks[0][0];
  uint64_t *chunk_ns = engine->chunk_ns[lane];
  for (int32_t i = kind + 1; i < engine->model->chunk_count; i++)
    chunk_ns[i] = chunk_ns[i - 1] * (uint64_t)(chunks[i].rows / chunks[i - 1].rows);
}

/* The chunk with which the rest of a prompt is read soonest, of those that may be that long. */
static int32_t chunk_choose(const struct engine *engine, int32_t lane, int32_t left, bool beside_answers) {
  const uint64_t *chunk_ns = engine->chunk_ns[lane];
  int32_t best = 0;
  uint64_t best_ns = UINT64_MAX;
  for (int32_t i = 0; i < engine->model->chunk_count; i++) {
    const int32_t rows = engine->model->chunks[0][0][i].rows;
    if (i > engine->chunk_free && beside_answers && engine->model->lanes == 1 &&
        (double)chunk_ns[i] > chunk_share * (double)engine->decode_ns)
      break;
    if (i > 0 && chunk_ns[i] > chunk_most_ns) continue;
    const uint64_t whole_ns = chunk_ns[i] * (uint64_t)((left + rows - 1) / rows);
    if (whole_ns < best_ns) best = i, best_ns = whole_ns;
  }
  return best;
}

/* The request that came first goes first. */
static int32_t reader_find(const struct engine *engine) {
  int32_t found = -1;
  for (int32_t i = 0; i < sequence_count(engine); i++)
    if (reads(&engine->sequences[i]) &&
        (found < 0 || engine->sequences[i].request->submitted_ns < engine->sequences[found].request->submitted_ns))
      found = i;
  return found;
}

/* Prompts that begin alike and came together: the first is read, and the others have its pages. */
static void skip_filled(struct engine *engine, struct sequence *sequence) {
  struct request *request = sequence->request;
  const int32_t found = PAGE_ROWS * pages_take_filled(&engine->pages, request->prompt, request->prompt_count,
                                                      sequence->row.position, sequence->pages);
  const int32_t more = found - sequence->row.position;
  if (more <= 0) return;
  sequence->row.position = found;
  request->reused += more;
  metric_add(&engine->metrics.reused_tokens, (uint64_t)more);
}

static rondo_status chunk_begin(struct engine *engine, bool beside_answers, uint64_t now) {
  const int32_t owner = reader_find(engine);
  if (owner < 0) return RONDO_OK;
  struct sequence *sequence = &engine->sequences[owner];
  const struct request *request = sequence->request;
  skip_filled(engine, sequence);
  const int32_t left = request->prompt_count - sequence->row.position;
  engine->chunk_owner = owner;
  engine->chunk_lane = beside_answers ? engine->model->lanes - 1 : 0;
  engine->chunk_kind = chunk_choose(engine, engine->chunk_lane, left, beside_answers);
  const int32_t rows = engine->model->chunks[0][0][engine->chunk_kind].rows;
  engine->chunk_tokens = left < rows ? left : rows;
  engine->chunk_begun_ns = now;
  return model_prefill(engine->model, engine->chunk_lane, request->with_logprobs, engine->chunk_kind, &sequence->row,
                       request->prompt + sequence->row.position, engine->chunk_tokens, &engine->chunk);
}

/* After its replay is done. */
static void chunk_end(struct engine *engine, uint64_t now) {
  struct sequence *sequence = &engine->sequences[engine->chunk_owner];
  const struct llama_step *step = engine->chunk;
  const uint64_t took_ns = now - engine->chunk_begun_ns;
  uint64_t *chunk_ns = &engine->chunk_ns[engine->chunk_lane][engine->chunk_kind];
  engine->chunk = NULL;
  const bool is_first = !*chunk_ns; /* on the host: it is the shortest */
  *chunk_ns = smoothed(*chunk_ns, took_ns);
  if (is_first) longer_guess(engine, engine->chunk_lane, engine->chunk_kind);
  histogram_add(&engine->metrics.prefill_step, took_ns);
  sequence->row.position += engine->chunk_tokens;
  /* Only prompts are shared. Keys and values of answers can have other last bits than those of the same text in a
   * prompt, and an answer would depend on what is in the cache. */
  pages_share(&engine->pages, sequence->request->prompt, sequence->row.position, sequence->pages);
  if (answers(sequence)) take_token(engine, sequence, step, 0, now);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static int32_t rows_gather(struct engine *engine, bool *with_logits) {
  int32_t count = 0;
  *with_logits = false;
  for (int32_t i = 0; i < sequence_count(engine); i++)
    if (answers(&engine->sequences[i])) {
      engine->row_owners[count] = i;
      engine->rows[count++] = engine->sequences[i].row;
      *with_logits |= engine->sequences[i].request->with_logprobs;
    }
  return count;
}

static void decode_end(struct engine *engine, const struct llama_step *step, int32_t count, uint64_t now) {
  for (int32_t i = 0; i < count; i++) {
    struct sequence *sequence = &engine->sequences[engine->row_owners[i]];
    sequence->row.position++;
    take_token(engine, sequence, step, i, now);
  }
}

/* One round: a chunk of a prompt, if one waits, and a decode step of all sequences that answer. In one lane the chunk
 * is done before the step; in two lanes it may go on for several steps. */
static rondo_status round_replay(struct engine *engine) {
  struct llama_step *step = NULL;
  bool with_logits;
  const int32_t count = rows_gather(engine, &with_logits);
  uint64_t now = clock_ns();
  rondo_status status = engine->chunk ? RONDO_OK : chunk_begin(engine, count > 0, now);
  if (status == RONDO_OK && count) status = model_decode(engine->model, with_logits, engine->rows, count, &step);
  if (status != RONDO_OK) return status;
  const bool waits = engine->chunk && (engine->model->lanes == 1 || !count);
  bool chunk_done = false;
  if (waits) {
    status = step_wait(engine->chunk);
    if (status != RONDO_OK) return status;
    chunk_done = true;
    now = clock_ns();
    chunk_end(engine, now);
  }
  if (count) {
    status = step_wait(step);
    if (status != RONDO_OK) return status;
    const uint64_t end = clock_ns();
    engine->decode_ns = smoothed(engine->decode_ns, end - now);
    histogram_add(&engine->metrics.decode_step, end - now);
    decode_end(engine, step, count, end);
  }
  if (!chunk_done && engine->chunk) {
    status = rondo_poll(engine->chunk->slot);
    if (status == RONDO_OK) chunk_end(engine, clock_ns());
    if (status == RONDO_BUSY) status = RONDO_OK;
  }
  return status;
}

/* ---- The thread -------------------------------------------------------------------------------------------------- */

static void lose_all(struct engine *engine) {
  snprintf(engine->lost_text, sizeof engine->lost_text, "%s", rondo_error_text());
  atomic_store(&engine->lost, true);
  for (int32_t i = 0; i < sequence_count(engine); i++)
    if (engine->sequences[i].request) sequence_end(engine, &engine->sequences[i], END_LOST);
  submitted_take(engine);
  for (int32_t i = 0; i < engine->waiting_count; i++) request_end(engine, engine->waiting[i], END_LOST);
  engine->waiting_count = 0;
}

static int32_t active_count(const struct engine *engine) {
  int32_t count = 0;
  for (int32_t i = 0; i < sequence_count(engine); i++) count += engine->sequences[i].request != NULL;
  return count;
}

static void metrics_update(struct engine *engine, int32_t active) {
  struct engine_metrics *metrics = &engine->metrics;
  atomic_store_explicit(&metrics->active, active, memory_order_relaxed);
  atomic_store_explicit(&metrics->waiting, engine->waiting_count, memory_order_relaxed);
  atomic_store_explicit(&metrics->pages_used, pages_used(&engine->pages), memory_order_relaxed);
  atomic_store(&metrics->busy, active > 0 || engine->waiting_count > 0);
  metric_add(&metrics->heartbeat, 1);
}

/* Until there is a request, or the thread is to stop. */
static void rest(struct engine *engine) {
  uint64_t count;
  if (engine->options.spins) {
    __builtin_ia32_pause();
    return;
  }
  atomic_store(&engine->asleep, true);
  if (!atomic_load(&engine->submitted) && !atomic_load(&engine->stopping))
    while (read(engine->wake, &count, sizeof count) < 0) continue;
  atomic_store(&engine->asleep, false);
}

static void news_tell(struct engine *engine) {
  const uint64_t count = atomic_load(&engine->news_count), one = 1;
  if (count == engine->news_told || !atomic_load(&engine->news_wanted)) return;
  engine->news_told = count;
  if (write(engine->news, &one, sizeof one) < 0) return; /* full: the HTTP thread wakes up anyway */
}

bool engine_round(struct engine *engine) {
  /* Before requests are taken in: none is submitted after it, and so none is left. */
  const bool stopping = atomic_load(&engine->stopping);
  admit_all(engine);
  const int32_t active = active_count(engine);
  metrics_update(engine, active);
  if (active > 0 && round_replay(engine) != RONDO_OK) lose_all(engine);
  news_tell(engine);
  if (atomic_load(&engine->lost) || (stopping && !active_count(engine))) return false;
  if (!active) rest(engine);
  return true;
}

static void *engine_run(void *user) {
  struct engine *engine = user;
  while (engine_round(engine)) continue;
  return NULL;
}

/* ---- Begin and end ----------------------------------------------------------------------------------------------- */

/* Measures a lane's chunks. */
static void lane_try(struct engine *engine, int32_t lane) {
  static const uint64_t trial_most_ns = 20000000; /* more would delay the start */
  static const int32_t tokens[1024], spare[] = {0};
  const struct model_row row = {.pages = spare, .page_count = 1};
  uint64_t *chunk_ns = engine->chunk_ns[lane];
  for (int32_t i = 0; i < engine->model->chunk_count; i++) {
    for (int trial = 0; trial < 2 && chunk_ns[i] < trial_most_ns; trial++) {
      const uint64_t begin = clock_ns();
      TRY(model_prefill(engine->model, lane, false, i, &row, tokens, engine->model->chunks[0][0][i].rows,
                        &engine->chunk));
      TRY(rondo_wait(engine->chunk->slot, RONDO_FOREVER));
      chunk_ns[i] = clock_ns() - begin;
      engine->chunk = NULL;
    }
    longer_guess(engine, lane, i);
  }
}

/* Only a GPU's: on the host it would read prompts of every length, for seconds. */
static void warm_up(struct engine *engine) {
  model_warm_up(engine->model);
  for (int32_t lane = 0; lane < engine->model->lanes; lane++) lane_try(engine, lane);
  const uint64_t *chunk_ns = engine->chunk_ns[0];
  for (int32_t i = 1; i < engine->model->chunk_count; i++)
    if ((double)chunk_ns[i] <= hardly_longer * (double)chunk_ns[0]) engine->chunk_free = i;
}

void engine_open(struct engine *engine, struct model *model, const struct engine_options *options) {
  *engine = (struct engine){.model = model, .options = *options};
  const int32_t sequences = sequence_count(engine);
  const int64_t list = model_pages_most(&model->desc);
  engine->page_lists = calloc((size_t)(sequences * list), sizeof *engine->page_lists);
  engine->waiting = calloc((size_t)options->requests, sizeof *engine->waiting);
  engine->wake = eventfd(0, EFD_CLOEXEC);
  engine->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (!engine->page_lists || !engine->waiting || !pages_open(&engine->pages, (int32_t)model->desc.pages, PAGE_ROWS))
    give_up("no memory for %d sequences", sequences);
  if (engine->wake < 0 || engine->news < 0) give_up("no file for an event: %s", strerror(errno));
  for (int32_t i = 0; i < sequences; i++) engine->sequences[i].pages = engine->page_lists + i * list;
  engine->pages.in_order = model->alone[0].graph != NULL;
  atomic_store(&engine->metrics.pages, engine->pages.count - 1);
  if (model->info.backend == RONDO_BACKEND_CUDA) warm_up(engine);
}

void engine_close(struct engine *engine) {
  close(engine->wake);
  close(engine->news);
  pages_close(&engine->pages);
  free(engine->page_lists);
  free(engine->waiting);
}

void engine_start(struct engine *engine, struct model *model, const struct engine_options *options) {
  engine_open(engine, model, options);
  const int error = pthread_create(&engine->thread, NULL, engine_run, engine);
  if (error) give_up("no thread for replays: %s", strerror(error));
}

static void engine_wake(struct engine *engine) {
  const uint64_t one = 1;
  if (atomic_load(&engine->asleep) && write(engine->wake, &one, sizeof one) < 0) give_up("an event cannot be written");
}

void engine_submit(struct engine *engine, struct request *request) {
  request->before = atomic_load(&engine->submitted);
  while (!atomic_compare_exchange_weak(&engine->submitted, &request->before, request)) continue;
  engine_wake(engine);
}

/* Patience is counted in looks and not by a clock, which goes on while the process is stopped. */
bool engine_stop(struct engine *engine) {
  enum { LOOKS = 5000, MILLISECOND_NS = 1000000 };
  atomic_store(&engine->stopping, true);
  engine_wake(engine);
  for (int look = 0; pthread_tryjoin_np(engine->thread, NULL); look++) {
    if (look == LOOKS) return false;
    nanosleep(&(struct timespec){.tv_nsec = MILLISECOND_NS}, NULL);
  }
  engine_close(engine);
  return true;
}
