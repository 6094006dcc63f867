/* test_serve_engine.c - the replaying thread of the serve sample, round by round in the test's own thread: the same
 * answer beside any others, in any chunks and pages; the order of admission; how requests are interrupted; a lost
 * device; the end. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "../support.h"
#include "fake_clock.h"
#include "small_engine.h"

TestSuite(serve_engine, .timeout = 300);

enum { ROUNDS_MOST = 100000, RECORDS = 64 };

static struct small_engine small;
static struct small_request records[RECORDS];
static struct small_answer alone[SMALL_KINDS];

static void open_small(int32_t sequences, int32_t lanes, int32_t pages) {
  small_engine_open(&small, &(struct model_options){.sequences = sequences, .lanes = lanes, .pages = pages}, RECORDS,
                    true);
}

/* Answers have max_tokens from now on. */
static void end_none(void) { memset(small.ends, 0, sizeof small.ends); }

static void submit(int32_t at, int32_t kind, int32_t max_tokens) {
  small_request_fill(&records[at], kind, max_tokens);
  engine_submit(&small.engine, &records[at].request);
}

static int end_of(int32_t at) { return atomic_load(&records[at].request.end); }
static int answered(int32_t at) { return atomic_load(&records[at].request.answered); }

static void rounds(int32_t count) {
  for (int32_t i = 0; i < count; i++) cr_assert(engine_round(&small.engine));
}

static void run_until_ended(int32_t count) {
  int32_t round = 0;
  for (int32_t at = 0; at < count; at++)
    for (; end_of(at) == END_NONE; round++) {
      cr_assert_lt(round, ROUNDS_MOST, "request %d does not end", at);
      rounds(1);
    }
}

static void expect_nothing_left(void) {
  rounds(1);
  cr_assert_eq(pages_used(&small.engine.pages), 0);
  cr_assert_eq(small.engine.metrics.active, 0);
  cr_assert_eq(small.engine.metrics.waiting, 0);
  cr_assert_not(small.engine.metrics.busy);
}

/* ---- The same answer --------------------------------------------------------------------------------------------- */

/* From now on prompts are read in chunks of this kind only; -1: as measured. */
static void force_chunk(int32_t kind) {
  if (kind < 0) return;
  for (int32_t i = 0; i < small.model.chunk_count; i++)
    small.engine.chunk_ns[0][i] = small.engine.chunk_ns[1][i] = i == kind ? 1 : UINT64_MAX / 64;
  small.engine.decode_ns = UINT64_MAX / 16; /* beside which any chunk is short */
}

/* All kinds at once; the second time their prompts are in the caches. */
static void run_all(int32_t max_tokens, bool with_all_logprobs) {
  for (int32_t kind = 0; kind < SMALL_KINDS; kind++) {
    small_request_fill(&records[kind], kind, max_tokens);
    if (with_all_logprobs) records[kind].request.with_logprobs = true;
    engine_submit(&small.engine, &records[kind].request);
  }
  run_until_ended(SMALL_KINDS);
  for (int32_t kind = 0; kind < SMALL_KINDS; kind++) {
    const char *complaint = small_request_complaint(&records[kind], &alone[kind]);
    cr_assert_null(complaint, "request %d, %d tokens of whose prompt were in the cache, %s", kind,
                   records[kind].request.reused, complaint);
    cr_assert(end_of(kind) == END_STOP || end_of(kind) == END_LENGTH);
  }
  expect_nothing_left();
}

static void expect_same_answers(int32_t sequences, int32_t lanes, int32_t pages, int32_t chunk) {
  open_small(sequences, lanes, pages);
  for (int time = 0; time < 2; time++) {
    force_chunk(chunk);
    run_all(SMALL_ANSWER_MOST - 20 * time, time == 1);
  }
  if (pages != 4) cr_assert_gt(small.engine.metrics.reused_tokens, 0); /* of 4 pages none is kept long enough */
  small_engine_close(&small);
}

Test(serve_engine, an_answer_is_the_same_beside_others) {
  small_answers_alone(alone);
  expect_same_answers(1, 1, 0, -1);
  expect_same_answers(5, 1, 0, -1);
  expect_same_answers(5, 2, 0, -1);
  expect_same_answers(16, 2, 0, -1);
}

Test(serve_engine, an_answer_is_the_same_in_other_chunks) {
  small_answers_alone(alone);
  for (int32_t chunk = 0; chunk < 3; chunk++) expect_same_answers(5, 1 + chunk % 2, 0, chunk);
}

