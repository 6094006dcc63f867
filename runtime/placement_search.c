/* placement_search.c - see placement_search.h.
 *
 * The search asks again and again whether the buffers fit below a given capacity. A depth-first search over placements
 * that cannot be pushed down answers (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated
 * Machine Learning", ASPLOS 2023, calls them canonical). In such a placement each buffer rests on another buffer or on
 * the ground, and no buffer fits into a hole below it.
 *
 * State. `rest` of a buffer is its offset on top of the placed buffers that it conflicts with; `low` is a proved lower
 * bound of its offset. A step takes the unplaced buffer with the lowest `low` among those with low == rest, and places
 * it there. If that fails, its offset must be higher: low becomes rest + 1, and the buffer waits until another one is
 * pushed below it. So each step divides the placements into two disjoint sets, and nothing is visited twice.
 *
 * Three inferences cut branches off:
 *  - Buffers that all conflict with each other (cliques: those alive at one position, and others) must fit between
 *    the lowest `low` of those not yet placed and the capacity.
 *  - A waiting buffer will rest on an unplaced buffer that it conflicts with, so not below the lowest end of these.
 *  - If no such buffer can begin below the end of a waiting buffer at `rest`, the waiting buffer could as well lie at
 *    `rest`. Then a branch that was already visited dominates this one.
 *
 * The choice among buffers with the same `low` decides everything, and no fixed rule is good for all problems. So the
 * rule is learned. A buffer that takes part in a contradiction gains weight, heavy buffers come first, and the search
 * restarts every few steps with the current weights (Boussemart et al., "Boosting Systematic Search by Weighting
 * Constraints", ECAI 2004). Of the eleven public minimalloc instances, orders by bytes, lifetime and load of the
 * position leave six unsolved after 100,000 steps each. With weights most of them take some thousands.
 *
 * Parts of the problem without conflicts between them are searched one by one. */
#include "placement_search.h"

#include <string.h>

#include "cutter.h"
#include "first_fit.h"

/* A value before it was changed, so that a step can be taken back. */
struct change {
  uint64_t *where, old;
};

struct level {
  uint64_t changes; /* made before the step */
  uint32_t buffer;  /* put down by it */
};

struct search {
  const struct placement_problem *problem;
  uint32_t words, clique_words;
  uint64_t capacity;
  uint64_t *part;     /* the buffers searched now */
  uint64_t *done;     /* these, and those searched before */
  uint64_t *unplaced; /* of these */
  uint64_t *rest, *low, *offsets;

  struct bit_matrix cliques;    /* row c: the buffers of clique c */
  struct bit_matrix cliques_of; /* row b: the cliques of buffer b */
  uint32_t clique_count, clique_capacity;
  uint64_t *whole;   /* bytes of its buffers, by clique */
  uint64_t *left;    /* of those that are not placed */
  uint32_t *witness; /* see clique_fits */

  struct change *changes;
  uint64_t change_count, change_capacity;
  struct level *levels;

  uint64_t *weight, *keys; /* for the order of choice */
  uint64_t *clique_bytes;  /* of the heaviest clique a buffer is in */
  uint32_t *order, *rank;
  uint64_t *row; /* scratch, one row of buffers */
  uint64_t steps;
};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

enum {
  CLIQUES_PER_BUFFER = 2,   /* at most, on average */
  CHANGES_PER_BUFFER = 256, /* for the first thousand, for the others a quarter; a round that needs more ends early */
  CHANGES_PER_STEP = 8,     /* the most, times the buffers: 2 for cliques, 2 put higher, 1 that waits, ... */
};

