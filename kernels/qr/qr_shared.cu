/* qr_shared.cu - QR of matrices that fit in shared memory: one read, the factorisation there, one write.
 *
 * rondo_qr_few_rows_f32  wide matrices of up to QR_FEW_ROWS rows: a warp has 8 rows of four columns at a time
 * rondo_qr_shared_*      more rows than registers hold, and so few columns: a warp has 32 rows of a column at a time
 *
 * A block has one matrix. A column has `leading` numbers, 8 modulo 16, so the column lanes of a warp read different
 * banks. Bound by the bandwidth of shared memory (9 accesses for 8 multiply-adds) and by the latency of a column's
 * step. */
#include "qr_device.cuh"

template <typename T, int LANES> DEVICE void qr_shared(const qr_parameters &p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const team<LANES> team;
  const int m = (int)p.m, n = (int)p.n, k = m < n ? m : n;
  const int64_t item = blockIdx.x;
  T *data = (T *)shared, *tau = data + p.leading * n;
  const matrix_in<T, int> s = {data, 1, p.leading};

  const matrix_in<T, int64_t> a = matrix_at<T>(p.a, item);
  copy(team.thread, team.threads, a.row_stride != 1, m, n, a, s);
  factor(team, s, m, n, tau);
  if (p.h.data) {
    const matrix_in<T, int64_t> h = matrix_at<T>(p.h, item);
    copy(team.thread, team.threads, h.row_stride != 1, m, n, s, h);
    T *tau_out = vector_at<T>(p.tau, item);
    for (int j = team.thread; j < k; j += team.threads) tau_out[j] = tau[j];
  }
  if (p.r.data) {
    const matrix_in<T, int64_t> r = matrix_at<T>(p.r, item);
    const auto upper = [&](int row, int column) { return row <= column ? s(row, column) : T(0); };
    copy(team.thread, team.threads, r.row_stride != 1, k, n, upper, r);
  }
  if (p.q.data) {
    const matrix_in<T, int64_t> q = matrix_at<T>(p.q, item);
    form(team, s, m, k, tau); /* begins with a barrier after the read of R */
    copy(team.thread, team.threads, q.row_stride != 1, m, k, s, q);
  }
}

QR_SHARED_KERNELS(DEFINE_KERNEL)
