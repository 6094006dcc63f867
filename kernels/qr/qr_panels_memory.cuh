/* qr_panels_memory.cuh - a panel in registers, its copies from and to memory, and the copies of reflectors to shared
 * memory.
 *
 * A multiprocessor fetches code that runs once a panel each time, so such code is short. Whole panels go between memory
 * and registers directly, without a condition for each vector (H200, 1000 of 256 x 256 in f32: 1068 us instead of
 * 1159). Others go through shared memory in rolled loops, in which the lanes of a warp access neighbours in memory in
 * every layout. */
#pragma once

#include "qr_panels.h"
#include "qr_tile_memory.cuh"

/* ROW_LANES x COLUMN_LANES lanes. Columns are dealt to them one at a time, rows a vector of 16 bytes at a time: a layer
 * is a vector of each lane. Reflectors come CHUNK at a time and are applied in groups of GROUP. While tensor cores
 * apply them, the panel is in registers as their fragments: a warp has SLICE columns of each layer, PARTS warps have
 * the same columns, and a lane has pairs of rows of two columns (qr_panels_fragments.cuh). */
template <bool FORMING_, typename T_, int LAYERS_, int TILE_COLUMNS_, int ROW_LANES_, int COLUMN_LANES_, int CHUNK_,
          int GROUP_, int TOGETHER_>
struct panel_shape {
  static constexpr bool FORMING = FORMING_; /* the kernel forms Q, else it factors */
  using T = T_;
  static constexpr int VECTOR = tile_number<T>::VECTOR, ROW_LANES = ROW_LANES_, COLUMN_LANES = COLUMN_LANES_;
  static constexpr int LAYERS = LAYERS_, LAYER = VECTOR * ROW_LANES, ROWS = LAYERS * LAYER;
  static constexpr int TILE_ROWS = LAYERS * VECTOR, TILE_COLUMNS = TILE_COLUMNS_;
  static constexpr int COLUMNS = TILE_COLUMNS * COLUMN_LANES, THREADS = ROW_LANES * COLUMN_LANES;
  static constexpr int GROUP = GROUP_, CHUNK = CHUNK_;
  static constexpr bool FRAGMENTS = GROUP == QR_PANELS_FRAGMENTS;
  static constexpr int SLICE = 16, PARTS = FRAGMENTS ? THREADS / (2 * COLUMNS) : 1;
  static constexpr int TOGETHER = TOGETHER_; /* reflectors of a group whose products are summed at once */
  /* Levels of the sum of products in which lanes take reflectors in their own order. f64 with 16 row lanes would have
   * bank conflicts in the second. */
  static constexpr int SWAPS = TOGETHER < 4 ? TOGETHER / 2 : ROW_LANES == 32 || VECTOR == 4 ? 2 : 1;
  static constexpr int LEADING = ROWS + VECTOR; /* of columns in shared memory; rows spread over banks */
  static constexpr int SHARED_BYTES = qr_panels_shared_bytes((int)sizeof(T), ROWS, COLUMNS, THREADS, CHUNK, GROUP);
  static_assert(ROW_LANES <= 32 && COLUMN_LANES % GROUP == 0 && CHUNK % GROUP == 0 && COLUMNS % CHUNK == 0);
  static_assert(LAYER % COLUMNS == 0); /* the diagonal of a panel passes through one layer */
  static_assert(GROUP % TOGETHER == 0 && 2 * CHUNK >= COLUMN_LANES);
  static_assert(VECTOR <= COLUMN_LANES && CHUNK % VECTOR == 0); /* see patch */
  static_assert(!FRAGMENTS || (COLUMNS % SLICE == 0 && COLUMN_LANES == GROUP && TILE_COLUMNS % 4 == 0));
  static_assert(LAYER % 32 == 0 && THREADS % 32 == 0 && (THREADS & (THREADS - 1)) == 0);
};

