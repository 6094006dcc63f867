/* qr_apply.cu - C := Q C or Q^T C for more rows than tiles hold, and qr_extract. The reflectors of V are applied one
 * after the other, without T.
 *
 * rondo_qr_apply_*         a block keeps `block_columns` columns of C in shared memory, and reads `chunk` reflectors at
 *                          a time; a warp's columns are its own, so only chunks need a barrier
 * rondo_qr_apply_global_*  for longer columns: the same steps on C and V in place
 *
 * Bound by the bandwidth of shared memory: 14 accesses for 8 multiply-adds. */
#include "qr_device.cuh"

template <typename T> DEVICE void qr_apply(const qr_apply_parameters &p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const team<32> team;
  const int m = (int)p.m;
  const matrix_in<T, int> block = {(T *)shared, 1, p.leading};
  const matrix_in<T, int> chunk = block.part(0, p.block_columns);
  T *tau = chunk.data + p.leading * p.chunk;

  const int64_t item = (int64_t)blockIdx.x / p.blocks, begin = (int64_t)blockIdx.x % p.blocks * p.block_columns;
  const int columns = p.columns - begin < p.block_columns ? (int)(p.columns - begin) : p.block_columns;
  const matrix_in<T, int64_t> v = matrix_at<T>(p.v, item), c = matrix_at<T>(p.c, item).part(0, begin);
  const T *tau_in = vector_at<T>(p.tau, item);
  copy(team.thread, team.threads, c.row_stride != 1, m, columns, c, block);

  const int64_t chunks = (p.reflectors + p.chunk - 1) / p.chunk;
  for (int64_t step = 0; step < chunks; step++) {
    const int64_t first = (p.backward ? chunks - 1 - step : step) * p.chunk;
    const int count = p.reflectors - first < p.chunk ? (int)(p.reflectors - first) : p.chunk;
    team.sync(); /* the last chunk has been used, and C has arrived */
    copy(team.thread, team.threads, v.row_stride != 1, m, count, v.part(0, first), chunk);
    for (int i = team.thread; i < count; i += team.threads) tau[i] = tau_in[first + i];
    team.sync();
    rolled_for (int i = 0; i < count; i++) {
      const int local = p.backward ? count - 1 - i : i, j = (int)first + local;
      reflect(team, chunk.part(0, local), block, m, j, tau[local], 0, columns);
    }
  }
  team.sync();
  copy(team.thread, team.threads, c.row_stride != 1, m, columns, block, c);
}

template <typename T> DEVICE void qr_apply_global(const qr_apply_parameters &p) {
  const team<32> team;
  const int64_t item = (int64_t)blockIdx.x / p.blocks, begin = (int64_t)blockIdx.x % p.blocks * p.block_columns;
  const int64_t columns = p.columns - begin < p.block_columns ? p.columns - begin : p.block_columns;
  const matrix_in<T, int64_t> v = matrix_at<T>(p.v, item), c = matrix_at<T>(p.c, item).part(0, begin);
  const T *tau = vector_at<T>(p.tau, item);
  rolled_for (int64_t step = 0; step < p.reflectors; step++) {
    const int64_t j = p.backward ? p.reflectors - 1 - step : step;
    reflect(team, v.part(0, j), c, p.m, j, tau[j], (int64_t)0, columns);
  }
}

/* r := the upper triangle of h, q := the first columns of the identity. A thread has a number of either. */
template <typename T> DEVICE void qr_extract(const qr_extract_parameters &p) {
  const int64_t r_count = p.r.data ? p.k * p.n : 0, q_count = p.q.data ? p.m * p.k : 0, count = r_count + q_count;
  const int64_t stride = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.batch * count; i += stride) {
    const int64_t item = i / count, element = i % count;
    if (element < r_count) {
      const bool along_rows = p.r.row_stride == 1;
      const int64_t row = along_rows ? element % p.k : element / p.n,
                    column = along_rows ? element / p.k : element % p.n;
      matrix_at<T>(p.r, item)(row, column) = row <= column ? matrix_at<T>(p.h, item)(row, column) : T(0);
    } else {
      const bool along_rows = p.q.row_stride == 1;
      const int64_t rest = element - r_count;
      const int64_t row = along_rows ? rest % p.m : rest / p.k, column = along_rows ? rest / p.m : rest % p.k;
      matrix_at<T>(p.q, item)(row, column) = row == column ? T(1) : T(0);
    }
  }
}

QR_APPLY_KERNELS(DEFINE_KERNEL)
QR_EXTRACT_KERNELS(DEFINE_KERNEL)