Test(serve_engine, an_answer_is_the_same_where_pages_are_few) {
  small_answers_alone(alone);
  expect_same_answers(5, 1, 4, -1);
  expect_same_answers(16, 1, 9, -1);
}

/* With any order of sums a sequence alone has a graph of its own, and goes on in the others' when they come. On this
 * model the tokens stay the same. */
Test(serve_engine, an_answer_goes_on_in_company) {
  static const int32_t kinds[] = {20, 4, 8}; /* 192, 33 and 90 tokens, and the likeliest is taken */
  small_answers_alone(alone);
  small_engine_open(&small, &(struct model_options){.sequences = 3, .lanes = 1, .any_order = true}, RECORDS, true);
  cr_assert(small.model.alone[0].graph && !small.model.alone[0].tensors.kv_pages.graph);
  submit(0, kinds[0], SMALL_ANSWER_MOST);
  for (int32_t round = 0; answered(0) < 3; round++) {
    cr_assert_lt(round, 12);
    rounds(1);
  }
  const struct sequence *sequence = &small.engine.sequences[0];
  for (int32_t i = 0; i < sequence->row.page_count; i++) cr_assert_eq(sequence->pages[i], i + 1);
  submit(1, kinds[1], SMALL_ANSWER_MOST);
  submit(2, kinds[2], SMALL_ANSWER_MOST);
  run_until_ended(3);
  for (int32_t i = 0; i < 3; i++) {
    cr_assert_eq(answered(i), alone[kinds[i]].count);
    cr_assert_arr_eq(records[i].request.answer, alone[kinds[i]].tokens, (size_t)answered(i) * sizeof(int32_t));
  }
  expect_nothing_left();
  small_engine_close(&small);
}

/* Beside answers a chunk is the shortest, or one that takes hardly longer. */
Test(serve_engine, a_chunk_is_as_long_as_answers_allow) {
  for (int32_t longest = 0; longest < 2; longest++) {
    open_small(2, 1, 0);
    end_none();
    submit(0, 0, 60);
    rounds(3);
    submit(1, 20, 5); /* 192 tokens */
    int32_t round = 0;
    for (; !answered(1); round++) {
      for (int32_t i = 0; i < small.model.chunk_count; i++) small.engine.chunk_ns[0][i] = 1000;
      small.engine.decode_ns = 1000;
      small.engine.chunk_free = longest;
      cr_assert_lt(round, 12);
      rounds(1);
    }
    cr_assert_eq(round, longest ? 3 : 6);
    small_engine_close(&small);
  }
}

/* On the host none is replayed before. */
Test(serve_engine, the_first_chunk_tells_how_long_longer_ones_take) {
  open_small(1, 1, 0);
  const struct llama_step *chunks = small.model.chunks[0][0];
  const uint64_t *chunk_ns = small.engine.chunk_ns[0];
  cr_assert_gt(small.model.chunk_count, 1);
  for (int32_t i = 0; i < small.model.chunk_count; i++) cr_assert_eq(chunk_ns[i], 0);
  submit(0, 20, 5); /* 192 tokens */
  rounds(1);
  cr_assert_eq(small.engine.sequences[0].row.position, chunks[0].rows);
  cr_assert_gt(chunk_ns[0], 0);
  for (int32_t i = 1; i < small.model.chunk_count; i++)
    cr_assert_eq(chunk_ns[i], chunk_ns[0] * (uint64_t)(chunks[i].rows / chunks[0].rows));
  small_engine_close(&small);
}

/* Here on the host's threads, with a clock by which all take the same time. */
Test(serve_engine, on_a_gpu_every_chunk_is_timed_before_the_start) {
  open_small(1, 2, 0);
  const struct engine_options options = small.engine.options;
  engine_close(&small.engine);
  small.model.info.backend = RONDO_BACKEND_CUDA;
  engine_open(&small.engine, &small.model, &options);
  cr_assert_gt(small.engine.chunk_ns[0][0], 0);
  for (int32_t lane = 0; lane < 2; lane++)
    for (int32_t i = 0; i < small.model.chunk_count; i++)
      cr_assert_eq(small.engine.chunk_ns[lane][i], small.engine.chunk_ns[0][0]);
  cr_assert_eq(small.engine.chunk_free, small.model.chunk_count - 1, "the longest takes hardly longer");
  small_engine_close(&small);
}

