/* qr_tile.cuh - Householder QR of matrices that stay in registers between one read and one write.
 *
 * ROW_LANES x COLUMN_LANES lanes hold a matrix. Rows and columns are dealt to them cyclically: a lane has a tile of
 * TILE_ROWS x TILE_COLUMNS numbers. Lanes that share a column are in one warp, so each sum is a butterfly of shuffles.
 * Step j, with x = column j below the diagonal and alpha = a(j, j), passes over the tile once:
 *
 *   d_k = x . a_k,  sigma = x . x,  s = alpha^2 + sigma,  nu = sqrt(s),  u = alpha + sign(alpha) nu,
 *   g = 1 / (s + |alpha| nu) = 2 / |(u, x)|^2,  y_k = g (d_k + u a_jk),  a_k -= x y_k,  a_jk -= u y_k,
 *   beta = -sign(alpha) nu,  and after the last step  v = x / u,  tau = |u| / nu.
 *
 * No step waits for 1 / u. The seed of g comes from the seed of nu, so their Newton steps overlap.
 *
 * No step rescales. If the largest number of a column is outside a window, the column is multiplied by a power of two
 * when it is read, and its part of R is divided by it when it is written: A D = Q (R D), so v and tau are the same.
 * Inside the window no square overflows, and a square that underflows is far below the rounding of its column. A
 * subcolumn of less than 2^-34 (f64: 2^-280) of its column counts as zero: H = I. So zeros, padding and tiny remainders
 * take the same steps as other numbers. NaN fails the comparison and stays NaN.
 *
 * The lists of qr_tile.h have the tiles, lanes, threads and blocks. A block has 0.1 to 146 KB of shared memory. With
 * 1000 or 10,000 matrices a kernel reaches 0.07 to 0.86 of the rate of copying 1 GB; panels of 16 columns come nearest
 * (README.md). The chain of steps, with shuffles and a barrier in each, bounds squares and panels of 32 columns. */
#pragma once

#include "../common/launch.cuh"
#include "qr_tile_memory.cuh"

/* A rider goes through the steps beside the tile. It meets the pivot column of step j of block B, and is reflected
 * after the next pivot column has been shown. This one does nothing. */
struct no_rider {
  template <int B, typename T, int P> DEVICE void meet(int, const T *, const T (&)[P]) {}
  template <int B, typename T, int P> DEVICE void reflect(int, T, T, const T (&)[P]) {}
};

