/* qr_panels.cuh - Householder QR by panels, for matrices that do not fit in the registers of a block.
 *
 * Left-looking. A panel is read to registers once, the reflectors of the panels on its left are applied to it, its own
 * reflectors are found, and it is written once. Reflectors are read again from memory, CHUNK at a time, while the block
 * computes. They are applied in groups of four, H1 H2 H3 H4 = I - V T V^T:
 *
 *   W = V^T C   (each lane from its registers; a sum over the row lanes leaves each lane few numbers of W),
 *   W := T^T W  (each lane its numbers, through shared memory),   C -= V W.
 *
 * A vector of V that is read from shared memory serves VECTOR x TILE_COLUMNS multiply-adds. Warps wait for each other
 * only when a chunk arrives, and C never leaves the registers. T costs nothing: the dot products of the steps with
 * earlier columns of the group are v_k^T v_j u_k u_j.
 *
 * f64 of 161 to 512 rows uses groups of eight and tensor cores instead (qr_panels_fragments.cuh). Their fragments are
 * in other lanes, so the panel is dealt to the lanes of the steps before its own reflectors are found.
 *
 * Steps and scaling are those of qr_tile.cuh. Rows above the diagonal leave the registers a layer at a time, so the
 * arithmetic shrinks with the matrix; each number of layers has its own code. All code must fit in 128 KB of
 * instruction cache, so code that runs once a panel is short (H200, 256 x 256 of f32: 1686 us with 264 KB, 1304 with
 * 155).
 *
 * Thin R goes to its place as it becomes final, and reflectors go to the place of Q. A second kernel forms Q there,
 * panel after panel from the last to the first. Each panel begins as columns of the identity and meets the reflectors
 * that reach it, the last one first, in the same groups with T instead of T^T. It has met them all before it is written
 * over its own. The tile has the layers of the identity in reverse: if reflectors reach one layer more, no number
 * moves. */
#pragma once

#include "../common/launch.cuh"
#include "qr_panels_fragments.cuh"

