/* counted_ranks.c - counts what replays of several ranks ask for (counted_ranks.h). */
#include "counted_ranks.h"

#include "allocations.h"
#include "forbidden.h"

uint64_t ranks_replay_for(const struct proof *proof, ranks_replay *replay, uint64_t count, const char *what) {
  enum { BATCH = 20 };
  const double begin = now_s();
  rondo_status status = RONDO_OK;
  uint64_t done = 0;
  for (; status == RONDO_OK && done < count && now_s() - begin < SYSTEM_CALL_SECONDS; done += BATCH)
    status = replay(BATCH);
  check(proof, status, what);
  return done;
}

/* That the counters can fail is shown by replay_allocates_nothing. */
struct counted_ranks ranks_count(const struct proof *proof, ranks_replay *replay, uint32_t ranks) {
  char text[1024];
  forbidden_count();
  allocations_count();
  const uint64_t replays = ranks_replay_for(proof, replay, proof->replays, "replay");
  const struct allocations calls = allocations_stop();
  const uint64_t forbidden = forbidden_stop();
  forbidden_describe(text, sizeof text);
  if (forbidden) conclude(proof, FAILED, "%ju forbidden calls in %ju replays: %s", forbidden, replays, text);
  if (proof->backend == RONDO_BACKEND_CUDA && forbidden_launches() != ranks * replays)
    conclude(proof, FAILED, "%ju launches in %ju replays of %u ranks", forbidden_launches(), replays, ranks);
  allocations_describe(text, sizeof text);
  if (calls.ours) conclude(proof, FAILED, "%ju calls in %ju replays: %s", calls.ours, replays, text);
  return (struct counted_ranks){replays, calls.foreign};
}