/* However soon a long one would read the prompt. */
Test(serve_engine, a_chunk_takes_at_most_a_second) {
  enum { MILLISECOND_NS = 1000000 };
  for (int32_t longer = 0; longer < 2; longer++) {
    open_small(1, 1, 0);
    end_none();
    submit(0, 20, 5); /* 192 tokens */
    int32_t round = 0;
    for (; !answered(0); round++) {
      for (int32_t i = 0; i < small.model.chunk_count; i++)
        small.engine.chunk_ns[0][i] = (uint64_t)(i == 0 ? 500 : longer ? 1100 : 900) * MILLISECOND_NS;
      cr_assert_lt(round, 12);
      rounds(1);
    }
    cr_assert_eq(round, longer ? 6 : 1);
    small_engine_close(&small);
  }
}

static bool has_read(int32_t lane) {
  bool found = false;
  for (int32_t i = 0; i < small.model.chunk_count; i++) found = found || small.engine.chunk_ns[lane][i] != 1;
  return found;
}

/* Prefill's lane has a part of the device, and decode's has nothing to do then. */
Test(serve_engine, a_prompt_that_is_alone_is_read_in_the_lane_of_answers) {
  open_small(2, 2, 0);
  end_none();
  for (int32_t i = 0; i < small.model.chunk_count; i++) small.engine.chunk_ns[0][i] = small.engine.chunk_ns[1][i] = 1;
  submit(0, 0, 60);
  for (int32_t round = 0; !answered(0); round++) {
    cr_assert_lt(round, 12);
    rounds(1);
  }
  cr_assert(has_read(0) && !has_read(1));
  submit(1, 20, 5);
  for (int32_t round = 0; !answered(1); round++) {
    cr_assert_lt(round, ROUNDS_MOST); /* answers go on while a chunk is read */
    rounds(1);
  }
  cr_assert(has_read(1));
  small_engine_close(&small);
}

/* The kinds have answers of many lengths, some ended by a token: else the tests above would show little. */
Test(serve_engine, answers_differ) {
  int32_t stopped = 0, others = 0;
  small_answers_alone(alone);
  for (int32_t kind = 0; kind < SMALL_KINDS; kind++) {
    stopped += alone[kind].end == END_STOP;
    for (int32_t other = 0; other < kind; other++)
      others += memcmp(alone[kind].tokens, alone[other].tokens, sizeof alone->tokens) != 0;
  }
  cr_assert(stopped > SMALL_KINDS / 4 && stopped < SMALL_KINDS, "%d stopped", stopped);
  cr_assert_gt(others, SMALL_KINDS * (SMALL_KINDS - 1) / 2 - 10);
}

/* ---- Admission --------------------------------------------------------------------------------------------------- */

static bool runs(int32_t at) {
  for (int i = 0; i < SEQUENCES_MOST; i++)
    if (small.engine.sequences[i].request == &records[at].request) return true;
  return false;
}

Test(serve_engine, requests_begin_in_the_order_of_arrival) {
  enum { COUNT = 40 };
  open_small(3, 1, 0);
  for (int32_t at = 0; at < COUNT; at++) submit(at, at % SMALL_KINDS, 1 + at * 7 % 20);
  int32_t begun = 0;
  for (int round = 0; round < ROUNDS_MOST && begun < COUNT; round++) {
    rounds(1);
    for (int32_t at = begun; at < COUNT; at++) {
      const bool is_begun = runs(at) || end_of(at) != END_NONE;
      cr_assert(!is_begun || at == begun, "request %d began before %d", at, begun);
      begun += is_begun;
    }
  }
  cr_assert_eq(begun, COUNT);
  run_until_ended(COUNT);
  expect_nothing_left();
  small_engine_close(&small);
}

/* A request of 4 pages waits until they are there, and a later one of 1 page does not overtake it. */
Test(serve_engine, admission_waits_for_pages) {
  open_small(4, 1, 5);
  end_none();
  submit(0, 0, 100); /* 2 pages */
  submit(1, 20, 64); /* 4 pages */
  submit(2, 0, 10);
  rounds(20);
  cr_assert(runs(0) && !runs(1) && !runs(2));
  cr_assert_eq(small.engine.metrics.waiting, 2);
  atomic_store(&records[0].request.cancelled, true);
  rounds(1);
  cr_assert(!runs(0) && runs(1) && runs(2));
  run_until_ended(3);
  cr_assert_eq(end_of(0), END_CANCELLED);
  expect_nothing_left();
  small_engine_close(&small);
}