static void search_cut(struct search *search, uint32_t count, struct cutter *cutter) {
  uint64_t buffers = count, cliques = CLIQUES_PER_BUFFER * buffers;
  search->words = bit_row_words(count);
  search->clique_capacity = (uint32_t)cliques;
  search->clique_words = bit_row_words(search->clique_capacity);
  uint64_t further = buffers > 1024 ? buffers - 1024 : 0;
  search->change_capacity = CHANGES_PER_BUFFER * (buffers - further) + CHANGES_PER_BUFFER / 4 * further;
  search->part = cut(cutter, bit_matrix_bytes(1, count));
  search->done = cut(cutter, bit_matrix_bytes(1, count));
  search->unplaced = cut(cutter, bit_matrix_bytes(1, count));
  search->row = cut(cutter, bit_matrix_bytes(1, count));
  search->rest = cut(cutter, buffers * sizeof(uint64_t));
  search->low = cut(cutter, buffers * sizeof(uint64_t));
  search->offsets = cut(cutter, buffers * sizeof(uint64_t));
  search->cliques = (struct bit_matrix){cut(cutter, bit_matrix_bytes(search->clique_capacity, count)), search->words};
  search->cliques_of =
      (struct bit_matrix){cut(cutter, bit_matrix_bytes(count, search->clique_capacity)), search->clique_words};
  search->whole = cut(cutter, cliques * sizeof(uint64_t));
  search->left = cut(cutter, cliques * sizeof(uint64_t));
  search->witness = cut(cutter, cliques * sizeof(uint32_t));
  search->changes = cut(cutter, search->change_capacity * sizeof *search->changes);
  search->levels = cut(cutter, buffers * sizeof *search->levels);
  search->weight = cut(cutter, buffers * sizeof(uint64_t));
  search->keys = cut(cutter, buffers * sizeof(uint64_t));
  search->clique_bytes = cut(cutter, buffers * sizeof(uint64_t));
  search->order = cut(cutter, buffers * sizeof(uint32_t));
  search->rank = cut(cutter, buffers * sizeof(uint32_t));
}

uint64_t placement_search_work_bytes(uint32_t count) {
  struct search search;
  struct cutter cutter = {0};
  if (count <= PLACEMENT_SEARCH_MOST) search_cut(&search, count, &cutter);
  return cutter.used;
}

/* ---- Parts and cliques ------------------------------------------------------------------------------------------- */

/* The buffers that `first` conflicts with, directly or through others. Those of 0 bytes conflict with none. */
static void find_part(struct search *search, uint32_t first) {
  uint64_t *reached = search->part, *waiting = search->row;
  uint32_t words = search->words;
  memset(reached, 0, words * sizeof *reached);
  memset(waiting, 0, words * sizeof *waiting);
  bit_put(waiting, first);
  for (uint32_t b = first; b < words * 64; b = bits_next(waiting, words, 0)) {
    bit_drop(waiting, b);
    if (!search->problem->bytes[b]) continue;
    bit_put(reached, b);
    const uint64_t *row = bit_row(&search->problem->conflicts, b);
    for (uint32_t w = 0; w < words; w++) waiting[w] |= row[w] & ~reached[w];
  }
}

/* Adds the clique in `members`, with all that can still join it, the largest first. */
static void add_clique(struct search *search, const uint64_t *members) {
  const struct placement_problem *problem = search->problem;
  uint32_t words = search->words, clique = search->clique_count++;
  uint64_t *row = bit_row(&search->cliques, clique), *candidates = search->unplaced, bytes = 0;
  memcpy(row, members, words * sizeof *row);
  memcpy(candidates, search->part, words * sizeof *candidates);
  for (uint32_t b = bits_next(row, words, 0); b < words * 64; b = bits_next(row, words, b + 1)) {
    bit_drop(candidates, b);
    for (uint32_t w = 0; w < words; w++) candidates[w] &= bit_row(&problem->conflicts, b)[w];
  }
  bool can_grow = bits_next(candidates, words, 0) < words * 64;
  for (uint32_t i = 0; can_grow && i < problem->count; i++) {
    uint32_t b = search->order[i];
    if (!bit_get(candidates, b)) continue;
    bit_put(row, b);
    bit_drop(candidates, b);
    for (uint32_t w = 0; w < words; w++) candidates[w] &= bit_row(&problem->conflicts, b)[w];
  }
  for (uint32_t b = bits_next(row, words, 0); b < words * 64; b = bits_next(row, words, b + 1)) {
    bit_put(bit_row(&search->cliques_of, b), clique);
    bytes += problem->bytes[b];
  }
  search->whole[clique] = bytes;
  search->witness[clique] = bits_next(row, words, 0);
}

