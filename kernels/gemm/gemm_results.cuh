/* gemm_results.cuh - from a warpgroup's sums to results in memory, for gemm_wgmma.cuh: the parts of k meet, scale, bias
 * and residual are applied, and the results leave as boxes by way of shared memory, or from registers.
 *
 * A lane's numbers: d[4 j + 2 h + e] is row 16 w + g + 8 h of P and row 8 j + 2 t + e of Q, for lane 4 g + t of warp w
 * (common/wgmma.cuh). If W is P, columns of results are rows of P: stmatrix turns them. */
#pragma once

#include "gemm_copies.cuh"
#include "gemm_finish.cuh"

namespace {

enum { GEMM_FIRST_BARRIER = 1 }; /* of the warpgroups' own; then those for turns */

DEVICE void store_matrices_turned(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

DEVICE void load_matrices(uint32_t (&words)[4], uint32_t address, bool turned) {
  if (turned)
    ldmatrix_x4_transposed(words, address);
  else
    ldmatrix_x4(words, address);
}

/* What a thread of a warpgroup that multiplies knows of its place. */
template <typename D> struct gemm_warpgroup {
  const gemm_wgmma_parameters &p;
  const gemm_block<D> &at;
  uint32_t index, thread, lane, warp; /* of the warpgroup in the block, and of the thread in the warpgroup */
  uint32_t sent;                      /* boxes by way of the buffers */

  DEVICE gemm_warpgroup(const gemm_wgmma_parameters &p, const gemm_block<D> &at)
      : p(p), at(at), index(threadIdx.x / 128), thread(threadIdx.x % 128), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32 % 4), sent(0) {}
  /* Which rows of a tile's P: warpgroups share it, or each has tiles of its own. */
  DEVICE uint32_t share() const { return D::TURNS ? 0 : index; }

  /* ---- Parts ---- */

  /* d becomes `own`, the columns of this block: each of the two parts sends the other one's columns, and adds. */
  DEVICE void meet(const float (&d)[D::COLUMNS / 2], float (&own)[D::STORED / 2]) const {
    constexpr int COUNT = D::STORED / 2;
    const bool is_first = at.part == 0;
    const uint32_t other = at.rank_of(at.cp, at.cq, at.part ^ 1);
    const uint32_t slot = at.staging + index * D::BUFFERS * GEMM_STAGING_BYTES + thread * 16, met = at.met + 8 * index;
    const uint32_t there = address_in(other, slot), met_there = address_in(other, met);
    unrolled_for (int i = 0; i < COUNT; i += 4)
      store_there(there + i / 4 * 2048, is_first ? d[COUNT + i] : d[i], is_first ? d[COUNT + i + 1] : d[i + 1],
                  is_first ? d[COUNT + i + 2] : d[i + 2], is_first ? d[COUNT + i + 3] : d[i + 3], met_there);
    barrier_wait_cluster(met, 0);
    unrolled_for (int i = 0; i < COUNT; i += 4) {
      const float4 theirs = load_shared_four(slot + i / 4 * 2048);
      own[i] = (is_first ? d[i] : d[COUNT + i]) + theirs.x;
      own[i + 1] = (is_first ? d[i + 1] : d[COUNT + i + 1]) + theirs.y;
      own[i + 2] = (is_first ? d[i + 2] : d[COUNT + i + 2]) + theirs.z;
      own[i + 3] = (is_first ? d[i + 3] : d[COUNT + i + 3]) + theirs.w;
    }
  }

  /* ---- Scale, bias, residual ---- */

  /* The boxes in which results leave: 64 columns of results, or as many as are stored. If W is P, there is one box of
   * 64 columns and as many rows as are stored. The last box may repeat columns of the one before. */
  static constexpr int BOX = D::SWAPPED || D::STORED < 64 ? D::STORED : 64;
  static constexpr int BOXES = D::SWAPPED ? 1 : (D::STORED + 63) / 64;
  static constexpr bool OVERLAP = BOXES > 1 && D::STORED % BOX;
  static constexpr bool CAN_LEAVE_BY_STAGES = D::PRODUCTS * BOXES <= D::STAGES;
  DEVICE static constexpr int box_begin(int box) { return OVERLAP && box == BOXES - 1 ? D::STORED - BOX : BOX * box; }

  /* Bias and residual of a few groups of eight rows of Q. p0 and q0 are the lane's first rows. What is absent is -0,
   * which changes no sum. Outside the matrix its first number is loaded: a branch would make each load wait for the one
   * before. */
  static constexpr int GROUPS = OVERLAP ? 4 : BOX / 8;
  using addends = float[GROUPS][4];

  template <typename Numbers> DEVICE void load_bias(addends &bias, int p0, int q0, int matrix) const {
    const int first = D::SWAPPED ? p0 : q0, left = (int)p.columns - first;
    const int64_t begin = matrix * p.finish.bias_batch;
    const uint32_t dtype = p.finish.bias_dtype;
    if (D::SWAPPED) {
      unrolled_for (int h = 0; h < 2; h++) {
        const float one = Numbers::one(dtype, p.finish.bias, begin + (8 * h < left ? first + 8 * h : 0));
        unrolled_for (int j = 0; j < GROUPS; j++) bias[j][2 * h] = bias[j][2 * h + 1] = one;
      }
    } else {
      unrolled_for (int j = 0; j < GROUPS; j++) {
        const float2 two = Numbers::two(dtype, p.finish.bias, begin + (8 * j < left ? first + 8 * j : 0));
        bias[j][0] = bias[j][2] = two.x, bias[j][1] = bias[j][3] = two.y;
      }
    }
  }

  template <typename Numbers> DEVICE void load_residual(addends &residual, int p0, int q0, int matrix) const {
    const int64_t begin = matrix * p.finish.residual_batch, stride = p.finish.residual_row;
    const uint32_t dtype = p.finish.residual_dtype;
    unrolled_for (int j = 0; j < GROUPS; j++)
      unrolled_for (int h = 0; h < 2; h++) {
        const int row = D::SWAPPED ? q0 + 8 * j : p0 + 8 * h, column = D::SWAPPED ? p0 + 8 * h : q0 + 8 * j;
        const bool is_there = row < (int)p.rows && column < (int)p.columns;
        const int64_t element = begin + (is_there ? row * stride + column : 0);
        if (D::SWAPPED) {
          const int64_t next = row + 1 < (int)p.rows ? stride : 0;
          residual[j][2 * h] = Numbers::one(dtype, p.finish.residual, element);
          residual[j][2 * h + 1] = Numbers::one(dtype, p.finish.residual, element + next);
        } else {
          const float2 two = Numbers::two(dtype, p.finish.residual, element);
          residual[j][2 * h] = two.x, residual[j][2 * h + 1] = two.y;
        }
      }
  }

  /* The address of the matrices of pair `j` of groups in a box: what this lane gives to stmatrix and ldmatrix. */
  DEVICE uint32_t matrices_at(uint32_t box, int j) const {
    const uint32_t matrix = lane / 8;
    const uint32_t row = D::SWAPPED ? 16 * j + (matrix >> 1) * 8 + lane % 8 : 16 * warp + (matrix & 1) * 8 + lane % 8;
    const uint32_t chunk = D::SWAPPED ? 2 * warp + (matrix & 1) : 2 * j + (matrix >> 1);
    return box + row * 128 + ((chunk ^ (row & 7)) << 4);
  }
  DEVICE void take_residual(addends &residual, uint32_t box) const {
    uint32_t words[GROUPS / 2][4];
    unrolled_for (int j = 0; j < GROUPS / 2; j++) load_matrices(words[j], matrices_at(box, j), D::SWAPPED);
    unrolled_for (int j = 0; j < GROUPS / 2; j++)
      unrolled_for (int i = 0; i < 4; i++) {
        const float2 two = numbers_16::of(p.finish.residual_dtype, words[j][i]);
        residual[2 * j + i / 2][i % 2 * 2] = two.x, residual[2 * j + i / 2][i % 2 * 2 + 1] = two.y;
      }
  }

  DEVICE static void clear(addends &numbers) {
    unrolled_for (int j = 0; j < GROUPS; j++)
      unrolled_for (int i = 0; i < 4; i++) numbers[j][i] = -0.0f;
  }

  /* The numbers of GROUPS groups; q0 is the first one's row. `box`: where the residual is in shared memory, or 0. */
  DEVICE void finish(float *d, int p0, int q0, int matrix, uint32_t box) const {
    addends bias, residual;
    if (!p.finish.bias)
      clear(bias);
    else if (p.finish.bias_dtype == RONDO_F32)
      load_bias<numbers_32>(bias, p0, q0, matrix);
    else
      load_bias<numbers_16>(bias, p0, q0, matrix);
    if (box)
      take_residual(residual, box);
    else if (!p.finish.residual || p.finish.silu_mul)
      clear(residual);
    else if (p.finish.residual_dtype == RONDO_F32)
      load_residual<numbers_32>(residual, p0, q0, matrix);
    else
      load_residual<numbers_16>(residual, p0, q0, matrix);
    unrolled_for (int j = 0; j < GROUPS; j++)
      unrolled_for (int i = 0; i < 4; i++)
        d[4 * j + i] = fmaf(d[4 * j + i], p.finish.scale, bias[j][i]) + residual[j][i];
  }

  /* ---- Out ---- */

  /* A box from registers: f32, and rows that no map can have. */
  DEVICE void store_numbers(const float *d, int p0, int q0, int matrix) const {
    const uint32_t dtype = p.finish.out_dtype;
    const int64_t begin = matrix * p.finish.out_batch;
    unrolled_for (int j = 0; j < BOX / 8; j++)
      unrolled_for (int h = 0; h < 2; h++) {
        const int row = D::SWAPPED ? q0 + 8 * j : p0 + 8 * h, column = D::SWAPPED ? p0 + 8 * h : q0 + 8 * j;
        const int64_t element = begin + row * p.finish.out_row + column;
        const float x = d[4 * j + 2 * h], y = d[4 * j + 2 * h + 1];
        if (row >= (int)p.rows || column >= (int)p.columns) continue;
        if (D::SWAPPED) {
          store_number(dtype, p.finish.out, element, x);
          if (row + 1 < (int)p.rows) store_number(dtype, p.finish.out, element + p.finish.out_row, y);
        } else if (dtype == RONDO_F32) {
          *(float2 *)((float *)p.finish.out + element) = make_float2(x, y);
        } else {
          *(uint32_t *)((uint16_t *)p.finish.out + element) = word_of_16(dtype == RONDO_BF16, x, y);
        }
      }
  }

  /* One result of silu_mul, which may be past the end. */
  DEVICE void store_gated_number(float number, int row, int column, int matrix) const {
    const gemm_finish &f = p.finish;
    if (row >= (int)p.rows || column >= (int)p.columns / 2) return;
    if (f.residual) {
      const int64_t element = matrix * f.residual_batch + row * f.residual_row + column;
      number += load_number(f.residual_dtype, f.residual, element);
    }
    store_number(f.out_dtype, f.out, matrix * f.out_batch + row * f.out_row + column, number);
  }

  /* A lane has one column of each group of eight rows of Q. Four lanes exchange theirs: each then stores four
   * neighbours of one group, in two rows. */
  DEVICE void store_gated_fours(const uint32_t (&pairs)[4], int p0, int column, int matrix) const {
    uint32_t words[4] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    unrolled_for (int apart = 1; apart <= 2; apart *= 2)
      unrolled_for (int i = 0; i < 4; i++) {
        if (i & apart) continue;
        const bool is_upper = lane & apart;
        const uint32_t other = __shfl_xor_sync(0xffffffffu, is_upper ? words[i] : words[i ^ apart], apart);
        (is_upper ? words[i] : words[i ^ apart]) = other;
      }
    unrolled_for (int h = 0; h < 2; h++) {
      if (p0 + 8 * h >= (int)p.rows || column >= (int)p.columns / 2) continue;
      const uint32_t half = h ? 0x7632 : 0x5410;
      const int64_t element = matrix * p.finish.out_batch + (p0 + 8 * h) * p.finish.out_row + column;
      *(uint2 *)((uint16_t *)p.finish.out + element) =
          make_uint2(__byte_perm(words[0], words[1], half), __byte_perm(words[2], words[3], half));
    }
  }

  /* A box with silu_mul, from registers. Gate and up are neighbours of a lane, or, if W is P, of two lanes: then one of
   * these makes the upper result and the other the lower one. */
  DEVICE void store_gated(const float *d, int p0, int q0, int matrix) const {
    unrolled_for (int first = 0; first < BOX / 8; first += 4) {
      float numbers[4][2];
      unrolled_for (int j = 0; j < 4; j++)
        unrolled_for (int i = 0; i < 2; i++) {
          const float *x = d + 4 * (first + j);
          if (D::SWAPPED) {
            const bool is_lower = lane & 4;
            float mine, theirs;
            asm volatile("mov.f32 %0, %1;" : "=f"(mine) : "f"(is_lower ? x[2 + i] : x[i]));
            asm volatile("mov.f32 %0, %1;" : "=f"(theirs) : "f"(is_lower ? x[i] : x[2 + i]));
            theirs = __shfl_xor_sync(0xffffffffu, theirs, 4);
            numbers[j][i] = gated(is_lower ? theirs : mine, is_lower ? mine : theirs);
          } else {
            numbers[j][i] = gated(x[2 * i], x[2 * i + 1]);
          }
        }
      if (!D::SWAPPED && p.in_fours) {
        uint32_t pairs[4];
        unrolled_for (int j = 0; j < 4; j++)
          pairs[j] = word_of_16(p.finish.out_dtype == RONDO_BF16, numbers[j][0], numbers[j][1]);
        store_gated_fours(pairs, p0, q0 / 8 * 4 + 4 * (first + (int)lane % 4), matrix);
        continue;
      }
      unrolled_for (int j = 0; j < 4; j++)
        unrolled_for (int i = 0; i < 2; i++)
          if (D::SWAPPED)
            store_gated_number(numbers[j][i], q0 + 8 * (first + j) + i, (p0 + (lane & 4 ? 7 : 0)) / 2, matrix);
          else
            store_gated_number(numbers[j][i], p0 + 8 * i, q0 / 2 + 4 * (first + j), matrix);
    }
  }

  template <typename Out> DEVICE void write_box(const float *d, uint32_t to) const {
    unrolled_for (int j = 0; j < BOX / 16; j++) {
      const float *x = d + 8 * j;
      const uint32_t a = pack_two<Out>(x[0], x[1]), b = pack_two<Out>(x[2], x[3]);
      const uint32_t c = pack_two<Out>(x[4], x[5]), e = pack_two<Out>(x[6], x[7]);
      if (D::SWAPPED)
        store_matrices_turned(matrices_at(to, j), a, b, c, e);
      else
        stmatrix_x4(matrices_at(to, j), a, b, c, e);
    }
  }
  DEVICE void send_box(int p0, int q0, int matrix, uint32_t from) const {
    box_store(&p.out, D::SWAPPED ? p0 : q0, D::SWAPPED ? q0 : p0, matrix, from);
    tensor_store_commit();
  }

  DEVICE uint32_t buffer_of(uint32_t number) const {
    return at.staging + (index * D::BUFFERS + number % D::BUFFERS) * GEMM_STAGING_BYTES;
  }
  /* A box through this warpgroup's buffers in turn, while products go on. */
  template <typename Out> DEVICE void send(const float *d, int p0, int q0, int matrix) {
    const uint32_t to = buffer_of(sent++);
    if (!comes_by_box()) { /* otherwise the residual's box has come here, after a wait for the buffer */
      if (thread == 0) tensor_store_wait_read<D::BUFFERS - 1>();
      warps_meet(GEMM_FIRST_BARRIER + index, 128);
    }
    write_box<Out>(d, to);
    writes_reach_products();
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    if (thread == 0) send_box(p0, q0, matrix, to);
  }
  /* The last tile's boxes leave by the stages: in the rows of P that only this warpgroup has read. */
  DEVICE uint32_t place_in_stages(int product, int box) const {
    return at.stages + (product * BOXES + box) * D::STAGE_BYTES + share() * D::PRODUCTS * GEMM_P_PANEL_BYTES;
  }
  DEVICE void send_at_once(int p0, int q0, int matrix) const {
    writes_reach_products();
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    if (thread < D::PRODUCTS * BOXES) {
      const int product = thread / BOXES, box = thread % BOXES;
      send_box(p0 + 64 * product, q0 + box_begin(box), matrix, place_in_stages(product, box));
    }
  }

  /* ---- The residual by boxes ---- */

  /* One thread of a tile fetches into L2 what the block's results are added to. The threads that copy would be too slow
   * with a branch in their loops: 80 cycles a stage. */
  DEVICE void fetch_residual(const gemm_place &place) const {
    if (!p.fetched || thread || share()) return;
    const int rows = D::SWAPPED ? D::STORED : D::P_ROWS, columns = D::SWAPPED ? D::P_ROWS : D::STORED;
    const int moved = (int)at.part * D::STORED, box_rows = D::SWAPPED ? D::STORED : 64;
    const int row = D::SWAPPED ? place.q + moved : place.p, column = D::SWAPPED ? place.p : place.q + moved;
    for (int i = 0; i < rows; i += box_rows)
      for (int j = 0; j < columns; j += (int)p.fetched) box_prefetch(&p.residual, column + j, row + i, place.matrix);
  }

  static constexpr uint32_t BOX_BYTES = BOX * 128;
  DEVICE bool comes_by_box() const { return !OVERLAP && p.boxed; }
  DEVICE uint32_t residual_barrier(uint32_t i) const { return at.residual + 8 * (index * GEMM_RESIDUAL_BARRIERS + i); }
  DEVICE void ask_box(int p0, int q0, int matrix, uint32_t to, uint32_t barrier) const {
    box_copy(to, &p.residual, D::SWAPPED ? p0 : q0, D::SWAPPED ? q0 : p0, matrix, barrier);
  }
  /* All boxes of the last tile come to the stages, once the warpgroup's products have read them. */
  DEVICE void ask_for_all(int p0, int q0, int matrix) const {
    constexpr int COUNT = D::PRODUCTS * BOXES;
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    if (thread == 0) barrier_expect(residual_barrier(2), COUNT * BOX_BYTES);
    if (thread < COUNT) {
      const int product = thread / BOXES, box = thread % BOXES;
      ask_box(p0 + 64 * product, q0 + box_begin(box), matrix, place_in_stages(product, box), residual_barrier(2));
    }
  }
  /* A box comes to the buffer from which it will be number `number` to leave. */
  DEVICE void ask_for_one(uint32_t number, int p0, int q0, int matrix, bool is_first) const {
    if (thread) return;
    if (is_first)
      tensor_store_wait_read<D::BUFFERS - 1>();
    else
      tensor_store_wait_read<0>();
    barrier_expect(residual_barrier(number % D::BUFFERS), BOX_BYTES);
    ask_box(p0, q0, matrix, buffer_of(number), residual_barrier(number % D::BUFFERS));
  }
  /* Where the residual of a box is, once it is there. With two buffers the next one is under way. */
  DEVICE uint32_t box_of_residual(int product, int box, int p0, int q0, int matrix, bool by_stages) const {
    if (!comes_by_box()) return 0;
    if (by_stages) {
      barrier_wait(residual_barrier(2), 0);
      return place_in_stages(product, box);
    }
    if (box == 0 || D::BUFFERS == 1) ask_for_one(sent, p0, q0 + box_begin(box), matrix, box == 0);
    if (D::BUFFERS == 2 && box + 1 < BOXES) ask_for_one(sent + 1, p0, q0 + box_begin(box + 1), matrix, false);
    barrier_wait(residual_barrier(sent % D::BUFFERS), sent / D::BUFFERS & 1);
    return buffer_of(sent);
  }

  template <typename Out>
  DEVICE void leave(const float *d, int product, int box, int p0, int q0, int matrix, bool by_stages) {
    if (by_stages)
      write_box<Out>(d, place_in_stages(product, box));
    else
      send<Out>(d, p0, q0, matrix);
  }
  /* The boxes of one product that are stored as they are. */
  template <typename Out>
  DEVICE void store_sums(const float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, bool by_stages) {
    unrolled_for (int box = 0; box < BOXES; box++)
      leave<Out>(d + box_begin(box) / 2, product, box, p0, q0 + box_begin(box), matrix, by_stages);
  }
  /* All others. A residual may be out itself: where boxes overlap, all numbers are finished before the first box
   * leaves. */
  DEVICE void store_finished(float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, bool by_stages) {
    const int lane_p = p0 + 16 * (int)warp + (int)lane / 4, lane_q = q0 + 2 * ((int)lane % 4);
    unrolled_for (int j = 0; OVERLAP && j < D::STORED / 8; j += GROUPS)
      if (p.finishing) finish(d + 4 * j, lane_p, lane_q + 8 * j, matrix, 0);
    unrolled_for (int box = 0; box < BOXES; box++) {
      const int begin = box_begin(box);
      if (!OVERLAP && p.finishing)
        finish(d + begin / 2, lane_p, lane_q + begin, matrix, box_of_residual(product, box, p0, q0, matrix, by_stages));
      if (p.finish.silu_mul)
        store_gated(d + begin / 2, lane_p, lane_q + begin, matrix);
      else if (!p.by_map)
        store_numbers(d + begin / 2, lane_p, lane_q + begin, matrix);
      else if (p.finish.out_dtype == RONDO_BF16)
        leave<__nv_bfloat16>(d + begin / 2, product, box, p0, q0 + begin, matrix, by_stages);
      else
        leave<__half>(d + begin / 2, product, box, p0, q0 + begin, matrix, by_stages);
    }
  }
  DEVICE void store_product(float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, bool by_stages) {
    if (!p.by_map || p.finishing)
      store_finished(d, product, p0, q0, matrix, by_stages);
    else if (p.finish.out_dtype == RONDO_BF16)
      store_sums<__nv_bfloat16>(d, product, p0, q0, matrix, by_stages);
    else
      store_sums<__half>(d, product, p0, q0, matrix, by_stages);
  }

  /* All results of a tile. `by_stages`: nothing will be copied to the stages any more, and all of them have this tile.
   */
  DEVICE void store(float (&d)[D::PRODUCTS][D::COLUMNS / 2], const gemm_place &place, bool by_stages) {
    const int p0 = place.p + (int)share() * D::PRODUCTS * 64, q0 = place.q + (int)at.part * D::STORED;
    by_stages = by_stages && CAN_LEAVE_BY_STAGES && p.by_map;
    if (by_stages && comes_by_box()) ask_for_all(p0, q0, place.matrix);
    unrolled_for (int product = 0; product < D::PRODUCTS; product++) {
      if constexpr (D::PARTS > 1) {
        float own[D::STORED / 2];
        meet(d[product], own);
        store_product(own, product, p0 + 64 * product, q0, place.matrix, by_stages);
      } else {
        store_product(d[product], product, p0 + 64 * product, q0, place.matrix, by_stages);
      }
    }
    if (by_stages) send_at_once(p0, q0, place.matrix);
  }

  /* Before the block ends: shared memory has been read; and if the host waits for the block, results are written. */
  DEVICE void end() const {
    if (p.done.words)
      tensor_store_wait();
    else
      tensor_store_wait_read<0>();
  }
};

} // namespace