template <typename Shape, typename Rider = no_rider> struct register_tile : tile_memory<Shape> {
  using memory = tile_memory<Shape>;
  using T = typename memory::T;
  using vector = typename memory::vector;
  using memory::p, memory::a, memory::u, memory::nu, memory::pivots, memory::scales, memory::stage, memory::lane;
  using memory::row, memory::column, memory::item_lane, memory::scaled;
  using memory::ROWS, memory::COLUMNS, memory::GR, memory::GC, memory::P, memory::Q, memory::VECTOR, memory::BLOCK;
  using memory::tile_memory;

  /* H leaves from the registers. If a lane has several columns, they leave one at a time: registers are too few else.
   */
  static constexpr bool WRITES_DIRECTLY = !Shape::STAGED || (Shape::DIRECT && (Shape::AT_ONCE || GR == 1));

  Rider rider;
  bool goes_directly = !Shape::STAGED; /* H is wanted and leaves from the registers */

  /* ---- the steps ---- */

  /* This row lane's slice of the pivot column in shared memory. Two places take turns. */
  DEVICE T *slice(int turn) const { return pivots + (turn & 1) * (Shape::PIVOTS / 2) + row * Shape::SLICE; }

  /* The lanes of column lane `owner` store their local column QQ, from local row PP on. */
  template <int QQ, int PP> DEVICE void show(int owner, T *to) {
    if constexpr (!Shape::SHUFFLED) {
      if (column != owner) return;
      unrolled_for (int i = PP / VECTOR * VECTOR; i < P; i += VECTOR) {
        vector v;
        unrolled_for (int k = 0; k < VECTOR; k++) ((T *)&v)[k] = a[tile_smaller(i + k, P - 1)][QQ];
        *(vector *)(to + i) = v;
      }
    }
  }

  /* A lane's part of a column that is in shared memory lane by lane, from local row PP on. */
  template <int PP> static DEVICE void take(const T *from, T (&x)[P]) {
    unrolled_for (int i = PP / VECTOR * VECTOR; i < P; i += VECTOR)
      each_of_vector(from + i, [&](int e, T number) {
        if (i + e < P) x[i + e] = number;
      });
  }

  /* The row lane that has the diagonal. */
  static DEVICE int lane_of(int pivot_row) { return Shape::MERGED > 1 ? pivot_row % GR : pivot_row; }

  /* x and alpha of column `pivot_column` of the lanes. x is zero down to the diagonal, which is `pivot_row` rows below
   * local row PP. */
  template <int QQ, int PP> DEVICE T see(int pivot_row, int pivot_column, const T *from, T (&x)[P]) const {
    T alpha;
    if constexpr (Shape::SHUFFLED) {
      const int owner = item_lane + pivot_column * GR;
      unrolled_for (int i = PP; i < P; i++) x[i] = __shfl_sync(0xffffffffu, a[i][QQ], owner + row);
      alpha = GR == 1 ? x[PP] : __shfl_sync(0xffffffffu, a[PP][QQ], owner + pivot_row);
    } else {
      this->sync();
      take<PP>(from, x);
      alpha = GR == 1 ? x[PP]
                      : from[(lane_of(pivot_row) - row) * Shape::SLICE + PP + (pivot_row - lane_of(pivot_row)) / GR];
    }
    unrolled_for (int i = 0; i < Shape::MERGED; i++)
      if (GR == 1 || i * GR + row <= pivot_row) x[PP + i] = T(0);
    return alpha;
  }

  template <int COUNT> static DEVICE T sum_of(const T (&part)[4]) {
    return COUNT == 1   ? part[0]
           : COUNT == 2 ? part[0] + part[1]
           : COUNT == 3 ? (part[0] + part[1]) + part[2]
                        : (part[0] + part[1]) + (part[2] + part[3]);
  }

  template <int QQ> DEVICE void sum_over_lanes(T (&d)[Q]) const {
    if constexpr (Shape::SCATTERED && Q - QQ >= 3)
      scatter_and_gather<Shape, QQ>(d);
    else
      butterfly<Shape, QQ>(d);
  }

  /* The number of sums that make a dot product. If columns are few, the multiply-adds of one sum wait for each other.
   */
  static constexpr int chains_of(int columns) { return columns >= 4 ? 1 : columns >= 2 ? 2 : 4; }

  /* Dot products of this lane's rows of x with the columns from QQ on. If BIASED, the product of column lane `owner`
   * with column QQ has sigma's bias. */
  template <int QQ, int PP, bool BIASED = false, int CHAINS = chains_of(Q - QQ)>
  DEVICE void dots(const T (&x)[P], T (&d)[Q], int owner = 0) const {
    unrolled_for (int q = QQ; q < Q; q++) {
      T part[4] = {BIASED && q == QQ && column == owner ? tile_number<T>::BIAS_OF_SIGMA : T(0)};
      unrolled_for (int i = PP; i < P; i++) part[(i - PP) % CHAINS] = fused(x[i], a[i][q], part[(i - PP) % CHAINS]);
      d[q] = sum_of<tile_smaller(CHAINS, P - PP)>(part);
    }
  }

  /* sigma and the dot products of the columns from QQ on. */
  template <int QQ, int PP> DEVICE T products(int pivot_column, const T (&x)[P], T (&d)[Q]) const {
    T sigma = T(0);
    if constexpr (!Shape::OWN_NORM) {
      T part[4] = {tile_number<T>::BIAS_OF_SIGMA};
      unrolled_for (int i = PP; i < P; i++) part[(i - PP) & 3] = fused(x[i], x[i], part[(i - PP) & 3]);
      sigma = sum_of<tile_smaller(4, P - PP)>(part);
    }
    dots<QQ, PP, Shape::OWN_NORM>(x, d, pivot_column);
    if constexpr (!Shape::OWN_NORM) {
      unrolled_for (int offset = 1; offset < GR; offset *= 2) sigma += __shfl_xor_sync(0xffffffffu, sigma, offset);
    }
    sum_over_lanes<QQ>(d);
    if constexpr (Shape::OWN_NORM) sigma = __shfl_sync(0xffffffffu, d[QQ], item_lane + pivot_column * GR);
    return sigma;
  }

  template <int PP> DEVICE void update(int q, const T (&x)[P], T y) {
    unrolled_for (int i = PP; i < P; i++) a[i][q] = fused(-x[i], y, a[i][q]);
  }

  /* u and nu of local column QQ, for v and tau. */
  template <int QQ> DEVICE void keep(T u_of_step, T nu_of_step) {
    if constexpr (Shape::CROWDED) {
      if (row == 0) after_column(QQ)[0] = u_of_step, after_column(QQ)[1] = nu_of_step;
    } else {
      u[QQ] = u_of_step;
      nu[QQ] = nu_of_step;
    }
  }
  DEVICE T *after_column(int q) const { return stage + (q * GC + column) * Shape::LEADING + ROWS; }
  DEVICE T u_of(int q) const { return Shape::CROWDED ? after_column(q)[0] : u[q]; }
  DEVICE T nu_of(int q) const { return Shape::CROWDED ? after_column(q)[1] : nu[q]; }
  DEVICE void forget_scalars() {
    unrolled_for (int q = 0; q < Q; q++)
      if constexpr (Shape::CROWDED) {
        if (row == 0) after_column(q)[0] = after_column(q)[1] = T(0);
      } else
        u[q] = nu[q] = T(0);
  }

  /* Step `s` of block B. The next pivot column is updated first, and shown while the others are. */
  template <int B> DEVICE void step(int s, const T *seen, T *next) {
    constexpr int J = B * BLOCK, PP = J / GR, QQ = J / GC, NEXT = J + BLOCK;
    constexpr int NEXT_P = tile_smaller(NEXT / GR, P - 1), NEXT_Q = tile_smaller(NEXT / GC, Q - 1);
    const int pivot_row = J % GR + s + this->begin(), pivot_column = J % GC + s;
    T x[P], d[Q];
    const T alpha = see<QQ, PP>(pivot_row, pivot_column, seen, x);
    rider.template meet<B>(J + s, seen, x);
    const T sigma = products<QQ, PP>(pivot_column, x, d);
    const householder<T> h = householder_of(sigma, alpha);
    unrolled_for (int q = QQ; q < Q; q++) {
      T above = Shape::MERGED == 1 || pivot_row < GR ? a[PP][q] : a[PP + Shape::MERGED - 1][q];
      if constexpr (GR > 1)
        above = __shfl_sync(0xffffffffu, above, ((int)(threadIdx.x & 31) & ~(GR - 1)) | lane_of(pivot_row));
      d[q] = fused(h.u, above, d[q]);
      d[q] = h.g * (q > QQ || column > pivot_column ? d[q] : T(0));
    }
    unrolled_for (int i = 0; i < Shape::MERGED; i++)
      if (GR == 1 || i * GR + row == pivot_row) x[PP + i] = h.u;
    update<PP>(QQ, x, d[QQ]);
    if constexpr (NEXT_Q != QQ) update<PP>(NEXT_Q, x, d[NEXT_Q]);
    if (column == pivot_column && !h.zero) {
      unrolled_for (int i = 0; i < Shape::MERGED; i++)
        if (GR == 1 || i * GR + row == pivot_row) a[PP + i][QQ] = h.beta;
      keep<QQ>(h.u, h.nu);
    }
    if (BLOCK > 1 && (s + 1 < BLOCK || (NEXT_Q == QQ && NEXT < COLUMNS)))
      show<QQ, PP>(pivot_column + 1, next);
    else if constexpr (NEXT < COLUMNS)
      show<NEXT_Q, NEXT_P>(NEXT % GC, next);
    unrolled_for (int q = QQ + 1; q < Q; q++)
      if (q != NEXT_Q) update<PP>(q, x, d[q]);
    rider.template reflect<B>(J + s, h.u, h.g, x);
  }

  /* Steps [first, last) of block B. If each step has its own code, all of them: others change nothing. */
  template <int B> DEVICE void steps(int first, int last) {
    constexpr int J = B * BLOCK;
    if constexpr (BLOCK > 1) {
      if (J % Shape::OFFSET_UNIT == 0 && J <= Shape::OFFSET_MOST && first == J) show<J / GC, J / GR>(J % GC, slice(J));
      if constexpr (Shape::UNROLLED) {
        unrolled_for (int s = 0; s < BLOCK; s++)
          if (J + s < ROWS - 1) step<B>(s, slice(J + s), slice(J + s + 1));
      } else {
        const int begin = max(first - J, 0), end = min(last - J, BLOCK);
        T *seen = slice(J + begin), *next = slice(J + begin + 1);
        rolled_for (int s = begin; s < end; s++) {
          step<B>(s, seen, next);
          T *const old = seen; /* the next address is then known before the barrier */
          seen = next;
          next = old;
        }
      }
    } else if constexpr (J < ROWS - 1) {
      if (J % Shape::OFFSET_UNIT == 0 && J <= Shape::OFFSET_MOST && first == J) show<J / GC, J / GR>(J % GC, slice(J));
      step<B>(0, slice(J), slice(J + 1));
    }
  }

  /* ---- the results ---- */

  /* Of local column q after its last step; 0 if H = I. */
  DEVICE T inverse_of_u(int q) const { return nu_of(q) == T(0) ? T(0) : inverse_of(u_of(q)); }
  DEVICE T tau_of(int q) const {
    const T size = magnitude_of(u_of(q)), nu = nu_of(q), inverse_nu = inverse_of(nu), quotient = size * inverse_nu;
    const T tau = fused(fused(-quotient, nu, size), inverse_nu, quotient);
    return nu == T(0) ? T(0) : tau < T(1) ? T(1) : tau > T(2) ? T(2) : tau;
  }

  /* Local column q becomes (.., beta, v) and is written. */
  DEVICE void finish(int64_t item, bool wanted, int q) {
    const int k = q * GC + column;
    const T inverse = inverse_of_u(q), tau = tau_of(q), unscale = scaled ? scales[k] : T(1);
    unrolled_for (int i = 0; i < P; i++) {
      const bool all_below = i * GR >= (q + 1) * GC + (Shape::HALVES ? COLUMNS : 0),
                 none_below = (i + 1) * GR <= q * GC + 1; /* constants */
      a[i][q] *= all_below || (!none_below && i * GR + row > k + this->begin()) ? inverse : unscale;
    }
    if (Shape::HALVES && row == 0) factors()[k] = tau;
    const int j = k - p.offset + this->begin();
    if (wanted && row == 0 && (uint32_t)j < (uint32_t)min(p.m, p.n))
      ((T *)p.tau.data + item * p.tau.batch_stride)[j] = tau;
    if (!Shape::STAGED || (WRITES_DIRECTLY && goes_directly)) {
      if (wanted) this->write_directly(p.h, item, this->columns(), q);
    } else
      this->write_column(stage + k * Shape::LEADING, q);
  }

  template <int B> DEVICE void block(int64_t item, bool wanted, int first, int last) {
    constexpr int J = B * BLOCK;
    if constexpr (J >= ROWS) {
      return; /* the tile has more columns than rows */
    } else if constexpr (BLOCK > 1) {
      if (J + BLOCK > first && J < last) steps<B>(first, last);
    } else if constexpr (B % 4 == 0) {
      if (J >= first && J < last) {
        steps<B>(first, last);
        steps<B + 1>(first, last);
        steps<B + 2>(first, last);
        steps<B + 3>(first, last);
      }
    }
    if constexpr (Shape::AT_ONCE && (J + BLOCK) % GC == 0)
      if (goes_directly) finish(item, wanted, J / GC);
  }

  template <int... B>
  DEVICE void blocks(std::integer_sequence<int, B...>, int64_t item, bool wanted, int first, int last) {
    (block<B>(item, wanted, first, last), ...);
  }

  static constexpr int R_LEADING = COLUMNS + VECTOR; /* of R in the stage */

  /* A lane's part of a column of `COUNT` local rows, made by value(i), to where row 0 of its lane stands; `STEP`
   * numbers apart. */
  template <int COUNT, int STEP, typename Value> static DEVICE void write_values(T *to, const Value &value) {
    unrolled_for (int i = 0; i < COUNT; i += STEP == 1 && COUNT % VECTOR == 0 ? VECTOR : 1)
      if constexpr (STEP == 1 && COUNT % VECTOR == 0)
        *(vector *)(to + i) = vector_of<T>([&](int e) { return value(i + e); });
      else
        to[i * STEP] = value(i);
  }

  /* R to the stage. value_of(local column) makes value(local row, number), which is stored. */
  template <typename ValueOf> DEVICE void stage_r(const ValueOf &value_of) const {
    unrolled_for (int q = 0; q < Q; q++) {
      const auto value = value_of(q);
      write_values<COLUMNS / GR, GR>(stage + (q * GC + column) * R_LEADING + row,
                                     [&](int i) { return value(i, a[i][q]); });
    }
  }

  /* ---- two halves ---- */

  DEVICE T *factors() const { return stage + Shape::STAGE; }

  /* The reflectors of this half and the numbers in shared memory change places. */
  DEVICE void exchange() {
    unrolled_for (int q = 0; q < Q; q++) {
      const int k = q * GC + column;
      T *place = stage + k * Shape::LEADING + row;
      unrolled_for (int i = 0; i < P; i++) {
        const T fetched = place[i * GR];
        place[i * GR] = i * GR + row > k ? a[i][q] : i * GR + row == k ? T(1) : T(0);
        a[i][q] = fetched;
      }
    }
  }

  /* The tile := H tile for the reflector in column j of shared memory, which is zero above local row PP. */
  template <int PP> DEVICE void apply(int j, T tau) {
    const T *from = stage + j * Shape::LEADING + row;
    T x[P], d[Q];
    if constexpr (GR == 1) {
      take<PP>(from, x);
    } else {
      unrolled_for (int i = PP; i < P; i++) x[i] = from[i * GR];
    }
    dots<0, PP>(x, d);
    sum_over_lanes<0>(d);
    unrolled_for (int q = 0; q < Q; q++) update<PP>(q, x, tau * d[q]);
  }

  /* The second half of the columns has been fetched: it takes the place of the first half and is reflected. */
  DEVICE void turn_to_second_half() {
    wait_for_copies();
    this->sync();
    exchange();
    this->sync();
    this->first_column = COLUMNS;
    this->scale_columns();
    rolled_for (int j = 0; j < COLUMNS; j++) apply<0>(j, factors()[j]);
  }

  /* All steps. Then the tile holds R, and x below it; columns that were finished at once hold H. */
  DEVICE void take_steps(int64_t item, bool wanted, bool scale) {
    forget_scalars();
    if (scale) this->scale_columns();
    blocks(std::make_integer_sequence<int, Shape::BLOCKS>{}, item, wanted, p.offset,
           p.offset + min(p.m - 1 - this->begin(), this->columns()));
    if constexpr (Shape::CROWDED) __syncwarp();
  }

  /* H and tau of columns that were not finished at once. */
  DEVICE void finish_all(int64_t item, bool wanted) {
    if (Shape::AT_ONCE && goes_directly) return;
    unrolled_for (int q = 0; q < Q; q++) finish(item, wanted, q);
  }
};
