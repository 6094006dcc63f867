/* qr_shared.cu - QR of matrices that fit in shared memory: read once, factored there, written once, whatever the form.
 *
 * rondo_qr_warp_*    one warp per matrix, four matrices in a block: 8 row lanes x 4 column lanes, no block barrier
 * rondo_qr_square_*  one block per matrix, 8 row lanes in each warp: columns over the rest
 * rondo_qr_tall_*    one block per matrix, 32 row lanes: for panels much taller than wide
 *
 * A column has `leading` elements, 8 modulo 16: the column lanes of a warp then read different banks. Bound by the
 * bandwidth of shared memory (9 accesses for 8 multiply-adds in the update) and by the latency of one column step. */
#include "qr_device.cuh"

template <typename T, int LANES, bool WARP> __device__ __forceinline__ void qr_shared(const qr_parameters &p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const team<LANES, WARP> team;
  const int m = (int)p.m, n = (int)p.n, k = m < n ? m : n;
  const int warp = WARP ? (int)(threadIdx.x / 32) : 0, matrices = WARP ? (int)(blockDim.x / 32) : 1;
  const int64_t item = (int64_t)blockIdx.x * matrices + warp;
  if (item >= p.batch) return; /* a whole warp, or nobody */
  T *data = (T *)shared + warp * (p.leading * n + k), *tau = data + p.leading * n;
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
    form(team, s, m, k, tau); /* begins with a barrier: R has been read */
    copy(team.thread, team.threads, q.row_stride != 1, m, k, s, q);
  }
}

/* BLOCKS on a multiprocessor: what keeps the registers few (f32: 64, f64: 96) and spills none. */
#define QR_KERNEL(name, T, LANES, WARP, THREADS, BLOCKS)                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) name(const __grid_constant__ qr_parameters p) {        \
    wait_for_predecessors();                                                                                           \
    qr_shared<T, LANES, WARP>(p);                                                                                      \
    publish(p.done);                                                                                                   \
  }
QR_KERNEL(rondo_qr_warp_f32, float, 8, true, 128, 8)
QR_KERNEL(rondo_qr_warp_f64, double, 8, true, 128, 6)
QR_KERNEL(rondo_qr_square_f32, float, 8, false, 512, 2)
QR_KERNEL(rondo_qr_square_f64, double, 8, false, 512, 1)
QR_KERNEL(rondo_qr_tall_f32, float, 32, false, 512, 2)
QR_KERNEL(rondo_qr_tall_f64, double, 32, false, 512, 1)
