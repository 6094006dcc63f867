/* fuzz_run.c - replays of the described graph, twice in each slot, misuse of slots, and what must hold of the results.
 */
#include "fuzz_run.h"
#include "../../runtime/exec.h"

#include <string.h>

rondo_runtime *runtime;
uint8_t snapshots[2][SNAPSHOT_BYTES];

/* Most are rows that there are, tokens or positions; some just what is none. */
static int32_t index_of(uint32_t bits, uint32_t limit) {
  const int32_t odd[] = {-1, INT32_MIN, INT32_MAX, INT32_MAX - 7, (int32_t)limit};
  return bits >> 27 == 31 ? odd[bits % 5] : (int32_t)(bits % limit);
}

static void fill(const struct filler *filler, const struct record *r, uint32_t index, uint8_t *bytes, uint64_t count) {
  for (uint64_t at = 0; at < count; at++)
    bytes[at] =
        (uint8_t)((filler->size ? filler->data[(at * 7 + index * UINT64_C(31)) % filler->size] : 0) ^ (at >> 3) * 29);
  if (!filler->tame) return;
  for (uint64_t at = 0; r->limit && at + sizeof(int32_t) <= count; at += sizeof(int32_t)) {
    uint32_t bits;
    memcpy(&bits, bytes + at, sizeof bits);
    memcpy(bytes + at, &(int32_t){index_of(bits, r->limit)}, sizeof bits);
  }
  for (uint64_t at = 0; r->dtype == RONDO_E4M3 && at < count; at++) bytes[at] = (uint8_t)((bytes[at] & 0x87) | 0x38);
  uint64_t width = bits_of(r) / 8;
  for (uint64_t at = 0; width >= 2 && at + width <= count && r->dtype != RONDO_I32; at += width) {
    uint8_t sign = bytes[at + width - 1] & 0x80;
    bytes[at + width - 1] = (uint8_t)(sign | (r->dtype == RONDO_F16 ? 0x3c : 0x3f));
    if (r->dtype == RONDO_BF16 || r->dtype == RONDO_F32) bytes[at + width - 2] |= 0x80;
    if (r->dtype == RONDO_F64) bytes[at + width - 2] |= 0xf0;
  }
}

static uint8_t scratch[DEVICE_BYTES];

static bool is_filled(const struct build *b, uint32_t i) {
  const struct record *r = &b->records[i];
  return r->root == i && r->kind != UNKNOWN && r->kind != TEMPORARY;
}

/* Sets constants and states: half of them at once, the others one by one. */
static void prepare_residents(const struct build *b, rondo_exec *exec, const struct filler *filler) {
  rondo_content contents[MAX_TENSORS];
  uint32_t count = 0;
  uint64_t used = 0;
  for (uint32_t i = 0; i < b->tensor_count; i++) {
    const struct record *r = &b->records[i];
    rondo_tensor tensor = {b->graph, i, b->serial};
    uint64_t bytes;
    if (!is_filled(b, i) || r->kind == INPUT || r->kind == OUTPUT) continue;
    require(rondo_tensor_bytes(tensor, &bytes) == RONDO_OK && used + bytes <= sizeof scratch, "a tensor is gone");
    fill(filler, r, i, scratch + used, bytes);
    contents[count++] = (rondo_content){tensor, scratch + used, bytes};
    used += bytes;
  }
  require(CALL(rondo_upload_all(exec, contents, count / 2)), "uploads failed");
  for (uint32_t i = count / 2; i < count; i++)
    require(CALL(rondo_upload(exec, contents[i].tensor, contents[i].data, contents[i].bytes)), "an upload failed");
  if (!count) return;
  contents[count - 1].bytes++;
  require(!CALL(rondo_upload_all(exec, contents, count)), "an upload of another size");
}