template <typename Shape> struct panel_tile : panel_fragments<Shape> {
  using memory = panel_fragments<Shape>;
  using T = typename memory::T;
  using vector = typename memory::vector;
  using memory::COLUMNS, memory::GROUP, memory::CHUNK;
  using memory::first, memory::above, memory::scaled, memory::triangular, memory::FORMING;
  using memory::GR, memory::GC, memory::P, memory::Q, memory::VECTOR, memory::LAYERS, memory::LAYER, memory::ROWS;
  using memory::HALF, memory::LEADING, memory::FRAGMENTS;
  using memory::p, memory::a, memory::tau, memory::kept_triangles, memory::pivots, memory::stage, memory::triangles,
      memory::weights;
  using memory::panel_fragments;
  using memory::products_of_group, memory::u_of, memory::nu_of, memory::scales, memory::row, memory::column;
  static constexpr int TOGETHER = Shape::TOGETHER, SWAPS = Shape::SWAPS, VERSIONS = tile_smaller(LAYERS, 4);
  static constexpr bool READ_AGAIN = P * (int)sizeof(T) >= 256 || P * Q * (int)sizeof(T) > 512;

  /* By value: a branch around the loads would keep the tile out of registers. */
  static DEVICE T chosen(bool first, T one, T other) { return first ? one : other; }

  static DEVICE int first_lane() { return (int)(threadIdx.x & 31) & ~(GR - 1); }

  /* ---- reflectors of other panels ---- */

  /* Sums over the row lanes. Each level halves the numbers that a lane still sums; lane `row` ends with numbers from
   * row * COUNT / GR on. In the first SWAPS levels the half that a lane keeps comes first (see swapped). */
  template <int COUNT> DEVICE void scatter(T (&part)[COUNT]) const {
    unrolled_for (int level = 0; (GR >> level) > 1; level++) {
      const int half = COUNT >> (level + 1), offset = GR >> (level + 1);
      const bool upper = level >= SWAPS && row & offset;
      unrolled_for (int i = 0; i < COUNT / 2; i++)
        if (i < half) {
          const T sent = chosen(upper, part[i], part[i + half]), kept = chosen(upper, part[i + half], part[i]);
          part[i] = kept + __shfl_xor_sync(0xffffffffu, sent, offset);
        }
      if (half == 0) part[0] += __shfl_xor_sync(0xffffffffu, part[0], offset);
    }
  }

  /* The reflector of the lane's t-th products. */
  DEVICE int swapped(int t) const {
    unrolled_for (int level = 0; level < SWAPS; level++)
      if (row & GR >> (level + 1)) t ^= TOGETHER >> (level + 1);
    return t;
  }

  /* The tile, from local column FROM on, := H4 H3 H2 H1 tile. `v` is the first of the four in shared memory, `triangle`
   * has the columns of T. */
  template <int L, int FROM> DEVICE void apply(const T *v, const T *triangle, T *w) {
    constexpr int WIDE = Q - FROM;
    constexpr int VALUES = GROUP * WIDE, OWN = VALUES > GR ? VALUES / GR : 1, LANES = GR / GROUP;
    constexpr int COUNT = TOGETHER * WIDE, KEPT = COUNT > GR ? COUNT / GR : 1, SHARERS = COUNT > GR ? 1 : GR / COUNT;
    T *const product = w + VALUES;
    const T *from = v += row * VECTOR;
    int place[TOGETHER];
    unrolled_for (int t = 0; t < TOGETHER; t++) place[t] = swapped(t) * LEADING;
    rolled_for (int r = 0; r < GROUP; r += TOGETHER, from += TOGETHER * LEADING) {
      T part[COUNT] = {};
      unrolled_for (int layer = 0; layer < L; layer++)
        unrolled_for (int t = 0; t < TOGETHER; t++) {
          const vector x = *(const vector *)(from + place[t] + layer * LAYER);
          unrolled_for (int e = 0; e < VECTOR; e++)
            unrolled_for (int q = 0; q < WIDE; q++)
              part[t * WIDE + q] = fused(((const T *)&x)[e], a[layer * VECTOR + e][FROM + q], part[t * WIDE + q]);
        }
      scatter<COUNT>(part);
      if (row % SHARERS == 0) {
        unrolled_for (int l = 0; l < KEPT; l++) w[r * WIDE + row / SHARERS * KEPT + l] = part[l];
      }
    }
    __syncwarp();
    const int first_own = row * VALUES / GR;
    unrolled_for (int l = 0; l < OWN; l++) {
      T sum = T(0);
      unrolled_for (int k = 0; k < GROUP; k++)
        sum = fused(triangle[row / LANES * GROUP + k], w[k * WIDE + first_own % WIDE + l], sum);
      product[first_own + l] = sum;
    }
    __syncwarp();
    from = v;
#pragma unroll TOGETHER
    for (int r = 0; r < GROUP; r++, from += LEADING) {
      T y[Q];
      unrolled_for (int q = 0; q < WIDE; q++) y[q] = product[r * WIDE + q];
      unrolled_for (int layer = 0; layer < L; layer++) {
        const vector x = *(const vector *)(from + layer * LAYER);
        unrolled_for (int e = 0; e < VECTOR; e++)
          unrolled_for (int q = 0; q < WIDE; q++)
            a[layer * VECTOR + e][FROM + q] = fused(-((const T *)&x)[e], y[q], a[layer * VECTOR + e][FROM + q]);
      }
    }
  }

  template <int FROM> DEVICE void apply_chunk_from(int j, const T *half) {
    this->template with_layers<VERSIONS>(this->layers_of_matrix() - j / LAYER, [&](auto layers) {
      rolled_for (int step = 0; step < CHUNK; step += GROUP) {
        const int r = FORMING ? CHUNK - GROUP - step : step;
        apply<layers.value, FROM>(half + r * LEADING, triangles + (j + r) * GROUP, weights + column * 2 * GROUP * Q);
      }
    });
  }

  /* The last reflectors of a panel of Q do not reach its first columns. */
  DEVICE void apply_chunk(int j, const T *half) {
    if constexpr (FRAGMENTS)
      this->multiply_chunk(j, half);
    else if (FORMING && j - first >= COLUMNS / 2)
      apply_chunk_from<FORMING ? Q / 2 : 0>(j, half);
    else
      apply_chunk_from<0>(j, half);
  }

  /* The layers of a reflector that are used: those of the code that applies it. */
  DEVICE int layers_at(int j) const {
    int count;
    this->template with_layers<VERSIONS>(this->layers_of_matrix() - j / LAYER,
                                         [&](auto layers) { count = layers.value; });
    return count;
  }

  DEVICE void fetch_chunk(int j) {
    this->fetch(j, layers_at(j), stage + (j / CHUNK & 1) * HALF);
    cp_async_commit();
  }

  /* Applies `count` reflectors: to a panel of A from the first to the last, to one of Q from the last to the first.
   * After the last one the diagonal of a panel of A, if it has one, is in the first layer. One round before the first
   * chunk only fetches it; one round after the chunks of A only writes a layer. */
  DEVICE void apply_all(int count) {
    const int chunks = (count + CHUNK - 1) / CHUNK, next = FORMING ? -CHUNK : CHUNK;
    int j = FORMING ? chunks * CHUNK : -CHUNK;
    rolled_for (int left = chunks;; left--, j += next) {
      T *half = stage + (j / CHUNK & 1) * HALF;
      if (!FORMING && j > 0 && j % LAYER == 0) this->template retire<FRAGMENTS>(stage + ((j / CHUNK + 1) & 1) * HALF);
      if (left < 0) break;
      if (left < chunks) {
        wait_for_copies();
        this->patch(j, half);
        __syncthreads();
      }
      if (left > 0) fetch_chunk(j + next);
      if (left < chunks)
        apply_chunk(j, half);
      else if (!FORMING)
        this->scale_columns();
    }
  }

  /* ---- its own reflectors ---- */

  template <int QQ, int L> DEVICE void show(int owner, T *to) const {
    if (column != owner) return;
    unrolled_for (int layer = 0; layer < L; layer++)
      *(vector *)(to + layer * LAYER + row * VECTOR) = this->given_vector(layer, QQ);
  }

  /* The first layer of x is in registers. The others are too, or are read again if they are too many. */
  template <int L> DEVICE void update(int q, const T (&x)[P], T y, const T *seen) {
    unrolled_for (int layer = 0; layer < L; layer++) {
      vector v;
      if (READ_AGAIN && layer) v = *(const vector *)(seen + layer * LAYER + row * VECTOR);
      unrolled_for (int e = 0; e < VECTOR; e++) {
        const int i = layer * VECTOR + e;
        a[i][q] = fused(READ_AGAIN && layer ? -((const T *)&v)[e] : -x[i], y, a[i][q]);
      }
    }
  }

  /* Step s of local column QQ: see qr_tile.cuh. */
  template <int QQ, int L> DEVICE void step(int s, const T *seen, T *next) {
    constexpr int NEXT_Q = tile_smaller(QQ + 1, Q - 1), CHAINS = Q - QQ >= 4 ? 1 : Q - QQ >= 2 ? 2 : 4;
    const int pivot_row = this->begin() + QQ * GC + s;
    T x[P], d[Q];
    __syncthreads();
    unrolled_for (int layer = 0; layer < L; layer++)
      each_of_vector(seen + layer * LAYER + row * VECTOR, [&](int e, T number) { x[layer * VECTOR + e] = number; });
    const T alpha = seen[pivot_row];
    unrolled_for (int e = 0; e < VECTOR; e++)
      if (row * VECTOR + e <= pivot_row) x[e] = T(0);

    T squares[4] = {tile_number<T>::BIAS_OF_SIGMA};
    unrolled_for (int i = 0; i < L * VECTOR; i++) squares[i & 3] = fused(x[i], x[i], squares[i & 3]);
    T sigma = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    unrolled_for (int q = QQ; q < Q; q++) {
      T part[4] = {};
      unrolled_for (int i = 0; i < L * VECTOR; i++) part[i % CHAINS] = fused(x[i], a[i][q], part[i % CHAINS]);
      d[q] = CHAINS == 1 ? part[0] : CHAINS == 2 ? part[0] + part[1] : (part[0] + part[1]) + (part[2] + part[3]);
    }
    unrolled_for (int offset = 1; offset < GR; offset *= 2) sigma += __shfl_xor_sync(0xffffffffu, sigma, offset);
    if constexpr (GR == 32 && Q - QQ >= 3)
      scatter_and_gather<Shape, QQ>(d);
    else
      butterfly<Shape, QQ>(d);

    const householder<T> h = householder_of(sigma, alpha);
    const bool mine = column == s;
    unrolled_for (int q = QQ; q < Q; q++) {
      T beside = a[0][q];
      unrolled_for (int e = 1; e < VECTOR; e++) beside = chosen(pivot_row % VECTOR == e, a[e][q], beside);
      d[q] = fused(h.u, __shfl_sync(0xffffffffu, beside, first_lane() | pivot_row % LAYER / VECTOR), d[q]);
    }
    if (row == 0 && column < s && (column ^ s) < GROUP)
      products_of_group[(QQ * GC + s) * GROUP + column % GROUP] = d[QQ];
    unrolled_for (int q = QQ; q < Q; q++) d[q] = h.g * (q > QQ || column > s ? d[q] : T(0));
    unrolled_for (int e = 0; e < VECTOR; e++)
      if (row * VECTOR + e == pivot_row) x[e] = h.u;
    update<L>(QQ, x, d[QQ], seen);
    if constexpr (NEXT_Q != QQ) update<L>(NEXT_Q, x, d[NEXT_Q], seen);
    if (mine && !h.zero) {
      unrolled_for (int e = 0; e < VECTOR; e++) a[e][QQ] = chosen(row * VECTOR + e == pivot_row, h.beta, a[e][QQ]);
      if (row == 0) {
        u_of[QQ * GC + s] = h.u;
        nu_of[QQ * GC + s] = h.nu;
      }
    }
    if (s + 1 < GC)
      show<QQ, L>(s + 1, next);
    else if constexpr (NEXT_Q != QQ)
      show<NEXT_Q, L>(0, next);
    unrolled_for (int q = QQ + 1; q < Q; q++)
      if (q != NEXT_Q) update<L>(q, x, d[q], seen);
  }

  template <int QQ, int L> DEVICE void steps(int last) {
    const int end = min(last - QQ * GC, GC);
    T *seen = pivots, *next = pivots + ROWS;
    rolled_for (int s = 0; s < end; s++) {
      step<QQ, L>(s, seen, next);
      T *const old = seen; /* the next address is then known before the barrier */
      seen = next;
      next = old;
    }
  }

  template <int L, int... QQ> DEVICE void all_steps(std::integer_sequence<int, QQ...>, int last) {
    show<0, L>(0, pivots);
    (steps<QQ, L>(last), ...);
  }

  /* u and nu of each column become 1 / u and tau. */
  DEVICE void finish_scalars(int reflectors) const {
    const int k = (int)threadIdx.x;
    if (k >= COLUMNS) return;
    const T u = u_of[k], nu = nu_of[k];
    const bool none = nu == T(0);
    const T ratio = magnitude_of(u) * inverse_of(nu);
    const T factor = none ? T(0) : ratio < T(1) ? T(1) : ratio > T(2) ? T(2) : ratio;
    u_of[k] = none ? T(0) : inverse_of(u);
    nu_of[k] = factor;
    if (p.tau.data && first + k < reflectors) tau[first + k] = factor;
  }

  /* Columns become (.., beta, v). */
  DEVICE void finish() {
    unrolled_for (int q = 0; q < Q; q++) {
      const int k = q * GC + column;
      const T inverse = u_of[k], unscale = scaled ? scales[k] : T(1);
      unrolled_for (int i = 0; i < P; i++)
        a[i][q] *= i >= VECTOR || row * VECTOR + i > k + this->begin() ? inverse : unscale;
    }
  }

  /* T of each group, a row a thread: column j is (- tau_j T V^T v_j, tau_j). */
  DEVICE void build_triangles() const {
    const int i = (int)threadIdx.x % GROUP, begin = (int)threadIdx.x - i;
    if (begin >= COLUMNS) return;
    T t[GROUP];
    unrolled_for (int j = 0; j < GROUP; j++) {
      const T factor = nu_of[begin + j];
      t[j] = i == j ? factor : T(0);
      unrolled_for (int k = 0; k < j; k++) {
        const T product = products_of_group[(begin + j) * GROUP + k] * u_of[begin + k] * u_of[begin + j];
        if (i <= k && factor != T(0)) t[j] = fused(-factor * t[k], product, t[j]);
      }
      triangles[(first + begin + j) * GROUP + i] = t[j];
    }
  }

  DEVICE void factor(int reflectors) {
    if ((int)threadIdx.x < COLUMNS) u_of[threadIdx.x] = nu_of[threadIdx.x] = T(0);
    const int last = min(p.m - 1 - first, min(p.n - first, COLUMNS));
    this->template with_layers<2>(
        this->live(), [&](auto layers) { all_steps<layers.value>(std::make_integer_sequence<int, Q>{}, last); });
    __syncthreads();
    finish_scalars(reflectors);
    __syncthreads();
    build_triangles();
    finish();
  }

  /* A panel of A becomes one of R and reflectors. */
  DEVICE void factor_column(int reflectors) {
    const bool has_reflectors = first < reflectors, is_last = first + COLUMNS >= p.n;
    above = 0;
    triangular = false;
    this->read();
    this->locate();
    apply_all(min(first, reflectors));
    if constexpr (FRAGMENTS) this->deal();
    this->locate();
    if (has_reflectors) {
      factor(reflectors);
      this->locate();
      if (!p.thin || p.triangles.data || !is_last) this->template write<LAYERS, false>(stage);
      scaled = false; /* no longer */
      triangular = true;
    }
    if (!has_reflectors || p.thin) this->write_rest(p.upper_rows);
    __syncthreads();
  }

  /* A panel of the identity becomes one of Q, in the place of its reflectors, which it meets first. */
  DEVICE void form_column(int reflectors) {
    this->become_identity();
    this->locate();
    apply_all(min(first + COLUMNS, reflectors));
    this->locate();
    this->template write<LAYERS, FRAGMENTS>(stage);
    __syncthreads();
  }

  /* T of all groups, for the kernel that forms Q. */
  DEVICE void store_triangles(int reflectors) const {
    for (int i = (int)threadIdx.x; i < (reflectors + GROUP - 1) / GROUP * GROUP * GROUP; i += Shape::THREADS)
      kept_triangles[i] = triangles[i];
  }

  /* Transposed: H1 .. H4 = I - V T V^T, but H4 .. H1 = I - V T^T V^T. */
  DEVICE void load_triangles(int reflectors) const {
    for (int i = (int)threadIdx.x; i < ROWS * GROUP; i += Shape::THREADS) {
      const int group = i / (GROUP * GROUP) * GROUP * GROUP, transposed = group + i % GROUP * GROUP + i / GROUP % GROUP;
      triangles[transposed] = group / GROUP < reflectors ? kept_triangles[i] : T(0);
    }
    __syncthreads();
  }
};