/* The first is read, all three pages of it; of the others the third, where the last token is. */
Test(serve_engine, equal_prompts_that_come_together_are_read_once) {
  open_small(4, 1, 0);
  for (int32_t at = 0; at < 4; at++) submit(at, 20, 5);
  run_until_ended(4);
  for (int32_t at = 1; at < 4; at++) {
    cr_assert_eq(records[at].request.reused, 128);
    cr_assert_arr_eq(records[at].tokens, records[0].tokens, sizeof records[at].tokens);
  }
  cr_assert_eq(small.engine.metrics.reused_tokens, 384);
  expect_nothing_left();
  small_engine_close(&small);
}

static int32_t late; /* 0: the request was submitted */

static void submit_late(void) {
  if (late != 1) return;
  late = 0;
  small_request_fill(&records[0], 0, 1); /* reads the clock too */
  engine_submit(&small.engine, &records[0].request);
}

/* A request that comes just when the clock is read has waited for no time, and not for 2^64 ns less a little. */
Test(serve_engine, no_request_waits_for_less_than_no_time) {
  open_small(1, 1, 0);
  late = 1;
  fake_clock_reading = submit_late;
  rounds(1);
  fake_clock_reading = NULL;
  cr_assert_eq(late, 0);
  rounds(2);
  run_until_ended(1);
  cr_assert_lt(small.engine.metrics.queued.sum_ns, 1000000);
  cr_assert_eq(small.engine.metrics.queued.counts[0], 1);
  small_engine_close(&small);
}

/* ---- Interruptions ----------------------------------------------------------------------------------------------- */

static void cancel(int32_t at) { atomic_store(&records[at].request.cancelled, true); }

/* The deadline is then past at the next reading, and was not at the last one. */
static void pass_deadline(int32_t at) { records[at].request.deadline_ns = fake_clock_ns; }

/* Request 0 answers; 1 is interrupted after these rounds. It ends in the next, and its pages are free. */
static void expect_interrupted(void (*interrupt)(int32_t at), int end, int32_t before, bool in_prompt) {
  end_none();
  submit(0, 0, 60);
  rounds(3);
  const int32_t used = pages_used(&small.engine.pages);
  submit(1, 20, 60);
  rounds(before);
  cr_assert_eq(end_of(1), END_NONE);
  cr_assert_eq(answered(1) == 0, in_prompt);
  interrupt(1);
  const int32_t tokens = answered(1), others = answered(0);
  rounds(1);
  cr_assert_eq(end_of(1), end);
  cr_assert_eq(answered(1), tokens);
  cr_assert_eq(answered(0), others + 1, "the other request goes on");
  cr_assert_eq(pages_used(&small.engine.pages), used);
  cancel(0);
  rounds(1);
  expect_nothing_left();
}

static void interrupt_everywhere(void (*interrupt)(int32_t at), int end) {
  open_small(1, 1, 0);
  expect_interrupted(interrupt, end, 2, true); /* in the queue: there is one sequence */
  small_engine_close(&small);
  open_small(2, 1, 0);
  expect_interrupted(interrupt, end, 2, true); /* its prompt takes six rounds */
  cr_assert_gt(small.engine.metrics.prompt_tokens, 0);
  small_engine_close(&small);
  open_small(2, 1, 0);
  expect_interrupted(interrupt, end, 10, false);
  small_engine_close(&small);
}

Test(serve_engine, a_cancelled_request_ends_in_the_next_round) { interrupt_everywhere(cancel, END_CANCELLED); }

Test(serve_engine, a_late_request_ends_in_the_next_round) { interrupt_everywhere(pass_deadline, END_DEADLINE); }

