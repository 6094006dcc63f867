/* gemm_results.cuh - from a warpgroup's sums to results in memory, for gemm_wgmma.cuh: the parts of k meet, scale, bias
 * and residual are applied, and the results leave as boxes by way of shared memory, or from registers.
 *
 * A lane's numbers: d[4 j + 2 h + e] is row 16 w + g + 8 h of P and row 8 j + 2 t + e of Q, for lane 4 g + t of warp w
 * (common/wgmma.cuh). If W is P, columns of results are rows of P: stmatrix turns them. */
#pragma once

#include "../common/send.cuh"
#include "gemm_codes.cuh"
#include "gemm_copies.cuh"
#include "gemm_finish.cuh"
#include <type_traits>

namespace {

enum { GEMM_FIRST_BARRIER = 1 }; /* of the warpgroups' own; then those for turns */

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
  uint32_t there; /* a thread frees a stage for one of the blocks that share a tile with this one: its `empty` */

  DEVICE gemm_warpgroup(const gemm_wgmma_parameters &p, const gemm_block<D> &at)
      : p(p), at(at), index(threadIdx.x / 128), thread(threadIdx.x % 128), lane(threadIdx.x % 32),
        warp(threadIdx.x / 32 % 4), sent(0), there(0) {
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
  DEVICE uint32_t share() const { return D::TURNS ? 0 : index; }

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

  /* d becomes `own`, the columns of this block: each of the two parts sends the other one's columns, and adds. */
  DEVICE void meet(const float (&d)[D::COLUMNS / 2], float (&own)[D::STORED / 2]) const {
    constexpr int COUNT = D::STORED / 2;
    const bool is_first = at.part == 0;
    const uint32_t other = at.rank_of(at.cp, at.cq, at.part ^ 1);
    const uint32_t slot = at.staging + index * D::BUFFERS * GEMM_STAGING_BYTES + thread * 16, met = at.met + 8 * index;
    const uint32_t there = address_in_block(slot, other), met_there = address_in_block(met, other);
    unrolled_for (int i = 0; i < COUNT; i += 4)
      send_four(there + i / 4 * 2048,
                make_float4(is_first ? d[COUNT + i] : d[i], is_first ? d[COUNT + i + 1] : d[i + 1],
                            is_first ? d[COUNT + i + 2] : d[i + 2], is_first ? d[COUNT + i + 3] : d[i + 3]),
                met_there);
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

  /* Bias and residual of a few groups of eight rows of Q. p0 and q0 are the lane's first rows. What is absent is -0,
   * which changes no sum. Outside the matrix its first number is loaded: a branch would make each load wait for the one
   * before. */
  static constexpr int MANY = D::BOX / 8, FEW = D::IS_WIDE ? 2 : 4; /* as registers allow */
  static constexpr int GROUPS = D::BOX >= 32 && (D::IS_WIDE || D::OVERLAP) ? FEW : MANY;
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
    unrolled_for (int j = 0; j < GROUPS / 2; j++) load_matrices(words[j], matrices_at(box, first + j), D::SWAPPED);
    unrolled_for (int j = 0; j < GROUPS / 2; j++)
      unrolled_for (int i = 0; i < 4; i++) {
        const float2 two = numbers_16::of(dtype, words[j][i]);
        residual[2 * j + i / 2][i % 2 * 2] = two.x, residual[2 * j + i / 2][i % 2 * 2 + 1] = two.y;
      }
  }
  /* Where a box of the residual is. `stage`: its first stage of this tile. */
  DEVICE uint32_t residual_at(uint32_t stage, int product, int box) const {
    const int number = box * D::PANELS + (int)share() * D::PRODUCTS + product;
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
    unrolled_for (int first = 0; first < D::STORED / 8; first += GROUPS) {
      const int box = min(8 * first / D::BOX, D::BOXES - 1), q = q0 + 8 * first;
      addends bias, residual;
      if (!D::ANY || !p.finish.bias)
        clear(bias);
      else if (p.finish.bias_dtype == RONDO_F32)
        load_bias<numbers_32>(bias, p0, q, matrix);
      else
        load_bias<numbers_16>(bias, p0, q, matrix);
      if (!D::IS_WIDE && p.boxed)
        take_residual<T>(residual, residual_at(stage, product, box), (8 * first - D::box_begin(box)) / 16);
      else if (!D::ANY || !p.finish.residual || p.finish.silu_mul)
        clear(residual);
      else if (p.finish.residual_dtype == RONDO_F32)
        load_residual<numbers_32>(residual, p0, q, matrix);
      else
        load_residual<numbers_16>(residual, p0, q, matrix);
      unrolled_for (int j = 0; j < GROUPS; j++)
        unrolled_for (int i = 0; i < 4; i++)
          d[4 * (first + j) + i] = fmaf(whole_sum(d[4 * (first + j) + i]), p.finish.scale, bias[j][i]) + residual[j][i];
    }
  }

  /* ---- Out ---- */

  /* A box from registers: f32, and rows that no map can have. */
  DEVICE void store_numbers(const float *d, int p0, int q0, int matrix) const {
    const uint32_t dtype = p.finish.out_dtype;
    const int64_t begin = matrix * p.finish.out_batch;
    unrolled_for (int j = 0; j < D::BOX / 8; j++)
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

  /* If W is P, gate and up are neighbours of two lanes. One makes the upper result, x[0], and the other the lower one,
   * x[2]. The moves keep the selection from the products, which would wait for each other. */
  DEVICE float gated_by_two(const float *x) const {
    const bool is_lower = lane & 4;
    float mine, theirs;
    asm volatile("mov.f32 %0, %1;" : "=f"(mine) : "f"(is_lower ? x[2] : x[0]));
    asm volatile("mov.f32 %0, %1;" : "=f"(theirs) : "f"(is_lower ? x[0] : x[2]));
    theirs = __shfl_xor_sync(0xffffffffu, theirs, 4);
    return gated(is_lower ? theirs : mine, is_lower ? mine : theirs);
  }

  /* A box with silu_mul. */
  DEVICE void store_gated(const float *d, int p0, int q0, int matrix) const {
    unrolled_for (int first = 0; first < D::BOX / 8; first += 4) {
      float numbers[4][2];
      unrolled_for (int j = 0; j < 4; j++)
        unrolled_for (int i = 0; i < 2; i++) {
          const float *x = d + 4 * (first + j);
          if (D::SWAPPED) {
            numbers[j][i] = gated_by_two(x + i);
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

  /* ---- Out by boxes ---- */

  /* With silu_mul the results have half as many columns as the sums. */
  static constexpr bool CAN_GATE = gemm_tile_gates_by_box(D::TILE);
  static constexpr int GATED = D::STORED / 2, GATED_BOXES = CAN_GATE ? (GATED + 63) / 64 : 0;
  DEVICE static constexpr int gated_begin(int box) { return box == GATED_BOXES - 1 ? GATED - 64 : 64 * box; }

  template <typename Out> DEVICE void write_box(const float *d, uint32_t to) const {
    unrolled_for (int j = 0; j < D::BOX / 16; j++) {
      const float *x = d + 8 * j;
      const uint32_t a = pack_two<Out>(x[0], x[1]), b = pack_two<Out>(x[2], x[3]);
      const uint32_t c = pack_two<Out>(x[4], x[5]), e = pack_two<Out>(x[6], x[7]);
      if (D::SWAPPED)
        stmatrix_x4_transposed(matrices_at(to, j), a, b, c, e);
      else
        stmatrix_x4(matrices_at(to, j), a, b, c, e);
    }
  }

  /* Of each two groups a lane has one column. It exchanges those of one group with its neighbour, and then has two
   * neighbours of the other group, in two rows. Even lanes keep the lower group. */
  template <typename Out> DEVICE void gate(const float (&d)[D::STORED / 2], uint32_t (&words)[GATED / 8][2]) const {
    const bool is_odd = lane & 1;
    unrolled_for (int j = 0; j < GATED / 8; j++) {
      const float *x = d + 8 * j;
      const uint32_t lower = pack_two<Out>(gated(x[0], x[1]), gated(x[2], x[3]));
      const uint32_t upper = pack_two<Out>(gated(x[4], x[5]), gated(x[6], x[7]));
      const uint32_t other = __shfl_xor_sync(0xffffffffu, is_odd ? lower : upper, 1);
      const uint32_t left = is_odd ? other : lower, right = is_odd ? upper : other;
      words[j][0] = __byte_perm(left, right, 0x5410), words[j][1] = __byte_perm(left, right, 0x7632);
    }
  }
  DEVICE void write_gated_box(const uint32_t (*words)[2], uint32_t to) const {
    const uint32_t group = lane / 4, in_chunk = (lane & 1) * 8 + (lane & 2) * 2;
    unrolled_for (uint32_t j = 0; j < 8; j++)
      unrolled_for (uint32_t h = 0; h < 2; h++)
        asm volatile(
            "st.shared.u32 [%0], %1;" ::"r"(to + (16 * warp + group + 8 * h) * 128 + ((j ^ group) << 4) + in_chunk),
            "r"(words[j][h])
            : "memory");
  }

  /* If W is P, the lanes of a warp have eight columns of a box's rows, and a warpgroup 32: half of
   * the 128 bytes that a row has in shared memory. */
  template <typename Out> DEVICE void write_box_gated_by_two(const float *d, uint32_t to) const {
    unrolled_for (int j = 0; j < D::BOX / 8; j++) {
      float numbers[2];
      unrolled_for (int i = 0; i < 2; i++) {
        numbers[i] = gated_by_two(d + 4 * j + i);
      }
      const uint32_t two = pack_two<Out>(numbers[0], numbers[1]);
      unrolled_for (int i = 0; i < 2; i++) {
        const uint32_t row = lane % 4 * 2 + i;
        const uint32_t at = to + (8 * j + row) * 128 + ((warp ^ row) << 4) + (lane & 4) * 2 + lane / 8 * 2;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"((uint16_t)(two >> 16 * i)) : "memory");
      }
    }
  }

  DEVICE void send_box(int p0, int q0, int matrix, uint32_t from) const {
    box_store(&p.out, D::SWAPPED ? p0 : q0, D::SWAPPED ? q0 : p0, matrix, from);
    tensor_store_commit();
  }
  DEVICE uint32_t next_buffer() {
    const uint32_t to = at.staging + (index * D::BUFFERS + sent++ % D::BUFFERS) * GEMM_STAGING_BYTES;
    if (thread == 0) tensor_store_wait_read<D::BUFFERS - 1>();
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    return to;
  }
  DEVICE void send(int p0, int q0, int matrix, uint32_t from) const {
    writes_reach_products();
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    if (thread == 0) send_box(p0, q0, matrix, from);
  }
  /* The last tile's boxes leave by the stages: from where the residual was, or from the rows of P that only this
   * warpgroup has read. */
  DEVICE uint32_t place_in_stages(uint32_t stage, int product, int box) const {
    if (!D::IS_WIDE && p.boxed) return residual_at(stage, product, box);
    return at.stages + box * D::STAGE_BYTES + (share() * D::PRODUCTS + product) * GEMM_P_PANEL_BYTES;
  }
  DEVICE void send_at_once(int p0, int q0, int matrix, uint32_t stage) const {
    const bool is_gated = CAN_GATE && p.finish.silu_mul;
    const int boxes = is_gated ? GATED_BOXES : D::BOXES, product = (int)thread / boxes, box = (int)thread % boxes;
    writes_reach_products();
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    if (product < D::PRODUCTS)
      send_box(p0 + 64 * product, is_gated ? q0 / 2 + gated_begin(box) : q0 + D::box_begin(box), matrix,
               place_in_stages(stage, product, box));
  }

  /* A product's boxes, from buffers or by_stages. */
  template <typename Out>
  DEVICE void leave(const float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, uint32_t stage,
                    bool by_stages) {
    unrolled_for (int box = 0; box < D::BOXES; box++) {
      const float *numbers = d + D::box_begin(box) / 2;
      if (by_stages) {
        write_box<Out>(numbers, place_in_stages(stage, product, box));
      } else {
        const uint32_t to = next_buffer();
        write_box<Out>(numbers, to);
        send(p0, q0 + D::box_begin(box), matrix, to);
      }
    }
  }
  template <typename Out>
  DEVICE void leave_gated(const float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, bool by_stages) {
    uint32_t words[GATED / 8][2];
    gate<Out>(d, words);
    unrolled_for (int box = 0; box < GATED_BOXES; box++) {
      const uint32_t(*first)[2] = words + gated_begin(box) / 8;
      if (by_stages) {
        write_gated_box(first, place_in_stages(0, product, box));
      } else {
        const uint32_t to = next_buffer();
        write_gated_box(first, to);
        send(p0, q0 / 2 + gated_begin(box), matrix, to);
      }
    }
  }

  template <typename Out> DEVICE void leave_gated_by_two(const float *d, int p0, int q0, int matrix) {
    unrolled_for (int box = 0; box < D::BOXES; box++) {
      const uint32_t to = next_buffer();
      write_box_gated_by_two<Out>(d + D::box_begin(box) / 2, to);
      send(p0 / 2, q0 + D::box_begin(box), matrix, to);
    }
  }

  /* ---- A tile ---- */

  /* One thread of a tile fetches into L2 what the block's results are added to. */
  DEVICE void fetch_residual(uint32_t turn) const {
    if (!D::ANY || !p.fetched || thread || share()) return;
    const gemm_place place = gemm_place_of(p, at, turn);
    const int rows = D::SWAPPED ? D::STORED : D::P_ROWS, columns = D::SWAPPED ? D::P_ROWS : D::STORED;
    const int moved = (int)at.part * D::STORED, box_rows = D::SWAPPED ? D::BOX : 64;
    const int row = D::SWAPPED ? place.q + moved : place.p, column = D::SWAPPED ? place.p : place.q + moved;
    for (int i = 0; i < rows; i += box_rows)
      for (int j = 0; j < columns; j += (int)p.fetched) box_prefetch(&p.residual, column + j, row + i, place.matrix);
  }

  /* From registers. */
  DEVICE void store_each(const float (&d)[D::STORED / 2], int p0, int q0, int matrix) const {
    unrolled_for (int box = 0; box < D::BOXES; box++) {
      const int begin = D::box_begin(box);
      if (p.finish.silu_mul)
        store_gated(d + begin / 2, p0, q0 + begin, matrix);
      else
        store_numbers(d + begin / 2, p0, q0 + begin, matrix);
    }
  }

  template <typename T>
  DEVICE void store_product(float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, uint32_t stage,
                            bool by_stages) {
    const int lane_p = p0 + 16 * (int)warp + (int)lane / 4, lane_q = q0 + 2 * ((int)lane % 4);
    if (p.finishing) finish<T>(d, product, lane_p, lane_q, matrix, stage);
    if constexpr (D::SWAPPED && !std::is_same_v<T, either>)
      if (p.by_map && p.finish.silu_mul) return leave_gated_by_two<T>(d, p0, q0, matrix);
    if constexpr (!D::ANY) {
      if constexpr (CAN_GATE)
        if (p.finish.silu_mul) return leave_gated<T>(d, product, p0, q0, matrix, by_stages);
      return leave<T>(d, product, p0, q0, matrix, stage, by_stages);
    } else {
      store_any(d, product, p0, q0, matrix, stage, by_stages);
    }
  }
  DEVICE void store_any(float (&d)[D::STORED / 2], int product, int p0, int q0, int matrix, uint32_t stage,
                        bool by_stages) {
    const int lane_p = p0 + 16 * (int)warp + (int)lane / 4, lane_q = q0 + 2 * ((int)lane % 4);
    const bool is_bf16 = p.finish.out_dtype == RONDO_BF16;
    if (!p.by_map) return store_each(d, lane_p, lane_q, matrix);
    if constexpr (CAN_GATE)
      if (p.finish.silu_mul) {
        if (is_bf16)
          return leave_gated<__nv_bfloat16>(d, product, p0, q0, matrix, by_stages);
        else
          return leave_gated<__half>(d, product, p0, q0, matrix, by_stages);
      }
    if (is_bf16)
      leave<__nv_bfloat16>(d, product, p0, q0, matrix, stage, by_stages);
    else
      leave<__half>(d, product, p0, q0, matrix, stage, by_stages);
  }

  /* All results of a tile. `stage` is the first with its residual, `left` the number of the block's stages from there
   * on. `by_stages`: nothing will be copied to the stages any more, and all of them have this tile. */
  template <typename T>
  DEVICE void store(float (&d)[D::PRODUCTS][D::COLUMNS / 2], const gemm_place &place, uint32_t left, uint32_t stage,
                    bool by_stages) {
    const int p0 = place.p + (int)share() * D::PRODUCTS * 64, q0 = place.q + (int)at.part * D::STORED;
    by_stages = by_stages && p.by_map && !(D::SWAPPED && p.finish.silu_mul);
    if (D::IS_WIDE) find_lane(); /* so it takes no registers during the products */
    unrolled_for (int product = 0; product < D::PRODUCTS; product++) {
      if constexpr (D::PARTS > 1) {
        float own[D::STORED / 2];
        meet(d[product], own);
        store_product<T>(own, product, p0 + 64 * product, q0, place.matrix, stage, by_stages);
      } else {
        store_product<T>(d[product], product, p0 + 64 * product, q0, place.matrix, stage, by_stages);
      }
    }
    if (by_stages) return send_at_once(p0, q0, place.matrix, stage);
    if (D::IS_WIDE || !p.boxed) return;
    warps_meet(GEMM_FIRST_BARRIER + index, 128);
    unrolled_for (uint32_t i = 0; i < D::RESIDUAL_FILLS; i++)
      free_stage(left - i, stage + i >= D::STAGES ? stage + i - D::STAGES : stage + i);
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
