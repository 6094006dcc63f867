/* gemm_sums.cuh - a warpgroup that multiplies, for gemm_wgmma.cuh: its place, how the parts of k meet, and the finish
 * of its sums with scale, bias and residual.
 *
 * A lane's numbers: d[4 j + 2 h + e] is row 16 w + g + 8 h of P and row 8 j + 2 t + e of Q, for lane 4 g + t of warp w
 * (common/wgmma.cuh). If W is P, columns of results are rows of P: stmatrix turns them. */
#pragma once

#include "../common/send.cuh"
#include "../common/shared_words.cuh"
#include "gemm_codes.cuh"
#include "gemm_copies.cuh"
#include "gemm_finish.cuh"
#include <type_traits>

namespace {

/* What a thread of a warpgroup that multiplies knows of its place. */
template <typename D> struct gemm_sums {
  const gemm_wgmma_parameters &p;
  const gemm_block<D> &at;
  uint32_t index, thread, lane, warp; /* of the warpgroup in the block, and of the thread in the warpgroup */
  uint32_t sent;                      /* boxes by way of the buffers */
  uint32_t meetings;                  /* of parts, so far */
  uint32_t slot;                      /* of the factors of the tile's rows */
  uint32_t there; /* a thread frees a stage for one of the blocks that share a tile with this one: its `empty` */

  DEVICE gemm_sums(const gemm_wgmma_parameters &p, const gemm_block<D> &at)
      : p(p), at(at), index(threadIdx.x / 128), thread(threadIdx.x % 128), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32 % 4), sent(0), meetings(0), there(0) {
    if (D::SHARERS == 1 || thread >= D::SHARERS) return;
    const uint32_t other = thread - D::ALONG_Q + (thread - D::ALONG_Q >= at.cp);
    there = address_in_block(at.empty, thread < D::ALONG_Q ? at.rank_of(at.cp, thread, at.part)
                                                           : at.rank_of(other, at.cq, at.part));
  }
  DEVICE void find_lane() {
    const uint32_t number = thread_index();
    lane = number % 32, warp = number / 32 % 4, index = number / 128;
  }
  /* Which rows of a tile's P: warpgroups share it, or each has tiles of its own. */
  DEVICE uint32_t share() const { return D::TURNS || D::SPLITS ? 0 : index; }

  /* Frees a stage for the blocks that copy to it, if one will. `left`: the block's stages from this one on. */
  DEVICE void free_stage(uint32_t left, uint32_t stage) const {
    if (left <= D::STAGES) return;
    if constexpr (D::SHARERS == 1) {
      if (thread == 0) barrier_arrive(at.empty + 8 * stage);
    } else {
      if (thread < D::SHARERS) barrier_arrive_there(there + 8 * stage);
    }
  }

  /* ---- Parts ---- */

  /* The place and barrier of a meeting. If they meet often, two take turns: a thread sends to a place again only after
   * it has got what the other block's thread sent after reading that place. */
  DEVICE uint32_t meeting_place() const {
    return thread * 16 + (D::MEETS_OFTEN ? at.meeting + meetings % 2 * (D::TILE.rows * D::STORED * 4)
                                         : at.staging + index * D::BUFFERS * GEMM_STAGING_BYTES);
  }
  DEVICE void end_meeting(uint32_t met) {
    if (!D::MEETS_OFTEN) return;
    if (thread == 0) barrier_expect(met, D::TILE.rows * D::STORED * 4);
    meetings++;
  }

  /* Half of a block's columns, for the meeting in the block of part `to`. */
  DEVICE void send_half(const float (&d)[D::COLUMNS / 2], bool upper, uint32_t to, uint32_t slot, uint32_t met) const {
    constexpr int COUNT = D::STORED / 2;
    const uint32_t other = at.rank_of(at.cp, at.cq, to);
    const uint32_t there = address_in_block(slot, other), met_there = address_in_block(met, other);
    unrolled_for (int i = 0; i < COUNT; i += 4)
      send_four(there + i / 4 * 2048,
                make_float4(upper ? d[COUNT + i] : d[i], upper ? d[COUNT + i + 1] : d[i + 1],
                            upper ? d[COUNT + i + 2] : d[i + 2], upper ? d[COUNT + i + 3] : d[i + 3]),
                met_there);
  }