/* In a lane of its own a chunk may be in flight, whose pages are being written. */
Test(serve_engine, a_request_ends_after_its_chunk_in_flight) {
  open_small(2, 2, 0);
  end_none();
  for (int32_t before = 0; before < 12; before++) {
    submit(0, 0, 60);
    rounds(3);
    submit(1, 20, 60);
    rounds(before);
    cancel(1);
    int32_t round = 0;
    do {
      const bool in_flight = small.engine.chunk;
      rounds(1);
      cr_assert(in_flight || end_of(1) != END_NONE);
      cr_assert_lt(round++, ROUNDS_MOST);
    } while (end_of(1) == END_NONE);
    cr_assert_eq(end_of(1), END_CANCELLED);
    cr_assert_null(small.engine.chunk);
    cancel(0);
    rounds(1);
    expect_nothing_left();
  }
  small_engine_close(&small);
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

/* Some run, one reads its prompt, some wait, one is still in the ring. */
static void fill_engine(int32_t lanes) {
  open_small(3, lanes, 0);
  end_none();
  for (int32_t at = 0; at < 6; at++) submit(at, at % 3 == 2 ? 20 : 0, 60);
  rounds(3);
  submit(6, 1, 10);
}

static void expect_all_ended(int end) {
  for (int32_t at = 0; at < 7; at++) cr_assert_eq(end_of(at), end, "request %d", at);
  cr_assert_eq(small.engine.metrics.requests_ended, 7);
}

Test(serve_engine, a_stop_ends_all) {
  for (int32_t lanes = 1; lanes <= 2; lanes++) {
    fill_engine(lanes);
    atomic_store(&small.engine.stopping, true);
    while (engine_round(&small.engine)) continue;
    expect_all_ended(END_CANCELLED);
    cr_assert_eq(pages_used(&small.engine.pages), 0);
    small_engine_close(&small);
  }
}

/* Also one that was submitted after requests were taken in, and before the engine looked whether it is to stop. */
static void submit_and_stop(void) {
  if (late != 1) return;
  late = 0;
  submit(0, 0, 1);
  atomic_store(&small.engine.stopping, true);
}

Test(serve_engine, a_stop_loses_no_request) {
  open_small(1, 1, 0);
  late = 1;
  fake_clock_reading = submit_and_stop;
  while (engine_round(&small.engine)) continue;
  fake_clock_reading = NULL;
  cr_assert_eq(end_of(0), END_CANCELLED);
  small_engine_close(&small);
}

/* ---- A lost device ----------------------------------------------------------------------------------------------- */

static int calls_until_lost = -1; /* of the three functions; below 0: it is never lost */
static int calls_made;

static bool is_lost(void) { return calls_made++ == calls_until_lost; }

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names. */
rondo_status __real_rondo_replay(rondo_slot slot);
rondo_status __wrap_rondo_replay(rondo_slot slot);
rondo_status __wrap_rondo_replay(rondo_slot slot) { return is_lost() ? RONDO_DEVICE_LOST : __real_rondo_replay(slot); }

rondo_status __real_rondo_wait(rondo_slot slot, uint64_t timeout_ns);
rondo_status __wrap_rondo_wait(rondo_slot slot, uint64_t timeout_ns);
rondo_status __wrap_rondo_wait(rondo_slot slot, uint64_t timeout_ns) {
  const rondo_status status = __real_rondo_wait(slot, timeout_ns);
  return is_lost() ? RONDO_DEVICE_LOST : status;
}

rondo_status __real_rondo_poll(rondo_slot slot);
rondo_status __wrap_rondo_poll(rondo_slot slot);
rondo_status __wrap_rondo_poll(rondo_slot slot) { return is_lost() ? RONDO_DEVICE_LOST : __real_rondo_poll(slot); }
/* NOLINTEND(bugprone-reserved-identifier) */

/* Replays that were begun end in the real runtime. */
static void drain(void) {
  for (int logits = 0; logits < 2; logits++) {
    for (int i = 0; i < small.model.decode_count; i++)
      REQUIRE_OK(__real_rondo_wait(small.model.decodes[logits][i].slot, RONDO_FOREVER));
    for (int lane = 0; lane < small.model.lanes; lane++)
      for (int i = 0; i < small.model.chunk_count; i++)
        REQUIRE_OK(__real_rondo_wait(small.model.chunks[lane][logits][i].slot, RONDO_FOREVER));
  }
}

/* At each of the first calls in which a step is begun, waited for and looked at. */
Test(serve_engine, a_lost_device_ends_all) {
  for (int32_t lanes = 1; lanes <= 2; lanes++)
    for (int call = 0; call < 8; call++) {
      fill_engine(lanes);
      calls_made = 0;
      calls_until_lost = call;
      int round = 0;
      while (engine_round(&small.engine)) cr_assert_lt(round++, 12);
      calls_until_lost = -1;
      cr_assert(atomic_load(&small.engine.lost));
      expect_all_ended(END_LOST);
      cr_assert_eq(pages_used(&small.engine.pages), 0);
      drain();
      small_engine_close(&small);
    }
}
