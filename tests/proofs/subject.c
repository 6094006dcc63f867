/* subject.c - see subject.h.
 *
 *     small -+-> gemv with constant weights -> quantize -> codes, scales
 *            +-> gemv with 4 rows of large -> product
 *            +-> state, after the state -> before: what the replay before this one left there
 *     the last rows of large -> state -> rows
 *
 * Inputs and outputs of both kinds, those the tasks use in place and those that copies move. */
#include "subject.h"

#include <string.h>

#include "../../runtime/exec.h"

static uint16_t half_of(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return (uint16_t)(0x3800u | ((*seed >> 16) & 0x83ffu)); /* +-[0.5, 1) */
}

static rondo_status add_tensors(struct subject *s, rondo_tensor *weights, rondo_tensor *previous, rondo_tensor *kept,
                                rondo_tensor *sums) {
  const int64_t row[] = {1, SMALL_COUNT}, large[] = {LARGE_ROWS, SMALL_COUNT}, part[] = {WEIGHT_ROWS, SMALL_COUNT};
  const int64_t sum[] = {1, WEIGHT_ROWS}, scales[] = {1, WEIGHT_ROWS / 16}, product[] = {1, PRODUCT_ROWS};
  const int64_t rows[] = {s->ending, SMALL_COUNT};
  rondo_status status = rondo_input(s->graph, "small", RONDO_F16, 2, row, &s->small);
  if (status == RONDO_OK) status = rondo_input(s->graph, "large", RONDO_F16, 2, large, &s->large);
  if (status == RONDO_OK) status = rondo_constant(s->graph, "weights", RONDO_F16, 2, part, weights);
  if (status == RONDO_OK) status = rondo_state(s->graph, "previous", RONDO_F16, 2, row, previous);
  if (status == RONDO_OK) status = rondo_state(s->graph, "kept", RONDO_F16, 2, rows, kept);
  if (status == RONDO_OK) status = rondo_temporary(s->graph, "sums", RONDO_F16, 2, sum, sums);
  if (status == RONDO_OK) status = rondo_output(s->graph, "codes", RONDO_NVFP4, 2, sum, &s->outputs[0]);
  if (status == RONDO_OK) status = rondo_output(s->graph, "scales", RONDO_E4M3, 2, scales, &s->outputs[1]);
  if (status == RONDO_OK) status = rondo_output(s->graph, "product", RONDO_F32, 2, product, &s->outputs[2]);
  if (status == RONDO_OK) status = rondo_output(s->graph, "before", RONDO_F16, 2, row, &s->outputs[3]);
  if (status == RONDO_OK) status = rondo_output(s->graph, "rows", RONDO_F16, 2, rows, &s->outputs[4]);
  for (int i = 0; i < OUTPUTS && status == RONDO_OK; i++)
    status = rondo_tensor_bytes(s->outputs[i], &s->output_bytes[i]);
  return status;
}

static rondo_status copy(struct subject *s, rondo_tensor src, rondo_tensor dst) {
  return rondo_add_copy(s->graph, &(rondo_copy_desc){.src = src, .dst = dst});
}