  /* d becomes `own`, the columns of this block: each of the first two parts sends the other one's columns, and adds. A
   * third one sends both, and has none: false. */
  DEVICE bool meet(const float (&d)[D::COLUMNS / 2], float (&own)[D::STORED / 2]) {
    constexpr int COUNT = D::STORED / 2, PLACE_BYTES = D::TILE.rows * D::STORED * 4;
    const bool is_first = at.part == 0;
    const uint32_t slot = meeting_place(), met = at.met + 8 * (D::MEETS_OFTEN ? meetings % 2 : index);
    if (!at.stores()) {
      unrolled_for (uint32_t to = 0; to < 2; to++) send_half(d, to, to, slot + PLACE_BYTES, met);
      return false;
    }
    send_half(d, is_first, at.part ^ 1, slot, met);
    barrier_wait_cluster(met, D::MEETS_OFTEN ? meetings / 2 % 2 : 0);
    end_meeting(met);
    unrolled_for (int i = 0; i < COUNT; i += 4) {
      const float4 theirs = load_shared_four(slot + i / 4 * 2048);
      own[i] = (is_first ? d[i] : d[COUNT + i]) + theirs.x;
      own[i + 1] = (is_first ? d[i + 1] : d[COUNT + i + 1]) + theirs.y;
      own[i + 2] = (is_first ? d[i + 2] : d[COUNT + i + 2]) + theirs.z;
      own[i + 3] = (is_first ? d[i + 3] : d[COUNT + i + 3]) + theirs.w;
      if (D::PARTS < 3) continue;
      const float4 third = load_shared_four(slot + PLACE_BYTES + i / 4 * 2048);
      own[i] += third.x, own[i + 1] += third.y, own[i + 2] += third.z, own[i + 3] += third.w;
    }
    return true;
  }

  /* ---- Factors of rows ---- */

  /* Groups of eight rows of Q that are finished at a time, as registers allow. */
  static constexpr int MANY = D::BOX / 8, FEW = D::IS_WIDE ? 2 : 4;
  static constexpr int GROUPS =
      D::BOX >= 32 && (D::IS_WIDE || D::OVERLAP || (D::SLOTS && D::COLUMNS == 256)) ? FEW : MANY;

  /* Of a tile's rows of X, from gemm_rows.cuh. */
  DEVICE void begin_factors(uint32_t turn) {
    if (D::IS_WIDE || __builtin_expect(!p.row_factors, 1)) return;
    if (!D::TURNS) slot = turn % 2;
    warps_meet(GEMM_FULL_BARRIER + (D::TURNS ? index : slot), D::FACTOR_THREADS);
  }
  /* They have been read, and those of another tile may take their place. */
  DEVICE void end_factors(uint32_t turn) const {
    if (D::IS_WIDE || __builtin_expect(!p.row_factors, 1) || turn + 2 >= at.tiles) return;
    warps_arrive(GEMM_EMPTY_BARRIER + (D::TURNS ? index : slot), D::FACTOR_THREADS);
  }

  /* If W is P, of the lane's two rows of a group. */
  DEVICE float2 factors_of(int group) const {
    const uint32_t row = at.part * D::STORED + 8 * group + 2 * (lane % 4);
    return load_shared_two(at.factors + (slot * D::X_ROWS + row) * 4);
  }
  /* What sums are multiplied with: if W is P, for the rows of a few groups, from group `first` on; else for two rows.
   */
  using row_scales = float[D::SWAPPED ? GROUPS : 1][2];
  DEVICE void find_scales(row_scales &scales, int product, int first) const {
    constexpr int COUNT = D::SWAPPED ? GROUPS : 1;
    const uint32_t factors = at.factors + (D::TURNS ? index : slot) * D::X_ROWS * 4;
    if (D::IS_WIDE || D::E4M3 || __builtin_expect(!p.row_factors, 1)) {
      unrolled_for (int j = 0; j < COUNT; j++) scales[j][0] = scales[j][1] = p.finish.scale;
    } else if constexpr (D::SWAPPED) {
      unrolled_for (int j = 0; j < COUNT; j++) {
        const float2 two = factors_of(first + j);
        scales[j][0] = two.x, scales[j][1] = two.y;
      }
    } else {
      const uint32_t row = 64 * (share() * D::PRODUCTS + product) + 16 * warp + lane / 4;
      scales[0][0] = load_number(factors + row * 4), scales[0][1] = load_number(factors + row * 4 + 32);
    }
  }
  /* X and W in e4m3: the scales of the lane's rows, and of its columns. Outside the matrix the first is loaded. */
  DEVICE void scale_rows(row_scales &scales, int row, int matrix) const {
    const float *of = p.row_scales + matrix * p.row_scales_batch;
    if (!p.row_scales) return;
    unrolled_for (int h = 0; h < 2; h++) scales[0][h] *= of[row + 8 * h < (int)p.rows ? row + 8 * h : 0];
  }
  using column_scales = float2[GROUPS];
  DEVICE void load_column_scales(column_scales &by, int column, int matrix) const {
    const float *of = p.column_scales + matrix * p.column_scales_batch;
    unrolled_for (int j = 0; j < GROUPS; j++) {
      by[j] = make_float2(1, 1);
      if (p.column_scales) by[j] = *(const float2 *)(of + (column + 8 * j < (int)p.columns ? column + 8 * j : 0));
    }
  }
  DEVICE static float scale_of(const row_scales &scales, int j, int i) {
    return D::SWAPPED ? scales[j][i % 2] : scales[0][i / 2];
  }

