/* harness.cu - checks and times every instance of the GEMV kernels on the shapes of the table.
 *
 *   harness check                 small and odd shapes against fp64
 *   harness time [word ...]       2..16 vectors; only lines that contain one of the words ("nvfp4:bf16 4096x4096 n8.")
 *   harness chain                 8 dependent launches, plain and programmatic edges
 *
 * Cold: a graph of launches that rotate over at least 400 MB of weights, plain edges, device events, median of the
 * replays, time per launch. Random data, all codes. Each timed case is first checked on sampled rows against fp64: the
 * largest |got - reference| / sum of |terms|; all outputs must be written, three launches must agree to the bit. */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "variants.h"

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != cudaSuccess) {                                                                                       \
      printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_));                                           \
      fflush(stdout);                                                                                                  \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

struct shape {
  number_format weights, vectors;
  int m, k, batch, count;
  double must; /* us; 0: none */
};

static const char *name_of(number_format f) {
  static const char *const names[] = {"nvfp4", "e4m3", "f16", "bf16", "f32"};
  return names[f];
}
static size_t bits_of_format(number_format f) { return f == NVFP4 ? 4 : f == E4M3 ? 8 : f == F32 ? 32 : 16; }

/* ---- Data ---------------------------------------------------------------------------------------------------------
 */

__global__ void fill(uint32_t *out, size_t count, number_format format, bool scales, uint32_t seed) {
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    uint32_t value = (uint32_t)z, more = (uint32_t)(z >> 32), result = value;
    if (format == E4M3 || scales) {
      result = 0;
      for (int j = 0; j < 4; j++) {
        uint32_t byte = value >> (8 * j) & 255, other = more >> (8 * j) & 255;
        if (scales) byte = other & 15 ? 0x28 + (byte & 31) : byte; /* mostly around 1, some of every kind */
        if ((byte & 127) == 127) byte ^= 1;
        result |= byte << (8 * j);
      }
    } else if (format == BF16 || format == F16) {
      result = 0;
      for (int j = 0; j < 2; j++) {
        uint32_t half = value >> (16 * j) & 0xffff;
        half = format == BF16 ? (half & 0x807f) | (118 + (half >> 7 & 255) % 12) << 7
                              : (half & 0x83ff) | (8 + (half >> 10 & 31) % 10) << 10;
        result |= half << (16 * j);
      }
    }
    out[i] = result;
  }
}

static double e4m3_value(int byte) {
  int exponent = byte >> 3 & 15, mantissa = byte & 7;
  double v = exponent ? ldexp(1 + mantissa / 8.0, exponent - 7) : ldexp(mantissa / 8.0, -6);
  return byte & 128 ? -v : v;
}

static double element_of(number_format format, const uint8_t *row, const uint8_t *scales, size_t k) {
  static const double e2m1[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  if (format == NVFP4) {
    int code = row[k / 2] >> (k % 2 * 4) & 15;
    return (code & 8 ? -1 : 1) * e2m1[code & 7] * e4m3_value(scales[k / 16]);
  }
  if (format == E4M3) return e4m3_value(row[k]);
  uint16_t half;
  memcpy(&half, row + 2 * k, 2);
  if (format == BF16) {
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
  }
  int exponent = half >> 10 & 31, mantissa = half & 1023;
  double v = exponent ? ldexp(1 + mantissa / 1024.0, exponent - 15) : ldexp(mantissa / 1024.0, -14);
  return half & 0x8000 ? -v : v;
}

static const size_t weight_capacity = (size_t)2300 << 20, scale_capacity = (size_t)96 << 20,
                    vector_capacity = (size_t)8 << 20, out_capacity = (size_t)32 << 20;
static uint8_t *weights, *weight_scales, *vectors, *vector_scales;
static float *out;
static cudaStream_t stream;
static int multiprocessors;
static int replays = 5;
static number_format filled_weights = F32, filled_vectors = F32;

static void fill_for(number_format w, number_format v) {
  if (filled_weights != w) fill<<<2048, 256, 0, stream>>>((uint32_t *)weights, weight_capacity / 4, w, false, 1);
  if (filled_vectors != v) fill<<<256, 256, 0, stream>>>((uint32_t *)vectors, vector_capacity / 4, v, false, 2);
  filled_weights = w;
  filled_vectors = v;
  CHECK(cudaStreamSynchronize(stream));
}

/* ---- Launches -------------------------------------------------------------------------------------------------------
 */

struct plan {
  variant v;
  gemv_parameters p;
  dim3 grid;
  int shared;
  std::string name;
};

static void launch(const plan &plan, const gemv_parameters &p, bool programmatic) {
  cudaLaunchConfig_t config = {};
  config.gridDim = plan.grid;
  config.blockDim = dim3(plan.v.threads);
  config.dynamicSmemBytes = plan.shared;
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  int count = 0;
  if (plan.v.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = plan.v.cluster;
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    count++;
  }
  if (programmatic) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    count++;
  }
  config.attrs = attributes;
  config.numAttrs = count;
  gemv_parameters copy = p;
  void *arguments[] = {&copy};
  CHECK(cudaLaunchKernelExC(&config, plan.v.kernel, arguments));
}