static rondo_status describe(struct subject *s, rondo_tensor *weights) {
  const int64_t first[] = {PRODUCT_ROWS, SMALL_COUNT}, last[] = {s->ending, SMALL_COUNT};
  rondo_tensor previous, kept, sums, first_rows, last_rows;
  rondo_status status = rondo_graph_create(s->runtime, NULL, &s->graph);
  if (status == RONDO_OK) status = add_tensors(s, weights, &previous, &kept, &sums);
  if (status == RONDO_OK) status = rondo_view(s->graph, s->large, (int64_t[]){0, 0}, first, &first_rows);
  if (status == RONDO_OK)
    status = rondo_view(s->graph, s->large, (int64_t[]){LARGE_ROWS - s->ending, 0}, last, &last_rows);
  if (status == RONDO_OK)
    status = rondo_add_gemv(s->graph, &(rondo_gemv_desc){.weights = *weights, .vectors = s->small, .out = sums});
  if (status == RONDO_OK)
    status = rondo_add_quantize_nvfp4(
        s->graph, &(rondo_quantize_nvfp4_desc){.x = sums, .codes = s->outputs[0], .scales = s->outputs[1]});
  if (status == RONDO_OK)
    status =
        rondo_add_gemv(s->graph, &(rondo_gemv_desc){.weights = first_rows, .vectors = s->small, .out = s->outputs[2]});
  if (status == RONDO_OK) status = copy(s, previous, s->outputs[3]);
  if (status == RONDO_OK) status = copy(s, s->small, previous);
  if (status == RONDO_OK) status = copy(s, last_rows, kept);
  if (status == RONDO_OK) status = copy(s, kept, s->outputs[4]);
  return status;
}

static rondo_status fill_both_slots(struct subject *s) {
  rondo_slot slots[SLOTS];
  rondo_status status = RONDO_OK;
  for (int i = 0; i < SLOTS && status == RONDO_OK; i++) {
    status = rondo_acquire(s->exec, &slots[i]);
    if (status == RONDO_OK) subject_fill(s, slots[i]);
  }
  for (int i = 0; i < SLOTS && status == RONDO_OK; i++) status = rondo_release(slots[i]);
  return status;
}

rondo_status subject_open(struct subject *s, enum ending ending, rondo_backend backend, uint32_t host_threads,
                          rondo_wait_mode wait_mode) {
  static uint16_t weights_data[WEIGHT_ROWS * SMALL_COUNT];
  uint32_t seed = 1;
  s->ending = ending;
  for (int i = 0; i < SMALL_COUNT; i++) s->small_data[i] = half_of(&seed);
  for (int i = 0; i < LARGE_ROWS * SMALL_COUNT; i++) s->large_data[i] = half_of(&seed);
  for (int i = 0; i < WEIGHT_ROWS * SMALL_COUNT; i++) weights_data[i] = half_of(&seed);
  rondo_tensor weights, half; /* of every row: uploaded as rows that lie apart */
  /* Decoders come beside it (llama_decoder.c), on a GPU two with 10,240 rows of K and V for each sequence. */
  const uint64_t device_bytes = backend == RONDO_BACKEND_HOST ? 8 << 20 : 128 << 20;
  rondo_status status = rondo_open(&(rondo_options){.backend = backend,
                                                    .device_bytes = device_bytes,
                                                    .pinned_bytes = 16 << 20,
                                                    .host_threads = host_threads,
                                                    .wait_mode = wait_mode},
                                   &s->runtime);
  if (status == RONDO_OK) status = describe(s, &weights);
  if (status == RONDO_OK)
    status = rondo_view(s->graph, weights, (int64_t[]){0, 0}, (int64_t[]){WEIGHT_ROWS, SMALL_COUNT / 2}, &half);
  if (status == RONDO_OK)
    status = rondo_instantiate(s->runtime, s->graph,
                               &(rondo_exec_options){.slots = SLOTS, .repeat_steps = REPEAT_STEPS}, &s->exec);
  if (status == RONDO_OK) status = rondo_upload(s->exec, weights, weights_data, sizeof weights_data);
  if (status == RONDO_OK) status = rondo_upload(s->exec, half, weights_data, sizeof weights_data / 2);
  return status == RONDO_OK ? fill_both_slots(s) : status;
}

bool subject_ends_as_meant(const struct subject *s) {
  bool ends_in_blocks = atomic_load(&s->exec->slots.items[0].words[1]) != UINT64_MAX;
  return ends_in_blocks == (s->ending == ENDS_IN_BLOCKS);
}

rondo_status subject_close(struct subject *s) {
  rondo_status status = rondo_close_exec(&s->exec);
  if (status == RONDO_OK) status = rondo_graph_destroy(&s->graph);
  return status == RONDO_OK ? rondo_close(&s->runtime) : status;
}