/* Those alive where `buffer` begins, unless the same ones are alive, and more, where the next one begins. */
static void add_alive(struct search *search, uint32_t buffer) {
  const uint32_t *first = search->problem->first, *last = search->problem->last;
  uint32_t position = first[buffer], next = UINT32_MAX, words = search->words;
  bool one_ends = false;
  for (uint32_t b = bits_next(search->part, words, 0); b < words * 64; b = bits_next(search->part, words, b + 1)) {
    if (first[b] > position && first[b] < next) next = first[b];
    if (first[b] == position && b < buffer) return;
  }
  memset(search->row, 0, words * sizeof *search->row);
  for (uint32_t b = bits_next(search->part, words, 0); b < words * 64; b = bits_next(search->part, words, b + 1)) {
    if (first[b] > position || last[b] < position) continue;
    bit_put(search->row, b);
    one_ends = one_ends || last[b] < next;
  }
  if (one_ends) add_clique(search, search->row);
}

/* Cliques for the conflicts of `buffer` that none has yet. */
static void add_uncovered(struct search *search, uint32_t buffer) {
  const uint64_t *conflicts = bit_row(&search->problem->conflicts, buffer);
  uint64_t *open = search->keys; /* at least as long as a row */
  uint32_t words = search->words;
  for (uint32_t w = 0; w < words; w++) open[w] = conflicts[w] & search->part[w];
  bit_drop(open, buffer);
  const uint64_t *cliques = bit_row(&search->cliques_of, buffer);
  for (uint32_t c = bits_next(cliques, search->clique_words, 0); c < search->clique_count;
       c = bits_next(cliques, search->clique_words, c + 1))
    for (uint32_t w = 0; w < words; w++) open[w] &= ~bit_row(&search->cliques, c)[w];
  for (uint32_t b; (b = bits_next(open, words, 0)) < words * 64 && search->clique_count < search->clique_capacity;) {
    memset(search->row, 0, words * sizeof *search->row);
    bit_put(search->row, buffer);
    bit_put(search->row, b);
    add_clique(search, search->row);
    for (uint32_t w = 0; w < words; w++) open[w] &= ~bit_row(&search->cliques, search->clique_count - 1)[w];
  }
}

/* Cliques that cover the conflicts of this part, and what buffers have to do with them. Gives back the bytes of the
 * heaviest. */