static bool fits(const variant &v, const shape &s) {
  if (v.weights != s.weights || v.vectors != s.vectors) return false;
  if (s.count > v.most_vectors || s.count < v.least_vectors) return false;
  if (s.k % v.step_k || s.m < v.block_rows) return false;
  if (v.vector_rows) { /* any k; little of the chunks may be empty */
    if (s.m * s.k <= 1 << 17) return true;
    int chunks = (s.k + v.covered_k - 1) / v.covered_k;
    return chunks * v.covered_k <= s.k * 1.16 && chunks <= 8;
  }
  if (v.loops) { /* every part has a chunk; no more than two turns or whole turns */
    int chunks = (s.k + v.part_k - 1) / v.part_k, parts = v.covered_k / v.part_k;
    if (chunks < parts || (chunks % parts && chunks > 2 * parts)) return false;
    return v.full == (s.k % v.covered_k == 0);
  }
  if (v.covered_k < s.k || v.covered_k - v.part_k >= s.k) return false;
  return v.full == (v.covered_k == s.k);
}

/* resident: thread blocks that the grid may have; 0: as many as there are tiles */
static plan make_plan(const variant &v, const shape &s, int resident) {
  plan plan = {};
  plan.v = v;
  gemv_parameters &p = plan.p;
  p.weights = weights;
  p.weight_scales = weight_scales;
  p.vectors = vectors;
  p.vector_scales = vector_scales;
  p.out = out;
  p.m = s.m;
  p.k = s.k;
  p.count = s.count;
  p.out_format = F32;
  p.scale = 1;
  p.group_tiles = 1;
  uint64_t row = s.k * bits_of_format(s.weights) / 8;
  p.weight_batch = row * s.m;
  p.scale_batch = s.weights == NVFP4 ? (uint64_t)s.m * s.k / 16 : 0;
  int blocks = (s.m + v.block_rows - 1) / v.block_rows;
  p.tiles = v.shared_bits_per_k ? (s.m + 15) / 16 : blocks;
  if (resident) blocks = std::min<int>(blocks, std::max(1, resident / s.batch));
  plan.grid = dim3(blocks, s.batch);
  plan.shared = v.shared_base + (int)((int64_t)v.shared_bits_per_k * ((s.k + 127) / 128 * 128) / 8);
  if (v.cluster > 1) { /* as many clusters as fit, sums of all their tiles in shared memory */
    int clusters = p.tiles;
    if (resident) {
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(v.cluster);
      config.blockDim = dim3(v.threads);
      config.dynamicSmemBytes = 16384;
      cudaLaunchAttribute attribute;
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim.x = v.cluster;
      attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
      config.attrs = &attribute;
      config.numAttrs = 1;
      CHECK(cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
      CHECK(cudaOccupancyMaxActiveClusters(&clusters, v.kernel, &config));
      clusters = std::min<int>(p.tiles, std::max(1, clusters / s.batch));
    }
    const int tiles = (p.tiles + clusters - 1) / clusters;
    plan.grid = dim3((p.tiles + tiles - 1) / tiles * v.cluster, s.batch);
    plan.shared = tiles * v.most_vectors * v.block_rows * 4;
  }
  if (v.vector_rows) {
    const int most = 227 * 1024 / v.persistent_blocks - 2048, one_tile = v.split_k * s.count * 20 * 4;
    const int vector_bytes = v.vector_rows * (s.count * 64 + v.row_padding);
    blocks = resident ? std::max(1, resident / s.batch) : (s.m + 15) / 16;
    p.block_rows = std::max(8, (s.m + blocks - 1) / blocks);
    p.group_tiles = std::min<int>((p.block_rows + 15) / 16, std::min(8, std::max(0, most - vector_bytes) / one_tile));
    p.chunks = (s.k + v.covered_k - 1) / v.covered_k;
    plan.grid = dim3((s.m + p.block_rows - 1) / p.block_rows, s.batch);
    plan.shared = vector_bytes + p.group_tiles * one_tile;
  }
  if (v.groups) {
    p.rows_per_stream = s.m / (blocks * v.groups);
    p.longer_streams = s.m % (blocks * v.groups);
    if (v.split_k > 1) plan.shared += v.split_k * v.groups * (p.rows_per_stream + 1) * 4;
  }
  plan.name = v.name + (resident ? "" : " once");
  return plan;
}

static void allow_shared(const plan &plan) {
  if (plan.shared > 40 * 1024)
    CHECK(cudaFuncSetAttribute(plan.v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared));
}

/* ---- Checks ---------------------------------------------------------------------------------------------------------
 */

static std::vector<uint8_t> fetch(const void *from, size_t bytes) {
  std::vector<uint8_t> v(bytes);
  CHECK(cudaMemcpy(v.data(), from, bytes, cudaMemcpyDeviceToHost));
  return v;
}

static double verify(const plan &plan, const shape &s, int rows_per_matrix) {
  size_t outputs = (size_t)s.batch * s.count * s.m;
  CHECK(cudaMemset(out, 0xff, outputs * 4));
  std::vector<float> y(outputs), again(outputs);
  for (int i = 0; i < 3; i++) {
    launch(plan, plan.p, false);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(i ? again.data() : y.data(), out, outputs * 4, cudaMemcpyDeviceToHost));
    if (i && memcmp(y.data(), again.data(), outputs * 4)) return 2e9;
  }
  for (float value : y)
    if (!(fabsf(value) < 1e30f)) return 1e9;
  double worst = 0;
  size_t vector_row = s.k * bits_of_format(s.vectors) / 8, weight_row = s.k * bits_of_format(s.weights) / 8;
  for (int b = 0; b < s.batch; b++) {
    auto x = fetch(vectors + b * s.count * vector_row, s.count * vector_row);
    auto x_scales = fetch(vector_scales + (size_t)b * s.count * s.k / 16, (size_t)s.count * s.k / 16 + 1);
    std::vector<double> x_values((size_t)s.count * s.k);
    for (int n = 0; n < s.count; n++)
      for (int k = 0; k < s.k; k++)
        x_values[(size_t)n * s.k + k] =
            element_of(s.vectors, x.data() + n * vector_row, x_scales.data() + (size_t)n * s.k / 16, k);
    for (int i = 0; i < std::min(rows_per_matrix, s.m); i++) {
      int row = rows_per_matrix >= s.m ? i
                : i == 0               ? 0
                : i == 1               ? s.m - 1
                                       : (int)((i * 2654435761u + b * 40503u) % s.m);
      auto w = fetch(weights + ((size_t)b * s.m + row) * weight_row, weight_row);
      auto w_scales = fetch(weight_scales + ((size_t)b * s.m + row) * (s.k / 16), s.k / 16 + 1);
      std::vector<double> w_values(s.k);
      for (int k = 0; k < s.k; k++) w_values[k] = element_of(s.weights, w.data(), w_scales.data(), k);
      for (int n = 0; n < s.count; n++) {
        double reference = 0, sum = 0;
        for (int k = 0; k < s.k; k++) {
          double term = w_values[k] * x_values[(size_t)n * s.k + k];
          reference += term;
          sum += fabs(term);
        }
        worst = std::max(worst, fabs(y[((size_t)b * s.count + n) * s.m + row] - reference) / sum);
      }
    }
  }
  return worst;
}