rondo_status subject_detour(const struct subject *s) {
  rondo_exec *exec = NULL;
  rondo_slot slot;
  rondo_status status = rondo_instantiate(s->runtime, s->graph, &(rondo_exec_options){.slots = 1}, &exec);
  if (status == RONDO_OK) status = rondo_acquire(exec, &slot);
  if (status == RONDO_OK) status = rondo_rebind(slot, s->small, NULL); /* to where it is, which is work all the same */
  if (status == RONDO_OK) status = rondo_release(slot);
  return status == RONDO_OK ? rondo_close_exec(&exec) : status;
}

/* ---- Replays ----------------------------------------------------------------------------------------------------- */

void subject_fill(const struct subject *s, rondo_slot slot) {
  memcpy(rondo_data(slot, s->small), s->small_data, sizeof s->small_data);
  memcpy(rondo_data(slot, s->large), s->large_data, sizeof s->large_data);
}

void subject_touch(const struct subject *s, rondo_slot slot) {
  memcpy(rondo_data(slot, s->small), s->small_data, sizeof s->small_data);
  memcpy(rondo_data(slot, s->large), s->large_data, SMALL_COUNT * sizeof *s->large_data);
}

static rondo_status finish(const struct subject *s, subject_reader *read, void *user, rondo_slot *slot) {
  rondo_status status = rondo_wait_any(&s->exec, 1, RONDO_FOREVER, slot);
  if (status != RONDO_OK) return status;
  bool accepted = read(user, s, *slot);
  status = rondo_release(*slot);
  return status == RONDO_OK && !accepted ? RONDO_INTERNAL : status;
}

/* Of the two in flight the later one may be told of first, since it may end while the slots are being looked at. */
rondo_status subject_replay(const struct subject *s, uint64_t count, subject_filler *fill, subject_reader *read,
                            void *user) {
  rondo_slot before = {0}, done;
  rondo_status status = RONDO_OK;
  for (uint64_t i = 0; i < count && status == RONDO_OK; i++) {
    rondo_slot slot;
    status = i % 2 ? rondo_acquire(s->exec, &slot) : rondo_acquire_within(s->exec, RONDO_FOREVER, &slot);
    if (status != RONDO_OK) break;
    fill(s, slot);
    status = rondo_replay(slot);
    if (status == RONDO_OK && i % 2) status = rondo_wait(before, RONDO_FOREVER);
    if (status == RONDO_OK && i > 0) status = finish(s, read, user, &done);
    if (i == 0 || done.index != slot.index) before = slot;
  }
  return status == RONDO_OK && count > 0 ? finish(s, read, user, &done) : status;
}

/* The stop comes after the last replay, or in it, and has no effect. */
static rondo_status repeat_once(const struct subject *s, rondo_slot slot) {
  rondo_status status = rondo_repeat(slot, &(rondo_repeat_options){.count = REPEAT_STEPS});
  for (uint32_t step = 0, done; step < REPEAT_STEPS && status == RONDO_OK; step++) {
    status = rondo_repeat_wait(slot, step + 1, RONDO_FOREVER, &done);
    for (int i = 0; i < OUTPUTS && status == RONDO_OK; i++)
      if (!rondo_repeat_data(slot, s->outputs[i], step)) status = RONDO_INTERNAL;
  }
  if (status == RONDO_OK) status = rondo_repeat_stop(slot);
  return status == RONDO_OK ? rondo_wait(slot, RONDO_FOREVER) : status;
}

rondo_status subject_repeat(const struct subject *s, uint64_t count) {
  rondo_slot slot;
  rondo_status status = rondo_acquire(s->exec, &slot);
  for (uint64_t i = 0; i < count && status == RONDO_OK; i++) status = repeat_once(s, slot);
  return status == RONDO_OK ? rondo_release(slot) : status;
}
