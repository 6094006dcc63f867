/* qr_blocked.cu - QR of matrices with more rows than the other kernels take: a block walks over one matrix at a time.
 *
 * rondo_qr_blocked_*  factors `panel` columns at a time in shared memory, and applies their reflectors one after the
 *                     other to the columns on their right, `panel` of those at a time; two panels must fit
 * rondo_qr_global_*   for columns so long that not even four fit twice: the same steps on the matrix in place
 *
 * The matrix is factored in `work`: an output, or a workspace of the block. Thin Q grows in the place of the
 * reflectors, from the last panel to the first. Bound by the latency of a column's step and by L2: a matrix has one
 * multiprocessor. rondo_graph_qr spreads large matrices over many. */
#include "qr_device.cuh"

/* Applies the reflectors of v to columns [begin, end) of target, the first one first, or (backward) the last one first.
 * `width` columns at a time come to shared memory. */
template <typename T, typename Team>
DEVICE void update_columns(const Team &team, const matrix_in<T, int> &v, const T *tau, const matrix_in<T, int> &block,
                           const matrix_in<T, int64_t> &target, int m, int reflectors, int64_t begin, int64_t end,
                           int width, bool backward) {
  const bool along_columns = target.row_stride != 1;
  for (int64_t first = begin; first < end; first += width) {
    const int columns = end - first < width ? (int)(end - first) : width;
    const matrix_in<T, int64_t> place = target.part(0, first);
    copy(team.thread, team.threads, along_columns, m, columns, place, block);
    team.sync();
    rolled_for (int step = 0; step < reflectors; step++) {
      const int j = backward ? reflectors - 1 - step : step;
      reflect(team, v.part(0, j), block, m, j, tau[j], 0, columns);
    }
    team.sync();
    copy(team.thread, team.threads, along_columns, m, columns, block, place);
    team.sync();
  }
}

/* The other outputs than `work`, which holds H: R, and the reflectors in the place of Q. */
template <typename T, typename Team>
DEVICE void store_r(const Team &team, const qr_parameters &p, int64_t item, const matrix_in<T, int64_t> &work) {
  const int64_t k = p.m < p.n ? p.m : p.n;
  if (p.q.data && p.q.data != p.work.data) {
    const matrix_in<T, int64_t> q = matrix_at<T>(p.q, item);
    copy(team.thread, team.threads, q.row_stride != 1, p.m, k, work, q);
    team.sync();
  }
  if (p.r.data) { /* may be work itself */
    const matrix_in<T, int64_t> r = matrix_at<T>(p.r, item);
    const auto upper = [&](int64_t row, int64_t column) { return row <= column ? work(row, column) : T(0); };
    copy(team.thread, team.threads, r.row_stride != 1, k, p.n, upper, r);
    team.sync();
  }
}

template <typename T> DEVICE void qr_blocked(const qr_parameters &p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const team<32> team;
  const matrix_in<T, int> panel = {(T *)shared, 1, p.leading};
  const matrix_in<T, int> block = panel.part(0, p.panel);
  T *tau = block.data + p.leading * p.panel;
  const int64_t k = p.m < p.n ? p.m : p.n;

  for (int64_t item = blockIdx.x; item < p.batch; item += gridDim.x) {
    const matrix_in<T, int64_t> work = matrix_at<T>(p.work, p.workers ? blockIdx.x : item);
    T *work_tau = vector_at<T>(p.work_tau, p.work_tau_workers ? blockIdx.x : item);
    const bool along_columns = work.row_stride != 1;
    if (p.a.data != p.work.data) {
      copy(team.thread, team.threads, along_columns, p.m, p.work_columns, matrix_at<T>(p.a, item), work);
      team.sync();
    }
    for (int64_t j = 0; j < k; j += p.panel) {
      const int rows = (int)(p.m - j), width = k - j < p.panel ? (int)(k - j) : p.panel;
      const matrix_in<T, int64_t> place = work.part(j, j);
      copy(team.thread, team.threads, along_columns, rows, width, place, panel);
      factor(team, panel, rows, width, tau);
      copy(team.thread, team.threads, along_columns, rows, width, panel, place);
      for (int i = team.thread; i < width; i += team.threads) work_tau[j + i] = tau[i];
      update_columns(team, panel, tau, block, work.part(j, 0), rows, width, j + width, p.work_columns, p.panel, false);
      team.sync();
    }
    store_r<T>(team, p, item, work);
    if (!p.q.data) continue;
    const matrix_in<T, int64_t> q = matrix_at<T>(p.q, item);
    for (int64_t j = (k - 1) / p.panel * p.panel; j >= 0; j -= p.panel) {
      const int rows = (int)(p.m - j), width = k - j < p.panel ? (int)(k - j) : p.panel;
      const matrix_in<T, int64_t> place = q.part(j, j);
      copy(team.thread, team.threads, along_columns, rows, width, place, panel);
      for (int i = team.thread; i < width; i += team.threads) tau[i] = work_tau[j + i];
      team.sync();
      update_columns(team, panel, tau, block, q.part(j, 0), rows, width, j + width, k, p.panel, true);
      form(team, panel, rows, width, tau);
      copy(team.thread, team.threads, along_columns, rows, width, panel, place);
      const auto zero = [](int64_t, int64_t) { return T(0); };
      copy(team.thread, team.threads, along_columns, j, (int64_t)width, zero, q.part(0, j));
      team.sync();
    }
  }
}

template <typename T> DEVICE void qr_global(const qr_parameters &p) {
  const team<32> team;
  const int64_t k = p.m < p.n ? p.m : p.n;
  for (int64_t item = blockIdx.x; item < p.batch; item += gridDim.x) {
    const matrix_in<T, int64_t> work = matrix_at<T>(p.work, p.workers ? blockIdx.x : item);
    T *tau = vector_at<T>(p.work_tau, p.work_tau_workers ? blockIdx.x : item);
    if (p.a.data != p.work.data)
      copy(team.thread, team.threads, work.row_stride != 1, p.m, p.work_columns, matrix_at<T>(p.a, item), work);
    factor(team, work, p.m, p.work_columns, tau);
    store_r<T>(team, p, item, work);
    if (p.q.data) form(team, matrix_at<T>(p.q, item), p.m, k, tau);
    team.sync(); /* before the workspace is used again */
  }
}

QR_BLOCKED_KERNELS(DEFINE_KERNEL)