/* ---- Times ----------------------------------------------------------------------------------------------------------
 */

template <typename Go> static double time_of(Go go, int launches) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < launches; i++) go(i);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  static cudaEvent_t begin, end;
  if (!begin) {
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
  }
  std::vector<float> times;
  for (int i = 0; i < replays + 2; i++) {
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 2) times.push_back(milliseconds);
  }
  std::sort(times.begin(), times.end());
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  return times[times.size() / 2] * 1e3 / launches;
}

__global__ void __launch_bounds__(512) read_only(const uint4 *data, size_t count, uint32_t *sink) {
  size_t first = (size_t)blockIdx.x * 2048 + threadIdx.x;
  uint32_t all = 0;
  words v[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    v[i] = words();
    if (first + 512 * i < count) v[i] = load_weights((const uint8_t *)(data + first + 512 * i));
  }
#pragma unroll
  for (int i = 0; i < 4; i++) all ^= v[i].word[0] ^ v[i].word[1] ^ v[i].word[2] ^ v[i].word[3];
  if (all == 0x12345) *sink = all;
}

static size_t bytes_of(const shape &s) {
  size_t elements = (size_t)s.batch * s.m * s.k;
  return elements * bits_of_format(s.weights) / 8 + (s.weights == NVFP4 ? elements / 16 : 0);
}

