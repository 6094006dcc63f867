/* test_feed_back.c - the parts of a language model hand on what they wrote last, to each other and to the next replay,
 * although kernels start before their predecessors have ended. Each id's row of a table is largest at the next id, so
 * that the ids follow a known permutation. A kernel that reads too early shows as an id that comes twice. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../oracles/frame.h"

enum { WIDTH = 5000, COUNT = 3 };

static int32_t next_of(int32_t id) { return (id * 37 + 11) % WIDTH; }

struct loop {
  rondo_tensor table, ids, drawn_ids, position, one, ones, zero;
};

/* ids -> row -> row + 0 -> normalised -> turned by nothing -> silu(row) * 1 -> the largest column -> ids. */
static rondo_tensor add_parts(rondo_graph *graph, const struct loop *loop, rondo_tensor ids) {
  const int64_t shape[] = {COUNT, WIDTH}, pairs[] = {COUNT, WIDTH / 200, 1, 200};
  rondo_tensor rows, sums, normed, heads, turned, flat, gated;
  REQUIRE_OK(rondo_temporary(graph, "rows", RONDO_BF16, 2, shape, &rows));
  REQUIRE_OK(rondo_temporary(graph, "sums", RONDO_BF16, 2, shape, &sums));
  REQUIRE_OK(rondo_temporary(graph, "normed", RONDO_F16, 2, shape, &normed));
  REQUIRE_OK(rondo_temporary(graph, "turned", RONDO_F16, 4, pairs, &turned));
  REQUIRE_OK(rondo_temporary(graph, "gated", RONDO_F16, 2, shape, &gated));
  REQUIRE_OK(rondo_reshape(graph, normed, 4, pairs, &heads));
  REQUIRE_OK(rondo_reshape(graph, turned, 2, shape, &flat));
  REQUIRE_OK(rondo_add_embed(graph, &(rondo_embed_desc){"embed", .table = loop->table, .ids = ids, .out = rows}));
  REQUIRE_OK(rondo_add_add(graph, &(rondo_add_desc){"add", rows, rows, sums}));
  REQUIRE_OK(rondo_add_rms_norm(graph, &(rondo_rms_norm_desc){.name = "norm", .x = sums, .out = normed}));
  REQUIRE_OK(
      rondo_add_rope(graph, &(rondo_rope_desc){.name = "rope", .x = heads, .out = turned, .position = loop->zero}));
  REQUIRE_OK(rondo_add_silu_mul(graph, &(rondo_silu_mul_desc){"gate", flat, loop->ones, gated}));
  return gated;
}

static void add_loop(struct trial *trial, struct loop *loop) {
  rondo_graph *graph = trial->graph;
  const int64_t count = COUNT, one = 1;
  REQUIRE_OK(rondo_constant(graph, "table", RONDO_BF16, 2, (int64_t[]){WIDTH, WIDTH}, &loop->table));
  REQUIRE_OK(rondo_constant(graph, "ones", RONDO_F16, 2, (int64_t[]){COUNT, WIDTH}, &loop->ones));
  REQUIRE_OK(rondo_constant(graph, "one", RONDO_I32, 1, &one, &loop->one));
  REQUIRE_OK(rondo_constant(graph, "zero", RONDO_I32, 1, &one, &loop->zero));
  REQUIRE_OK(rondo_state(graph, "ids", RONDO_I32, 1, &count, &loop->ids));
  REQUIRE_OK(rondo_state(graph, "drawn ids", RONDO_I32, 1, &count, &loop->drawn_ids));
  REQUIRE_OK(rondo_state(graph, "position", RONDO_I32, 1, &one, &loop->position));
  rondo_tensor logits = add_parts(graph, loop, loop->ids);
  REQUIRE_OK(rondo_add_argmax(graph, &(rondo_argmax_desc){"argmax", logits, loop->ids}));
  logits = add_parts(graph, loop, loop->drawn_ids);
  REQUIRE_OK(rondo_add_sample(graph, &(rondo_sample_desc){.name = "sample",
                                                          .x = logits,
                                                          .out = loop->drawn_ids,
                                                          .top_k = loop->one,
                                                          .seed = loop->zero,
                                                          .step = loop->position}));
  REQUIRE_OK(rondo_add_add(graph, &(rondo_add_desc){"count", loop->position, loop->one, loop->position}));
}

static void feed_back(rondo_backend backend) {
  struct trial trial;
  struct loop loop;
  int32_t expected[] = {0, 1234, WIDTH - 1}, ids[COUNT], position;
  const int replays = backend == RONDO_BACKEND_HOST ? 5 : 500;
  uint16_t *values = malloc((size_t)WIDTH * WIDTH * sizeof *values);
  trial_describe(&trial, backend);
  add_loop(&trial, &loop);
  trial_instantiate(&trial);
  for (int i = 0; i < WIDTH * WIDTH; i++) values[i] = oracle_to_bf16(0.25);
  for (int i = 0; i < WIDTH; i++) values[i * WIDTH + next_of(i)] = oracle_to_bf16(0.5);
  trial_set(&trial, loop.table, values);
  for (int i = 0; i < COUNT * WIDTH; i++) values[i] = oracle_to_f16(1);
  trial_set(&trial, loop.ones, values);
  trial_set(&trial, loop.one, (int32_t[]){1}), trial_set(&trial, loop.zero, (int32_t[]){0});
  trial_set(&trial, loop.ids, expected), trial_set(&trial, loop.drawn_ids, expected);
  for (int replay = 0; replay < replays; replay++) {
    for (int i = 0; i < COUNT; i++) expected[i] = next_of(expected[i]);
    trial_replay(&trial);
    if (replay % 50 && replay + 5 < replays) continue; /* else nothing but replays follows a replay */
    trial_get(&trial, loop.ids, ids);
    cr_assert(memcmp(ids, expected, sizeof ids) == 0, "argmax, replay %d", replay);
    trial_get(&trial, loop.drawn_ids, ids);
    cr_assert(memcmp(ids, expected, sizeof ids) == 0, "sample, replay %d", replay);
  }
  trial_get(&trial, loop.position, &position);
  cr_assert_eq(position, replays);
  free(values);
  trial_end(&trial);
}
BOTH_BACKENDS(feed_back, ids_follow_what_the_parts_wrote_last, feed_back)

/* ---- Which kernels ----------------------------------------------------------------------------------------------- */

static void require_explained(struct trial *trial, int32_t chip, const char *const *kernels) {
  char path[] = "/tmp/rondo-feed-back-XXXXXX", text[8192];
  int file = mkstemp(path);
  cr_assert_geq(file, 0);
  REQUIRE_OK(rondo_explain(trial->graph, chip, path));
  FILE *report = fopen(path, "r");
  text[fread(text, 1, sizeof text - 1, report)] = 0;
  fclose(report), close(file), remove(path);
  for (; *kernels; kernels++) cr_assert_not_null(strstr(text, *kernels), "chip %d: no %s in\n%s", chip, *kernels, text);
}

Test(feed_back, explain_names_the_kernels_of_every_part) {
  static const char *const portable[] = {
      "rondo_embed", "rondo_elementwise", "rondo_rms_norm", "rondo_rope", "rondo_argmax", "rondo_sample", NULL};
  static const char *const clusters[] = {"rondo_argmax_cluster", "rondo_sample_cluster", NULL};
  struct trial trial;
  struct loop loop;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  add_loop(&trial, &loop);
  require_explained(&trial, 80, portable);
  require_explained(&trial, 90, portable), require_explained(&trial, 90, clusters);
  require_explained(&trial, 100, clusters);
  trial_end(&trial);
}