template <typename Shape> DEVICE void qr_panels(const qr_panels_parameters &p) {
  extern __shared__ __align__(16) unsigned char shared[];
  panel_tile<Shape> block(p, (typename Shape::T *)shared);
  const int reflectors = min(p.m, p.n);
  if constexpr (Shape::FORMING) {
    block.go_to(blockIdx.x);
    block.load_triangles(reflectors);
    rolled_for (block.first = (reflectors - 1) / Shape::COLUMNS * Shape::COLUMNS; block.first >= 0;
                block.first -= Shape::COLUMNS)
      block.form_column(reflectors);
  } else {
    rolled_for (int64_t item = blockIdx.x; item < p.batch; item += gridDim.x) {
      block.go_to(item);
      rolled_for (block.first = 0; block.first < p.n; block.first += Shape::COLUMNS) block.factor_column(reflectors);
      if (p.triangles.data) block.store_triangles(reflectors);
    }
  }
}

/* For the lists of qr_panels.h. */
#define DEFINE_QR_PANELS(forming, parameters, name, threads, blocks, ...)                                              \
  static_assert(panel_shape<forming, __VA_ARGS__>::THREADS == threads);                                                \
  DEFINE_LATE_KERNEL(EVERY_CHIP, parameters, name, threads, blocks, qr_panels<panel_shape<forming, __VA_ARGS__>>)
#define DEFINE_QR_PANELS_KERNEL(chips, ...) DEFINE_QR_PANELS(false, __VA_ARGS__)
#define DEFINE_QR_THIN_Q_KERNEL(chips, ...) DEFINE_QR_PANELS(true, __VA_ARGS__)