static int copies_of(const shape &s) { return (int)((400000000 + bytes_of(s) - 1) / bytes_of(s)); }
/* Launches of a graph. A replay costs some 10 us once, so a graph of 25 launches shows each 0.4 us too slow: "long"
 * ones read 20 GB or launch 2000 times. */
static bool long_graphs = true;
static int launches_of(const shape &s) {
  int copies = copies_of(s);
  int wanted = long_graphs ? (int)std::min<size_t>(2000, (size_t)20e9 / bytes_of(s)) : 24;
  return copies * std::max(1, (wanted + copies - 1) / copies);
}

static double time_read(const shape &s) {
  size_t bytes = bytes_of(s);
  int copies = copies_of(s);
  return time_of(
      [&](int i) {
        size_t offset = bytes / 16 * 16 * (i % copies);
        read_only<<<(unsigned)((bytes / 16 + 2047) / 2048), 512, 0, stream>>>((const uint4 *)(weights + offset),
                                                                              bytes / 16, (uint32_t *)out);
      },
      launches_of(s));
}

static double time_plan(const plan &plan, const shape &s) {
  int copies = copies_of(s);
  return time_of(
      [&](int i) {
        gemv_parameters p = plan.p;
        p.weights += p.weight_batch * s.batch * (i % copies);
        p.weight_scales += p.scale_batch * s.batch * (i % copies);
        launch(plan, p, false);
      },
      launches_of(s));
}

static std::vector<variant> all_variants() {
  std::vector<variant> all;
  for (auto family : {staged_nvfp4_variants, staged_mixed_variants, staged_wide_variants, quads_nvfp4_variants,
                      quads_mixed_variants, quads_wide_variants})
    for (auto &v : family()) all.push_back(v);
  return all;
}

struct result {
  double us;
  std::string name;
};