  /* ---- Scale, bias, residual ---- */

  /* Bias and residual of a few groups of eight rows of Q. p0 and q0 are the lane's first rows. What is absent is -0,
   * which changes no sum. Outside the matrix its first number is loaded: a branch would make each load wait for the one
   * before. */
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
  template <typename T> DEVICE void take_residual(addends &residual, uint32_t box, int first) const {
    const uint32_t dtype = D::ANY ? p.finish.residual_dtype : gemm_dtype<T>::value;
    uint32_t words[GROUPS / 2][4];
    unrolled_for (int j = 0; j < GROUPS / 2; j++)
      D::SWAPPED ? ldmatrix_x4_transposed(words[j], matrices_at(box, first + j))
                 : ldmatrix_x4(words[j], matrices_at(box, first + j));
    unrolled_for (int j = 0; j < GROUPS / 2; j++)
      unrolled_for (int i = 0; i < 4; i++) {
        const float2 two = numbers_16::of(dtype, words[j][i]);
        residual[2 * j + i / 2][i % 2 * 2] = two.x, residual[2 * j + i / 2][i % 2 * 2 + 1] = two.y;
      }
  }
  /* Where a box of the residual is. `stage`: its first stage of this tile. */
  DEVICE int number_of(int product, int box) const { return box * D::PANELS + (int)share() * D::PRODUCTS + product; }
  DEVICE uint32_t residual_at(uint32_t stage, int number) const {
    const uint32_t in = stage + number / D::IN_STAGE;
    return at.stages + (in >= D::STAGES ? in - D::STAGES : in) * D::STAGE_BYTES + number % D::IN_STAGE * D::BOX_BYTES;
  }

  /* Numbers from codes are a little small, lest they exceed their type. */
  DEVICE static float whole_sum(float sum) { return D::SLOTS ? sum * GEMM_CODE_FACTOR : sum; }

  DEVICE static void clear(addends &numbers) {
    unrolled_for (int j = 0; j < GROUPS; j++)
      unrolled_for (int i = 0; i < 4; i++) numbers[j][i] = -0.0f;
  }

  /* The numbers of a product. p0 and q0 are the lane's first rows; `stage` is the residual's first. */
  template <typename T>
  DEVICE void finish(float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, uint32_t stage) const {
    row_scales scales;
    if (!D::SWAPPED) find_scales(scales, product, 0);
    if constexpr (D::E4M3) scale_rows(scales, p0, matrix);
    unrolled_for (int first = 0; first < D::STORED / 8; first += GROUPS) {
      if (D::SWAPPED) find_scales(scales, product, first);
      const int box = min(8 * first / D::BOX, D::BOXES - 1), q = q0 + 8 * first;
      addends numbers; /* a bias, then a residual */
      if (!D::ANY || !p.finish.bias)
        clear(numbers);
      else if (p.finish.bias_dtype == RONDO_F32)
        load_bias<numbers_32>(numbers, p0, q, matrix);
      else
        load_bias<numbers_16>(numbers, p0, q, matrix);
      if constexpr (D::E4M3) {
        column_scales by;
        load_column_scales(by, q, matrix);
        unrolled_for (int j = 0; j < GROUPS; j++)
          unrolled_for (int i = 0; i < 4; i++) d[4 * (first + j) + i] *= i % 2 ? by[j].y : by[j].x;
      }
      unrolled_for (int j = 0; j < GROUPS; j++)
        unrolled_for (int i = 0; i < 4; i++) {
          float &x = d[4 * (first + j) + i];
          x = fmaf(whole_sum(x), scale_of(scales, j, i), numbers[j][i]);
        }
      if (!D::IS_WIDE && p.boxed)
        take_residual<T>(numbers, residual_at(stage, number_of(product, box)), (8 * first - D::box_begin(box)) / 16);
      else if (!D::ANY || !p.finish.residual || p.finish.silu_mul)
        continue;
      else if (p.finish.residual_dtype == RONDO_F32)
        load_residual<numbers_32>(numbers, p0, q, matrix);
      else
        load_residual<numbers_16>(numbers, p0, q, matrix);
      unrolled_for (int j = 0; j < GROUPS; j++)
        unrolled_for (int i = 0; i < 4; i++) d[4 * (first + j) + i] += numbers[j][i];
    }
  }
};

} // namespace