static uint64_t find_cliques(struct search *search) {
  uint32_t words = search->words;
  uint64_t bound = 0;
  search->clique_count = 0;
  memset(search->cliques_of.words, 0, bit_matrix_bytes(search->problem->count, search->clique_capacity));
  first_fit_order(search->problem->count, search->problem->bytes, search->order);
  for (uint32_t b = bits_next(search->part, words, 0); b < words * 64; b = bits_next(search->part, words, b + 1))
    add_alive(search, b);
  for (uint32_t b = bits_next(search->part, words, 0); b < words * 64; b = bits_next(search->part, words, b + 1))
    add_uncovered(search, b);
  memset(search->clique_bytes, 0, search->problem->count * sizeof(uint64_t));
  for (uint32_t c = 0; c < search->clique_count; c++) {
    const uint64_t *row = bit_row(&search->cliques, c);
    for (uint32_t b = bits_next(row, words, 0); b < words * 64; b = bits_next(row, words, b + 1))
      if (search->whole[c] > search->clique_bytes[b]) search->clique_bytes[b] = search->whole[c];
    if (search->whole[c] > bound) bound = search->whole[c];
  }
  return bound;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static void change(struct search *search, uint64_t *where, uint64_t value) {
  search->changes[search->change_count++] = (struct change){where, *where};
  *where = value;
}

static void take_back(struct search *search, uint64_t change_count) {
  while (search->change_count > change_count) {
    struct change last = search->changes[--search->change_count];
    *last.where = last.old;
  }
}

/* Buffers that a contradiction is about are chosen earlier from now on. */
static bool contradiction(struct search *search, uint32_t buffer) {
  search->weight[buffer]++;
  return false;
}

/* Do the unplaced buffers of a clique fit between the lowest of them and the capacity? Yes if one is low enough: a
 * witness, which mostly is the one of the last time. */
static bool clique_fits(struct search *search, uint32_t clique) {
  const uint64_t *row = bit_row(&search->cliques, clique);
  uint32_t witness = search->witness[clique];
  if (search->left[clique] > search->capacity) return false;
  uint64_t enough = search->capacity - search->left[clique];
  if (bit_get(search->unplaced, witness) && search->low[witness] <= enough) return true;
  for (uint32_t w = 0; w < search->words; w++)
    for (uint64_t bits = row[w] & search->unplaced[w]; bits; bits &= bits - 1) {
      uint32_t b = w * 64 + (uint32_t)__builtin_ctzll(bits);
      if (search->low[b] > enough) continue;
      search->witness[clique] = b;
      return true;
    }
  return false;
}

static bool cliques_fit(struct search *search) {
  for (uint32_t c = 0; c < search->clique_count; c++) {
    if (!search->left[c] || clique_fits(search, c)) continue;
    const uint64_t *row = bit_row(&search->cliques, c);
    for (uint32_t w = 0; w < search->words; w++)
      for (uint64_t bits = row[w] & search->unplaced[w]; bits; bits &= bits - 1)
        contradiction(search, w * 64 + (uint32_t)__builtin_ctzll(bits));
    return false;
  }
  return true;
}

/* What a buffer that must not lie at `rest` will rest on, and what keeps it from there. */
static bool raise_waiting(struct search *search, uint32_t buffer) {
  const uint64_t *row = bit_row(&search->problem->conflicts, buffer), *bytes = search->problem->bytes;
  uint64_t support = UINT64_MAX, obstacle = UINT64_MAX;
  for (uint32_t w = 0; w < search->words; w++)
    for (uint64_t bits = row[w] & search->unplaced[w]; bits; bits &= bits - 1) {
      uint32_t b = w * 64 + (uint32_t)__builtin_ctzll(bits);
      if (b == buffer) continue;
      if (search->low[b] < obstacle) obstacle = search->low[b];
      if (search->low[b] + bytes[b] < support) support = search->low[b] + bytes[b];
    }
  if (obstacle >= search->rest[buffer] + bytes[buffer]) return false;
  if (support > search->low[buffer]) change(search, &search->low[buffer], support);
  if (search->low[buffer] + bytes[buffer] > search->capacity) return contradiction(search, buffer);
  return true;
}

static bool infer(struct search *search) {
  for (uint32_t w = 0; w < search->words; w++)
    for (uint64_t bits = search->unplaced[w]; bits; bits &= bits - 1) {
      uint32_t b = w * 64 + (uint32_t)__builtin_ctzll(bits);
      if (search->low[b] > search->rest[b] && !raise_waiting(search, b)) return false;
    }
  return cliques_fit(search);
}

static bool put_down(struct search *search, uint32_t buffer) {
  const uint64_t *row = bit_row(&search->problem->conflicts, buffer), *bytes = search->problem->bytes;
  const uint64_t *cliques = bit_row(&search->cliques_of, buffer);
  uint64_t end = search->rest[buffer] + bytes[buffer];
  search->offsets[buffer] = search->rest[buffer];
  change(search, &search->unplaced[buffer / 64], search->unplaced[buffer / 64] & ~(UINT64_C(1) << (buffer % 64)));
  for (uint32_t w = 0; w < search->clique_words; w++)
    for (uint64_t bits = cliques[w]; bits; bits &= bits - 1) {
      uint32_t c = w * 64 + (uint32_t)__builtin_ctzll(bits);
      change(search, &search->left[c], search->left[c] - bytes[buffer]);
    }
  bool fits = true;
  for (uint32_t w = 0; w < search->words; w++)
    for (uint64_t bits = row[w] & search->unplaced[w]; bits; bits &= bits - 1) {
      uint32_t b = w * 64 + (uint32_t)__builtin_ctzll(bits);
      if (search->rest[b] >= end) continue;
      change(search, &search->rest[b], end);
      if (search->low[b] >= end) continue;
      change(search, &search->low[b], end);
      if (end + bytes[b] > search->capacity) fits = contradiction(search, b);
    }
  return fits && infer(search);
}

static bool make_wait(struct search *search, uint32_t buffer) {
  change(search, &search->low[buffer], search->rest[buffer] + 1);
  return infer(search);
}

/* The lowest that does not wait; UINT32_MAX if all do. */
static uint32_t choose(const struct search *search) {
  uint32_t chosen = UINT32_MAX;
  uint64_t low = UINT64_MAX;
  for (uint32_t w = 0; w < search->words; w++)
    for (uint64_t bits = search->unplaced[w]; bits; bits &= bits - 1) {
      uint32_t b = w * 64 + (uint32_t)__builtin_ctzll(bits);
      if (search->low[b] > search->rest[b] || search->low[b] > low) continue;
      if (search->low[b] == low && search->rank[b] > search->rank[chosen]) continue;
      low = search->low[b];
      chosen = b;
    }
  return chosen;
}

/* ---- Search ------------------------------------------------------------------------------------------------------ */

enum outcome { OUTCOME_PLACED, OUTCOME_IMPOSSIBLE, OUTCOME_UNDECIDED };

static void begin(struct search *search) {
  search->change_count = 0;
  memcpy(search->unplaced, search->part, search->words * sizeof(uint64_t));
  memset(search->rest, 0, search->problem->count * sizeof(uint64_t));
  memset(search->low, 0, search->problem->count * sizeof(uint64_t));
  memcpy(search->left, search->whole, search->clique_count * sizeof *search->left);
}

/* Can the part be placed below the capacity? Undecided after the limit of steps. */
static enum outcome decide(struct search *search, uint64_t step_limit) {
  uint32_t depth = 0, words = search->words;
  uint64_t margin = (uint64_t)CHANGES_PER_STEP * search->problem->count, steps = 0;
  begin(search);
  for (bool consistent = infer(search);;) {
    if (consistent && bits_next(search->unplaced, words, 0) == words * 64) return OUTCOME_PLACED;
    uint32_t buffer = consistent ? choose(search) : UINT32_MAX;
    if (buffer != UINT32_MAX) {
      if (steps == step_limit || search->change_count + margin > search->change_capacity) return OUTCOME_UNDECIDED;
      steps++;
      search->steps++;
      search->levels[depth++] = (struct level){search->change_count, buffer};
      consistent = put_down(search, buffer);
    } else {
      if (!depth) return OUTCOME_IMPOSSIBLE;
      struct level last = search->levels[--depth];
      take_back(search, last.changes);
      consistent = make_wait(search, last.buffer);
    }
  }
}

/* By weight alone, by weight and the cliques a buffer is in, by weight and the heaviest of these, in turns. Where a
 * product is too large for 64 bits, the order is another one, and no worse. */
static void rank(struct search *search, uint64_t round) {
  uint32_t count = search->problem->count;
  for (uint32_t b = 0; b < count; b++) {
    uint64_t factor = 1;
    if (round % 3 == 1) {
      factor = 0;
      for (uint32_t w = 0; w < search->clique_words; w++)
        factor += (uint64_t)__builtin_popcountll(bit_row(&search->cliques_of, b)[w]);
    } else if (round % 3 == 2) {
      factor = search->clique_bytes[b];
    }
    search->keys[b] = search->weight[b] * factor;
  }
  first_fit_order(count, search->keys, search->order);
  for (uint32_t i = 0; i < count; i++) search->rank[search->order[i]] = i;
}

static uint64_t peak_of(const struct search *search, const uint64_t *offsets) {
  uint64_t peak = 0;
  for (uint32_t b = bits_next(search->part, search->words, 0); b < search->words * 64;
       b = bits_next(search->part, search->words, b + 1))
    if (offsets[b] + search->problem->bytes[b] > peak) peak = offsets[b] + search->problem->bytes[b];
  return peak;
}

/* Offsets are sums of sizes, so multiples of what divides all sizes. Never 0. */
static uint64_t common_divisor(const struct search *search) {
  uint64_t divisor = 0;
  for (uint32_t b = bits_next(search->part, search->words, 0); b < search->words * 64;
       b = bits_next(search->part, search->words, b + 1))
    for (uint64_t other = search->problem->bytes[b]; other;) {
      uint64_t remainder = divisor % other;
      divisor = other;
      other = remainder;
    }
  return divisor ? divisor : 1;
}

/* A fixed sequence of choices (Knuth's MMIX generator): the same placement every time. */
static uint64_t draw(uint64_t *state, uint64_t below) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (*state >> 33) % below;
}