static void time_shape(const shape &s, const std::vector<variant> &variants) {
  fill_for(s.weights, s.vectors);
  double read = time_read(s);
  char title[96];
  snprintf(title, sizeof title, "%s x %s %dx%d l%d n%d", name_of(s.weights), name_of(s.vectors), s.m, s.k, s.batch,
           s.count);
  std::vector<result> results;
  for (const variant &v : variants) {
    if (!fits(v, s) || !make_plan(v, s, 0).p.group_tiles) continue;
    if (v.vector_rows) CHECK(cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 224 * 1024));
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, v.kernel));
    int blocks = 0;
    const int shared = make_plan(v, s, 0).shared;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, v.kernel, v.threads, shared));
    int resident = blocks * multiprocessors, tiles = (s.m + v.block_rows - 1) / v.block_rows * s.batch;
    std::vector<plan> plans;
    plans.push_back(make_plan(v, s, v.persistent_blocks * multiprocessors));
    bool first = true;
    for (const plan &plan : plans) {
      double error = first ? verify(plan, s, s.batch > 1 ? 4 : 10) : verify(plan, s, 2);
      first = false;
      double us = time_plan(plan, s);
      printf("  %-44s thr%-4d grid%-6d occ%d regs%d%s  %7.2f us  %.2f TB/s  x%.3f of must  err %.1e%s\n",
             plan.name.c_str(), v.threads, plan.grid.x * plan.grid.y, blocks, attributes.numRegs,
             attributes.localSizeBytes ? " SPILL" : "", us, bytes_of(s) / us * 1e-6, s.must ? us / s.must : 0.0, error,
             error > 4e-6 ? " WRONG" : "");
      if (error <= 4e-6 && !attributes.localSizeBytes) results.push_back({us, plan.name});
    }
  }
  std::sort(results.begin(), results.end(), [](const result &a, const result &b) { return a.us < b.us; });
  printf("%-44s read %.2f us (%.2f TB/s)", title, read, bytes_of(s) / read * 1e-6);
  if (!results.empty())
    printf(" | best %.2f us = %.2f of read, must %.2f, ratio %.3f | %s", results[0].us, results[0].us / read, s.must,
           s.must ? results[0].us / s.must : 0.0, results[0].name.c_str());
  for (size_t i = 1; i < results.size() && i < 3; i++) printf(" ; %.2f %s", results[i].us, results[i].name.c_str());
  printf("\n");
  fflush(stdout);
}

/* One vector's time in the first round, us, and what several may cost. */
static std::vector<shape> table() {
  struct row {
    int m, k, batch;
    double integer, mixed, bf16, fp8;
  };
  const row rows[] = {{7168, 16384, 1, 18.29, 22.25, 56.1, 29.6},  {4096, 7168, 8, 33.8, 36.3, 110.4, 0},
                      {7168, 2048, 4, 10.3, 12.45, 28.65, 0},      {4096, 4096, 1, 4.55, 5.57, 9.74, 6.06},
                      {14336, 4096, 1, 10.16, 12.4, 28.65, 15.8},  {4096, 14336, 1, 10.5, 13.3, 29.0, 15.8},
                      {128256, 4096, 1, 71.0, 77.9, 237.9, 121.9}, {576, 576, 1, 1.89, 2.26, 2.09, 0},
                      {1536, 576, 1, 2.02, 2.47, 2.38, 0},         {576, 1536, 1, 2.08, 2.51, 2.36, 0},
                      {49152, 576, 1, 7.7, 8.66, 15.2, 0}};
  std::vector<shape> shapes;
  for (int n : {2, 4, 8, 16}) {
    const double factor = n <= 4 ? 1.3 : n == 8 ? 1.4 : 2.0;
    for (const row &r : rows) shapes.push_back({NVFP4, NVFP4, r.m, r.k, r.batch, n, factor * r.integer});
    for (const row &r : rows) shapes.push_back({NVFP4, BF16, r.m, r.k, r.batch, n, factor * r.mixed});
    for (const row &r : rows) shapes.push_back({BF16, BF16, r.m, r.k, r.batch, n, factor * r.bf16});
    for (const row &r : rows)
      if (r.fp8) shapes.push_back({E4M3, BF16, r.m, r.k, r.batch, n, factor * r.fp8});
  }
  return shapes;
}