template <typename Shape> struct panel_memory {
  using T = typename Shape::T;
  using vector = typename tile_number<T>::vector;
  static constexpr int GR = Shape::ROW_LANES, GC = Shape::COLUMN_LANES, P = Shape::TILE_ROWS, Q = Shape::TILE_COLUMNS;
  static constexpr int VECTOR = Shape::VECTOR, LAYERS = Shape::LAYERS, LAYER = Shape::LAYER, ROWS = Shape::ROWS;
  static constexpr int COLUMNS = Shape::COLUMNS, GROUP = Shape::GROUP, CHUNK = Shape::CHUNK;
  static constexpr int LEADING = Shape::LEADING, HALF = CHUNK * LEADING;
  static constexpr int SLICE = Shape::SLICE, PARTS = Shape::PARTS;
  static constexpr bool FORMING = Shape::FORMING, FRAGMENTS = Shape::FRAGMENTS;
  static constexpr int PITCH = FRAGMENTS ? ROWS : LEADING; /* from reflector to reflector in the stage */
  /* Q is written directly for any number of rows: each vector is tested whether it is in the matrix. */
  static constexpr bool ASKS_ROWS = FORMING && !FRAGMENTS;
  static constexpr int STEP = FORMING ? -LAYER : LAYER; /* from layer to layer in registers and shared memory */

  const qr_panels_parameters &p;
  const T *from; /* this matrix */
  T *work, *upper, *tau, *kept_triangles;
  T a[P][Q];
  T *pivots, *stage, *triangles, *weights, *products_of_group, *u_of, *nu_of, *scales;
  int row, column; /* of this thread among the lanes */
  int fragment_row, fragment_column;
  int first;       /* column of the matrix */
  int above;       /* layers that are final and no longer in registers; while Q is formed, the layer that is first */
  bool scaled;     /* some column of this warp is scaled */
  bool triangular; /* what is below the diagonal is zero when it is written */

  DEVICE panel_memory(const qr_panels_parameters &parameters, T *shared) : p(parameters) {
    locate();
    pivots = shared;
    stage = pivots + 2 * ROWS;
    triangles = stage + 2 * HALF;
    weights = triangles + GROUP * ROWS;
    products_of_group = weights + 2 * GROUP * PARTS * COLUMNS;
    u_of = products_of_group + GROUP * COLUMNS;
    nu_of = u_of + COLUMNS;
    scales = nu_of + COLUMNS;
  }

  /* Each phase reads it again: values that depend on it then take no registers in other phases. */
  static DEVICE uint32_t this_thread() {
    return thread_index() & (Shape::THREADS - 1); /* the mask changes nothing, but tells the compiler */
  }
  DEVICE void locate() {
    const uint32_t thread = this_thread();
    row = (int)(thread % GR);
    column = (int)(thread / GR);
    fragment_row = (int)(thread / 32 % PARTS * (LAYER / PARTS) + thread % 4 * 2);
    fragment_column = (int)(thread / (32 * PARTS) * SLICE + thread % 32 / 4);
  }

  /* The numbers of a layer in registers are Q vectors. Vector q is in this column of the panel, from this row of
   * the layer on. */
  template <bool IS_FRAGMENT> static DEVICE constexpr int across(int q) { return IS_FRAGMENT ? q % 2 * 8 : q * GC; }
  template <bool IS_FRAGMENT> static DEVICE constexpr int down(int q) { return IS_FRAGMENT ? q / 2 * 8 : 0; }
  template <bool IS_FRAGMENT> DEVICE int first_column() const { return IS_FRAGMENT ? fragment_column : column; }
  template <bool IS_FRAGMENT> DEVICE int first_row() const { return IS_FRAGMENT ? fragment_row : row * VECTOR; }

  DEVICE void go_to(int64_t item) {
    from = (const T *)p.a.data + item * p.a.batch_stride;
    work = (T *)p.work.data + (p.workers ? (int64_t)blockIdx.x : item) * p.work.batch_stride;
    upper = (T *)p.upper.data + item * p.upper.batch_stride;
    tau = (T *)p.tau.data + item * p.tau.batch_stride;
    kept_triangles = (T *)p.triangles.data + item * p.triangles.batch_stride;
  }

  DEVICE int layers_of_matrix() const { return (p.m + LAYER - 1) / LAYER; }
  /* Layers in registers that hold rows of the matrix, and the local row of the diagonal at the first column of the
   * panel, while that is factored. */
  DEVICE int live() const { return layers_of_matrix() - above; }
  DEVICE int begin() const { return first - above * LAYER; }

  /* call(number of layers), a constant, at least `live`: one of VERSIONS. */
  template <int VERSIONS, int COUNT = LAYERS, typename Call>
  static DEVICE void with_layers(int live, const Call &call) {
    constexpr int FEWER = COUNT - LAYERS / VERSIONS;
    if constexpr (FEWER > 0)
      if (live <= FEWER) return with_layers<VERSIONS, FEWER>(live, call);
    call(std::integral_constant<int, COUNT>{});
  }

  /* Vector q of a layer. */
  DEVICE void take_vector(const T *place, int layer, int q) {
    each_of_vector(place, [&](int e, T number) { a[layer * VECTOR + e][q] = number; });
  }
  DEVICE vector given_vector(int layer, int q) const {
    return vector_of<T>([&](int e) { return a[layer * VECTOR + e][q]; });
  }

  /* ---- the panel ---- */

  /* Is the panel whole, in layers and in columns? It goes between memory and registers directly. */
  DEVICE bool whole(int access, bool layers, int columns) const {
    return access <= QR_TILE_VECTORS && layers && first + COLUMNS <= columns;
  }

  /* move(place, column) for all of them; where columns are contiguous (`down`) `places` may be vectors. */
  template <int WIDTH, typename Move> static DEVICE void walk(int places, bool down, const Move &move) {
    constexpr int ACROSS = tile_smaller(WIDTH, 32);
    const int thread = (int)this_thread();
    if (down) {
      rolled_for (int j = thread / 32; j < WIDTH; j += Shape::THREADS / 32)
#pragma unroll 4
        for (int i = thread % 32; i < places; i += 32) move(i, j);
    } else {
#pragma unroll 4
      for (int i = thread / ACROSS; i < places; i += Shape::THREADS / ACROSS)
        unrolled_for (int j = 0; j < WIDTH; j += ACROSS) move(i, j + thread % ACROSS);
    }
  }

  /* call(vector of a layer, place of its column among the WIDTH in shared memory) for the columns of this round. */
  template <bool IS_FRAGMENT, int WIDTH, typename Call> DEVICE void each_of_round(int round, const Call &call) const {
    unrolled_for (int q = 0; q < Q; q++)
      if constexpr (IS_FRAGMENT) {
        const int j = fragment_column + across<true>(q);
        if (j / WIDTH == round) call(q, j % WIDTH);
      } else if (q / (WIDTH / GC) == round) {
        call(q, q % (WIDTH / GC) * GC + column);
      }
  }

  DEVICE void read_whole() {
    const T *place = from + (first + first_column<FRAGMENTS>()) * p.a.column_stride + first_row<FRAGMENTS>();
    unrolled_for (int layer = 0; layer < LAYERS; layer++)
      if (layer * LAYER < p.m) {
        unrolled_for (int q = 0; q < Q; q++)
          take_vector(place + across<FRAGMENTS>(q) * p.a.column_stride + layer * LAYER + down<FRAGMENTS>(q), layer, q);
      } else {
        unrolled_for (int i = 0; i < VECTOR * Q; i++) a[layer * VECTOR + i % VECTOR][i / VECTOR] = T(0);
      }
  }

  /* WIDTH columns from `begin` on to the stage, PIECE numbers at a time. */
  template <int WIDTH, int PIECE> DEVICE void copy_to_stage(int begin) const {
    walk<WIDTH>(live() * LAYER / PIECE, PIECE > 1 || p.a_access == QR_TILE_CONTIGUOUS, [&](int place, int j) {
      const int i = place * PIECE;
      const T *number = from + (PIECE > 1 ? i : i * p.a.row_stride) + (begin + j) * p.a.column_stride;
      copy_asynchronously<PIECE *(int)sizeof(T)>(stage + j * LEADING + i, number, i < p.m && begin + j < p.n);
    });
  }

  DEVICE void read() {
    if (whole(p.a_access, p.m % LAYER == 0, p.n)) {
      read_whole();
      return;
    }
    constexpr int WIDTH = tile_smaller(COLUMNS, 2 * CHUNK);
    rolled_for (int round = 0; round < COLUMNS / WIDTH; round++) {
      const int begin = first + round * WIDTH;
      if (p.a_access <= QR_TILE_VECTORS)
        copy_to_stage<WIDTH, VECTOR>(begin);
      else
        copy_to_stage<WIDTH, 1>(begin);
      wait_for_copies();
      __syncthreads();
      each_of_round<FRAGMENTS, WIDTH>(round, [&](int q, int j) {
        unrolled_for (int layer = 0; layer < LAYERS; layer++) {
          vector v = {};
          if (layer * LAYER < p.m)
            v = *(const vector *)(stage + j * LEADING + layer * LAYER + first_row<FRAGMENTS>() + down<FRAGMENTS>(q));
          unrolled_for (int e = 0; e < VECTOR; e++) a[layer * VECTOR + e][q] = ((const T *)&v)[e];
        }
      });
      __syncthreads();
    }
  }

  /* One layer goes to `upper`, all of them to `work`. */
  struct target {
    const qr_matrix &matrix;
    T *data;
    int rows, columns, access;
  };
  template <int COUNT> DEVICE target target_of() const {
    if constexpr (COUNT == 1)
      return {p.upper, upper, p.upper_rows, p.n, p.upper_access};
    else
      return {p.work, work, p.m, p.work_columns, p.work_access};
  }

  template <int COUNT, bool IS_FRAGMENT> DEVICE void write_whole(const target &to) const {
    T *place = to.data + (first + first_column<IS_FRAGMENT>()) * to.matrix.column_stride + above * LAYER +
               first_row<IS_FRAGMENT>();
    unrolled_for (int layer = 0; layer < COUNT; layer++)
      if ((uint32_t)(above * LAYER + layer * STEP + (ASKS_ROWS ? row * VECTOR : 0)) < (uint32_t)to.rows) {
        unrolled_for (int q = 0; q < Q; q++) {
          const vector v = given_vector(layer, q);
          vector *const there = (vector *)(place + across<IS_FRAGMENT>(q) * to.matrix.column_stride + layer * STEP +
                                           down<IS_FRAGMENT>(q));
          if (COUNT == 1 || FORMING) /* not read again, unlike reflectors */
            __stcs(there, v);
          else
            *there = v;
        }
      }
  }

  /* The row of a place in registers or shared memory, in which layer `top` is the first. */
  static DEVICE int row_of(int top, int place) {
    return FORMING ? (top - place / LAYER) * LAYER + place % LAYER : top * LAYER + place;
  }

  /* Writes WIDTH columns from `begin` on from a buffer, in which they are BETWEEN numbers apart. */
  template <int WIDTH, int PIECE, int BETWEEN>
  DEVICE void write_from(const T *buffer, const target &to, int rows, int begin) const {
    walk<WIDTH>(rows / PIECE, PIECE > 1 || to.access == QR_TILE_CONTIGUOUS, [&](int place, int j) {
      const int i = place * PIECE, down = row_of(above, i);
      if (down >= to.rows || begin + j >= to.columns) return;
      T *number = to.data + (PIECE > 1 ? down : down * to.matrix.row_stride) + (begin + j) * to.matrix.column_stride;
      if constexpr (PIECE > 1)
        *(vector *)number = *(const vector *)(buffer + j * BETWEEN + i);
      else
        *number = buffer[j * BETWEEN + i];
    });
  }

  /* The columns of `layers` layers that fit in `space` numbers. */
  static __host__ __device__ constexpr int width_of(int layers, int space) {
    int width = COLUMNS;
    while (width * (layers * LAYER + VECTOR) > space) width /= 2;
    return width;
  }

  /* The first COUNT layers. `buffer` is one half of the stage, or both for all layers. */
  template <int COUNT, bool IS_FRAGMENT> DEVICE void write(T *buffer) const {
    const target to = target_of<COUNT>();
    if (whole(to.access, ASKS_ROWS || (COUNT == 1 ? (above + 1) * LAYER <= to.rows : to.rows % LAYER == 0),
              to.columns)) {
      write_whole<COUNT, IS_FRAGMENT>(to);
      return;
    }
    constexpr int BETWEEN = COUNT * LAYER + VECTOR, WIDTH = width_of(COUNT, COUNT == LAYERS ? 2 * HALF : HALF);
    static_assert(WIDTH >= GC);
    const int rows = COUNT == 1 ? LAYER : FORMING ? layers_of_matrix() * LAYER : live() * LAYER;
    rolled_for (int round = 0; round < COLUMNS / WIDTH; round++) {
      __syncthreads();
      each_of_round<IS_FRAGMENT, WIDTH>(round, [&](int q, int j) {
        unrolled_for (int layer = 0; layer < COUNT; layer++)
          *(vector *)(buffer + j * BETWEEN + layer * LAYER + first_row<IS_FRAGMENT>() + down<IS_FRAGMENT>(q)) =
              given_vector(layer, q);
      });
      __syncthreads();
      if (to.access <= QR_TILE_VECTORS)
        write_from<WIDTH, VECTOR, BETWEEN>(buffer, to, rows, first + round * WIDTH);
      else
        write_from<WIDTH, 1, BETWEEN>(buffer, to, rows, first + round * WIDTH);
    }
    __syncthreads();
  }

  /* The first layer is final: it is written, and the other layers move up. */
  template <bool IS_FRAGMENT> DEVICE void retire(T *buffer) {
    if (scaled) {
      unrolled_for (int q = 0; q < Q; q++)
        unrolled_for (int e = 0; e < VECTOR; e++)
          a[e][q] *= scales[across<IS_FRAGMENT>(q) + first_column<IS_FRAGMENT>()];
    }
    if (p.upper.data) write<1, IS_FRAGMENT>(buffer);
    unrolled_for (int q = 0; q < Q; q++)
      unrolled_for (int i = 0; i < P; i++) a[i][q] = i + VECTOR < P ? a[tile_smaller(i + VECTOR, P - 1)][q] : T(0);
    above++;
  }

  /* The registers hold final numbers of rows of `upper`. */
  DEVICE void write_rest(int rows) {
    __syncthreads();
#pragma unroll 1
    while (above * LAYER < rows) {
      if (triangular) {
        const int below = first + column - above * LAYER - row * VECTOR; /* this lane's rows above the diagonal */
        unrolled_for (int q = 0; q < Q; q++)
          unrolled_for (int e = 0; e < VECTOR; e++)
            if (e - q * GC > below) a[e][q] = T(0);
      }
      retire<false>(stage);
    }
    __syncthreads();
  }

  /* Columns of the identity, the last layer first: reflectors reach more and more layers, from the last one on. */
  DEVICE void become_identity() {
    above = layers_of_matrix() - 1;
    unrolled_for (int layer = 0; layer < LAYERS; layer++)
      unrolled_for (int q = 0; q < Q; q++)
        unrolled_for (int e = 0; e < VECTOR; e++)
          a[layer * VECTOR + e][q] = (above - layer) * LAYER + first_row<FRAGMENTS>() + e + down<FRAGMENTS>(q) ==
                                             first + across<FRAGMENTS>(q) + first_column<FRAGMENTS>()
                                         ? T(1)
                                         : T(0);
  }

  /* ---- reflectors ---- */

  /* The place of row i of reflector r in its column of the stage. Lanes read fragments along reflectors and along
   * vectors. With this permutation neither has bank conflicts. */
  static DEVICE int permuted(int r, int i) { return FRAGMENTS ? i ^ (r & 1) * 8 ^ (r & 6) * 2 : i; }

  /* Reflectors [j, j + CHUNK) come to one half of the stage, with zeros above the diagonal and below the matrix. Each
   * thread copies the vectors that it patches. */
  DEVICE void fetch(int j, int layers, T *half) {
    const int top = FORMING ? layers_of_matrix() - 1 : j / LAYER;
    if (p.work_access > QR_TILE_VECTORS) {
      walk<CHUNK>(layers * LAYER, p.work_access == QR_TILE_CONTIGUOUS, [&](int place, int r) {
        T *to = half + r * PITCH + permuted(r, place);
        const int i = row_of(top, place);
        if (i == j + r)
          *to = T(1);
        else
          copy_asynchronously<(int)sizeof(T)>(to, work + i * p.work.row_stride + (j + r) * p.work.column_stride,
                                              i > j + r && i < p.m && j + r < p.work_columns);
      });
      return;
    }
    if (FRAGMENTS) locate();
    const int i = top * LAYER + row * VECTOR;
    unrolled_for (int round = 0; round * GC < CHUNK; round++) {
      const int r = round * GC + column;
      if (CHUNK < GC && r >= CHUNK) break;
      const int rows = FORMING && j + r >= p.work_columns ? 0 : p.m;
      const T *source = work + (j + r) * p.work.column_stride + i;
      T *place = half + r * PITCH + permuted(r, row * VECTOR);
      unrolled_for (int layer = 0; layer < LAYERS; layer++)
        if (layer < layers)
          copy_asynchronously<16>(place + layer * LAYER, source + layer * STEP,
                                  i + layer * STEP < rows &&
                                      ((!FORMING && layer > 0) || i + layer * STEP + VECTOR > j + r));
    }
  }

  /* The ones and zeros of a chunk that came in vectors. The diagonal meets this thread's vectors in one column at most.
   */
  DEVICE void patch(int j, T *half) {
    if (p.work_access > QR_TILE_VECTORS) return;
    if (FRAGMENTS) locate();
    const int layer = FORMING ? layers_of_matrix() - 1 - j / LAYER : 0;
    const int begin = row * VECTOR - j % LAYER, diagonal = (column - begin) & (GC - 1), r = begin + diagonal;
    if (diagonal >= VECTOR || (uint32_t)r >= (uint32_t)CHUNK) return;
    T *place = half + r * PITCH + layer * LAYER + permuted(r, row * VECTOR);
    unrolled_for (int e = 0; e < VECTOR; e++)
      if (e <= diagonal) place[e] = e == diagonal ? T(1) : T(0);
  }

  DEVICE void scale_columns() { scale_extreme_columns<GR, GC>(a, row, column, scales, scaled); }
};