/* Rounds of a few steps for each buffer. Most try to reach the bound at once; every eighth, later fourth, tries half of
 * what is left, then a quarter, then an eighth. Weights that have led nowhere for long are given up for others, and a
 * round then gets many steps, the next time twice as many: so a bound that cannot be reached is found out, if the
 * problem is small.
 *
 * The search gives up after PATIENCE times the steps of its last success. One of the minimalloc instances needs 22
 * times as many; the drafting graph of SmolLM2 finds its placement in 3,900 of the 516,000 steps that it had otherwise.
 */
static uint64_t search_part(struct search *search, uint64_t bound, uint64_t peak, uint64_t step_limit,
                            uint64_t *offsets) {
  enum { STEPS_PER_BUFFER = 2, ROUNDS_OF_SAME_WEIGHTS = 256, PATIENCE = 24, STEPS_LEAST = 4096 };
  const uint64_t first = search->steps;
  uint64_t unit = common_divisor(search), random = 1, shift = 1, *weight = search->weight;
  uint32_t words = search->words, size = 0;
  for (uint32_t w = 0; w < words; w++) size += (uint32_t)__builtin_popcountll(search->part[w]);
  bound = (bound + unit - 1) / unit * unit;
  uint64_t last = first + STEPS_LEAST; /* success, or the least that counts as one */
  for (uint64_t round = 0;
       peak > bound && search->steps < step_limit && search->steps - first < PATIENCE * (last - first); round++) {
    uint64_t renewals = round / ROUNDS_OF_SAME_WEIGHTS;
    bool is_renewal = round % ROUNDS_OF_SAME_WEIGHTS == 0;
    if (is_renewal)
      for (uint32_t b = 0; b < search->problem->count; b++) weight[b] = round ? 1 + draw(&random, 4) : 1;
    rank(search, round);
    bool is_lesser = round % 8 == 7 || (renewals && round % 4 == 3);
    uint64_t gap = peak - unit - bound, steps_left = step_limit - search->steps;
    uint64_t steps = STEPS_PER_BUFFER * (uint64_t)size;
    if (round && is_renewal) steps <<= renewals < 32 ? 5 + renewals : 37;
    search->capacity = is_lesser ? bound + gap - (gap >> shift) : bound;
    enum outcome outcome = decide(search, steps < steps_left ? steps : steps_left);
    if (outcome == OUTCOME_IMPOSSIBLE) bound = search->capacity / unit * unit + unit;
    if (outcome == OUTCOME_PLACED) {
      for (uint32_t b = bits_next(search->part, words, 0); b < words * 64; b = bits_next(search->part, words, b + 1))
        offsets[b] = search->offsets[b];
      peak = peak_of(search, offsets);
      shift = 1;
      if (search->steps > last) last = search->steps;
    } else if (is_lesser) {
      shift = shift % 3 + 1;
    }
  }
  return peak;
}

uint64_t placement_search(const struct placement_problem *problem, uint64_t *offsets, void *work) {
  struct search search = {.problem = problem};
  search_cut(&search, problem->count, &(struct cutter){.base = work});
  uint64_t step_limit = problem->step_limit ? problem->step_limit : PLACEMENT_DEFAULT_WORK / (problem->count + 1);
  uint64_t highest = 0; /* of the parts done: none of the others needs to lie lower */
  memset(search.done, 0, search.words * sizeof *search.done);
  for (uint32_t b = 0; b < problem->count; b++) {
    if (!problem->bytes[b] || bit_get(search.done, b)) continue;
    find_part(&search, b);
    bits_or(search.done, search.part, search.words);
    uint64_t peak = peak_of(&search, offsets);
    uint64_t bound = highest > problem->lower_bound_bytes ? highest : problem->lower_bound_bytes;
    if (peak > bound) {
      uint64_t by_cliques = find_cliques(&search);
      peak = search_part(&search, bound > by_cliques ? bound : by_cliques, peak, step_limit, offsets);
    }
    if (peak > highest) highest = peak;
  }
  if (problem->steps) *problem->steps = search.steps;
  return highest;
}