/* Sets all that a replay starts from, what is borrowed too. */
static void prepare(const struct build *b, rondo_exec *exec, rondo_slot slot, const struct filler *filler) {
  prepare_residents(b, exec, filler);
  if (b->lender) prepare_residents(b->lender, b->lender_exec, filler);
  for (uint32_t i = 0; i < b->tensor_count; i++) {
    const struct record *r = &b->records[i];
    rondo_tensor tensor = {b->graph, i, b->serial};
    uint64_t bytes;
    if (!is_filled(b, i)) continue;
    uint8_t *data = rondo_data(slot, tensor);
    require((data != NULL) == (r->kind == INPUT || r->kind == OUTPUT), "no data, or a constant is in the slot");
    if (!data) continue;
    require(rondo_tensor_bytes(tensor, &bytes) == RONDO_OK, "a tensor is gone");
    require(!CALL(rondo_upload(exec, tensor, data, bytes)), "an input was uploaded");
    fill(filler, r, i, data, bytes);
  }
}

/* Everything that can be seen after a replay, in the slot if there is one; what no task may write is compared at once.
 * Gives the size of what the snapshot then holds. */
static size_t collect(const struct build *b, rondo_exec *exec, const rondo_slot *slot, const struct filler *filler,
                      uint8_t *snapshot, size_t used) {
  for (uint32_t i = 0; i < b->tensor_count; i++) {
    const struct record *r = &b->records[i];
    const bool in_slot = r->kind == INPUT || r->kind == OUTPUT;
    rondo_tensor tensor = {b->graph, i, b->serial};
    uint64_t bytes;
    if (!is_filled(b, i) || (in_slot && !slot)) continue;
    require(rondo_tensor_bytes(tensor, &bytes) == RONDO_OK && used + bytes <= SNAPSHOT_BYTES, "a tensor is gone");
    if (in_slot)
      memcpy(snapshot + used, rondo_data(*slot, tensor), bytes);
    else
      require(CALL(rondo_download(exec, tensor, snapshot + used, bytes)), "a download failed");
    if (r->kind == OUTPUT && r->known) /* what no task wrote may be anything */
      for (uint64_t at = 0; at < bytes; at++)
        if (!b->defined[i][at * 8 / bits_of(r)]) snapshot[used + at] = 0;
    if (r->kind == INPUT || r->kind == CONSTANT) {
      fill(filler, r, i, scratch, bytes);
      require(memcmp(scratch, snapshot + used, bytes) == 0, "an input or a constant has changed");
    }
    used += bytes;
  }
  return used;
}

static size_t replay_once(const struct build *b, rondo_exec *exec, rondo_slot slot, const struct filler *filler,
                          uint8_t *snapshot) {
  prepare(b, exec, slot, filler);
  require(CALL(rondo_replay(slot)), "a replay did not start");
  require(CALL(rondo_wait(slot, RONDO_FOREVER)), "a replay did not end");
  require(rondo_poll(slot) == RONDO_OK, "a replay that ended has not");
  size_t used = collect(b, exec, &slot, filler, snapshot, 0);
  return b->lender ? collect(b->lender, b->lender_exec, NULL, filler, snapshot, used) : used;
}

void misuse(struct build *b, rondo_exec *exec, uint32_t slot_count) {
  rondo_slot slots[8] = {{0}};
  uint32_t held = 0;
  for (uint32_t step = below(b, 16); step > 0; step--) {
    rondo_slot *slot = &slots[below(b, 8)], other = *slot;
    switch (below(b, 9)) {
    case 0:
      require(CALL(rondo_acquire(exec, slot)) == (held < slot_count), "a slot too many or too few");
      held += held < slot_count;
      break;
    case 1:
      CALL(rondo_replay(*slot));
      break;
    case 2:
      CALL(rondo_wait(*slot, next(b) & 1 ? 0 : RONDO_FOREVER));
      break;
    case 3:
      rondo_poll(*slot);
      break;
    case 4:
      held -= CALL(rondo_release(*slot));
      break;
    case 5:
      rondo_data(*slot, odd_tensor(b));
      break;
    case 6:
      other.index += 1 + next(b), other.lease += next(b);
      CALL(rondo_replay(other));
      break;
    case 7:
      CALL(rondo_upload(exec, odd_tensor(b), scratch, next(b)));
      break;
    default:
      CALL(rondo_download(exec, odd_tensor(b), scratch, next(b)));
    }
  }
  require(!CALL(rondo_close(&runtime)) && runtime, "a runtime with an exec open was closed");
  for (uint32_t index = 0; index < slot_count; index++)
    for (uint32_t lease = 1; lease < 64; lease++) { /* whatever is held */
      rondo_slot slot = {.exec = exec, .index = index, .lease = lease, .serial = exec->serial};
      if (rondo_wait(slot, RONDO_FOREVER) == RONDO_OK) require(lease % 2 == 0 || CALL(rondo_release(slot)), "release");
    }
}