static void check(const std::vector<variant> &variants) {
  const int sizes[][3] = {{64, 576, 1},   {71, 1024, 1},  {33, 2048, 3},  {65, 4096, 2}, {129, 1536, 1}, {67, 7168, 1},
                          {40, 14336, 1}, {64, 16384, 1}, {513, 1040, 1}, {32, 32, 1},   {77, 4064, 1}};
  int cases = 0, bad = 0;
  for (const variant &v : variants) {
    fill_for(v.weights, v.vectors);
    for (auto &size : sizes)
      for (int n : {1, 3, 8, 9, 16}) {
        shape s = {v.weights, v.vectors, size[0], size[1], size[2], n, 0};
        if (!fits(v, s) || !make_plan(v, s, 0).p.group_tiles) continue;
        allow_shared(make_plan(v, s, 0));
        for (int resident : {0, 7}) {
          if (resident && !v.persistent_blocks) continue;
          plan plan = make_plan(v, s, resident);
          allow_shared(plan);
          double error = verify(plan, s, 1000);
          cases++;
          if (error > 4e-6) {
            bad++;
            printf("WRONG %s %s x %s %dx%d l%d n%d: %.2e\n", plan.name.c_str(), name_of(s.weights), name_of(s.vectors),
                   s.m, s.k, s.batch, n, error);
          }
        }
      }
  }
  printf("check: %d cases, %d wrong\n", cases, bad);
}

static void chain(const std::vector<variant> &variants) {
  for (number_format vector_format : {NVFP4, BF16})
    for (const variant &v : variants) {
      shape s = {NVFP4, vector_format, 4096, 4096, 1, 1, 0};
      if (!fits(v, s)) continue;
      fill_for(s.weights, s.vectors);
      plan plan = make_plan(v, s, v.persistent_blocks * multiprocessors);
      allow_shared(plan);
      int copies = copies_of(s);
      double us[3];
      for (int mode = 0; mode < 3; mode++) /* plain edges, programmatic ones, weights before the wait */
        us[mode] = time_of(
            [&](int i) {
              gemv_parameters p = plan.p;
              p.weights += p.weight_batch * (i % copies);
              p.weight_scales += p.scale_batch * (i % copies);
              p.early = mode == 2;
              launch(plan, p, mode > 0);
            },
            copies * 2);
      printf(
          "chain %s x %s 4096x4096 %-34s plain %.2f  programmatic %.2f  early weights %.2f us each (%.2f of plain)\n",
          name_of(s.weights), name_of(s.vectors), plan.name.c_str(), us[0], us[1], us[2], us[2] / us[0]);
    }
}

int main(int argc, char **argv) {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  multiprocessors = properties.multiProcessorCount;
  printf("%s, %d multiprocessors\n", properties.name, multiprocessors);
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMalloc(&weights, weight_capacity));
  CHECK(cudaMalloc(&weight_scales, scale_capacity));
  CHECK(cudaMalloc(&vectors, vector_capacity));
  CHECK(cudaMalloc(&vector_scales, vector_capacity));
  CHECK(cudaMalloc(&out, out_capacity));
  fill<<<1024, 256, 0, stream>>>((uint32_t *)weight_scales, scale_capacity / 4, E4M3, true, 3);
  fill<<<256, 256, 0, stream>>>((uint32_t *)vector_scales, vector_capacity / 4, E4M3, true, 4);
  std::vector<variant> variants = all_variants();
  std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "short") long_graphs = false, mode = "time"; /* as the first prototype timed */
  if (mode == "check") check(variants);
  if (mode == "chain") chain(variants);
  if (mode == "time")
    for (const shape &s : table()) {
      char line[96];
      snprintf(line, sizeof line, "%s:%s %dx%d n%d.", name_of(s.weights), name_of(s.vectors), s.m, s.k, s.count);
      bool wanted = argc <= 2, exists = false;
      for (int i = 2; i < argc; i++) wanted |= strstr(line, argv[i]) != nullptr;
      for (const variant &v : variants) exists |= fits(v, s);
      if (wanted && exists) time_shape(s, variants);
    }
  CHECK(cudaDeviceSynchronize());
  return 0;
}
