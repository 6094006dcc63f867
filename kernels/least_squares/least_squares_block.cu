/* least_squares_block.cu - the second of two kernels for least squares: x = R^-1 Q^T b from the H and tau that qr has
 * left, by a block for one or four right-hand sides of a matrix.
 *
 * A thread has four rows: of the right-hand sides in registers, of H's columns in a ring in shared memory. Only its
 * warp writes and reads the ring, so only sums wait for other warps. Columns come in groups of four, forward as
 * reflectors and then backward as R:
 *
 *   forward   w = V^T b and the products of the group's own reflectors are summed over the block at once, one barrier;
 *             y_k = tau_k (w_k - sum over l < k of (v_k . v_l) y_l),  b -= V y, without T of the compact WY form;
 *   backward  the thread that has the group's four rows solves for them and shows them, one barrier; threads with rows
 *             above subtract.
 *
 * Bound by these chains, 400 and 200 cycles a group, with few matrices, and by reading H with many. */
#include "../common/launch.cuh"
#include "../qr/qr_tile_memory.cuh"
#include "least_squares_sums.cuh"

template <typename T, int RHS_> struct block_of_rhs {
  using vector = typename tile_number<T>::vector;
  static constexpr int RHS = RHS_, ROWS = 4, GROUP = 4, STAGES = least_squares_block_stages((int)sizeof(T), RHS);
  static constexpr int VECTOR = tile_number<T>::VECTOR, PIECES = ROWS / VECTOR; /* of a thread's part of a column */
  /* Values that are summed at once, and the lanes that get each sum. */
  static constexpr int SUMS = RHS * GROUP + GROUP * (GROUP - 1) / 2, VALUES = SUMS <= 16 ? 16 : 32;
  static constexpr int LANES = 32 / VALUES;
  static_assert(SUMS <= VALUES && RHS <= LEAST_SQUARES_BLOCK_RHS);

  const least_squares_after_parameters &p;
  const T *h;
  vector *ring;                         /* this warp's part */
  T *partials, *shown, *factors;        /* factors: tau, and zeros to a whole group */
  int first, lane, warp, warps, groups; /* first: row of this thread */
  T b[RHS][ROWS], inverse[ROWS];
  bool divides; /* the inverse of a diagonal element may be no normal number */

  DEVICE block_of_rhs(const least_squares_after_parameters &parameters, unsigned char *shared) : p(parameters) {
    first = (int)threadIdx.x * ROWS;
    lane = (int)threadIdx.x % 32;
    warp = (int)threadIdx.x / 32;
    warps = (int)blockDim.x / 32;
    groups = ((int)p.n + GROUP - 1) / GROUP;
    ring = (vector *)shared + warp * 32 * PIECES;
    partials = (T *)((vector *)shared + STAGES * GROUP * PIECES * blockDim.x);
    shown = partials + 2 * VALUES * warps;
    factors = shown + 2 * RHS * GROUP;
  }

  /* ---- the ring ---- */

  /* Vector `index` of this warp's part of a column. The warp copies 512 neighbouring bytes at once. If each lane copied
   * the numbers of f64 that it takes, in two halves, each sector would be asked for twice. The exchange by fours keeps
   * the banks apart. */
  DEVICE vector *place_of(int turn, int column, int index) const {
    const int exchanged = PIECES == 2 ? index ^ (index >> 3 & 1) : index;
    return ring + ((uint32_t)turn % STAGES * GROUP + column) * PIECES * blockDim.x + exchanged;
  }
  DEVICE int group_of(int turn) const { return turn < groups ? turn : 2 * groups - 1 - turn; }

  /* Groups forward and then backward: the numbers that are used, and zeros elsewhere. */
  DEVICE void fetch(int turn) const {
    const int begin = group_of(turn) * GROUP, columns = (int)p.n - begin;
    unrolled_for (int piece = 0; piece < PIECES; piece++) {
      const int index = piece * 32 + lane, row = first + piece * 32 * VECTOR - lane * (ROWS - VECTOR);
      const bool used = (turn < groups ? row >= begin : turn < 2 * groups && row < begin + GROUP) && row < (int)p.m;
      const T *from = h + begin * p.h.column_stride + row;
      unrolled_for (int c = 0; c < GROUP; c++)
        copy_asynchronously<16>(place_of(turn, c, index), used && c < columns ? from + c * p.h.column_stride : h,
                                used && c < columns);
    }
    cp_async_commit();
  }
  DEVICE void take(int turn, T (&v)[GROUP][ROWS]) const {
    cp_async_wait<STAGES - 2>();
    if (PIECES > 1) __syncwarp();
    unrolled_for (int c = 0; c < GROUP; c++)
      unrolled_for (int piece = 0; piece < PIECES; piece++)
        each_of_vector((const T *)place_of(turn, c, lane * PIECES + piece),
                       [&](int e, T number) { v[c][piece * VECTOR + e] = number; });
  }

  /* ---- sums over the block ---- */

  /* Sums of a warp. Each level halves the values that a lane still sums. Value i ends in LANES lanes from LANES i on.
   */
  DEVICE T scatter(T (&part)[VALUES]) const {
    unrolled_for (int level = 0; VALUES >> level > 1; level++) {
      const int half = VALUES >> (level + 1), offset = LANES * half;
      const bool upper = lane & offset;
      unrolled_for (int i = 0; i < VALUES / 2; i++)
        if (i < half) {
          const T sent = upper ? part[i] : part[i + half], kept = upper ? part[i + half] : part[i];
          part[i] = kept + __shfl_xor_sync(0xffffffffu, sent, offset);
        }
    }
    return LANES == 1 ? part[0] : part[0] + __shfl_xor_sync(0xffffffffu, part[0], 1);
  }

  /* Sums of the block: value i in the same lanes. Two places take turns, so one barrier is enough. */
  DEVICE T sum(T (&part)[VALUES], int turn) const {
    T *place = partials + (turn & 1) * VALUES * warps + lane / LANES, total = scatter(part);
    if (lane % LANES == 0) place[warp * VALUES] = total;
    __syncthreads();
    total = T(0);
    for (int w = lane % LANES; w < warps; w += LANES) total += place[w * VALUES];
    return LANES == 1 ? total : total + __shfl_xor_sync(0xffffffffu, total, 1);
  }
  static DEVICE T value_of(T total, int value) { return __shfl_sync(0xffffffffu, total, LANES * value); }

  /* ---- forward ---- */

  /* The columns of H become reflectors: a one on the diagonal, which one thread has, zeros above it and below the
   * matrix. Columns after the last have tau = 0. */
  DEVICE void mask(int begin, T (&v)[GROUP][ROWS]) const {
    if (first == begin) {
      unrolled_for (int c = 0; c < GROUP; c++)
        unrolled_for (int i = 0; i <= c; i++) v[c][i] = i == c ? T(1) : T(0);
    }
    if (first + ROWS > (int)p.m) {
      unrolled_for (int i = 0; i < ROWS; i++)
        if (first + i >= (int)p.m)
          unrolled_for (int c = 0; c < GROUP; c++) v[c][i] = T(0);
    }
  }

  DEVICE void reflect_group(int turn) {
    const int begin = turn * GROUP;
    T v[GROUP][ROWS], part[VALUES] = {}, y[RHS][GROUP];
    take(turn, v);
    mask(begin, v);
    unrolled_for (int i = 0; i < ROWS; i++) {
      int value = 0;
      unrolled_for (int s = 0; s < RHS; s++)
        unrolled_for (int c = 0; c < GROUP; c++, value++) part[value] = fused(v[c][i], b[s][i], part[value]);
      unrolled_for (int c = 1; c < GROUP; c++)
        unrolled_for (int k = 0; k < c; k++, value++) part[value] = fused(v[c][i], v[k][i], part[value]);
    }
    const T total = sum(part, turn);
    unrolled_for (int c = 0; c < GROUP; c++) {
      unrolled_for (int s = 0; s < RHS; s++) y[s][c] = value_of(total, s * GROUP + c);
      unrolled_for (int k = 0; k < c; k++) {
        const T product = value_of(total, RHS * GROUP + c * (c - 1) / 2 + k);
        unrolled_for (int s = 0; s < RHS; s++) y[s][c] = fused(-product, y[s][k], y[s][c]);
      }
      unrolled_for (int s = 0; s < RHS; s++) y[s][c] *= factors[begin + c];
    }
    unrolled_for (int c = 0; c < GROUP; c++)
      unrolled_for (int s = 0; s < RHS; s++)
        unrolled_for (int i = 0; i < ROWS; i++) b[s][i] = fused(-v[c][i], y[s][c], b[s][i]);
  }

  /* ---- backward ---- */

  /* Solves for the group's rows, which this thread has. */
  DEVICE void solve_group(const T (&r)[GROUP][ROWS], T *to) {
    unrolled_for (int i = ROWS - 1; i >= 0; i--)
      unrolled_for (int s = 0; s < RHS; s++) {
        const T x = divides && first + i < (int)p.n ? b[s][i] / r[i][i] : b[s][i] * inverse[i];
        if (first + i < (int)p.n) b[s][i] = x;
        to[s * GROUP + i] = x;
        unrolled_for (int k = 0; k < i; k++) b[s][k] = fused(-r[i][k], x, b[s][k]);
      }
  }

  /* The rows of group `turn` are shown; then the next group is solved for. */
  DEVICE void substitute() {
    T r[GROUP][ROWS];
    take(groups, r);
    fetch(groups + STAGES - 1);
    if (first == (groups - 1) * GROUP) solve_group(r, shown);
    rolled_for (int turn = groups; turn < 2 * groups - 1; turn++) {
      T x[RHS][GROUP];
      __syncthreads();
      const T *from = shown + ((turn - groups) & 1) * RHS * GROUP;
      unrolled_for (int s = 0; s < RHS; s++)
        unrolled_for (int c = 0; c < GROUP; c++) x[s][c] = from[s * GROUP + c];
      if (first < group_of(turn) * GROUP) {
        unrolled_for (int c = GROUP - 1; c >= 0; c--)
          unrolled_for (int s = 0; s < RHS; s++)
            unrolled_for (int i = 0; i < ROWS; i++) b[s][i] = fused(-r[c][i], x[s][c], b[s][i]);
      }
      take(turn + 1, r);
      if (first == group_of(turn + 1) * GROUP) solve_group(r, shown + ((turn + 1 - groups) & 1) * RHS * GROUP);
      fetch(turn + STAGES);
    }
  }

  /* ---- sizes ---- */

  /* The largest number of the block; NaN does not count. With barriers. */
  DEVICE T largest_of(T largest) const {
    largest = largest_over_rows<32>(largest);
    __syncthreads();
    if (lane == 0) partials[warp] = largest;
    __syncthreads();
    for (int w = 0; w < warps; w++) largest = partials[w] > largest ? partials[w] : largest;
    __syncthreads();
    return largest;
  }
  DEVICE T largest_from(int row, int rhs) const {
    T largest = T(0);
    unrolled_for (int i = 0; i < ROWS; i++)
      if (first + i >= row) {
        const T magnitude = magnitude_of(b[rhs][i]);
        largest = magnitude > largest ? magnitude : largest;
      }
    return largest;
  }

  /* Returns the exponent that is taken off. */
  DEVICE int scale(int rhs) {
    if (!__syncthreads_or(is_near_largest(largest_from(0, rhs)))) return 0;
    unrolled_for (int i = 0; i < ROWS; i++) b[rhs][i] *= power_of_two<T>(-TAKEN_EXPONENT);
    return TAKEN_EXPONENT;
  }

  /* Of the rows below R. */
  DEVICE T norm(int rhs) const {
    const int exponent = norm_exponent(largest_of(largest_from((int)p.n, rhs)));
    const T factor = power_of_two<T>(-exponent);
    T part[VALUES] = {};
    unrolled_for (int i = 0; i < ROWS; i++)
      if (first + i >= (int)p.n) {
        const T value = b[rhs][i] * factor;
        part[0] = fused(value, value, part[0]);
      }
    return sqrt(value_of(sum(part, 0), 0)) * power_of_two<T>(exponent);
  }

  /* Inverts this thread's part of R's diagonal. Returns LAPACK's info: the first zero there, counted from one, or 0. */
  DEVICE int invert_diagonal() {
    unsigned zero = UINT32_MAX;
    divides = false;
    unrolled_for (int i = ROWS - 1; i >= 0; i--) {
      const bool inside = first + i < (int)p.n;
      const T diagonal = inside ? h[(first + i) * (p.h.column_stride + 1)] : T(1);
      const int exponent = (int)((high_word(diagonal) & 0x7fffffffu) >> tile_number<T>::MANTISSA);
      divides |= exponent < 1 || exponent > 2 * tile_number<T>::BIAS - 2;
      inverse[i] = inside ? inverse_of(diagonal) : T(0);
      if (diagonal == T(0)) zero = (unsigned)(first + i);
    }
    zero = __reduce_min_sync(0xffffffffu, zero);
    unsigned *const zeros = (unsigned *)partials;
    if (lane == 0) zeros[warp] = zero;
    __syncthreads();
    for (int w = 0; w < warps; w++) zero = min(zero, zeros[w]);
    __syncthreads();
    return (int)zero + 1;
  }

  /* ---- one matrix ---- */

  DEVICE void solve(int64_t item, int64_t rhs) {
    h = (const T *)p.h.data + item * p.h.batch_stride;
    for (int turn = 0; turn < STAGES - 1; turn++) fetch(turn);
    const T *from = (const T *)p.b.data + item * p.b.batch_stride + rhs * p.b.column_stride;
    const T *tau = (const T *)p.tau.data + item * p.tau.batch_stride;
    const int count = (int)min(p.rhs_count - rhs, (int64_t)RHS);
    int taken[RHS];
    unrolled_for (int s = 0; s < RHS; s++)
      unrolled_for (int i = 0; i < ROWS; i++)
        b[s][i] = s < count && first + i < (int)p.m ? from[(first + i) * p.b.row_stride + s * p.b.column_stride] : T(0);
    unrolled_for (int s = 0; s < RHS; s++) taken[s] = scale(s);
    for (int j = (int)threadIdx.x; j < groups * GROUP; j += (int)blockDim.x) factors[j] = j < (int)p.n ? tau[j] : T(0);
    const int info = invert_diagonal();
    rolled_for (int turn = 0; turn < groups; turn++) {
      reflect_group(turn);
      fetch(turn + STAGES - 1);
    }
    T norms[RHS] = {};
    __syncthreads();
    if (p.residual.data) {
      unrolled_for (int s = 0; s < RHS; s++) norms[s] = norm(s);
    }
    if (info)
      asm volatile("cp.async.wait_all;" ::: "memory");
    else
      substitute();
    if (p.info.data && rhs == 0 && threadIdx.x == 0) *vector_at<int32_t>(p.info, item) = info;
    T *to = (T *)p.x.data + item * p.x.batch_stride + rhs * p.x.column_stride;
    unrolled_for (int s = 0; s < RHS; s++) {
      if (s >= count) continue;
      const T factor = power_of_two<T>(taken[s]);
      if (p.residual.data && threadIdx.x == 0) vector_at<T>(p.residual, item)[rhs + s] = norms[s] * factor;
      unrolled_for (int i = 0; i < ROWS; i++)
        if (first + i < (int)p.n)
          to[(first + i) * p.x.row_stride + s * p.x.column_stride] = info ? T(NAN) : b[s][i] * factor;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }
};

template <typename T, int RHS> DEVICE void least_squares_block(const least_squares_after_parameters &p) {
  extern __shared__ __align__(16) unsigned char shared[];
  block_of_rhs<T, RHS> block(p, shared);
  for (int64_t place = blockIdx.x; place < p.batch * p.groups; place += gridDim.x) {
    const int64_t item = place / p.groups;
    block.solve(item, (place - item * p.groups) * RHS);
  }
}

LEAST_SQUARES_BLOCK_KERNELS(DEFINE_LATE_KERNEL)