size_t run(struct build *b, rondo_exec *exec, uint32_t slot_count, const struct filler *filler) {
  rondo_slot slots[2];
  size_t used = 0;
  for (uint32_t s = 0; s < slot_count; s++) require(CALL(rondo_acquire(exec, &slots[s])), "no slot is free");
  require(!CALL(rondo_acquire(exec, &(rondo_slot){0})), "a slot too many");
  for (uint32_t s = 0; s < slot_count; s++)
    for (int repeat = 0; repeat < 2; repeat++) {
      bool first = s == 0 && repeat == 0;
      size_t got = replay_once(b, exec, slots[s], filler, snapshots[first ? 0 : 1]);
      require(first || got == used, "results of another size");
      require(first || !b->exact || memcmp(snapshots[0], snapshots[1], used) == 0, "a replay gave other bits");
      used = got;
    }
  for (uint32_t s = 0; s < slot_count; s++) require(CALL(rondo_release(slots[s])), "a slot was not released");
  for (uint32_t s = 0; s < slot_count; s++) require(!CALL(rondo_replay(slots[s])), "a released slot was replayed");
  return used;
}

void check_pools(bool empty) {
  rondo_info info;
  require(CALL(rondo_runtime_info(runtime, &info)), "no information");
  require(!info.device.used_bytes && !info.pinned.used_bytes, "device or pinned bytes are still in use");
  require(!empty || !info.host.used_bytes, "host bytes are still in use");
}

/* Which kernels it would run on each chip, also where it is too large to be run here. */
static void explain(const struct build *b) {
  static const int32_t chips[] = {80, 90, 100};
  for (int i = 0; i < 3 && !b->shadow; i++) CALL(rondo_explain(b->graph, chips[i], "/dev/null"));
}

bool instantiate(struct build *b, uint32_t slot_count, rondo_exec **exec) {
  rondo_plan plan;
  rondo_exec_options options = {
      .slots = slot_count, .keep_warm = (int32_t)(slot_count & 1), .without_warm_up = (int32_t)(slot_count >> 1 & 1)};
  bool planned = CALL(rondo_plan_graph(b->graph, &plan));
  if (planned) explain(b);
  if (b->huge) return false;
  bool ready = CALL(rondo_instantiate(runtime, b->graph, &options, exec));
  bool fit = planned && plan.device_bytes <= DEVICE_BYTES && plan.pinned_bytes_per_slot * slot_count <= PINNED_BYTES;
  require(!ready || (fit && !b->no_host), "what cannot run was instantiated");
  if (fit && plan.host_bytes <= HOST_BYTES / 2) require(ready || b->no_host, "what fits was not instantiated");
  if (!ready) check_pools(false);
  return ready;
}

bool instantiate_borrower(struct build *b, rondo_exec **exec) {
  rondo_plan plan;
  rondo_graph *both[] = {b->lender->graph, b->graph};
  bool planned = CALL(rondo_plan_graphs(both, 2, &plan));
  if (planned) explain(b);
  if (b->huge) return false;
  bool ready = CALL(rondo_instantiate(runtime, b->graph, NULL, exec));
  bool fit = planned && plan.device_bytes <= DEVICE_BYTES && plan.pinned_bytes_per_slot <= PINNED_BYTES / 2 &&
             plan.host_bytes <= HOST_BYTES / 2;
  require(!ready || b->lender_exec, "what borrows from no exec was instantiated");
  require(ready || !fit || !b->lender_exec, "what fits beside its lender was not instantiated");
  return ready;
}
